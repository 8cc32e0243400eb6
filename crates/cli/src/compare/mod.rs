//! `tidegate compare`: a recording of a real kernel beside the lab.
//!
//! ```text
//!   folder of tables --.                      .--> measure --.
//!                       >-- Recording --------+              +--> tables, plots, report
//!   text of a trace --'     (Setting, Outcome) '--> lab -----'
//!                                |                  ^
//!                                '---- --set -------'
//! ```
//!
//! A recording becomes what a run of the lab answers, an `Outcome`, and its circumstances a `Setting`,
//! which is written as a scenario and run. So recording and lab are measured by one function
//! (`measure`), and nothing is fitted to a recording: the lab sees its setting and nothing else.
//!
//! Invariants
//!   1. What cannot be used is refused with file, line and what is allowed (`Fault`).
//!   2. What was assumed, inferred or left out is a note, and every note is printed.
//!   3. Units: MiB/s for rates, MiB for levels, ms for pauses and writes, seconds for times.

mod command;
pub mod fault;
mod folder;
pub mod lab;
pub mod measure;
pub mod recording;
mod rows;
pub mod setting;
mod several;
mod show;
pub mod what_if;

pub use command::CompareError;
pub(crate) use command::main;
pub use fault::Fault;
pub use measure::{Measures, QUANTITIES, measure};
pub use recording::Recording;
pub use setting::Setting;

//! `tidegate compare`: a recording of a real kernel beside the lab.
//!
//! ```text
//!   scenario.toml and tables --.                            .--> figures --.
//!                               >-- Recording --------------+              +--> tables, plots, report
//!   text of a trace -----------'     (Setting, Outcome)     '--> lab ------'
//!                                        ^
//!                                        '---- --set
//! ```
//!
//! A recording is a scenario with what came of it. So recording and lab are measured by one
//! function (`figures::measure`), and nothing is fitted to a recording: the lab sees its scenario
//! and nothing else. Of a trace the scenario is inferred.
//!
//! Invariants
//!   1. A recording that cannot be used is refused with file, line and what is allowed (`Fault`).
//!   2. Assumptions, inferences and omissions are notes, and every note is printed.
//!   3. Units: MiB/s for rates, MiB for levels, ms for pauses and writes, seconds for times;
//!      counters under the kernel's names and in its units.

mod answer;
pub mod change;
mod command;
pub mod differ;
pub mod fault;
pub mod figures;
mod folder;
pub mod guess;
pub mod kind;
pub mod lab;
mod load;
mod pressure;
pub mod recording;
mod rows;
pub mod scale;
pub mod setting;
pub mod several;
mod show;
mod sweep;
mod ticks;
mod trace;

pub use change::{Change, keys};
pub use command::{Asked, CompareError, Comparison, compare, main};
pub use fault::Fault;
pub use figures::measure;
pub use recording::Recording;
pub use setting::Setting;

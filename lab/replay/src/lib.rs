//! Traces of accesses under page rules and sizes, in virtual time: `tidegate replay`.
//!
//! ```text
//!   command: traces x rules x sizes, side by side
//!      |
//!   trace (a file, six formats; a sample) --> run: one after the other --> output: table, CSV, plot, JSON
//!                                    |-- rules: those of the literature, a page a step
//!                                    '-- live: presets of ours, through `mm` in the lab
//! ```
#![forbid(unsafe_code)]

mod command;
mod live;
mod output;
pub mod rules;
pub mod run;
pub mod trace;

pub use command::{Asked, ReplayError, Size, main, rate, tables};
pub use experiment::Stop;
pub use output::{Row, Table};

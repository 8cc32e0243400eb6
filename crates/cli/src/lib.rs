//! The program `tidegate`: serves volumes, and re-runs published experiments in virtual time and on real files.
//!
//! ```text
//!   args -> program -> scenario (TOML, checked)      experiments, presets, catalogue: what there is
//!                   -> run      (cells: a row and a column; lab or live; one session over any Env)
//!                   -> outcome  (plain data) -> metrics -> stats -> table, report
//!                                            -> expect  (bands)
//!                                            -> output  (CSV, SVG, HTML)
//!                   task      (what a kind of task is) <- kinds (each of them, and the list)
//!                -> reproduce (every published claim: runs, judged, one scoreboard)
//!                -> compare  (a recording of a real kernel -> outcome; its setting -> scenario -> run)
//! ```
//!
//! Everything heavy that Tidegate uses is a dependency of this crate alone.
#![forbid(unsafe_code)]

pub mod args;
pub mod catalogue;
pub mod compare;
pub mod expect;
pub mod experiments;
pub mod kinds;
pub mod list;
pub mod metrics;
pub mod outcome;
pub mod output;
pub mod pool;
pub mod presets;
pub mod program;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod scenario;
#[cfg(feature = "serve")]
pub mod serve;
mod stalls;
pub mod stats;
pub mod table;
mod task;
pub mod terminal;
pub mod trial;
pub mod watch;

//! Experiments as checked TOML: the keys of their tables, the kinds of task, the presets of their
//! columns, and those that come with the program.
//!
//! ```text
//!   document (tables, checks, overrides)  <-  kinds (keys and traits of each, and the list)
//!      |                                          |
//!   keys (a line a key: read, listed)     <-  limits, task, units
//!   experiments, presets, catalogue: names that keys take
//! ```
//!
//! Nothing here runs: a machine or a cell is made of a scenario in `experiment`.
#![forbid(unsafe_code)]

pub mod catalogue;
mod document;
pub mod experiments;
pub mod keys;
pub mod kinds;
mod limits;
mod mistake;
pub mod presets;
pub mod task;
pub mod units;

pub use document::*;

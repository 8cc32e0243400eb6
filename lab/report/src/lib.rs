//! The results of runs, for people and for programs; and what is said while they run.
//!
//! ```text
//!   outcomes --> comparison (the printed tables, in the papers' layouts) --> output (CSV, SVG, HTML, traces)
//!                table, stalls: parts of what is printed                     terminal (standard output, progress)
//! ```
//!
//! Invariant: no number is printed that was not measured, published values apart, and those are
//! marked.
#![forbid(unsafe_code)]

pub mod comparison;
pub mod diff;
pub mod output;
mod stalls;
pub mod status;
mod table;
pub mod terminal;

pub use comparison::Report;

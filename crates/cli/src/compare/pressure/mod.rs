//! Recordings of memory pressure: who scanned, reclaimed and swapped how much, how long a task waited for fresh memory, what it
//! cost in CPU time, who was throttled and why, and what memory held.
//!
//! ```text
//!   scenario.json, facts.json, first sample --> Setting --> scenario --> lab --> Outcome --.
//!                                                                                          >-- FIGURES --> table, bands
//!   vmstat.csv, samples.csv, summary.json --------------------------------> Outcome -------'
//! ```
//!
//! As with recordings of dirty throttling, the lab sees the setting and nothing else, and one function of `FIGURES` measures
//! both sides.
//!
//! Invariants
//!   1. What cannot be used is refused with file, line and what is allowed (`Fault`).
//!   2. What was assumed, inferred or left out is a note, and every note is printed.
//!   3. Counters are under the kernel's names and in its units; levels in MiB, lengths in ms, CPU time in s.

pub mod figures;
pub mod guess;
pub mod lab;
pub mod recording;
pub mod setting;
mod show;

pub use figures::{FIGURES, Figure, judge, measure};
pub use recording::Recording;
pub use setting::Setting;
pub(super) use show::run;

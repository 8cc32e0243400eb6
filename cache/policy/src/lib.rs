//! Pure decisions of reclaim and writeback: integers in, verdicts out.
//!
//! A decision is a function from `now` and one snapshot to a verdict. Nothing here has a clock, a
//! thread, a lock, an atomic, a float, a hash map, does I/O or logs; so everything here can be
//! tested as a table or as a series, and is the same live and in virtual time.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![deny(clippy::float_arithmetic, clippy::wildcard_enum_match_arm)]

// Tests of the rules run over the laws of Linux, too: their own files, compiled with the tests.
#[cfg(test)]
extern crate self as policy;
#[cfg(test)]
#[path = "../../../lab/history/src/reclaim/mod.rs"]
pub mod linux;

pub mod dirty;
pub mod place;
pub mod readahead;
pub mod reclaim;
pub mod rule;
pub mod shares;
pub mod ticks;
pub mod units;
pub mod watermark;
pub mod writeback;

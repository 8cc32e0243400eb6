//! The lab as an `Env`, and its time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod virtual_time;

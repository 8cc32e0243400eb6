//! Laws of Linux 2.6.36 to 6.12, for experiments: no live program compiles them.
//!
//! A law is plain data or a small state machine behind a trait of `policy`, as Tidegate's own; each
//! is one file, and as pure as `policy`: no clock, thread, lock, float or I/O.
//!
//! Source: each law names its kernel, file and function.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![deny(clippy::float_arithmetic, clippy::wildcard_enum_match_arm)]

pub mod boost;
pub mod compact;
pub mod dirty;
pub mod fallback;
pub mod files;
pub mod generations;
pub mod laws;
pub mod place;
pub mod queue;
pub mod reclaim;
pub mod shrink;
pub mod zoned;

//! The cache and the governor for C and C++: the functions of `include/tidegate.h`, where each is
//! described.
//!
//! ```text
//!   C ──number of a handle──> slots: kind and generation fit? ──> &Cache, &File, ... of the library in Rust
//!     <──code, text of this thread── Failure <── Error, or a panic that was caught
//! ```
//!
//! Invariants
//!   1. Nothing unwinds into C: each function runs in `border::guarded`.
//!   2. A handle is a number. One that was closed, is of another kind, of the process before a fork
//!      or was never given out is answered with a code; one that is being closed is closed when the
//!      calls that are under way with it have returned.
//!   3. The header and this crate agree on every function, struct and code: `tests` has the C
//!      compiler compare them.
//!
//! `unsafe` stands in `border` (memory of the caller's) and its part `slots` (handles).
#![deny(unsafe_code)]

#[macro_use]
mod border;
mod cache;
mod close;
mod failure;
mod file;
mod governors;
mod map;
mod queue;
mod region;
mod stats;
#[cfg(test)]
mod tests;
mod told;

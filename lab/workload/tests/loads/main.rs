//! All loads, in the lab and on threads and files: one program, since each compiles `mm` anew.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

mod common;
mod folder;
mod jobs;
mod live;

//! Volumes in stores on this machine: a directory, memory, and stores that fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod device;
mod odd_stores;
mod slow;
mod volume;

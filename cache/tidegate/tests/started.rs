//! Tests that start programs. Such a program has copies of descriptors, and so of locks, from its
//! fork until it has begun: tests that open a file again at once have a process without these.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod group;
mod locked;
mod mistakes;
mod no_thread;
mod refused;

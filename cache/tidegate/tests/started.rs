//! Tests that start programs. Such a program has copies of descriptors from its fork until it has
//! begun: tests that count them, or have a block device alone, have a process without these.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aliases;
mod dir;
mod group;
mod locked;
mod mistakes;
mod no_thread;
mod refused;

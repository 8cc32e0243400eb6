//! Both sides of the protocol.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod common;
mod corpus;

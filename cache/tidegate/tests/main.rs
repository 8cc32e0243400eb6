//! The library on real threads and files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attack;
mod dir;
mod engine;
mod futures;
mod layers;
mod live;
mod nodes;
mod pins;
mod served;
mod spill;

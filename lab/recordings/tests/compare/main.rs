//! Recordings of real kernels beside the lab.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod fidelity;
mod fidelity_pressure;
mod fixture;
mod folders;
mod journal;
mod pressure;

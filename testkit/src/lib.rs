//! Tools of the tests of several crates: calls of the system refused, the conformance suite of an
//! `Env`, and an `Env` that runs one task at a time.
#![forbid(unsafe_code)]

pub mod baton;
pub mod refuse;
pub mod suite;

//! Tools of the tests of several crates: calls of the system refused, the conformance suite of an
//! `Env`, an `Env` that runs one task at a time, and a device that does nothing.
#![forbid(unsafe_code)]

pub mod baton;
pub mod null;
pub mod refuse;
pub mod suite;

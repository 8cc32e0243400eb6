//! Tools of the tests of several crates.
#![forbid(unsafe_code)]

pub mod refuse;

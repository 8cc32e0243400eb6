//! The server: volumes in one bounded, paced cache, exported over NBD.
#![forbid(unsafe_code)]

pub mod log;

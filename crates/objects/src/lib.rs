//! A volume kept as objects of one size in an object store.
#![forbid(unsafe_code)]

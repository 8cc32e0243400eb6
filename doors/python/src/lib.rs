//! The Python package `tidegate`: its compiled part. The other part is `python/tidegate`.
//!
//! ```text
//!   cache, lent           -> tidegate               (files under one limit)
//!   process: forks        errors: exceptions        heard: signals
//! ```
//!
//! `unsafe` stands in `bytes` and `lent` only: memory of Python's objects, and ours in their hands.
#![deny(unsafe_code)]

mod bytes;
mod cache;
mod errors;
mod heard;
mod lent;
mod numbers;
mod paths;
mod process;

use pyo3::prelude::*;

/// Version and commit, in the words of the program.
#[pyfunction]
fn version() -> &'static str {
    env!("TIDEGATE_VERSION")
}

#[pymodule(name = "_core")]
mod module {
    #[pymodule_export]
    use super::cache::{Cache, File, Region, Writer};
    #[pymodule_export]
    use super::lent::{Map, Pin};
    #[pymodule_export]
    use super::process::forked;
    #[pymodule_export]
    use super::version;
}

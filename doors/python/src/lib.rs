//! The Python package `tidegate`: what is compiled of it. The other part is `python/tidegate`.
//!
//! ```text
//!   scenario, run, lists  -> experiment, report     (experiments, as tables)
//!   commands              -> compare, replay, reproduce (the program's other commands)
//!   cache, pin            -> tidegate               (files under one limit)
//!   table: Arrow          process: forks            errors: exceptions      heard: signals
//! ```
//!
//! `unsafe` stands in `bytes` and `pin` only: memory of Python's objects, and ours in their hands.
#![deny(unsafe_code)]

mod bytes;
mod cache;
mod commands;
mod errors;
mod heard;
mod lists;
mod paths;
mod pin;
mod process;
mod run;
mod scenario;
mod table;

use pyo3::prelude::*;

/// Version and commit, in the words of the program.
const VERSION: &str = env!("TIDEGATE_VERSION");

#[pymodule(name = "_core")]
mod module {
    #[pymodule_export]
    use super::cache::{Cache, File, Region};
    #[pymodule_export]
    use super::commands::{compare_recording, replay_traces, reproduce_claims};
    #[pymodule_export]
    use super::lists::{devices, experiments, kinds, metrics, policies};
    #[pymodule_export]
    use super::pin::Pin;
    #[pymodule_export]
    use super::process::forked;
    #[pymodule_export]
    use super::run::{Run, campaign_seeds, run_scenario, version};
    #[pymodule_export]
    use super::scenario::Scenario;
    #[pymodule_export]
    use super::table::Table;
}

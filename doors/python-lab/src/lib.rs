//! The Python package `tidegate_lab`: its compiled part. The other part is
//! `python/lab/tidegate_lab`.
//!
//! ```text
//!   scenario, run, lists  -> experiment, report     (experiments, as tables)
//!   commands              -> compare, replay, reproduce (the program's other commands)
//!   table: Arrow          errors: exceptions
//! ```
#![forbid(unsafe_code)]

mod commands;
mod errors;
mod lists;
#[path = "../../python/src/paths.rs"]
mod paths;
mod run;
mod scenario;
mod table;

use pyo3::prelude::*;

/// Version and commit, in the words of the program.
const VERSION: &str = env!("TIDEGATE_VERSION");

#[pymodule(name = "_lab")]
mod module {
    #[pymodule_export]
    use super::commands::{compare_recording, replay_traces, reproduce_claims};
    #[pymodule_export]
    use super::lists::{devices, experiments, kinds, metrics, policies};
    #[pymodule_export]
    use super::run::{Run, campaign_seeds, run_scenario, version};
    #[pymodule_export]
    use super::scenario::Scenario;
    #[pymodule_export]
    use super::table::Table;
}

//! From a scenario to judged numbers: published kernel experiments, run in virtual time or on real
//! files.
//!
//! ```text
//!   scenario (TOML, checked: a crate of its own)
//!      |                          task (sizes, facts) <- loads (the work of each kind of task)
//!   run      (cells: a row and a column; lab or live; one session over any Env)
//!      |                          watch (who waited for what, while it runs)
//!   outcome  (plain data) -> metrics -> stats, pool
//!                                  '--> expect  (bands)
//!   trial    (all of it in one call: for tests)
//! ```
#![forbid(unsafe_code)]

pub mod expect;
mod loads;
pub mod metrics;
pub mod outcome;
pub mod pool;
pub mod run;
pub mod stats;
mod task;
mod timeline;
pub mod trial;
pub mod watch;

pub use ::scenario;
pub use ::scenario::{catalogue, experiments, keys, kinds, presets};
pub use workload::Stop;

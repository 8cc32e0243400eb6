//! From a scenario to judged numbers: published kernel experiments, run in virtual time or on real
//! files.
//!
//! ```text
//!   scenario (TOML, checked)  <-  experiments, presets, catalogue: what there is
//!      |                          task (what a kind of task is) <- kinds (each of them, and the list)
//!   run      (cells: a row and a column; lab or live; one session over any Env)
//!      |                          watch (who waited for what, while it runs)
//!   outcome  (plain data) -> metrics -> stats, pool
//!                                  '--> expect  (bands)
//!   trial    (all of it in one call: for tests)
//! ```
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod expect;
pub mod experiments;
pub mod keys;
pub mod kinds;
mod limits;
pub mod metrics;
pub mod mistake;
pub mod outcome;
pub mod pool;
pub mod presets;
pub mod run;
pub mod scenario;
pub mod stats;
mod task;
mod timeline;
pub mod trial;
pub mod watch;

pub use workload::Stop;

//! The fault campaign: random machines, workloads and faults, run in virtual time and judged.
//!
//! ```text
//!   seed --draw--> Plan --run--> Outcome, or Failure --shrink--> small Plan --> TOML file --> test
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `plan`, `op` | a run as plain data, and its file |
//! | `draw` | from a seed to a plan: what is tried |
//! | `scene`, `actor`, `memory`, `run` | the run and its checks |
//! | `verdicts` | pauses and waits against their bounds |
//! | `failure`, `tally` | what comes of it |
//! | `shrink` | a failing plan, made small |
//!
//! The program `campaign` (`cargo xtask campaign`) does so by the million;
//! `cache/mm/tests/cache/faults.rs` replays the files of past failures. A fault of a device is a
//! wrapper of `device` around a model of `lab`, never an `if` in the code under test.
//!
//! Source: style T5, T6; docs/work/campaign.md.
#![forbid(unsafe_code)]

mod actor;
mod draw;
mod failure;
mod going;
mod maps;
mod memory;
mod nonblocking;
mod objects;
mod op;
mod plan;
mod rng;
mod run;
mod scene;
mod shrink;
mod tally;
mod verdicts;

pub use failure::Failure;
pub use op::Op;
pub use plan::{
    CachePlan, Contradiction, DevicePlan, FailedAs, FilePlan, FlushPlan, Limit, Machine, OnError,
    Phase, Plan, RegionPlan, SlowPlan, SwapPlan, TaskPlan, VERSION, VolatilePlan,
};
pub use run::{Outcome, run};
pub use scene::{Plant, Setup};
pub use shrink::{Shrunk, shrink};
pub use tally::Tally;

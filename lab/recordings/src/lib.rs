//! `tidegate compare`: a recording of a real kernel beside the lab.
//!
//! ```text
//!   folder of tables --.                      .--> measure --.
//!                       >-- Recording --------+              +--> tables, plots, report
//!   text of a trace --'     (Setting, Outcome) '--> lab -----'
//!                                |                  ^
//!                                '---- --set -------'
//! ```
//!
//! A recording becomes what a run of the lab answers, an `Outcome`, and its circumstances a
//! `Setting`, which is written as a scenario and run. So recording and lab are measured by one
//! function (`measure`), and nothing is fitted to a recording: the lab sees its setting and nothing
//! else.
//!
//! Invariants
//!   1. A recording that cannot be used is refused with file, line and what is allowed (`Fault`).
//!   2. Assumptions, inferences and omissions are notes, and every note is printed.
//!   3. Units: MiB/s for rates, MiB for levels, ms for pauses and writes, seconds for times.

mod answer;
pub mod bands;
mod command;
pub mod fault;
mod folder;
pub mod guess;
pub mod kind;
pub mod lab;
pub mod label;
mod load;
pub mod measure;
mod overview;
pub mod pressure;
pub mod recording;
mod rows;
pub mod setting;
pub mod several;
pub mod show;
mod sweep;
pub mod throttling;
mod ticks;
mod trace;
pub mod what_if;

pub use command::{Asked, CompareError, Comparison, compare, keys, main};
pub use fault::Fault;
pub use kind::Kind;
pub use measure::{Measures, QUANTITIES, measure};
pub use recording::Recording;
pub use setting::Setting;
pub use throttling::Throttling;

#[cfg(test)]
mod tests {
    use super::setting::{Origin, Setting, WriterSpec};

    /// One writer of 1 MiB on a bare device of 16 MiB/s, 64/32 MiB, for 60 s.
    pub(crate) fn setting() -> Setting {
        Setting {
            name: "one".into(),
            kernel: "6.12".into(),
            origin: Origin::Guest,
            cpus: 1,
            hz: 250,
            page_size: 4096,
            memory_mib: 1024.0,
            kept_mib: Some(0.0),
            begins_mib: 0.0,
            seconds: 60.0,
            dirty_mib: 64.0,
            background_mib: 32.0,
            devices: vec![16.0],
            writers: vec![WriterSpec {
                device: 0,
                bytes: 1_048_576.0,
                sleep_s: 0.0,
                start_s: 0.0,
            }],
            changes: Vec::new(),
            max_ratio: None,
            fs: None,
            max_sectors: None,
            queue: None,
        }
    }
}

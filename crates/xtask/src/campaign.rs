//! `cargo xtask campaign`: the randomised fault test, at length.
//!
//! The test itself (`crates/mm/tests/faults.rs`) draws a workload and faults from each seed and has
//! the checker judge every read and every sync; it prints the seed of a failure and takes it back in
//! `TIDEGATE_SEED`.

use std::time::Duration;

use crate::workspace::cargo;
use crate::{Arguments, Result, steps};

/// Seeds of a campaign.
const SEEDS: u64 = 10_000;
/// Longest campaign.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut seeds = SEEDS;
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--seeds" => seeds = arguments.number_of("--seeds")?,
            _ => return Err(format!("campaign: unexpected '{word}'")),
        }
    }
    faults(seeds, LIMIT)
}

/// Runs the fault test over so many seeds.
///
/// # Errors
/// A seed failed, or the time is over.
pub(crate) fn faults(seeds: u64, limit: Duration) -> Result<()> {
    if seeds == 0 {
        return Err("a campaign needs at least one seed".into());
    }
    let mut command = cargo(&["test", "--release", "-p", "tidegate-mm", "--test", "faults"]);
    command
        .args(["--", "--nocapture"])
        .env("TIDEGATE_SEEDS", seeds.to_string());
    steps::run(&mut command, limit)
}

//! `cargo xtask campaign`: the fault campaign, at length or a file of it.
//!
//! With `--kills N` it is the server that is killed in the middle of writes, N times
//! (`lab/cli/tests/serve_kill.rs`).
//!
//! The campaign itself is a program of its own (`campaign`), built optimised and with all
//! assertions. Here it is built and takes the place of this process, so that Ctrl-C reaches it and
//! nobody else.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::workspace::{Workspace, cargo};
use crate::{Arguments, Result, steps};

/// Longest build.
const BUILD_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest run of kills: some hours.
const KILLS_MAX: Duration = Duration::from_secs(6 * 3600);

pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut words = Vec::new();
    while let Some(word) = arguments.next_word() {
        if word == "--kills" && words.is_empty() {
            let kills = arguments.number_of("--kills")?;
            arguments.finish()?;
            return self::kills(kills);
        }
        words.push(word);
    }
    let mut command = Command::new(build()?);
    if !words.iter().any(|word| word == "--out") {
        command.arg("--out").arg(out()?);
    }
    command.args(&words);
    eprintln!("    {}", steps::typed(&command));
    Err(format!("{}: {}", steps::typed(&command), command.exec()))
}

/// Runs a program of the campaign over `seeds` seeds, as a step.
///
/// # Errors
/// A seed failed, or the time is up.
pub(crate) fn faults(program: &Path, seeds: u64, limit: Duration) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["--seeds", &seeds.to_string(), "--out"]);
    command.arg(out()?);
    steps::run(&mut command, limit)
}

/// Kills the server `times` times while clients write.
///
/// # Errors
/// Something flushed was lost, or the time is up.
fn kills(times: u64) -> Result<()> {
    let mut command = cargo(&["test", "--release", "-p", "tidegate-cli"]);
    command.args(["--features", "serve", "--test", "serve_kill"]);
    command
        .args(["--", "--nocapture"])
        .env("TIDEGATE_KILLS", times.to_string());
    steps::run(&mut command, KILLS_MAX)
}

fn out() -> Result<PathBuf> {
    Ok(Workspace::load()?.target.join("xtask/campaign"))
}

/// Builds the program and answers where it is.
fn build() -> Result<PathBuf> {
    let mut command = cargo(&["build", "--profile", "campaign", "-p", "tidegate-campaign"]);
    steps::run(&mut command, BUILD_MAX)?;
    Ok(Workspace::load()?.target.join("campaign/campaign"))
}

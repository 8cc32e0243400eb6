//! `cargo xtask campaign`: the fault campaign, at length or a file of it.
//!
//! The campaign itself is a program of its own (`crates/campaign`), built optimised and with all
//! assertions. Here it is built and takes the place of this process, so that Ctrl-C reaches it and
//! nobody else.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::workspace::{Workspace, cargo};
use crate::{Arguments, Result, steps};

/// Longest build.
const BUILD_MAX: Duration = Duration::from_secs(15 * 60);

pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut words = Vec::new();
    while let Some(word) = arguments.next_word() {
        words.push(word);
    }
    let mut command = Command::new(build()?);
    if !words.iter().any(|word| word == "--out") {
        command.arg("--out").arg(out()?);
    }
    command.args(&words);
    println!("    {}", steps::typed(&command));
    Err(format!("{}: {}", steps::typed(&command), command.exec()))
}

/// Runs the campaign over so many seeds, as a step.
///
/// # Errors
/// A seed failed, or the time is over.
pub(crate) fn faults(seeds: u64, limit: Duration) -> Result<()> {
    let mut command = Command::new(build()?);
    command.args(["--seeds", &seeds.to_string(), "--out"]);
    command.arg(out()?);
    steps::run(&mut command, limit)
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

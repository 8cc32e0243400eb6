//! `cargo xtask picture`: draws the pauses that README.md shows, by running the experiment.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::test::build_program;
use crate::workspace::{Workspace, root};
use crate::{Result, steps};

/// Before, and after.
const COLUMNS: &str = "linux-2.6.36,tidegate";
/// What `tidegate run cp-pauses` draws, and where README.md has it.
const DRAWN: &str = "pauses-cp.svg";
const SHOWN: &str = "docs/img/pauses.svg";
/// Longest time for the run.
const RUN_MAX: Duration = Duration::from_secs(5 * 60);

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::load()?;
    build_program()?;
    let out = workspace.target.join("xtask/picture");
    let mut command = Command::new(workspace.program());
    command
        .args([
            "run",
            "cp-pauses",
            "--replicas",
            "1",
            "--policy",
            COLUMNS,
            "--out",
        ])
        .arg(&out)
        .current_dir(root());
    steps::run(&mut command, RUN_MAX)?;
    let (from, to) = (out.join(DRAWN), root().join(SHOWN));
    fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    println!("drawn: {SHOWN}");
    Ok(())
}

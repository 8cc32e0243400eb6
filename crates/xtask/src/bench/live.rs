//! `cargo xtask bench live`: the experiments of memory reclaim on threads, memory and files, under one limit.
//!
//! Each runs as `tidegate run NAME --live`, shrunk to the limit, with the column `tidegate`, and prints its tables and
//! bands. Bands are printed, not judged: they are of a quiet machine's device models. A run that cannot go on, or whose
//! pages do not add up, fails the step.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::steps;
use crate::test::build_program;
use crate::workspace::{Workspace, root};

/// The limit where none is given.
pub(crate) const MEMORY: &str = "512MiB";
/// Longest time for one experiment.
const RUN_MAX: Duration = Duration::from_secs(20 * 60);
/// p0's tasks with 4 s of writers alone and 10 s measured: 300 s in each of seven rows is for the lab.
const SHORT: &[&str] = &[
    "task.writer.run_s=14",
    "task.hog.start_s=4",
    "task.hog.run_s=10",
    "task.mmap.start_s=4",
    "task.mmap.run_s=10",
    "task.bystander.start_s=4",
    "task.bystander.run_s=10",
];

struct Experiment {
    name: &'static str,
    /// Its own limit: it is about one so small.
    memory: Option<&'static str>,
    sets: &'static [&'static str],
    /// Overrides of what it alone has.
    more: &'static [&'static str],
}

const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        // 25 MiB, and what the program itself takes.
        name: "small-limit",
        memory: Some("64MiB"),
        sets: &[],
        more: &[],
    },
    Experiment {
        name: "two-devices-one-hung",
        memory: None,
        sets: &[],
        // Live, their space is taken before the run.
        more: &["task.to-hung.file_mib=4096", "task.to-good.file_mib=4096"],
    },
    Experiment {
        name: "competing-phases",
        memory: None,
        sets: &[],
        more: &[],
    },
    Experiment {
        name: "stutterp",
        memory: None,
        sets: SHORT,
        more: &[],
    },
    Experiment {
        name: "stutterp-readers",
        memory: None,
        sets: SHORT,
        more: &["task.reader.run_s=14"],
    },
];

/// Runs all of them, or those named in `only`, with their files in `files`.
pub(crate) fn run(only: &[String], memory: &str, files: &Path) -> Result<()> {
    let workspace = Workspace::load()?;
    build_program()?;
    std::fs::create_dir_all(files).map_err(|error| format!("{}: {error}", files.display()))?;
    let out = workspace.target.join("xtask/live");
    let _ = std::fs::remove_dir_all(&out);
    let chosen = |experiment: &&Experiment| {
        only.is_empty() || only.iter().any(|name| name == experiment.name)
    };
    let mut failed = Vec::new();
    for experiment in EXPERIMENTS.iter().filter(chosen) {
        let mut command = Command::new(workspace.program());
        command
            .args(["run", experiment.name, "--live"])
            .arg(files)
            .args(["--memory", experiment.memory.unwrap_or(memory)])
            .args(["--policy", "tidegate", "--replicas", "1", "--out"])
            .arg(out.join(experiment.name))
            .current_dir(root());
        for set in experiment.sets.iter().chain(experiment.more) {
            command.args(["--set", set]);
        }
        if let Err(problem) = steps::run(&mut command, RUN_MAX) {
            failed.push(problem);
        }
    }
    println!("results: {}", out.display());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}

/// Whether there is an experiment of that name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name)
}

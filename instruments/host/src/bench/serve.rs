//! `cargo instruments bench serve`: the server under real clients, beside the servers that people
//! use.
//!
//! | step | what | against |
//! |---|---|---|
//! | `throughput` | fio, 4 KiB random at depth 16 and 1 MiB sequential, cached | `nbdkit memory`: 0.97, and no more CPU a request |
//! | `pacing` | a heavy and a light writer on a device of 2 ms a request | nbdkit's cache filter, `qemu-nbd`, Linux with a strict device limit |
//! | `hung` | two volumes, one of which hangs for 30 s | 0.9 of the other's rate alone |
//! | `memory` | 1 GiB through a limit of 64 MiB | the limit and 5 % |
//! | `connections` | 1,000 connections, 100 of which write, 256 MiB | the limit and 5 %; the slowest 0.5 of the mean |
//!
//! The last three are the tests of `lab/cli/tests/serve_limits.rs` at their full size, and fail
//! as tests do; `pacing` fails if a bar of ours is missed. Of `throughput` the figures are printed
//! beside what is wanted of them.

mod bars;
mod device;
mod fio;
mod pacing;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::steps::{self, End, Steps};
use crate::workspace::{BUILD_MAX, Workspace, cargo};
use crate::{Arguments, Result, at};

/// Longest time for one of the tests at its full size, its build included.
const TEST_MAX: Duration = Duration::from_secs(20 * 60);
/// Pairs of the comparison of throughput.
const PAIRS: usize = 5;
/// Seconds of warm-up, and of what is measured, of the pacing bar.
const SECONDS: u64 = 60;

const STEPS: [&str; 5] = ["throughput", "pacing", "hung", "memory", "connections"];

/// The options of the bench.
struct Options {
    steps: Vec<String>,
    pairs: usize,
    seconds: u64,
    columns: Vec<String>,
    /// Dirty data of ours over which writeback begins, MiB.
    background: u64,
    /// The folder of `tidegate` and `load`; none: they are built.
    programs: Option<PathBuf>,
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let mut options = Options {
        steps: Vec::new(),
        pairs: PAIRS,
        seconds: SECONDS,
        columns: Vec::new(),
        background: pacing::BACKGROUND_MIB,
        programs: None,
    };
    let mut folder = None;
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--step" => {
                let step = arguments.value_of("--step")?;
                if !STEPS.contains(&step.as_str()) {
                    return Err(format!("--step: one of {}", STEPS.join(", ")));
                }
                options.steps.push(step);
            }
            "--column" => {
                let column = arguments.value_of("--column")?;
                if !pacing::words().any(|word| word == column) {
                    let words: Vec<&str> = pacing::words().collect();
                    return Err(format!("--column: one of {}", words.join(", ")));
                }
                options.columns.push(column);
            }
            "--pairs" => options.pairs = arguments.number_of("--pairs")?,
            "--seconds" => options.seconds = arguments.number_of("--seconds")?,
            "--background" => options.background = arguments.number_of("--background")?,
            // Built elsewhere, for a machine that should not build while it measures.
            "--programs" => options.programs = Some(arguments.value_of("--programs")?.into()),
            "--dir" => folder = Some(arguments.value_of("--dir")?.into()),
            _ => return Err(format!("bench serve: unexpected '{word}'")),
        }
    }
    if options.pairs == 0 || options.seconds < 4 {
        return Err("--pairs: at least 1; --seconds: at least 4".into());
    }
    let workspace = Workspace::load()?;
    let folder: PathBuf = folder.unwrap_or_else(|| workspace.target.clone());
    let folder = folder.join(format!("tidegate-serve-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(at(&folder))?;
    let programs = match &options.programs {
        Some(programs) => programs.clone(),
        None => build(&workspace, &folder)?,
    };
    let mut steps = Steps::new("instruments bench serve");
    for name in STEPS {
        if options.steps.is_empty() || options.steps.iter().any(|step| step == name) {
            steps.run(name, || step(name, &programs, &folder, &options));
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    steps.finish()
}

/// Builds the program and the load, and answers a folder that has both.
fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    let mut server = cargo(&["build", "--release", "-p", "tidegate-cli"]);
    steps::run(server.args(["--features", "serve"]), BUILD_MAX)?;
    let load = super::worker("load")?;
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).map_err(|error| error.to_string())?;
    for (built, name) in [(workspace.program(), "tidegate"), (load, "load")] {
        std::fs::copy(&built, programs.join(name)).map_err(at(&built))?;
    }
    Ok(programs)
}

fn step(name: &str, programs: &Path, folder: &Path, options: &Options) -> End {
    match name {
        "throughput" => fio::compare(&programs.join("tidegate"), folder, options.pairs),
        "pacing" => pacing::run(programs, folder, options),
        "hung" => full("one_of_two_hangs", folder),
        "memory" => full("more_than_fits", folder),
        _ => full("many_connections", folder),
    }
}

/// A test at its full size; it prints its figures itself.
fn full(test: &str, folder: &Path) -> End {
    let mut command = cargo(&[
        "test",
        "--release",
        "-p",
        "tidegate-cli",
        "--features",
        "serve",
    ]);
    command
        .args(["--test", "serve_limits", test, "--", "--nocapture"])
        .env("TIDEGATE_FULL", "1")
        .env("TIDEGATE_TEST_DIR", folder);
    steps::run(&mut command, TEST_MAX).into()
}

//! `cargo instruments bench stutterp`: the latency worker of p0's stutterp beside writers and hogs,
//! in the kernel's memory and in ours, under one limit, on this machine's disk.
//!
//! | column | memory | bound by |
//! |---|---|---|
//! | `kernel` | page cache, anonymous memory, a swap file | a cgroup (v1) of that limit around all its processes; `vm.dirty_bytes` 20 % of it, half of that in the background |
//! | `Tidegate` | `tidegate run stutterp --live` | its own limit; 20 % and 10 % |
//!
//! Equal on both sides: the number of workers, their files and shares of memory, 1 MiB random
//! writes, a word written into every page, 5 ms between two mappings, the disk, the time. Two
//! things differ: a cgroup of version 1 knows nothing of dirty limits (the machine's are set
//! instead, and the kernel counts them over all memory), its writers reclaim from inside the group,
//! and its processes' own text and tables are in the limit too. The hogs of the kernel are
//! processes, ours threads.
//!
//! Figures are printed, not judged: the machine is noisy. Nothing is durable: no one syncs.

mod kernel;
pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::undo::Undo;
use crate::csv::{self, Table};
use crate::steps::End;
use crate::workspace::{Workspace, build_program, root};
use crate::{Result, at, steps};

/// Worker counts of the table; p0's first and third.
const WORKERS: [u32; 2] = [4, 12];
/// Measured seconds of a run; in scenarios/stutterp-live.toml too, as are the next two.
const SECONDS: u64 = 60;
/// Seconds that writers have alone before.
const WARM_UP: u64 = 10;
/// The limit, MiB.
const MEMORY_MIB: u64 = 1024;
/// Memory of p0's machine as the scenario assumes it, MiB: shares of it are taken of the limit.
const FULL_MIB: u64 = 8192;
/// Pages of the latency worker's mapping on that machine.
const MAPPING_PAGES: u64 = 32_768;
const PAGES_PER_GIB: f64 = 262_144.0;
const MIB_PER_MB: f64 = 1e6 / 1_048_576.0;

/// One run's shape, the same for both columns (experiments A1, B1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) workers: u32,
    pub(crate) seconds: u64,
    pub(crate) warm_up: u64,
    pub(crate) memory: u64,
}

impl Shape {
    pub(crate) fn writers(&self) -> u32 {
        (self.workers - 1) / 2
    }

    pub(crate) fn hogs(&self) -> u32 {
        self.workers - 1 - self.writers()
    }

    /// Bytes of one file; each writer has as many files as there are writers.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.memory * 24 / 100 / u64::from(self.writers())
    }

    /// Bytes of one hog.
    pub(crate) fn hog_bytes(&self) -> u64 {
        self.memory * 96 / 100 / u64::from(self.hogs())
    }

    /// Pages of the latency worker's mapping.
    pub(crate) fn mapping_pages(&self) -> u64 {
        MAPPING_PAGES * (self.memory >> 20) / FULL_MIB
    }
}

/// The measurements of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Samples of the latency worker, ms.
    pub(crate) samples_ms: Vec<f64>,
    /// Pages touched by all hogs.
    pub(crate) touched: f64,
    /// MiB written by all writers.
    pub(crate) written_mib: f64,
    /// System CPU seconds.
    pub(crate) system_s: f64,
}

pub(crate) fn run(folder: &Path) -> End {
    match compare(folder) {
        Ok(None) => End::Passed,
        Ok(Some(missing)) => End::Skipped(missing),
        Err(problem) => End::Failed(problem),
    }
}

fn compare(folder: &Path) -> Result<Option<String>> {
    build_program()?;
    std::fs::create_dir_all(folder).map_err(at(folder))?;
    let missing = kernel::missing();
    if let Some(missing) = &missing {
        println!("SKIPPED: column kernel: {missing}");
    }
    println!(
        "{:>3} {:<9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>11} {:>9} {:>8}",
        "N", "column", "samples", "p50", "p90", "p99.9", "max ms", "hog pages/s", "MiB/s", "sys s"
    );
    for (workers, ours) in WORKERS.into_iter().zip(ours(folder)?) {
        let shape = Shape {
            workers,
            seconds: SECONDS,
            warm_up: WARM_UP,
            memory: MEMORY_MIB << 20,
        };
        if missing.is_none() {
            let undo = Undo::begin()?;
            line(&shape, "kernel", kernel::run(&undo, &shape, folder)?);
        }
        line(&shape, "Tidegate", ours);
    }
    Ok(missing.map(|missing| format!("the kernel's column: {missing}")))
}

#[expect(clippy::cast_precision_loss, reason = "seconds are few")]
fn line(shape: &Shape, column: &str, mut measured: Measured) {
    let samples = &mut measured.samples_ms;
    samples.sort_by(f64::total_cmp);
    let at = |thousandths| figures::quantile(samples, thousandths).unwrap_or(f64::NAN);
    let seconds = shape.seconds as f64;
    println!(
        "{:>3} {column:<9} {:>8} {:>8.2} {:>8.2} {:>8.2} {:>9.2} {:>11.0} {:>9.1} {:>8.2}",
        shape.workers,
        samples.len(),
        at(500),
        at(900),
        at(999),
        samples.last().copied().unwrap_or(f64::NAN),
        measured.touched / seconds,
        measured.written_mib / (seconds + shape.warm_up as f64),
        measured.system_s,
    );
}

/// Our column: both rows of the scenario, on files.
fn ours(folder: &Path) -> Result<Vec<Measured>> {
    let workspace = Workspace::load()?;
    let out = workspace.target.join("xtask/stutterp");
    let _ = std::fs::remove_dir_all(&out);
    let files = folder.join("ours");
    std::fs::create_dir_all(&files).map_err(at(&files))?;
    let mut command = Command::new(workspace.program());
    command
        .args([
            "run",
            "instruments/host/scenarios/stutterp-live.toml",
            "--out",
        ])
        .arg(&out)
        .arg("--live")
        .arg(&files)
        .current_dir(root());
    let rows = WORKERS.len() as u64;
    let limit = Duration::from_secs((SECONDS + WARM_UP) * 3 * rows + 60);
    steps::run(&mut command, limit)?;
    let _ = std::fs::remove_dir_all(&files);
    WORKERS
        .map(|workers| read_results(&out, workers))
        .into_iter()
        .collect()
}

/// Reads the results that a run of `workers` workers has left behind.
fn read_results(out: &Path, workers: u32) -> Result<Measured> {
    let found: Option<PathBuf> = csv::find(out, "samples.csv").pop();
    let table = Table::read(&found.ok_or_else(|| format!("no results in {}", out.display()))?)?;
    let mut measured = Measured::default();
    let row = format!("{workers}/");
    for cells in table.select(&["run_id", "task_kind", "metric", "value", "weight"])? {
        let (Ok(value), Ok(weight)) = (cells[3].parse::<f64>(), cells[4].parse::<f64>()) else {
            continue;
        };
        if !cells[0].starts_with(&row) {
            continue;
        }
        match (cells[1], cells[2]) {
            ("mapper", "call_ms") => {
                let mut left = weight;
                while left >= 1.0 {
                    measured.samples_ms.push(value);
                    left -= 1.0;
                }
            }
            ("run", "hog_gib") => measured.touched = value * PAGES_PER_GIB,
            ("run", "written_mb") => measured.written_mib = value * MIB_PER_MB,
            ("run", "system") => measured.system_s = value,
            _ => {}
        }
    }
    Ok(measured)
}

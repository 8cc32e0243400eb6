//! `cargo instruments bench live`: the experiments of memory reclaim on threads, memory and files,
//! under one limit.
//!
//! Each runs as `tidegate run NAME --live`, shrunk to the limit, with the column `tidegate`, and
//! prints its tables and bands. Bands are printed, not judged: they are of a quiet machine's device
//! models. A run that cannot go on, or whose pages do not add up, fails the step; and so does one
//! of which more was resident at any moment than its limit and 5 %.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::csv::{self, Table};
use crate::steps;
use crate::workspace::{Workspace, build_program, root};

/// The limit where none is given.
pub(crate) const MEMORY: &str = "512MiB";
/// Longest time for one experiment.
const RUN_MAX: Duration = Duration::from_secs(20 * 60);
/// p0's tasks with 4 s of writers alone and 10 s measured: 300 s in each of seven rows is for the
/// lab.
const SHORT: &[&str] = &[
    "task.writer.run_s=14",
    "task.hog.start_s=4",
    "task.hog.run_s=10",
    "task.mmap.start_s=4",
    "task.mmap.run_s=10",
    "task.bystander.start_s=4",
    "task.bystander.run_s=10",
    "task.held.run_s=14",
];

/// Resident memory of the process, as a part of its limit: no machine is too busy for that.
const RESIDENT_MOST: f64 = 1.05;

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
        let ran = steps::run(&mut command, RUN_MAX);
        if let Err(problem) = ran.and_then(|()| resident(experiment.name, &out)) {
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

/// Prints the highest resident memory of each run, and refuses more than it may be.
fn resident(experiment: &str, out: &Path) -> Result<()> {
    let found = csv::find(&out.join(experiment), "samples.csv").pop();
    let found = found.ok_or_else(|| format!("{experiment}: no results in {}", out.display()))?;
    let peaks = peaks(&Table::read(&found)?)?;
    if peaks.is_empty() {
        return Err(format!("{experiment}: no run says what was resident"));
    }
    let shown = peaks.iter().map(|(run, peak)| format!("{run} {peak:.3}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    println!(
        "{experiment}: most resident, of the limit (<= {RESIDENT_MOST}, 20 looks a second): {shown}"
    );
    match peaks.iter().find(|(_, peak)| *peak > RESIDENT_MOST) {
        Some((run, peak)) => Err(format!(
            "{experiment}: {run}: {peak:.3} of its limit was resident, {RESIDENT_MOST} is the most"
        )),
        None => Ok(()),
    }
}

/// The highest resident memory of each run of a table of samples.
fn peaks(table: &Table) -> Result<Vec<(String, f64)>> {
    let rows = table.select(&["run_id", "metric", "value"])?;
    let of_run = rows.iter().filter(|row| row[1] == "resident_peak");
    let peak = |row: &Vec<&str>| {
        let peak = row[2].parse::<f64>();
        let peak = peak.map_err(|_| format!("{}: resident_peak is '{}'", row[0], row[2]))?;
        Ok((row[0].to_owned(), peak))
    };
    of_run.map(peak).collect()
}

/// Whether there is an experiment of that name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_limit_and_a_twentieth_is_refused_and_so_is_not_to_say() {
        let out = std::env::temp_dir().join(format!("tidegate-resident-{}", std::process::id()));
        std::fs::create_dir_all(out.join("few")).unwrap();
        let judged = |rows: &str| {
            let text = format!("run_id,metric,value\n{rows}");
            std::fs::write(out.join("few/samples.csv"), text).unwrap();
            resident("few", &out)
        };
        let held = "4/tidegate/0,resident_peak,1.016\n7/tidegate/0,resident_peak,1.05\n";
        judged(held).unwrap();
        let problem = judged(&format!("{held}7/tidegate/1,resident_peak,1.051\n")).unwrap_err();
        assert!(problem.contains("7/tidegate/1: 1.051"), "{problem}");
        let silent = judged("4/tidegate/0,asleep,2\n").unwrap_err();
        assert!(silent.contains("no run says"), "{silent}");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

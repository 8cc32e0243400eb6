//! `cargo instruments bench`: the figures that README.md promises, measured here and now.
//!
//! | step | figure | against |
//! |---|---|---|
//! | `hit` | pin and unpin of a cached page | 60 ns; `pread` of the kernel's page cache |
//! | `lab` | page events a second on one core | 10 million |
//! | `scan` | a page that reclaim looks at and frees | 60 ns |
//! | `swap` | a trip to the swap file and back | 1.10 of the raw device |
//! | `fio` | sequential write, sequential read | 0.90 of fio |
//! | `slow` | pauses, longest write, light writer, read miss, on a device of 16 MB/s | 200, 200, 5, 50 ms; lab = live |
//! | `pacing` | writers on a slow device | Linux, Linux with a strict device limit |
//! | `stutterp` | latency of memory under pressure | the kernel's memory under the same limit |
//! | `maps` | a map of a file larger than its memory: faults, scans, stalls | the kernel's map in a cgroup, umap |
//! | `serve` | the server under fio, and on a slow device | nbdkit, `qemu-nbd`, Linux |
//!
//! The last four are run only when they are named: they take minutes, and `pacing` and `stutterp`
//! need root and set dirty limits (and swap) of the whole machine while they run.
//!
//! Figures are printed, never judged here: a timed test fails on a busy machine. Nothing is kept.

mod chain;
mod column;
mod fio;
mod maps;
mod pacing;
mod plan;
mod serve;
mod stutterp;
mod undo;
mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use self::fio::median;
use crate::csv::{self, Table};
use crate::steps::{self, End, Steps};
use crate::workspace::{BUILD_MAX, Workspace, build_program, cargo, root};
use crate::{Arguments, Result, at};

/// Pairs of the comparison with fio.
const PAIRS: usize = 5;
/// Longest time for one run of the program.
const RUN_MAX: Duration = Duration::from_secs(20 * 60);
/// The scenarios of `slow`, and what is wanted of their figures.
const SLOW: [(&str, &[(&str, &str)]); 3] = [
    (
        "slow-alone",
        &[
            ("pause_max_ms", "<= 200"),
            ("write_max_ms", "<= 200"),
            ("pause_p50_ms", "lab within 10 % of live"),
            ("pause_p99_ms", "lab within 20 % of live"),
            ("mbps", "16, the device's rate"),
        ],
    ),
    (
        "slow-light",
        &[
            ("pause_max_ms", "<= 200"),
            ("light_p99_ms", "<= 5"),
            ("light_max_ms", ""),
            ("light_rate", "1, its full rate"),
        ],
    ),
    (
        "slow-read",
        &[
            ("pause_max_ms", "<= 200"),
            ("read_max_ms", "<= 50, and its own time"),
        ],
    ),
];

const STEPS: [&str; 8] = [
    "hit", "lab", "scan", "swap", "fio", "slow", PACING, STUTTERP,
];
/// Only when they are named.
const PACING: &str = "pacing";
const STUTTERP: &str = "stutterp";
/// With options of their own: first and alone.
const SERVE: &str = "serve";
const MAPS: &str = "maps";

pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut pairs = PAIRS;
    let mut folder: Option<PathBuf> = None;
    let mut wanted = Vec::new();
    let mut options = pacing::Options::default();
    while let Some(word) = arguments.next_word() {
        if options.take(&word, &mut arguments)? {
            continue;
        }
        match word.as_str() {
            // The program that `undo` starts, not for people.
            "guard" => return undo::guard(),
            // The program that `stutterp` starts.
            "stutterp-worker" => return stutterp::worker::run(arguments),
            // Have options of their own.
            SERVE if wanted.is_empty() => return serve::run(arguments),
            MAPS if wanted.is_empty() => return maps::run(arguments),
            "--pairs" => pairs = arguments.number_of("--pairs")?,
            "--dir" => folder = Some(arguments.value_of("--dir")?.into()),
            word if STEPS.contains(&word) => wanted.push(word.to_owned()),
            _ => {
                return Err(format!(
                    "bench: '{word}' is not one of {}, {SERVE} or {MAPS} (these first and alone)",
                    STEPS.join(", ")
                ));
            }
        }
    }
    if pairs == 0 {
        return Err("a comparison needs at least one pair".into());
    }
    // Not the folder for temporary files: that may be memory.
    let folder = match folder {
        Some(folder) => folder,
        None => Workspace::load()?.target,
    };
    let mut steps = Steps::new("instruments bench");
    for name in STEPS {
        if wanted.iter().any(|word| word == name) {
            steps.run(name, || step(name, &folder, pairs, &options));
        } else if wanted.is_empty() {
            steps.run(name, || match name {
                PACING => End::Skipped("it sets the machine's dirty limits; name it".into()),
                STUTTERP => {
                    End::Skipped("it sets the machine's dirty limits and swap; name it".into())
                }
                _ => step(name, &folder, pairs, &options),
            });
        }
    }
    steps.finish()
}

fn step(name: &str, folder: &Path, pairs: usize, options: &pacing::Options) -> End {
    match name {
        PACING | STUTTERP => {
            let files = folder.join(format!("tidegate-{name}-{}", std::process::id()));
            let end = match name {
                PACING => pacing::run(options, &files),
                _ => stutterp::run(&files),
            };
            let _ = std::fs::remove_dir_all(&files);
            end
        }
        "hit" => hit().into(),
        "lab" => lab().into(),
        "scan" => scan().into(),
        "swap" => swap(folder).into(),
        "fio" if !steps::is_there("fio", &["--version"]) => {
            End::Skipped("fio is not installed (apt-get install fio)".into())
        }
        "fio" => fio::compare(folder, pairs).into(),
        _ => slow(folder).into(),
    }
}

/// A page hit, beside `pread`.
fn hit() -> Result<()> {
    let lines = bench("tidegate", "hit")?;
    let hit = median(all_after(&lines, "hit (pin + unpin) "));
    let pread = median(all_after(&lines, "kernel pread 4 KiB "));
    if !hit.is_finite() || !pread.is_finite() {
        return Err(format!("the answer of the bench is not known:\n{lines}"));
    }
    println!(
        "page hit: {hit:.1} ns (<= 60 wanted, ratio {:.2}); pread {pread:.0} ns, {:.1} times as long",
        hit / 60.0,
        pread / hit
    );
    Ok(())
}

/// Page events a second in the lab.
fn lab() -> Result<()> {
    let lines = bench("tidegate-mm", "lab_events")?;
    let rates: Vec<f64> = lines
        .lines()
        .filter_map(|line| number_after(line, " s: "))
        .collect();
    let rate = median(rates);
    if !rate.is_finite() {
        return Err(format!("the answer of the bench is not known:\n{lines}"));
    }
    println!(
        "lab: {rate:.1} million page events a second (>= 10 wanted, ratio {:.2})",
        rate / 10.0
    );
    Ok(())
}

/// A page that reclaim looks at and frees.
fn scan() -> Result<()> {
    let lines = bench("tidegate-mm", "scan")?;
    let nanos = median(all_after(&lines, "page scanned and freed "));
    if !nanos.is_finite() {
        return Err(format!("the answer of the bench is not known:\n{lines}"));
    }
    println!(
        "page scanned and freed: {nanos:.1} ns (<= 60 wanted, ratio {:.2})",
        nanos / 60.0
    );
    Ok(())
}

/// A trip to the swap file and back, beside the raw device.
fn swap(folder: &Path) -> Result<()> {
    let lines = bench_in("tidegate", "swap", Some(folder))?;
    let ratio = median(all_after(&lines, "ratio "));
    if !ratio.is_finite() {
        return Err(format!("the answer of the bench is not known:\n{lines}"));
    }
    println!("swap out and in: {ratio:.3} of the raw device's time (<= 1.10 wanted)");
    Ok(())
}

/// Builds a program of `instruments/workers`, and answers where it is.
fn worker(name: &str) -> Result<PathBuf> {
    let manifest = "instruments/Cargo.toml";
    let mut command = cargo(&["build", "--release", "--manifest-path", manifest]);
    command.args(["--package", "tidegate-workers", "--bin", name]);
    steps::run(&mut command, BUILD_MAX)?;
    let target = Workspace::load_at(manifest)?.target;
    Ok(target.join("release").join(name))
}

/// The commit and the machine, for the heading of figures.
fn circumstances() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%h"]).current_dir(root());
    let commit = steps::output(&mut git).unwrap_or_else(|_| "unknown".into());
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "Commit {}, {cpus} CPUs, load at the start {}; Linux {}",
        commit.trim(),
        load(),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// Number of tasks that the machine runs.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn bench(package: &str, name: &str) -> Result<String> {
    bench_in(package, name, None)
}

fn bench_in(package: &str, name: &str, folder: Option<&Path>) -> Result<String> {
    let mut command = cargo(&["bench", "--quiet", "-p", package, "--bench", name]);
    if let Some(folder) = folder {
        command.env("TIDEGATE_BENCH_DIR", folder);
    }
    let lines = steps::output(&mut command)?;
    print!("{lines}");
    Ok(lines)
}

fn all_after(lines: &str, label: &str) -> Vec<f64> {
    lines
        .lines()
        .filter_map(|line| number_after(line, label))
        .collect()
}

/// The number that follows a label in a line.
fn number_after(line: &str, label: &str) -> Option<f64> {
    let (_, rest) = line.split_once(label)?;
    let end = rest
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The slow device, in the lab and live, side by side.
fn slow(folder: &Path) -> Result<()> {
    let workspace = Workspace::load()?;
    build_program()?;
    let out = workspace.target.join("xtask/slow");
    let _ = std::fs::remove_dir_all(&out);
    let files = folder.join(format!("tidegate-slow-{}", std::process::id()));
    std::fs::create_dir_all(&files).map_err(at(&files))?;
    let result = SLOW.iter().try_for_each(|(name, _)| {
        slow_run(
            &workspace.program(),
            name,
            &out.join("lab").join(name),
            None,
        )?;
        slow_run(
            &workspace.program(),
            name,
            &out.join("live").join(name),
            Some(&files),
        )
    });
    let _ = std::fs::remove_dir_all(&files);
    result?;
    println!(
        "{:<12} {:<14} {:>9} {:>9} {:>9}  wanted",
        "", "figure", "lab", "live", "lab/live"
    );
    for (name, figures) in SLOW {
        let lab = Figures::read(&out.join("lab").join(name))?;
        let live = Figures::read(&out.join("live").join(name))?;
        for (figure, wanted) in figures {
            let (lab, live) = (lab.of(figure)?, live.of(figure)?);
            let ratio = lab / live;
            println!("{name:<12} {figure:<14} {lab:>9.2} {live:>9.2} {ratio:>9.2}  {wanted}");
        }
    }
    Ok(())
}

fn slow_run(program: &Path, name: &str, out: &Path, live: Option<&Path>) -> Result<()> {
    let scenario = format!("instruments/host/scenarios/{name}.toml");
    let mut command = Command::new(program);
    command
        .args(["run", &scenario, "--out"])
        .arg(out)
        .current_dir(root());
    if let Some(live) = live {
        command.arg("--live").arg(live);
    }
    steps::run(&mut command, RUN_MAX)
}

/// The figures of one run.
struct Figures {
    out: PathBuf,
    metrics: Vec<(String, f64)>,
}

impl Figures {
    /// Reads what a run has left, and makes the percentiles of its pauses.
    fn read(out: &Path) -> Result<Self> {
        let table = |name: &str| {
            let found = csv::find(out, name).pop();
            Table::read(&found.ok_or_else(|| format!("no {name} in {}", out.display()))?)
        };
        let mut metrics = Vec::new();
        for row in table("samples.csv")?.select(&["task_kind", "metric", "value"])? {
            if let ("run", Ok(value)) = (row[0], row[2].parse()) {
                metrics.push((row[1].to_owned(), value));
            }
        }
        let events = table("events.csv")?;
        let delays = events.select(&["kind", "delay_us"])?;
        let pauses = delays.iter().filter(|row| row[0] == "bdp_pause");
        let mut pauses: Vec<f64> = pauses.filter_map(|row| row[1].parse().ok()).collect();
        pauses.retain(|pause| *pause > 0.0);
        pauses.sort_by(f64::total_cmp);
        for (name, percent) in [("pause_p50_ms", 50), ("pause_p99_ms", 99)] {
            if let Some(pause) = figures::quantile(&pauses, 10 * percent) {
                metrics.push((name.to_owned(), pause / 1e3));
            }
        }
        Ok(Self {
            out: out.to_owned(),
            metrics,
        })
    }

    fn of(&self, name: &str) -> Result<f64> {
        let found = self.metrics.iter().find(|(metric, _)| metric == name);
        let (_, value) = found.ok_or_else(|| format!("no {name} in {}", self.out.display()))?;
        Ok(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_after_their_label() {
        let line = "round 0: 12 page events in 1.5 s: 13.7 M/s (20.0 virtual s)";
        assert_eq!(number_after(line, " s: "), Some(13.7));
        assert_eq!(
            number_after("hit (pin + unpin) 21.5 ns; x", "hit (pin + unpin) "),
            Some(21.5)
        );
        assert_eq!(number_after(line, "kernel"), None);
    }
}

//! A recording of memory pressure as a folder of tables, in the form of `cargo xtask guest`.
//!
//! | file | needed | holds |
//! |---|---|---|
//! | `scenario.json`, `facts.json` | yes | the setting |
//! | `vmstat.csv` | yes | all of `/proc/vmstat`, ten times a second |
//! | `samples.csv` | yes | every call of every worker: when it began, how long it took |
//! | `summary.json` | yes | CPU times of workers and of the kernel's threads, throttlings by who and why |
//!
//! A table may be gzipped. Times are seconds from the start of the workers; samples begin before that.
//!
//! A latency worker's sample is the lab's: from the end of one round to the end of the next, less the rest. So what is late
//! about the rest counts on both sides.

use std::collections::BTreeMap;
use std::path::Path;

use policy::reclaim::Reason;
use serde::Deserialize;

use super::super::fault::Fault;
use super::super::recording::COLUMN;
use super::super::rows::{self, Rows, Wanted, column};
use super::setting::{self, Setting, Sources, Work, Worker};
use crate::outcome::{Job, Outcome, TaskCpu, ThrottleCount, ThrottleEnd, VmSeries};

const PAGES: &str = "pages";

/// Counters that the lab has under the same name.
const COUNTERS: [&str; 24] = [
    "pgscan_direct",
    "pgscan_kswapd",
    "pgscan_anon",
    "pgscan_file",
    "pgsteal_direct",
    "pgsteal_kswapd",
    "pgsteal_anon",
    "pgsteal_file",
    "pgscan_direct_throttle",
    "pageoutrun",
    "pswpin",
    "pswpout",
    "pgfault",
    "pgmajfault",
    "pgactivate",
    "pgdeactivate",
    "pgrefill",
    "pgrotated",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_dirtied",
    "nr_written",
    "workingset_refault_anon",
    "workingset_refault_file",
];
/// The kernel counts the begin of a direct reclaim by the zone that was wanted, the lab all in one.
const STALLS: [&str; 4] = [
    "allocstall_dma",
    "allocstall_dma32",
    "allocstall_normal",
    "allocstall_movable",
];
const STALL: &str = "allocstall_normal";
/// Levels that the lab has under the same name.
const LEVELS: [&str; 9] = [
    "nr_free_pages",
    "nr_inactive_anon",
    "nr_active_anon",
    "nr_inactive_file",
    "nr_active_file",
    "nr_dirty",
    "nr_writeback",
    "nr_isolated_anon",
    "nr_isolated_file",
];
const SAMPLES: [Wanted; 3] = [
    column("t", "seconds"),
    column("ms", "ms"),
    column("finished", "0 or 1"),
];

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Under what it was made.
    pub setting: Setting,
    /// What it shows.
    pub outcome: Outcome,
    /// What was assumed, inferred, left out or found.
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
struct Summary {
    kthread_cpu_s: BTreeMap<String, f64>,
    throttled: BTreeMap<String, Throttled>,
    workers: BTreeMap<String, Done>,
}

#[derive(Deserialize)]
struct Throttled {
    n: u64,
    zero: u64,
    full: u64,
    sum_ms: f64,
    timeout_ms: f64,
}

#[derive(Deserialize)]
struct Done {
    calls: u64,
    work: f64,
    system_ms: f64,
    user_ms: f64,
}

impl Recording {
    /// Whether a folder holds one: its scenario has workers, and disks with settings of their own.
    #[must_use]
    pub fn is_one(folder: &Path) -> bool {
        let Some(path) = rows::find(folder, "scenario.json") else {
            return false;
        };
        let Ok(text) = rows::text(&path) else {
            return false;
        };
        serde_json::from_str::<serde_json::Value>(&text)
            .is_ok_and(|told| told.get("workers").is_some())
    }

    /// Reads a folder of tables.
    ///
    /// # Errors
    /// What is missing or wrong, with file and line.
    pub fn load(folder: &Path) -> Result<Self, Fault> {
        let need = |name: &str| {
            rows::find(folder, name).ok_or_else(|| {
                Fault::of(
                    folder,
                    format!("has no `{name}`"),
                    "a recording of memory pressure is a folder with scenario.json, facts.json, vmstat.csv, samples.csv and \
                     summary.json (a table may end in .gz)",
                )
            })
        };
        let mut notes = Vec::new();
        let path = need("scenario.json")?;
        let facts_path = need("facts.json")?;
        let vmstat_path = need("vmstat.csv")?;
        let wanted: Vec<Wanted> = core::iter::once(column("t", "seconds"))
            .chain(
                LEVELS
                    .iter()
                    .chain(&COUNTERS)
                    .chain(&STALLS)
                    .map(|name| column(name, PAGES)),
            )
            .collect();
        let vmstat = rows::read(&vmstat_path, &wanted, None)?;
        let (Some(first), Some(last)) = (vmstat.rows.first(), vmstat.rows.last()) else {
            return Err(Fault::of(&vmstat_path, "has no samples", "record again"));
        };
        let setting = setting::read(
            &Sources {
                path: &path,
                text: &rows::text(&path)?,
                facts_path: &facts_path,
                facts: &rows::text(&facts_path)?,
                // Pages of files that are there already can go.
                free_pages: first[1] + first[4] + first[5],
            },
            &mut notes,
        )?;
        let samples_path = need("samples.csv")?;
        let (samples, of) = rows::read_labelled(&samples_path, &SAMPLES, "worker")?;
        let summary_path = need("summary.json")?;
        let summary: Summary =
            serde_json::from_str(&rows::text(&summary_path)?).map_err(|error| {
                let title = format!("is not a recording's summary: {error}");
                Fault::of(&summary_path, title, "`cargo xtask guest` writes it")
            })?;
        notes.extend(vmstat.notes.iter().chain(&samples.notes).cloned());
        let from = 1 + LEVELS.len();
        let mut counters: Vec<(&'static str, f64)> = COUNTERS
            .iter()
            .enumerate()
            .map(|(index, name)| (*name, last[from + index] - first[from + index]))
            .collect();
        let stalls = from + COUNTERS.len()..from + COUNTERS.len() + STALLS.len();
        counters.push((STALL, stalls.map(|at| last[at] - first[at]).sum()));
        let jobs = setting.workers.iter().map(|worker| {
            let done = summary.workers.get(&worker.name);
            job(&setting, worker, done, &samples, &of)
        });
        let jobs = jobs.collect();
        let outcome = Outcome {
            case: setting.name.clone(),
            policy: COLUMN.into(),
            scale: 1.0,
            cpu_scale: 1.0,
            tick_ms: 1e3 / f64::from(setting.hz),
            jobs,
            tasks: tasks(&setting, &summary),
            counters,
            throttles: throttles(&summary, &mut notes),
            vmstat: VmSeries {
                names: LEVELS.to_vec(),
                rows: vmstat
                    .rows
                    .iter()
                    .filter(|row| row[0] >= 0.0)
                    .map(|row| (row[0], row[1..from].to_vec()))
                    .collect(),
            },
            virtual_s: setting.seconds,
            memory_limit: setting.usable_mib * 1_048_576.0,
            ..Outcome::default()
        };
        Ok(Self {
            setting,
            outcome,
            notes,
        })
    }
}

/// A worker as a job of the lab.
fn job(
    setting: &Setting,
    worker: &Worker,
    done: Option<&Done>,
    samples: &Rows,
    of: &[String],
) -> Job {
    let work = done.map_or(0.0, |done| done.work);
    let (moves, rest_ms) = match worker.work {
        Work::Write(_) | Work::Read(_) => (true, None),
        Work::Hog { .. } => (false, None),
        Work::Map { rest_ms, .. } => (false, Some(rest_ms)),
    };
    let own = samples.rows.iter().zip(of);
    let own = own.filter(|(row, of)| **of == worker.name && row[2] > 0.0);
    // (when it ended, how long it was)
    let calls: Vec<(f64, f64)> = own
        .map(|(row, _)| (row[0] + row[1] / 1e3, row[1]))
        .collect();
    let samples = match rest_ms {
        Some(rest_ms) => rounds(worker.start_s, &calls, rest_ms),
        None => Vec::new(),
    };
    Job {
        name: worker.name.clone(),
        entry: worker.name.clone(),
        kind: worker.work.kind(),
        began_s: worker.start_s,
        ended_s: setting.seconds,
        moved_s: setting.seconds,
        bytes: if moves { work } else { 0.0 },
        touched: if moves { 0.0 } else { work },
        calls: done.map_or(0, |done| done.calls),
        samples,
        is_heavy: matches!(worker.work, Work::Write(_)),
        is_reader: matches!(worker.work, Work::Read(_)),
        is_hog: matches!(worker.work, Work::Hog { .. }),
        is_mapper: matches!(worker.work, Work::Map { .. }),
        rate_share: 1.0,
        ..Job::default()
    }
}

/// From the end of one round to the end of the next, less the rest.
fn rounds(start_s: f64, calls: &[(f64, f64)], rest_ms: f64) -> Vec<(f64, f64)> {
    let mut before = start_s;
    let round = |(end, _): &(f64, f64)| {
        let took = ((end - before) * 1e3 - rest_ms).max(0.0);
        before = *end;
        (*end, took)
    };
    calls.iter().map(round).collect()
}

fn tasks(setting: &Setting, summary: &Summary) -> Vec<TaskCpu> {
    let of_worker = |worker: &Worker| {
        let done = summary.workers.get(&worker.name)?;
        Some(TaskCpu {
            name: worker.name.clone(),
            is_job: true,
            user_s: done.user_ms / 1e3,
            system_s: done.system_ms / 1e3,
            ..TaskCpu::default()
        })
    };
    let kswapd = summary.kthread_cpu_s.get("kswapd0").copied();
    setting
        .workers
        .iter()
        .filter_map(of_worker)
        .chain([TaskCpu {
            name: super::figures::RECLAIMER.into(),
            system_s: kswapd.unwrap_or(0.0),
            ..TaskCpu::default()
        }])
        .collect()
}

/// Throttlings by who and why: `direct ISOLATED`.
fn throttles(summary: &Summary, notes: &mut Vec<String>) -> Vec<ThrottleCount> {
    let mut all = Vec::new();
    for (name, throttled) in &summary.throttled {
        let (who, why) = name.split_once(' ').unwrap_or(("", name));
        let reason = Reason::ALL
            .into_iter()
            .find(|reason| reason.name().trim_start_matches("VMSCAN_THROTTLE_") == why);
        let Some(reason) = reason else {
            notes.push(format!(
                "throttlings `{name}` are left out: the lab has no such reason"
            ));
            continue;
        };
        let between = throttled.n.saturating_sub(throttled.zero + throttled.full);
        let full_ms = throttled.timeout_ms * count(throttled.full);
        let mean_ms = (throttled.sum_ms - full_ms) / count(between.max(1));
        for (count, delayed_ms, ended) in [
            (throttled.zero, 0.0, ThrottleEnd::NoSleep),
            (between, mean_ms, ThrottleEnd::Event),
            (throttled.full, throttled.timeout_ms, ThrottleEnd::Timeout),
        ] {
            if count > 0 {
                all.push(ThrottleCount {
                    background: who == "kswapd",
                    reason,
                    timeout_ms: throttled.timeout_ms,
                    delayed_ms,
                    ended,
                    count,
                });
            }
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_from_end_to_end_less_the_rest() {
        // Begins at 5 s, rests 5 ms, works 20 ms; then again, 3 ms late.
        let calls = [(5.025, 20.0), (5.053, 20.0)];
        let took: Vec<f64> = rounds(5.0, &calls, 5.0)
            .iter()
            .map(|(_, took)| took.round())
            .collect();
        assert_eq!(took, [20.0, 23.0]);
    }
}

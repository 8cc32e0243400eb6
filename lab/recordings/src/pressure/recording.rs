//! A recording of memory pressure as a folder of tables, in the form of `cargo instruments guest`.
//!
//! | file | needed | holds |
//! |---|---|---|
//! | `scenario.json`, `facts.json` | yes | the setting |
//! | `vmstat.csv` | yes | all of `/proc/vmstat`, ten times a second |
//! | `samples.csv` | yes | every call of every worker: when it began, how long it took |
//! | `summary.json` | yes | CPU times of workers and of the kernel's threads, throttlings by who and why, how many events |
//! | `node0.csv`, ... | of several nodes | the counters of each node |
//! | `slabinfo.csv` | of small files | object caches |
//!
//! A table may be gzipped. Times are seconds from the start of the workers; samples begin before
//! that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::reclaim::Reason;
use serde::Deserialize;

use super::super::fault::Fault;
use super::super::recording::COLUMN;
use super::super::rows::{self, Rows, Wanted, column};
use super::figures::FIGURES;
use super::setting::{self, Setting, Sources};
use super::shapes::{SHAPES, small};
use super::worker::{Call, Worker};
use experiment::outcome::{Job, Outcome, TaskCpu, ThrottleCount, ThrottleEnd, VmSeries};
use experiment::stats::whole;

const PAGES: &str = "pages";

/// Counters over time that the lab has under the same name, beside those of the figures.
const COUNTERS: [&str; 10] = [
    "pgfault",
    "pgactivate",
    "pgrefill",
    "nr_written",
    "pginodesteal",
    "slabs_scanned",
    "kswapd_inodesteal",
    "pgsteal_direct",
    "pgsteal_kswapd",
    "nr_dirtied",
];
/// The kernel counts the begin of a direct reclaim by the zone that was wanted, the lab all in one.
const STALLS: [&str; 4] = [
    "allocstall_dma",
    "allocstall_dma32",
    "allocstall_normal",
    "allocstall_movable",
];
const STALL: &str = "allocstall_normal";
/// Pages that shrinkers gave back, by the lab's name.
const FREED_SLABS: &str = "slab_freed";
/// Levels that the lab has under the same name.
const LEVELS: [&str; 11] = [
    "nr_free_pages",
    "nr_inactive_anon",
    "nr_active_anon",
    "nr_inactive_file",
    "nr_active_file",
    "nr_dirty",
    "nr_writeback",
    "nr_isolated_anon",
    "nr_isolated_file",
    "nr_slab_reclaimable",
    "nr_slab_unreclaimable",
];
/// Names of figures that are not of the kernel's `vmstat`: they are counted from other tables.
const ELSEWHERE: [&str; 2] = [STALL, "extfrag_events"];
const SAMPLES: [Wanted; 5] = [
    column("t", "seconds"),
    column("ms", "ms"),
    column("n", "pages, bytes or files"),
    column("extra", "a number"),
    column("finished", "0 or 1"),
];

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Under what it was made.
    pub setting: Setting,
    /// The measurements.
    pub outcome: Outcome,
    /// The values assumed, inferred, left out or found.
    pub notes: Vec<String>,
}

/// The tables that a shape reads of its own.
pub struct Tables<'a> {
    /// The tables of the nodes.
    pub nodes: &'a [PathBuf],
    /// Events by the kernel's names, and how many.
    pub events: &'a BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Summary {
    trace: Option<Trace>,
    kthread_cpu_s: BTreeMap<String, f64>,
    throttled: BTreeMap<String, Throttled>,
    workers: BTreeMap<String, Done>,
}

#[derive(Deserialize)]
struct Trace {
    events: BTreeMap<String, u64>,
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
    /// 1: with all it had to do.
    done: Option<u32>,
}

impl Recording {
    /// True if a folder holds one: its scenario has workers, and disks with settings of their own.
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
    /// The mistake or the missing part, with file and line.
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
        let text = rows::text(&path)?;
        let mut nodes = Vec::new();
        let mut node_pages = Vec::new();
        for number in 0..setting::nodes(&text) {
            let table = need(&format!("node{number}.csv"))?;
            node_pages.push(free_pages(&table)?);
            nodes.push(table);
        }
        let counters = counters();
        let wanted: Vec<Wanted> = core::iter::once(column("t", "seconds"))
            .chain(
                LEVELS
                    .iter()
                    .chain(&counters)
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
                text: &text,
                facts_path: &facts_path,
                facts: &rows::text(&facts_path)?,
                // Pages of files that are there already can go.
                free_pages: first[1] + first[4] + first[5],
                node_pages,
                object_caches: small::caches(folder)?,
            },
            &mut notes,
        )?;
        let samples_path = need("samples.csv")?;
        let (samples, of) = rows::read_labelled(&samples_path, &SAMPLES, "worker")?;
        let summary_path = need("summary.json")?;
        let summary: Summary =
            serde_json::from_str(&rows::text(&summary_path)?).map_err(|error| {
                let title = format!("is not a recording's summary: {error}");
                Fault::of(&summary_path, title, "`cargo instruments guest` writes it")
            })?;
        notes.extend(vmstat.notes.iter().chain(&samples.notes).cloned());
        let from = 1 + LEVELS.len();
        let stalls = from + counters.len()..from + counters.len() + STALLS.len();
        let own = counters.iter().zip(from..);
        let mut all: Vec<(&'static str, f64)> = own
            .map(|(name, at)| (*name, last[at] - first[at]))
            .collect();
        all.push((STALL, stalls.map(|at| last[at] - first[at]).sum()));
        let jobs = setting.workers.iter().map(|worker| {
            let done = summary.workers.get(&worker.name);
            job(&setting, worker, done, &samples, &of)
        });
        let jobs = jobs.collect();
        let mut outcome = Outcome {
            case: setting.name.clone(),
            policy: COLUMN.into(),
            scale: 1.0,
            cpu_scale: 1.0,
            tick_ms: 1e3 / f64::from(setting.hz),
            jobs,
            tasks: tasks(&setting, &summary),
            counters: all,
            throttles: throttles(&summary, &mut notes),
            vmstat: VmSeries {
                names: LEVELS
                    .iter()
                    .chain(&counters)
                    .chain(&[FREED_SLABS])
                    .copied()
                    .collect(),
                rows: vmstat
                    .rows
                    .iter()
                    .filter(|row| row[0] >= 0.0)
                    .map(|row| {
                        let level = |at: usize| {
                            // Slabs that were there before are none of the memory that the lab has.
                            let kept = LEVELS[at - 1].starts_with("nr_slab");
                            row[at] - if kept { first[at] } else { 0.0 }
                        };
                        let levels = (1..from).map(level);
                        let counted = (from..from + counters.len()).map(|at| row[at] - first[at]);
                        // The kernel does not count them.
                        let all = levels.chain(counted).chain([0.0]);
                        (row[0], all.collect())
                    })
                    .collect(),
            },
            virtual_s: setting.seconds,
            memory_limit: setting.usable_mib * 1_048_576.0,
            ..Outcome::default()
        };
        let none = BTreeMap::new();
        let tables = Tables {
            nodes: &nodes,
            events: summary.trace.as_ref().map_or(&none, |trace| &trace.events),
        };
        for shape in SHAPES {
            (shape.read)(&tables, &mut outcome)?;
        }
        Ok(Self {
            setting,
            outcome,
            notes,
        })
    }
}

/// Counters of `vmstat` that figures and metrics are made of, each once.
fn counters() -> Vec<&'static str> {
    let of_figures = FIGURES.iter().filter(|figure| figure.counts());
    let of_figures = of_figures.flat_map(|figure| figure.names().iter().copied());
    let mut names: Vec<&str> = of_figures.chain(COUNTERS).collect();
    names.retain(|name| !ELSEWHERE.contains(name));
    names.sort_unstable();
    names.dedup();
    names
}

/// Pages of a node that are free or of files, in its first sample.
fn free_pages(table: &Path) -> Result<f64, Fault> {
    let wanted = ["t", "nr_free_pages", "nr_inactive_file", "nr_active_file"];
    let wanted = wanted.map(|name| column(name, PAGES));
    let rows = rows::read(table, &wanted, None)?;
    let first = rows.rows.first();
    let first = first.ok_or_else(|| Fault::of(table, "has no samples", "record again"))?;
    Ok(first[1] + first[2] + first[3])
}

/// A worker as a job of the lab.
fn job(
    setting: &Setting,
    worker: &Worker,
    done: Option<&Done>,
    samples: &Rows,
    of: &[String],
) -> Job {
    let own = samples.rows.iter().zip(of);
    let own = own.filter(|(row, of)| **of == worker.name && row[4] > 0.0);
    let calls: Vec<Call> = own
        .map(|(row, _)| Call {
            ended_s: row[0] + row[1] / 1e3,
            ms: row[1],
            n: row[2],
            extra: row[3],
        })
        .collect();
    let is_done = done.is_some_and(|done| done.done.unwrap_or(0) > 0);
    let last = calls.last().map_or(setting.seconds, |call| call.ended_s);
    let ended_s = if is_done { last } else { setting.seconds };
    let mut job = Job {
        name: worker.name.clone(),
        entry: worker.name.clone(),
        kind: worker.work.task,
        began_s: worker.start_s,
        ended_s,
        moved_s: ended_s,
        calls: done.map_or(0, |done| done.calls),
        call_lengths: calls.iter().map(|call| (call.ms, 1)).collect(),
        rate_share: 1.0,
        ..Job::default()
    };
    let work = done.map_or(0.0, |done| done.work);
    (worker.work.job)(worker, &calls, work, &mut job);
    job
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
    let kswapd = summary.kthread_cpu_s.iter();
    let kswapd = kswapd.filter(|(name, _)| name.starts_with("kswapd"));
    let kswapd: f64 = kswapd.map(|(_, seconds)| seconds).sum();
    setting
        .workers
        .iter()
        .filter_map(of_worker)
        .chain([TaskCpu {
            name: super::figures::RECLAIMER.into(),
            system_s: kswapd,
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
        let full_ms = throttled.timeout_ms * whole(throttled.full);
        let mean_ms = (throttled.sum_ms - full_ms) / whole(between.max(1));
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

//! A recording of memory pressure as a folder of tables, in the form of `cargo instruments guest`.
//!
//! | file | needed | holds |
//! |---|---|---|
//! | `scenario.toml` | yes | the setting |
//! | `vmstat.csv` | yes | all of `/proc/vmstat`, ten times a second |
//! | `samples.csv` | yes | every call of every worker: when it began, how long it took |
//! | `summary.json` | yes | CPU times of workers and of the kernel's threads, throttlings by who and why, how many events |
//! | `node0.csv`, ... | of several nodes | the counters of each node |
//!
//! A table may be gzipped. Times are seconds from the start of the workers; samples begin before
//! that.

use std::collections::BTreeMap;
use std::path::Path;

use policy::reclaim::Reason;
use serde::Deserialize;

use super::fault::Fault;
use super::figures::{RECLAIMER, of_kind};
use super::kind::PRESSURE;
use super::rows::{self, Rows, Wanted, column};
use super::setting::{Setting, start_s};
use experiment::outcome::{Iteration, Job, Outcome, TaskCpu, ThrottleCount, ThrottleEnd, VmSeries};
use experiment::scenario::TaskEntry;
use experiment::stats::{count, whole};

const MIB: f64 = 1_048_576.0;
const KIB: f64 = 1024.0;
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
/// A counter of a figure that 6.12 has and 6.1 does not.
const YOUNG: &str = "zone_reclaim_success";
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

/// The columns read from a node's table: free pages, those of files, anonymous and dirty ones.
const NODE: [Wanted; 8] = [
    column("t", "seconds"),
    column("nr_free_pages", PAGES),
    column("nr_inactive_file", PAGES),
    column("nr_active_file", PAGES),
    column("nr_inactive_anon", PAGES),
    column("nr_active_anon", PAGES),
    column("nr_dirty", PAGES),
    column("nr_writeback", PAGES),
];

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Call {
    ended_s: f64,
    ms: f64,
    /// Pages, bytes or files.
    n: f64,
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

/// Reads the tables of a folder; answers what they show.
///
/// # Errors
/// The mistake or the missing part, with file and line.
pub(super) fn read(
    folder: &Path,
    setting: &Setting,
    notes: &mut Vec<String>,
) -> Result<Outcome, Fault> {
    let need = |name: &str| rows::need(folder, name, setting.kind.folder);
    let vmstat_path = need("vmstat.csv")?;
    let mut counters = counters();
    if !rows::has(&vmstat_path, YOUNG)? {
        counters.retain(|name| *name != YOUNG);
        notes.push(format!("this kernel does not count `{YOUNG}`"));
    }
    let names = LEVELS.iter().chain(&counters).chain(&STALLS);
    let wanted: Vec<Wanted> = core::iter::once(column("t", "seconds"))
        .chain(names.map(|name| column(name, PAGES)))
        .collect();
    let vmstat = rows::read(&vmstat_path, &wanted, None)?;
    let (Some(first), Some(last)) = (vmstat.rows.first(), vmstat.rows.last()) else {
        return Err(Fault::of(&vmstat_path, "has no samples", "record again"));
    };
    let (samples, of) = rows::read_labelled(&need("samples.csv")?, &SAMPLES, "worker")?;
    let summary_path = need("summary.json")?;
    let summary: Summary = serde_json::from_str(&rows::text(&summary_path)?).map_err(|error| {
        let title = format!("is not a recording's summary: {error}");
        Fault::of(&summary_path, title, "`cargo instruments guest` writes it")
    })?;
    notes.extend(vmstat.notes.iter().chain(&samples.notes).cloned());
    let from = 1 + LEVELS.len();
    let stalls = from + counters.len()..from + counters.len() + STALLS.len();
    let own = counters.iter().zip(from..);
    let grown = |at: usize| last[at] - first[at];
    let mut all: Vec<(&'static str, f64)> = own.map(|(name, at)| (*name, grown(at))).collect();
    all.push((STALL, stalls.map(grown).sum()));
    // Events that the kernel counts in no counter.
    let events = summary.trace.as_ref().map(|trace| &trace.events);
    if let Some(events) = events.and_then(|events| events.get("mm_page_alloc_extfrag")) {
        all.push(("extfrag_events", whole(*events)));
    }
    let tasks = setting.scenario.tasks.iter();
    let jobs = tasks.map(|task| job(setting, task, &summary, &samples, &of));
    let kept_free = setting.kept_free(None);
    let level = |row: &[f64], at: usize| match LEVELS[at - 1] {
        // Slabs that were there before are none of the memory that the lab has.
        name if name.starts_with("nr_slab") => row[at] - first[at],
        "nr_free_pages" => row[at] - kept_free,
        _ => row[at],
    };
    let sample = |row: &Vec<f64>| {
        let levels = (1..from).map(|at| level(row, at));
        let counted = (from..from + counters.len()).map(|at| row[at] - first[at]);
        // The kernel does not count what shrinkers gave back.
        (row[0], levels.chain(counted).chain([0.0]).collect())
    };
    let names = LEVELS.iter().chain(&counters).chain(&[FREED_SLABS]);
    let nodes = 0..setting.scenario.machine.node.len();
    Ok(Outcome {
        cpu_scale: 1.0,
        tick_ms: 1e3 / f64::from(setting.hz().unwrap_or(250)),
        jobs: jobs.collect(),
        tasks: tasks_of(setting, &summary),
        counters: all,
        throttles: throttles(&summary, notes),
        vmstat: VmSeries {
            names: names.copied().collect(),
            rows: since_zero(&vmstat).map(sample).collect(),
        },
        nodes: nodes
            .map(|number| {
                let kept_free = setting.kept_free(Some(number));
                node(&need(&format!("node{number}.csv"))?, kept_free)
            })
            .collect::<Result<_, _>>()?,
        ..Outcome::default()
    })
}

fn since_zero(table: &Rows) -> impl Iterator<Item = &Vec<f64>> {
    table.rows.iter().filter(|row| row[0] >= 0.0)
}

/// Levels of a node, as the lab has them.
fn node(path: &Path, kept_free: f64) -> Result<VmSeries, Fault> {
    let table = rows::read(path, &NODE, None)?;
    let level = |row: &Vec<f64>| {
        let all = vec![row[1] - kept_free, row[2] + row[3], row[4] + row[5], row[6]];
        (row[0], all)
    };
    Ok(VmSeries {
        names: vec![
            "nr_free_pages",
            "nr_file_pages",
            "nr_anon_pages",
            "nr_dirty",
        ],
        rows: since_zero(&table).map(level).collect(),
    })
}

/// Counters of `vmstat` that figures and metrics are made of, each once.
fn counters() -> Vec<&'static str> {
    let of_figures = of_kind(&PRESSURE).iter();
    let of_figures = of_figures.flat_map(|figure| figure.counters().iter().copied());
    let mut names: Vec<&str> = of_figures.chain(COUNTERS).collect();
    names.retain(|name| !ELSEWHERE.contains(name));
    names.sort_unstable();
    names.dedup();
    names
}

/// A worker as a job of the lab.
fn job(
    setting: &Setting,
    task: &TaskEntry,
    summary: &Summary,
    samples: &Rows,
    of: &[String],
) -> Job {
    let name = task.id.get_ref();
    let done = summary.workers.get(name);
    let own = samples.rows.iter().zip(of);
    let own = own.filter(|(row, of)| *of == name && row[4] > 0.0);
    let calls: Vec<Call> = own
        .map(|(row, _)| Call {
            ended_s: row[0] + row[1] / 1e3,
            ms: row[1],
            n: row[2],
        })
        .collect();
    let is_done = done.is_some_and(|done| done.done.unwrap_or(0) > 0);
    let last = calls.last().filter(|_| is_done);
    let ended_s = last.map_or(setting.seconds(), |call| call.ended_s);
    let work = done.map_or(0.0, |done| done.work);
    let job = Job {
        name: name.clone(),
        entry: name.clone(),
        kind: task.kind.get_ref().name(),
        began_s: start_s(task),
        ended_s,
        moved_s: ended_s,
        calls: done.map_or(0, |done| done.calls),
        call_lengths: calls.iter().map(|call| (call.ms, 1)).collect(),
        rate_share: 1.0,
        ..Job::default()
    };
    with_work(job, task, &calls, work)
}

/// A job with what the lab's of its kind has, of the calls that ended and all that was done.
fn with_work(job: Job, task: &TaskEntry, calls: &[Call], work: f64) -> Job {
    match job.kind {
        "rand_write" => Job {
            bytes: work,
            is_heavy: true,
            ..job
        },
        "rand_read" => Job {
            bytes: work,
            is_reader: true,
            ..job
        },
        "hog" => Job {
            touched: work,
            is_hog: true,
            ..job
        },
        "mapper" => Job {
            touched: work,
            is_mapper: true,
            samples: rests(task, calls),
            ..job
        },
        "passes" => Job {
            bytes: work,
            samples: passes(task, calls),
            ..job
        },
        "make_small" => Job {
            bytes: work * task.amount("file_kib") * KIB,
            makes_small: true,
            files_a_round: task.amount("files_per_loop"),
            passes: count(calls.len()),
            samples: calls.iter().map(|call| (call.ended_s, call.ms)).collect(),
            ..job
        },
        "alloc" => {
            let iterations = rounds(&job.name, calls);
            let sample =
                |round: &Iteration| (round.alloc_began_s + round.took_s, round.took_s * 1e3);
            let samples = iterations.iter().map(sample).collect();
            Job {
                touched: work,
                samples,
                iterations,
                ..job
            }
        }
        _ => Job { bytes: work, ..job },
    }
}

/// The lab's sample: from the end of one round to the end of the next, less the rest. So what is
/// late about the rest counts on both sides.
fn rests(task: &TaskEntry, calls: &[Call]) -> Vec<(f64, f64)> {
    let (mut before, rest_ms) = (start_s(task), task.amount("every_ms"));
    let round = |call: &Call| {
        let took = ((call.ended_s - before) * 1e3 - rest_ms).max(0.0);
        before = call.ended_s;
        (call.ended_s, took)
    };
    calls.iter().map(round).collect()
}

/// (when it ended, its length in ms) of each pass: from the beginning of its first call to the end
/// of its last.
fn passes(task: &TaskEntry, calls: &[Call]) -> Vec<(f64, f64)> {
    let bytes = task.amount("file_mib") * MIB;
    let mut all = Vec::new();
    let (mut done, mut began) = (0.0, None);
    for call in calls {
        let from = *began.get_or_insert(call.ended_s - call.ms / 1e3);
        done += call.n;
        if done >= bytes {
            all.push((call.ended_s, (call.ended_s - from) * 1e3));
            (done, began) = (0.0, None);
        }
    }
    all
}

/// A round is three lines: its time; user and system time; huge pages got and not got.
fn rounds(name: &str, calls: &[Call]) -> Vec<Iteration> {
    let round = |lines: &[Call]| Iteration {
        alloc: name.to_owned(),
        began_s: lines[0].ended_s - lines[0].ms / 1e3,
        alloc_began_s: lines[0].ended_s - lines[0].ms / 1e3,
        took_s: lines[0].ms / 1e3,
        huge: lines[2].n,
        ..Iteration::default()
    };
    calls.chunks_exact(3).map(round).collect()
}

fn tasks_of(setting: &Setting, summary: &Summary) -> Vec<TaskCpu> {
    let of_worker = |task: &TaskEntry| {
        let name = task.id.get_ref();
        let done = summary.workers.get(name)?;
        Some(TaskCpu {
            name: name.clone(),
            is_job: true,
            user_s: done.user_ms / 1e3,
            system_s: done.system_ms / 1e3,
            ..TaskCpu::default()
        })
    };
    let kswapd = summary.kthread_cpu_s.iter();
    let kswapd = kswapd.filter(|(name, _)| name.starts_with("kswapd"));
    let reclaimer = TaskCpu {
        name: RECLAIMER.into(),
        system_s: kswapd.map(|(_, seconds)| seconds).sum(),
        ..TaskCpu::default()
    };
    let workers = setting.scenario.tasks.iter().filter_map(of_worker);
    workers.chain([reclaimer]).collect()
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

//! Outcomes as the tidy tables of experiments D2.

use std::time::{SystemTime, UNIX_EPOCH};

use policy::reclaim::Reason;

use super::columns::TidyTable;
use crate::comparison::Comparison;
use experiment::metrics::METRICS;
use experiment::outcome::{Outcome, ThrottleCount, WaitLengths};
use experiment::scenario::{Scenario, Source};

/// The facts that all runs have in common.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the experiment.
    pub experiment: String,
    /// One line about it.
    pub title: String,
    /// Where the scenario came from, with overrides.
    pub scenario_id: String,
    /// Its text as it was run.
    pub scenario_text: String,
    /// Fingerprint of the text.
    pub scenario_sha256: String,
    /// Master seed.
    pub master_seed: u64,
    /// Seconds since 1970 when it was started.
    pub started: i64,
    /// Name of the machine.
    pub host: String,
    /// On files, not in the lab.
    pub live: bool,
    /// Version of the program that made them.
    pub version: String,
}

impl About {
    /// Of the runs of a scenario that begin now.
    #[must_use]
    pub fn of(scenario: &Scenario, source: &Source, live: bool, version: &str) -> Self {
        let digest = hmac_sha256::Hash::hash(source.text.as_bytes());
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            experiment: scenario.name.get_ref().clone(),
            title: scenario.title.clone(),
            scenario_id: source.origin.clone(),
            scenario_text: source.text.clone(),
            scenario_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            master_seed: scenario.run.seed,
            started: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            host: host.trim().to_owned(),
            live,
            version: version.to_owned(),
        }
    }
}

/// All tables.
#[must_use]
pub fn tables(about: &About, outcomes: &[Outcome], compared: &[Comparison]) -> Vec<TidyTable> {
    // The long ones side by side.
    let (samples, series, events) = std::thread::scope(|scope| {
        let samples = scope.spawn(|| samples(outcomes));
        let series = scope.spawn(|| series(outcomes));
        let events = events(outcomes);
        (joined(samples), joined(series), events)
    });
    vec![
        runs(about, outcomes),
        samples,
        series,
        counters(outcomes),
        events,
        throttles(outcomes),
        waits(outcomes),
        wait_lengths(outcomes),
        wait_ends(outcomes),
        compare(about, compared),
    ]
}

/// The result of the thread; its panic goes on here.
pub(super) fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// A table of a list: a line a column, with its name, its kind and its value of a row.
#[macro_export]
macro_rules! tidy_table {
    ($name:expr, $rows:expr, { $($column:literal: $kind:ident = |$row:pat_param| $value:expr,)* }) => {
        $crate::output::TidyTable::new($name, vec![$($crate::output::Column {
            name: $column,
            data: $crate::output::Data::$kind($rows.iter().map(|$row| $value).collect()),
        },)*])
    };
}

fn runs(about: &About, outcomes: &[Outcome]) -> TidyTable {
    tidy_table!("runs", outcomes, {
        "run_id": Text = |run| run.run_id(),
        "experiment": Text = |_| about.experiment.clone(),
        "scenario_id": Text = |_| about.scenario_id.clone(),
        "mode": Text = |_| if about.live { "live" } else { "lab" }.to_owned(),
        "case": Text = |run| run.case.clone(),
        "policy": Text = |run| run.policy.clone(),
        "replica": Whole = |run| i64::from(run.replica),
        "rng_master": Text = |_| about.master_seed.to_string(),
        "seed": Text = |run| format!("{:016x}", run.seed),
        "scale": Real = |run| run.scale,
        "version": Text = |_| format!("tidegate {}", about.version),
        "host": Text = |_| about.host.clone(),
        "started": Whole = |_| about.started,
        "wall_s": Real = |run| run.wall_s,
        "virt_s": Real = |run| run.virtual_s,
        "memory_limit_bytes": Real = |run| run.memory_limit,
        "scenario_sha256": Text = |_| about.scenario_sha256.clone(),
        "trace_hash": Text = |run| format!("{:016x}", run.trace_hash),
        "interrupted": Flag = |run| run.interrupted,
    })
}

struct Sample {
    run: String,
    kind: &'static str,
    task: String,
    metric: &'static str,
    unit: &'static str,
    better: &'static str,
    at: f64,
    value: f64,
    weight: i64,
}

fn samples(outcomes: &[Outcome]) -> TidyTable {
    let mut rows = Vec::new();
    for outcome in outcomes {
        let run = outcome.run_id();
        for (metric, value) in METRICS.iter().zip(outcome.values()) {
            if let Some(value) = *value {
                rows.push(Sample {
                    run: run.clone(),
                    kind: "run",
                    task: String::new(),
                    metric: metric.name,
                    unit: metric.unit,
                    better: metric.better.name(),
                    at: outcome.virtual_s,
                    value,
                    weight: 1,
                });
            }
        }
        for job in &outcome.jobs {
            let lengths = [
                ("call_ms", &job.call_lengths),
                // From when a call was due: of jobs with a schedule.
                ("response_ms", &job.response_lengths),
            ];
            for (metric, lengths) in lengths {
                rows.extend(lengths.iter().map(|(length, calls)| Sample {
                    run: run.clone(),
                    kind: job.kind,
                    task: job.name.clone(),
                    metric,
                    unit: "ms",
                    better: "lower",
                    at: f64::NAN,
                    value: *length,
                    weight: i64::try_from(*calls).unwrap_or(i64::MAX),
                }));
            }
        }
    }
    tidy_table!("samples", rows, {
        "run_id": Text = |row| row.run.clone(),
        "phase": Text = |_| "run".to_owned(),
        "task_kind": Text = |row| row.kind.to_owned(),
        "task_id": Text = |row| row.task.clone(),
        "metric": Text = |row| row.metric.to_owned(),
        "unit": Text = |row| row.unit.to_owned(),
        "better": Text = |row| row.better.to_owned(),
        "t_virt_s": Real = |row| row.at,
        "value": Real = |row| row.value,
        "weight": Whole = |row| row.weight,
    })
}

struct Point {
    run: String,
    at: f64,
    scope: String,
    metric: &'static str,
    value: f64,
    unit: &'static str,
    kind: &'static str,
}

fn series(outcomes: &[Outcome]) -> TidyTable {
    let mut rows = Vec::new();
    for outcome in outcomes {
        let run = outcome.run_id();
        for level in &outcome.levels {
            let levels = [
                ("nr_dirty", level.dirty, "pages"),
                ("nr_writeback", level.writeback, "pages"),
                ("nr_free_pages", level.free, "pages"),
                ("nr_file_pages", level.cached, "pages"),
                ("nr_dirty_threshold", level.limit, "pages"),
                ("nr_dirty_background_threshold", level.background, "pages"),
                ("resident", level.resident, "bytes"),
            ];
            rows.extend(
                levels
                    .into_iter()
                    .filter(|(_, value, _)| !(value.abs() == 0.0 && outcome.trace_hash != 0))
                    .map(|(metric, value, unit)| Point {
                        run: run.clone(),
                        at: level.at_s,
                        scope: "global".into(),
                        metric,
                        value,
                        unit,
                        kind: "level",
                    }),
            );
        }
        for device in &outcome.devices {
            for level in &device.levels {
                let values = [
                    ("nr_dirty", level.dirty, "pages", "level"),
                    ("nr_writeback", level.writeback, "pages", "level"),
                    ("bytes_written", level.written, "bytes", "total"),
                    ("busy", level.busy_s, "s", "total"),
                ];
                rows.extend(values.map(|(metric, value, unit, kind)| Point {
                    run: run.clone(),
                    at: level.at_s,
                    scope: format!("device:{}", device.id),
                    metric,
                    value,
                    unit,
                    kind,
                }));
            }
        }
        kernel_series(outcome, &mut rows);
        slot_series(outcome, &mut rows);
        for job in &outcome.jobs {
            for (second, bytes) in (1_u32..).zip(&job.per_second) {
                rows.push(Point {
                    run: run.clone(),
                    at: f64::from(second),
                    scope: format!("task:{}", job.name),
                    metric: "bytes",
                    value: *bytes,
                    unit: "bytes",
                    kind: "delta",
                });
            }
        }
    }
    tidy_table!("series", rows, {
        "run_id": Text = |row| row.run.clone(),
        "t_virt_s": Real = |row| row.at,
        "scope": Text = |row| row.scope.clone(),
        "metric": Text = |row| row.metric.to_owned(),
        "value": Real = |row| row.value,
        "unit": Text = |row| row.unit.to_owned(),
        "kind": Text = |row| row.kind.to_owned(),
    })
}

/// The kernel's names that `series` has of its own, from the levels.
const KNOWN: [&str; 3] = ["nr_dirty", "nr_writeback", "nr_free_pages"];

/// Levels and running totals under the kernel's names; nothing of a counter that is always zero.
fn kernel_series(outcome: &Outcome, rows: &mut Vec<Point>) {
    let run = outcome.run_id();
    let series = &outcome.vmstat;
    for (index, name) in series.names.iter().enumerate() {
        let values = || {
            series
                .rows
                .iter()
                .filter_map(|(at, row)| Some((*at, *row.get(index)?)))
        };
        if KNOWN.contains(name) || values().all(|(_, value)| value.abs() == 0.0) {
            continue;
        }
        let is_level =
            name.starts_with("nr_") && !name.contains("vmscan") && !name.contains("throttled");
        let is_level = is_level || name.starts_with("swap_");
        rows.extend(values().map(|(at, value)| Point {
            run: run.clone(),
            at,
            scope: "global".into(),
            metric: name,
            value,
            unit: "pages",
            kind: if is_level { "level" } else { "total" },
        }));
    }
}

/// Sleepers and scanned pages, slot by slot; the time is a slot's end.
fn slot_series(outcome: &Outcome, rows: &mut Vec<Point>) {
    let run = outcome.run_id();
    let slots = &outcome.slots;
    let mut add = |scope: String, metric: &'static str, unit: &'static str, values: &[f64]| {
        let ends = (1_u32..).map(|slot| slots.slot_s * f64::from(slot));
        rows.extend(ends.zip(values).map(|(at, value)| Point {
            run: run.clone(),
            at,
            scope: scope.clone(),
            metric,
            value: *value,
            unit,
            kind: "mean",
        }));
    };
    for (cause, means) in &slots.asleep {
        add(format!("cause:{cause}"), "asleep", "tasks", means);
    }
    let all = [
        ("direct", "scanned", &slots.scanned_direct),
        ("kswapd", "scanned", &slots.scanned_background),
        ("direct", "freed", &slots.freed_direct),
        ("kswapd", "freed", &slots.freed_background),
    ];
    for (scope, metric, rates) in all {
        if rates.iter().any(|rate| *rate > 0.0) {
            add(scope.into(), metric, "pages/s", rates);
        }
    }
}

fn counters(outcomes: &[Outcome]) -> TidyTable {
    let mut rows: Vec<(String, String, String, f64)> = Vec::new();
    for outcome in outcomes {
        let run = outcome.run_id();
        for (counter, delta) in &outcome.counters {
            rows.push((run.clone(), "global".into(), (*counter).to_owned(), *delta));
        }
        let pressure = &outcome.pressure;
        if pressure.over_s > 0.0 {
            let totals = [
                ("psi_memory_some_us", pressure.memory_some_s),
                ("psi_memory_full_us", pressure.memory_full_s),
                ("psi_io_some_us", pressure.io_some_s),
                ("psi_io_full_us", pressure.io_full_s),
                ("psi_over_us", pressure.over_s),
            ];
            for (name, total_s) in totals {
                rows.push((run.clone(), "global".into(), name.into(), total_s * 1e6));
            }
        }
        for task in &outcome.tasks {
            let scope = format!("task:{}", task.name);
            rows.push((
                run.clone(),
                scope.clone(),
                "user_us".into(),
                task.user_s * 1e6,
            ));
            rows.push((
                run.clone(),
                scope.clone(),
                "sys_us".into(),
                task.system_s * 1e6,
            ));
            for (cause, time_s) in &task.waits {
                rows.push((
                    run.clone(),
                    scope.clone(),
                    format!("wait_us_{cause}"),
                    time_s * 1e6,
                ));
            }
        }
        for job in &outcome.jobs {
            let scope = format!("task:{}", job.name);
            let counter = if job.is_reader {
                "bytes_read"
            } else {
                "bytes_written"
            };
            rows.push((run.clone(), scope, counter.into(), job.bytes));
        }
    }
    tidy_table!("counters", rows, {
        "run_id": Text = |row| row.0.clone(),
        "phase": Text = |_| "run".to_owned(),
        "scope": Text = |row| row.1.clone(),
        "counter": Text = |row| row.2.clone(),
        "delta": Real = |row| row.3,
    })
}

/// One pause of a writer, or one throttling of a reclaimer. Columns of the other kind are empty.
#[derive(Default)]
struct Stall {
    run: String,
    at: f64,
    task: u32,
    writer: f64,
    kind: &'static str,
    reason: &'static str,
    context: &'static str,
    ended: &'static str,
    timeout_ms: f64,
    delay_ms: f64,
    longest_ms: f64,
    pages: f64,
    written: f64,
    device_dirty: f64,
    device_limit: f64,
    ratelimit: f64,
}

/// Lines of `events` for pauses, and for throttlings: each run that has any gets an equal share,
/// and what does not fit is left out from its end. 40 MB each; the sums are in other tables,
/// complete.
const EVENTS_MOST: usize = 250_000;

fn share(outcomes: &[Outcome], has: fn(&Outcome) -> bool) -> usize {
    let runs = outcomes.iter().filter(|outcome| has(outcome)).count();
    EVENTS_MOST / runs.max(1)
}

fn events(outcomes: &[Outcome]) -> TidyTable {
    let mut rows = Vec::new();
    let pauses = share(outcomes, |outcome| !outcome.pauses.is_empty());
    let throttled = share(outcomes, |outcome| !outcome.throttled.is_empty());
    for outcome in outcomes {
        let run = outcome.run_id();
        rows.extend(outcome.pauses.iter().take(pauses).map(|pause| Stall {
            run: run.clone(),
            at: pause.at_s,
            task: pause.task,
            writer: f64::from(pause.writer),
            kind: "bdp_pause",
            reason: if pause.stalled {
                "NOPROGRESS"
            } else {
                "OVERSHARE"
            },
            timeout_ms: f64::NAN,
            delay_ms: pause.slept_ms,
            longest_ms: pause.longest_ms,
            pages: pause.dirtied,
            written: pause.written,
            device_dirty: pause.device_dirty,
            device_limit: pause.device_limit,
            ratelimit: pause.task_ratelimit,
            ..Stall::default()
        }));
        rows.extend(
            outcome
                .throttled
                .iter()
                .take(throttled)
                .map(|throttle| Stall {
                    run: run.clone(),
                    at: throttle.at_s,
                    task: throttle.task,
                    writer: f64::NAN,
                    kind: "throttle",
                    reason: reason_name(throttle.reason),
                    context: context(throttle.background),
                    ended: throttle.ended.name(),
                    timeout_ms: throttle.timeout_ms,
                    delay_ms: throttle.delayed_ms,
                    longest_ms: f64::NAN,
                    pages: f64::NAN,
                    written: f64::NAN,
                    device_dirty: f64::NAN,
                    device_limit: f64::NAN,
                    ratelimit: f64::NAN,
                }),
        );
    }
    tidy_table!("events", rows, {
        "run_id": Text = |row| row.run.clone(),
        "t_virt_s": Real = |row| row.at,
        "task_id": Whole = |row| i64::from(row.task),
        "writer": Real = |row| row.writer,
        "kind": Text = |row| row.kind.to_owned(),
        "reason": Text = |row| row.reason.to_owned(),
        "context": Text = |row| row.context.to_owned(),
        "ended": Text = |row| row.ended.to_owned(),
        "timeout_us": Real = |row| row.timeout_ms * 1e3,
        "delay_us": Real = |row| row.delay_ms * 1e3,
        "longest_nap_us": Real = |row| row.longest_ms * 1e3,
        "pages": Real = |row| row.pages,
        "pages_written": Real = |row| row.written,
        "device_dirty_pages": Real = |row| row.device_dirty,
        "device_limit_pages": Real = |row| row.device_limit,
        "task_ratelimit_pages_per_s": Real = |row| row.ratelimit,
    })
}

const fn context(background: bool) -> &'static str {
    if background { "kswapd" } else { "direct" }
}

fn reason_name(reason: Reason) -> &'static str {
    reason.name().trim_start_matches("VMSCAN_THROTTLE_")
}

/// Every throttling of every run, those that were alike in one row.
fn throttles(outcomes: &[Outcome]) -> TidyTable {
    let rows: Vec<(String, ThrottleCount)> = outcomes
        .iter()
        .flat_map(|outcome| {
            let run = outcome.run_id();
            let kinds = outcome.throttles.iter();
            kinds.map(move |kind| (run.clone(), *kind))
        })
        .collect();
    tidy_table!("throttles", rows, {
        "run_id": Text = |row| row.0.clone(),
        "context": Text = |row| context(row.1.background).to_owned(),
        "reason": Text = |row| reason_name(row.1.reason).to_owned(),
        "timeout_us": Real = |row| row.1.timeout_ms * 1e3,
        "delay_us": Real = |row| row.1.delayed_ms * 1e3,
        "ended": Text = |row| row.1.ended.name().to_owned(),
        "count": Whole = |row| i64::try_from(row.1.count).unwrap_or(i64::MAX),
    })
}

fn waits_of(outcomes: &[Outcome]) -> Vec<(String, &WaitLengths)> {
    let runs = outcomes.iter().map(|outcome| (outcome.run_id(), outcome));
    runs.flat_map(|(run, outcome)| outcome.waits.iter().map(move |waits| (run.clone(), waits)))
        .collect()
}

/// Waits by cause.
fn waits(outcomes: &[Outcome]) -> TidyTable {
    let rows = waits_of(outcomes);
    tidy_table!("waits", rows, {
        "run_id": Text = |row| row.0.clone(),
        "cause": Text = |row| row.1.cause.clone(),
        "waits": Whole = |row| i64::try_from(row.1.count).unwrap_or(i64::MAX),
        "timed_out": Whole = |row| i64::try_from(row.1.timed_out).unwrap_or(i64::MAX),
        "total_s": Real = |row| row.1.total_s,
        "p50_ms": Real = |row| row.1.p50_ms,
        "p99_ms": Real = |row| row.1.p99_ms,
        "max_ms": Real = |row| row.1.max_ms,
    })
}

/// The histogram of each cause: waits no longer than `at_most_ms` and longer than the class before.
fn wait_lengths(outcomes: &[Outcome]) -> TidyTable {
    let waits = waits_of(outcomes);
    let rows: Vec<(&str, &str, f64, u64)> = waits
        .iter()
        .flat_map(|(run, waits)| {
            let classes = waits.lengths.iter();
            classes.map(move |(most, count)| (run.as_str(), waits.cause.as_str(), *most, *count))
        })
        .collect();
    tidy_table!("wait_lengths", rows, {
        "run_id": Text = |row| row.0.to_owned(),
        "cause": Text = |row| row.1.to_owned(),
        "at_most_ms": Real = |row| row.2,
        "waits": Whole = |row| i64::try_from(row.3).unwrap_or(i64::MAX),
    })
}

/// The ends of the waits of each cause: the event by its name, or the deadline.
fn wait_ends(outcomes: &[Outcome]) -> TidyTable {
    let waits = waits_of(outcomes);
    let rows: Vec<(&str, &str, &str, u64, f64)> = waits
        .iter()
        .flat_map(|(run, waits)| {
            let ends = waits.ends.iter();
            ends.map(move |(by, count, total_s)| {
                (
                    run.as_str(),
                    waits.cause.as_str(),
                    by.as_str(),
                    *count,
                    *total_s,
                )
            })
        })
        .collect();
    tidy_table!("wait_ends", rows, {
        "run_id": Text = |row| row.0.to_owned(),
        "cause": Text = |row| row.1.to_owned(),
        "ended_by": Text = |row| row.2.to_owned(),
        "waits": Whole = |row| i64::try_from(row.3).unwrap_or(i64::MAX),
        "total_s": Real = |row| row.4,
    })
}

fn compare(about: &About, rows: &[Comparison]) -> TidyTable {
    let or_nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
    tidy_table!("compare", rows, {
        "experiment": Text = |_| about.experiment.clone(),
        "operation": Text = |row| row.operation.clone(),
        "stat": Text = |row| row.stat.clone(),
        "base_policy": Text = |row| row.base_policy.clone(),
        "policy": Text = |row| row.policy.clone(),
        "base_value": Real = |row| or_nan(row.base_value),
        "value": Real = |row| or_nan(row.value),
        "pct": Real = |row| or_nan(row.percent),
        "n_base": Whole = |row| row.n_base,
        "n": Whole = |row| row.n,
        "p_value": Real = |row| or_nan(row.p_value),
        "starred": Flag = |row| row.starred,
        "published_base": Real = |row| or_nan(row.published_base),
        "published_value": Real = |row| or_nan(row.published),
    })
}

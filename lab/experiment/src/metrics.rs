//! The measures of a run, by name: the metrics that scenarios, tables and bands speak of.
//!
//! All are brought back to scale 1: rates and CPU times are divided by the run's scale (fewer pages
//! at proportionally slower devices take the same time; experiments A6).
//!
//! Pauses. One pause is one line of the trace of `balance_dirty_pages` as the original of the law
//! prints it (`BalanceTrace::line`). 2.6.36 prints a line a call with all its naps together, which
//! is zero for a call that did not nap. The patch of p1 prints a line where it sleeps: it cannot
//! print a zero, however many calls went through without a pause. 6.12 prints a line a pause, and
//! one of zero for a pause too short to take. *Steady state* begins halfway between a run's first
//! and last pause longer than zero. `pause_*` metrics are of steady state, except `pause_max_ms`,
//! which is of the whole run.

mod echo;
mod pacing;
pub mod reclaim;
pub mod runs;
pub mod small;
#[cfg(test)]
mod tests;
pub mod throttles;
pub mod zones;

use std::sync::LazyLock;

use figures::quantile;

use crate::outcome::{Job, Outcome, Pause};
use crate::stats::{Better, count, mean};

/// A metric's name, unit and direction.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in scenarios.
    pub name: &'static str,
    /// Unit in tables.
    pub unit: &'static str,
    /// Direction.
    pub better: Better,
    /// Its meaning, in a line.
    pub about: &'static str,
    /// Its value in one run; `None`: it does not apply.
    pub of: fn(&Outcome) -> Option<f64>,
    /// It is of the samples of all repetitions together; else, the mean over them.
    pub pooled: bool,
}

impl Metric {
    const fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Its value in one run, worked out once a run.
    #[must_use]
    pub fn value(&self, outcome: &Outcome) -> Option<f64> {
        let at = METRICS.iter().position(|metric| metric.name == self.name);
        let values = outcome.values();
        at.and_then(|at| *values.get(at)?)
    }
}

/// The samples of a run.
pub type SamplesOf = fn(&Outcome) -> Option<Vec<f64>>;

/// The samples that a metric is the mean of, where it has any.
#[must_use]
pub fn samples_of(name: &str) -> Option<SamplesOf> {
    (name == scenario::SAMPLED).then_some(reclaim::mapped)
}

/// A list of metrics, one a line: name, unit, direction (`pooled`: of the samples of all
/// repetitions), its value, and what it is.
macro_rules! metrics {
    ($(#[$doc:meta])* $list:ident: $($name:literal, $unit:literal, $better:ident $($pooled:ident)?, $of:expr, $about:literal;)*) => {
        $(#[$doc])*
        pub(super) const $list: &[$crate::metrics::Metric] = &[$(
            $crate::metrics::Metric {
                name: $name,
                unit: $unit,
                better: $crate::stats::Better::$better,
                about: $about,
                of: $of,
                pooled: false,
            }$(.$pooled())?,
        )*];
    };
}
use metrics;

/// All metrics.
pub static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    [
        WRITING,
        reclaim::METRICS,
        zones::METRICS,
        small::METRICS,
        runs::METRICS,
    ]
    .concat()
});

impl Outcome {
    /// The values of all metrics in the order of `METRICS`, worked out when they are asked for
    /// first: some look at every pause, and tables, bands and files ask for each.
    pub fn values(&self) -> &[Option<f64>] {
        let all = || METRICS.iter().map(|metric| (metric.of)(self)).collect();
        self.values.0.get_or_init(all)
    }
}

metrics! {
    /// Of writing and its pacing.
    WRITING:
    "real", "s", Lower, real, "longest job, its sync included";
    "mbps", "MB/s", Higher, mbps, "bytes written by all jobs / real";
    "system", "s", Lower, |o| cpu(o, |task| !task.is_interrupt, |task| task.system_s), "system CPU time of jobs, flushers and reclaimer";
    "system-tasks", "s", Lower, |o| cpu(o, |task| task.is_job, |task| task.system_s), "system CPU time of the jobs alone";
    "system-flusher", "s", Lower, |o| cpu(o, |task| !task.is_job && !task.is_interrupt, |task| task.system_s), "system CPU time of flushers and reclaimer";
    "user", "s", Lower, |o| cpu(o, |_| true, |task| task.user_s), "user CPU time";
    "pauses", "", Lower, |o| Some(count(o.pauses.iter().filter(|pause| pause.slept_ms > 0.0).count())), "trace lines of balance_dirty_pages with a pause";
    "pause_max_ms", "ms", Lower, |o| largest(o.pauses.iter().map(|pause| pause.slept_ms)), "longest pause of the run";
    "pause_min_ms", "ms", Higher, |o| smallest(steady(o).map(|pause| pause.slept_ms).filter(|slept| *slept > 0.0)), "shortest pause in steady state, zeros apart";
    "pause_steady_max_ms", "ms", Lower, |o| largest(steady(o).map(|pause| pause.slept_ms)), "longest pause in steady state";
    "pause_mean_ms", "ms", Lower, |o| moments(o).map(|(mean, _)| mean), "mean pause in steady state";
    "pause_cv", "", Lower, |o| moments(o).map(|(mean, deviation)| deviation / mean), "Stddev / mean of the pauses in steady state";
    "pause_zero_share", "", Lower, zeros, "part of the trace lines that have a pause of zero, in steady state (p1 prints none)";
    "write_max_ms", "ms", Lower, |o| largest(heavy(o).map(|job| job.call_max_ms)), "longest write call of the heavy jobs";
    "light_p99_ms", "ms", Lower, |o| largest(light(o).map(|job| job.response_p99_ms)), "p99 of a light writer, from when it was due";
    "light_max_ms", "ms", Lower, |o| largest(light(o).map(|job| job.response_max_ms)), "longest of a light writer, from when it was due";
    "light_rate", "", Higher, |o| smallest(light(o).map(|job| job.rate_share)), "bytes of light writers / bytes on schedule";
    "read_max_ms", "ms", Lower, |o| largest(o.jobs.iter().filter(|job| job.is_reader).map(|job| job.call_max_ms)), "longest read call";
    "ops_s", "1/s", Higher, ops, "calls of all clients of a store, commits of all engines, a second";
    "op_p99_ms", "ms", Lower, |o| largest(clients(o).map(|job| job.call_p99_ms)), "p99 of the calls of a client of a store, of an engine's commits; the worst one";
    "log_wait_s", "s", Lower, log_wait, "time of all engines in waits for their logs";
    "passed_over", "", Lower, passed_over, "pages that were to be written and passed over, as they waited for a log";
    "jain", "", Higher, |o| fairness(o, 0.0), "fairness among heavy writers while all write";
    "jain_end", "", Higher, |o| fairness(o, 0.75), "fairness among heavy writers in the last quarter of the time in which all write";
    "dirty_share", "", Lower, level, "dirty + writeback / limit, in steady state";
    "level_end", "", Lower, level_end, "dirty + writeback / limit, in the last third of the time in which all heavy writers write";
    "newcomer_free_s", "s", Higher, newcomer_free, "from the start of the last heavy writer to its first pause";
    "newcomer_share", "", Higher, newcomer_share, "part of all bytes that the last heavy writer writes in its first 5 s";
    "written_mb", "MB", Higher, |o| Some(written(o) / 1e6 / o.scale), "bytes written by all jobs";
    "settled_mibps", "MiB/s", Higher, pacing::rate, "rate at which all writers dirty, from 10 s after the last change";
    "device_mibps", "MiB/s", Higher, pacing::device_rate, "rate at which the devices complete, from 10 s after the last change";
    "device_busy", "", Higher, pacing::busy, "part of the time with dirty data that the least busy device has work, from 10 s after the last change";
    "completion_max_mib", "MiB", Lower, |o| largest(o.devices.iter().map(|device| device.longest_write / 1_048_576.0)), "longest write that a device completes";
    "writer_cv", "", Lower, pacing::cv, "Stddev / mean of the pauses of a heavy writer, from 10 s after the last change; the worst writer";
    "pause_p50_ms", "ms", Lower, |o| quantile(&pacing::settled_pauses(o)?, 500), "median pause, from 10 s after the last change";
    "pause_p99_ms", "ms", Lower, |o| quantile(&pacing::settled_pauses(o)?, 990), "p99 of the pauses, from 10 s after the last change";
    "pause_rate", "1/s", Lower, pacing::pause_rate, "pauses a second, from 10 s after the last change";
    "pause_shortest_ms", "ms", Higher, |o| smallest(pacing::paced(o).map(|pause| pause.slept_ms)), "shortest pause of the run, stalls apart";
    "pause_longest_ms", "ms", Lower, |o| largest(pacing::paced(o).map(|pause| pause.slept_ms)), "longest pause of the run, stalls apart";
    "jain_early", "", Higher, pacing::early_fairness, "fairness among heavy writers in seconds 2 to 6 of the second one";
    "jain_settled", "", Higher, pacing::settled_fairness, "fairness among heavy writers, from 10 s after the last change";
    "write_p50_ms", "ms", Lower, |o| pacing::calls(o, 500), "median write call of the heavy jobs";
    "write_p99_ms", "ms", Lower, |o| pacing::calls(o, 990), "p99 of the write calls of the heavy jobs";
    "write_bound", "", Lower, |o| largest(heavy(o).filter_map(|job| job.write_bound)), "longest write of a heavy job / max(200 ms, 1.5 x writers x bytes / rate)";
    "light_p50_ms", "ms", Lower, |o| pacing::lengths(light(o).flat_map(|job| &job.response_lengths), 500), "median of a light writer, from when it was due";
    "level_mib", "MiB", Lower, pacing::level, "dirty + writeback, from 10 s after the last change";
    "level_peak", "", Lower, |o| (o.level_peak > 0.0).then_some(o.level_peak), "highest (dirty + writeback) / limit ever seen";
    "stall_s", "s", Lower, pacing::stall, "longest time of one job in stalls: waits for a device without progress";
    "stall_named", "", Higher, pacing::stall_named, "stalls of a hung device's writers / length of the hang";
    "hang_kept", "", Higher, pacing::hang_kept, "rate of the other devices' writers during a hang / before it";
    "paused_s", "s", Lower, pacing::paused, "time of all writers in pauses, stalls apart";
}

/// Those in which our column is held against those of today's Linux.
pub fn judged() -> impl Iterator<Item = &'static Metric> {
    let names = include_str!("../../../experiments/judged.txt").lines();
    names.filter_map(by_name)
}

/// The metric of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// Jain's index of fairness: 1 when all are equal, 1/n when one has everything.
#[must_use]
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (count(rates.len()) * squares)
    }
}

/// The pauses of steady state; none before the second pause.
pub fn steady(outcome: &Outcome) -> impl Iterator<Item = &Pause> {
    let mut slept = outcome.pauses.iter().filter(|pause| pause.slept_ms > 0.0);
    let first = slept.next().map_or(f64::INFINITY, |pause| pause.at_s);
    let last = slept
        .next_back()
        .map_or(f64::NEG_INFINITY, |pause| pause.at_s);
    let from = f64::midpoint(first, last);
    outcome
        .pauses
        .iter()
        .filter(move |pause| pause.at_s >= from && pause.at_s <= last)
}

fn written(outcome: &Outcome) -> f64 {
    outcome
        .jobs
        .iter()
        .filter(|job| !job.is_reader)
        .map(|job| job.bytes)
        .sum()
}

fn real(outcome: &Outcome) -> Option<f64> {
    largest(outcome.jobs.iter().map(|job| job.ended_s))
}

fn mbps(outcome: &Outcome) -> Option<f64> {
    let real = real(outcome).filter(|real| *real > 0.0)?;
    Some(written(outcome) / 1e6 / real / outcome.scale)
}

fn cpu(
    outcome: &Outcome,
    which: fn(&crate::outcome::TaskCpu) -> bool,
    what: fn(&crate::outcome::TaskCpu) -> f64,
) -> Option<f64> {
    let times: Vec<f64> = outcome
        .tasks
        .iter()
        .filter(|task| which(task))
        .map(what)
        .collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / outcome.cpu_scale)
}

/// Mean and sample deviation of the pauses that slept, in steady state.
fn moments(outcome: &Outcome) -> Option<(f64, f64)> {
    let slept: Vec<f64> = steady(outcome)
        .map(|pause| pause.slept_ms)
        .filter(|slept| *slept > 0.0)
        .collect();
    if slept.len() < 2 {
        return None;
    }
    let mean = slept.iter().sum::<f64>() / count(slept.len());
    let squares: f64 = slept.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (count(slept.len()) - 1.0)).sqrt()))
}

fn zeros(outcome: &Outcome) -> Option<f64> {
    let (mut all, mut zero) = (0, 0);
    for pause in steady(outcome) {
        all += 1;
        zero += usize::from(pause.slept_ms == 0.0);
    }
    (all > 0).then(|| count(zero) / count(all))
}

fn heavy(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    outcome.jobs.iter().filter(|job| job.is_heavy)
}

/// Clients of a store, and engines: a call of theirs is an answer to somebody.
fn clients(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    let are = |job: &&Job| matches!(job.kind, "ycsb" | "engine");
    outcome.jobs.iter().filter(are)
}

fn engines(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    outcome.jobs.iter().filter(|job| job.kind == "engine")
}

fn passed_over(outcome: &Outcome) -> Option<f64> {
    let passed: Vec<f64> = engines(outcome).map(|job| job.passed_over).collect();
    (!passed.is_empty()).then(|| passed.iter().sum())
}

fn log_wait(outcome: &Outcome) -> Option<f64> {
    engines(outcome).next()?;
    let jobs = outcome.tasks.iter().filter(|task| task.is_job);
    let waits = jobs.flat_map(|task| &task.waits);
    let of_log = waits.filter(|(cause, _)| *cause == format!("{:?}", env::Cause::LogDurable));
    Some(of_log.map(|(_, seconds)| seconds).sum())
}

fn ops(outcome: &Outcome) -> Option<f64> {
    let rate = |job: &Job| {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 calls")]
        let calls = job.calls as f64;
        calls / (job.moved_s - job.began_s)
    };
    let rates: Vec<f64> = clients(outcome).map(rate).collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

fn light(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    outcome.jobs.iter().filter(|job| job.is_light)
}

/// Beginning and end of the time in which all heavy writers write; `None`: there is none.
fn common_time(outcome: &Outcome) -> Option<(f64, f64)> {
    let began = largest(heavy(outcome).map(|job| job.began_s))?;
    let ended = smallest(heavy(outcome).map(|job| job.moved_s))?;
    (began < ended).then_some((began, ended))
}

/// The last third of that time.
fn last_third(outcome: &Outcome) -> Option<core::ops::Range<f64>> {
    let (began, ended) = common_time(outcome)?;
    Some(ended - (ended - began) / 3.0..ended)
}

/// Jain's index over the time in which all heavy writers write, from that part of it on.
fn fairness(outcome: &Outcome, from: f64) -> Option<f64> {
    let heavy: Vec<_> = heavy(outcome).collect();
    if heavy.len() < 2 {
        return None;
    }
    let (began, ended) = common_time(outcome)?;
    // Whole seconds only: the bytes are counted per second.
    let first = (began + (ended - began) * from).ceil();
    let seconds = (ended.floor() - first).max(0.0);
    if seconds < 1.0 {
        return None;
    }
    let rates: Vec<f64> = heavy
        .iter()
        .map(|job| {
            let skipped = job.per_second.iter().skip(index(first));
            skipped.take(index(seconds)).sum()
        })
        .collect();
    Some(jain(&rates))
}

fn level(outcome: &Outcome) -> Option<f64> {
    let from = steady(outcome).next()?.at_s;
    let levels = outcome.levels.iter();
    let levels =
        levels.filter(|level| level.at_s >= from && level.limit > 0.0 && level.dirty > 0.0);
    mean(levels.map(|level| (level.dirty + level.writeback) / level.limit))
}

fn level_end(outcome: &Outcome) -> Option<f64> {
    let time = last_third(outcome)?;
    let levels = outcome.levels.iter();
    let levels = levels.filter(|level| time.contains(&level.at_s) && level.limit > 0.0);
    mean(levels.map(|level| (level.dirty + level.writeback) / level.limit))
}

/// The heavy writer that began last, when another had begun before it.
fn newcomer(outcome: &Outcome) -> Option<&Job> {
    let last = heavy(outcome).max_by(|a, b| a.began_s.total_cmp(&b.began_s))?;
    heavy(outcome)
        .any(|job| job.began_s < last.began_s)
        .then_some(last)
}

/// A newcomer's pauses are those of a writer that had printed nothing before it began.
fn newcomer_free(outcome: &Outcome) -> Option<f64> {
    let began = newcomer(outcome)?.began_s;
    let is_new = |line: &&Pause| {
        let mut before = outcome.pauses.iter().filter(|old| old.at_s < began);
        !before.any(|old| old.writer == line.writer)
    };
    let paused = |line: &&Pause| line.at_s >= began && line.slept_ms > 0.0;
    let first = outcome.pauses.iter().filter(paused).find(is_new)?;
    // 2.6.36 prints after the pause.
    let asleep_s = if first.printed_after {
        first.slept_ms / 1e3
    } else {
        0.0
    };
    Some(first.at_s - asleep_s - began)
}

fn newcomer_share(outcome: &Outcome) -> Option<f64> {
    let newcomer = newcomer(outcome)?;
    let (first, seconds) = (newcomer.began_s.floor(), 5.0);
    let bytes = |job: &Job| -> f64 {
        let skipped = job.per_second.iter().skip(index(first));
        skipped.take(index(seconds)).sum()
    };
    let all: f64 = heavy(outcome).map(bytes).sum();
    (all > 0.0).then(|| bytes(newcomer) / all)
}

fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

fn smallest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.min_by(f64::total_cmp)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a run, not negative and at most a day"
)]
fn index(seconds: f64) -> usize {
    seconds as usize
}

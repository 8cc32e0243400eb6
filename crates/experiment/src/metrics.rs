//! What is measured of a run, by name: the metrics that scenarios, tables and bands speak of.
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
pub mod zones;

use crate::outcome::{Job, Outcome, Pause};
use crate::stats::Better;
use crate::stats::count;

/// A metric's name, unit and direction.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in scenarios.
    pub name: &'static str,
    /// Unit in tables.
    pub unit: &'static str,
    /// Direction.
    pub better: Better,
    /// What it is, in a line.
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

const fn metric(
    name: &'static str,
    unit: &'static str,
    better: Better,
    about: &'static str,
    of: fn(&Outcome) -> Option<f64>,
) -> Metric {
    Metric {
        name,
        unit,
        better,
        about,
        of,
        pooled: false,
    }
}

/// All metrics.
pub static METRICS: [Metric; 177] = join::<148, 29, 177>(
    join::<127, 21, 148>(
        join::<92, 35, 127>(
            join::<47, 45, 92>(WRITING, reclaim::METRICS),
            zones::METRICS,
        ),
        small::METRICS,
    ),
    runs::METRICS,
);

impl Outcome {
    /// The values of all metrics in the order of `METRICS`, worked out when they are asked for
    /// first: some look at every pause, and tables, bands and files ask for each.
    pub fn values(&self) -> &[Option<f64>] {
        let all = || METRICS.iter().map(|metric| (metric.of)(self)).collect();
        self.values.0.get_or_init(all)
    }
}

/// One list behind the other.
const fn join<const A: usize, const B: usize, const C: usize>(
    one: [Metric; A],
    other: [Metric; B],
) -> [Metric; C] {
    assert!(A + B == C, "the length of METRICS is the sum of its parts");
    let mut all = [one[0]; C];
    let mut at = 0;
    while at < C {
        all[at] = if at < A { one[at] } else { other[at - A] };
        at += 1;
    }
    all
}

/// Of writing and its pacing.
const WRITING: [Metric; 47] = [
    metric(
        "real",
        "s",
        Better::Lower,
        "longest job, its sync included",
        real,
    ),
    metric(
        "mbps",
        "MB/s",
        Better::Higher,
        "bytes written by all jobs / real",
        mbps,
    ),
    metric(
        "system",
        "s",
        Better::Lower,
        "system CPU time of jobs, flushers and reclaimer",
        |o| cpu(o, |task| !task.is_interrupt, |task| task.system_s),
    ),
    metric(
        "system-tasks",
        "s",
        Better::Lower,
        "system CPU time of the jobs alone",
        |o| cpu(o, |task| task.is_job, |task| task.system_s),
    ),
    metric(
        "system-flusher",
        "s",
        Better::Lower,
        "system CPU time of flushers and reclaimer",
        |o| {
            cpu(
                o,
                |task| !task.is_job && !task.is_interrupt,
                |task| task.system_s,
            )
        },
    ),
    metric("user", "s", Better::Lower, "user CPU time", |o| {
        cpu(o, |_| true, |task| task.user_s)
    }),
    metric(
        "pauses",
        "",
        Better::Lower,
        "trace lines of balance_dirty_pages with a pause",
        |o| {
            Some(count(
                o.pauses.iter().filter(|pause| pause.slept_ms > 0.0).count(),
            ))
        },
    ),
    metric(
        "pause_max_ms",
        "ms",
        Better::Lower,
        "longest pause of the run",
        |o| largest(o.pauses.iter().map(|pause| pause.slept_ms)),
    ),
    metric(
        "pause_min_ms",
        "ms",
        Better::Higher,
        "shortest pause in steady state, zeros apart",
        |o| {
            smallest(
                steady(o)
                    .map(|pause| pause.slept_ms)
                    .filter(|slept| *slept > 0.0),
            )
        },
    ),
    metric(
        "pause_steady_max_ms",
        "ms",
        Better::Lower,
        "longest pause in steady state",
        |o| largest(steady(o).map(|pause| pause.slept_ms)),
    ),
    metric(
        "pause_mean_ms",
        "ms",
        Better::Lower,
        "mean pause in steady state",
        |o| moments(o).map(|(mean, _)| mean),
    ),
    metric(
        "pause_cv",
        "",
        Better::Lower,
        "Stddev / mean of the pauses in steady state",
        |o| moments(o).map(|(mean, deviation)| deviation / mean),
    ),
    metric(
        "pause_zero_share",
        "",
        Better::Lower,
        "part of the trace lines that have a pause of zero, in steady state (p1 prints none)",
        zeros,
    ),
    metric(
        "write_max_ms",
        "ms",
        Better::Lower,
        "longest write call of the heavy jobs",
        |o| {
            largest(
                o.jobs
                    .iter()
                    .filter(|job| job.is_heavy)
                    .map(|job| job.call_max_ms),
            )
        },
    ),
    metric(
        "light_p99_ms",
        "ms",
        Better::Lower,
        "p99 of a light writer, from when it was due",
        |o| {
            largest(
                o.jobs
                    .iter()
                    .filter(|job| job.is_light)
                    .map(|job| job.response_p99_ms),
            )
        },
    ),
    metric(
        "light_max_ms",
        "ms",
        Better::Lower,
        "longest of a light writer, from when it was due",
        |o| {
            largest(
                o.jobs
                    .iter()
                    .filter(|job| job.is_light)
                    .map(|job| job.response_max_ms),
            )
        },
    ),
    metric(
        "light_rate",
        "",
        Better::Higher,
        "bytes of light writers / bytes on schedule",
        |o| {
            smallest(
                o.jobs
                    .iter()
                    .filter(|job| job.is_light)
                    .map(|job| job.rate_share),
            )
        },
    ),
    metric(
        "read_max_ms",
        "ms",
        Better::Lower,
        "longest read call",
        |o| {
            largest(
                o.jobs
                    .iter()
                    .filter(|job| job.is_reader)
                    .map(|job| job.call_max_ms),
            )
        },
    ),
    metric(
        "jain",
        "",
        Better::Higher,
        "fairness among heavy writers while all write",
        |o| fairness(o, 0.0),
    ),
    metric(
        "jain_end",
        "",
        Better::Higher,
        "fairness among heavy writers in the last quarter of the time in which all write",
        |o| fairness(o, 0.75),
    ),
    metric(
        "dirty_share",
        "",
        Better::Lower,
        "dirty + writeback / limit, in steady state",
        level,
    ),
    metric(
        "level_end",
        "",
        Better::Lower,
        "dirty + writeback / limit, in the last third of the time in which all heavy writers write",
        level_end,
    ),
    metric(
        "newcomer_free_s",
        "s",
        Better::Higher,
        "from the start of the last heavy writer to its first pause",
        newcomer_free,
    ),
    metric(
        "newcomer_share",
        "",
        Better::Higher,
        "part of all bytes that the last heavy writer writes in its first 5 s",
        newcomer_share,
    ),
    metric(
        "written_mb",
        "MB",
        Better::Higher,
        "bytes written by all jobs",
        |o| Some(written(o) / 1e6 / o.scale),
    ),
    metric(
        "settled_mibps",
        "MiB/s",
        Better::Higher,
        "what all writers dirty a second, from 10 s after the last change",
        pacing::rate,
    ),
    metric(
        "device_mibps",
        "MiB/s",
        Better::Higher,
        "what the devices complete a second, from 10 s after the last change",
        pacing::device_rate,
    ),
    metric(
        "device_busy",
        "",
        Better::Higher,
        "part of the time with dirty data that the least busy device has work, from 10 s after the last change",
        pacing::busy,
    ),
    metric(
        "completion_max_mib",
        "MiB",
        Better::Lower,
        "longest write that a device completes",
        pacing::longest_completion,
    ),
    metric(
        "writer_cv",
        "",
        Better::Lower,
        "Stddev / mean of the pauses of a heavy writer, from 10 s after the last change; the worst writer",
        pacing::cv,
    ),
    metric(
        "pause_p50_ms",
        "ms",
        Better::Lower,
        "median pause, from 10 s after the last change",
        pacing::pause_p50,
    ),
    metric(
        "pause_p99_ms",
        "ms",
        Better::Lower,
        "p99 of the pauses, from 10 s after the last change",
        pacing::pause_p99,
    ),
    metric(
        "pause_rate",
        "1/s",
        Better::Lower,
        "pauses a second, from 10 s after the last change",
        pacing::pause_rate,
    ),
    metric(
        "pause_shortest_ms",
        "ms",
        Better::Higher,
        "shortest pause of the run, stalls apart",
        pacing::shortest,
    ),
    metric(
        "pause_longest_ms",
        "ms",
        Better::Lower,
        "longest pause of the run, stalls apart",
        pacing::longest,
    ),
    metric(
        "jain_early",
        "",
        Better::Higher,
        "fairness among heavy writers in seconds 2 to 6 of the second one",
        pacing::early_fairness,
    ),
    metric(
        "jain_settled",
        "",
        Better::Higher,
        "fairness among heavy writers, from 10 s after the last change",
        pacing::settled_fairness,
    ),
    metric(
        "write_p50_ms",
        "ms",
        Better::Lower,
        "median write call of the heavy jobs",
        pacing::write_p50,
    ),
    metric(
        "write_p99_ms",
        "ms",
        Better::Lower,
        "p99 of the write calls of the heavy jobs",
        pacing::write_p99,
    ),
    metric(
        "write_bound",
        "",
        Better::Lower,
        "longest write of a heavy job / max(200 ms, 1.5 x writers x bytes / rate)",
        pacing::write_bound,
    ),
    metric(
        "light_p50_ms",
        "ms",
        Better::Lower,
        "median of a light writer, from when it was due",
        pacing::light_p50,
    ),
    metric(
        "level_mib",
        "MiB",
        Better::Lower,
        "dirty + writeback, from 10 s after the last change",
        pacing::level,
    ),
    metric(
        "level_peak",
        "",
        Better::Lower,
        "highest (dirty + writeback) / limit ever seen",
        pacing::level_peak,
    ),
    metric(
        "stall_s",
        "s",
        Better::Lower,
        "longest time of one job in stalls: waits for a device without progress",
        pacing::stall,
    ),
    metric(
        "stall_named",
        "",
        Better::Higher,
        "stalls of a hung device's writers / length of the hang",
        pacing::stall_named,
    ),
    metric(
        "hang_kept",
        "",
        Better::Higher,
        "rate of the other devices' writers during a hang / before it",
        pacing::hang_kept,
    ),
    metric(
        "paused_s",
        "s",
        Better::Lower,
        "time of all writers in pauses, stalls apart",
        pacing::paused,
    ),
];

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
    let shares: Vec<f64> = outcome
        .levels
        .iter()
        .filter(|level| level.at_s >= from && level.limit > 0.0 && level.dirty > 0.0)
        .map(|level| (level.dirty + level.writeback) / level.limit)
        .collect();
    mean(&shares)
}

fn level_end(outcome: &Outcome) -> Option<f64> {
    let time = last_third(outcome)?;
    let levels = outcome.levels.iter();
    let levels = levels.filter(|level| time.contains(&level.at_s) && level.limit > 0.0);
    let shares: Vec<f64> = levels
        .map(|level| (level.dirty + level.writeback) / level.limit)
        .collect();
    mean(&shares)
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

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count(values.len()))
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

//! What is measured, of a recording and of a run of the lab alike, and within which bands the lab has to be.
//!
//! | figure | definition |
//! |---|---|
//! | counters | differences over the whole run, pages |
//! | latency | rounds of the latency worker, from end to end less its rest |
//! | CPU | user and system time of all tasks of a kind; of the background reclaimer |
//! | throttled | how often, by reason, no matter which task it was |
//! | composition | means of the samples from second 10 (the middle, if it is shorter than 20 s) |
//!
//! Source: ours: the bands were set before the lab was held against the first of these recordings.

use policy::reclaim::Reason;

use super::super::bands::Verdict;
use super::guess::Scale;
use super::setting::Setting;
use crate::outcome::{Job, Outcome};

/// How the lab calls the task that reclaims in the background.
pub const RECLAIMER: &str = "reclaimer";
/// Levels are steady from here on, seconds.
const STEADY_S: f64 = 10.0;
const PAGES_PER_MIB: f64 = 256.0;
const MIB: f64 = 1_048_576.0;

/// How far the lab may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// By this part of what was recorded.
    Part(f64),
    /// By this factor, either way.
    Factor(f64),
    /// By this part of the memory that there is.
    OfMemory(f64),
}

/// A figure of the tables.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// How near the lab has to be; `None`: it is shown.
    pub band: Option<Band>,
    /// What a constant guess of it goes by.
    pub scale: Scale,
    of: Of,
}

impl Figure {
    /// The least value that the tables show.
    fn least(&self) -> f64 {
        (0..self.digits).fold(0.5, |least, _| least / 10.0)
    }
}

/// How a figure is had.
#[derive(Clone, Copy)]
enum Of {
    /// A counter.
    Counter(&'static str),
    /// The mean of the sum of levels.
    Levels(&'static [&'static str]),
    /// This part of the latencies is no longer; 1: the longest.
    Latency(f64),
    /// CPU time of the tasks of a kind, or of the background reclaimer.
    Cpu(&'static str),
    /// How often for that reason.
    Throttled(Reason),
    /// Of all jobs of a kind together.
    Jobs(&'static str, fn(&Job) -> f64),
}

const SCANNED: Option<Band> = Some(Band::Part(0.15));
const SHORT: Option<Band> = Some(Band::Part(0.25));
const LONG: Option<Band> = Some(Band::Factor(1.5));
const CPU: Option<Band> = Some(Band::Part(0.2));
const THROTTLED: Option<Band> = Some(Band::Factor(2.0));
const LEVEL: Option<Band> = Some(Band::OfMemory(0.1));

const fn counter(name: &'static str, band: Option<Band>) -> Figure {
    figure(name, "", 0, band, Scale::Seconds, Of::Counter(name))
}

const fn level(name: &'static str, of: &'static [&'static str]) -> Figure {
    figure(name, "MiB", 1, LEVEL, Scale::Memory, Of::Levels(of))
}

const fn latency(name: &'static str, part: f64, band: Option<Band>) -> Figure {
    figure(name, "ms", 1, band, Scale::One, Of::Latency(part))
}

const fn cpu(name: &'static str, of: &'static str) -> Figure {
    figure(name, "s", 2, CPU, Scale::Seconds, Of::Cpu(of))
}

const fn throttled(name: &'static str, reason: Reason) -> Figure {
    figure(
        name,
        "",
        0,
        THROTTLED,
        Scale::Seconds,
        Of::Throttled(reason),
    )
}

const fn figure(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    band: Option<Band>,
    scale: Scale,
    of: Of,
) -> Figure {
    Figure {
        name,
        unit,
        digits,
        band,
        scale,
        of,
    }
}

/// All figures, in the order of the tables.
pub const FIGURES: [Figure; 44] = [
    counter("pgscan_direct", SCANNED),
    counter("pgscan_kswapd", SCANNED),
    counter("pgsteal_direct", SCANNED),
    counter("pgsteal_kswapd", SCANNED),
    counter("pswpin", SCANNED),
    counter("pswpout", SCANNED),
    latency("latency: p50", 0.5, SHORT),
    latency("latency: p90", 0.9, SHORT),
    latency("latency: p99", 0.99, LONG),
    latency("latency: longest", 1.0, LONG),
    cpu("cpu: kswapd", RECLAIMER),
    cpu("cpu: latency worker", "mapper"),
    cpu("cpu: hogs", "hog"),
    cpu("cpu: writers", "rand_write"),
    cpu("cpu: readers", "rand_read"),
    throttled("throttled: ISOLATED", Reason::Isolated),
    throttled("throttled: WRITEBACK", Reason::Writeback),
    throttled("throttled: NOPROGRESS", Reason::NoProgress),
    throttled("throttled: CONGESTED", Reason::Congested),
    level("free", &["nr_free_pages"]),
    level("anonymous", &["nr_inactive_anon", "nr_active_anon"]),
    level("files, active", &["nr_active_file"]),
    level("files, inactive", &["nr_inactive_file"]),
    level("dirty", &["nr_dirty"]),
    level("writeback", &["nr_writeback"]),
    counter("allocstall_normal", None),
    counter("pageoutrun", None),
    counter("pgscan_direct_throttle", None),
    counter("pgscan_anon", None),
    counter("pgscan_file", None),
    counter("pgsteal_anon", None),
    counter("pgsteal_file", None),
    counter("pgmajfault", None),
    counter("workingset_refault_anon", None),
    counter("workingset_refault_file", None),
    counter("nr_vmscan_write", None),
    counter("nr_vmscan_immediate_reclaim", None),
    counter("pgrotated", None),
    counter("pgdeactivate", None),
    counter("nr_dirtied", None),
    figure(
        "rounds",
        "",
        0,
        None,
        Scale::Seconds,
        Of::Jobs("mapper", rounds),
    ),
    figure(
        "hogs touched",
        "MiB",
        0,
        None,
        Scale::Seconds,
        Of::Jobs("hog", |job| job.touched / PAGES_PER_MIB),
    ),
    figure(
        "written",
        "MiB",
        0,
        None,
        Scale::Seconds,
        Of::Jobs("rand_write", |job| job.bytes / MIB),
    ),
    figure(
        "read",
        "MiB",
        0,
        None,
        Scale::Seconds,
        Of::Jobs("rand_read", |job| job.bytes / MIB),
    ),
];

fn rounds(job: &Job) -> f64 {
    count(job.samples.len())
}

/// The figure of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<usize> {
    FIGURES.iter().position(|figure| figure.name == name)
}

/// From which second on levels count.
#[must_use]
pub fn steady_from(setting: &Setting) -> f64 {
    STEADY_S.min(setting.seconds / 2.0)
}

/// The values of all figures; `None`: there is nothing of it.
#[must_use]
pub fn measure(setting: &Setting, outcome: &Outcome) -> Vec<Option<f64>> {
    let latencies = latencies(outcome);
    let value = |figure: &Figure| match figure.of {
        Of::Counter(name) => {
            let found = outcome.counters.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        }
        Of::Levels(names) => mean_level(setting, outcome, names),
        Of::Latency(part) => ranked(&latencies, part),
        Of::Cpu(of) => cpu_of(outcome, of),
        Of::Throttled(reason) => {
            let of = outcome.throttles.iter().filter(|of| of.reason == reason);
            Some(whole(of.map(|of| of.count).sum()))
        }
        Of::Jobs(kind, of) => {
            let jobs = outcome.jobs.iter().filter(|job| job.kind == kind);
            jobs.map(of).reduce(|sum, value| sum + value)
        }
    };
    FIGURES.iter().map(value).collect()
}

/// All rounds of latency workers, the shortest first.
fn latencies(outcome: &Outcome) -> Vec<f64> {
    let mappers = outcome.jobs.iter().filter(|job| job.is_mapper);
    let mut all: Vec<f64> = mappers
        .flat_map(|job| job.samples.iter().map(|(_, took)| *took))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The first that this part of them are no longer than.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is from one to their number"
)]
fn ranked(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (count(sorted.len()) * part).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

fn mean_level(setting: &Setting, outcome: &Outcome, names: &[&str]) -> Option<f64> {
    let steady = steady_from(setting)..=setting.seconds;
    let mut sum = 0.0;
    for name in names {
        let level = outcome.vmstat.of(name)?;
        let level: Vec<f64> = level
            .into_iter()
            .filter(|(at, _)| steady.contains(at))
            .map(|(_, pages)| pages)
            .collect();
        if level.is_empty() {
            return None;
        }
        sum += level.iter().sum::<f64>() / count(level.len());
    }
    Some(sum / PAGES_PER_MIB)
}

fn cpu_of(outcome: &Outcome, of: &str) -> Option<f64> {
    let is_of = |name: &str, is_job: bool| {
        let job = || outcome.jobs.iter().find(|job| job.name == name);
        if is_job {
            job().is_some_and(|job| job.kind == of)
        } else {
            name == of
        }
    };
    outcome
        .tasks
        .iter()
        .filter(|task| is_of(&task.name, task.is_job))
        .map(|task| task.user_s + task.system_s)
        .reduce(|sum, value| sum + value)
}

/// Judges the lab's run of a recording; figures that neither has are left out.
#[must_use]
pub fn judge(setting: &Setting, recorded: &[Option<f64>], lab: &[Option<f64>]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for ((figure, recorded), lab) in FIGURES.iter().zip(recorded).zip(lab) {
        let Some(band) = figure.band else { continue };
        let (recorded, lab) = match (recorded, lab) {
            (None, None) => continue,
            (recorded, lab) => (recorded.unwrap_or(0.0), lab.unwrap_or(0.0)),
        };
        // What neither table would show: a task that hardly ran.
        let is_nothing = |value: f64| value.abs() < figure.least();
        if is_nothing(recorded) && is_nothing(lab) {
            continue;
        }
        let (error, holds, words) = match band {
            Band::Part(part) => {
                let error = lab / recorded - 1.0;
                (error, error.abs() <= part, format!("{:.0} %", part * 100.0))
            }
            Band::Factor(factor) => {
                let ratio = lab / recorded;
                let holds = (1.0 / factor..=factor).contains(&ratio);
                (ratio - 1.0, holds, format!("a factor of {factor}"))
            }
            Band::OfMemory(part) => {
                let error = (lab - recorded) / setting.usable_mib;
                let words = format!("{:.0} % of memory", part * 100.0);
                (error, error.abs() <= part, words)
            }
        };
        verdicts.push(Verdict {
            name: figure.name,
            error,
            band: words,
            holds,
        });
    }
    verdicts
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn whole(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}

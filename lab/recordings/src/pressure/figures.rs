//! The figures measured, of a recording and of a run of the lab alike, and the bands within which
//! the lab has to be.
//!
//! | figure | definition |
//! |---|---|
//! | counters | differences over the whole run, pages |
//! | latency | rounds of the latency worker, from end to end less its rest |
//! | calls | lengths of the calls of a kind of worker |
//! | CPU | user and system time of all tasks of a kind; of the background reclaimers |
//! | throttled | how often, by reason, no matter which task it was |
//! | composition | means of the samples from second 10 (the middle, if it is shorter than 20 s) until the last worker is done; slabs less those that were there before |
//!
//! Which figures there are say the shapes (`shapes`).
//!
//! Source: ours: the bands were set before the lab was held against the first of these recordings.

use std::sync::LazyLock;

use policy::reclaim::Reason;

use super::super::bands::Verdict;
use super::super::label::Label;
use super::guess::Scale;
use super::setting::Setting;
use super::shapes::{SHAPES, Shape};
use experiment::metrics;
use experiment::outcome::{Job, Outcome, VmSeries};
use experiment::stats::{count, whole};

/// The lab's name for the task that reclaims in the background.
pub const RECLAIMER: &str = "reclaimer";
/// Levels are steady from here on, seconds.
const STEADY_S: f64 = 10.0;
const PAGES_PER_MIB: f64 = 256.0;

/// The error that the lab may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// By this part of what was recorded.
    Part(f64),
    /// By this factor, either way.
    Factor(f64),
}

impl Band {
    /// True if `value` is near enough to the recorded one.
    #[must_use]
    pub fn holds(self, recorded: f64, value: f64) -> bool {
        let ratio = value / recorded;
        match self {
            Self::Part(part) => (ratio - 1.0).abs() <= part,
            Self::Factor(factor) => (1.0 / factor..=factor).contains(&ratio),
        }
    }

    /// From which to which part of what was recorded.
    fn ratios(self) -> (f64, f64) {
        match self {
            Self::Part(part) => (1.0 - part, 1.0 + part),
            Self::Factor(factor) => (1.0 / factor, factor),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Part(part) => format!("{:.0} %", part * 100.0),
            Self::Factor(factor) => format!("a factor of {factor}"),
        }
    }
}

/// A figure of the tables.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Its label.
    pub label: Label,
    /// The band that the lab has to be within; `None`: it is shown.
    pub band: Option<Band>,
    /// The factor of a constant guess of it.
    pub scale: Scale,
    of: Of,
}

/// A figure with the shape that it is of.
type OfShape = (fn(&Setting) -> bool, Figure);

impl Figure {
    /// The least value that the tables show.
    fn least(&self) -> f64 {
        (0..self.label.digits).fold(0.5, |least, _| least / 10.0)
    }

    /// The counters and levels that it is made of, under the kernel's names.
    pub(super) fn names(&self) -> &'static [&'static str] {
        match self.of {
            Of::Levels(names) | Of::Counter(names) => names,
            _ => &[],
        }
    }

    /// True if these are counters.
    pub(super) fn counts(&self) -> bool {
        matches!(self.of, Of::Counter(_))
    }
}

/// The source of a figure.
#[derive(Clone, Copy)]
enum Of {
    /// A counter, or the sum of several.
    Counter(&'static [&'static str]),
    /// The mean of the sum of levels.
    Levels(&'static [&'static str]),
    /// The mean of a level of a node.
    Node(usize, &'static str),
    /// This part of the latencies is no longer; 1: the longest.
    Latency(f64),
    /// The same of the calls of a kind of task.
    Call(&'static str, f64),
    /// CPU time of the tasks of a kind, or of the background reclaimers.
    Cpu(&'static str),
    /// The throttlings for that reason.
    Throttled(Reason),
    /// Of all jobs of a kind together.
    Jobs(&'static str, fn(&Job) -> f64),
    /// A metric of experiments.
    Metric(&'static str),
    /// In a way of its own.
    Own(fn(&Setting, &Outcome) -> Option<f64>),
}

pub(super) const SCANNED: Band = Band::Part(0.15);
pub(super) const SHORT: Band = Band::Part(0.25);
pub(super) const LONG: Band = Band::Factor(1.5);
pub(super) const CPU: Band = Band::Part(0.2);
/// Of the level itself: a part of the memory would let a lab pass that has nothing of it. A seed
/// moves the levels of `r1-4` by 1 to 6 %.
pub(super) const LEVEL: Band = Band::Part(0.1);
/// The time of a worker for a part of its work, or its work in a second.
pub(super) const TIME: Band = Band::Part(0.15);
/// Of two kinds of memory.
pub(super) const PART: Band = Band::Part(0.15);
/// Events that come in bursts: throttlings, fragmentation, huge pages.
pub(super) const COUNT: Band = Band::Factor(2.0);

/// A counter.
macro_rules! counter {
    ($name:literal, $band:expr) => {
        $crate::pressure::figures::counted($name, &[$name], $band)
    };
}
pub(super) use counter;

pub(super) const fn counted(
    name: &'static str,
    of: &'static [&'static str],
    band: Option<Band>,
) -> Figure {
    figure(name, "", 0, band, Scale::Seconds, Of::Counter(of))
}

pub(super) const fn level(name: &'static str, of: &'static [&'static str]) -> Figure {
    figure(name, "MiB", 1, Some(LEVEL), Scale::Memory, Of::Levels(of))
}

pub(super) const fn node(name: &'static str, node: usize, of: &'static str, band: Band) -> Figure {
    figure(
        name,
        "MiB",
        1,
        Some(band),
        Scale::Memory,
        Of::Node(node, of),
    )
}

pub(super) const fn latency(name: &'static str, part: f64, band: Band) -> Figure {
    figure(name, "ms", 1, Some(band), Scale::One, Of::Latency(part))
}

pub(super) const fn call(name: &'static str, kind: &'static str, part: f64, band: Band) -> Figure {
    figure(name, "ms", 1, Some(band), Scale::One, Of::Call(kind, part))
}

pub(super) const fn cpu(name: &'static str, of: &'static str, band: Band) -> Figure {
    figure(name, "s", 2, Some(band), Scale::Seconds, Of::Cpu(of))
}

pub(super) const fn throttled(name: &'static str, reason: Reason) -> Figure {
    figure(
        name,
        "",
        0,
        Some(COUNT),
        Scale::Seconds,
        Of::Throttled(reason),
    )
}

pub(super) const fn metric(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    of: &'static str,
    band: Band,
) -> Figure {
    figure(name, unit, digits, Some(band), Scale::One, Of::Metric(of))
}

pub(super) const fn own(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    band: Band,
    of: fn(&Setting, &Outcome) -> Option<f64>,
) -> Figure {
    figure(name, unit, digits, Some(band), Scale::One, Of::Own(of))
}

pub(super) const fn jobs(
    name: &'static str,
    unit: &'static str,
    kind: &'static str,
    of: fn(&Job) -> f64,
) -> Figure {
    figure(name, unit, 0, None, Scale::Seconds, Of::Jobs(kind, of))
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
        label: Label { name, unit, digits },
        band,
        scale,
        of,
    }
}

/// All figures, in the order of the tables: shape by shape, those with bands first.
pub static FIGURES: LazyLock<Vec<Figure>> =
    LazyLock::new(|| ALL.iter().map(|(_, figure)| *figure).collect());

static ALL: LazyLock<Vec<OfShape>> = LazyLock::new(|| {
    let of = |shape: &'static Shape| shape.figures.iter().map(|figure| (shape.has, *figure));
    let all = || SHAPES.into_iter().flat_map(of);
    let banded = all().filter(|(_, figure)| figure.band.is_some());
    banded
        .chain(all().filter(|(_, figure)| figure.band.is_none()))
        .collect()
});

/// The figure of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<usize> {
    FIGURES.iter().position(|figure| figure.label.name == name)
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
        Of::Counter(names) => {
            let found = outcome
                .counters
                .iter()
                .filter(|(known, _)| names.contains(known));
            found
                .map(|(_, value)| *value)
                .reduce(|sum, value| sum + value)
        }
        Of::Levels(names) => mean_level(setting, outcome, &outcome.vmstat, names),
        Of::Node(node, name) => mean_level(setting, outcome, outcome.nodes.get(node)?, &[name]),
        Of::Latency(part) => ranked(&latencies, part),
        Of::Call(kind, part) => {
            let jobs = outcome.jobs.iter().filter(|job| job.kind == kind);
            ranked_calls(jobs.flat_map(|job| &job.call_lengths), part)
        }
        Of::Cpu(of) => cpu_of(outcome, of),
        Of::Throttled(reason) => {
            let of = outcome.throttles.iter().filter(|of| of.reason == reason);
            Some(whole(of.map(|of| of.count).sum()))
        }
        Of::Jobs(kind, of) => {
            let jobs = outcome.jobs.iter().filter(|job| job.kind == kind);
            jobs.map(of).reduce(|sum, value| sum + value)
        }
        Of::Metric(name) => (metrics::by_name(name)?.of)(outcome),
        Of::Own(of) => of(setting, outcome),
    };
    let of = |(has, figure): &OfShape| has(setting).then(|| value(figure)).flatten();
    ALL.iter().map(of).collect()
}

/// The most that a figure can be: no task has more CPU time than there is, and no level is more
/// than the memory.
pub(super) fn most(setting: &Setting, figure: &Figure) -> f64 {
    match figure.of {
        Of::Cpu(_) => setting.seconds * f64::from(setting.cpus),
        Of::Levels(_) => setting.memory_mib,
        Of::Node(node, _) => setting.nodes.get(node).copied().unwrap_or(f64::INFINITY),
        _ => f64::INFINITY,
    }
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

/// The same of (length, how many).
fn ranked_calls<'a>(calls: impl Iterator<Item = &'a (f64, u64)>, part: f64) -> Option<f64> {
    let mut calls: Vec<(f64, u64)> = calls.copied().collect();
    calls.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all: u64 = calls.iter().map(|(_, times)| times).sum();
    let (mut passed, wanted) = (0, whole(all) * part);
    let found = calls.iter().find(|(_, times)| {
        passed += times;
        whole(passed) >= wanted
    });
    found.map(|(length, _)| *length)
}

/// From when to when levels count: while somebody is at work.
fn steady(setting: &Setting, outcome: &Outcome) -> core::ops::RangeInclusive<f64> {
    let ended = outcome.jobs.iter().map(|job| job.ended_s);
    let ended = ended.fold(0.0, f64::max).min(setting.seconds);
    steady_from(setting).min(ended / 2.0)..=ended
}

fn mean_level(
    setting: &Setting,
    outcome: &Outcome,
    series: &VmSeries,
    names: &[&str],
) -> Option<f64> {
    let steady = steady(setting, outcome);
    let mut sum = 0.0;
    for name in names {
        let level: Vec<f64> = series
            .of(name)?
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
            // Those of further nodes have a number.
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-') == of
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
pub fn judge(recorded: &[Option<f64>], lab: &[Option<f64>]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for ((figure, recorded), lab) in FIGURES.iter().zip(recorded).zip(lab) {
        let Some(band) = figure.band else { continue };
        let (recorded, lab) = match (recorded, lab) {
            (None, None) => continue,
            (recorded, lab) => (recorded.unwrap_or(0.0), lab.unwrap_or(0.0)),
        };
        // The case that neither table would show: a task that hardly ran.
        let is_nothing = |value: f64| value.abs() < figure.least();
        if is_nothing(recorded) && is_nothing(lab) {
            continue;
        }
        verdicts.push(Verdict {
            name: figure.label.name,
            error: lab / recorded - 1.0,
            band: band.words(),
            ratios: band.ratios(),
            holds: band.holds(recorded, lab),
        });
    }
    verdicts
}

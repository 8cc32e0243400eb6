//! The figures measured, of a recording and of a run of the lab alike, and the bands within which
//! the lab has to be: the one place that defines them.
//!
//! | figure | definition |
//! |---|---|
//! | throughput | bytes of all writes / seconds; *written back*: less those that stayed in memory |
//! | level | mean of dirty + writeback from second 10 (from the middle, if it is shorter than 20 s) |
//! | pauses | lines of `balance_dirty_pages` with a pause > 0: count, median, mean, p99, max, sum |
//! | write | lengths of the `write()` calls of the heavy writers; light ones apart |
//! | counters | differences over the whole run, pages |
//! | latency | rounds of the latency worker, from end to end less its rest |
//! | calls | lengths of the calls of a kind of worker |
//! | CPU | user and system time of all tasks of a kind; of the background reclaimers |
//! | throttled | how often, by reason, no matter which task it was |
//! | composition | means of the samples from second 10 (the middle, if it is shorter than 20 s) until the last worker is done; slabs less those that were there before |
//!
//! Source: ours: the bands were set before the lab was held against the first of these recordings.
//! docs/study/reference/field-recordings.md, whose means are from second 10 on, too.

mod pressure;
mod throttling;

use std::sync::LazyLock;

use policy::reclaim::Reason;

use super::kind::Kind;
use super::scale::Scale;
use super::setting::Setting;
use experiment::expect::Verdict;
use experiment::metrics;
use experiment::outcome::{Job, Outcome, VmSeries};
use experiment::stats::{count, mean, whole};
pub use throttling::{Lengths, lengths};

/// The lab's name for the task that reclaims in the background.
pub const RECLAIMER: &str = "reclaimer";
/// Levels are steady from here on, seconds.
const STEADY_S: f64 = 10.0;
const PAGES_PER_MIB: f64 = 256.0;
const MIB: f64 = 1_048_576.0;

/// The error that the lab may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// By this part of what was recorded.
    Part(f64),
    /// By this factor, either way.
    Factor(f64),
}

impl Band {
    /// From which to which part of what was recorded.
    #[must_use]
    pub fn ratios(self) -> (f64, f64) {
        match self {
            Self::Part(part) => (1.0 - part, 1.0 + part),
            Self::Factor(factor) => (1.0 / factor, factor),
        }
    }

    /// True if `value` is near enough to the recorded one.
    #[must_use]
    pub fn holds(self, recorded: f64, value: f64) -> bool {
        let (least, most) = self.ratios();
        (least..=most).contains(&(value / recorded))
    }
}

impl core::fmt::Display for Band {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Part(part) => write!(f, "{:.0} %", part * 100.0),
            Self::Factor(factor) => write!(f, "a factor of {factor}"),
        }
    }
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
    /// The band that the lab has to be within; `None`: it is shown.
    pub band: Option<Band>,
    /// The factors of a constant guess of it, of which the best counts; without any, it is not
    /// judged over recordings.
    pub guesses: &'static [Scale],
    /// True of a setting that has its subject.
    has: fn(&Setting) -> bool,
    /// True of a setting in which the band counts.
    is_judged: fn(&Setting) -> bool,
    of: Of,
}

impl core::fmt::Debug for Figure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

impl Figure {
    /// The band that the lab has to be within under a setting.
    #[must_use]
    pub fn band_of(&self, setting: &Setting) -> Option<Band> {
        self.band.filter(|_| (self.is_judged)(setting))
    }

    /// The least value that the tables show.
    fn least(&self) -> f64 {
        (0..self.digits).fold(0.5, |least, _| least / 10.0)
    }

    /// Its name and its unit.
    pub(super) fn with_unit(&self) -> String {
        with_unit(self.name, self.unit)
    }

    /// The kernel's counters that it is made of.
    pub(super) fn counters(&self) -> &'static [&'static str] {
        match self.of {
            Of::Counter(names) => names,
            _ => &[],
        }
    }

    /// The most that it can be: no task has more CPU time than there is, and no level is more than
    /// the memory.
    pub(super) fn most(&self, setting: &Setting) -> f64 {
        let machine = &setting.scenario.machine;
        match self.of {
            Of::Cpu(_) => setting.seconds() * f64::from(*machine.cpus.get_ref()),
            Of::Levels(_) => setting.memory_mib(),
            Of::Node(node, _) => {
                let node = machine.node.get(node);
                node.map_or(f64::INFINITY, |node| *node.mib.get_ref())
            }
            _ => f64::INFINITY,
        }
    }

    /// Its value; `None`: there is nothing of it.
    #[must_use]
    pub fn value(&self, setting: &Setting, outcome: &Outcome) -> Option<f64> {
        if !(self.has)(setting) {
            return None;
        }
        let jobs = |kind| outcome.jobs.iter().filter(move |job| job.kind == kind);
        match self.of {
            Of::Counter(names) => {
                let found = outcome.counters.iter();
                let found = found.filter(|(known, _)| names.contains(known));
                found
                    .map(|(_, value)| *value)
                    .reduce(|sum, value| sum + value)
            }
            Of::Levels(names) => mean_level(setting, outcome, &outcome.vmstat, names),
            Of::Node(node, name) => mean_level(setting, outcome, outcome.nodes.get(node)?, &[name]),
            Of::Latency(part) => ranked(&latencies(outcome), part),
            Of::Call(kind, part) => {
                ranked_calls(jobs(kind).flat_map(|job| &job.call_lengths), part)
            }
            Of::Cpu(of) => cpu_of(outcome, of),
            Of::Throttled(reason) => {
                let of = outcome.throttles.iter().filter(|of| of.reason == reason);
                Some(whole(of.map(|of| of.count).sum()))
            }
            Of::Jobs(kind, of) => jobs(kind).map(of).reduce(|sum, value| sum + value),
            Of::Metric(name) => (metrics::by_name(name)?.of)(outcome),
            Of::Own(of) => of(setting, outcome),
        }
    }
}

/// A name with a unit behind it, if there is one.
pub(super) fn with_unit(name: &str, unit: &str) -> String {
    if unit.is_empty() {
        name.to_owned()
    } else {
        format!("{name} ({unit})")
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

static PRESSURE_FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let of = |(has, own): pressure::Shape| own.iter().map(move |figure| Figure { has, ..*figure });
    let all = || pressure::SHAPES.into_iter().flat_map(of);
    let banded = all().filter(|figure| figure.band.is_some());
    banded
        .chain(all().filter(|figure| figure.band.is_none()))
        .collect()
});

/// The figures of a kind of recordings, in the order of its tables; those of memory pressure with
/// bands first.
#[must_use]
pub fn of_kind(kind: &Kind) -> &'static [Figure] {
    if kind.has_marks {
        &PRESSURE_FIGURES
    } else {
        throttling::FIGURES
    }
}

/// The figure of that name of a kind of recordings, by its place in the tables.
#[must_use]
pub fn by_name(kind: &Kind, name: &str) -> Option<usize> {
    of_kind(kind).iter().position(|figure| figure.name == name)
}

/// The values of all figures of a recording, or of the lab's run of its setting.
#[must_use]
pub fn measure(setting: &Setting, outcome: &Outcome) -> Vec<Option<f64>> {
    let figures = of_kind(setting.kind).iter();
    let values = figures.map(|figure| figure.value(setting, outcome));
    values.collect()
}

/// Figures of single writers: (name, unit, digits, value).
pub(super) fn of_writers(
    setting: &Setting,
    outcome: &Outcome,
) -> Vec<(String, &'static str, usize, Option<f64>)> {
    if setting.kind.has_marks {
        return Vec::new();
    }
    throttling::of_writers(setting, outcome)
}

/// From which second on levels count.
#[must_use]
pub fn steady_from(setting: &Setting) -> f64 {
    STEADY_S.min(setting.seconds() / 2.0)
}

/// Judges the lab's run of a recording; figures that neither has are left out.
#[must_use]
pub fn judge(
    setting: &Setting,
    column: &str,
    recorded: &[Option<f64>],
    lab: &[Option<f64>],
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for ((figure, recorded), lab) in of_kind(setting.kind).iter().zip(recorded).zip(lab) {
        let Some(band) = figure.band_of(setting) else {
            continue;
        };
        let (recorded, lab) = (recorded.unwrap_or(0.0), lab.unwrap_or(0.0));
        // The case that neither table would show: a task that hardly ran.
        let is_nothing = |value: f64| value.abs() < figure.least();
        if is_nothing(recorded) && is_nothing(lab) {
            continue;
        }
        let (min, max) = band.ratios();
        verdicts.push(Verdict {
            id: figure.name.to_owned(),
            case: setting.name().to_owned(),
            what: format!("{column} / recording"),
            value: Some(lab / recorded).filter(|ratio| ratio.is_finite()),
            min: Some(min),
            max: Some(max),
            source: format!("within {band} of what was recorded"),
            skipped: false,
            held_in: None,
            missed: None,
        });
    }
    verdicts
}

/// The number of bands that hold, and those that do not.
pub(super) fn summary(verdicts: &[Verdict], column: &str) -> String {
    let missed = verdicts.iter().filter(|verdict| !verdict.holds());
    let missed: Vec<String> = missed
        .map(|verdict| match verdict.value {
            Some(ratio) => format!("{} ({:+.1} %)", verdict.id, 100.0 * (ratio - 1.0)),
            None => format!("{} (nothing recorded)", verdict.id),
        })
        .collect();
    let all = verdicts.len();
    if missed.is_empty() {
        return format!("{column}: all {all} bands hold\n");
    }
    let held = all - missed.len();
    let missed = missed.join(", ");
    format!("{column}: {held} of {all} bands hold; out of band: {missed}\n")
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
    let ended = ended.fold(0.0, f64::max).min(setting.seconds());
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
        let level = series.of(name)?.into_iter();
        let level = level.filter(|(at, _)| steady.contains(at));
        sum += mean(level.map(|(_, pages)| pages))?;
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

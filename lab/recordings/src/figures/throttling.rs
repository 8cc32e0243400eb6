//! Figures of dirty throttling.

use super::super::setting::{Setting, start_s};
use super::{Band, Figure, MIB, Of, PAGES_PER_MIB, steady_from};
use crate::scale::Scale;
use experiment::outcome::{Level, Outcome};
use experiment::stats::{mean, whole};

/// Writers whose pauses are shown.
const WRITERS_MOST: usize = 4;

/// Lengths of something in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    /// Their number.
    pub count: f64,
    /// The middle one.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// 99 % are no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// All together, seconds.
    pub sum_s: f64,
}

type Own = fn(&Setting, &Outcome) -> Option<f64>;

const fn shown(name: &'static str, unit: &'static str, digits: usize, of: Own) -> Figure {
    Figure {
        name,
        unit,
        digits,
        band: None,
        guesses: &[],
        has: |_| true,
        is_judged: |_| true,
        of: Of::Own(of),
    }
}

const fn judged(band: Option<Band>, guesses: &'static [Scale], figure: Figure) -> Figure {
    Figure {
        band,
        guesses,
        ..figure
    }
}

const NEAR: Option<Band> = Some(Band::Part(0.1));
const PAUSES: Option<Band> = Some(Band::Part(0.25));
const LONGEST: Option<Band> = Some(Band::Factor(2.0));
const TIME: &[Scale] = &[Scale::HeavyTime];
const LIMITS: &[Scale] = &[Scale::Dirty, Scale::Background, Scale::Middle];

#[rustfmt::skip]
pub(super) const FIGURES: &[Figure] = &[
    judged(NEAR, &[Scale::Rates], shown("throughput", "MiB/s", 2, throughput)),
    shown("throughput: written back", "MiB/s", 2, written_back),
    judged(NEAR, LIMITS, shown("level", "MiB", 1, |s, o| level(s, o, |level| level.dirty + level.writeback))),
    shown("level: dirty", "MiB", 1, |s, o| level(s, o, |level| level.dirty)),
    shown("level: writeback", "MiB", 1, |s, o| level(s, o, |level| level.writeback)),
    judged(PAUSES, TIME, shown("pauses: count", "", 0, |_, o| Some(pauses(o).map_or(0.0, |p| p.count)))),
    judged(PAUSES, &[Scale::One], shown("pauses: median", "ms", 1, |_, o| pauses(o).map(|p| p.median))),
    shown("pauses: mean", "ms", 1, |_, o| pauses(o).map(|p| p.mean)),
    shown("pauses: p99", "ms", 1, |_, o| pauses(o).map(|p| p.p99)),
    shown("pauses: max", "ms", 1, |_, o| pauses(o).map(|p| p.max)),
    judged(None, TIME, shown("pauses: sum", "s", 1, |_, o| Some(pauses(o).map_or(0.0, |p| p.sum_s)))),
    shown("write: median", "ms", 2, |_, o| writes(o, true).map(|w| w.median)),
    shown("write: p99", "ms", 1, |_, o| writes(o, true).map(|w| w.p99)),
    // The doing of a file system, where there is one.
    Figure { is_judged: has_files, ..judged(LONGEST, &[], shown("write: max", "ms", 1, |_, o| writes(o, true).map(|w| w.max))) },
    shown("light write: median", "ms", 3, |_, o| writes(o, false).map(|w| w.median)),
    shown("light write: p99", "ms", 2, |_, o| writes(o, false).map(|w| w.p99)),
    shown("light write: max", "ms", 1, |_, o| writes(o, false).map(|w| w.max)),
];

fn has_files(setting: &Setting) -> bool {
    let mut devices = setting.scenario.devices.iter();
    devices.any(|device| device.fs.as_ref().is_some_and(|fs| fs.get_ref() != "bare"))
}

fn bytes(outcome: &Outcome) -> f64 {
    outcome.jobs.iter().map(|job| job.bytes).sum()
}

fn throughput(setting: &Setting, outcome: &Outcome) -> Option<f64> {
    let bytes = Some(bytes(outcome)).filter(|bytes| *bytes > 0.0)?;
    Some(bytes / MIB / setting.seconds())
}

/// Bytes less those that are dirty or under writeback at the end and were not at the begin: memory
/// that fills is no throughput of a disk.
fn written_back(setting: &Setting, outcome: &Outcome) -> Option<f64> {
    let seconds = setting.seconds();
    let mut levels = outcome.levels.iter();
    let last = levels.rfind(|level| level.at_s <= seconds)?;
    let end = (last.dirty + last.writeback) / PAGES_PER_MIB;
    Some(throughput(setting, outcome)? - (end - setting.begins_mib) / seconds)
}

fn level(setting: &Setting, outcome: &Outcome, of: fn(&Level) -> f64) -> Option<f64> {
    let steady = steady_from(setting)..=setting.seconds();
    let levels = outcome.levels.iter();
    let levels = levels.filter(|level| steady.contains(&level.at_s));
    mean(levels.map(of)).map(|level| level / PAGES_PER_MIB)
}

fn pauses(outcome: &Outcome) -> Option<Lengths> {
    let slept = outcome.pauses.iter().map(|pause| pause.slept_ms);
    lengths(slept.filter(|slept| *slept > 0.0).map(|slept| (slept, 1)))
}

fn writes(outcome: &Outcome, heavy: bool) -> Option<Lengths> {
    let jobs = outcome.jobs.iter().filter(|job| job.is_heavy == heavy);
    lengths(jobs.flat_map(|job| job.call_lengths.iter().copied()))
}

/// The rate of each writer from its start; of few, their pauses.
pub(super) fn of_writers(
    setting: &Setting,
    outcome: &Outcome,
) -> Vec<(String, &'static str, usize, Option<f64>)> {
    let mut all = Vec::new();
    let pairs = || outcome.jobs.iter().zip(&setting.scenario.tasks);
    for (job, task) in pairs() {
        let time = setting.seconds() - start_s(task);
        let rate = Some(job.bytes / MIB / time);
        let id = task.id.get_ref().replace('-', " ");
        all.push((id, "MiB/s", 2, rate));
    }
    let few = (2..=WRITERS_MOST).contains(&setting.scenario.tasks.len());
    for (job, task) in pairs().filter(|_| few) {
        let own = outcome.pauses.iter().filter(|pause| pause.task == job.task);
        let slept = own.map(|pause| pause.slept_ms);
        let pauses = lengths(slept.filter(|slept| *slept > 0.0).map(|slept| (slept, 1)));
        let id = task.id.get_ref().replace('-', " ");
        all.push((format!("{id}: pauses"), "", 0, pauses.map(|own| own.count)));
        all.push((
            format!("{id}: median"),
            "ms",
            1,
            pauses.map(|own| own.median),
        ));
    }
    all
}

/// Figures of (length in ms, how many) in any order; `None` without any.
#[must_use]
pub fn lengths(all: impl Iterator<Item = (f64, u64)>) -> Option<Lengths> {
    let mut all: Vec<(f64, u64)> = all.filter(|(_, times)| *times > 0).collect();
    all.sort_by(|left, right| left.0.total_cmp(&right.0));
    let total: u64 = all.iter().map(|(_, times)| times).sum();
    let (longest, _) = *all.last()?;
    // The one of that rank, counted from zero.
    let ranked = |rank: u64| {
        let mut passed = 0;
        for (length, times) in &all {
            passed += times;
            if passed > rank {
                return *length;
            }
        }
        longest
    };
    let sum: f64 = all
        .iter()
        .map(|(length, times)| length * whole(*times))
        .sum();
    let beyond = total.saturating_mul(99).div_ceil(100).max(1);
    Some(Lengths {
        count: whole(total),
        median: f64::midpoint(ranked((total - 1) / 2), ranked(total / 2)),
        mean: sum / whole(total),
        p99: ranked(beyond - 1),
        max: longest,
        sum_s: sum / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_by_hand() {
        let of = lengths([(8.0, 1), (4.0, 2), (100.0, 1)].into_iter()).unwrap();
        let expected = Lengths {
            count: 4.0,
            median: 6.0,
            mean: 29.0,
            p99: 100.0,
            max: 100.0,
            sum_s: 0.116,
        };
        assert_eq!(of, expected);
        assert_eq!(lengths(std::iter::empty()), None);
        let hundred = lengths((1..=100).map(|n| (f64::from(n), 1))).unwrap();
        assert_eq!((hundred.p99, hundred.median), (99.0, 50.5));
    }
}

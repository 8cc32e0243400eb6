//! The measures of a recording and of a run of the lab alike: the one place that defines them.
//!
//! | figure | definition |
//! |---|---|
//! | throughput | bytes of all writes / seconds; of a writer: its bytes / the seconds from its start |
//! | level | mean of dirty + writeback from second 10 (from the middle, if it is shorter than 20 s) |
//! | pauses | lines of `balance_dirty_pages` with a pause > 0: count, median, mean, p99, max, sum |
//! | writes | lengths of the `write()` calls of the heavy writers; light ones apart |
//!
//! Source: docs/study/reference/field-recordings.md, whose means are from second 10 on, too.

use super::label::Label;
use super::setting::Setting;
use experiment::outcome::Outcome;
use experiment::stats::{count, whole};

/// Levels are steady from here on, seconds.
const STEADY_S: f64 = 10.0;
const MIB: f64 = 1_048_576.0;
const PAGES_PER_MIB: f64 = 256.0;

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

/// The figures of one recording or run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// MiB/s of all writers.
    pub throughput: Option<f64>,
    /// MiB/s of each writer, from its start.
    pub writers: Vec<f64>,
    /// MiB.
    pub dirty: Option<f64>,
    /// MiB.
    pub writeback: Option<f64>,
    /// MiB, both.
    pub level: Option<f64>,
    /// Pauses; `None`: there was none.
    pub pauses: Option<Lengths>,
    /// Pauses of each writer.
    pub writer_pauses: Vec<Option<Lengths>>,
    /// Calls of the heavy writers.
    pub writes: Option<Lengths>,
    /// Calls of the light writers.
    pub light: Option<Lengths>,
}

/// A figure of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Its label.
    pub label: Label,
    /// Its value.
    pub of: fn(&Measures) -> Option<f64>,
}

const fn quantity(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    of: fn(&Measures) -> Option<f64>,
) -> Quantity {
    let label = Label { name, unit, digits };
    Quantity { label, of }
}

/// All figures but those of single writers, in the order of the tables.
pub const QUANTITIES: [Quantity; 16] = [
    quantity("throughput", "MiB/s", 2, |m| m.throughput),
    quantity("level", "MiB", 1, |m| m.level),
    quantity("level: dirty", "MiB", 1, |m| m.dirty),
    quantity("level: writeback", "MiB", 1, |m| m.writeback),
    quantity("pauses: count", "", 0, |m| {
        Some(m.pauses.map_or(0.0, |p| p.count))
    }),
    quantity("pauses: median", "ms", 1, |m| m.pauses.map(|p| p.median)),
    quantity("pauses: mean", "ms", 1, |m| m.pauses.map(|p| p.mean)),
    quantity("pauses: p99", "ms", 1, |m| m.pauses.map(|p| p.p99)),
    quantity("pauses: max", "ms", 1, |m| m.pauses.map(|p| p.max)),
    quantity("pauses: sum", "s", 1, |m| {
        Some(m.pauses.map_or(0.0, |p| p.sum_s))
    }),
    quantity("write: median", "ms", 2, |m| m.writes.map(|w| w.median)),
    quantity("write: p99", "ms", 1, |m| m.writes.map(|w| w.p99)),
    quantity("write: max", "ms", 1, |m| m.writes.map(|w| w.max)),
    quantity("light write: median", "ms", 3, |m| {
        m.light.map(|w| w.median)
    }),
    quantity("light write: p99", "ms", 2, |m| m.light.map(|w| w.p99)),
    quantity("light write: max", "ms", 1, |m| m.light.map(|w| w.max)),
];

/// The figure of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Quantity> {
    QUANTITIES
        .iter()
        .find(|quantity| quantity.label.name == name)
}

/// From which second on levels count.
#[must_use]
pub fn steady_from(setting: &Setting) -> f64 {
    STEADY_S.min(setting.seconds / 2.0)
}

/// Measures a recording, or the lab's run of its setting.
#[must_use]
pub fn measure(setting: &Setting, outcome: &Outcome) -> Measures {
    let bytes: f64 = outcome.jobs.iter().map(|job| job.bytes).sum();
    let per_writer = |(job, writer): (&experiment::outcome::Job, &super::setting::WriterSpec)| {
        job.bytes / MIB / (setting.seconds - writer.start_s)
    };
    let steady = steady_from(setting)..=setting.seconds;
    let levels: Vec<_> = outcome
        .levels
        .iter()
        .filter(|level| steady.contains(&level.at_s))
        .collect();
    let mean = |of: fn(&experiment::outcome::Level) -> f64| {
        let sum: f64 = levels.iter().map(|level| of(level)).sum();
        (!levels.is_empty()).then(|| sum / count(levels.len()) / PAGES_PER_MIB)
    };
    let calls = |heavy: bool| {
        let of = outcome
            .jobs
            .iter()
            .zip(&setting.writers)
            .filter(move |(_, writer)| writer.is_heavy() == heavy);
        lengths(of.flat_map(|(job, _)| job.call_lengths.iter().copied()))
    };
    Measures {
        throughput: (bytes > 0.0).then(|| bytes / MIB / setting.seconds),
        writers: outcome
            .jobs
            .iter()
            .zip(&setting.writers)
            .map(per_writer)
            .collect(),
        dirty: mean(|level| level.dirty),
        writeback: mean(|level| level.writeback),
        level: mean(|level| level.dirty + level.writeback),
        pauses: lengths(
            outcome
                .pauses
                .iter()
                .filter(|pause| pause.slept_ms > 0.0)
                .map(|pause| (pause.slept_ms, 1)),
        ),
        writer_pauses: outcome
            .jobs
            .iter()
            .map(|job| {
                let own = outcome.pauses.iter().filter(|pause| pause.task == job.task);
                let slept = own.map(|pause| pause.slept_ms);
                lengths(slept.filter(|slept| *slept > 0.0).map(|slept| (slept, 1)))
            })
            .collect(),
        writes: calls(true),
        light: calls(false),
    }
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

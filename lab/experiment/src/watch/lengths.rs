//! Lengths of waits of one cause: a histogram of fixed size.
//!
//! Eight classes for each power of two of nanoseconds: a class's upper end is at most an eighth
//! above its lower one. The longest and the sum are exact.

use std::collections::BTreeMap;

use env::Wakeup;
use policy::units::Nanos;

/// Classes for each power of two, as a power of two.
const SPLIT: u32 = 3;
/// Classes: 64 powers of two, eight each.
const CLASSES: usize = 64 << SPLIT;

/// Lengths of waits.
#[derive(Clone, Debug)]
pub(super) struct Lengths {
    classes: Vec<u64>,
    count: u64,
    timed_out: u64,
    total: Nanos,
    max: Nanos,
    /// By what ended them: how many, and how long altogether. As many as there are signals, at
    /// most.
    ends: BTreeMap<&'static str, (u64, Nanos)>,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            count: 0,
            timed_out: 0,
            total: Nanos::ZERO,
            max: Nanos::ZERO,
            ends: BTreeMap::new(),
        }
    }
}

impl Lengths {
    pub(super) fn record(&mut self, waited: Nanos, wakeup: Wakeup) {
        if self.classes.is_empty() {
            self.classes = vec![0; CLASSES];
        }
        self.classes[class(waited)] += 1;
        self.count += 1;
        self.timed_out += u64::from(wakeup.is_late());
        self.total = self.total.saturating_add(waited);
        self.max = self.max.at_least(waited);
        let (count, total) = self.ends.entry(wakeup.by()).or_default();
        *count += 1;
        *total = total.saturating_add(waited);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn timed_out(&self) -> u64 {
        self.timed_out
    }

    pub(super) const fn total(&self) -> Nanos {
        self.total
    }

    pub(super) const fn max(&self) -> Nanos {
        self.max
    }

    /// (what ended them, how many, how long altogether).
    pub(super) fn ends(&self) -> impl Iterator<Item = (&'static str, u64, Nanos)> + '_ {
        let ends = self.ends.iter();
        ends.map(|(by, (count, total))| (*by, *count, *total))
    }

    /// The length that `percent` of the waits do not exceed, rounded up to the end of its class.
    pub(super) fn percentile(&self, percent: u64) -> Nanos {
        figures::weighted(self.classes(), percent * 10).unwrap_or(self.max)
    }

    /// (the longest of the class, waits) of every class that is not empty, ascending.
    pub(super) fn classes(&self) -> impl Iterator<Item = (Nanos, u64)> + Clone + '_ {
        let filled = self.classes.iter().enumerate();
        filled
            .filter(|(_, waits)| **waits > 0)
            .map(|(class, waits)| (end(class).at_most(self.max), *waits))
    }
}

/// Below 2^SPLIT every length has a class of its own; above, the top bit and the SPLIT below it
/// count.
fn class(waited: Nanos) -> usize {
    let ns = waited.0;
    let shift = (63 - ns.max(1).leading_zeros()).saturating_sub(SPLIT);
    let top = usize::try_from(ns >> shift).expect("below 2^(SPLIT + 1)");
    ((shift as usize) << SPLIT) + top
}

/// The longest that is in the class.
fn end(class: usize) -> Nanos {
    let split = 1_usize << SPLIT;
    let shift = (class >> SPLIT).saturating_sub(1);
    let top = if class < split {
        class
    } else {
        split + (class & (split - 1))
    };
    Nanos((((top as u64) + 1) << shift).wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Signal;

    #[test]
    fn every_length_is_in_a_class_that_ends_at_most_an_eighth_above_it() {
        let mut last = 0;
        for ns in (0..5000).chain((12..63).flat_map(|bit| {
            let at = 1_u64 << bit;
            [at - 1, at, at + at / 3]
        })) {
            let class = class(Nanos(ns));
            let end = end(class).0;
            assert!(ns <= end && end <= ns + ns / 8, "{ns} in {class}, to {end}");
            if ns < 4095 {
                assert!(class >= last, "classes ascend");
                last = class;
            }
        }
        assert!(class(Nanos(u64::MAX)) < CLASSES);
    }

    #[test]
    fn percentiles_sum_and_longest() {
        let mut lengths = Lengths::default();
        for ms in 1..=100 {
            let ends = [Wakeup::Ready(Signal::Freed), Wakeup::TimedOut];
            lengths.record(Nanos::millis(ms), ends[usize::from(ms % 10 == 0)]);
        }
        assert_eq!((lengths.count(), lengths.timed_out()), (100, 10));
        assert_eq!(
            lengths.ends().collect::<Vec<_>>(),
            [
                ("deadline", 10, Nanos::millis(550)),
                ("pages freed", 90, Nanos::millis(4500))
            ]
        );
        assert_eq!(lengths.max(), Nanos::millis(100));
        assert_eq!(lengths.total(), Nanos::millis(5050));
        let p50 = lengths.percentile(50).0;
        assert!((50_000_000..=56_250_000).contains(&p50), "{p50}");
        assert_eq!(lengths.percentile(100), Nanos::millis(100));
        assert_eq!(lengths.classes().map(|(_, waits)| waits).sum::<u64>(), 100);
    }
}

//! Lengths of calls, in a histogram of bounded size.

use core::fmt;

use hdrhistogram::Histogram;
use policy::units::Nanos;

/// Longest call that is told apart from longer ones: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits kept: within 0.1 %.
const DIGITS: u8 = 3;

/// Lengths of calls. The extremes and the sum are exact, percentiles within 0.1 %.
#[derive(Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
    total: Nanos,
    max: Nanos,
}

impl fmt::Debug for Latencies {
    /// Without the buckets, of which there are thousands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latencies")
            .field("count", &self.count())
            .field("mean", &self.mean_floor())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
            .expect("the bounds are constants that the histogram accepts");
        Self {
            histogram,
            total: Nanos::ZERO,
            max: Nanos::ZERO,
        }
    }
}

impl Latencies {
    /// Counts one call.
    pub fn record(&mut self, took: Nanos) {
        self.histogram.saturating_record(took.0.max(1));
        self.total = self.total.saturating_add(took);
        self.max = self.max.at_least(took);
    }

    /// Number of calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The longest call, exactly.
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The mean, rounded down; zero without calls.
    #[must_use]
    pub fn mean_floor(&self) -> Nanos {
        Nanos(self.total.0.checked_div(self.count()).unwrap_or(0))
    }

    /// The length that `percent` of the calls do not exceed, within 0.1 %; zero without calls.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Nanos {
        if self.count() == 0 {
            return Nanos::ZERO;
        }
        Nanos(self.histogram.value_at_percentile(percent)).at_most(self.max)
    }

    /// Adds the calls of another.
    pub fn merge(&mut self, other: &Self) {
        // Same bounds and digits by construction; values are clamped to the bounds already.
        let _ = self.histogram.add(&other.histogram);
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.at_least(other.max);
    }

    /// (length, calls) of every length that occurred, ascending: one weighted sample each.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.histogram.iter_recorded().map(|step| {
            (
                Nanos(step.value_iterated_to()).at_most(self.max),
                step.count_at_value(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close_and_the_longest_is_exact() {
        let mut latencies = Latencies::default();
        for ms in 1..=100 {
            latencies.record(Nanos(ms * 1_000_000 + 7));
        }
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.max(), Nanos(100_000_007));
        let p50 = latencies.percentile(50.0).0;
        assert!((49_900_000..=50_100_000).contains(&p50), "{p50}");
        assert_eq!(latencies.percentile(100.0), Nanos(100_000_007));
    }

    #[test]
    fn without_calls_everything_is_zero() {
        let none = Latencies::default();
        assert_eq!(
            (none.count(), none.mean_floor(), none.max()),
            (0, Nanos::ZERO, Nanos::ZERO)
        );
        assert_eq!(none.percentile(99.0), Nanos::ZERO);
    }

    #[test]
    fn merging_adds_counts_and_keeps_the_longest() {
        let (mut left, mut right) = (Latencies::default(), Latencies::default());
        left.record(Nanos::millis(1));
        right.record(Nanos::millis(3));
        left.merge(&right);
        assert_eq!(
            (left.count(), left.max(), left.mean_floor()),
            (2, Nanos::millis(3), Nanos::millis(2))
        );
        assert_eq!(left.iter().map(|(_, calls)| calls).sum::<u64>(), 2);
    }
}

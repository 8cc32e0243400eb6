//! A device's write rate, measured; and the global limit, smoothed.
//!
//! Three estimators:
//!   - `WriteBandwidth` (Linux 3.1+): two stages. `current` is a weighted mean over about 3 s
//!     (rounded up to a power of two ticks); `smooth` follows it, but moves only when two samples
//!     in a row agree in direction, so that a single lump of completions does not shake the pauses.
//!   - `WeightedBandwidth` (the 2010 series of paper p1): one exponential mean, at most 1/8 per
//!     sample.
//!   - `SmoothedLimit` (3.1+): the dirty limit goes up at once and comes down by 1/32 of the
//!     distance at a time, so that a sudden drop of the limit does not stop all writers for
//!     seconds.
//!
//! `Interval`s come from a `Stopwatch`: at most one every 200 ms, and none over a time in which the
//! device had nothing to do, which would look like slowness.
//!
//! Invariants
//!   1. `smooth` is at least 1: it is divided by.
//!   2. A written count that runs backwards counts as nothing written.
//!
//! Source: mechanisms 5.4, 5.5, 5.6; Linux 6.12 mm/page-writeback.c, wb_update_write_bandwidth(),
//! update_dirty_limit(), __wb_update_bandwidth(), wb_bandwidth_estimate_start().
//! Deviation: the kernel is told when writeback of an idle device begins; here idleness is also
//! seen from the counts and from the first completion after more than a second of none.

use policy::dirty::Counts;
use policy::dirty::limits::{RATE_MAX, bounded, bounded_rate};
use policy::ticks::{TickRate, Ticks};
use policy::units::{Pages, PagesPerSec};

/// The assumed rate of a device of which nothing is known: 100 MiB/s.
pub(crate) const INITIAL_BANDWIDTH: PagesPerSec = PagesPerSec(25_600);
/// Estimates are made at most this many times a second (`BANDWIDTH_INTERVAL` = HZ/5).
const ESTIMATES_PER_SECOND: u64 = 5;

/// The events on a device between two estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Never zero.
    pub(crate) elapsed: Ticks,
    pub(crate) dirtied: Pages,
    pub(crate) written: Pages,
}

/// Cuts a device's time into intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    interval_min: Ticks,
    stamp: Ticks,
    dirtied: Pages,
    written: Pages,
    last_completion: Ticks,
    /// The device was idle for a part of the open interval.
    idle: bool,
}

impl Stopwatch {
    /// A stopwatch that answers at most every 200 ms.
    pub(crate) fn new(rate: TickRate, now: Ticks) -> Self {
        Self::with_interval(rate.second_over(ESTIMATES_PER_SECOND), now)
    }

    pub(crate) const fn with_interval(interval_min: Ticks, now: Ticks) -> Self {
        Self {
            interval_min,
            stamp: now,
            dirtied: Pages::ZERO,
            written: Pages::ZERO,
            last_completion: now,
            idle: false,
        }
    }

    /// Writeback ended: after more than a second of nothing, the time before it was idle.
    pub(crate) fn on_written(&mut self, rate: TickRate, now: Ticks) {
        let second = Ticks(rate.hz());
        if now.since(self.last_completion) > second && now.since(self.stamp) > second {
            self.idle = true;
        }
        self.last_completion = now;
    }

    /// True if `lap` could answer now. Cheaper than `lap`.
    pub(crate) fn is_due(&self, now: Ticks) -> bool {
        now.since(self.stamp) >= self.interval_min
    }

    /// Ends the open interval if it is long enough. `None` also when it was idle.
    pub(crate) fn lap(&mut self, rate: TickRate, now: Ticks, counts: &Counts) -> Option<Interval> {
        if !self.is_due(now) {
            return None;
        }
        let elapsed = now.since(self.stamp);
        let interval = Interval {
            elapsed,
            dirtied: bounded(counts.device_dirtied.saturating_sub(self.dirtied)),
            written: bounded(counts.device_written.saturating_sub(self.written)),
        };
        let nothing_to_do = elapsed.0 > rate.hz()
            && (counts.device_writeback.is_zero() || interval.written.is_zero());
        let idle = self.idle || nothing_to_do;
        self.stamp = now;
        self.dirtied = counts.device_dirtied;
        self.written = counts.device_written;
        self.idle = false;
        (!idle).then_some(interval)
    }
}

/// Write bandwidth in two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteBandwidth {
    current: u64,
    smooth: u64,
}

impl WriteBandwidth {
    pub(crate) const fn new() -> Self {
        Self {
            current: INITIAL_BANDWIDTH.0,
            smooth: INITIAL_BANDWIDTH.0,
        }
    }

    /// Begins at what is known, or is forced to it.
    pub(crate) const fn at(rate: PagesPerSec) -> Self {
        Self {
            current: rate.0,
            smooth: rate.0,
        }
    }

    /// The smoothed estimate, at least one page a second.
    pub(crate) const fn smooth(&self) -> PagesPerSec {
        PagesPerSec(self.smooth)
    }

    /// Takes one interval in.
    ///
    /// ```text
    /// current' = (written * HZ + current * (period - elapsed)) / period
    /// smooth moves by 1/8 of its distance to current, away only if current goes the same way
    /// ```
    pub(crate) fn sample(&mut self, rate: TickRate, interval: &Interval) {
        let period = (3 * rate.hz()).next_power_of_two();
        let elapsed = interval.elapsed.0;
        let written = interval.written.0 * rate.hz();
        let before = self.current;
        if elapsed > period {
            self.current = (written / elapsed).min(RATE_MAX);
            self.smooth = self.current.max(1);
            return;
        }
        self.current = ((written + before * (period - elapsed)) >> period.ilog2()).min(RATE_MAX);
        if self.smooth > before && before >= self.current {
            self.smooth -= (self.smooth - before) >> 3;
        }
        if self.smooth < before && before <= self.current {
            self.smooth += (before - self.smooth) >> 3;
        }
        self.smooth = self.smooth.max(1);
    }
}

/// Write bandwidth as one weighted mean, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WeightedBandwidth {
    bytes_per_sec: u64,
}

impl WeightedBandwidth {
    /// A sample of that many hundredths of a second or more weighs most.
    const WEIGHT_MAX: u64 = 128;
    /// Denominator of the weight.
    const WEIGHT_ONE: u64 = 1024;

    pub(crate) const fn new() -> Self {
        Self {
            bytes_per_sec: INITIAL_BANDWIDTH.0 << policy::units::PAGE_SHIFT,
        }
    }

    pub(crate) const fn bytes_per_sec(&self) -> u64 {
        self.bytes_per_sec
    }

    pub(crate) const fn pages_per_sec(&self) -> PagesPerSec {
        PagesPerSec(self.bytes_per_sec >> policy::units::PAGE_SHIFT)
    }

    /// The shortest interval worth a sample: 10 ms.
    pub(crate) const fn interval_min(rate: TickRate) -> Ticks {
        rate.second_over(100)
    }

    /// Takes one interval in: `bw += (sample - bw) * w`, w = (elapsed in 10 ms) / 1024, at most
    /// 1/8.
    ///
    /// The exact weight of the 2010 series is not known for sure (mechanisms 13).
    pub(crate) fn sample(&mut self, rate: TickRate, interval: &Interval) {
        let pages = bounded_rate(interval.written.0 * rate.hz() / interval.elapsed.0);
        let sample = u128::from(pages.0) << policy::units::PAGE_SHIFT;
        let weight = interval.elapsed.0 / Self::interval_min(rate).0;
        let weight = weight.clamp(1, Self::WEIGHT_MAX);
        let mean = u128::from(self.bytes_per_sec) * u128::from(Self::WEIGHT_ONE - weight)
            + sample * u128::from(weight);
        // A mean of two numbers below 2^48.
        self.bytes_per_sec = u64::try_from(mean / u128::from(Self::WEIGHT_ONE)).unwrap_or(u64::MAX);
    }
}

/// The global dirty limit as position control sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmoothedLimit {
    limit: u64,
    stamp: Ticks,
}

impl SmoothedLimit {
    pub(crate) const fn new(now: Ticks) -> Self {
        Self {
            limit: 0,
            stamp: now,
        }
    }

    /// The limit that is never exceeded for long: the larger of the present and the smoothed one.
    pub(crate) fn hard(&self, limit: Pages) -> Pages {
        limit.at_least(Pages(self.limit))
    }

    /// Follows `limit`: up at once, down slowly and never below what is dirty.
    pub(crate) fn follow(&mut self, rate: TickRate, now: Ticks, limit: Pages, dirty: Pages) {
        if now.since(self.stamp) < rate.second_over(ESTIMATES_PER_SECOND) {
            return;
        }
        self.stamp = now;
        if self.limit < limit.0 {
            self.limit = limit.0;
            return;
        }
        let floor = limit.0.max(dirty.0);
        self.limit -= self.limit.saturating_sub(floor) >> 5;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(elapsed: u64, written: u64) -> Interval {
        Interval {
            elapsed: Ticks(elapsed),
            dirtied: Pages(0),
            written: Pages(written),
        }
    }

    #[test]
    fn vector_b1() {
        let rate = TickRate::new(250);
        let sampled = |written, from: (u64, u64)| {
            let mut bandwidth = WriteBandwidth {
                current: from.0,
                smooth: from.1,
            };
            bandwidth.sample(rate, &interval(50, written));
            (bandwidth.current, bandwidth.smooth)
        };
        assert_eq!(sampled(5000, (25600, 25600)), (25570, 25600));
        assert_eq!(sampled(2000, (25600, 25600)), (24838, 25600));
        assert_eq!(sampled(2000, (25570, 25600)), (24809, 25597));
    }

    #[test]
    fn the_estimate_converges_from_both_sides_at_any_tick_rate() {
        for hz in [100, 250, 1000] {
            let rate = TickRate::new(hz);
            for true_rate in [250, 4096, 200_000] {
                let mut bandwidth = WriteBandwidth::new();
                let elapsed = rate.hz() / 5;
                for _ in 0..300 {
                    bandwidth.sample(rate, &interval(elapsed, true_rate / 5));
                }
                let smooth = bandwidth.smooth().0;
                assert!(
                    smooth.abs_diff(true_rate) <= true_rate / 20 + 20,
                    "{hz} {true_rate} {smooth}"
                );
            }
        }
    }

    #[test]
    fn a_long_interval_replaces_the_estimate_and_zero_becomes_one() {
        let rate = TickRate::new(250);
        let mut bandwidth = WriteBandwidth::new();
        bandwidth.sample(rate, &interval(2500, 100_000));
        assert_eq!(bandwidth.smooth(), PagesPerSec(10_000));
        bandwidth.sample(rate, &interval(2500, 0));
        assert_eq!(bandwidth.smooth(), PagesPerSec(1));
        bandwidth.sample(rate, &interval(1, policy::dirty::limits::PAGES_MAX));
        assert!(bandwidth.current <= RATE_MAX);
    }

    #[test]
    fn idle_time_is_not_slowness() {
        let rate = TickRate::new(250);
        let mut watch = Stopwatch::new(rate, Ticks(0));
        let counts = |writeback, written| Counts {
            device_writeback: Pages(writeback),
            device_written: Pages(written),
            ..Counts::default()
        };
        assert_eq!(watch.lap(rate, Ticks(49), &counts(10, 0)), None);
        let first = watch.lap(rate, Ticks(50), &counts(10, 500));
        assert_eq!(first.map(|lap| lap.written), Some(Pages(500)));
        // Two seconds without writeback: a new start, not an interval.
        assert_eq!(watch.lap(rate, Ticks(550), &counts(0, 510)), None);
        assert_eq!(watch.lap(rate, Ticks(599), &counts(9, 900)), None);
        let next = watch.lap(rate, Ticks(600), &counts(9, 900));
        assert_eq!(
            next.map(|lap| (lap.elapsed, lap.written)),
            Some((Ticks(50), Pages(390)))
        );
        // Idle, then busy again, and nobody looked in between.
        watch.on_written(rate, Ticks(610));
        watch.on_written(rate, Ticks(2000));
        assert_eq!(watch.lap(rate, Ticks(2050), &counts(9, 1000)), None);
        assert!(watch.lap(rate, Ticks(2100), &counts(9, 1000)).is_some());
        // A count that runs backwards.
        let back = watch.lap(rate, Ticks(2150), &counts(9, 10));
        assert_eq!(back.map(|lap| lap.written), Some(Pages(0)));
    }

    #[test]
    fn a_device_that_hangs_under_watch_is_slow_not_idle() {
        let rate = TickRate::new(250);
        let mut watch = Stopwatch::new(rate, Ticks(0));
        let hung = Counts {
            device_writeback: Pages(64),
            ..Counts::default()
        };
        for lap in 1..20 {
            assert!(watch.lap(rate, Ticks(lap * 50), &hung).is_some());
        }
    }

    #[test]
    fn the_limit_rises_at_once_and_sinks_slowly() {
        let rate = TickRate::new(250);
        let mut limit = SmoothedLimit::new(Ticks(0));
        assert_eq!(limit.hard(Pages(100)), Pages(100));
        limit.follow(rate, Ticks(50), Pages(3200), Pages(0));
        assert_eq!(limit.hard(Pages(0)), Pages(3200));
        limit.follow(rate, Ticks(60), Pages(0), Pages(0)); // Too early.
        limit.follow(rate, Ticks(100), Pages(0), Pages(0));
        assert_eq!(limit.hard(Pages(0)), Pages(3100));
        limit.follow(rate, Ticks(150), Pages(0), Pages(3068));
        assert_eq!(limit.hard(Pages(0)), Pages(3099));
        limit.follow(rate, Ticks(200), Pages(0), Pages(9000));
        assert_eq!(limit.hard(Pages(0)), Pages(3099));
    }

    #[test]
    fn the_weighted_mean_moves_an_eighth_at_most() {
        let rate = TickRate::new(250);
        let mut bandwidth = WeightedBandwidth::new();
        bandwidth.sample(rate, &interval(1 << 20, 0));
        assert_eq!(bandwidth.pages_per_sec(), PagesPerSec(25600 / 8 * 7));
        for _ in 0..2000 {
            bandwidth.sample(rate, &interval(25, 1000)); // 10000 pages/s
        }
        assert!(bandwidth.pages_per_sec().0.abs_diff(10_000) < 10);
    }
}

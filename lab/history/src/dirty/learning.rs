//! The rate of a new device, from its first completions.
//!
//! The estimators of Linux begin at 100 MiB/s and move by an eighth of the distance at a time, so a
//! device far from that is misjudged for some 20 s: a slow one lets its writers run into the limit
//! and stop there, a fast one paces them for nothing. Here the first completions are taken at their
//! word: pages written over the time in which the device had work. After `LEARN_FOR` of such time
//! the ordinary estimators go on from there.
//!
//! ```text
//!   idle ...| work begins   completions        | idle | work begins ...
//!           |<-- counted -->|<-- counted ----->|      |<-- counted
//! ```
//!
//! Until the first completion the device is taken for `UNKNOWN`: too little holds a writer back for
//! the time of one request; too much cannot be taken back.
//!
//! Invariants
//!   1. Time in which the device had nothing to write is not counted.
//!   2. Once learned, nothing here changes any more.
//!
//! Source: ours; the need is shown by the closed loop of the tests and by mechanisms 5.5
//! (initial values of Linux 6.12 mm/page-writeback.c, wb_init()).

use policy::dirty::limits::bounded_rate;
use policy::ticks::{TickRate, Ticks};
use policy::units::{Pages, PagesPerSec};

/// The assumed rate of an unknown device: 16 MiB/s.
pub(crate) const UNKNOWN: PagesPerSec = PagesPerSec(4096);
/// Tenths of a second of work that are learned from.
const LEARN_FOR_TENTHS: u64 = 5;

/// The estimate of a new device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learning {
    /// Since when the work that is going on is counted. None: the device is idle.
    since: Option<Ticks>,
    worked: Ticks,
    written: Pages,
}

impl Learning {
    pub(crate) const fn new() -> Self {
        Self {
            since: None,
            worked: Ticks::ZERO,
            written: Pages::ZERO,
        }
    }

    /// The device has nothing under way and is about to be given work.
    pub(crate) const fn on_start(&mut self, now: Ticks) {
        self.since = Some(now);
    }

    /// `pages` were completed: answers what the device has done so far, per second.
    pub(crate) fn on_written(
        &mut self,
        rate: TickRate,
        now: Ticks,
        pages: Pages,
    ) -> Option<PagesPerSec> {
        let since = self.since.replace(now)?;
        self.worked = Ticks(self.worked.0 + now.since(since).0);
        self.written += pages;
        // A request that took less than a tick took at most that.
        let worked = self.worked.0.max(1);
        Some(
            bounded_rate(self.written.0.saturating_mul(rate.hz()) / worked)
                .at_least(PagesPerSec(1)),
        )
    }

    /// True if the ordinary estimators take over.
    pub(crate) const fn is_over(&self, rate: TickRate) -> bool {
        self.worked.0 * 10 >= rate.hz() * LEARN_FOR_TENTHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_slowness() {
        let rate = TickRate::new(1000);
        let mut learning = Learning::new();
        assert_eq!(learning.on_written(rate, Ticks(5), Pages(100)), None);
        learning.on_start(Ticks(1000));
        let first = learning.on_written(rate, Ticks(1064), Pages(256));
        assert_eq!(first, Some(PagesPerSec(4000)));
        learning.on_start(Ticks(9000));
        let second = learning.on_written(rate, Ticks(9064), Pages(256));
        assert_eq!(second, Some(PagesPerSec(4000)));
        assert!(!learning.is_over(rate));
        learning.on_written(rate, Ticks(9500), Pages(1744));
        assert!(learning.is_over(rate));
    }

    #[test]
    fn a_request_faster_than_a_tick_does_not_divide_by_zero() {
        let mut learning = Learning::new();
        learning.on_start(Ticks(7));
        let rate = TickRate::new(100);
        let learned = learning.on_written(rate, Ticks(7), Pages(256));
        assert_eq!(learned, Some(PagesPerSec(25_600)));
    }
}

//! A device's capacity: its rate, and whether it is at work at all.
//!
//! A device tells of itself by its completions only. Between two of them, as long as it has work,
//! lies time that those pages took; a rate is pages over such time. It is measured in *laps* of at
//! least `LAP` and a few completions (`work`):
//!
//! ```text
//!   laps                                         rate
//!   those of the first LEARN_FOR, shorter ones   the mean of the last two
//!   one a little beside the rate                 moves by lap / TAU: noise is averaged away
//!   two in a row, both > 1/4 beside it           is set to their mean: the device has changed
//! ```
//!
//! Bytes that a device takes at once, before any time has passed, are not counted: they show the
//! room in a buffer, not a rate.
//!
//! A write begins where it is put together, and not where it is sent: of many small files one
//! flusher finds only a limited number a second, and a device that waits for it writes no more. A
//! law that took this for the device's own rate would let the level run up to the cap, where all
//! writers are held and released at once.
//!
//! A device that stops completes nothing, and so says nothing; its silence does. Its rate sinks
//! with the time since its last completion, and after `SILENCE_STALL` such gaps as it usually
//! leaves (and `STALL_MIN`) it *makes no progress*.
//!
//! Invariants
//!   1. Time in which nothing was under way to the device, or being put together for it, is not
//!      counted, however it was idle.
//!   2. Before the first completion nothing is known (`rate` is none); afterwards the rate is at
//!      least one page a second.
//!   3. A stall is not taken for slowness: a gap counts for no more than what would be named one.
//!
//! Source: Tidegate's own. The need: Linux's estimator averages over 3 s and moves by an eighth of
//! the distance (mechanisms 5.5), so that a device at a quarter of its rate is misjudged for some
//! ten seconds.

use super::reach::Reach;
use super::work::{AT_ONCE, Work};
use crate::dirty::limits::mul_div;
use crate::units::{Instant, Nanos, Pages, PagesPerSec};

/// The shortest lap.
const LAP: Nanos = Nanos::millis(100);
/// Time over which single laps are averaged.
const TAU: Nanos = Nanos::secs(2);
/// Work that is learned from at the start, in laps of at least this.
const LEARN_FOR: Nanos = Nanos::millis(500);
const LEARN_LAP: Nanos = Nanos::millis(20);
/// The time over which the usual gap is looked for.
const GAP_WINDOW: Nanos = Nanos::secs(1);
/// A silence is borne for this many usual gaps, and at least for `PATIENCE_MIN`.
const SILENCE_BORNE: u64 = 2;
const PATIENCE_MIN: Nanos = Nanos::millis(50);
/// After this many usual gaps, and at least `STALL_MIN`, a silent device makes no progress.
const SILENCE_STALL: u64 = 4;
const STALL_MIN: Nanos = Nanos::millis(200);

/// A write that a device completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    pub(super) now: Instant,
    /// When it was begun to be put together.
    pub(super) begun: Instant,
    pub(super) pages: Pages,
    /// Nothing else is under way.
    pub(super) last: bool,
}

/// One device's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Capacity {
    rate: Option<PagesPerSec>,
    /// When it completed something for the first time.
    first: Option<Instant>,
    /// Time learned from so far.
    learned: Nanos,
    lap: Work,
    /// The lap before this one: while learning, or if it was far beside the rate.
    before: Option<Work>,
    gaps: Gaps,
    reach: Reach,
    last_completion: Instant,
    /// Since when the device owes a completion. None: it has nothing to write.
    owes_since: Option<Instant>,
}

/// The longest gap of late: in this window and the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    now: Nanos,
    before: Nanos,
    window: Nanos,
}

impl Gaps {
    const fn longest(&self) -> Nanos {
        self.now.at_least(self.before)
    }

    fn add(&mut self, gap: Nanos) {
        self.now = self.now.at_least(gap);
        self.window = self.window.saturating_add(gap);
        if self.window >= GAP_WINDOW {
            self.before = core::mem::take(&mut self.now);
            self.window = Nanos::ZERO;
        }
    }
}

impl Capacity {
    /// Pages per second, once anything is known.
    pub(super) const fn rate(&self) -> Option<PagesPerSec> {
        self.rate
    }

    /// Number of times that the usual flight is doubled for this device.
    pub(super) const fn reach(&self) -> u32 {
        self.reach.doublings()
    }

    /// The rate that the device may be given now: its own, less if it has been silent for long.
    pub(super) fn rate_now(&self, now: Instant) -> Option<PagesPerSec> {
        let rate = self.rate?;
        let borne = Nanos(self.gaps.longest().0.saturating_mul(SILENCE_BORNE));
        let patience = borne.at_least(PATIENCE_MIN);
        let silence = self.silence(now);
        if silence <= patience {
            return Some(rate);
        }
        let rate = mul_div(rate.0, patience.0, silence.0);
        Some(PagesPerSec(rate).at_least(PagesPerSec(1)))
    }

    /// True if the device completes nothing though it has work.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.silence(now) >= self.stall()
    }

    /// Notes whether the device has work, from the counters.
    pub(super) fn look(&mut self, now: Instant, under_way: Pages) {
        if under_way.is_zero() {
            self.owes_since = None;
        } else if self.owes_since.is_none() {
            self.owes_since = Some(now);
        }
    }

    pub(super) fn on_completed(&mut self, done: &Completed) {
        let Completed { now, begun, .. } = *done;
        let since = begun.at_least(self.last_completion);
        let gap = now.since(since).at_most(self.stall());
        self.last_completion = now;
        self.owes_since = if done.last { None } else { Some(now) };
        self.gaps.add(gap);
        self.reach.on_completed(done.pages, gap);
        self.learn(done.pages, gap);
    }

    fn learn(&mut self, pages: Pages, gap: Nanos) {
        let first = *self.first.get_or_insert(self.last_completion);
        if self.lap.time().is_zero() && self.last_completion.since(first) < AT_ONCE && gap < AT_ONCE
        {
            return;
        }
        self.lap.add(pages, gap);
        if self.learned >= LEARN_FOR {
            if self.lap.is_lap(LAP) {
                let lap = core::mem::take(&mut self.lap);
                self.close(&lap);
            }
        } else if self.lap.is_lap(LEARN_LAP) {
            let lap = core::mem::take(&mut self.lap);
            self.learned = self.learned.saturating_add(lap.time());
            let both = self.before.map_or(lap, |before| before.and(&lap));
            self.rate = Some(both.rate());
            self.before = (self.learned < LEARN_FOR).then_some(lap);
        } else if self.rate.is_none() && self.lap.time() >= LEARN_LAP {
            // A slow device: better than nothing is what a request or two say.
            self.rate = Some(self.lap.rate());
        }
    }

    fn close(&mut self, lap: &Work) {
        let Some(rate) = self.rate else { return };
        self.reach.on_lap(lap, rate);
        let mean = self.before.map(|before| before.and(lap));
        match mean {
            Some(mean) if side(lap, rate) != 0 && side(&mean, rate) == side(lap, rate) => {
                self.rate = Some(mean.rate());
                self.before = None;
            }
            _ => {
                let weight = lap.time().at_most(TAU);
                let kept = mul_div(rate.0, TAU.0 - weight.0, TAU.0);
                let new = mul_div(lap.rate().0, weight.0, TAU.0);
                let rate_then = PagesPerSec(kept + new).at_least(PagesPerSec(1));
                self.before = (side(lap, rate) != 0).then_some(*lap);
                self.rate = Some(rate_then);
            }
        }
    }

    fn silence(&self, now: Instant) -> Nanos {
        self.owes_since
            .map_or(Nanos::ZERO, |since| now.since(since))
    }

    fn stall(&self) -> Nanos {
        Nanos(self.gaps.longest().0.saturating_mul(SILENCE_STALL)).at_least(STALL_MIN)
    }
}

/// On which side a lap is far from the rate: -1 slower, 1 faster, 0 neither.
fn side(lap: &Work, rate: PagesPerSec) -> i8 {
    let lap = lap.rate().0;
    if lap < rate.0 - rate.0 / 4 {
        -1
    } else if lap > rate.0.saturating_add(rate.0 / 4) {
        1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SECOND;

    /// Completes `count` requests of `pages` every `every`, back to back, two in flight.
    fn work(capacity: &mut Capacity, now: &mut Instant, count: u64, pages: u64, every: Nanos) {
        for _ in 0..count {
            let begun = Instant(now.0.saturating_sub(every.0));
            *now = *now + every;
            capacity.on_completed(&Completed {
                now: *now,
                begun,
                pages: Pages(pages),
                last: false,
            });
        }
    }

    fn at(rate: u64) -> (Capacity, Instant) {
        let mut capacity = Capacity::default();
        let mut now = Instant(SECOND);
        let every = Nanos(64 * SECOND / rate);
        work(&mut capacity, &mut now, 4 * rate / 64, 64, every);
        (capacity, now)
    }

    fn within(rate: Option<PagesPerSec>, target: u64, per_cent: u64) -> bool {
        rate.is_some_and(|rate| rate.0.abs_diff(target) * 100 <= target * per_cent)
    }

    #[test]
    fn the_first_request_of_a_slow_device_already_says_how_fast() {
        let mut capacity = Capacity::default();
        assert_eq!(capacity.rate(), None);
        capacity.on_completed(&Completed {
            now: Instant(SECOND + 31_250_000),
            begun: Instant(SECOND),
            pages: Pages(32),
            last: true,
        });
        assert_eq!(capacity.rate(), Some(PagesPerSec(1024)));
    }

    #[test]
    fn what_is_taken_at_once_is_no_rate() {
        let mut capacity = Capacity::default();
        let mut now = Instant(SECOND);
        // Five requests at once every 20 ms, the first five after no time.
        for tick in 0..10 {
            for _ in 0..5 {
                capacity.on_completed(&Completed {
                    now,
                    begun: Instant(SECOND),
                    pages: Pages(16),
                    last: false,
                });
            }
            if let Some(rate) = capacity.rate() {
                assert_eq!(
                    rate.0.abs_diff(4000) / 1000,
                    0,
                    "{rate:?} after {tick} ticks"
                );
            }
            now = now + Nanos::millis(20);
        }
        assert!(capacity.rate().is_some());
    }

    #[test]
    fn idle_time_is_no_slowness() {
        let (mut capacity, mut now) = at(4096);
        for _ in 0..50 {
            now = now + Nanos::secs(60);
            let begun = now;
            now = now + Nanos(15_625_000);
            let last = true;
            let pages = Pages(64);
            capacity.on_completed(&Completed {
                now,
                begun,
                pages,
                last,
            });
        }
        assert!(within(capacity.rate(), 4096, 1), "{capacity:?}");
        assert!(!capacity.is_stalled(now + Nanos::secs(60)));
    }

    #[test]
    fn where_putting_requests_together_takes_longer_than_writing_them_that_is_the_rate() {
        let mut capacity = Capacity::default();
        let mut now = Instant(SECOND);
        // 4 ms to put together, 1 ms on the device, which has idled for 3 meanwhile.
        for _ in 0..500 {
            let begun = now;
            now = now + Nanos::millis(4);
            capacity.on_completed(&Completed {
                now: now + Nanos::millis(1),
                begun,
                pages: Pages(64),
                last: true,
            });
        }
        assert!(within(capacity.rate(), 16_000, 2), "{capacity:?}");
    }

    #[test]
    fn a_device_at_a_quarter_is_known_within_half_a_second() {
        let (mut capacity, mut now) = at(8192);
        assert!(within(capacity.rate(), 8192, 1), "{capacity:?}");
        let began = now;
        while !within(capacity.rate(), 2048, 15) {
            work(&mut capacity, &mut now, 1, 64, Nanos(31_250_000));
            assert!(now.since(began) <= Nanos::millis(700), "{capacity:?}");
        }
        work(&mut capacity, &mut now, 64, 64, Nanos(31_250_000));
        assert!(within(capacity.rate(), 2048, 2), "{capacity:?}");
    }

    #[test]
    fn lumps_give_the_mean() {
        let (mut capacity, mut now) = at(4096);
        // 16 requests at once every 250 ms.
        for _ in 0..20 {
            work(&mut capacity, &mut now, 1, 64, Nanos::millis(250));
            work(&mut capacity, &mut now, 15, 64, Nanos::ZERO);
        }
        assert!(within(capacity.rate(), 4096, 20), "{capacity:?}");
        // After a gap as usual the device is still taken at its rate.
        let rate = capacity.rate();
        assert_eq!(capacity.rate_now(now + Nanos::millis(240)), rate);
        assert!(!capacity.is_stalled(now + Nanos::millis(500)));
    }

    #[test]
    fn silence_counts_only_while_something_is_owed_and_has_its_name_after_a_while() {
        let (mut capacity, now) = at(4096);
        let rate = capacity.rate();
        assert_eq!(capacity.rate_now(now + Nanos::millis(50)), rate);
        assert!(within(capacity.rate_now(now + Nanos::millis(100)), 2048, 3));
        assert!(!capacity.is_stalled(now + Nanos::millis(199)));
        assert!(capacity.is_stalled(now + Nanos::millis(200)));
        capacity.look(now + Nanos::secs(9), Pages::ZERO);
        assert!(!capacity.is_stalled(now + Nanos::secs(10)));
        capacity.look(now + Nanos::secs(10), Pages(1));
        assert!(!capacity.is_stalled(now + Nanos::secs(10)));
        assert!(capacity.is_stalled(now + Nanos::secs(11)));
    }

    #[test]
    fn a_stall_is_forgotten_by_the_rate() {
        let (mut capacity, mut now) = at(4096);
        work(&mut capacity, &mut now, 1, 64, Nanos::secs(30));
        work(&mut capacity, &mut now, 64, 64, Nanos(15_625_000));
        assert!(within(capacity.rate(), 4096, 15), "{capacity:?}");
    }
}

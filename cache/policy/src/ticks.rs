//! The clock of a law: whole ticks of 1/hz second, and the time at which a timer of n ticks fires.
//!
//! Source: the timer's rounding: Linux 6.12 kernel/time/timer.c, calc_index(), LVL_GRAN(): a timer
//! fires at a tick of its level, never early, so that one of n ticks takes n + 1 and a long one up
//! to a level's granularity more. p0's traces show it: a `congestion_wait` of 25 ticks lasts 26.

use crate::units::{Instant, Nanos, SECOND};

/// The most ticks per second; it keeps products of ticks and pages within 64 bits.
const HZ_MAX: u32 = 10_000;
/// Granularity of the wheel's last level, as a shift: 8 levels from 250 ticks a second on.
const COARSEST: u32 = 21;

/// Ticks (jiffies): a point in time or a length of time in whole 1/hz s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u64);

impl Ticks {
    /// None.
    pub const ZERO: Self = Self(0);

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Number of ticks in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate(u64);

impl TickRate {
    /// # Panics
    /// Unless `hz` lies in 1..=10000.
    pub fn new(hz: u32) -> Self {
        assert!(
            (1..=HZ_MAX).contains(&hz),
            "hz must lie in 1..={HZ_MAX}, is {hz}"
        );
        Self(u64::from(hz))
    }

    /// Ticks per second (`HZ`).
    pub const fn hz(self) -> u64 {
        self.0
    }

    /// One `n`th of a second, at least one tick (`max(HZ/n, 1)`).
    pub const fn second_over(self, n: u64) -> Ticks {
        let ticks = self.0 / n;
        Ticks(if ticks == 0 { 1 } else { ticks })
    }

    /// The tick that `now` lies in.
    pub const fn tick_at(self, now: Instant) -> Ticks {
        Ticks(now.0 / SECOND * self.0 + now.0 % SECOND * self.0 / SECOND)
    }

    /// When tick `ticks` begins.
    pub const fn instant_of(self, ticks: Ticks) -> Instant {
        Instant(self.nanos(ticks).0)
    }

    /// Ticks of a time limit: rounded to the nearest, at least one.
    pub const fn ticks_of(self, time: Nanos) -> Ticks {
        let whole = (time.0 / SECOND).saturating_mul(self.0);
        let rest = (time.0 % SECOND * self.0 + SECOND / 2) / SECOND;
        let ticks = whole.saturating_add(rest);
        Ticks(if ticks == 0 { 1 } else { ticks })
    }

    /// The tick at which a timer fires that is set in tick `now` for `after` ticks.
    pub const fn fires(self, now: Ticks, after: Ticks) -> Ticks {
        let expires = now.0.saturating_add(after.0);
        // Each level of the wheel has 64 slots, eight times as coarse as those of the level before.
        let mut shift = 0;
        while shift < COARSEST && after.0 >= 63 << shift {
            shift += 3;
        }
        Ticks(((expires >> shift) + 1) << shift)
    }

    /// The length of `ticks`, rounded up, so that the task that sleeps it sees them all go by.
    pub const fn nanos(self, ticks: Ticks) -> Nanos {
        let seconds = (ticks.0 / self.0).saturating_mul(SECOND);
        Nanos(seconds.saturating_add((ticks.0 % self.0 * SECOND).div_ceil(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_agree_after_a_sleep() {
        for hz in [1, 100, 250, 300, 1000, HZ_MAX] {
            let rate = TickRate::new(hz);
            for now in [
                0,
                1,
                3_333_333,
                3_333_334,
                4_000_000,
                999_999_999,
                86_400_000_000_123,
            ] {
                for pause in [1, 2, 7, 50, 1001] {
                    let now = Instant(now);
                    let then = rate.tick_at(now + rate.nanos(Ticks(pause)));
                    let slept = then.since(rate.tick_at(now)).0;
                    assert!(
                        (pause..=pause + 1).contains(&slept),
                        "{hz} {now:?} {pause} {slept}"
                    );
                }
            }
        }
        assert_eq!(TickRate::new(250).nanos(Ticks(50)), Nanos::millis(200));
        assert_eq!(TickRate::new(250).tick_at(Instant(7_999_999)), Ticks(1));
    }

    #[test]
    fn a_timer_fires_at_a_tick_of_its_level() {
        let rate = TickRate::new(250);
        let fires = |now, after| rate.fires(Ticks(now), Ticks(after)).0 - now;
        assert_eq!(fires(1000, 1), 2);
        assert_eq!(fires(1000, 5), 6);
        assert_eq!(
            fires(1000, 25),
            26,
            "104 ms, as p0's trace of congestion_wait"
        );
        assert_eq!(fires(1000, 62), 63);
        // 500 ms: level 1, a slot of 8 ticks.
        for now in 1000..1016 {
            let after = fires(now, 125);
            assert!((126..=133).contains(&after), "{now} {after}");
            assert_eq!((now + after) % 8, 0);
        }
        assert_eq!(rate.ticks_of(Nanos::millis(100)), Ticks(25));
        assert_eq!(rate.ticks_of(Nanos(1)), Ticks(1));
        assert_eq!(TickRate::new(300).ticks_of(Nanos::millis(20)), Ticks(6));
        assert_eq!(rate.instant_of(Ticks(26)), Instant(104_000_000));
    }

    #[test]
    fn the_end_of_time_is_reached_without_overflow() {
        let rate = TickRate::new(HZ_MAX);
        assert!(rate.tick_at(Instant(u64::MAX)).0 > 1 << 47);
        assert_eq!(TickRate::new(1).nanos(Ticks(u64::MAX)), Nanos::MAX);
        assert_eq!(TickRate::new(2).second_over(5), Ticks(1));
    }
}

//! The law's own clock: whole ticks of 1/hz second.

use crate::units::{Instant, Nanos, SECOND};

/// The most ticks per second; it keeps products of ticks and pages within 64 bits.
const HZ_MAX: u32 = 10_000;

/// Ticks (jiffies): a point in time or a length of time in whole 1/hz s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticks(pub(super) u64);

impl Ticks {
    pub(super) const ZERO: Self = Self(0);

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// How many ticks a second has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TickRate(u64);

impl TickRate {
    /// # Panics
    /// Unless `hz` lies in 1..=10000.
    pub(super) fn new(hz: u32) -> Self {
        assert!(
            (1..=HZ_MAX).contains(&hz),
            "hz must lie in 1..={HZ_MAX}, is {hz}"
        );
        Self(u64::from(hz))
    }

    /// Ticks per second (`HZ`).
    pub(super) const fn hz(self) -> u64 {
        self.0
    }

    /// One `n`th of a second, at least one tick (`max(HZ/n, 1)`).
    pub(super) const fn second_over(self, n: u64) -> Ticks {
        let ticks = self.0 / n;
        Ticks(if ticks == 0 { 1 } else { ticks })
    }

    /// The tick that `now` lies in.
    pub(super) const fn tick_at(self, now: Instant) -> Ticks {
        Ticks(now.0 / SECOND * self.0 + now.0 % SECOND * self.0 / SECOND)
    }

    /// The length of `ticks`, rounded up, so that whoever sleeps it sees them all go by.
    pub(super) const fn nanos(self, ticks: Ticks) -> Nanos {
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
    fn the_end_of_time_is_reached_without_overflow() {
        let rate = TickRate::new(HZ_MAX);
        assert!(rate.tick_at(Instant(u64::MAX)).0 > 1 << 47);
        assert_eq!(TickRate::new(1).nanos(Ticks(u64::MAX)), Nanos::MAX);
        assert_eq!(TickRate::new(2).second_over(5), Ticks(1));
    }
}

//! The base rate of a device's writers: what each of them may dirty per second at the set point.
//!
//! It should be `bandwidth / writers`, but nobody counts the writers. Instead: if all were given
//! `rate` for an interval and together dirtied `dirtied_rate`, there are about `dirtied_rate /
//! rate` of them, and the balanced rate is
//!
//! ```text
//! balanced = rate * position * bandwidth / dirtied_rate
//! ```
//!
//! One interval's answer is noisy, so the base rate only takes a step towards it, and only as far
//! as the previous answer, this answer and the rate now in force agree; smaller steps the smaller
//! the distance is beside the rate.
//!
//! Invariants
//!   1. The base rate is at least 1 page/s.
//!   2. It moves towards this interval's balanced rate or not at all.
//!
//! Source: mechanisms 5.5, 5.6; Linux 6.12 mm/page-writeback.c, wb_update_dirty_ratelimit().

use super::bandwidth::{INITIAL_BANDWIDTH, Interval};
use super::position::{PosRatio, Position, STRICT_RAMP_UP};
use policy::dirty::limits::RATE_MAX;
use policy::ticks::TickRate;
use policy::units::{Pages, PagesPerSec};

/// Base rate of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseRate {
    rate: u64,
    /// The balanced rate of the interval before.
    balanced: u64,
}

impl BaseRate {
    pub(crate) const fn new() -> Self {
        Self {
            rate: INITIAL_BANDWIDTH.0,
            balanced: INITIAL_BANDWIDTH.0,
        }
    }

    /// The device turned out to have bandwidth `to`, not `from`: what each writer gets moves along.
    pub(crate) fn rescale(&mut self, from: PagesPerSec, to: PagesPerSec) {
        let scaled = |rate: u64| {
            let scaled = u128::from(rate) * u128::from(to.0) / u128::from(from.0.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX).clamp(1, RATE_MAX)
        };
        self.rate = scaled(self.rate);
        self.balanced = scaled(self.balanced);
    }

    /// Rate per writer at the set point, at least one page a second.
    pub(crate) const fn rate(&self) -> PagesPerSec {
        PagesPerSec(self.rate)
    }

    /// Takes one interval in. `ratio`: the position's factor, as the writers felt it.
    pub(crate) fn sample(
        &mut self,
        tick_rate: TickRate,
        interval: &Interval,
        position: &Position,
        ratio: PosRatio,
    ) {
        let dirtied_rate = interval.dirtied.0 * tick_rate.hz() / interval.elapsed.0;
        let granted = ratio.of(self.rate()).0 + 1;
        let bandwidth = position.bandwidth.0;
        let balanced = u128::from(granted) * u128::from(bandwidth) / u128::from(dirtied_rate | 1);
        let balanced = u64::try_from(balanced).unwrap_or(u64::MAX).min(bandwidth);

        let step = self.step(balanced, granted, is_below_setpoint(position));
        self.rate = if self.rate < balanced {
            self.rate + step
        } else {
            self.rate - step
        };
        self.rate = self.rate.clamp(1, RATE_MAX);
        self.balanced = balanced;
    }

    /// The size of a step: an eighth of the distance on which all three rates agree, and less when
    /// that distance is small beside the rate itself.
    fn step(&self, balanced: u64, granted: u64, below: bool) -> u64 {
        let distance = if below {
            self.balanced
                .min(balanced)
                .min(granted)
                .saturating_sub(self.rate)
        } else {
            self.rate
                .saturating_sub(self.balanced.max(balanced).max(granted))
        };
        let damping = self.rate / (2 * distance + 1);
        if damping < 64 {
            (distance >> damping).div_ceil(8)
        } else {
            0
        }
    }
}

/// True if there is room: of the device if it is strict, else globally.
fn is_below_setpoint(position: &Position) -> bool {
    if !position.strict {
        return position.dirty < position.setpoint();
    }
    let dirty = position.device_dirty;
    let setpoint = if dirty < STRICT_RAMP_UP {
        dirty + Pages(1)
    } else {
        position.strict_setpoint()
    };
    dirty < setpoint
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::dirty::Limits;
    use policy::ticks::Ticks;

    fn at(dirty: u64, bandwidth: u64) -> Position {
        Position {
            limits: Limits {
                dirty: Pages(200_000),
                background: Pages(100_000),
            },
            hard_limit: Pages(200_000),
            dirty: Pages(dirty),
            device_limit: Pages(200_000),
            device_background: Pages(100_000),
            device_dirty: Pages(dirty),
            bandwidth: PagesPerSec(bandwidth),
            strict: false,
        }
    }

    /// Lets `writers` dirty at the granted rate for `intervals` of 200 ms.
    fn settle(base: &mut BaseRate, writers: u64, position: &Position, intervals: u32) {
        let rate = TickRate::new(250);
        for _ in 0..intervals {
            let ratio = position.ratio();
            let dirtied = ratio.of(base.rate()).0 * writers / 5;
            let interval = Interval {
                elapsed: Ticks(50),
                dirtied: Pages(dirtied),
                written: Pages(0),
            };
            base.sample(rate, &interval, position, ratio);
        }
    }

    #[test]
    fn the_base_rate_finds_the_number_of_writers() {
        for writers in [1, 2, 10, 100] {
            let mut base = BaseRate::new();
            // Above the set point it sinks, below it rises: from either side to a share.
            settle(&mut base, writers, &at(192_000, 25_600), 400);
            let share = 25_600 / writers;
            let from_above = base.rate().0;
            assert!(
                from_above.abs_diff(share) <= share / 5 + 8,
                "{writers}: {from_above}"
            );
            base.rate = 20;
            settle(&mut base, writers, &at(155_000, 25_600), 1500);
            let from_below = base.rate().0;
            assert!(
                from_below.abs_diff(share) <= share / 5 + 8,
                "{writers}: {from_below}"
            );
        }
    }

    #[test]
    fn it_never_leaves_its_range() {
        let mut base = BaseRate::new();
        let rate = TickRate::new(1000);
        let flood = Interval {
            elapsed: Ticks(1),
            dirtied: Pages(1 << 44),
            written: Pages(0),
        };
        for _ in 0..1000 {
            base.sample(rate, &flood, &at(199_999, 1), PosRatio(0));
        }
        assert_eq!(base.rate(), PagesPerSec(1));
        let silence = Interval {
            elapsed: Ticks(1),
            dirtied: Pages(0),
            written: Pages(0),
        };
        for _ in 0..100_000 {
            base.sample(rate, &silence, &at(0, RATE_MAX), PosRatio(16 << 10));
        }
        assert!(base.rate().0 <= RATE_MAX);
    }
}

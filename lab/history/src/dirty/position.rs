//! Where the dirty level stands between its limits, as a factor on every writer's rate.
//!
//! The factor is fixed point, 1024 = 1.0. Globally it is a cubic that is flat around the set point,
//! where small excursions should not move the rate, and steep towards both ends:
//!
//! ```text
//!  2.0 *
//!      |  *
//!      |     *                             p = 1 + x^3,  x = (set point - dirty) / (limit - set point)
//!  1.0 |          *  *  *  *  *
//!      |                            *
//!      |                               *
//!    0 +----------------|---------------*---> dirty
//!   freerun         set point         limit
//! ```
//!
//! It is then bent for the device: a straight line through 1.0 at the device's own set point, which
//! falls to a quarter within the device's *span* (eight seconds of its bandwidth and the room that
//! other devices have, in proportion to its share); and below half of its share the device is fed,
//! by up to eight times, so that it never runs dry.
//!
//! Properties
//!   1. The cubic is never above 2.0; the factor is 0 at and above the limit.
//!   2. Falls, or stays, as `dirty` rises, and as `device_dirty` rises.
//!   3. With `strict` the device's own cubic is an upper bound: nothing is allowed at its share.
//!
//! Source: mechanisms 5.5, 5.6; Linux 6.12 mm/page-writeback.c, pos_ratio_polynom(),
//! wb_position_ratio().

use policy::dirty::Limits;
use policy::dirty::limits::mul_div;
use policy::units::{Pages, PagesPerSec};

/// Binary digits after the point.
pub(crate) const ONE_SHIFT: u32 = 10;
const ONE: i64 = 1 << ONE_SHIFT;
const TWO: u64 = 2 << ONE_SHIFT;
/// 1024.0. A backlog near nothing on a device near standstill would give factors without meaning.
const RATIO_MAX: u64 = 1024 << ONE_SHIFT;
/// A strict device with fewer dirty pages than this is ramped up, whatever its limits say.
pub(crate) const STRICT_RAMP_UP: Pages = Pages(8);

/// Factor on the base rate, 1024 = 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PosRatio(pub(crate) u64);

impl PosRatio {
    /// The rate under this factor, rounded down.
    pub(crate) fn of(self, rate: PagesPerSec) -> PagesPerSec {
        PagesPerSec(mul_div(rate.0, self.0, 1 << ONE_SHIFT))
    }
}

/// The terms that the factor depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// The global limits.
    pub(crate) limits: Limits,
    /// The limit that is really enforced, at least `limits.dirty`.
    pub(crate) hard_limit: Pages,
    /// Dirty and under writeback, of all devices.
    pub(crate) dirty: Pages,
    /// The device's share of the dirty limit.
    pub(crate) device_limit: Pages,
    /// The device's share of the background limit.
    pub(crate) device_background: Pages,
    /// Dirty and under writeback, of this device.
    pub(crate) device_dirty: Pages,
    /// Smoothed bandwidth of the device.
    pub(crate) bandwidth: PagesPerSec,
    /// The device's own limits hold.
    pub(crate) strict: bool,
}

impl Position {
    /// The level that the law steers to.
    pub(crate) fn setpoint(&self) -> Pages {
        Pages(self.limits.freerun().0.midpoint(self.hard_limit.0))
    }

    /// The device's part of the set point, as the trace shows it.
    pub(crate) fn device_setpoint(&self) -> Pages {
        Pages(mul_div(
            self.setpoint().0,
            self.device_limit.0,
            self.limits.dirty.0 + 1,
        ))
    }

    /// The level that a strict device is steered to.
    pub(crate) fn strict_setpoint(&self) -> Pages {
        Pages(self.device_limit.0.midpoint(self.device_background.0))
    }

    /// The factor.
    pub(crate) fn ratio(&self) -> PosRatio {
        if self.dirty >= self.hard_limit {
            return PosRatio(0);
        }
        let global = cubic(self.setpoint(), self.dirty, self.hard_limit);
        if self.strict {
            self.strict_ratio(global)
        } else {
            self.device_ratio(global)
        }
    }

    /// The device's own cubic where that is less.
    fn strict_ratio(&self, global: PosRatio) -> PosRatio {
        if self.device_dirty < STRICT_RAMP_UP {
            return PosRatio((global.0 * 2).min(TWO));
        }
        let setpoint = self.strict_setpoint();
        let no_room = setpoint.is_zero() || setpoint == self.device_limit;
        if self.device_dirty >= self.device_limit || no_room {
            return PosRatio(0);
        }
        global.min(cubic(setpoint, self.device_dirty, self.device_limit))
    }

    /// The line of the device and its feeding.
    fn device_ratio(&self, global: PosRatio) -> PosRatio {
        // A device that was idle has a share near zero: an eighth of what is free lets it start.
        let floor = (self.hard_limit.0 - self.dirty.0) / 8;
        let limit = self.limits.dirty.0;
        let share = self.device_limit.0.min(limit).max(floor);
        let fraction = (share << 16) / (limit | 1); // 16 binary digits
        let setpoint = mul_div(self.setpoint().0, fraction, 1 << 16);
        let reach = limit.saturating_sub(share) + 8 * self.bandwidth.0;
        let span = mul_div(reach, fraction, 1 << 16);
        let end = setpoint + span;

        let dirty = self.device_dirty.0;
        let mut ratio = if dirty < end - span / 4 {
            mul_div(global.0, end - dirty, (end - setpoint) | 1)
        } else {
            global.0 / 4
        };
        let reserve = share / 2;
        if dirty < reserve {
            ratio = if dirty > reserve / 8 {
                mul_div(ratio, reserve, dirty)
            } else {
                ratio * 8
            };
        }
        PosRatio(ratio.min(RATIO_MAX))
    }
}

/// `1 + ((setpoint - dirty) / (limit - setpoint))^3`, within 0.0 and 2.0.
///
/// All three are at most `PAGES_MAX`, so that the shifts stay within 64 bits.
fn cubic(setpoint: Pages, dirty: Pages, limit: Pages) -> PosRatio {
    let reach = limit.0.saturating_sub(setpoint.0) | 1;
    let distance = setpoint.0.cast_signed() - dirty.0.cast_signed();
    // Beyond 1.0 either way the answer is an end of the range whatever the cube says.
    let x = ((distance << ONE_SHIFT) / reach.cast_signed()).clamp(-2 * ONE, 2 * ONE);
    let square = (x * x) >> ONE_SHIFT;
    let cube = (square * x) >> ONE_SHIFT;
    PosRatio((cube + ONE).max(0).unsigned_abs().min(TWO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::dirty::limits::{PAGES_MAX, RATE_MAX};

    fn position(dirty: u64, device_limit: u64, device_dirty: u64, bandwidth: u64) -> Position {
        Position {
            limits: Limits {
                dirty: Pages(200_000),
                background: Pages(100_000),
            },
            hard_limit: Pages(200_000),
            dirty: Pages(dirty),
            device_limit: Pages(device_limit),
            device_background: Pages(device_limit / 2),
            device_dirty: Pages(device_dirty),
            bandwidth: PagesPerSec(bandwidth),
            strict: false,
        }
    }

    #[test]
    fn vector_p1() {
        let table = [
            (150_000, 2045),
            (160_000, 1244),
            (175_000, 1024),
            (185_000, 958),
            (195_000, 500),
            (199_999, 2),
        ];
        for (dirty, expected) in table {
            let ratio = cubic(Pages(175_000), Pages(dirty), Pages(200_000));
            assert_eq!(ratio, PosRatio(expected), "dirty {dirty}");
        }
        for dirty in [200_000, 200_001, 1_000_000] {
            assert_eq!(position(dirty, 200_000, dirty, 25600).ratio(), PosRatio(0));
        }
    }

    #[test]
    fn vector_p2() {
        let table = [
            (150_000, 2294),
            (160_000, 1335),
            (175_000, 1023),
            (185_000, 911),
            (195_000, 451),
            (199_999, 1),
        ];
        for (dirty, expected) in table {
            let ratio = position(dirty, 200_000, dirty, 25600).ratio();
            assert_eq!(ratio, PosRatio(expected), "dirty {dirty}");
        }
    }

    #[test]
    fn vector_p3() {
        assert_eq!(
            position(175_000, 50_000, 60_000, 5120).ratio(),
            PosRatio(675)
        );
        assert_eq!(
            position(175_000, 50_000, 20_000, 5120).ratio(),
            PosRatio(1916)
        );
    }

    #[test]
    fn the_factor_falls_as_either_level_rises() {
        let mut previous = PosRatio(u64::MAX);
        for dirty in (100_000..210_000).step_by(500) {
            let ratio = position(dirty, 50_000, 40_000, 5120).ratio();
            assert!(
                ratio <= previous,
                "dirty {dirty}: {ratio:?} after {previous:?}"
            );
            previous = ratio;
        }
        let mut previous = PosRatio(u64::MAX);
        for dirty in (0..120_000).step_by(500) {
            let ratio = position(175_000, 50_000, dirty, 5120).ratio();
            assert!(
                ratio <= previous,
                "device {dirty}: {ratio:?} after {previous:?}"
            );
            previous = ratio;
        }
    }

    #[test]
    fn a_strict_device_is_held_at_its_own_limit() {
        let strict = |dirty| Position {
            strict: true,
            ..position(10_000, 2000, dirty, 5120)
        };
        assert_eq!(strict(7).ratio(), PosRatio(TWO));
        assert_eq!(strict(1500).ratio(), PosRatio(1024));
        assert!(strict(1900).ratio() < PosRatio(800));
        assert_eq!(strict(2000).ratio(), PosRatio(0));
        let nothing = Position {
            strict: true,
            ..position(10_000, 0, 9, 5120)
        };
        assert_eq!(nothing.ratio(), PosRatio(0));
    }

    #[test]
    fn the_ends_of_the_input_range_do_not_overflow() {
        let ends = [0, 1, 200_000, PAGES_MAX];
        for dirty in ends {
            for limit in ends {
                for device in ends {
                    for bandwidth in [1, RATE_MAX] {
                        for strict in [false, true] {
                            let position = Position {
                                limits: Limits {
                                    dirty: Pages(limit),
                                    background: Pages(limit / 2),
                                },
                                hard_limit: Pages(limit.max(dirty / 2)),
                                dirty: Pages(dirty),
                                device_limit: Pages(device.min(limit)),
                                device_background: Pages(device.min(limit) / 2),
                                device_dirty: Pages(device),
                                bandwidth: PagesPerSec(bandwidth),
                                strict,
                            };
                            assert!(position.ratio() <= PosRatio(RATIO_MAX), "{position:?}");
                        }
                    }
                }
            }
        }
    }
}

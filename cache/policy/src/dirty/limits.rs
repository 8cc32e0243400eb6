//! The two global limits, and the share of them that a device may use.
//!
//! ```text
//!  0 ........ background ........ freerun ........ set point ........ dirty limit
//!    nobody      the flusher         writers are held, harder and harder    writers stop
//!    minds       works               (rate-based law: 2x base rate ... 1x ... 0)
//! ```
//!
//! Invariants
//!   1. `background < dirty`, and `dirty` is not zero.
//!   2. A share lies between the device's bounds, and never above its limit.
//!   3. A count is at most `PAGES_MAX`: everything behind this door calculates in 64 bits.
//!
//! Source: mechanisms 5.1, 5.2; Linux 2.6.36 and 6.12 mm/page-writeback.c, global_dirty_limits(),
//! domain_dirty_limits(), bdi_dirty_limit(), wb_calc_thresh().
//! Deviation: a per cent is exact; 6.12 rounds it to 1/4096 first (20 % becomes 19.995 %).

use super::types::{Counts, Dirtyable, Limits, Threshold};
use crate::units::{Pages, PagesPerSec};

/// No count is taken for larger than this (64 PiB): an input we do not control cannot overflow us.
pub const PAGES_MAX: u64 = 1 << 44;
/// No bandwidth is taken for larger than this (256 TiB/s).
pub const RATE_MAX: u64 = 1 << 36;
/// No dirty limit is lower, however little memory may become dirty (anonymous memory may have it
/// all): under a limit of nothing no law lets a writer go, for a level of nothing is not below it.
const DIRTY_LEAST: Pages = Pages(2);

/// `a * b / c`, rounded down; exact even where the product needs 128 bits, at most `u64::MAX`.
pub fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => {
            let wide = u128::from(a) * u128::from(b) / u128::from(c);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

/// A count as the laws take it.
pub const fn bounded(pages: Pages) -> Pages {
    pages.at_most(Pages(PAGES_MAX))
}

/// A rate as the laws take it.
pub const fn bounded_rate(pages_per_sec: u64) -> PagesPerSec {
    PagesPerSec(pages_per_sec).at_most(PagesPerSec(RATE_MAX))
}

impl Threshold {
    /// The limit in pages for that much dirtyable memory, rounded down.
    #[must_use]
    pub fn pages_of(self, dirtyable: Pages) -> Pages {
        match self {
            Self::Percent(percent) => {
                bounded(Pages(bounded(dirtyable).0 * u64::from(percent) / 100))
            }
            Self::Pages(pages) => bounded(pages),
        }
    }

    /// The same limit, but no less than `percent` if it is a per cent.
    pub const fn at_least_percent(self, percent: u8) -> Self {
        match self {
            Self::Percent(own) if own < percent => Self::Percent(percent),
            Self::Percent(_) | Self::Pages(_) => self,
        }
    }
}

impl Dirtyable {
    /// The part of `pages` that `now` is of `most`.
    fn part_of(self, pages: Pages) -> Pages {
        let most = bounded(self.most.at_least(Pages(1)));
        Pages(mul_div(pages.0, bounded(self.now).at_most(most).0, most.0))
    }
}

/// Both limits as they were asked for.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// Of writers.
    pub dirty: Threshold,
    /// Of the flusher.
    pub background: Threshold,
}

impl Thresholds {
    /// The limits for that much dirtyable memory.
    pub fn limits(self, dirtyable: Pages) -> Limits {
        let [dirty, background] =
            [self.dirty, self.background].map(|limit| limit.pages_of(dirtyable));
        Limits::new(dirty, background)
    }

    /// The limits, of which anonymous memory has taken its part, those in pages too.
    pub fn part(self, dirtyable: Dirtyable) -> Limits {
        let [dirty, background] = [self.dirty, self.background].map(|limit| match limit {
            Threshold::Percent(_) => limit.pages_of(dirtyable.now),
            Threshold::Pages(_) => dirtyable.part_of(limit.pages_of(dirtyable.most)),
        });
        Limits::new(dirty, background)
    }
}

impl Limits {
    /// Both limits; a background limit that is not below the dirty limit is half of it.
    fn new(dirty: Pages, background: Pages) -> Self {
        let dirty = dirty.at_least(DIRTY_LEAST);
        let background = if background >= dirty {
            Pages(dirty.0 / 2)
        } else {
            background
        };
        Self { dirty, background }
    }

    /// The same, raised in proportion until at least `least` pages may be dirty.
    pub fn at_least(self, least: Pages) -> Self {
        if self.dirty >= least {
            return self;
        }
        Self {
            dirty: least,
            background: Pages(mul_div(self.background.0, least.0, self.dirty.0)),
        }
    }

    /// Up to here nobody is held: halfway between the two limits.
    #[must_use]
    pub const fn freerun(&self) -> Pages {
        Pages((self.dirty.0 + self.background.0) / 2)
    }

    /// The device's part of the background limit, in proportion to its part of the dirty limit.
    pub fn background_of(&self, share: Pages) -> Pages {
        if self.dirty.is_zero() {
            return Pages::ZERO;
        }
        Pages(mul_div(share.0, self.background.0, self.dirty.0))
    }
}

/// One reading of the counters with the sums all laws need, within `PAGES_MAX`.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Dirty, unstable and under writeback, of all devices.
    pub dirty: Pages,
    /// Dirty and unstable only.
    pub reclaimable: Pages,
    /// Dirty, unstable and under writeback, of this device.
    pub device_dirty: Pages,
    /// Dirty and unstable only.
    pub device_reclaimable: Pages,
}

impl Level {
    /// The sums of one reading.
    #[must_use]
    pub fn of(counts: &Counts) -> Self {
        Self {
            dirty: bounded(counts.dirty.saturating_add(counts.writeback)),
            reclaimable: bounded(counts.dirty),
            device_dirty: bounded(counts.device_dirty.saturating_add(counts.device_writeback)),
            device_reclaimable: bounded(counts.device_dirty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(dirty: u64, background: u64) -> Limits {
        let thresholds = Thresholds {
            dirty: Threshold::Pages(Pages(dirty)),
            background: Threshold::Pages(Pages(background)),
        };
        thresholds.limits(Pages(0))
    }

    #[test]
    fn background_stays_below_dirty() {
        assert_eq!(
            limits(200, 100),
            Limits {
                dirty: Pages(200),
                background: Pages(100)
            }
        );
        assert_eq!(limits(200, 200).background, Pages(100));
        assert_eq!(limits(200, 900).background, Pages(100));
        assert_eq!(
            limits(0, 0),
            Limits {
                dirty: DIRTY_LEAST,
                background: Pages(0)
            }
        );
        assert_eq!(limits(1, 1).background, Pages(1));
        assert_eq!(limits(200_000, 100_000).freerun(), Pages(150_000));
    }

    #[test]
    fn a_per_cent_is_of_dirtyable_memory() {
        assert_eq!(Threshold::Percent(20).pages_of(Pages(1000)), Pages(200));
        assert_eq!(Threshold::Percent(20).pages_of(Pages(0)), Pages(0));
        assert_eq!(
            Threshold::Percent(255).pages_of(Pages::MAX),
            Pages(PAGES_MAX)
        );
        assert_eq!(
            Threshold::Percent(1).at_least_percent(5),
            Threshold::Percent(5)
        );
        assert_eq!(
            Threshold::Percent(6).at_least_percent(5),
            Threshold::Percent(6)
        );
    }

    #[test]
    fn products_beyond_64_bits_are_exact() {
        assert_eq!(mul_div(u64::MAX, 6, 4), u64::MAX);
        assert_eq!(mul_div(1 << 60, 48, 64), 3 << 58);
    }
}

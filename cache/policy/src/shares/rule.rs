//! The shares of a memory's own caches: the pages, and each cache of objects.

use super::{MemberId, Mode, Terms};
use crate::units::Bytes;

/// Pages have at least the limit over this as their floor, objects too: a delta.
const FLOOR_LEAST: u64 = 64;
/// Pages have at most the limit over this as their floor, however fast the devices are.
const FLOOR_MOST: u64 = 4;

/// The rule of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRule {
    /// The mover of targets.
    pub mode: Mode,
    /// Pages keep what the law of writers needs to hold a second of the devices: reclaim then never
    /// meets lists of nothing but dirty pages.
    pub writers_floor: bool,
    /// Pages go before the objects that carry them, as long as neither is missed.
    pub carried_first: bool,
}

impl ShareRule {
    /// Tidegate's.
    pub const TIDEGATE: Self = Self {
        mode: Mode::ByRegret,
        writers_floor: true,
        carried_first: true,
    };

    /// The floor of a cache of objects.
    #[must_use]
    pub fn floor_of_objects(limit: Bytes) -> Bytes {
        Bytes(limit.0 / FLOOR_LEAST)
    }

    /// The floor of the pages. `written`: bytes that all devices write in a second; `dirty`: of
    /// `files` bytes, those that may be dirty.
    #[must_use]
    pub fn floor_of_pages(self, limit: Bytes, written: Bytes, dirty: Bytes, files: Bytes) -> Bytes {
        let least = Self::floor_of_objects(limit);
        if !self.writers_floor {
            return least;
        }
        let wanted = u128::from(written.0) * u128::from(files.0) / u128::from(dirty.0.max(1));
        let wanted = Bytes(u64::try_from(wanted).unwrap_or(u64::MAX));
        wanted.at_least(least).at_most(Bytes(limit.0 / FLOOR_MOST))
    }

    /// Terms of the pages. `objects`: the cache that carries them, if there is one.
    #[must_use]
    pub fn terms_of_pages(self, floor: Bytes, objects: Option<MemberId>) -> Terms {
        Terms {
            floor,
            carried_by: objects.filter(|_| self.carried_first),
            ..Terms::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn pages_keep_a_second_of_the_devices_within_a_64th_and_a_quarter() {
        let floor = |written| {
            ShareRule::TIDEGATE
                .floor_of_pages(Bytes(16 * GIB), Bytes(written), Bytes(GIB), Bytes(5 * GIB))
                .0
        };
        assert_eq!(floor(0), GIB / 4);
        assert_eq!(floor(200 << 20), 1000 << 20);
        assert_eq!(floor(64 * GIB), 4 * GIB);
        let off = ShareRule {
            writers_floor: false,
            ..ShareRule::TIDEGATE
        };
        let floor = off.floor_of_pages(Bytes(16 * GIB), Bytes(GIB), Bytes(1), Bytes(5));
        assert_eq!(floor, Bytes(GIB / 4));
    }

    #[test]
    fn nothing_may_be_dirty_and_the_floor_is_still_one() {
        let floor = ShareRule::TIDEGATE.floor_of_pages(Bytes(GIB), Bytes(1), Bytes(0), Bytes(GIB));
        assert_eq!(floor, Bytes(GIB / 4));
    }
}

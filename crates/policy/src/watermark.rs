//! When reclaim starts and stops.
//!
//! Source: mechanisms 1.2; Linux 6.12 mm/page_alloc.c, calculate_min_free_kbytes(),
//! __setup_per_zone_wmarks(); Linux 3.2, the same file.

use crate::units::Pages;

/// Kibibytes in a page.
const PAGE_KIB: u64 = 4;
/// `vm.watermark_scale_factor`: the gap between two marks, in 1/10000 of the zone.
const SCALE_FACTOR: u64 = 10;
/// `vm.min_free_kbytes` is never below this, KiB.
const MIN_FREE_KIB_LEAST: u64 = 128;
/// `vm.min_free_kbytes` is never above this since 5.x, KiB.
const MIN_FREE_KIB_MOST: u64 = 262_144;
/// `vm.min_free_kbytes` was never above this up to 5.3, KiB.
const MIN_FREE_KIB_MOST_EARLY: u64 = 65_536;

/// The marks of one zone, in free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below: the allocating task reclaims itself.
    pub min: Pages,
    /// Below: the background reclaimer is woken.
    pub low: Pages,
    /// The background reclaimer works up to here.
    pub high: Pages,
}

impl Watermarks {
    /// Marks of a single zone of `pages`, Linux 4.6 and later (mechanisms 1.2, vectors W1).
    ///
    /// The gap between two marks is a quarter of MIN or 0.1 % of the zone, whichever is larger.
    #[must_use]
    pub fn of_zone(pages: Pages) -> Self {
        let min = min_free(pages, MIN_FREE_KIB_MOST);
        let gap = (min / 4).max(share_of(pages.0, SCALE_FACTOR));
        Self {
            min: Pages(min),
            low: Pages(min + gap),
            high: Pages(min + 2 * gap),
        }
    }

    /// Marks of a single zone of `pages`, Linux 2.6.36 to 4.5: the gap is a quarter of MIN.
    #[must_use]
    pub fn of_zone_before_4_6(pages: Pages) -> Self {
        let min = min_free(pages, MIN_FREE_KIB_MOST_EARLY);
        Self {
            min: Pages(min),
            low: Pages(min + min / 4),
            high: Pages(min + min / 2),
        }
    }

    /// The mark above HIGH up to which a node is kept free for promotion (5.17+, PROMO), one more
    /// gap away.
    #[must_use]
    pub fn promotion(&self) -> Pages {
        self.high + (self.high - self.low)
    }
}

/// `min_free_kbytes` of a machine that is one zone, in pages: the root of 16 times its KiB.
fn min_free(pages: Pages, most_kib: u64) -> u64 {
    let zone_kib = pages.0.saturating_mul(PAGE_KIB);
    let kib = zone_kib.saturating_mul(16).isqrt();
    kib.clamp(MIN_FREE_KIB_LEAST, most_kib) / PAGE_KIB
}

/// `pages * per_ten_thousand / 10000`, rounded down, without overflow.
fn share_of(pages: u64, per_ten_thousand: u64) -> u64 {
    let whole = pages / 10_000 * per_ten_thousand;
    whole + pages % 10_000 * per_ten_thousand / 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(min: u64, low: u64, high: u64) -> Watermarks {
        Watermarks {
            min: Pages(min),
            low: Pages(low),
            high: Pages(high),
        }
    }

    #[test]
    fn vector_w1() {
        let sixteen_gib = Watermarks::of_zone(Pages(4_194_304));
        assert_eq!(sixteen_gib, marks(4096, 8290, 12484));
        assert_eq!(sixteen_gib.promotion(), Pages(16678));
        assert_eq!(
            Watermarks::of_zone_before_4_6(Pages(4_194_304)),
            marks(4096, 5120, 6144)
        );

        let four_gib = Watermarks::of_zone(Pages(1_048_576));
        assert_eq!(four_gib, marks(2048, 3096, 4144));
        assert_eq!(four_gib.promotion(), Pages(5192));
        assert_eq!(
            Watermarks::of_zone_before_4_6(Pages(1_048_576)),
            marks(2048, 2560, 3072)
        );
    }

    #[test]
    fn the_root_is_clamped_at_both_ends() {
        assert_eq!(Watermarks::of_zone(Pages(256)), marks(32, 40, 48));
        assert_eq!(Watermarks::of_zone(Pages(0)).min, Pages(32));
        assert_eq!(Watermarks::of_zone(Pages(1 << 34)).min, Pages(65536));
        assert_eq!(
            Watermarks::of_zone_before_4_6(Pages(1 << 34)).min,
            Pages(16384)
        );
    }

    #[test]
    fn marks_rise_in_order_and_nothing_overflows() {
        for pages in [0, 1, 9_999, 10_000, 1 << 20, 1 << 40, u64::MAX] {
            for marks in [
                Watermarks::of_zone(Pages(pages)),
                Watermarks::of_zone_before_4_6(Pages(pages)),
            ] {
                assert!(marks.min < marks.low, "{pages}");
                assert!(marks.low < marks.high, "{pages}");
            }
        }
    }
}

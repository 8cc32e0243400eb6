//! When reclaim starts and stops.
//!
//! Source: mechanisms 1.2, 1.3; Linux 6.12 mm/page_alloc.c, calculate_min_free_kbytes(),
//! __setup_per_zone_wmarks(), __zone_watermark_ok(); Linux 3.2, the same file.

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

    /// Marks of a machine that stands for one `scale` times larger: the larger one's, divided.
    ///
    /// The root in MIN makes a small machine's marks larger in proportion; with these, the
    /// proportions of the machine that is stood for are kept. Marks stay apart, however large the
    /// scale.
    ///
    /// # Panics
    /// On a scale of 0.
    #[must_use]
    pub fn of_scaled_zone(pages: Pages, scale: u64) -> Self {
        let whole = Self::of_zone(Pages(pages.0.saturating_mul(scale)));
        let min = (whole.min.0 / scale).max(1);
        let low = (whole.low.0 / scale).max(min + 1);
        let high = (whole.high.0 / scale).max(low + 1);
        Self {
            min: Pages(min),
            low: Pages(low),
            high: Pages(high),
        }
    }

    /// The marks, all of them higher by `pages`.
    #[must_use]
    pub fn raised_by(self, pages: Pages) -> Self {
        let raised = |mark: Pages| mark.saturating_add(pages);
        Self {
            min: raised(self.min),
            low: raised(self.low),
            high: raised(self.high),
        }
    }

    /// The mark above HIGH up to which a node is kept free for promotion (5.17+, PROMO), one more
    /// gap away.
    #[must_use]
    pub fn promotion(&self) -> Pages {
        self.high + (self.high - self.low)
    }
}

/// The depth below a mark to which an allocation may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllocRight {
    /// Not at all.
    Normal,
    /// Down to half of it: others depend on it (`__GFP_HIGH`).
    High,
    /// Down to three eighths: it cannot wait either (`GFP_ATOMIC`).
    Atomic,
    /// To the last frame: it is reclaiming, and gives back more than it takes (`PF_MEMALLOC`).
    Reclaimer,
}

impl AllocRight {
    /// The mark as it holds for it.
    #[must_use]
    pub const fn lowered(self, mark: Pages) -> Pages {
        let half = mark.0 - mark.0 / 2;
        Pages(match self {
            Self::Normal => mark.0,
            Self::High => half,
            Self::Atomic => half - half / 4,
            Self::Reclaimer => 0,
        })
    }
}

/// True if a single page may be taken while `free` pages are free: more must be free than the mark
/// says.
#[must_use]
pub const fn is_ok(free: Pages, mark: Pages, right: AllocRight) -> bool {
    free.0 > right.lowered(mark).0
}

/// Number of pages that may be taken, one by one, before the mark stops it.
#[must_use]
pub const fn room(free: Pages, mark: Pages, right: AllocRight) -> Pages {
    free.saturating_sub(right.lowered(mark))
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
    fn a_scaled_machine_has_the_marks_of_the_one_it_stands_for() {
        // 16 GiB for which 1 GiB stands.
        assert_eq!(
            Watermarks::of_scaled_zone(Pages(262_144), 16),
            marks(256, 518, 780)
        );
        assert_eq!(
            Watermarks::of_scaled_zone(Pages(4_194_304), 1),
            Watermarks::of_zone(Pages(4_194_304))
        );
        // So small that the marks meet: they stay apart.
        assert_eq!(
            Watermarks::of_scaled_zone(Pages(4), 1 << 20),
            marks(1, 2, 3)
        );
    }

    #[test]
    fn rights_reach_below_a_mark() {
        // mark, right, the fewest free pages with which one may be taken
        let table = [
            (4096, AllocRight::Normal, 4097),
            (4096, AllocRight::High, 2049),
            (4096, AllocRight::Atomic, 1537),
            (4096, AllocRight::Reclaimer, 1),
            (33, AllocRight::High, 18),
            (33, AllocRight::Atomic, 14),
            (0, AllocRight::Normal, 1),
        ];
        for (mark, right, least) in table {
            assert!(is_ok(Pages(least), Pages(mark), right), "{mark} {right:?}");
            assert!(
                !is_ok(Pages(least - 1), Pages(mark), right),
                "{mark} {right:?}"
            );
            assert_eq!(room(Pages(least + 6), Pages(mark), right), Pages(7));
            assert_eq!(room(Pages(least - 1), Pages(mark), right), Pages(0));
        }
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

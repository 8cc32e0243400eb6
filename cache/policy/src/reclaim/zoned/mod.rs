//! Reclaim over zones, as it was before Linux 4.8: each zone has lists, marks and prospects of its
//! own; one background reclaimer looks after all zones of a node, and a direct reclaimer passes
//! over those of its list.
//!
//! | module | decides |
//! |---|---|
//! | here | whether a zone is balanced, and what may be hoped of it |
//! | `direct` | the passes of a task that reclaims on its own behalf |
//! | `balance` | those of the background over the zones of a node, from the lowest up |
//!
//! Vocabulary: *kept back*, what a lower zone keeps from those that could have used a higher one
//! (`lowmem_reserve`); *hopeless*, a zone that was looked at six times over and gave nothing
//! (`all_unreclaimable`): it is passed over but at the gentlest priority.
//!
//! Source: mechanisms 1.3, 3.1, 3.5, 3.6; kernel-facts A5; Linux 3.0 mm/vmscan.c, mm/page_alloc.c,
//! __zone_watermark_ok(); mm/page-writeback.c, throttle_vm_writeout(). Deviations: order 0, no
//! cgroups, no slab.

pub mod balance;
pub mod direct;

use super::background::{Rest, rest_if};
use super::scan::Priority;
use crate::units::Pages;
use crate::watermark::Watermarks;

/// A mark is tested as if this many pages were taken already: `2^order + 1` up to 3.2.
const TAKEN: Pages = Pages(2);
/// A zone is hopeless when this many times its pages were looked at.
const LOOKED_AT: u64 = 6;
/// Reclaimers wait where more is under writeback than the dirty limit and this part of it.
const OVER_LIMIT: u64 = 10;

/// A zone, at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneView {
    /// Free pages.
    pub free: Pages,
    /// Its marks.
    pub marks: Watermarks,
    /// Its pages in all.
    pub size: Pages,
    /// Kept back from requests that could have used a higher zone of the node.
    pub kept_back: Pages,
    /// `Prospects::hopeless`.
    pub hopeless: bool,
}

impl ZoneView {
    /// True if more is free than a mark says. `for_higher`: also for a request that could have used
    /// a higher zone.
    ///
    /// # Source
    /// Mechanisms 1.3.
    #[must_use]
    pub fn is_above(&self, mark: Pages, for_higher: bool) -> bool {
        let kept_back = if for_higher {
            self.kept_back
        } else {
            Pages::ZERO
        };
        self.free > mark.saturating_add(kept_back).saturating_add(TAKEN)
    }

    /// True if a pass at a priority leaves the zone out: nothing may be hoped of it, and the
    /// gentlest look says whether that has changed.
    #[must_use]
    pub fn is_left_out(&self, priority: Priority) -> bool {
        self.hopeless && priority != Priority::GENTLEST
    }
}

/// True if an allocator that found no zone above its mark wakes the background reclaimer for this
/// one.
///
/// # Source
/// Mechanisms 3.1; Linux 3.0 mm/vmscan.c, wakeup_kswapd().
#[must_use]
pub fn wants_wake(zone: &ZoneView) -> bool {
    !zone.is_above(zone.marks.low, false)
}

/// True if the background reclaimer of a node has no more to do: every zone is above HIGH, or
/// hopeless.
///
/// # Source
/// Linux 3.0 mm/vmscan.c, sleeping_prematurely().
#[must_use]
pub fn are_balanced(zones: &[ZoneView]) -> bool {
    let good = |zone: &ZoneView| zone.hopeless || zone.is_above(zone.marks.high, false);
    zones.iter().all(good)
}

/// Decides whether the background reclaimer may rest, as `background::rest`.
///
/// # Panics
/// Unless `hz` lies in 1..=10000.
#[must_use]
pub fn rest(zones: &[ZoneView], napped: bool, hz: u32) -> Rest {
    rest_if(are_balanced(zones), napped, hz)
}

/// True if so much is under writeback that a reclaimer waits after its pass (`congestion_wait`),
/// again and again, or once if it may not enter a file system. `limit`: the dirty limit.
///
/// # Source
/// Mechanisms 2.3; Linux 3.0 mm/page-writeback.c, throttle_vm_writeout().
#[must_use]
pub fn is_over_writeout(writeback: Pages, limit: Pages) -> bool {
    writeback > limit.saturating_add(Pages(limit.0 / OVER_LIMIT))
}

/// The prospects of a zone: pages looked at, and hope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prospects {
    /// Pages looked at since one was last freed (`pages_scanned`).
    looked_at: u64,
    hopeless: bool,
}

impl Prospects {
    /// A pass has looked at pages of the zone, whatever list they were on.
    pub fn looked_at(&mut self, pages: Pages) {
        self.looked_at = self.looked_at.saturating_add(pages.0);
    }

    /// Pages of the zone have become free, no matter which task gave them back.
    pub fn freed(&mut self) {
        *self = Self::default();
    }

    /// The background's pass over the zone has ended. `reclaimable`: pages on its lists that
    /// reclaim may hope for.
    pub fn judge(&mut self, reclaimable: Pages) {
        if self.looked_at >= reclaimable.0.saturating_mul(LOOKED_AT) {
            self.hopeless = true;
        }
    }

    /// Nothing may be hoped of it until a page is freed.
    #[must_use]
    pub fn hopeless(&self) -> bool {
        self.hopeless
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The zones of a node of p2's machine (Dma32 3 GiB, Normal 2.5 GiB) with the marks of 90112
    /// KiB in 11.5 GiB.
    pub(crate) const DMA32: ZoneView = ZoneView {
        free: Pages(0),
        marks: Watermarks {
            min: Pages(5876),
            low: Pages(7345),
            high: Pages(8814),
        },
        size: Pages(786_432),
        kept_back: Pages(2560),
        hopeless: false,
    };
    pub(crate) const NORMAL: ZoneView = ZoneView {
        free: Pages(0),
        marks: Watermarks {
            min: Pages(4897),
            low: Pages(6121),
            high: Pages(7345),
        },
        size: Pages(655_360),
        kept_back: Pages(0),
        hopeless: false,
    };

    pub(crate) fn with_free(zone: ZoneView, free: u64) -> ZoneView {
        ZoneView {
            free: Pages(free),
            ..zone
        }
    }

    #[test]
    fn a_mark_is_passed_by_more_than_two_pages_and_what_is_kept_back() {
        // free, for higher zones, above HIGH
        let table = [
            (8816, false, false),
            (8817, false, true),
            (8817, true, false),
            (8814 + 2560 + 2, true, false),
            (8814 + 2560 + 3, true, true),
        ];
        for (free, for_higher, above) in table {
            let zone = with_free(DMA32, free);
            assert_eq!(
                zone.is_above(zone.marks.high, for_higher),
                above,
                "{free} {for_higher}"
            );
        }
        assert!(!with_free(NORMAL, 0).is_above(Pages::MAX, true));
    }

    #[test]
    fn the_background_is_woken_below_low_and_rests_above_high() {
        assert!(wants_wake(&with_free(NORMAL, 6123)));
        assert!(!wants_wake(&with_free(NORMAL, 6124)));
        let balanced = [with_free(DMA32, 9000), with_free(NORMAL, 8000)];
        let short = [with_free(DMA32, 8000), with_free(NORMAL, 8000)];
        let hopeless = short.map(|zone| ZoneView {
            hopeless: zone.size == DMA32.size,
            ..zone
        });
        assert!(are_balanced(&balanced) && are_balanced(&hopeless) && !are_balanced(&short));
        assert_eq!(rest(&short, true, 250), Rest::Work);
        assert!(matches!(rest(&balanced, false, 250), Rest::Nap(_)));
        assert_eq!(rest(&balanced, true, 250), Rest::Sleep);
    }

    #[test]
    fn a_zone_looked_at_six_times_over_is_hopeless_until_a_page_is_freed() {
        let mut prospects = Prospects::default();
        prospects.looked_at(Pages(599));
        prospects.judge(Pages(100));
        assert!(!prospects.hopeless());
        prospects.looked_at(Pages(1));
        prospects.judge(Pages(100));
        assert!(prospects.hopeless());
        let zone = ZoneView {
            hopeless: true,
            ..NORMAL
        };
        assert!(!zone.is_left_out(Priority::GENTLEST));
        assert!(zone.is_left_out(Priority(11)));
        prospects.freed();
        assert_eq!(prospects, Prospects::default());
        // Nothing on the lists is nothing to hope for.
        prospects.judge(Pages::ZERO);
        assert!(prospects.hopeless());
    }

    #[test]
    fn writeback_of_a_tenth_over_the_limit_is_waited_for() {
        assert!(!is_over_writeout(Pages(1100), Pages(1000)));
        assert!(is_over_writeout(Pages(1101), Pages(1000)));
        assert!(!is_over_writeout(Pages::MAX, Pages::MAX));
    }
}

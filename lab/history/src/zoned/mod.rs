//! Reclaim over zones, as it was before Linux 4.8: each zone has lists, marks and prospects of its
//! own; one background reclaimer looks after all zones of a node, and a direct reclaimer passes
//! over those of its list.
//!
//! | module | decides |
//! |---|---|
//! | here | whether a zone is balanced |
//! | `direct` | the passes of a task that reclaims on its own behalf |
//! | `balance` | those of the background over the zones of a node, from the lowest up |
//!
//! Vocabulary: *kept back*, what a lower zone keeps from those that could have used a higher one
//! (`lowmem_reserve`); *hopeless*, a zone that was looked at six times over and gave nothing
//! (`all_unreclaimable`): it is passed over but at the gentlest priority.
//!
//! Source: mechanisms 1.3, 3.1, 3.5, 3.6; kernel-facts A5; Linux 3.0 mm/vmscan.c, mm/page_alloc.c,
//! __zone_watermark_ok(). Deviations: order 0, no
//! cgroups, no slab.

pub mod balance;
pub mod direct;

use policy::reclaim::background::{Rest, rest_if};
use policy::reclaim::scan::Priority;
use policy::units::Pages;
use policy::watermark::Watermarks;

/// A mark is tested as if this many pages were taken already: `2^order + 1` up to 3.2.
const TAKEN: Pages = Pages(2);

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
    /// `policy::reclaim::prospects`.
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
    fn of_a_hopeless_zone_only_the_gentlest_look_is_made() {
        let zone = ZoneView {
            hopeless: true,
            ..NORMAL
        };
        assert!(!zone.is_left_out(Priority::GENTLEST));
        assert!(zone.is_left_out(Priority(11)));
    }
}

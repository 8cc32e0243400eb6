//! Reclaim for a run, up to Linux 3.3: it goes on until compaction could work, not until 32 pages are free.
//!
//! After each pass over a zone the same pass begins again (`goes_on`). A zone where compaction could work now is *ready*: it
//! is passed over and, before patch 10, ends reclaim.
//!
//! A batch may be looked at a second time, and what is under writeback waited for: only if every page of it that stays is
//! just being written. One that stays for another reason (it was used, or is dirty and left to the flusher) is *plainly
//! kept*, and ends both that and the going on. Since 3.2 leaves dirty pages to the flusher, it is hardly ever done there but
//! for pages on their way to the swap file.
//!
//! Source: mechanisms 2.5, 3.6, 3.7, 8.6; kernel-facts A5; Linux 3.2 mm/vmscan.c, set_reclaim_mode(), should_reclaim_stall(),
//! should_continue_reclaim(), shrink_zones(); Linux 3.3, compaction_ready().

use super::defer::Deferral;
use super::law::{Ready, Scans};
use super::suitable::{Standing, Suitable};
use crate::units::Pages;
use crate::watermark::Watermarks;

/// Orders up to this one are got by reclaim as single pages are (`PAGE_ALLOC_COSTLY_ORDER`), at the size that is stood for.
pub const COSTLY: u8 = 3;

/// A zone that a task reclaims for a run in.
#[derive(Clone, Copy, Debug)]
pub struct RunZone<'a> {
    /// What is free of it.
    pub standing: &'a Standing,
    /// Its marks.
    pub marks: &'a Watermarks,
    /// Its pages in all.
    pub size: Pages,
    /// Pages on its inactive lists, as counted.
    pub inactive: Pages,
}

impl Scans {
    /// Whether a zone is passed over, as compaction could work there now. Asking counts for its deferral.
    #[must_use]
    pub fn is_ready(&self, order: u8, zone: &RunZone<'_>, deferral: &mut Deferral) -> bool {
        let suitable = || zone.standing.suitable(order, zone.marks) != Suitable::Skipped;
        match self.ready {
            Ready::Never => false,
            Ready::Suitable => suitable() || self.is_deferred(deferral),
            Ready::Enough => {
                let enough = zone.standing.has_enough(order, zone.marks, zone.size);
                if self.is_deferred(deferral) {
                    return enough;
                }
                suitable() && enough
            }
        }
    }
}

/// Whether a pass over a zone is begun again. `freed`: by the pass that has just ended, and by the task's reclaim in all.
/// `plainly`: a page of its last batch was plainly kept.
#[must_use]
pub fn goes_on(order: u8, zone: &RunZone<'_>, freed: (Pages, Pages), plainly: bool) -> bool {
    if plainly || freed.0.is_zero() {
        return false;
    }
    let wanted = Pages(2 << order);
    if freed.1 < wanted && zone.inactive > wanted {
        return true;
    }
    zone.standing.suitable(order, zone.marks) == Suitable::Skipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::patches::Patches;

    const MARKS: Watermarks = Watermarks {
        min: Pages(1_000),
        low: Pages(1_250),
        high: Pages(1_500),
    };

    fn standing(free: u64) -> Standing {
        let mut blocks = [0; 11];
        blocks[0] = u32::try_from(free).unwrap();
        Standing {
            free: Pages(free),
            blocks,
        }
    }

    fn zone(standing: &Standing) -> RunZone<'_> {
        RunZone {
            standing,
            marks: &MARKS,
            size: Pages(100_000),
            inactive: Pages(5_000),
        }
    }

    #[test]
    fn a_zone_is_ready_when_pages_can_be_moved_and_with_nine_when_many_can() {
        let ready = |scans: Scans, free| {
            let standing = standing(free);
            scans.is_ready(9, &zone(&standing), &mut Deferral::default())
        };
        // LOW + 1024 + 2, and HIGH + 1000 + 1024 + 2.
        let nine = Scans::of(Patches::up_to(9));
        for (free, before, after) in [
            (2_276, false, false),
            (2_277, true, false),
            (3_527, true, true),
        ] {
            assert_eq!(ready(Scans::LINUX_3_2, free), before, "{free}");
            assert_eq!(ready(nine, free), after, "{free}");
            assert!(!ready(Scans::LINUX_3_1, free));
        }
    }

    #[test]
    fn what_is_left_alone_is_ready_and_with_nine_only_if_enough_is_free() {
        let mut deferral = Deferral::default();
        deferral.failed();
        let few = standing(100);
        let zone = zone(&few);
        let mut left = deferral;
        assert!(Scans::LINUX_3_2.is_ready(9, &zone, &mut left));
        assert!(
            !Scans::LINUX_3_2.is_ready(9, &zone, &mut left),
            "it may be tried"
        );
        let mut left = deferral;
        assert!(!Scans::of(Patches::up_to(9)).is_ready(9, &zone, &mut left));
    }

    #[test]
    fn a_pass_goes_on_until_two_runs_are_free_or_one_page_stays() {
        let few = standing(100);
        let zone = zone(&few);
        let on = |freed, all, plainly| goes_on(9, &zone, (Pages(freed), Pages(all)), plainly);
        assert!(on(32, 32, false));
        assert!(!on(32, 32, true), "plainly kept");
        assert!(!on(0, 900, false), "nothing came");
        assert!(on(32, 1_100, false), "compaction could not work yet");
        let many = standing(4_000);
        let ready = RunZone {
            standing: &many,
            ..zone
        };
        assert!(!goes_on(9, &ready, (Pages(32), Pages(1_100)), false));
        assert!(goes_on(9, &ready, (Pages(32), Pages(900)), false));
    }
}

//! Reclaim for a run: it goes on until compaction could work, not until 32 pages are free.
//!
//! Up to Linux 3.3: after each pass over a zone the same pass begins again (`goes_on`). A zone
//! where compaction could work now is *ready*: it is passed over and, before patch 10, ends
//! reclaim.
//!
//! A batch may be looked at a second time, and what is under writeback waited for: only if every
//! page of it that stays is just being written. A page that stays for another reason (it was used,
//! or is dirty and left to the flusher) is *plainly kept*, and ends both that and the going on.
//! Since 3.2 leaves dirty pages to the flusher, it is hardly ever done there but for pages on their
//! way to the swap file.
//!
//! Since then (`over_nodes_goes_on`, `is_ready_since`) a pass covers a node, no batch is waited
//! for, and a zone that a run could be taken from ends it as well as one that could be compacted.
//!
//! Source: mechanisms 2.5, 3.6, 3.7, 8.6; kernel-facts A5; Linux 3.2 mm/vmscan.c,
//! set_reclaim_mode(), should_reclaim_stall(), should_continue_reclaim(), shrink_zones(); Linux
//! 3.3, compaction_ready(); Linux 6.12 mm/vmscan.c, should_continue_reclaim(), compaction_ready().

use super::defer::Deferral;
use super::law::{Ready, Scans};
use super::suitable::{Aim, Standing, Suitable};
use policy::units::Pages;
use policy::watermark::Watermarks;

/// Orders up to this one are got by reclaim as single pages are (`PAGE_ALLOC_COSTLY_ORDER`), at the
/// size that is stood for.
pub const COSTLY: u8 = 3;

/// Less memory, and the kernel has no huge pages unless it is told to: 512 MiB.
const SMALL: Pages = Pages(512 << 8);

/// A zone that a task reclaims for a run in.
#[derive(Clone, Copy, Debug)]
pub struct RunZone<'a> {
    /// Its free pages, in all and by order.
    pub standing: &'a Standing,
    /// Its marks.
    pub marks: &'a Watermarks,
    /// Its pages in all.
    pub size: Pages,
    /// Pages on its inactive lists, as counted.
    pub inactive: Pages,
}

impl Scans {
    /// True if a zone is passed over, as compaction could work there now. Asking counts for its
    /// deferral.
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

/// The account of reclaim for a run when a pass over a zone ends.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Freed by the pass that has just ended.
    pub last: Pages,
    /// By all passes over the zone in this round, and how many they were.
    pub here: (Pages, u64),
    /// By the task's reclaim in all.
    pub all: Pages,
    /// A page of its last batch was plainly kept.
    pub plainly: bool,
    /// Pages that are looked at together.
    pub cluster: Pages,
    /// The memory of the machine, at the size that is stood for.
    pub memory: Pages,
}

/// True if a pass over a zone is begun again.
#[must_use]
pub fn goes_on(order: u8, zone: &RunZone<'_>, done: &Account) -> bool {
    if done.plainly || done.last.is_zero() || is_too_slow(order, done) {
        return false;
    }
    let wanted = Pages(2 << order);
    if done.all < wanted && zone.inactive > wanted {
        return true;
    }
    zone.standing.suitable(order, zone.marks) == Suitable::Skipped
}

/// On a small machine: as many passes as would have freed two runs, a cluster by each, and less
/// than that came of them.
///
/// Deviation: the kernel knows no such end, and needs none: a pass at the gentlest priority looks
/// at a 4096th of the lists, some clusters, and on a machine where that is a page or two there are
/// no huge pages (mm/huge_memory.c, hugepage_init()). Where one page comes of a pass, and its write
/// to the swap file is waited for, others allocate what comes free for as long as they like.
fn is_too_slow(order: u8, done: &Account) -> bool {
    let (freed, passes) = done.here;
    let by_clusters = Pages(passes * done.cluster.0);
    done.memory < SMALL && by_clusters >= Pages(2 << order) && freed < by_clusters
}

/// True if a pass over a node is begun again for a run (6.12 mm/vmscan.c,
/// should_continue_reclaim()): the last one freed something, `could_begin` in none of its zones,
/// and more is inactive than two runs.
#[must_use]
pub fn over_nodes_goes_on(order: u8, last: Pages, could_begin: bool, inactive: Pages) -> bool {
    !last.is_zero() && !could_begin && inactive > Pages(2 << order)
}

/// True if a zone has a run, or compaction could make one there.
#[must_use]
pub fn could_begin(order: u8, standing: &Standing, marks: &Watermarks) -> bool {
    Aim::AnyRun.suitable(standing, order, marks) != Suitable::Skipped
}

/// True if reclaim for a run passes over a zone: it has one, or compaction could work with enough
/// free for others to take some meanwhile (6.12 mm/vmscan.c, compaction_ready()).
#[must_use]
pub fn is_ready_since(order: u8, standing: &Standing, marks: &Watermarks) -> bool {
    match Aim::AnyRun.suitable(standing, order, marks) {
        Suitable::Partial => true,
        Suitable::Skipped => false,
        Suitable::Continue => standing.is_above(0, marks.high + Pages(2 << order), Pages::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::patches::Patches;

    #[test]
    fn over_nodes_it_goes_on_until_compaction_could_work_or_little_is_left() {
        let on = |last, free, inactive| {
            let could = could_begin(9, &standing(free), &MARKS);
            over_nodes_goes_on(9, Pages(last), could, Pages(inactive))
        };
        assert!(on(32, 100, 5_000));
        assert!(!on(0, 100, 5_000), "nothing came");
        assert!(!on(32, 100, 1_024), "two runs are not left");
        // LOW + 1024 + 2.
        assert!(on(32, 2_276, 5_000) && !on(32, 2_277, 5_000));
    }

    #[test]
    fn over_nodes_a_zone_is_ready_far_above_high_or_with_a_run() {
        let ready = |standing: &Standing| is_ready_since(9, standing, &MARKS);
        // HIGH + 1024 + 2.
        assert!(!ready(&standing(2_526)) && ready(&standing(2_527)));
        let mut one = standing(1_600);
        (one.blocks[0], one.blocks[9]) = (1_088, 1);
        assert!(ready(&one), "a run, and MIN beside it");
    }

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
        let done = |last, all, plainly| Account {
            last: Pages(last),
            here: (Pages(all), all / 32),
            all: Pages(all),
            plainly,
            cluster: Pages(32),
            memory: Pages(100_000),
        };
        let on = |last, all, plainly| goes_on(9, &zone, &done(last, all, plainly));
        assert!(on(32, 32, false));
        assert!(!on(32, 32, true), "plainly kept");
        assert!(!on(0, 900, false), "nothing came");
        assert!(on(32, 1_120, false), "compaction could not work yet");
        let many = standing(4_000);
        let ready = RunZone {
            standing: &many,
            ..zone
        };
        assert!(!goes_on(9, &ready, &done(32, 1_120, false)));
        assert!(goes_on(9, &ready, &done(32, 896, false)));
    }

    #[test]
    fn on_a_small_machine_passes_of_a_page_each_come_to_an_end() {
        let few = standing(100);
        let on_machine = |memory, freed, passes| {
            let done = Account {
                last: Pages(1),
                here: (Pages(freed), passes),
                all: Pages(freed),
                plainly: false,
                cluster: Pages(32),
                memory,
            };
            goes_on(9, &zone(&few), &done)
        };
        let on = |freed, passes| on_machine(Pages(100_000), freed, passes);
        assert!(on(31, 31));
        assert!(!on(32, 32), "a page by each of 32");
        assert!(!on(1_023, 32));
        assert!(on(1_024, 32), "a cluster by each");
        assert!(on_machine(SMALL, 32, 32), "the kernel's own way");
    }
}

//! Linux 3.0: each zone has lists of its own; dirty pages and those under writeback come round on
//! the inactive list, and the task that reclaims may write them.
//!
//! It stands for 2.6.36 to 3.0; 3.1 differs in what it does for runs of pages. Between those and
//! the later laws lie 3.2 (direct reclaim writes no files any more), 3.6 (the reserve), 3.11 (a
//! node is marked by what a pass met), 3.15 (pages that come back are known again), 4.8 (lists of a
//! node) and 4.11 (what waits for its write is out of the way).
//!
//! Sleeps: `congestion_wait` for too many isolated, and of the background between priorities;
//! `wait_iff_congested` of direct reclaim. Here no device says that it is congested. The queues of
//! 3.0 did, from 113 of 128 requests on, so that its sleeps could end early there,
//! `wait_iff_congested` was a sleep, and direct reclaim left pages of such a device alone; that is
//! left out.
//!
//! Source: mechanisms 2.1 to 2.6, 3.5, 3.6, 4.1, 5.1; kernel-facts 13; Linux 3.0 mm/vmscan.c:
//! shrink_page_list(), get_scan_count(), shrink_zone(), too_many_isolated(); mm/swap.c,
//! mark_page_accessed(); mm/memory.c, do_anonymous_page(); mm/page-writeback.c,
//! throttle_vm_writeout(), determine_dirtyable_memory().

use super::linux_5_15;
use policy::reclaim::Reason;
use policy::reclaim::page::{JudgeRule, Waits, Writers};
use policy::reclaim::scan::{CostRule, Feeds, ScanRule};
use policy::reclaim::throttle::law::{Facts, Finding, Sleep, ThrottleLaw, Who};
use policy::reclaim::{Isolation, Loops, ReclaimLaw, Rules};
use policy::ticks::TickRate;
use policy::units::Pages;
use policy::watermark::Watermarks;

/// Timeouts are `HZ / TENTH`.
const TENTH: u64 = 10;

/// Linux 3.0: zones, pages that wait for their write on the inactive list, reclaim that writes.
pub const LINUX_3_0: ReclaimLaw = ReclaimLaw::new(&RULES);

/// Pages on their way to a swap file whose queue is full: 128 requests, into which the I/O
/// scheduler merges neighbours up to 512 KiB. A task that finds it full waits, whatever it is: no
/// swap file ever says that it is congested.
///
/// # Source
/// Linux 3.0 include/linux/blkdev.h, BLKDEV_MAX_RQ, BLK_DEF_MAX_SECTORS; block/elevator.c,
/// elv_merge(); mm/swap_state.c, swap_backing_dev_info; mm/vmscan.c, pageout(). Deviation:
/// neighbours are taken to be merged in full, as slots are handed out one after the other.
const SWAP_QUEUE: Pages = Pages(128 * 128);

/// 3.1 and 3.2 differ from it in little.
pub(super) const RULES: Rules = Rules {
    name: "linux-3.0",
    page: PAGE,
    cost: CostRule::Rotations,
    scan: SCAN,
    loops: Loops::Zones,
    isolation: Isolation {
        leaves_off_at_an_eighth: false,
        repeats: true,
    },
    throttle: &Throttle,
    keeps_half_the_reserve: false,
    knows_again: false,
    activates_at_once: true,
    writes_are_uses: true,
    fresh_is_active: true,
    waits_for_writeout: true,
    anon_is_dirtyable: true,
    swap_queue: Some(SWAP_QUEUE),
    marks: Watermarks::of_zone_before_4_6,
    ..linux_5_15::RULES
};

/// Linux 3.0's table of pages.
pub(super) const PAGE: JudgeRule = JudgeRule {
    waits: Waits::Inactive,
    writers: Writers::All,
    marks: false,
    young_anon_is_active: true,
    ..linux_5_15::PAGE
};

/// Its passes over the lists.
pub(super) const SCAN: ScanRule = ScanRule {
    feeds: Feeds::ByZone,
    looks_each_turn: true,
    spares_anon: false,
    ends_in_proportion: false,
    scans_proportion: false,
    background_looks_at_least: true,
    told_every: None,
    spares_once: false,
};

struct Throttle;

impl ThrottleLaw for Throttle {
    /// Between priorities its reclaimers sleep without having found anything (`zoned`).
    fn reason_of(&self, finding: Finding) -> Option<Reason> {
        match finding {
            Finding::Isolated => Some(Reason::CongestionWait),
            Finding::Immediate | Finding::Congested | Finding::WritePending => None,
        }
    }

    fn sleep(&self, reason: Reason, _who: Who, _facts: &Facts, rate: TickRate) -> Sleep {
        let timeout = rate.second_over(TENTH);
        match reason {
            Reason::CongestionWait => Sleep::For(timeout),
            Reason::WaitIffCongested => Sleep::Traced(timeout),
            Reason::Isolated
            | Reason::Writeback
            | Reason::NoProgress
            | Reason::Congested
            | Reason::Turn => Sleep::Go,
        }
    }
}

//! Linux 5.15: sleep until a device is congested no more. No device of several queues ever says
//! that it is, so `congestion_wait` always lasts its whole timeout and `wait_iff_congested` never
//! sleeps. That is all that is here: what 5.15 does for a device that does say so is left out.
//!
//! Nobody is exempt: 5.15 asks for that (`PF_LOCAL_THROTTLE`) in one place only, where it does not
//! sleep in any case.
//!
//! Source: mechanisms 4.1; Linux 5.15 mm/backing-dev.c: congestion_wait(), wait_iff_congested();
//! mm/vmscan.c: shrink_node(), shrink_inactive_list(); mm/page_alloc.c: should_reclaim_retry().

use policy::reclaim::Reason;
use policy::reclaim::page::{JudgeRule, Waits, Writers};
use policy::reclaim::scan::{CostRule, Feeds, ScanRule};
use policy::reclaim::throttle::law::{Facts, Finding, Sleep, ThrottleLaw, Who};
use policy::reclaim::{Admission, Isolation, Loops, Plenty, ReclaimLaw, Rules};
use policy::ticks::{TickRate, Ticks};
use policy::units::Pages;
use policy::watermark::Watermarks;

/// Timeouts are `HZ / TENTH`.
const TENTH: u64 = 10;

/// Linux 5.15: `congestion_wait`, `wait_iff_congested` (mechanisms 4.1).
pub const LINUX_5_15: ReclaimLaw = ReclaimLaw::new(&RULES);

/// The other laws of Linux differ from it in name and throttling.
pub(super) const RULES: Rules = Rules {
    name: "congestion_wait",
    generations: false,
    walks_tables: false,
    page: PAGE,
    cost: CostRule::WritesOnly,
    scan: SCAN,
    loops: Loops::Nodes,
    isolation: ISOLATION,
    plenty: Plenty::Any,
    throttle: &Throttle,
    admission: Admission::Direct,
    keeps_half_the_reserve: true,
    knows_again: true,
    activates_at_once: false,
    writes_are_uses: false,
    ageing_forgets_uses: false,
    fresh_is_active: false,
    waits_for_writeout: false,
    fault_around: 1,
    files_least: |_| Pages::ZERO,
    anon_is_dirtyable: false,
    heeds_within_fs: true,
    swap_queue: None,
    marks: Watermarks::of_zone,
};

/// Linux 5.15's table of pages.
pub(super) const PAGE: JudgeRule = JudgeRule {
    dirty_needs_a_page: false,
    waits: Waits::Active,
    writers: Writers::Background,
    marks: true,
    young_anon_is_active: false,
    ends_second_chances: false,
    empties_full_swap: false,
    reads_on: false,
    writes_files: true,
};

/// Linux 5.15's passes over the lists. Ours does the same.
pub(super) const SCAN: ScanRule = ScanRule {
    feeds: Feeds::ByLists,
    looks_each_turn: false,
    spares_anon: true,
    ends_in_proportion: true,
    scans_proportion: true,
    background_looks_at_least: false,
    told_every: None,
    spares_once: false,
};

/// Its bound on isolated pages. Ours does the same.
pub(super) const ISOLATION: Isolation = Isolation {
    leaves_off_at_an_eighth: true,
    repeats: false,
};

/// Shared with the law that differs from this one in WRITEBACK alone.
pub(super) struct Throttle;

impl ThrottleLaw for Throttle {
    fn reason_of(&self, finding: Finding) -> Option<Reason> {
        Some(match finding {
            Finding::Immediate | Finding::WritePending => Reason::CongestionWait,
            Finding::Congested => Reason::WaitIffCongested,
            Finding::Isolated => Reason::Isolated,
        })
    }

    fn sleep(&self, reason: Reason, _who: Who, _facts: &Facts, rate: TickRate) -> Sleep {
        let timeout = rate.second_over(TENTH);
        match reason {
            Reason::CongestionWait | Reason::Isolated => Sleep::For(timeout),
            Reason::WaitIffCongested => Sleep::Traced(timeout),
            Reason::Writeback | Reason::NoProgress | Reason::Congested | Reason::Turn => Sleep::Go,
        }
    }

    /// `msleep`, used for too many isolated, adds a tick.
    fn rounding(&self, reason: Reason) -> Ticks {
        Ticks(u64::from(reason == Reason::Isolated))
    }
}

//! Tidegate: an event wakes as many as it can serve. Tasks that found memory short do not sleep
//! here but wait for a turn (`turn`), so NOPROGRESS and CONGESTED do not exist. The background
//! reclaimer is left, and the few tasks that reclaim for themselves because it got nowhere.
//!
//! Source: mechanisms 4.7, last item (wake by ticket); docs/adr/0014.

use super::law::{Admission, Isolation, Loops, Plenty, ReclaimLaw, Rules};
use super::page::{JudgeRule, Waits, Writers};
use super::reason::Reason;
use super::scan::{CLUSTER, CostRule, Feeds, ScanRule};
use super::throttle::law::{
    Facts, Finding, PAGES_PER_SLEEPER, Sleep, ThrottleLaw, Wake, Who, Writeback,
};
use super::tunables::FRESH;
use crate::ticks::TickRate;
use crate::units::Pages;
use crate::watermark::Watermarks;

/// This part of the memory counts as dirtyable in any case. At the usual limit of 20 % a per mille
/// or two of it may be dirty then, less than the marks keep free.
const FILES_PART: u64 = 128;
/// A small memory has at least this much dirtyable, so that a write of some hundred KiB needs no
/// pause for every page of it.
const FILES_LEAST: Pages = Pages(512);
/// A small memory never has more than this part of it dirtyable by `FILES_LEAST`.
const FILES_PART_MOST: u64 = 16;
/// Fresh pages that a fault brings at most, where there is memory: 256 KiB. By 64 a page costs a
/// tenth less than by 16 (`cargo bench -p tidegate --bench round`), by 512 no less.
const FAULT_AROUND: u32 = 64;
const _: () = assert!(FRESH <= FAULT_AROUND);

impl ReclaimLaw {
    /// Tidegate's own: waiters ranked by net growth, as many woken as the event can serve, every
    /// wait bounded.
    pub const TIDEGATE: Self = Self::new(&RULES);
}

const RULES: Rules = Rules {
    name: "tidegate",
    page: PAGE,
    cost: CostRule::WritesAndFailures,
    plenty: Plenty::Target,
    throttle: &Throttle,
    admission: Admission::Queue,
    ageing_forgets_uses: true,
    fault_around: FAULT_AROUND,
    files_least,
    heeds_within_fs: false,
    // Passes go over the lists, and count, as in Linux 5.15.
    generations: false,
    walks_tables: false,
    scan: ScanRule {
        feeds: Feeds::ByLists,
        looks_each_turn: false,
        spares_anon: true,
        ends_in_proportion: true,
        scans_proportion: true,
        background_looks_at_least: false,
        told_every: None,
        spares_once: false,
    },
    loops: Loops::Nodes,
    isolation: Isolation {
        leaves_off_at_an_eighth: true,
        repeats: false,
    },
    keeps_half_the_reserve: true,
    knows_again: true,
    activates_at_once: false,
    writes_are_uses: false,
    fresh_is_active: false,
    waits_for_writeout: false,
    anon_is_dirtyable: false,
    swap_queue: None,
    marks: Watermarks::of_zone,
};

/// A sleep for WRITEBACK lasts at most `HZ / WRITEBACK`.
const WRITEBACK: u64 = 10;
/// One for ISOLATED at most `HZ / ISOLATED`.
const ISOLATED: u64 = 50;

/// Linux 6.12's table with 6.18's flag, and what waits for its write out of the way.
const PAGE: JudgeRule = JudgeRule {
    dirty_needs_a_page: true,
    waits: Waits::Aside,
    writers: Writers::Background,
    marks: true,
    young_anon_is_active: false,
    ends_second_chances: true,
    empties_full_swap: true,
    reads_on: true,
    writes_files: true,
};

/// Anonymous memory that takes all there is would else take the writers' right to dirty a page with
/// it, and each of their pages would wait for the one before it to be written.
fn files_least(memory: Pages) -> Pages {
    Pages(memory.0 / FILES_PART)
        .at_least(FILES_LEAST)
        .at_most(Pages(memory.0 / FILES_PART_MOST))
}

struct Throttle;

impl ThrottleLaw for Throttle {
    fn reason_of(&self, finding: Finding) -> Option<Reason> {
        match finding {
            Finding::Immediate | Finding::Congested | Finding::WritePending => {
                Some(Reason::Writeback)
            }
            Finding::Isolated => Some(Reason::Isolated),
        }
    }

    fn sleep(&self, reason: Reason, who: Who, _facts: &Facts, rate: TickRate) -> Sleep {
        // A flusher, or a thread of I/O, that reclaims for itself.
        if who.exempt && !who.background {
            return Sleep::Go;
        }
        match reason {
            Reason::Writeback => Sleep::For(rate.second_over(WRITEBACK)),
            Reason::Isolated => Sleep::For(rate.second_over(ISOLATED)),
            Reason::NoProgress
            | Reason::Congested
            | Reason::CongestionWait
            | Reason::WaitIffCongested
            | Reason::Turn => Sleep::Go,
        }
    }

    /// Linux does not look whether anything is left whose end could wake the sleeper.
    fn ends_without_writes(&self, reason: Reason) -> bool {
        reason == Reason::Writeback
    }

    /// One sleeper for each 32 pages; pages written beyond that count for the next. All of them if
    /// nothing more is under way: no write will end their sleep.
    fn wake_for_written(&self, writeback: &mut Writeback, last: bool) -> Wake {
        if last {
            writeback.mark = writeback.written;
            return Wake::All;
        }
        let served = writeback.since_mark() / PAGES_PER_SLEEPER;
        if served == 0 {
            return Wake::None;
        }
        writeback.mark += served * PAGES_PER_SLEEPER;
        Wake::Some(u32::try_from(served).unwrap_or(u32::MAX))
    }

    /// One sleeper for each cluster that may still be isolated.
    fn wake_for_room(&self, room: Pages) -> Wake {
        match u32::try_from(room.0 / CLUSTER.0).unwrap_or(u32::MAX) {
            0 => Wake::None,
            count => Wake::Some(count),
        }
    }
}

//! Linux 5.16 final and later: without progress, or where all is congested, a reclaimer sleeps for
//! one tick, and only as long as writing can be hoped to help.
//!
//! Source: mechanisms 4.3 to 4.5; commit 1b4e3f26f9f7; Linux 6.12 mm/vmscan.c: reclaim_throttle(),
//! skip_throttle_noprogress(), consider_reclaim_throttle(). Of the latter two the comment beside
//! the code says the opposite of the code; this is the code.

use super::linux_5_15;
use super::linux_5_16_rc1::{ISOLATED, WRITEBACK, is_efficient, is_exempt, wake_for_written};
use policy::reclaim::Reason;
use policy::reclaim::scan::Priority;
use policy::reclaim::throttle::law::{
    After, Facts, Finding, Progress, Sleep, ThrottleLaw, Wake, Who, Writeback,
};
use policy::reclaim::{ReclaimLaw, Rules};
use policy::ticks::{TickRate, Ticks};
use policy::units::Pages;

/// NOPROGRESS and CONGESTED.
const ONE: Ticks = Ticks(1);
/// NOPROGRESS at this priority alone, the last but one.
const LATE: Priority = Priority(1);

/// Linux 5.16: NOPROGRESS and CONGESTED last a tick, and are skipped near out-of-memory.
pub const LINUX_5_16: ReclaimLaw = ReclaimLaw::new(&RULES);

/// The rules that 6.12 shares with it.
pub(super) const RULES: Rules = Rules {
    name: "linux-5.16",
    throttle: &Throttle,
    ..linux_5_15::RULES
};

struct Throttle;

impl ThrottleLaw for Throttle {
    fn reason_of(&self, finding: Finding) -> Option<Reason> {
        match finding {
            Finding::Immediate => Some(Reason::Writeback),
            Finding::Congested => Some(Reason::Congested),
            Finding::Isolated => Some(Reason::Isolated),
            Finding::WritePending => None,
        }
    }

    fn sleep(&self, reason: Reason, who: Who, facts: &Facts, rate: TickRate) -> Sleep {
        if is_exempt(who) {
            return Sleep::Yield;
        }
        match reason {
            Reason::Writeback => Sleep::For(rate.second_over(WRITEBACK)),
            Reason::Isolated => Sleep::For(rate.second_over(ISOLATED)),
            Reason::NoProgress | Reason::Congested if is_skipped(facts) => Sleep::Yield,
            Reason::NoProgress | Reason::Congested => Sleep::For(ONE),
            Reason::CongestionWait | Reason::WaitIffCongested | Reason::Turn => Sleep::Go,
        }
    }

    fn wake_for_written(&self, writeback: &mut Writeback, _last: bool) -> Wake {
        wake_for_written(writeback)
    }

    fn wake_for_room(&self, _room: Pages) -> Wake {
        Wake::All
    }

    fn after_nodes(&self, progress: &Progress) -> After {
        if is_efficient(progress) {
            return After {
                wake: Wake::All,
                throttle: None,
            };
        }
        let sleeps =
            !progress.background && progress.priority == LATE && progress.reclaimed.is_zero();
        After {
            wake: Wake::None,
            throttle: sleeps.then_some(Reason::NoProgress),
        }
    }
}

/// Near the end of memory no delay is added, nor where at most half waits to be written.
fn is_skipped(facts: &Facts) -> bool {
    facts.hopeless || Pages(facts.write_pending.0.saturating_mul(2)) <= facts.reclaimable
}

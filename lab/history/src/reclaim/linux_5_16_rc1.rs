//! Linux 5.16-rc1, the whole of p0's series: three reasons, each with its timeout and its event.
//!
//! A reclaimer that frees more than an eighth of what it scans wakes those without progress. Any
//! other joins them below priority 10, even if it freed something, at each node and each priority.
//!
//! Source: mechanisms 4.3 to 4.5; paper p0; commits 8cd7c588decf, d818fca1cac3, 69392a403f49,
//! c3f4a9a2b082, a19594ca4a8b, 66ce520bb7c2 of mm/vmscan.c: reclaim_throttle(),
//! consider_reclaim_throttle().

use super::linux_5_15;
use policy::reclaim::Reason;
use policy::reclaim::scan::Priority;
use policy::reclaim::throttle::law::{
    After, Facts, Finding, PAGES_PER_SLEEPER, Progress, Sleep, ThrottleLaw, Wake, Who, Writeback,
};
use policy::reclaim::{ReclaimLaw, Rules};
use policy::ticks::TickRate;
use policy::units::Pages;

/// WRITEBACK: `HZ / 10`; in the later variants too, as is the next.
pub(super) const WRITEBACK: u64 = 10;
/// ISOLATED: `HZ / 50`.
pub(super) const ISOLATED: u64 = 50;
/// NOPROGRESS: `HZ / 2`.
const NO_PROGRESS: u64 = 2;
/// NOPROGRESS only below this priority.
const PATIENT: Priority = Priority(10);
/// Enough was reclaimed if it is more than the scanned pages over this.
const EFFICIENT: u64 = 8;

/// Linux 5.16-rc1, the paper's series: WRITEBACK 100 ms, ISOLATED 20 ms, NOPROGRESS 500 ms.
pub const LINUX_5_16_RC1: ReclaimLaw = ReclaimLaw::new(&RULES);

const RULES: Rules = Rules {
    name: "reasons",
    throttle: &Throttle,
    ..linux_5_15::RULES
};

struct Throttle;

impl ThrottleLaw for Throttle {
    fn reason_of(&self, finding: Finding) -> Option<Reason> {
        match finding {
            Finding::Immediate | Finding::Congested => Some(Reason::Writeback),
            Finding::Isolated => Some(Reason::Isolated),
            Finding::WritePending => None,
        }
    }

    fn sleep(&self, reason: Reason, who: Who, _facts: &Facts, rate: TickRate) -> Sleep {
        if is_exempt(who) {
            return Sleep::Go;
        }
        match reason {
            Reason::Writeback => Sleep::For(rate.second_over(WRITEBACK)),
            Reason::Isolated => Sleep::For(rate.second_over(ISOLATED)),
            Reason::NoProgress => Sleep::For(rate.second_over(NO_PROGRESS)),
            Reason::Congested
            | Reason::CongestionWait
            | Reason::WaitIffCongested
            | Reason::Turn => Sleep::Go,
        }
    }

    fn wake_for_written(&self, writeback: &mut Writeback, _last: bool) -> Wake {
        wake_for_written(writeback)
    }

    fn wake_for_room(&self, _room: Pages) -> Wake {
        Wake::All
    }

    fn after_node(&self, progress: &Progress) -> After {
        if is_efficient(progress) {
            return After {
                wake: Wake::All,
                throttle: None,
            };
        }
        let sleeps = !progress.background && progress.priority < PATIENT;
        After {
            wake: Wake::None,
            throttle: sleeps.then_some(Reason::NoProgress),
        }
    }
}

/// Others need it to get on; the background reclaimer is a thread of the kernel, but not such a
/// one.
pub(super) fn is_exempt(who: Who) -> bool {
    who.exempt && !who.background
}

/// All, once 32 pages have been written for each; and again at every page until all have left.
pub(super) fn wake_for_written(writeback: &Writeback) -> Wake {
    if writeback.since_mark() > PAGES_PER_SLEEPER * u64::from(writeback.sleepers) {
        Wake::All
    } else {
        Wake::None
    }
}

pub(super) fn is_efficient(progress: &Progress) -> bool {
    progress.reclaimed > Pages(progress.scanned.0 / EFFICIENT)
}

//! Linux 5.16 final to 6.12: without progress, or where all is congested, a reclaimer sleeps for one
//! tick, and only as long as writing can be hoped to help.
//!
//! Source: mechanisms 4.3 to 4.5; commit 1b4e3f26f9f7; Linux 6.12 mm/vmscan.c: reclaim_throttle(),
//! skip_throttle_noprogress(), consider_reclaim_throttle(). Of the latter two the comment beside
//! the code says the opposite of the code; this is the code.

use super::super::Reason;
use super::super::scan::Priority;
use super::reasons::{ISOLATED, WRITEBACK, is_efficient, is_exempt};
use super::{After, Facts, Finding, Progress, Stay, Wake, Who};
use crate::ticks::{TickRate, Ticks};
use crate::units::Pages;

/// NOPROGRESS and CONGESTED.
const ONE: Ticks = Ticks(1);
/// NOPROGRESS at this priority alone, the last but one.
const LATE: Priority = Priority(1);

pub(super) fn reason_of(finding: Finding) -> Option<Reason> {
    match finding {
        Finding::Immediate => Some(Reason::Writeback),
        Finding::Congested => Some(Reason::Congested),
        Finding::Isolated => Some(Reason::Isolated),
        Finding::WritePending => None,
    }
}

pub(super) fn stay(reason: Reason, who: Who, facts: &Facts, rate: TickRate) -> Stay {
    if is_exempt(who) {
        return Stay::Yield;
    }
    match reason {
        Reason::Writeback => Stay::Sleep(rate.second_over(WRITEBACK)),
        Reason::Isolated => Stay::Sleep(rate.second_over(ISOLATED)),
        Reason::NoProgress | Reason::Congested if is_skipped(facts) => Stay::Yield,
        Reason::NoProgress | Reason::Congested => Stay::Sleep(ONE),
        Reason::CongestionWait | Reason::WaitIffCongested | Reason::Turn => Stay::Go,
    }
}

pub(super) fn after_nodes(progress: &Progress) -> After {
    if is_efficient(progress) {
        return After {
            wake: Wake::All,
            throttle: None,
        };
    }
    let sleeps = !progress.background && progress.priority == LATE && progress.reclaimed.is_zero();
    After {
        wake: Wake::None,
        throttle: sleeps.then_some(Reason::NoProgress),
    }
}

/// Near the end of memory no delay is added, nor where at most half waits to be written.
fn is_skipped(facts: &Facts) -> bool {
    facts.hopeless || Pages(facts.write_pending.0.saturating_mul(2)) <= facts.reclaimable
}

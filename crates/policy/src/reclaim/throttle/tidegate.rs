//! Tidegate: an event wakes as many as it can serve. Those who found memory short do not sleep here but
//! wait for a turn (`turn`), so NOPROGRESS and CONGESTED do not exist; what is left is the background
//! reclaimer, and the few who reclaim themselves because it got nowhere.
//!
//! Source: mechanisms 4.7, last item (wake by ticket); docs/adr/0014.

use super::super::Reason;
use super::super::scan::CLUSTER;
use super::reasons::{ISOLATED, WRITEBACK, is_exempt};
use super::{Finding, PAGES_PER_SLEEPER, Stay, Wake, Who, Writeback};
use crate::ticks::TickRate;
use crate::units::Pages;

pub(super) fn reason_of(finding: Finding) -> Option<Reason> {
    match finding {
        Finding::Immediate | Finding::Congested | Finding::WritePending => Some(Reason::Writeback),
        Finding::Isolated => Some(Reason::Isolated),
    }
}

pub(super) fn stay(reason: Reason, who: Who, rate: TickRate) -> Stay {
    if is_exempt(who) {
        return Stay::Go;
    }
    match reason {
        Reason::Writeback => Stay::Sleep(rate.second_over(WRITEBACK)),
        Reason::Isolated => Stay::Sleep(rate.second_over(ISOLATED)),
        Reason::NoProgress
        | Reason::Congested
        | Reason::CongestionWait
        | Reason::WaitIffCongested
        | Reason::Turn => Stay::Go,
    }
}

/// One sleeper for each 32 pages; what was written beyond that counts for the next. All of them if nothing more is under
/// way: no write will end their sleep.
pub(super) fn wake_for_written(writeback: &mut Writeback, last: bool) -> Wake {
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
pub(super) fn wake_for_room(room: Pages) -> Wake {
    match u32::try_from(room.0 / CLUSTER.0).unwrap_or(u32::MAX) {
        0 => Wake::None,
        count => Wake::Some(count),
    }
}

//! Linux 5.15: sleep until a device is congested no more. No device of several queues ever is, so
//! `congestion_wait` always lasts its whole timeout and `wait_iff_congested` never sleeps.
//!
//! Nobody is exempt: 5.15 asks for that (`PF_LOCAL_THROTTLE`) in one place only, where it does not
//! sleep in any case.
//!
//! Source: mechanisms 4.1; Linux 5.15 mm/backing-dev.c: congestion_wait(), wait_iff_congested();
//! mm/vmscan.c: shrink_node(), shrink_inactive_list(); mm/page_alloc.c: should_reclaim_retry().

use super::super::Reason;
use super::{Facts, Finding, Stay};
use crate::ticks::TickRate;

/// Timeouts are `HZ / TENTH`.
const TENTH: u64 = 10;

pub(super) fn reason_of(finding: Finding) -> Option<Reason> {
    Some(match finding {
        Finding::Immediate | Finding::WritePending => Reason::CongestionWait,
        Finding::Congested => Reason::WaitIffCongested,
        Finding::Isolated => Reason::Isolated,
    })
}

pub(super) fn stay(reason: Reason, facts: &Facts, rate: TickRate) -> Stay {
    let timeout = rate.second_over(TENTH);
    match reason {
        Reason::CongestionWait | Reason::Isolated => Stay::Sleep(timeout),
        Reason::WaitIffCongested if facts.device_congested => Stay::Sleep(timeout),
        Reason::WaitIffCongested => Stay::Look(timeout),
        Reason::Writeback | Reason::NoProgress | Reason::Congested | Reason::Turn => Stay::Go,
    }
}

//! Linux 5.15 and the first patch of p0's series alone: what the scan slept for in `congestion_wait` and
//! `wait_iff_congested` is WRITEBACK, with a wake after 32 pages written a sleeper. The rest is 5.15's: the
//! allocator's `congestion_wait`, the sleep of 100 ms for too many isolated.
//!
//! The patch counts every sleeper of its function; as WRITEBACK is the only reason it has, that is those
//! of `Writeback`.
//!
//! Source: mechanisms 4.3, last paragraph; paper p0, the diff (commit 8cd7c588decf) of mm/vmscan.c.

use super::super::Reason;
use super::{Facts, Finding, Stay, Who, congestion_wait};
use crate::ticks::TickRate;

/// The timeout is `HZ / TENTH`, an argument of the caller.
const TENTH: u64 = 10;

pub(super) fn reason_of(finding: Finding) -> Option<Reason> {
    match finding {
        Finding::Immediate | Finding::Congested => Some(Reason::Writeback),
        Finding::Isolated | Finding::WritePending => congestion_wait::reason_of(finding),
    }
}

pub(super) fn stay(reason: Reason, who: Who, facts: &Facts, rate: TickRate) -> Stay {
    if reason != Reason::Writeback {
        return congestion_wait::stay(reason, facts, rate);
    }
    if who.exempt && !who.background {
        return Stay::Go;
    }
    Stay::Sleep(rate.second_over(TENTH))
}

//! Linux 5.15 and the first patch of p0's series alone: what the scan slept for in
//! `congestion_wait` and `wait_iff_congested` is WRITEBACK, with a wake after 32 pages written a
//! sleeper. The rest is 5.15's: the allocator's `congestion_wait`, the sleep of 100 ms for too many
//! isolated.
//!
//! The patch counts every sleeper of its function; as WRITEBACK is the only reason it has, that is
//! those of `Writeback`.
//!
//! Source: mechanisms 4.3, last paragraph; paper p0, the diff (commit 8cd7c588decf) of mm/vmscan.c.

use super::{linux_5_15, linux_5_16_rc1};
use policy::reclaim::Reason;
use policy::reclaim::throttle::law::{Facts, Finding, Sleep, ThrottleLaw, Wake, Who, Writeback};
use policy::reclaim::{ReclaimLaw, Rules};
use policy::ticks::{TickRate, Ticks};

/// The timeout is `HZ / TENTH`, an argument of the caller.
const TENTH: u64 = 10;

/// Linux 5.15 and p0's own diff alone: WRITEBACK only, every sleep counted (mechanisms 4.3,
/// last paragraph).
pub const LINUX_5_15_PATCH1: ReclaimLaw = ReclaimLaw::new(&RULES);

const RULES: Rules = Rules {
    name: "writeback_only",
    throttle: &Throttle,
    ..linux_5_15::RULES
};

struct Throttle;

impl ThrottleLaw for Throttle {
    fn reason_of(&self, finding: Finding) -> Option<Reason> {
        match finding {
            Finding::Immediate | Finding::Congested => Some(Reason::Writeback),
            Finding::Isolated | Finding::WritePending => linux_5_15::Throttle.reason_of(finding),
        }
    }

    fn sleep(&self, reason: Reason, who: Who, facts: &Facts, rate: TickRate) -> Sleep {
        if reason != Reason::Writeback {
            return linux_5_15::Throttle.sleep(reason, who, facts, rate);
        }
        if linux_5_16_rc1::is_exempt(who) {
            return Sleep::Go;
        }
        Sleep::For(rate.second_over(TENTH))
    }

    fn rounding(&self, reason: Reason) -> Ticks {
        linux_5_15::Throttle.rounding(reason)
    }

    fn wake_for_written(&self, writeback: &mut Writeback, _last: bool) -> Wake {
        linux_5_16_rc1::wake_for_written(writeback)
    }
}

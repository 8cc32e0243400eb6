//! The sleeps of tasks in reclaim, by reason and by how they ended: a share is of those of one
//! reason.

use policy::reclaim::Reason;

use crate::outcome::{Outcome, ThrottleCount};

/// The tasks whose throttlings count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Sleeps of tasks that need memory.
    Direct,
    /// Sleeps of the background reclaimer.
    Background,
    /// All.
    Any,
}

impl Who {
    /// True if this one is theirs.
    #[must_use]
    pub fn is(self, throttle: &ThrottleCount) -> bool {
        match self {
            Self::Direct => !throttle.background,
            Self::Background => throttle.background,
            Self::Any => true,
        }
    }
}

/// It did not sleep a tick.
#[must_use]
pub fn is_zero(throttle: &ThrottleCount) -> bool {
    throttle.delayed_ms <= 0.0
}

/// It slept as long as it may, or longer.
#[must_use]
pub fn is_timeout(throttle: &ThrottleCount) -> bool {
    throttle.timeout_ms > 0.0 && throttle.delayed_ms >= throttle.timeout_ms
}

/// The throttlings of one reason.
pub fn of_reason(
    outcome: &Outcome,
    who: Who,
    reason: Reason,
) -> impl Iterator<Item = &ThrottleCount> {
    let all = outcome.throttles.iter();
    all.filter(move |throttle| throttle.reason == reason && who.is(throttle))
}

/// A count as a number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of throttlings are below 2^53"
)]
#[must_use]
pub fn real(count: u64) -> f64 {
    count as f64
}

//! The sums of `Event::Throttled`: the histograms that p0 publishes.

use std::collections::BTreeMap;

use ::env::{Event, Wakeup};
use policy::reclaim::Reason;
use policy::units::Nanos;

use crate::record::Recorded;

/// All events of one reason, of tasks or of the background reclaimer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttles {
    /// Number of events.
    pub events: u64,
    /// Of these, with no delay, whether or not they slept.
    pub zero: u64,
    /// With a delay of the timeout or more.
    pub full: u64,
    /// Sleeps that were woken by an event.
    pub woken: u64,
    /// Sleeps that were not.
    pub timed_out: u64,
    /// Delays in all.
    pub delayed: Nanos,
    /// Number of times that each delay occurred.
    pub delays: BTreeMap<Nanos, u64>,
}

impl Throttles {
    /// With a delay, and less than the timeout.
    #[must_use]
    pub const fn partial(&self) -> u64 {
        self.events - self.zero - self.full
    }

    /// The delay that `per_mille` of a thousand events do not exceed; zero without events.
    #[must_use]
    pub fn at(&self, per_mille: u64) -> Nanos {
        let mut left = (self.events * per_mille).div_ceil(1000).max(1);
        for (delay, events) in &self.delays {
            if *events >= left {
                return *delay;
            }
            left -= events;
        }
        Nanos::ZERO
    }
}

/// Sums up the `Event::Throttled` among `events`, by (background, reason).
#[must_use]
pub fn throttles<'a>(
    events: impl IntoIterator<Item = &'a Recorded>,
) -> BTreeMap<(bool, Reason), Throttles> {
    let mut sums: BTreeMap<_, Throttles> = BTreeMap::new();
    for recorded in events {
        let Event::Throttled {
            background,
            reason,
            timeout,
            delayed,
            wakeup,
        } = &recorded.event
        else {
            continue;
        };
        let sum = sums.entry((*background, *reason)).or_default();
        sum.events += 1;
        sum.delayed += *delayed;
        *sum.delays.entry(*delayed).or_default() += 1;
        if delayed.is_zero() {
            sum.zero += 1;
        } else if delayed >= timeout {
            sum.full += 1;
        }
        match wakeup {
            Some(Wakeup::Ready(_)) => sum.woken += 1,
            Some(Wakeup::TimedOut) => sum.timed_out += 1,
            Some(Wakeup::Cancelled | Wakeup::Refused) | None => {}
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::env::{Signal, TaskId};
    use policy::units::Instant;

    #[test]
    fn events_are_summed_by_reason_and_kind_of_reclaimer() {
        let event = |background, reason, delayed, wakeup| Recorded {
            at: Instant(1),
            task: TaskId(2),
            event: Event::Throttled {
                background,
                reason,
                timeout: Nanos::millis(100),
                delayed: Nanos::millis(delayed),
                wakeup,
            },
        };
        let events = [
            event(false, Reason::Writeback, 0, None),
            event(
                false,
                Reason::Writeback,
                4,
                Some(Wakeup::Ready(Signal::WrittenEnough)),
            ),
            event(false, Reason::Writeback, 100, Some(Wakeup::TimedOut)),
            event(false, Reason::Writeback, 108, Some(Wakeup::TimedOut)),
            event(
                true,
                Reason::Writeback,
                8,
                Some(Wakeup::Ready(Signal::WrittenEnough)),
            ),
            Recorded {
                at: Instant(3),
                task: TaskId(2),
                event: Event::DirectReclaim,
            },
        ];
        let sums = throttles(&events);
        assert_eq!(sums.len(), 2);
        let direct = &sums[&(false, Reason::Writeback)];
        let counts = (direct.events, direct.zero, direct.partial(), direct.full);
        assert_eq!(counts, (4, 1, 1, 2));
        assert_eq!((direct.woken, direct.timed_out), (1, 2));
        assert_eq!(direct.delayed, Nanos::millis(212));
        assert_eq!(
            [direct.at(500), direct.at(750), direct.at(1000)],
            [4, 100, 108].map(Nanos::millis)
        );
        assert_eq!(sums[&(true, Reason::Writeback)].partial(), 1);
    }
}

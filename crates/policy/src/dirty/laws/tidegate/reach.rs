//! Whether a device does more if more is under way.
//!
//! Writeback in flight is bounded by time, so that a read need not wait long. A near device works as
//! fast with 40 ms of work in its queue as with a second's. A far one does not: a file server commits
//! what it has been sent in one go, an object store answers after a tenth of a second however
//! little it was asked for. Its rate is then what the bound makes of it. This finds out by trying:
//!
//! ```text
//!   work ... | twice the flight, for TRIAL | rate at least 1/8 higher?  stay, try twice that at once
//!                                            no?                        back, try again much later
//! ```
//!
//! and, from time to time, whether half would do as well.
//!
//! Invariants
//!   1. The flight is 1, 2, 4 .. 2^`DOUBLINGS_MAX` times the usual one.
//!   2. A trial that gains nothing is repeated after twice the time, at most `REST_MAX` of work.
//!
//! Source: Tidegate's own; the idea of probing for bandwidth is that of BBR (Cardwell and others,
//! ACM Queue 14-5, 2016).

use super::work::Work;
use crate::units::{Nanos, PagesPerSec};

/// The flight is doubled this often at most.
const DOUBLINGS_MAX: u32 = 4;
/// Work that a trial measures.
const TRIAL: Nanos = Nanos::millis(300);
/// Work before the first trial, after one that gained nothing, and at most.
const REST_FIRST: Nanos = Nanos::millis(500);
const REST: Nanos = Nanos::secs(16);
const REST_MAX: Nanos = Nanos::secs(128);
/// A doubling must gain one part in this; a halving may lose half of that.
const GAIN: u64 = 8;

/// One device's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    doublings: u32,
    trial: Option<Trial>,
    /// Work until the next trial, and after the next one that gains nothing.
    rest: Nanos,
    next_rest: Nanos,
    /// The next trial is one of less, if there is less.
    try_less: bool,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    less: bool,
    /// What the device did before.
    before: PagesPerSec,
    /// The lap in which the flight changed is over.
    settled: bool,
    done: Work,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            doublings: 0,
            trial: None,
            rest: REST_FIRST,
            next_rest: REST,
            try_less: false,
        }
    }
}

impl Reach {
    /// How often the usual flight is doubled.
    pub(super) const fn doublings(&self) -> u32 {
        self.doublings
    }

    /// A lap is over. `rate`: what the device did until then.
    pub(super) fn on_lap(&mut self, lap: &Work, rate: PagesPerSec) {
        let Some(trial) = self.trial.as_mut() else {
            self.rest = self.rest.saturating_sub(lap.time());
            if self.rest.is_zero() {
                self.begin(rate);
            }
            return;
        };
        if !trial.settled {
            trial.settled = true;
            return;
        }
        trial.done = trial.done.and(lap);
        if trial.done.time() >= TRIAL {
            let trial = *trial;
            self.judge(&trial);
        }
    }

    fn begin(&mut self, rate: PagesPerSec) {
        let less = self.try_less && self.doublings > 0;
        if !less && self.doublings == DOUBLINGS_MAX {
            self.try_less = true;
            self.rest = self.next_rest;
            return;
        }
        self.doublings = if less {
            self.doublings - 1
        } else {
            self.doublings + 1
        };
        self.trial = Some(Trial {
            less,
            before: rate,
            settled: false,
            done: Work::default(),
        });
    }

    fn judge(&mut self, trial: &Trial) {
        let (before, now) = (trial.before.0, trial.done.rate().0);
        self.trial = None;
        let kept = if trial.less {
            now >= before - before / (2 * GAIN)
        } else {
            now >= before.saturating_add(before / GAIN)
        };
        if kept {
            // The same way again, at once.
            self.rest = Nanos::ZERO;
            self.next_rest = REST;
            self.try_less = trial.less;
        } else {
            self.doublings = if trial.less {
                self.doublings + 1
            } else {
                self.doublings - 1
            };
            self.rest = self.next_rest;
            self.next_rest = Nanos(self.next_rest.0 * 2).at_most(REST_MAX);
            self.try_less = !trial.less;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pages;

    /// Works for some time at the rate that a device has at each number of doublings.
    fn work(reach: &mut Reach, time: Nanos, rate_of: impl Fn(u32) -> u64) -> Nanos {
        let lap = Nanos::millis(100);
        let mut beyond = Nanos::ZERO;
        for _ in 0..time.0 / lap.0 {
            let rate = rate_of(reach.doublings());
            let mut done = Work::default();
            done.add(Pages(rate / 10), lap);
            if reach.doublings() > 0 {
                beyond = beyond.saturating_add(lap);
            }
            reach.on_lap(&done, PagesPerSec(rate));
        }
        beyond
    }

    #[test]
    fn a_near_device_keeps_the_usual_flight_but_for_a_few_trials() {
        let mut reach = Reach::default();
        let beyond = work(&mut reach, Nanos::secs(600), |_| 4096);
        assert_eq!(reach.doublings(), 0);
        assert!(beyond <= Nanos::secs(4), "{beyond:?}");
    }

    #[test]
    fn a_far_device_is_given_what_it_makes_use_of() {
        let mut reach = Reach::default();
        let far = |doublings| [1000, 1600, 2300, 2400, 2450][doublings as usize];
        work(&mut reach, Nanos::secs(10), far);
        assert_eq!(reach.doublings(), 2);
        let mut further = Reach::default();
        work(&mut further, Nanos::secs(10), |doublings| 1000 << doublings);
        assert_eq!(further.doublings(), DOUBLINGS_MAX);
    }

    #[test]
    fn what_is_no_use_any_more_is_given_up() {
        let mut reach = Reach::default();
        work(&mut reach, Nanos::secs(10), |doublings| 1000 << doublings);
        work(&mut reach, Nanos::secs(300), |_| 8000);
        assert_eq!(reach.doublings(), 0);
    }
}

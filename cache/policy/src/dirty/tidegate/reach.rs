//! Finds out whether a device writes faster with more under way.
//!
//! Writeback in flight is bounded by time, so that a read need not wait long. A near device works
//! as fast with 40 ms of work in its queue as with a second's. A far one does not: a file server
//! commits what it has been sent in one go, an object store answers after a tenth of a second
//! however little it was asked for. Its rate is then what the bound makes of it. This finds out by
//! trying:
//!
//! ```text
//!   work ... | twice the flight, for a trial | rate higher by a part?  stay, try twice that at once
//!                                              no?                     back, try again much later
//! ```
//!
//! and, from time to time, whether half would do as well.
//!
//! A near device's rate is never quite the same, so the first doubling must gain an eighth
//! (`GAIN`). A device that gained that is far. Where each flight costs a fixed time beside its own,
//! what a doubling gains falls by half each time (27, 16, 8, 5, 2 % for a server with a COMMIT of
//! 45 ms), and all that is left to gain is twice what the next one would. To be within 3 % of what
//! the device can do it must go on as long as a doubling gains a sixty-fourth (`GAIN_FAR`).
//!
//! So small a difference is not seen in laps. A far device completes in lumps: half a flight at a
//! time, then nothing. A lap that ends within a lump has all of its time and a part of its pages. A
//! far device is measured in whole lumps, after what was under way when the flight changed has come
//! back (`Lumps`).
//!
//! Invariants
//!   1. The flight is 1, 2, 4 .. 2^`DOUBLINGS_MAX` times the usual one.
//!   2. A trial that gains nothing is repeated after twice the time, at most `REST_MAX` of work.
//!   3. A lump counts as a whole or not at all.
//!
//! Source: Tidegate's own; the idea of probing for bandwidth is that of BBR (Cardwell and others,
//! ACM Queue 14-5, 2016).

use super::work::{AT_ONCE, Work};
use crate::units::{Nanos, Pages, PagesPerSec};

/// The flight is doubled this often at most: to 2.5 s.
const DOUBLINGS_MAX: u32 = 6;
/// Work that the trial of the first doubling measures; doubled with the flight.
const TRIAL: Nanos = Nanos::millis(300);
/// Work before the first trial, after a trial that gained nothing, and at most.
const REST_FIRST: Nanos = Nanos::millis(500);
const REST: Nanos = Nanos::secs(16);
const REST_MAX: Nanos = Nanos::secs(128);
/// The first doubling must gain one part in this, a further one in that; a halving may lose half as
/// much.
const GAIN: u64 = 8;
const GAIN_FAR: u64 = 64;
/// Work of twice the usual flight; doubled with it. Requests that were under way are back after
/// that.
const SETTLE: Nanos = Nanos::millis(80);
/// The fewest lumps that say how fast a far device is.
const LUMPS_LEAST: u32 = 4;

/// One device's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    doublings: u32,
    trial: Option<Trial>,
    /// Work until the next trial, and after the next trial that gains nothing.
    rest: Nanos,
    next_rest: Nanos,
    /// The next trial is one of less, if there is less.
    try_less: bool,
    /// The lumps of a far device.
    lumps: Lumps,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    less: bool,
    /// The device's rate before.
    before: PagesPerSec,
    /// Of a near device: the lap in which the flight changed has ended.
    settled: bool,
    done: Work,
}

/// Completions of a far device, counted by lump: first come `skip`, then those that count.
#[derive(Clone, Copy, Debug, Default)]
struct Lumps {
    skip: Nanos,
    open: Work,
    whole: Work,
    count: u32,
}

impl Lumps {
    /// The flight has just changed, to or from this many doublings.
    fn after_change(doublings: u32) -> Self {
        Self {
            skip: at(SETTLE, doublings),
            ..Self::default()
        }
    }

    /// Adds a completion; all that counts, once that is enough.
    fn add(&mut self, pages: Pages, gap: Nanos, enough: Nanos) -> Option<Work> {
        let begins = gap >= AT_ONCE && !self.open.time().is_zero();
        let lump = begins.then(|| core::mem::take(&mut self.open));
        self.open.add(pages, gap);
        let lump = lump?;
        if !self.skip.is_zero() {
            self.skip = self.skip.saturating_sub(lump.time());
            return None;
        }
        self.whole = self.whole.and(&lump);
        self.count += 1;
        let is_enough = self.count >= LUMPS_LEAST && self.whole.time() >= enough;
        is_enough.then(|| {
            self.count = 0;
            core::mem::take(&mut self.whole)
        })
    }
}

/// A time that is doubled with the flight.
fn at(time: Nanos, doublings: u32) -> Nanos {
    Nanos(time.0 << doublings.saturating_sub(1))
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            doublings: 0,
            trial: None,
            rest: REST_FIRST,
            next_rest: REST,
            try_less: false,
            lumps: Lumps::default(),
        }
    }
}

impl Reach {
    /// Number of times that the usual flight is doubled.
    pub(super) const fn doublings(&self) -> u32 {
        self.doublings
    }

    /// The first doubling has gained its part, and is not given back.
    fn is_far(&self) -> bool {
        match &self.trial {
            Some(trial) => trial.less || self.doublings > 1,
            None => self.doublings > 0,
        }
    }

    /// A lap has ended. `rate`: what the device did until then.
    pub(super) fn on_lap(&mut self, lap: &Work, rate: PagesPerSec) {
        if self.is_far() {
            return;
        }
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
            let (trial, now) = (*trial, trial.done.rate());
            self.judge(&trial, now, GAIN);
        }
    }

    /// A request is back, `gap` after the one before it.
    pub(super) fn on_completed(&mut self, pages: Pages, gap: Nanos) {
        if !self.is_far() {
            return;
        }
        let given_back = self.trial.is_some_and(|trial| trial.less);
        let larger = self.doublings + u32::from(given_back);
        let Some(done) = self.lumps.add(pages, gap, at(TRIAL, larger)) else {
            return;
        };
        match self.trial {
            Some(trial) => self.judge(&trial, done.rate(), GAIN_FAR),
            None => self.rest = self.rest.saturating_sub(done.time()),
        }
        if self.rest.is_zero() && self.is_far() {
            self.begin(done.rate());
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
        self.lumps = Lumps::after_change(self.doublings + u32::from(less));
        self.trial = Some(Trial {
            less,
            before: rate,
            settled: false,
            done: Work::default(),
        });
    }

    fn judge(&mut self, trial: &Trial, now: PagesPerSec, gain: u64) {
        let (before, now) = (trial.before.0, now.0);
        self.trial = None;
        let kept = if trial.less {
            now >= before - before / (2 * gain)
        } else {
            now >= before.saturating_add(before / gain)
        };
        if kept {
            // The same way again, at once.
            self.rest = Nanos::ZERO;
            self.next_rest = REST;
            self.try_less = trial.less;
        } else {
            let tried = self.doublings;
            self.doublings = if trial.less { tried + 1 } else { tried - 1 };
            self.lumps = Lumps::after_change(tried.max(self.doublings));
            self.rest = self.next_rest;
            self.next_rest = Nanos(self.next_rest.0 * 2).at_most(REST_MAX);
            self.try_less = !trial.less;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

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
            reach.on_completed(Pages(rate / 10), lap);
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
    fn a_near_device_that_is_never_the_same_keeps_it_most_of_the_time() {
        let mut reach = Reach::default();
        let random = Cell::new(1_u64);
        // A tenth more or less from lap to lap.
        let noise = |_| {
            let mut next = random.get();
            next ^= next << 13;
            next ^= next >> 7;
            next ^= next << 17;
            random.set(next);
            4096 - 410 + next % 820
        };
        let beyond = work(&mut reach, Nanos::secs(600), noise);
        assert!(beyond <= Nanos::secs(30), "{beyond:?} of 600 s");
    }

    /// A server that takes in half a flight, commits it, and only then answers: in lumps, whose
    /// last completions come with no time of their own.
    #[test]
    fn a_server_that_commits_each_flight_is_given_as_much_as_covers_the_commits() {
        let mut reach = Reach::default();
        let mut lap = Work::default();
        let mut rate = PagesPerSec(1000);
        let (mut now, mut pages) = (Nanos::ZERO, 0_u64);
        let half_a_minute = Nanos::secs(30);
        while now < Nanos::secs(90) {
            let requests = 4_u64 << reach.doublings();
            let time = Nanos(requests * 16 * 1_000_000 / 4).saturating_add(Nanos::millis(45));
            for request in 0..requests {
                let gap = if request == 0 { time } else { Nanos::ZERO };
                reach.on_completed(Pages(16), gap);
                lap.add(Pages(16), gap);
                if lap.is_lap(Nanos::millis(100)) {
                    let lap = core::mem::take(&mut lap);
                    reach.on_lap(&lap, rate);
                    rate = PagesPerSec(u64::midpoint(rate.0, lap.rate().0));
                }
            }
            if now >= half_a_minute {
                pages += requests * 16;
            }
            now = now.saturating_add(time);
        }
        // 4000 pages a second but for the commits.
        let mean = pages / 60;
        assert!(mean >= 4000 * 95 / 100, "{mean} {reach:?}");
        work(&mut reach, Nanos::secs(1200), |_| 4096);
        assert_eq!(reach.doublings(), 0, "and it is given back");
    }

    #[test]
    fn a_far_device_is_given_what_it_makes_use_of() {
        let mut reach = Reach::default();
        let far = |doublings: u32| [1000, 1600, 2300, 2400, 2420][doublings.min(4) as usize];
        work(&mut reach, Nanos::secs(15), far);
        assert_eq!(reach.doublings(), 3);
        let mut further = Reach::default();
        work(&mut further, Nanos::secs(30), |doublings| 1000 << doublings);
        assert_eq!(further.doublings(), DOUBLINGS_MAX);
    }

    #[test]
    fn what_is_no_use_any_more_is_given_up() {
        let mut reach = Reach::default();
        work(&mut reach, Nanos::secs(30), |doublings| 1000 << doublings);
        work(&mut reach, Nanos::secs(300), |_| 64_000);
        assert_eq!(reach.doublings(), 0);
    }
}

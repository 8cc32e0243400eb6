//! Pressure totals: for how long somebody, and for how long everybody, was stalled for memory.
//!
//! A caller is stalled while it reclaims on its own behalf, and while it waits for memory, for the
//! end of a throttling, or for a page from the swap file. *some*: at least one caller is; *full*:
//! at least one is, and every caller that was seen in the last second is. Callers are seen by what
//! they wait for and by their events; the cache's own tasks do not count as callers unless they are
//! stalled themselves.
//!
//! Source: Linux v6.12 kernel/sched/psi.c, for the two words and what counts as a stall of memory.
//! Deviation: the kernel knows which tasks want to run; a library sees its callers only when they
//! call.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use env::{Event, TaskId};
use frames::sync::{AtomicBool, Ordering};

/// A caller that was not seen for so long is thought to be elsewhere.
const SEEN: Duration = Duration::from_secs(1);
/// Callers that are remembered at most; beyond it, those not stalled are forgotten.
const CALLERS_MAX: usize = 4096;

/// For how long callers were stalled for memory, since the cache was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// At least one was.
    pub some: Duration,
    /// All that were at work were.
    pub full: Duration,
}

/// Adds up.
#[derive(Default)]
pub(crate) struct Meter {
    state: Mutex<State>,
    /// True if anybody is stalled: a look without the lock.
    pressed: AtomicBool,
}

#[derive(Default)]
struct State {
    callers: BTreeMap<u32, Caller>,
    stalled: usize,
    last: Option<Instant>,
    sums: Pressure,
}

#[derive(Clone, Copy)]
struct Caller {
    waits: bool,
    reclaims: bool,
    seen: Instant,
}

impl Meter {
    pub(crate) fn note(&self, task: TaskId, event: &Event) {
        let change: fn(&mut Caller) = match event {
            Event::Waiting { cause } if cause.is_memory() => |caller| caller.waits = true,
            Event::Waited { cause, .. } if cause.is_memory() => |caller| caller.waits = false,
            Event::DirectReclaim => |caller| caller.reclaims = true,
            Event::Reclaimed {
                background: false, ..
            } => |caller| caller.reclaims = false,
            // At work while others are stalled.
            Event::Wrote { .. } | Event::Read { .. } if self.pressed.load(Ordering::Relaxed) => {
                |_| ()
            }
            _ => return,
        };
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pass(now);
        let caller = state.callers.entry(task.0).or_insert(Caller {
            waits: false,
            reclaims: false,
            seen: now,
        });
        let was = caller.is_stalled();
        change(caller);
        caller.seen = now;
        let is = caller.is_stalled();
        match (was, is) {
            (false, true) => state.stalled += 1,
            (true, false) => state.stalled -= 1,
            _ => {}
        }
        self.pressed.store(state.stalled > 0, Ordering::Relaxed);
        state.forget(now);
    }

    pub(crate) fn read(&self) -> Pressure {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pass(Instant::now());
        state.sums
    }
}

impl Caller {
    fn is_stalled(self) -> bool {
        self.waits || self.reclaims
    }

    /// True if it was seen lately.
    fn is_near(self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) < SEEN
    }
}

impl State {
    /// The state so far lasted until now.
    fn pass(&mut self, now: Instant) {
        let before = self.last.replace(now);
        let passed = before.map_or(Duration::ZERO, |before| {
            now.saturating_duration_since(before)
        });
        if self.stalled == 0 {
            return;
        }
        self.sums.some += passed;
        let at_work = |caller: &Caller| !caller.is_stalled() && caller.is_near(now);
        if !self.callers.values().any(at_work) {
            self.sums.full += passed;
        }
    }

    fn forget(&mut self, now: Instant) {
        if self.callers.len() > CALLERS_MAX {
            let keeps = |caller: &Caller| caller.is_stalled() || caller.is_near(now);
            self.callers.retain(|_, caller| keeps(caller));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Cause, Signal, Wakeup};
    use policy::units::{Nanos, Pages};

    const REST: Duration = Duration::from_millis(20);

    fn begin(meter: &Meter, task: u32) {
        let cause = Cause::SwapIo;
        meter.note(TaskId(task), &Event::Waiting { cause });
    }

    fn end(meter: &Meter, task: u32) {
        let (cause, waited, wakeup) = (Cause::SwapIo, Nanos::ZERO, Wakeup::Ready(Signal::PageRead));
        let event = Event::Waited {
            cause,
            waited,
            wakeup,
        };
        meter.note(TaskId(task), &event);
    }

    #[test]
    fn one_of_two_is_some_and_both_are_full() {
        let meter = Meter::default();
        begin(&meter, 1);
        end(&meter, 1);
        begin(&meter, 2);
        std::thread::sleep(REST);
        let one = meter.read();
        assert!(one.some >= REST);
        assert!(one.full < REST, "the other is at work: {one:?}");
        begin(&meter, 1);
        std::thread::sleep(REST);
        let both = meter.read();
        assert!(both.full >= REST, "{both:?}");
        assert!(both.some >= 2 * REST);
        end(&meter, 1);
        end(&meter, 2);
        let before = meter.read();
        std::thread::sleep(REST);
        assert_eq!(meter.read(), before, "nobody is stalled");
    }

    #[test]
    fn who_reclaims_is_stalled_and_who_idles_is_not() {
        let meter = Meter::default();
        let idle = Event::Waiting { cause: Cause::Idle };
        meter.note(TaskId(1), &idle);
        std::thread::sleep(REST);
        assert_eq!(meter.read(), Pressure::default());
        meter.note(TaskId(1), &Event::DirectReclaim);
        std::thread::sleep(REST);
        let (scanned, freed) = (Pages(1), Pages(1));
        let done = Event::Reclaimed {
            background: false,
            scanned,
            freed,
        };
        meter.note(TaskId(1), &done);
        assert!(meter.read().some >= REST);
    }
}

//! The threads that drive the governor: a thread that sleeps until something happens, and a second
//! one for when the first is stuck in a call.
//!
//! ```text
//!   first lane    wait for the bell, or for the time that the last turn named -> turn -> ...
//!   second lane   asleep; woken when a call begins, and 100 ms later, if it has not ended: turns, until it has
//! ```
//!
//! A turn takes a lane. There are two; the second is available only while the turn in the first is
//! late.
//!
//! Concurrency: the bell is an atomic that is rung once for many events; the lock behind it is
//! taken by the thread that sleeps and by the thread that wakes it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// After this a call is late.
pub(crate) const LATE: Duration = Duration::from_millis(100);
/// Something happened.
pub(crate) struct Bell {
    rung: AtomicBool,
    stopped: AtomicBool,
    asleep: Mutex<()>,
    woken: Condvar,
    wake: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Bell {
    /// `wake`: whom to call in place of a thread of ours.
    pub(crate) fn new(wake: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        Self {
            rung: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            asleep: Mutex::new(()),
            woken: Condvar::new(),
            wake,
        }
    }

    pub(crate) fn ring(&self) {
        if self.rung.swap(true, SeqCst) {
            return;
        }
        match &self.wake {
            Some(wake) => wake(),
            None => self.wake_all(),
        }
    }

    fn wake_all(&self) {
        // A thread that has looked and not yet slept holds the lock.
        drop(self.asleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.woken.notify_all();
    }

    /// Forgets the rings so far.
    pub(crate) fn clear(&self) {
        self.rung.store(false, SeqCst);
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.wake_all();
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Sleeps until it is rung or stopped, or for `at_most`.
    pub(crate) fn wait(&self, at_most: Option<Duration>) {
        let asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = |(): &mut ()| !self.rung.load(SeqCst) && !self.has_stopped();
        match at_most {
            Some(time) => drop(self.woken.wait_timeout_while(asleep, time, quiet)),
            None => drop(self.woken.wait_while(asleep, quiet)),
        }
    }
}

/// Which threads are in a turn, and since when in a call.
pub(crate) struct Lanes {
    slots: Mutex<[Option<Slot>; 2]>,
    /// For the second thread.
    pub(crate) watch: Bell,
    pub(crate) watching: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    call: Option<Duration>,
}

/// The right to make a turn.
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    at: usize,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            slots: Mutex::default(),
            watch: Bell::new(None),
            watching: AtomicBool::new(false),
        }
    }
}

impl Lanes {
    fn slots(&self) -> std::sync::MutexGuard<'_, [Option<Slot>; 2]> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane, unless a thread is in one that is not late, or both are taken.
    pub(crate) fn enter(&self, now: Duration) -> Option<Lane<'_>> {
        let mut slots = self.slots();
        let at = slots.iter().position(Option::is_none)?;
        let is_late = |slot: &Slot| slot.call.is_some_and(|began| now >= began + LATE);
        if !slots.iter().flatten().all(is_late) {
            return None;
        }
        slots[at] = Some(Slot::default());
        Some(Lane { lanes: self, at })
    }

    /// When the oldest call began that has not ended.
    pub(crate) fn oldest_call(&self) -> Option<Duration> {
        self.slots().iter().flatten().filter_map(|s| s.call).min()
    }
}

impl Lane<'_> {
    /// A call begins.
    pub(crate) fn begins(&self, now: Duration) {
        self.lanes.slots()[self.at] = Some(Slot { call: Some(now) });
        if !self.lanes.watching.load(SeqCst) {
            self.lanes.watch.ring();
        }
    }

    /// It has ended.
    pub(crate) fn ends(&self) {
        self.lanes.slots()[self.at] = Some(Slot::default());
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.lanes.slots()[self.at] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_second_lane_is_to_be_had_only_beside_one_that_is_late() {
        let lanes = Lanes::default();
        let first = lanes.enter(ms(0)).unwrap();
        assert!(lanes.enter(ms(500)).is_none(), "in no call");
        first.begins(ms(500));
        assert!(lanes.enter(ms(599)).is_none(), "not late");
        let second = lanes.enter(ms(600)).unwrap();
        assert!(lanes.enter(ms(900)).is_none(), "two at most");
        second.begins(ms(600));
        assert!(lanes.enter(ms(900)).is_none(), "two at most");
        drop(first);
        let again = lanes.enter(ms(900)).unwrap();
        drop((second, again));
        assert!(lanes.enter(ms(900)).is_some());
    }

    #[test]
    fn a_bell_that_was_rung_before_is_heard() {
        let bell = Bell::new(None);
        bell.ring();
        bell.wait(None);
        bell.clear();
        let began = std::time::Instant::now();
        bell.wait(Some(ms(5)));
        assert!(began.elapsed() >= ms(5));
        bell.stop();
        bell.wait(None);
    }
}

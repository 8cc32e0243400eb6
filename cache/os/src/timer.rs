//! Closures that run at a time: the clock of device wrappers.
//!
//! One thread serves a heap ordered by (time, call of `at`). Closures run on that thread, one by
//! one, and must not wait. Near shutdown the timer *hurries*: no closure waits longer than `HURRY`,
//! so that a wrapper which holds requests back passes them on and they can end. A closure that
//! re-arms itself for ever is cut off when the timer stops, and the rest is dropped.

use core::cmp::Reverse;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::BinaryHeap;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use env::{Host, Interrupt};
use policy::units::{Instant, Nanos};

use crate::OsError;
use crate::error::errno_of;
use crate::parker::{Clock, mix};

/// Time that a closure may still wait near shutdown.
const HURRY: Nanos = Nanos::millis(1);
/// Entries there is room for without allocating.
const ROOM: usize = 1024;

type Closure = Box<dyn FnOnce(&Interrupt) + Send>;

/// The timer thread's shared part; the `Host` of this environment.
pub(crate) struct Timer {
    clock: Clock,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    heap: BinaryHeap<Entry>,
    sequence: u64,
    random: u64,
    running: bool,
    hurrying: bool,
    stopped: bool,
}

/// Ordered so that the heap's greatest is the next to run.
struct Entry {
    key: Reverse<(Instant, u64)>,
    what: Closure,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Inner {
    /// Adds an entry; true if it is the next to run.
    fn push(&mut self, when: Instant, what: Closure) -> bool {
        let key = Reverse((when, self.sequence));
        self.sequence += 1;
        let first = self.heap.peek().is_none_or(|next| key > next.key);
        self.heap.push(Entry { key, what });
        first
    }
}

impl Timer {
    /// Starts the thread.
    pub(crate) fn start(
        clock: Clock,
        seed: u64,
    ) -> Result<(Arc<Self>, std::thread::JoinHandle<()>), OsError> {
        let inner = Inner {
            heap: BinaryHeap::with_capacity(ROOM),
            sequence: 0,
            random: seed,
            running: false,
            hurrying: false,
            stopped: false,
        };
        let timer = Arc::new(Self {
            clock,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        });
        let ours = Arc::clone(&timer);
        let name = "tg-timer";
        let builder = std::thread::Builder::new().name(name.to_owned());
        let serve = move || {
            crate::sys::set_timer_slack(crate::parker::TIMER_SLACK);
            ours.serve();
        };
        let thread = crate::spawn(builder, serve).map_err(|e| OsError::Thread {
            name: name.to_owned(),
            errno: errno_of(&e),
        })?;
        Ok((timer, thread))
    }

    /// From now on nothing waits long.
    pub(crate) fn hurry(&self) {
        let soon = self.clock.now() + HURRY;
        let mut inner = self.lock();
        inner.hurrying = true;
        let mut entries = core::mem::take(&mut inner.heap).into_sorted_vec();
        // In the order in which they would have run, which a heap gives last to first.
        while let Some(entry) = entries.pop() {
            let Reverse((when, _)) = entry.key;
            inner.push(when.min(soon), entry.what);
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// True if nothing is left to run.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.lock();
        inner.heap.is_empty() && !inner.running
    }

    /// Drops what is left and lets the thread end.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        let left = core::mem::take(&mut inner.heap);
        drop(inner);
        self.changed.notify_all();
        drop(left);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let context = Interrupt::new();
        while let Some(what) = self.next() {
            // A panic is reported by the hook; the timer goes on for everybody else.
            let _ = catch_unwind(AssertUnwindSafe(|| what(&context)));
            self.lock().running = false;
        }
    }

    /// Waits for the next closure that is due. `None`: stopped.
    fn next(&self) -> Option<Closure> {
        let mut inner = self.lock();
        loop {
            if inner.stopped {
                return None;
            }
            let Some(first) = inner.heap.peek() else {
                inner = self
                    .changed
                    .wait(inner)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Reverse((due, _)) = first.key;
            let wait = due.since(self.clock.now());
            if wait.is_zero() {
                inner.running = true;
                return inner.heap.pop().map(|entry| entry.what);
            }
            let slept = self
                .changed
                .wait_timeout(inner, Duration::from_nanos(wait.0));
            inner = slept.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Host for Timer {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn at(&self, when: Instant, what: Closure) {
        let mut inner = self.lock();
        if inner.stopped {
            return;
        }
        let latest = if inner.hurrying {
            self.clock.now() + HURRY
        } else {
            Instant::MAX
        };
        let first = inner.push(when.min(latest), what);
        drop(inner);
        if first {
            self.changed.notify_one();
        }
    }

    fn random(&self) -> u64 {
        let mut inner = self.lock();
        inner.random = inner.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(inner.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Longer than anything here takes on a machine that does much else.
    const LONG: Duration = Duration::from_secs(120);

    fn timer() -> (Arc<Timer>, std::thread::JoinHandle<()>) {
        Timer::start(Clock::start(), 1).unwrap()
    }

    #[test]
    fn closures_run_in_order_of_time_then_of_the_call() {
        let (timer, thread) = timer();
        // A machine that stalls may come to their time before all have been handed over: that try
        // shows nothing.
        let mut is_shown = false;
        for _ in 0..1000 {
            let (tell, told) = mpsc::channel();
            let base = timer.now() + Nanos::millis(5);
            for (place, delay) in [(2, 2), (0, 0), (1, 0), (3, 2)] {
                let tell = tell.clone();
                let what = Box::new(move |_: &Interrupt| tell.send(place).unwrap());
                timer.at(base + Nanos::millis(delay), what);
            }
            is_shown = timer.now() < base;
            let order: Vec<i32> = told.iter().take(4).collect();
            assert!(timer.now() >= base + Nanos::millis(2));
            if is_shown {
                assert_eq!(order, [0, 1, 2, 3]);
                break;
            }
        }
        assert!(is_shown, "never within 5 ms");
        timer.stop();
        thread.join().unwrap();
    }

    #[test]
    fn hurrying_brings_far_ones_forward_and_a_rearming_one_ends() {
        fn again(timer: &Arc<Timer>) {
            let ours = Arc::clone(timer);
            timer.after(Nanos::secs(60), Box::new(move |_| again(&ours)));
        }
        let (timer, thread) = timer();
        let (tell, told) = mpsc::channel();
        again(&timer);
        timer.after(Nanos::secs(3600), Box::new(move |_| tell.send(()).unwrap()));
        timer.hurry();
        told.recv_timeout(LONG).unwrap();
        timer.stop();
        thread.join().unwrap();
    }

    #[test]
    fn a_panic_does_not_end_the_timer() {
        let (timer, thread) = timer();
        let (tell, told) = mpsc::channel();
        timer.after(Nanos::ZERO, Box::new(|_| panic!("expected by the test")));
        timer.after(Nanos::millis(1), Box::new(move |_| tell.send(()).unwrap()));
        told.recv_timeout(LONG).unwrap();
        timer.stop();
        thread.join().unwrap();
    }
}

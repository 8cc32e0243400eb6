//! Where a thread sleeps, and which threads of an environment do.
//!
//! A `Parker` is one word: a futex. A wake that comes while nobody sleeps is remembered, once.
//!
//! ```text
//!            park                    wake
//!   EMPTY --------> PARKED      EMPTY, PARKED --> WOKEN (and a futex wake, if PARKED)
//!   WOKEN --------> EMPTY, returns at once
//! ```
//!
//! Deadlines are absolute times of CLOCK_MONOTONIC, so that a sleep interrupted and resumed does
//! not drift. Each parker belongs to one environment and, at any time, to one task; a thread keeps
//! the parkers of its last environments, so that entering costs no allocation. With the parker go
//! the task's number, its random stream and its work counters: these have one writer, so that
//! counting is a plain load and store.
//!
//! The `Roster` holds all parkers of an environment: to wake them at shutdown, and to add up the
//! counters. Parkers whose threads are gone are folded into totals.

use core::num::NonZeroU32;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use env::{Local, TaskId, Unparked, Work};
use policy::units::{Instant, Nanos, SECOND};
use rustix::thread::futex::{Flags, Timespec, wait_bitset, wake};
use rustix::time::ClockId;

use crate::sys;

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const WOKEN: u32 = 2;

/// Parkers that a thread keeps for environments it was in.
const KEPT_MAX: usize = 4;
/// Timer slack of threads that wait: a pause is to end on time, and 50 us, the default, is late.
pub(crate) const TIMER_SLACK: Nanos = Nanos::micros(1);
/// Parkers in a roster before those of ended threads are looked for.
const SWEEP_MIN: usize = 64;

/// Time of an environment: nanoseconds since it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn start() -> Self {
        Self {
            origin_ns: monotonic_ns(),
        }
    }

    /// The time.
    #[inline]
    pub(crate) fn now(self) -> Instant {
        Instant(monotonic_ns().saturating_sub(self.origin_ns))
    }

    /// A point in time as the system's clock has it.
    fn timespec(self, at: Instant) -> Timespec {
        let ns = self.origin_ns.saturating_add(at.0);
        let part = |n: u64| i64::try_from(n).expect("2^64 ns are 585 years, fewer than 2^63 s");
        Timespec {
            tv_sec: part(ns / SECOND),
            tv_nsec: part(ns % SECOND),
        }
    }
}

#[inline]
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).expect("CLOCK_MONOTONIC counts from boot, upwards");
    part(now.tv_sec) * SECOND + part(now.tv_nsec)
}

/// A place for one thread to sleep.
#[derive(Debug)]
pub(crate) struct Parker {
    state: AtomicU32,
    of: Arc<Shared>,
    id: TaskId,
    random: AtomicU64,
    work: [AtomicU64; Work::COUNT],
}

/// The state that the parkers of an environment share.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    cpus: Cpus,
    /// Waits end with `Cancelled`.
    stopping: AtomicBool,
}

/// The numbers of CPUs: from zero on, without gaps.
#[derive(Debug)]
pub(crate) struct Cpus {
    count: usize,
    /// By the system's number of a CPU, ours; none: the same.
    numbers: Option<Box<[usize]>>,
}

impl Cpus {
    /// `count` of them, with these numbers.
    pub(crate) fn new(count: usize, numbers: Option<Box<[usize]>>) -> Self {
        Self { count, numbers }
    }

    /// The CPU that the calling thread runs on.
    #[inline]
    fn current(&self) -> usize {
        let cpu = sys::current_cpu() % self.count;
        match &self.numbers {
            None => cpu,
            Some(numbers) => numbers[cpu],
        }
    }
}

/// A parker as the task of a thread has it. The thread keeps it for the next one.
#[derive(Debug)]
pub(crate) struct Own {
    parker: Arc<Parker>,
}

impl Own {
    /// Number of the task that has it.
    #[inline]
    pub(crate) fn id(&self) -> TaskId {
        self.parker.id
    }
}

impl Local for Own {
    fn park(&self, deadline: Option<Instant>) -> Unparked {
        let shared = &*self.parker.of;
        // The parker was in the roster before this look, and shutdown sets the flag before it
        // wakes the roster: so either it is seen here, or the sleep is woken.
        if shared.is_stopping() {
            return Unparked::Cancelled;
        }
        let slept = self.parker.park(shared.clock, deadline);
        if shared.is_stopping() {
            return Unparked::Cancelled;
        }
        match slept {
            Slept::Woken => Unparked::Woken,
            Slept::TimedOut => Unparked::TimedOut,
        }
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.parker))
    }

    #[inline]
    fn did(&self, work: Work, units: u64) {
        self.parker.did(work, units);
    }

    #[inline]
    fn cpu(&self) -> usize {
        self.parker.of.cpus.current()
    }

    fn random(&self) -> u64 {
        self.parker.random()
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// The end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// Woken, now or before.
    Woken,
    /// The deadline passed.
    TimedOut,
}

impl Parker {
    /// Sleeps until woken or until `deadline`.
    pub(crate) fn park(&self, clock: Clock, deadline: Option<Instant>) -> Slept {
        if self
            .state
            .compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire)
            .is_err()
        {
            self.state.store(EMPTY, Ordering::Relaxed);
            return Slept::Woken;
        }
        let until = deadline.map(|at| clock.timespec(at));
        loop {
            let ended = wait_bitset(
                &self.state,
                Flags::PRIVATE,
                PARKED,
                until.as_ref(),
                NonZeroU32::MAX,
            );
            if self.state.load(Ordering::Acquire) == WOKEN {
                self.state.store(EMPTY, Ordering::Relaxed);
                return Slept::Woken;
            }
            if ended == Err(rustix::io::Errno::TIMEDOUT) {
                let woken = self.state.swap(EMPTY, Ordering::Acquire) == WOKEN;
                return if woken { Slept::Woken } else { Slept::TimedOut };
            }
        }
    }

    /// Wakes the sleeper, or the next one to sleep.
    pub(crate) fn unpark(&self) {
        if self.state.swap(WOKEN, Ordering::Release) == PARKED {
            // No sleeper is no error.
            let _ = wake(&self.state, Flags::PRIVATE, 1);
        }
    }

    /// The next random number of its stream (splitmix64, S. Vigna, public domain).
    fn random(&self) -> u64 {
        let state = self
            .random
            .load(Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.store(state, Ordering::Relaxed);
        mix(state)
    }

    /// Counts work. One writer at a time: no read-modify-write needed.
    #[inline]
    fn did(&self, work: Work, units: u64) {
        let count = &self.work[work as usize];
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(units),
            Ordering::Relaxed,
        );
    }
}

/// The finalizer of splitmix64.
pub(crate) fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

/// All parkers of an environment.
#[derive(Debug)]
pub(crate) struct Roster {
    shared: Arc<Shared>,
    seed: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    parkers: Vec<Arc<Parker>>,
    sweep_at: usize,
    next_id: u32,
    /// Work of tasks whose threads are gone.
    gone: [u64; Work::COUNT],
}

thread_local! {
    /// Parkers of this thread; those of which there is no other handle are no task's now.
    static KEPT: RefCell<Vec<Rc<Own>>> = const { RefCell::new(Vec::new()) };
}

impl Roster {
    /// An empty one; its tasks' random streams come from `seed`.
    pub(crate) fn new(clock: Clock, seed: u64, cpus: Cpus) -> Self {
        let inner = Inner {
            parkers: Vec::with_capacity(SWEEP_MIN),
            sweep_at: SWEEP_MIN,
            next_id: 0,
            gone: [0; Work::COUNT],
        };
        Self {
            shared: Arc::new(Shared {
                clock,
                cpus,
                stopping: AtomicBool::new(false),
            }),
            seed,
            inner: Mutex::new(inner),
        }
    }

    /// This thread's parker, or a new one if a task of this thread has it already.
    #[inline]
    pub(crate) fn take(&self) -> Rc<Own> {
        let kept = KEPT.try_with(|kept| {
            let kept = kept.borrow();
            let is_free = |own: &&Rc<Own>| {
                Arc::ptr_eq(&own.parker.of, &self.shared) && Rc::strong_count(own) == 1
            };
            kept.iter().find(is_free).cloned()
        });
        kept.ok().flatten().unwrap_or_else(|| self.make())
    }

    /// Makes a parker and keeps it for the tasks of this thread.
    #[cold]
    fn make(&self) -> Rc<Own> {
        let own = Rc::new(Own {
            parker: self.register(),
        });
        // A thread that ends keeps nothing any more.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() >= KEPT_MAX {
                kept.remove(0);
            }
            kept.push(Rc::clone(&own));
        });
        own
    }

    /// From now on every park ends with `Cancelled`, those under way included.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes everybody.
    fn wake_all(&self) {
        let parkers = self.lock().parkers.clone();
        for parker in parkers {
            parker.unpark();
        }
    }

    /// Work of all tasks so far.
    pub(crate) fn work(&self) -> [u64; Work::COUNT] {
        let inner = self.lock();
        let mut sum = inner.gone;
        for parker in &inner.parkers {
            add(&mut sum, parker);
        }
        sum
    }

    fn register(&self) -> Arc<Parker> {
        let mut inner = self.lock();
        if inner.parkers.len() >= inner.sweep_at {
            inner.sweep();
        }
        // Once per thread and environment: pauses end on time also in threads that are not ours.
        sys::set_timer_slack(TIMER_SLACK);
        let id = inner.next_id;
        // Numbers come round after 2^32 - 1 threads; `TaskId::NONE` is never given.
        inner.next_id = if id + 1 == TaskId::NONE.0 { 0 } else { id + 1 };
        let parker = Arc::new(Parker {
            state: AtomicU32::new(EMPTY),
            of: Arc::clone(&self.shared),
            id: TaskId(id),
            random: AtomicU64::new(mix(self.seed ^ mix(u64::from(id)))),
            work: [const { AtomicU64::new(0) }; Work::COUNT],
        });
        inner.parkers.push(Arc::clone(&parker));
        parker
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Folds parkers that nobody else has into the totals.
    fn sweep(&mut self) {
        let gone = &mut self.gone;
        self.parkers.retain(|parker| {
            let used = Arc::strong_count(parker) > 1;
            if !used {
                add(gone, parker);
            }
            used
        });
        self.sweep_at = (self.parkers.len() * 2).max(SWEEP_MIN);
    }
}

fn add(sum: &mut [u64; Work::COUNT], parker: &Parker) {
    for (total, count) in sum.iter_mut().zip(&parker.work) {
        *total = total.wrapping_add(count.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(seed: u64) -> Roster {
        Roster::new(Clock::start(), seed, Cpus::new(1, None))
    }

    #[test]
    fn a_wake_before_the_sleep_is_remembered_once() {
        let (clock, roster) = (Clock::start(), roster(1));
        let parker = Arc::clone(&roster.take().parker);
        parker.unpark();
        parker.unpark();
        assert_eq!(parker.park(clock, None), Slept::Woken);
        let soon = clock.now() + Nanos::millis(1);
        assert_eq!(parker.park(clock, Some(soon)), Slept::TimedOut);
        assert!(clock.now() >= soon);
    }

    #[test]
    fn ping_pong_loses_no_wake() {
        let (clock, roster) = (Clock::start(), roster(1));
        let (here, there) = (roster.register(), roster.register());
        let (ball, other) = (Arc::clone(&here), Arc::clone(&there));
        let thread = std::thread::spawn(move || {
            for _ in 0..20_000 {
                assert_eq!(other.park(clock, None), Slept::Woken);
                ball.unpark();
            }
        });
        for _ in 0..20_000 {
            there.unpark();
            assert_eq!(here.park(clock, None), Slept::Woken);
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_gets_its_parker_back_and_a_second_task_another() {
        let (one, two) = (roster(1), roster(2));
        let first = one.take();
        let nested = one.take();
        assert_ne!(first.id(), nested.id());
        let id = first.id();
        drop(first);
        let elsewhere = two.take();
        assert!(Arc::ptr_eq(&elsewhere.parker.of, &two.shared));
        assert_eq!(one.take().id(), id);
    }

    #[test]
    fn work_of_ended_threads_still_counts() {
        let roster = Arc::new(roster(1));
        for _ in 0..200 {
            let ours = Arc::clone(&roster);
            std::thread::spawn(move || ours.take().did(Work::Copy, 3))
                .join()
                .unwrap();
        }
        assert_eq!(roster.work()[Work::Copy as usize], 600);
        assert!(roster.lock().parkers.len() <= SWEEP_MIN);
    }

    #[test]
    fn random_streams_differ() {
        let roster = roster(7);
        let (a, b) = (roster.take(), roster.take());
        assert_ne!(a.random(), b.random());
        assert_ne!(a.random(), a.random());
    }
}

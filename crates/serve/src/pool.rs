//! Threads that wait for the cache, so that connections need not: a bounded number for each volume.
//!
//! Threads start when there is work and end when there was none for a while. The queue is bounded by whoever submits: a
//! connection has at most its requests in flight there.
//!
//! Two kinds of work: *moving* (a page to be read, memory to be found, a hole to be punched) and *syncing*, of which only
//! `SYNCS` run at once, so that a slow flush leaves threads to the misses.
//!
//! Invariants
//!   1. At most `most` threads, whatever is submitted.
//!   2. What was submitted is run or, after `close`, dropped; never forgotten. A job that is dropped says so itself.
//!   3. A job that panics is dropped, and its thread goes on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Jobs that sync at once.
const SYNCS: usize = 2;
/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of a thread: the cache's procedures, which are flat.
const STACK: usize = 256 << 10;

/// What a thread is asked to do.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Reads, writes, punches.
    Move,
    /// Waits for everything to be durable.
    Sync,
}

#[derive(Default)]
struct State {
    moves: VecDeque<Job>,
    syncs: VecDeque<Job>,
    /// Syncs that run now.
    syncing: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    most: usize,
    name: String,
}

/// The threads of one volume.
pub struct Pool {
    shared: Arc<Shared>,
}

/// What a pool is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolLoad {
    /// Threads that run now.
    pub threads: usize,
    /// Of them without work.
    pub idle: usize,
    /// Jobs that wait for a thread.
    pub queued: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// At most `most` threads (at least one) for the volume `name`.
    #[must_use]
    pub fn new(name: &str, most: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                most: most.max(1),
                name: format!("wait:{name}"),
            }),
        }
    }

    /// Has a thread run `job`. Dropped at once if the pool is closed, or no thread is to be had and none runs.
    pub(crate) fn submit(&self, sort: Sort, job: Job) {
        let mut state = self.shared.lock();
        if state.closed {
            drop(state);
            drop(job);
            return;
        }
        match sort {
            Sort::Move => state.moves.push_back(job),
            Sort::Sync => state.syncs.push_back(job),
        }
        let queued = state.moves.len() + state.syncs.len();
        let wants_another = state.idle < queued && state.threads < self.shared.most;
        if !wants_another {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new()
            .name(self.shared.name.clone())
            .stack_size(STACK)
            .spawn(move || shared.work());
        if started.is_err() {
            // The threads that run will come to it; without any, nobody would.
            let mut state = self.shared.lock();
            state.threads -= 1;
            if state.threads == 0 {
                let dropped = (
                    core::mem::take(&mut state.moves),
                    core::mem::take(&mut state.syncs),
                );
                drop(state);
                drop(dropped);
            }
        }
    }

    /// What it is doing now.
    #[must_use]
    pub fn load(&self) -> PoolLoad {
        let state = self.shared.lock();
        PoolLoad {
            threads: state.threads,
            idle: state.idle,
            queued: state.moves.len() + state.syncs.len(),
        }
    }

    /// Drops what waits for a thread and takes nothing more. Jobs that run end when the cache lets them.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let dropped = (
            core::mem::take(&mut state.moves),
            core::mem::take(&mut state.syncs),
        );
        drop(state);
        self.shared.work.notify_all();
        drop(dropped);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn next(&mut self) -> Option<(Sort, Job)> {
        if self.syncing < SYNCS
            && let Some(job) = self.syncs.pop_front()
        {
            self.syncing += 1;
            return Some((Sort::Sync, job));
        }
        self.moves.pop_front().map(|job| (Sort::Move, job))
    }
}

impl Shared {
    /// What each thread does.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some((sort, job)) = state.next() {
                drop(state);
                // A job tells its connection by itself that it was dropped; the panic was printed.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                if sort == Sort::Sync {
                    state.syncing -= 1;
                }
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let (guard, timeout) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if timeout.timed_out() && state.moves.is_empty() && state.syncs.is_empty() {
                break;
            }
        }
        // Under the lock in which it saw that there is no work.
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// Longer than anything here takes on a machine that does much else.
    const LONG: Duration = Duration::from_secs(60);

    /// Says that it was dropped.
    struct Told(mpsc::Sender<&'static str>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[test]
    fn a_hundred_jobs_run_on_no_more_threads_than_allowed() {
        let pool = Pool::new("test", 3);
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, all) = mpsc::channel();
        for _ in 0..100 {
            let (at_once, most, done) = (Arc::clone(&at_once), Arc::clone(&most), done.clone());
            let job = move || {
                let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                let began = Instant::now();
                thread::sleep(Duration::from_micros(300));
                // The first ones wait for each other, however late a thread begins.
                while most.load(Ordering::SeqCst) < 3 && began.elapsed() < LONG {
                    thread::sleep(Duration::from_micros(300));
                }
                at_once.fetch_sub(1, Ordering::SeqCst);
                let _ = done.send(());
            };
            pool.submit(Sort::Move, Box::new(job));
        }
        for _ in 0..100 {
            all.recv_timeout(LONG).unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert!(pool.load().threads <= 3);
    }

    #[test]
    fn syncs_leave_threads_to_what_moves() {
        let pool = Pool::new("test", 3);
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..5 {
            let held = Arc::clone(&held);
            let job = move || {
                let _ = held.lock().unwrap().recv();
            };
            pool.submit(Sort::Sync, Box::new(job));
        }
        let (done, all) = mpsc::channel();
        pool.submit(
            Sort::Move,
            Box::new(move || {
                let _ = done.send(());
            }),
        );
        all.recv_timeout(LONG).unwrap();
        let began = Instant::now();
        while pool.load().queued > 3 && began.elapsed() < LONG {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(pool.load().queued, 3, "two of five syncs run");
        drop(hold);
    }

    #[test]
    fn a_panic_costs_nothing_but_its_job() {
        let pool = Pool::new("test", 1);
        let (say, heard) = mpsc::channel();
        let told = Told(say.clone());
        pool.submit(
            Sort::Sync,
            Box::new(move || {
                let _told = told;
                panic!("a job that panics: meant to be seen in the output of this test");
            }),
        );
        for _ in 0..3 {
            let say = say.clone();
            pool.submit(
                Sort::Sync,
                Box::new(move || {
                    let _ = say.send("ran");
                }),
            );
        }
        let order: Vec<_> = (0..4).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(order, ["dropped", "ran", "ran", "ran"]);
        assert_eq!(pool.load().threads, 1);
    }

    #[test]
    fn a_closed_pool_drops_what_waits_and_what_comes() {
        let pool = Pool::new("test", 1);
        let (hold, held) = mpsc::channel::<()>();
        let (say, heard) = mpsc::channel();
        let begun = say.clone();
        pool.submit(
            Sort::Move,
            Box::new(move || {
                let _ = begun.send("began");
                let _ = held.recv();
            }),
        );
        assert_eq!(heard.recv_timeout(LONG), Ok("began"));
        let told = Told(say.clone());
        pool.submit(Sort::Move, Box::new(move || drop(told)));
        pool.close();
        assert_eq!(heard.recv_timeout(LONG), Ok("dropped"));
        let told = Told(say);
        pool.submit(Sort::Move, Box::new(move || drop(told)));
        assert_eq!(heard.recv_timeout(LONG), Ok("dropped"));
        drop(hold);
    }
}

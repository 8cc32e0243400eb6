//! Threads that wait for the cache, so that connections need not: a bounded number for each volume.
//!
//! One thread is there from the start, so that no work needs a thread that the system does not
//! give; others start when there is work and end when there was none for a while. The submitter
//! bounds the queues: a connection has at most its requests in flight there.
//!
//! ```text
//!   syncs ────────────────────────────────── first, `SYNCS` at once ──┐
//!   connection 1: moves  ─┐                                           ├──> threads
//!   connection 1: advice ─┼─ a job of each in turn, `ADVICE` at once ─┤
//!   connection 1: holes  ─┼─ likewise, `HOLES` at once ───────────────┘
//!   connection 2: moves  ─┘
//! ```
//!
//! Four kinds of work: *moving* (a page to be read, memory to be found); *syncing*, of which only
//! `SYNCS` run at once, so that a slow flush leaves threads to the misses; *advice* (bringing into
//! memory what nobody reads yet), of which only `ADVICE` run at once; *holes*, which nobody reads
//! either, `HOLES` at once. Long work comes in small jobs, each of which submits what is left.
//!
//! Invariants
//!   1. At most `most` threads, whatever is submitted, and one more for what it ends with; at least
//!      one.
//!   2. A job that was submitted is run or dropped, never forgotten. It is dropped after `close`,
//!      and when its connection has ended. A job that is dropped says so itself.
//!   3. A job that panics is dropped, and its thread goes on.
//!   4. A connection that moves waits for one job of each other at most, and for what runs, however
//!      many they have.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use os::OsError;

use crate::mailbox::Mailbox;

/// Jobs that sync at once.
const SYNCS: usize = 2;
/// Jobs that follow advice at once: one waits for the backing while another is on its way.
const ADVICE: usize = 2;
/// Steps of holes at once: the cache does one of a volume at a time, and the next one is at hand.
const HOLES: usize = 2;
/// The most threads of a volume.
pub const THREADS: usize = 8;
/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of a thread: the cache's procedures, which are flat.
const STACK: usize = 256 << 10;

/// The work that a thread is asked to do.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Work for a connection: dropped once that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    /// Reads, writes.
    Move,
    /// Brings into memory what nobody reads yet.
    Advice,
    /// Punches.
    Hole,
}

impl Sort {
    /// Number of its jobs that may run at once.
    fn most(self) -> usize {
        match self {
            Self::Move => usize::MAX,
            Self::Advice => ADVICE,
            Self::Hole => HOLES,
        }
    }
}

/// Number of jobs of each sort that run now.
#[derive(Default)]
struct Running {
    moves: usize,
    advice: usize,
    holes: usize,
}

impl Running {
    fn of(&mut self, sort: Sort) -> &mut usize {
        match sort {
            Sort::Move => &mut self.moves,
            Sort::Advice => &mut self.advice,
            Sort::Hole => &mut self.holes,
        }
    }

    fn may(&self, sort: Sort) -> bool {
        let running = match sort {
            Sort::Move => self.moves,
            Sort::Advice => self.advice,
            Sort::Hole => self.holes,
        };
        running < sort.most()
    }
}

/// A connection's work of one sort: where its mailbox is, which is held as long as the line is
/// there.
type Key = (usize, Sort);

/// Jobs of one connection that wait, in order.
struct Line {
    owner: Arc<Mailbox>,
    jobs: VecDeque<Job>,
}

/// A job as a thread takes it up.
struct Taken {
    /// None: it syncs, for a task that waits for that.
    of: Option<(Sort, Arc<Mailbox>)>,
    job: Job,
}

/// The jobs that wait for a thread.
#[derive(Default)]
struct Waiting {
    lines: HashMap<Key, Line>,
    /// Each line that is there, once; whose turn is next first.
    turns: VecDeque<Key>,
    syncs: VecDeque<Job>,
    /// Jobs in lines.
    in_lines: usize,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    /// Syncs that run now.
    syncing: usize,
    running: Running,
    threads: usize,
    idle: usize,
    closed: bool,
    /// The job left to be done when it is closed.
    last: Option<Job>,
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

/// The load of a pool.
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
    ///
    /// # Errors
    /// `Thread`: there is none to begin with.
    pub fn new(name: &str, most: usize) -> Result<Self, OsError> {
        let pool = Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                most: most.max(1),
                name: format!("wait:{name}"),
            }),
        };
        pool.shared.lock().threads += 1;
        let started = pool.start();
        started.map_err(|cause| OsError::Thread {
            name: pool.shared.name.clone(),
            errno: cause.raw_os_error().unwrap_or(0),
        })?;
        Ok(pool)
    }

    /// Starts a thread, which was counted.
    fn start(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let started = os::start_thread(&self.shared.name, STACK, move || shared.work());
        started.map(drop).inspect_err(|_| {
            // The threads that run come to what it was for.
            self.shared.lock().threads -= 1;
        })
    }

    /// Has a thread run `job` for a connection, behind what it has waiting of that sort. Dropped at
    /// once if the pool is closed; dropped when its turn comes if the connection has ended.
    pub(crate) fn submit(&self, sort: Sort, owner: &Arc<Mailbox>, job: Job) {
        self.put(|waiting| waiting.line(sort, owner).jobs.push_back(job));
    }

    /// The same with the rest of a job that has had its turn: before what the connection has
    /// waiting of that sort.
    pub(crate) fn go_on(&self, sort: Sort, owner: &Arc<Mailbox>, rest: Job) {
        self.put(|waiting| waiting.line(sort, owner).jobs.push_front(rest));
    }

    /// Has a thread run `job`, which waits until something is durable. Dropped as others are, but
    /// for nobody's end.
    pub(crate) fn sync(&self, job: Job) {
        self.put(|waiting| waiting.syncs.push_back(job));
    }

    fn put(&self, put: impl FnOnce(&mut Waiting)) {
        let mut state = self.shared.lock();
        if state.closed {
            drop(state);
            drop(put);
            return;
        }
        put(&mut state.waiting);
        let wants_another = state.idle < state.waiting.len() && state.threads < self.shared.most;
        if !wants_another {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        if self.start().is_err() {
            self.shared.work.notify_one();
        }
    }

    /// Drops what waits for a thread and takes nothing more but `job`, with which it ends: on a
    /// thread of its own, or, where the system has none to give, the first that has time.
    pub(crate) fn end_with(&self, job: Job) {
        let mut state = self.shared.lock();
        state.last = Some(job);
        state.threads += 1;
        drop(state);
        self.close();
        // Refused: a thread that is there has not ended yet, as there is something for it.
        let _ = self.start();
    }

    /// Its load now.
    #[must_use]
    pub fn load(&self) -> PoolLoad {
        let state = self.shared.lock();
        PoolLoad {
            threads: state.threads,
            idle: state.idle,
            queued: state.waiting.len(),
        }
    }

    /// Drops what waits for a thread and takes nothing more. Jobs that run end when the cache lets
    /// them.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let dropped = core::mem::take(&mut state.waiting);
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

impl Waiting {
    fn len(&self) -> usize {
        self.in_lines + self.syncs.len()
    }

    /// The line for one job more.
    fn line(&mut self, sort: Sort, owner: &Arc<Mailbox>) -> &mut Line {
        self.in_lines += 1;
        let key = (Arc::as_ptr(owner).addr(), sort);
        let turns = &mut self.turns;
        self.lines.entry(key).or_insert_with(|| {
            turns.push_back(key);
            Line {
                owner: Arc::clone(owner),
                jobs: VecDeque::new(),
            }
        })
    }

    /// A job of the line whose turn it is.
    fn next_in_turn(&mut self, running: &Running) -> Option<Taken> {
        let may = |key: &Key| running.may(key.1);
        let at = self.turns.iter().position(may)?;
        let key = self.turns.remove(at)?;
        let line = self.lines.get_mut(&key)?;
        let job = line.jobs.pop_front()?;
        self.in_lines -= 1;
        let owner = Arc::clone(&line.owner);
        if line.jobs.is_empty() {
            self.lines.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        let of = Some((key.1, owner));
        Some(Taken { of, job })
    }
}

impl State {
    fn next(&mut self) -> Option<Taken> {
        if self.syncing < SYNCS
            && let Some(job) = self.waiting.syncs.pop_front()
        {
            self.syncing += 1;
            return Some(Taken { of: None, job });
        }
        let taken = self.waiting.next_in_turn(&self.running)?;
        if let Some((sort, _)) = &taken.of {
            *self.running.of(*sort) += 1;
        }
        Some(taken)
    }
}

impl Shared {
    /// The work of each thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.last.take() {
                drop(state);
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            if let Some(Taken { of, job }) = state.next() {
                drop(state);
                let is_wanted = of.as_ref().is_none_or(|(_, owner)| !owner.is_closed());
                let sort = of.map(|(sort, _)| sort);
                // A job tells its connection by itself that it was dropped; the panic was printed.
                let _ = catch_unwind(AssertUnwindSafe(
                    || if is_wanted { job() } else { drop(job) },
                ));
                state = self.lock();
                match sort {
                    None => state.syncing -= 1,
                    Some(sort) => *state.running.of(sort) -= 1,
                }
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            // The last one stays.
            let patience = if state.threads > 1 {
                IDLE
            } else {
                Duration::MAX
            };
            let (guard, timeout) = self
                .work
                .wait_timeout(state, patience)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if timeout.timed_out()
                && state.waiting.len() == 0
                && state.last.is_none()
                && state.threads > 1
            {
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
    use std::thread;
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
        let pool = Pool::new("test", 3).unwrap();
        let owner = Arc::new(Mailbox::default());
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
            pool.submit(Sort::Move, &owner, Box::new(job));
        }
        for _ in 0..100 {
            all.recv_timeout(LONG).unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert!(pool.load().threads <= 3);
    }

    #[test]
    fn syncs_leave_threads_to_what_moves() {
        let pool = Pool::new("test", 3).unwrap();
        let owner = Arc::new(Mailbox::default());
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..5 {
            let held = Arc::clone(&held);
            let job = move || {
                let _ = held.lock().unwrap().recv();
            };
            pool.sync(Box::new(job));
        }
        let (done, all) = mpsc::channel();
        pool.submit(
            Sort::Move,
            &owner,
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
        let pool = Pool::new("test", 1).unwrap();
        let (say, heard) = mpsc::channel();
        let told = Told(say.clone());
        pool.sync(Box::new(move || {
            let _told = told;
            panic!("a job that panics: meant to be seen in the output of this test");
        }));
        for _ in 0..3 {
            let say = say.clone();
            pool.sync(Box::new(move || {
                let _ = say.send("ran");
            }));
        }
        let order: Vec<_> = (0..4).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(order, ["dropped", "ran", "ran", "ran"]);
        assert_eq!(pool.load().threads, 1);
    }

    /// A pool of one thread that is held until the sender is dropped.
    fn held() -> (Pool, mpsc::Sender<()>) {
        let pool = Pool::new("test", 1).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        pool.sync(Box::new(move || {
            let _ = begun.send(());
            let _ = held.recv();
        }));
        begins.recv_timeout(LONG).unwrap();
        (pool, hold)
    }

    #[test]
    fn connections_take_turns_however_much_one_has_waiting() {
        let (pool, hold) = held();
        let (say, heard) = mpsc::channel();
        let [many, few] = [(); 2].map(|()| Arc::new(Mailbox::default()));
        let submit = |owner: &Arc<Mailbox>, sort, what: &'static str| {
            let say = say.clone();
            let job = move || {
                let _ = say.send(what);
            };
            pool.submit(sort, owner, Box::new(job));
        };
        for what in ["many 1", "many 2", "many 3", "many 4"] {
            submit(&many, Sort::Move, what);
        }
        submit(&many, Sort::Advice, "advice 1");
        submit(&many, Sort::Advice, "advice 2");
        submit(&few, Sort::Move, "few 1");
        submit(&few, Sort::Move, "few 2");
        assert_eq!(pool.load().queued, 8);
        drop(hold);
        let order: Vec<_> = (0..8).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        let turns = [
            "many 1", "advice 1", "few 1", "many 2", "advice 2", "few 2", "many 3", "many 4",
        ];
        assert_eq!(order, turns);
        assert_eq!(pool.load().queued, 0);
    }

    #[test]
    fn advice_leaves_threads_to_what_moves_and_goes_on_where_it_was() {
        let pool = Pool::new("test", 4).unwrap();
        let owner = Arc::new(Mailbox::default());
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (say, heard) = mpsc::channel();
        for _ in 0..6 {
            let (held, say) = (Arc::clone(&held), say.clone());
            let job = move || {
                let _ = say.send("began");
                let _ = held.lock().unwrap().recv();
            };
            pool.submit(Sort::Advice, &owner, Box::new(job));
        }
        for _ in 0..ADVICE {
            assert_eq!(heard.recv_timeout(LONG), Ok("began"));
        }
        let moved = say.clone();
        let job = move || {
            let _ = moved.send("moved");
        };
        pool.submit(Sort::Move, &owner, Box::new(job));
        assert_eq!(heard.recv_timeout(LONG), Ok("moved"));
        pool.go_on(
            Sort::Advice,
            &owner,
            Box::new(move || {
                let _ = say.send("went on");
            }),
        );
        hold.send(()).unwrap();
        assert_eq!(
            heard.recv_timeout(LONG),
            Ok("went on"),
            "before the other four"
        );
        drop(hold);
    }

    #[test]
    fn holes_leave_threads_to_what_moves() {
        let pool = Pool::new("test", 4).unwrap();
        let owner = Arc::new(Mailbox::default());
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (say, heard) = mpsc::channel();
        for _ in 0..16 {
            let (held, say) = (Arc::clone(&held), say.clone());
            let job = move || {
                let _ = say.send("a step");
                let _ = held.lock().unwrap().recv();
            };
            pool.submit(Sort::Hole, &owner, Box::new(job));
        }
        for _ in 0..HOLES {
            assert_eq!(heard.recv_timeout(LONG), Ok("a step"));
        }
        let job = move || {
            let _ = say.send("moved");
        };
        pool.submit(Sort::Move, &owner, Box::new(job));
        assert_eq!(heard.recv_timeout(LONG), Ok("moved"), "fourteen wait");
        drop(hold);
    }

    #[test]
    fn what_a_connection_had_waiting_is_dropped_when_it_has_ended() {
        let (pool, hold) = held();
        let (say, heard) = mpsc::channel();
        let [gone, stays] = [(); 2].map(|()| Arc::new(Mailbox::default()));
        for owner in [&gone, &gone, &stays] {
            let (told, say) = (Told(say.clone()), say.clone());
            let job = move || {
                let _ = say.send("ran");
                drop(told);
            };
            pool.submit(Sort::Move, owner, Box::new(job));
        }
        gone.close();
        drop(hold);
        let order: Vec<_> = (0..4).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        // In turn: one of the gone, the client that stays, the other of the gone.
        assert_eq!(order, ["dropped", "ran", "dropped", "dropped"]);
    }

    #[test]
    fn a_closed_pool_drops_what_waits_and_what_comes() {
        let pool = Pool::new("test", 1).unwrap();
        let owner = Arc::new(Mailbox::default());
        let (hold, held) = mpsc::channel::<()>();
        let (say, heard) = mpsc::channel();
        let begun = say.clone();
        pool.submit(
            Sort::Move,
            &owner,
            Box::new(move || {
                let _ = begun.send("began");
                let _ = held.recv();
            }),
        );
        assert_eq!(heard.recv_timeout(LONG), Ok("began"));
        let told = Told(say.clone());
        pool.submit(Sort::Move, &owner, Box::new(move || drop(told)));
        pool.close();
        assert_eq!(heard.recv_timeout(LONG), Ok("dropped"));
        let told = Told(say);
        pool.submit(Sort::Move, &owner, Box::new(move || drop(told)));
        assert_eq!(heard.recv_timeout(LONG), Ok("dropped"));
        drop(hold);
    }
}

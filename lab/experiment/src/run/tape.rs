//! The tape of a live run: filled by the sink of its environment, and by its threads when they end.
//!
//! ```text
//!   Env::emit -> Sink -> watch (time is taken here) -> digest: pauses, levels, what was dirtied
//!                     -> waits by task and cause
//!   end of a thread   -> its CPU times --.
//!                                         +-> accounts(): one of each task, and of all that is none
//!   the process's CPU times -------------'
//! ```
//!
//! Invariant: no event is kept; memory is bounded by the run's length and `PAUSES_MOST`, not by the
//! number of events.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use env::{Cause, Env as _, Event, TaskId};
use os::ThreadEnv;
use policy::dirty::Law;
use policy::units::Nanos;

use super::digest::Digest;
use super::real::seconds;
use crate::outcome::{Job, TaskCpu};
use crate::watch::Shared;

/// Pauses kept of a run: 10 MB at most.
const PAUSES_MOST: usize = 100_000;
/// The level is told apart so finely in time; it is sampled less often.
const LEVELS_EVERY: Nanos = Nanos::millis(10);
/// The task that only looks (`session`).
const OBSERVER: &str = "levels";

/// User and system time.
pub(super) type Times = (Nanos, Nanos);

/// Time asleep, by task and cause.
type Waits = BTreeMap<(u32, Cause), Nanos>;

/// A thread that is a task.
#[derive(Debug)]
struct Thread {
    name: String,
    /// Once it has ended.
    cpu: Option<Times>,
}

/// The events of one run.
pub(super) struct Tape {
    digest: Mutex<Option<Digest>>,
    waits: Mutex<Waits>,
    threads: Mutex<BTreeMap<u32, Thread>>,
    /// Where the times come from, as soon as it runs.
    env: OnceLock<Weak<ThreadEnv>>,
    watch: Shared,
}

/// Tells of a task's end: lives as long as its thread, or until that is a task of the next run (the
/// runner's is). The tape is the run's, and not kept by a thread that outlives it.
struct Ends {
    tape: Weak<Tape>,
    task: TaskId,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let Some(tape) = self.tape.upgrade() else {
            return;
        };
        if let Some(thread) = lock(&tape.threads).get_mut(&self.task.0) {
            thread.cpu = Some(os::thread_cpu_times());
        }
        if let Some(env) = tape.env.get().and_then(Weak::upgrade) {
            let mut watch = tape.watch.lock();
            watch.ended(env.now(), self.task);
        }
    }
}

thread_local! {
    static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
}

impl Tape {
    /// Of a run under `law`.
    pub(super) fn new(law: Law, watch: Shared) -> Arc<Self> {
        Arc::new(Self {
            digest: Mutex::new(Some(Digest::new(law, LEVELS_EVERY, PAUSES_MOST))),
            waits: Mutex::default(),
            threads: Mutex::default(),
            env: OnceLock::new(),
            watch,
        })
    }

    /// The environment runs: from here on events have their times.
    pub(super) fn follows(&self, env: &Arc<ThreadEnv>) {
        let _ = self.env.set(Arc::downgrade(env));
    }

    /// The sink that the environment tells events; `dirtied`: the order in which writers dirty
    /// pages matters.
    pub(super) fn sink(self: &Arc<Self>, dirtied: bool) -> os::Sink {
        let tape = Arc::clone(self);
        Arc::new(move |task, event| tape.told(task, event, dirtied))
    }

    fn told(self: &Arc<Self>, task: TaskId, event: &Event, dirtied: bool) {
        let Some(env) = self.env.get().and_then(Weak::upgrade) else {
            return;
        };
        {
            let mut watch = self.watch.lock();
            let now = env.now();
            watch.event(now, task, event);
            let counts = match event {
                Event::BalanceDirtyPages { .. } => true,
                Event::Dirtied { .. } => dirtied,
                _ => false,
            };
            if let Some(at) = watch.running(now).filter(|_| counts)
                && let Some(digest) = lock(&self.digest).as_mut()
            {
                digest.saw(at, task, event);
            }
        }
        if let Event::Waited { cause, waited, .. } = event {
            *lock(&self.waits).entry((task.0, *cause)).or_default() += *waited;
        }
        if task != TaskId::NONE {
            self.met(task);
        }
    }

    /// A thread's first event tells its name, and that its end is to be told. (`Began` is the first
    /// of those that the environment starts.)
    fn met(self: &Arc<Self>, task: TaskId) {
        let met = ENDS.try_with(|ends| {
            let mut ends = ends.borrow_mut();
            let tape = Arc::downgrade(self);
            let is_met = ends.as_ref().is_some_and(|ends| ends.tape.ptr_eq(&tape));
            if !is_met {
                *ends = Some(Ends { tape, task });
            }
            is_met
        });
        if met == Ok(false) {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("root").to_owned();
            lock(&self.threads).insert(task.0, Thread { name, cpu: None });
        }
    }

    /// The digest of the writers; nothing is taken note of any more.
    pub(super) fn take_digest(&self, law: Law) -> Digest {
        let taken = lock(&self.digest).take();
        taken.unwrap_or_else(|| Digest::new(law, LEVELS_EVERY, 0))
    }

    /// Names of the threads that were tasks.
    pub(super) fn names(&self) -> BTreeMap<u32, String> {
        let threads = lock(&self.threads);
        let names = threads.iter();
        names
            .map(|(id, thread)| (*id, thread.name.clone()))
            .collect()
    }

    /// The account of each task that has ended, jobs under their own names, and last the CPU time
    /// that the `process` used besides: threads of I/O and of the timer, and the run's own.
    pub(super) fn accounts(&self, jobs: &[Job], process: Times) -> Vec<TaskCpu> {
        accounts(&lock(&self.threads), &lock(&self.waits), jobs, process)
    }
}

fn accounts(
    threads: &BTreeMap<u32, Thread>,
    waits: &Waits,
    jobs: &[Job],
    process: Times,
) -> Vec<TaskCpu> {
    let (mut user_left, mut system_left) = process;
    let mut accounts = Vec::new();
    for (id, thread) in threads.iter().filter(|(_, thread)| thread.name != OBSERVER) {
        let Some((user, system)) = thread.cpu else {
            continue;
        };
        user_left = user_left.saturating_sub(user);
        system_left = system_left.saturating_sub(system);
        let job = jobs.iter().find(|job| job.task == *id);
        let own = waits.iter().filter(|((of, _), _)| of == id);
        accounts.push(TaskCpu {
            name: job.map_or(&thread.name, |job| &job.name).clone(),
            is_job: job.is_some(),
            is_interrupt: false,
            user_s: seconds(user),
            system_s: seconds(system),
            waits: own
                .map(|((_, cause), time)| (format!("{cause:?}"), seconds(*time)))
                .collect(),
        });
    }
    accounts.push(TaskCpu {
        name: "others".into(),
        user_s: seconds(user_left),
        system_s: seconds(system_left),
        ..TaskCpu::default()
    });
    accounts
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::outcome::Outcome;

    fn thread(name: &str, system_ms: u64) -> Thread {
        Thread {
            name: name.into(),
            cpu: Some((Nanos::millis(5), Nanos::millis(system_ms))),
        }
    }

    /// A mapper, the flusher, the background reclaimer and the observer; the flusher's waits are
    /// `flusher`.
    fn run(flusher: Cause) -> Outcome {
        let threads = [
            (1, thread("reclaimer", 30)),
            (2, thread("flush-0", 20)),
            (3, thread("levels", 10)),
            (4, thread("mmap", 400)),
        ];
        let wait = |task, cause| ((task, cause), Nanos::secs(2));
        let waits = [
            wait(1, Cause::ReclaimWriteback),
            wait(2, flusher),
            wait(4, Cause::Memory),
            wait(4, Cause::ReclaimNoProgress),
            wait(7, Cause::ReclaimNoProgress),
        ];
        let jobs = vec![Job {
            name: "mmap".into(),
            task: 4,
            is_mapper: true,
            samples: vec![(1.0, 8.0), (2.0, 9.0)],
            ..Job::default()
        }];
        let process = (Nanos::millis(100), Nanos::millis(500));
        Outcome {
            tasks: accounts(&threads.into(), &waits.into(), &jobs, process),
            jobs,
            scale: 1.0,
            cpu_scale: 1.0,
            ..Outcome::default()
        }
    }

    fn value(outcome: &Outcome, name: &str) -> f64 {
        let metric = metrics::by_name(name).unwrap();
        (metric.of)(outcome).unwrap()
    }

    /// A run of which the calling thread is a task: the names of its tasks, and its tape.
    fn ran(task: TaskId) -> (BTreeMap<u32, String>, Weak<Tape>) {
        let tape = Tape::new(history::dirty::RATE_BASED, Shared::new(false));
        let mut options = os::Options::new(64);
        options.sink = Some(tape.sink(false));
        let env = ThreadEnv::start(options).unwrap();
        tape.follows(&env);
        let cause = Cause::Memory;
        env.emit(task, &Event::Waiting { cause });
        env.shutdown();
        (tape.names(), Arc::downgrade(&tape))
    }

    #[test]
    fn the_runners_thread_is_a_task_of_each_of_its_runs_and_keeps_none_of_their_tapes() {
        for id in [7, 9] {
            let (names, tape) = ran(TaskId(id));
            assert_eq!(names.keys().collect::<Vec<_>>(), [&id]);
            assert_eq!(tape.strong_count(), 0);
        }
    }

    #[test]
    fn what_jobs_wait_for_is_not_the_flushers_and_what_it_waits_for_is() {
        let idle = run(Cause::WritebackFlight);
        assert!(value(&idle, "flusher_throttled_s") < 1e-9);
        let held = run(Cause::ReclaimNoProgress);
        assert!((value(&held, "flusher_throttled_s") - 2.0).abs() < 1e-9);
    }

    #[test]
    fn each_has_the_time_of_its_thread_and_all_together_that_of_the_process() {
        let run = run(Cause::Idle);
        let near = |name, expected: f64| {
            let value = value(&run, name);
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        };
        near("system-tasks", 0.4);
        near("lat_system_ms", 200.0);
        near("system", 0.5);
        near("user", 0.1);
        let names: Vec<&str> = run.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["reclaimer", "flush-0", "mmap", "others"]);
    }
}

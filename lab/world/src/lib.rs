//! The lab: the same procedures in virtual time.
//!
//! A `Lab` is a machine with a number of CPUs, frames of memory that hold versions instead of bytes
//! (`Stamps`), devices that are models, and a clock that moves only when all that happens at the
//! present moment has happened. Tasks are stackful coroutines; a wait is a switch. A task that is
//! alone until the next event runs on without one.
//!
//! ```
//! use env::{Cause, Work};
//! use world::{CostTable, Lab, Options};
//! use policy::units::Nanos;
//!
//! let mut lab = Lab::new(Options {
//!     costs: CostTable::zero().with(Work::Copy, Nanos(300)),
//!     ..Options::default()
//! });
//! let took = lab.run(|task| {
//!     let began = task.now();
//!     task.did(Work::Copy, 1000);
//!     task.sleep(Cause::Think, Nanos::millis(5));
//!     task.now() - began
//! });
//! assert_eq!(took.unwrap(), Nanos(5_300_000));
//! ```
//!
//! Modules of the machine: `env` (the `Env`, hosts), `cpu` and `cpu_deadlines` (which task runs,
//! what is next), `event_queue`, `clock`, `coroutine` (the context switch), `confined` (state of
//! one thread), `cost`, `content`, `record`, `throttles` and `hash` (what is kept of a run). Of
//! what is plugged into it: `media` (what a device stores), `check` (every version ever written),
//! `model` (devices), `fs` (file systems).
//!
//! Invariants
//!   1. Same options, same program: same `trace_hash`. Nothing depends on addresses, on our own
//!      clock or on chance other than the seed. A task's chance depends on the seed, its name and
//!      how many of that name came before, not on other tasks.
//!   2. One task executes at a time; a `Lab` never leaves its thread. Labs share nothing.
//!   3. A run ends with every task's return: `Lab::run` cancels what is left. No suspended
//!      coroutine is ever dropped.
//!
//! Source: docs/adr/0001; style A9, A12.
#![deny(unsafe_code)]

pub mod check;
mod clock;
// A cell that checks its thread, and the context switch: neither can be written in safe Rust.
#[allow(unsafe_code)]
mod confined;
pub mod content;
#[allow(unsafe_code)]
mod coroutine;
pub mod cost;
mod cpu;
mod cpu_deadlines;
mod env;
mod event_queue;
pub mod fs;
mod hash;
pub mod media;
pub mod model;
pub mod record;
mod run_queue;
pub mod stamps;
mod throttles;
mod views;

pub use crate::env::LabEnv;
pub use content::{SECTOR_SIZE, SECTORS_PER_FRAME, Sector, Stamps};
pub use cost::CostTable;
pub use cpu_deadlines::CPUS_MAX;
pub use record::{
    Blocked, EventKind, LabError, Record, Recorded, TaskReport, Wakes, Watch, Watcher,
};
pub use throttles::{Throttles, throttles};

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ::env::{Body, Device, DeviceId, Host, Interrupt, Task, TaskId, Work};
use policy::units::{Instant, Nanos};

use crate::coroutine::{Coroutine, Resume, StackPool};
use crate::cpu::{Spent, Step};

/// Time at which a run is given up if nobody sets a limit: eleven days. A root that waits for ever
/// beside something periodic reaches it in seconds of our time.
const TIME_LIMIT: Instant = Instant(1_000_000 * policy::units::SECOND);

/// Time that requests may take to end once all tasks have; a device that hangs never ends them.
const DRAIN_MAX: Nanos = Nanos::secs(600);

/// The options of a lab.
#[derive(Clone, Debug)]
pub struct Options {
    /// CPUs, 1 to `CPUS_MAX`.
    pub cpus: u32,
    /// Waits with a deadline end on the next tick of `1/hz` seconds, as with jiffies; 0: exactly. A
    /// program's own sleep (`Cause::Think`) ends exactly in any case, as with `nanosleep`.
    pub hz: u32,
    /// Of all chance.
    pub seed: u64,
    /// Frames of memory.
    pub frames: u32,
    /// The cost of work.
    pub costs: CostTable,
    /// Which events to keep.
    pub record: Record,
}

impl Default for Options {
    /// Two CPUs, exact waits, 4 MiB, work that costs nothing, no records.
    fn default() -> Self {
        let (costs, record) = (CostTable::zero(), Record::NONE);
        Self {
            cpus: 2,
            hz: 0,
            seed: 0,
            frames: 1024,
            costs,
            record,
        }
    }
}

/// A machine in virtual time.
pub struct Lab {
    env: Arc<LabEnv>,
    /// By task; none: it has not begun, or has ended.
    coroutines: Vec<Option<Coroutine>>,
    stacks: StackPool,
    /// The first panic of a run.
    panic: Option<Box<dyn Any + Send>>,
    time_limit: Instant,
    /// Tasks were given up: this lab cannot run again.
    broken: bool,
    quiet: bool,
}

/// Why the loop stopped.
enum Stop {
    Ended,
    Idle,
    TimeLimit,
    NoProgress,
    Panicked,
    Stack { task: String, error: std::io::Error },
}

impl Lab {
    /// A lab at time zero.
    ///
    /// # Panics
    /// Without a CPU, or with more than 128.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            env: Arc::new(LabEnv::new(options)),
            coroutines: Vec::new(),
            stacks: StackPool::default(),
            panic: None,
            time_limit: TIME_LIMIT,
            broken: false,
            quiet: false,
        }
    }

    /// Its `Env`.
    #[must_use]
    pub fn env(&self) -> &Arc<LabEnv> {
        &self.env
    }

    /// The part of it that a device may use, with a random stream of its own: give each device one.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        self.env.host()
    }

    /// The contents of the frames, to be kept by device models.
    #[must_use]
    pub fn stamps(&self) -> Arc<Stamps> {
        self.env.stamps()
    }

    /// Makes a device known.
    pub fn add_device(&self, device: Arc<dyn Device>) -> DeviceId {
        self.env.add_device(device)
    }

    /// Runs are given up at `limit`.
    pub fn set_time_limit(&mut self, limit: Instant) {
        self.time_limit = limit;
    }

    /// Tells `watch` of every event from now on; nothing else changes, the trace hash included.
    pub fn set_watch(&mut self, watch: Watch) {
        *self.env.core.watch.borrow() = Some(watch);
    }

    /// Runs are given up after `steps` steps at one moment (first: 200 million, ten seconds of our
    /// time; where work costs nothing, much may happen at one moment).
    pub fn set_step_limit(&mut self, steps: u64) {
        self.env.core.scheduler().set_still_max(steps);
    }

    /// Tasks share CPUs as under Linux 6.12 with `hz` ticks a second: the earliest eligible virtual
    /// deadline first. Without it, a task that waits gets the CPU of one that has had it for 3 ms.
    ///
    /// # Panics
    /// If `hz` is zero, or the lab has run.
    pub fn preempt_at_ticks(&mut self, hz: u32) {
        assert!(hz > 0, "no ticks: a task would keep its CPU for ever");
        self.env.core.scheduler().preempt_at_ticks(hz);
    }

    /// A panic is not reported before it is passed on: programs that run labs by the thousand do
    /// that.
    pub const fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Runs `root` as a task until it returns, and all that it starts; then cancels what is left,
    /// and lets requests under way come to their end. May be called again: time goes on.
    ///
    /// # Errors
    /// The root cannot end: a deadlock, the limit of virtual time, no progress. The error names
    /// every task and what it waits for. Or there is no memory for a task's stack.
    ///
    /// # Panics
    /// With the panic of a task or a device, when all others have been cancelled.
    pub fn run<T: Send + 'static>(
        &mut self,
        root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
    ) -> Result<T, LabError> {
        assert!(
            !self.broken,
            "an earlier run of this lab had to give up tasks"
        );
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let body: Body = Box::new(move |task| {
            let value = root(task);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        self.env.core.scheduler().set_time_limit(self.time_limit.0);
        let root = self.env.core.spawn("root", body);
        let stop = loop {
            if let Some(stop) = self.step(Some(root)) {
                break stop;
            }
        };
        let at = self.now();
        let met = self.env.core.scheduler().cancel(&self.env.core.clock);
        let left = self.drain();
        if let Some(payload) = self.panic.take() {
            resume_unwind(payload);
        }
        match stop {
            Stop::Ended if left.is_empty() => {}
            Stop::Ended => {
                return Err(LabError::NoProgress {
                    at: self.now(),
                    tasks: left,
                });
            }
            Stop::Idle => return Err(LabError::Deadlock { at, tasks: met }),
            Stop::TimeLimit => return Err(LabError::TimeLimit { at, tasks: met }),
            Stop::NoProgress => return Err(LabError::NoProgress { at, tasks: met }),
            Stop::Stack { task, error } => return Err(LabError::Stack { task, error }),
            Stop::Panicked => unreachable!("its payload was raised again above"),
        }
        let value = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(value.expect("the root has returned"))
    }

    /// Fingerprint of all steps, events and completions so far.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.env.core.hash.value()
    }

    /// The time. After a run, that at which the last request ended; `tasks` knows when the root
    /// did.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.core.now()
    }

    /// Account of every task there was, in the order in which they were started.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskReport> {
        self.env.core.scheduler().reports()
    }

    /// The events kept since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Recorded> {
        self.env.core.take_recorded()
    }

    /// CPU time of interrupts.
    #[must_use]
    pub fn irq_time(&self) -> Nanos {
        self.env.core.interrupt_time()
    }

    /// Units of work reported so far by all tasks, and ended pages (`Work::EndPage`).
    #[must_use]
    pub fn units(&self, work: Work) -> u64 {
        self.env.core.units(work)
    }

    /// Lets one thing happen. An answer: there will be no more, or `root` has ended.
    fn step(&mut self, root: Option<TaskId>) -> Option<Stop> {
        let core = &self.env.core;
        let step = core.scheduler().next(&core.clock, &core.hash);
        match step {
            Step::Resume { task, resume, body } => self.resume(task, resume, body, root),
            Step::Call(call) => {
                let called = catch_unwind(AssertUnwindSafe(|| call(&Interrupt::new())));
                called
                    .err()
                    .map(|payload| self.panicked("an interrupt", payload))
            }
            Step::Idle => Some(Stop::Idle),
            Step::TimeLimit => Some(Stop::TimeLimit),
            Step::NoProgress => Some(Stop::NoProgress),
        }
    }

    fn resume(
        &mut self,
        task: TaskId,
        resume: Resume,
        body: Option<Body>,
        root: Option<TaskId>,
    ) -> Option<Stop> {
        let at = task.0 as usize;
        if let Some(body) = body
            && let Err(stop) = self.start(task, resume, body)
        {
            return Some(stop);
        }
        let coroutine = self.coroutines[at]
            .as_mut()
            .expect("a task that runs has a coroutine");
        let ended = coroutine.resume(resume)?;
        let coroutine = self.coroutines[at]
            .take()
            .expect("it was there a moment ago");
        self.stacks.give_back(coroutine.into_stack());
        if let Some(watch) = self.env.core.watch.borrow().as_mut() {
            watch.ended(self.now(), task);
        }
        if let Err(payload) = ended {
            let name = format!("task '{}'", self.env.core.scheduler().name(task));
            return Some(self.panicked(&name, payload));
        }
        (root == Some(task)).then_some(Stop::Ended)
    }

    /// Gives the task a coroutine.
    fn start(&mut self, task: TaskId, first: Resume, body: Body) -> Result<(), Stop> {
        let stack = match self.stacks.take() {
            Ok(stack) => stack,
            Err(error) => {
                let core = &self.env.core;
                let mut scheduler = core.scheduler();
                scheduler.finish(first.cpu as usize, Spent::default(), &core.clock);
                return Err(Stop::Stack {
                    task: scheduler.name(task).into(),
                    error,
                });
            }
        };
        let env = Arc::clone(&self.env);
        let coroutine = Coroutine::new(stack, move |suspender, first| {
            env.run_task(task, suspender, first, body);
        });
        let at = task.0 as usize;
        if self.coroutines.len() <= at {
            self.coroutines.resize_with(at + 1, || None);
        }
        self.coroutines[at] = Some(coroutine);
        Ok(())
    }

    fn panicked(&mut self, who: &str, payload: Box<dyn Any + Send>) -> Stop {
        if !self.quiet {
            eprintln!("lab: {who} panicked at {} ns of virtual time", self.now().0);
        }
        self.panic.get_or_insert(payload);
        Stop::Panicked
    }

    /// After `cancel`: lets tasks and requests end. Answers the tasks that would not.
    fn drain(&mut self) -> Vec<Blocked> {
        let end = self.now() + DRAIN_MAX;
        self.env.core.scheduler().set_time_limit(end.0);
        loop {
            if self.env.core.scheduler().live() == 0 && self.env.core.in_flight() == 0 {
                break;
            }
            match self.step(None) {
                None | Some(Stop::Ended | Stop::Panicked | Stop::Stack { .. }) => {}
                Some(Stop::Idle | Stop::TimeLimit | Stop::NoProgress) => break,
            }
        }
        let left = if self.env.core.scheduler().live() == 0 {
            Vec::new()
        } else {
            self.broken = true;
            self.env.core.scheduler().cancel(&self.env.core.clock)
        };
        self.forget_coroutines();
        let never_made = self.env.core.scheduler().reset();
        drop(never_made);
        left
    }

    /// Gives up the coroutines that have not ended.
    fn forget_coroutines(&mut self) {
        for coroutine in self.coroutines.drain(..).flatten() {
            coroutine.forget();
        }
    }
}

impl Drop for Lab {
    /// Calls that were asked for and never ran go without running.
    fn drop(&mut self) {
        let suspended = self.coroutines.iter().flatten().count();
        self.forget_coroutines();
        let mut scheduler = self.env.core.scheduler();
        let calls = scheduler.reset();
        let bodies = scheduler.take_bodies();
        drop(scheduler);
        drop((calls, bodies));
        self.env.clear_devices();
        if !std::thread::panicking() {
            assert!(
                suspended == 0,
                "a lab was dropped with {suspended} suspended tasks"
            );
        }
    }
}

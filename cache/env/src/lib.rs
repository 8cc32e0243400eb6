//! The only door to the world: time, waiting, waking, I/O, tasks.
//!
//! Procedures in `mm` and `workload` are plain blocking Rust over `dyn Env`. On threads a wait
//! parks the thread; in the lab it switches to another coroutine. Neither can tell.
//!
//! Vocabulary: a *task* may block; `&mut Task` is the right to do so. An *interrupt* (a completion)
//! may not. Both are a *context*: enough to take a `Lock`, whose guard borrows it, so that waiting
//! under a lock does not compile.
//!
//! Invariants
//!   1. A task that holds only `&Task`, an `Interrupt` or a guard cannot sleep.
//!   2. A wake between the look at a condition and the sleep is never lost (`Task::wait_while`).
//!   3. Every sleep has a `Cause`; a sleep that was taken is emitted as an event with its length
//!      and with the `Signal` or the deadline that ended it.
//!   4. A task that may not block (`Task::nonblocking`) parks nowhere and queues nowhere.
//!   5. There is no current task: no globals, no thread locals in any procedure.
//!
//! Source: style A3 to A5; docs/adr/0001, docs/adr/0030.
#![forbid(unsafe_code)]

mod event;
mod io;
mod lock;
mod rounds;
mod signal;
mod sync;
mod task;
mod wait;
mod work;

pub use event::{Cause, Event, TaskId, Wakeup};
pub use io::{
    Device, DeviceId, DeviceInfo, Host, IoClass, IoDone, IoError, IoOp, IoRequest, ObjectId,
};
pub use lock::{Context, Interrupt, Lock, LockClass, LockGuard};
pub use rounds::Rounds;
pub use signal::Signal;
pub use task::{Client, JoinHandle, Task, spawn};
pub use wait::WaitQueue;
pub use work::Work;

use core::task::Waker;
use std::sync::Arc;

use frames::Content;
use policy::units::Instant;

/// The body of a task.
pub type Body = Box<dyn FnOnce(&mut Task<'_>) + Send + 'static>;

/// The system has no thread to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoThread {
    /// `errno`.
    pub errno: i32,
}

/// The end of a park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparked {
    /// Its waker was used, now or since the last park: a reason to look again, no more.
    Woken,
    /// The deadline passed.
    TimedOut,
    /// The `Env` shuts down: the task must come to its end.
    Cancelled,
}

/// The world as all tasks share it. With `Local`, eleven methods, and no more (style A3).
pub trait Env: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Instant;

    /// Hands a request to its device. Blocks only for a request that may be done `in_place`;
    /// `request.complete` is called exactly once, possibly before this returns.
    fn submit(&self, request: Box<IoRequest>);

    /// Starts a task. It runs until its body returns; at shutdown its waits end with `Cancelled`.
    ///
    /// # Errors
    /// The system has no thread for it; the body is dropped.
    fn spawn(&self, name: &str, body: Body) -> Result<(), NoThread>;

    /// True if events of calls say how long these took: the same for all of its life. Threads leave
    /// that to their callers: a hit would look at the clock twice.
    fn times_calls(&self) -> bool {
        true
    }

    /// Takes note of an event.
    fn emit(&self, task: TaskId, event: &Event);

    /// The contents of the frames: always the same.
    fn content(&self) -> Arc<dyn Content>;
}

/// One task as its `Env` knows it: a parker on threads, a coroutine's handle in the lab.
pub trait Local {
    /// Blocks the task until its waker is used, the deadline passes or the `Env` shuts down. A wake
    /// since the last park counts: it is remembered, once.
    fn park(&self, deadline: Option<Instant>) -> Unparked;

    /// A waker of the task; may be used from anywhere and after the task has ended.
    fn waker(&self) -> Waker;

    /// Reports work done, once per batch and never under a lock. Threads count it; the lab charges
    /// its calibrated CPU time to the task and lets due events run.
    fn did(&self, work: Work, units: u64);

    /// The CPU the task runs on, below the number of CPUs.
    fn cpu(&self) -> usize;

    /// A random number from this task's own stream.
    fn random(&self) -> u64;
}

//! Which of the tasks that wait gets a CPU, and when a task loses its own.
//!
//! The scheduler (`cpu`) knows which task is where, and since when; a law knows the order. A law is
//! one file here, and a line where a lab is made: `first_come`, as long as nothing else is asked
//! for, and `eevdf`, that of Linux from 6.6 on.

use ::env::TaskId;

pub(crate) mod eevdf;
pub(crate) mod first_come;

/// The way in which a task comes to wait for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    /// It was just made.
    New,
    /// Its park has ended.
    Woken,
}

/// Why a task has its CPU no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It parks, or has ended.
    Sleeps,
    /// It waits for a CPU again.
    Waits,
}

/// A law. Times are those of the lab; each call names a time that is not before the last one of
/// that CPU, but for what a computation has run ahead.
pub(crate) trait RunQueue: Send {
    /// The task waits for a CPU, for `cpu` if it can be. True: it is to be asked at once who loses
    /// one.
    fn join(&mut self, task: TaskId, cpu: usize, how: Joins, now: u64) -> bool;

    /// The task that is to have `cpu`, which is nobody's; it waits no longer.
    fn take(&mut self, cpu: usize, now: u64) -> Option<TaskId>;

    /// The task that was taken for `cpu` runs there from `now`.
    fn start(&mut self, cpu: usize, now: u64);

    /// The task that has `cpu` loses it.
    fn leave(&mut self, cpu: usize, task: TaskId, why: Leaves, now: u64);

    /// When it is to be asked who loses a CPU. Somebody waits, and no CPU is idle.
    fn look_at(&self, now: u64) -> u64;

    /// True if the task that has `cpu` loses it now. Somebody waits.
    fn loses(&mut self, cpu: usize, now: u64) -> bool;
}

//! The slow path of a task that finds too little free, chosen once, when the cache is built.
//!
//! Under most laws a task reclaims for itself, and nothing has to be known of it before: nobody
//! waits for a turn, nothing is promised or kept back, and what tasks take and give back is not
//! noted. Each verb here is then a look at one word.

use env::{Context, TaskId};
use policy::reclaim::turn::Stock;
use policy::reclaim::{Admission, Tunables};
use policy::units::{Instant, Pages};

use super::queue::MemoryQueue;

/// See the module.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and no pointer is followed on the way to what is promised"
)]
pub(crate) enum SlowPath {
    /// It reclaims for itself, as in Linux.
    Direct,
    /// It waits in the queue.
    Queue(MemoryQueue),
    /// It reclaims for itself like a task that others need to get on (an ablation).
    Unqueued,
}

impl SlowPath {
    pub(super) fn new(tunables: &Tunables, frames: u32) -> Self {
        match tunables.admission() {
            Admission::Direct => Self::Direct,
            Admission::Queue => Self::Queue(MemoryQueue::new(tunables, frames)),
            Admission::Unqueued => Self::Unqueued,
        }
    }

    /// The queue, if there is one.
    pub(super) fn queue(&self) -> Option<&MemoryQueue> {
        match self {
            Self::Queue(queue) => Some(queue),
            Self::Direct | Self::Unqueued => None,
        }
    }

    /// Bytes of its own.
    pub(super) fn bytes(&self) -> u64 {
        self.queue().map_or(0, MemoryQueue::bytes)
    }

    /// There is so much memory from now on.
    pub(super) fn resize(&self, context: &impl Context, frames: u32) {
        if let Some(queue) = self.queue() {
            queue.resize(context, frames);
        }
    }

    /// Frames were put back: those that wait get what is free.
    pub(super) fn hand_out(
        &self,
        context: &impl Context,
        now: impl Fn() -> Instant,
        stock: impl Fn(&MemoryQueue) -> Stock,
    ) {
        if let Some(queue) = self.queue() {
            queue.hand_out(context, now, || stock(queue));
        }
    }

    /// Free frames that are promised, asked for or kept back.
    pub(super) fn spoken_for(&self, now: impl FnOnce() -> Instant) -> u32 {
        self.queue().map_or(0, |queue| {
            let kept = queue.kept_back(now());
            let promised = queue.promised();
            promised.saturating_add(queue.wanted()).saturating_add(kept)
        })
    }

    /// Free frames that are promised, and those that are still asked for.
    pub(super) fn promised_and_wanted(&self) -> (u32, u32) {
        self.queue()
            .map_or((0, 0), |queue| (queue.promised(), queue.wanted()))
    }

    /// The task took pages.
    pub(super) fn took(
        &self,
        context: &impl Context,
        task: TaskId,
        now: impl FnOnce() -> Instant,
        pages: u32,
    ) {
        if let Some(queue) = self.queue() {
            let pages = Pages(u64::from(pages));
            queue.note(context, task, now(), pages, Pages::ZERO);
        }
    }

    /// Pages that the task took were given back.
    pub(super) fn gave_back(
        &self,
        context: &impl Context,
        task: TaskId,
        now: impl FnOnce() -> Instant,
        pages: Pages,
    ) {
        if let Some(queue) = self.queue() {
            queue.note(context, task, now(), Pages::ZERO, pages);
        }
    }

    /// Pages that the task took and had no use for will be free again.
    pub(super) fn unused(
        &self,
        context: &impl Context,
        task: TaskId,
        now: impl FnOnce() -> Instant,
        pages: Pages,
    ) {
        if let Some(queue) = self.queue() {
            queue.unused(context, task, now(), pages);
        }
    }
}

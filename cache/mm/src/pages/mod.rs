//! The pages of a cache: which frame holds which, which task is busy with one, and which wait for
//! that.
//!
//! Invariants
//!   1. A busy bit is given back here or by `FrameTable` under a lock, and then `wake_busy` is
//!      called: no waiter of a page is forgotten.
//!   2. A waiter counts itself, then looks at the bit; the task that gives the bit back, then looks
//!      at the count.

use env::{Cause, Signal, Task, WaitQueue};
use frames::sync::{AtomicU32, Ordering};
use frames::{Busy, Flags, FrameId, FrameTable, IndexWriter, Ledger, NodePool, Owner};

use crate::Error;
use awaited::Awaited;

pub(crate) mod awaited;

/// Queues for waiters on busy pages, picked by frame.
const QUEUES: usize = 64;
/// Shadows given up at a time where index nodes are short: a cluster's worth, and as many again.
const SHADOWS_GIVEN_UP: u32 = 64;

/// Which frame holds which page.
pub struct CachedPages {
    /// The state of each frame.
    pub table: FrameTable,
    /// Nodes of the indexes of all files.
    pub pool: NodePool,
    /// Pins that callers hold.
    pub(crate) pins: Ledger,
    /// Index nodes that are left to pages: below, evicted pages leave no shadows.
    shadow_floor: u32,
    /// Pages that are being brought in for those that come back for them.
    pub(crate) brought: AtomicU32,
    pub(crate) awaited: Awaited,
    queues: Vec<WaitQueue>,
    /// Tasks in any of `queues`; lets a release skip the look.
    waiters: AtomicU32,
}

impl CachedPages {
    /// `nodes`: of the indexes.
    pub(crate) fn new(frames: u32, nodes: u32) -> Self {
        Self {
            table: FrameTable::new(frames),
            pool: NodePool::new(nodes),
            pins: Ledger::new(),
            shadow_floor: nodes / 2,
            brought: AtomicU32::new(0),
            awaited: Awaited::new(),
            queues: (0..QUEUES).map(|_| WaitQueue::new()).collect(),
            waiters: AtomicU32::new(0),
        }
    }

    /// True if pages evicted from this index leave shadows: as long as nodes are plenty, or made so
    /// by giving up this file's first ones.
    pub(crate) fn leaves_shadows(&self, index: &mut IndexWriter<'_>) -> bool {
        self.pool.free() > self.shadow_floor
            || index.remove_shadows(0, u32::MAX, SHADOWS_GIVEN_UP) > 0
    }

    /// Gives a busy bit back and wakes the task that waits for it.
    pub(crate) fn release(&self, busy: Busy, set: Flags, clear: Flags) {
        let frame = busy.frame();
        self.table.release(busy, set, clear);
        self.wake_busy(&[frame], Signal::PageUnlocked);
    }

    fn queue(&self, frame: FrameId) -> &WaitQueue {
        &self.queues[frame.0 as usize % QUEUES]
    }

    /// Waits until the frame is not busy, or holds another page.
    pub(crate) fn wait_busy(
        &self,
        task: &mut Task<'_>,
        cause: Cause,
        frame: FrameId,
        owner: Owner,
    ) -> Result<(), Error> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let wakeup = task.wait_while(self.queue(frame), cause, None, |_| {
            self.table.is_busy_with(frame, owner)
        });
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        Error::after(wakeup)
    }

    /// Waits until a page's write has ended.
    pub fn wait_written(
        &self,
        task: &mut Task<'_>,
        frame: FrameId,
        owner: Owner,
    ) -> Result<(), Error> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let wakeup = task.wait_while(self.queue(frame), Cause::WritebackIo, None, |_| {
            self.table.flags(frame).has(Flags::WRITEBACK) && self.table.owner(frame) == owner
        });
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        Error::after(wakeup)
    }

    /// A page that never was to be found, or is not any more, gives its busy bit back with its
    /// owner; the task that came with an old look-up and waits for it is woken. Under locks
    /// `FrameTable::disown` and, after them, `wake_busy`.
    pub(crate) fn disown(&self, busy: Busy) -> FrameId {
        let frame = self.table.disown(busy);
        self.wake_busy(&[frame], Signal::PageUnlocked);
        frame
    }

    /// After busy bits were given back: wakes the task that waits for one of `frames`, and says why
    /// they were.
    pub(crate) fn wake_busy(&self, frames: &[FrameId], signal: Signal) {
        // The releases, then the look at the count (`wait_busy` counts, then looks at the bit).
        frames::sync::fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        if frames.len() >= QUEUES {
            for queue in self.queues.iter().filter(|queue| !queue.is_empty()) {
                queue.wake_all(signal);
            }
            return;
        }
        for queue in frames.iter().map(|frame| self.queue(*frame)) {
            if !queue.is_empty() {
                queue.wake_all(signal);
            }
        }
    }
}

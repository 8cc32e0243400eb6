//! The state of a node of the machine: a background reclaimer for its zones, its alarm, and its
//! waiters.

use env::{Cause, Context, Lock, LockClass, LockGuard, Signal, Task, WaitQueue, Wakeup};
use frames::sync::{AtomicBool, AtomicU64, Ordering};
use policy::place::cache::ZonelistCache;
use policy::units::{Instant, Pages};

use crate::vmstat::{add, get};

/// Which node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(pub u8);

impl NodeId {
    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// See the module.
pub struct Node {
    background: Background,
    /// Tasks that found less than half of the reserve.
    reserve_wait: WaitQueue,
    /// Its tasks' memory of the zones that they try.
    zonelist_cache: Lock<ZonelistCache>,
    /// Frames that its tasks took here, and on other nodes, ever; not counted where there is one
    /// zone.
    taken: [AtomicU64; 2],
}

/// The alarm of a task of the background.
#[derive(Default)]
pub struct Background {
    /// The idle task.
    wait: WaitQueue,
    asked: AtomicBool,
    /// Until when only tasks that wait for memory are to wake it, ns.
    rests: AtomicU64,
}

impl Node {
    pub(super) fn new() -> Self {
        Self {
            background: Background::default(),
            reserve_wait: WaitQueue::new(),
            zonelist_cache: Lock::new(LockClass::Leaf, ZonelistCache::default()),
            taken: [const { AtomicU64::new(0) }; 2],
        }
    }

    pub fn background(&self) -> &Background {
        &self.background
    }

    /// Its tasks' memory of the zones that they try.
    pub(crate) fn zonelist_cache<'a>(
        &'a self,
        context: &'a impl Context,
    ) -> LockGuard<'a, ZonelistCache> {
        self.zonelist_cache.lock(context)
    }

    /// Its tasks have taken frames, here or on another node.
    pub(crate) fn note_taken(&self, is_here: bool, frames: u32) {
        add(&self.taken[usize::from(!is_here)], u64::from(frames));
    }

    /// The frames they have taken, here and on other nodes.
    pub(crate) fn taken(&self) -> [Pages; 2] {
        [0, 1].map(|at| Pages(get(&self.taken[at])))
    }

    /// The queue of tasks that leave the reserve alone until the background reclaimer has freed
    /// more.
    pub(crate) fn reserve_wait(&self) -> &WaitQueue {
        &self.reserve_wait
    }
}

impl Background {
    /// True if it is asked to work.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// It begins to do what it was asked.
    pub fn begin(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Asks it to work; the task that asks first wakes it.
    pub fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            self.wait.wake_all(Signal::ReclaimAsked);
        }
    }

    /// Until then only tasks that wait for memory are to ask it.
    pub(crate) fn rest_until(&self, until: Instant) {
        self.rests.store(until.0, Ordering::Relaxed);
    }

    /// True as long as that lasts.
    pub(crate) fn is_resting(&self, now: Instant) -> bool {
        now.0 < self.rests.load(Ordering::Relaxed)
    }

    /// Sleeps until it is asked or `stopping`, at most to `deadline`.
    pub fn sleep(
        &self,
        task: &mut Task<'_>,
        deadline: Option<Instant>,
        stopping: impl Fn() -> bool,
    ) -> Wakeup {
        task.wait_while(&self.wait, Cause::Idle, deadline, |_| {
            !self.is_asked() && !stopping()
        })
    }

    /// The cache stops.
    pub fn stop(&self) {
        self.wait.wake_all(Signal::Shutdown);
    }
}

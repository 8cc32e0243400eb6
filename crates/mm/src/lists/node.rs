//! What a node has beside its lists: what is off them, how hard each kind of page is pressed, who is at work on it, who
//! sleeps for it, and what wakes its background reclaimer.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use env::{Cause, Context, Env, Lock, LockClass, LockGuard, Signal, Task, WaitQueue, Wakeup};
use policy::reclaim::Tunables;
use policy::reclaim::background::Failures;
use policy::reclaim::page::NodeFlags;
use policy::reclaim::scan::{Costs, Kind, Shrunk, Sizes, may_deactivate};
use policy::reclaim::workingset::{Age, RefaultVerdict, Shadow, refault};
use policy::units::{Instant, Pages};

use super::sleepers::Sleepers;
use crate::vmstat::{add, get, sub};

/// See the module.
pub(crate) struct Node {
    /// Pages off the lists: anonymous, of files.
    isolated: [AtomicU64; 2],
    balance: Lock<Balance>,
    /// The node's marks: WRITEBACK, DIRTY, CONGESTED.
    flags: AtomicU8,
    /// Reclaimers that are at work on it, asleep ones apart.
    at_work: AtomicU32,
    sleepers: Sleepers,
    /// Who found less than half of the reserve.
    reserve_wait: WaitQueue,
    background: Background,
}

/// What the pressure on the two kinds of pages is.
pub(crate) struct Balance {
    costs: Costs,
    age: Age,
    /// Refaults that went to the active list, by kind, and what they were when the last cycle of reclaim ended.
    activated: [u64; 2],
    activated_before: [u64; 2],
    failures: Failures,
}

/// What wakes a background reclaimer.
pub(crate) struct Background {
    /// The idle reclaimer.
    wait: WaitQueue,
    asked: AtomicBool,
    /// Until when nobody but those who wait for memory is to wake it, ns.
    rests: AtomicU64,
}

impl Node {
    pub(super) fn new(frames: u32, tunables: &Tunables) -> Self {
        Self {
            isolated: [const { AtomicU64::new(0) }; 2],
            balance: Lock::new(
                LockClass::Leaf,
                Balance {
                    costs: Costs::new(tunables.law.cost),
                    age: Age::new(Pages(u64::from(frames))),
                    activated: [0; 2],
                    activated_before: [0; 2],
                    failures: Failures::new(tunables.revives_background()),
                },
            ),
            flags: AtomicU8::new(0),
            at_work: AtomicU32::new(0),
            sleepers: Sleepers::new(tunables),
            reserve_wait: WaitQueue::new(),
            background: Background {
                wait: WaitQueue::new(),
                asked: AtomicBool::new(false),
                rests: AtomicU64::new(0),
            },
        }
    }

    /// Pages of a kind that are off the lists.
    pub(crate) fn isolated(&self, kind: Kind) -> Pages {
        Pages(get(&self.isolated[kind.index()]))
    }

    /// Pages of a kind were taken off the lists.
    pub(crate) fn note_isolated(&self, kind: Kind, pages: u64) {
        add(&self.isolated[kind.index()], pages);
    }

    /// Isolated pages of a kind were put back or freed.
    pub(crate) fn note_gone(&self, kind: Kind, pages: u64) {
        sub(&self.isolated[kind.index()], pages);
    }

    /// The pressure on its pages.
    pub(crate) fn balance<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, Balance> {
        self.balance.lock(context)
    }

    /// Its marks.
    pub(crate) fn flags(&self) -> NodeFlags {
        let bits = self.flags.load(Ordering::Relaxed);
        NodeFlags {
            writeback: bits & 1 != 0,
            dirty: bits & 2 != 0,
            congested: bits & 4 != 0,
        }
    }

    /// Sets marks; none is taken away.
    pub(crate) fn set_flags(&self, set: NodeFlags) {
        let bits =
            u8::from(set.writeback) | u8::from(set.dirty) << 1 | u8::from(set.congested) << 2;
        if bits != 0 {
            self.flags.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Takes all marks away.
    pub(crate) fn clear_flags(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    /// Whether the background reclaimer has given up.
    pub(crate) fn is_hopeless(&self, context: &impl Context) -> bool {
        self.balance.lock(context).failures.hopeless()
    }

    /// A reclaimer is at work on it.
    pub(crate) fn enter_work(&self) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
    }

    /// It is no more, or sleeps.
    pub(crate) fn leave_work(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many are.
    pub(crate) fn at_work(&self) -> u32 {
        self.at_work.load(Ordering::Relaxed)
    }

    pub(crate) fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// Where those wait who leave the reserve alone until the background reclaimer has freed more.
    pub(crate) fn reserve_wait(&self) -> &WaitQueue {
        &self.reserve_wait
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }
}

impl Balance {
    /// What reclaim has cost lately.
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Balances that freed nothing.
    pub(crate) fn failures(&self) -> Failures {
        self.failures
    }

    /// The same, to be told what has happened.
    pub(crate) fn failures_mut(&mut self) -> &mut Failures {
        &mut self.failures
    }

    /// Whether a pass ages the active list of each kind.
    pub(crate) fn may_deactivate(&self, sizes: &Sizes, force: bool) -> [bool; 2] {
        Kind::ALL.map(|kind| {
            let (now, before) = (self.activated, self.activated_before);
            let at = kind.index();
            may_deactivate(sizes, kind, force, now[at], before[at])
        })
    }

    /// A cluster was shrunk.
    pub(crate) fn note_shrunk(&mut self, kind: Kind, shrunk: Shrunk, listed: Pages) {
        self.costs.note_shrunk(kind, shrunk, listed);
    }

    /// A page is evicted: what stays of it, as bits.
    pub(crate) fn evict(&mut self, workingset: bool) -> u32 {
        self.age.evict(workingset).bits()
    }

    /// A page that had left `shadow` is read again.
    pub(super) fn refault(
        &mut self,
        shadow: u32,
        kind: Kind,
        sizes: &Sizes,
        may_swap: bool,
    ) -> RefaultVerdict {
        let verdict = refault(&self.age, Shadow::from_bits(shadow), kind, sizes, may_swap);
        if verdict.activate {
            self.age.advance(Pages(1));
        }
        verdict
    }

    /// The same, where the page is counted. `listed`: pages on the lists, if it was of the working set.
    pub(super) fn note_refault(&mut self, kind: Kind, activated: bool, listed: Option<Pages>) {
        self.activated[kind.index()] += u64::from(activated);
        if let Some(listed) = listed {
            self.costs.note_refault(kind, Pages(1), listed);
        }
    }

    /// Pages were activated: whatever was evicted is that much older.
    pub(super) fn advance_age(&mut self, activated: Pages) {
        self.age.advance(activated);
    }

    /// A cycle of reclaim has ended: refaults from now on say that the active lists are to be aged.
    pub(super) fn end_cycle(&mut self) {
        self.activated_before = self.activated;
    }
}

impl Background {
    /// Whether it is asked to work.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// It begins to do what it was asked.
    pub(crate) fn begin(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Asks it to work; whoever asks first wakes it.
    pub(crate) fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            self.wait.wake_all(Signal::ReclaimAsked);
        }
    }

    /// Until then nobody but those who wait for memory is to ask it.
    pub(crate) fn rest_until(&self, until: Instant) {
        self.rests.store(until.0, Ordering::Relaxed);
    }

    /// Whether that lasts.
    pub(crate) fn is_resting(&self, now: Instant) -> bool {
        now.0 < self.rests.load(Ordering::Relaxed)
    }

    /// Sleeps until it is asked or `stopping`, at most to `deadline`.
    pub(crate) fn sleep<E: Env>(
        &self,
        task: &mut Task<'_, E>,
        deadline: Option<Instant>,
        stopping: impl Fn() -> bool,
    ) -> Wakeup {
        task.wait_while(&self.wait, Cause::Idle, deadline, |_| {
            !self.is_asked() && !stopping()
        })
    }

    /// The cache stops.
    pub(crate) fn stop(&self) {
        self.wait.wake_all(Signal::Shutdown);
    }
}

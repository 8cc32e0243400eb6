//! What one reclaimer looks after: its LRU lists, what is off them, who sleeps and why.
//!
//! A node has four lists (anonymous and file, inactive and active), and under Tidegate's law a fifth for pages of
//! files that wait for their write. A reclaimer that takes pages off a
//! list *isolates* them: they stay cached, may be pinned, written and even given back by their owner, but are on
//! no list; the reclaimer knows each again by its generation. What it does not free it puts back.
//!
//! Invariants
//!   1. A cached frame is on exactly one list, or isolated by exactly one reclaimer, or its busy holder is
//!      about to put it on one.
//!   2. Whoever takes a page out of an index takes it off its list and disowns or orphans it in one hold of the
//!      LRU lock. So put-back, under the same lock, sees whether the page still is.
//!   3. `isolated` counts pages from the hold of the lock that took them off until the one that put them
//!      back, or until they were freed.
//!
//! Source: mechanisms 2.1, 2.4, 2.8, 4.2; Linux v6.12 mm/vmscan.c, mm/swap.c folio_rotate_reclaimable().

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use env::{Context, Env, Lock, LockClass, Signal, WaitQueue};
use frames::{Flags, FrameId, Lists};
use policy::reclaim::background::Failures;
use policy::reclaim::page::{AfterWrite, NodeFlags, PageRule, after_write};
use policy::reclaim::scan::{CostRule, Costs, Sizes};
use policy::reclaim::throttle::Throttle;
use policy::reclaim::workingset::Age;
use policy::reclaim::{Reason, Tunables};
use policy::units::Pages;

use super::throttle::Sleepers;
use crate::cache::{Cache, get};
use crate::vmstat::Item;

/// List numbers (`policy::reclaim::Lru::index`).
pub(crate) const INACTIVE_ANON: u8 = 0;
pub(crate) const ACTIVE_ANON: u8 = 1;
pub(crate) const INACTIVE_FILE: u8 = 2;
pub(crate) const ACTIVE_FILE: u8 = 3;
/// Pages of files that wait for their write, out of every scan's way (`PageRule::aside`).
pub(crate) const ASIDE: u8 = 4;
/// How many lists.
const LISTS: u8 = 5;
/// The lists that are scanned, in order of `Lru`.
const SCANNED: [u8; 4] = [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE];

/// See the module.
pub(crate) struct Node {
    pub(crate) lru: Lock<Lists>,
    /// Pages off the lists: anonymous, of files.
    pub(crate) isolated: [AtomicU64; 2],
    pub(crate) balance: Lock<Balance>,
    /// The node's marks: WRITEBACK, DIRTY, CONGESTED.
    flags: AtomicU8,
    /// Reclaimers that are at work on it, asleep ones apart.
    pub(crate) shrinkers: AtomicU32,
    pub(crate) throttle: Lock<Throttle>,
    /// How many sleep for WRITEBACK; a copy for looks without the lock.
    pub(crate) written_matters: AtomicU32,
    pub(crate) sleepers: [Sleepers; Reason::COUNT],
    /// Who found less than half of the reserve.
    pub(crate) reserve_wait: WaitQueue,
    pub(crate) rule: PageRule,
}

/// What the pressure on the two kinds of pages is.
pub(crate) struct Balance {
    pub(crate) costs: Costs,
    pub(crate) age: Age,
    /// Refaults that went to the active list, by kind, and what they were when the last cycle of reclaim ended.
    pub(crate) activated: [u64; 2],
    pub(crate) activated_before: [u64; 2],
    pub(crate) failures: Failures,
}

impl Node {
    pub(crate) fn new(frames: u32, tunables: &Tunables) -> Self {
        let law = tunables.law;
        Self {
            lru: Lock::new(LockClass::Lru, Lists::new(frames, LISTS)),
            isolated: [const { AtomicU64::new(0) }; 2],
            balance: Lock::new(
                LockClass::Leaf,
                Balance {
                    costs: Costs::new(CostRule::of(law)),
                    age: Age::new(Pages(u64::from(frames))),
                    activated: [0; 2],
                    activated_before: [0; 2],
                    failures: Failures::default(),
                },
            ),
            flags: AtomicU8::new(0),
            shrinkers: AtomicU32::new(0),
            throttle: Lock::new(LockClass::Leaf, Throttle::new(*tunables)),
            written_matters: AtomicU32::new(0),
            sleepers: core::array::from_fn(|_| Sleepers::new()),
            reserve_wait: WaitQueue::new(),
            rule: PageRule {
                writes_files: tunables.writes_files,
                ..PageRule::of(law)
            },
        }
    }

    /// Lengths of the lists that are scanned.
    pub(crate) fn sizes(&self, context: &impl Context) -> Sizes {
        self.sizes_and_aside(context).0
    }

    pub(crate) fn sizes_and_aside(&self, context: &impl Context) -> (Sizes, Pages) {
        let lru = self.lru.lock(context);
        let len = |list| Pages(u64::from(lru.len(list)));
        (Sizes(SCANNED.map(len)), len(ASIDE))
    }

    /// Pages on all lists.
    pub(crate) fn listed(&self, context: &impl Context) -> Pages {
        let (sizes, aside) = self.sizes_and_aside(context);
        sizes.total() + aside
    }

    pub(crate) fn flags(&self) -> NodeFlags {
        let bits = self.flags.load(Ordering::Relaxed);
        NodeFlags {
            writeback: bits & 1 != 0,
            dirty: bits & 2 != 0,
            congested: bits & 4 != 0,
        }
    }

    pub(crate) fn set_flags(&self, set: NodeFlags) {
        let bits =
            u8::from(set.writeback) | u8::from(set.dirty) << 1 | u8::from(set.congested) << 2;
        if bits != 0 {
            self.flags.fetch_or(bits, Ordering::Relaxed);
        }
    }

    pub(crate) fn clear_flags(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    /// Whether the background reclaimer has given up.
    pub(crate) fn is_hopeless(&self, context: &impl Context) -> bool {
        self.balance.lock(context).failures.hopeless()
    }
}

/// The inactive list of a page's kind.
pub(crate) fn inactive_of(flags: Flags) -> u8 {
    if flags.has(Flags::ANON) {
        INACTIVE_ANON
    } else {
        INACTIVE_FILE
    }
}

/// The list that a page's flags say.
pub(crate) fn list_of(flags: Flags) -> u8 {
    inactive_of(flags) + u8::from(flags.has(Flags::ACTIVE))
}

impl<E: Env> Cache<E> {
    /// The writes of these pages have ended; all locks are released. Those in `rotate` had the flag
    /// `RECLAIM`: they go to the inactive tail, to be freed next, unless they are dirty again.
    pub(crate) fn wrote_back(
        &self,
        context: &impl Context,
        written: &[FrameId],
        rotate: &[FrameId],
    ) {
        if !rotate.is_empty() || self.node.rule.aside {
            self.rotate(context, written, rotate);
        }
        self.on_written(context, Pages(written.len() as u64));
        self.memory.wait.wake_all(Signal::PageWritten);
    }

    fn rotate(&self, context: &impl Context, written: &[FrameId], rotate: &[FrameId]) {
        let mut rotated = 0;
        {
            let mut lru = self.node.lru.lock(context);
            // Whatever waits for its write may wait for any of its writes.
            let candidates = if lru.len(ASIDE) > 0 { written } else { rotate };
            // In the order of `written`.
            let mut marks = rotate.iter().peekable();
            for frame in candidates {
                let marked = marks.next_if_eq(&frame).is_some();
                let flags = self.table.flags(*frame);
                // Not on a list: isolated, or gone. The mark is lost then, as in the kernel.
                let Some(list) = lru.list_of(*frame) else {
                    continue;
                };
                let aside = list == ASIDE;
                let dirty = flags.any(Flags::DIRTY | Flags::WRITEBACK);
                let busy = flags.any(Flags::BUSY);
                if after_write(marked, aside, dirty, busy) != AfterWrite::Rotates {
                    continue;
                }
                self.table.update(*frame, Flags::NONE, Flags::ACTIVE);
                lru.remove(*frame);
                lru.push_tail(inactive_of(flags), *frame);
                rotated += 1;
            }
        }
        self.counters.add(Item::Pgrotated, rotated);
    }

    /// A reading of all counters and levels under the kernel's names.
    pub fn vmstat(&self) -> crate::Vmstat {
        let context = env::Interrupt::new();
        let mut read = self.counters.read();
        let (sizes, aside) = self.node.sizes_and_aside(&context);
        let levels = [
            Item::NrInactiveAnon,
            Item::NrActiveAnon,
            Item::NrInactiveFile,
            Item::NrActiveFile,
        ];
        for (item, size) in levels.into_iter().zip(sizes.0) {
            read.set(item, size.0);
        }
        read.set(Item::NrAside, aside.0);
        let isolated = |kind: usize| get(&self.node.isolated[kind]);
        read.set(Item::NrIsolatedAnon, isolated(0));
        read.set(Item::NrIsolatedFile, isolated(1));
        read.set(Item::NrFreePages, u64::from(self.memory.free()));
        read.set(Item::NrDirty, get(&self.totals.dirty));
        let writeback = get(&self.totals.writeback) + self.swap_writeback().0;
        read.set(Item::NrWriteback, writeback);
        let pinned = u64::from(self.totals.pinned.load(Ordering::Relaxed));
        read.set(Item::NrPinned, pinned);
        let limit = self.memory.limit(&context);
        let withheld = u64::from(self.options.frames) - limit.limit.0 - limit.over.0;
        read.set(Item::NrWithheld, withheld);
        read.set(Item::SwapFree, self.swap_stats().free.0);
        read.set(Item::SwapTotal, self.swap_total().0);
        read.set(Item::Pgfree, self.memory.given_back());
        let throttle = self.node.throttle.lock(&context);
        read.set(Item::NrThrottledWritten, throttle.throttled_written().0);
        let kib = |pages: u64| pages << 2;
        let swapped_in = self.counters.get(Item::Pswpin);
        read.set(Item::Pgpgin, kib(get(&self.totals.read_in) + swapped_in));
        let swapped_out = self.counters.get(Item::Pswpout);
        read.set(Item::Pgpgout, kib(get(&self.totals.written) + swapped_out));
        read
    }
}

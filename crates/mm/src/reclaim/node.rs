//! What one reclaimer looks after: its LRU lists, what is off them, who sleeps and why.
//!
//! A node has four lists (anonymous and file, inactive and active). A reclaimer that takes pages off a
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

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use env::{Context, Env, Lock, LockClass};
use frames::{Flags, FrameId, Lists};

use crate::cache::Cache;
use crate::vmstat::Item;

/// List numbers (`policy::reclaim::Lru::index`).
pub(crate) const INACTIVE_ANON: u8 = 0;
pub(crate) const ACTIVE_ANON: u8 = 1;
pub(crate) const INACTIVE_FILE: u8 = 2;
pub(crate) const ACTIVE_FILE: u8 = 3;
/// How many lists.
pub(crate) const LISTS: u8 = 4;

/// See the module.
pub(crate) struct Node {
    pub(crate) lru: Lock<Lists>,
    /// Pages off the lists: anonymous, of files.
    pub(crate) isolated: [AtomicU64; 2],
    /// Passes of the background reclaimer in a row that freed nothing.
    pub(crate) failures: AtomicU32,
}

impl Node {
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            lru: Lock::new(LockClass::Lru, Lists::new(frames, LISTS)),
            isolated: [const { AtomicU64::new(0) }; 2],
            failures: AtomicU32::new(0),
        }
    }

    /// Lengths of the four lists.
    pub(crate) fn sizes(&self, context: &impl Context) -> [u64; LISTS as usize] {
        let lru = self.lru.lock(context);
        [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE]
            .map(|list| u64::from(lru.len(list)))
    }
}

/// Index of a page's kind in `Node::isolated`: anonymous 0, of a file 1.
pub(crate) fn kind_of(flags: Flags) -> usize {
    usize::from(!flags.has(Flags::ANON))
}

/// The list that a page's flags say.
pub(crate) fn list_of(flags: Flags) -> u8 {
    let active = u8::from(flags.has(Flags::ACTIVE));
    if flags.has(Flags::ANON) {
        INACTIVE_ANON + active
    } else {
        INACTIVE_FILE + active
    }
}

impl<E: Env> Cache<E> {
    /// The writes of `pages` pages have ended; all locks are released. Those in `rotate` had the flag
    /// `RECLAIM` and were not dirty again: they go to the inactive tail, to be freed next.
    pub(crate) fn wrote_back(&self, context: &impl Context, pages: u64, rotate: &[FrameId]) {
        if !rotate.is_empty() {
            self.rotate(context, rotate);
        }
        let _ = pages;
        self.memory.wait.wake_all();
    }

    fn rotate(&self, context: &impl Context, frames: &[FrameId]) {
        let mut rotated = 0;
        {
            let mut lru = self.node.lru.lock(context);
            for frame in frames {
                let flags = self.table.flags(*frame);
                // Isolated, gone, or dirty again: the mark is lost, as in the kernel.
                let still = flags.has(Flags::CACHED)
                    && !flags.any(Flags::BUSY | Flags::DIRTY | Flags::WRITEBACK);
                if !still || lru.list_of(*frame).is_none() {
                    continue;
                }
                self.table.update(*frame, Flags::NONE, Flags::ACTIVE);
                lru.remove(*frame);
                let active = Flags::ACTIVE.0;
                lru.push_tail(list_of(Flags(flags.0 & !active)), *frame);
                rotated += 1;
            }
        }
        self.counters.add(Item::Pgrotated, rotated);
    }

    /// A reading of all counters and levels under the kernel's names.
    pub fn vmstat(&self) -> crate::Vmstat {
        let context = env::Interrupt::new();
        let mut read = self.counters.read();
        let sizes = self.node.sizes(&context);
        let levels = [
            Item::NrInactiveAnon,
            Item::NrActiveAnon,
            Item::NrInactiveFile,
            Item::NrActiveFile,
        ];
        for (item, size) in levels.into_iter().zip(sizes) {
            read.set(item, size);
        }
        let isolated = |kind: usize| self.node.isolated[kind].load(Ordering::Relaxed);
        read.set(Item::NrIsolatedAnon, isolated(0));
        read.set(Item::NrIsolatedFile, isolated(1));
        read.set(Item::NrFreePages, u64::from(self.memory.free()));
        read.set(Item::NrDirty, crate::cache::get(&self.totals.dirty));
        read.set(Item::NrWriteback, crate::cache::get(&self.totals.writeback));
        let pinned = u64::from(self.totals.pinned.load(Ordering::Relaxed));
        read.set(Item::NrPinned, pinned);
        read
    }
}

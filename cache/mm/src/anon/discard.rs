//! Giving pages of a region back: their frames and their slots, at once.
//!
//! A page under writeback leaves the region at once too; its frame and its slot follow when the
//! device is done with them. Only a page that somebody reads in or looks at this very moment is
//! waited for, and the task that has no task to wait with (the last handle is dropped) leaves those
//! to a task of their own; where no thread is available for it, to the background reclaimer and to
//! the task that makes the next region.

use core::ops::Range;
use std::sync::Arc;

use env::{Cause, Context, Interrupt, Signal, Task, TaskId, Work};
use frames::{Busy, Flags, FrameId, Refusal, RegionEntry};
use policy::units::Nanos;

use crate::Error;
use crate::cache::{Cache, sub};
use crate::registry::regions::Anon;

/// Pages that are given back together.
const BATCH: usize = 32;
/// A page that a reader has pinned for the time of a copy is looked at again after this.
const COPY: Nanos = Nanos::micros(20);

/// Pages and slots that are given back in one go.
struct Batch {
    busies: [Option<Busy>; BATCH],
    /// Pages whose busy bits these are, and their frames.
    pages: [(u32, FrameId); BATCH],
    frames: usize,
    slots: [u32; BATCH],
    taken: usize,
}

/// A page that cannot be given back yet.
struct Blocked {
    page: u32,
    frame: FrameId,
    pinned: bool,
}

/// Gives the pages `first..end` back; waits for those that are being read in.
pub(super) fn discard(
    task: &mut Task<'_>,
    cache: &Cache,
    anon: &Anon,
    first: u32,
    end: u32,
) -> Result<(), Error> {
    let who = task.id();
    discard_for(task, cache, anon, first..end, who)
}

/// The same on behalf of the task that took the memory.
fn discard_for(
    task: &mut Task<'_>,
    cache: &Cache,
    anon: &Anon,
    pages: Range<u32>,
    who: TaskId,
) -> Result<(), Error> {
    let (mut at, end) = (pages.start, pages.end);
    let together = u64::from(cache.options.reclaim.fault_around());
    // Pages that go along with the last page that was charged whole.
    let mut along = 0;
    while at < end {
        let mut batch = Batch::new();
        let (next, blocked) = batch.fill(cache, task, anon, at, end);
        let count = batch.give_back(cache, task, who);
        // Its frame's way back is in it: the published round has no other share for it.
        let entries = count.saturating_sub(along).div_ceil(together);
        along = along + entries * together - count;
        task.did(Work::Unmap, entries);
        task.did(Work::Returned, count - entries);
        at = next;
        let Some(blocked) = blocked else { continue };
        if blocked.pinned {
            Error::after(task.sleep(Cause::PageRetry, COPY))?;
        } else {
            let owner = anon.owner(blocked.page);
            cache.wait_busy(task, Cause::PageBusy, blocked.frame, owner)?;
        }
    }
    if let Some(overhead) = &cache.memory.overhead {
        anon.tables_go(task, &**overhead, pages);
        cache.shrink_overhead(task);
    }
    Ok(())
}

/// The last handle is gone: everything goes back, busy pages as soon as they are not.
pub(super) fn drop_region(cache: &Arc<Cache>, anon: &Arc<Anon>) {
    let context = Interrupt::new();
    let Some(first) = empty(cache, &context, anon) else {
        return;
    };
    let end = anon.pages.len();
    let (keep, own) = (Arc::downgrade(cache), Arc::clone(anon));
    let started = cache.env.spawn(
        "spill-end",
        Box::new(move |task| {
            let Some(cache) = keep.upgrade() else { return };
            // Cancelled: the cache goes with everything in it.
            let who = own.taker();
            if discard_for(task, &cache, &own, first..end, who).is_ok() {
                cache.registry.regions.forget(&own);
            }
        }),
    );
    if started.is_err() {
        cache.registry.regions.leave(&context, Arc::clone(anon));
    }
}

/// Gives back what is not busy of a region without handles, and forgets it when nothing is left;
/// else answers the first page that is.
fn empty(cache: &Cache, context: &impl Context, anon: &Anon) -> Option<u32> {
    let end = anon.pages.len();
    let (mut at, mut left) = (0, None);
    while at < end {
        let mut batch = Batch::new();
        let (next, blocked) = batch.fill(cache, context, anon, at, end);
        batch.give_back(cache, context, anon.taker());
        at = next;
        if let Some(blocked) = blocked {
            left = left.or(Some(blocked.page));
            at = blocked.page + 1;
        }
    }
    if left.is_none() {
        if let Some(overhead) = &cache.memory.overhead {
            anon.tables_go(context, &**overhead, 0..end);
        }
        cache.registry.regions.forget(anon);
    }
    left
}

impl Cache {
    /// Gives back what is left of regions without handles that got no task to wait with.
    pub(crate) fn drop_remains(&self, context: &impl Context) {
        let remains = self.registry.regions.take_left(context);
        for anon in remains {
            if empty(self, context, &anon).is_some() {
                self.registry.regions.leave(context, anon);
            }
        }
    }
}

impl Batch {
    fn new() -> Self {
        Self {
            busies: [const { None }; BATCH],
            pages: [(0, FrameId(0)); BATCH],
            frames: 0,
            slots: [0; BATCH],
            taken: 0,
        }
    }

    /// Takes pages out of the region until it is full; answers where to go on, and the page that is
    /// in the way.
    fn fill(
        &mut self,
        cache: &Cache,
        context: &impl Context,
        anon: &Anon,
        first: u32,
        end: u32,
    ) -> (u32, Option<Blocked>) {
        let blocked = self.gather(cache, anon, first, end);
        self.take_out(cache, context, anon, end);
        blocked
    }

    /// Takes the busy bits of pages that have frames, and the slots of those that are out.
    fn gather(
        &mut self,
        cache: &Cache,
        anon: &Anon,
        first: u32,
        end: u32,
    ) -> (u32, Option<Blocked>) {
        for page in first..end {
            // A page with a frame may have a slot as well.
            if self.frames + self.taken == BATCH {
                return (page, None);
            }
            // An entry that changes under the look is looked at again.
            loop {
                match anon.pages.get(page) {
                    RegionEntry::Empty => {}
                    RegionEntry::Swapped(slot) => {
                        if !anon.pages.try_clear(page, RegionEntry::Swapped(slot)) {
                            continue;
                        }
                        self.slots[self.taken] = slot;
                        self.taken += 1;
                    }
                    RegionEntry::Frame(frame) => {
                        match cache.pages.table.try_busy(frame, anon.owner(page)) {
                            Ok(busy) => {
                                self.busies[self.frames] = Some(busy);
                                self.pages[self.frames] = (page, frame);
                                self.frames += 1;
                            }
                            Err(Refusal::Gone) => continue,
                            Err(refusal) => {
                                let pinned = refusal == Refusal::Pinned;
                                let blocked = Blocked {
                                    page,
                                    frame,
                                    pinned,
                                };
                                return (page, Some(blocked));
                            }
                        }
                    }
                }
                break;
            }
        }
        (end, None)
    }

    /// Takes the pages out of the region; leaves those under writeback to the task that writes
    /// them.
    fn take_out(&mut self, cache: &Cache, context: &impl Context, anon: &Anon, end: u32) {
        for (page, _) in &self.pages[..self.frames] {
            cache.leave_run(anon, *page, end);
        }
        anon.pages.take_out(&self.pages[..self.frames]);
        for at in 0..self.frames {
            let frame = self.pages[at].1;
            if cache.pages.table.flags(frame).has(Flags::WRITEBACK)
                && self.orphan(cache, context, at)
            {
                continue;
            }
            let slot = self.busies[at]
                .as_ref()
                .and_then(|busy| cache.take_slot_from(busy));
            if let Some(slot) = slot {
                self.slots[self.taken] = slot;
                self.taken += 1;
            }
        }
    }

    /// True if the task that writes the page frees it; else its write has ended meanwhile, and it
    /// goes the way of the others.
    fn orphan(&mut self, cache: &Cache, context: &impl Context, at: usize) -> bool {
        let frame = self.pages[at].1;
        {
            let mut lru = cache.zones.lru(context);
            let was_on = lru.list_of(frame);
            lru.remove(frame);
            let busy = self.busies[at].take();
            self.busies[at] = busy.and_then(|busy| cache.pages.table.try_orphan_busy(busy).err());
            if self.busies[at].is_some() {
                if let Some(list) = was_on {
                    lru.push_head(list, frame);
                }
                return false;
            }
        }
        sub(&cache.writeback.totals.anon, 1);
        cache.wake_busy(&[frame], Signal::PageUnlocked);
        true
    }

    /// Frees what was taken, which `who` took; answers how many frames that are, or will be.
    fn give_back(mut self, cache: &Cache, context: &impl Context, who: TaskId) -> u64 {
        let count = self.frames as u64;
        // First, so that pages kept for its like are not handed out to those that wait.
        cache.credit(context, who, count);
        if let Some(area) = cache.swap.area() {
            area.put(context, &self.slots[..self.taken]);
        }
        cache.remove_anon(context, &mut self.busies[..self.frames]);
        count
    }
}

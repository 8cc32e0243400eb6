//! Frames for pages: from the free lists, from fresh chunks, or by reclaiming.
//!
//! Marks (policy::watermark): below `low` the background reclaimer is woken; below `min` the
//! caller reclaims itself before it takes a frame, so that a reserve stays for whoever must not
//! wait. A caller that cannot make progress sleeps until something changes: an end of writeback, a
//! pass of reclaim, an unpin. It gives up with a typed error only when nothing can change any
//! more: no page is under writeback or dirty, and none could be freed.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use env::{Cause, Context, Env, Lock, LockClass, Task, WaitQueue, Wakeup, Work};
use frames::{Content, FrameId, FreeLists};
use policy::reclaim::ReclaimLaw;
use policy::reclaim::retry::{Retry, RetryVerdict, RetryView};
use policy::reclaim::scan::CLUSTER;
use policy::reclaim::throttle::Who;
use policy::units::{Nanos, Pages};
use policy::watermark::{AllocRight, Watermarks, room};

use crate::Error;
use crate::cache::{Cache, get};
use crate::reclaim::direct::direct;
use crate::reclaim::throttle;
use crate::vmstat::Item;

/// A sleeper for memory looks again after this even if nobody woke it (a safety net).
const LOOK_AGAIN: Nanos = Nanos::millis(100);
/// Pages that each flusher is asked for when nothing clean is left: a few requests' worth.
const WANTED: Pages = Pages(1024);
/// Rounds without progress, with nothing dirty or under writeback, before a caller is refused.
const HOPELESS_ROUNDS: u32 = 20;

/// Who takes this many frames at a time takes many.
const MANY: u32 = 64;
/// Frames with memory that whoever takes many leaves behind, as long as the limit allows: two of the
/// largest batches, so that one is there while the next chunk gets its memory.
const READY: u32 = 512;

/// The frames that hold no page.
pub(crate) struct Memory {
    lists: Lock<Free>,
    /// Free frames, unpopulated ones included; a copy for looks without the lock.
    free: AtomicU32,
    /// Chunks on their way to or from the system: on no list, but soon to be had. Changes under the
    /// lock.
    moving: AtomicU32,
    /// Frames given back, ever.
    given_back: AtomicU64,
    frames: u32,
    chunk: u32,
    pub(crate) marks: Watermarks,
    /// Callers that found nothing to reclaim.
    pub(crate) wait: WaitQueue,
    /// The idle background reclaimer.
    pub(crate) reclaim_wait: WaitQueue,
    pub(crate) reclaim_asked: AtomicBool,
}

struct Free {
    lists: FreeLists,
    /// First frames of the chunks without memory, the next to be used last. Room for all is taken
    /// at the start.
    absent: Vec<FrameId>,
}

impl Memory {
    pub(crate) fn new(lists: FreeLists, frames: u32, chunk: u32, marks: Watermarks) -> Self {
        let firsts = (0..frames).step_by(chunk as usize).map(FrameId);
        let absent = firsts.rev().collect();
        Self {
            lists: Lock::new(LockClass::Free, Free { lists, absent }),
            free: AtomicU32::new(frames),
            moving: AtomicU32::new(0),
            given_back: AtomicU64::new(0),
            frames,
            chunk,
            marks,
            wait: WaitQueue::new(),
            reclaim_wait: WaitQueue::new(),
            reclaim_asked: AtomicBool::new(false),
        }
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self, context: &impl Context) -> u64 {
        self.lists.lock(context).lists.bytes()
    }

    /// Gives frames back and wakes whoever waits for memory.
    pub(crate) fn put(&self, context: &impl Context, frames: &[FrameId]) {
        if frames.is_empty() {
            return;
        }
        let count = u32::try_from(frames.len()).expect("fewer frames than a u32 counts");
        {
            // Counted under the lock: nobody may count off what is not counted yet.
            let mut free = self.lists.lock(context);
            free.lists.put_batch(frames);
            self.free.fetch_add(count, Ordering::Relaxed);
        }
        self.given_back
            .fetch_add(u64::from(count), Ordering::Relaxed);
        self.wait.wake_all();
    }

    /// Frames that may be taken with that right.
    fn room(&self, right: AllocRight) -> u32 {
        let free = Pages(u64::from(self.free()));
        let room = room(free, self.marks.min, right);
        u32::try_from(room.0).expect("no more than are free")
    }

    /// Frames given back, ever.
    pub(crate) fn given_back(&self) -> u64 {
        get(&self.given_back)
    }

    fn moving(&self) -> u32 {
        self.moving.load(Ordering::Acquire)
    }

    /// A chunk without memory, to be given some: ends with `moved`.
    fn take_absent(&self, free: &mut Free) -> Option<FrameId> {
        let first = free.absent.pop()?;
        self.moving.fetch_add(1, Ordering::AcqRel);
        Some(first)
    }

    /// A chunk is where `put` puts it: whoever found nothing looks again.
    fn moved(&self, context: &impl Context, put: impl FnOnce(&mut Free)) {
        {
            let mut free = self.lists.lock(context);
            put(&mut free);
            self.moving.fetch_sub(1, Ordering::AcqRel);
        }
        self.wait.wake_all();
    }
}

impl<E: Env> Cache<E> {
    /// Takes up to `want` frames without waiting; answers how many were appended to `out`. Does not
    /// go below the reserve.
    pub(crate) fn try_alloc(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let mut taken = 0;
        while taken < want {
            let mut room = memory.room(AllocRight::Normal).min(want - taken);
            if room == 0 && taken == 0 && self.who(task).exempt {
                room = memory.room(AllocRight::High).min(want);
            }
            if room == 0 {
                break;
            }
            let mut free = memory.lists.lock(task);
            let got = free.lists.try_take_batch(room, out);
            if got == 0 {
                let Some(first) = memory.take_absent(&mut free) else {
                    break;
                };
                drop(free);
                match self.populate(task, first) {
                    Ok(()) => continue,
                    // What was taken before is the caller's.
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            memory.free.fetch_sub(got, Ordering::Relaxed);
            drop(free);
            taken += got;
        }
        if u64::from(memory.free()) < memory.marks.low.0 {
            self.ask_reclaim(task);
        }
        if want >= MANY {
            self.populate_ahead(task);
        }
        self.counters.add(Item::Pgalloc, u64::from(taken));
        task.did(Work::Alloc, u64::from(taken));
        Ok(taken)
    }

    /// Leaves frames with memory behind. Giving a chunk its memory takes milliseconds; whoever takes
    /// many frames at a time spends them, so that one who takes a few finds them there.
    fn populate_ahead(&self, task: &Task<'_, E>) {
        let memory = &self.memory;
        let absent = {
            let mut free = memory.lists.lock(task);
            if free.lists.free() >= READY {
                return;
            }
            memory.take_absent(&mut free)
        };
        if let Some(first) = absent {
            // Who needs the memory hears that the system refuses it.
            let _ = self.populate(task, first);
        }
    }

    /// Takes between one and `want` frames, reclaiming and waiting as it must. The caller holds no
    /// busy bit.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoMemory`, `Cancelled`.
    pub(crate) fn alloc(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let who = self.who(task);
        let mut retry = Retry::default();
        let mut hopeless = 0;
        loop {
            let taken = self.try_alloc(task, want, out)?;
            if taken > 0 {
                return Ok(taken);
            }
            if self.memory.moving() > 0 {
                // Another task is just taking memory from the system, or giving it back.
                self.wait_for_memory(task, |memory| memory.moving() > 0)?;
                continue;
            }
            let cleaned = self.cleaned();
            let target = self.target(want);
            let reclaimed = direct(task, self, target, who);
            let verdict = retry.decide(&self.retry_view(task, reclaimed));
            if !reclaimed.is_zero() {
                hopeless = 0;
                continue;
            }
            if self.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            match verdict {
                RetryVerdict::Retry if !self.is_tidegate() => continue,
                RetryVerdict::RetryAfter(finding) if !self.is_tidegate() => {
                    throttle::found(task, self, finding, who);
                    continue;
                }
                _ => {}
            }
            // Nothing clean: what is dirty has to be written first.
            for device in self.devices.lock(task).iter() {
                device.want(WANTED);
            }
            let pending = !self.write_pending().is_zero();
            hopeless = if pending { 0 } else { hopeless + 1 };
            if hopeless > HOPELESS_ROUNDS {
                return Err(Error::OutOfMemory {
                    frames: Pages(u64::from(self.options.frames)),
                });
            }
            // Frames, or pages that can be freed now.
            self.wait_for_memory(task, |memory| {
                u64::from(memory.free()) <= memory.marks.min.0 && self.cleaned() == cleaned
            })?;
        }
    }

    /// Pages that were ever written back: more of them means that something may be clean now.
    fn cleaned(&self) -> u64 {
        get(&self.totals.written) + self.counters.get(Item::Pswpout)
    }

    /// Pages that a task which wants `want` frames reclaims: in Linux a cluster, whatever is wanted.
    fn target(&self, want: u32) -> Pages {
        if self.is_tidegate() {
            Pages(u64::from(want)).at_least(CLUSTER)
        } else {
            CLUSTER
        }
    }

    fn is_tidegate(&self) -> bool {
        self.options.reclaim.law == ReclaimLaw::Tidegate
    }

    /// The node after a round of reclaim that gave `reclaimed`.
    fn retry_view(&self, context: &impl Context, reclaimed: Pages) -> RetryView {
        RetryView {
            reclaimed,
            free: Pages(u64::from(self.memory.free())),
            reclaimable: self.reclaimable(context),
            write_pending: self.write_pending(),
            min: self.memory.marks.min,
        }
    }

    /// Who the task is to reclaim.
    pub(crate) fn who(&self, task: &Task<'_, E>) -> Who {
        Who {
            background: false,
            exempt: self.exempt.lock(task).contains(&task.id()),
        }
    }

    /// From now on the task is one of those that others need to get on: a thread of I/O that allocates. It may take
    /// from the reserve and is never throttled when it has to reclaim (kernel: `PF_MEMALLOC_NOIO` and the like).
    pub fn exempt(&self, task: &Task<'_, E>) {
        let mut exempt = self.exempt.lock(task);
        if !exempt.contains(&task.id()) {
            exempt.push(task.id());
        }
    }

    fn wait_for_memory(
        &self,
        task: &mut Task<'_, E>,
        blocked: impl Fn(&Memory) -> bool,
    ) -> Result<(), Error> {
        let deadline = task.now() + LOOK_AGAIN;
        let memory = &self.memory;
        let wakeup = task.wait_while(&memory.wait, Cause::Memory, Some(deadline), |_| {
            blocked(memory)
        });
        if wakeup == Wakeup::Cancelled {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Gives the chunk that begins at `first` its memory; it came from `Memory::take_absent`.
    fn populate(&self, context: &impl Context, first: FrameId) -> Result<(), Error> {
        let memory = &self.memory;
        let count = memory.chunk.min(memory.frames - first.0);
        match self.content().populate(first) {
            Ok(()) => {
                memory.moved(context, |free| free.lists.add_range(first, count));
                Ok(())
            }
            Err(error) => {
                memory.moved(context, |free| free.absent.push(first));
                Err(Error::NoMemory { errno: error.errno })
            }
        }
    }

    pub(crate) fn populate_all(&self, context: &impl Context) -> Result<(), Error> {
        let memory = &self.memory;
        while let Some(first) = { memory.take_absent(&mut memory.lists.lock(context)) } {
            self.populate(context, first)?;
        }
        Ok(())
    }

    /// Gives the memory of wholly free chunks back to the system; it is taken again when needed.
    /// Answers how many frames that were.
    pub fn trim(&self, task: &mut Task<'_, E>) -> Pages {
        let memory = &self.memory;
        let mut given = 0;
        for first in (0..memory.frames)
            .step_by(memory.chunk as usize)
            .map(FrameId)
        {
            let count = memory.chunk.min(memory.frames - first.0);
            let mut free = memory.lists.lock(task);
            if free.absent.contains(&first) || !free.lists.try_remove_range(first, count) {
                continue;
            }
            memory.moving.fetch_add(1, Ordering::AcqRel);
            drop(free);
            // On neither list meanwhile, so nobody can have it. The frames still count as free.
            self.content().release(first);
            memory.moved(task, |free| free.absent.push(first));
            given += u64::from(count);
        }
        Pages(given)
    }
}

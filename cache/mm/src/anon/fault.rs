//! Touching, reading and writing pages of a region, and what happens when one is not there.
//!
//! A *minor* fault needs no I/O: the page is fresh, or in a frame and not mapped (it was read back
//! or ahead, or is on its way out). A *major* one reads the page from its slot and waits for that.
//! A page that was written to gives its slot up: the slot's copy is old.

use core::ops::Range;
use std::sync::Arc;

use env::{Cause, Context, Event, Signal, Task, Work};
use frames::{Busy, Data, DataMut, Flags, FrameId, Owner, Pin, Refusal, RegionEntry};
use policy::place::by_use::Purpose;
use policy::reclaim::FRESH;
use policy::reclaim::swap::SlotMoment;
use policy::units::{Bytes, Nanos, PAGE_SHIFT, PAGE_SIZE, Pages};

use super::Touched;
use crate::Error;
use crate::alloc::Wanted;
use crate::cache::{Cache, add};
use crate::registry::regions::Anon;
use crate::vmstat::Item;

const WHOLE: usize = 4096;
const _: () = assert!(WHOLE as u64 == PAGE_SIZE);
/// Pages that are there, after which a task reports its work.
const RUN: u32 = 2048;
/// A page that a reader has pinned for the time of a copy is looked at again after this.
const COPY: Nanos = Nanos::micros(20);

/// The findings of a call so far.
#[derive(Default)]
struct Tally {
    /// Pages that were not there.
    faults: u64,
    /// Of these: pages that came with another's fault.
    around: u64,
    major: u64,
    /// Pages touched on other nodes.
    far: u64,
}

/// The stamp at the start of a fresh page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stamp {
    /// Zeroes, as behind it: it is there to be read, or written in part.
    None,
    /// The word that a touch stores.
    Page,
}

/// One call's way through the pages of a region.
struct Walk<'a> {
    cache: &'a Arc<Cache>,
    anon: &'a Arc<Anon>,
    /// The page behind the last that the call is for.
    end: u32,
    /// Frames for fresh pages.
    frames: Vec<FrameId>,
    /// Fresh pages that are being made ready.
    busies: Vec<Busy>,
    tally: Tally,
    /// The page at hand was read for this access: that was its fault.
    counted: bool,
}

/// Touches the pages `first..end`.
pub(super) fn touch(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    anon: &Arc<Anon>,
    first: u32,
    end: u32,
) -> Result<Touched, Error> {
    let mut walk = Walk::new(cache, anon, end);
    let touched = walk.touch(task, first);
    let tally = walk.finish(task);
    touched?;
    Ok(Touched {
        pages: Pages(u64::from(end - first)),
        faults: Pages(tally.faults),
        major: Pages(tally.major),
        far: Pages(tally.far),
    })
}

/// Writes all of `data` at `offset`.
pub(super) fn write(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    anon: &Arc<Anon>,
    offset: Bytes,
    data: Data<'_>,
) -> Result<(), Error> {
    let len = data.len();
    let mut walk = Walk::new(cache, anon, end_of(offset, len));
    let written = by_page(offset, len, |page, within, at, count| {
        let busy = walk.page_for_write(task, page)?;
        cache.content().copy_in(&busy, within, data, at, count);
        let mut far = cache.far(task);
        far.uses(busy.frame());
        walk.wrote(task, page, busy);
        cache.copied(task, 1, far.take());
        Ok(())
    });
    walk.finish(task);
    written
}

/// Fills all of `data` from `offset`.
pub(super) fn read(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    anon: &Arc<Anon>,
    offset: Bytes,
    mut data: DataMut<'_>,
) -> Result<(), Error> {
    let len = data.len();
    let mut walk = Walk::new(cache, anon, end_of(offset, len));
    let read = by_page(offset, len, |page, within, at, count| {
        let pin = walk.page_for_read(task, page)?;
        cache.content().copy_out(&pin, within, &mut data, at, count);
        let mut far = cache.far(task);
        far.uses(pin.frame());
        cache.unpin(pin);
        cache.copied(task, 1, far.take());
        Ok(())
    });
    walk.finish(task);
    read
}

/// The page behind the last of `len` bytes at `offset`.
fn end_of(offset: Bytes, len: usize) -> u32 {
    let end = offset.0 + len as u64;
    u32::try_from(end.div_ceil(PAGE_SIZE)).expect("the range was checked")
}

/// Calls `each` with the page, the offset in it, the offset in the caller's data and the length of
/// every part.
fn by_page(
    offset: Bytes,
    len: usize,
    mut each: impl FnMut(u32, usize, usize, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut page = u32::try_from(offset.0 >> PAGE_SHIFT).expect("the range was checked");
    let mut within = usize::try_from(offset.0 % PAGE_SIZE).expect("below a page");
    let mut at = 0;
    while at < len {
        let count = (len - at).min(WHOLE - within);
        each(page, within, at, count)?;
        at += count;
        page += 1;
        within = 0;
    }
    Ok(())
}

impl<'a> Walk<'a> {
    fn new(cache: &'a Arc<Cache>, anon: &'a Arc<Anon>, end: u32) -> Self {
        Self {
            cache,
            anon,
            end,
            frames: Vec::new(),
            busies: Vec::new(),
            tally: Tally::default(),
            counted: false,
        }
    }

    /// Gives back what is left over.
    fn finish(self, task: &Task<'_>) -> Tally {
        self.cache.put_unused(task, &self.frames);
        let counters = &self.cache.counters;
        counters.add(Item::Pgfault, self.tally.faults - self.tally.around);
        counters.add(Item::Pgmajfault, self.tally.major);
        counters.add(Item::NumaRemoteTouch, self.tally.far);
        self.tally
    }

    fn check_alive(&self) -> Result<(), Error> {
        if self.anon.is_killed() {
            return Err(Error::Killed);
        }
        Ok(())
    }

    fn owner(&self, page: u32) -> Owner {
        Owner {
            file: self.anon.id,
            index: page,
        }
    }

    fn touch(&mut self, task: &mut Task<'_>, first: u32) -> Result<(), Error> {
        let (mut at, end) = (first, self.end);
        while at < end {
            self.check_alive()?;
            let until = end.min(at.saturating_add(RUN));
            let next = self.anon.pages.touch_mapped(at, until);
            self.touched(task, at..next);
            at = next;
            if at == until {
                continue;
            }
            let from = at;
            if self.anon.pages.get(at) == RegionEntry::Empty {
                if self.huge(task, at, Stamp::Page)? {
                    continue;
                }
                at += self.fresh(task, at, until, Stamp::Page)?;
            } else {
                let busy = self.page_for_write(task, at)?;
                self.wrote(task, at, busy);
                at += 1;
            }
            // The store that met the fault.
            self.touched(task, from..at);
        }
        Ok(())
    }

    /// The task stored to these pages, which are there but for what was taken meanwhile.
    fn touched(&mut self, task: &mut Task<'_>, pages: Range<u32>) {
        task.did(Work::Touch, u64::from(pages.end - pages.start));
        let mut far = self.cache.far(task);
        if far.counts() {
            for page in pages {
                if let RegionEntry::Frame(frame) = self.anon.pages.get(page) {
                    far.uses(frame);
                }
            }
            let far = far.take();
            self.tally.far += far;
            task.did(Work::Remote, far);
        }
    }

    /// Gives the whole stretch of a page a run, if it holds nothing and there is one. False: it has
    /// to do with single pages.
    fn huge(&mut self, task: &mut Task<'_>, page: u32, stamp: Stamp) -> Result<bool, Error> {
        let cache = self.cache;
        let (Some(runs), Some(stretch)) = (cache.runs_of_faults(), self.anon.pages.stretch(page))
        else {
            return Ok(false);
        };
        let pages = &self.anon.pages;
        let is_empty = || {
            stretch
                .clone()
                .all(|page| pages.get(page) == RegionEntry::Empty)
        };
        if !is_empty() || !task.may_block() {
            return Ok(false);
        }
        self.anon.takes(task.id());
        let began = task.now();
        let mut frames = Vec::with_capacity(1 << runs.order);
        if !cache.take_run(task, &mut frames)? {
            return Ok(false);
        }
        let took = task.now().since(began);
        task.emit(&Event::Faulted { major: false, took });
        if self.anon.is_killed() {
            cache.put_unused(task, &frames);
            return Err(Error::Killed);
        }
        {
            let _alone = self.anon.filling(task);
            // Others may have been here since the look.
            if !is_empty() {
                cache.counters.add(Item::ThpFreed, 1);
                cache.put_unused(task, &frames);
                return Ok(true);
            }
            for (page, frame) in stretch.clone().zip(&frames) {
                let owner = self.anon.owner(page);
                let busy = cache.pages.table.claim_for(*frame, owner, Flags::ANON);
                let filled = pages.try_fill(page, *frame);
                assert!(filled, "page {page} was filled by one who may not");
                self.busies.push(busy);
            }
            pages.mark_run(page);
        }
        self.show_fresh(task, stretch.clone(), &frames, stamp);
        cache.settle_overhead(task);
        self.tally.faults += 1;
        task.did(Work::Fault, 1);
        task.did(Work::Zero, u64::from(stretch.end - stretch.start));
        Ok(true)
    }

    /// Completes the pages that were just filled, and lets others have them.
    fn show_fresh(&mut self, task: &Task<'_>, pages: Range<u32>, frames: &[FrameId], stamp: Stamp) {
        let cache = self.cache;
        add(&cache.writeback.totals.anon, frames.len() as u64);
        if let Some(overhead) = &cache.memory.overhead {
            self.anon.tables_come(task, &**overhead, pages.clone());
        }
        // All at once: a step of a frame's word waits for the stores before it, and these are slow.
        cache.content().zero_all(&self.busies);
        if stamp == Stamp::Page {
            for (page, busy) in pages.clone().zip(&self.busies) {
                let word = u64::from(self.anon.id) << 32 | (u64::from(page) + 1);
                cache.content().mark(busy, word);
            }
        }
        self.anon.pages.map_run(pages.start, pages.end);
        cache
            .zones
            .add_fresh(task, &cache.pages, frames, self.busies.drain(..));
        cache.wake_busy(frames, Signal::PageUnlocked);
    }

    /// Gives fresh pages to as many of `from..until` as have none, a few at a time; answers how
    /// many.
    fn fresh(
        &mut self,
        task: &mut Task<'_>,
        from: u32,
        until: u32,
        stamp: Stamp,
    ) -> Result<u32, Error> {
        let together = self.cache.options.reclaim.fresh_together();
        // The next stretch is asked a run for.
        let stretch = self.anon.pages.stretch(from);
        let until = stretch.map_or(until, |stretch| until.min(stretch.end));
        let most = until.min(from.saturating_add(together));
        let empty = |page: &u32| self.anon.pages.get(*page) == RegionEntry::Empty;
        let end = (from..most).find(|page| !empty(page)).unwrap_or(most);
        let want = end - from;
        let cache = self.cache;
        self.anon.takes(task.id());
        self.busies.reserve(want as usize);
        self.frames.reserve(want as usize);
        if self.frames.is_empty()
            && cache.try_alloc(
                task,
                Wanted::new(want.max(1), Purpose::Anon),
                &mut self.frames,
            )? == 0
        {
            let began = task.now();
            let asks = cache.options.reclaim.frames_asked(want.min(FRESH));
            cache.alloc(task, Wanted::new(asks, Purpose::Anon), &mut self.frames)?;
            let took = task.now().since(began);
            task.emit(&Event::Faulted { major: false, took });
            self.check_alive()?;
        }
        // From the end of what was drawn: no frame moves when others go.
        let held = self.frames.len();
        {
            let _alone = self.anon.filling(task);
            for (page, frame) in (from..end).zip(self.frames.iter().rev()) {
                // Others may have been here since the look.
                if !empty(&page) {
                    break;
                }
                let busy = cache
                    .pages
                    .table
                    .claim_for(*frame, self.owner(page), Flags::ANON);
                let filled = self.anon.pages.try_fill(page, *frame);
                assert!(filled, "page {page} was filled by one who may not");
                self.busies.push(busy);
            }
        }
        let count = self.busies.len();
        let mut frames = core::mem::take(&mut self.frames);
        let added = &mut frames[held - count..];
        added.reverse();
        let next = from + u32::try_from(count).expect("no more than were asked for");
        self.show_fresh(task, from..next, added, stamp);
        frames.truncate(held - count);
        self.frames = frames;
        cache.settle_overhead(task);
        let count = count as u64;
        let faults = count.div_ceil(u64::from(cache.options.reclaim.fault_around()));
        self.tally.faults += count;
        self.tally.around += count - faults;
        task.did(Work::Fault, faults);
        task.did(Work::Around, count - faults);
        task.did(Work::Zero, count);
        Ok(next - from)
    }

    /// The exclusive right to a page that is there and up to date.
    fn page_for_write(&mut self, task: &mut Task<'_>, page: u32) -> Result<Busy, Error> {
        let cache = self.cache;
        self.counted = false;
        // A read that failed before this call began is tried again.
        let mut tried = false;
        let mut asked = false;
        loop {
            let Some(frame) = self.frame(task, page, &mut tried)? else {
                continue;
            };
            if !asked
                && cache
                    .pages
                    .table
                    .flags(frame)
                    .has(Flags::WRITEBACK | Flags::RECLAIM)
            {
                // On its way out: taking it back is bringing it back.
                asked = true;
                cache.may_swap_in(task);
                continue;
            }
            match cache.pages.table.try_busy(frame, self.owner(page)) {
                Ok(busy) if cache.pages.table.flags(frame).has(Flags::UPTODATE) => return Ok(busy),
                Ok(busy) => self.failed(task, page, busy, tried)?,
                Err(refusal) => self.refused(task, page, frame, refusal, &mut tried)?,
            }
        }
    }

    /// The right to read a page that is there and up to date; it counts as used.
    fn page_for_read(&mut self, task: &mut Task<'_>, page: u32) -> Result<Pin, Error> {
        let cache = self.cache;
        let mut tried = false;
        loop {
            let Some(frame) = self.frame(task, page, &mut tried)? else {
                continue;
            };
            match cache.pages.table.try_pin(frame, self.owner(page)) {
                Ok(pin) => {
                    self.anon.pages.set_young(page);
                    if cache.pages.table.flags(frame).has(Flags::MARK) {
                        let on = self.hit(task, frame);
                        self.tally.faults += 1;
                        cache.swap_in_on(task, self.anon, on);
                    }
                    return Ok(pin);
                }
                Err(Refusal::NotUptodate) => {
                    if let Ok(busy) = cache.pages.table.try_busy(frame, self.owner(page)) {
                        if cache.pages.table.flags(frame).has(Flags::UPTODATE) {
                            cache.release(busy, Flags::NONE, Flags::NONE);
                        } else {
                            self.failed(task, page, busy, tried)?;
                        }
                    }
                }
                Err(refusal) => self.refused(task, page, frame, refusal, &mut tried)?,
            }
        }
    }

    /// The frame that a page stands in, brought in if there is none; `None`: look again.
    fn frame(
        &mut self,
        task: &mut Task<'_>,
        page: u32,
        tried: &mut bool,
    ) -> Result<Option<FrameId>, Error> {
        self.check_alive()?;
        match self.anon.pages.get(page) {
            RegionEntry::Frame(frame) => Ok(Some(frame)),
            RegionEntry::Empty => {
                if !self.huge(task, page, Stamp::None)? {
                    self.fresh(task, page, self.end, Stamp::None)?;
                }
                Ok(None)
            }
            RegionEntry::Swapped(slot) => {
                self.swap_in(task, page, slot)?;
                *tried = true;
                Ok(None)
            }
        }
    }

    fn swap_in(&mut self, task: &mut Task<'_>, page: u32, slot: u32) -> Result<(), Error> {
        let began = task.now();
        let cache = self.cache;
        let Some(frame) = cache.start_swap_in(task, self.anon, page, slot)? else {
            return Ok(());
        };
        cache.wait_busy(task, Cause::SwapIo, frame, self.owner(page))?;
        // Where slots are scarce, the page keeps none that holds what it holds itself.
        if let Ok(busy) = cache.pages.table.try_busy(frame, self.owner(page)) {
            let gave = cache.pages.table.flags(frame).has(Flags::UPTODATE)
                && cache.give_slot_up(task, &busy, SlotMoment::Mapped);
            cache.release(busy, Flags::NONE, Flags::NONE);
            if gave && cache.swap_slots_recycle() {
                // There is a slot for another page.
                cache.look_again(task);
            }
        }
        self.counted = true;
        self.tally.faults += 1;
        self.tally.major += 1;
        task.did(Work::Fault, 1);
        let took = task.now().since(began);
        task.emit(&Event::Faulted { major: true, took });
        Ok(())
    }

    /// Waits until a refusal may have an end.
    fn refused(
        &self,
        task: &mut Task<'_>,
        page: u32,
        frame: FrameId,
        refusal: Refusal,
        tried: &mut bool,
    ) -> Result<(), Error> {
        match refusal {
            Refusal::Busy => {
                self.cache
                    .wait_busy(task, Cause::SwapIo, frame, self.owner(page))?;
                *tried = true;
            }
            // Another task copies out of the page.
            Refusal::Pinned | Refusal::TooManyPins => {
                Error::after(task.sleep(Cause::PageRetry, COPY))?;
            }
            _ => task.did(Work::Lookup, 1),
        }
        Ok(())
    }

    /// A page whose read failed goes back to its slot. Its reader is told; the task that finds an
    /// older failure tries again.
    fn failed(&self, task: &Task<'_>, page: u32, busy: Busy, tried: bool) -> Result<(), Error> {
        self.cache.undo_swap_in(task, self.anon, page, busy);
        if !tried {
            return Ok(());
        }
        let offset = Bytes(u64::from(page) << PAGE_SHIFT);
        Err(Error::swap_read(offset, self.cache.swap_read_error(task)))
    }

    /// A page was stored to: it is dirty and mapped, and its slot, which holds something older, is
    /// given up, unless the page is just being written there.
    fn wrote(&mut self, task: &mut Task<'_>, page: u32, busy: Busy) {
        let cache = self.cache;
        let frame = busy.frame();
        if self.anon.pages.is_mapped(page) {
            self.anon.pages.set_young(page);
            cache.release(busy, Flags::NONE, Flags::NONE);
            return;
        }
        let is_ahead = cache.pages.table.flags(frame).has(Flags::MARK);
        let on = is_ahead.then(|| self.hit(task, frame)).flatten();
        cache.give_slot_up(task, &busy, SlotMoment::Written);
        self.anon.pages.map(page);
        cache.release(busy, Flags::DIRTY, Flags::NONE);
        cache.swap_in_on(task, self.anon, on);
        self.minor(task);
    }

    /// The page at hand was there, but not mapped.
    fn minor(&mut self, task: &mut Task<'_>) {
        if !core::mem::take(&mut self.counted) {
            self.tally.faults += 1;
            task.did(Work::Fault, 1);
        }
    }

    /// A page that was read ahead is used for the first time; answers the slots that are to be read
    /// now.
    fn hit(&self, context: &impl Context, frame: FrameId) -> Option<Range<u32>> {
        self.cache
            .pages
            .table
            .update(frame, Flags::NONE, Flags::MARK);
        self.cache.swap_readahead_hit(context, self.anon, frame)
    }
}

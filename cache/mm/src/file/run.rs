//! Zero-copy reads of several pages in one piece: their frames stand side by side while a reader
//! holds them.
//!
//! ```text
//!   try_pin_run: they stand together already: looked up, pinned
//!   pin_run: what is missing is read in, and what comes next where its reader goes on
//!                                           a run of free frames is taken, or a block of memory is emptied for it
//!            page by page: it moves there, and is pinned there; one that cannot move now is copied there
//! ```
//!
//! Each page is as it was when it was pinned; a write to one of them meanwhile goes to another
//! frame, as with one page's pin. A page that is pinned already, or under writeback, stays where it
//! is: the copy is the reader's alone, and goes when the run does. So no run waits for a device
//! that writes, and a page that is written all the time holds none up.
//!
//! A run is refused where no block can be emptied: pins and requests under way are in each that was
//! looked at.

use core::ops::{Deref, Range};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, IoClass, Task, Wakeup, Work};
use frames::{Content, Flags, FrameId, Pin, Refusal, Slot};
use policy::place::by_use::Purpose;
use policy::readahead::Run;
use policy::units::{Bytes, Nanos, PAGE_SHIFT, Pages};

use super::pin::PAGE_PINS_MAX;
use super::read::{Call, Reader, pin_page, start_read};
use crate::Error;
use crate::alloc::Wanted;
use crate::cache::Cache;
use crate::file::File;
use crate::lists::isolate::{CLUSTER_FRAMES, Page};
use crate::registry::mapping::Mapping;
use crate::relocate::{look, move_found, move_page};

/// Most pages of a run: 2 MiB.
pub const RUN_MAX: u32 = 512;
/// Number of tries of a run: a writer that changes the file all the time could break each.
const ROUNDS: u32 = 2;
/// Frames that are looked at for a block that is cheap to empty.
const LOOK_FRAMES: u32 = 1 << 15;
/// Blocks of these that are emptied, to be found not empty after all.
const TRIES: u32 = 4;
/// After this it looks again, so often, where no block could be begun with.
const AGAIN: Nanos = Nanos::millis(1);
const WAITS: u32 = 20;

/// Pages of a file in frames side by side, which stay as they are while this lives. Dropping it
/// needs no task. Each page counts as a pin. `C` is the way in which it has the cache.
pub struct PinnedRunBy<C: Deref<Target = Cache>> {
    cache: C,
    pins: Vec<Pin>,
}

/// It borrows the file that it is of.
pub type PinnedRun<'a> = PinnedRunBy<&'a Cache>;

impl PinnedRun<'_> {
    /// The same pins, which outlive their file.
    ///
    /// # Panics
    /// If they are of another cache.
    #[must_use]
    pub fn keep(mut self, cache: &Arc<Cache>) -> PinnedRunBy<Arc<Cache>> {
        assert!(
            core::ptr::eq(self.cache, &raw const **cache),
            "its own cache"
        );
        PinnedRunBy {
            cache: Arc::clone(cache),
            pins: core::mem::take(&mut self.pins),
        }
    }
}

impl<C: Deref<Target = Cache>> PinnedRunBy<C> {
    /// The pins, for the contents: their frames ascend by one.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// The contents that the pins belong to.
    pub fn content(&self) -> &dyn Content {
        self.cache.content()
    }
}

impl<C: Deref<Target = Cache>> Drop for PinnedRunBy<C> {
    fn drop(&mut self) {
        let pages = u32::try_from(self.pins.len()).expect("at most RUN_MAX");
        self.cache.unpin_all(&mut self.pins);
        self.cache.uncount_pins(pages);
    }
}

/// Pins that are counted and not had yet.
struct Counted<'a> {
    cache: &'a Cache,
    pages: u32,
}

impl<'a> Counted<'a> {
    fn had(mut self, mapping: &Mapping, pins: Vec<Pin>) -> Result<PinnedRun<'a>, Error> {
        self.pages = 0;
        // Dropped, they are given back.
        let pinned = PinnedRun {
            cache: self.cache,
            pins,
        };
        if mapping.is_live() {
            return Err(Error::Mapped);
        }
        Ok(pinned)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.cache.uncount_pins(self.pages);
    }
}

impl File {
    /// Pins `pages` pages from `first` on, if all are in the cache and stand side by side: no task,
    /// no lock. `None`: `pin_run` settles it.
    pub fn try_pin_run(&self, first: u32, pages: u32) -> Option<PinnedRun<'_>> {
        self.check_run(first, pages).ok()?;
        let counted = self.count_run(pages).ok()?;
        let pins = self.standing(first, pages)?;
        self.mapping.note_read(pages.into(), Pages::ZERO);
        counted.had(&self.mapping, pins).ok()
    }

    /// Pins `pages` pages from `first` on, 1 to 512, in frames side by side: reads in what is
    /// missing, ahead of `reader` as `read` does, and moves together what is not.
    ///
    /// # Errors
    /// `BadOption` (no pages, or more than 512), `OutOfRange` (beyond the end), `TooMany` pins,
    /// `NoRun` (no block of memory can be emptied, or the file is cut and written all the time),
    /// `Mapped`, `ReadFailed`, `OutOfMemory`, `Cancelled`.
    pub fn pin_run(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        (first, pages): (u32, u32),
    ) -> Result<PinnedRun<'_>, Error> {
        self.check_run(first, pages)?;
        let counted = self.count_run(pages)?;
        let place = |pages: u32| Bytes(u64::from(pages) << PAGE_SHIFT);
        let mut call = Call::new(self, reader, place(first), place(pages));
        let missed = call.send(task)?;
        self.mapping.note_read(pages.into(), missed);
        for _ in 0..ROUNDS {
            if let Some(pins) = self.standing(first, pages) {
                return counted.had(&self.mapping, pins);
            }
            let run = Run {
                start: first.into(),
                count: Pages(pages.into()),
            };
            start_read(task, &self.cache, &self.mapping, run, None, IoClass::Read)?;
            if let Some(to) = self.cache.side_by_side(task, pages)?
                && let Some(pins) = self.gather(task, first, to)?
            {
                return counted.had(&self.mapping, pins);
            }
        }
        Err(Error::NoRun {
            pages: Pages(pages.into()),
        })
    }

    fn check_run(&self, first: u32, pages: u32) -> Result<(), Error> {
        if !(1..=RUN_MAX).contains(&pages) {
            return Err(Error::BadOption {
                what: "pages of a run",
                value: pages.into(),
                allowed: (1, RUN_MAX.into()),
            });
        }
        let last = first.saturating_add(pages - 1);
        if u64::from(first) + u64::from(pages) > self.mapping.pages() {
            return Err(Error::no_page(last, self.mapping.size()));
        }
        Ok(())
    }

    fn count_run(&self, pages: u32) -> Result<Counted<'_>, Error> {
        if self.cache.count_pins(pages) {
            let cache = &self.cache;
            return Ok(Counted { cache, pages });
        }
        Err(Error::TooMany {
            what: "pinned pages",
            limit: self.cache.pins_most(),
        })
    }

    /// Pins the pages where they are, if they stand side by side.
    fn standing(&self, first: u32, pages: u32) -> Option<Vec<Pin>> {
        let (cache, mapping) = (&*self.cache, &self.mapping);
        let mut pins: Vec<Pin> = Vec::with_capacity(pages as usize);
        for (page, at) in (first..).zip(0..pages) {
            let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
                break;
            };
            let goes_on = |pin: &Pin| pin.frame().0.checked_add(at) == Some(frame.0);
            let has_room = cache.pages.table.flags(frame).pins() < PAGE_PINS_MAX;
            if !has_room || !pins.first().is_none_or(goes_on) {
                break;
            }
            let Ok(pin) = cache.pages.table.try_pin(frame, mapping.owner(page)) else {
                break;
            };
            pins.push(pin);
        }
        if pins.len() < pages as usize {
            cache.unpin_all(&mut pins);
            return None;
        }
        pins.iter().for_each(|pin| cache.touch(pin.frame()));
        Some(pins)
    }

    /// Pins the pages from `first` on in these frames, which were taken for it. `None`: one of them
    /// went away meanwhile.
    fn gather(
        &self,
        task: &mut Task<'_>,
        first: u32,
        to: Range<u32>,
    ) -> Result<Option<Vec<Pin>>, Error> {
        let cache = &*self.cache;
        let mut pins = Vec::with_capacity(to.len());
        let mut rest = to.map(FrameId);
        let mut placed = Ok(true);
        for page in first.. {
            let Some(frame) = rest.next() else { break };
            placed = match self.place(task, page, frame) {
                Ok(Some(pin)) => {
                    pins.push(pin);
                    continue;
                }
                Ok(None) => Ok(false),
                Err(Unplaced { error, unused }) => {
                    cache.put_unused(task, unused.as_slice());
                    Err(error)
                }
            };
            break;
        }
        if matches!(placed, Ok(true)) {
            task.did(Work::Lookup, pins.len() as u64);
            return Ok(Some(pins));
        }
        let rest: Vec<FrameId> = rest.collect();
        cache.put_unused(task, &rest);
        cache.unpin_all(&mut pins);
        placed.map(|_| None)
    }

    /// Pins a page in the frame `to`: it moves there, or a copy of it is made. `None`: it has gone
    /// from there.
    fn place(&self, task: &mut Task<'_>, page: u32, to: FrameId) -> Result<Option<Pin>, Unplaced> {
        let (cache, mapping, table) = (&self.cache, &self.mapping, &self.cache.pages.table);
        let unused = |to| {
            move |error| Unplaced {
                error,
                unused: Some(to),
            }
        };
        let pin = pin_page(task, cache, mapping, page).map_err(unused(to))?;
        let frame = pin.frame();
        let (_, generation) = table.look(frame);
        cache.unpin(pin);
        let owner = mapping.owner(page);
        match move_page(task, cache, Page { frame, generation }, to) {
            Ok(()) => loop {
                match table.try_pin(to, owner) {
                    Ok(pin) => return Ok(Some(pin)),
                    // A writer came first.
                    Err(Refusal::Busy) => {
                        let waited = cache.wait_busy(task, Cause::PageBusy, to, owner);
                        waited.map_err(|error| Unplaced {
                            error,
                            unused: None,
                        })?;
                    }
                    Err(_) => return Ok(None),
                }
            },
            Err(to) => {
                let pin = pin_page(task, cache, mapping, page).map_err(unused(to))?;
                let copy = table.claim(to);
                cache.content().copy_frame(&copy, &pin);
                cache.unpin(pin);
                task.did(Work::Copy, 1);
                Ok(Some(table.keep_for_pin(copy)))
            }
        }
    }
}

/// Why a page was not put into its frame, and the frame if it is free still.
struct Unplaced {
    error: Error,
    unused: Option<FrameId>,
}

impl Cache {
    fn unpin_all(&self, pins: &mut Vec<Pin>) {
        pins.drain(..).for_each(|pin| self.unpin(pin));
    }

    /// Frames side by side for `pages` pages: free ones, or those of a block that is emptied.
    /// `None`: none can be.
    fn side_by_side(&self, task: &mut Task<'_>, pages: u32) -> Result<Option<Range<u32>>, Error> {
        let order = u8::try_from(pages.next_power_of_two().trailing_zeros()).expect("at most 9");
        let mut got = Vec::new();
        self.try_alloc(task, Wanted::new(1, Purpose::Used).quietly(order), &mut got)?;
        if let Some(first) = got.first() {
            let run = first.0..first.0 + pages;
            self.put_unused(task, &got[pages as usize..]);
            return Ok(Some(run));
        }
        for _ in 0..WAITS {
            let mut tried = 0;
            for (pages_in, block) in self.cheapest_blocks(1 << order) {
                let Some(evacuation) = self.memory.evacuate(task, block.clone()) else {
                    continue;
                };
                // Else frames of it were taken and hold no page yet.
                if evacuation.missing(task) == Some(pages_in) {
                    tried += 1;
                    self.clear_block(task, &block)?;
                    if let Some(frames) = evacuation.capture(task) {
                        let end = frames.start + pages;
                        self.memory.took(task, 1 << order);
                        let rest: Vec<FrameId> = (end..frames.end).map(FrameId).collect();
                        self.put_unused(task, &rest);
                        return Ok(Some(frames.start..end));
                    }
                }
                if tried == TRIES {
                    break;
                }
            }
            if tried > 0 {
                break;
            }
            // The memory beside the last look is next; or other tasks, which empty as many blocks
            // as may be, are done.
            if task.sleep(Cause::Memory, AGAIN) == Wakeup::Cancelled {
                return Err(Error::Cancelled);
            }
        }
        Ok(None)
    }

    /// Blocks of `size` frames whose pages can all be moved, with how many these are, those with
    /// the fewest first, of the part of the memory that is next.
    fn cheapest_blocks(&self, size: u32) -> Vec<(u32, Range<u32>)> {
        let all = self.options.frames / size;
        let count = (LOOK_FRAMES / size).min(all);
        let from = self.memory.next_look.fetch_add(count, Ordering::Relaxed);
        let blocks = (0..count).map(|at| {
            let first = from.wrapping_add(at) % all * size;
            first..first + size
        });
        let blocks = blocks.filter_map(|block| Some((self.cost_of(&block)?, block)));
        let mut blocks: Vec<_> = blocks.collect();
        blocks.sort_by_key(|(pages, block)| (*pages, block.start));
        blocks
    }

    /// Pages in a block; `None`: one of them cannot move in this moment.
    fn cost_of(&self, block: &Range<u32>) -> Option<u32> {
        let mut pages = 0;
        for flags in block
            .clone()
            .map(|frame| self.pages.table.flags(FrameId(frame)))
        {
            if flags.any(Flags::BUSY | Flags::WRITEBACK | Flags::ORPHAN) || flags.pins() > 0 {
                return None;
            }
            pages += u32::from(flags.has(Flags::CACHED));
        }
        Some(pages)
    }

    /// Moves all pages of a block that can be, and waits for the memory for it.
    fn clear_block(&self, task: &mut Task<'_>, block: &Range<u32>) -> Result<(), Error> {
        for first in block.clone().step_by(CLUSTER_FRAMES) {
            let cluster = u32::try_from(CLUSTER_FRAMES).expect("it is small");
            let part = first..first.saturating_add(cluster).min(block.end);
            let mut fresh: Vec<FrameId> = Vec::new();
            loop {
                let mut found = look(task, self, part.clone(), true);
                let wanted = u32::try_from(found.len()).expect("no more than a cluster");
                let has = u32::try_from(fresh.len()).expect("no more than a cluster");
                if wanted > has {
                    let more = Wanted::new(wanted - has, Purpose::Used);
                    let taken = self.alloc(task, more, &mut fresh);
                    if let Err(error) = taken {
                        self.put_unused(task, &fresh);
                        return Err(error);
                    }
                }
                let had = fresh.len();
                move_found(task, self, &mut found, &mut fresh);
                // Pages that did not move are left: the look at the next block says why.
                if had >= wanted as usize {
                    break;
                }
            }
            self.put_unused(task, &fresh);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

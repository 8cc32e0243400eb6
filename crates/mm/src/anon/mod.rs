//! Anonymous memory that spills: a region of pages that go to the swap file under pressure and come back on access.
//!
//! A page of a region is nowhere (it reads as zeroes), in a frame, or in a slot of the swap file. A task that
//! touches it waits until it is in a frame; reclaim decides when it leaves. What a page table does for a process,
//! `frames::Region` does here: a page that is *mapped* is there and dirty, and touching it is a look at a bit.
//!
//! A region's number has its top bit set, so that owners of frames tell regions from files.
//!
//! Invariants
//!   1. A frame stands in its region's table as long as it is cached; an entry changes under the frame's busy bit.
//!   2. Dirty says that the slot, if there is one, does not hold the content. A page without a slot is dirty.
//!   3. A region's number is given back when none of its pages is left.
//!
//! Source: mechanisms 9; Linux v5.15 mm/memory.c, do_anonymous_page(), do_swap_page(), zap_pte_range().
//! Deviations: a read of a page that is nowhere gives it a frame (no shared page of zeroes); fresh pages come in
//! runs of up to 16, as the kernel's lists of each CPU hand out frames.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use env::{Context, Env, Interrupt, Lock, LockClass, Task, TaskId};
use frames::{Content, Owner, Region};
use policy::reclaim::swap::walk::SwapWalk;
use policy::units::{Bytes, PAGE_SHIFT, Pages};

use crate::Error;
use crate::cache::Cache;

mod discard;
mod fault;
mod kill;
mod swapin;
#[cfg(test)]
mod tests;

/// What tells a region's number from a file's.
const ANON: u32 = 1 << 31;
/// Regions a cache has room for.
const REGIONS_MAX: usize = 1 << 16;
/// The tables of all regions together take at most this part of the limit. They come on top of the limit, and with them
/// resident memory stays below the limit and the 5 % that are promised.
const TABLES_PART: u64 = 32;
/// A page's entry in the table of its region, and its two bits, in bits.
const ENTRY_BITS: u64 = 32 + 2;

/// Pages that all regions under a limit of `frames` frames may have together: some thirty times its memory.
const fn pages_most(frames: u32) -> u64 {
    let tables = ((frames as u64) << PAGE_SHIFT) / TABLES_PART;
    tables * 8 / ENTRY_BITS
}

/// A region as the cache knows it.
pub(crate) struct Anon {
    /// With the top bit set.
    pub(crate) id: u32,
    pub(crate) pages: Region,
    /// Its number is another's by now: whoever remembers it looks again.
    ended: AtomicBool,
    /// Number of the task that last took memory for it: what is given back when nobody is there to do it is its.
    taker: AtomicU32,
    /// It has given way to others (`kill`).
    killed: AtomicBool,
    /// How far a walk over it was read ahead.
    pub(crate) walk: Lock<SwapWalk>,
    /// Who gives frames to pages that have none: one at a time.
    filling: Lock<()>,
}

impl Anon {
    fn taker(&self) -> TaskId {
        TaskId(self.taker.load(Ordering::Relaxed))
    }

    /// A task takes memory for the region.
    pub(crate) fn takes(&self, task: TaskId) {
        self.taker.store(task.0, Ordering::Relaxed);
    }
}

/// What touching a run of pages took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Pages touched.
    pub pages: Pages,
    /// Of these, pages that were not mapped: all faults.
    pub faults: Pages,
    /// Of these, pages that were read from the swap file.
    pub major: Pages,
}

/// A region of anonymous memory. Dropping it gives its memory and its slots back.
pub struct Spill<E: Env> {
    cache: Arc<Cache<E>>,
    anon: Arc<Anon>,
}

impl<E: Env> Spill<E> {
    /// How many pages it has.
    pub fn len(&self) -> Pages {
        Pages(u64::from(self.anon.pages.len()))
    }

    /// Whether it has no pages at all.
    pub fn is_empty(&self) -> bool {
        self.anon.pages.is_empty()
    }

    /// How many of its pages are in memory now. Walks over all of them.
    pub fn resident(&self) -> Pages {
        let pages = &self.anon.pages;
        let there = |page: &u32| matches!(pages.get(*page), frames::Slot::Frame(_));
        Pages((0..pages.len()).filter(there).count() as u64)
    }

    /// Touches `count` pages from `first` on as a program does that stores to each what is there already: each is in
    /// memory and dirty when it was touched. A page that was nowhere is full of zeroes, but for its stamp, one word
    /// at its start that says which page of which region it is (a read or a write leaves none). Order: ascending.
    ///
    /// # Errors
    /// `OutOfRange`; `OutOfMemory`, `NoMemory` (pages before it were touched); `SwapReadFailed`: the page's content is in
    /// the swap file and could not be read, the next access tries again; `Killed`; `Cancelled`.
    pub fn touch(&self, task: &mut Task<'_, E>, first: u32, count: u32) -> Result<Touched, Error> {
        let end = self.end(first, count)?;
        fault::touch(task, &self.cache, &self.anon, first, end)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// As `touch`. Data before the point of the error was taken in.
    pub fn write(
        &self,
        task: &mut Task<'_, E>,
        offset: Bytes,
        data: &<E::Content as Content>::Data,
    ) -> Result<(), Error> {
        self.check_bytes(offset, E::Content::data_len(data) as u64)?;
        fault::write(task, &self.cache, &self.anon, offset, data)
    }

    /// Fills all of `data` from `offset`.
    ///
    /// # Errors
    /// As `touch`.
    pub fn read(
        &self,
        task: &mut Task<'_, E>,
        offset: Bytes,
        data: &mut <E::Content as Content>::Data,
    ) -> Result<(), Error> {
        self.check_bytes(offset, E::Content::data_len(data) as u64)?;
        fault::read(task, &self.cache, &self.anon, offset, data)
    }

    /// Gives the memory and the slots of `count` pages from `first` on back; they are nowhere again.
    ///
    /// # Errors
    /// `OutOfRange`, `Cancelled`.
    pub fn discard(&self, task: &mut Task<'_, E>, first: u32, count: u32) -> Result<(), Error> {
        let end = self.end(first, count)?;
        discard::discard(task, &self.cache, &self.anon, first, end)
    }

    fn end(&self, first: u32, count: u32) -> Result<u32, Error> {
        let end = u64::from(first) + u64::from(count);
        let fits = u32::try_from(end)
            .ok()
            .filter(|end| *end <= self.anon.pages.len());
        fits.ok_or(self.beyond(Bytes(end << PAGE_SHIFT)))
    }

    fn check_bytes(&self, offset: Bytes, len: u64) -> Result<(), Error> {
        let end = offset.0.saturating_add(len);
        if end > self.len().bytes().0 {
            return Err(self.beyond(Bytes(end)));
        }
        Ok(())
    }

    fn beyond(&self, end: Bytes) -> Error {
        Error::OutOfRange {
            what: "region",
            end,
            len: self.len().bytes(),
        }
    }
}

impl<E: Env> Drop for Spill<E> {
    fn drop(&mut self) {
        discard::drop_region(&self.cache, &self.anon);
    }
}

impl<E: Env> Cache<E> {
    /// A new region of `pages` pages, all of them nowhere: it takes memory as it is touched. Four and a quarter
    /// bytes a page are taken for its table, on top of the limit; so all regions together may have thirty times as many
    /// pages as the limit, no more.
    ///
    /// # Errors
    /// `TooMany`; `BadOption`: no pages, or more than are left for regions.
    pub fn spill(
        self: &Arc<Self>,
        task: &mut Task<'_, E>,
        pages: Pages,
    ) -> Result<Arc<Spill<E>>, Error> {
        self.drop_remains(task);
        let count = self.reserve_table(task, pages)?;
        let region = Region::new(count);
        let mut regions = self.swap.regions.lock(task);
        let place = match regions.iter().position(Option::is_none) {
            Some(free) => free,
            None if regions.len() >= REGIONS_MAX => {
                self.swap.region_pages.fetch_sub(pages.0, Ordering::Relaxed);
                return Err(Error::TooMany {
                    what: "regions",
                    limit: u32::try_from(REGIONS_MAX).expect("it fits"),
                });
            }
            None => {
                regions.push(None);
                regions.len() - 1
            }
        };
        let number = u32::try_from(place).expect("fewer than REGIONS_MAX");
        let anon = Arc::new(Anon {
            id: number | ANON,
            pages: region,
            ended: AtomicBool::new(false),
            taker: AtomicU32::new(task.id().0),
            killed: AtomicBool::new(false),
            walk: Lock::new(LockClass::Leaf, self.options.reclaim.swap_walk()),
            filling: Lock::new(LockClass::Leaf, ()),
        });
        regions[place] = Some(Arc::clone(&anon));
        drop(regions);
        Ok(Arc::new(Spill {
            cache: Arc::clone(self),
            anon,
        }))
    }

    /// Counts the table of a region of `pages` pages, if there is room for it.
    fn reserve_table(&self, context: &impl Context, pages: Pages) -> Result<u32, Error> {
        // The limit does not change meanwhile.
        let _clearing = self.memory.clearing(context);
        let all = &self.swap.region_pages;
        let most = pages_most(self.memory.limit_frames());
        let with = |all: u64| all.checked_add(pages.0).filter(|all| *all <= most);
        let count = u32::try_from(pages.0).ok();
        let count = count.filter(|count| (1..=ANON).contains(count));
        let fits = count.filter(|_| {
            all.try_update(Ordering::Relaxed, Ordering::Relaxed, with)
                .is_ok()
        });
        fits.ok_or_else(|| {
            let left = most.saturating_sub(all.load(Ordering::Relaxed));
            Error::BadOption {
                what: "pages of a region, beside the other regions of the cache,",
                value: pages.0,
                allowed: (1, left.min(u64::from(ANON))),
            }
        })
    }

    /// Whether the tables that there are may stand beside a limit of so many frames.
    pub(crate) fn check_tables(&self, frames: u32) -> Result<(), Error> {
        let regions = Pages(self.swap.region_pages.load(Ordering::Relaxed));
        if regions.0 <= pages_most(frames) {
            return Ok(());
        }
        Err(Error::RegionsAboveLimit {
            limit: Pages(u64::from(frames)),
            regions,
            tables: Bytes(regions.0 * ENTRY_BITS / 8),
        })
    }

    /// The region of that number, top bit included.
    pub(crate) fn region(&self, context: &impl Context, id: u32) -> Option<Arc<Anon>> {
        let place = (id & !ANON) as usize;
        self.swap.regions.lock(context).get(place)?.clone()
    }

    /// A region's last page is gone: its number is free.
    fn forget_region(&self, anon: &Anon) {
        let context = Interrupt::new();
        let mut regions = self.swap.regions.lock(&context);
        anon.ended.store(true, Ordering::Release);
        let pages = u64::from(anon.pages.len());
        self.swap.region_pages.fetch_sub(pages, Ordering::Relaxed);
        regions[(anon.id & !ANON) as usize] = None;
    }
}

/// Looks regions up and remembers the last one: neighbours on a list are mostly of one region.
pub(crate) struct Cursor {
    last: Option<Arc<Anon>>,
}

impl Cursor {
    pub(crate) fn new() -> Self {
        Self { last: None }
    }

    /// The region of that number. Takes a lock of class `Registry` if it is another one than last time.
    pub(crate) fn region<E: Env>(
        &mut self,
        cache: &Cache<E>,
        context: &impl Context,
        id: u32,
    ) -> Option<&Arc<Anon>> {
        let is_it = |anon: &Arc<Anon>| anon.id == id && !anon.ended.load(Ordering::Acquire);
        if !self.last.as_ref().is_some_and(is_it) {
            self.last = cache.region(context, id);
        }
        self.last.as_ref()
    }

    /// Whether a page was used since the last look. The owner may be an old one: the frame may be a file's by now, and the
    /// region's number another, smaller region's.
    pub(crate) fn test_and_clear_young<E: Env>(
        &mut self,
        cache: &Cache<E>,
        context: &impl Context,
        owner: Owner,
    ) -> bool {
        owner.file & ANON != 0
            && self
                .region(cache, context, owner.file)
                .filter(|anon| owner.index < anon.pages.len())
                .is_some_and(|anon| anon.pages.test_and_clear_young(owner.index))
    }
}

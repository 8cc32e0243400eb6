//! Anonymous memory that spills: a region of pages that go to the swap file under pressure and come
//! back on access.
//!
//! A page of a region is nowhere (it reads as zeroes), in a frame, or in a slot of the swap file. A
//! task that touches it waits until it is in a frame; reclaim decides when it leaves.
//! `frames::Region` does here what a page table does for a process: a page that is *mapped* is
//! there and dirty, and touching it is a look at a bit.
//!
//! Invariants
//!   1. A frame stands in its region's table as long as it is cached; an entry changes under the
//!      frame's busy bit.
//!   2. Dirty says that the slot, if there is one, does not hold the content. A page without a slot
//!      is dirty.
//!
//! Source: mechanisms 9; Linux v5.15 mm/memory.c, do_anonymous_page(), do_swap_page(),
//! zap_pte_range().
//! Deviations: a read of a page that is nowhere gives it a frame (no shared page of zeroes); fresh
//! pages come in runs of up to 16, as the kernel's lists of each CPU hand out frames.

use std::sync::Arc;

use env::{Context, Task};
use frames::{Data, DataMut, Region};
use policy::units::{Bytes, PAGE_SHIFT, Pages};

use crate::Error;
use crate::cache::Cache;
use crate::registry::regions::{ANON, Anon, REGIONS_MAX};

mod discard;
mod fault;
mod oom;
mod swapin;
#[cfg(test)]
mod tests;

/// The tables of all regions together take at most this part of the limit. They come on top of the
/// limit, and with them resident memory stays below the limit and the 5 % that are promised.
const TABLES_PART: u64 = 32;
/// A page's entry in the table of its region, and its two bits, in bits.
const ENTRY_BITS: u64 = 32 + 2;

/// Pages that all regions under a limit of `frames` frames may have together: some thirty times its
/// memory.
const fn pages_most(frames: u32) -> u64 {
    let tables = ((frames as u64) << PAGE_SHIFT) / TABLES_PART;
    tables * 8 / ENTRY_BITS
}

/// The result of touching a run of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Pages touched.
    pub pages: Pages,
    /// Of these, pages that were not mapped, or not for a store: all faults.
    pub faults: Pages,
    /// Of these, pages that were read from the swap file, or from their file.
    pub major: Pages,
    /// Of the pages touched, those on another node than the task's.
    pub far: Pages,
}

/// A region of anonymous memory. Dropping it gives its memory and its slots back.
pub struct Spill {
    cache: Arc<Cache>,
    anon: Arc<Anon>,
}

impl Spill {
    /// Number of its pages.
    pub fn len(&self) -> Pages {
        Pages(u64::from(self.anon.pages.len()))
    }

    /// True if it has no pages at all.
    pub fn is_empty(&self) -> bool {
        self.anon.pages.is_empty()
    }

    /// Number of its pages that are in memory now. Walks over all of them.
    pub fn resident(&self) -> Pages {
        let pages = &self.anon.pages;
        let there = |page: &u32| matches!(pages.get(*page), frames::RegionEntry::Frame(_));
        Pages((0..pages.len()).filter(there).count() as u64)
    }

    /// Touches `count` pages from `first` on as a program does that stores to each what is there
    /// already: each is in memory and dirty when it was touched. A page that was nowhere is full of
    /// zeroes, but for its stamp, one word at its start that says which page of which region it is
    /// (a read or a write leaves none). Order: ascending.
    ///
    /// # Errors
    /// `OutOfRange`; `OutOfMemory`, `NoMemory` (pages before it were touched); `SwapReadFailed`:
    /// the page's content is in the swap file and could not be read, the next access tries again;
    /// `Killed`; `Cancelled`.
    pub fn touch(&self, task: &mut Task<'_>, first: u32, count: u32) -> Result<Touched, Error> {
        let end = self.end(first, count)?;
        fault::touch(task, &self.cache, &self.anon, first, end)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// As `touch`. Data before the point of the error was taken in.
    pub fn write<'a>(
        &self,
        task: &mut Task<'_>,
        offset: Bytes,
        data: impl Into<Data<'a>>,
    ) -> Result<(), Error> {
        let data = data.into();
        self.check_bytes(offset, data.len() as u64)?;
        fault::write(task, &self.cache, &self.anon, offset, data)
    }

    /// Fills all of `data` from `offset`.
    ///
    /// # Errors
    /// As `touch`.
    pub fn read<'a>(
        &self,
        task: &mut Task<'_>,
        offset: Bytes,
        data: impl Into<DataMut<'a>>,
    ) -> Result<(), Error> {
        let data = data.into();
        self.check_bytes(offset, data.len() as u64)?;
        fault::read(task, &self.cache, &self.anon, offset, data)
    }

    /// Gives the memory and the slots of `count` pages from `first` on back; they are nowhere
    /// again.
    ///
    /// # Errors
    /// `OutOfRange`, `Cancelled`.
    pub fn discard(&self, task: &mut Task<'_>, first: u32, count: u32) -> Result<(), Error> {
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

impl Drop for Spill {
    fn drop(&mut self) {
        discard::drop_region(&self.cache, &self.anon);
    }
}

impl Cache {
    /// A new region of `pages` pages, all of them nowhere: it takes memory as it is touched. Four
    /// and a quarter bytes a page are taken for its table, on top of the limit; so all regions
    /// together may have thirty times as many pages as the limit, no more.
    ///
    /// # Errors
    /// `TooMany`; `BadOption`: no pages, or more than are left for regions.
    pub fn spill(self: &Arc<Self>, task: &mut Task<'_>, pages: Pages) -> Result<Arc<Spill>, Error> {
        self.drop_remains(task);
        let count = self.reserve_table(task, pages)?;
        let region = match self.runs_of_faults() {
            Some(runs) => Region::with_runs(count, runs.order),
            None => Region::new(count),
        };
        let walk = self.options.reclaim.swap_walk();
        let Some(anon) = self.registry.regions.add(task, region, task.id(), walk) else {
            self.registry.regions.uncount(pages);
            return Err(Error::TooMany {
                what: "regions",
                limit: u32::try_from(REGIONS_MAX).expect("it fits"),
            });
        };
        Ok(Arc::new(Spill {
            cache: Arc::clone(self),
            anon,
        }))
    }

    /// Counts the table of a region of `pages` pages, if there is room for it.
    fn reserve_table(&self, context: &impl Context, pages: Pages) -> Result<u32, Error> {
        // The limit does not change meanwhile.
        let _shrinking = self.memory.shrinking(context);
        let regions = &self.registry.regions;
        let most = self.table_pages_most();
        let count = u32::try_from(pages.0).ok();
        let count = count.filter(|count| (1..=ANON).contains(count));
        let fits = count.filter(|_| regions.try_count(pages, most));
        fits.ok_or_else(|| {
            let left = most.saturating_sub(regions.pages().0);
            Error::BadOption {
                what: "pages of a region, beside the other regions of the cache,",
                value: pages.0,
                allowed: (1, left.min(u64::from(ANON))),
            }
        })
    }

    /// Pages of regions of which there may be tables. Called while the limit does not change.
    pub(crate) fn table_pages_most(&self) -> u64 {
        pages_most(self.memory.limit_frames())
    }

    /// Checks that the tables that there are may stand beside a limit of `frames` frames.
    pub(crate) fn check_tables(&self, frames: u32) -> Result<(), Error> {
        let regions = self.registry.regions.pages();
        if regions.0 <= pages_most(frames) {
            return Ok(());
        }
        Err(Error::RegionsAboveLimit {
            limit: Pages(u64::from(frames)),
            regions,
            tables: Bytes(regions.0 * ENTRY_BITS / 8),
        })
    }
}

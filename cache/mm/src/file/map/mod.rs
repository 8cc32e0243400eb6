//! Files that are mapped: pages that are used without a call, and what happens at a fault.
//!
//! ```text
//!             load or store: fault            store: fault (dirty, paced)
//!   nowhere ------------------------> mapped ----------------------------> storable
//!      ^                                ^  ^                                  |
//!      | reclaim, truncation            |  '---- its write begins ------------'
//!      '--------------------------------'
//! ```
//!
//! The bits are those of `registry::page_map`. A page that is mapped may be evicted: reclaim gives
//! it a second chance where it was used, and takes it out of the page table before it frees it.
//!
//! Invariants
//!   1. A store is paced as a write is: where its fault makes a page dirty, the writer pays for it.
//!   2. A page that lies behind all that the device was ever given is zeroes: it is not read.
//!
//! Concurrency: a fault is inside the file's gate, and holds no busy bit where it waits.
//!
//! Source: Linux v3.0 mm/memory.c, __do_fault(); mm/filemap.c, filemap_fault(); fs/buffer.c,
//! block_page_mkwrite(); mm/page-writeback.c, set_page_dirty_balance().
//! Deviations: nothing is read ahead of a fault; there is one page table for a file, no matter how
//! many map it; fresh pages come in runs of up to 16, as for regions; no page of a hole comes
//! before it is used, where the kernel fills a window of them, unmapped, ahead of the page that is
//! missing.

mod fault;
mod live;
#[cfg(test)]
mod tests;

pub use live::Stream;

use std::sync::Arc;

use env::{Context, Interrupt, Task};
use frames::{Flags, Slot};
use policy::units::{Bytes, PAGE_SHIFT, Pages};

use crate::cache::Cache;
use crate::file::File;
use crate::registry::mapping::Mapping;
use crate::registry::page_map::{Access, PageMap};
use crate::{Error, Touched, Writer};

/// Pages of a file of which a map takes as much memory as a page of a region does: four bits each,
/// and not 34.
const PAGES_A_REGION_PAGE: u64 = 8;

/// A file that is mapped. Dropping it ends that; stored bytes stay in the file.
pub struct FileMap {
    cache: Arc<Cache>,
    mapping: Arc<Mapping>,
    map: Arc<PageMap>,
    pages: u32,
}

impl File {
    /// Maps the first `pages` pages of the file, which need not be as long yet. All maps of a file
    /// have the same pages: the first of them says how many there can be, until the last is gone.
    /// Half a byte a page is taken for it, on top of the limit, beside what regions take.
    ///
    /// # Errors
    /// `BadOption`: no pages, more than were mapped before, or more than there is room for beside
    /// regions.
    pub fn map(&self, context: &impl Context, pages: Pages) -> Result<FileMap, Error> {
        self.map_as(context, pages, None)
    }

    /// The same for a program that uses the pages itself: those of the content's map `live`. Such a
    /// map is the only one of its file.
    ///
    /// # Errors
    /// As `map`; `Mapped`.
    pub fn map_live(
        &self,
        context: &impl Context,
        pages: Pages,
        live: u32,
    ) -> Result<FileMap, Error> {
        self.map_as(context, pages, Some(live))
    }

    fn map_as(
        &self,
        context: &impl Context,
        pages: Pages,
        live: Option<u32>,
    ) -> Result<FileMap, Error> {
        let refused = |what, most: u64| Error::BadOption {
            what,
            value: pages.0,
            allowed: (1, most),
        };
        let count = u32::try_from(pages.0).ok().filter(|count| *count > 0);
        let count = count.ok_or(refused(
            "pages of a file that is mapped",
            u64::from(u32::MAX),
        ))?;
        let handle = |map| FileMap {
            cache: Arc::clone(&self.cache),
            mapping: Arc::clone(&self.mapping),
            map,
            pages: count,
        };
        let join = |map: &Arc<PageMap>| {
            if live.is_some() || map.live().is_some() {
                return Err(Error::Mapped);
            }
            if count > map.pages() {
                let most = u64::from(map.pages());
                return Err(refused("pages of a file that is mapped already", most));
            }
            map.join();
            Ok(handle(Arc::clone(map)))
        };
        if let Some(map) = &*self.mapping.map_slot(context) {
            return join(map);
        }
        let regions = &self.cache.registry.regions;
        {
            // The limit does not change meanwhile.
            let _shrinking = self.cache.memory.shrinking(context);
            let most = self.cache.table_pages_most();
            if !regions.try_count(taken(count), most) {
                let left = most.saturating_sub(regions.pages().0) * PAGES_A_REGION_PAGE;
                let what = "pages of a file that is mapped, beside the regions of the cache,";
                return Err(refused(what, left));
            }
        }
        let mut slot = self.mapping.map_slot(context);
        if let Some(map) = &*slot {
            // Another task was faster.
            regions.uncount(taken(count));
            return join(map);
        }
        let map = Arc::new(PageMap::new(count, live));
        *slot = Some(Arc::clone(&map));
        self.mapping.note_live(live.is_some());
        Ok(handle(map))
    }
}

/// The overhead of a map of `pages` pages, in pages of regions.
fn taken(pages: u32) -> Pages {
    Pages(u64::from(pages).div_ceil(PAGES_A_REGION_PAGE))
}

impl FileMap {
    /// Number of pages that can be used through it.
    #[must_use]
    pub fn len(&self) -> Pages {
        Pages(u64::from(self.pages))
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Answers an access of the program to `page` of a live map: the page is in memory, at home in
    /// the map, and may be used; a store has made it dirty, and is paced. Where the thread's
    /// accesses run in order, more pages that are in memory come with it. Pages used so are the
    /// answer's.
    ///
    /// # Errors
    /// As `touch`.
    pub fn fault(
        &self,
        task: &mut Task<'_>,
        (writer, stream): (&mut Writer, &mut Stream),
        page: u32,
        access: Access,
    ) -> Result<Touched, Error> {
        if page >= self.pages {
            return Err(Error::no_page(page, self.mapping.size()));
        }
        live::fault(task, self, (writer, stream), page, access)
    }

    /// The whole pages of a range are no longer the program's, until it uses them again: they may
    /// be dropped.
    pub fn let_go(&self, context: &impl Context, (offset, len): (Bytes, Bytes)) {
        let end = (offset.0 + len.0) >> PAGE_SHIFT;
        let first = u32::try_from(offset.0.div_ceil(1 << PAGE_SHIFT)).unwrap_or(u32::MAX);
        let mut next = self.map.next_mapped(first);
        let (cache, mapping) = (&self.cache, &self.mapping);
        while let Some(page) = next.filter(|page| u64::from(*page) < end) {
            next = self.map.next_mapped(page + 1);
            let Slot::Frame(frame) = mapping.lookup(context, &cache.pages.pool, page) else {
                continue;
            };
            // So that no fault allows its use meanwhile; one that is in use stays.
            let Ok(busy) = cache.pages.table.try_busy(frame, mapping.owner(page)) else {
                continue;
            };
            self.unmap(context, page);
            if let Some(live) = self.map.live() {
                cache.content().leave(live, &[page]);
            }
            cache.release(busy, Flags::NONE, Flags::NONE);
        }
    }

    /// Uses `count` pages from `first` on, one after the other. A store is one of what is there
    /// already: each page is in memory and dirty when it was stored to. A page that was a hole is
    /// full of zeroes, but that a store leaves a word at its start that says which page it is. A
    /// store that makes a page dirty is paced here, as a write is.
    ///
    /// # Errors
    /// `OutOfRange`: the map, or the file, ends before; `MetadataFailed` (no space),
    /// `DeviceStopped`, `FlushFailed`, `ReadFailed`, `OutOfMemory`, `NoMemory`, `Cancelled`, and
    /// `WouldWait` where the task may not block. Pages before the page that met it were used.
    pub fn touch(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        (first, count): (u32, u32),
        access: Access,
    ) -> Result<Touched, Error> {
        let end = u64::from(first) + u64::from(count);
        let fits = u32::try_from(end).ok();
        let fits = fits.filter(|end| *end <= self.pages);
        let end = fits.ok_or(Error::OutOfRange {
            what: "map",
            end: Bytes(end << PAGE_SHIFT),
            len: self.len().bytes(),
        })?;
        fault::touch(task, self, writer, (first, end), access)
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if !self.map.leave() {
            return;
        }
        let context = Interrupt::new();
        let mut from = 0;
        while let Some(page) = self.map.next_mapped(from) {
            self.unmap(&context, page);
            from = page + 1;
        }
        let mut slot = self.mapping.map_slot(&context);
        // Somebody may have mapped it again meanwhile, and left or not.
        let is_it = slot.as_ref().is_some_and(|map| Arc::ptr_eq(map, &self.map));
        if is_it && self.map.is_left() {
            *slot = None;
            self.mapping.note_live(false);
            let regions = &self.cache.registry.regions;
            regions.uncount(taken(self.map.pages()));
        }
    }
}

impl FileMap {
    /// A page leaves the page table; if it was used, its file's page was.
    fn unmap(&self, context: &impl Context, page: u32) {
        let (cache, mapping) = (&self.cache, &self.mapping);
        let was_used = self.map.test_and_clear_young(page);
        let frame = {
            let mut token = mapping.token.lock(context);
            let index = mapping.index.writer(&cache.pages.pool, &mut token);
            match index.get(page) {
                Slot::Frame(frame) if cache.unmap(context, mapping, page, frame) => frame,
                _ => return,
            }
        };
        if was_used {
            cache.touch(frame);
        }
    }
}

//! The pages of a file that may be used without a call: what a page table is to a process.
//!
//! A page is *mapped* where a load needs no fault, and *storable* where a store needs none; a
//! storable page is mapped and dirty. There is one map for a file, however many handles it has: a
//! page is mapped once at most.
//!
//! Invariants
//!   1. A page's bits, `Flags::MAPPED` of its frame and the count of its zone change together,
//!      under the file's index lock. So the task that takes a page out of the index unmaps it in
//!      the same hold (`Cache::unmap`).
//!   2. A storable page is dirty: what starts its write takes that right away in the same hold, and
//!      the next store faults and makes it dirty again.
//!   3. Of a live map the bits are what the cache has allowed. The page table of the program may
//!      have less: then an access faults again, and the cache, asked for a page by name, never
//!      answers by the bits alone.
//!
//! Source: mechanisms 2.6; Linux v3.0 mm/memory.c, __do_fault(); mm/rmap.c, page_mkclean(),
//! page_referenced().

use core::ops::Range;

use frames::sync::{AtomicU32, Ordering};
use frames::{Content, Mapped};

/// The access of a task to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads it.
    Load,
    /// It changes it.
    Store,
}

/// See the module.
pub(crate) struct PageMap {
    pages: u32,
    /// The number of the content's map, if a program uses the pages itself.
    live: Option<u32>,
    mapped: Mapped,
    storable: Mapped,
    /// Handles.
    handles: AtomicU32,
}

impl PageMap {
    /// For the first `pages` pages of a file, with one handle; `live`: see there.
    pub(crate) fn new(pages: u32, live: Option<u32>) -> Self {
        Self {
            pages,
            live,
            mapped: Mapped::new(pages),
            storable: Mapped::new(pages),
            handles: AtomicU32::new(1),
        }
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn live(&self) -> Option<u32> {
        self.live
    }

    /// Another handle.
    pub(crate) fn join(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// A handle is gone. Answers whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// True if nobody has it.
    pub(crate) fn is_left(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0
    }

    /// Uses the first pages of `from..to` that need no fault; answers the first that does, `to` if
    /// there is none.
    pub(crate) fn touch(&self, from: u32, to: u32, access: Access) -> u32 {
        match access {
            Access::Load => self.mapped.touch(from, to),
            Access::Store => self.storable.touch(from, to),
        }
    }

    /// A page is mapped, and used.
    pub(crate) fn map(&self, page: u32, access: Access) {
        self.mapped.map(page);
        if access == Access::Store {
            self.storable.map(page);
        }
    }

    /// A page is mapped beside one that is used; nobody knows yet if it will be used.
    pub(crate) fn map_beside(&self, page: u32, access: Access) {
        let was_young = self.test_and_clear_young(page);
        self.map(page, access);
        self.test_and_clear_young(page);
        if was_young {
            self.mapped.set_young(page);
        }
    }

    /// True if the access to a page needs no fault.
    pub(crate) fn has(&self, page: u32, access: Access) -> bool {
        match access {
            Access::Load => self.mapped.has(page),
            Access::Store => self.storable.has(page),
        }
    }

    /// The next store to the page is a fault.
    pub(crate) fn protect(&self, page: u32) {
        if page < self.pages {
            self.storable.unmap(page);
        }
    }

    /// The same of a live map's program, once the bits say so.
    pub(crate) fn protect_live(&self, content: &dyn Content, pages: Range<u32>) {
        let pages = pages.start..pages.end.min(self.pages);
        if let Some(live) = self.live.filter(|_| !pages.is_empty()) {
            content.protect(live, pages);
        }
    }

    /// Every access to the page is.
    pub(crate) fn unmap(&self, page: u32) {
        // A later map of the file may be shorter.
        if page < self.pages {
            self.storable.unmap(page);
            self.mapped.unmap(page);
        }
    }

    /// True if the page was used since the last look.
    pub(crate) fn test_and_clear_young(&self, page: u32) -> bool {
        let used = [&self.mapped, &self.storable]
            .map(|bits| page < self.pages && bits.test_and_clear_young(page));
        used.contains(&true)
    }

    /// The first page from `from` on that is mapped.
    pub(crate) fn next_mapped(&self, from: u32) -> Option<u32> {
        self.mapped.next(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a map that was longer.
    #[test]
    fn a_page_beyond_the_map_is_not_in_it() {
        let map = PageMap::new(8, None);
        map.unmap(100);
        assert!(!map.test_and_clear_young(100));
    }

    #[test]
    fn a_store_needs_more_than_a_load_and_gives_both() {
        let map = PageMap::new(8, None);
        map.map(3, Access::Load);
        assert_eq!(map.touch(3, 4, Access::Load), 4);
        assert_eq!(map.touch(3, 4, Access::Store), 3);
        map.map(3, Access::Store);
        assert_eq!(map.touch(3, 4, Access::Store), 4);
        map.protect(3);
        assert_eq!(map.touch(3, 4, Access::Load), 4);
        assert_eq!(map.touch(3, 4, Access::Store), 3);
        assert!(map.test_and_clear_young(3));
        assert!(!map.test_and_clear_young(3));
        // A page of the file behind what is mapped is not asked after.
        map.protect(8);
    }

    #[test]
    fn a_page_that_comes_beside_another_is_as_young_as_it_was() {
        let map = PageMap::new(8, None);
        for access in [Access::Load, Access::Store] {
            map.map_beside(3, access);
            assert!(map.has(3, access) && !map.test_and_clear_young(3));
        }
        map.map(4, Access::Load);
        map.map_beside(4, Access::Store);
        assert!(map.has(4, Access::Store) && map.test_and_clear_young(4));
        assert!(!map.test_and_clear_young(4));
    }

    #[test]
    fn the_last_handle_is_told() {
        let map = PageMap::new(1, None);
        map.join();
        assert!(!map.leave() && !map.is_left());
        assert!(map.leave() && map.is_left());
    }
}

//! Maps of programs in the lab: the page table of each view, and the frames that are at home in it.
//!
//! A view has what `os::View` and its arena have live, but that a page's bytes stay in its frame:
//! so a program that still uses a page whose frame has gone to another one sees the other's bytes.
//!
//! Invariants
//!   1. One frame is at home in a page: a second is a panic.
//!   2. A page that no frame is at home in cannot be used.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frames::FrameId;
use frames::sync::{AtomicBool, Ordering};

/// A page of a view.
type Place = (u32, u32);

/// The frame of a page, and what the program may do.
#[derive(Debug)]
struct Entry {
    frame: FrameId,
    loads: bool,
    stores: bool,
}

#[derive(Debug, Default)]
struct Tables {
    next: u32,
    /// Of open views.
    entries: BTreeMap<Place, Entry>,
    homes: BTreeMap<FrameId, Place>,
    open: Vec<u32>,
}

/// All views of a lab.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Labs without maps look at nothing else.
    any: AtomicBool,
    tables: Mutex<Tables>,
}

impl Views {
    /// None, in a lab that has had no view.
    fn tables(&self) -> Option<MutexGuard<'_, Tables>> {
        let any = self.any.load(Ordering::Relaxed);
        any.then(|| self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn open(&self) -> u32 {
        self.any.store(true, Ordering::Relaxed);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let view = tables.next;
        tables.next += 1;
        tables.open.push(view);
        view
    }

    pub(crate) fn close(&self, view: u32) {
        if let Some(mut tables) = self.tables() {
            tables.open.retain(|open| *open != view);
            tables.entries.retain(|place, _| place.0 != view);
            tables.homes.retain(|_, place| place.0 != view);
        }
    }

    /// The frame of a page that the program may load from, or store to.
    pub(crate) fn usable(&self, view: u32, page: u32, stores: bool) -> Option<FrameId> {
        let tables = self.tables()?;
        let entry = tables.entries.get(&(view, page))?;
        let may = if stores { entry.stores } else { entry.loads };
        may.then_some(entry.frame)
    }

    /// Pages that programs may use.
    pub(crate) fn used(&self) -> u64 {
        let tables = self.tables();
        let entries = tables.iter().flat_map(|tables| tables.entries.values());
        entries.filter(|entry| entry.loads).count() as u64
    }

    pub(crate) fn home(&self, frame: FrameId) -> Option<Place> {
        self.tables()?.homes.get(&frame).copied()
    }

    /// A frame is at home in the page from now on; false: the view has ended.
    pub(crate) fn settle(&self, place: Place, frame: FrameId) -> bool {
        let tables = self.tables();
        let Some(mut tables) = tables.filter(|tables| tables.open.contains(&place.0)) else {
            return false;
        };
        let before = tables.homes.insert(frame, place);
        if before == Some(place) {
            return true;
        }
        if let Some(old) = before {
            tables.entries.remove(&old);
        }
        let entry = Entry {
            frame,
            loads: false,
            stores: false,
        };
        let other = tables.entries.insert(place, entry);
        assert!(
            other.is_none(),
            "{frame:?} and {other:?} are at home in page {} of view {}",
            place.1,
            place.0
        );
        true
    }

    /// The frame is at home nowhere.
    pub(crate) fn vacate(&self, frame: FrameId) {
        if let Some(mut tables) = self.tables()
            && let Some(place) = tables.homes.remove(&frame)
        {
            tables.entries.remove(&place);
        }
    }

    /// A frame that is at home somewhere gives that up for another.
    pub(crate) fn hand_over(&self, to: FrameId, from: FrameId) {
        if let Some(mut tables) = self.tables()
            && let Some(place) = tables.homes.remove(&from)
        {
            tables.homes.insert(to, place);
            if let Some(entry) = tables.entries.get_mut(&place) {
                entry.frame = to;
            }
        }
    }

    /// The program may use pages of an open view.
    pub(crate) fn enter(&self, view: u32, pages: Range<u32>, stores: bool) {
        let tables = self.tables();
        let Some(mut tables) = tables.filter(|tables| tables.open.contains(&view)) else {
            return;
        };
        for page in pages {
            let entry = tables.entries.get_mut(&(view, page));
            let entry = entry.unwrap_or_else(|| panic!("page {page} of view {view} has no frame"));
            entry.loads = true;
            entry.stores |= stores;
        }
    }

    /// It may not store to them; nor load from them, if `leaves`.
    pub(crate) fn refuse(&self, view: u32, pages: impl Iterator<Item = u32>, leaves: bool) {
        let Some(mut tables) = self.tables() else {
            return;
        };
        for page in pages {
            if let Some(entry) = tables.entries.get_mut(&(view, page)) {
                entry.stores = false;
                entry.loads &= !leaves;
            }
        }
    }
}

//! A cache's table of its files, regions and devices.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use env::{Lock, LockClass};
use frames::sync::{AtomicBool, AtomicU32, AtomicU64};

use mapping::Mapping;
use regions::Regions;

pub(crate) mod ahead;
pub(crate) mod completions;
pub(crate) mod device;
pub(crate) mod gate;
pub(crate) mod health;
pub(crate) mod inflight;
pub(crate) mod mapping;
pub(crate) mod page_map;
mod reads;
pub(crate) mod regions;
pub(crate) mod requests;
pub(crate) mod rounds;
pub(crate) mod writeback;

/// Pages of the largest request: 1 MiB.
pub(crate) const REQUEST_PAGES: usize = 256;

/// Files, the numbers that are given out, and whether the cache ends.
pub(crate) struct Registry {
    pub(crate) files: Lock<Files>,
    /// Regions of anonymous memory.
    pub(crate) regions: Regions,
    /// Serial numbers of devices and files so far.
    pub(crate) serials: AtomicU64,
    pub(crate) writers: AtomicU32,
    /// No write is taken in any more; earlier ones are still written.
    pub(crate) closing: AtomicBool,
    pub(crate) stopping: AtomicBool,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            files: Lock::new(LockClass::Registry, Files::new()),
            regions: Regions::new(),
            serials: AtomicU64::new(0),
            writers: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }
}

/// The files of a cache, each at its number.
pub(crate) struct Files {
    places: Vec<Option<Arc<Mapping>>>,
    /// Numbers below the highest that no file has, the lowest first.
    free: BinaryHeap<Reverse<u32>>,
}

impl Files {
    const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: BinaryHeap::new(),
        }
    }

    /// The file of that number.
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<Mapping>> {
        self.places.get(id as usize)?.as_ref()
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.places.iter().flatten()
    }

    /// Takes a file in, by the lowest number that is free; `None`: `most` are there already.
    pub(crate) fn add(
        &mut self,
        most: u32,
        file: impl FnOnce(u32) -> Mapping,
    ) -> Option<Arc<Mapping>> {
        let id = match self.free.pop() {
            Some(Reverse(id)) => id,
            None => {
                let next = u32::try_from(self.places.len()).ok()?;
                if next >= most {
                    return None;
                }
                self.places.push(None);
                next
            }
        };
        let file = Arc::new(file(id));
        self.places[id as usize] = Some(Arc::clone(&file));
        Some(file)
    }

    /// True if that very file is at its number, and not another one by now.
    pub(crate) fn holds(&self, file: &Mapping) -> bool {
        let own = self.get(file.id);
        own.is_some_and(|own| core::ptr::eq(Arc::as_ptr(own), file))
    }

    /// Gives a file's number back; false: it had none any more.
    pub(crate) fn remove(&mut self, file: &Mapping) -> bool {
        if !self.holds(file) {
            return false;
        }
        self.places[file.id as usize] = None;
        self.free.push(Reverse(file.id));
        true
    }
}

//! Regions of anonymous memory, as the cache knows them: the table of each, and their numbers.
//!
//! A region's number has its top bit set, so that owners of frames tell regions from files.
//!
//! Invariants
//!   1. A region's number is given back when none of its pages is left.
//!   2. One region at a time is being emptied because memory ran out.

use core::ops::Range;
use std::sync::Arc;

use env::{Context, Interrupt, Lock, LockClass, LockGuard, TaskId};
use frames::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use frames::{Owner, Region};
use policy::reclaim::swap::walk::SwapWalk;
use policy::units::Pages;

use crate::memory::overhead::Overhead;

/// The bit that tells a region's number from a file's.
pub const ANON: u32 = 1 << 31;
/// Regions a cache has room for.
pub(crate) const REGIONS_MAX: usize = 1 << 16;

/// One region.
pub struct Anon {
    /// With the top bit set.
    pub(crate) id: u32,
    /// Its pages.
    pub pages: Region,
    /// Its number is another's by now: the task that remembers it looks again.
    ended: AtomicBool,
    /// The task that last allocated for this region. Memory returned on nobody's behalf is
    /// credited to it.
    taker: AtomicU32,
    /// It has given way to others.
    killed: AtomicBool,
    /// The walk over it that was read ahead.
    walk: Lock<SwapWalk>,
    /// Held by the task that gives frames to pages that have none: one at a time.
    filling: Lock<()>,
    /// Its page tables, where they take frames.
    tables: Lock<Vec<u64>>,
}

impl Anon {
    pub(crate) fn owner(&self, page: u32) -> Owner {
        Owner {
            file: self.id,
            index: page,
        }
    }

    /// The task that last took memory for it.
    pub(crate) fn taker(&self) -> TaskId {
        TaskId(self.taker.load(Ordering::Relaxed))
    }

    /// A task takes memory for the region.
    pub(crate) fn takes(&self, task: TaskId) {
        self.taker.store(task.0, Ordering::Relaxed);
    }

    /// It gives way to others: it is not touched any more.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// The walk over it that was read ahead.
    pub(crate) fn walk<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, SwapWalk> {
        self.walk.lock(context)
    }

    /// Pages have come: their tables with them.
    pub(crate) fn tables_come(
        &self,
        context: &impl Context,
        overhead: &dyn Overhead,
        pages: Range<u32>,
    ) {
        overhead.tables_come(&mut self.tables.lock(context), pages);
    }

    /// Pages were given back: the tables go that were for them alone.
    pub(crate) fn tables_go(
        &self,
        context: &impl Context,
        overhead: &dyn Overhead,
        pages: Range<u32>,
    ) {
        overhead.tables_go(&mut self.tables.lock(context), pages, self.pages.len());
    }

    /// Held by the task that gives frames to pages that have none.
    pub(crate) fn filling<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, ()> {
        self.filling.lock(context)
    }
}

/// All regions.
pub struct Regions {
    /// By their number without its top bit.
    table: Lock<Vec<Option<Arc<Anon>>>>,
    /// Regions without handles of which pages were busy, and for which there was no thread.
    remains: Lock<Vec<Arc<Anon>>>,
    /// Pages of all regions together.
    pages: AtomicU64,
    /// A region that gave way is being emptied.
    emptying: AtomicBool,
}

impl Regions {
    pub(crate) fn new() -> Self {
        Self {
            table: Lock::new(LockClass::Registry, Vec::new()),
            remains: Lock::new(LockClass::Leaf, Vec::new()),
            pages: AtomicU64::new(0),
            emptying: AtomicBool::new(false),
        }
    }

    /// The region of that number, top bit included.
    pub(crate) fn get(&self, context: &impl Context, id: u32) -> Option<Arc<Anon>> {
        let place = (id & !ANON) as usize;
        self.table.lock(context).get(place)?.clone()
    }

    /// All of them.
    pub fn all(&self, context: &impl Context) -> Vec<Arc<Anon>> {
        self.table.lock(context).iter().flatten().cloned().collect()
    }

    /// A new one over these pages, which were counted, for the task `taker`. `None`: there are too
    /// many.
    pub(crate) fn add(
        &self,
        context: &impl Context,
        pages: Region,
        taker: TaskId,
        walk: SwapWalk,
    ) -> Option<Arc<Anon>> {
        let mut regions = self.table.lock(context);
        let place = match regions.iter().position(Option::is_none) {
            Some(free) => free,
            None if regions.len() >= REGIONS_MAX => return None,
            None => {
                regions.push(None);
                regions.len() - 1
            }
        };
        let number = u32::try_from(place).expect("fewer than REGIONS_MAX");
        let anon = Arc::new(Anon {
            id: number | ANON,
            pages,
            ended: AtomicBool::new(false),
            taker: AtomicU32::new(taker.0),
            killed: AtomicBool::new(false),
            walk: Lock::new(LockClass::Leaf, walk),
            filling: Lock::new(LockClass::Leaf, ()),
            tables: Lock::new(LockClass::Leaf, Vec::new()),
        });
        regions[place] = Some(Arc::clone(&anon));
        Some(anon)
    }

    /// A region's last page is freed: its number is free.
    pub(crate) fn forget(&self, anon: &Anon) {
        let context = Interrupt::new();
        let mut regions = self.table.lock(&context);
        anon.ended.store(true, Ordering::Release);
        self.uncount(Pages(u64::from(anon.pages.len())));
        regions[(anon.id & !ANON) as usize] = None;
    }

    /// Pages of all regions together.
    pub(crate) fn pages(&self) -> Pages {
        Pages(self.pages.load(Ordering::Relaxed))
    }

    /// Counts the pages of another one, if all together are then no more than `most`.
    pub(crate) fn try_count(&self, pages: Pages, most: u64) -> bool {
        let with = |all: u64| all.checked_add(pages.0).filter(|all| *all <= most);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.pages.try_update(set, fetch, with).is_ok()
    }

    /// Pages that were counted are no more.
    pub(crate) fn uncount(&self, pages: Pages) {
        self.pages.fetch_sub(pages.0, Ordering::Relaxed);
    }

    /// A region without handles is left, as some of its pages are busy.
    pub(crate) fn leave(&self, context: &impl Context, anon: Arc<Anon>) {
        self.remains.lock(context).push(anon);
    }

    /// Takes those that were left.
    pub(crate) fn take_left(&self, context: &impl Context) -> Vec<Arc<Anon>> {
        core::mem::take(&mut *self.remains.lock(context))
    }

    /// Begins to empty a region that gives way; false: another is being emptied.
    pub(crate) fn try_begin_emptying(&self) -> bool {
        !self.emptying.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_emptying(&self) {
        self.emptying.store(false, Ordering::Release);
    }
}

/// Looks regions up and remembers the last one: neighbours on a list are mostly of one region.
#[derive(Default)]
pub struct Cursor {
    last: Option<Arc<Anon>>,
}

impl Cursor {
    /// The region of that number. Takes a lock of class `Registry` if it is another one than last
    /// time.
    pub fn region(
        &mut self,
        regions: &Regions,
        context: &impl Context,
        id: u32,
    ) -> Option<&Arc<Anon>> {
        let is_it = |anon: &Arc<Anon>| anon.id == id && !anon.ended.load(Ordering::Acquire);
        if !self.last.as_ref().is_some_and(is_it) {
            self.last = regions.get(context, id);
        }
        self.last.as_ref()
    }

    /// True if a page was used since the last look. The owner may be an old one: the frame may be a
    /// file's by now, and the region's number another, smaller region's.
    pub(crate) fn test_and_clear_young(
        &mut self,
        regions: &Regions,
        context: &impl Context,
        owner: Owner,
    ) -> bool {
        owner.file & ANON != 0
            && self
                .region(regions, context, owner.file)
                .filter(|anon| owner.index < anon.pages.len())
                .is_some_and(|anon| anon.pages.test_and_clear_young(owner.index))
    }
}

//! Pages in generations (`history::generations`): the uses of each, those taken off the oldest, the
//! places of new pages and of pages that stay.
//!
//! A kind has four lists, one for each place that a generation can have. A hit adds to its page's
//! uses and takes no lock. The numbers of a zone's generations are behind a lock that is taken
//! inside that of the lists. Which generation a page is in, its list says; a page that is isolated
//! is in none.
//!
//! A pass:
//!
//! ```text
//!   too few are old: a generation begins, over       (not at the gentlest priority)
//!   else, until as many were looked at as the priority says:
//!     64 of the oldest -> judged as any other: freed, sent to the swap file, or the youngest again
//!   nothing but dirty pages of files was met: the flushers are woken
//! ```
//!
//! Source: Linux 6.12.117 mm/vmscan.c, scan_folios(), sort_folio(), evict_folios(), inc_max_seq(),
//! try_to_shrink_lruvec(); include/linux/mm_inline.h, lru_gen_add_folio(). Deviations: a page that
//! could not go is not looked at a second time at once, unless its write has ended meanwhile; a
//! file's page that a page table brings in begins as if a call had, unless it was filled without a
//! read.

use env::{Context, Lock, LockClass, Task, Work};
use frames::sync::{AtomicU8, Ordering};
use frames::{Flags, FrameId, RegionEntry};
use history::generations::{self, Coming, Generations, Lens, MOST, Step, USES_MOST};
use mm::inside::{
    Batch, CLUSTER_FRAMES, CachedPages, Control, Inside, Lru, Order, Page, ZoneId, Zones,
};
use policy::reclaim::page::Tally;
use policy::reclaim::scan::{Kind, Priority, Sizes};
use policy::units::Pages;

/// Pages that are looked at for a batch at most (`MAX_LRU_BATCH`).
const LOOKED_MOST: u32 = 4096;

/// See the module.
pub(crate) struct Generational {
    /// By frame: uses by calls in its generation.
    uses: Box<[AtomicU8]>,
    zones: Box<[Lock<Generations>]>,
    /// Pages that are taken at a time.
    batch: u64,
    looked_most: u64,
}

/// Pages that were taken off an oldest generation.
struct Taken {
    kind: Kind,
    pages: Vec<Page>,
    /// Number of pages looked at for them; none: there will be no more for now.
    looked: Pages,
    /// Of these, one generation up.
    moved: u64,
}

impl Taken {
    fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    fn clusters(&self) -> impl Iterator<Item = Batch> {
        self.pages.chunks(CLUSTER_FRAMES).map(|pages| {
            let mut batch = Batch::default();
            pages.iter().for_each(|page| batch.push(*page));
            batch
        })
    }
}

fn list(kind: Kind, seq: u32) -> u8 {
    list_of_place(kind, Generations::place(seq))
}

fn list_of_place(kind: Kind, place: usize) -> u8 {
    u8::try_from(kind.index() * MOST as usize + place).expect("lists are few")
}

fn kind_of(flags: Flags) -> Kind {
    if flags.has(Flags::ANON) {
        Kind::Anon
    } else {
        Kind::File
    }
}

fn lens(lru: &Lru<'_>, zone: ZoneId) -> Lens {
    let len = |kind, place| lru.len(zone, list_of_place(kind, place));
    Kind::ALL.map(|kind| core::array::from_fn(|place| len(kind, place)))
}

impl Generational {
    /// Of `frames` frames in `zones` zones; the memory stands for one `stands_for` times as large.
    pub(crate) fn new(frames: u32, zones: usize, stands_for: u32) -> Self {
        let zone = |_| Lock::new(LockClass::Leaf, Generations::new(stands_for));
        Self {
            uses: (0..frames).map(|_| AtomicU8::new(0)).collect(),
            zones: (0..zones).map(zone).collect(),
            batch: generations::batch(stands_for),
            looked_most: u64::from(LOOKED_MOST / stands_for.max(1)).max(CLUSTER_FRAMES as u64),
        }
    }

    fn uses(&self, frame: FrameId) -> u8 {
        self.uses[frame.0 as usize].load(Ordering::Relaxed)
    }

    fn set(&self, frame: FrameId, uses: u8) {
        self.uses[frame.0 as usize].store(uses, Ordering::Relaxed);
    }

    /// Puts a page on the list that it comes to; what has brought it there is forgotten.
    fn put(
        &self,
        (context, lru): (&dyn Context, &mut Lru<'_>),
        pages: &CachedPages,
        frame: FrameId,
        (coming, uses): (Coming, u8),
    ) {
        let kind = kind_of(pages.table.flags(frame));
        let zone = lru.zone_of(frame);
        let seq = self.zones[zone.index()].lock(&context).of(kind, coming);
        let cleared = Flags::ACTIVE | Flags::REFERENCED | Flags::WORKINGSET;
        pages.table.update(frame, Flags::NONE, cleared);
        self.set(frame, uses);
        if coming == Coming::Written {
            lru.push_tail(list(kind, seq), frame);
        } else {
            lru.push_head(list(kind, seq), frame);
        }
    }

    /// Takes a batch off the oldest generation of a kind, of whose tiers `last` is the last that is
    /// not protected. Pages of protected tiers have been moved one generation up.
    fn take(
        &self,
        (lru, generations): (&mut Lru<'_>, &mut Generations),
        pages: &CachedPages,
        zone: ZoneId,
        (kind, last): (Kind, usize),
    ) -> Taken {
        let mut taken = Taken {
            kind,
            pages: Vec::new(),
            looked: Pages::ZERO,
            moved: 0,
        };
        let oldest = generations.oldest(kind);
        let [from, above] = [oldest, oldest + 1].map(|seq| list(kind, seq));
        let can_go = generations.can_go(kind);
        while can_go && taken.count() < self.batch && taken.count() + taken.moved < self.looked_most
        {
            let Some(frame) = lru.pop_tail(zone, from) else {
                break;
            };
            let (_, generation) = pages.table.look(frame);
            if generations.protects(kind, last, self.uses(frame)) {
                self.set(frame, 0);
                lru.push_tail(above, frame);
                taken.moved += 1;
            } else {
                taken.pages.push(Page { frame, generation });
            }
        }
        let looked = taken.count() + taken.moved;
        if taken.count() > 0 || looked >= self.looked_most {
            taken.looked = Pages(looked);
        }
        taken
    }

    /// A new generation begins. Where there are as many as there can be, the pages of the oldest
    /// one go one up before, unless they cannot go at all: those are the youngest then.
    fn age(
        &self,
        (lru, generations): (&mut Lru<'_>, &mut Generations),
        zone: ZoneId,
        may_swap: bool,
    ) {
        for kind in Kind::ALL {
            if !generations.has_most(kind) {
                continue;
            }
            let oldest = generations.oldest(kind);
            let moves = kind == Kind::File || may_swap;
            while moves && let Some(frame) = lru.pop_tail(zone, list(kind, oldest)) {
                self.set(frame, 0);
                lru.push_tail(list(kind, oldest + 1), frame);
            }
            generations.give_up(kind);
        }
        generations.begin();
    }

    /// Number of pages that a pass over the generations of a zone looks at, if it has looked at
    /// none yet. A generation begins where that is what it has to do.
    fn plan(
        &self,
        cache: Inside<'_>,
        task: &mut Task<'_>,
        zone: ZoneId,
        (may_swap, priority): (bool, Priority),
    ) -> Pages {
        let mut walks = may_swap && cache.options.reclaim.law.walks_tables;
        loop {
            let mut lru = cache.zones.lru(task);
            let mut generations = self.zones[zone.index()].lock(task);
            match generations.step(&lens(&lru, zone), may_swap, priority) {
                Step::Scan(pages) => return pages,
                Step::Age if !walks => {
                    self.age((&mut lru, &mut generations), zone, may_swap);
                    return Pages::ZERO;
                }
                Step::Age => {}
            }
            drop((generations, lru));
            self.walk(cache, task, zone);
            walks = false;
        }
    }

    /// Walks the page tables of all regions: pages that were used since the last look are the
    /// youngest.
    fn walk(&self, cache: Inside<'_>, task: &mut Task<'_>, zone: ZoneId) {
        let mut used = Vec::new();
        for anon in cache.regions.all(task) {
            let young =
                |page: &u32| anon.pages.is_mapped(*page) && anon.pages.test_and_clear_young(*page);
            let frame = |page| match anon.pages.get(page) {
                RegionEntry::Frame(frame) => Some(frame),
                RegionEntry::Empty | RegionEntry::Swapped(_) => None,
            };
            used.extend((0..anon.pages.len()).filter(young).filter_map(frame));
        }
        let layout = cache.zones.layout();
        used.retain(|frame| layout.of(*frame) == zone);
        let mut lru = cache.zones.lru(task);
        for frame in &used {
            if lru.remove(*frame) {
                self.put((&*task, &mut lru), cache.pages, *frame, (Coming::Used, 0));
            }
        }
        drop(lru);
        task.did(Work::Deactivate, used.len() as u64);
    }

    /// Takes a batch off an oldest generation. Generations that are empty then are given up.
    /// `swappiness`: 0 where no anonymous page can be evicted.
    fn take_oldest(
        &self,
        zones: &Zones,
        task: &Task<'_>,
        pages: &CachedPages,
        (zone, swappiness): (ZoneId, u8),
    ) -> Taken {
        let may_swap = swappiness > 0;
        let mut lru = zones.lru(task);
        let mut generations = self.zones[zone.index()].lock(task);
        let (kind, last) = generations.kind(swappiness);
        let mut take = |generations: &mut Generations, from| {
            self.take((&mut lru, generations), pages, zone, from)
        };
        let mut taken = take(&mut generations, (kind, last));
        if taken.looked.is_zero() && may_swap {
            let other = kind.other();
            let last = generations.last_that_goes(other);
            let moved = taken.moved;
            taken = take(&mut generations, (other, last));
            taken.moved += moved;
        }
        let gave_up = generations.give_up_empty(&lens(&lru, zone), may_swap);
        taken.looked += Pages(u64::from(gave_up));
        let first = if may_swap { Kind::Anon } else { Kind::File };
        if !generations.can_go(first) {
            taken.looked = Pages::ZERO;
        }
        zones[zone].note_isolated(taken.kind, taken.count());
        taken
    }

    /// A pass over the generations of a zone; answers how many pages were freed.
    ///
    /// # Source
    /// Linux 6.12 mm/vmscan.c, lru_gen_shrink_node(), try_to_shrink_lruvec(), should_abort_scan(),
    /// get_swappiness().
    pub(crate) fn pass(
        &self,
        task: &mut Task<'_>,
        cache: Inside<'_>,
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Pages {
        let mut reclaimed = Pages::ZERO;
        if !control.may_unmap || !control.may_write {
            return reclaimed;
        }
        let zone = control.zone;
        let reclaim = &cache.options.reclaim;
        let batch = Pages(self.batch);
        let enough = |reclaimed: Pages| {
            let full = cache.memory.marks_of(zone).high + batch;
            reclaimed >= control.target
                || control.who.background && cache.memory.spare_of(zone) >= full
        };
        let mut looked = Pages::ZERO;
        loop {
            let may_swap = control.may_swap && cache.can_swap() && cache.swap_free() >= batch;
            let swappiness = if may_swap { reclaim.swappiness } else { 0 };
            let how = (swappiness > 0, control.priority);
            let wanted = self.plan(cache, task, zone, how);
            if wanted.is_zero() {
                break;
            }
            let from = (zone, swappiness);
            let taken = self.take_oldest(cache.zones, task, cache.pages, from);
            task.did(Work::Deactivate, taken.moved);
            for cluster in taken.clusters() {
                reclaimed += cache.shrink(task, (taken.kind, &cluster), control, tally);
            }
            looked += taken.looked;
            let stops = taken.looked.is_zero() || looked >= wanted || enough(reclaimed);
            if stops || cache.is_stopping() {
                break;
            }
        }
        if !tally.unqueued_dirty.is_zero() && tally.unqueued_dirty == tally.file_taken {
            cache.wake_flushers(task);
        }
        reclaimed
    }
}

impl Order for Generational {
    fn note_use(&self, frame: FrameId) {
        let uses = self.uses(frame);
        if uses < USES_MOST {
            self.set(frame, uses + 1);
        }
    }

    fn bytes(&self) -> u64 {
        size_of_val(&*self.uses) as u64
    }

    fn begins_at(&self, inactive: Pages, target: Pages) -> Priority {
        generations::begins_at(inactive, target, self.batch)
    }

    fn sizes(&self, context: &dyn Context, lru: &Lru<'_>, zone: ZoneId) -> Sizes {
        let generations = self.zones[zone.index()].lock(&context);
        let lens = lens(lru, zone);
        let mut sizes = Sizes::default();
        for kind in Kind::ALL {
            for (place, pages) in lens[kind.index()].into_iter().enumerate() {
                let list = if generations.is_active(place) {
                    kind.active()
                } else {
                    kind.inactive()
                };
                sizes.0[list.index()] += pages;
            }
        }
        sizes
    }

    fn come(
        &self,
        context: &dyn Context,
        lru: &mut Lru<'_>,
        pages: &CachedPages,
        frames: &[FrameId],
    ) {
        for &frame in frames {
            let flags = pages.table.flags(frame);
            let coming = if flags.any(Flags::ANON | Flags::MAPPED) {
                Coming::Used
            } else {
                Coming::Fresh
            };
            let known = flags.has(Flags::WORKINGSET);
            let uses = if known { USES_MOST } else { 0 };
            self.put((context, lru), pages, frame, (coming, uses));
        }
    }

    fn put_back(
        &self,
        context: &dyn Context,
        lru: &mut Lru<'_>,
        pages: &CachedPages,
        frame: FrameId,
    ) {
        let flags = pages.table.flags(frame);
        let is_marked = flags.has(Flags::RECLAIM) && !flags.has(Flags::ACTIVE);
        let coming = match (is_marked, flags.any(Flags::DIRTY | Flags::WRITEBACK)) {
            (true, true) => Coming::Waits,
            (true, false) => {
                pages.table.update(frame, Flags::NONE, Flags::RECLAIM);
                Coming::Written
            }
            (false, _) => Coming::Used,
        };
        self.put((context, lru), pages, frame, (coming, 0));
    }

    fn rotate(
        &self,
        context: &dyn Context,
        lru: &mut Lru<'_>,
        pages: &CachedPages,
        frames: &[FrameId],
    ) -> u64 {
        let stays = Flags::DIRTY | Flags::WRITEBACK | Flags::BUSY;
        let mut rotated = 0;
        for &frame in frames {
            if !pages.table.flags(frame).any(stays) && lru.remove(frame) {
                self.put((context, lru), pages, frame, (Coming::Written, 0));
                rotated += 1;
            }
        }
        rotated
    }

    fn went(&self, context: &dyn Context, zone: ZoneId, page: (Kind, FrameId)) -> u32 {
        let (kind, frame) = page;
        let mut generations = self.zones[zone.index()].lock(&context);
        generations.went(kind, self.uses(frame))
    }

    fn refaulted(
        &self,
        context: &dyn Context,
        zone: ZoneId,
        (kind, shadow): (Kind, u32),
    ) -> Option<bool> {
        let mut generations = self.zones[zone.index()].lock(&context);
        generations.refaulted(kind, shadow, kind == Kind::Anon)
    }

    fn moved(
        &self,
        context: &dyn Context,
        zones: &Zones,
        pages: &CachedPages,
        (from, to): (FrameId, FrameId),
    ) {
        self.set(to, self.uses(from));
        // Another zone has other generations.
        let layout = zones.layout();
        if layout.of(from) != layout.of(to) {
            let mut lru = zones.lru(&context);
            if lru.remove(to) {
                self.come(context, &mut lru, pages, &[to]);
            }
        }
    }
}

//! Pages in generations (`policy::reclaim::generations`): how often each was used, what is taken
//! off the oldest, where what comes and what stays goes.
//!
//! A kind has four lists, one for each place that a generation can have. A hit adds to its page's
//! uses and takes no lock. The numbers of a zone's generations are behind a lock that is taken
//! inside that of the lists. Which generation a page is in, its list says; a page that is isolated
//! is in none.
//!
//! Source: Linux 6.12 mm/vmscan.c, scan_folios(), sort_folio(), evict_folios(), inc_max_seq();
//! include/linux/mm_inline.h, lru_gen_add_folio(). Deviations: a cluster is taken at a time, where
//! the kernel isolates 64 pages; a page that could not go is not looked at a second time at once,
//! unless its write has ended meanwhile; a file's page that a page table brings in begins as if a
//! call had, unless it was filled without a read.

use env::{Context, Lock, LockClass};
use frames::sync::{AtomicU8, Ordering};
use frames::{Flags, FrameId};
use policy::reclaim::generations::{Coming, Generations, Lens, MOST, Step, USES_MOST};
use policy::reclaim::scan::{Kind, Priority, Sizes};
use policy::units::Pages;

use super::isolate::{Batch, CLUSTER_FRAMES, Page};
use super::{Lru, ZoneId, Zones};
use crate::pages::CachedPages;

/// Pages that are looked at for a cluster at most (`MAX_LRU_BATCH`).
const LOOKED_MOST: u32 = 4096;

/// See the module.
pub(crate) struct Generational {
    /// By frame: uses by calls in its generation.
    uses: Box<[AtomicU8]>,
    zones: Box<[Lock<Generations>]>,
    looked_most: u64,
}

/// Pages that were taken off an oldest generation.
pub(crate) struct Taken {
    pub(crate) kind: Kind,
    pub(crate) batch: Batch,
    /// Number of pages looked at for them; none: there will be no more for now.
    pub(crate) looked: Pages,
    /// Of these, one generation up.
    pub(crate) moved: u64,
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
    pub(super) fn new(frames: u32, zones: usize, stands_for: u32) -> Self {
        let zone = |_| Lock::new(LockClass::Leaf, Generations::new(stands_for));
        Self {
            uses: (0..frames).map(|_| AtomicU8::new(0)).collect(),
            zones: (0..zones).map(zone).collect(),
            looked_most: u64::from(LOOKED_MOST / stands_for.max(1)).max(CLUSTER_FRAMES as u64),
        }
    }

    /// A call uses a page.
    pub(crate) fn note_use(&self, frame: FrameId) {
        let uses = self.uses(frame);
        if uses < USES_MOST {
            self.set(frame, uses + 1);
        }
    }

    fn uses(&self, frame: FrameId) -> u8 {
        self.uses[frame.0 as usize].load(Ordering::Relaxed)
    }

    fn set(&self, frame: FrameId, uses: u8) {
        self.uses[frame.0 as usize].store(uses, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.uses) as u64
    }

    /// The lists of a zone as inactive and active ones.
    pub(super) fn sizes(&self, context: &impl Context, lru: &Lru<'_>, zone: ZoneId) -> Sizes {
        let generations = self.zones[zone.index()].lock(context);
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

    /// Puts a page on the list that it comes to; what has brought it there is forgotten.
    fn put(
        &self,
        (context, lru): (&impl Context, &mut Lru<'_>),
        pages: &CachedPages,
        frame: FrameId,
        (coming, uses): (Coming, u8),
    ) {
        let kind = kind_of(pages.table.flags(frame));
        let zone = lru.layout.of(frame);
        let seq = self.zones[zone.index()].lock(context).of(kind, coming);
        let cleared = Flags::ACTIVE | Flags::REFERENCED | Flags::WORKINGSET;
        pages.table.update(frame, Flags::NONE, cleared);
        self.set(frame, uses);
        if coming == Coming::Written {
            lru.push_tail(list(kind, seq), frame);
        } else {
            lru.push_head(list(kind, seq), frame);
        }
    }

    /// Pages that are in memory from now on.
    pub(super) fn come(
        &self,
        context: &impl Context,
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

    /// A page that was isolated and has stayed.
    pub(super) fn put_back(
        &self,
        context: &impl Context,
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

    /// Pages whose writes have ended; answers how many go next.
    pub(super) fn rotate(
        &self,
        context: &impl Context,
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

    /// Of a page that is evicted: its shadow.
    pub(super) fn went(&self, context: &impl Context, zone: ZoneId, page: (Kind, FrameId)) -> u32 {
        let (kind, frame) = page;
        let mut generations = self.zones[zone.index()].lock(context);
        generations.went(kind, self.uses(frame))
    }

    /// See `Generations::refaulted`.
    pub(super) fn refaulted(
        &self,
        context: &impl Context,
        zone: ZoneId,
        (kind, shadow): (Kind, u32),
    ) -> Option<bool> {
        let mut generations = self.zones[zone.index()].lock(context);
        generations.refaulted(kind, shadow, kind == Kind::Anon)
    }

    /// Takes up to `count` pages off the oldest generation of a kind, of whose tiers `last` is the
    /// last that is not protected. Those that are protected, or cannot go as they are, have been
    /// moved one generation up.
    fn take(
        &self,
        (lru, generations): (&mut Lru<'_>, &mut Generations),
        pages: &CachedPages,
        zone: ZoneId,
        (kind, last): (Kind, usize),
        count: u64,
    ) -> Taken {
        let (mut batch, mut moved) = (Batch::default(), 0);
        let oldest = generations.oldest(kind);
        let [from, above] = [oldest, oldest + 1].map(|seq| list(kind, seq));
        let can_go = generations.can_go(kind);
        while can_go && batch.len() < count && batch.len() + moved < self.looked_most {
            let Some(frame) = lru.pop_tail(zone, from) else {
                break;
            };
            let (flags, generation) = pages.table.look(frame);
            let is_dirty = flags.has(Flags::DIRTY) && kind == Kind::File;
            let is_written = flags.has(Flags::WRITEBACK);
            if generations.protects(kind, last, self.uses(frame)) {
                self.set(frame, 0);
                lru.push_tail(above, frame);
                moved += 1;
            } else if is_dirty || is_written || flags.has(Flags::BUSY) {
                self.set(frame, 0);
                if is_dirty || is_written {
                    pages.table.update(frame, Flags::RECLAIM, Flags::NONE);
                }
                lru.push_head(above, frame);
                moved += 1;
            } else {
                batch.push(Page { frame, generation });
            }
        }
        let looked = batch.len() + moved;
        let none = batch.len() == 0 && looked < self.looked_most;
        Taken {
            kind,
            looked: Pages(if none { 0 } else { looked }),
            moved,
            batch,
        }
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
}

impl Zones {
    /// The generations, if pages are in any.
    #[inline]
    pub(crate) fn generational(&self) -> Option<&Generational> {
        self.generational.as_ref()
    }

    /// Number of pages that a pass over the generations of a zone looks at, if it has looked at
    /// none yet. A generation begins where that is what it has to do.
    pub(crate) fn plan(
        &self,
        generational: &Generational,
        context: &impl Context,
        zone: ZoneId,
        (may_swap, priority): (bool, Priority),
    ) -> Pages {
        let mut lru = self.lru(context);
        let mut generations = generational.zones[zone.index()].lock(context);
        match generations.step(&lens(&lru, zone), may_swap, priority) {
            Step::Scan(pages) => pages,
            Step::Age => {
                generational.age((&mut lru, &mut generations), zone, may_swap);
                Pages::ZERO
            }
        }
    }

    /// Takes up to `count` pages off an oldest generation. Generations that are empty then are
    /// given up. `swappiness`: 0 where no anonymous page can be evicted.
    pub(crate) fn take_oldest(
        &self,
        generational: &Generational,
        context: &impl Context,
        pages: &CachedPages,
        (zone, swappiness): (ZoneId, u8),
        count: Pages,
    ) -> Taken {
        let may_swap = swappiness > 0;
        let mut lru = self.lru(context);
        let mut generations = generational.zones[zone.index()].lock(context);
        let (kind, last) = generations.kind(swappiness);
        let mut take = |generations: &mut Generations, from| {
            generational.take((&mut lru, generations), pages, zone, from, count.0)
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
        self[zone].note_isolated(taken.kind, taken.batch.len());
        taken
    }

    /// A page has gone to another frame, and stands there where it stood on a list.
    pub(crate) fn moved(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        (from, to): (FrameId, FrameId),
    ) {
        if let Some(ruled) = &self.ruled {
            ruled.moved(from, to);
        }
        if let Some(generational) = &self.generational {
            generational.set(to, generational.uses(from));
            // Another zone has other generations.
            if self.layout.of(from) != self.layout.of(to) {
                let mut lru = self.lru(context);
                if lru.remove(to) {
                    generational.come(context, &mut lru, pages, &[to]);
                }
            }
        }
    }
}

//! Taking pages off a list to look at them, and putting back those that stay.
//!
//! Isolation needs no right to a page but the hold of the LRU lock: an isolated page may be read,
//! written and given back meanwhile. Reclaim looks at it again, by its generation, when it acts on
//! it.
//!
//! Source: mechanisms 2.4; Linux v6.12 mm/vmscan.c, isolate_lru_folios(), move_folios_to_lru().

use env::Context;
use frames::{Busy, Flags, FrameId, Generation};
use policy::reclaim::scan::{CLUSTER, Kind, Lru};

use crate::lists::{ACTIVE_ANON, ASIDE, INACTIVE_ANON, ZoneId, Zones, inactive_of, list_of};
use crate::pages::CachedPages;

/// Most pages of a turn.
pub const CLUSTER_FRAMES: usize = 32;
const _: () = assert!(CLUSTER_FRAMES as u64 == CLUSTER.0);

/// A page that is off its list.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its frame.
    pub frame: FrameId,
    /// Tells it from a later page in that frame.
    pub generation: Generation,
}

/// The pages of one turn.
#[derive(Debug)]
pub struct Batch {
    pages: [Page; CLUSTER_FRAMES],
    count: usize,
}

impl Default for Batch {
    fn default() -> Self {
        let none = Page {
            frame: FrameId(0),
            generation: Generation::default(),
        };
        Self {
            pages: [none; CLUSTER_FRAMES],
            count: 0,
        }
    }
}

impl Batch {
    /// One more.
    pub fn push(&mut self, page: Page) {
        self.pages[self.count] = page;
        self.count += 1;
    }

    /// All of them.
    pub fn pages(&self) -> &[Page] {
        &self.pages[..self.count]
    }

    pub(crate) fn len(&self) -> u64 {
        self.count as u64
    }
}

impl Zones {
    /// Takes up to `count` pages from the old end of a list of a zone.
    ///
    /// A page of an inactive list that was accessed twice stands there only because a hit takes no
    /// lock: it goes to the active list now and was not looked at. Answers how many did.
    pub(crate) fn isolate(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        zone: ZoneId,
        list: Lru,
        count: u64,
    ) -> (Batch, u64) {
        if let Some(ruled) = self.ruled().filter(|_| list.kind() == Kind::File) {
            return self.isolate_by(ruled, context, pages, zone, count);
        }
        let mut batch = Batch::default();
        if self.order().is_some() {
            // They are taken off their generations alone (`take_oldest`).
            return (batch, 0);
        }
        let number = list.number();
        let mut moved = 0;
        {
            let mut lru = self.lru(context);
            while batch.len() < count && moved < CLUSTER.0 {
                let Some(frame) = lru.pop_tail(zone, number) else {
                    break;
                };
                let (flags, generation) = pages.table.look(frame);
                if flags.has(Flags::ACTIVE) && !list.is_active() {
                    lru.push_head(list_of(flags), frame);
                    moved += 1;
                    continue;
                }
                batch.push(Page { frame, generation });
            }
            self[zone].note_isolated(list.kind(), batch.len());
        }
        (batch, moved)
    }

    /// Puts pages back at the heads of the lists that their flags say; those that are gone are left
    /// out. Answers how many came back.
    ///
    /// With `aside`, a page that is dirty or under writeback goes where no pass scans until it is
    /// clean; if its write has just ended, to the old end.
    pub(crate) fn put_back(
        &self,
        context: &impl Context,
        cached: &CachedPages,
        pages: &[Page],
        aside: bool,
    ) -> u64 {
        let mut back = 0;
        let mut lru = self.lru(context);
        for page in pages {
            let (flags, generation) = cached.table.look(page.frame);
            // A task that takes a page out of the cache does so under this lock too.
            if generation != page.generation || !flags.has(Flags::CACHED) {
                continue;
            }
            back += 1;
            if let Some(order) = self.order() {
                order.put_back(context, &mut lru, cached, page.frame);
                continue;
            }
            let waits = flags.any(Flags::DIRTY | Flags::WRITEBACK);
            let by_count = self.sets_aside();
            if aside && by_count && waits_for_write(flags) {
                self[self.layout.of(page.frame)].count_immediate(1);
                lru.push_head(ASIDE, page.frame);
            } else if by_count {
                lru.push_head(list_of(flags), page.frame);
            } else if aside && waits && !flags.has(Flags::ACTIVE) {
                lru.push_head(ASIDE, page.frame);
            } else if aside && !waits && flags.has(Flags::RECLAIM) {
                cached.table.update(page.frame, Flags::NONE, Flags::RECLAIM);
                lru.push_tail(list_of(flags), page.frame);
            } else {
                lru.push_head(list_of(flags), page.frame);
            }
        }
        back
    }

    /// Fresh pages of regions, complete, onto their list. A task that finds one from now on and
    /// takes it out of the cache waits for this lock. `frames`: theirs, the last page's as the
    /// newest.
    pub(crate) fn add_fresh(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        frames: &[FrameId],
        busies: impl Iterator<Item = Busy>,
    ) {
        let (list, flags) = if self.fresh_is_active {
            (ACTIVE_ANON, Flags::ACTIVE)
        } else {
            (INACTIVE_ANON, Flags::NONE)
        };
        let mut lru = self.lru(context);
        for busy in busies {
            pages
                .table
                .show(busy, Flags::UPTODATE | Flags::DIRTY | flags);
        }
        match self.order() {
            Some(order) => order.come(context, &mut lru, pages, frames),
            None => lru.push_heads(list, frames),
        }
    }

    /// A page goes to the active list at once, and counts as not accessed since then. Answers
    /// whether it was on the inactive one; isolated ones go where their flags say when they are put
    /// back.
    pub(crate) fn activate(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        frame: FrameId,
    ) -> bool {
        let mut lru = self.lru(context);
        let flags = pages.table.flags(frame);
        if lru.list_of(frame) != Some(inactive_of(flags)) {
            return false;
        }
        pages.table.update(frame, Flags::ACTIVE, Flags::REFERENCED);
        lru.remove(frame);
        lru.push_head(list_of(flags | Flags::ACTIVE), frame);
        true
    }

    /// New pages onto the lists that their flags say.
    pub(crate) fn add(&self, context: &impl Context, pages: &CachedPages, frames: &[FrameId]) {
        let mut lru = self.lru(context);
        if let Some(order) = self.order() {
            return order.come(context, &mut lru, pages, frames);
        }
        for frame in frames {
            lru.push_head(list_of(pages.table.flags(*frame)), *frame);
        }
    }
}

/// True if a page goes where no pass scans, by patch 11 of paper p4.
fn waits_for_write(flags: Flags) -> bool {
    flags.has(Flags::RECLAIM | Flags::WRITEBACK) && !flags.any(Flags::ANON | Flags::ACTIVE)
}

/// The number of a list among `frames::Lists`.
pub(crate) trait Number {
    fn number(self) -> u8;
}

impl Number for Lru {
    fn number(self) -> u8 {
        self as u8
    }
}

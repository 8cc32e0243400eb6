//! Free memory that is kept apart by mobility: from whose lists a block comes where its own have
//! none, and what becomes of the pageblock that it lies in (`policy::place::mobility`); and by how
//! much a zone's marks stand higher for it (`policy::reclaim::boost`).
//!
//! Invariant: `Memory::raised` of a zone is the boost that `Free` has of it; it changes under the
//! lock.
//!
//! Source: mechanisms 1.4, 1.8; Linux 5.0 mm/page_alloc.c, __rmqueue_fallback(),
//! steal_suitable_fallback(), move_freepages_block(), boost_watermark(); Linux 6.12 __rmqueue(),
//! rmqueue_bulk(). Deviation: frames that a CPU has freed of late are on the free lists at once,
//! unless CPUs have lists (`cpu_lists`).

use core::sync::atomic::Ordering;

use env::Context;
use frames::{FrameId, Group};
use policy::place::mobility::{
    Block, Claimed, Fallback, FallbackStep, Found, FreeOrders, Mobility, Request,
};
use policy::reclaim::boost::{BoostRule, BoostZone, Event};
use policy::units::Pages;
use policy::watermark::Watermarks;

use super::Memory;
use super::free::{Free, Pick};
use crate::lists::ZoneId;
use crate::options::Apart;
use crate::vmstat::get;

/// A pageblock came to hold two mobilities, or holds more of the second.
#[derive(Clone, Copy, Debug)]
pub struct Mixed {
    /// The event by which the law may boost.
    pub(crate) event: Event,
    /// Order of the block that was taken from.
    pub(crate) order: u8,
    /// Its mobility before, and that of the request it served.
    pub(crate) from: Mobility,
    pub(crate) to: Mobility,
    /// Frames that came to the request's lists, or to the request.
    pub(crate) pages: Pages,
    /// The pageblock is the request's from now on.
    pub(crate) tagged: bool,
    /// The zone's marks were raised, if only up to the cap.
    pub(crate) boosted: bool,
}

/// The number of a mobility's lists there: all pageblocks begin as those of pages.
pub(super) const fn number(mobility: Mobility) -> u8 {
    match mobility {
        Mobility::Movable => 0,
        Mobility::Unmovable => 1,
        Mobility::Reclaimable => 2,
    }
}

pub(super) fn mobility(number: u8) -> Mobility {
    let known = Mobility::ALL
        .into_iter()
        .find(|known| self::number(*known) == number);
    known.expect("a pageblock has a mobility")
}

/// The lists of a zone and a mobility.
pub(super) fn group(zone: ZoneId, mobility: Mobility) -> Group {
    Group {
        zone: zone.0,
        mobility: number(mobility),
    }
}

impl Free {
    /// Takes up to `want` frames for the list of a CPU, in blocks as picked: its own, then those of
    /// other mobilities, unless memory of the system comes first.
    pub(super) fn fill(
        &mut self,
        apart: Option<Apart>,
        (pick, want): (Pick, u32),
        out: &mut Vec<FrameId>,
        is_movable: impl Fn(FrameId) -> bool,
        mixed: &mut Vec<Mixed>,
    ) {
        let mut left = want - self.take(pick, want, out);
        let Some(apart) = apart.filter(|_| self.absent.is_none()) else {
            return;
        };
        let mut claims = true;
        while left > 0 {
            match self.take_of_others(apart, pick, out, &is_movable, mixed, &mut claims) {
                0 => break,
                got => left -= got,
            }
            left -= self.take(pick, left, out);
        }
    }

    /// Serves one block from the lists of other mobilities, as those of its own have none; appends
    /// its frames. Answers how many, and appends the event that it was to `mixed`. `claims`: no
    /// claim has failed since the lock was taken; after one none is tried again.
    pub(super) fn take_of_others(
        &mut self,
        apart: Apart,
        pick: Pick,
        out: &mut Vec<FrameId>,
        is_movable: impl Fn(FrameId) -> bool,
        mixed: &mut Vec<Mixed>,
        claims: &mut bool,
    ) -> u32 {
        let request = Request {
            mobility: pick.mobility,
            order: pick.order,
            keeps_apart: false,
        };
        let own = group(pick.zone, pick.mobility);
        let mut fallback = Fallback::begin(apart.rule, request, apart.pageblock_order);
        if !*claims {
            fallback = fallback.without_claims();
        }
        loop {
            let step = fallback.step(self.orders(pick.zone));
            let mut note = |block: Block, pages: u32, tagged| {
                if let Some(event) = step.event() {
                    mixed.push(Mixed {
                        event,
                        order: block.order,
                        from: block.from,
                        to: pick.mobility,
                        pages: Pages(u64::from(pages)),
                        tagged,
                        boosted: false,
                    });
                }
            };
            match step {
                FallbackStep::Retag(block) => {
                    let from = group(pick.zone, block.from);
                    let first = self.lists.try_take(from, block.order);
                    let first = first.expect("the list had a block");
                    let size = 1 << block.order;
                    for at in (first.0..first.0 + size).step_by(1 << apart.pageblock_order) {
                        self.lists.tag(FrameId(at), own.mobility);
                    }
                    self.lists.put(first, block.order);
                }
                FallbackStep::Claim(block) => {
                    let first = self.first_of(pick.zone, block);
                    let found = self.found(apart, first, &is_movable);
                    match fallback.looked(&found) {
                        Claimed::Left => {
                            note(block, 0, false);
                            continue;
                        }
                        claimed => {
                            let moved = self.lists.move_free_of_block(first, own.mobility);
                            let tagged = claimed == Claimed::Tagged;
                            if tagged {
                                self.lists.tag(first, own.mobility);
                            }
                            note(block, moved, tagged);
                        }
                    }
                }
                FallbackStep::Move(block) => {
                    let first = self.first_of(pick.zone, block);
                    self.lists.move_block(first, own.mobility);
                    note(block, 1 << block.order, false);
                }
                FallbackStep::Take(block) => {
                    *claims = false;
                    note(block, 1 << pick.order, false);
                    let from = group(pick.zone, block.from);
                    let first = self.lists.try_take_of(from, block.order, pick.order);
                    let FrameId(first) = first.expect("the list had a block");
                    out.extend((first..first + (1 << pick.order)).map(FrameId));
                    return 1 << pick.order;
                }
                FallbackStep::None => return 0,
            }
            return self.take_block(own, pick.order, out);
        }
    }

    /// Takes one block of a group, if it has one; answers how many frames.
    pub(super) fn take_block(&mut self, group: Group, order: u8, out: &mut Vec<FrameId>) -> u32 {
        let Some(FrameId(first)) = self.lists.try_take(group, order) else {
            return 0;
        };
        let size = 1 << order;
        out.extend((first..first + size).map(FrameId));
        size
    }

    fn orders(&self, zone: ZoneId) -> FreeOrders {
        let blocks = |mobility| self.lists.blocks(group(zone, mobility));
        let mut of = [[0; 11]; 3];
        for mobility in Mobility::ALL {
            of[mobility.index()] = blocks(mobility);
        }
        FreeOrders::of_blocks(of)
    }

    fn first_of(&self, zone: ZoneId, block: Block) -> FrameId {
        let first = self.lists.first_block(group(zone, block.from), block.order);
        first.expect("the list had a block")
    }

    /// The content of the pageblock of a frame.
    fn found(&self, apart: Apart, frame: FrameId, is_movable: impl Fn(FrameId) -> bool) -> Found {
        let first = frame.0 >> apart.pageblock_order << apart.pageblock_order;
        let frames = (first..first + (1 << apart.pageblock_order)).map(FrameId);
        let movable = frames.filter(|frame| is_movable(*frame)).count();
        Found {
            tag: mobility(self.lists.home(frame).mobility),
            free: Pages(u64::from(self.lists.free_in_block(frame))),
            movable: Pages(movable as u64),
        }
    }
}

impl Memory {
    /// The rule by which a zone is boosted.
    pub(crate) fn boost_rule(&self) -> &BoostRule {
        &self.boost
    }

    /// Pages by which the marks of a zone stand higher.
    pub fn boost_of(&self, zone: ZoneId) -> Pages {
        Pages(get(&self.raised[zone.index()]))
    }

    /// A zone's part of the marks, as they are compared with.
    pub fn marks_of(&self, zone: ZoneId) -> Watermarks {
        self.zone_marks[zone.index()]
            .watermarks
            .raised_by(self.boost_of(zone))
    }

    /// MIN of all zones, as it is compared with.
    pub(crate) fn min(&self) -> Pages {
        let boosts = self.layout.zones().map(|zone| self.boost_of(zone).0).sum();
        self.marks.min + Pages(boosts)
    }

    /// A balance of a zone has ended at whose beginning its boost was `noted`.
    pub fn retire_boost(&self, context: &impl Context, zone: ZoneId, noted: Pages) {
        let mut free = self.lists.lock(context);
        free.boosts[zone.index()].retire(noted);
        self.publish_boost(&free, zone);
    }

    /// Pageblocks were mixed; says of each whether it was boosted for.
    pub(super) fn boost_for(&self, free: &mut Free, pick: Pick, mixed: &mut [Mixed]) {
        let zone = pick.zone;
        let size = BoostZone {
            pages: self.layout.zone(zone).pages,
            high: self.zone_marks[zone.index()].watermarks.high,
            pageblock: Pages(1 << self.pageblock_order()),
        };
        let boost = &mut free.boosts[zone.index()];
        for mixed in mixed {
            mixed.boosted = boost.on_event(&self.boost, size, mixed.event, pick.wakes);
        }
        self.publish_boost(free, zone);
    }

    fn publish_boost(&self, free: &Free, zone: ZoneId) {
        let pages = free.boosts[zone.index()].pages();
        self.raised[zone.index()].store(pages.0, Ordering::Relaxed);
    }
}

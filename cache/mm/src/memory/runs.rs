//! Frames that stand together, as one: taken from what is free, and given back whole.

use core::ops::Range;

use env::{Context, Task};
use frames::{FrameId, Group};
use policy::place::mobility::Mobility;
use policy::units::Pages;

use super::free::{Free, Pick};
use super::{Memory, apart};
use crate::Error;
use crate::lists::ZoneId;
use crate::memory::chunks::Taken;

/// Free pages of a zone, and its free blocks by order.
pub type Standing = (Pages, [u32; 11]);

impl Memory {
    /// A zone's free pages, and its free blocks by order.
    pub fn standing(&self, task: &Task<'_>, zone: ZoneId) -> Standing {
        self.standing_of(&self.lists.lock(task), zone)
    }

    /// The same, and the blocks of it that are kept for what can be moved.
    pub fn standing_and_movable(&self, task: &Task<'_>, zone: ZoneId) -> (Standing, [u32; 11]) {
        let free = self.lists.lock(task);
        let group = match self.apart {
            Some(_) => apart::group(zone, Mobility::Movable),
            None => Group::of_zone(zone.0),
        };
        (self.standing_of(&free, zone), free.lists.blocks(group))
    }

    /// Free blocks that begin among frames, by their first frame and their order; and whether the
    /// pageblock of the first is one of what can be moved.
    pub fn free_blocks(&self, task: &Task<'_>, frames: Range<u32>, out: &mut Vec<(u32, u8)>) {
        let free = self.lists.lock(task);
        let mut at = frames.start;
        out.clear();
        while at < frames.end {
            match free.lists.block_at(FrameId(at)) {
                Some(order) => {
                    out.push((at, order));
                    at += 1 << order;
                }
                None => at += 1,
            }
        }
    }

    /// True if the pageblock of a frame is one of pages that can be moved.
    pub fn is_movable_block(&self, task: &Task<'_>, frame: u32) -> bool {
        self.apart.is_none()
            || self.lists.lock(task).lists.home(FrameId(frame)).mobility
                == apart::number(Mobility::Movable)
    }

    /// Takes free frames of a pageblock, to move pages to. The pageblock is for what can be moved,
    /// or begins with a free block of its size; frames are taken as far down as `may` says, which
    /// is told the order of each block. Answers how many.
    pub fn take_targets(
        &self,
        task: &Task<'_>,
        block: Range<u32>,
        out: &mut Vec<FrameId>,
        may: impl Fn(u8, Pages) -> bool,
    ) -> u32 {
        let first = FrameId(block.start);
        let zone = self.layout.of(first);
        let mut free = self.lists.lock(task);
        let lists = &mut free.lists;
        let movable =
            self.apart.is_none() || lists.home(first).mobility == apart::number(Mobility::Movable);
        let whole = |order: u8| order >= self.pageblock_order();
        if !movable && !lists.block_at(first).is_some_and(whole) {
            return 0;
        }
        let before = Pages(u64::from(self.free_of(zone)));
        let taken = core::cell::Cell::new(0_u64);
        let may = |order| {
            let may = may(order, before.saturating_sub(Pages(taken.get())));
            taken.set(taken.get() + (u64::from(may) << order));
            may
        };
        let count = lists.take_blocks_in(block, may, out);
        self.now_taken(zone, count);
        count
    }

    fn standing_of(&self, free: &Free, zone: ZoneId) -> Standing {
        let pages = Pages(u64::from(self.free_of(zone)));
        (pages, free.lists.blocks_of(zone.0))
    }

    /// Runs of an order that stand in free blocks, of all zones.
    pub(crate) fn free_runs(&self, context: &impl Context, order: u8) -> u64 {
        let free = self.lists.lock(context);
        let runs_of = |zone: ZoneId| {
            let blocks = free.lists.blocks_of(zone.0);
            let orders = blocks.into_iter().enumerate().skip(usize::from(order));
            orders
                .map(|(of, blocks)| u64::from(blocks) << (of - usize::from(order)))
                .sum::<u64>()
        };
        self.layout.zones().map(runs_of).sum()
    }

    /// Takes a run of 2^`order` frames of a zone, if there is one and `may` says so of what is
    /// free; appends its frames.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn take_run(
        &self,
        task: &Task<'_>,
        zone: ZoneId,
        order: u8,
        out: &mut Vec<FrameId>,
        may: impl Fn(Standing) -> bool,
        is_movable: impl Fn(FrameId) -> bool,
    ) -> Result<Taken, Error> {
        let pick = Pick {
            zone,
            mobility: Mobility::Movable,
            frames: 1 << order,
            order,
            wakes: false,
        };
        let mut taken = Taken::default();
        loop {
            let mut free = self.lists.lock(task);
            if !may(self.standing_of(&free, zone)) {
                return Ok(taken);
            }
            let mut got = free.take(pick, pick.frames, out);
            // A chunk without memory stands together as a whole.
            if got == 0
                && task.may_block()
                && let Some(first) = self.take_absent(&mut free, Some(zone))
            {
                drop(free);
                self.populate_or_do_without(task, first)?;
                continue;
            }
            if got == 0
                && let Some(apart) = self.apart
            {
                let mixed = &mut taken.mixed;
                got = free.take_of_others(apart, pick, out, &is_movable, mixed, &mut true);
                self.boost_for(&mut free, pick, &mut taken.mixed);
            }
            self.now_taken(zone, got);
            taken.frames = got;
            taken.holds = u32::from(got > 0);
            return Ok(taken);
        }
    }
}

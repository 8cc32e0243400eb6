//! Buddy free lists for orders 0..=10, by zone and mobility.
//!
//! A free block of order k is 2^k frames at a multiple of 2^k; its buddy is the block that differs
//! in bit k of the number. Two free buddies of one pageblock never stand beside each other: they
//! are one block of order k + 1. Every frame has a link and a mark; both mean something at the
//! first frame of a free block only:
//!
//! ```text
//!   frame   0   1   2   3   4   5   6   7
//!   order   1   -   -   0   2   -   -   -        "-": not the first frame of a free block
//!          [free ]  no free [    free     ]      frame 2 is in use (or was never added)
//! ```
//!
//! Vocabulary: a *pageblock* is a run of frames that is kept together (512, as large as a huge
//! page). Each is of one *zone*, for good, and is tagged with a *mobility*, which may change: what
//! is given back goes to the lists of its tag. The lists of one zone and mobility are a *group*. A
//! free block that was taken from another mobility's lists (`move_block`) may stand in another
//! group than its pageblock's tag says until it is given back.
//!
//! Invariants
//!   1. `marks[f]` is order and group exactly if a free block starts at f, and then f is on that
//!      list.
//!   2. `nonempty` of a group has bit k exactly if its list k is not empty.
//!   3. `free` of a group is the number of frames in all its blocks.
//!   4. A block larger than a pageblock is of one group.
//!
//! Concurrency: plain data behind one lock of `mm`; so a batch is a few list steps, whatever its
//! length.
//!
//! Source: mechanisms 1.8; Linux v6.12 mm/page_alloc.c, __free_one_page(), __rmqueue_smallest(),
//! for the scheme (Knowlton 1965). Deviations: links are numbers; a batch takes runs instead of
//! single pages; blocks of two pageblocks merge only within a group.

use crate::FrameId;
use crate::zeroed;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// Free frames of the arena. Plain data behind one lock of `mm`.
pub struct FreeLists {
    links: Box<[Link]>,
    /// By frame: the order of the free block that starts there, or `NO_BLOCK`.
    marks: Box<[u8]>,
    blocks: Pageblocks,
    /// By zone, then mobility.
    groups: Box<[Lists]>,
    /// Where `put_batch` sorts, so that giving memory back needs none.
    scratch: Box<[Run]>,
}

/// The lists of one zone and mobility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Below the number of zones.
    pub zone: u8,
    /// Below the number of mobilities.
    pub mobility: u8,
}

impl Group {
    /// The only one where frames are not told apart.
    pub const FIRST: Self = Self::of_zone(0);

    /// A zone where mobilities are not told apart.
    #[must_use]
    pub const fn of_zone(zone: u8) -> Self {
        Self { zone, mobility: 0 }
    }
}

/// Which pageblock is of which zone and mobility.
#[derive(Clone, Debug)]
pub struct Pageblocks {
    order: u8,
    /// Free blocks are merged up to this order: two pageblocks where they are told apart.
    largest: u8,
    mobilities: u8,
    zones: u8,
    /// By pageblock, the number of the group to which its frames are given back.
    home: Box<[u8]>,
}

impl Pageblocks {
    /// Frames that are not told apart, as pageblocks of 512.
    #[must_use]
    pub fn plain(frames: u32) -> Self {
        Self::new(frames, 9, 1, |_| 0)
    }

    /// Pageblocks of 2^`order` frames; `zone_of` says of the first frame of each which zone it is
    /// of. All are tagged with mobility 0.
    ///
    /// # Panics
    /// If `order` is above `FreeLists::ORDER_MAX`, or there are no mobilities or more groups than
    /// `GROUPS_MAX`.
    #[must_use]
    pub fn new(frames: u32, order: u8, mobilities: u8, zone_of: impl Fn(FrameId) -> u8) -> Self {
        assert!(order <= FreeLists::ORDER_MAX, "pageblocks of order {order}");
        assert!(mobilities > 0, "no mobilities");
        let mut zones = 0;
        let firsts = (0..frames).step_by(1 << order);
        let home = firsts.map(|first| {
            let zone = zone_of(FrameId(first));
            assert!(
                (u32::from(zone) + 1) * u32::from(mobilities) <= Self::GROUPS_MAX,
                "zone {zone} with {mobilities} mobilities"
            );
            zones = zones.max(zone + 1);
            zone * mobilities
        });
        let largest = if mobilities == 1 { u8::MAX } else { order + 1 };
        Self {
            order,
            largest: largest.min(FreeLists::ORDER_MAX),
            mobilities,
            home: home.collect(),
            zones: zones.max(1),
        }
    }

    /// Most groups: zones times mobilities.
    pub const GROUPS_MAX: u32 = 1 << (u8::BITS - GROUP_SHIFT);

    fn of(&self, frame: u32) -> usize {
        (frame >> self.order) as usize
    }

    /// The number of the group to which a frame is given back.
    #[inline]
    fn home(&self, frame: u32) -> u8 {
        self.home[self.of(frame)]
    }

    fn number(&self, group: Group) -> u8 {
        debug_assert!(
            group.zone < self.zones && group.mobility < self.mobilities,
            "there is no {group:?}"
        );
        group.zone * self.mobilities + group.mobility
    }

    fn group(&self, number: u8) -> Group {
        Group {
            zone: number / self.mobilities,
            mobility: number % self.mobilities,
        }
    }

    /// The number of the group of the same zone with that mobility.
    fn with_mobility(&self, number: u8, mobility: u8) -> u8 {
        number - number % self.mobilities + mobility
    }
}

#[derive(Clone, Copy)]
struct Lists {
    heads: [u32; ORDERS],
    blocks: [u32; ORDERS],
    nonempty: u32,
    /// Frames in all its blocks.
    free: u32,
}

impl Lists {
    const EMPTY: Self = Self {
        heads: [NIL; ORDERS],
        blocks: [0; ORDERS],
        nonempty: 0,
        free: 0,
    };

    /// The smallest order >= `order` that has a block.
    fn smallest_from(&self, order: u8) -> Option<u8> {
        let candidates = self.nonempty & u32::MAX.checked_shl(u32::from(order))?;
        (candidates != 0).then(|| order_of_bit(candidates.trailing_zeros()))
    }

    /// The largest order that has a block, if any has one.
    fn largest(&self) -> Option<u8> {
        self.nonempty.checked_ilog2().map(order_of_bit)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Link {
    next: u32,
    prev: u32,
}

impl Link {
    /// Of a frame at which no free block ever began.
    pub(crate) const UNUSED: Self = Self { next: 0, prev: 0 };
}

/// Frames that stand together.
#[derive(Clone, Copy, Default)]
struct Run {
    start: u32,
    last: u32,
}

const ORDERS: usize = FreeLists::ORDER_MAX as usize + 1;
const NIL: u32 = u32::MAX;
const NO_BLOCK: u8 = 0;
/// In a mark: where the number of the group stands, and below it one more than the order.
const GROUP_SHIFT: u32 = 4;
const ORDER_MASK: u8 = (1 << GROUP_SHIFT) - 1;
const _: () = assert!(
    FreeLists::ORDER_MAX < ORDER_MASK,
    "an order has room in a mark"
);
/// Frames that `put_batch` sorts at a time: the batches of reclaim are 32, of a truncate 256.
const SORTED_MAX: usize = 512;

fn mark(order: u8, group: u8) -> u8 {
    group << GROUP_SHIFT | (order + 1)
}

impl FreeLists {
    /// The largest order: blocks of 1024 frames.
    pub const ORDER_MAX: u8 = 10;

    /// For an arena of `frames` frames that are not told apart, none of them usable yet.
    ///
    /// # Panics
    /// On more than 2^31 frames (8 TiB): the number of a buddy must not overflow.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self::with_blocks(frames, Pageblocks::plain(frames))
    }

    /// The same with zones and mobilities.
    ///
    /// # Panics
    /// As `new`; if `blocks` are of another number of frames.
    #[must_use]
    pub fn with_blocks(frames: u32, blocks: Pageblocks) -> Self {
        assert!(frames <= 1 << 31, "an arena of {frames} frames");
        assert!(
            blocks.home.len() == frames.div_ceil(1 << blocks.order) as usize,
            "pageblocks of another arena"
        );
        let groups = usize::from(blocks.zones) * usize::from(blocks.mobilities);
        Self {
            links: zeroed::table(frames as usize),
            marks: vec![NO_BLOCK; frames as usize].into_boxed_slice(),
            groups: vec![Lists::EMPTY; groups].into_boxed_slice(),
            blocks,
            scratch: vec![Run::default(); SORTED_MAX].into_boxed_slice(),
        }
    }

    /// The frames `first..first + count` became usable and are free.
    ///
    /// # Panics
    /// If they are not all in the arena.
    pub fn add_range(&mut self, first: FrameId, count: u32) {
        self.put_run(first.0, self.range_end(first, count));
    }

    /// Takes the chunk out if every frame of it is free. False: nothing changed.
    ///
    /// # Panics
    /// If it is not all in the arena.
    #[must_use]
    pub fn try_remove_range(&mut self, first: FrameId, count: u32) -> bool {
        let end = self.range_end(first, count);
        let mut at = first.0;
        while at < end {
            let Some((start, order)) = self.block_of(at) else {
                return false;
            };
            at = start + (1 << order);
        }
        let mut at = first.0;
        while at < end {
            let (start, order) = self.block_of(at).expect("every frame was seen free");
            let block_end = start + (1 << order);
            let group = self.group_at(start);
            self.unlink(group, start, order);
            self.link_aligned(group, start, at);
            self.link_aligned(group, end.min(block_end), block_end);
            at = block_end;
        }
        true
    }

    /// Takes a naturally aligned block of `2^order` frames: of the smallest block of the group that
    /// holds it; the rest stays in the group.
    ///
    /// # Panics
    /// If `order` is above `ORDER_MAX`.
    pub fn try_take(&mut self, group: Group, order: u8) -> Option<FrameId> {
        assert!(order <= Self::ORDER_MAX, "order {order}");
        let group = self.blocks.number(group);
        let lists = &self.groups[usize::from(group)];
        let from = lists.smallest_from(order)?;
        let start = lists.heads[usize::from(from)];
        self.unlink(group, start, from);
        self.link_aligned(group, start + (1 << order), start + (1 << from));
        Some(FrameId(start))
    }

    /// The same of the first block of order `from`.
    ///
    /// # Panics
    /// If `order` is above `from`.
    pub fn try_take_of(&mut self, group: Group, from: u8, order: u8) -> Option<FrameId> {
        assert!(
            order <= from && from <= Self::ORDER_MAX,
            "order {order} of {from}"
        );
        let group = self.blocks.number(group);
        let start = self.groups[usize::from(group)].heads[usize::from(from)];
        if start == NIL {
            return None;
        }
        self.unlink(group, start, from);
        self.link_aligned(group, start + (1 << order), start + (1 << from));
        Some(FrameId(start))
    }

    /// Takes up to `want` single frames of a group, in the longest ascending runs it finds; appends
    /// them; returns their number.
    ///
    /// The smallest block that holds all that is still wanted gives one run; where there is none,
    /// the largest block goes whole.
    pub fn try_take_batch(&mut self, group: Group, want: u32, out: &mut Vec<FrameId>) -> u32 {
        let group = self.blocks.number(group);
        let mut left = want;
        while left > 0 {
            let lists = &self.groups[usize::from(group)];
            let fits = lists.smallest_from(order_holding(left));
            let Some(order) = fits.or_else(|| lists.largest()) else {
                break;
            };
            let start = lists.heads[usize::from(order)];
            self.unlink(group, start, order);
            let end = start + (1 << order);
            let taken_end = end.min(start.saturating_add(left));
            self.link_aligned(group, taken_end, end);
            out.extend((start..taken_end).map(FrameId));
            left -= taken_end - start;
        }
        want - left
    }

    /// Gives a block back to the group of its pageblock and merges it with its buddies.
    ///
    /// # Panics
    /// If it is not an aligned block of the arena, or if its first frame is free already.
    pub fn put(&mut self, first: FrameId, order: u8) {
        assert!(order <= Self::ORDER_MAX, "order {order}");
        assert!(
            first.0 & ((1 << order) - 1) == 0,
            "frame {} does not start a block of order {order}",
            first.0
        );
        let end = self.range_end(first, 1 << order);
        if order <= self.blocks.order {
            self.put_block(self.blocks.home(first.0), first.0, order);
        } else {
            self.put_run(first.0, end);
        }
    }

    /// Gives single frames back (any order; runs, up or down, are merged cheaply).
    ///
    /// # Panics
    /// If a frame is not in the arena, is free already, or is given twice.
    pub fn put_batch(&mut self, frames: &[FrameId]) {
        // Taken out while it is read, because the loop below changes `self`.
        let mut scratch = core::mem::take(&mut self.scratch);
        for part in frames.chunks(SORTED_MAX) {
            let mut runs = 0;
            for run in part.chunk_by(|a, b| a.0.abs_diff(b.0) == 1) {
                let (a, b) = (run[0].0, run[run.len() - 1].0);
                let [start, last] = [a.min(b), a.max(b)];
                assert!(
                    (last - start) as usize + 1 == run.len(),
                    "a frame between {start} and {last} is given back twice"
                );
                scratch[runs] = Run { start, last };
                runs += 1;
            }
            let runs = &mut scratch[..runs];
            if !runs.is_sorted_by_key(|run| run.start) {
                runs.sort_unstable_by_key(|run| run.start);
            }
            self.put_ascending(runs);
        }
        self.scratch = scratch;
    }

    /// Free frames now.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.groups.iter().map(|lists| lists.free).sum()
    }

    /// Free frames of a zone.
    #[must_use]
    pub fn free_of(&self, zone: u8) -> u32 {
        let own =
            |mobility| &self.groups[usize::from(self.blocks.number(Group { zone, mobility }))];
        (0..self.blocks.mobilities)
            .map(|mobility| own(mobility).free)
            .sum()
    }

    /// Free blocks of each order in a group.
    #[must_use]
    pub fn blocks(&self, group: Group) -> [u32; 11] {
        self.groups[usize::from(self.blocks.number(group))].blocks
    }

    /// Free blocks of each order in a zone, of whichever mobility.
    #[must_use]
    pub fn blocks_of(&self, zone: u8) -> [u32; 11] {
        let mut all = [0; 11];
        for mobility in 0..self.blocks.mobilities {
            let blocks = self.blocks(Group { zone, mobility });
            all.iter_mut()
                .zip(blocks)
                .for_each(|(sum, blocks)| *sum += blocks);
        }
        all
    }

    /// The group to which a frame is given back: its zone, and the tag of its pageblock.
    ///
    /// # Panics
    /// If it is not in the arena.
    #[must_use]
    pub fn home(&self, frame: FrameId) -> Group {
        self.blocks.group(self.blocks.home(frame.0))
    }

    /// The first free block of that order in a group: the block that would be taken next.
    #[must_use]
    pub fn first_block(&self, group: Group, order: u8) -> Option<FrameId> {
        let lists = &self.groups[usize::from(self.blocks.number(group))];
        let head = lists.heads[usize::from(order)];
        (head != NIL).then_some(FrameId(head))
    }

    /// Free frames of the pageblock that a frame is in.
    #[must_use]
    pub fn free_in_block(&self, frame: FrameId) -> u32 {
        let mut free = 0;
        self.each_free_in(frame, |_, order| free += 1 << order);
        free
    }

    /// The order of the free block that begins at a frame.
    #[must_use]
    pub fn block_at(&self, frame: FrameId) -> Option<u8> {
        self.order_at(frame.0)
    }

    /// Takes the free blocks that begin in `first..end` whole, as long as `may` says so of their
    /// order; appends their frames.
    ///
    /// # Panics
    /// If a frame is not in the arena.
    pub fn take_blocks_in(
        &mut self,
        frames: core::ops::Range<u32>,
        may: impl Fn(u8) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let (mut at, mut taken) = (frames.start, 0);
        while at < frames.end {
            let Some(order) = self.order_at(at) else {
                at += 1;
                continue;
            };
            if may(order) {
                self.unlink(self.group_at(at), at, order);
                out.extend((at..at + (1 << order)).map(FrameId));
                taken += 1 << order;
            }
            at += 1 << order;
        }
        taken
    }

    /// Frames that the pageblock of a frame gets back go to that mobility from now on. Its free
    /// frames stay where they are.
    ///
    /// # Panics
    /// If there is no such mobility; if a free block reaches beyond the pageblock: it is of one
    /// group.
    pub fn tag(&mut self, frame: FrameId, mobility: u8) {
        assert!(mobility < self.blocks.mobilities, "mobility {mobility}");
        let block = self.blocks.of(frame.0);
        let home = self.blocks.with_mobility(self.blocks.home[block], mobility);
        let first = frame.0 >> self.blocks.order << self.blocks.order;
        let reaches = self
            .block_of(first)
            .filter(|(_, order)| *order > self.blocks.order);
        assert!(
            reaches.is_none() || self.blocks.home[block] == home,
            "a free block reaches beyond the pageblock of frame {}",
            frame.0
        );
        self.blocks.home[block] = home;
    }

    /// Moves a free block to the lists of another mobility.
    ///
    /// # Panics
    /// If no free block starts there, or if it is larger than a pageblock.
    pub fn move_block(&mut self, first: FrameId, mobility: u8) {
        let order = self.order_at(first.0).expect("no free block starts there");
        assert!(
            order <= self.blocks.order,
            "a block of order {order} is moved"
        );
        let group = self.group_at(first.0);
        self.unlink(group, first.0, order);
        let other = self.blocks.with_mobility(group, mobility);
        self.link(other, first.0, order);
    }

    /// Moves all free blocks of the pageblock of a frame to the lists of another mobility; answers
    /// how many frames.
    ///
    /// # Panics
    /// As `move_block`.
    pub fn move_free_of_block(&mut self, frame: FrameId, mobility: u8) -> u32 {
        let end = (frame.0 >> self.blocks.order) + 1;
        let end = (end << self.blocks.order).min(self.len());
        let mut at = frame.0 >> self.blocks.order << self.blocks.order;
        let mut moved = 0;
        while at < end {
            let Some(order) = self.order_at(at) else {
                at += 1;
                continue;
            };
            self.move_block(FrameId(at), mobility);
            moved += 1 << order;
            at += 1 << order;
        }
        moved
    }

    /// Bytes of metadata.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blocks = size_of_val(&*self.blocks.home);
        let lists = size_of_val(&*self.groups);
        let frames = size_of_val(&*self.links) + size_of_val(&*self.marks);
        (frames + lists + blocks + size_of_val(&*self.scratch)) as u64
    }

    /// Gives back runs that come in ascending order; neighbours as one.
    fn put_ascending(&mut self, runs: &[Run]) {
        let (mut start, mut end) = (0, 0);
        for &Run { start: first, last } in runs {
            assert!(last < self.len(), "frame {last} is not in the arena");
            assert!(
                start == end || first >= end,
                "frame {first} is given back twice"
            );
            if first != end || start == end {
                self.put_run(start, end);
                start = first;
            }
            end = last + 1;
        }
        self.put_run(start, end);
    }

    /// Gives back the frames `at..end` as the largest aligned blocks of one group, each merged with
    /// its buddies.
    fn put_run(&mut self, mut at: u32, end: u32) {
        while at < end {
            let group = self.blocks.home(at);
            let mut order = order_fitting(at, end).min(self.blocks.largest);
            while order > self.blocks.order && !self.is_of_one_group(at, order) {
                order -= 1;
            }
            self.put_block(group, at, order);
            at += 1 << order;
        }
    }

    /// True if all pageblocks of a block have one home.
    fn is_of_one_group(&self, first: u32, order: u8) -> bool {
        if self.groups.len() == 1 {
            return true;
        }
        let group = self.blocks.home(first);
        let firsts = (first..first + (1 << order)).step_by(1 << self.blocks.order);
        firsts.skip(1).all(|at| self.blocks.home(at) == group)
    }

    #[inline]
    fn put_block(&mut self, group: u8, first: u32, order: u8) {
        assert!(
            self.marks[first as usize] == NO_BLOCK,
            "frame {first} is free already"
        );
        debug_assert!(
            self.block_of(first).is_none(),
            "frame {first} is in a free block (11 loads saved)"
        );
        let (mut start, mut order) = (first, order);
        while order < self.blocks.largest {
            let buddy = start ^ (1 << order);
            let Some(&found) = self.marks.get(buddy as usize) else {
                break;
            };
            if found & ORDER_MASK != order + 1 {
                break;
            }
            // Beyond a pageblock only what is of one group, and is on its lists, is one block.
            let other = found >> GROUP_SHIFT;
            let spans = order >= self.blocks.order;
            if spans && (other != group || self.blocks.home(buddy) != group) {
                break;
            }
            self.unlink(other, buddy, order);
            start &= !(1 << order);
            order += 1;
        }
        self.link(group, start, order);
    }

    /// Puts `at..end`, a piece of a block just taken, on the lists of its group; its buddies are in
    /// use, so nothing merges.
    fn link_aligned(&mut self, group: u8, mut at: u32, end: u32) {
        while at < end {
            let order = order_fitting(at, end);
            self.link(group, at, order);
            at += 1 << order;
        }
    }

    #[inline]
    fn link(&mut self, group: u8, start: u32, order: u8) {
        let lists = &mut self.groups[usize::from(group)];
        let list = usize::from(order);
        let next = core::mem::replace(&mut lists.heads[list], start);
        lists.blocks[list] += 1;
        lists.nonempty |= 1 << order;
        lists.free += 1 << order;
        if next != NIL {
            self.links[next as usize].prev = start;
        }
        self.links[start as usize] = Link { next, prev: NIL };
        self.marks[start as usize] = mark(order, group);
    }

    #[inline]
    fn unlink(&mut self, group: u8, start: u32, order: u8) {
        debug_assert_eq!(self.marks[start as usize], mark(order, group));
        let lists = &mut self.groups[usize::from(group)];
        let list = usize::from(order);
        let Link { next, prev } = self.links[start as usize];
        match prev {
            NIL => lists.heads[list] = next,
            _ => self.links[prev as usize].next = next,
        }
        if next != NIL {
            self.links[next as usize].prev = prev;
        }
        self.marks[start as usize] = NO_BLOCK;
        lists.blocks[list] -= 1;
        lists.free -= 1 << order;
        if lists.heads[list] == NIL {
            lists.nonempty &= !(1 << order);
        }
    }

    /// The order of the free block that starts at a frame.
    fn order_at(&self, frame: u32) -> Option<u8> {
        (self.marks[frame as usize] & ORDER_MASK).checked_sub(1)
    }

    /// The number of the group whose lists hold the free block that starts at a frame.
    fn group_at(&self, frame: u32) -> u8 {
        debug_assert_ne!(self.marks[frame as usize], NO_BLOCK);
        self.marks[frame as usize] >> GROUP_SHIFT
    }

    /// The free block that `frame` is in.
    fn block_of(&self, frame: u32) -> Option<(u32, u8)> {
        (0..=Self::ORDER_MAX)
            .map(|order| (frame & !((1 << order) - 1), order))
            .find(|&(start, order)| {
                // A smaller block at the same start does not reach the frame.
                self.order_at(start) == Some(order)
            })
    }

    /// The parts of free blocks that lie in the pageblock of a frame.
    fn each_free_in(&self, frame: FrameId, mut each: impl FnMut(u32, u8)) {
        let first = frame.0 >> self.blocks.order << self.blocks.order;
        let end = (first + (1 << self.blocks.order)).min(self.len());
        if let Some((_, order)) = self
            .block_of(first)
            .filter(|(_, order)| *order > self.blocks.order)
        {
            debug_assert!(order > self.blocks.order);
            return each(first, self.blocks.order);
        }
        let mut at = first;
        while at < end {
            match self.order_at(at) {
                Some(order) => {
                    each(at, order);
                    at += 1 << order;
                }
                None => at += 1,
            }
        }
    }

    fn len(&self) -> u32 {
        u32::try_from(self.marks.len()).expect("an arena counts its frames in 31 bits")
    }

    fn range_end(&self, first: FrameId, count: u32) -> u32 {
        let end = u64::from(first.0) + u64::from(count);
        assert!(
            end <= self.marks.len() as u64,
            "frames {}.. + {count} are not in the arena",
            first.0
        );
        first.0 + count
    }
}

/// The largest order of a block that starts at `at` and does not pass `end`.
fn order_fitting(at: u32, end: u32) -> u8 {
    let by_alignment = if at == 0 { 31 } else { at.trailing_zeros() };
    order_of_bit(
        by_alignment
            .min((end - at).ilog2())
            .min(u32::from(FreeLists::ORDER_MAX)),
    )
}

/// The smallest order whose blocks hold `frames` frames; above `ORDER_MAX` if none does.
fn order_holding(frames: u32) -> u8 {
    order_of_bit(32 - (frames - 1).leading_zeros())
}

fn order_of_bit(bit: u32) -> u8 {
    u8::try_from(bit).expect("a bit of a u32")
}

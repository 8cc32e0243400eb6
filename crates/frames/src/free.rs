//! Buddy free lists for orders 0..=10.
//!
//! A free block of order k is 2^k frames at a multiple of 2^k; its buddy is the block that differs in
//! bit k of the number. Two free buddies never stand beside each other: they are one block of order
//! k + 1. Every frame has a link and an order byte; both mean something at the first frame of a free
//! block only:
//!
//! ```text
//!   frame   0   1   2   3   4   5   6   7
//!   order   1   -   -   0   2   -   -   -        "-": not the first frame of a free block
//!          [free ]  no free [    free     ]      frame 2 is in use (or was never added)
//! ```
//!
//! Invariants
//!   1. `orders[f]` is k exactly if a free block of order k starts at f, and then f is on list k.
//!   2. `nonempty` has bit k exactly if list k is not empty.
//!   3. `free` is the number of frames in all blocks.
//!
//! Concurrency: plain data behind one lock of `mm`; so a batch is a few list steps, whatever its length.
//!
//! Source: Linux v6.12 mm/page_alloc.c, __free_one_page(), __rmqueue_smallest(), for the scheme (Knowlton
//! 1965). Deviations: links are numbers; a batch takes runs instead of single pages; no mobility types yet.

use crate::FrameId;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// Free frames of the arena. Plain data behind one lock of `mm`.
pub struct FreeLists {
    links: Box<[Link]>,
    /// Order of the free block that starts at a frame, or `NO_BLOCK`.
    orders: Box<[u8]>,
    heads: [u32; ORDERS],
    blocks: [u32; ORDERS],
    nonempty: u32,
    free: u32,
    /// Where `put_batch` sorts, so that giving memory back needs none.
    scratch: Box<[Run]>,
}

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
}

/// Frames that stand together.
#[derive(Clone, Copy, Default)]
struct Run {
    start: u32,
    last: u32,
}

const ORDERS: usize = FreeLists::ORDER_MAX as usize + 1;
const NIL: u32 = u32::MAX;
const NO_BLOCK: u8 = u8::MAX;
/// Frames that `put_batch` sorts at a time: the batches of reclaim are 32, of a truncate 256.
const SORTED_MAX: usize = 512;

impl FreeLists {
    /// The largest order: blocks of 1024 frames.
    pub const ORDER_MAX: u8 = 10;

    /// For an arena of `frames` frames, none of them usable yet.
    ///
    /// # Panics
    /// On more than 2^31 frames (8 TiB): the number of a buddy must not overflow.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        assert!(frames <= 1 << 31, "an arena of {frames} frames");
        Self {
            links: vec![
                Link {
                    next: NIL,
                    prev: NIL
                };
                frames as usize
            ]
            .into_boxed_slice(),
            orders: vec![NO_BLOCK; frames as usize].into_boxed_slice(),
            heads: [NIL; ORDERS],
            blocks: [0; ORDERS],
            nonempty: 0,
            free: 0,
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
            self.unlink(start, order);
            self.link_aligned(start, at);
            self.link_aligned(end.min(block_end), block_end);
            at = block_end;
        }
        true
    }

    /// Takes a naturally aligned block of `2^order` frames.
    ///
    /// # Panics
    /// If `order` is above `ORDER_MAX`.
    pub fn try_take(&mut self, order: u8) -> Option<FrameId> {
        assert!(order <= Self::ORDER_MAX, "order {order}");
        let from = self.smallest_from(order)?;
        let start = self.heads[usize::from(from)];
        self.unlink(start, from);
        self.link_aligned(start + (1 << order), start + (1 << from));
        Some(FrameId(start))
    }

    /// Takes up to `want` single frames in ascending runs as long as can be had; appends them; answers how many.
    ///
    /// The smallest block that holds all that is still wanted gives one run; where there is none, the
    /// largest block goes whole.
    pub fn try_take_batch(&mut self, want: u32, out: &mut Vec<FrameId>) -> u32 {
        let mut left = want;
        while left > 0 && self.nonempty != 0 {
            let order = self
                .smallest_from(order_holding(left))
                .unwrap_or_else(|| self.largest());
            let start = self.heads[usize::from(order)];
            self.unlink(start, order);
            let end = start + (1 << order);
            let taken_end = end.min(start.saturating_add(left));
            self.link_aligned(taken_end, end);
            out.extend((start..taken_end).map(FrameId));
            left -= taken_end - start;
        }
        want - left
    }

    /// Gives a block back and merges it with its buddies.
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
        self.range_end(first, 1 << order);
        self.put_block(first.0, order);
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
        self.free
    }

    /// Free blocks of each order.
    #[must_use]
    pub fn blocks(&self) -> [u32; 11] {
        self.blocks
    }

    /// Bytes of metadata.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.links) + size_of_val(&*self.orders) + size_of_val(&*self.scratch))
            as u64
    }

    /// Gives back runs that come in ascending order; neighbours as one.
    fn put_ascending(&mut self, runs: &[Run]) {
        let (mut start, mut end) = (0, 0);
        for &Run { start: first, last } in runs {
            assert!(
                (last as usize) < self.orders.len(),
                "frame {last} is not in the arena"
            );
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

    /// Gives back the frames `at..end` as the largest aligned blocks, each merged with its buddies.
    fn put_run(&mut self, mut at: u32, end: u32) {
        while at < end {
            let order = order_fitting(at, end);
            self.put_block(at, order);
            at += 1 << order;
        }
    }

    fn put_block(&mut self, first: u32, order: u8) {
        assert!(
            self.orders[first as usize] == NO_BLOCK,
            "frame {first} is free already"
        );
        debug_assert!(
            self.block_of(first).is_none(),
            "frame {first} is in a free block (11 loads saved)"
        );
        let (mut start, mut order) = (first, order);
        while order < Self::ORDER_MAX {
            let buddy = start ^ (1 << order);
            if self.orders.get(buddy as usize) != Some(&order) {
                break;
            }
            self.unlink(buddy, order);
            start &= !(1 << order);
            order += 1;
        }
        self.link(start, order);
    }

    /// Puts `at..end`, a piece of a block just taken, on the lists; its buddies are in use, so nothing merges.
    fn link_aligned(&mut self, mut at: u32, end: u32) {
        while at < end {
            let order = order_fitting(at, end);
            self.link(at, order);
            at += 1 << order;
        }
    }

    fn link(&mut self, start: u32, order: u8) {
        let list = usize::from(order);
        let next = core::mem::replace(&mut self.heads[list], start);
        if next != NIL {
            self.links[next as usize].prev = start;
        }
        self.links[start as usize] = Link { next, prev: NIL };
        self.orders[start as usize] = order;
        self.blocks[list] += 1;
        self.nonempty |= 1 << order;
        self.free += 1 << order;
    }

    fn unlink(&mut self, start: u32, order: u8) {
        let list = usize::from(order);
        let Link { next, prev } = self.links[start as usize];
        match prev {
            NIL => self.heads[list] = next,
            _ => self.links[prev as usize].next = next,
        }
        if next != NIL {
            self.links[next as usize].prev = prev;
        }
        self.orders[start as usize] = NO_BLOCK;
        self.blocks[list] -= 1;
        if self.heads[list] == NIL {
            self.nonempty &= !(1 << order);
        }
        self.free -= 1 << order;
    }

    /// The smallest order >= `order` that has a block.
    fn smallest_from(&self, order: u8) -> Option<u8> {
        let candidates = self.nonempty & u32::MAX.checked_shl(u32::from(order))?;
        (candidates != 0).then(|| order_of_bit(candidates.trailing_zeros()))
    }

    /// The largest order that has a block; there is one.
    fn largest(&self) -> u8 {
        order_of_bit(self.nonempty.ilog2())
    }

    /// The free block that `frame` is in.
    fn block_of(&self, frame: u32) -> Option<(u32, u8)> {
        (0..=Self::ORDER_MAX)
            .map(|order| (frame & !((1 << order) - 1), order))
            .find(|&(start, order)| {
                // A smaller block at the same start does not reach the frame.
                self.orders[start as usize] == order
            })
    }

    fn range_end(&self, first: FrameId, count: u32) -> u32 {
        let end = u64::from(first.0) + u64::from(count);
        assert!(
            end <= self.orders.len() as u64,
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

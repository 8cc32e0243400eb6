//! The overhead of pages: a kernel keeps, in frames of its own, nodes of the indexes of files and
//! of the swap cache (where an evicted page leaves a shadow in its slot's place), heads of pages
//! that were written to, page tables of regions.
//!
//! ```text
//!   what     of what                        objects a block            lies among   goes
//!   node     index nodes in use, and groups 14 in 2 frames, or 7 in 1  reclaimable  the oldest first
//!            of 64 slots of the swap file
//!   head     blocks of pages written to     39 in 1                    reclaimable  the oldest first
//!   table    512 pages of a region          1 in 1                     unmovable    the youngest first
//! ```
//!
//! Here stands how many there are and how many are to be; `Cache::settle_overhead` makes the first
//! the second. An object is none of a page in particular: pages go about as they have come, so the
//! oldest goes; a region that goes is mostly young.
//!
//! Invariants
//!   1. Frames are claimed and never adopted: reclaim and compaction pass over them.
//!   2. A block goes back when its last object does.
//!
//! Source: Linux 6.12 lib/xarray.c, xas_alloc() (`GFP_NOWAIT`: it may wake the reclaimer and not
//! reclaim); fs/buffer.c, alloc_buffer_head(), both `SLAB_RECLAIM_ACCOUNT`; mm/pgalloc-track.h,
//! include/asm-generic/pgalloc.h, __pte_alloc_one(). Sizes: `/proc/slabinfo` of a guest with one
//! CPU. Deviations: upper levels of page tables and of the index of the swap cache, and what is
//! kept of files as a whole, are left out; where no frame is free above MIN an object is made
//! later, and no task waits for it; nodes that hold only shadows stay as long as shadows do.

use std::collections::VecDeque;

use env::{Context, Lock, LockClass};
use frames::sync::{AtomicU8, AtomicU64, Ordering};
use frames::{Busy, FrameId};
use policy::place::mobility::Mobility;

use crate::vmstat::{add, get, sub};

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Node,
    Head,
    Table,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Node, Self::Head, Self::Table];

    pub(crate) fn mobility(self) -> Mobility {
        match self {
            Self::Node | Self::Head => Mobility::Reclaimable,
            Self::Table => Mobility::Unmovable,
        }
    }

    /// Order of the block that is tried first.
    pub(crate) fn order(self) -> u8 {
        u8::from(self == Self::Node)
    }

    /// Objects in a block of `frames` frames.
    fn objects(self, frames: usize) -> u64 {
        let in_one = match self {
            Self::Node => 7,
            Self::Head => 39,
            Self::Table => 1,
        };
        in_one * frames as u64
    }
}

/// Pages of a region that a table is for.
const TABLE_PAGES: u32 = 512;

/// See the module.
pub(crate) struct Overhead {
    /// Heads of the page in each frame, and of all.
    heads: Box<[AtomicU8]>,
    with_heads: AtomicU64,
    tables: AtomicU64,
    held: [Lock<Held>; 3],
}

#[derive(Default)]
struct Held {
    blocks: VecDeque<Block>,
    objects: u64,
}

struct Block {
    frames: Vec<Busy>,
    /// Objects that it has, and has had.
    left: u64,
    used: u64,
}

/// A step that brings the number of objects nearer to the one that is to be.
pub(crate) enum Step {
    Done,
    /// A block is to be taken, and given to `add`.
    Take,
    /// The frames of a block come free.
    Free(Vec<Busy>),
}

impl Overhead {
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            heads: (0..frames).map(|_| AtomicU8::new(0)).collect(),
            with_heads: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            held: [(); 3].map(|()| Lock::new(LockClass::Leaf, Held::default())),
        }
    }

    /// The page in a frame was written to; it has `heads` heads now.
    pub(crate) fn written(&self, frame: FrameId, heads: u8) {
        let own = &self.heads[frame.0 as usize];
        if heads > 0 && own.swap(heads, Ordering::Relaxed) == 0 {
            add(&self.with_heads, u64::from(heads));
        }
    }

    /// The page in a frame was evicted; returns the number of its heads.
    pub(crate) fn gone(&self, frame: FrameId) -> u8 {
        let own = &self.heads[frame.0 as usize];
        if own.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let had = own.swap(0, Ordering::Relaxed);
        sub(&self.with_heads, u64::from(had));
        had
    }

    /// Regions have `more` tables more, and `fewer` fewer.
    pub(crate) fn tables(&self, more: u64, fewer: u64) {
        add(&self.tables, more);
        sub(&self.tables, fewer);
    }

    /// Objects that are to be, of `nodes` index nodes in use.
    pub(crate) fn wanted(&self, kind: Kind, nodes: u64) -> u64 {
        match kind {
            Kind::Node => nodes,
            Kind::Head => get(&self.with_heads),
            Kind::Table => get(&self.tables),
        }
    }

    /// The next step about a kind of which `wanted` are to be.
    pub(crate) fn step(&self, context: &impl Context, kind: Kind, wanted: u64) -> Step {
        let mut held = self.held[kind as usize].lock(context);
        while held.objects < wanted {
            let Some(last) = held.blocks.back_mut() else {
                return Step::Take;
            };
            if last.used == kind.objects(last.frames.len()) {
                return Step::Take;
            }
            last.used += 1;
            last.left += 1;
            held.objects += 1;
        }
        while held.objects > wanted {
            let youngest = kind == Kind::Table;
            let block = if youngest {
                held.blocks.back_mut()
            } else {
                held.blocks.front_mut()
            };
            let block = block.expect("objects lie in blocks");
            block.left -= 1;
            let is_empty = block.left == 0;
            held.objects -= 1;
            if is_empty {
                let block = if youngest {
                    held.blocks.pop_back()
                } else {
                    held.blocks.pop_front()
                };
                return Step::Free(block.map(|block| block.frames).unwrap_or_default());
            }
        }
        Step::Done
    }

    /// A block was taken, for an object that is its first.
    pub(crate) fn add(&self, context: &impl Context, kind: Kind, frames: Vec<Busy>) {
        let mut held = self.held[kind as usize].lock(context);
        held.blocks.push_back(Block {
            frames,
            left: 1,
            used: 1,
        });
        held.objects += 1;
    }
}

/// The tables of one region: a bit for each that is there.
#[derive(Default)]
pub(crate) struct Tables(Vec<u64>);

impl Tables {
    /// Pages of the region have come; answers how many tables that took.
    pub(crate) fn come(&mut self, pages: core::ops::Range<u32>) -> u64 {
        let mut more = 0;
        for table in pages.start / TABLE_PAGES..pages.end.div_ceil(TABLE_PAGES) {
            let (word, bit) = ((table / u64::BITS) as usize, 1 << (table % u64::BITS));
            if self.0.len() <= word {
                self.0.resize(word + 1, 0);
            }
            more += u64::from(self.0[word] & bit == 0);
            self.0[word] |= bit;
        }
        more
    }

    /// Pages of a region of `len` were given back; answers how many tables go with them.
    pub(crate) fn go(&mut self, pages: core::ops::Range<u32>, len: u32) -> u64 {
        let mut fewer = 0;
        let end = if pages.end == len {
            len.div_ceil(TABLE_PAGES)
        } else {
            pages.end / TABLE_PAGES
        };
        for table in pages.start.div_ceil(TABLE_PAGES)..end {
            let (word, bit) = ((table / u64::BITS) as usize, 1 << (table % u64::BITS));
            if let Some(word) = self.0.get_mut(word) {
                fewer += u64::from(*word & bit != 0);
                *word &= !bit;
            }
        }
        fewer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regions_tables_come_with_its_first_pages_and_go_with_all() {
        let mut tables = Tables::default();
        assert_eq!(tables.come(0..1), 1);
        assert_eq!(tables.come(1..512), 0);
        assert_eq!(tables.come(500..2_000), 3);
        assert_eq!(tables.go(1..1_100, 2_000), 1, "the second alone, whole");
        assert_eq!(tables.go(0..2_000, 2_000), 3);
        assert_eq!(tables.come(1_999..2_000), 1);
    }
}

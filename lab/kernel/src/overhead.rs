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
//! Here stands how many there are and how many are to be; `settle` makes the first the second. An
//! object is none of a page in particular: pages go about as they have come, so the oldest goes; a
//! region that goes is mostly young.
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

use core::ops::Range;
use std::collections::VecDeque;

use env::{Context, Lock, LockClass, Task};
use frames::sync::{AtomicU8, AtomicU64, Ordering};
use frames::{Busy, FrameId};
use mm::inside::{Inside, Wanted};
use policy::place::by_use::Purpose;
use policy::place::mobility::Mobility;
use policy::units::Pages;

use crate::objects::Objects;
use crate::slab;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Head,
    Table,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Node, Self::Head, Self::Table];

    fn mobility(self) -> Mobility {
        match self {
            Self::Node | Self::Head => Mobility::Reclaimable,
            Self::Table => Mobility::Unmovable,
        }
    }

    /// Order of the block that is tried first.
    fn order(self) -> u8 {
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
    frames: Box<[Busy]>,
    /// Objects that it has, and has had.
    left: u64,
    used: u64,
}

/// A step that brings the number of objects nearer to the one that is to be.
enum Step {
    Done,
    /// A block is to be taken, and given to `add`.
    Take,
    /// The frames of a block come free.
    Free(Box<[Busy]>),
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

    /// Objects that are to be, of `nodes` index nodes in use.
    fn wanted(&self, kind: Kind, nodes: u64) -> u64 {
        match kind {
            Kind::Node => nodes,
            Kind::Head => self.with_heads.load(Ordering::Relaxed),
            Kind::Table => self.tables.load(Ordering::Relaxed),
        }
    }

    /// The next step about a kind of which `wanted` are to be.
    fn step(&self, context: &impl Context, kind: Kind, wanted: u64) -> Step {
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
    fn add(&self, context: &impl Context, kind: Kind, frames: Box<[Busy]>) {
        let mut held = self.held[kind as usize].lock(context);
        held.blocks.push_back(Block {
            frames,
            left: 1,
            used: 1,
        });
        held.objects += 1;
    }

    /// Makes as many objects as pages want, if it `takes`, or frees those that they do not. It
    /// neither reclaims nor waits; it may boost a zone, and wake its reclaimer.
    pub(crate) fn settle(
        &self,
        task: &mut Task<'_>,
        (cache, objects): (Inside<'_>, &Objects),
        takes: bool,
    ) {
        for kind in Kind::ALL {
            loop {
                let swapped = cache.swap_groups();
                let nodes = u64::from(cache.pages.pool.taken()) + u64::from(swapped);
                match self.step(task, kind, self.wanted(kind, nodes)) {
                    Step::Take if takes && self.take_block(task, cache, kind) => {}
                    Step::Take | Step::Done => break,
                    Step::Free(block) => {
                        slab::goes(task, (cache, objects), kind.mobility(), block);
                    }
                }
            }
        }
    }

    /// Takes a block, or a frame; false: none is free.
    fn take_block(&self, task: &mut Task<'_>, cache: Inside<'_>, kind: Kind) -> bool {
        let mut frames = Vec::with_capacity(1 << kind.order());
        for order in (0..=kind.order()).rev() {
            let wanted = Wanted::new(1, Purpose::Used).of(kind.mobility());
            // Refused by the system: it is made later.
            let taken = cache.try_alloc(task, wanted.in_blocks(order), &mut frames);
            if taken.is_ok_and(|taken| taken > 0) {
                break;
            }
        }
        if frames.is_empty() {
            return false;
        }
        let zone = cache.zones.layout().of(frames[0]);
        let pages = Pages(frames.len() as u64);
        cache.slabs.note_slab(kind.mobility(), zone, pages);
        let claim = |frame: &_| cache.pages.table.claim(*frame);
        self.add(task, kind, frames.iter().map(claim).collect());
        true
    }
}

impl mm::Overhead for Overhead {
    fn written(&self, frame: FrameId, heads: u8) {
        let own = &self.heads[frame.0 as usize];
        if heads > 0 && own.swap(heads, Ordering::Relaxed) == 0 {
            self.with_heads
                .fetch_add(u64::from(heads), Ordering::Relaxed);
        }
    }

    fn gone(&self, frame: FrameId) -> u8 {
        let own = &self.heads[frame.0 as usize];
        if own.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let had = own.swap(0, Ordering::Relaxed);
        self.with_heads.fetch_sub(u64::from(had), Ordering::Relaxed);
        had
    }

    fn tables_come(&self, tables: &mut Vec<u64>, pages: Range<u32>) {
        self.tables
            .fetch_add(come(tables, pages), Ordering::Relaxed);
    }

    fn tables_go(&self, tables: &mut Vec<u64>, pages: Range<u32>, len: u32) {
        self.tables
            .fetch_sub(go(tables, pages, len), Ordering::Relaxed);
    }
}

fn place(table: u32) -> (usize, u64) {
    ((table / u64::BITS) as usize, 1 << (table % u64::BITS))
}

/// Pages of a region have come; answers how many tables that took.
fn come(tables: &mut Vec<u64>, pages: Range<u32>) -> u64 {
    let mut more = 0;
    for table in pages.start / TABLE_PAGES..pages.end.div_ceil(TABLE_PAGES) {
        let (word, bit) = place(table);
        if tables.len() <= word {
            tables.resize(word + 1, 0);
        }
        more += u64::from(tables[word] & bit == 0);
        tables[word] |= bit;
    }
    more
}

/// Pages of a region of `len` were given back; answers how many tables go with them.
fn go(tables: &mut [u64], pages: Range<u32>, len: u32) -> u64 {
    let mut fewer = 0;
    let end = if pages.end == len {
        len.div_ceil(TABLE_PAGES)
    } else {
        pages.end / TABLE_PAGES
    };
    for table in pages.start.div_ceil(TABLE_PAGES)..end {
        let (word, bit) = place(table);
        if let Some(word) = tables.get_mut(word) {
            fewer += u64::from(*word & bit != 0);
            *word &= !bit;
        }
    }
    fewer
}

#[cfg(test)]
mod tests {
    use env::{Device as _, ObjectId};
    use mm::{Cache, DeviceOptions, Options};
    use policy::units::{Bytes, PAGE_SIZE};
    use world::Sector;

    use super::*;
    use crate::testing::{NULL, Null, with_overhead};

    fn settle(task: &mut Task<'_>, cache: &Cache) {
        let kernel = cache.inside().kernel().unwrap();
        kernel.settle_overhead(task, cache, true);
    }

    #[test]
    fn a_regions_tables_come_with_its_first_pages_and_go_with_all() {
        let mut tables = Vec::new();
        assert_eq!(come(&mut tables, 0..1), 1);
        assert_eq!(come(&mut tables, 1..512), 0);
        assert_eq!(come(&mut tables, 500..2_000), 3);
        assert_eq!(
            go(&mut tables, 1..1_100, 2_000),
            1,
            "the second alone, whole"
        );
        assert_eq!(go(&mut tables, 0..2_000, 2_000), 3);
        assert_eq!(come(&mut tables, 1_999..2_000), 1);
    }

    #[test]
    fn what_is_kept_of_pages_comes_and_goes_with_them() {
        with_overhead(Options::new(4_096, 1), |task, cache| {
            let device = cache
                .add_device(
                    task,
                    NULL,
                    Null.info(),
                    DeviceOptions {
                        blocks_a_page: 4,
                        ..DeviceOptions::default()
                    },
                )
                .unwrap();
            let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
            let mut writer = cache.writer();
            let page = vec![Sector(1); 8];
            for at in 0..780 {
                file.write(task, &mut writer, Bytes(at * PAGE_SIZE), &page)
                    .unwrap();
            }
            settle(task, cache);
            // 3120 heads, 39 a frame; 13 leaves and a root, 14 in two frames.
            let kept = |cache: &Cache| cache.slab_pages();
            assert_eq!(kept(cache).reclaimable, Pages(80 + 2));
            let region = cache.spill(task, Pages(1_025)).unwrap();
            region.touch(task, 0, 1_025).unwrap();
            assert_eq!(kept(cache).unreclaimable, Pages(3));
            region.discard(task, 0, 1_024).unwrap();
            assert_eq!(kept(cache).unreclaimable, Pages(1));
            drop(region);
            file.truncate(task, Bytes(0)).unwrap();
            settle(task, cache);
            assert_eq!(kept(cache).all(), Pages(0));
            assert!(cache.stats().is_conserved());
        });
    }
}

//! From (object, page) to a block of the device: one allocator, six sets of parameters.
//!
//! Files are given runs of blocks as they are first written (that is delayed allocation; for ext2
//! and ext3, which allocate as pages are dirtied, it is the same order as long as a file is written
//! in sequence). All files draw from one cursor that moves over the device; how much a file
//! reserves for itself at a time, its *window*, decides how writers that write at once are
//! interleaved:
//!
//! ```text
//!   ext4, two writers     AAAABBBBAAAABBBB     short windows: what goes out in turn lies in sequence
//!   xfs, two writers      AAAA....BBBB....     long windows: each file in sequence, seeks between
//! ```
//!
//! Interruptions: where a file system stands its own blocks in between (block groups; indirect
//! blocks every 1024 blocks), the run is cut. *Side writes* are what the file system writes on its
//! own account: indirect blocks and bitmaps in place, a journal at a commit. They cost the device
//! time and nobody waits for them.
//!
//! Invariants
//!   1. A page has one block until it is truncated or, with copy on write, written again.
//!   2. Blocks of two files never coincide until the cursor has gone round the device.
//!   3. The same calls give the same blocks: no chance, no clock but `now`.
//!
//! Source: experiments A2, E; Linux 2.6.36 fs/ext2/balloc.c and fs/ext3/balloc.c (reservation
//! windows up to 1024 blocks), fs/ext4/mballoc.c (stream allocation, requests normalised to 8 MiB),
//! fs/xfs/xfs_iomap.c (speculative preallocation), fs/jbd/journal.c (commit interval 5 s),
//! fs/btrfs/disk-io.c (transaction every 30 s). Numbers of side writes are GUESSes that make the
//! before column of A2's real times; each says so.
//! Deviations: freed blocks are not used again before the cursor comes round.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use env::ObjectId;
use policy::units::{Instant, Nanos, Pages};

use crate::model::params::parameters;

/// Blocks kept free at the start for the superblock and the journal.
const JOURNAL_PAGES: u64 = 32_768;

parameters! {
    /// The layout of a file system. The defaults are those of a plain device.
    LayoutParams, "layout" {
        /// Run that a file reserves at a time.
        window_pages: 16_384, Pages, 1..=1 << 32, "none: one run of 64 MiB after another";
        /// Blocks of a block group; 0: none.
        group_pages: 0, Pages, 0..=1 << 32, "none";
        /// Blocks at the start of a group that hold no data.
        group_head_pages: 0, Pages, 0..=1 << 20, "none";
        /// Data blocks per indirect block; 0: extents.
        indirect_pages: 0, Pages, 0..=1 << 32, "none";
        /// Blocks of bitmaps, descriptors and inodes written with every indirect block.
        indirect_side_writes: 0, Count, 0..=64, "none";
        /// Journal or transaction commit; 0: never.
        commit_us: 0, Micros, 0..=86_400_000_000, "none";
        /// Blocks a commit writes at least.
        commit_pages: 0, Count, 0..=1 << 20, "none";
        /// Bytes of one block that the file system writes on its own account.
        side_bytes: 4096, Transfer, 1..=1 << 20, "block size; shrinks with the scale as there are as many in a run";
        /// A commit ends with a flush of the device.
        commit_barrier: 0, Flag, 0..=1, "none";
        /// 1: side writes go to the journal first and in place at the commit.
        journalled: 0, Flag, 0..=1, "none";
        /// 1: a page written again gets a new block.
        copy_on_write: 0, Flag, 0..=1, "none";
        /// 1: blocks are numbers only; nothing is placed.
        abstract_blocks: 0, Flag, 0..=1, "none";
    }
}

/// ext2: groups of 128 MiB; after every 4 MiB slice of data the flusher visits the block device's
/// own pages and writes the indirect block, bitmaps, group descriptors, an inode block and the
/// superblock. The number of side writes is a GUESS fitted to A2's 236 s.
pub(super) const EXT2: LayoutParams = LayoutParams {
    window_pages: 1_024,
    group_pages: 32_768,
    group_head_pages: 516,
    indirect_pages: 1_024,
    indirect_side_writes: 6,
    ..LayoutParams::DEFAULT
};

/// ext3: as ext2; what ext2 writes at once goes to the journal and in place after a commit. The
/// number of side writes is a GUESS fitted to A2's 226 s. No barriers by default in 2010.
pub(super) const EXT3: LayoutParams = LayoutParams {
    window_pages: 1_024,
    group_pages: 32_768,
    group_head_pages: 516,
    indirect_pages: 1_024,
    indirect_side_writes: 4,
    commit_us: 5_000_000,
    commit_pages: 8,
    journalled: 1,
    ..LayoutParams::DEFAULT
};

/// ext4: extents; large files of all writers come from one stream, as they are written. The bound
/// of a file's reservation, a request at a time, is a GUESS from E: ten dd on a stick are nearly as
/// fast as one (with the 8 MiB of a normalised request they would not be).
pub(super) const EXT4: LayoutParams = LayoutParams {
    window_pages: 256,
    group_pages: 524_288, // flexible groups: the heads of 16 groups lie together
    group_head_pages: 8_256,
    commit_us: 5_000_000,
    commit_pages: 8,
    commit_barrier: 1,
    ..LayoutParams::DEFAULT
};

/// xfs: large extents beyond the end of each file; little logging for a growing file (30 s).
pub(super) const XFS: LayoutParams = LayoutParams {
    window_pages: 16_384,
    commit_us: 30_000_000,
    commit_pages: 8,
    commit_barrier: 1,
    ..LayoutParams::DEFAULT
};

/// btrfs: every extent new, allocated as it is written; trees rewritten and flushed with each
/// transaction.
pub(super) const BTRFS: LayoutParams = LayoutParams {
    window_pages: 256,
    commit_us: 30_000_000,
    commit_pages: 256,
    commit_barrier: 1,
    copy_on_write: 1,
    ..LayoutParams::DEFAULT
};

/// vfat: clusters as they are free, in long runs on a stick that is fresh; the table (a sector of
/// it for a mebibyte of data, and its copy) and the directory's entry are rewritten in place after
/// every 4 MiB slice of data. Their number of blocks at a time is a GUESS: two copies of the table
/// and the entry.
pub(super) const VFAT: LayoutParams = LayoutParams {
    window_pages: 16_384,
    indirect_pages: 1_024,
    indirect_side_writes: 3,
    ..LayoutParams::DEFAULT
};

/// A block device read as it is: one object from its first block to its last, in runs as long as
/// there are.
pub(super) const RAW: LayoutParams = LayoutParams {
    window_pages: 262_144,
    ..LayoutParams::DEFAULT
};

/// The client of NFS knows no blocks.
pub(super) const NFS: LayoutParams = LayoutParams {
    abstract_blocks: 1,
    ..LayoutParams::DEFAULT
};

/// Pages of a file that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block; none for a hole.
    pub block: Option<u64>,
    /// Their number.
    pub pages: u32,
}

/// A write on the file system's own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// First block.
    pub block: u64,
    /// Their number.
    pub pages: u32,
    /// Not a write but a flush.
    pub barrier: bool,
}

/// The places of everything.
#[derive(Clone, Debug)]
pub struct Layout {
    params: LayoutParams,
    span: u64,
    cursor: u64,
    files: BTreeMap<ObjectId, File>,
    /// Side writes waiting for the next commit.
    journalled: Vec<Side>,
    commit_due: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// First page -> (first block, pages).
    runs: BTreeMap<u64, Run>,
    window: Run,
    /// Data blocks given since the last indirect block.
    since_indirect: u64,
    /// Indirect blocks not yet written, and data written since the last indirect block that was.
    indirects: VecDeque<u64>,
    written: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    block: u64,
    pages: u64,
}

impl Layout {
    /// An empty device of `span` pages.
    ///
    /// # Panics
    /// If there is no room for the journal and one window.
    #[must_use]
    pub fn new(params: &LayoutParams, span: Pages) -> Self {
        assert!(
            span.0 > JOURNAL_PAGES + params.window_pages + params.group_head_pages,
            "a device of {span:?} is too small for a file system"
        );
        Self {
            params: params.clone(),
            span: span.0,
            cursor: JOURNAL_PAGES,
            files: BTreeMap::new(),
            journalled: Vec::new(),
            commit_due: None,
        }
    }

    /// A device whose blocks are numbers only.
    #[must_use]
    pub fn plain() -> Self {
        Self::new(&NFS, Pages(u64::MAX))
    }

    /// True if giving space to an object is written anywhere: not by a client or a bare device.
    #[must_use]
    pub fn logs_allocation(&self) -> bool {
        self.params.abstract_blocks == 0
    }

    /// Block where metadata operations are logged.
    #[must_use]
    pub fn journal(&self) -> u64 {
        0
    }

    /// Blocks of pages that are to be read; holes among them.
    pub fn map_read(&self, object: ObjectId, first: u64, pages: u32, out: &mut Vec<Extent>) {
        if self.params.abstract_blocks == 1 {
            out.push(Extent {
                block: Some(number(object, first)),
                pages,
            });
            return;
        }
        let end = first + u64::from(pages);
        let mut page = first;
        while page < end {
            let (run, left) = self
                .files
                .get(&object)
                .map_or((None, u64::MAX), |file| file.at(page));
            let pages = left.min(end - page);
            out.push(Extent {
                block: run,
                pages: narrow(pages),
            });
            page += pages;
        }
    }

    /// Blocks of pages that are to be written, given to them if they have none; and what the file
    /// system writes beside them.
    pub fn map_write(
        &mut self,
        object: ObjectId,
        first: u64,
        pages: u32,
        now: Instant,
        out: &mut Vec<Extent>,
        sides: &mut Vec<Side>,
    ) {
        if self.params.abstract_blocks == 1 {
            out.push(Extent {
                block: Some(number(object, first)),
                pages,
            });
            return;
        }
        let end = first + u64::from(pages);
        if self.params.copy_on_write == 1 {
            self.file(object).cut(first, end);
        }
        let mut page = first;
        while page < end {
            let (run, left) = self
                .files
                .get(&object)
                .map_or((None, u64::MAX), |file| file.at(page));
            let wanted = left.min(end - page);
            let (block, got) = match run {
                Some(block) => (block, wanted),
                None => self.give(object, page, wanted),
            };
            push_extent(out, block, got);
            page += got;
        }
        self.note_written(object, u64::from(pages), sides);
        self.commit(now, sides);
    }

    /// Gives blocks to a range of the object's pages.
    pub fn allocate(&mut self, object: ObjectId, pages: Range<u64>) {
        if self.params.abstract_blocks == 1 {
            return;
        }
        let mut page = pages.start;
        while page < pages.end {
            let (run, left) = self.file(object).at(page);
            let wanted = left.min(pages.end - page);
            page += match run {
                Some(_) => wanted,
                None => self.give(object, page, wanted).1,
            };
        }
    }

    /// `allocate` for content that stands there before the run: its metadata too.
    pub fn place(&mut self, object: ObjectId, pages: Pages) {
        self.allocate(object, 0..pages.0);
        self.file(object).indirects.clear();
    }

    /// Makes an object of the blocks kept free at the start: the log, and places of metadata.
    pub fn place_log(&mut self, object: ObjectId) {
        let run = Run {
            block: self.journal(),
            pages: JOURNAL_PAGES,
        };
        self.file(object).join(0, run);
    }

    /// Bytes of a block of the file system's own, on a machine of this size.
    #[must_use]
    pub fn side_bytes(&self) -> u64 {
        self.params.side_bytes
    }

    /// Takes the blocks beyond the first `pages` pages away.
    pub fn truncate(&mut self, object: ObjectId, pages: Pages) {
        if let Some(file) = self.files.get_mut(&object) {
            file.cut(pages.0, u64::MAX);
        }
    }

    /// Runs that the object lies in: 1 if it is in one piece.
    #[must_use]
    pub fn fragments(&self, object: ObjectId) -> usize {
        self.files.get(&object).map_or(0, |file| file.runs.len())
    }

    fn file(&mut self, object: ObjectId) -> &mut File {
        self.files.entry(object).or_default()
    }

    /// Gives up to `wanted` blocks in one run; answers the first and how many.
    fn give(&mut self, object: ObjectId, page: u64, wanted: u64) -> (u64, u64) {
        let mut file = self.files.remove(&object).unwrap_or_default();
        let indirect = self.params.indirect_pages;
        if indirect > 0 && file.since_indirect == indirect {
            file.since_indirect = 0;
            self.indirect(&mut file);
        }
        if file.window.pages == 0 {
            file.window = self.reserve();
        }
        let room = if indirect > 0 {
            indirect - file.since_indirect
        } else {
            u64::MAX
        };
        let got = wanted.min(file.window.pages).min(room);
        let block = file.window.block;
        file.window = Run {
            block: block + got,
            pages: file.window.pages - got,
        };
        file.since_indirect += got;
        file.join(page, Run { block, pages: got });
        self.files.insert(object, file);
        (block, got)
    }

    /// Stands an indirect block into the file's own window; it is written when its data are.
    fn indirect(&mut self, file: &mut File) {
        if file.window.pages == 0 {
            file.window = self.reserve();
        }
        let block = file.window.block;
        file.window = Run {
            block: block + 1,
            pages: file.window.pages - 1,
        };
        file.indirects.push_back(block);
    }

    /// Notes pages of a file that are written; what goes with every indirect block's worth of them.
    fn note_written(&mut self, object: ObjectId, pages: u64, sides: &mut Vec<Side>) {
        let LayoutParams {
            indirect_pages,
            group_pages,
            group_head_pages,
            ..
        } = self.params;
        let side_writes = self.params.indirect_side_writes;
        if indirect_pages == 0 {
            return;
        }
        let file = self.files.entry(object).or_default();
        file.written += pages;
        let into = if self.params.journalled == 1 {
            &mut self.journalled
        } else {
            sides
        };
        while file.written >= indirect_pages {
            file.written -= indirect_pages;
            let Some(block) = file.indirects.pop_front() else {
                continue;
            };
            into.push(Side::write(block, 1));
            // Bitmaps, descriptors, inodes: at the head of the group, apart from one another.
            let group = block - block.checked_rem(group_pages).unwrap_or(block);
            let apart = (group_head_pages / side_writes.max(1)).max(1);
            into.extend((1..side_writes).map(|at| Side::write(group + at * apart, 1)));
        }
    }

    /// The next window, past the head of a group.
    fn reserve(&mut self) -> Run {
        let window = self.params.window_pages;
        if self.cursor + window > self.span {
            self.cursor = JOURNAL_PAGES;
        }
        let mut pages = window;
        if self.params.group_pages > 0 {
            let within = self.cursor % self.params.group_pages;
            if within < self.params.group_head_pages {
                self.cursor += self.params.group_head_pages - within;
            }
            let within = self.cursor % self.params.group_pages;
            pages = pages.min(self.params.group_pages - within);
        }
        let block = self.cursor;
        self.cursor += pages;
        Run { block, pages }
    }

    /// Commits if the time has come: the journal, then what waited for it, then a barrier.
    fn commit(&mut self, now: Instant, sides: &mut Vec<Side>) {
        if self.params.commit_us == 0 {
            return;
        }
        let period = Nanos::micros(self.params.commit_us);
        let due = *self.commit_due.get_or_insert(now + period);
        if now < due {
            return;
        }
        self.commit_due = Some(now + period);
        let logged = narrow(self.params.commit_pages) + narrow(self.journalled.len() as u64);
        sides.push(Side::write(self.journal(), logged));
        sides.append(&mut self.journalled);
        if self.params.commit_barrier == 1 {
            sides.push(Side {
                block: self.journal() + u64::from(logged),
                pages: 0,
                barrier: true,
            });
        }
    }
}

impl Side {
    fn write(block: u64, pages: u32) -> Self {
        Self {
            block,
            pages,
            barrier: false,
        }
    }
}

impl File {
    /// Block of a page, if it has one; and for how many pages that answer goes on.
    fn at(&self, page: u64) -> (Option<u64>, u64) {
        if let Some((first, run)) = self.runs.range(..=page).next_back()
            && page < first + run.pages
        {
            return (Some(run.block + (page - first)), first + run.pages - page);
        }
        let next = self
            .runs
            .range(page..)
            .next()
            .map_or(u64::MAX, |(first, _)| *first);
        (None, next - page)
    }

    /// Adds a run, joined to the one before it if it goes on there.
    fn join(&mut self, page: u64, run: Run) {
        if let Some((first, last)) = self.runs.range_mut(..page).next_back()
            && first + last.pages == page
            && last.block + last.pages == run.block
        {
            last.pages += run.pages;
            return;
        }
        self.runs.insert(page, run);
    }

    /// Forgets the blocks of pages `from..to`.
    fn cut(&mut self, from: u64, to: u64) {
        if let Some((first, run)) = self
            .runs
            .range(..from)
            .next_back()
            .map(|(at, run)| (*at, *run))
        {
            let end = first + run.pages;
            if end > from {
                self.runs.insert(
                    first,
                    Run {
                        block: run.block,
                        pages: from - first,
                    },
                );
                if end > to {
                    let tail = Run {
                        block: run.block + (to - first),
                        pages: end - to,
                    };
                    self.runs.insert(to, tail);
                }
            }
        }
        while let Some((first, run)) = self
            .runs
            .range(from..to)
            .next()
            .map(|(at, run)| (*at, *run))
        {
            self.runs.remove(&first);
            let end = first + run.pages;
            if end > to {
                self.runs.insert(
                    to,
                    Run {
                        block: run.block + (to - first),
                        pages: end - to,
                    },
                );
            }
        }
    }
}

/// Joins an extent to the last one if it goes on there.
fn push_extent(out: &mut Vec<Extent>, block: u64, pages: u64) {
    if let Some(last) = out.last_mut()
        && last
            .block
            .is_some_and(|start| start + u64::from(last.pages) == block)
    {
        last.pages += narrow(pages);
        return;
    }
    out.push(Extent {
        block: Some(block),
        pages: narrow(pages),
    });
}

fn narrow(pages: u64) -> u32 {
    u32::try_from(pages).expect("no longer than a request or a journal")
}

/// A block's number where nothing is placed: far apart for different objects.
fn number(object: ObjectId, page: u64) -> u64 {
    (u64::from(object.0) << 32) + page
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Pages = Pages(1 << 27);

    fn write(layout: &mut Layout, object: u32, first: u64, pages: u32) -> Vec<Extent> {
        let mut out = Vec::new();
        layout.map_write(
            ObjectId(object),
            first,
            pages,
            Instant::ZERO,
            &mut out,
            &mut Vec::new(),
        );
        out
    }

    fn layout(name: &str) -> Layout {
        crate::fs::by_name(name).unwrap().layout(SPAN, 1)
    }

    #[test]
    fn one_writer_of_ext4_and_xfs_lies_in_one_piece() {
        for name in ["ext4", "xfs"] {
            let mut layout = layout(name);
            for at in 0..100 {
                assert_eq!(
                    write(&mut layout, 0, at * 256, 256)
                        .iter()
                        .map(|e| e.pages)
                        .sum::<u32>(),
                    256
                );
            }
            assert!(layout.fragments(ObjectId(0)) <= 2, "{name}");
        }
    }

    #[test]
    fn indirect_blocks_interrupt_ext2_every_4_mib() {
        let mut layout = layout("ext2");
        let mut sides = Vec::new();
        let mut out = Vec::new();
        layout.map_write(ObjectId(0), 0, 4096, Instant::ZERO, &mut out, &mut sides);
        assert_eq!(layout.fragments(ObjectId(0)), 4);
        assert_eq!(sides.len(), 18, "six after each of the first three slices");
    }

    #[test]
    fn writers_at_once_are_in_sequence_on_ext4_and_apart_on_xfs() {
        let mut distances = Vec::new();
        for name in ["ext4", "xfs"] {
            let mut layout = layout(name);
            let (mut head, mut moved) = (0, 0);
            for turn in 0..64 {
                for object in 0..10 {
                    for extent in write(&mut layout, object, turn * 2048, 2048) {
                        let block = extent.block.unwrap();
                        moved += u64::from(block != head);
                        head = block + u64::from(extent.pages);
                    }
                }
            }
            distances.push(moved);
        }
        assert!(
            distances[0] <= 64,
            "ext4 moves the head {} times in 640 turns",
            distances[0]
        );
        assert!(
            distances[1] >= 500,
            "xfs moves the head {} times in 640 turns",
            distances[1]
        );
    }

    #[test]
    fn no_two_files_share_a_block_and_a_page_keeps_its_own() {
        for name in crate::fs::NAMES {
            let mut layout = layout(name);
            let mut taken = std::collections::BTreeSet::new();
            for turn in 0..40 {
                for object in 0..3 {
                    let first = write(&mut layout, object, turn * 100, 100);
                    for extent in &first {
                        for at in 0..u64::from(extent.pages) {
                            assert!(taken.insert(extent.block.unwrap() + at), "{name}");
                        }
                    }
                    let mut read = Vec::new();
                    layout.map_read(ObjectId(object), turn * 100, 100, &mut read);
                    let blocks = |extents: &[Extent]| -> Vec<u64> {
                        extents
                            .iter()
                            .flat_map(|e| (0..u64::from(e.pages)).map(|at| e.block.unwrap() + at))
                            .collect()
                    };
                    assert_eq!(blocks(&read), blocks(&first), "{name}");
                }
            }
        }
    }

    #[test]
    fn copy_on_write_moves_and_the_others_stay() {
        for (name, stays) in [("btrfs", false), ("ext4", true), ("ext2", true)] {
            let mut layout = layout(name);
            let before = write(&mut layout, 0, 0, 300);
            let again = write(&mut layout, 0, 100, 100);
            let old = before[0].block.unwrap() + 100;
            assert_eq!(again[0].block == Some(old), stays, "{name}");
            let mut read = Vec::new();
            layout.map_read(ObjectId(0), 0, 300, &mut read);
            assert_eq!(read.iter().map(|extent| extent.pages).sum::<u32>(), 300);
            assert!(read.iter().all(|extent| extent.block.is_some()));
        }
    }

    #[test]
    fn what_was_never_written_or_was_cut_off_is_a_hole() {
        let mut layout = layout("ext4");
        write(&mut layout, 0, 10, 20);
        layout.truncate(ObjectId(0), Pages(15));
        let mut read = Vec::new();
        layout.map_read(ObjectId(0), 0, 40, &mut read);
        let shape: Vec<_> = read.iter().map(|e| (e.block.is_some(), e.pages)).collect();
        assert_eq!(shape, [(false, 10), (true, 5), (false, 25)]);
    }

    #[test]
    fn a_journal_commits_every_period_and_only_then_writes_in_place() {
        let mut layout = layout("ext3");
        let at = |layout: &mut Layout, first: u64, seconds: u64| {
            let (mut out, mut sides) = (Vec::new(), Vec::new());
            let now = Instant::ZERO + Nanos::secs(seconds);
            layout.map_write(ObjectId(0), first, 2048, now, &mut out, &mut sides);
            sides
        };
        assert!(at(&mut layout, 0, 0).is_empty());
        assert!(at(&mut layout, 2048, 4).is_empty());
        let committed = at(&mut layout, 4096, 5);
        assert_eq!(committed[0].block, layout.journal());
        assert!(committed.len() > 5, "{committed:?}");
        assert!(at(&mut layout, 6144, 6).is_empty());
    }
}

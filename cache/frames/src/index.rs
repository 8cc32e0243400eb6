//! The page index of a file: a 64-way radix tree with tags, readers without locks.
//!
//! ```text
//!   root: height 2 ----> node, level 1        marks of an inner node say what lies below:
//!                         |0|1| ... |63|      Dirty ......1   a dirty page somewhere in child 0
//!                          |
//!                          v
//!                        leaf, level 0        page number = 6 bits for each level
//!                         |F| |S| ... |F|     F: a frame, S: a shadow of an evicted page
//! ```
//!
//! Vocabulary: a *mark* is one bit per slot of a node: the three tags, "a frame", "a shadow". In an
//! inner node it is set exactly if the child's word of that mark is not zero; so walks over a range
//! skip whole subtrees and, in a node, find the next page by one bit scan.
//!
//! Invariants
//!   1. A bit of an inner node is set exactly if the child has any of that mark.
//!   2. A tag implies the mark `Frame`. `Frame` and `Shadow` exclude each other in a leaf.
//!   3. Every node in the tree holds a frame or a shadow below it; the root has more than its first
//!      child, or is a leaf. Empty nodes go back to the pool at once.
//!   4. A node in the pool has empty slots and no marks.
//!
//! Concurrency: writers of one index are serialised by the [`WriteToken`], which lives in the lock
//! around them. Readers ([`PageIndex::get`]) take nothing and may walk through a node that has been
//! freed, or freed and taken by another index. That is harmless: nodes are numbers in a pool that
//! never shrinks, each slot says itself what it holds, and a walk is as long as the root's height.
//! Such a reader gets a wrong answer: a frame of another page, which `FrameTable::try_pin` refuses
//! as `Gone`, or "nothing", which its caller takes as a miss and looks up again as a writer. It
//! never gets a frame that was not put into an index, and every answer was put there before
//! (acquire), so the frame's owner was, too.
//!
//! Source: Linux v6.12 lib/xarray.c, include/linux/xarray.h (marks and their propagation, shadow
//! entries as values). Deviations: no RCU, see above; presence is a mark as well; no entry in the
//! root itself: a file of one page takes a node; no multi-index entries.

mod node;

use core::fmt;
use core::sync::atomic::{AtomicU64 as PlainU64, Ordering as PlainOrdering};

use crate::FrameId;
use crate::sync::{AtomicU64, Ordering};

pub(crate) use node::Node;
pub use node::NodePool;
use node::{Entry, HEIGHT_MAX, LEVEL_BITS, Mark, NIL, SLOTS};

#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// The shadow that an evicted page leaves behind (30 bits of the caller's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow(pub u32);

impl Shadow {
    /// Number of bits of a shadow.
    pub const BITS: u32 = 30;
}

/// The entry at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing.
    Empty,
    /// A cached page.
    Frame(FrameId),
    /// A page was evicted from here.
    Shadow(Shadow),
}

/// Searchable marks of a cached page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Dirty.
    Dirty,
    /// Under writeback.
    Writeback,
    /// Chosen by the sync that is running.
    ToWrite,
}

/// The pool has no node left: reclaim pages or shadows, then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNodes;

impl fmt::Display for NoNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool of index nodes is used up: free pages or shadows of some file")
    }
}

impl core::error::Error for NoNodes {}

/// The index of one file.
///
/// Its nodes go back to the pool when its pages and shadows are removed, not when it is dropped (it
/// does not know its pool): empty it first, see [`PageIndex::is_empty`].
pub struct PageIndex {
    /// A packed [`Root`].
    root: AtomicU64,
    id: u64,
}

/// The right to change one index; lives inside the lock that serialises its writers. Remembers the
/// last leaf, so that neighbours cost no walk.
#[derive(Debug)]
pub struct WriteToken {
    id: u64,
    /// A packed [`Leaf`]. An atomic only so that the token is `Sync`: one thread at a time uses it.
    leaf: PlainU64,
}

/// Changes to one index.
pub struct IndexWriter<'a> {
    index: &'a PageIndex,
    pool: &'a NodePool,
    token: &'a WriteToken,
}

/// A leaf and the pages it is for (page number / 64).
#[derive(Clone, Copy, Debug)]
struct Leaf {
    node: u32,
    base: u32,
}

/// The top of a tree. In one word: bits 32.. the height (0: no tree), below it the node.
#[derive(Clone, Copy)]
struct Root {
    node: u32,
    height: u32,
}

/// A marked page.
struct Found {
    index: u32,
    leaf: u32,
}

impl PageIndex {
    /// An empty index and the only right to change it.
    #[must_use]
    pub fn new() -> (Self, WriteToken) {
        // Only compared for equality: no behaviour depends on the number.
        static IDS: PlainU64 = PlainU64::new(0);
        let id = IDS.fetch_add(1, PlainOrdering::Relaxed);
        (
            Self {
                root: AtomicU64::new(0),
                id,
            },
            WriteToken {
                id,
                leaf: PlainU64::new(Leaf::NONE.packed()),
            },
        )
    }

    /// Looks an index up without a lock. The answer may be stale: pin the frame and compare its
    /// owner; look `Empty` and `Shadow` up again through a writer before acting on them.
    #[inline]
    #[must_use]
    pub fn get(&self, pool: &NodePool, index: u32) -> Slot {
        // Acquire: the nodes below were linked before.
        let root = Root::unpacked(self.root.load(Ordering::Acquire));
        if !root.covers(index) {
            return Slot::Empty;
        }
        let mut node = root.node;
        for level in (1..root.height).rev() {
            match pool.node(node).entry(slot_at(index, level)).as_node() {
                Some(child) => node = child,
                None => return Slot::Empty,
            }
        }
        pool.node(node).entry(slot_at(index, 0)).as_slot()
    }

    /// True if nothing, not even a shadow, is in the index: it holds no nodes (a hint beside
    /// writers).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Root::unpacked(self.root.load(Ordering::Relaxed)).height == 0
    }

    /// Changes the index. `pool` must be the same at every call.
    ///
    /// # Panics
    /// If `token` is not the token that `new` gave with this index.
    #[inline]
    #[must_use]
    pub fn writer<'a>(&'a self, pool: &'a NodePool, token: &'a mut WriteToken) -> IndexWriter<'a> {
        assert!(token.id == self.id, "the write token of another index");
        IndexWriter {
            index: self,
            pool,
            token,
        }
    }
}

impl IndexWriter<'_> {
    /// Looks up (exact: writers are serialised).
    #[inline]
    #[must_use]
    pub fn get(&self, index: u32) -> Slot {
        self.leaf(index).map_or(Slot::Empty, |leaf| {
            self.node(leaf).entry(slot_at(index, 0)).as_slot()
        })
    }

    /// Puts a frame where `Empty` or a `Shadow` stands; answers what stood there.
    ///
    /// # Errors
    /// No node left; nothing changed.
    ///
    /// # Panics
    /// If a frame stands there.
    #[inline]
    pub fn insert(&mut self, index: u32, frame: FrameId) -> Result<Slot, NoNodes> {
        let leaf = match self.leaf(index) {
            Some(leaf) => leaf,
            None => self.build_leaf(index)?,
        };
        let slot = slot_at(index, 0);
        let before = self.node(leaf).entry(slot).as_slot();
        assert!(
            !matches!(before, Slot::Frame(_)),
            "page {index} is cached already: {before:?}"
        );
        self.node(leaf).put(slot, Entry::frame(frame));
        self.mark(leaf, 1 << slot, Mark::Frame);
        if matches!(before, Slot::Shadow(_)) {
            self.unmark(leaf, 1 << slot, Mark::Shadow);
        }
        Ok(before)
    }

    /// Replaces the frame that stands there, tags kept; answers the old one.
    ///
    /// # Panics
    /// If there is none.
    pub fn replace(&mut self, index: u32, frame: FrameId) -> FrameId {
        let (leaf, old) = self.cached(index);
        self.node(leaf).put(slot_at(index, 0), Entry::frame(frame));
        old
    }

    /// Removes a frame with its tags, leaving a shadow or nothing; empty nodes go back to the pool.
    /// Answers what stood there; if that was not a frame, nothing changed.
    pub fn remove(&mut self, index: u32, leave: Option<Shadow>) -> Slot {
        let Some(leaf) = self.leaf(index) else {
            return Slot::Empty;
        };
        let slot = slot_at(index, 0);
        let before = self.node(leaf).entry(slot).as_slot();
        if !matches!(before, Slot::Frame(_)) {
            return before;
        }
        self.node(leaf)
            .put(slot, leave.map_or(Entry::EMPTY, Entry::shadow));
        for tag in Mark::TAGS {
            self.unmark(leaf, 1 << slot, tag);
        }
        if leave.is_some() {
            self.mark(leaf, 1 << slot, Mark::Shadow);
        }
        self.unmark(leaf, 1 << slot, Mark::Frame);
        self.prune(leaf);
        before
    }

    /// Sets a tag on a cached page; answers whether it was set before.
    ///
    /// # Panics
    /// If no page is cached there.
    #[inline]
    pub fn set_tag(&mut self, index: u32, tag: Tag) -> bool {
        let (leaf, _) = self.cached(index);
        self.mark(leaf, 1 << slot_at(index, 0), tag.into())
    }

    /// Clears a tag; answers whether it was set.
    #[inline]
    pub fn clear_tag(&mut self, index: u32, tag: Tag) -> bool {
        self.leaf(index)
            .is_some_and(|leaf| self.unmark(leaf, 1 << slot_at(index, 0), tag.into()))
    }

    /// True if a tag is set.
    #[inline]
    #[must_use]
    pub fn has_tag(&self, index: u32, tag: Tag) -> bool {
        self.leaf(index)
            .is_some_and(|leaf| self.node(leaf).marks(tag.into()) >> slot_at(index, 0) & 1 == 1)
    }

    /// The first page in `from..=to` with the tag.
    #[inline]
    #[must_use]
    pub fn next_tagged(&self, from: u32, to: u32, tag: Tag) -> Option<(u32, FrameId)> {
        self.next_marked(from, to, tag.into())
            .map(|found| self.frame_of(&found))
    }

    /// The first cached page in `from..=to`.
    #[inline]
    #[must_use]
    pub fn next_frame(&self, from: u32, to: u32) -> Option<(u32, FrameId)> {
        self.next_marked(from, to, Mark::Frame)
            .map(|found| self.frame_of(&found))
    }

    /// Sets `set` on at most `max` pages of `from..=to` that have `when`; answers where to go on,
    /// `None` when done.
    ///
    /// # Panics
    /// If `max` is zero: the caller would never be done.
    #[must_use]
    pub fn tag_range(&mut self, from: u32, to: u32, when: Tag, set: Tag, max: u32) -> Option<u32> {
        assert!(max > 0, "no progress could be made");
        let (mut at, mut left) = (from, max);
        while let Some(found) = self.next_marked(at, to, when.into()) {
            if left == 0 {
                return Some(found.index);
            }
            let in_reach =
                self.node(found.leaf).marks(when.into()) & range_in_leaf(found.index, to);
            let chosen = lowest_bits(in_reach, left);
            self.mark(found.leaf, chosen, set.into());
            left -= chosen.count_ones();
            at = last_of(found.index, chosen).checked_add(1)?;
        }
        None
    }

    /// Removes up to `max` shadows in `from..=to`; answers how many went.
    #[must_use]
    pub fn remove_shadows(&mut self, from: u32, to: u32, max: u32) -> u32 {
        let mut left = max;
        let mut next = Some(from);
        while left > 0
            && let Some(found) = next.and_then(|at| self.next_marked(at, to, Mark::Shadow))
        {
            let in_reach =
                self.node(found.leaf).marks(Mark::Shadow) & range_in_leaf(found.index, to);
            let chosen = lowest_bits(in_reach, left);
            for slot in bits(chosen) {
                self.node(found.leaf).put(slot, Entry::EMPTY);
            }
            self.unmark(found.leaf, chosen, Mark::Shadow);
            self.prune(found.leaf);
            left -= chosen.count_ones();
            next = last_of(found.index, chosen).checked_add(1);
        }
        max - left
    }

    #[inline]
    fn node(&self, node: u32) -> &Node {
        self.pool.node(node)
    }

    fn root(&self) -> Root {
        // Relaxed: only writers store it, and the token's lock has ordered them.
        Root::unpacked(self.index.root.load(Ordering::Relaxed))
    }

    fn put_root(&self, root: Root) {
        // Release: for the acquire in `get`.
        self.index.root.store(root.packed(), Ordering::Release);
    }

    /// The leaf for a page, if it is there.
    #[inline]
    fn leaf(&self, index: u32) -> Option<u32> {
        let last = self.token.last_leaf();
        if last.base == index / SLOTS {
            Some(last.node)
        } else {
            self.walk_to_leaf(index)
        }
    }

    fn walk_to_leaf(&self, index: u32) -> Option<u32> {
        let root = self.root();
        if !root.covers(index) {
            return None;
        }
        let mut node = root.node;
        for level in (1..root.height).rev() {
            node = self.node(node).entry(slot_at(index, level)).as_node()?;
        }
        self.token.remember(Leaf {
            node,
            base: index / SLOTS,
        });
        Some(node)
    }

    /// The leaf and the frame of a page that is cached.
    #[inline]
    fn cached(&self, index: u32) -> (u32, FrameId) {
        let leaf = self.leaf(index);
        match leaf.map(|leaf| (leaf, self.node(leaf).entry(slot_at(index, 0)).as_slot())) {
            Some((leaf, Slot::Frame(frame))) => (leaf, frame),
            other => panic!("page {index} is not cached: {other:?}"),
        }
    }

    fn frame_of(&self, found: &Found) -> (u32, FrameId) {
        match self
            .node(found.leaf)
            .entry(slot_at(found.index, 0))
            .as_slot()
        {
            Slot::Frame(frame) => (found.index, frame),
            other => panic!(
                "page {} is marked as cached, but holds {other:?}",
                found.index
            ),
        }
    }

    /// Makes the path to a page that has no leaf yet. Its nodes are empty until the caller marks a
    /// page.
    #[cold]
    fn build_leaf(&mut self, index: u32) -> Result<u32, NoNodes> {
        let root = self.root();
        let height = height_for(index).max(root.height);
        let missing = if root.height == 0 {
            height
        } else if height > root.height {
            (height - root.height) + (height - 1)
        } else {
            self.missing_below(root, index)
        };
        let mut reserve = self.pool.try_reserve(missing)?;
        let mut fresh = || {
            reserve
                .pop()
                .expect("as many nodes were reserved as are missing")
        };

        if root.height == 0 {
            let top = fresh();
            self.node(top).move_to(NIL, height - 1, 0);
            self.put_root(Root { node: top, height });
        }
        while self.root().height < height {
            self.grow(fresh());
        }
        let mut node = self.root().node;
        for level in (1..height).rev() {
            let slot = slot_at(index, level);
            node = if let Some(child) = self.node(node).entry(slot).as_node() {
                child
            } else {
                let child = fresh();
                self.node(child).move_to(node, level - 1, slot);
                self.node(node).put(slot, Entry::node(child));
                child
            };
        }
        self.token.remember(Leaf {
            node,
            base: index / SLOTS,
        });
        Ok(node)
    }

    /// Number of nodes that the path to `index` lacks below a root that is high enough.
    fn missing_below(&self, root: Root, index: u32) -> u32 {
        let mut node = root.node;
        for level in (1..root.height).rev() {
            match self.node(node).entry(slot_at(index, level)).as_node() {
                Some(child) => node = child,
                None => return level,
            }
        }
        0
    }

    /// Puts `top` above the root.
    fn grow(&self, top: u32) {
        let root = self.root();
        self.node(top).move_to(NIL, root.height, 0);
        for mark in Mark::ALL {
            self.node(top)
                .put_marks(mark, u64::from(self.node(root.node).marks(mark) != 0));
        }
        self.node(top).put(0, Entry::node(root.node));
        self.node(root.node).move_to(top, root.height - 1, 0);
        self.put_root(Root {
            node: top,
            height: root.height + 1,
        });
    }

    /// Sets the mark on some slots of a leaf, and upwards as far as it is news. Answers whether one
    /// had it.
    #[inline]
    fn mark(&self, leaf: u32, bits: u64, mark: Mark) -> bool {
        let before = self.node(leaf).marks(mark);
        self.node(leaf).put_marks(mark, before | bits);
        if before == 0 {
            self.mark_above(leaf, mark);
        }
        before & bits != 0
    }

    #[cold]
    fn mark_above(&self, leaf: u32, mark: Mark) {
        let mut child = leaf;
        while let Some(parent) = self.node(child).parent() {
            let before = self.node(parent).marks(mark);
            self.node(parent)
                .put_marks(mark, before | 1 << self.node(child).offset());
            if before != 0 {
                return;
            }
            child = parent;
        }
    }

    /// Clears the mark on some slots of a leaf, and upwards where it was the last. Answers whether
    /// one had it.
    #[inline]
    fn unmark(&self, leaf: u32, bits: u64, mark: Mark) -> bool {
        let before = self.node(leaf).marks(mark);
        if before & bits == 0 {
            return false;
        }
        self.node(leaf).put_marks(mark, before & !bits);
        if before & !bits == 0 {
            self.unmark_above(leaf, mark);
        }
        true
    }

    #[cold]
    fn unmark_above(&self, leaf: u32, mark: Mark) {
        let mut child = leaf;
        while let Some(parent) = self.node(child).parent() {
            let after = self.node(parent).marks(mark) & !(1 << self.node(child).offset());
            self.node(parent).put_marks(mark, after);
            if after != 0 {
                return;
            }
            child = parent;
        }
    }

    /// Gives a leaf back that has become empty, with all that becomes empty by that.
    #[inline]
    fn prune(&mut self, leaf: u32) {
        if self.node(leaf).occupied() == 0 {
            self.prune_empty(leaf);
        }
    }

    #[cold]
    fn prune_empty(&mut self, leaf: u32) {
        self.token.remember(Leaf::NONE);
        let mut empty = leaf;
        while self.node(empty).occupied() == 0 {
            let parent = self.node(empty).parent();
            match parent {
                Some(parent) => self
                    .node(parent)
                    .put(self.node(empty).offset(), Entry::EMPTY),
                None => self.put_root(Root::NONE),
            }
            self.pool.put(empty);
            match parent {
                Some(parent) => empty = parent,
                None => return,
            }
        }
        self.shrink();
    }

    /// Takes roots off that have nothing but their first child.
    fn shrink(&self) {
        loop {
            let root = self.root();
            let top = self.node(root.node);
            if root.height <= 1 || top.occupied() != 1 {
                return;
            }
            let child = top
                .entry(0)
                .as_node()
                .expect("an occupied slot of an inner node holds a node");
            self.node(child).move_to(NIL, root.height - 2, 0);
            self.put_root(Root {
                node: child,
                height: root.height - 1,
            });
            top.put(0, Entry::EMPTY);
            for mark in Mark::ALL {
                top.put_marks(mark, 0);
            }
            self.pool.put(root.node);
        }
    }

    /// The first page in `from..=to` with the mark: up while there is nothing to the right, down
    /// where there is.
    #[inline]
    fn next_marked(&self, from: u32, to: u32, mark: Mark) -> Option<Found> {
        let leaf = self.token.last_leaf();
        if leaf.base == from / SLOTS
            && let Some(slot) = self.node(leaf.node).next(mark, slot_at(from, 0))
        {
            let index = leaf.base * SLOTS + slot;
            return (index <= to).then_some(Found {
                index,
                leaf: leaf.node,
            });
        }
        self.search_marked(from, to, mark)
    }

    fn search_marked(&self, from: u32, to: u32, mark: Mark) -> Option<Found> {
        let root = self.root();
        if !root.covers(from) {
            return None;
        }
        // Past the last page of the tree and of the file: 2^36 at most.
        let mut at = u64::from(from);
        let (mut node, mut level) = (root.node, root.height - 1);
        while at <= u64::from(to) {
            let shift = level * LEVEL_BITS;
            let slot = u32::try_from(at >> shift & u64::from(SLOTS - 1)).expect("six bits");
            let Some(marked) = self.node(node).next(mark, slot) else {
                // On with the slot after this node in its parent, or after the parent in the
                // parent's.
                loop {
                    let offset = self.node(node).offset();
                    node = self.node(node).parent()?;
                    level += 1;
                    if offset + 1 < SLOTS {
                        at = ((at >> (level * LEVEL_BITS)) + 1) << (level * LEVEL_BITS);
                        break;
                    }
                }
                continue;
            };
            if marked != slot {
                at = ((at >> shift) + u64::from(marked - slot)) << shift;
            }
            if level == 0 {
                let index = u32::try_from(at).ok().filter(|&index| index <= to)?;
                self.token.remember(Leaf {
                    node,
                    base: index / SLOTS,
                });
                return Some(Found { index, leaf: node });
            }
            node = self
                .node(node)
                .entry(marked)
                .as_node()
                .expect("a marked slot of an inner node holds a node");
            level -= 1;
            debug_assert!(
                self.node(node).level() == level,
                "levels count down (a load saved)"
            );
        }
        None
    }
}

impl WriteToken {
    #[inline]
    fn last_leaf(&self) -> Leaf {
        Leaf::unpacked(self.leaf.load(PlainOrdering::Relaxed))
    }

    #[inline]
    fn remember(&self, leaf: Leaf) {
        self.leaf.store(leaf.packed(), PlainOrdering::Relaxed);
    }
}

impl Leaf {
    /// The leaf of no page: page numbers / 64 have 26 bits.
    const NONE: Self = Self {
        node: NIL,
        base: u32::MAX,
    };

    #[inline]
    fn packed(self) -> u64 {
        u64::from(self.base) << 32 | u64::from(self.node)
    }

    #[inline]
    fn unpacked(packed: u64) -> Self {
        Self {
            node: (packed & 0xffff_ffff) as u32,
            base: (packed >> 32) as u32,
        }
    }
}

impl Root {
    const NONE: Self = Self { node: 0, height: 0 };

    #[inline]
    fn packed(self) -> u64 {
        u64::from(self.height) << 32 | u64::from(self.node)
    }

    #[inline]
    fn unpacked(packed: u64) -> Self {
        Self {
            node: (packed & 0xffff_ffff) as u32,
            height: (packed >> 32) as u32,
        }
    }

    /// True if the tree is high enough for a page.
    #[inline]
    fn covers(self, index: u32) -> bool {
        self.height != 0 && u64::from(index) >> (self.height * LEVEL_BITS) == 0
    }
}

/// Levels of the lowest tree that covers a page.
fn height_for(index: u32) -> u32 {
    (u32::BITS - index.leading_zeros())
        .div_ceil(LEVEL_BITS)
        .clamp(1, HEIGHT_MAX)
}

/// The slot of a page in the node of a level on its path.
#[inline]
fn slot_at(index: u32, level: u32) -> u32 {
    index >> (level * LEVEL_BITS) & (SLOTS - 1)
}

/// The slots of `from`'s leaf that lie in `from..=to`.
fn range_in_leaf(from: u32, to: u32) -> u64 {
    let first = slot_at(from, 0);
    let last = if to / SLOTS == from / SLOTS {
        slot_at(to, 0)
    } else {
        SLOTS - 1
    };
    (u64::MAX << first) & (u64::MAX >> (SLOTS - 1 - last))
}

/// At most `max` of the bits, from the lowest up.
fn lowest_bits(word: u64, max: u32) -> u64 {
    if word.count_ones() <= max {
        return word;
    }
    bits(word)
        .take(max as usize)
        .fold(0, |chosen, bit| chosen | 1 << bit)
}

/// The numbers of the set bits, ascending.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(lowest)
    })
}

/// The page of the highest of the slots `chosen` in the leaf of `index`.
fn last_of(index: u32, chosen: u64) -> u32 {
    index / SLOTS * SLOTS + chosen.ilog2()
}

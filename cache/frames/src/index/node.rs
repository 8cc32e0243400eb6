//! One node of the tree, what a slot can hold, and the pool of all nodes.

use super::{NoNodes, Shadow, Slot, Tag};
use crate::FrameId;
use crate::stack::IndexStack;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::zeroed;

/// Bits of a page number that one level consumes.
pub(super) const LEVEL_BITS: u32 = 6;
/// Slots of a node.
pub(super) const SLOTS: u32 = 1 << LEVEL_BITS;
/// Levels that a 32-bit page number can need.
pub(super) const HEIGHT_MAX: u32 = u32::BITS.div_ceil(LEVEL_BITS);
/// No node: the parent of a root.
pub(super) const NIL: u32 = u32::MAX;

/// Most of anything that a slot can number: two of its 32 bits say what it is.
const PAYLOAD_MAX: u32 = (1 << 30) - 1;

const _: () = {
    assert!(SLOTS == u64::BITS, "a mark of a node is one word");
    assert!(Shadow::BITS <= 30, "a shadow fits a slot");
    assert!(
        cfg!(any(loom, shuttle)) || size_of::<Node>() == 304,
        "less than five cache lines for 64 pages"
    );
};

/// One bit that a node keeps for each of its slots. In an inner node a bit says that the child has
/// at least one such bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Dirty,
    Writeback,
    ToWrite,
    /// A cached page.
    Frame,
    /// The shadow of an evicted page.
    Shadow,
}

impl Mark {
    pub(super) const TAGS: [Self; 3] = [Self::Dirty, Self::Writeback, Self::ToWrite];
    pub(super) const ALL: [Self; 5] = [
        Self::Dirty,
        Self::Writeback,
        Self::ToWrite,
        Self::Frame,
        Self::Shadow,
    ];
}

impl From<Tag> for Mark {
    #[inline]
    fn from(tag: Tag) -> Self {
        match tag {
            Tag::Dirty => Self::Dirty,
            Tag::Writeback => Self::Writeback,
            Tag::ToWrite => Self::ToWrite,
        }
    }
}

/// A slot's word. It says itself what it is, because a reader without a lock may look at a node
/// that has become another's: it must not take a node's number for a frame's.
///
/// ```text
///    31 30 29                                0
///   +-----+-----------------------------------+
///   | 0 0 |                 0                 |  empty
///   | 0 1 |           number of a frame       |
///   | 1 0 |              shadow               |
///   | 1 1 |           number of a node        |
///   +-----+-----------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    pub(super) const EMPTY: Self = Self(0);
    const KIND: u32 = 0b11 << 30;
    const FRAME: u32 = 0b01 << 30;
    const SHADOW: u32 = 0b10 << 30;
    const NODE: u32 = 0b11 << 30;

    #[inline]
    pub(super) fn frame(frame: FrameId) -> Self {
        assert!(
            frame.0 <= PAYLOAD_MAX,
            "frame {} in an index of 2^30 frames",
            frame.0
        );
        Self(Self::FRAME | frame.0)
    }

    pub(super) fn shadow(shadow: Shadow) -> Self {
        assert!(
            shadow.0 >> Shadow::BITS == 0,
            "a shadow of more than {} bits: {:#x}",
            Shadow::BITS,
            shadow.0
        );
        Self(Self::SHADOW | shadow.0)
    }

    #[inline]
    pub(super) fn node(node: u32) -> Self {
        Self(Self::NODE | node)
    }

    /// A leaf's slot as its caller sees it. Inner entries mean nothing to it.
    #[inline]
    pub(super) fn as_slot(self) -> Slot {
        match self.0 & Self::KIND {
            Self::FRAME => Slot::Frame(FrameId(self.0 & !Self::KIND)),
            Self::SHADOW => Slot::Shadow(Shadow(self.0 & !Self::KIND)),
            _ => Slot::Empty,
        }
    }

    /// The child, if there is one.
    #[inline]
    pub(super) fn as_node(self) -> Option<u32> {
        (self.0 & Self::KIND == Self::NODE).then_some(self.0 & !Self::KIND)
    }
}

/// One node. Slots are read by anybody; all else only by the writers of the index it is in, which
/// are serialised by their token, so that plain (relaxed) loads and stores do.
///
/// Aligned as the system's allocator does by itself: for more it would fill a table with zeroes
/// that are there.
#[repr(align(16))]
pub(crate) struct Node {
    slots: [AtomicU32; SLOTS as usize],
    marks: [AtomicU64; Mark::ALL.len()],
    /// One more than the number of the parent, or zero: a node that nobody has used yet is all
    /// zeroes.
    parent: AtomicU32,
    /// Level (0: leaf) in bits 8.., slot in the parent below.
    place: AtomicU32,
}

impl Node {
    /// Zeroes: nothing in it, and no parent.
    pub(crate) fn empty() -> Self {
        Self {
            slots: core::array::from_fn(|_| AtomicU32::new(0)),
            marks: core::array::from_fn(|_| AtomicU64::new(0)),
            parent: AtomicU32::new(0),
            place: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn entry(&self, slot: u32) -> Entry {
        // Acquire: what the entry names (a node's slots, a frame's owner) was made before it was
        // put here.
        Entry(self.slots[(slot % SLOTS) as usize].load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn put(&self, slot: u32, entry: Entry) {
        // Release: for the acquire above.
        self.slots[(slot % SLOTS) as usize].store(entry.0, Ordering::Release);
    }

    #[inline]
    pub(super) fn marks(&self, mark: Mark) -> u64 {
        self.marks[mark as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn put_marks(&self, mark: Mark, bits: u64) {
        self.marks[mark as usize].store(bits, Ordering::Relaxed);
    }

    /// Slots that hold anything.
    #[inline]
    pub(super) fn occupied(&self) -> u64 {
        self.marks(Mark::Frame) | self.marks(Mark::Shadow)
    }

    /// The first marked slot from `slot` on.
    #[inline]
    pub(super) fn next(&self, mark: Mark, slot: u32) -> Option<u32> {
        let bits = self.marks(mark) & (u64::MAX << slot);
        (bits != 0).then(|| bits.trailing_zeros())
    }

    pub(super) fn parent(&self) -> Option<u32> {
        self.parent.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The slot of the parent that holds this node.
    pub(super) fn offset(&self) -> u32 {
        self.place.load(Ordering::Relaxed) % SLOTS
    }

    pub(super) fn level(&self) -> u32 {
        self.place.load(Ordering::Relaxed) / SLOTS
    }

    pub(super) fn move_to(&self, parent: u32, level: u32, offset: u32) {
        self.parent.store(parent.wrapping_add(1), Ordering::Relaxed);
        self.place.store(level * SLOTS + offset, Ordering::Relaxed);
    }
}

/// All nodes of all indexes of a cache: preallocated, type-stable (a freed node stays a node),
/// counted.
pub struct NodePool {
    nodes: Box<[Node]>,
    unused: IndexStack,
}

impl NodePool {
    /// A pool of `nodes` nodes.
    ///
    /// # Panics
    /// On more nodes than a slot can number (2^30).
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        assert!(nodes <= PAYLOAD_MAX, "{nodes} nodes");
        Self {
            nodes: zeroed::table(nodes as usize),
            unused: IndexStack::full(nodes),
        }
    }

    /// Nodes that are free.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.unused.len()
    }

    /// Nodes that are in use.
    #[must_use]
    pub fn taken(&self) -> u32 {
        let all = u32::try_from(self.nodes.len()).expect("at most 2^30");
        all - self.free()
    }

    /// Bytes taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.nodes) as u64 + self.unused.bytes()
    }

    /// Nodes that `pages` densely cached pages of one file need, for sizing. A file that is cached
    /// in pieces, and every further file, needs more: up to its height for each piece.
    #[must_use]
    pub fn nodes_for(pages: u64) -> u32 {
        let (mut nodes, mut level) = (0_u64, pages);
        while level > 0 {
            level = level.div_ceil(u64::from(SLOTS));
            nodes += level;
            if level == 1 {
                break;
            }
        }
        u32::try_from(nodes).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(super) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Takes `count` nodes (at most `NODES_MAX`), or none.
    pub(super) fn try_reserve(&self, count: u32) -> Result<Reserve, NoNodes> {
        let mut reserve = Reserve {
            nodes: [NIL; Reserve::NODES_MAX],
            len: 0,
        };
        while reserve.len < count as usize {
            let Some(node) = self.unused.try_pop() else {
                while let Some(node) = reserve.pop() {
                    self.unused.push(node);
                }
                return Err(NoNodes);
            };
            reserve.nodes[reserve.len] = node;
            reserve.len += 1;
        }
        Ok(reserve)
    }

    /// Gives a node back. It is empty, so that the next user, and a reader still in it, finds it
    /// so.
    pub(super) fn put(&self, node: u32) {
        debug_assert!(
            Mark::ALL
                .iter()
                .all(|&mark| self.node(node).marks(mark) == 0),
            "marks left (5 loads saved)"
        );
        self.unused.push(node);
    }
}

/// Nodes taken for one insertion.
pub(super) struct Reserve {
    nodes: [u32; Self::NODES_MAX],
    len: usize,
}

impl Reserve {
    /// A tree of one level that grows to the full height, and a new path below its new root.
    const NODES_MAX: usize = 2 * (HEIGHT_MAX as usize - 1);

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        Some(self.nodes[self.len])
    }
}

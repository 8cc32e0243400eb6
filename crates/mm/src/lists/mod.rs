//! What one background reclaimer looks after: its LRU lists, what is off them, who sleeps and why.
//!
//! Memory is one node, but for an experiment on a machine of several sockets (`Tunables::nodes`): then a run of
//! frames each. A node has four lists (anonymous and file, inactive and active), and under Tidegate's law a fifth
//! for pages of files that wait for their write. A reclaimer that takes pages off a list *isolates* them: they stay
//! cached, may be pinned, written and even given back by their owner, but are on no list; the reclaimer knows each
//! again by its generation. What it does not free it puts back.
//!
//! Invariants
//!   1. A cached frame is on exactly one list, or isolated by exactly one reclaimer, or its busy holder is
//!      about to put it on one.
//!   2. Whoever takes a page out of an index takes it off its list and disowns or orphans it in one hold of the
//!      LRU lock. So put-back, under the same lock, sees whether the page still is.
//!   3. `isolated` counts pages from the hold of the lock that took them off until the one that put them
//!      back, or until they were freed.
//!   4. A frame is on lists of its own node alone. One lock holds the lists of all, so that pages of several nodes are
//!      moved in one hold; that the kernel has one a node shows in what their reclaimers wait for each other
//!      (`Node::enter_work`), which is counted by node.
//!
//! Source: mechanisms 2.1, 2.4, 2.8, 4.2; Linux v6.12 mm/vmscan.c, mm/swap.c folio_rotate_reclaimable().

pub(crate) mod isolate;
mod node;
pub(crate) mod sleepers;
mod workingset;

pub(crate) use node::Node;

use core::ops::Index;

use env::{Context, Lock, LockClass, LockGuard};
use frames::{Flags, FrameId, Lists};
use policy::reclaim::page::{AfterWrite, after_write};
use policy::reclaim::scan::Sizes;
use policy::reclaim::{NODES_MAX, Tunables};
use policy::units::Pages;

use crate::pages::CachedPages;

/// List numbers (`policy::reclaim::Lru::index`).
pub(crate) const INACTIVE_ANON: u8 = 0;
pub(crate) const ACTIVE_ANON: u8 = 1;
pub(crate) const INACTIVE_FILE: u8 = 2;
pub(crate) const ACTIVE_FILE: u8 = 3;
/// Pages of files that wait for their write, out of every scan's way (`PageRule::aside`).
pub(crate) const ASIDE: u8 = 4;
/// How many lists.
const LISTS: u8 = 5;
/// The lists that are scanned, in order of `Lru`.
const SCANNED: [u8; 4] = [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE];

/// Which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u8);

impl NodeId {
    /// The only one, as a rule.
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    fn list(self, number: u8) -> u8 {
        self.0 * LISTS + number
    }
}

/// How frames are divided among nodes: runs of one length, of whole chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    count: u8,
    each: u32,
}

impl Division {
    pub(crate) fn new(frames: u32, chunk: u32, count: u8) -> Self {
        let each = frames.div_ceil(u32::from(count)).next_multiple_of(chunk);
        Self { count, each }
    }

    /// Frames of the smallest node, the last, of `frames` in all.
    fn least(self, frames: u32) -> u32 {
        frames.saturating_sub(self.each.saturating_mul(u32::from(self.count) - 1))
    }

    /// Whether each node has at least `least` frames.
    ///
    /// # Errors
    /// Up to how many nodes it would be so.
    pub(crate) fn check(self, frames: u32, chunk: u32, least: u32) -> Result<(), u8> {
        let fits = |division: Self| division.count == 1 || division.least(frames) >= least;
        if fits(self) {
            return Ok(());
        }
        let counts = (1..=NODES_MAX).take_while(|count| fits(Self::new(frames, chunk, *count)));
        Err(counts.last().unwrap_or(1))
    }

    pub(crate) fn of(self, frame: FrameId) -> NodeId {
        if self.count == 1 {
            return NodeId::FIRST;
        }
        NodeId(u8::try_from(frame.0 / self.each).expect("no more nodes than a u8 counts"))
    }

    pub(crate) fn ids(self) -> impl DoubleEndedIterator<Item = NodeId> + Clone {
        (0..self.count).map(NodeId)
    }

    /// Nodes in the order in which a task on that CPU of `cpus` takes memory from them: its own, then those after it.
    pub(crate) fn in_order_of(self, cpu: usize, cpus: u32) -> impl Iterator<Item = NodeId> {
        let count = usize::from(self.count);
        let home = cpu * count / (cpus as usize).max(1);
        (0..self.count).map(move |at| {
            let node = (home + usize::from(at)) % count;
            NodeId(u8::try_from(node).expect("below the count"))
        })
    }

    /// The parts of `frames` that are of one node each, in order.
    pub(crate) fn parts(self, frames: &[FrameId]) -> impl Iterator<Item = (NodeId, &[FrameId])> {
        let same = move |a: &FrameId, b: &FrameId| self.count == 1 || self.of(*a) == self.of(*b);
        let parts = frames.chunk_by(same);
        parts.map(move |part| (self.of(part[0]), part))
    }

    /// A node's part of something that is divided evenly.
    pub(crate) fn part(self, pages: Pages) -> Pages {
        Pages(pages.0 / u64::from(self.count))
    }
}

/// All nodes, and the lists of their pages.
pub(crate) struct Nodes {
    division: Division,
    lru: Lock<Lists>,
    all: Box<[Node]>,
}

/// The lists of all nodes, locked.
pub(crate) struct Lru<'a> {
    lists: LockGuard<'a, Lists>,
    division: Division,
}

impl Lru<'_> {
    /// Off whatever list it is on; false if it was on none.
    pub(crate) fn remove(&mut self, frame: FrameId) -> bool {
        self.lists.remove(frame)
    }

    /// Off whatever lists they are on.
    pub(crate) fn remove_all(&mut self, frames: &[FrameId]) {
        self.lists.remove_all(frames);
    }

    /// To the new end of a list of their nodes, one after the other.
    pub(crate) fn push_heads(&mut self, list: u8, frames: &[FrameId]) {
        for (node, part) in self.division.parts(frames) {
            self.lists.push_heads(node.list(list), part);
        }
    }

    /// To the new end of a list of its node.
    pub(crate) fn push_head(&mut self, list: u8, frame: FrameId) {
        let node = self.division.of(frame);
        self.lists.push_head(node.list(list), frame);
    }

    /// To the old end.
    pub(crate) fn push_tail(&mut self, list: u8, frame: FrameId) {
        let node = self.division.of(frame);
        self.lists.push_tail(node.list(list), frame);
    }

    pub(crate) fn pop_tail(&mut self, node: NodeId, list: u8) -> Option<FrameId> {
        self.lists.pop_tail(node.list(list))
    }

    /// The list of its node that a frame is on.
    pub(crate) fn list_of(&self, frame: FrameId) -> Option<u8> {
        self.lists.list_of(frame).map(|list| list % LISTS)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lists.bytes()
    }

    fn len(&self, node: NodeId, list: u8) -> Pages {
        Pages(u64::from(self.lists.len(node.list(list))))
    }

    fn waits_aside(&self) -> bool {
        let mut nodes = self.division.ids();
        nodes.any(|node| !self.len(node, ASIDE).is_zero())
    }
}

impl Nodes {
    pub(crate) fn new(frames: u32, division: Division, tunables: &Tunables) -> Self {
        let lists = LISTS * division.count;
        Self {
            division,
            lru: Lock::new(LockClass::Lru, Lists::new(frames, lists)),
            all: division
                .ids()
                .map(|_| Node::new(frames, tunables))
                .collect(),
        }
    }

    pub(crate) fn lru<'a>(&'a self, context: &'a impl Context) -> Lru<'a> {
        Lru {
            lists: self.lru.lock(context),
            division: self.division,
        }
    }

    /// Lengths of a node's lists that are scanned.
    pub(crate) fn sizes(&self, context: &impl Context, node: NodeId) -> Sizes {
        self.sizes_and_aside(context, node).0
    }

    /// The same, and what is aside.
    pub(crate) fn sizes_and_aside(&self, context: &impl Context, node: NodeId) -> (Sizes, Pages) {
        let lru = self.lru(context);
        (
            Sizes(SCANNED.map(|list| lru.len(node, list))),
            lru.len(node, ASIDE),
        )
    }

    /// Of all nodes together.
    pub(crate) fn all_sizes_and_aside(&self, context: &impl Context) -> (Sizes, Pages) {
        let lru = self.lru(context);
        let len = |list| self.division.ids().map(|node| lru.len(node, list)).sum();
        (Sizes(SCANNED.map(len)), len(ASIDE))
    }

    /// Pages on all lists of a node.
    pub(crate) fn listed(&self, context: &impl Context, node: NodeId) -> Pages {
        let (sizes, aside) = self.sizes_and_aside(context, node);
        sizes.total() + aside
    }

    /// How frames are divided among them.
    pub(crate) fn division(&self) -> Division {
        self.division
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.all.iter()
    }
}

impl Index<NodeId> for Nodes {
    type Output = Node;

    fn index(&self, node: NodeId) -> &Node {
        &self.all[node.index()]
    }
}

/// The inactive list of a page's kind.
pub(crate) fn inactive_of(flags: Flags) -> u8 {
    if flags.has(Flags::ANON) {
        INACTIVE_ANON
    } else {
        INACTIVE_FILE
    }
}

/// The list that a page's flags say.
pub(crate) fn list_of(flags: Flags) -> u8 {
    inactive_of(flags) + u8::from(flags.has(Flags::ACTIVE))
}

impl Nodes {
    /// The writes of the pages `written` have ended. Those in `rotate` had the flag `RECLAIM`: they go to the inactive
    /// tail, to be freed next, unless they are dirty again. Answers how many went.
    pub(crate) fn rotate(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        written: &[FrameId],
        rotate: &[FrameId],
    ) -> u64 {
        let mut rotated = 0;
        {
            let mut lru = self.lru(context);
            // Whatever waits for its write may wait for any of its writes.
            let candidates = if lru.waits_aside() { written } else { rotate };
            // In the order of `written`.
            let mut marks = rotate.iter().peekable();
            for frame in candidates {
                let marked = marks.next_if_eq(&frame).is_some();
                let flags = pages.table.flags(*frame);
                // Not on a list: isolated, or gone. The mark is lost then, as in the kernel.
                let Some(list) = lru.list_of(*frame) else {
                    continue;
                };
                let aside = list == ASIDE;
                let dirty = flags.any(Flags::DIRTY | Flags::WRITEBACK);
                let busy = flags.any(Flags::BUSY);
                if after_write(marked, aside, dirty, busy) != AfterWrite::Rotates {
                    continue;
                }
                pages.table.update(*frame, Flags::NONE, Flags::ACTIVE);
                lru.remove(*frame);
                lru.push_tail(inactive_of(flags), *frame);
                rotated += 1;
            }
        }
        rotated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_divided_by_whole_chunks() {
        for (frames, chunk, count, firsts) in [
            (4096, 512, 1, vec![0]),
            (4096, 512, 2, vec![0, 2048]),
            (4096, 512, 3, vec![0, 1536, 3072]),
            (4608, 512, 2, vec![0, 2560]),
        ] {
            let division = Division::new(frames, chunk, count);
            let mut seen = Vec::new();
            for frame in 0..frames {
                let node = division.of(FrameId(frame));
                if seen.len() == node.index() {
                    seen.push(frame);
                }
                assert!(division.ids().any(|id| id == node));
            }
            assert_eq!(seen, firsts, "{frames} by {count}");
        }
    }

    #[test]
    fn a_task_takes_memory_from_its_own_node_first() {
        let division = Division::new(4096, 512, 2);
        let order = |cpu| {
            let nodes = division.in_order_of(cpu, 12);
            nodes.map(NodeId::index).collect::<Vec<_>>()
        };
        assert_eq!((order(0), order(5)), (vec![0, 1], vec![0, 1]));
        assert_eq!((order(6), order(11)), (vec![1, 0], vec![1, 0]));
        assert_eq!(order(12), [0, 1], "a CPU that was not counted");
    }

    #[test]
    fn parts_are_of_one_node_each() {
        let division = Division::new(4096, 512, 2);
        let frames = [1, 2, 2048, 5, 4095, 3000].map(FrameId);
        let parts = division.parts(&frames);
        let parts: Vec<_> = parts
            .map(|(node, part)| (node.index(), part.len()))
            .collect();
        assert_eq!(parts, [(0, 2), (1, 1), (0, 1), (1, 2)]);
        assert_eq!(division.parts(&[]).count(), 0);
    }
}

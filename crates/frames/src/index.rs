//! The page index of a file: a 64-way radix tree with tags, readers without locks.

use crate::FrameId;

/// What an evicted page leaves behind (27 bits of the caller's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow(pub u32);

/// What stands at an index.
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

/// All nodes of all indexes of a cache: preallocated, type-stable (a freed node stays a node), counted.
pub struct NodePool {}

/// The index of one file.
pub struct PageIndex {}

/// The right to change one index; lives inside the lock that serialises its writers.
#[derive(Debug)]
pub struct WriteToken(());

/// Changes to one index.
pub struct IndexWriter<'a> {
    _index: &'a PageIndex,
}

impl NodePool {
    /// A pool of `nodes` nodes.
    pub fn new(_nodes: u32) -> Self {
        unimplemented!()
    }
    /// Nodes that are free.
    pub fn free(&self) -> u32 {
        unimplemented!()
    }
    /// Bytes taken.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }
    /// Nodes that `pages` densely cached pages need, for sizing.
    pub fn nodes_for(_pages: u64) -> u32 {
        unimplemented!()
    }
}

impl PageIndex {
    /// An empty index and the only right to change it.
    pub fn new() -> (Self, WriteToken) {
        unimplemented!()
    }
    /// Looks an index up without a lock. The answer may be stale: pin the frame and compare its owner.
    pub fn get(&self, _pool: &NodePool, _index: u32) -> Slot {
        unimplemented!()
    }
    /// Changes the index. `token` must be the one `new` gave with this index (asserted).
    pub fn writer<'a>(&'a self, _pool: &'a NodePool, _token: &'a mut WriteToken) -> IndexWriter<'a> {
        unimplemented!()
    }
}

impl IndexWriter<'_> {
    /// Looks up (exact: writers are serialised).
    pub fn get(&self, _index: u32) -> Slot {
        unimplemented!()
    }
    /// Puts a frame where `Empty` or a `Shadow` stands; answers what stood there. Panics on a frame.
    ///
    /// # Errors
    /// No node left; nothing changed.
    pub fn insert(&mut self, _index: u32, _frame: FrameId) -> Result<Slot, NoNodes> {
        unimplemented!()
    }
    /// Replaces the frame that stands there, tags kept; answers the old one. Panics if there is none.
    pub fn replace(&mut self, _index: u32, _frame: FrameId) -> FrameId {
        unimplemented!()
    }
    /// Removes a frame with its tags, leaving a shadow or nothing; empty nodes go back to the pool.
    pub fn remove(&mut self, _index: u32, _leave: Option<Shadow>) -> Slot {
        unimplemented!()
    }
    /// Sets a tag on a cached page; answers whether it was set before.
    pub fn set_tag(&mut self, _index: u32, _tag: Tag) -> bool {
        unimplemented!()
    }
    /// Clears a tag; answers whether it was set.
    pub fn clear_tag(&mut self, _index: u32, _tag: Tag) -> bool {
        unimplemented!()
    }
    /// Whether a tag is set.
    pub fn has_tag(&self, _index: u32, _tag: Tag) -> bool {
        unimplemented!()
    }
    /// The first page in `from..=to` with the tag.
    pub fn next_tagged(&self, _from: u32, _to: u32, _tag: Tag) -> Option<(u32, FrameId)> {
        unimplemented!()
    }
    /// The first cached page in `from..=to`.
    pub fn next_frame(&self, _from: u32, _to: u32) -> Option<(u32, FrameId)> {
        unimplemented!()
    }
    /// Sets `set` on at most `max` pages of `from..=to` that have `when`; answers where to go on, `None` when done.
    pub fn tag_range(&mut self, _from: u32, _to: u32, _when: Tag, _set: Tag, _max: u32) -> Option<u32> {
        unimplemented!()
    }
    /// Removes up to `max` shadows in `from..=to`; answers how many went.
    pub fn remove_shadows(&mut self, _from: u32, _to: u32, _max: u32) -> u32 {
        unimplemented!()
    }
}

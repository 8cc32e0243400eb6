//! Buddy free lists for orders 0..=10.

use crate::FrameId;

/// Free frames of the arena. Plain data behind one lock of `mm`.
pub struct FreeLists {}

impl FreeLists {
    /// The largest order: blocks of 1024 frames.
    pub const ORDER_MAX: u8 = 10;
    /// For an arena of `frames` frames, none of them usable yet.
    pub fn new(_frames: u32) -> Self {
        unimplemented!()
    }
    /// The frames `first..first + count` became usable and are free.
    pub fn add_range(&mut self, _first: FrameId, _count: u32) {
        unimplemented!()
    }
    /// Takes the chunk out if every frame of it is free. False: nothing changed.
    #[must_use]
    pub fn try_remove_range(&mut self, _first: FrameId, _count: u32) -> bool {
        unimplemented!()
    }
    /// Takes a naturally aligned block of `2^order` frames.
    pub fn try_take(&mut self, _order: u8) -> Option<FrameId> {
        unimplemented!()
    }
    /// Takes up to `want` single frames in ascending runs as long as can be had; appends them; answers how many.
    pub fn try_take_batch(&mut self, _want: u32, _out: &mut Vec<FrameId>) -> u32 {
        unimplemented!()
    }
    /// Gives a block back and merges it with its buddies.
    pub fn put(&mut self, _first: FrameId, _order: u8) {
        unimplemented!()
    }
    /// Gives single frames back (any order; runs are merged cheaply).
    pub fn put_batch(&mut self, _frames: &[FrameId]) {
        unimplemented!()
    }
    /// Free frames now.
    pub fn free(&self) -> u32 {
        unimplemented!()
    }
    /// Free blocks of each order.
    pub fn blocks(&self) -> [u32; 11] {
        unimplemented!()
    }
    /// Bytes of metadata.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }
}

//! The door to the overhead of pages: a kernel keeps nodes of indexes, heads of pages that were
//! written to, and page tables of regions in frames of its own (`Kernel::overhead`).

use core::ops::Range;

use frames::FrameId;

/// See the module.
pub trait Overhead: Send + Sync {
    /// The page in a frame was written to; it has `heads` heads now.
    fn written(&self, frame: FrameId, heads: u8);

    /// The page in a frame was evicted; returns the number of its heads.
    fn gone(&self, frame: FrameId) -> u8;

    /// Pages of a region have come: their tables with them. `tables`: a bit for each that is there.
    fn tables_come(&self, tables: &mut Vec<u64>, pages: Range<u32>);

    /// Pages of a region of `len` were given back: the tables go that were for them alone.
    fn tables_go(&self, tables: &mut Vec<u64>, pages: Range<u32>, len: u32);
}

//! The content of frames: bytes live, a version per 512-byte sector in the lab.

use crate::{Busy, FrameId, Pin};

/// The system refused the memory for a chunk of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopulateError {
    /// The system's error number.
    pub errno: i32,
}

/// The contents of all frames. `mm` moves data only through this.
///
/// Offsets and lengths are bytes; the lab's content accepts multiples of 512 only and panics
/// otherwise (its workloads are written so).
pub trait Content: Send + Sync + 'static {
    /// A caller's buffer: `[u8]` live, `[Sector]` in the lab.
    type Data: ?Sized + Send + Sync;

    /// Frames that are populated and given back together; a power of two.
    fn chunk_frames(&self) -> u32;
    /// Makes the frames `first..first + chunk_frames` usable. Called before their first use.
    ///
    /// # Errors
    /// The system has no memory.
    fn populate(&self, first: FrameId) -> Result<(), PopulateError>;
    /// Gives the chunk's memory back to the system, or leaves it populated where the system does
    /// not take it. No I/O may be under way on it.
    fn release(&self, first: FrameId);
    /// A caller's buffer of `bytes` bytes, all zero.
    fn new_data(bytes: usize) -> Box<Self::Data>;
    /// Length of a buffer in bytes.
    fn data_len(data: &Self::Data) -> usize;
    /// Zeroes `len` bytes of the frame from `offset`.
    fn zero(&self, frame: &Busy, offset: usize, len: usize);
    /// Zeroes whole frames; those that lie together, up or down, perhaps at once.
    fn zero_all(&self, frames: &[Busy]);
    /// Copies `len` bytes of `data` from `from` into the frame at `offset`.
    fn copy_in(&self, frame: &Busy, offset: usize, data: &Self::Data, from: usize, len: usize);
    /// Copies `len` bytes of the frame at `offset` into `data` at `to`.
    fn copy_out(&self, frame: &Pin, offset: usize, data: &mut Self::Data, to: usize, len: usize);
    /// Puts a number of the caller's at the frame's start: 8 bytes live, the low half as the first
    /// sector's version in the lab.
    fn mark(&self, frame: &Busy, word: u64);
    /// Copies a whole frame.
    fn copy_frame(&self, to: &Busy, from: &Pin);
    /// Copies a whole frame that nobody can read meanwhile into another one.
    fn move_frame(&self, to: &Busy, from: &Busy);
}

//! Frames that are out of use: those of chunks that a lowered limit takes.
//!
//! Which chunks: `policy::place::offline`. How their pages leave: `lifecycle::limit`.

use core::ops::Range;

use frames::FrameId;
use policy::units::Pages;

/// How far a change of the limit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Frames that the cache may use.
    pub limit: Pages,
    /// Frames beyond it that have their memory: a chunk gives it back when the last of its frames is free. Zero: the
    /// limit holds.
    pub over: Pages,
}

/// Frames that are out of use.
pub(crate) struct OfflineFrames {
    frames: u32,
    chunk: u32,
    chunks: Vec<Chunk>,
    /// One bit a frame: offline, with its memory.
    held: Vec<u64>,
    /// Chunks that are out.
    out: u32,
    /// Frames that are offline.
    count: u32,
}

/// A chunk, out of use or not.
#[derive(Clone, Copy, Default)]
struct Chunk {
    is_out: bool,
    /// Its memory is the system's.
    is_released: bool,
    /// Frames of it that are held.
    held: u32,
}

impl OfflineFrames {
    pub(crate) fn new(frames: u32, chunk: u32) -> Self {
        Self {
            frames,
            chunk,
            chunks: vec![Chunk::default(); frames.div_ceil(chunk) as usize],
            held: vec![0; frames.div_ceil(u64::BITS) as usize],
            out: 0,
            count: 0,
        }
    }

    /// Whether a frame that comes free goes offline.
    pub(crate) fn wants(&self, frame: FrameId) -> bool {
        self.out > 0 && self.of(frame).is_out
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Frames that may be used.
    pub(crate) fn in_use(&self) -> u32 {
        let chunks = (0..self.chunks.len()).map(|at| (self.range(at), self.chunks[at].is_out));
        let used = chunks.filter(|(_, is_out)| !is_out);
        used.map(|(frames, _)| frames.end - frames.start).sum()
    }

    /// By chunk: whether it is out, and whether its memory is then the system's.
    pub(crate) fn states(&self) -> impl ExactSizeIterator<Item = (bool, bool)> + '_ {
        let chunks = self.chunks.iter();
        chunks.map(|chunk| (chunk.is_out, chunk.is_released))
    }

    /// Frames of chunks that are out whose memory is not the system's yet.
    pub(crate) fn with_memory(&self) -> Pages {
        let left = self.left().map(|frames| frames.len() as u64);
        Pages(left.sum())
    }

    /// These chunks.
    pub(crate) fn left(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let all = 0..self.chunks.len();
        let left = all.filter(|at| self.chunks[*at].is_out && !self.chunks[*at].is_released);
        left.map(|at| self.range(at))
    }

    pub(crate) fn hold(&mut self, frame: FrameId) {
        self.held[(frame.0 / u64::BITS) as usize] |= 1 << (frame.0 % u64::BITS);
        self.of_mut(frame).held += 1;
        self.count += 1;
    }

    /// The chunk has no memory.
    pub(crate) fn hold_absent(&mut self, first: FrameId) {
        self.of_mut(first).is_released = true;
        self.count += self.len(first.0);
    }

    /// A chunk all of whose frames are offline with their memory. They are not any more: the caller comes back with
    /// the chunk.
    pub(crate) fn next_to_release(&mut self) -> Option<FrameId> {
        let at = (0..self.chunks.len()).find(|at| {
            let chunk = &self.chunks[*at];
            chunk.is_out && chunk.held as usize == self.range(*at).len()
        })?;
        let frames = self.range(at);
        self.count -= self.chunks[at].held;
        self.chunks[at].held = 0;
        for frame in frames.clone() {
            self.drop_bit(frame);
        }
        Some(FrameId(frames.start))
    }

    /// Takes a chunk out of use; false if it is. What of it is free, the caller holds.
    pub(crate) fn take_out(&mut self, at: usize) -> bool {
        let was_out = core::mem::replace(&mut self.chunks[at].is_out, true);
        self.out += u32::from(!was_out);
        !was_out
    }

    /// Takes a chunk into use again, and gives back what was offline of it: single frames, or all of it, without memory.
    pub(crate) fn take_in(
        &mut self,
        at: usize,
        mut frame: impl FnMut(FrameId),
        absent: impl FnOnce(FrameId),
    ) {
        if !core::mem::replace(&mut self.chunks[at].is_out, false) {
            return;
        }
        self.out -= 1;
        let frames = self.range(at);
        if core::mem::take(&mut self.chunks[at].is_released) {
            absent(FrameId(frames.start));
            self.count -= self.len(frames.start);
        }
        self.count -= core::mem::take(&mut self.chunks[at].held);
        for at in frames {
            if self.has(at) {
                self.drop_bit(at);
                frame(FrameId(at));
            }
        }
    }

    /// The frames of a chunk.
    pub(crate) fn range(&self, at: usize) -> Range<u32> {
        let first = u32::try_from(at).expect("chunks are fewer than frames") * self.chunk;
        first..first + self.len(first)
    }

    fn len(&self, first: u32) -> u32 {
        self.chunk.min(self.frames - first)
    }

    fn of(&self, frame: FrameId) -> &Chunk {
        &self.chunks[(frame.0 / self.chunk) as usize]
    }

    fn of_mut(&mut self, frame: FrameId) -> &mut Chunk {
        &mut self.chunks[(frame.0 / self.chunk) as usize]
    }

    fn has(&self, frame: u32) -> bool {
        self.held[(frame / u64::BITS) as usize] & 1 << (frame % u64::BITS) != 0
    }

    fn drop_bit(&mut self, frame: u32) {
        self.held[(frame / u64::BITS) as usize] &= !(1 << (frame % u64::BITS));
    }
}

//! Frames that are out of use: those beyond a limit that was lowered.
//!
//! How their pages leave: `lifecycle::limit`.

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
    /// Frames from here on; a multiple of the chunk, or all.
    from: u32,
    frames: u32,
    chunk: u32,
    /// One bit a frame: offline, with its memory.
    held: Vec<u64>,
    /// By chunk: offline, and its memory is the system's.
    released: Vec<bool>,
    count: u32,
}

impl OfflineFrames {
    pub(crate) fn new(frames: u32, chunk: u32) -> Self {
        Self {
            from: frames,
            frames,
            chunk,
            held: vec![0; frames.div_ceil(u64::BITS) as usize],
            released: vec![false; frames.div_ceil(chunk) as usize],
            count: 0,
        }
    }

    pub(crate) fn wants(&self, frame: FrameId) -> bool {
        frame.0 >= self.from
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Frames beyond the limit whose memory is not the system's yet.
    pub(crate) fn with_memory(&self) -> Pages {
        let firsts = (self.from..self.frames).step_by(self.chunk as usize);
        let kept = firsts.filter(|first| !self.released[(first / self.chunk) as usize]);
        Pages(kept.map(|first| u64::from(self.len(first))).sum())
    }

    pub(crate) fn hold(&mut self, frame: FrameId) {
        self.held[(frame.0 / u64::BITS) as usize] |= 1 << (frame.0 % u64::BITS);
        self.count += 1;
    }

    fn has(&self, frame: u32) -> bool {
        self.held[(frame / u64::BITS) as usize] & 1 << (frame % u64::BITS) != 0
    }

    fn drop_bit(&mut self, frame: u32) {
        self.held[(frame / u64::BITS) as usize] &= !(1 << (frame % u64::BITS));
    }

    /// The chunk has no memory.
    pub(crate) fn hold_absent(&mut self, first: FrameId) {
        self.released[(first.0 / self.chunk) as usize] = true;
        self.count += self.len(first.0);
    }

    fn len(&self, first: u32) -> u32 {
        self.chunk.min(self.frames - first)
    }

    /// A chunk all of whose frames are offline with their memory. They are not any more: the caller comes back with
    /// the chunk.
    pub(crate) fn next_to_release(&mut self) -> Option<FrameId> {
        let mut first = self.from;
        while first < self.frames {
            let end = first + self.len(first);
            if (first..end).all(|frame| self.has(frame)) {
                for frame in first..end {
                    self.drop_bit(frame);
                }
                self.count -= end - first;
                return Some(FrameId(first));
            }
            first = end;
        }
        None
    }

    /// Moves the limit down to `from`; the chunks that it comes to, in turn.
    pub(crate) fn lower(&mut self, from: u32) -> impl Iterator<Item = (FrameId, u32)> + use<> {
        let (old, chunk, frames) = (self.from, self.chunk, self.frames);
        self.from = from;
        let firsts = (from..old).step_by(chunk as usize);
        firsts.map(move |first| (FrameId(first), chunk.min(frames - first)))
    }

    /// Moves the limit up to `from` and gives back what was offline below it: single frames, and chunks without
    /// memory. Answers how many frames.
    pub(crate) fn raise(
        &mut self,
        from: u32,
        mut frame: impl FnMut(FrameId),
        mut absent: impl FnMut(FrameId),
    ) -> u32 {
        let before = self.count;
        let mut first = self.from;
        self.from = from;
        while first < from {
            let end = first + self.len(first);
            if core::mem::take(&mut self.released[(first / self.chunk) as usize]) {
                absent(FrameId(first));
                self.count -= end - first;
            }
            for at in first..end {
                if self.has(at) {
                    self.drop_bit(at);
                    frame(FrameId(at));
                    self.count -= 1;
                }
            }
            first = end;
        }
        before - self.count
    }
}

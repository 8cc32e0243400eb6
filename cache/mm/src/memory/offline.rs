//! Frames that are out of use: those of chunks that a lowered limit takes, and those of a range
//! that a task empties.
//!
//! Their free frames go offline, and the others as they come free. A chunk beyond the limit gives
//! its memory back when all of it is offline; a range that is *sought* is then its seeker's, which
//! has it whole or ends the search.
//!
//! Which chunks: `policy::place::offline`. Their pages leave by `lifecycle::limit`. The seeker:
//! `memory::evacuation`.
//!
//! Invariants
//!   1. A frame with its bit set is held for its chunk, if that is out, else for the one range that
//!      it is in.
//!   2. No range is in a chunk that is out: the limit takes what was held for it, and its seeker
//!      finds it gone.

use core::ops::Range;

use frames::FrameId;
use policy::units::Pages;

/// The progress of a change of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Frames that the cache may use.
    pub limit: Pages,
    /// Frames beyond it that have their memory: a chunk gives it back when the last of its frames
    /// is free. Zero: the limit holds.
    pub over: Pages,
    /// Frames that are neither free nor out of use.
    pub used: Pages,
    /// Memory that the limit asks for and the system has refused: the cache goes on without, and
    /// asks again from time to time.
    pub refused: Pages,
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
    /// Chunks that are out and whose frames are all held.
    complete: u32,
    /// Frames that are offline.
    count: u32,
    /// Ranges that tasks empty, in no order; room for all is taken at the start.
    sought: Vec<Sought>,
    /// The number of the next one.
    next: u64,
}

/// Ranges that are emptied at a time, at most: each keeps its free frames from the task that wants
/// some.
const SOUGHT_MAX: usize = 2;

/// A range of frames that a task empties.
struct Sought {
    number: u64,
    frames: Range<u32>,
    /// Frames of it that are held.
    held: u32,
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
            complete: 0,
            count: 0,
            sought: Vec::with_capacity(SOUGHT_MAX),
            next: 0,
        }
    }

    /// True if a frame that comes free goes offline.
    pub(crate) fn wants(&self, frame: FrameId) -> bool {
        self.out > 0 && self.of(frame).is_out || self.seeker(frame).is_some()
    }

    /// True if any frame that comes free is to go offline.
    pub(crate) fn wants_any(&self) -> bool {
        self.out > 0 || !self.sought.is_empty()
    }

    /// Begins to seek a range; answers its number. `None`: it is not of one chunk, or beyond the
    /// limit, a part of it is sought already, or too many are.
    pub(crate) fn seek(&mut self, frames: Range<u32>) -> Option<u64> {
        let at = (frames.start / self.chunk) as usize;
        let is_of_one = frames.end <= self.range(at).end;
        let meets =
            |other: &Sought| other.frames.start < frames.end && frames.start < other.frames.end;
        if !is_of_one
            || self.chunks[at].is_out
            || self.sought.len() == SOUGHT_MAX
            || self.sought.iter().any(meets)
        {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.sought.push(Sought {
            number,
            frames,
            held: 0,
        });
        Some(number)
    }

    /// Ends a search, if the limit has not: `frame` gets those that were held, which are the
    /// caller's, be it all of the range or a part.
    pub(crate) fn end_seek(&mut self, number: u64, mut frame: impl FnMut(FrameId)) {
        let Some(at) = self.sought.iter().position(|one| one.number == number) else {
            return;
        };
        let Sought { frames, held, .. } = self.sought.swap_remove(at);
        self.count -= held;
        for at in frames {
            if self.has(at) {
                self.drop_bit(at);
                frame(FrameId(at));
            }
        }
    }

    /// Frames of a range that are still missing; `None`: it is not sought any more.
    pub(crate) fn missing(&self, number: u64) -> Option<u32> {
        let sought = self.sought.iter().find(|one| one.number == number)?;
        Some(sought.frames.end - sought.frames.start - sought.held)
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

    /// Tells if a chunk is out, and if its memory is then the system's.
    pub(crate) fn state(&self, at: usize) -> (bool, bool) {
        let chunk = &self.chunks[at];
        (chunk.is_out, chunk.is_released)
    }

    /// Frames of a chunk that are offline and have memory.
    pub(crate) fn held(&self, at: usize) -> u32 {
        let frames = self.range(at);
        let sought = self.sought.iter();
        let sought = sought.filter(|one| frames.contains(&one.frames.start));
        self.chunks[at].held + sought.map(|one| one.held).sum::<u32>()
    }

    /// Frames of chunks that are out whose memory is not the system's yet.
    pub(crate) fn with_memory(&self) -> Pages {
        let left = self.left(0).map(|frames| frames.len() as u64);
        Pages(left.sum())
    }

    /// These chunks, from a frame on.
    pub(crate) fn left(&self, from: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let all = from.div_ceil(self.chunk) as usize..self.chunks.len();
        let left = all.filter(|at| self.chunks[*at].is_out && !self.chunks[*at].is_released);
        left.map(|at| self.range(at))
    }

    pub(crate) fn hold(&mut self, frame: FrameId) {
        self.held[(frame.0 / u64::BITS) as usize] |= 1 << (frame.0 % u64::BITS);
        self.count += 1;
        match self.seeker(frame) {
            Some(at) => self.sought[at].held += 1,
            None => self.hold_more((frame.0 / self.chunk) as usize, 1),
        }
    }

    /// More frames of a chunk are held.
    fn hold_more(&mut self, at: usize, frames: u32) {
        let all = self.range(at).len();
        let chunk = &mut self.chunks[at];
        chunk.held += frames;
        self.complete += u32::from(chunk.is_out && frames > 0 && chunk.held as usize == all);
    }

    /// The chunk has no memory.
    pub(crate) fn hold_absent(&mut self, first: FrameId) {
        self.of_mut(first).is_released = true;
        self.count += self.len(first.0);
    }

    /// A chunk all of whose frames are offline with their memory. They are not any more: the caller
    /// comes back with the chunk.
    pub(crate) fn next_to_release(&mut self) -> Option<FrameId> {
        if self.complete == 0 {
            return None;
        }
        let at = (0..self.chunks.len()).find(|at| {
            let chunk = &self.chunks[*at];
            chunk.is_out && chunk.held as usize == self.range(*at).len()
        })?;
        let frames = self.range(at);
        self.complete -= 1;
        self.count -= core::mem::take(&mut self.chunks[at].held);
        for frame in frames.clone() {
            self.drop_bit(frame);
        }
        Some(FrameId(frames.start))
    }

    /// A chunk that is out and has no memory.
    pub(crate) fn absent(&self) -> Option<usize> {
        self.chunks.iter().position(|chunk| chunk.is_released)
    }

    /// Takes a chunk out of use; false if it is. The caller holds those of its frames that are
    /// free.
    pub(crate) fn take_out(&mut self, at: usize) -> bool {
        if core::mem::replace(&mut self.chunks[at].is_out, true) {
            return false;
        }
        self.out += 1;
        let frames = self.range(at);
        let mut held = 0;
        self.sought.retain(|one| {
            let is_in = frames.contains(&one.frames.start);
            held += if is_in { one.held } else { 0 };
            !is_in
        });
        self.hold_more(at, held);
        true
    }

    /// Takes a chunk into use again, and gives back what was offline of it: single frames, or all
    /// of it, without memory.
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
        self.complete -= u32::from(self.chunks[at].held as usize == frames.len());
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

    /// The place of the range that a frame is sought for.
    #[inline]
    fn seeker(&self, frame: FrameId) -> Option<usize> {
        let mut sought = self.sought.iter();
        sought.position(|one| one.frames.contains(&frame.0))
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

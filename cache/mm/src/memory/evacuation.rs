//! A range of frames that a task empties, so as to have it whole: to give its memory to the system,
//! or to put pages side by side.
//!
//! ```text
//!   evacuate ----> what is free of it is kept, and what comes free ----> capture: all of it is the caller's
//!                  the caller moves the pages that are in it         '-> release: its memory goes to the system
//!                                                                    '-> dropped: what was kept is free again
//! ```
//!
//! Kept frames are not free: the seeker of a range leaves others as many frames as it takes.

use core::ops::Range;
use core::sync::atomic::Ordering;

use env::{Context, Interrupt, Signal};
use frames::FrameId;

use super::Memory;
use super::chunks::OnItsWay;

/// A search for a range; ended when it is dropped.
pub struct Evacuation<'a> {
    memory: &'a Memory,
    number: u64,
    frames: Range<u32>,
}

impl Memory {
    /// Begins to empty a range that is of one chunk. `None`: its chunk has no memory or is beyond
    /// the limit, another task empties it, or too many do.
    pub fn evacuate(&self, context: &impl Context, frames: Range<u32>) -> Option<Evacuation<'_>> {
        let mut free = self.lists.lock(context);
        let free = &mut *free;
        let chunk = FrameId(frames.start / self.chunk * self.chunk);
        if free.absent.has(chunk) {
            return None;
        }
        let number = free.offline.seek(frames.clone())?;
        for frame in frames.clone().map(FrameId) {
            if free.lists.try_remove_range(frame, 1) {
                free.offline.hold(frame);
                self.now_taken(self.layout.of(frame), 1);
            }
        }
        Some(Evacuation {
            memory: self,
            number,
            frames,
        })
    }
}

impl<'a> Evacuation<'a> {
    /// Frames of it that are not kept yet; none are any more where a limit has taken the chunk.
    pub(crate) fn missing(&self, context: &impl Context) -> Option<u32> {
        self.memory.lists.lock(context).offline.missing(self.number)
    }

    /// All of it is the caller's, as what was taken from the free lists; `None`: it is not empty.
    pub fn capture(self, context: &impl Context) -> Option<Range<u32>> {
        let mut free = self.memory.lists.lock(context);
        if free.offline.missing(self.number) != Some(0) {
            return None;
        }
        free.offline.end_seek(self.number, |_| {});
        Some(self.frames.clone())
    }

    /// The same of a whole chunk whose memory is to go to the system; `None`: it is not empty.
    pub(crate) fn release(self, context: &impl Context) -> Option<OnItsWay<'a>> {
        let mut free = self.memory.lists.lock(context);
        if free.offline.missing(self.number) != Some(0) {
            return None;
        }
        free.offline.end_seek(self.number, |_| {});
        self.memory.moving.fetch_add(1, Ordering::AcqRel);
        Some(self.memory.on_its_way(FrameId(self.frames.start), false))
    }
}

impl Drop for Evacuation<'_> {
    fn drop(&mut self) {
        let (memory, context) = (self.memory, Interrupt::new());
        let mut given = 0;
        {
            let mut free = memory.lists.lock(&context);
            let free = &mut *free;
            let lists = &mut free.lists;
            free.offline.end_seek(self.number, |frame| {
                lists.put_batch(&[frame]);
                memory.now_free(memory.layout.of(frame), 1);
                given += 1;
            });
        }
        if given > 0 {
            memory.hand_out(&context);
            memory.wait.wake_all(Signal::Freed);
        }
    }
}

#[cfg(test)]
mod tests;

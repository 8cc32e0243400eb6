//! Frames that a writer has taken and not used yet.
//!
//! Within a call they belong to the call, which gives back what it did not use. Between calls a
//! writer keeps only what `prepare_write` took for its next write; a writer that is dropped
//! meanwhile gives that back as well, so that no frame is ever lost to the cache.

use core::fmt;
use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use env::{Interrupt, Task};
use frames::FrameId;

use crate::cache::Cache;

/// Frames of one writer. Those popped first lie last.
#[derive(Default)]
pub(crate) struct FrameReserve {
    frames: Vec<FrameId>,
    /// Where they go when the writer is dropped, and how many of them are counted there as kept
    /// between calls.
    home: Option<(Weak<dyn Home>, u32)>,
}

/// Takes frames back from a writer that is dropped.
trait Home: Send + Sync {
    fn take_back(&self, frames: &[FrameId], kept: u32);
}

impl Home for Cache {
    fn take_back(&self, frames: &[FrameId], kept: u32) {
        self.memory.put(&Interrupt::new(), frames);
        self.memory.reserved.fetch_sub(kept, Ordering::Relaxed);
    }
}

impl FrameReserve {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The frames, to take some out or put some in.
    pub(crate) fn frames(&mut self) -> &mut Vec<FrameId> {
        &mut self.frames
    }

    /// Keeps what is there for the next call.
    pub(crate) fn keep(&mut self, cache: &Arc<Cache>) {
        let count = u32::try_from(self.frames.len()).expect("a batch is at most 256 pages");
        let home: Weak<dyn Home> = match self.home.take() {
            Some((home, before)) => {
                cache.memory.reserved.fetch_sub(before, Ordering::Relaxed);
                home
            }
            None => {
                let cache: Weak<Cache> = Arc::downgrade(cache);
                cache
            }
        };
        cache.memory.reserved.fetch_add(count, Ordering::Relaxed);
        self.home = Some((home, count));
    }

    /// Gives back what was not used.
    pub(crate) fn give_back(&mut self, task: &Task<'_>, cache: &Cache) {
        if let Some((_, kept)) = self.home.take() {
            cache.memory.reserved.fetch_sub(kept, Ordering::Relaxed);
        }
        if !self.frames.is_empty() {
            cache.put_unused(task, &self.frames);
            self.frames.clear();
        }
    }
}

impl Drop for FrameReserve {
    fn drop(&mut self) {
        if let Some((home, kept)) = self.home.take()
            && let Some(home) = home.upgrade()
        {
            home.take_back(&self.frames, kept);
        }
    }
}

impl fmt::Debug for FrameReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameReserve").field(&self.frames).finish()
    }
}

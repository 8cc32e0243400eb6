//! Memory that no page needs goes back to the system: chunks that are wholly free, and those that
//! become so when their pages move to what is free elsewhere.
//!
//! Chunks are emptied one at a time, those with the fewest pages first, as long as what is left
//! over is more than the reclaimer keeps free. No page is evicted or written for it: what cannot
//! move, and the chunk that it is in, stays.

use core::ops::Range;

use env::Task;
use frames::FrameId;
use policy::place::by_use::Purpose;
use policy::units::Pages;

use super::limit::contents;
use crate::alloc::Wanted;
use crate::cache::Cache;
use crate::lists::isolate::CLUSTER_FRAMES;
use crate::relocate::{look, move_found};

impl Cache {
    /// Gives memory that no page needs back to the system; it is taken again when needed. Answers
    /// how many frames that were.
    pub fn trim(&self, task: &mut Task<'_>) -> Pages {
        self.memory.drain_cpu_lists(task);
        let mut given = self.memory.trim(task);
        let chunks = self.memory.chunks(task).into_iter();
        let chunks = chunks.filter(|chunk| !chunk.is_out && chunk.has_memory);
        let chunks = chunks.filter_map(|chunk| {
            let (movable, stuck) = contents(&self.pages.table, &chunk);
            (stuck == 0).then_some((movable, chunk))
        });
        let mut chunks: Vec<_> = chunks.collect();
        // The last ones first where nothing else tells them apart, as where a limit takes some.
        chunks.sort_by_key(|(movable, chunk)| (*movable, core::cmp::Reverse(chunk.frames.start)));
        for (movable, chunk) in chunks {
            let zone = self.zones.layout().of(FrameId(chunk.frames.start));
            let others = self.memory.at_hand(task, zone).saturating_sub(chunk.free);
            let left = u64::from(others).saturating_sub(movable.into());
            if left < self.memory.marks_of(zone).high.0 {
                // Each of those to come has more to move.
                break;
            }
            given += self.give_chunk(task, chunk.frames);
        }
        given
    }

    /// Empties a chunk by moving what is in it, and gives its memory back; answers how many frames
    /// that were.
    fn give_chunk(&self, task: &mut Task<'_>, frames: Range<u32>) -> Pages {
        let Some(evacuation) = self.memory.evacuate(task, frames.clone()) else {
            return Pages::ZERO;
        };
        self.move_out(task, &frames);
        match evacuation.release(task) {
            Some(chunk) => {
                self.memory.give_to_system(chunk);
                Pages(frames.len() as u64)
            }
            None => Pages::ZERO,
        }
    }

    /// Moves all pages of these frames that can be to others that have memory.
    fn move_out(&self, task: &mut Task<'_>, frames: &Range<u32>) {
        for first in frames.clone().step_by(CLUSTER_FRAMES) {
            let cluster = u32::try_from(CLUSTER_FRAMES).expect("it is small");
            let part = first..first.saturating_add(cluster).min(frames.end);
            let mut found = look(task, self, part, true);
            let count = u32::try_from(found.len()).expect("no more than a cluster");
            let mut fresh = Vec::new();
            if count > 0 {
                // A chunk that gets its memory for it would be none won. Refused: there is none.
                let wanted = Wanted::new(count, Purpose::Used);
                let _ = task.nonblocking(|task| self.try_alloc(task, wanted, &mut fresh));
            }
            move_found(task, self, &mut found, &mut fresh);
            self.put_unused(task, &fresh);
        }
    }
}

#[cfg(test)]
mod tests;

//! Two positions in a zone that come towards each other: from below, pages are taken that are to
//! move; from above, frames for them.
//!
//! ```text
//!   first                                                         end
//!   |====>..........................................<============|
//!    migrate: a window at a time, a cluster taken    free: a pageblock at a time, as they are needed
//!              they have met: the zone is done
//! ```
//!
//! Invariants
//!   1. No window reaches beyond the lowest pageblock that frames were taken of.
//!   2. Frames are taken of pageblocks above the window alone: nothing moves into what is being
//!      emptied.
//!   3. A pass ends: each window is beyond the last, or the pass takes pages.
//!
//! Source: mechanisms 8.1; kernel-facts A7; Linux 3.2 mm/compaction.c, isolate_migratepages(),
//! isolate_freepages().

use core::ops::Range;

/// The position of a pass over a zone.
#[derive(Clone, Debug)]
pub struct Scanner {
    block: u32,
    end: u32,
    migrate: u32,
    free: u32,
}

impl Scanner {
    /// A pass over frames of a zone, in pageblocks of 2^`order`.
    #[must_use]
    pub fn begin(frames: Range<u32>, order: u8) -> Self {
        let block = 1 << order;
        Self {
            block,
            end: frames.end,
            migrate: frames.start,
            free: frames.end / block * block,
        }
    }

    /// It goes on from there; from both ends where the two have met since, or a position is none of
    /// this zone.
    pub fn resume(&mut self, (migrate, free): (u32, u32)) {
        if migrate >= self.migrate && free <= self.free && migrate + self.block < free {
            (self.migrate, self.free) = (migrate, free);
        }
    }

    /// Its two positions: `resume` goes on there.
    #[must_use]
    pub fn positions(&self) -> (u32, u32) {
        (self.migrate, self.free)
    }

    /// The two have met.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.free <= self.migrate
    }

    /// The frames to look at next: up to the end of a pageblock, of the next one if this one was
    /// begun. `None`: they would reach where frames are taken; the pass has ended.
    #[must_use]
    pub fn window(&mut self) -> Option<Range<u32>> {
        let end = (self.migrate + self.block).next_multiple_of(self.block);
        if end > self.free {
            self.migrate = end;
            return None;
        }
        Some(self.migrate..end)
    }

    /// Frames up to this one have been looked at.
    pub fn looked_to(&mut self, frame: u32) {
        self.migrate = frame;
    }

    /// Pageblocks in which to look for frames, in this order.
    pub fn blocks(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let (block, end, low) = (self.block, self.end, self.migrate + self.block);
        let mut at = self.free;
        let mut next = move || {
            let first = (at > low).then_some(at)?;
            at -= block;
            Some(first..end.min(first + block))
        };
        core::iter::from_fn(move || {
            // A zone may end with a whole pageblock: then nothing is at its end.
            next().and_then(|block| {
                if block.is_empty() {
                    next()
                } else {
                    Some(block)
                }
            })
        })
    }

    /// Frames were taken in blocks, of which `highest` is the first: there may be more. `None`: in
    /// none; there is nothing left above the window.
    pub fn took(&mut self, highest: Option<u32>) {
        let met = self.free.min(self.migrate + self.block);
        self.free = highest.map_or(met, |highest| highest.max(met));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_meet() {
        let mut scanner = Scanner::begin(0..67, 4);
        assert_eq!(scanner.window(), Some(0..16));
        scanner.looked_to(5);
        // A window that was begun ends with the next block.
        assert_eq!(scanner.window(), Some(5..32));
        let blocks: Vec<_> = scanner.blocks().collect();
        assert_eq!(blocks, [64..67, 48..64, 32..48], "21 is in the window");
        scanner.took(Some(48));
        assert_eq!(scanner.blocks().next(), Some(48..64), "there may be more");
        scanner.looked_to(32);
        assert_eq!(scanner.window(), Some(32..48));
        assert!(!scanner.is_complete());
        scanner.looked_to(40);
        assert_eq!(scanner.window(), None);
        assert!(scanner.is_complete());
    }

    #[test]
    fn it_goes_on_where_another_was() {
        let mut first = Scanner::begin(16..128, 4);
        first.looked_to(40);
        first.took(Some(96));
        let mut next = Scanner::begin(16..128, 4);
        next.resume(first.positions());
        assert_eq!(next.window(), Some(40..64));
        assert_eq!(next.blocks().next(), Some(96..112));
        // They have met; or it was of another zone.
        for positions in [(96, 96), (0, 0), (16, 512)] {
            let mut next = Scanner::begin(16..128, 4);
            next.resume(positions);
            assert_eq!(next.positions(), (16, 128), "{positions:?}");
        }
    }

    #[test]
    fn nothing_lies_beyond_the_end() {
        let scanner = Scanner::begin(0..64, 4);
        assert_eq!(scanner.blocks().collect::<Vec<_>>(), [48..64, 32..48]);
    }

    #[test]
    fn nothing_above_ends_it() {
        let mut scanner = Scanner::begin(16..128, 4);
        scanner.looked_to(32);
        scanner.took(None);
        assert_eq!(scanner.window(), Some(32..48));
        scanner.looked_to(48);
        assert_eq!(scanner.window(), None);
    }
}

//! Tidegate's own: a walk over memory that was swapped out has what follows read before it is
//! there.
//!
//! A window is read when somebody stands before it, and a task that uses its eight pages in a few
//! microseconds stands before the next one at once: the disk has one short request at a time, and
//! idles from its end until a thread has woken up and asked again. So where the page behind that of
//! a fault is used next, two windows are kept under way ahead of the page in use. They are as long
//! as what was walked so far, up to as many pages as go out together:
//!
//! ```text
//!   walked                in use     under way                             slots ->
//!   [=====================v      ][              ][              ]
//!                                  a window        a window
//! ```
//!
//! A walk belongs to a region, so that walks over several do not take each other for chance.
//!
//! Invariants
//!   1. The slots to be read follow what was read, lie in the file, and are no longer than
//!      `longest`.
//!   2. Nothing is read on before the page behind a fault was used, or a second fault has followed
//!      where the first window ended.
//!
//! Source: ours; windows grow with what was walked as those of files do (`policy::readahead`).
//! Linux stops at eight pages.

use core::ops::Range;

/// The longest window of a walk, in windows of a fault: with windows of eight pages what goes out
/// in one cluster.
const LONGEST: u32 = 4;
/// Windows under way ahead of the page in use: while one is used up, the device has another.
const AHEAD: u32 = 2;

/// The extent to which a walk over a region in the order of the slots was read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapWalk {
    /// Its beginning.
    start: u32,
    /// It has come so far,
    at: u32,
    /// and was read up to here. As long as that is the start, there is no walk.
    end: u32,
    /// Nothing was seen of it but its fault.
    is_new: bool,
    /// It is never read ahead of.
    is_off: bool,
}

impl SwapWalk {
    /// A walk that is read ahead of, where the law does that.
    #[must_use]
    pub fn new(reads_on: bool) -> Self {
        Self {
            is_off: !reads_on,
            ..Self::default()
        }
    }

    /// A fault on `slot` reads `window`. Only a window of `window_max`, of those that have found
    /// what they were looking for beside their pages before, begins a walk.
    pub fn faulted(&mut self, slot: u32, window: &Range<u32>, window_max: u32) {
        if self.is_off {
            return;
        }
        let goes_on = self.end > self.start && (self.at..=self.end).contains(&slot);
        if !goes_on && (window_max < 2 || window.end - window.start < window_max) {
            *self = Self::default();
            return;
        }
        *self = Self {
            start: if goes_on { self.start } else { slot },
            at: slot,
            end: window.end,
            is_new: !goes_on,
            is_off: false,
        };
    }

    /// A page read ahead from `slot` is used for the first time. Returns the slots to read next, of
    /// a file of `slots`. Report with `cut` those that were not read.
    pub fn used(&mut self, slot: u32, slots: u32, window_max: u32) -> Option<Range<u32>> {
        let follows = if self.is_new {
            slot == self.at + 1
        } else {
            slot > self.at
        };
        if !follows || slot >= self.end {
            return None;
        }
        self.at = slot;
        self.is_new = false;
        let walked = slot - self.start;
        let grown = 1 << walked.max(1).ilog2();
        let window = grown.max(window_max).min(longest(window_max));
        if self.end - slot > window * AHEAD {
            return None;
        }
        let next = self.end..self.end.saturating_add(window).min(slots);
        self.end = next.end;
        (!next.is_empty()).then_some(next)
    }

    /// Of the slots that `used` answered those from `at` on were not read.
    pub fn cut(&mut self, at: u32) {
        self.end = self.end.min(at).max(self.at);
    }
}

/// The longest window of a walk where a fault reads at most `window_max` pages.
#[must_use]
pub const fn longest(window_max: u32) -> u32 {
    window_max.saturating_mul(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u32 = 1000;
    const MAX: u32 = 8;

    fn begun() -> SwapWalk {
        let mut walk = SwapWalk::default();
        walk.faulted(16, &(16..24), MAX);
        walk
    }

    #[test]
    fn two_windows_are_under_way_as_long_as_what_was_walked_up_to_a_cluster() {
        let mut walk = begun();
        assert_eq!(walk.used(17, SLOTS, MAX), Some(24..32));
        assert_eq!(walk.used(18, SLOTS, MAX), Some(32..40));
        for slot in 19..24 {
            assert_eq!(walk.used(slot, SLOTS, MAX), None, "{slot}");
        }
        assert_eq!(walk.used(24, SLOTS, MAX), Some(40..48));
        // Some pages were not out: any says that the walk goes on.
        assert_eq!(walk.used(33, SLOTS, MAX), Some(48..64), "16 were walked");
        assert_eq!(walk.used(34, SLOTS, MAX), Some(64..80), "");
        let mut read = 80;
        for slot in 35..500 {
            if let Some(next) = walk.used(slot, SLOTS, MAX) {
                assert_eq!(next.start, read, "no slot is left out");
                assert!(next.end - next.start <= longest(MAX));
                read = next.end;
            }
            let ahead = read - slot;
            assert!(slot < 60 || (64..=96).contains(&ahead), "{slot}: {ahead}");
        }
    }

    #[test]
    fn what_is_no_walk_reads_nothing_on() {
        let mut walk = SwapWalk::default();
        assert_eq!(walk.used(0, SLOTS, MAX), None);
        walk.faulted(103, &(100..104), MAX);
        assert_eq!(walk.used(104, SLOTS, MAX), None, "a short window");
        walk.faulted(207, &(200..208), MAX);
        for slot in (200..207).rev() {
            assert_eq!(walk.used(slot, SLOTS, MAX), None, "{slot}: backwards");
        }
        walk.faulted(300, &(296..304), MAX);
        assert_eq!(walk.used(303, SLOTS, MAX), None, "by chance");
        // No walk is read ahead where read-ahead is off.
        walk.faulted(9, &(9..10), 1);
        assert_eq!(walk.used(10, SLOTS, 1), None);
    }

    #[test]
    fn a_walk_goes_on_where_it_was_cut() {
        let mut walk = begun();
        for slot in 17..60 {
            walk.used(slot, SLOTS, MAX);
        }
        walk.cut(60);
        walk.faulted(60, &(56..64), MAX);
        assert_eq!(walk.used(61, SLOTS, MAX), Some(64..96), "as long as before");
        walk.cut(64);
        assert_eq!(walk.used(62, SLOTS, MAX), Some(64..96), "what was not read");
        // A fault elsewhere begins anew.
        walk.faulted(400, &(400..408), MAX);
        assert_eq!(walk.used(401, SLOTS, MAX), Some(408..416));
    }

    #[test]
    fn a_fault_where_the_first_window_ended_is_a_walk() {
        let mut walk = SwapWalk::default();
        walk.faulted(23, &(16..24), MAX);
        walk.faulted(24, &(24..32), MAX);
        assert_eq!(walk.used(26, SLOTS, MAX), Some(32..40));
    }

    #[test]
    fn a_walk_ends_with_the_file() {
        let mut walk = SwapWalk::default();
        walk.faulted(984, &(984..992), MAX);
        assert_eq!(walk.used(985, 995, MAX), Some(992..995));
        assert_eq!(walk.used(992, 995, MAX), None);
        walk.faulted(u32::MAX - 8, &(u32::MAX - 8..u32::MAX), MAX);
        assert_eq!(walk.used(u32::MAX - 7, u32::MAX, MAX), None);
    }
}

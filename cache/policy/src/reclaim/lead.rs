//! Ours: pages by which the background reclaimer begins earlier, and goes on longer, than its marks
//! say, as long as a reader is quick.
//!
//! A window of read-ahead may be larger than all that lies between LOW and MIN. Then its reader
//! frees the rest itself, at the lock that the reclaimer holds. A reader that takes window after
//! window without a pause between them finds the next one free instead:
//!
//! ```text
//!   window      window      window            window
//!     |<- QUICK ->|           |                 |
//!     | none      | a window  | a window ...    | none: what it needs by then is free in any case
//! ```
//!
//! A reader that is slower would only have the memory of a window lie idle between two of them.
//!
//! Source: Tidegate's own.

use crate::units::{Instant, Nanos, Pages};

/// Windows follow one another quickly within this time: a reclaimer frees a window in a fifth of a
/// millisecond, and has to be awake by then.
const QUICK: Nanos = Nanos::millis(2);
/// At most this part of the memory.
const PART: u64 = 32;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Lead {
    pages: Pages,
    until: Instant,
    most: Pages,
}

impl Lead {
    /// Of a memory of `memory` pages.
    #[must_use]
    pub const fn new(memory: Pages) -> Self {
        Self {
            pages: Pages::ZERO,
            until: Instant::ZERO,
            most: Pages(memory.0 / PART),
        }
    }

    /// There is so much memory from now on.
    pub fn resize(&mut self, memory: Pages) {
        self.most = Pages(memory.0 / PART);
        self.pages = self.pages.at_most(self.most);
    }

    /// Pages of it, and until when.
    #[must_use]
    pub const fn until(&self) -> (Pages, Instant) {
        (self.pages, self.until)
    }

    /// A reader has taken a window of `window` pages.
    pub fn took(&mut self, now: Instant, window: Pages) {
        self.pages = if now < self.until {
            self.pages.at_least(window).at_most(self.most)
        } else {
            Pages::ZERO
        };
        self.until = now + QUICK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant(micros * 1_000)
    }

    #[test]
    fn a_window_ahead_of_a_quick_reader_and_none_of_a_slow_one() {
        let mut lead = Lead::new(Pages(32 * 300));
        lead.took(at(10_000), Pages(64));
        assert_eq!(
            lead.until().0,
            Pages(0),
            "the first says nothing of the next"
        );
        lead.took(at(11_000), Pages(128));
        lead.took(at(12_000), Pages(32));
        assert_eq!(
            lead.until(),
            (Pages(128), at(14_000)),
            "the largest of them"
        );
        lead.took(at(14_000), Pages(128));
        assert_eq!(lead.until().0, Pages(0), "too late");
    }

    #[test]
    fn it_is_a_small_part_of_memory_however_large_the_windows_are() {
        let mut lead = Lead::new(Pages(32 * 300));
        for ms in 1..4 {
            lead.took(at(ms * 1_000), Pages(5_000));
        }
        assert_eq!(lead.until().0, Pages(300));
        lead.resize(Pages(32 * 10));
        assert_eq!(lead.until().0, Pages(10));
    }
}

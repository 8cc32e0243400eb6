//! Decides whether an allocator that found no page tries again.
//!
//! Invariants
//!   1. It gives up after 17 rounds in a row without a page reclaimed.
//!   2. It gives up at once if all that could be reclaimed would not lift the node above its mark.
//!
//! Source: mechanisms 1.6; Linux 5.15 mm/page_alloc.c, should_reclaim_retry() (the sleep is gone
//! since 5.16, commit 132b0d21d21f).

use super::throttle::Finding;
use crate::units::Pages;

/// Rounds in a row without progress that are tried again (`MAX_RECLAIM_RETRIES`).
const ROUNDS: u32 = 16;

/// The node after a round of reclaim, at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryView {
    /// Pages that the round reclaimed.
    pub reclaimed: Pages,
    /// Free pages.
    pub free: Pages,
    /// Pages on the lists, anonymous ones only where swap is free.
    pub reclaimable: Pages,
    /// Pages dirty or under writeback.
    pub write_pending: Pages,
    /// Free pages must be more than this.
    pub min: Pages,
}

/// The allocator's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryVerdict {
    /// Tries again.
    Retry,
    /// Tries again; if the law makes a reason of this, it sleeps first (`Throttle::reason_of`).
    RetryAfter(Finding),
    /// There is no memory available.
    OutOfMemory,
}

/// The rounds of one allocation.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    fruitless: u32,
}

impl Retry {
    /// A round has ended and there still is no page.
    pub fn decide(&mut self, view: &RetryView) -> RetryVerdict {
        let progress = !view.reclaimed.is_zero();
        self.fruitless = if progress { 0 } else { self.fruitless + 1 };
        if self.fruitless > ROUNDS {
            return RetryVerdict::OutOfMemory;
        }
        if view.free.saturating_add(view.reclaimable) <= view.min {
            return RetryVerdict::OutOfMemory;
        }
        if !progress && view.write_pending.0.saturating_mul(2) > view.reclaimable.0 {
            return RetryVerdict::RetryAfter(Finding::WritePending);
        }
        RetryVerdict::Retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: RetryView = RetryView {
        reclaimed: Pages(0),
        free: Pages(10),
        reclaimable: Pages(1000),
        write_pending: Pages(500),
        min: Pages(100),
    };

    #[test]
    fn seventeen_rounds_without_a_page() {
        let mut retry = Retry::default();
        for round in 1..=16 {
            assert_eq!(retry.decide(&VIEW), RetryVerdict::Retry, "{round}");
        }
        assert_eq!(retry.decide(&VIEW), RetryVerdict::OutOfMemory);
        let mut retry = Retry::default();
        for round in 0..100 {
            let reclaimed = Pages(u64::from(round % 16 == 0));
            let view = RetryView { reclaimed, ..VIEW };
            assert_eq!(retry.decide(&view), RetryVerdict::Retry, "{round}");
        }
    }

    #[test]
    fn nothing_to_hope_for() {
        let view = |free, reclaimable| RetryView {
            free: Pages(free),
            reclaimable: Pages(reclaimable),
            ..VIEW
        };
        let decide = |view| Retry::default().decide(&view);
        assert_eq!(decide(view(40, 60)), RetryVerdict::OutOfMemory);
        assert_ne!(decide(view(41, 60)), RetryVerdict::OutOfMemory);
        assert_eq!(decide(view(0, 0)), RetryVerdict::OutOfMemory);
    }

    #[test]
    fn more_than_half_waits_to_be_written() {
        let view = |write_pending, reclaimed| RetryView {
            write_pending: Pages(write_pending),
            reclaimed: Pages(reclaimed),
            ..VIEW
        };
        let decide = |view| Retry::default().decide(&view);
        assert_eq!(decide(view(500, 0)), RetryVerdict::Retry);
        let after = RetryVerdict::RetryAfter(Finding::WritePending);
        assert_eq!(decide(view(501, 0)), after);
        assert_eq!(decide(view(501, 1)), RetryVerdict::Retry, "progress");
        assert_eq!(decide(view(u64::MAX, 0)), after);
    }
}

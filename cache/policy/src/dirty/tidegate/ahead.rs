//! Writing ahead of syncs: pages that a sync will wait for are written while nobody waits yet.
//!
//! Below the background mark dirty pages are left alone: they may be written again, or deleted, and
//! nobody waits for them. Where whole files are synced again and again that is not so: the next
//! sync writes them in any case, while somebody waits, on a device that had nothing to do before.
//! So as long as a sync is expected, writeback begins with a few pages:
//!
//! ```text
//!   sync        sync           sync            sync ...               none
//!    |<-- gap -->|<--- gap ---->|               |<------- 2 gaps ------|
//!    | as usual  | a next one is expected: from what the device writes in AHEAD on   | as usual
//! ```
//!
//! It is expected for twice the longer of the last two gaps. With gaps longer than `HOLD` nothing
//! is expected: so old a page is written for its age.
//!
//! Written ahead, a page may be dirtied again before the sync, and is then written twice. So what
//! is written ahead of a sync is bounded by what syncs find: a set of pages that is written over
//! and over costs two or three times what the syncs alone would, and not all that the device can
//! do.
//!
//! Invariants
//!   1. From one sync to the next no more is written ahead than a sync found of late, and the slice
//!      of the flusher in which that is reached.
//!   2. As much as a device writes in `AHEAD` is left to the sync: where a sync comes after every
//!      few pages, nothing is written ahead.
//!
//! Source: Tidegate's own.

use crate::units::{Instant, Nanos, Pages, PagesPerSec};

/// Of what the device writes in this time nothing is written ahead: a sync waits for as long for
/// what is under way.
const AHEAD: Nanos = Nanos::millis(40);
/// The most that a sync found is forgotten by this part with each sync that found less.
const FORGET: u64 = 8;

/// One device's syncs of whole files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// When the last one began.
    last: Option<Instant>,
    /// From one to the next: the last two, the newest first. None: there were fewer.
    gaps: [Option<Nanos>; 2],
    /// Dirty pages that one found: the most of late.
    found: Pages,
    /// Pages ever written up to which is written ahead.
    until: Pages,
    /// Another one was expected at the last look.
    expected: bool,
}

impl Ahead {
    /// A sync begins that finds `found` pages dirty, of `written` pages ever written.
    pub(super) fn on_sync(&mut self, now: Instant, found: Pages, written: Pages) {
        if let Some(last) = self.last.replace(now) {
            self.gaps = [Some(now.since(last)), self.gaps[0]];
        }
        let kept = Pages(self.found.0 - self.found.0.div_ceil(FORGET));
        self.found = kept.at_least(found);
        self.until = written.saturating_add(found).saturating_add(self.found);
    }

    /// Looks whether another one is expected.
    pub(super) fn look(&mut self, now: Instant, hold: Nanos) {
        let gap = self.gaps.into_iter().flatten().max();
        self.expected = match (self.last, gap) {
            (Some(last), Some(gap)) => gap <= hold && now.since(last) <= gap.saturating_add(gap),
            _ => false,
        };
    }

    /// From how many dirty pages on they are written ahead of a sync. None: they are not.
    pub(super) fn mark(&self, written: Pages, rate: PagesPerSec) -> Option<Pages> {
        let writes = self.expected && written < self.until;
        writes.then(|| rate.pages_in(AHEAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SECOND;

    const HOLD: Nanos = Nanos::secs(30);
    const RATE: PagesPerSec = PagesPerSec(500);

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    fn mark(ahead: &mut Ahead, now: Instant, written: u64) -> Option<Pages> {
        ahead.look(now, HOLD);
        ahead.mark(Pages(written), RATE)
    }

    #[test]
    fn one_sync_is_no_habit_and_two_are_for_twice_their_distance() {
        let mut ahead = Ahead::default();
        assert_eq!(mark(&mut ahead, at(1), 0), None);
        ahead.on_sync(at(1), Pages(1000), Pages(0));
        assert_eq!(mark(&mut ahead, at(2), 1000), None);
        ahead.on_sync(at(11), Pages(1000), Pages(1000));
        let what_takes_40_ms = Some(Pages(20));
        assert_eq!(mark(&mut ahead, at(12), 2000), what_takes_40_ms);
        assert_eq!(mark(&mut ahead, at(31), 2000), what_takes_40_ms);
        assert_eq!(mark(&mut ahead, at(32), 2000), None);
    }

    #[test]
    fn two_at_once_and_then_none_for_long_are_still_a_habit() {
        let mut ahead = Ahead::default();
        for round in 1..4 {
            ahead.on_sync(at(10 * round), Pages(1000), Pages(0));
            ahead.on_sync(at(10 * round), Pages(0), Pages(0));
        }
        assert!(mark(&mut ahead, at(39), 0).is_some());
    }

    #[test]
    fn syncs_that_are_rarer_than_pages_grow_old_are_none() {
        let mut ahead = Ahead::default();
        for round in 1..4 {
            ahead.on_sync(at(31 * round), Pages(1000), Pages(0));
        }
        assert_eq!(mark(&mut ahead, at(94), 0), None);
    }

    #[test]
    fn no_more_is_written_ahead_than_syncs_find() {
        let mut ahead = Ahead::default();
        // A hundred pages that are written over and over: found by each sync, however often they
        // were written ahead.
        let mut written = 0;
        for round in 1..20 {
            ahead.on_sync(at(round), Pages(100), Pages(written));
            written += 100;
            let before = written;
            while mark(&mut ahead, at(round), written).is_some() {
                written += 1;
            }
            let wanted = if round == 1 { 0 } else { 100 };
            assert_eq!(written - before, wanted);
        }
    }

    #[test]
    fn what_was_written_ahead_is_found_no_more_and_not_forgotten_at_once() {
        let mut ahead = Ahead::default();
        ahead.on_sync(at(1), Pages(1000), Pages(0));
        ahead.on_sync(at(2), Pages(1000), Pages(1000));
        let mut written = 2000;
        for round in 3..8 {
            // All of it was written ahead.
            written += 1000;
            ahead.on_sync(at(round), Pages(0), Pages(written));
        }
        assert!(mark(&mut ahead, at(7), written + 500).is_some());
        for round in 8..80 {
            ahead.on_sync(at(round), Pages(0), Pages(written));
        }
        assert_eq!(mark(&mut ahead, at(79), written), None, "{ahead:?}");
    }
}

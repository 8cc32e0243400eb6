//! The zonelist cache: which zones of a list were found full of late, so that nobody looks at them
//! again.
//!
//! One for each node's list, shared by all tasks of that node. It forgets all at once: lazily, at
//! the first search that fails a mark more than a second after the last time; and, with the paper's
//! second patch, when direct reclaim has freed pages. The bit of a zone says nothing of the mark
//! that was asked for.
//!
//! Source: mechanisms 1.7.1; Linux 3.0 mm/page_alloc.c, zlc_setup(), zlc_mark_zone_full(),
//! zlc_zone_worth_trying(), zlc_clear_zones_full().

use super::ZONES_MAX;
use crate::units::{Instant, Nanos};

/// The life of a mark, at least.
pub const LASTS: Nanos = Nanos::secs(1);

/// A kernel's use of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// The first zone of a list is asked of the cache as well, before it is trimmed (patch 1).
    pub asks_first: bool,
    /// A zone that a trim found not worth scanning is marked (before patch 1).
    pub keeps_trim_failures: bool,
    /// Direct reclaim that freed pages clears it (patch 2).
    pub cleared_by_reclaim: bool,
}

/// The cache of one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZonelistCache {
    /// One bit a position of the list.
    full: u32,
    cleared: Instant,
    /// When direct reclaim last freed pages for a task of this list.
    reclaimed: Instant,
    /// When each bit that is set was set.
    marked: [Instant; ZONES_MAX],
}

const _: () = assert!(ZONES_MAX <= u32::BITS as usize, "a bit for each");

impl ZonelistCache {
    /// A search has failed a mark: marks older than a second are forgotten.
    pub fn expire(&mut self, now: Instant) {
        if now.since(self.cleared) > LASTS {
            self.full = 0;
            self.cleared = now;
        }
    }

    /// True if the zone at that place is passed over.
    #[must_use]
    pub const fn hides(&self, place: usize) -> bool {
        self.full & 1 << place != 0
    }

    /// The zone at that place is full.
    pub fn mark(&mut self, place: usize, now: Instant) {
        if !self.hides(place) {
            self.marked[place] = now;
        }
        self.full |= 1 << place;
    }

    /// Direct reclaim has freed pages for a task of this list; with patch 2 all are worth a try
    /// again. The end of the second stays as it was.
    pub fn reclaimed(&mut self, rule: CacheRule, now: Instant) {
        self.reclaimed = now;
        if rule.cleared_by_reclaim {
            self.full = 0;
        }
    }

    /// True if a zone that is passed over was marked before direct reclaim last freed pages: patch
    /// 2 ends this.
    #[must_use]
    pub fn is_stale(&self, place: usize) -> bool {
        self.hides(place) && self.marked[place] < self.reclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    const FIRST: CacheRule = CacheRule {
        asks_first: true,
        keeps_trim_failures: false,
        cleared_by_reclaim: false,
    };

    #[test]
    fn all_marks_are_forgotten_together_after_more_than_a_second() {
        let mut cache = ZonelistCache::default();
        cache.expire(Instant(5 * SECOND));
        cache.mark(0, Instant(5 * SECOND));
        cache.mark(1, Instant(6 * SECOND - 1));
        cache.expire(Instant(6 * SECOND));
        assert!(cache.hides(0) && cache.hides(1));
        cache.expire(Instant(6 * SECOND + 1));
        assert!(!cache.hides(0) && !cache.hides(1));
    }

    #[test]
    fn only_the_second_patch_clears_it_by_reclaim_and_leaves_the_second_alone() {
        let both = CacheRule {
            cleared_by_reclaim: true,
            ..FIRST
        };
        for (rule, hidden) in [(FIRST, true), (both, false)] {
            let mut cache = ZonelistCache::default();
            cache.expire(Instant(5 * SECOND));
            cache.mark(2, Instant(5 * SECOND));
            cache.reclaimed(rule, Instant(5 * SECOND + 9));
            assert_eq!(cache.hides(2), hidden);
            assert_eq!(cache.is_stale(2), hidden);
            // Marked again at once: no second begins with the clearing.
            cache.mark(2, Instant(5 * SECOND + 10));
            cache.expire(Instant(6 * SECOND + 1));
            assert!(!cache.hides(2));
        }
    }

    #[test]
    fn a_mark_made_after_reclaim_is_not_stale() {
        let mut cache = ZonelistCache::default();
        cache.reclaimed(FIRST, Instant(7));
        cache.mark(0, Instant(8));
        assert!(!cache.is_stale(0));
        cache.reclaimed(FIRST, Instant(9));
        // Setting the bit once more does not make it younger.
        cache.mark(0, Instant(10));
        assert!(cache.is_stale(0));
    }
}

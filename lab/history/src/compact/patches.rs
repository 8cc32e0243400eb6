//! The patches of paper p4, each of which can be left out.
//!
//! | | what it does | without another |
//! |---|---|---|
//! | 1 | the first pass takes dirty pages along | takes pages under writeback too, until 6 |
//! | 2, 3, 4 | `compact_memory`, lumpy reclaim, an answer nobody reads here | nothing: same hash |
//! | 5 | the first pass moves dirty pages with buffers | nothing without 1; nothing on vfat |
//! | 6 | the first pass leaves alone what the file system cannot move, and what is being written | nothing without 1 |
//! | 7a | only a last pass that fails makes the next requests leave it | |
//! | 7b | a request that leaves it for that gives up, and does not reclaim | |
//! | 8 | the last pass neither writes nor waits | |
//! | 9 | reclaim for a run ends only where enough is free | |
//! | 10 | it passes over a zone that is ready, and does not end by it | shows only with several zones |
//! | 11, 11c | pages that wait for their write leave the scan; with the counts as posted, with right ones | |

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Patch {
    /// "mm: compaction: Allow compaction to isolate dirty pages".
    IsolateDirty = 1,
    /// "mm: compaction: Use synchronous compaction for /proc/sys/vm/compact_memory".
    CompactMemory = 2,
    /// "mm: vmscan: Check if we isolated a compound page during lumpy scan".
    Lumpy = 3,
    /// "mm: vmscan: Do not OOM if aborting reclaim to start compaction".
    AbortAnswersOne = 4,
    /// "mm: compaction: Determine if dirty pages can be migrated without blocking within
    /// ->migratepage".
    MoveDirty = 5,
    /// "mm: compaction: Make isolate_lru_page() filter-aware again".
    Filter = 6,
    /// "mm: page allocator: Do not call direct reclaim for THP allocations while compaction is
    /// deferred": when to defer.
    DeferAfterLast = 7,
    /// The same: a request that is deferred gives up.
    DeferredGivesUp = 12,
    /// "mm: compaction: Introduce sync-light migration for use by compaction".
    SyncLight = 8,
    /// "mm: vmscan: When reclaiming for compaction, ensure there are sufficient free pages
    /// available".
    Bound = 9,
    /// "mm: vmscan: Check if reclaim should really abort even if compaction_ready() is true for one
    /// zone".
    SkipReady = 10,
    /// "mm: isolate pages for immediate reclaim on their own LRU", its counts as posted.
    Immediate = 11,
    /// The same with right counts.
    ImmediateCounted = 13,
}

impl Patch {
    /// All of them.
    #[cfg(test)]
    const ALL: [Self; 13] = [
        Self::IsolateDirty,
        Self::CompactMemory,
        Self::Lumpy,
        Self::AbortAnswersOne,
        Self::MoveDirty,
        Self::Filter,
        Self::DeferAfterLast,
        Self::DeferredGivesUp,
        Self::SyncLight,
        Self::Bound,
        Self::SkipReady,
        Self::Immediate,
        Self::ImmediateCounted,
    ];

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// A set of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patches(u16);

impl Patches {
    /// Linux 3.2-rc5 as it was.
    pub const NONE: Self = Self(0);

    /// Those numbered 1 to `last`; 7 is both of its halves, 11 the form that was posted.
    #[must_use]
    pub const fn up_to(last: u8) -> Self {
        let numbered = Self((1 << (last + 1)) - 2);
        if last < 7 {
            numbered
        } else {
            numbered.with(Patch::DeferredGivesUp)
        }
    }

    /// These and another.
    #[must_use]
    pub const fn with(self, patch: Patch) -> Self {
        Self(self.0 | patch.bit())
    }

    /// These but one.
    #[must_use]
    pub const fn without(self, patch: Patch) -> Self {
        Self(self.0 & !patch.bit())
    }

    /// True if one is among them.
    #[must_use]
    pub const fn has(self, patch: Patch) -> bool {
        self.0 & patch.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seventh_patch_has_two_halves() {
        assert_eq!(Patches::up_to(6).0.count_ones(), 6);
        assert!(!Patches::up_to(6).has(Patch::DeferredGivesUp));
        let all = Patches::up_to(11);
        assert!(all.has(Patch::DeferAfterLast) && all.has(Patch::DeferredGivesUp));
        assert!(all.has(Patch::Immediate) && !all.has(Patch::ImmediateCounted));
    }

    #[test]
    fn no_two_patches_share_a_bit() {
        let all = Patch::ALL.into_iter().fold(0, |bits, patch| {
            assert_eq!(bits & patch.bit(), 0, "{patch:?}");
            bits | patch.bit()
        });
        assert_eq!(all.count_ones(), 13);
    }
}

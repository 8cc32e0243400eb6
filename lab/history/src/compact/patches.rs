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

use core::fmt;

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
    pub const ALL: [Self; 13] = [
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

    /// Its name in a column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IsolateDirty => "1",
            Self::CompactMemory => "2",
            Self::Lumpy => "3",
            Self::AbortAnswersOne => "4",
            Self::MoveDirty => "5",
            Self::Filter => "6",
            Self::DeferAfterLast => "7a",
            Self::DeferredGivesUp => "7b",
            Self::SyncLight => "8",
            Self::Bound => "9",
            Self::SkipReady => "10",
            Self::Immediate => "11",
            Self::ImmediateCounted => "11c",
        }
    }

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
    pub fn up_to(last: u8) -> Self {
        (1..=last).fold(Self::NONE, Self::with_number)
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

    /// The subset of that name: parts between commas, from left to right. `5` is a patch, `1-8` all
    /// of them from one to another, and a part that begins with a minus is left out again:
    /// `1-11,-7b`, or `1-11-7b`.
    ///
    /// # Errors
    /// The part that names none.
    pub fn by_name(name: &str) -> Result<Self, UnknownPatch> {
        let mut all = Self::NONE;
        let mut rest = name;
        loop {
            let unknown = || UnknownPatch(rest.to_owned());
            let leaves_out = rest.starts_with('-');
            let part = rest.strip_prefix('-').unwrap_or(rest);
            let end = part.find([',', '-']).unwrap_or(part.len());
            let first = Self::named(&part[..end]).ok_or_else(unknown)?;
            let mut after = &part[end..];
            let mut these = first;
            // A range has numbers on both sides.
            if let Some(last) = after.strip_prefix('-').filter(|_| !leaves_out) {
                let to = last.find([',', '-']).unwrap_or(last.len());
                let from = part[..end].parse::<u8>();
                if let (Ok(from), Ok(last)) = (from, last[..to].parse::<u8>())
                    && from < last
                {
                    if last > LAST {
                        return Err(unknown());
                    }
                    these = (from..=last).fold(Self::NONE, Self::with_number);
                    after = &after[to + 1..];
                }
            }
            all = if leaves_out {
                Self(all.0 & !these.0)
            } else {
                Self(all.0 | these.0)
            };
            if after.is_empty() {
                return Ok(all);
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
    }

    fn named(name: &str) -> Option<Self> {
        if name == "7" {
            return Some(Self::NONE.with_number(7));
        }
        let patch = Patch::ALL.into_iter().find(|patch| patch.name() == name)?;
        Some(Self::NONE.with(patch))
    }

    fn with_number(self, number: u8) -> Self {
        let of = |patch: &Patch| {
            *patch as u8 == number || number == 7 && *patch == Patch::DeferredGivesUp
        };
        let these = Patch::ALL.into_iter().filter(of);
        these.fold(self, Self::with)
    }
}

/// The last number.
const LAST: u8 = 11;

impl fmt::Display for Patches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let these = Patch::ALL.into_iter().filter(|patch| self.has(*patch));
        for (at, patch) in these.enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(formatter, "{comma}{}", patch.name())?;
        }
        Ok(())
    }
}

/// A part of a name that is no patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPatch(pub String);

impl fmt::Display for UnknownPatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "no patch of p4 is called '{}': 1 to 11, 7a, 7b, 11c, ranges as 1-8, and what is left out as -7b",
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_subset_has_a_name() {
        let says = |name: &str| Patches::by_name(name).map(|patches| patches.to_string());
        for (name, meant) in [
            ("1", "1"),
            ("7", "7a,7b"),
            ("1-8", "1,2,3,4,5,6,7a,7b,8"),
            ("5,8", "5,8"),
            ("1-11-7b", "1,2,3,4,5,6,7a,8,9,10,11"),
            ("1-11,-7b", "1,2,3,4,5,6,7a,8,9,10,11"),
            ("1-10,11c", "1,2,3,4,5,6,7a,7b,8,9,10,11c"),
            ("1-11-8-9", "1,2,3,4,5,6,7a,7b,10,11"),
        ] {
            assert_eq!(says(name), Ok(meant.to_owned()), "{name}");
            assert_eq!(Patches::by_name(meant), Patches::by_name(name), "{name}");
        }
        for wrong in ["", "0", "12", "1-12", "8-1-", "7c", "1,,2", "one"] {
            assert!(says(wrong).is_err(), "{wrong}: {:?}", says(wrong));
        }
        assert_eq!(Patches::up_to(11), Patches::by_name("1-11").unwrap());
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

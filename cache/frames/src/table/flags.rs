//! The flags of a frame, with its count of pins.
//!
//! The parent module says what they mean together, and which task may change them.

use super::PINS_MAX;

/// The low half of the state word: flags and pins (a `u32` bit set; combine with `|`).
///
/// ```text
///   63                              32 31  31 30            16 15              0
///  +----------------------------------+------+----------------+-----------------+
///  |            generation            |  0   |     flags      |      pins       |
///  +----------------------------------+------+----------------+-----------------+
///                                             30 WORKINGSET     0 ..= PINS_MAX
///   generation: how often claimed,            29 MAPPED
///   wraps; not part of `Flags`                28 ANON
///                                             27 RECLAIM
///                                             26 FREE
///                                             25 FAILED
///                                             24 MARK
///                                             23 ORPHAN
///                                             22 CACHED
///                                             21 ACTIVE
///                                             20 REFERENCED
///                                             19 BUSY
///                                             18 WRITEBACK
///                                             17 DIRTY
///                                             16 UPTODATE
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Content is valid.
    pub const UPTODATE: Self = Self(1 << 16);
    /// Content is newer than the device's.
    pub const DIRTY: Self = Self(1 << 17);
    /// A write of the content is under way.
    pub const WRITEBACK: Self = Self(1 << 18);
    /// Exclusive right taken.
    pub const BUSY: Self = Self(1 << 19);
    /// Accessed since the last look.
    pub const REFERENCED: Self = Self(1 << 20);
    /// Belongs on the active list.
    pub const ACTIVE: Self = Self(1 << 21);
    /// In a page index; `Owner` is valid.
    pub const CACHED: Self = Self(1 << 22);
    /// Replaced in the index while pinned or under writeback: freed by the last user.
    pub const ORPHAN: Self = Self(1 << 23);
    /// Reading this page triggers the next read-ahead window.
    pub const MARK: Self = Self(1 << 24);
    /// The last write of this page failed.
    pub const FAILED: Self = Self(1 << 25);
    /// On the free lists or never used.
    pub const FREE: Self = Self(1 << 26);
    /// Rotate to the inactive tail when the write ends.
    pub const RECLAIM: Self = Self(1 << 27);
    /// A page of anonymous memory: kept by a region and a swap file, not by a file.
    pub const ANON: Self = Self(1 << 28);
    /// A page of a file that somebody may use without a call: in the file's page table.
    pub const MAPPED: Self = Self(1 << 29);
    /// Was on the active list before; its refault says that the working set does not fit.
    pub const WORKINGSET: Self = Self(1 << 30);
    /// No flag.
    pub const NONE: Self = Self(0);

    /// Flags that may change without a pin or the busy bit, and so be lost beside
    /// `FrameTable::show`.
    pub(super) const HINTS: Self = Self(
        Self::REFERENCED.0 | Self::ACTIVE.0 | Self::MARK.0 | Self::RECLAIM.0 | Self::WORKINGSET.0,
    );
    /// The bits that count pins.
    pub(super) const PINS: u32 = 0xffff;
    /// Flags that a caller of `update` and `release` may change; the rest belongs to the
    /// transitions.
    pub(super) const CHANGEABLE: Self = Self(
        Self::UPTODATE.0
            | Self::DIRTY.0
            | Self::REFERENCED.0
            | Self::ACTIVE.0
            | Self::MARK.0
            | Self::FAILED.0
            | Self::RECLAIM.0
            | Self::ANON.0
            | Self::MAPPED.0
            | Self::WORKINGSET.0,
    );

    /// True if all of `other` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// True if any of `other` is set.
    #[inline]
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// Number of pins in a state word.
    #[inline]
    #[must_use]
    pub const fn pins(self) -> u32 {
        self.0 & Self::PINS
    }

    /// These flags with those of `set` set and those of `clear` cleared (`set` wins).
    pub(super) const fn changed(self, set: Self, clear: Self) -> Self {
        Self((self.0 & !clear.0) | set.0)
    }
    /// True if nobody uses an orphan of this state any more, so that it has to be freed.
    pub(super) const fn is_unused_orphan(self) -> bool {
        self.has(Self::ORPHAN) && self.pins() == 0 && !self.any(Self::WRITEBACK)
    }
    /// True if a reader may pin a frame of this state, if it is the right frame.
    pub(super) const fn is_pinnable(self) -> bool {
        let decisive = Self(Self::UPTODATE.0 | Self::CACHED.0 | Self::BUSY.0);
        self.0 & decisive.0 == Self::UPTODATE.0 | Self::CACHED.0 && self.pins() < PINS_MAX
    }
}

impl core::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

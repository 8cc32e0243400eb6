//! All laws of a cache in one struct: what a preset is, what a column of an experiment changes,
//! what a row scales, and what a cache is built with.
//!
//! A law of writers or of reclaim stands with its tunables. Those that depend on the machine (CPUs,
//! memory, limits) are of no machine until somebody sets them.

use crate::files::InodeRule;
use crate::shrink::ShrinkRule;
use policy::dirty::{self, InitialBandwidth, Law};
use policy::place::PlaceLaw;
use policy::place::mobility::FallbackRule;
use policy::reclaim::boost::BoostRule;
use policy::reclaim::{self, ReclaimLaw};
use policy::shares::ShareRule;
use policy::writeback::FlushTunables;

use crate::compact::Compaction;
use crate::queue::QueueRule;

/// The laws of a cache, but for the rule by which it evicts pages of files
/// (`rule::RuleMaker`), which anybody may write.
#[derive(Clone, Copy, Debug)]
pub struct Laws {
    /// Dirty throttling and its limits.
    pub dirty: dirty::Tunables,
    /// The flusher.
    pub flush: FlushTunables,
    /// The bandwidth that a device is assumed to have before any is measured.
    pub initial: InitialBandwidth,
    /// Reclaim, and how it throttles.
    pub reclaim: reclaim::Tunables,
    /// The search for a frame among several zones.
    pub place: PlaceLaw,
    /// Reclaim of inodes of small files.
    pub inodes: InodeRule,
    /// Caches of objects and the memory of their slabs.
    pub slabs: SlabLaw,
    /// The way to a huge page where none is free.
    pub compaction: Compaction,
    /// The line in front of a device's queue; `None`: the flusher's bound alone holds.
    pub queue: Option<QueueRule>,
}

impl Laws {
    /// Tidegate's own.
    pub const TIDEGATE: Self = Self {
        dirty: dirty::Tunables::of(Law::TIDEGATE, 1000),
        flush: FlushTunables::tidegate(),
        initial: InitialBandwidth::Learned,
        reclaim: reclaim::Tunables::of(ReclaimLaw::TIDEGATE, 1000),
        place: PlaceLaw::TIDEGATE,
        inodes: InodeRule::TIDEGATE,
        slabs: SlabLaw::TIDEGATE,
        compaction: Compaction::TIDEGATE,
        queue: None,
    };

    /// With another law of writers.
    #[must_use]
    pub const fn writers(mut self, law: Law) -> Self {
        self.dirty.law = law;
        self
    }

    /// With another law of reclaim.
    #[must_use]
    pub const fn reclaims(mut self, law: ReclaimLaw) -> Self {
        self.reclaim.law = law;
        self
    }

    /// With a clock of `hz` ticks a second: pauses and sleeps are whole ticks.
    #[must_use]
    pub const fn at_hz(mut self, hz: u32) -> Self {
        self.dirty.hz = hz;
        self.reclaim.hz = hz;
        self
    }
}

/// The laws of caches of objects and of their slabs.
#[derive(Clone, Copy, Debug)]
pub struct SlabLaw {
    /// The pressure on them.
    pub shrink: ShrinkRule,
    /// Their share of the memory beside the pages, if it is not left to that pressure.
    pub shares: Option<ShareRule>,
    /// Pages, objects and what cannot be moved have free lists of their own.
    pub keeps_apart: bool,
    /// The mobility whose lists serve a request that its own cannot.
    pub fallback: FallbackRule,
    /// The answer of a zone whose pageblocks are mixed by that.
    pub boost: BoostRule,
}

impl SlabLaw {
    /// Linux 6.12 in an experiment without slabs, where mobility makes no difference.
    pub const LINUX_6_12: Self = Self {
        shrink: ShrinkRule::LINUX_6_12,
        shares: None,
        keeps_apart: false,
        fallback: crate::fallback::LINUX_6_12,
        boost: crate::boost::LINUX_6_12,
    };
    /// Tidegate's own: mixed pageblocks are counted and not answered.
    pub const TIDEGATE: Self = Self {
        boost: BoostRule::TIDEGATE,
        shares: Some(ShareRule::TIDEGATE),
        ..Self::LINUX_6_12
    };
}

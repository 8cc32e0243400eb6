//! The columns: how each gets a run where none is free.
//!
//! ```text
//!                     3.1      3.2-rc5    + 1-10            + 1-11   andrea
//!  first pass moves   clean*   clean      what its fs can   =        clean*        *: takes the others along, and puts
//!  last pass          writes, waits       neither           =        waits            them back
//!  left out after     any failure         a last failure, then gives up    a last failure, then reclaims
//!  reclaim for it     to the end   one    until enough is free   =    to the end
//!                              suitable
//!                              zone ends it
//!  waits for writes in reclaim: all of them
//! ```
//!
//! Source: mechanisms 8.2 to 8.6; kernel-facts A2, A4, A5.

use policy::reclaim::page::Immediate;

use super::defer::Deferral;
use super::patches::{Patch, Patches, UnknownPatch};

/// The law of making a run where none is free. Plain data: a scenario may change any switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Not at all: what is free, or none.
    Never,
    /// The task that asks goes over its zones from both ends and moves pages from one to the other
    /// (Linux up to 3.3).
    Scans(Scans),
    /// The same, and a task of its own does it in the background (Linux since 4.6).
    Background(Background),
    /// Blocks are chosen by what it costs to empty them (ours).
    Blocks(Blocks),
}

impl Compaction {
    /// Linux 3.1.
    pub const LINUX_3_1: Self = Self::Scans(Scans::LINUX_3_1);
    /// Linux 3.2-rc5.
    pub const LINUX_3_2: Self = Self::Scans(Scans::LINUX_3_2);
    /// Linux 3.2 with Andrea Arcangeli's eight patches of 19 November 2011.
    pub const ANDREA: Self = Self::Scans(Scans::ANDREA);
    /// Linux 6.12.
    pub const LINUX_6_12: Self = Self::Background(Background::LINUX_6_12);
    /// Tidegate's.
    pub const TIDEGATE: Self = Self::Blocks(Blocks::TIDEGATE);

    /// The column of that name: `never`, `linux-3.1`, `linux-3.2-rc5`, `linux-3.2-rc5+aa`,
    /// `linux-3.2-rc5+p4.1-10` (the patches as in `Patches::by_name`), `linux-6.12`, `tidegate`.
    ///
    /// # Errors
    /// The part of the name that is unknown.
    pub fn by_name(name: &str) -> Result<Self, UnknownCompaction> {
        let unknown = || UnknownCompaction::Name(name.to_owned());
        if let Some(patches) = name.strip_prefix("linux-3.2-rc5+p4.") {
            let patches = Patches::by_name(patches).map_err(UnknownCompaction::Patch)?;
            return Ok(Self::Scans(Scans::of(patches)));
        }
        Ok(match name {
            "never" => Self::Never,
            "linux-3.1" => Self::LINUX_3_1,
            "linux-3.2-rc5" => Self::LINUX_3_2,
            "linux-3.2-rc5+aa" => Self::ANDREA,
            "linux-6.12" => Self::LINUX_6_12,
            "tidegate" => Self::TIDEGATE,
            _ => return Err(unknown()),
        })
    }

    /// Pages lie in pageblocks of their like.
    #[must_use]
    pub const fn groups(&self) -> bool {
        match self {
            Self::Blocks(blocks) => blocks.groups,
            Self::Never | Self::Scans(_) | Self::Background(_) => false,
        }
    }

    /// Pages that move for it lie apart from those that cannot.
    #[must_use]
    pub const fn keeps_apart(&self) -> bool {
        match self {
            Self::Scans(_) | Self::Background(_) => true,
            Self::Blocks(blocks) => blocks.groups,
            Self::Never => false,
        }
    }

    /// A task of its own moves pages, when it is asked.
    #[must_use]
    pub const fn has_background(&self) -> bool {
        match self {
            Self::Background(law) => law.works,
            Self::Never | Self::Scans(_) | Self::Blocks(_) => false,
        }
    }

    /// The treatment of pages that wait for their write, beside `reclaim::page::Waits`.
    #[must_use]
    pub const fn immediate(&self) -> Immediate {
        match self {
            Self::Scans(scans) => scans.immediate,
            Self::Never | Self::Background(_) | Self::Blocks(_) => Immediate::Scanned,
        }
    }
}

/// A name that no column has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownCompaction {
    /// The column.
    Name(String),
    /// A patch of it.
    Patch(UnknownPatch),
}

impl core::fmt::Display for UnknownCompaction {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Name(name) => write!(
                formatter,
                "no compaction is called '{name}': never, linux-3.1, linux-3.2-rc5, linux-3.2-rc5+aa, \
                 linux-3.2-rc5+p4.PATCHES, linux-6.12, tidegate"
            ),
            Self::Patch(patch) => patch.fmt(formatter),
        }
    }
}

/// Switches of the columns up to Linux 3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scans {
    /// The pass before reclaim (async).
    pub first: Moves,
    /// The pass after it (sync, or sync-light).
    pub last: Moves,
    /// After a pass that failed further ones are left out for a while; false: never (a knock-out).
    pub defers: bool,
    /// After a last pass alone (7a).
    pub defers_after_last: bool,
    /// A request asks once whether to leave a pass out (aa 4); otherwise each pass asks, and
    /// reclaim.
    pub asks_once: bool,
    /// A request whose first pass is left out gives up and does not reclaim (7b).
    pub deferred_gives_up: bool,
    /// When reclaim for a run has done enough of a zone.
    pub ready: Ready,
    /// Such a zone is passed over, and the others go on (10); else it ends reclaim.
    pub skips_ready: bool,
    /// 11.
    pub immediate: Immediate,
}

/// The pages that a pass may wait for, write or move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    /// It looks only into pageblocks of what can be moved.
    pub movable_blocks_only: bool,
    /// Dirty pages that it takes.
    pub takes_dirty: TakesDirty,
    /// It takes pages under writeback.
    pub takes_writeback: bool,
    /// The pass's treatment of a page under writeback.
    pub writeback: OnWriteback,
    /// Dirty pages with buffers (`Migrates::Buffers`).
    pub buffers: OnDirty,
    /// Dirty pages that have to be written (`Migrates::WritesPage`).
    pub unmovable: OnDirty,
    /// Times that it goes over the pages it has taken.
    pub rounds: u8,
    /// From this round on it insists: it may wait.
    pub insists_from: u8,
    /// Until it insists, dirty pages that are not a plain copy are refused for good (aa 5).
    pub refuses_dirty_at_first: bool,
    /// It gives up where too many pages are off the lists; else it waits.
    pub gives_up_if_crowded: bool,
    /// A try that moves nothing gives the frame that it was for back to the free lists, and the
    /// next one takes another (until 3.16).
    pub spends_targets: bool,
}

/// Which dirty pages a pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesDirty {
    /// All.
    All,
    /// Pages that their file system can move.
    IfMovable,
    /// None.
    None,
}

/// A pass's treatment of a page under writeback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWriteback {
    /// It is put back.
    Refuse,
    /// It comes again in the next round.
    Again,
    /// The same until the pass insists, which then waits for it.
    Wait,
}

/// A pass's treatment of a dirty page that is no plain copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDirty {
    /// It is put back.
    Refuse,
    /// It is moved.
    Move,
    /// It is written, alone, and comes again.
    Write,
}

/// When reclaim for a run has done enough of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Never: every zone is gone through at each priority.
    Never,
    /// As soon as compaction could work there, or is left out.
    Suitable,
    /// And so much is free that compaction does not come below the marks by it (9).
    Enough,
}

impl Scans {
    /// 3.1: whatever is met is taken.
    pub const LINUX_3_1: Self = Self {
        first: Moves {
            takes_dirty: TakesDirty::All,
            takes_writeback: true,
            ..Moves::FIRST
        },
        ready: Ready::Never,
        ..Self::LINUX_3_2
    };
    /// 3.2-rc5.
    pub const LINUX_3_2: Self = Self {
        first: Moves::FIRST,
        last: Moves::SYNC,
        defers: true,
        defers_after_last: false,
        asks_once: false,
        deferred_gives_up: false,
        ready: Ready::Suitable,
        skips_ready: false,
        immediate: Immediate::Scanned,
    };
    /// Andrea Arcangeli's eight patches (kernel-facts A2).
    pub const ANDREA: Self = Self {
        first: Moves {
            takes_dirty: TakesDirty::All,
            takes_writeback: true,
            writeback: OnWriteback::Again,
            ..Moves::FIRST
        },
        last: Moves {
            rounds: 5,
            insists_from: 3,
            refuses_dirty_at_first: true,
            ..Moves::SYNC
        },
        defers_after_last: true,
        asks_once: true,
        ready: Ready::Never,
        ..Self::LINUX_3_2
    };

    /// 3.2-rc5 with patches of the paper.
    #[must_use]
    pub const fn of(patches: Patches) -> Self {
        let takes_dirty = match (patches.has(Patch::IsolateDirty), patches.has(Patch::Filter)) {
            (false, _) => TakesDirty::None,
            (true, false) => TakesDirty::All,
            (true, true) => TakesDirty::IfMovable,
        };
        let first = Moves {
            takes_dirty,
            takes_writeback: patches.has(Patch::IsolateDirty) && !patches.has(Patch::Filter),
            buffers: if patches.has(Patch::MoveDirty) {
                OnDirty::Move
            } else {
                OnDirty::Refuse
            },
            ..Moves::FIRST
        };
        let last = if patches.has(Patch::SyncLight) {
            Moves::SYNC_LIGHT
        } else {
            Moves::SYNC
        };
        let immediate = if patches.has(Patch::ImmediateCounted) {
            Immediate::Counted
        } else if patches.has(Patch::Immediate) {
            Immediate::Published
        } else {
            Immediate::Scanned
        };
        Self {
            first,
            last,
            defers_after_last: patches.has(Patch::DeferAfterLast),
            deferred_gives_up: patches.has(Patch::DeferredGivesUp),
            ready: if patches.has(Patch::Bound) {
                Ready::Enough
            } else {
                Ready::Suitable
            },
            skips_ready: patches.has(Patch::SkipReady),
            immediate,
            ..Self::LINUX_3_2
        }
    }
}

impl Moves {
    /// 3.2's async.
    pub const FIRST: Self = Self {
        movable_blocks_only: true,
        takes_dirty: TakesDirty::None,
        takes_writeback: false,
        writeback: OnWriteback::Refuse,
        buffers: OnDirty::Refuse,
        unmovable: OnDirty::Refuse,
        rounds: 10,
        insists_from: u8::MAX,
        refuses_dirty_at_first: false,
        gives_up_if_crowded: true,
        spends_targets: true,
    };
    /// 3.2's sync.
    pub const SYNC: Self = Self {
        movable_blocks_only: false,
        takes_dirty: TakesDirty::All,
        takes_writeback: true,
        writeback: OnWriteback::Wait,
        buffers: OnDirty::Move,
        unmovable: OnDirty::Write,
        rounds: 10,
        insists_from: 3,
        refuses_dirty_at_first: false,
        gives_up_if_crowded: false,
        spends_targets: true,
    };
    /// 3.3's sync-light.
    pub const SYNC_LIGHT: Self = Self {
        writeback: OnWriteback::Refuse,
        unmovable: OnDirty::Refuse,
        ..Self::SYNC
    };
}

/// Switches of Linux since 4.6.
///
/// ```text
///   fault, for its own node and then for all:
///           take above LOW, above MIN -> (defrag = madvise and it did not ask: single pages)
///           -> a pass -> nothing to do there, or left out: give up -> reclaim for a run -> take -> a pass -> give up
///   woken when a reclaimer has worked off a boost:  a pass over each zone of its node that is not left out
/// ```
///
/// Source: mechanisms 1.6, 8.3 to 8.8; kernel-facts 16, A4; Linux 6.12 mm/huge_memory.c,
/// vma_thp_gfp_mask(); mm/mempolicy.c, alloc_pages_mpol_noprof(); mm/page_alloc.c,
/// __alloc_pages_slowpath(), __alloc_pages_direct_compact(), compaction_capture();
/// mm/compaction.c, try_to_compact_pages(), kcompactd_do_work(); mm/vmscan.c, balance_pgdat().
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// A pass of a fault (async).
    pub faults: Moves,
    /// One of the task of its own (sync-light).
    pub own: Moves,
    /// Faults of programs that did not ask for huge pages (`MADV_HUGEPAGE`) move pages too:
    /// `defrag` is `always`, not `madvise`.
    pub for_all: bool,
    /// A run goes to the task that moves pages for one as soon as it stands together.
    pub captures: bool,
    /// There is a task of its own (`kcompactd`).
    pub works: bool,
    /// Zones in which it failed are left out for a while.
    pub defers: bool,
    /// A fault asks its own node alone before all, each time with everything that it may do.
    pub home_first: bool,
    /// Reclaim for a run goes on until compaction could work; else it frees a cluster.
    pub reclaims_for_it: bool,
}

impl Background {
    /// 6.12 as it comes: programs ask, and ours did not.
    pub const LINUX_6_12: Self = Self {
        faults: Moves {
            takes_dirty: TakesDirty::All,
            buffers: OnDirty::Move,
            unmovable: OnDirty::Move,
            spends_targets: false,
            ..Moves::FIRST
        },
        own: Moves {
            takes_writeback: false,
            unmovable: OnDirty::Move,
            spends_targets: false,
            ..Moves::SYNC_LIGHT
        },
        for_all: false,
        captures: true,
        works: true,
        defers: true,
        home_first: true,
        reclaims_for_it: true,
    };

    /// True if a request at this moment leaves the zone alone.
    #[must_use]
    pub fn is_deferred(&self, deferral: &mut Deferral) -> bool {
        self.defers && deferral.is_deferred()
    }
}

/// Switches of ours (`blocks`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Pages lie in pageblocks of their like: read, written, and the rest.
    pub groups: bool,
    /// Of the blocks that are looked at, the cheapest is emptied; else the first that can be.
    pub by_cost: bool,
    /// Pages that were read once are dropped; else they move like all others.
    pub drops: bool,
    /// Frames that come free in a block that is being emptied are kept for the task that empties
    /// it.
    pub captures: bool,
    /// Blocks that one request looks at. 0: it takes what is free.
    pub looks: u32,
}

impl Blocks {
    /// All parts on.
    pub const TIDEGATE: Self = Self {
        groups: true,
        by_cost: true,
        drops: true,
        captures: true,
        looks: 32,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_a_name_and_its_patches() {
        let of = |name| Compaction::by_name(name).map_err(|unknown| unknown.to_string());
        assert_eq!(of("linux-3.2-rc5"), Ok(Compaction::LINUX_3_2));
        assert_eq!(of("never"), Ok(Compaction::Never));
        assert_eq!(of("linux-6.12"), Ok(Compaction::LINUX_6_12));
        let Ok(Compaction::Scans(eight)) = of("linux-3.2-rc5+p4.1-8") else {
            panic!("it scans")
        };
        assert_eq!(eight.last, Moves::SYNC_LIGHT);
        assert_eq!(eight.ready, Ready::Suitable);
        assert!(of("linux-3.2").unwrap_err().contains("'linux-3.2'"));
        assert!(of("linux-3.2-rc5+p4.14").unwrap_err().contains("'14'"));
    }

    #[test]
    fn patches_two_to_four_change_nothing() {
        for patch in [Patch::CompactMemory, Patch::Lumpy, Patch::AbortAnswersOne] {
            for with in [Patches::NONE, Patches::up_to(11)] {
                assert_eq!(
                    Scans::of(with.with(patch)),
                    Scans::of(with.without(patch)),
                    "{patch:?}"
                );
            }
        }
        assert_eq!(Scans::of(Patches::NONE), Scans::LINUX_3_2);
    }

    #[test]
    fn what_needs_another_does_nothing_alone() {
        let alone = |patch| Scans::of(Patches::NONE.with(patch));
        assert_eq!(alone(Patch::Filter), Scans::LINUX_3_2);
        // It may move what it does not take.
        assert_eq!(alone(Patch::MoveDirty).first.takes_dirty, TakesDirty::None);
        assert_eq!(
            alone(Patch::IsolateDirty).first.takes_dirty,
            TakesDirty::All
        );
    }
}

//! Presets: which laws, which clock and which flusher a column of an experiment stands for.
//!
//! One table. A column of a scenario names a preset and may change single keys of it.
//!
//! Source: mechanisms 5.3 (2.6.36), 5.4 (p1), 5.5 and 5.6 (6.12), 6.2 (flushers); HZ of p1's
//! traces: experiments 0.7 (250 before, 1000 after). Reclaim: mechanisms 4; under 2.6.36 and p1
//! that of 5.15, whose experiments are about dirty throttling alone; under 3.0 its own (mechanisms
//! 2, 3.5, 3.6), with the dirty throttling that lasted until 3.1. HZ of 3.0: a guess. HZ of p0's
//! histograms: experiments A1 (all delays are multiples of 4 ms).

use policy::compact::{Compaction, Patches};
use policy::dirty::{InitialBandwidth, Law};
use policy::place::PlaceLaw;
use policy::place::mobility::FallbackRule;
use policy::reclaim::boost::BoostRule;
use policy::reclaim::{Reason, ReclaimLaw};
use policy::shares::ShareRule;
use policy::shrink::ShrinkRule;
use policy::shrink::files::InodeRule;
use policy::writeback::FlushTunables;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in scenarios and on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The law of dirty throttling.
    pub law: Law,
    /// Ticks per second of its arithmetic.
    pub hz: u32,
    /// How its flusher works.
    pub flush: FlushTunables,
    /// What a device is taken for before anything is known of it.
    pub initial: InitialBandwidth,
    /// How reclaim is throttled.
    pub reclaim: ReclaimLaw,
    /// How a frame is looked for on a machine of several nodes.
    pub place: PlaceLaw,
    /// How inodes of small files are let go.
    pub inodes: InodeRule,
    /// What caches of objects are asked for, and what slabs do to free memory.
    pub slabs: SlabLaw,
    /// How a huge page is got where none is free. Only in experiments about huge pages are there
    /// any.
    pub compaction: Compaction,
}

/// What caches of objects are asked for, and what their slabs do to free memory: siblings of
/// `Preset::reclaim`.
#[derive(Clone, Copy, Debug)]
pub struct SlabLaw {
    /// How they are asked.
    pub shrink: ShrinkRule,
    /// How they share the memory with the pages, if not by that pressure.
    pub shares: Option<ShareRule>,
    /// Pages, objects and what cannot be moved have free lists of their own.
    pub keeps_apart: bool,
    /// The mobility whose lists serve a request that its own cannot.
    pub fallback: FallbackRule,
    /// What follows where pageblocks are mixed by that.
    pub boost: BoostRule,
}

impl SlabLaw {
    /// Before 4.20: mobilities had their lists long before, but no experiment of that time has
    /// slabs.
    const EARLY: Self = Self {
        shrink: ShrinkRule::LINUX_2_6_36,
        shares: None,
        keeps_apart: false,
        fallback: FallbackRule::LINUX_4_20,
        boost: BoostRule::LINUX_4_20,
    };
    /// 3.1 and 3.2: what cannot be moved has pageblocks of its own where there are huge pages.
    const LINUX_3_1: Self = Self {
        fallback: FallbackRule::LINUX_3_2,
        ..Self::EARLY
    };
    /// 5.15 and 5.16, whose experiments have no slabs.
    const LINUX_5_15: Self = Self {
        shrink: ShrinkRule::LINUX_6_12,
        ..Self::EARLY
    };
    const LINUX_4_20: Self = Self {
        shrink: ShrinkRule::LINUX_4_20,
        keeps_apart: true,
        ..Self::EARLY
    };
    const LINUX_5_0: Self = Self {
        shrink: ShrinkRule::LINUX_5_0,
        shares: None,
        keeps_apart: true,
        fallback: FallbackRule::LINUX_5_0,
        boost: BoostRule::LINUX_5_0,
    };
    /// A column of other experiments, where mobility makes no difference: those with slabs turn it
    /// on.
    const LINUX_6_12: Self = Self {
        shrink: ShrinkRule::LINUX_6_12,
        shares: None,
        keeps_apart: false,
        fallback: FallbackRule::LINUX_6_12,
        boost: BoostRule::LINUX_6_12,
    };
    /// Events are counted and not answered.
    const TIDEGATE: Self = Self {
        boost: BoostRule::TIDEGATE,
        shares: Some(ShareRule::TIDEGATE),
        ..Self::LINUX_6_12
    };
}

const LINUX_2_6_36: Preset = Preset {
    name: "linux-2.6.36",
    about: "a throttled writer writes pages back itself, then naps",
    law: history::dirty::FOREGROUND,
    hz: 250,
    flush: FlushTunables::linux_2_6_36(),
    initial: InitialBandwidth::Assumed,
    reclaim: history::reclaim::LINUX_5_15,
    place: PlaceLaw::LINUX_6_12,
    inodes: InodeRule::LINUX_5_0,
    slabs: SlabLaw::EARLY,
    compaction: Compaction::Never,
};

/// The base of its columns: the law of writers was that of 2.6.36 until 3.1.
const LINUX_3_0: Preset = Preset {
    name: "linux-3.0",
    about: "",
    reclaim: history::reclaim::LINUX_3_0,
    place: PlaceLaw::LINUX_3_0,
    inodes: InodeRule::LINUX_3_0,
    ..LINUX_2_6_36
};

const LINUX_6_12: Preset = Preset {
    name: "linux-6.12",
    about: "rate-based: each writer gets a rate that a control loop adjusts",
    law: history::dirty::RATE_BASED,
    hz: 250,
    flush: FlushTunables::linux_6_12(),
    initial: InitialBandwidth::Assumed,
    reclaim: history::reclaim::LINUX_6_12,
    place: PlaceLaw::LINUX_6_12,
    inodes: InodeRule::LINUX_6_12,
    slabs: SlabLaw::LINUX_6_12,
    compaction: Compaction::LINUX_6_12,
};

/// What the columns of paper p3 have in common: the dirty throttling of 6.12, and reclaim that
/// waits for congestion as until 5.15.
const LINUX_5_0: Preset = Preset {
    name: "linux-5.0",
    about: "mixed pageblocks raise the marks; boosted reclaim takes pages of files and no objects: paper p3 before",
    law: history::dirty::RATE_BASED,
    hz: 250,
    flush: FlushTunables::linux_4_10(),
    initial: InitialBandwidth::Assumed,
    reclaim: history::reclaim::LINUX_5_15,
    place: PlaceLaw::LINUX_6_12,
    inodes: InodeRule::LINUX_5_0,
    slabs: SlabLaw::LINUX_5_0,
    compaction: Compaction::Never,
};

/// Before paper p4: what its test was first run on. The law of writers is that of 2.6.36 until 3.1.
const LINUX_3_1: Preset = Preset {
    name: "linux-3.1",
    about: "every reclaimer writes the dirty pages it meets, and waits for them where it wants a huge page: before paper p4",
    hz: 250,
    reclaim: history::reclaim::LINUX_3_1,
    place: P4_PLACE,
    inodes: InodeRule::LINUX_5_0,
    slabs: SlabLaw::LINUX_3_1,
    compaction: Compaction::LINUX_3_1,
    ..LINUX_3_0
};

/// What paper p4 starts from: rate-based writers, and reclaim that leaves dirty pages of files to
/// the flusher.
const LINUX_3_2: Preset = Preset {
    name: "linux-3.2-rc5",
    about: "writers get rates; dirty pages come round again in reclaim, and are written where a huge page is wanted: paper p4 before",
    law: history::dirty::RATE_BASED,
    flush: FlushTunables::linux_3_2(),
    reclaim: history::reclaim::LINUX_3_2,
    compaction: Compaction::LINUX_3_2,
    ..LINUX_3_1
};

/// One node. Lists of CPUs do not shrink with a machine: at a sixteenth they would hold a good part
/// of it.
const P4_PLACE: PlaceLaw = PlaceLaw {
    cpu_lists: false,
    cache: None,
    ..PlaceLaw::LINUX_3_0_OFF
};

/// All presets, in the order of history.
pub const PRESETS: [Preset; 22] = [
    LINUX_2_6_36,
    Preset {
        name: "linux-3.0-off",
        about: "writers write back themselves; lists by zone; a full node's tasks go to the next node",
        place: PlaceLaw::LINUX_3_0_OFF,
        ..LINUX_3_0
    },
    Preset {
        name: "linux-3.0",
        about: "the same, and a task reclaims in its own full node first (zone_reclaim): paper p2 before",
        place: PlaceLaw::LINUX_3_0,
        ..LINUX_3_0
    },
    Preset {
        name: "linux-3.0+zlcfirst",
        about: "with paper p2's first patch: not where that failed within the last second",
        place: PlaceLaw::LINUX_3_0_FIRST,
        ..LINUX_3_0
    },
    Preset {
        name: "linux-3.0+zlc",
        about: "with both patches of paper p2: forgotten as soon as direct reclaim has freed pages",
        place: PlaceLaw::LINUX_3_0_BOTH,
        ..LINUX_3_0
    },
    LINUX_3_1,
    LINUX_3_2,
    ANDREA,
    Preset {
        name: "p1",
        about: "paper p1: writers only sleep; soft region with a fixed 100 MiB/s",
        law: history::dirty::SOFT_REGION,
        ..LINUX_2_6_36
    },
    Preset {
        name: "p1-measured",
        about: "paper p1 with the device's measured bandwidth",
        law: history::dirty::SOFT_REGION_MEASURED,
        hz: 1000,
        ..LINUX_2_6_36
    },
    Preset {
        name: "linux-4.20",
        about: "before paper p3's time: mixed pageblocks have no consequence",
        inodes: InodeRule::LINUX_4_20,
        slabs: SlabLaw::LINUX_4_20,
        ..LINUX_5_0
    },
    LINUX_5_0,
    Preset {
        name: "linux-5.0+p3",
        about: "5.0 with paper p3's patch: boosted reclaim asks caches of objects, too",
        slabs: SlabLaw {
            boost: BoostRule::LINUX_5_0_P3,
            ..SlabLaw::LINUX_5_0
        },
        ..LINUX_5_0
    },
    Preset {
        name: "linux-5.3",
        about: "the same as it was merged",
        slabs: SlabLaw {
            fallback: FallbackRule::LINUX_5_3,
            boost: BoostRule::LINUX_5_3,
            ..SlabLaw::LINUX_5_0
        },
        ..LINUX_5_0
    },
    Preset {
        name: "linux-5.15",
        about: "rate-based, as 6.12; reclaim waits for congestion that no device reports (congestion_wait)",
        slabs: SlabLaw::LINUX_5_15,
        ..LINUX_5_0
    },
    Preset {
        name: "linux-5.15+patch1",
        about: "5.15 with p0's own diff alone: reclaim waits for writeback, 100 ms at most",
        reclaim: history::reclaim::LINUX_5_15_PATCH1,
        slabs: SlabLaw::LINUX_5_15,
        ..LINUX_5_0
    },
    Preset {
        name: "linux-5.16-rc1",
        about: "paper p0's series: reclaim waits by reason: writeback 100 ms, isolated 20 ms, no progress 500 ms",
        reclaim: history::reclaim::LINUX_5_16_RC1,
        slabs: SlabLaw::LINUX_5_15,
        ..LINUX_5_0
    },
    LINUX_6_12,
    Preset {
        name: "linux-6.12-mode1",
        about: "6.12 with node_reclaim_mode = 1: a task reclaims in its own full node first",
        place: PlaceLaw::LINUX_6_12_RECLAIM,
        ..LINUX_6_12
    },
    Preset {
        name: "linux-6.12-mglru",
        about: "6.12 with the multi-generational LRU (lru_gen/enabled at 1: no walks over page tables)",
        reclaim: history::reclaim::LINUX_6_12_MGLRU,
        ..LINUX_6_12
    },
    TIDEGATE,
    // The part of its huge pages that is owed to writers with little dirty is seen without that.
    Preset {
        name: "tidegate-170s",
        about: "a control: Tidegate's reclaim and huge pages, and writers that may dirty as much as Linux's",
        law: history::dirty::RATE_BASED,
        ..TIDEGATE
    },
];

const TIDEGATE: Preset = Preset {
    name: "tidegate",
    about: "Tidegate's own: a writer owes time at its fair rate; writeback in flight bounded by time",
    law: Law::TIDEGATE,
    hz: 1000,
    flush: FlushTunables::tidegate(),
    initial: InitialBandwidth::Learned,
    reclaim: ReclaimLaw::TIDEGATE,
    place: PlaceLaw::TIDEGATE,
    inodes: InodeRule::TIDEGATE,
    slabs: SlabLaw::TIDEGATE,
    compaction: Compaction::TIDEGATE,
};

/// What 3.2-rc5 was with Andrea Arcangeli's patches instead of the paper's.
const ANDREA: Preset = Preset {
    name: "linux-3.2-rc5+aa",
    about: "with Andrea Arcangeli's eight patches: more huge pages, and longer waits for them",
    compaction: Compaction::ANDREA,
    ..LINUX_3_2
};

/// Behind this, patches of paper p4 are named (`policy::compact::Patches::by_name`).
const PATCHED: &str = "linux-3.2-rc5+p4.";

/// The preset of that name; `linux-3.2-rc5+p4.1-8` is 3.2-rc5 with the first eight of paper p4's
/// patches.
#[must_use]
pub fn by_name(name: &str) -> Option<Preset> {
    if let Some(patches) = name.strip_prefix(PATCHED) {
        let compaction = with_patches(patches)?;
        return Some(Preset {
            compaction,
            ..LINUX_3_2
        });
    }
    PRESETS.iter().find(|preset| preset.name == name).copied()
}

/// 3.2-rc5's way to huge pages with some of paper p4's patches.
pub(crate) fn with_patches(patches: &str) -> Option<Compaction> {
    let patches = Patches::by_name(patches).ok()?;
    Some(Compaction::Scans(policy::compact::Scans::of(patches)))
}

/// Reasons to throttle by the names that scenarios give them.
pub const REASONS: [(&str, Reason); Reason::COUNT] = [
    ("writeback", Reason::Writeback),
    ("isolated", Reason::Isolated),
    ("noprogress", Reason::NoProgress),
    ("congested", Reason::Congested),
    ("congestion_wait", Reason::CongestionWait),
    ("wait_iff_congested", Reason::WaitIffCongested),
    ("turn", Reason::Turn),
];

/// The reason of that name.
#[must_use]
pub fn reason(name: &str) -> Option<Reason> {
    let found = REASONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, reason)| *reason)
}

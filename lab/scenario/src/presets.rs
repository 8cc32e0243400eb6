//! Presets: which laws, which clock and which flusher a column of an experiment stands for.
//!
//! One table. A column of a scenario names a preset and may change single keys of it.
//!
//! Source: mechanisms 5.3 (2.6.36), 5.4 (p1), 5.5 and 5.6 (6.12), 6.2 (flushers); HZ of p1's
//! traces: experiments 0.7 (250 before, 1000 after). Reclaim: mechanisms 4; under 2.6.36 and p1
//! that of 5.15, whose experiments are about dirty throttling alone; under 3.0 its own (mechanisms
//! 2, 3.5, 3.6), with the dirty throttling that lasted until 3.1. HZ of 3.0: a guess. HZ of p0's
//! histograms: experiments A1 (all delays are multiples of 4 ms).

use history::compact::{Compaction, Patches};
use history::files::InodeRule;
use history::laws::{Laws, SlabLaw};
use history::shrink::ShrinkRule;
use policy::dirty::{self, InitialBandwidth};
use policy::place::PlaceLaw;
use policy::reclaim::{self, Reason};
use policy::writeback::FlushTunables;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in scenarios and on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its laws. Only in experiments about huge pages has the way to one (`compaction`) any use.
    pub laws: Laws,
}

/// Before 4.20: mobilities had their lists long before, but no experiment of that time has slabs.
const SLABS_EARLY: SlabLaw = SlabLaw {
    shrink: ShrinkRule::LINUX_2_6_36,
    shares: None,
    keeps_apart: false,
    fallback: history::fallback::LINUX_4_20,
    boost: history::boost::LINUX_4_20,
};
/// 3.1 and 3.2: what cannot be moved has pageblocks of its own where there are huge pages.
const SLABS_3_1: SlabLaw = SlabLaw {
    fallback: history::fallback::LINUX_3_2,
    ..SLABS_EARLY
};
/// 5.15 and 5.16, whose experiments have no slabs.
const SLABS_5_15: SlabLaw = SlabLaw {
    shrink: ShrinkRule::LINUX_6_12,
    ..SLABS_EARLY
};
const SLABS_4_20: SlabLaw = SlabLaw {
    shrink: ShrinkRule::LINUX_4_20,
    keeps_apart: true,
    ..SLABS_EARLY
};
const SLABS_5_0: SlabLaw = SlabLaw {
    shrink: ShrinkRule::LINUX_5_0,
    shares: None,
    keeps_apart: true,
    fallback: history::fallback::LINUX_5_0,
    boost: history::boost::LINUX_5_0,
};

const LINUX_2_6_36: Laws = Laws {
    dirty: dirty::Tunables::of(history::dirty::FOREGROUND, 250),
    flush: FlushTunables::linux_2_6_36(),
    initial: InitialBandwidth::Assumed,
    reclaim: reclaim::Tunables::of(history::reclaim::LINUX_5_15, 250),
    place: WITHOUT_CPU_LISTS,
    inodes: InodeRule::LINUX_5_0,
    slabs: SLABS_EARLY,
    compaction: Compaction::Never,
    queue: None,
};

/// The law of writers was that of 2.6.36 until 3.1.
const LINUX_3_0: Laws = Laws {
    place: history::place::LINUX_3_0,
    inodes: InodeRule::LINUX_3_0,
    ..LINUX_2_6_36.reclaims(history::reclaim::LINUX_3_0)
};

/// Before paper p4: the base of its first test. The law of writers is that of 2.6.36 until 3.1.
const LINUX_3_1: Laws = Laws {
    place: P4_PLACE,
    slabs: SLABS_3_1,
    compaction: Compaction::LINUX_3_1,
    queue: Some(history::queue::LINUX_3_2),
    ..LINUX_2_6_36.reclaims(history::reclaim::LINUX_3_1)
};

/// The base of paper p4: rate-based writers, and reclaim that leaves dirty pages of files to the
/// flusher.
const LINUX_3_2: Laws = Laws {
    flush: FlushTunables::linux_3_2(),
    compaction: Compaction::LINUX_3_2,
    ..LINUX_3_1
        .writers(history::dirty::RATE_BASED)
        .reclaims(history::reclaim::LINUX_3_2)
};

/// One node. Lists of CPUs do not shrink with a machine: at a sixteenth they would hold a good part
/// of it.
const P4_PLACE: PlaceLaw = PlaceLaw {
    cpu_lists: None,
    cache: None,
    ..history::place::LINUX_3_0_OFF
};

/// The lists of CPUs are held against nothing before 6.12.
const WITHOUT_CPU_LISTS: PlaceLaw = PlaceLaw {
    cpu_lists: None,
    ..history::place::LINUX_6_12
};

/// The columns of paper p3 have the dirty throttling of 6.12, and reclaim that waits for congestion
/// as until 5.15.
const LINUX_5_0: Laws = Laws {
    dirty: dirty::Tunables::of(history::dirty::RATE_BASED, 250),
    flush: FlushTunables::linux_4_10(),
    slabs: SLABS_5_0,
    ..LINUX_2_6_36
};

const LINUX_5_15: Laws = Laws {
    slabs: SLABS_5_15,
    ..LINUX_5_0
};

const LINUX_6_12: Laws = Laws {
    dirty: dirty::Tunables::of(history::dirty::RATE_BASED, 250),
    flush: FlushTunables::linux_6_12(),
    initial: InitialBandwidth::Assumed,
    reclaim: reclaim::Tunables::of(history::reclaim::LINUX_6_12, 250),
    place: history::place::LINUX_6_12,
    inodes: InodeRule::LINUX_6_12,
    slabs: SlabLaw::LINUX_6_12,
    compaction: Compaction::LINUX_6_12,
    queue: None,
};

const fn preset(name: &'static str, about: &'static str, laws: Laws) -> Preset {
    Preset { name, about, laws }
}

/// All presets, in the order of history.
#[rustfmt::skip]
pub const PRESETS: [Preset; 23] = [
    preset("linux-2.6.36", "a throttled writer writes pages back itself, then naps", LINUX_2_6_36),
    preset("linux-3.0-off", "writers write back themselves; lists by zone; a full node's tasks go to the next node", Laws { place: history::place::LINUX_3_0_OFF, ..LINUX_3_0 }),
    preset("linux-3.0", "the same, and a task reclaims in its own full node first (zone_reclaim): paper p2 before", LINUX_3_0),
    preset("linux-3.0+zlcfirst", "with paper p2's first patch: not where that failed within the last second", Laws { place: history::place::LINUX_3_0_FIRST, ..LINUX_3_0 }),
    preset("linux-3.0+zlc", "with both patches of paper p2: forgotten as soon as direct reclaim has freed pages", Laws { place: history::place::LINUX_3_0_BOTH, ..LINUX_3_0 }),
    preset("linux-3.1", "every reclaimer writes the dirty pages it meets, and waits for them where it wants a huge page: before paper p4", LINUX_3_1),
    preset("linux-3.2-rc5", "writers get rates; dirty pages come round again in reclaim, and are written where a huge page is wanted: paper p4 before", LINUX_3_2),
    // 3.2-rc5 with Andrea Arcangeli's patches instead of the paper's.
    preset("linux-3.2-rc5+aa", "with Andrea Arcangeli's eight patches: more huge pages, and longer waits for them", Laws { compaction: Compaction::ANDREA, ..LINUX_3_2 }),
    preset("p1", "paper p1: writers only sleep; soft region with a fixed 100 MiB/s", LINUX_2_6_36.writers(history::dirty::SOFT_REGION)),
    preset("p1-measured", "paper p1 with the device's measured bandwidth", LINUX_2_6_36.writers(history::dirty::SOFT_REGION_MEASURED).at_hz(1000)),
    preset("linux-4.20", "before paper p3's time: mixed pageblocks have no consequence", Laws { inodes: InodeRule::LINUX_4_20, slabs: SLABS_4_20, ..LINUX_5_0 }),
    preset("linux-5.0", "mixed pageblocks raise the marks; boosted reclaim takes pages of files and no objects: paper p3 before", LINUX_5_0),
    preset("linux-5.0+p3", "5.0 with paper p3's patch: boosted reclaim asks caches of objects, too", Laws { slabs: SlabLaw { boost: history::boost::LINUX_5_0_P3, ..SLABS_5_0 }, ..LINUX_5_0 }),
    preset("linux-5.3", "the same as it was merged", Laws { slabs: SlabLaw { fallback: history::fallback::LINUX_5_3, boost: history::boost::LINUX_5_3, ..SLABS_5_0 }, ..LINUX_5_0 }),
    preset("linux-5.15", "rate-based, as 6.12; reclaim waits for congestion that no device reports (congestion_wait)", LINUX_5_15),
    preset("linux-5.15+patch1", "5.15 with p0's own diff alone: reclaim waits for writeback, 100 ms at most", LINUX_5_15.reclaims(history::reclaim::LINUX_5_15_PATCH1)),
    preset("linux-5.16-rc1", "paper p0's series: reclaim waits by reason: writeback 100 ms, isolated 20 ms, no progress 500 ms", LINUX_5_15.reclaims(history::reclaim::LINUX_5_16_RC1)),
    preset("linux-6.12", "rate-based: each writer gets a rate that a control loop adjusts", LINUX_6_12),
    preset("linux-6.12-mode1", "6.12 with node_reclaim_mode = 1: a task reclaims in its own full node first", Laws { place: history::place::LINUX_6_12_RECLAIM, ..LINUX_6_12 }),
    preset("linux-6.12-mglru", "6.12 with the multi-generational LRU (lru_gen/enabled at 1: no walks over page tables)", LINUX_6_12.reclaims(history::reclaim::LINUX_6_12_MGLRU)),
    preset("linux-6.12-mglru-walks", "the same with lru_gen/enabled at y: page tables are walked for pages that were used", LINUX_6_12.reclaims(history::reclaim::LINUX_6_12_MGLRU_WALKS)),
    preset("tidegate", "Tidegate's own: a writer owes time at its fair rate; writeback in flight bounded by time", Laws::TIDEGATE),
    // The part of its huge pages that is owed to writers with little dirty is seen without that.
    preset("tidegate-170s", "a control: Tidegate's reclaim and huge pages, and writers that may dirty as much as Linux's", Laws::TIDEGATE.writers(history::dirty::RATE_BASED)),
];

/// Behind this, patches of paper p4 are named (`history::compact::Patches::by_name`).
const PATCHED: &str = "linux-3.2-rc5+p4.";

/// The preset of that name; `linux-3.2-rc5+p4.1-8` is 3.2-rc5 with the first eight of paper p4's
/// patches.
#[must_use]
pub fn by_name(name: &str) -> Option<Preset> {
    if let Some(patches) = name.strip_prefix(PATCHED) {
        let compaction = with_patches(patches)?;
        let base = by_name("linux-3.2-rc5")?;
        let laws = Laws {
            compaction,
            ..base.laws
        };
        return Some(Preset { laws, ..base });
    }
    PRESETS.iter().find(|preset| preset.name == name).copied()
}

/// 3.2-rc5's way to huge pages with some of paper p4's patches.
#[must_use]
pub fn with_patches(patches: &str) -> Option<Compaction> {
    let patches = Patches::by_name(patches).ok()?;
    Some(Compaction::Scans(history::compact::Scans::of(patches)))
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

//! Laws of placement: in which order zones are asked for a frame, and which are trimmed.
//!
//! Source: mechanisms 9; paper p2; Linux 3.0-rc6 and 6.12 mm/page_alloc.c,
//! get_page_from_freelist(); mm/vmscan.c, zone_reclaim(), node_reclaim().

use policy::place::cache::CacheRule;
use policy::place::cpu_list::{Bound, CpuListLaw};
use policy::place::trim::Mode;
use policy::place::{PlaceLaw, Way};
use policy::units::Pages;

#[cfg(test)]
mod search_tests;

/// Linux 3.0 where `zone_reclaim_mode` was switched off.
pub const LINUX_3_0_OFF: PlaceLaw = PlaceLaw {
    name: "linux-3.0-off",
    trims: None,
    ..LINUX_3_0
};
/// Linux 3.0-rc6, the paper's baseline.
pub const LINUX_3_0: PlaceLaw = PlaceLaw {
    name: "linux-3.0",
    way: Way::List,
    trims: Some(Mode::RECLAIM),
    cache: Some(CacheRule {
        asks_first: false,
        keeps_trim_failures: true,
        cleared_by_reclaim: false,
    }),
    trims_within: None,
    objects_last: true,
    one_zone_a_node: false,
    cpu_lists: Some(CPU_LISTS_3_0),
    shares_dirty: false,
};
/// The paper's first patch: a zone is not trimmed again while the cache says that this failed.
pub const LINUX_3_0_FIRST: PlaceLaw = PlaceLaw {
    name: "linux-3.0+zlcfirst",
    cache: Some(CacheRule {
        asks_first: true,
        keeps_trim_failures: false,
        cleared_by_reclaim: false,
    }),
    ..LINUX_3_0
};
/// Both patches: direct reclaim that freed pages clears the cache.
pub const LINUX_3_0_BOTH: PlaceLaw = PlaceLaw {
    name: "linux-3.0+zlc",
    cache: Some(CacheRule {
        asks_first: true,
        keeps_trim_failures: false,
        cleared_by_reclaim: true,
    }),
    ..LINUX_3_0
};
/// Linux 6.12 as it is unless somebody sets `node_reclaim_mode`.
pub const LINUX_6_12: PlaceLaw = PlaceLaw {
    name: "linux-6.12",
    way: Way::List,
    trims: None,
    cache: None,
    trims_within: Some(30),
    objects_last: false,
    one_zone_a_node: true,
    cpu_lists: Some(CPU_LISTS_6_12),
    shares_dirty: true,
};
/// Linux 6.12 with `node_reclaim_mode = 1`.
pub const LINUX_6_12_RECLAIM: PlaceLaw = PlaceLaw {
    name: "linux-6.12-mode1",
    trims: Some(Mode::RECLAIM),
    ..LINUX_6_12
};

/// Lists of CPUs in Linux 3.0: batches of 31 pages, six of them. Memory that cannot be moved, and
/// blocks, have none here.
pub const CPU_LISTS_3_0: CpuListLaw = CpuListLaw {
    name: "linux-3.0",
    batch_of_most: Pages(128),
    bound: Bound::Batches(6),
    doublings: 0,
    order_most: 0,
    pages_alone: true,
    yields: false,
    shrinks: false,
    last_first: true,
    emptied_by_finder: false,
};
/// In Linux 6.12: what they keep follows what is asked of them (6.7), for each mobility and order
/// up to 3 (5.13), from LOW (5.14) to an eighth of the zone; while the background reclaimer is at
/// work less (5.14).
///
/// # Source
/// Linux 6.12 mm/page_alloc.c, zone_highsize(), nr_pcp_alloc(), nr_pcp_high();
/// `CONFIG_PCP_BATCH_SCALE_MAX` is 5; include/linux/mmzone.h, `NR_LOWORDER_PCP_LISTS`.
pub const CPU_LISTS_6_12: CpuListLaw = CpuListLaw {
    name: "linux-6.12",
    batch_of_most: Pages(256),
    bound: Bound::LowToPart(8),
    doublings: 5,
    order_most: 3,
    pages_alone: false,
    yields: true,
    shrinks: true,
    last_first: false,
    emptied_by_finder: true,
};

/// All of them, and ours.
pub const ALL: [PlaceLaw; 7] = [
    LINUX_3_0_OFF,
    LINUX_3_0,
    LINUX_3_0_FIRST,
    LINUX_3_0_BOTH,
    LINUX_6_12,
    LINUX_6_12_RECLAIM,
    PlaceLaw::TIDEGATE,
];

/// The law of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<PlaceLaw> {
    ALL.into_iter().find(|law| law.name == name)
}

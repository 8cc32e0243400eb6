//! Where a frame comes from on a machine of several nodes: which zones are tried, in what order,
//! down to which mark, and what is done where a mark stops the search.
//!
//! ```text
//!   order: the fallback list of a node        list: N0.Normal  N1.Normal  N0.Dma32
//!                                                      |           |         |
//!   search: take above LOW; where the mark fails:      trim it?    next      next
//!             hidden by the cache? next                |
//!             trim::start -> NoScan, Full: next;  Go: a pass, then the mark once more
//!           all failed at LOW: wake every reclaimer, and once more down to MIN
//!           all failed at MIN: exhausted; the caller reclaims
//! ```
//!
//! Vocabulary: a *node* is memory near some CPUs; a *zone* is what has lists and marks of its own:
//! a zone of a node before Linux 4.8, a node since. To *trim* a zone is to reclaim there before
//! another one is tried (kernel: `zone_reclaim`, later `node_reclaim`). The *zonelist cache*
//! remembers for up to a second which zones were found full.
//!
//! | module | decides |
//! |---|---|
//! | `distance`, `order` | the order in which a node's tasks try zones |
//! | `machine` | what there is: nodes, zones, CPUs, and the list of each node |
//! | `marks` | the marks of a zone, and what it keeps back from requests that could go elsewhere |
//! | `cache` | which zones are passed over |
//! | `cpu_list` | free frames that a CPU keeps for itself |
//! | `mobility` | from whose lists, where those of its own mobility are empty |
//! | `offline` | which chunks a lowered limit takes |
//! | `trim` | whether a zone is trimmed, how far, and what came of it |
//! | `by_use` | Tidegate's own way |
//! | `share` | how much of a node may be dirty before a writer passes over it |
//! | `search` | the next step of an allocation |
//!
//! Invariants
//!   1. A search ends: each zone of the list is taken from, trimmed or passed over at most twice a
//!      floor.
//!   2. No reclaimer is woken while a zone of the list is above LOW.
//!   3. A law without a cache never passes a zone over unseen.
//!
//! Source: mechanisms 1.5 to 1.7.1; paper p2; Linux 3.0 and 6.12 mm/page_alloc.c,
//! get_page_from_freelist(), Linux 3.0 mm/vmscan.c, zone_reclaim().
//! Deviations: no cpusets, no page order above 0 in the cache's test of a zone.

pub mod by_use;
pub mod cache;
pub mod cpu_list;
pub mod distance;
pub mod machine;
pub mod marks;
pub mod mobility;
pub mod offline;
pub mod order;
pub mod search;
pub mod share;
pub mod trim;

use self::cache::CacheRule;
use self::cpu_list::CpuListLaw;
use self::trim::Mode;

/// Most nodes of a machine.
pub const NODES_MAX: usize = 8;
/// Most zones of a machine: two zones a node.
pub const ZONES_MAX: usize = 2 * NODES_MAX;

/// Which zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u8);

impl ZoneId {
    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The order in which zones are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Zone by zone down the list (`search`).
    List,
    /// By what the frame is wanted for (`by_use`).
    ByUse,
}

/// The law of looking for a frame among several zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLaw {
    /// Name of its column.
    pub name: &'static str,
    /// The order in which zones are looked at.
    pub way: Way,
    /// The permissions of a trim. `None`: zones are not trimmed (`zone_reclaim_mode = 0`).
    pub trims: Option<Mode>,
    /// The use of the zonelist cache; `None`: there is none (since 4.4).
    pub cache: Option<CacheRule>,
    /// Zones farther away than this are not trimmed (`node_reclaim_distance`); `None`: those of
    /// other nodes with CPUs are not, however near (3.x).
    pub trims_within: Option<u8>,
    /// A trim asks caches of objects behind its passes, until the zone's slabs fell (before 3.19);
    /// else in each pass.
    pub objects_last: bool,
    /// LRU lists and marks are of a node (since 4.8), so that the memory of one is one zone.
    pub one_zone_a_node: bool,
    /// Frames that are given back stay on a list of the CPU for a while, where no mark counts them.
    /// `None`: they do not, or that is left out.
    pub cpu_lists: Option<CpuListLaw>,
    /// A page that is to be dirtied passes over a node that has its share of the dirty limit, as
    /// long as another is above LOW (since 3.3).
    pub shares_dirty: bool,
}

impl PlaceLaw {
    /// Tidegate's own.
    pub const TIDEGATE: Self = Self {
        name: "tidegate",
        way: Way::ByUse,
        // A cluster of clean pages, where that pays.
        trims: Some(Mode::RECLAIM),
        cache: None,
        trims_within: Some(30),
        objects_last: false,
        one_zone_a_node: true,
        cpu_lists: None,
        // Its streams look at what is dirty where they go elsewhere.
        shares_dirty: false,
    };
}

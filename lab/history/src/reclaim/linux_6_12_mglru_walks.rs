//! Linux 6.12 with the multi-generational LRU as Debian has it once it is on (`lru_gen/enabled` at
//! `y`): page tables are walked, too.
//!
//! Source: Linux 6.12 mm/vmscan.c, should_walk_mmu(), try_to_inc_max_seq(), walk_pte_range().

use super::linux_6_12_mglru;
use policy::reclaim::{ReclaimLaw, Rules};

/// Linux 6.12 with `lru_gen/enabled` at `y`: generations, aged by walks and by rmap.
pub const LINUX_6_12_MGLRU_WALKS: ReclaimLaw = ReclaimLaw::new(&RULES);

const RULES: Rules = Rules {
    name: "linux-6.12-mglru-walks",
    walks_tables: true,
    ..linux_6_12_mglru::RULES
};

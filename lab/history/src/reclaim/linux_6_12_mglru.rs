//! Linux 6.12 with the multi-generational LRU: pages in generations, and nothing that a pass found
//! is a reason to sleep or to wake a flusher.
//!
//! Source: Linux 6.12 mm/vmscan.c, shrink_node(), which leaves all of that out under
//! lru_gen_enabled(); mechanisms 4.7.

use super::linux_6_12;
use policy::reclaim::page::JudgeRule;
use policy::reclaim::{ReclaimLaw, Rules};

/// Linux 6.12 with `lru_gen/enabled` at 1: generations, aged by rmap alone.
pub const LINUX_6_12_MGLRU: ReclaimLaw = ReclaimLaw::new(&RULES);

pub(super) const RULES: Rules = Rules {
    name: "linux-6.12-mglru",
    generations: true,
    page: JudgeRule {
        marks: false,
        ..linux_6_12::RULES.page
    },
    ..linux_6_12::RULES
};

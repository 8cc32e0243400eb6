//! Linux 3.1: what paper p4 compares with. For single pages it is Linux 3.0; what it does for a run
//! of them is `compact`'s.
//!
//! Source: mechanisms 2.5, 8; kernel-facts A5; Linux 3.1 mm/vmscan.c.

use super::linux_3_0;
use policy::reclaim::{ReclaimLaw, Rules};

/// Linux 3.1: every reclaimer writes the dirty pages that it meets.
pub const LINUX_3_1: ReclaimLaw = ReclaimLaw::new(&RULES);

const RULES: Rules = Rules {
    name: "linux-3.1",
    ..linux_3_0::RULES
};

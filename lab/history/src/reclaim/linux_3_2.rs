//! Linux 3.2: a task that reclaims on its own behalf writes no page of a file any more. A dirty one
//! is marked R and goes to the young end of the inactive list, where it comes round again until its
//! write has ended: in paper p4's tests 84 to 95 of a hundred pages looked at are such.
//!
//! The background still writes, once its gentle passes gave too little. Everything else is Linux
//! 3.0's; work for a run of pages is `compact`'s.
//!
//! Deviation: direct reclaim waits (`wait_iff_congested`) where a good part of a cluster is under
//! writeback, which here is no sleep: no device says that it is congested, and the mark of a zone
//! that would make it one was hardly ever set (mechanisms 2.5).
//!
//! Source: mechanisms 2.5, 2.8; kernel-facts A5; Linux 3.2 mm/vmscan.c: shrink_page_list(),
//! shrink_inactive_list().

use super::linux_3_0;
use policy::reclaim::page::{JudgeRule, Writers};
use policy::reclaim::{ReclaimLaw, Rules};

/// Linux 3.2: pages that wait for their write come round again, and no task that needs memory
/// writes them.
pub const LINUX_3_2: ReclaimLaw = ReclaimLaw::new(&RULES);

const RULES: Rules = Rules {
    name: "linux-3.2",
    page: PAGE,
    ..linux_3_0::RULES
};

/// Linux 3.2's table of pages.
pub(super) const PAGE: JudgeRule = JudgeRule {
    writers: Writers::Late,
    ..linux_3_0::PAGE
};

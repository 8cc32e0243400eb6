//! Linux 6.12: the throttling of 5.16, reclaim that writes no page of a file, and passes that are
//! told of the lists as they were up to 2 s ago (`scan::Told`).
//!
//! No file system of 6.12 has a call by which reclaim could write a single page (`->writepage`: xfs
//! lost it in 5.15, ext4, fat and block devices until 6.6), so a dirty page of a file that it would
//! write goes to the active list.
//!
//! Source: Linux 6.12 mm/vmscan.c, pageout(): PAGE_ACTIVATE where there is no such call. In
//! recordings of a guest on a bare device, ext4 and vfat, `mm_vmscan_write_folio` has anonymous
//! pages alone.

use super::{linux_5_15, linux_5_16};
use policy::reclaim::page::JudgeRule;
use policy::reclaim::scan::{CostRule, ScanRule};
use policy::reclaim::{ReclaimLaw, Rules};
use policy::units::Nanos;

/// Linux 6.12: as 5.16, file systems without a call that writes a single page, and statistics
/// of the lists for the lists.
pub const LINUX_6_12: ReclaimLaw = ReclaimLaw::new(&RULES);

/// The time between two rounds of the statistics of all memory cgroups, the root's among them
/// (`FLUSH_TIME`).
const TOLD_EVERY: Nanos = Nanos::secs(2);

/// The rules, most of which the law with generations has, too.
pub(super) const RULES: Rules = Rules {
    name: "linux-6.12",
    page: JudgeRule {
        writes_files: false,
        ..linux_5_15::PAGE
    },
    cost: CostRule::WritesAndFailures,
    scan: ScanRule {
        told_every: Some(TOLD_EVERY),
        spares_once: true,
        scans_proportion: false,
        ..linux_5_15::SCAN
    },
    ..linux_5_16::RULES
};

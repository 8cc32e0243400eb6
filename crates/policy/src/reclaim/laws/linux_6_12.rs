//! Linux 6.12: the throttling of 5.16, and reclaim that writes no page of a file.
//!
//! No file system of 6.12 has a call by which reclaim could write a single page (`->writepage`: xfs
//! lost it in 5.15, ext4, fat and block devices until 6.6), so a dirty page of a file that it would
//! write goes to the active list.
//!
//! Source: Linux 6.12 mm/vmscan.c, pageout(): PAGE_ACTIVATE where there is no such call. In
//! recordings of a guest on a bare device, ext4 and vfat, `mm_vmscan_write_folio` has anonymous
//! pages alone.

use super::{linux_5_15, linux_5_16};
use crate::reclaim::law::{ReclaimLaw, Rules};
use crate::reclaim::page::JudgeRule;

impl ReclaimLaw {
    /// Linux 6.12: as 5.16, and file systems without a call that writes a single page.
    pub const LINUX_6_12: Self = Self::new(&RULES);
}

/// What the one with generations has of it.
pub(super) const RULES: Rules = Rules {
    name: "linux-6.12",
    page: JudgeRule {
        writes_files: false,
        ..linux_5_15::PAGE
    },
    ..linux_5_16::RULES
};

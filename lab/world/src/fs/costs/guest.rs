//! CPU costs of the guest of the recordings where it has file systems
//! (docs/study/record-a-guest.md): `super::GUEST`, and what a bare disk does not need.
//!
//! Small files on ext4 are measured in the recording `r3-calm`, where one task makes 29,032 files
//! of a page in 12 s and nothing is reclaimed: 321.1 us of CPU time a file in the task (3.4 of them
//! its own), 99.4 us a page in the flusher. Their split is a GUESS: the cost of a page in a file on
//! the bare disk is taken off, and the rest is `Work::Create` and `Work::WritePage`. The log's task
//! (4.8 us a file) has no work of its own here.

use env::Work;
use policy::units::Nanos;

use super::p3::USER;
use super::{GUEST as BARE, with_compaction};
use crate::cost::CostTable;

/// The time of a task for a file of a page.
pub const FILE: Nanos = Nanos(321_100);
/// The time of the flusher for it.
pub const FLUSHER: Nanos = Nanos(99_400);
/// Pages of a request of such files.
const REQUEST_PAGES: u64 = 16;

/// The work of a task for a file of a page, beside making it: (work, units).
const BESIDE: [(Work, u64); 6] = [
    (Work::Call, 3),
    (Work::Lookup, 1),
    (Work::Copy, 1),
    (Work::Alloc, 1),
    (Work::Insert, 1),
    (Work::Dirty, 1),
];

/// With huge pages. The cost of a moved page is the GUESS of all tables.
pub const GUEST: CostTable = with_compaction(BARE);

/// With small files on ext4.
pub const FILES: CostTable = files();

const fn files() -> CostTable {
    let mut create = FILE.0 * 1_000 - USER.0 * 1_000;
    let mut at = 0;
    while at < BESIDE.len() {
        create -= BESIDE[at].1 * BARE.picos(BESIDE[at].0);
        at += 1;
    }
    let write = FLUSHER.0 * 1_000 - BARE.picos(Work::Submit) / REQUEST_PAGES;
    GUEST
        .with_picos(Work::Create, create)
        .with_picos(Work::WritePage, write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_costs_what_was_measured() {
        let beside: u64 = BESIDE
            .iter()
            .map(|(work, units)| units * FILES.picos(*work))
            .sum();
        let all = beside + FILES.picos(Work::Create) + USER.0 * 1_000;
        assert_eq!(all, FILE.0 * 1_000);
        assert!((290_000_000..310_000_000).contains(&FILES.picos(Work::Create)));
        assert!((98_000_000..FLUSHER.0 * 1_000).contains(&FILES.picos(Work::WritePage)));
        // A bare disk's page is as it was.
        assert_eq!(GUEST.picos(Work::WritePage), BARE.picos(Work::WritePage));
    }
}

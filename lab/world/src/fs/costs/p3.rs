//! CPU costs of p3's machine (experiments A4): 16 CPUs of about 2018, Linux 5.3-rc, xfs; an NVMe
//! that is hardly busy.
//!
//! Published are three numbers, and no profile:
//!   - 868.193 s of system time for the 16 creators of some 10.7 million files (run average times
//!     run time): 81 us a file. `CREATOR` holds its shares; their sum is tested against it. All but
//!     one are GUESSES of usual sizes, `Work::Create` is the rest: entry, inode and transactions,
//!     and whatever the 16 lose to each other on the way. Balancing, switches and reclaim are in
//!     the published time and are charged by what happens, so a run comes out higher.
//!   - 57.852 s of user time: 5.4 us a file, `USER`.
//!   - 51.7 thousand files a second while nothing is wrong, from a device that is idle half of the
//!     time and creators that use five of the sixteen CPUs. The rest of the time is the flusher's,
//!     one task: 19 us a file. `FLUSHER` is CALIBRATED on healthy-rate: the only number here that
//!     was; mapping a delayed extent of one block is a transaction a file. Files that reclaim
//!     writes itself cost it the same.
//!
//! The costs of pages and lists are as on p0's machine (`P0`). A shrinker looks at an object for as
//! long as a page is looked at. None of it was tuned to a row of A7.
//!
//! Source: experiments A4; paper p3.

use env::Work;
use policy::units::Nanos;

use super::P0;
use crate::cost::CostTable;

/// User time of a creator for one file.
pub const USER: Nanos = Nanos(5_400);

/// To take or give back an object, and to look at one.
pub(super) const OBJECT: Nanos = Nanos(150);
pub(super) const PRUNE: Nanos = Nanos(500);

/// Objects that a file takes from their caches (`workload::small_files`).
pub const OBJECTS: u64 = 6;

/// The work of a creator for one file of one page: (work, units, nanoseconds of one).
pub const CREATOR: [(Work, u64, u64); 9] = [
    (Work::Call, 3, 200),
    (Work::Create, 1, 68_000),
    (Work::Log, 1, 8_000),
    (Work::SlabTake, OBJECTS, OBJECT.0),
    (Work::Lookup, 1, 80),
    (Work::Copy, 1, 500),
    (Work::Alloc, 1, 120),
    (Work::Insert, 1, 300),
    (Work::Dirty, 1, 2_500),
];

/// The time of the flusher for one file of one page, in requests of 32 pages.
pub const FLUSHER: Nanos = Nanos(19_000);
const REQUEST_PAGES: u64 = 32;
const SUBMIT: u64 = 4_000;

/// The table of p3's machine.
pub const P3: CostTable = super::with_nodes(table());

const fn table() -> CostTable {
    let mut table = P0
        .with(Work::Submit, Nanos(SUBMIT))
        .with(Work::WritePage, Nanos(FLUSHER.0 - SUBMIT / REQUEST_PAGES))
        .with(Work::SlabGive, OBJECT)
        .with(Work::Prune, PRUNE);
    let mut at = 0;
    while at < CREATOR.len() {
        table = table.with(CREATOR[at].0, Nanos(CREATOR[at].2));
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_costs_its_creator_what_was_published() {
        let picos: u64 = CREATOR
            .iter()
            .map(|(work, units, _)| units * P3.picos(*work))
            .sum();
        let published = 868_193_000_000_u64 / 10_700_000;
        let ours = picos / 1_000;
        assert!(ours.abs_diff(published) < 500, "{ours} ns, not {published}");
        assert!(USER.0.abs_diff(57_852_000_000 / 10_700_000) < 50);
    }

    #[test]
    fn one_flusher_writes_as_many_files_as_were_made_while_all_was_well() {
        let picos = P3.picos(Work::WritePage) + P3.picos(Work::Submit) / REQUEST_PAGES;
        let rate = 1_000_000_000_000 / picos;
        assert!((51_700..53_000).contains(&rate), "{rate} files/s");
    }
}

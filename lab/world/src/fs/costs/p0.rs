//! CPU costs of p0's machine (experiments A1): 12 CPUs of about 2015, Linux 5.15, xfs.
//!
//! The paper publishes two times and no profile:
//!   - 31.4 ms for an unstressed round of the latency worker over 32768 pages, 0.92-0.96 us a page
//!     for fault, frame, zeroing, store and unmap together (experiments F). `WORKER` holds its
//!     shares; their sum is tested against it, the split is a GUESS.
//!   - 7308 s and 800 s of system time for 1166 and 651 million pages scanned: at most 6.3 and 1.2
//!     us a page, with all system time charged to scanning. Without contention no cost of a scan
//!     fits both: see `CONTENTION`.
//!
//! All else is a GUESS of usual sizes for such a CPU; file writes come to about 2.4 GB/s a core.
//! None of it was tuned to a row of A7.
//!
//! On a machine smaller by `s` use `CostTable::shrunk`: a page then stands for `s` pages.

use env::Work;
use policy::units::Nanos;

use crate::cost::CostTable;

/// The shares of one page of the latency worker, in nanoseconds: 940 of the 920 to 960 published.
pub const WORKER: [(Work, u64); 5] = [
    (Work::Fault, 420),
    (Work::Zero, 180),
    (Work::Alloc, 120),
    (Work::Touch, 100),
    (Work::Unmap, 120),
];

/// A page looked at by reclaim: isolation, the look at its references, the put-back: 0.4-0.6 us,
/// from the system times of three machines (experiments F).
const SCAN: u64 = 500;

/// The cost of a page that comes and goes along with others: of `Work::Fault`'s 420 ns
/// (`Work::Around`), of `Work::Alloc`'s 120 (`Work::Drawn`) and of `Work::Unmap`'s 120
/// (`Work::Returned`). Linux charges none: there each page is a fault, each frame is taken for
/// itself and each page unmapped for itself.
///
/// By the live program's own code (`cargo bench -p tidegate --bench round`, 2 cores, 2026-11-24,
/// medians of nine): in the CPU's caches a page is zeroed in 148 ns (64 at once, and a store to
/// each); a fresh page takes 22 beside that where 64 come together, and a page given back 22. By
/// its zeroing that is 27 and 27 on this machine. Beyond the caches, where that machine's memory is
/// slow, they are 27 and 26 beside 337, so less by zeroing. The first of 64 is charged as Linux's,
/// 540 and 120 ns, with the trap and the page table that are not in ours; 20 and 26 for each
/// further one make 28.1 and 27.5 a page in all. Of the 20 some 10 are the frame's (a list step and
/// its place in the batch; GUESS).
const AROUND: u64 = 10;
const DRAWN: u64 = 10;
const RETURNED: u64 = 26;

/// The addition of every other task that is shrinking the same node at that moment, on a CPU, to
/// one batch of 32 pages (`Work::ContendLru`).
///
/// The lists of a node have one lock, taken twice a batch, to isolate and to put back. A task that
/// comes while `k` others are at it waits for those before it in the queue: with all of them doing
/// nothing else, for `k` times as long as the lock is held. So the machine scans no faster with
/// twelve reclaimers than with one or two, and their CPUs spin. GUESS: held for 8 us a batch (a
/// quarter of a microsecond a page, half of `SCAN`), twice that as its line and the lists' lines
/// move between CPUs.
///
/// Held against the upper bound of 6.3 us a page: ten others make (16 + 10 x 16) / 32 = 5.5 us a
/// page, and 725 of the 7308 s are the latency worker's own faults (the samples of A1 times 31 ms),
/// which leaves 5.6. So the size agrees if about ten of the twelve CPUs are in reclaim when most
/// pages are scanned; how many were is not published. It is no prediction: the ratio of system
/// times (A7 row 1) depends on it, and docs/study/notebooks/ablations.md has to show that row
/// without it.
pub const CONTENTION: Nanos = Nanos::micros(16);

/// The table of p0's machine.
pub const P0: CostTable = super::with_nodes(table());

const fn table() -> CostTable {
    let mut table = CostTable::zero()
        .with(Work::Call, Nanos(200))
        .with(Work::Lookup, Nanos(80))
        // From the buffer of fio, which stays in the CPU's cache.
        .with(Work::Copy, Nanos(500))
        .with(Work::Insert, Nanos(300))
        // iomap and xfs: delayed allocation by extent, a tag a page.
        .with(Work::Dirty, Nanos(600))
        .with(Work::Balance, Nanos(500))
        // Nobody but the flusher visits files: taking it off its list and its lock.
        .with(Work::VisitFile, Nanos(3_000))
        .with(Work::ContendLru, CONTENTION)
        .with(Work::Around, Nanos(AROUND))
        .with(Work::Drawn, Nanos(DRAWN))
        .with(Work::Returned, Nanos(RETURNED))
        .with(Work::WritePage, Nanos(700))
        .with(Work::Submit, Nanos(4_000))
        .with(Work::EndPage, Nanos(250))
        .with(Work::Scan, Nanos(SCAN))
        // A page of an active list: moved, and its references dropped. Less than a look at an
        // inactive one.
        .with(Work::Deactivate, Nanos(250))
        .with(Work::Free, Nanos(150))
        .with(Work::Switch, Nanos(2_500));
    let mut at = 0;
    while at < WORKER.len() {
        // `Touch`, where the page is there: a miss of the TLB and a line from memory, for a stride
        // of a page through more memory than any cache holds. GUESS of 100 ns; user time.
        table = table.with(WORKER[at].0, Nanos(WORKER[at].1));
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_latency_worker_costs_what_was_published() {
        let page: u64 = WORKER.iter().map(|(work, _)| P0.picos(*work) / 1_000).sum();
        assert!((920..=960).contains(&page), "{page} ns");
        assert!((30_100_000..31_500_000).contains(&(page * 32_768)));
    }

    #[test]
    fn a_scan_alone_is_within_its_range_and_contention_below_the_bound() {
        let batch = 32 * P0.picos(Work::Scan);
        assert!((400_000..=600_000).contains(&P0.picos(Work::Scan)));
        let contended = |others| (batch + others * P0.picos(Work::ContendLru)) / 32 / 1_000;
        assert!(contended(11) <= 6_300, "{} ns a page", contended(11));
        assert_eq!(contended(0), 500);
    }
}

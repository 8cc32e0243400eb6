//! The state of a cache, its work, and the waits of its callers.

use std::sync::Arc;
use std::time::Duration;

use env::{Cause, Event, Signal, TaskId, Wakeup};
use frames::sync::{AtomicU64, Ordering};

use crate::OneNode;
use crate::causes::CAUSES;
use crate::pressure::{Meter, Pressure};
use crate::waits::OnSlow;

/// A reading of a cache. Sizes in bytes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The memory limit now.
    pub limit: u64,
    /// Memory that is resident beyond a limit that was lowered, in whole chunks (2 MiB; more in
    /// caches above 32 GiB): a chunk whose last page is pinned counts as a whole. Zero: the limit
    /// holds.
    pub over_limit: u64,
    /// The control group of the process holds the cache below the limit that was asked for: the
    /// most that it takes now.
    pub ceiling: Option<u64>,
    /// The part of the limit that the system gave no memory for (`ulimit -d`, no overcommit, a full
    /// pool of huge pages): the cache goes on with the rest, which [`Stats::limit`] says, and asks
    /// again every 10 s while it is short.
    pub refused: u64,
    /// By how much the limit that it was built with was more than the system said that it had: as
    /// it said so itself, without free swap and without what ZFS keeps, which may make room.
    pub short_at_start: Option<u64>,
    /// Why not all I/O goes through io_uring, though it was to: the pool of threads does it, more
    /// slowly.
    pub no_io_uring: Option<String>,
    /// The part of the limit that is left to the program itself (`Builder::beside`).
    pub beside: u64,
    /// Pages in the cache.
    pub cached: u64,
    /// Memory for pages that is not in use.
    pub free: u64,
    /// Pinned by callers.
    pub pinned: u64,
    /// Written and not yet on its way to a device.
    pub dirty: u64,
    /// On its way to a device.
    pub writeback: u64,
    /// Over this, writers are paced.
    pub dirty_limit: u64,
    /// Over this, writeback begins.
    pub background_limit: u64,
    /// Ever made dirty.
    pub dirtied_total: u64,
    /// Ever written to devices.
    pub written_total: u64,
    /// Ever read from devices.
    pub read_total: u64,
    /// Ever freed by reclaim.
    pub reclaimed_total: u64,
    /// Pages ever moved to another frame: for a lowered limit, for `Cache::trim`, for
    /// `File::pin_run`, or when memory is grouped.
    pub moved_total: u64,
    /// Number of times that a page was to be moved and stayed: it was pinned, being written, or
    /// gone.
    pub move_refused_total: u64,
    /// Free memory by what stands side by side: free blocks of 4 KiB, 8 KiB, ... 4 MiB. Memory that
    /// is the system's is in none.
    pub runs: [u64; 11],
    /// Writes to devices that failed and are tried again.
    pub failed_total: u64,
    /// Metadata: frame table, lists, index nodes.
    pub metadata: u64,
    /// Anonymous memory that is in memory.
    pub anonymous: u64,
    /// The swap file; all zero without one.
    pub swap: Swap,
    /// The nodes of the machine that the memory lies on (`Builder::nodes`); one, if there are not
    /// several.
    pub nodes: Vec<NodeStats>,
    /// Why it is one although it was to be those of the machine (`Nodes::System`).
    pub one_node: Option<OneNode>,
    /// The waits, by cause; causes without a wait are left out.
    pub waits: Vec<Wait>,
    /// For how long callers were stalled for memory.
    pub pressure: Pressure,
    /// Counters and levels under their names in Linux' `/proc/vmstat`, in pages.
    pub vmstat: Vec<(&'static str, u64)>,
}

/// A node of the machine. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// The system's number of it; none where it was told nothing (`Nodes::One`, `Nodes::Divide`).
    pub number: Option<u32>,
    /// Its part of the cache.
    pub size: u64,
    /// The part of it that is not in use.
    pub free: u64,
    /// Pages of files.
    pub cached: u64,
    /// Anonymous memory.
    pub anonymous: u64,
    /// Pages of both kinds that wait for their write, and that reclaim does not look at until then.
    pub aside: u64,
    /// Written and not yet on its way to a device.
    pub dirty: u64,
    /// Ever taken here by threads that ran on its CPUs,
    pub taken_here_total: u64,
    /// and by the same threads on other nodes.
    pub taken_elsewhere_total: u64,
    /// Resident, but on another node, as this one had nothing left when the memory came.
    pub misplaced: u64,
    /// Ever looked at by reclaim.
    pub scanned_total: u64,
    /// Ever freed by reclaim.
    pub reclaimed_total: u64,
}

/// Memory for a cache's pages, and what more of it would have been worth. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageUse {
    /// Memory for pages under the limit that the cache was built with: the most that it can use.
    pub most: u64,
    /// In use.
    pub used: u64,
    /// Ever evicted.
    pub evicted_total: u64,
    /// Ever read from devices.
    pub read_total: u64,
    /// Pages that came back, ever, by how many others were evicted or activated since they went:
    /// up to 1, 2, 4, 8 and so on.
    pub refaults: [u64; 32],
    /// The mean time of a page's read, of late; zero: none was read.
    pub read_time: Duration,
}

/// The swap file. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swap {
    /// Its size.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// On its way there.
    pub writeback: u64,
    /// Ever failed to be written (each try counts); it is still in memory.
    pub write_failed_total: u64,
    /// Ever failed to be read back; the next access tries again.
    pub read_failed_total: u64,
}

/// All waits of one cause. Of callers and of the cache's own tasks, idling apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// Its name.
    pub cause: &'static str,
    /// Number of waits.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
    /// Number of waits that ended by a timeout that was only a safety net.
    pub timed_out: u64,
    /// Number of waits by length: the first counts waits below a microsecond, each next one those
    /// below twice as long, the last all from 35 minutes on.
    pub histogram: [u64; BUCKETS],
    /// The ends of waits: the event by its name or the deadline, and their number; events that
    /// ended none are left out.
    pub ended_by: Vec<(&'static str, u64)>,
}

/// Buckets of a histogram of waits.
pub(crate) const BUCKETS: usize = 32;

impl Wait {
    /// The end of a bucket of the histogram; `None`: the last one has no end.
    #[must_use]
    pub fn bucket_end(bucket: usize) -> Option<Duration> {
        let exponent = u32::try_from(bucket).ok()?;
        (bucket + 1 < BUCKETS).then(|| Duration::from_micros(1 << exponent))
    }

    /// A bound for the longest of all but `1 - share` of the waits, from the histogram: at most
    /// twice the true value.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> Duration {
        let rank = (self.count * permille).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.histogram.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::bucket_end(bucket).map_or(self.max, |end| end.min(self.max));
            }
        }
        self.max
    }
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    total: AtomicU64,
    max: AtomicU64,
    timed_out: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
    /// By `Signal`; the last counts deadlines, the shutdown apart.
    ends: [AtomicU64; ENDS],
}

/// Signals, and the deadline.
const ENDS: usize = Signal::COUNT + 1;

/// Counts waits as events bring them.
#[derive(Default)]
pub(crate) struct Waits {
    cells: [Cell; CAUSES.len()],
    pressure: Meter,
    /// Calls that take long are told.
    pub(crate) slow: Option<OnSlow>,
}

impl Waits {
    /// Nothing was waited for yet.
    pub(crate) fn new(slow: Option<OnSlow>) -> Self {
        Self {
            slow,
            ..Self::default()
        }
    }

    /// The sink that `os` calls for every event.
    pub(crate) fn sink(self: &Arc<Self>) -> os::Sink {
        let waits = Arc::clone(self);
        Arc::new(move |task: TaskId, event: &Event| {
            if let Event::Waited {
                cause,
                waited,
                wakeup,
            } = event
            {
                waits.note(*cause, waited.0, *wakeup);
                crate::waits::note(*cause, waited.0);
            }
            waits.pressure.note(task, event);
        })
    }

    /// For how long callers were stalled for memory.
    pub(crate) fn pressure(&self) -> Pressure {
        self.pressure.read()
    }

    fn note(&self, cause: Cause, waited: u64, wakeup: Wakeup) {
        let Some(at) = CAUSES.iter().position(|(other, ..)| *other == cause) else {
            return;
        };
        let cell = &self.cells[at];
        cell.count.fetch_add(1, Ordering::Relaxed);
        cell.total.fetch_add(waited, Ordering::Relaxed);
        cell.max.fetch_max(waited, Ordering::Relaxed);
        cell.histogram[bucket_of(waited)].fetch_add(1, Ordering::Relaxed);
        if wakeup.is_late() && !CAUSES[at].2 {
            cell.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        let end = match wakeup {
            Wakeup::Ready(signal) => signal as usize,
            Wakeup::TimedOut => Signal::COUNT,
            Wakeup::Cancelled | Wakeup::Refused => return,
        };
        cell.ends[end].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Vec<Wait> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CAUSES
            .iter()
            .zip(&self.cells)
            .map(|((_, name, _), cell)| Wait {
                cause: name,
                count: load(&cell.count),
                total: Duration::from_nanos(load(&cell.total)),
                max: Duration::from_nanos(load(&cell.max)),
                timed_out: load(&cell.timed_out),
                histogram: core::array::from_fn(|at| load(&cell.histogram[at])),
                ended_by: ended_by(&cell.ends),
            })
            .filter(|wait| wait.count > 0)
            .collect()
    }
}

fn ended_by(ends: &[AtomicU64; ENDS]) -> Vec<(&'static str, u64)> {
    let signals = Signal::ALL.map(Wakeup::Ready).into_iter();
    let names = signals.chain([Wakeup::TimedOut]).map(Wakeup::by);
    let counts = ends.iter().map(|count| count.load(Ordering::Relaxed));
    names.zip(counts).filter(|(_, count)| *count > 0).collect()
}

/// The bucket of a wait of that many nanoseconds.
fn bucket_of(nanos: u64) -> usize {
    let micros = nanos / 1000;
    let doublings = micros.checked_ilog2().map_or(0, |log| log as usize + 1);
    doublings.min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_falls_into_the_bucket_that_ends_above_it() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(999), 0);
        assert_eq!(bucket_of(1000), 1);
        assert_eq!(bucket_of(2000), 2);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        for nanos in [1, 1_500, 77_000, 5_000_000, 3_000_000_000] {
            let bucket = bucket_of(nanos);
            let end = Wait::bucket_end(bucket).unwrap();
            assert!(Duration::from_nanos(nanos) < end);
            let before = bucket.checked_sub(1).and_then(Wait::bucket_end);
            assert!(before.is_none_or(|before| Duration::from_nanos(nanos) >= before));
        }
    }

    #[test]
    fn a_quantile_is_read_from_the_histogram() {
        let waits = Waits::default();
        for _ in 0..98 {
            waits.note(Cause::Memory, 10_000, Wakeup::Ready(Signal::Freed));
        }
        waits.note(Cause::Memory, 50_000_000, Wakeup::Ready(Signal::TurnGiven));
        waits.note(Cause::Memory, 90_000_000, Wakeup::TimedOut);
        let wait = &waits.read()[0];
        assert_eq!((wait.count, wait.timed_out), (100, 1));
        assert_eq!(
            wait.ended_by,
            [("pages freed", 98), ("turn given", 1), ("deadline", 1)]
        );
        assert_eq!(wait.quantile(500), Duration::from_micros(16));
        assert_eq!(wait.quantile(990), Duration::from_micros(65_536));
        assert_eq!(wait.quantile(1000), Duration::from_millis(90));
    }
}

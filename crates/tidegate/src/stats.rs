//! What a cache holds, has done, and has made its callers wait for.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use env::{Cause, Event, TaskId, Wakeup};

/// A reading of a cache. Sizes in bytes.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The memory limit.
    pub limit: u64,
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
    /// Writes to devices that failed and are tried again.
    pub failed_total: u64,
    /// Metadata: frame table, lists, index nodes.
    pub metadata: u64,
    /// What was waited for, by cause; causes without a wait are left out.
    pub waits: Vec<Wait>,
}

/// All waits of one cause. Of callers and of the cache's own tasks, idling apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its name.
    pub cause: &'static str,
    /// How many.
    pub count: u64,
    /// How long altogether.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
    /// How many ended by a timeout that was only a safety net.
    pub timed_out: u64,
}

/// Causes of waits, in the order of `Waits::cells`, with their names and whether a timeout is how
/// they normally end (a pause, a sleep).
const CAUSES: [(Cause, &str, bool); 11] = [
    (Cause::DirtyPause, "dirty pause", true),
    (Cause::DeviceStalled, "device stalled", true),
    (Cause::PageBusy, "page busy", false),
    (Cause::ReadIo, "read", false),
    (Cause::WritebackIo, "writeback of a page", false),
    (Cause::WritebackFlight, "room in flight", false),
    (Cause::DeviceFlush, "device flush", false),
    (Cause::DeviceMetadata, "device metadata", false),
    (Cause::Memory, "memory", false),
    (Cause::RequestSlot, "request slot", false),
    (Cause::RetryBackoff, "retry back-off", true),
];

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    total: AtomicU64,
    max: AtomicU64,
    timed_out: AtomicU64,
}

/// Counts waits as events bring them.
#[derive(Default)]
pub(crate) struct Waits {
    cells: [Cell; CAUSES.len()],
}

impl Waits {
    /// What `os` calls for every event.
    pub(crate) fn sink(self: &Arc<Self>) -> os::Sink {
        let waits = Arc::clone(self);
        Arc::new(move |_: TaskId, event: &Event| {
            if let Event::Waited {
                cause,
                waited,
                wakeup,
            } = event
            {
                waits.note(*cause, waited.0, *wakeup);
            }
        })
    }

    fn note(&self, cause: Cause, waited: u64, wakeup: Wakeup) {
        let Some(at) = CAUSES.iter().position(|(other, ..)| *other == cause) else {
            return;
        };
        let cell = &self.cells[at];
        cell.count.fetch_add(1, Ordering::Relaxed);
        cell.total.fetch_add(waited, Ordering::Relaxed);
        cell.max.fetch_max(waited, Ordering::Relaxed);
        if wakeup == Wakeup::TimedOut && !CAUSES[at].2 {
            cell.timed_out.fetch_add(1, Ordering::Relaxed);
        }
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
            })
            .filter(|wait| wait.count > 0)
            .collect()
    }
}

//! The typed events of a run. The library counts them, the lab records and plots them.

use policy::dirty::{BalanceTrace, DeviceIndex, PauseReason};
use policy::place::mobility::Mobility;
use policy::reclaim::Reason;
use policy::units::{Bytes, Nanos, Pages};

use crate::{DeviceId, IoOp, Signal};

/// Number of a task within its `Env`. `TaskId::NONE`: an interrupt, or outside any task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// No task.
    pub const NONE: Self = Self(u32::MAX);
}

/// Why a task waited. Every stall has one of these names, so that nobody needs a debugger to find
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// A worker with nothing to do.
    Idle,
    /// A workload's own think time or rate cap.
    Think,
    /// Waiting for another task's end.
    Join,
    /// Paced by `balance_dirty_pages`.
    DirtyPause,
    /// The device makes no progress.
    DeviceStalled,
    /// Somebody else is busy with the page.
    PageBusy,
    /// A read from the device.
    ReadIo,
    /// Writeback of particular pages (sync, truncate).
    WritebackIo,
    /// Room in the device's queue of writeback.
    WritebackFlight,
    /// Flush of the device's cache (fdatasync, COMMIT).
    DeviceFlush,
    /// Another metadata operation on the device (set length, allocate).
    DeviceMetadata,
    /// Free memory: nothing could be reclaimed yet.
    Memory,
    /// Reclaim found too much under writeback (`VMSCAN_THROTTLE_WRITEBACK`).
    ReclaimWriteback,
    /// Too many pages are isolated by others that reclaim (`VMSCAN_THROTTLE_ISOLATED`).
    ReclaimIsolated,
    /// Reclaim made no progress (`VMSCAN_THROTTLE_NOPROGRESS`).
    ReclaimNoProgress,
    /// Reclaim met only pages that cycle faster than they are written
    /// (`VMSCAN_THROTTLE_CONGESTED`).
    ReclaimCongested,
    /// Before 5.16: `congestion_wait` and `wait_iff_congested`.
    CongestionWait,
    /// A page on its way to the swap file or back.
    SwapIo,
    /// A request slot.
    RequestSlot,
    /// A failed write waits before it is tried again.
    RetryBackoff,
    /// The file system's journal: a commit is under way, or the journal is full.
    Journal,
    /// A page that cannot be waited for is looked at again in a moment: a page that a reader has
    /// pinned for the time of a copy, or pages that a flusher found busy. Its end is its time.
    PageRetry,
    /// A log that pages wait for is not durable far enough: to write them, or to change more.
    LogDurable,
    /// A thread of the program loads from a map: its fault is answered after a wait, of whatever
    /// cause, which counts there too.
    MapFault,
    /// It stores to a map, likewise.
    MapStore,
}

impl Cause {
    /// True if the wait is for a device.
    #[must_use]
    pub const fn is_io(self) -> bool {
        matches!(
            self,
            Self::ReadIo
                | Self::WritebackIo
                | Self::WritebackFlight
                | Self::DeviceFlush
                | Self::DeviceMetadata
                | Self::RequestSlot
                | Self::Journal
                | Self::SwapIo
                | Self::LogDurable
        )
    }

    /// True if the wait is a reclaimer's, or for memory that reclaim is to free.
    #[must_use]
    pub const fn is_reclaim(self) -> bool {
        matches!(
            self,
            Self::Memory
                | Self::ReclaimWriteback
                | Self::ReclaimIsolated
                | Self::ReclaimNoProgress
                | Self::ReclaimCongested
                | Self::CongestionWait
        )
    }

    /// True if the wait counts as pressure on memory, as PSI has it: reclaim, and pages that come
    /// back from the swap file.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        self.is_reclaim() || matches!(self, Self::SwapIo)
    }
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// Its condition holds, by this signal.
    Ready(Signal),
    /// The deadline passed first: a safety net, counted.
    TimedOut,
    /// The `Env` shuts down.
    Cancelled,
    /// The task may not wait now (`Task::nonblocking`). No event has this.
    Refused,
}

impl Wakeup {
    /// True if its condition holds.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready(_))
    }

    /// True if no wake ended it, but its time: also if its condition was then found to hold.
    #[must_use]
    pub const fn is_late(self) -> bool {
        matches!(self, Self::TimedOut | Self::Ready(Signal::AtDeadline))
    }

    /// The cause of its end, in words.
    #[must_use]
    pub const fn by(self) -> &'static str {
        match self {
            Self::Ready(signal) => signal.name(),
            Self::TimedOut => "deadline",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

/// One thing that happened. Units in the types; `device` as `mm` numbers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A task begins. Told by environments whose tasks are threads; others keep the accounts of
    /// theirs themselves.
    Began,
    /// A task is about to wait: an `Env` that finds all tasks blocked can say on what.
    Waiting {
        /// On what.
        cause: Cause,
    },
    /// A task slept.
    Waited {
        /// On what.
        cause: Cause,
        /// Its length.
        waited: Nanos,
        /// Its end.
        wakeup: Wakeup,
    },
    /// One verdict of `balance_dirty_pages` (kernel tracepoint of that name). A zero pause is an
    /// entry that did not sleep.
    BalanceDirtyPages {
        /// The device of the pages.
        device: DeviceIndex,
        /// Which writer handle.
        writer: u32,
        /// Its numbers.
        trace: BalanceTrace,
        /// Why, if it pauses.
        why: Option<PauseReason>,
        /// The call ends with this verdict; `trace.paused` is then all that it slept.
        done: bool,
    },
    /// A call into the cache by a writer ended.
    Wrote {
        /// Which writer handle.
        writer: u32,
        /// The bytes moved.
        bytes: Bytes,
        /// The length of the call, where calls are timed.
        took: Nanos,
    },
    /// A call into the cache by a reader ended.
    Read {
        /// The bytes moved.
        bytes: Bytes,
        /// Pages that were not in the cache.
        missed: Pages,
        /// The length of the call, where calls are timed.
        took: Nanos,
    },
    /// Pages became dirty.
    Dirtied {
        /// The device they are of.
        device: DeviceIndex,
        /// Their number.
        pages: Pages,
    },
    /// A request was handed to a device.
    Submitted {
        /// Which.
        device: DeviceId,
        /// The operation.
        op: IoOp,
        /// The pages moved.
        pages: Pages,
    },
    /// A request ended.
    Completed {
        /// Which.
        device: DeviceId,
        /// The operation.
        op: IoOp,
        /// The pages moved.
        pages: Pages,
        /// From submission to completion.
        took: Nanos,
        /// It failed.
        failed: bool,
    },
    /// One pass of reclaim.
    Reclaimed {
        /// By the background reclaimer.
        background: bool,
        /// Pages looked at.
        scanned: Pages,
        /// Pages freed.
        freed: Pages,
    },
    /// A file system's journal committed a transaction.
    Committed {
        /// The journal's device.
        device: DeviceId,
        /// From the end of the transaction's life to its record on the device.
        took: Nanos,
        /// Of that: until every operation under way had left the transaction.
        locked: Nanos,
        /// Blocks written to the journal.
        logged: Pages,
        /// Pages that files were given in the transaction, and that were written before its record.
        ordered: Pages,
    },
    /// A reclaimer was throttled, or was to be and was not (kernel tracepoint
    /// `mm_vmscan_throttled`; for the variants before 5.16 `writeback_congestion_wait`,
    /// `writeback_wait_iff_congested`).
    Throttled {
        /// By the background reclaimer.
        background: bool,
        /// Why.
        reason: Reason,
        /// The longest sleep allowed.
        timeout: Nanos,
        /// Its length in whole ticks.
        delayed: Nanos,
        /// The end of the sleep; `None`: it did not sleep.
        wakeup: Option<Wakeup>,
    },
    /// A task begins to reclaim on its own behalf (`mm_vmscan_direct_reclaim_begin`).
    DirectReclaim,
    /// The background reclaimer was woken (`mm_vmscan_kswapd_wake`), or has reached its mark and
    /// goes to sleep.
    Background {
        /// It works now.
        awake: bool,
    },
    /// A page of anonymous memory was touched that was not there.
    Faulted {
        /// It had to be read from the swap file.
        major: bool,
        /// The length of the fault.
        took: Nanos,
    },
    /// A frame, or a block of them, was taken from the free lists of another mobility, less than a
    /// pageblock: from now on two live in one (kernel tracepoint `mm_page_alloc_extfrag`).
    Fragmented {
        /// Order of the block that was taken from.
        order: u8,
        /// The mobility it had.
        from: Mobility,
        /// The mobility of the request it served.
        to: Mobility,
        /// Frames that came to the request's lists, or to the request.
        pages: Pages,
        /// The pageblock is the request's from now on.
        tagged: bool,
    },
    /// One pass through a job's own measured operation ended: a mapping touched and unmapped, a
    /// walk over a hog's memory.
    Sampled {
        /// Number of pages.
        pages: Pages,
        /// The length of it.
        took: Nanos,
    },
}

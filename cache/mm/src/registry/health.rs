//! The report on a device: its counters, and its health.

use env::IoError;
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Nanos, Pages, PagesPerSec};

use crate::Error;

/// A reading of one device's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStats {
    /// Which.
    pub device: DeviceIndex,
    /// Its dirty pages.
    pub dirty: Pages,
    /// Its pages under writeback.
    pub writeback: Pages,
    /// Its share of the dirty limit now.
    pub dirty_limit: Pages,
    /// Its share of the background limit now.
    pub background_limit: Pages,
    /// Pages ever dirtied on it.
    pub dirtied: Pages,
    /// Pages ever written to it.
    pub written: Pages,
    /// Pages ever read from it.
    pub read_in: Pages,
    /// Pages of which a read from it failed, ever.
    pub read_failed: Pages,
    /// Pages whose writeback to it failed, ever (each try counts).
    pub write_failed: Pages,
    /// Writes that it has and that have not ended.
    pub requests: u32,
    /// Its estimated write bandwidth.
    pub bandwidth: PagesPerSec,
    /// A writer to it was made to pause within the last second.
    pub pausing: bool,
    /// Writes and flushes that ever failed.
    pub errors: u64,
    /// The first and the last failure since it was added, or reopened.
    pub first_error: Option<Error>,
    /// The last one.
    pub last_error: Option<Error>,
    /// The last read that failed since then.
    pub last_read_error: Option<Error>,
    /// Reads fail: none has gone well since one did not, within the last minute.
    pub reads_failing: Option<ReadsFailing>,
    /// Its health.
    pub health: Health,
}

/// Reads from a device that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsFailing {
    /// The time since the first of them did; none came more than a minute after the one before.
    pub since: Nanos,
    /// The time since the last one did.
    pub last: Nanos,
}

/// The health of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// As it should, as far as one can tell.
    Working,
    /// Writes fail, all or by turns (more than one in a hundred of the last minute), and are tried
    /// again.
    Retrying {
        /// For how long they do.
        since: Nanos,
        /// The offset at which the last one failed.
        offset: Bytes,
        /// Why.
        cause: IoError,
    },
    /// It has writes and has not ended one for seconds, or reads.
    Stalled {
        /// For how long.
        since: Nanos,
    },
    /// It takes no new writes after an error (policy `stop`) until it is reopened.
    Stopped {
        /// Why.
        cause: IoError,
    },
    /// A flush failed: nothing can be promised until it is reopened.
    FlushFailed {
        /// Why.
        cause: IoError,
    },
}

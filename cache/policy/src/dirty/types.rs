//! The words in which a law of dirty throttling is asked and answers.

use crate::units::{Instant, Nanos, Pages, PagesPerSec};

/// Index of a device within a `Domain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// A write that a device completed.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Their number.
    pub pages: Pages,
    /// When it was begun to be put together for the device.
    pub begun: Instant,
    /// No other write is under way on the device.
    pub last: bool,
}

/// A limit as a share of dirtyable memory or as pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Per cent of dirtyable memory.
    Percent(u8),
    /// A fixed number of pages (`*_bytes`, rounded up).
    Pages(Pages),
}

/// Tunables of one device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTunables {
    /// Lower bound of the share, in 1/10000.
    pub min_ratio: u32,
    /// Upper bound of the share, in 1/10000 (10000 = no bound).
    pub max_ratio: u32,
    /// The device's own limits hold even when the global ones are far (`strictlimit`).
    pub strict: bool,
    /// The rate assumed before anything is known. Heeded by the rate-based law.
    pub initial: InitialBandwidth,
}

/// The assumed rate of a device before anything is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialBandwidth {
    /// 100 MiB/s, and then the slow estimator from the start (Linux). A device far from that is
    /// misjudged for some 20 s.
    Assumed,
    /// Little, until its first completions say what it does (module `learning`). Tidegate's own.
    Learned,
}

/// Memory that may become dirty: free + file pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirtyable {
    /// As things are.
    pub now: Pages,
    /// If no anonymous page were there; not below `now`. Only Tidegate's law asks.
    pub most: Pages,
}

impl Dirtyable {
    /// Memory of files alone.
    #[must_use]
    pub const fn of_files(pages: Pages) -> Self {
        Self {
            now: pages,
            most: pages,
        }
    }
}

/// One reading of the counters, taken once per decision so that all its tests agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Memory that may become dirty.
    pub dirtyable: Dirtyable,
    /// Dirty pages and unstable pages of all devices.
    pub dirty: Pages,
    /// Pages under writeback of all devices.
    pub writeback: Pages,
    /// Dirty and unstable pages of this device.
    pub device_dirty: Pages,
    /// Pages of this device under writeback.
    pub device_writeback: Pages,
    /// Pages ever dirtied on this device.
    pub device_dirtied: Pages,
    /// Pages whose writeback on this device ever ended.
    pub device_written: Pages,
    /// The device's flusher is at work (kernel: `writeback_in_progress`).
    pub flusher_running: bool,
}

/// A balance is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The pages of the balance: for `Domain::begin`. Under 2.6.36 one and a half times those that
    /// were dirtied, which the writer may have to write.
    pub pages: Pages,
    /// They include those of an earlier balance that was due and has not begun.
    pub replaces: bool,
}

/// The duty of a writer that has dirtied pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on writing. `start_background`: wake the flusher if it is idle.
    Done {
        /// Start background writeback of the device.
        start_background: bool,
    },
    /// Sleep for `pause`, then ask again.
    Pause {
        /// Its length; already rounded to the law's tick.
        pause: Nanos,
        /// Why, for the name of the wait.
        why: PauseReason,
        /// Start background writeback of the device before sleeping.
        start_background: bool,
    },
    /// Write up to `pages` of the device yourself, report them with `Domain::wrote`, ask again.
    WriteYourself {
        /// The chunk.
        pages: Pages,
    },
}

/// Why a writer pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// It dirties faster than its share.
    OverShare,
    /// The device completes nothing: a separate, named wait.
    NoProgress,
}

/// The fields of the trace line of one `decide` (kernel: `balance_dirty_pages` tracepoint).
///
/// Under the older laws, which have no set points: `setpoint` is freerun, `device_limit` this
/// writer's own limit, `device_setpoint` the level from which it is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceTrace {
    /// Hard limit, pages.
    pub limit: Pages,
    /// Set point, pages.
    pub setpoint: Pages,
    /// Dirty + writeback, pages.
    pub dirty: Pages,
    /// The device's set point, pages.
    pub device_setpoint: Pages,
    /// The device's dirty + writeback, pages.
    pub device_dirty: Pages,
    /// The device's limit (share), pages.
    pub device_limit: Pages,
    /// Base rate per writer.
    pub dirty_ratelimit: PagesPerSec,
    /// This writer's rate now.
    pub task_ratelimit: PagesPerSec,
    /// Pages dirtied in the period.
    pub dirtied: Pages,
    /// Pages the writer might dirty before this balance.
    pub dirtied_pause: Pages,
    /// Slept so far in this balance, before `pause`.
    pub paused: Nanos,
    /// This sleep. Zero when none was taken.
    pub pause: Nanos,
    /// The worth of the pages in time.
    pub period: Nanos,
    /// Time spent outside since the last pause.
    pub think: Nanos,
    /// Pages this balance wrote itself (2.6.36 only).
    pub written: Pages,
    /// True if the original prints a line here: p1 and 6.12 for a pause and 6.12 for one skipped;
    /// 2.6.36 at the end of each call, where `paused` is the "pause" of paper p1. The other
    /// verdicts have no counterpart in a published trace.
    pub line: bool,
}

/// The two limits in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Over this, writers are held.
    pub dirty: Pages,
    /// Over this, the flusher works.
    pub background: Pages,
}

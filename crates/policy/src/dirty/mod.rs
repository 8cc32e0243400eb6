//! Dirty throttling: how much may be dirty, and how long a writer that dirties more is held.
//!
//! Contract between `mm` and every law. (Skeleton: the owner of `policy` fills it in. The signatures here
//! are what `mm` is written against.)
//!
//! `mm` keeps one `Domain` behind one lock. For each batch of pages a writer dirtied it calls
//! `Domain::on_dirtied`; if the answer says that a balance is due, it opens an `Episode` and asks it
//! for verdicts until `Done`:
//!
//! ```text
//! let mut episode = domain.begin(writer_state, device, pages_dirtied_reported_by_on_dirtied);
//! loop {
//!     let counts = snapshot();                                   // atomics of mm, one read each
//!     match episode.decide(now, &mut domain, &mut writer_state, &counts) {   // under the lock
//!         Verdict::Done { .. } => break,
//!         Verdict::Pause { .. } => sleep until the deadline,      // after unlocking
//!         Verdict::WriteYourself { pages } => { let n = write_pages(pages); episode.wrote(n) }
//!     }
//! }
//! ```

use crate::units::{Instant, Nanos, Pages, PagesPerSec};

/// Index of a device within a `Domain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// Which law holds writers back. Chosen when the cache is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Linux 2.6.36: the writer writes pages itself (mechanisms 5.3).
    ForegroundWriteback,
    /// Paper p1: one pause within a soft region; bandwidth fixed at 100 MiB/s or measured (5.4).
    SoftRegion {
        /// Use the device's estimated bandwidth instead of the fixed 100 MiB/s.
        measured: bool,
    },
    /// Linux 6.12: rate-based (5.5, 5.6).
    RateBased,
}

/// Tunables of a domain, under the meaning of the kernel's `vm.*`.
#[derive(Clone, Copy, Debug)]
pub struct Tunables {
    /// The law.
    pub law: Law,
    /// Ticks per second of the law's arithmetic; pauses are whole ticks of 1/hz s.
    pub hz: u32,
    /// CPUs that dirty pages.
    pub cpus: u32,
    /// Total pages of memory (for `ratelimit_pages` of 2.6.36).
    pub memory: Pages,
    /// `vm.dirty_ratio` in per cent, or `vm.dirty_bytes` in pages.
    pub dirty: Threshold,
    /// `vm.dirty_background_ratio` or `vm.dirty_background_bytes`.
    pub background: Threshold,
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
}

/// One reading of the counters, taken once per decision so that all its tests agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Memory that may become dirty: free + file pages.
    pub dirtyable: Pages,
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

/// What a writer that has dirtied pages must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on writing. `start_background`: wake the flusher if it is idle.
    Done {
        /// Start background writeback of the device.
        start_background: bool,
    },
    /// Sleep for `pause`, then ask again.
    Pause {
        /// How long; already rounded to the law's tick.
        pause: Nanos,
        /// Why, for the name of the wait.
        why: PauseReason,
        /// Start background writeback of the device before sleeping.
        start_background: bool,
    },
    /// Write up to `pages` of the device yourself, report them with `Episode::wrote`, ask again.
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

/// What the trace line of one `decide` shows (kernel: `balance_dirty_pages` tracepoint).
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
    /// Pages the writer may dirty before the next balance.
    pub dirtied_pause: Pages,
    /// Slept so far in this episode.
    pub paused: Nanos,
    /// This sleep. Zero when none was taken.
    pub pause: Nanos,
    /// What the pages are worth.
    pub period: Nanos,
    /// Time spent outside since the last pause.
    pub think: Nanos,
    /// Pages this episode wrote itself (2.6.36 only).
    pub written: Pages,
}

/// The two limits in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Over this, writers are held.
    pub dirty: Pages,
    /// Over this, the flusher works.
    pub background: Pages,
}

/// Everything the law remembers that is not a writer's own. Plain data behind one lock of `mm`.
pub struct Domain {}

/// Everything the law remembers of one writer.
#[derive(Debug)]
pub struct WriterState {}

/// One stay of a writer in `balance_dirty_pages`.
pub struct Episode {}

impl Domain {
    /// A domain with room for `devices` devices.
    pub fn new(_tunables: Tunables, _devices: usize) -> Self {
        unimplemented!()
    }
    /// Registers a device. Panics when there is no room: `mm` checks first.
    pub fn add_device(&mut self, _now: Instant, _tunables: DeviceTunables) -> DeviceIndex {
        unimplemented!()
    }
    /// State of a new writer.
    pub fn add_writer(&mut self) -> WriterState {
        unimplemented!()
    }
    /// A writer went away: what it still owes is passed on (kernel: the per-CPU leak).
    pub fn remove_writer(&mut self, _writer: WriterState, _cpu: usize) {
        unimplemented!()
    }
    /// Pages the writer may dirty before a balance is due; at least one. `mm` writes in batches of
    /// at most this many pages.
    pub fn budget(&self, _writer: &WriterState, _device: DeviceIndex, _cpu: usize) -> Pages {
        unimplemented!()
    }
    /// The writer dirtied `pages`. `Some(n)`: a balance over `n` pages is due now.
    pub fn on_dirtied(
        &mut self,
        _now: Instant,
        _writer: &mut WriterState,
        _device: DeviceIndex,
        _cpu: usize,
        _pages: Pages,
    ) -> Option<Pages> {
        unimplemented!()
    }
    /// Writeback of `pages` ended (proportions count it).
    pub fn on_written(&mut self, _now: Instant, _device: DeviceIndex, _pages: Pages) {
        unimplemented!()
    }
    /// The flusher's turn to bring the bandwidth estimate up to date (at most every 200 ms has an effect).
    pub fn update(&mut self, _now: Instant, _device: DeviceIndex, _counts: &Counts) {
        unimplemented!()
    }
    /// The global limits for that much dirtyable memory.
    pub fn limits(&self, _dirtyable: Pages) -> Limits {
        unimplemented!()
    }
    /// Whether the flusher of `device` has background work (mechanisms 6.2 "over threshold").
    pub fn over_background(&self, _device: DeviceIndex, _counts: &Counts) -> bool {
        unimplemented!()
    }
    /// Smoothed write bandwidth of the device (25600 pages/s before anything is known).
    pub fn bandwidth(&self, _device: DeviceIndex) -> PagesPerSec {
        unimplemented!()
    }
    /// The device's share of the dirty limit.
    pub fn device_limit(&self, _device: DeviceIndex, _counts: &Counts) -> Pages {
        unimplemented!()
    }
    /// Opens a stay: the writer dirtied `pages` since the last one.
    pub fn begin(&mut self, _device: DeviceIndex, _pages: Pages) -> Episode {
        unimplemented!()
    }
}

impl Episode {
    /// The next verdict, and what a trace of it shows. Call again until `Done`.
    pub fn decide(
        &mut self,
        _now: Instant,
        _domain: &mut Domain,
        _writer: &mut WriterState,
        _counts: &Counts,
    ) -> (Verdict, BalanceTrace) {
        unimplemented!()
    }
    /// Answers `Verdict::WriteYourself`: that many pages were really submitted.
    pub fn wrote(&mut self, _pages: Pages) {
        unimplemented!()
    }
}

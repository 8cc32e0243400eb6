//! Dirty throttling: how much may be dirty, and how long a writer that dirties more is held.
//!
//! `mm` keeps one `Domain` behind one lock. For each batch of pages a writer dirtied it calls
//! `Domain::on_dirtied`; if the answer says that a balance is due, it opens an `Episode` and asks it
//! for verdicts until `Done`:
//!
//! ```text
//! let mut episode = domain.begin(device, pages_reported_by_on_dirtied);
//! loop {
//!     let counts = snapshot();                                   // atomics of mm, one read each
//!     match episode.decide(now, &mut domain, &mut writer_state, &counts) {   // under the lock
//!         Verdict::Done { .. } => break,
//!         Verdict::Pause { .. } => sleep until the deadline,      // after unlocking
//!         Verdict::WriteYourself { pages } => { let n = write_pages(pages); episode.wrote(n) }
//!     }
//! }
//! ```
//!
//! Vocabulary: *dirty limit* and *background limit*, see `limits`; *freerun*, halfway between them, up to
//! which nobody is held; *set point*, the level a law steers to; *share*, a device's part of a limit;
//! *balance*, a writer's stay here; *level*, pages dirty or under writeback.
//!
//! The laws are siblings, chosen when the domain is built:
//!
//! | law | a writer over its limit | module |
//! |---|---|---|
//! | Linux 2.6.36 | writes pages itself, sleeps in growing naps | `foreground` |
//! | paper p1 | sleeps once, in proportion to what it dirtied and to the room left | `soft_region` |
//! | Linux 6.12 | sleeps so as to keep to a rate found by measurement | `rate_based` |
//! | Tidegate | sleeps off what it owes at its fair rate | `tidegate` |
//!
//! They are made of: `limits`, `proportion` (shares), `bandwidth` (estimates), `position` (level to
//! factor), `ratelimit` (base rate), `pause` (rate to sleep), `shares` (what both older laws have in
//! common), `progress` (the name of a wait).
//!
//! Invariants
//!   1. A single pause is at most 200 ms (one tick where a tick is longer), under every law.
//!   2. Below freerun no law pauses.
//!   3. Same calls, same answers: nothing depends on addresses, time of day or order of devices.
//!   4. No counter value makes a law panic or overflow: counts are cut off at 2^44 pages.
//!   5. Memory is taken by `Domain::new`; nothing allocates afterwards.
//!
//! Concurrency: plain data; `mm` holds one lock around each call and none across a pause.
//!
//! Source: mechanisms 5; paper p1; Linux 2.6.36 and 6.12 mm/page-writeback.c.

mod bandwidth;
mod foreground;
mod learning;
mod limits;
mod pause;
mod position;
mod progress;
mod proportion;
mod rate_based;
mod ratelimit;
mod shares;
mod soft_region;
#[cfg(test)]
mod tests;
mod tidegate;

use self::proportion::Share;
use self::rate_based::RateBased;
use self::shares::Shares;
use self::soft_region::SoftRegion;
use self::tidegate::Tidegate;
use crate::ticks::{TickRate, Ticks};
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
    /// Tidegate's own: each writer owes time at its fair rate (module `tidegate`).
    Tidegate {
        /// No device holds more than it writes in this time.
        hold: Nanos,
    },
}

impl Law {
    /// Tidegate's own law as it is shipped: no device holds more than it writes in 30 s, the age at
    /// which data is written in any case (`dirty_expire_centisecs`).
    pub const TIDEGATE: Self = Self::Tidegate {
        hold: Nanos::secs(30),
    };

    /// Whether a writer that is held has the dirty pages of other devices written too: they are a part
    /// of the level, and those who made them dirty may never come to a balance. Linux leaves them
    /// to the periodic flush.
    #[must_use]
    pub const fn wakes_other_flushers(self) -> bool {
        matches!(self, Self::Tidegate { .. })
    }
}

/// A write that a device completed.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// How much.
    pub pages: Pages,
    /// When it was given to the device.
    pub submitted: Instant,
    /// No other write is under way on the device.
    pub last: bool,
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
    /// How fast it is taken to be before anything is known. Heeded by the rate-based law.
    pub initial: InitialBandwidth,
}

/// What a device is taken for before anything is known of it.
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

#[cfg(test)]
impl Dirtyable {
    /// Memory of files alone.
    const fn of_files(pages: Pages) -> Self {
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
    /// Over so many pages: for `Domain::begin`. Under 2.6.36 one and a half times those that were
    /// dirtied, which the writer may have to write.
    pub pages: Pages,
    /// They include those of an earlier balance that was due and has not begun.
    pub replaces: bool,
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
    /// Slept so far in this episode, before `pause`.
    pub paused: Nanos,
    /// This sleep. Zero when none was taken.
    pub pause: Nanos,
    /// What the pages are worth.
    pub period: Nanos,
    /// Time spent outside since the last pause.
    pub think: Nanos,
    /// Pages this episode wrote itself (2.6.36 only).
    pub written: Pages,
    /// Whether the original prints a line here: p1 and 6.12 for a pause and 6.12 for one skipped;
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

/// Everything the law remembers that is not a writer's own. Plain data behind one lock of `mm`.
pub struct Domain {
    rate: TickRate,
    devices: usize,
    devices_max: usize,
    engine: Engine,
}

/// The law at work.
enum Engine {
    Foreground(Shares),
    SoftRegion(SoftRegion),
    RateBased(RateBased),
    Tidegate(Tidegate),
}

/// Everything the law remembers of one writer.
#[derive(Debug)]
pub struct WriterState(Writer);

#[derive(Debug)]
enum Writer {
    /// Laws that count by events: its part of recent dirtying.
    Share(Share),
    RateBased(rate_based::Writer),
    Tidegate(tidegate::Writer),
}

/// One stay of a writer in `balance_dirty_pages`.
pub struct Episode {
    device: DeviceIndex,
    paused: Nanos,
    stay: Stay,
}

enum Stay {
    Foreground(foreground::Stay),
    SoftRegion(soft_region::Stay),
    RateBased(rate_based::Stay),
    Tidegate(tidegate::Stay),
}

impl WriterState {
    /// # Panics
    /// When the writer belongs to a domain of another law.
    fn share(&mut self) -> &mut Share {
        match &mut self.0 {
            Writer::Share(share) => share,
            Writer::RateBased(_) | Writer::Tidegate(_) => {
                panic!("the writer belongs to a domain of another law")
            }
        }
    }

    /// # Panics
    /// When the writer belongs to a domain of another law.
    fn rate_based(&mut self) -> &mut rate_based::Writer {
        match &mut self.0 {
            Writer::RateBased(writer) => writer,
            Writer::Share(_) | Writer::Tidegate(_) => {
                panic!("the writer belongs to a domain of another law")
            }
        }
    }

    /// # Panics
    /// When the writer belongs to a domain of another law.
    fn tidegate(&mut self) -> &mut tidegate::Writer {
        match &mut self.0 {
            Writer::Tidegate(writer) => writer,
            Writer::Share(_) | Writer::RateBased(_) => {
                panic!("the writer belongs to a domain of another law")
            }
        }
    }
}

impl Domain {
    /// A domain with room for `devices` devices.
    ///
    /// # Panics
    /// When `tunables.hz` is not in 1..=10000.
    #[must_use]
    pub fn new(tunables: Tunables, devices: usize) -> Self {
        let engine = match tunables.law {
            Law::ForegroundWriteback => Engine::Foreground(Shares::new(&tunables, devices)),
            Law::SoftRegion { measured } => {
                let shares = Shares::new(&tunables, devices);
                Engine::SoftRegion(SoftRegion::new(shares, measured, devices))
            }
            Law::RateBased => Engine::RateBased(RateBased::new(&tunables, devices)),
            Law::Tidegate { hold } => Engine::Tidegate(Tidegate::new(&tunables, hold, devices)),
        };
        Self {
            rate: TickRate::new(tunables.hz),
            devices: 0,
            devices_max: devices,
            engine,
        }
    }

    /// Registers a device. Panics when there is no room: `mm` checks first.
    ///
    /// # Panics
    /// When the domain is full, or `min_ratio > max_ratio`, or `max_ratio > 10000`.
    pub fn add_device(&mut self, now: Instant, tunables: DeviceTunables) -> DeviceIndex {
        assert!(
            self.devices < self.devices_max,
            "room for {} devices only",
            self.devices_max
        );
        assert!(tunables.min_ratio <= tunables.max_ratio, "{tunables:?}");
        assert!(tunables.max_ratio <= 10_000, "{tunables:?}");
        let index = u16::try_from(self.devices).expect("a domain has at most 65536 devices");
        self.devices += 1;
        let now = self.rate.tick_at(now);
        match &mut self.engine {
            Engine::Foreground(shares) => shares.add_device(now, tunables),
            Engine::SoftRegion(law) => {
                law.shares.add_device(now, tunables);
                law.on_device_added(now);
            }
            Engine::RateBased(law) => law.add_device(now, tunables),
            Engine::Tidegate(law) => law.add_device(tunables),
        }
        DeviceIndex(index)
    }

    /// Another device takes the place of one that is gone, of which nobody holds or waits for anything: what was measured
    /// of that one is forgotten where the law starts from nothing, and otherwise relearnt.
    ///
    /// # Panics
    /// As `add_device`; of a device that was never added.
    pub fn renew_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        if let Engine::Tidegate(law) = &mut self.engine {
            law.renew_device(device);
        }
        self.set_device(device, tunables);
    }

    /// A device is gone: what was reserved for it is for the others, until another one takes its place.
    ///
    /// # Panics
    /// As `renew_device`.
    pub fn remove_device(&mut self, device: DeviceIndex) {
        if let Engine::Tidegate(law) = &mut self.engine {
            law.remove_device(device);
        }
        self.set_device(
            device,
            DeviceTunables {
                min_ratio: 0,
                max_ratio: 10_000,
                strict: false,
                initial: InitialBandwidth::Learned,
            },
        );
    }

    /// From now on the device's share is another.
    ///
    /// # Panics
    /// As `add_device`; of a device that was never added.
    pub fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        assert!(tunables.min_ratio <= tunables.max_ratio, "{tunables:?}");
        assert!(tunables.max_ratio <= 10_000, "{tunables:?}");
        match &mut self.engine {
            Engine::Foreground(shares) => shares.set_device(device, tunables),
            Engine::SoftRegion(law) => law.shares.set_device(device, tunables),
            Engine::RateBased(law) => law.set_device(device, tunables),
            Engine::Tidegate(law) => law.set_device(device, tunables),
        }
    }

    /// State of a new writer.
    pub fn add_writer(&mut self) -> WriterState {
        WriterState(match self.engine {
            Engine::Foreground(_) | Engine::SoftRegion(_) => Writer::Share(Share::default()),
            Engine::RateBased(_) => Writer::RateBased(rate_based::Writer::new()),
            Engine::Tidegate(_) => Writer::Tidegate(tidegate::Writer::new()),
        })
    }

    /// A writer went away: what it still owes is passed on (kernel: the per-CPU leak).
    ///
    /// # Panics
    /// When `cpu` is not below the domain's count of CPUs.
    pub fn remove_writer(&mut self, mut writer: WriterState, cpu: usize) {
        match &mut self.engine {
            // What it dirtied is on its CPU's counter already.
            Engine::Foreground(_) | Engine::SoftRegion(_) => {}
            Engine::RateBased(law) => law.remove_writer(writer.rate_based(), cpu),
            Engine::Tidegate(law) => law.remove_writer(writer.tidegate()),
        }
    }

    /// Pages the writer may dirty before a balance is due; at least one. `mm` writes in batches of
    /// at most this many pages.
    ///
    /// # Panics
    /// When `cpu` is not below the domain's count of CPUs.
    #[must_use]
    pub fn budget(&self, writer: &WriterState, device: DeviceIndex, cpu: usize) -> Pages {
        match (&self.engine, &writer.0) {
            (Engine::Foreground(shares), _) => shares.budget(device, cpu),
            (Engine::SoftRegion(law), _) => law.shares.budget(device, cpu),
            (Engine::RateBased(law), Writer::RateBased(writer)) => law.budget(writer, device, cpu),
            (Engine::Tidegate(law), Writer::Tidegate(writer)) => law.budget(writer, device),
            (Engine::RateBased(_) | Engine::Tidegate(_), _) => {
                panic!("the writer belongs to a domain of another law")
            }
        }
    }

    /// The writer dirtied `pages`; answers whether a balance is due now.
    ///
    /// # Panics
    /// When `cpu` is not below the domain's count of CPUs.
    pub fn on_dirtied(
        &mut self,
        now: Instant,
        writer: &mut WriterState,
        device: DeviceIndex,
        cpu: usize,
        pages: Pages,
    ) -> Option<Due> {
        let (due, replaces) = match &mut self.engine {
            Engine::Foreground(shares) => {
                let due = shares.on_dirtied(writer.share(), device, cpu, pages);
                (due.map(|due| foreground::write_chunk(shares, due)), false)
            }
            Engine::SoftRegion(law) => {
                let due = law.shares.on_dirtied(writer.share(), device, cpu, pages);
                (due, false)
            }
            // Its count of a writer's pages goes on until a verdict closes it.
            Engine::RateBased(law) => {
                let due = law.on_dirtied(writer.rate_based(), device, cpu, pages);
                (due, true)
            }
            Engine::Tidegate(law) => {
                let due = law.on_dirtied(writer.tidegate(), device, now, pages);
                (due, false)
            }
        };
        due.map(|pages| Due { pages, replaces })
    }

    /// Writeback of `pages` ended (proportions count it).
    pub fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion) {
        let (at, pages) = (now, done.pages);
        let now = self.rate.tick_at(now);
        match &mut self.engine {
            Engine::Foreground(shares) => shares.on_written(now, device, pages),
            Engine::SoftRegion(law) => {
                law.shares.on_written(now, device, pages);
                law.on_written(now, device);
            }
            Engine::RateBased(law) => law.on_written(now, device, pages),
            Engine::Tidegate(law) => law.on_written(device, at, done),
        }
    }

    /// A sync of a whole file begins, which finds `found` of its pages dirty. Heeded by Tidegate's own law.
    pub fn on_sync(&mut self, now: Instant, device: DeviceIndex, found: Pages, counts: &Counts) {
        if let Engine::Tidegate(law) = &mut self.engine {
            law.on_sync(device, now, found, counts);
        }
    }

    /// The flusher's turn to bring the bandwidth estimate up to date (at most every 200 ms has an effect).
    ///
    /// Once per slice is often enough, and once before the first request after a device was idle,
    /// with the counts of that moment: idle time is then not taken for slowness.
    pub fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        let at = now;
        let now = self.rate.tick_at(now);
        match &mut self.engine {
            Engine::Foreground(shares) => shares.update(now, device, counts),
            Engine::SoftRegion(law) => {
                law.shares.update(now, device, counts);
                law.update(now, device, counts);
            }
            Engine::RateBased(law) => law.update(now, device, counts),
            Engine::Tidegate(law) => law.update(device, at, counts),
        }
    }

    /// The global limits for that much dirtyable memory.
    #[must_use]
    pub fn limits(&self, dirtyable: Dirtyable) -> Limits {
        match &self.engine {
            Engine::Foreground(shares) => shares.limits(dirtyable.now),
            Engine::SoftRegion(law) => law.shares.limits(dirtyable.now),
            Engine::RateBased(law) => law.limits(dirtyable.now),
            Engine::Tidegate(law) => law.limits(dirtyable),
        }
    }

    /// Whether the flusher of `device` has background work (mechanisms 6.2 "over threshold").
    #[must_use]
    pub fn over_background(&self, device: DeviceIndex, counts: &Counts) -> bool {
        match &self.engine {
            Engine::Foreground(shares) => shares.over_background(counts),
            Engine::SoftRegion(law) => law.shares.over_background(counts),
            Engine::RateBased(law) => law.over_background(device, counts),
            Engine::Tidegate(law) => law.over_background(device, counts),
        }
    }

    /// Smoothed write bandwidth of the device (25600 pages/s before anything is known).
    ///
    /// Measured under every law, whether it uses it or not.
    #[must_use]
    pub fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        match &self.engine {
            Engine::Foreground(shares) => shares.bandwidth(device),
            Engine::SoftRegion(law) => law
                .measured(device)
                .unwrap_or_else(|| law.shares.bandwidth(device)),
            Engine::RateBased(law) => law.bandwidth(device),
            Engine::Tidegate(law) => law.bandwidth(device),
        }
    }

    /// How often the usual flight of writeback is to be doubled for the device, because it makes use
    /// of more (see `writeback::Flight::DeviceTime`). Zero under laws that do not measure it.
    #[must_use]
    pub fn reach(&self, device: DeviceIndex) -> u32 {
        match &self.engine {
            Engine::Tidegate(law) => law.reach(device),
            Engine::Foreground(_) | Engine::SoftRegion(_) | Engine::RateBased(_) => 0,
        }
    }

    /// The device's share of the dirty limit.
    #[must_use]
    pub fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        let limit = self.limits(counts.dirtyable).dirty;
        match &self.engine {
            Engine::Foreground(shares) => shares.device_limit(device, limit),
            Engine::SoftRegion(law) => law.shares.device_limit(device, limit),
            Engine::RateBased(law) => law.device_limit(device, limit),
            Engine::Tidegate(law) => law.device_limit(device, counts),
        }
    }

    /// Opens a stay: the writer dirtied `pages` since the last one.
    pub fn begin(&mut self, device: DeviceIndex, pages: Pages) -> Episode {
        let pages = limits::bounded(pages);
        let stay = match &self.engine {
            Engine::Foreground(_) => Stay::Foreground(foreground::Stay::new(pages)),
            Engine::SoftRegion(_) => Stay::SoftRegion(soft_region::Stay::new(pages)),
            Engine::RateBased(_) => Stay::RateBased(rate_based::Stay::new(pages)),
            Engine::Tidegate(_) => Stay::Tidegate(tidegate::Stay::new(pages)),
        };
        Episode {
            device,
            paused: Nanos::ZERO,
            stay,
        }
    }
}

impl Episode {
    /// The next verdict, and what a trace of it shows. Call again until `Done`.
    ///
    /// # Panics
    /// When domain or writer are of another law than the domain that opened the stay.
    pub fn decide(
        &mut self,
        now: Instant,
        domain: &mut Domain,
        writer: &mut WriterState,
        counts: &Counts,
    ) -> (Verdict, BalanceTrace) {
        let at = now;
        let now: Ticks = domain.rate.tick_at(now);
        let (verdict, mut trace) = match (&mut domain.engine, &mut self.stay) {
            (Engine::Foreground(shares), Stay::Foreground(stay)) => {
                foreground::decide(shares, stay, writer.share(), self.device, now, counts)
            }
            (Engine::SoftRegion(law), Stay::SoftRegion(stay)) => {
                law.decide(stay, writer.share(), self.device, now, counts)
            }
            (Engine::RateBased(law), Stay::RateBased(stay)) => {
                law.decide(stay, writer.rate_based(), self.device, now, counts)
            }
            (Engine::Tidegate(law), Stay::Tidegate(stay)) => {
                law.decide(stay, writer.tidegate(), self.device, at, counts)
            }
            (
                Engine::Foreground(_)
                | Engine::SoftRegion(_)
                | Engine::RateBased(_)
                | Engine::Tidegate(_),
                _,
            ) => {
                panic!("the stay belongs to a domain of another law")
            }
        };
        trace.paused = self.paused;
        if let Verdict::Pause { pause, .. } = verdict {
            self.paused = self.paused.saturating_add(pause);
        }
        (verdict, trace)
    }

    /// Answers `Verdict::WriteYourself`: that many pages were really submitted.
    ///
    /// # Panics
    /// When the last verdict was another one.
    pub fn wrote(&mut self, pages: Pages) {
        match &mut self.stay {
            Stay::Foreground(stay) => stay.wrote(pages),
            Stay::SoftRegion(_) | Stay::RateBased(_) | Stay::Tidegate(_) => {
                panic!("wrote() answers WriteYourself only")
            }
        }
    }
}

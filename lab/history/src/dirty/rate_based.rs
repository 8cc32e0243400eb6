//! The law of Linux 6.12: every writer gets a rate and sleeps off what it dirtied beyond it.
//!
//! ```text
//!  level ----> position ratio --+
//!                               x--> task rate --> period = pages / rate --> pause
//!  bandwidth --> base rate -----+                  (less think time)
//! ```
//!
//! The base rate finds `bandwidth / writers` slowly and keeps it; the position ratio steers the
//! level to the set point at once. Below freerun nobody is held, and the flusher is not started on
//! their account before the background limit.
//!
//! A writer calls after `dirtied_pause` pages of its own, sooner (8 pages) while its device exceeds
//! its share. A second counter, per CPU, makes sure that many young writers do not dirty much
//! unseen between them. A writer that ends leaves its debt on its CPU for the next ones.
//!
//! Invariants
//!   1. A pause lies in `least..=longest` (see `pause`), never above max(HZ/5, 1).
//!   2. A writer whose rate is not zero leaves after one pause.
//!   3. A writer whose rate is zero stays while its device has a backlog, whatever caused the zero;
//!      one whose device has next to none leaves: it is not punished for a neighbour's dead device.
//!
//! Source: mechanisms 5.5, 5.6; Linux 6.12 mm/page-writeback.c, balance_dirty_pages(),
//! balance_dirty_pages_ratelimited_flags(), __wb_update_bandwidth(), wb_over_bg_thresh().
//! Deviations: no memory cgroups; no laptop mode; counters are exact, the kernel's per-CPU error is
//! kept only as the backlog under which invariant 3 lets a writer go.

use crate::dirty::bandwidth::{SmoothedLimit, Stopwatch, WriteBandwidth};
use crate::dirty::learning::{self, Learning};
use crate::dirty::pause::{self, Account, Rates};
use crate::dirty::position::{PosRatio, Position};
use crate::dirty::progress::Progress;
use crate::dirty::proportion::{self, Share, TimedPeriod};
use crate::dirty::ratelimit::BaseRate;
use policy::dirty::limits::{Level, Thresholds, bounded};
use policy::dirty::rules::{DeviceRules, Dirtied, Look, WriterRules};
use policy::dirty::running::Running;
use policy::dirty::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due,
    InitialBandwidth, Limits, Verdict,
};
use policy::dirty::{Law, Prints, Profile, Tunables};
use policy::ticks::{TickRate, Ticks};
use policy::units::{Instant, Nanos, Pages, PagesPerSec};

/// A writer's interval while its device exceeds its share: 32 KiB.
const DIRTIED_PAUSE_EXCEEDED: Pages = Pages(8);
/// Pages a CPU dirties between two balances, at least.
const RATELIMIT_PAGES_MIN: u64 = 16;
/// All CPUs together dirty at most this share of the limit unseen.
const RATELIMIT_SHARE: u64 = 32;
/// Pages a CPU may count before it tells the others, for one CPU (`WB_STAT_BATCH`).
const COUNTER_BATCH: u64 = 8;

/// Linux 6.12: rate-based (mechanisms 5.5, 5.6).
pub const RATE_BASED: Law = Law::new(&PROFILE);

const PROFILE: Profile = Profile {
    name: "rate-based",
    start: |tunables, devices| Running::start(RateBased::new(tunables, devices)),
    wakes_other_flushers: false,
    prints: Prints::Pauses,
};

/// State of a domain under this law.
struct RateBased {
    rate: TickRate,
    thresholds: Thresholds,
    smoothed: SmoothedLimit,
    completions: TimedPeriod,
    devices: Vec<Device>,
    /// Sum of the devices' lower bounds, 1/10000.
    reserved: u64,
    cpus: Vec<Cpu>,
    ratelimit_pages: Pages,
    /// A backlog that could be a counting error in the kernel.
    backlog_ignored: Pages,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    /// Dirtied since the last balance on this CPU (`bdp_ratelimits`).
    dirtied: Pages,
    /// Left by writers that ended (`dirty_throttle_leaks`).
    leaked: Pages,
}

struct Device {
    tunables: DeviceTunables,
    share: Share,
    /// Over its share when last looked at (`wb->dirty_exceeded`).
    exceeded: bool,
    stopwatch: Stopwatch,
    bandwidth: WriteBandwidth,
    base: BaseRate,
    /// A new device whose bandwidth is being learned.
    learning: Option<Learning>,
    progress: Progress,
}

/// The law's account of one writer.
#[derive(Debug)]
struct Writer {
    account: Account,
}

impl Writer {
    const fn new() -> Self {
        Self {
            account: Account::new(),
        }
    }
}

/// One balance of a writer.
#[derive(Clone, Copy, Debug)]
struct Balance {
    dirtied: Pages,
    /// Has taken the pause after which it leaves.
    leaves: bool,
}

impl Balance {
    const fn new(dirtied: Pages) -> Self {
        Self {
            dirtied,
            leaves: false,
        }
    }
}

/// One look of a writer: all that its verdict is made of.
struct View {
    limits: Limits,
    level: Level,
    position: Position,
}

impl View {
    /// Dirty level and limits that decide whether the writer runs free: the device's own if strict.
    fn ruling(&self) -> (Pages, Limits) {
        if !self.position.strict {
            return (self.level.dirty, self.limits);
        }
        let own = Limits {
            dirty: self.position.device_limit,
            background: self.position.device_background,
        };
        (self.level.device_dirty, own)
    }

    fn exceeded(&self) -> bool {
        self.level.device_dirty > self.position.device_limit
            && (self.level.dirty > self.limits.dirty || self.position.strict)
    }
}

impl DeviceRules for RateBased {
    fn add_device(&mut self, now: Instant, tunables: DeviceTunables) {
        self.reserved += u64::from(tunables.min_ratio);
        let learning = match tunables.initial {
            InitialBandwidth::Assumed => None,
            InitialBandwidth::Learned => Some(Learning::new()),
        };
        let mut bandwidth = WriteBandwidth::new();
        let mut base = BaseRate::new();
        if learning.is_some() {
            base.rescale(bandwidth.smooth(), learning::UNKNOWN);
            bandwidth = WriteBandwidth::at(learning::UNKNOWN);
        }
        self.devices.push(Device {
            tunables,
            share: Share::default(),
            exceeded: false,
            stopwatch: Stopwatch::new(self.rate, self.rate.tick_at(now)),
            bandwidth,
            base,
            learning,
            progress: Progress::default(),
        });
    }

    fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        let own = &mut self.devices[usize::from(device.0)].tunables;
        self.reserved -= u64::from(own.min_ratio);
        self.reserved += u64::from(tunables.min_ratio);
        *own = tunables;
    }

    fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion) {
        let rate = self.rate;
        let (now, pages) = (rate.tick_at(now), bounded(done.pages));
        let device = &mut self.devices[usize::from(device.0)];
        device.stopwatch.on_written(rate, now);
        device.learn(rate, now, pages);
        let max_ratio = device.tunables.max_ratio;
        self.completions
            .count(now, &mut device.share, pages.0, max_ratio);
    }

    /// The flusher's look: bandwidth only. Writers that are held know their position, and bring the
    /// base rate up to date.
    fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        let rate = self.rate;
        let now = rate.tick_at(now);
        let device = self.device_mut(device);
        if let Some(learning) = device.learning.as_mut()
            && counts.device_writeback.is_zero()
        {
            learning.on_start(now);
        }
        if let Some(interval) = device.stopwatch.lap(rate, now, counts)
            && device.learning.is_none()
        {
            device.bandwidth.sample(rate, &interval);
        }
    }

    fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        self.device(device).bandwidth.smooth()
    }

    fn limits(&self, dirtyable: Dirtyable) -> Limits {
        self.thresholds.limits(dirtyable.now)
    }

    /// True if the flusher works: all devices are over the limit, or this one over its share of it.
    fn over_background(&self, device: DeviceIndex, counts: &Counts) -> bool {
        let background = self.limits(counts.dirtyable).background;
        bounded(counts.dirty) > background
            || bounded(counts.device_dirty) > self.share(device, background)
    }

    fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        self.share(device, self.limits(counts.dirtyable).dirty)
    }
}

impl WriterRules for RateBased {
    type Writer = Writer;
    type Balance = Balance;

    fn new_writer(&self) -> Writer {
        Writer::new()
    }

    fn remove_writer(&mut self, writer: Writer, cpu: usize) {
        let leaked = &mut self.cpus[cpu].leaked;
        *leaked = leaked.saturating_add(writer.account.dirtied);
    }

    fn budget(&self, writer: &Writer, device: DeviceIndex, cpu: usize) -> Pages {
        let cpu = self.cpus[cpu];
        let counted = writer.account.dirtied.saturating_add(cpu.leaked);
        let own = self.interval(writer, device).saturating_sub(counted);
        let guard = self.ratelimit_pages.saturating_sub(cpu.dirtied);
        own.at_most(guard).at_least(Pages(1))
    }

    fn on_dirtied(&mut self, writer: &mut Writer, dirtied: &Dirtied) -> Option<Due> {
        let mut interval = self.interval(writer, dirtied.device);
        let guard = self.ratelimit_pages;
        let cpu = &mut self.cpus[dirtied.cpu];
        let own = &mut writer.account.dirtied;
        *own = own.saturating_add(dirtied.pages);
        cpu.dirtied = cpu.dirtied.saturating_add(dirtied.pages);

        if *own >= interval {
            cpu.dirtied = Pages::ZERO;
        } else if cpu.dirtied >= guard {
            cpu.dirtied = Pages::ZERO;
            interval = Pages::ZERO;
        }
        let taken_over = cpu.leaked.at_most(interval.saturating_sub(*own));
        cpu.leaked -= taken_over;
        *own += taken_over;
        // The count goes on until a verdict closes it.
        let due = Due {
            pages: *own,
            replaces: true,
        };
        (*own >= interval).then_some(due)
    }

    fn begin(&self, pages: Pages) -> Balance {
        Balance::new(pages)
    }

    fn decide(
        &mut self,
        balance: &mut Balance,
        writer: &mut Writer,
        look: &Look<'_>,
    ) -> (Verdict, BalanceTrace) {
        let (device, counts) = (look.device, look.counts);
        let now = self.rate.tick_at(look.now);
        self.completions.catch_up(now);
        let view = self.view(device, counts);
        let idle = !counts.flusher_running;
        let start_background = idle && view.level.reclaimable > view.limits.background;
        if balance.leaves {
            let trace = BalanceTrace {
                dirtied: balance.dirtied,
                ..levels(&view)
            };
            return (Verdict::Done { start_background }, trace);
        }

        let (dirty, limits) = view.ruling();
        if dirty <= limits.freerun() {
            let dirtied_pause = writer.account.dirtied_pause;
            writer
                .account
                .run_free(now, pause::poll_interval(dirty, limits.dirty));
            self.device_mut(device).progress.on_room();
            let trace = BalanceTrace {
                dirtied: balance.dirtied,
                dirtied_pause,
                ..levels(&view)
            };
            return (Verdict::Done { start_background }, trace);
        }
        self.hold(balance, writer, look, &view)
    }
}

impl RateBased {
    fn new(tunables: &Tunables, devices: usize) -> Self {
        let rate = TickRate::new(tunables.hz);
        let thresholds = Thresholds {
            dirty: tunables.dirty,
            background: tunables.background,
        };
        let dirty = thresholds.limits(bounded(tunables.memory)).dirty;
        let cpus = u64::from(tunables.cpus.max(1));
        let slots = usize::try_from(cpus).expect("a count of CPUs fits an index");
        Self {
            rate,
            thresholds,
            smoothed: SmoothedLimit::new(Ticks::ZERO),
            completions: TimedPeriod::new(rate),
            devices: Vec::with_capacity(devices),
            reserved: 0,
            cpus: vec![Cpu::default(); slots],
            ratelimit_pages: Pages((dirty.0 / (RATELIMIT_SHARE * cpus)).max(RATELIMIT_PAGES_MIN)),
            backlog_ignored: Pages(cpus * COUNTER_BATCH * (1 + u64::from(cpus.ilog2()))),
        }
    }

    fn device(&self, device: DeviceIndex) -> &Device {
        &self.devices[usize::from(device.0)]
    }

    fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[usize::from(device.0)]
    }

    /// Pages after which the writer is to be balanced.
    fn interval(&self, writer: &Writer, device: DeviceIndex) -> Pages {
        if self.device(device).exceeded {
            writer.account.dirtied_pause.at_most(DIRTIED_PAUSE_EXCEEDED)
        } else {
            writer.account.dirtied_pause
        }
    }

    /// The device's share of a limit.
    fn share(&self, device: DeviceIndex, limit: Pages) -> Pages {
        let device = self.device(device);
        let fraction = self.completions.fraction(&device.share);
        proportion::share(limit, self.reserved, &device.tunables, fraction)
    }

    fn view(&self, device: DeviceIndex, counts: &Counts) -> View {
        let limits = self.limits(counts.dirtyable);
        let level = Level::of(counts);
        let device_limit = self.share(device, limits.dirty);
        let device = self.device(device);
        let position = Position {
            limits,
            hard_limit: self.smoothed.hard(limits.dirty),
            dirty: level.dirty,
            device_limit,
            device_background: limits.background_of(device_limit),
            device_dirty: level.device_dirty,
            bandwidth: device.bandwidth.smooth(),
            strict: device.tunables.strict,
        };
        View {
            limits,
            level,
            position,
        }
    }

    /// Charges a writer above freerun for what it dirtied.
    fn hold(
        &mut self,
        balance: &mut Balance,
        writer: &mut Writer,
        look: &Look<'_>,
        view: &View,
    ) -> (Verdict, BalanceTrace) {
        let rate = self.rate;
        let (device, counts) = (look.device, look.counts);
        let now = rate.tick_at(look.now);
        let ratio = view.position.ratio();
        self.device_mut(device).exceeded = view.exceeded();
        self.estimate(device, now, counts, &view.position, ratio);

        let device = self.device_mut(device);
        let bandwidth = device.bandwidth.smooth();
        let base = device.base.rate();
        let task = ratio.of(base);
        let longest = pause::longest(rate, view.level.device_dirty, bandwidth);
        let aim = pause::aim(
            rate,
            longest,
            &Rates {
                bandwidth,
                base,
                task,
            },
        );
        // The trace shows the interval that led here, not the next one.
        let dirtied_pause = writer.account.dirtied_pause;
        let due = writer
            .account
            .charge(rate, now, balance.dirtied, task, (aim, longest));

        let start_background = !counts.flusher_running;
        let why = device
            .progress
            .reason(rate, now, counts.device_written, task.0 == 0);
        let trace = BalanceTrace {
            dirty_ratelimit: base,
            task_ratelimit: task,
            dirtied: balance.dirtied,
            dirtied_pause,
            line: true,
            ..levels(view)
        };
        let trace = with_times(trace, rate, &due);
        if due.pause.is_none() {
            return (Verdict::Done { start_background }, trace);
        }
        balance.leaves = task.0 > 0 || view.level.device_dirty <= self.backlog_ignored;
        (
            Verdict::Pause {
                pause: trace.pause,
                why,
                start_background,
            },
            trace,
        )
    }

    /// Brings limit, base rate and bandwidth up to date, at most every 200 ms.
    fn estimate(
        &mut self,
        device: DeviceIndex,
        now: Ticks,
        counts: &Counts,
        position: &Position,
        ratio: PosRatio,
    ) {
        let rate = self.rate;
        if !self.device(device).stopwatch.is_due(now) {
            return;
        }
        self.smoothed
            .follow(rate, now, position.limits.dirty, position.dirty);
        let device = self.device_mut(device);
        if let Some(interval) = device.stopwatch.lap(rate, now, counts) {
            device.base.sample(rate, &interval, position, ratio);
            if device.learning.is_none() {
                device.bandwidth.sample(rate, &interval);
            }
        }
    }
}

impl Device {
    /// Takes a completion of a new device at its word.
    fn learn(&mut self, rate: TickRate, now: Ticks, pages: Pages) {
        let Some(learning) = self.learning.as_mut() else {
            return;
        };
        if let Some(learned) = learning.on_written(rate, now, pages) {
            self.base.rescale(self.bandwidth.smooth(), learned);
            self.bandwidth = WriteBandwidth::at(learned);
        }
        if learning.is_over(rate) {
            self.learning = None;
        }
    }
}

/// The part of a trace that every verdict has.
fn levels(view: &View) -> BalanceTrace {
    let position = &view.position;
    BalanceTrace {
        limit: position.hard_limit,
        setpoint: position.setpoint(),
        dirty: view.level.dirty,
        device_setpoint: position.device_setpoint(),
        device_dirty: view.level.device_dirty,
        device_limit: position.device_limit,
        ..BalanceTrace::default()
    }
}

fn with_times(trace: BalanceTrace, rate: TickRate, due: &pause::Due) -> BalanceTrace {
    BalanceTrace {
        pause: due.pause.map_or(Nanos::ZERO, |pause| rate.nanos(pause)),
        period: rate.nanos(due.period),
        think: rate.nanos(due.think),
        ..trace
    }
}

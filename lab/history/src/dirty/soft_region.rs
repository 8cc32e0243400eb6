//! The law of paper p1: below its limit a writer sleeps in proportion to what it dirtied.
//!
//! ```text
//!  bandwidth granted
//!    base |*
//!         |   *           base * (T - dirty) / (T/16 + 1)
//!         |      *
//!       0 +---------*------> device's dirty pages
//!      T - T/16     T          T: the writer's limit
//! ```
//!
//! Three levels, looked at once per turn:
//!   1. In the soft region: one pause, what was dirtied at the bandwidth granted, then the writer
//!      leaves.
//!   2. At or above T: nothing is granted; 200 ms a turn until the device is below T again.
//!   3. Globally over the limit, and this device below its soft region: a pause of 1, 2, 4 ...
//!      ticks, at most 200 ms, a turn.
//!
//! Invariants
//!   1. A pause lies in 1 tick ..= max(HZ/5, 1).
//!   2. A writer below freerun never pauses.
//!
//! With measured bandwidth, which is a later state of the series, a writer is charged for its own
//! pages: not each time that its CPU has dirtied 4 MiB, but each time that it has dirtied its own
//! *allowance*, which pauses make: one of more than 100 ms halves it, one of less than 10 ms adds a
//! page. So pauses come to some 10 ms, whatever the disk's rate and the size of the machine.
//!
//! Source: mechanisms 5.4; paper p1 (patches 02/17, 03/17 "per-task rate limit" and 09/17,
//! September 2010, MAIL 13498326773). The trace that the paper prints is of the whole series.
//! Deviations: (i) level 3 sleeps; the patch as posted spins there, although its text says that it
//! sleeps. (ii) A pause over a limit starts the flusher if it is idle, without which a device whose
//! flusher nobody has started would keep its writers asleep until the periodic flush. (iii) With
//! measured bandwidth a turn also ends the balance when the device's level fell by more than eight
//! times what the writer dirtied, as the text describes.

use super::shares::{Shares, Standing};
use crate::dirty::bandwidth::{Stopwatch, WeightedBandwidth};
use crate::dirty::proportion::Share;
use policy::dirty::limits::{bounded, mul_div};
use policy::dirty::rules::{DeviceRules, Dirtied, Look, WriterRules};
use policy::dirty::running::{Engine, Running};
use policy::dirty::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due, Limits, Verdict,
};
use policy::dirty::{Law, Prints, Profile, Tunables};
use policy::ticks::{TickRate, Ticks};
use policy::units::{Instant, PAGE_SHIFT, Pages, PagesPerSec};

/// The soft region is one 16th of the limit, and so is a writer's weight.
const RATIO: u64 = 16;
/// The longest pause is a fifth of a second.
const PAUSE_MAX_PER_SECOND: u64 = 5;
/// The patch grants parts of this, bytes/s.
const FIXED_BANDWIDTH: u64 = 100 << 20;
/// A fall of the level by this many times the writer's pages ends its balance.
const FALL_PER_DIRTIED: u64 = 8;
/// A pause longer than a tenth of a second halves a writer's allowance, one shorter than a
/// hundredth adds a page to it.
const HALVED_ABOVE_PER_SECOND: u64 = 10;
const RAISED_BELOW_PER_SECOND: u64 = 100;

/// Paper p1: one pause within a soft region, bandwidth fixed at 100 MiB/s (mechanisms 5.4).
pub const SOFT_REGION: Law = Law::new(&FIXED);
/// The same with the device's estimated bandwidth.
pub const SOFT_REGION_MEASURED: Law = Law::new(&MEASURED);

const FIXED: Profile = Profile {
    name: "soft-region",
    start: |tunables, devices| SoftRegion::start(tunables, devices, Base::Fixed),
    wakes_other_flushers: false,
    prints: Prints::Pauses,
};

const MEASURED: Profile = Profile {
    name: "soft-region-measured",
    start: |tunables, devices| {
        SoftRegion::start(
            tunables,
            devices,
            Base::Measured(Vec::with_capacity(devices)),
        )
    },
    ..FIXED
};

/// Bandwidth of which a writer is granted its part.
enum Base {
    /// 100 MiB/s.
    Fixed,
    /// As measured, by device.
    Measured(Vec<Meter>),
}

/// Measures one device.
struct Meter {
    stopwatch: Stopwatch,
    bandwidth: WeightedBandwidth,
}

/// State of a domain under this law.
struct SoftRegion {
    shares: Shares,
    base: Base,
}

/// One balance of a writer.
#[derive(Clone, Copy, Debug)]
struct Balance {
    dirtied: Pages,
    /// The device's level in the turn before.
    level_before: Option<Pages>,
    /// Pause of the next turn in level 3.
    next_pause: Ticks,
    /// The finding of the turn before the last pause.
    turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// None yet.
    First,
    /// Within the limits: after its pause the writer leaves.
    Within,
    /// Over a limit: another turn.
    Exceeded,
}

impl Balance {
    const fn new(dirtied: Pages) -> Self {
        Self {
            dirtied,
            level_before: None,
            next_pause: Ticks(1),
            turn: Turn::First,
        }
    }
}

impl DeviceRules for SoftRegion {
    fn add_device(&mut self, now: Instant, tunables: DeviceTunables) {
        self.shares.add_device(now, tunables);
        let rate = self.shares.rate;
        let interval_min = WeightedBandwidth::interval_min(rate);
        match &mut self.base {
            Base::Fixed => {}
            Base::Measured(meters) => meters.push(Meter {
                stopwatch: Stopwatch::with_interval(interval_min, rate.tick_at(now)),
                bandwidth: WeightedBandwidth::new(),
            }),
        }
    }

    fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        self.shares.set_device(device, tunables);
    }

    fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion) {
        self.shares.on_written(now, device, done.pages);
        let rate = self.shares.rate;
        if let Base::Measured(meters) = &mut self.base {
            let meter = &mut meters[usize::from(device.0)];
            meter.stopwatch.on_written(rate, rate.tick_at(now));
        }
    }

    fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        self.shares.update(now, device, counts);
        self.measure(self.shares.rate.tick_at(now), device, counts);
    }

    fn limits(&self, dirtyable: Dirtyable) -> Limits {
        self.shares.limits(dirtyable.now)
    }

    fn over_background(&self, _device: DeviceIndex, counts: &Counts) -> bool {
        self.shares.over_background(counts)
    }

    fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        match &self.base {
            Base::Fixed => self.shares.bandwidth(device),
            Base::Measured(meters) => meters[usize::from(device.0)].bandwidth.pages_per_sec(),
        }
    }

    fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        self.shares.device_limit_of(device, counts)
    }
}

impl WriterRules for SoftRegion {
    type Writer = Account;
    type Balance = Balance;

    fn new_writer(&self) -> Account {
        Account::default()
    }

    fn budget(&self, writer: &Account, device: DeviceIndex, cpu: usize) -> Pages {
        match self.base {
            Base::Fixed => self.shares.budget(device, cpu),
            Base::Measured(_) => self
                .allowance(writer, device)
                .saturating_sub(writer.dirtied)
                .at_least(Pages(1)),
        }
    }

    fn on_dirtied(&mut self, writer: &mut Account, dirtied: &Dirtied) -> Option<Due> {
        let of_cpu = self.shares.on_dirtied(&mut writer.share, dirtied);
        let pages = match self.base {
            Base::Fixed => of_cpu?,
            Base::Measured(_) => {
                let allowance = self.allowance(writer, dirtied.device);
                writer.allowance = Some(allowance);
                writer.dirtied = writer.dirtied.saturating_add(dirtied.pages);
                if writer.dirtied < allowance {
                    return None;
                }
                core::mem::take(&mut writer.dirtied)
            }
        };
        Some(Due {
            pages,
            replaces: false,
        })
    }

    fn begin(&self, pages: Pages) -> Balance {
        Balance::new(pages)
    }

    fn decide(
        &mut self,
        balance: &mut Balance,
        writer: &mut Account,
        look: &Look<'_>,
    ) -> (Verdict, BalanceTrace) {
        let (device, counts) = (look.device, look.counts);
        let now = self.shares.rate.tick_at(look.now);
        self.measure(now, device, counts);
        let standing = self.shares.standing(&writer.share, device, counts);
        let limit = standing.writer_limit(RATIO);
        let trace = self.trace(balance, &standing, limit, device);

        let level = standing.level;
        let leaves = balance.turn == Turn::Within
            || level.dirty < standing.limits.freerun()
            || self.has_fallen(balance, &standing);
        if leaves {
            return self.leave(balance, device, counts, &standing, trace);
        }

        let exceeded = level.device_dirty >= limit || level.dirty >= standing.limits.dirty;
        balance.turn = if exceeded {
            Turn::Exceeded
        } else {
            Turn::Within
        };
        balance.level_before = Some(level.device_dirty);
        if exceeded {
            self.shares.device_mut(device).exceeded = true;
        }

        let base = self.base_bytes_per_sec(device);
        let pause = match granted(base, limit, level.device_dirty) {
            Some(bytes_per_sec) => {
                let pause = pause(self.shares.rate, balance.dirtied, bytes_per_sec);
                writer.on_pause(self.shares.rate, pause);
                pause
            }
            None if exceeded => self.level_three_pause(balance),
            None => return self.leave(balance, device, counts, &standing, trace),
        };
        self.sleep(pause, exceeded, device, now, counts, trace)
    }
}

/// A writer: its part of recent dirtying, and its debt. A law that counts pages by CPU leaves it
/// without debt and allowance.
#[derive(Clone, Debug, Default)]
struct Account {
    share: Share,
    /// Pages since its last balance.
    dirtied: Pages,
    /// Pages that it may dirty between two balances; none yet: as its CPU.
    allowance: Option<Pages>,
}

impl Account {
    /// Brings the length of its pauses to between a hundredth and a tenth of a second.
    fn on_pause(&mut self, rate: TickRate, pause: Ticks) {
        let Some(Pages(pages)) = self.allowance else {
            return;
        };
        let next = if pause > rate.second_over(HALVED_ABOVE_PER_SECOND) {
            pages / 2 + 1
        } else if pause < rate.second_over(RAISED_BELOW_PER_SECOND) {
            pages.saturating_add(1)
        } else {
            pages
        };
        self.allowance = Some(Pages(next));
    }
}

impl SoftRegion {
    fn allowance(&self, writer: &Account, device: DeviceIndex) -> Pages {
        let own = writer.allowance;
        own.unwrap_or_else(|| self.shares.ratelimit(device))
    }

    fn start(tunables: &Tunables, devices: usize, base: Base) -> Box<dyn Engine> {
        let shares = Shares::new(tunables, devices);
        Running::start(Self { shares, base })
    }

    /// Brings the measured bandwidth up to date.
    fn measure(&mut self, now: Ticks, device: DeviceIndex, counts: &Counts) {
        let rate = self.shares.rate;
        let Base::Measured(meters) = &mut self.base else {
            return;
        };
        let meter = &mut meters[usize::from(device.0)];
        if let Some(interval) = meter.stopwatch.lap(rate, now, counts) {
            meter.bandwidth.sample(rate, &interval);
        }
    }

    fn base_bytes_per_sec(&self, device: DeviceIndex) -> u64 {
        match &self.base {
            Base::Fixed => FIXED_BANDWIDTH,
            Base::Measured(meters) => meters[usize::from(device.0)].bandwidth.bytes_per_sec(),
        }
    }

    /// True if the writer has waited for completions enough to go on (measured series only).
    fn has_fallen(&self, balance: &Balance, standing: &Standing) -> bool {
        let Base::Measured(_) = self.base else {
            return false;
        };
        let fall = balance.level_before.map_or(Pages::ZERO, |before| {
            before.saturating_sub(standing.level.device_dirty)
        });
        standing.level.dirty <= standing.limits.dirty
            && fall.0 > FALL_PER_DIRTIED * bounded(balance.dirtied).0
    }

    fn level_three_pause(&self, balance: &mut Balance) -> Ticks {
        let longest = self.shares.rate.second_over(PAUSE_MAX_PER_SECOND);
        let pause = balance.next_pause.min(longest);
        balance.next_pause = Ticks(pause.0 * 2).min(longest);
        pause
    }

    fn sleep(
        &mut self,
        pause: Ticks,
        exceeded: bool,
        device: DeviceIndex,
        now: Ticks,
        counts: &Counts,
        mut trace: BalanceTrace,
    ) -> (Verdict, BalanceTrace) {
        let rate = self.shares.rate;
        let progress = &mut self.shares.device_mut(device).progress;
        let why = progress.reason(rate, now, counts.device_written, exceeded);
        trace.pause = rate.nanos(pause);
        trace.period = trace.pause;
        trace.line = true;
        let start_background = exceeded && !counts.flusher_running;
        (
            Verdict::Pause {
                pause: trace.pause,
                why,
                start_background,
            },
            trace,
        )
    }

    fn leave(
        &mut self,
        balance: &Balance,
        device: DeviceIndex,
        counts: &Counts,
        standing: &Standing,
        trace: BalanceTrace,
    ) -> (Verdict, BalanceTrace) {
        if balance.turn != Turn::Exceeded {
            let device = self.shares.device_mut(device);
            device.exceeded = false;
            device.progress.on_room();
        }
        let start_background =
            !counts.flusher_running && standing.level.reclaimable > standing.limits.background;
        (Verdict::Done { start_background }, trace)
    }

    /// The line of the paper: `device_limit` is its thresh, `device_limit - device_dirty` its gap,
    /// `task_ratelimit` its bw.
    fn trace(
        &self,
        balance: &Balance,
        standing: &Standing,
        limit: Pages,
        device: DeviceIndex,
    ) -> BalanceTrace {
        let base = self.base_bytes_per_sec(device);
        let granted = granted(base, limit, standing.level.device_dirty).unwrap_or(base);
        BalanceTrace {
            limit: standing.limits.dirty,
            setpoint: standing.limits.freerun(),
            dirty: standing.level.dirty,
            device_setpoint: soft_edge(limit),
            device_dirty: standing.level.device_dirty,
            device_limit: limit,
            dirty_ratelimit: PagesPerSec(base >> PAGE_SHIFT),
            task_ratelimit: PagesPerSec(granted >> PAGE_SHIFT),
            dirtied: balance.dirtied,
            dirtied_pause: self.shares.ratelimit_pages,
            ..BalanceTrace::default()
        }
    }
}

/// The lower edge of the soft region.
fn soft_edge(limit: Pages) -> Pages {
    Pages(limit.0 - limit.0 / RATIO)
}

/// Bytes per second granted at that level; `None` below the soft region.
fn granted(base: u64, limit: Pages, device_dirty: Pages) -> Option<u64> {
    if device_dirty <= soft_edge(limit) {
        return None;
    }
    let gap = limit.saturating_sub(device_dirty);
    Some(mul_div(base, gap.0, limit.0 / RATIO + 1))
}

/// The time that `dirtied` takes at that bandwidth, within 1 tick ..= HZ/5.
fn pause(rate: TickRate, dirtied: Pages, bytes_per_sec: u64) -> Ticks {
    let bytes = bounded(dirtied).0 << PAGE_SHIFT;
    let ticks = mul_div(rate.hz(), bytes, bytes_per_sec.saturating_add(1));
    Ticks(ticks.clamp(1, rate.second_over(PAUSE_MAX_PER_SECOND).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Pages = Pages(123_892);

    fn soft(base: u64, below_limit: u64, dirtied: u64) -> (u64, u64) {
        let dirty = Pages(LIMIT.0 - below_limit);
        let bandwidth = granted(base, LIMIT, dirty).expect("in the soft region");
        (
            bandwidth,
            pause(TickRate::new(250), Pages(dirtied), bandwidth).0,
        )
    }

    #[test]
    fn vector_p1_soft() {
        assert_eq!(soft(FIXED_BANDWIDTH, 7700, 128), (104_261_818, 1));
        assert_eq!(soft(FIXED_BANDWIDTH, 7700, 1024).1, 10);
        assert_eq!(soft(FIXED_BANDWIDTH, 3850, 128).1, 2);
        assert_eq!(soft(FIXED_BANDWIDTH, 100, 128).1, 50);
        assert_eq!(soft(FIXED_BANDWIDTH, 0, 128), (0, 50));
        assert_eq!(granted(FIXED_BANDWIDTH, LIMIT, Pages(LIMIT.0 + 5)), Some(0));
        assert_eq!(granted(FIXED_BANDWIDTH, LIMIT, Pages(110_000)), None);
        assert_eq!(soft_edge(LIMIT), Pages(116_149));
        assert_eq!(granted(FIXED_BANDWIDTH, LIMIT, Pages(116_149)), None);
        // The paper's own trace: measured, 8 ms.
        let (bandwidth, ticks) = soft(64_864_000, 7700, 128);
        assert_eq!(ticks, 2);
        assert!(bandwidth.abs_diff(64_494_573) < 2000, "{bandwidth}");
    }

    #[test]
    fn an_allowance_follows_the_pauses_that_it_makes() {
        let rate = TickRate::new(1000);
        let mut writer = Account {
            allowance: Some(Pages(1024)),
            ..Account::default()
        };
        for (pause, allowance) in [(101, 513), (100, 513), (9, 514), (10, 514), (200, 258)] {
            writer.on_pause(rate, Ticks(pause));
            assert_eq!(writer.allowance, Some(Pages(allowance)), "{pause} ms");
        }
        let mut unbilled = Account::default();
        unbilled.on_pause(rate, Ticks(200));
        assert_eq!(unbilled.allowance, None);
    }

    #[test]
    fn zero_limits_and_huge_inputs_have_an_answer() {
        assert_eq!(granted(FIXED_BANDWIDTH, Pages(0), Pages(0)), None);
        assert_eq!(granted(FIXED_BANDWIDTH, Pages(0), Pages(1)), Some(0));
        let rate = TickRate::new(10_000);
        assert_eq!(pause(rate, Pages::MAX, 0), Ticks(2000));
        assert_eq!(pause(rate, Pages(0), u64::MAX), Ticks(1));
    }
}

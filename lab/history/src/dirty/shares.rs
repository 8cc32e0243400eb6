//! The common part of the laws of 2.6.24..3.1: shares by counted events, and the interval of a
//! writer's calls.
//!
//! The dirty limit is dealt out twice: to devices by the writeback they completed, and below a
//! device's share to writers by the pages they dirtied. A writer that dirties much has a limit a
//! little lower than the device's, so it is held first, and a light one goes on.
//!
//! Writers are counted per CPU, not each by itself: the writer that dirties the page that fills the
//! CPU's counter pays for all of them.
//!
//! Invariants
//!   1. A writer's limit is at least half of its device's share, and at most all of it.
//!   2. After `on_dirtied` a CPU's counter is below the rate limit then in force.
//!
//! Source: mechanisms 5.1, 5.2, 5.3; Linux 2.6.36 mm/page-writeback.c, task_dirty_limit(),
//! balance_dirty_pages_ratelimited_nr(), writeback_set_ratelimit().

use crate::dirty::bandwidth::{Stopwatch, WriteBandwidth};
use crate::dirty::progress::Progress;
use crate::dirty::proportion::{self, EventPeriod, Fraction, Share};
use policy::dirty::Tunables;
use policy::dirty::limits::{Level, Thresholds, bounded, mul_div};
use policy::dirty::rules::Dirtied;
use policy::dirty::{Counts, DeviceIndex, DeviceTunables, Limits};
use policy::ticks::TickRate;
use policy::units::{Instant, Pages, PagesPerSec};

/// `vm.dirty_ratio` was taken as at least this.
const DIRTY_PERCENT_MIN: u8 = 5;
/// Pages a CPU dirties between two balances, at least.
const RATELIMIT_PAGES_MIN: u64 = 16;
/// Pages a CPU dirties between two balances, at most: 4 MiB.
const RATELIMIT_PAGES_MAX: u64 = 1024;
/// The same while the device exceeds its limit.
const RATELIMIT_EXCEEDED: Pages = Pages(8);
/// All CPUs together dirty at most this share of memory unseen.
const RATELIMIT_SHARE: u64 = 32;
/// `DeviceTunables::max_ratio` that means no bound.
const NO_BOUND: u32 = 10_000;

/// State of a domain under one of these laws.
pub(crate) struct Shares {
    pub(crate) rate: TickRate,
    thresholds: Thresholds,
    /// Writeback that ended, by device.
    completions: EventPeriod,
    /// Pages dirtied, by writer.
    dirties: EventPeriod,
    devices: Vec<Device>,
    /// Sum of the devices' lower bounds, 1/10000.
    reserved: u64,
    /// Pages dirtied on each CPU since its last balance.
    cpus: Vec<Pages>,
    pub(crate) ratelimit_pages: Pages,
}

/// One device.
pub(crate) struct Device {
    tunables: DeviceTunables,
    share: Share,
    /// A writer found it over its limit (`bdi->dirty_exceeded`).
    pub(crate) exceeded: bool,
    pub(crate) progress: Progress,
    stopwatch: Stopwatch,
    bandwidth: WriteBandwidth,
}

/// The terms that a law compares: one look at counters, limits and shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) limits: Limits,
    pub(crate) level: Level,
    /// The device's share of the dirty limit.
    pub(crate) device_limit: Pages,
    /// The writer's part of recent dirtying.
    pub(crate) weight: Fraction,
}

impl Standing {
    /// The writer's own limit: its device's, less `1/divisor` of it in proportion to its weight.
    pub(crate) fn writer_limit(&self, divisor: u64) -> Pages {
        let whole = self.device_limit.0;
        let held_back = mul_div(
            whole / divisor,
            self.weight.numerator,
            self.weight.denominator,
        );
        Pages((whole - held_back).max(whole / 2))
    }
}

impl Shares {
    pub(crate) fn new(tunables: &Tunables, devices: usize) -> Self {
        let thresholds = Thresholds {
            dirty: tunables.dirty.at_least_percent(DIRTY_PERCENT_MIN),
            background: tunables.background,
        };
        let memory = bounded(tunables.memory);
        let period = EventPeriod::new(thresholds.limits(memory).dirty);
        let cpus = usize::try_from(tunables.cpus).expect("a count of CPUs fits an index");
        let ratelimit = memory.0 / (RATELIMIT_SHARE * u64::from(tunables.cpus.max(1)));
        Self {
            rate: TickRate::new(tunables.hz),
            thresholds,
            completions: period,
            dirties: period,
            devices: Vec::with_capacity(devices),
            reserved: 0,
            cpus: vec![Pages::ZERO; cpus.max(1)],
            ratelimit_pages: Pages(ratelimit.clamp(RATELIMIT_PAGES_MIN, RATELIMIT_PAGES_MAX)),
        }
    }

    pub(crate) fn add_device(&mut self, now: Instant, tunables: DeviceTunables) {
        let now = self.rate.tick_at(now);
        self.reserved += u64::from(tunables.min_ratio);
        self.devices.push(Device {
            tunables,
            share: Share::default(),
            exceeded: false,
            progress: Progress::default(),
            stopwatch: Stopwatch::new(self.rate, now),
            bandwidth: WriteBandwidth::new(),
        });
    }

    pub(crate) fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        let own = &mut self.devices[usize::from(device.0)].tunables;
        self.reserved -= u64::from(own.min_ratio);
        self.reserved += u64::from(tunables.min_ratio);
        *own = tunables;
    }

    pub(crate) fn device(&self, device: DeviceIndex) -> &Device {
        &self.devices[usize::from(device.0)]
    }

    pub(crate) fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[usize::from(device.0)]
    }

    /// Pages between two balances on the device.
    pub(crate) fn ratelimit(&self, device: DeviceIndex) -> Pages {
        if self.device(device).exceeded {
            RATELIMIT_EXCEEDED
        } else {
            self.ratelimit_pages
        }
    }

    pub(crate) fn budget(&self, device: DeviceIndex, cpu: usize) -> Pages {
        self.ratelimit(device)
            .saturating_sub(self.cpus[cpu])
            .at_least(Pages(1))
    }

    /// Counts pages of a writer. `Some`: pages that the CPU has dirtied are due.
    pub(crate) fn on_dirtied(&mut self, writer: &mut Share, dirtied: &Dirtied) -> Option<Pages> {
        self.dirties
            .count(writer, bounded(dirtied.pages).0, NO_BOUND);
        let ratelimit = self.ratelimit(dirtied.device);
        let counter = &mut self.cpus[dirtied.cpu];
        *counter = counter.saturating_add(dirtied.pages);
        if *counter < ratelimit {
            return None;
        }
        Some(core::mem::take(counter))
    }

    pub(crate) fn on_written(&mut self, now: Instant, device: DeviceIndex, pages: Pages) {
        let rate = self.rate;
        let now = rate.tick_at(now);
        let device = &mut self.devices[usize::from(device.0)];
        device.stopwatch.on_written(rate, now);
        self.completions.count(
            &mut device.share,
            bounded(pages).0,
            device.tunables.max_ratio,
        );
    }

    /// Measures the device for the flusher; these laws do not use it.
    pub(crate) fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        let rate = self.rate;
        let now = rate.tick_at(now);
        let device = self.device_mut(device);
        if let Some(interval) = device.stopwatch.lap(rate, now, counts) {
            device.bandwidth.sample(rate, &interval);
        }
    }

    pub(crate) fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        self.device(device).bandwidth.smooth()
    }

    pub(crate) fn limits(&self, dirtyable: Pages) -> Limits {
        self.thresholds.limits(dirtyable)
    }

    fn device_limit(&self, device: DeviceIndex, limit: Pages) -> Pages {
        let device = self.device(device);
        let fraction = self.completions.fraction(&device.share);
        proportion::share(limit, self.reserved, &device.tunables, fraction)
    }

    /// The device's share of the dirty limit for that much dirtyable memory.
    pub(crate) fn device_limit_of(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        self.device_limit(device, self.limits(counts.dirtyable.now).dirty)
    }

    /// True if the flusher works: it looks at all devices together.
    pub(crate) fn over_background(&self, counts: &Counts) -> bool {
        bounded(counts.dirty) >= self.limits(counts.dirtyable.now).background
    }

    pub(crate) fn standing(
        &self,
        writer: &Share,
        device: DeviceIndex,
        counts: &Counts,
    ) -> Standing {
        let limits = self.limits(counts.dirtyable.now);
        Standing {
            limits,
            level: Level::of(counts),
            device_limit: self.device_limit(device, limits.dirty),
            weight: self.dirties.fraction(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use policy::dirty::{Dirtyable, Threshold};

    fn shares(cpus: u32, memory: u64) -> Shares {
        let tunables = Tunables {
            law: super::super::FOREGROUND,
            hz: 250,
            cpus,
            memory: Pages(memory),
            dirty: Threshold::Percent(20),
            background: Threshold::Percent(10),
        };
        let mut shares = Shares::new(&tunables, 1);
        let tunables = DeviceTunables {
            min_ratio: 0,
            max_ratio: 10_000,
            strict: false,
            initial: policy::dirty::InitialBandwidth::Assumed,
        };
        shares.add_device(Instant(0), tunables);
        shares
    }

    const DEVICE: DeviceIndex = DeviceIndex(0);

    fn dirtied(pages: Pages) -> Dirtied {
        Dirtied {
            now: Instant(0),
            device: DEVICE,
            cpu: 0,
            pages,
        }
    }

    #[test]
    fn the_rate_limit_is_a_share_of_memory_within_bounds() {
        assert_eq!(shares(4, 1 << 20).ratelimit_pages, Pages(1024));
        assert_eq!(shares(4, 65_536).ratelimit_pages, Pages(512));
        assert_eq!(shares(64, 1000).ratelimit_pages, Pages(16));
        assert_eq!(shares(0, 0).ratelimit_pages, Pages(16));
    }

    #[test]
    fn whoever_fills_the_cpu_pays_for_all() {
        let mut shares = shares(2, 1 << 20);
        let (mut a, mut b) = (Share::default(), Share::default());
        assert_eq!(shares.on_dirtied(&mut a, &dirtied(Pages(1000))), None);
        assert_eq!(shares.budget(DEVICE, 0), Pages(24));
        assert_eq!(shares.budget(DEVICE, 1), Pages(1024));
        assert_eq!(
            shares.on_dirtied(&mut b, &dirtied(Pages(24))),
            Some(Pages(1024))
        );
        assert_eq!(shares.budget(DEVICE, 0), Pages(1024));
        shares.device_mut(DEVICE).exceeded = true;
        assert_eq!(shares.budget(DEVICE, 0), Pages(8));
        assert_eq!(
            shares.on_dirtied(&mut b, &dirtied(Pages(8))),
            Some(Pages(8))
        );
    }

    #[test]
    fn a_heavy_writer_has_the_lower_limit() {
        let mut shares = shares(1, 1 << 20);
        let (mut heavy, light) = (Share::default(), Share::default());
        shares.on_dirtied(&mut heavy, &dirtied(Pages(1 << 22)));
        shares.on_written(Instant(0), DEVICE, Pages(1 << 22));
        let counts = Counts {
            dirtyable: Dirtyable::of_files(Pages(1 << 20)),
            ..Counts::default()
        };
        let heavy = shares.standing(&heavy, DEVICE, &counts);
        let light = shares.standing(&light, DEVICE, &counts);
        // Halving rounds down: alone, a device has all but a few pages of the limit.
        assert!(light.device_limit.0.abs_diff((1 << 20) / 5) <= 8);
        assert_eq!(light.writer_limit(8), light.device_limit);
        let whole = light.device_limit.0;
        assert!(heavy.writer_limit(8).0.abs_diff(whole - whole / 8) <= 2);
        assert!(heavy.writer_limit(16).0.abs_diff(whole - whole / 16) <= 2);
    }
}

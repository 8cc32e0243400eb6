//! Devices and writers under one law.

use super::law::Tunables;
use super::rules::Dirtied;
use super::running::Engine;
use super::types::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due,
    InitialBandwidth, Limits, Verdict,
};
use crate::ticks::TickRate;
use crate::units::{Instant, Pages, PagesPerSec};

/// Everything that the law remembers. Plain data behind one lock of `mm`.
pub struct Domain {
    devices: usize,
    devices_max: usize,
    law: Box<dyn Engine>,
}

/// A writer of a `Domain`, from `add_writer` to `remove_writer`. The law's memory of it is in the
/// domain.
#[derive(Debug)]
pub struct WriterIndex(u32);

impl Domain {
    /// A domain with room for `devices` devices.
    ///
    /// # Panics
    /// When `tunables.hz` is not in 1..=10000.
    #[must_use]
    pub fn new(tunables: Tunables, devices: usize) -> Self {
        let _valid = TickRate::new(tunables.hz);
        Self {
            devices: 0,
            devices_max: devices,
            law: (tunables.law.start)(&tunables, devices),
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
        check(&tunables);
        let index = u16::try_from(self.devices).expect("a domain has at most 65536 devices");
        self.devices += 1;
        self.law.devices_mut().add_device(now, tunables);
        DeviceIndex(index)
    }

    /// Another device takes the place of one that is gone, of which nobody holds or waits for
    /// anything. Where the law starts from nothing, it forgets what was measured of the old device;
    /// otherwise it relearns it.
    ///
    /// # Panics
    /// As `add_device`; of a device that was never added.
    pub fn renew_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        self.law.devices_mut().renew_device(device);
        self.set_device(device, tunables);
    }

    /// A device is gone: pages reserved for it are for the others, until another one takes its
    /// place.
    ///
    /// # Panics
    /// As `renew_device`.
    pub fn remove_device(&mut self, device: DeviceIndex) {
        self.law.devices_mut().remove_device(device);
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
        check(&tunables);
        self.law.devices_mut().set_device(device, tunables);
    }

    /// A new writer.
    pub fn add_writer(&mut self) -> WriterIndex {
        WriterIndex(self.law.add_writer())
    }

    /// A writer went away: what it still owes is passed on (kernel: the per-CPU leak).
    ///
    /// # Panics
    /// When `cpu` is not below the domain's count of CPUs.
    pub fn remove_writer(&mut self, writer: WriterIndex, cpu: usize) {
        self.law.remove_writer(writer.0, cpu);
    }

    /// Pages the writer may dirty before a balance is due; at least one. `mm` writes in batches of
    /// at most this many pages.
    ///
    /// # Panics
    /// When `cpu` is not below the domain's count of CPUs.
    #[must_use]
    pub fn budget(&self, writer: &WriterIndex, device: DeviceIndex, cpu: usize) -> Pages {
        self.law.budget(writer.0, device, cpu)
    }

    /// The writer dirtied `pages`; answers whether a balance is due now.
    ///
    /// # Panics
    /// When `cpu` is not below the domain's count of CPUs.
    pub fn on_dirtied(
        &mut self,
        now: Instant,
        writer: &WriterIndex,
        device: DeviceIndex,
        cpu: usize,
        pages: Pages,
    ) -> Option<Due> {
        let dirtied = Dirtied {
            now,
            device,
            cpu,
            pages,
        };
        self.law.on_dirtied(writer.0, &dirtied)
    }

    /// Pages, fewer than that, that the writer may dirty before `on_dirtied` is told of them, all
    /// at once: nothing would be due until then. Zero where each is to be told.
    #[must_use]
    pub fn untold_max(&self, now: Instant, writer: &WriterIndex, device: DeviceIndex) -> Pages {
        self.law.untold_max(writer.0, now, device)
    }

    /// Writeback of `pages` ended (proportions count it).
    pub fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion) {
        self.law.devices_mut().on_written(now, device, done);
    }

    /// A sync of a whole file begins, which finds `found` of its pages dirty. Heeded by Tidegate's
    /// own law.
    pub fn on_sync(&mut self, now: Instant, device: DeviceIndex, found: Pages, counts: &Counts) {
        self.law.devices_mut().on_sync(now, device, found, counts);
    }

    /// The flusher's turn to bring the bandwidth estimate up to date (at most every 200 ms has an
    /// effect).
    ///
    /// Once per slice is often enough, and once before the first request after a device was idle,
    /// with the counts of that moment: idle time is then not taken for slowness.
    pub fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        self.law.devices_mut().update(now, device, counts);
    }

    /// The global limits for that much dirtyable memory.
    #[must_use]
    pub fn limits(&self, dirtyable: Dirtyable) -> Limits {
        self.law.devices().limits(dirtyable)
    }

    /// True if the flusher of `device` has background work (mechanisms 6.2 "over threshold").
    #[must_use]
    pub fn over_background(&self, device: DeviceIndex, counts: &Counts) -> bool {
        self.law.devices().over_background(device, counts)
    }

    /// Smoothed write bandwidth of the device (25600 pages/s before anything is known).
    ///
    /// Measured under every law, whether it uses it or not.
    #[must_use]
    pub fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        self.law.devices().bandwidth(device)
    }

    /// Number of times that the usual flight of writeback is to be doubled for the device, because
    /// it makes use of more (see `writeback::Flight::DeviceTime`). Zero under laws that do not
    /// measure it.
    #[must_use]
    pub fn reach(&self, device: DeviceIndex) -> u32 {
        self.law.devices().reach(device)
    }

    /// The device's share of the dirty limit.
    #[must_use]
    pub fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        self.law.devices().device_limit(device, counts)
    }

    /// A balance begins: the writer dirtied `pages` since the last one. One of the same writer that
    /// is not over is given up.
    pub fn begin(&mut self, writer: &WriterIndex, device: DeviceIndex, pages: Pages) {
        self.law.begin(writer.0, device, pages);
    }

    /// The next verdict of the writer's balance, and what a trace of it shows. Ask again until
    /// `Done`.
    ///
    /// # Panics
    /// When none has begun, or it has ended.
    pub fn decide(
        &mut self,
        now: Instant,
        writer: &WriterIndex,
        counts: &Counts,
    ) -> (Verdict, BalanceTrace) {
        self.law.decide(writer.0, now, counts)
    }

    /// Answers `Verdict::WriteYourself`: that many pages were really submitted.
    ///
    /// # Panics
    /// When the last verdict was another one.
    pub fn wrote(&mut self, writer: &WriterIndex, pages: Pages) {
        self.law.wrote(writer.0, pages);
    }
}

fn check(tunables: &DeviceTunables) {
    assert!(tunables.min_ratio <= tunables.max_ratio, "{tunables:?}");
    assert!(tunables.max_ratio <= 10_000, "{tunables:?}");
}

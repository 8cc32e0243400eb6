//! The traits that a law of dirty throttling implements.
//!
//! A law is a type with both sets of rules: of devices and limits, and of writers. Its memory of a
//! writer and of one balance are types of its own (`WriterRules::Writer`, `Balance`), so that it
//! never meets those of another law.

use super::types::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due, Limits, Verdict,
};
use crate::units::{Instant, Pages, PagesPerSec};

/// Of devices and limits. Devices are numbered in the order in which they were added.
pub trait DeviceRules: Send {
    /// Another device, the next in order.
    fn add_device(&mut self, now: Instant, tunables: DeviceTunables);

    /// Another device takes the place of a device that is gone; its tunables follow by
    /// `set_device`.
    fn renew_device(&mut self, _device: DeviceIndex) {}

    /// A device is gone.
    fn remove_device(&mut self, _device: DeviceIndex) {}

    /// From now on the device's tunables are these.
    fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables);

    /// Writeback ended.
    fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion);

    /// A sync of a whole file begins, which finds `found` of its pages dirty.
    fn on_sync(&mut self, _now: Instant, _device: DeviceIndex, _found: Pages, _counts: &Counts) {}

    /// The flusher brings the bandwidth estimate up to date.
    fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts);

    /// The global limits for that much dirtyable memory.
    fn limits(&self, dirtyable: Dirtyable) -> Limits;

    /// True if the flusher of the device has background work.
    fn over_background(&self, device: DeviceIndex, counts: &Counts) -> bool;

    /// Smoothed write bandwidth of the device.
    fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec;

    /// Number of times that the usual flight of writeback is to be doubled for the device.
    fn reach(&self, _device: DeviceIndex) -> u32 {
        0
    }

    /// The device's share of the dirty limit.
    fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages;
}

/// Pages that a writer has dirtied.
#[derive(Clone, Copy, Debug)]
pub struct Dirtied {
    /// The time.
    pub now: Instant,
    /// Their device.
    pub device: DeviceIndex,
    /// The CPU that it ran on.
    pub cpu: usize,
    /// Their number.
    pub pages: Pages,
}

/// One look of a writer at the law.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The time.
    pub now: Instant,
    /// The device whose pages the writer dirtied.
    pub device: DeviceIndex,
    /// One reading of the counters.
    pub counts: &'a Counts,
}

/// Of writers.
pub trait WriterRules: DeviceRules {
    /// The law's account of one writer.
    type Writer: Send;
    /// Its state between two verdicts of a balance.
    type Balance: Send;

    /// A new writer.
    fn new_writer(&self) -> Self::Writer;

    /// A writer went away: what it still owes is passed on.
    fn remove_writer(&mut self, _writer: Self::Writer, _cpu: usize) {}

    /// Pages that the writer may dirty before a balance is due; at least one.
    fn budget(&self, writer: &Self::Writer, device: DeviceIndex, cpu: usize) -> Pages;

    /// The writer dirtied pages; answers whether a balance is due now.
    fn on_dirtied(&mut self, writer: &mut Self::Writer, dirtied: &Dirtied) -> Option<Due>;

    /// Pages, fewer than that, that the writer may dirty before the law is told.
    fn untold_max(&self, _writer: &Self::Writer, _now: Instant, _device: DeviceIndex) -> Pages {
        Pages::ZERO
    }

    /// A balance over `pages` begins.
    fn begin(&self, pages: Pages) -> Self::Balance;

    /// The next verdict of a balance, and its trace (`paused` is filled in by the caller).
    fn decide(
        &mut self,
        balance: &mut Self::Balance,
        writer: &mut Self::Writer,
        look: &Look<'_>,
    ) -> (Verdict, BalanceTrace);

    /// The writer has submitted `pages`, as the last verdict told it to.
    ///
    /// # Panics
    /// When the last verdict was another one; always under a law whose writers do not write.
    fn wrote(&self, _balance: &mut Self::Balance, _pages: Pages) {
        panic!("wrote() answers WriteYourself only")
    }
}

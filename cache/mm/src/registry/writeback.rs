//! Devices, and what is dirty on the way to them.

use std::sync::Arc;

use env::{Lock, LockClass};
use frames::Spread;
use frames::sync::{AtomicU32, AtomicU64};
use policy::dirty::Domain;

use crate::options::Options;
use crate::registry::device::DeviceState;
use crate::registry::requests::Requests;

/// Devices, what is dirty on the way to them, and who may dirty more.
pub(crate) struct Writeback {
    pub(crate) devices: Lock<Vec<Arc<DeviceState>>>,
    pub(crate) domain: Lock<Domain>,
    pub(crate) requests: Requests,
    pub(crate) totals: Totals,
}

impl Writeback {
    pub(crate) fn new(options: &Options) -> Self {
        let domain = Domain::new(options.dirty, usize::from(options.devices_max));
        Self {
            devices: Lock::new(LockClass::Registry, Vec::new()),
            domain: Lock::new(LockClass::Dirty, domain),
            requests: Requests::new(options.devices_max, options.write_requests),
            totals: Totals::default(),
        }
    }
}

/// Counters over all devices.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU64,
    pub(crate) dirtied: Spread,
    pub(crate) written: AtomicU64,
    pub(crate) discarded: AtomicU64,
    pub(crate) write_failed: AtomicU64,
    pub(crate) read_in: Spread,
    /// Pages of files.
    pub(crate) cached: Spread,
    /// Pages of anonymous memory in frames.
    pub(crate) anon: AtomicU64,
    /// Pages that are being read, or about to be.
    pub(crate) reading: AtomicU32,
}

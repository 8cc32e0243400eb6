//! What a cache knows of its files, regions and devices.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::Arc;

use env::{Env, Lock, LockClass};

use mapping::Mapping;
use regions::Regions;

pub(crate) mod completions;
pub(crate) mod device;
pub(crate) mod gate;
pub(crate) mod health;
pub(crate) mod inflight;
pub(crate) mod mapping;
pub(crate) mod regions;
pub(crate) mod requests;
pub(crate) mod writeback;

/// Pages of the largest request: 1 MiB.
pub(crate) const REQUEST_PAGES: usize = 256;

/// Files, the numbers that are given out, and whether the cache ends.
pub(crate) struct Registry<E: Env> {
    pub(crate) files: Lock<Vec<Option<Arc<Mapping<E>>>>>,
    /// Regions of anonymous memory.
    pub(crate) regions: Regions,
    /// Serial numbers of devices and files so far.
    pub(crate) serials: AtomicU64,
    pub(crate) writers: AtomicU32,
    /// No write is taken in any more; what was is still written.
    pub(crate) closing: AtomicBool,
    pub(crate) stopping: AtomicBool,
}

impl<E: Env> Registry<E> {
    pub(crate) fn new() -> Self {
        Self {
            files: Lock::new(LockClass::Registry, Vec::new()),
            regions: Regions::new(),
            serials: AtomicU64::new(0),
            writers: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }
}

//! Levels and totals of a cache, read without locks.

use policy::dirty::DeviceIndex;
use policy::units::{Pages, PagesPerSec};

/// A reading of a cache's counters. Levels are pages now; totals since the cache was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames of the cache.
    pub frames: Pages,
    /// Free frames, those without memory yet included.
    pub free: Pages,
    /// Pages of files in the cache.
    pub cached: Pages,
    /// Pages of anonymous memory in frames.
    pub anon: Pages,
    /// Frames pinned by callers.
    pub pinned: Pages,
    /// Dirty pages.
    pub dirty: Pages,
    /// Pages under writeback.
    pub writeback: Pages,
    /// Dirty limit now.
    pub dirty_limit: Pages,
    /// Background limit now.
    pub background_limit: Pages,
    /// Pages made dirty, ever.
    pub dirtied: Pages,
    /// Pages whose writeback ended well, ever.
    pub written: Pages,
    /// Dirty pages thrown away by truncation, ever.
    pub discarded: Pages,
    /// Pages whose writeback failed, ever (each try counts).
    pub write_failed: Pages,
    /// Pages read from devices, ever.
    pub read_in: Pages,
    /// Pages looked at by reclaim, ever.
    pub scanned: Pages,
    /// Pages freed by reclaim, ever.
    pub reclaimed: Pages,
    /// Bytes of metadata: frame table, lists, index nodes.
    pub metadata_bytes: u64,
}

impl Stats {
    /// Every page that was ever dirtied is dirty, under writeback, written, or was thrown away.
    /// Always holds when nothing is in motion; the lab checks it after every run.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.dirtied == self.dirty + self.writeback + self.written + self.discarded
    }
}

/// A reading of one device's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStats {
    /// Which.
    pub device: DeviceIndex,
    /// Its dirty pages.
    pub dirty: Pages,
    /// Its pages under writeback.
    pub writeback: Pages,
    /// Pages ever dirtied on it.
    pub dirtied: Pages,
    /// Pages ever written to it.
    pub written: Pages,
    /// Its estimated write bandwidth.
    pub bandwidth: PagesPerSec,
}

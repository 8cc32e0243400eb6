//! Levels and totals of a cache, read without locks.

use env::{Context, Interrupt};
use frames::sync::AtomicU64;
use policy::dirty::DeviceIndex;
use policy::reclaim::scan::Kind;
use policy::units::{Nanos, Pages};

use crate::cache::{Cache, get};
use crate::lists::{Order, Ruled, Zone};
use crate::registry::device::DeviceState;
mod nodes;

pub use self::nodes::NodeStats;
pub use crate::registry::health::{DeviceStats, Health, ReadsFailing};
use crate::slabs::SlabPages;
use crate::vmstat::{Item, Vmstat};

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
    /// Pages of slabs.
    pub slab: SlabPages,
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
    /// Dirty pages thrown away by truncation and by holes, ever.
    pub discarded: Pages,
    /// Pages whose writeback failed, ever (each try counts).
    pub write_failed: Pages,
    /// Pages read from devices, ever.
    pub read_in: Pages,
    /// Pages looked at by reclaim, ever.
    pub scanned: Pages,
    /// Pages freed by reclaim, ever.
    pub reclaimed: Pages,
    /// Pages moved to another frame, ever.
    pub moved: u64,
    /// Moves that came to nothing, ever.
    pub move_refused: u64,
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

/// Pages that came back after they were evicted, ever: what more memory would have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refaults {
    /// By how many evictions and activations ago they went: up to 1, 2, 4, 8 and so on.
    pub by_distance: [u64; 32],
    /// Pages ever evicted.
    pub evicted: Pages,
    /// The time of a page's read, of late; zero: none was read.
    pub read: Nanos,
}

impl Cache {
    /// The pages evicted, and those of them that came back. Cheap.
    pub fn refaults(&self) -> Refaults {
        let evicted = [Item::PgstealFile, Item::PgstealAnon];
        let evicted = evicted.map(|item| self.counters.get(item));
        Refaults {
            by_distance: self.zones.fallen(),
            evicted: Pages(evicted.iter().sum()),
            read: self.slabs.read(),
        }
    }

    /// Levels and totals.
    pub fn stats(&self) -> Stats {
        let context = Interrupt::new();
        let free = Pages(u64::from(self.memory.free()));
        let limits = self
            .writeback
            .domain
            .lock(&context)
            .limits(self.dirtyable());
        let totals = &self.writeback.totals;
        let pages = |counter: &AtomicU64| Pages(get(counter));
        Stats {
            frames: Pages(u64::from(self.options.frames)),
            free,
            cached: Pages(totals.cached.get()),
            anon: pages(&totals.anon),
            slab: self.slabs.pages(),
            pinned: self.pinned(),
            dirty: pages(&totals.dirty),
            writeback: pages(&totals.writeback),
            dirty_limit: limits.dirty,
            background_limit: limits.background,
            dirtied: Pages(totals.dirtied.get()),
            written: pages(&totals.written),
            discarded: pages(&totals.discarded),
            write_failed: pages(&totals.write_failed),
            read_in: Pages(totals.read_in.get()),
            scanned: self.total([Item::PgscanKswapd, Item::PgscanDirect]),
            reclaimed: self.total([Item::PgstealKswapd, Item::PgstealDirect]),
            moved: self.counters.get(Item::PgmigrateSuccess),
            move_refused: self.counters.get(Item::PgmigrateFail),
            metadata_bytes: self.metadata_bytes(&context),
        }
    }

    /// Free blocks by their order, of 2^0 to 2^10 frames; frames without memory are in none.
    pub fn free_blocks(&self) -> [u64; 11] {
        self.memory.free_by_order(&Interrupt::new())
    }

    /// Levels and totals of each device.
    pub fn device_stats(&self) -> Vec<DeviceStats> {
        let devices = self.writeback.devices.lock(&Interrupt::new()).clone();
        devices.iter().map(|device| self.stats_of(device)).collect()
    }

    /// Levels and totals of one device.
    ///
    /// # Panics
    /// If `device` is not of this cache.
    pub fn device_stats_of(&self, device: DeviceIndex) -> DeviceStats {
        self.stats_of(&self.device(&Interrupt::new(), device))
    }

    /// A reading of all counters and levels under the kernel's names.
    pub fn vmstat(&self) -> Vmstat {
        let context = Interrupt::new();
        let mut read = self.counters.read();
        let (sizes, aside) = self.zones.lengths(&context);
        let levels = [
            Item::NrInactiveAnon,
            Item::NrActiveAnon,
            Item::NrInactiveFile,
            Item::NrActiveFile,
        ];
        for (item, size) in levels.into_iter().zip(sizes.0) {
            read.set(item, size.0);
        }
        read.set(Item::NrAside, aside.0);
        read.set(Item::NrImmediate, self.zones.nr_immediate(&context).0);
        let isolated = |kind: Kind| self.zones.iter().map(|zone| zone.isolated(kind).0).sum();
        read.set(Item::NrIsolatedAnon, isolated(Kind::Anon));
        read.set(Item::NrIsolatedFile, isolated(Kind::File));
        read.set(Item::NrFreePages, u64::from(self.memory.free()));
        read.set(Item::NrDirty, get(&self.writeback.totals.dirty));
        read.set(
            Item::NrMapped,
            self.zones.iter().map(|zone| zone.mapped().0).sum(),
        );
        let writeback = get(&self.writeback.totals.writeback) + self.swap_writeback().0;
        read.set(Item::NrWriteback, writeback);
        read.set(Item::NrPinned, self.pinned().0);
        read.set(Item::NrWithheld, self.memory.offline(&context).0);
        let slab = self.slabs.pages();
        read.set(Item::NrSlabReclaimable, slab.reclaimable.0);
        read.set(Item::NrSlabUnreclaimable, slab.unreclaimable.0);
        let huge = [Item::ThpFaultAlloc, Item::ThpSplit, Item::ThpFreed];
        let [taken, split, freed] = huge.map(|item| self.counters.get(item));
        read.set(Item::NrAnonHuge, taken.saturating_sub(split + freed));
        if let Some(runs) = self.runs {
            let free = self.memory.free_runs(&context, runs.order);
            read.set(Item::NrFreeRuns, free);
        }
        let boosts = self
            .zones
            .layout()
            .zones()
            .map(|zone| self.memory.boost_of(zone).0);
        read.set(Item::NrWatermarkBoost, boosts.sum());
        read.set(Item::SwapFree, self.swap_stats().free.0);
        read.set(Item::SwapTotal, self.swap_total().0);
        read.set(Item::Pgfree, self.memory.given_back());
        let written = |zone: &Zone| {
            let sleepers = zone.sleepers();
            sleepers.law(&context, |law| law.throttled_written()).0
        };
        read.set(
            Item::NrThrottledWritten,
            self.zones.iter().map(written).sum(),
        );
        let kib = |pages: u64| pages << 2;
        let swapped_in = self.counters.get(Item::Pswpin);
        read.set(
            Item::Pgpgin,
            kib(self.writeback.totals.read_in.get() + swapped_in),
        );
        let swapped_out = self.counters.get(Item::Pswpout);
        read.set(
            Item::Pgpgout,
            kib(get(&self.writeback.totals.written) + swapped_out),
        );
        read
    }

    fn stats_of(&self, device: &DeviceState) -> DeviceStats {
        let context = Interrupt::new();
        let counts = self.counts(device);
        let limits = {
            let domain = self.writeback.domain.lock(&context);
            let all = domain.limits(counts.dirtyable);
            let share = domain.device_limit(device.index, &counts);
            let background = share.0 * all.background.0 / all.dirty.0.max(1);
            (share, Pages(background))
        };
        device.stats(&context, self.env.now(), limits)
    }

    fn total(&self, items: [Item; 2]) -> Pages {
        Pages(items.map(|item| self.counters.get(item)).iter().sum())
    }

    fn metadata_bytes(&self, context: &impl Context) -> u64 {
        let lru = self.zones.lru(context).bytes();
        let rule =
            self.zones.ruled().map_or(0, Ruled::bytes) + self.zones.order().map_or(0, Order::bytes);
        let memory = self.memory.bytes(context) + self.swap.bytes(context);
        self.pages.table.bytes() + self.pages.pool.bytes() + lru + rule + memory
    }
}

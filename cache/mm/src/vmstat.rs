//! Counters under the names that the kernel gives them in `/proc/vmstat`.
//!
//! Events are totals since the cache was built and change where the thing happens, a batch at a
//! time; levels are read when somebody asks. The sums that have to hold are `Vmstat::check`'s.
//!
//! Source: mechanisms 10.1; Linux v6.12 mm/vmstat.c, `vmstat_text`.

use frames::SeatId;
use frames::ledger::PLACES;
use frames::sync::{AtomicU64, Ordering};

macro_rules! items {
    ($($(#[$doc:meta])* $item:ident = $name:literal,)*) => {
        /// One of the counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Item {
            $($(#[$doc])* $item,)*
        }

        impl Item {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$item),*];

            /// The name in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$item => $name,)*
                }
            }
        }
    };
}

items! {
    /// Level: free frames.
    NrFreePages = "nr_free_pages",
    /// Level.
    NrInactiveAnon = "nr_inactive_anon",
    /// Level.
    NrActiveAnon = "nr_active_anon",
    /// Level.
    NrInactiveFile = "nr_inactive_file",
    /// Level.
    NrActiveFile = "nr_active_file",
    /// Level: pages of files that wait for their write, out of the way of every scan. Ours.
    NrAside = "nr_aside",
    /// Level: anonymous pages that a reclaimer has off its lists.
    NrIsolatedAnon = "nr_isolated_anon",
    /// Level: pages of files that a reclaimer has off their lists.
    NrIsolatedFile = "nr_isolated_file",
    /// Level.
    NrDirty = "nr_dirty",
    /// Level: pages of files that are mapped.
    NrMapped = "nr_mapped",
    /// Level: pages under writeback, of files and of the swap file.
    NrWriteback = "nr_writeback",
    /// Level: frames pinned by callers.
    NrPinned = "nr_pinned",
    /// Level: frames that a lowered limit has taken out of use.
    NrWithheld = "nr_withheld",
    /// Level: pages of slabs whose objects can be made again.
    NrSlabReclaimable = "nr_slab_reclaimable",
    /// Level: pages of slabs that stay until their owner gives them back.
    NrSlabUnreclaimable = "nr_slab_unreclaimable",
    /// Level: pages by which marks stand higher, over all zones. Ours.
    NrWatermarkBoost = "nr_watermark_boost",
    /// Level: free slots of the swap file.
    SwapFree = "swap_free",
    /// Level: slots of the swap file.
    SwapTotal = "swap_total",
    /// Frames given out.
    Pgalloc = "pgalloc_normal",
    /// Frames given back.
    Pgfree = "pgfree",
    /// Pages moved to an active list.
    Pgactivate = "pgactivate",
    /// Pages moved from an active list to an inactive one.
    Pgdeactivate = "pgdeactivate",
    /// Pages of active lists looked at.
    Pgrefill = "pgrefill",
    /// Pages that went to the inactive tail when their write ended.
    Pgrotated = "pgrotated",
    /// Pages looked at by the background reclaimer.
    PgscanKswapd = "pgscan_kswapd",
    /// Pages looked at by the task that needed memory.
    PgscanDirect = "pgscan_direct",
    /// Of these: anonymous.
    PgscanAnon = "pgscan_anon",
    /// Of these: of files.
    PgscanFile = "pgscan_file",
    /// Pages freed by the background reclaimer.
    PgstealKswapd = "pgsteal_kswapd",
    /// Pages freed by the task that needed memory.
    PgstealDirect = "pgsteal_direct",
    /// Of these: anonymous.
    PgstealAnon = "pgsteal_anon",
    /// Of these: of files.
    PgstealFile = "pgsteal_file",
    /// Direct reclaims that began below half the reserve and waited for the background reclaimer.
    PgscanDirectThrottle = "pgscan_direct_throttle",
    /// Pages that reclaim took off a list to look at. Ours.
    Pgisolated = "pgisolated",
    /// Of these: put back on a list. Ours.
    Pgputback = "pgputback",
    /// Of these: given back by their owner meanwhile. Ours.
    Pgisolatedgone = "pgisolated_gone",
    /// Direct reclaims begun (and begun again).
    Allocstall = "allocstall_normal",
    /// Passes of the background reclaimer.
    Pageoutrun = "pageoutrun",
    /// Waits of the background reclaimer between two priorities that it left out as a zone was
    /// below MIN (before 4.8).
    KswapdSkipCongestionWait = "kswapd_skip_congestion_wait",
    /// Pages that reclaim itself wrote.
    NrVmscanWrite = "nr_vmscan_write",
    /// Pages whose write reclaim waited for, to look at them again (order 3 and more, before 3.12).
    /// Ours.
    NrVmscanWaited = "nr_vmscan_waited",
    /// Dirty pages of files that reclaim met and left to the flusher.
    NrVmscanImmediateReclaim = "nr_vmscan_immediate_reclaim",
    /// Pages whose write ended while somebody slept for writeback.
    NrThrottledWritten = "nr_throttled_written",
    /// Evicted anonymous pages that came back.
    WorkingsetRefaultAnon = "workingset_refault_anon",
    /// Evicted pages of files that came back.
    WorkingsetRefaultFile = "workingset_refault_file",
    /// Of these: soon enough to be active at once.
    WorkingsetActivateAnon = "workingset_activate_anon",
    /// Of these: soon enough to be active at once.
    WorkingsetActivateFile = "workingset_activate_file",
    /// Of those: had been active before they were evicted.
    WorkingsetRestoreAnon = "workingset_restore_anon",
    /// Of those: had been active before they were evicted.
    WorkingsetRestoreFile = "workingset_restore_file",
    /// Pages read from the swap file.
    Pswpin = "pswpin",
    /// Pages written to the swap file.
    Pswpout = "pswpout",
    /// KiB read from devices.
    Pgpgin = "pgpgin",
    /// KiB written to devices.
    Pgpgout = "pgpgout",
    /// Faults on anonymous memory.
    Pgfault = "pgfault",
    /// Of these: the page had to be read.
    Pgmajfault = "pgmajfault",
    /// Regions that gave way when memory ran out.
    OomKill = "oom_kill",
    /// Zones that were trimmed for an allocation, or were to be, and gave less than was asked for.
    ZoneReclaimFailed = "zone_reclaim_failed",
    /// Zones that were trimmed for an allocation and gave what was asked for.
    ZoneReclaimSuccess = "zone_reclaim_success",
    /// Objects that shrinkers looked at.
    SlabsScanned = "slabs_scanned",
    /// Pages of files that went with the objects which held them, by the task that needed memory.
    Pginodesteal = "pginodesteal",
    /// The same by the background reclaimer.
    KswapdInodesteal = "kswapd_inodesteal",
    /// Pages that came free as shrinkers were asked, of slabs and of files. Ours.
    SlabFreed = "slab_freed",
    /// Pageblocks that a second mobility came to live in. Ours.
    ExtfragEvents = "extfrag_events",
    /// Of these: those that raised a zone's marks, if only up to the cap. Ours.
    WatermarkBoosts = "watermark_boosts",
    /// Frames that came to the lists of the second mobility by these events. Ours.
    ExtfragPages = "extfrag_pages",
    /// Pages freed in passes for a boost, those of slabs included. Ours.
    PgstealBoosted = "pgsteal_boosted",
    /// Pages moved to another frame.
    PgmigrateSuccess = "pgmigrate_success",
    /// Pages that were to be, and could not in that moment.
    PgmigrateFail = "pgmigrate_fail",
    /// Faults that got a run.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that would have had one and got single pages.
    ThpFaultFallback = "thp_fault_fallback",
    /// Runs of which a page went elsewhere.
    ThpSplit = "thp_split",
    /// Runs that were given back whole. Ours.
    ThpFreed = "thp_freed",
    /// Level: runs of anonymous memory.
    NrAnonHuge = "nr_anon_huge",
    /// Level: runs that could be taken of what is free. Ours.
    NrFreeRuns = "nr_free_runs",
    /// Times that pages were to be moved for a run.
    CompactStall = "compact_stall",
    /// Of these: there was one then.
    CompactSuccess = "compact_success",
    /// Of these: there was none.
    CompactFail = "compact_fail",
    /// Times that the task which moves pages in the background was woken (6.12).
    CompactDaemonWake = "compact_daemon_wake",
    /// Frames that were looked at, whether their page could be moved.
    CompactMigrateScanned = "compact_migrate_scanned",
    /// Frames that were looked at, whether a page could be moved there.
    CompactFreeScanned = "compact_free_scanned",
    /// Pages taken off their lists to be moved.
    CompactIsolated = "compact_isolated",
    /// Of these: moved.
    CompactPagesMoved = "compact_pages_moved",
    /// Of these: could not be, however often it was tried.
    CompactPagemigrateFailed = "compact_pagemigrate_failed",
    /// Of these: put back at the first look. The kernel counts them as moved up to 3.2. Ours.
    CompactRefused = "compact_refused",
    /// Pages that were read once and were dropped as their block was emptied. Ours.
    CompactDropped = "compact_dropped",
    /// Pages that compaction wrote so that they could be moved. Ours.
    CompactWritten = "compact_written",
    /// Waits of compaction for a page's write. Ours.
    CompactWaits = "compact_waits",
    /// Pages that came back from the list of those that wait for their write because it seemed
    /// empty.
    Pgrescued = "pgrescued",
    /// Level: pages on that list, as counted.
    NrImmediate = "nr_immediate",
    /// Frames that came from the node they were wanted from.
    NumaHit = "numa_hit",
    /// Frames that came from another node than they were wanted from, counted there.
    NumaMiss = "numa_miss",
    /// The same frames, counted where they were wanted from: equal to `numa_miss` over all nodes.
    NumaForeign = "numa_foreign",
    /// Frames that came from the node of the task that took them.
    NumaLocal = "numa_local",
    /// Frames that came from another node than that of the task.
    NumaOther = "numa_other",
    /// Pages of programs touched by a task of another node than theirs. Ours.
    NumaRemoteTouch = "numa_remote_touch",
    /// Pages copied to or from by a task of another node than theirs. Ours.
    NumaRemoteCopy = "numa_remote_copy",
    /// Zones that a search passed over because the zonelist cache had them as full. Ours.
    ZlcSkipped = "zlc_skipped",
    /// Of these: zones above their mark, kept from view by what was found before the last direct
    /// reclaim. Ours.
    ZlcHidden = "zlc_hidden",
}

#[track_caller]
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    if by > 0 {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

#[track_caller]
pub(crate) fn sub(counter: &AtomicU64, by: u64) {
    if by > 0 {
        let before = counter.fetch_sub(by, Ordering::Relaxed);
        debug_assert!(before >= by, "a counter of pages went below zero");
    }
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The counters that are written to: each thread in its own place, as of a `frames::Spread`.
pub struct Counters {
    places: Box<[Cells; PLACES]>,
}

#[repr(align(128))]
struct Cells([AtomicU64; Item::ALL.len()]);

impl Default for Cells {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Item::ALL.len()])
    }
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            places: Box::default(),
        }
    }

    /// Counts some more.
    pub fn add(&self, item: Item, by: u64) {
        if by > 0 {
            let cells = &self.places[SeatId::mine().place()].0;
            cells[item as usize].fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, item: Item) -> u64 {
        self.at(item as usize)
    }

    /// A reading, without the levels.
    pub(crate) fn read(&self) -> Vmstat {
        Vmstat {
            values: core::array::from_fn(|at| self.at(at)),
        }
    }

    fn at(&self, at: usize) -> u64 {
        let places = self.places.iter();
        places
            .map(|cells| cells.0[at].load(Ordering::Relaxed))
            .sum()
    }
}

/// A reading of all counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmstat {
    values: [u64; Item::ALL.len()],
}

impl Vmstat {
    /// One counter.
    #[must_use]
    pub fn get(&self, item: Item) -> u64 {
        self.values[item as usize]
    }

    pub(crate) fn set(&mut self, item: Item, value: u64) {
        self.values[item as usize] = value;
    }

    /// Names and values, in the order of `Item`.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Item::ALL.iter().map(|item| (item.name(), self.get(*item)))
    }

    /// The first sum that does not hold, by name. All hold when no reclaimer is at work.
    ///
    /// Pages scanned are those of the two kinds and those of the two sorts of reclaimer; likewise
    /// pages freed; isolated pages were freed, put back, or gone meanwhile.
    #[must_use]
    pub fn broken_sum(&self) -> Option<&'static str> {
        use Item as I;
        let sum = |items: &[Item]| items.iter().map(|item| self.get(*item)).sum::<u64>();
        let scanned = sum(&[I::PgscanKswapd, I::PgscanDirect]);
        let freed = sum(&[I::PgstealKswapd, I::PgstealDirect]);
        let isolated = self.get(I::Pgisolated);
        if scanned != sum(&[I::PgscanAnon, I::PgscanFile]) {
            return Some("pgscan_kswapd + pgscan_direct = pgscan_anon + pgscan_file");
        }
        if freed != sum(&[I::PgstealAnon, I::PgstealFile]) {
            return Some("pgsteal_kswapd + pgsteal_direct = pgsteal_anon + pgsteal_file");
        }
        if isolated != freed + sum(&[I::Pgputback, I::Pgisolatedgone]) {
            return Some("pgisolated = pgsteal + pgputback + pgisolated_gone");
        }
        if scanned != isolated {
            return Some("pgscan = pgisolated");
        }
        // Reclaim first puts back the pages that it writes, or waits for them.
        if self.get(I::NrVmscanWrite) > sum(&[I::Pgputback, I::Pgisolatedgone, I::NrVmscanWaited]) {
            return Some("nr_vmscan_write <= pgputback + pgisolated_gone");
        }
        if self.get(I::CompactStall) != sum(&[I::CompactSuccess, I::CompactFail]) {
            return Some("compact_stall = compact_success + compact_fail");
        }
        let looked_at = [
            I::CompactPagesMoved,
            I::CompactPagemigrateFailed,
            I::CompactRefused,
        ];
        if self.get(I::CompactIsolated) != sum(&looked_at) {
            return Some(
                "compact_isolated = compact_pages_moved + compact_pagemigrate_failed + compact_refused",
            );
        }
        if sum(&[I::NrIsolatedAnon, I::NrIsolatedFile]) != 0 {
            return Some("nr_isolated = 0");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once() {
        let mut names: Vec<_> = Item::ALL.iter().map(|item| item.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Item::ALL.len());
        for (at, item) in Item::ALL.iter().enumerate() {
            assert_eq!(at, *item as usize);
        }
    }

    #[test]
    fn a_page_that_nobody_put_back_shows() {
        let counters = Counters::new();
        assert_eq!(counters.read().broken_sum(), None);
        for item in [Item::PgscanDirect, Item::PgscanFile, Item::Pgisolated] {
            counters.add(item, 32);
        }
        counters.add(Item::Pgputback, 31);
        assert_eq!(
            counters.read().broken_sum(),
            Some("pgisolated = pgsteal + pgputback + pgisolated_gone")
        );
        counters.add(Item::Pgputback, 1);
        counters.add(Item::NrVmscanWrite, 32);
        assert_eq!(counters.read().broken_sum(), None);
        counters.add(Item::NrVmscanWrite, 1);
        assert_eq!(
            counters.read().broken_sum(),
            Some("nr_vmscan_write <= pgputback + pgisolated_gone")
        );
        counters.add(Item::PgstealFile, 1);
        assert!(counters.read().broken_sum().is_some());
    }
}

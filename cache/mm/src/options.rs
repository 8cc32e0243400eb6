//! The options of a cache: sizes, laws, error policies. Plain data.

use policy::dirty::{DeviceTunables, InitialBandwidth, Law, Threshold, Tunables};
use policy::place::PlaceLaw;
use policy::place::cpu_list::CpuListLaw;
use policy::place::machine::Machine;
use policy::place::mobility::{FallbackRule, Migrates, Mobility};
use policy::reclaim::boost::BoostRule;
use policy::reclaim::page::Immediate;
use policy::reclaim::{Loops, ReclaimLaw, Tunables as ReclaimTunables};
use policy::rule::RuleMaker;
use policy::units::{Nanos, Pages};
use policy::watermark::Watermarks;
use policy::writeback::FlushTunables;

use frames::FreeLists;

use crate::Error;

/// Frames below which a cache cannot work: room for a request, a read-ahead window and the marks.
pub(crate) const FRAMES_MIN: u32 = 256;
/// Frames that are kept together, 2 MiB: as many as a huge page has.
pub(crate) const PAGEBLOCK_ORDER: u8 = 9;

/// When frames get their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// All of them when the cache is built.
    AtStart,
    /// Chunk by chunk as they are needed.
    AsUsed,
}

/// Free memory is kept apart by mobility, pageblock by pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The mobility whose free lists serve a request that its own cannot.
    pub rule: FallbackRule,
    /// Frames of a pageblock, as a power of two: 9, and less where the memory stands for a larger
    /// one.
    pub pageblock_order: u8,
}

impl Apart {
    /// With pageblocks of 2 MiB in the memory that is stood for, which is `stands_for` times as
    /// large.
    #[must_use]
    pub fn of(rule: FallbackRule, stands_for: u32) -> Self {
        let smaller = u8::try_from(stands_for.max(1).ilog2()).unwrap_or(PAGEBLOCK_ORDER);
        Self {
            rule,
            pageblock_order: PAGEBLOCK_ORDER.saturating_sub(smaller),
        }
    }
}

/// Free frames that CPUs keep for themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListsOfCpus {
    pub(crate) law: CpuListLaw,
    /// CPUs of the machine.
    pub(crate) cpus: u32,
}

/// Faults on regions may ask a kernel for frames that stand together (`Kernel::runs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Frames of a run, as a power of two: 9, a huge page, and less where the memory stands for a
    /// larger one.
    pub order: u8,
    /// Faults ask for them (`transparent_hugepage/enabled`).
    pub faults: bool,
    /// Pages of files lie in pageblocks of their like.
    pub groups: bool,
    /// The treatment of pages that wait for their write.
    pub immediate: Immediate,
}

impl Runs {
    /// Of 2 MiB in the memory that is stood for, which is `stands_for` times as large.
    #[must_use]
    pub fn of(stands_for: u32) -> Self {
        let smaller = u8::try_from(stands_for.max(1).ilog2()).unwrap_or(PAGEBLOCK_ORDER);
        Self {
            order: PAGEBLOCK_ORDER.saturating_sub(smaller).max(1),
            faults: true,
            groups: false,
            immediate: Immediate::Scanned,
        }
    }
}

/// The options of a cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frames of the arena: the memory that pages may take.
    pub frames: u32,
    /// When they get their memory.
    pub populate: Populate,
    /// The law of dirty throttling and its limits.
    pub dirty: Tunables,
    /// Writers tell the law of pages that they dirty some at a time, where that makes no difference
    /// to the balance due: for writers on many cores.
    pub tells_in_batches: bool,
    /// A sync that ends wakes no flusher but one that waits for that: on threads a wake may take as
    /// long as a write. In the lab it takes no time.
    pub spares_flusher: bool,
    /// The tunables of the flusher.
    pub flush: FlushTunables,
    /// The tunables of reclaim and of its throttling.
    pub reclaim: ReclaimTunables,
    /// Which page of a file goes; `None`: by inactive and active pages and how far they had fallen
    /// that come back, as the law of reclaim has it.
    pub page_rule: Option<RuleMaker>,
    /// The free lists of pages, objects and unmovable memory, if each has its own; `None`: they
    /// share one.
    pub apart: Option<Apart>,
    /// The answer of a zone to mixed pageblocks.
    pub boost: BoostRule,
    /// Nodes and zones of the memory; `None`: one of each. It has `frames` in all.
    pub machine: Option<Machine>,
    /// The law of looking for a frame among several zones.
    pub place: PlaceLaw,
    /// When reclaim starts and stops; `None`: as for a zone of `frames` pages.
    pub marks: Option<Watermarks>,
    /// Largest read-ahead window; one of less than two pages turns it off.
    pub readahead_max: Pages,
    /// Devices the cache has room for.
    pub devices_max: u16,
    /// Files the cache has room for at once.
    pub files_max: u32,
    /// Most frames that callers may keep pinned at once; of a limit that is lowered the same part.
    /// Threads that pin in the very moment in which it is reached may have a call's worth each
    /// beyond it.
    pub pins_max: u32,
    /// Write requests that all devices together may have, at least.
    pub write_requests: u32,
    /// Requests of up to 32 pages that may be on their way to the swap file at once. A task that
    /// has more to send waits for one of them to end (`Cause::RequestSlot`).
    pub swap_requests: u32,
}

impl Options {
    /// Tidegate's defaults for a cache of `frames` frames used from `cpus` CPUs.
    #[must_use]
    pub fn new(frames: u32, cpus: u32) -> Self {
        Self {
            frames,
            populate: Populate::AsUsed,
            dirty: Tunables {
                law: Law::TIDEGATE,
                hz: 1000,
                cpus,
                memory: Pages(u64::from(frames)),
                dirty: Threshold::Percent(20),
                background: Threshold::Percent(10),
            },
            tells_in_batches: false,
            spares_flusher: false,
            flush: FlushTunables::tidegate(),
            reclaim: ReclaimTunables::of(ReclaimLaw::TIDEGATE, 1000),
            page_rule: None,
            apart: None,
            boost: BoostRule::TIDEGATE,
            machine: None,
            place: PlaceLaw::TIDEGATE,
            marks: None,
            // Several requests deep, so that a fast device is kept busy; a small part of memory.
            readahead_max: Pages(u64::from(frames / 16)).at_most(Pages(2048)),
            devices_max: 16,
            files_max: 4096,
            pins_max: frames / 4,
            // A queue of 128 and a few syncs beside it.
            write_requests: 160,
            // Requests that a queue of Linux' block layer takes (`nr_requests`).
            swap_requests: 256,
        }
    }
}

/// Least and most ticks a second of a law.
const HZ: (u64, u64) = (1, 10_000);
/// Maximum number of zones with free lists per mobility: `frames::Pageblocks` has room for this
/// many groups.
const ZONES_APART: u64 = 5;
/// Shares are in 1/10000.
const RATIO_MAX: u64 = 10_000;
/// Swappiness is out of this.
const SWAPPINESS_MAX: u64 = 200;

/// `BadOption` unless the value is allowed.
fn check(what: &'static str, value: u64, allowed: (u64, u64)) -> Result<(), Error> {
    if (allowed.0..=allowed.1).contains(&value) {
        Ok(())
    } else {
        Err(Error::BadOption {
            what,
            value,
            allowed,
        })
    }
}

impl Options {
    /// The machine, as the law sees it.
    pub(crate) fn machine_or_one_node(&self) -> Machine {
        match &self.machine {
            None => Machine::of_one_node(Pages(u64::from(self.frames))),
            Some(machine) if self.place.one_zone_a_node => machine.with_one_zone_a_node(),
            Some(machine) => machine.clone(),
        }
    }

    /// Checks the values that the laws would panic on. A background limit above the dirty one is
    /// none of it: it is halved, as in the kernel.
    ///
    /// # Errors
    /// `BadOption`.
    pub(crate) fn check(&self, has_kernel: bool) -> Result<(), Error> {
        let law = self.reclaim.law;
        if (law.loops == Loops::Zones || law.generations) && !has_kernel {
            let what = "a law of reclaim over zones or generations, without `Cache::with_kernel`,";
            check(what, 1, (0, 0))?;
        }
        if self.boost.boosts() && !has_kernel {
            let what = "boost.factor, without `Cache::with_kernel`,";
            check(what, self.boost.factor, (0, 0))?;
        }
        for (what, threshold) in [
            ("dirty.dirty, in per cent,", self.dirty.dirty),
            ("dirty.background, in per cent,", self.dirty.background),
        ] {
            if let Threshold::Percent(percent) = threshold {
                check(what, u64::from(percent), (0, 100))?;
            }
        }
        check("dirty.hz", u64::from(self.dirty.hz), HZ)?;
        check(
            "dirty.cpus",
            u64::from(self.dirty.cpus),
            (1, u64::from(u32::MAX)),
        )?;
        check("reclaim.hz", u64::from(self.reclaim.hz), HZ)?;
        check(
            "reclaim.swappiness",
            u64::from(self.reclaim.swappiness),
            (0, SWAPPINESS_MAX),
        )?;
        if let Some(machine) = &self.machine {
            let frames = u64::from(self.frames);
            check("frames of all zones", machine.pages().0, (frames, frames))?;
        }
        if let Some(apart) = self.apart {
            let zones = self.machine_or_one_node().zones().len() as u64;
            check(
                "zones of memory kept apart by mobility",
                zones,
                (1, ZONES_APART),
            )?;
            let order = u64::from(apart.pageblock_order);
            check(
                "apart.pageblock_order",
                order,
                (0, u64::from(PAGEBLOCK_ORDER)),
            )?;
        }
        if self.boost.boosts() && self.reclaim.law.loops == Loops::Zones {
            // Nobody would work it off: the marks would stay where they are.
            check(
                "boost.factor, where reclaim goes over zones,",
                self.boost.factor,
                (0, 0),
            )?;
        }
        if let Some(marks) = self.marks {
            let frames = u64::from(self.frames);
            check("marks.min", marks.min.0, (1, frames / 2))?;
            check("marks.low", marks.low.0, (marks.min.0, frames / 2))?;
            check("marks.high", marks.high.0, (marks.low.0, frames / 2))?;
        }
        check(
            "files_max",
            u64::from(self.files_max),
            (1, u64::from(u32::MAX)),
        )
    }
}

impl Options {
    /// Checks the runs of a kernel.
    ///
    /// # Errors
    /// `BadOption`.
    pub(crate) fn check_runs(&self, runs: Runs) -> Result<(), Error> {
        let most = u64::from(FreeLists::ORDER_MAX);
        check("runs.order", u64::from(runs.order), (1, most))?;
        let machine = self.machine_or_one_node();
        let zones = machine.zones().iter().map(|zone| zone.pages.0);
        let largest = zones.max().unwrap_or(0);
        // Less than half: one run must not be all that a zone may give.
        check(
            "frames of a run (2^runs.order), where the largest zone has so few,",
            1 << runs.order,
            (2, largest / 2),
        )
    }
}

impl DeviceOptions {
    /// Checks the values that the laws would panic on.
    ///
    /// # Errors
    /// `BadOption`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let max = u64::from(self.tunables.max_ratio);
        check("tunables.max_ratio", max, (0, RATIO_MAX))?;
        check(
            "tunables.min_ratio",
            u64::from(self.tunables.min_ratio),
            (0, max),
        )
    }
}

/// The answer to a device's writers while writes to it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Keep retrying with back-off; writers go on until the limits hold them.
    Retry,
    /// Keep retrying; writers get the error of the first failure once.
    Report,
    /// Refuse new writes from the first failure on.
    Stop,
}

/// The options of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Share of the dirty limit.
    pub tunables: DeviceTunables,
    /// The error that writers get when writes fail.
    pub on_error: ErrorPolicy,
    /// First wait before a failed write is tried again; doubles up to 64 times as long.
    pub retry_after: Nanos,
    /// The ability to move its dirty pages.
    pub migrates: Migrates,
    /// Pages of a file that go under writeback together, before the first of them is sent: those
    /// that a file system gives blocks to at once. Zero: as many as a request has.
    pub at_once: Pages,
    /// Its files are parts of one, the device itself: a slice that is not used up goes on with the
    /// next of them.
    pub one_file: bool,
    /// Blocks of its file system in a page: heads of a page that was written to, where these take
    /// frames (`Kernel::overhead`).
    pub blocks_a_page: u8,
    /// Among whose pageblocks its pages lie, where memory is kept apart: those of a device that is
    /// read and written as it is are not movable in Linux.
    pub mobility: Mobility,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            tunables: DeviceTunables {
                min_ratio: 0,
                max_ratio: 10_000,
                strict: false,
                initial: InitialBandwidth::Learned,
            },
            on_error: ErrorPolicy::Report,
            retry_after: Nanos::millis(100),
            migrates: Migrates::Copy,
            at_once: Pages::ZERO,
            one_file: false,
            blocks_a_page: 1,
            mobility: Mobility::Movable,
        }
    }
}

//! The door to rooms outside this crate: parts of a kernel that a live cache does not enter.
//!
//! A cache that is built with a `Kernel` (`Cache::with_kernel`) asks it at a few places; another
//! one finds none there. A room asks the cache through `Inside`.
//!
//! Source: ours (ADR 31).

use core::any::Any;
use std::sync::Arc;

use env::{Context, Task, WaitQueue};
use frames::FrameId;
use policy::dirty::DeviceIndex;
use policy::reclaim::Loops;
use policy::reclaim::page::Tally;
use policy::reclaim::scan::Priority;
use policy::reclaim::throttle::Who;
use policy::units::{Bytes, Instant, Nanos, Pages};
use policy::writeback::DeviceQueue;

use super::Cache;
use crate::Error;
use crate::lists::{NodeId, Order, ZoneId};
use crate::memory::overhead::Overhead;
use crate::options::Runs;
use crate::vmstat::Item;

/// The requests of a cache to the rooms of a kernel.
pub trait Kernel: Any + Send + Sync {
    /// The runs of frames that faults ask for. Asked once.
    fn runs(&self) -> Option<Runs>;

    /// Takes a run for a fault; appends its frames. False: there is none, and single pages have to
    /// do. The caller holds no busy bit.
    ///
    /// # Errors
    /// `NoMemory`, `Cancelled`.
    fn take_run(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error>;

    /// True if each node has a task that makes runs in the background.
    fn has_compactor(&self) -> bool;

    /// That task: sleeps until it is asked, and makes runs. False: it is to end.
    fn compact(&self, task: &mut Task<'_>, cache: &Cache, node: NodeId) -> bool;

    /// One balance of a zone by the background reclaimer under a law that boosts.
    fn balance_boosted(&self, task: &mut Task<'_>, cache: &Cache, zone: ZoneId);

    /// The overhead of pages, if it takes frames. Asked once.
    fn overhead(&self) -> Option<Arc<dyn Overhead>>;

    /// Takes as many frames for the overhead as pages want, or gives back those that they do not;
    /// takes none unless `takes`. It neither reclaims nor waits.
    fn settle_overhead(&self, task: &mut Task<'_>, cache: &Cache, takes: bool);

    /// The background reclaimer of a node balances its zones, each for itself, until it may rest;
    /// false: it is to end. For laws that reclaim over zones, as the next two.
    fn balance_zones(&self, task: &mut Task<'_>, cache: &Cache, node: NodeId) -> bool;

    /// A task reclaims at least `target` pages of the zones that it takes memory of, or as many as
    /// 13 rounds give, or until it has `enough`; for a run, if one is named.
    fn reclaim_zones(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        target: Pages,
        rights: (Who, Option<&dyn ForRun>),
        enough: &dyn Fn(&Task<'_>) -> bool,
    ) -> Ended;

    /// A task that found no zone above its mark wakes the background reclaimer for this one.
    fn wants_wake(&self, context: &dyn Context, cache: &Cache, zone: ZoneId) -> bool;

    /// The order of pages, if it is another than inactive and active. Asked once.
    fn order(&self) -> Option<Arc<dyn Order>>;

    /// A pass over pages in that order; answers how many were freed.
    fn pass_in_order(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Pages;

    /// True if it has caches of objects that passes may ask.
    fn has_objects(&self) -> bool;

    /// A pass where pages and caches of objects share the memory; `None`: they do not. The caller
    /// holds nothing, as in the next two.
    fn pass_shared(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Option<Turned>;

    /// Asks caches of objects on the node of a zone for their part of a pass that has looked at
    /// `seen.0` of `seen.1` listed pages: all, or if `shared` those that do not say what they hold.
    fn ask_objects(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        control: &Control<'_>,
        seen: (Pages, Pages),
        shared: bool,
    ) -> Asked;

    /// Asks all of them on all nodes, for frames that have to go wherever they are.
    fn ask_everywhere(&self, task: &mut Task<'_>, cache: &Cache, priority: Priority);

    /// A page comes back that was evicted `distance` evictions ago; its read takes `cost`.
    fn page_missed(&self, context: &dyn Context, distance: Pages, cost: Nanos);

    /// A task is about to send a request to a device: it stands in the line for a place in the
    /// device's queue. `None`: no line is kept there, and the flusher's own bound holds.
    fn stand_in_line(
        &self,
        task: &mut Task<'_>,
        queue: &DeviceLine<'_>,
    ) -> Option<Result<(), Error>>;

    /// The cache stops: tasks of the background end.
    fn stop(&self);
}

/// The queue of a device, and the line in front of it (`Kernel::stand_in_line`).
#[derive(Clone, Copy)]
pub struct DeviceLine<'a> {
    /// The device.
    pub device: DeviceIndex,
    /// The queue, as the device tells of it; `None`: it does not.
    pub queue: Option<DeviceQueue>,
    /// Requests of writeback in it.
    pub requests: &'a dyn Fn() -> u32,
    /// All here look again when one of them has ended.
    pub wait: &'a WaitQueue,
    /// The task waits, however full the queue is; else it goes away where many are before it.
    pub waits: bool,
}

/// A law that reclaims over zones has a kernel: `Cache::build` refuses it without one.
pub(crate) const OF_ZONES: &str = "a law of zones has a kernel";

/// The end of a task's own reclaim.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Pages that were looked at.
    pub scanned: Pages,
    /// Pages that were freed.
    pub freed: Pages,
    /// The number of freed pages that the task is told.
    pub answer: Pages,
}

/// A run of frames that a task reclaims for, and what is enough for one.
pub trait ForRun {
    /// The passes that it knows; a law with other ones reclaims as for single pages.
    fn loops(&self) -> Loops;

    /// A zone is passed over, as a run can be had there.
    fn is_ready(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId) -> bool;

    /// Such a zone ends reclaim, when those behind it have had their turn.
    fn ends_when_ready(&self) -> bool;

    /// A pass over a zone is begun again.
    fn goes_on(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId, done: &Done) -> bool;
}

/// The rights and the aim of a pass over a zone.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// The zone.
    pub zone: ZoneId,
    /// The task that makes it.
    pub who: Who,
    /// The part of each list that it looks at.
    pub priority: Priority,
    /// Pages wanted.
    pub target: Pages,
    /// Active lists are aged in any case.
    pub force_deactivate: bool,
    /// Pages that are mapped may be taken, and so anonymous ones.
    pub may_unmap: bool,
    /// Pages may be written, if the law has reclaimers write any.
    pub may_write: bool,
    /// Anonymous pages may be taken.
    pub may_swap: bool,
    /// Caches of objects are asked.
    pub may_shrink: bool,
    /// Inactive pages of files in plenty keep it from anonymous ones (`background::Sparing`).
    pub spares_anon: bool,
    /// It is for a run of frames.
    pub run: Option<RunPass<'a>>,
}

/// A pass for a run of frames that somebody asks for.
#[derive(Clone, Copy)]
pub struct RunPass<'a> {
    /// The run, and what is enough for one.
    pub run: &'a dyn ForRun,
    /// Pages that the task has freed for it before this pass.
    pub freed: Pages,
}

/// The outcome of the turns of a pass.
#[derive(Clone, Copy, Default)]
pub struct Turned {
    /// Pages that were freed.
    pub reclaimed: Pages,
    /// An active list was spared.
    pub skipped_deactivate: bool,
    /// Inactive pages of files sufficed (`Sparing`).
    pub spared_anon: bool,
}

/// Pages and objects that caches of objects gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Pages that came free by it.
    pub pages: Pages,
    /// Objects, by their own count.
    pub objects: u64,
}

/// The place of a kernel: the cache that it is made for.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its nodes.
    pub nodes: usize,
    /// Its zones.
    pub zones: usize,
    /// Its memory above the marks.
    pub memory: Bytes,
    /// The present.
    pub now: Instant,
}

/// Makes a kernel for its place.
pub(crate) type Make<'a> = &'a dyn Fn(&Place) -> Arc<dyn Kernel>;

/// The account of reclaim for a run when a pass over a zone ends.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Freed by the pass that has just ended.
    pub last: Pages,
    /// By all passes over the zone in this round, and how many they were.
    pub here: (Pages, u64),
    /// By the task's reclaim in all.
    pub all: Pages,
    /// A page of its last batch was plainly kept.
    pub plainly: bool,
}

impl Cache {
    /// The kernel whose rooms it has.
    pub(crate) fn kernel(&self) -> Option<&dyn Kernel> {
        self.kernel.as_deref()
    }

    /// True if passes may ask caches of objects.
    pub(crate) fn has_objects(&self) -> bool {
        self.kernel().is_some_and(Kernel::has_objects)
    }

    /// See `Kernel::ask_objects`; of all.
    pub(crate) fn ask_objects(
        &self,
        task: &mut Task<'_>,
        control: &Control<'_>,
        seen: (Pages, Pages),
    ) -> Asked {
        let ask = |kernel: &dyn Kernel| kernel.ask_objects(task, self, control, seen, false);
        self.kernel().map_or_else(Asked::default, ask)
    }

    /// The runs that faults ask for.
    pub(crate) fn runs_of_faults(&self) -> Option<Runs> {
        self.runs.filter(|runs| runs.faults)
    }

    /// Takes frames for the overhead of pages that have come, or gives some back.
    #[inline]
    pub(crate) fn settle_overhead(&self, task: &mut Task<'_>) {
        if let Some(kernel) = self.kernel() {
            kernel.settle_overhead(task, self, true);
        }
    }

    /// The same after pages were evicted.
    #[inline]
    pub(crate) fn shrink_overhead(&self, task: &mut Task<'_>) {
        if let Some(kernel) = self.kernel() {
            kernel.settle_overhead(task, self, false);
        }
    }

    /// Takes a run for a fault; see `Kernel::take_run`.
    pub(crate) fn take_run(
        &self,
        task: &mut Task<'_>,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error> {
        let taken = match self.kernel() {
            Some(kernel) => kernel.take_run(task, self, out)?,
            None => false,
        };
        let item = if taken {
            Item::ThpFaultAlloc
        } else {
            Item::ThpFaultFallback
        };
        self.counters.add(item, 1);
        Ok(taken)
    }
}

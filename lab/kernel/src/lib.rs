//! Parts of a kernel that a page cache in a program has no use for, over the same `mm`: for
//! experiments. No live program compiles them.
//!
//! | room | does | entered by |
//! |---|---|---|
//! | `compact` | gets runs of frames for faults: huge pages | a fault of a region |
//! | `zoned` | reclaims over zones, as before 4.8 | reclaim under a law of zones |
//! | `generations` | puts pages in generations | lists and passes of a law that has them |
//! | `boosted` | balances a zone whose marks are raised | the background reclaimer under a law of boosts |
//! | `objects` | asks caches of objects, by pressure or by their shares | passes over a zone |
//! | `overhead` | keeps index nodes, heads, page tables in frames | writes, faults, evictions of a machine with it |
//! | `queue` | keeps the line in front of a device's queue | a request is about to be sent |
//! | `slab` | holds objects on pages of the cache's memory | who keeps objects: `workload`, `campaign` |
//!
//! A room asks the cache through `mm::inside` and keeps the rules of `mm`; decisions are
//! `history`'s and `policy`'s. `Kernel` is the door by which a cache enters them.
#![forbid(unsafe_code)]

mod boosted;
mod compact;
mod generations;
mod objects;
mod overhead;
mod past;
mod queue;
mod slab;
#[cfg(test)]
mod testing;
mod zoned;

use std::sync::Arc;

use env::{Context, Task};
use frames::FrameId;
use history::compact::Compaction;
use history::queue::QueueRule;
use history::shrink::ShrinkRule;
use mm::inside::{Control, DeviceLine, Order, Place, ZoneId};
use mm::{Asked, Cache, Ended, Error, ForRun, NodeId, Options, Runs, Turned};
use policy::reclaim::page::Tally;
use policy::reclaim::scan::Priority;
use policy::reclaim::throttle::Who;
use policy::shares::ShareRule;
use policy::units::{Nanos, Pages};

use compact::Compactor;
use generations::Generational;
use objects::Objects;
pub use objects::{
    Ask, ObjectShare, ShareView, Shrink, note_inode_steal, object_missed, objects_evicted,
    register, shares,
};
use overhead::Overhead;
pub use past::use_before;
use queue::Queues;
pub use slab::{Object, SlabSpec, Slabs};

/// The parts of a kernel that a machine has beside those that its law of reclaim brings.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The way to huge pages, and their size.
    pub runs: Option<(Compaction, Runs)>,
    /// Index nodes, heads of pages that were written to and page tables of regions take frames;
    /// else they lie beside the memory.
    pub overhead: bool,
    /// The rule by which caches of objects are asked for their share.
    pub shrink: ShrinkRule,
    /// The rule by which pages and caches of objects share the memory; `None`: by pressure alone.
    pub shares: Option<ShareRule>,
    /// The line in front of a device's queue.
    pub queue: Option<QueueRule>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            runs: None,
            overhead: false,
            shrink: ShrinkRule::LINUX_6_12,
            shares: Some(ShareRule::TIDEGATE),
            queue: None,
        }
    }
}

/// The rooms of one machine.
pub struct Kernel {
    /// The way to its huge pages, if it has them.
    compactor: Option<Arc<Compactor>>,
    /// The order of its pages, if they are in generations.
    generations: Option<Arc<Generational>>,
    /// The overhead of its pages, if it takes frames.
    overhead: Option<Arc<Overhead>>,
    /// The lines in front of the queues of its devices, if it keeps any.
    queues: Option<Queues>,
    /// Caches of objects.
    objects: Objects,
}

/// A cache with these parts of a kernel.
///
/// # Errors
/// As `Cache::new`.
pub fn build(env: Arc<dyn env::Env>, options: Options, parts: Parts) -> Result<Arc<Cache>, Error> {
    let (frames, law) = (options.frames, options.reclaim);
    let has_generations = law.law.generations && options.page_rule.is_none();
    Cache::with_kernel(env, options, &|place| {
        let of = |(law, runs)| Arc::new(Compactor::new(law, runs, place.nodes, place.zones));
        Arc::new(Kernel {
            compactor: parts.runs.map(of),
            generations: has_generations
                .then(|| Arc::new(Generational::new(frames, place.zones, law.stands_for))),
            overhead: parts.overhead.then(|| Arc::new(Overhead::new(frames))),
            queues: parts.queue.map(Queues::new),
            ..Kernel::plain(place, (parts.shrink, parts.shares))
        })
    })
}

impl Kernel {
    /// Of a machine with nothing but caches of objects.
    fn plain(place: &Place, rules: (ShrinkRule, Option<ShareRule>)) -> Self {
        Self {
            compactor: None,
            generations: None,
            overhead: None,
            queues: None,
            objects: Objects::new(place.nodes, rules, place.memory, place.now),
        }
    }
}

impl mm::Kernel for Kernel {
    fn runs(&self) -> Option<Runs> {
        self.compactor.as_ref().map(|compactor| compactor.runs())
    }

    fn take_run(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error> {
        match &self.compactor {
            Some(compactor) => compactor.take_run(task, cache, out),
            None => Ok(false),
        }
    }

    fn has_compactor(&self) -> bool {
        let compactor = self.compactor.as_ref();
        compactor.is_some_and(|compactor| compactor.has_background())
    }

    fn compact(&self, task: &mut Task<'_>, cache: &Cache, node: NodeId) -> bool {
        let compactor = self.compactor.as_ref();
        compactor.is_some_and(|compactor| compactor.compact(task, cache, node))
    }

    fn balance_boosted(&self, task: &mut Task<'_>, cache: &Cache, zone: ZoneId) {
        let inside = cache.inside();
        let noted = inside.memory.boost_of(zone);
        boosted::balance(task, inside, (zone, noted), || {
            if let Some(compactor) = self.compactor.as_ref().filter(|_| !noted.is_zero()) {
                compactor.worked_off(cache, zone);
            }
        });
    }

    fn overhead(&self) -> Option<Arc<dyn mm::Overhead>> {
        self.overhead.clone().map(|overhead| overhead as _)
    }

    fn settle_overhead(&self, task: &mut Task<'_>, cache: &Cache, takes: bool) {
        if let Some(overhead) = &self.overhead {
            overhead.settle(task, (cache.inside(), &self.objects), takes);
        }
    }

    fn balance_zones(&self, task: &mut Task<'_>, cache: &Cache, node: NodeId) -> bool {
        zoned::work(task, cache.inside(), node)
    }

    fn reclaim_zones(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        target: Pages,
        rights: (Who, Option<&dyn ForRun>),
        enough: &dyn Fn(&Task<'_>) -> bool,
    ) -> Ended {
        zoned::direct(task, cache, target, rights, enough)
    }

    fn wants_wake(&self, context: &dyn Context, cache: &Cache, zone: ZoneId) -> bool {
        zoned::wants_wake(cache.inside(), context, zone)
    }

    fn order(&self) -> Option<Arc<dyn Order>> {
        self.generations.clone().map(|order| order as _)
    }

    fn pass_in_order(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Pages {
        let pass = |order: &Arc<Generational>| order.pass(task, cache.inside(), control, tally);
        self.generations.as_ref().map_or(Pages::ZERO, pass)
    }

    fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    fn pass_shared(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Option<Turned> {
        objects::pass::pass(task, (cache.inside(), &self.objects), control, tally)
    }

    fn ask_objects(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        control: &Control<'_>,
        seen: (Pages, Pages),
        shared: bool,
    ) -> Asked {
        objects::ask::ask(task, (cache.inside(), &self.objects), control, seen, shared)
    }

    fn ask_everywhere(&self, task: &mut Task<'_>, cache: &Cache, priority: Priority) {
        objects::ask::ask_everywhere(task, (cache.inside(), &self.objects), priority);
    }

    fn page_missed(&self, context: &dyn Context, distance: Pages, cost: Nanos) {
        if let Some(shares) = self.objects.shares() {
            shares.page_missed(context, distance, cost);
        }
    }

    fn stand_in_line(
        &self,
        task: &mut Task<'_>,
        queue: &DeviceLine<'_>,
    ) -> Option<Result<(), Error>> {
        self.queues.as_ref()?.stand(task, queue)
    }

    fn stop(&self) {
        if let Some(compactor) = &self.compactor {
            compactor.stop();
        }
    }
}

//! The inside of a cache: the calls that the rooms of a kernel (`Kernel`) may make.
//!
//! A program that uses a cache has no need of any of this, and it changes without a word.
//!
//! Invariant: a room keeps the rules of this crate (its root) and the invariants of the parts that
//! it uses.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Context, Signal, Task};
use frames::{Busy, FrameId};
use policy::reclaim::Reason;
use policy::reclaim::direct::Got;
use policy::reclaim::page::Tally;
use policy::reclaim::scan::{Kind, Priority};
use policy::reclaim::throttle::Who;
use policy::units::{Bytes, Nanos, Pages};

pub use crate::alloc::Wanted;
pub use crate::lists::isolate::{Batch, CLUSTER_FRAMES, Page};
pub use crate::lists::node::Background;
pub use crate::lists::{Layout, Lru, Order, Zone, ZoneId, Zones};
pub use crate::memory::Memory;
pub use crate::memory::apart::Mixed;
pub use crate::memory::chunks::Taken;
pub use crate::memory::evacuation::Evacuation;
pub use crate::memory::free::Pick;
pub use crate::memory::room::Asked;
pub use crate::memory::runs::Standing;
pub use crate::pages::CachedPages;
pub use crate::registry::mapping::Mapping;
pub use crate::registry::regions::{ANON, Anon, Cursor, Regions};
pub use crate::slabs::SlabCounts;
pub use crate::vmstat::Counters;

pub use crate::cache::kernel::{Control, DeviceLine, Place, RunPass};

use crate::cache::kernel::{ForRun, Kernel, Turned};
use crate::reclaim::{age_anon, background, direct, shrink, shrink_zone, take_turns, throttle};
use crate::vmstat::get;
use crate::writeback::flush;
use crate::{Cache, Error, NodeId, Options, relocate};

/// The parts of a cache.
#[derive(Clone, Copy)]
pub struct Inside<'a> {
    cache: &'a Cache,
    /// Its options.
    pub options: &'a Options,
    /// Which frame holds which page.
    pub pages: &'a CachedPages,
    /// Frames that hold none.
    pub memory: &'a Memory,
    /// The lists of each zone.
    pub zones: &'a Zones,
    /// Anonymous memory.
    pub regions: &'a Regions,
    /// The pages of slabs.
    pub slabs: &'a SlabCounts,
    /// The counters of `vmstat`.
    pub counters: &'a Counters,
}

impl Cache {
    /// The parts of this cache.
    pub fn inside(&self) -> Inside<'_> {
        Inside {
            cache: self,
            options: &self.options,
            pages: &self.pages,
            memory: &self.memory,
            zones: &self.zones,
            regions: &self.registry.regions,
            slabs: &self.slabs,
            counters: &self.counters,
        }
    }
}

impl<'a> Inside<'a> {
    /// True as soon as the cache stops.
    pub fn is_stopping(&self) -> bool {
        self.cache.registry.stopping.load(Ordering::Acquire)
    }

    /// Pages at the size that is stood for.
    pub fn at_full_size(&self, pages: Pages) -> Pages {
        self.cache.at_full_size(pages)
    }

    /// The node whose CPU the task runs on.
    pub fn home_node(&self, task: &Task<'_>) -> NodeId {
        self.cache.home_node(task)
    }

    /// The zones in the order in which the task takes memory from them.
    pub fn zones_for(&self, task: &Task<'_>) -> &'a [ZoneId] {
        self.cache.zones_for(task)
    }

    /// The reclaimer that the task is when it asks for pages of a kind.
    pub fn who(&self, task: &Task<'_>, kind: Kind) -> Who {
        self.cache.who(task, kind)
    }

    /// True if anonymous pages can go to the swap file.
    pub fn can_swap(&self) -> bool {
        self.cache.can_swap()
    }

    /// Pages that are free in the swap file.
    pub fn swap_free(&self) -> Pages {
        self.cache.swap_free()
    }

    /// Groups of 64 slots of the swap file in which some are taken.
    pub fn swap_groups(&self) -> u32 {
        self.cache.swap.area().map_or(0, |area| area.groups())
    }

    /// The kernel whose rooms it has.
    pub fn kernel(&self) -> Option<&'a dyn Kernel> {
        self.cache.kernel()
    }

    /// The file of that number.
    pub fn mapping(&self, context: &impl Context, id: u32) -> Option<Arc<Mapping>> {
        self.cache.mapping(context, id)
    }

    /// Takes frames without waiting; answers how many.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn try_alloc(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        self.cache.try_alloc(task, wanted, out)
    }

    /// Takes frames, reclaiming and waiting as it must; answers how many.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoMemory`, `Cancelled`, `WouldWait`.
    pub fn alloc(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        self.cache.alloc(task, wanted, out)
    }

    /// Puts frames back that the task took and did not use.
    pub fn put_unused(&self, task: &Task<'_>, frames: &[FrameId]) {
        self.cache.put_unused(task, frames);
    }

    /// The frame of a page that its owner gives up.
    pub fn disown(&self, busy: Busy) -> FrameId {
        self.cache.disown(busy)
    }

    /// Pageblocks were mixed.
    pub fn note_mixed(&self, task: &Task<'_>, mixed: &[Mixed]) {
        self.cache.note_mixed(task, mixed);
    }

    /// Moves a page to a free frame, and gives its own back.
    ///
    /// # Errors
    /// Gives `to` back: the page has gone, or cannot be moved in this moment.
    pub fn move_page(&self, task: &mut Task<'_>, page: Page, to: FrameId) -> Result<(), FrameId> {
        relocate::move_page(task, self.cache, page, to)
    }

    /// Frees the clean ones of pages that were taken off their lists; answers how many.
    pub fn clear_out(
        &self,
        task: &mut Task<'_>,
        (zone, kind): (ZoneId, Kind),
        batch: &Batch,
    ) -> u64 {
        shrink::clear_out(task, self.cache, (zone, kind), batch)
    }

    /// Sends the write of a page as soon as its device has a place; false: it was not sent.
    pub fn write_page_in_turn(
        &self,
        task: &mut Task<'_>,
        mapping: &Arc<Mapping>,
        page: u32,
    ) -> bool {
        flush::write_page_in_turn(task, self.cache, mapping, page)
    }

    /// Sleeps for a reason of reclaim; false: the cache stops.
    pub fn pause(&self, task: &mut Task<'_>, zone: ZoneId, reason: Reason, who: Who) -> bool {
        throttle::pause(task, self.cache, zone, reason, who)
    }

    /// The priority of a pass of a balance that is due at this one, and wants that many pages.
    pub fn goes_at(&self, task: &Task<'_>, zone: ZoneId, due: (Priority, Pages)) -> Priority {
        background::goes_at(task, self.cache, zone, due)
    }

    /// Asks the flushers for as much as reclaim asks for.
    pub fn wake_flushers(&self, context: &impl Context) {
        self.cache.wake_flushers(context);
    }

    /// Makes one pass over a zone.
    pub fn shrink_zone(&self, task: &mut Task<'_>, control: &Control<'_>) -> Got {
        shrink_zone(task, self.cache, control)
    }

    /// The turns of a pass over a zone.
    pub fn take_turns(
        &self,
        task: &mut Task<'_>,
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Turned {
        take_turns(task, self.cache, control, tally)
    }

    /// Judges pages of a kind that were taken off their lists, and does with each as judged;
    /// answers how many were freed.
    pub fn shrink(
        &self,
        task: &mut Task<'_>,
        (kind, batch): (Kind, &Batch),
        control: &Control<'_>,
        tally: &mut Tally,
    ) -> Pages {
        shrink::shrink(task, self.cache, kind, batch, control, tally)
    }

    /// Ages a cluster of active anonymous pages of a zone if the inactive ones are few.
    pub fn age_anon(&self, task: &mut Task<'_>, zone: ZoneId) {
        age_anon(task, self.cache, zone);
    }

    /// True if the background reclaimer has given up on a zone.
    pub fn is_hopeless(&self, context: &dyn Context, zone: ZoneId) -> bool {
        self.cache.is_hopeless(&context, zone)
    }

    /// The background reclaimer of a zone's node sleeps until it is asked, at most for `nap`; false
    /// on shutdown.
    pub fn sleep(&self, task: &mut Task<'_>, zone: ZoneId, nap: Option<Nanos>) -> bool {
        background::sleep(task, self.cache, zone, nap)
    }

    /// Tasks that leave the reserve of a zone alone look again.
    pub fn wake_reserve(&self, zone: ZoneId) {
        self.cache.reserve_wait(zone).wake_all(Signal::Balanced);
    }

    /// The background reclaimer begins a balance: pages that nobody waits for go first.
    pub fn begin_balance(&self, task: &mut Task<'_>, node: NodeId) {
        background::begin(task, self.cache, node);
    }

    /// Asks the flusher of each device for `pages`.
    pub fn want_of_each(&self, context: &impl Context, pages: Pages) {
        self.cache.want_of_each(context, pages);
    }

    /// The memory that pages and objects share: all but the part that reclaim keeps free.
    pub fn shared_memory(&self) -> Bytes {
        let frames = Pages(u64::from(self.memory.limit_frames()));
        frames.saturating_sub(self.memory.marks().high).bytes()
    }

    /// The needs of the law of writers now: bytes that all devices write in a second, and those
    /// that may be dirty of the third.
    pub fn writers(&self, task: &Task<'_>) -> (Bytes, Bytes, Bytes) {
        let dirtyable = self.cache.dirtyable();
        let devices = self.cache.writeback.devices.lock(task).clone();
        let domain = self.cache.writeback.domain.lock(task);
        let at_work = devices.iter().filter(|device| get(&device.written) > 0);
        let written = at_work.map(|device| domain.bandwidth(device.index).0).sum();
        let dirty = domain.limits(dirtyable).dirty;
        (Pages(written).bytes(), dirty.bytes(), dirtyable.now.bytes())
    }

    /// Reclaims a cluster for the task; answers how many pages were freed.
    pub fn reclaim(&self, task: &mut Task<'_>, who: Who) -> Pages {
        direct::direct(task, self.cache, self.options.reclaim.cluster(), who)
    }

    /// Reclaims until a run can be had; answers how many pages were freed, or one if there is hope.
    pub fn reclaim_for_run(&self, task: &mut Task<'_>, run: &dyn ForRun) -> Pages {
        direct::direct_for_run(task, self.cache, run)
    }
}

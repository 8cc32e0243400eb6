//! The cache: everything that its files and devices share.

use std::sync::Arc;

use env::{Cause, Context, Env, Signal, Task, Work};
use frames::sync::{AtomicU64, Ordering};
use frames::{Busy, Content, Flags, FrameId, Owner};
use policy::dirty::{Counts, DeviceIndex, Dirtyable};
use policy::place::mobility::Mobility;
use policy::units::Pages;

pub(crate) use crate::error::FILE_MAX;
use crate::lists::{Arrival, FarPages, INACTIVE_FILE, NodeId, ZoneId, Zones};
use crate::memory::Memory;
pub(crate) use crate::options::FRAMES_MIN;
use crate::options::{Options, Runs};
use crate::pages::CachedPages;
use crate::registry::Registry;
use crate::registry::device::DeviceState;
use crate::registry::mapping::Mapping;
use crate::registry::regions::Anon;
use crate::registry::writeback::Writeback;
use crate::slabs::{PageWatch, SlabCounts, SlabPages};
use crate::vmstat::{Counters, Item};
pub(crate) use crate::vmstat::{add, get, sub};
use crate::{Error, swapfile};
use kernel::Kernel;

pub(crate) mod kernel;

/// A page cache under one memory limit.
///
/// Its parts are kept by owners; each says what may be done with what it keeps.
pub struct Cache {
    pub(crate) env: Arc<dyn Env>,
    /// That of `env`.
    pub(crate) content: Arc<dyn Content>,
    pub(crate) options: Options,
    /// Which frame holds which page.
    pub(crate) pages: CachedPages,
    /// Frames that hold none.
    pub(crate) memory: Memory,
    /// The lists of each zone, and the tasks that sleep for it; the nodes.
    pub(crate) zones: Zones,
    /// Files, and whether they may still be changed.
    pub(crate) registry: Registry,
    /// Devices, and what is dirty.
    pub(crate) writeback: Writeback,
    pub(crate) swap: swapfile::State,
    /// The pages of slabs.
    pub(crate) slabs: SlabCounts,
    pub(crate) counters: Counters,
    /// Parts of a kernel that no live cache has.
    pub(crate) kernel: Option<Arc<dyn Kernel>>,
    /// The runs of that kernel.
    pub(crate) runs: Option<Runs>,
}

impl Cache {
    /// Memory that may become dirty: free frames and pages of files, less the reserve. The limits
    /// shrink when slabs or anonymous memory take the frames, by the latter in our law down to what
    /// is the files' in any case; not in that of 3.0.
    pub(crate) fn dirtyable(&self) -> Dirtyable {
        let frames = Pages(u64::from(self.memory.limit_frames()));
        let movable = frames
            .saturating_sub(self.memory.marks().high + self.pinned() + self.slabs.pages().all());
        let least = self.options.reclaim.files_least(frames).at_most(movable);
        let anon = if self.options.reclaim.law.anon_is_dirtyable && self.can_swap() {
            0
        } else {
            get(&self.writeback.totals.anon)
        };
        // Counted too few as well where it is the sum of the lists.
        let files = Pages(movable.0.saturating_sub(anon)).saturating_sub(self.zones.lost_files());
        Dirtyable {
            now: files.at_least(least),
            most: movable,
        }
    }

    /// One reading of the counters for a decision about `device`.
    pub(crate) fn counts(&self, device: &DeviceState) -> Counts {
        let pages = |counter: &AtomicU64| Pages(get(counter));
        Counts {
            dirtyable: self.dirtyable(),
            dirty: pages(&self.writeback.totals.dirty),
            writeback: pages(&self.writeback.totals.writeback),
            device_dirty: pages(&device.dirty),
            device_writeback: pages(&device.writeback),
            device_dirtied: Pages(device.dirtied.get()),
            device_written: pages(&device.written),
            flusher_running: device.flusher.running.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn device(&self, context: &impl Context, index: DeviceIndex) -> Arc<DeviceState> {
        Arc::clone(&self.writeback.devices.lock(context)[usize::from(index.0)])
    }

    pub(crate) fn mapping(&self, context: &impl Context, id: u32) -> Option<Arc<Mapping>> {
        self.registry.files.lock(context).get(id).cloned()
    }

    /// A file without pages gives its number back; false: not yet, as a sync of the whole cache is
    /// in it.
    pub(crate) fn forget_file(&self, context: &impl Context, mapping: &Mapping) -> bool {
        {
            let mut files = mapping.device.files.lock(context);
            let files = &mut *files;
            for list in [&mut files.dirty, &mut files.io, &mut files.more_io] {
                list.retain(|(other, _)| other.id != mapping.id);
            }
        }
        let mut files = self.registry.files.lock(context);
        if mapping.is_visited() {
            return false;
        }
        if files.remove(mapping) {
            mapping.device.remove_file(context);
        }
        true
    }

    /// Comes into a file that is still in the cache, for a sync of all; false: it was taken out.
    pub(crate) fn visit_file(&self, context: &impl Context, mapping: &Mapping) -> bool {
        let files = self.registry.files.lock(context);
        let is_there = files.holds(mapping);
        if is_there {
            mapping.visit();
        }
        is_there
    }

    /// A page of a file leaves its page table, if it is in it; false: it is not. Under its file's
    /// index lock.
    pub(crate) fn unmap(
        &self,
        context: &impl Context,
        mapping: &Mapping,
        page: u32,
        frame: FrameId,
    ) -> bool {
        if !self.pages.table.flags(frame).has(Flags::MAPPED) {
            return false;
        }
        if let Some(map) = mapping.page_map(context) {
            map.unmap(page);
        }
        self.pages.table.update(frame, Flags::NONE, Flags::MAPPED);
        self.zones.note_unmapped(frame);
        true
    }

    /// Pages of slabs now.
    pub fn slab_pages(&self) -> SlabPages {
        self.slabs.pages()
    }

    /// From now on `watch` is told which pages of files reclaim frees. The first one stays.
    pub fn watch_pages(&self, watch: Arc<dyn PageWatch>) {
        self.slabs.watch.get_or_init(|| watch);
    }

    /// The mobility whose pageblocks hold the pages of a file that are to be written to, or read.
    pub(crate) fn lies_in(&self, mapping: &Mapping, written: bool) -> Mobility {
        if self.runs.is_some_and(|runs| runs.groups) {
            Mobility::of_page(written)
        } else {
            mapping.device.options.mobility
        }
    }

    /// A page of a region is about to be elsewhere than its neighbours; the caller has its busy
    /// bit.
    #[inline]
    pub(crate) fn break_run(&self, anon: &Anon, page: u32) {
        if anon.pages.break_run(page) {
            self.counters.add(Item::ThpSplit, 1);
        }
    }

    /// The same of a page that is given back, as all up to `end` are.
    #[inline]
    pub(crate) fn leave_run(&self, anon: &Anon, page: u32, end: u32) {
        if anon.pages.break_run(page) {
            let stretch = anon.pages.stretch(page);
            let whole = stretch.is_some_and(|all| all.start == page && all.end <= end);
            let item = if whole {
                Item::ThpFreed
            } else {
                Item::ThpSplit
            };
            self.counters.add(item, 1);
        }
    }

    /// See `CachedPages::release`.
    pub(crate) fn release(&self, busy: Busy, set: Flags, clear: Flags) {
        self.pages.release(busy, set, clear);
    }

    /// The node whose CPU the task runs on.
    pub(crate) fn home_node(&self, task: &Task<'_>) -> NodeId {
        let layout = self.zones.layout();
        // Which CPU it is takes a call of the system to find out.
        let cpu = if layout.is_one() { 0 } else { task.cpu() };
        layout.node_of_cpu(cpu)
    }

    /// Counts pages on other nodes than the task's.
    pub(crate) fn far(&self, task: &Task<'_>) -> FarPages<'_> {
        self.zones.layout().far_from(self.home_node(task))
    }

    /// The task copied `pages` pages, `far` of them to or from another node.
    pub(crate) fn copied(&self, task: &mut Task<'_>, pages: u64, far: u64) {
        task.did(Work::Copy, pages);
        if far > 0 {
            task.did(Work::RemoteCopy, far);
            self.counters.add(Item::NumaRemoteCopy, far);
        }
    }

    /// The zones in the order in which the task takes memory from them.
    pub(crate) fn zones_for(&self, task: &Task<'_>) -> &[ZoneId] {
        self.zones.layout().list(self.home_node(task))
    }

    /// The first of them.
    pub(crate) fn home(&self, task: &Task<'_>) -> ZoneId {
        self.zones_for(task)[0]
    }

    /// Pages of a zone that were ever cleaned or given back: more of them means that a pass may
    /// find something there.
    pub(crate) fn changed(&self, zone: ZoneId) -> u64 {
        self.zones[zone].cleaned() + self.memory.given_back_of(zone)
    }

    /// `OutOfMemory`.
    pub(crate) fn no_memory(&self) -> Error {
        Error::OutOfMemory {
            frames: Pages(u64::from(self.memory.limit_frames())),
        }
    }

    /// See `Zones::add`.
    pub(crate) fn lru_add(&self, context: &impl Context, frames: &[FrameId]) {
        self.zones.add(context, &self.pages, frames);
    }

    /// See `Zones::add_files`; of pages that are being read. `ahead`: nobody has asked for them.
    pub(crate) fn add_files(&self, context: &impl Context, frames: &[FrameId], ahead: bool) {
        let how = Arrival {
            has_room: self.has_room(),
            ahead,
            used: false,
        };
        self.zones.add_files(context, &self.pages, frames, how);
    }

    /// The same of pages that their owner has filled, and so used.
    pub(crate) fn add_filled(&self, context: &impl Context, frames: &[FrameId]) {
        if self.zones.has_plain_lists() {
            self.zones.lru(context).push_heads(INACTIVE_FILE, frames);
            return;
        }
        let how = Arrival {
            has_room: self.has_room(),
            ahead: false,
            used: true,
        };
        self.zones.add_files(context, &self.pages, frames, how);
    }

    /// True if there are free frames above the marks, so that nothing has to be evicted for a page;
    /// a page rule alone wants to know.
    fn has_room(&self) -> bool {
        self.zones.ruled().is_some()
            && Pages(u64::from(self.memory.free())) > self.memory.marks().high
    }

    /// See `Zones::refaulted`; for a law that knows pages again.
    pub(crate) fn refaulted(&self, context: &impl Context, frame: FrameId, shadow: u32) {
        if !self.options.reclaim.law.knows_again {
            return;
        }
        let may_swap = !self.swap_free().is_zero();
        let counted = (&self.pages, &self.counters);
        let at = (|| self.env.now(), may_swap, self.has_room());
        let distance = self.zones.refaulted(context, counted, frame, shadow, at);
        if let Some(kernel) = self.kernel().filter(|kernel| kernel.has_objects()) {
            kernel.page_missed(&context, distance, self.slabs.read());
        }
    }

    #[inline]
    pub(crate) fn content(&self) -> &dyn Content {
        &*self.content
    }

    /// See `CachedPages::wait_busy`.
    pub(crate) fn wait_busy(
        &self,
        task: &mut Task<'_>,
        cause: Cause,
        frame: FrameId,
        owner: Owner,
    ) -> Result<(), Error> {
        self.pages.wait_busy(task, cause, frame, owner)
    }

    /// See `CachedPages::disown`.
    pub(crate) fn disown(&self, busy: Busy) -> FrameId {
        self.pages.disown(busy)
    }

    /// See `CachedPages::wake_busy`.
    pub(crate) fn wake_busy(&self, frames: &[FrameId], signal: Signal) {
        self.pages.wake_busy(frames, signal);
    }
}

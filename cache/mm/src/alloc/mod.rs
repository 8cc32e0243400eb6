//! Frames for pages: from the free lists, from fresh chunks, or by reclaiming.
//!
//! ```text
//!   try_alloc: what is free above the mark, for this task; of several zones, search: whose
//!      '-- nothing --> alloc: what the cache was built with (memory::slow_path)
//!                        |-- direct:    reclaims for itself, tries again, sleeps for a reason; gives up
//!                        |-- queue:     joins, waits for its turn, takes what was granted; gives up
//!                        '-- emergency: one that others need to get on, in either case; a task that waits here waits for a write
//! ```
//!
//! Marks (policy::watermark): below `low` the background reclaimer is woken; below `min` the slow
//! path begins, so that a reserve stays for those that must not wait. It ends with a typed error
//! only when nothing can change any more: no page is under writeback or dirty, and none could be
//! freed; or when nothing has changed for so long that all writeback must be at a device that
//! hangs.

use env::{Context, Event, Task, TaskId, Work};
use frames::{Flags, FrameId};
use policy::place::Way;
use policy::place::by_use::Purpose;
use policy::place::mobility::Mobility;
use policy::place::search::Floor;
use policy::reclaim::retry::RetryView;
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::Who;
use policy::units::{Nanos, Pages};

use crate::Error;
use crate::cache::{Cache, get};
use crate::lists::ZoneId;
use crate::memory::Memory;
use crate::memory::apart::Mixed;
use crate::memory::chunks::Taken;
use crate::memory::free::Pick;
use crate::memory::room::Asked;
use crate::memory::slow_path::SlowPath;
use crate::vmstat::Item;

mod by_use;
mod direct;
mod emergency;
mod queue;
mod rounds;
mod search;
mod swapin;

/// A sleeper for memory looks again after this even if nobody woke it (a safety net).
const LOOK_AGAIN: Nanos = Nanos::millis(100);
/// A request for at least this many frames also populates the next chunk; one fault under
/// Tidegate's law is this large.
const MANY: u32 = 64;

/// Frames that a task wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Blocks, each of 2^`order` frames that stand together: with an order above 0, one.
    pub(crate) blocks: u32,
    pub(crate) purpose: Purpose,
    pub(crate) mobility: Mobility,
    pub(crate) order: u8,
    /// They are for objects, not for pages.
    for_objects: bool,
    /// They are for pages of a file that are dirtied at once (kernel: `__GFP_WRITE`).
    for_dirty: bool,
    /// It neither wakes a reclaimer nor reclaims.
    pub(crate) quiet: bool,
    /// It has just reclaimed for them.
    is_retry: bool,
}

impl Wanted {
    /// Single frames for pages, which can be moved.
    pub fn new(frames: u32, purpose: Purpose) -> Self {
        Self {
            blocks: frames,
            purpose,
            mobility: Mobility::Movable,
            order: 0,
            for_objects: false,
            for_dirty: false,
            quiet: false,
            is_retry: false,
        }
    }

    /// The same for objects.
    pub fn of(self, mobility: Mobility) -> Self {
        Self {
            mobility,
            for_objects: true,
            ..self
        }
    }

    /// The same for pages of a file that are dirtied at once.
    pub(crate) fn to_be_dirtied(self) -> Self {
        Self {
            for_dirty: true,
            ..self
        }
    }

    /// The same for pages that lie in pageblocks of another mobility, whether or not they can be
    /// moved.
    pub fn among(self, mobility: Mobility) -> Self {
        Self { mobility, ..self }
    }

    /// One block instead, for a request that has no right to reclaim or to wake a reclaimer.
    pub fn quietly(self, order: u8) -> Self {
        Self {
            blocks: 1,
            order,
            quiet: true,
            ..self
        }
    }

    /// Blocks of another order instead.
    pub fn in_blocks(self, order: u8) -> Self {
        Self { order, ..self }
    }

    /// Frames in all.
    pub(crate) fn frames(&self) -> u32 {
        self.blocks << self.order
    }

    fn pick(&self, zone: ZoneId, frames: u32) -> Pick {
        Pick {
            zone,
            mobility: self.mobility,
            frames,
            order: self.order,
            wakes: !self.quiet,
        }
    }
}

/// The pages that frames wanted for a purpose become.
fn kind_of(purpose: Purpose) -> Kind {
    match purpose {
        Purpose::Stream | Purpose::Used => Kind::File,
        Purpose::Anon => Kind::Anon,
    }
}

impl Cache {
    /// Takes up to as many frames as are wanted without waiting; answers how many were appended to
    /// `out`. Does not go below the reserve.
    pub(crate) fn try_alloc(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let taken = if self.zones.layout().is_one() {
            self.try_alloc_of_one(task, wanted, out)?
        } else {
            match self.options.place.way {
                Way::List => search::take(task, self, wanted, out)?,
                Way::ByUse => by_use::take(task, self, wanted, out)?,
            }
        };
        if wanted.frames() >= MANY && task.may_block() {
            self.memory.populate_ahead(task);
        }
        Ok(taken)
    }

    /// The same where there is one zone, and so nothing to choose.
    fn try_alloc_of_one(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        // Without a look at the CPU and the lists.
        let zone = ZoneId(0);
        let taken = self.take_above(task, wanted.pick(zone, wanted.frames()), Floor::Min, out)?;
        if !wanted.quiet && self.memory.spare_of(zone) < self.memory.marks_of(zone).low {
            self.ask_reclaim(task, zone);
        }
        Ok(taken)
    }

    /// Takes up to as many frames as are picked, as far down as this task may take them; answers
    /// how many.
    fn take_above(
        &self,
        task: &mut Task<'_>,
        pick: Pick,
        floor: Floor,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let first = Asked {
            zone: pick.zone,
            floor,
            want: pick.frames,
            first: true,
            exempt: memory.is_exempt(task),
        };
        self.take(task, pick, out, |task, taken| {
            memory.room(task, &first.after(taken))
        })
    }

    /// Takes up to as many frames as are picked, as many at a time as `room` allows, which is told
    /// how many have been taken. It looks while the free lists are locked.
    fn take(
        &self,
        task: &mut Task<'_>,
        pick: Pick,
        out: &mut Vec<FrameId>,
        room: impl Fn(&Task<'_>, u32) -> u32,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        // Pages that reclaim finds on its lists. The last pageblock may reach beyond the memory.
        let is_movable = |frame: FrameId| {
            frame.0 < self.options.frames && self.pages.table.flags(frame).has(Flags::CACHED)
        };
        let taken = memory.take(task, pick, out, |taken| room(task, taken), is_movable)?;
        let Taken { frames, holds, .. } = taken;
        self.counters.add(Item::Pgalloc, u64::from(frames));
        if frames > 0 {
            memory.took(task, frames);
        }
        task.did(Work::Drawn, u64::from(frames - holds));
        task.did(Work::Alloc, u64::from(holds));
        if !taken.mixed.is_empty() {
            self.note_mixed(task, &taken.mixed);
        }
        if taken.wakes {
            self.ask_reclaim(task, pick.zone);
        }
        Ok(frames)
    }

    /// Pageblocks were mixed.
    #[cold]
    pub(crate) fn note_mixed(&self, task: &Task<'_>, mixed: &[Mixed]) {
        let boosted = mixed.iter().filter(|mixed| mixed.boosted).count();
        self.counters.add(Item::ExtfragEvents, mixed.len() as u64);
        self.counters.add(Item::WatermarkBoosts, boosted as u64);
        let pages = mixed.iter().map(|mixed| mixed.pages.0).sum();
        self.counters.add(Item::ExtfragPages, pages);
        for one in mixed {
            task.emit(&Event::Fragmented {
                order: one.order,
                from: one.from,
                to: one.to,
                pages: one.pages,
                tagged: one.tagged,
            });
        }
    }

    /// Takes between one frame and as many as are wanted, reclaiming and waiting as it must. The
    /// caller holds no busy bit. For a task that may not wait it neither reclaims nor takes a place
    /// in the line.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoMemory`, `Cancelled`, `WouldWait`.
    pub(crate) fn alloc(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        if !task.may_block() {
            return match self.try_alloc(task, wanted, out)? {
                0 => Err(Error::WouldWait),
                taken => Ok(taken),
            };
        }
        let who = self.who_wants(task, wanted);
        match self.memory.slow_path() {
            SlowPath::Direct => direct::alloc(task, self, who, wanted, out),
            SlowPath::Queue(queue) if !who.exempt => queue::alloc(task, self, queue, wanted, out),
            SlowPath::Queue(_) | SlowPath::Unqueued => {
                emergency::alloc(task, self, who, wanted, out)
            }
        }
    }

    /// Takes up to as many frames as are wanted without reclaiming, but waits for chunks on their
    /// way; answers how many.
    fn alloc_at_hand(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        loop {
            let taken = self.try_alloc(task, wanted, out)?;
            if taken > 0 || self.memory.moving() == 0 {
                return Ok(taken);
            }
            // Another task is just taking memory from the system, or giving it back.
            self.wait_for_memory(task, |memory| memory.moving() > 0)?;
        }
    }

    /// Pages that were ever written back: more of them means that something may be clean now.
    fn cleaned(&self) -> u64 {
        get(&self.writeback.totals.written) + self.swap_written()
    }

    /// Pages that were ever reclaimed.
    fn reclaimed(&self) -> Pages {
        let steals = [Item::PgstealKswapd, Item::PgstealDirect, Item::SlabFreed];
        Pages(steals.into_iter().map(|item| self.counters.get(item)).sum())
    }

    /// The memory after a round of reclaim that gave `reclaimed`.
    fn retry_view(&self, context: &impl Context, reclaimed: Pages) -> RetryView {
        RetryView {
            reclaimed,
            free: Pages(u64::from(self.memory.free())),
            reclaimable: self.reclaimable(context) + self.options.reclaim.unseen(),
            write_pending: self.write_pending(),
            min: self.memory.min(),
        }
    }

    /// The reclaimer that the task is when it asks for pages of a kind.
    pub(crate) fn who(&self, task: &Task<'_>, kind: Kind) -> Who {
        Who {
            background: false,
            exempt: self.memory.is_exempt(task),
            within_fs: self.options.reclaim.within_fs(kind),
        }
    }

    /// The same for frames. Memory that cannot be moved is mostly asked for from within a file
    /// system; objects that a shrinker frees are not (Linux 5.0 fs/xfs/xfs_super.c, xfs_icache.c).
    fn who_wants(&self, task: &Task<'_>, wanted: Wanted) -> Who {
        let who = self.who(task, kind_of(wanted.purpose));
        let within_fs = match wanted.mobility {
            _ if !wanted.for_objects => who.within_fs,
            Mobility::Movable => who.within_fs,
            Mobility::Reclaimable => false,
            Mobility::Unmovable => self.options.reclaim.law.heeds_within_fs,
        };
        Who { within_fs, ..who }
    }

    /// From now on the task is one of those that others need to get on: a thread of I/O that
    /// allocates. It may take from the reserve and is never throttled when it has to reclaim
    /// (kernel: `PF_MEMALLOC_NOIO` and the like).
    pub fn exempt(&self, task: &Task<'_>) {
        self.memory.make_exempt(task);
    }

    /// Puts frames back that the task took and did not use.
    pub(crate) fn put_unused(&self, task: &Task<'_>, frames: &[FrameId]) {
        self.memory.put_unused(task, frames);
    }

    /// The task has given back pages of its own.
    pub(crate) fn gave_back(&self, task: &Task<'_>, pages: u64) {
        self.credit(task, task.id(), pages);
    }

    /// Somebody has given back pages that the task `who` took.
    pub(crate) fn credit(&self, context: &impl Context, who: TaskId, pages: u64) {
        self.memory.gave_back(context, who, Pages(pages));
    }

    fn wait_for_memory(
        &self,
        task: &mut Task<'_>,
        blocked: impl Fn(&Memory) -> bool,
    ) -> Result<(), Error> {
        let deadline = task.now() + LOOK_AGAIN;
        self.memory.wait_while(task, deadline, blocked)
    }
}

#[cfg(test)]
mod tests;

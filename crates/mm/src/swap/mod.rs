//! The swap file: its slots, and what reclaim asks of it.
//!
//! A page of anonymous memory gets a slot when it is to go out and keeps it as long as the slot holds what the page
//! holds, so that a page that was read back can go again without I/O:
//!
//! ```text
//!   no slot, dirty --take_slot--> slot, dirty --begin_swap_out--> slot, writeback --ok--> slot, clean
//!       ^                             ^                                |                   |      |
//!       |                             '------------- written to -------+---- failed: the   |      | evict_anon
//!       '---- written to, swap nearly full: the slot is given up ------|---- slot is given |      v
//!       '--------------------------------------------------------------'     up, dirty     |   the slot stands in
//!       '----------------------------------------------------------------------------------'   the region's table
//! ```
//!
//! Reclaim isolates, decides and puts back; it calls the methods here with a page's busy bit in hand. What it
//! starts with `begin_swap_out` it sends with `submit_swap_out`, after the put-back: neighbouring slots of the
//! batch make one request.
//!
//! A swap file whose device hangs takes as many requests as there are slots for. Whoever needs another one waits; if none
//! has ended for `STALLED`, what it was to send is dirty again, and nobody sends anything until one ends. (Under a law of
//! Linux it is found out only if somebody comes late: there, one waits for a request for ever.)
//!
//! Invariants
//!   1. `slot_of[frame]` changes under the frame's busy bit while the page is not under writeback, and by the end
//!      of the write while it is.
//!   2. A slot in use stands in `slot_of` of one frame, or in one entry of a region, and nowhere else.
//!   3. Nothing is allocated from a dirty page to its completed write.
//!
//! Concurrency: the slot map is behind a leaf lock; the rest are atomics.
//!
//! Source: mechanisms 9; Linux v5.15 mm/swap_state.c, mm/page_io.c. Deviations: one swap file; a slot whose
//! write failed is given up, so that the page goes to another one, after a back-off.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use env::{Context, DeviceId, Env, Interrupt, IoError, Lock, LockClass, ObjectId, Task};
use frames::{Busy, Flags, FrameId, Owner, Shadow, Slot, SlotMap};
use policy::dirty::DeviceIndex;
use policy::reclaim::swap::{SlotMoment, SwapReadahead, releases, window_max};
use policy::units::{Instant, Nanos, Pages};

use crate::Error;
use crate::cache::{Cache, add, get, sub};
use crate::writeback::io::Requests;

mod out;
mod read;

pub(crate) use out::SwapOut;

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// No page has the slot.
const NOBODY: u64 = u64::MAX;
/// First wait after a write to the swap file failed; doubles up to 64 times as long, as for files.
const RETRY_AFTER: Nanos = Nanos::millis(100);
const BACKOFF_DOUBLINGS: u32 = 6;
/// Largest number of slots: they stand in shadows of 27 bits (512 GiB).
const SLOTS_MAX: u64 = 1 << 27;

/// The swap file of a cache, if it has one, and the slot of each frame.
pub(crate) struct State<E: Env> {
    /// The slot of each frame that has one.
    slot_of: Box<[AtomicU32]>,
    area: OnceLock<Arc<Area<E>>>,
}

/// A swap file.
pub(crate) struct Area<E: Env> {
    cache: Weak<Cache<E>>,
    device: DeviceId,
    object: ObjectId,
    total: u32,
    slots: Lock<SlotMap>,
    /// A copy of `SlotMap::free`.
    free: AtomicU32,
    /// Whose page is in a slot: packed, or `NOBODY`. A hint for read-ahead.
    owners: Box<[AtomicU64]>,
    /// What reclaim noted of an evicted page.
    shadows: Box<[AtomicU32]>,
    readahead: Lock<SwapReadahead>,
    /// Slots for requests: of those who reclaim themselves and, where writeback is throttled, of the background.
    requests: Requests,
    background: Option<Requests>,
    /// Pages in frames that have a slot: what is clean among them can go although no slot is free.
    kept: AtomicU64,
    /// Pages on their way out.
    writeback: AtomicU64,
    write_failed: AtomicU64,
    /// Pages whose write ended well.
    written: AtomicU64,
    read_failed: AtomicU64,
    /// Failed writes since the last good one: read without the lock.
    failures: AtomicU32,
    /// All requests are out and none has ended for long: nothing more goes there until one does.
    stalled: AtomicBool,
    /// When a request last went out, or ended, in nanoseconds.
    moved_at: AtomicU64,
    errors: Lock<Errors>,
}

struct Errors {
    retry_at: Instant,
    last_read: IoError,
}

/// What became of the swap file so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapStats {
    /// Slots.
    pub total: Pages,
    /// Free slots.
    pub free: Pages,
    /// Pages on their way out.
    pub writeback: Pages,
    /// Pages whose write failed (each try counts); they are still in memory.
    pub write_failed: Pages,
    /// Pages whose read failed; they are asked for again at the next access.
    pub read_failed: Pages,
}

impl<E: Env> State<E> {
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            slot_of: (0..frames).map(|_| AtomicU32::new(NONE)).collect(),
            area: OnceLock::new(),
        }
    }

    pub(crate) fn area(&self) -> Option<&Arc<Area<E>>> {
        self.area.get()
    }

    /// Bytes of metadata.
    pub(crate) fn bytes(&self, context: &impl Context) -> u64 {
        let slots = size_of_val(&*self.slot_of) as u64;
        let area = self.area.get().map_or(0, |area| {
            let arrays = size_of_val(&*area.owners) + size_of_val(&*area.shadows);
            arrays as u64 + area.slots.lock(context).bytes()
        });
        slots + area
    }

    /// The slot of the page in a frame (a hint without its busy bit).
    pub(crate) fn slot_of(&self, frame: FrameId) -> Option<u32> {
        let slot = self.slot(frame).load(Ordering::Relaxed);
        (slot != NONE).then_some(slot)
    }

    /// A page that is read back into a frame keeps its slot.
    pub(crate) fn keep(&self, frame: FrameId, slot: u32) {
        self.slot(frame).store(slot, Ordering::Relaxed);
        if let Some(area) = self.area() {
            add(&area.kept, 1);
        }
    }

    fn slot(&self, frame: FrameId) -> &AtomicU32 {
        &self.slot_of[frame.0 as usize]
    }
}

impl<E: Env> Area<E> {
    fn take(&self, task: &Task<'_, E>, owner: Owner) -> Option<u32> {
        let slot = {
            let mut slots = self.slots.lock(task);
            let slot = slots.try_take(task.cpu())?;
            self.free.store(slots.free(), Ordering::Relaxed);
            slot
        };
        self.owners[slot as usize].store(packed(owner), Ordering::Relaxed);
        Some(slot)
    }

    /// Gives slots back.
    pub(crate) fn put(&self, context: &impl Context, given: &[u32]) {
        if given.is_empty() {
            return;
        }
        for slot in given {
            self.owners[*slot as usize].store(NOBODY, Ordering::Relaxed);
        }
        let mut slots = self.slots.lock(context);
        for slot in given {
            slots.put(*slot);
        }
        self.free.store(slots.free(), Ordering::Relaxed);
    }

    pub(crate) fn free(&self) -> Pages {
        Pages(u64::from(self.free.load(Ordering::Relaxed)))
    }

    fn total(&self) -> Pages {
        Pages(u64::from(self.total))
    }

    /// Whether a failed write keeps the next ones back, or a device that hangs does.
    fn is_backing_off(&self, context: &impl Context, now: Instant) -> bool {
        if self.stalled.load(Ordering::Relaxed) {
            return true;
        }
        self.failures.load(Ordering::Relaxed) > 0 && now < self.errors.lock(context).retry_at
    }
}

impl<E: Env> Cache<E> {
    /// Gives the cache a swap file: the first `pages` pages of an object, whose content is the cache's from now on.
    ///
    /// # Errors
    /// `TooMany`: it has one. `BadOption`: no pages, or more than 2^27.
    ///
    /// # Panics
    /// If `device` is not of this cache.
    pub fn add_swap(
        self: &Arc<Self>,
        task: &mut Task<'_, E>,
        device: DeviceIndex,
        object: ObjectId,
        pages: Pages,
    ) -> Result<(), Error> {
        if !(1..=SLOTS_MAX).contains(&pages.0) {
            return Err(Error::BadOption {
                what: "pages of the swap file",
                value: pages.0,
                allowed: (1, SLOTS_MAX),
            });
        }
        let total = u32::try_from(pages.0).expect("at most 2^27");
        let cursors = self.options.dirty.cpus.clamp(1, 64) as usize;
        let memory = Pages(u64::from(self.options.frames));
        let device = self.device(task, device);
        let most = self.options.swap_requests.max(1);
        let throttled = self.options.flush.swap_flight(device.info.queue);
        let requests = throttled.map_or(most, |throttled| most.min(throttled)) as usize;
        let area = Area {
            cache: Arc::downgrade(self),
            device: device.id,
            object,
            total,
            slots: Lock::new(LockClass::Leaf, SlotMap::new(total, cursors)),
            free: AtomicU32::new(total),
            owners: (0..total).map(|_| AtomicU64::new(NOBODY)).collect(),
            shadows: (0..total).map(|_| AtomicU32::new(0)).collect(),
            readahead: Lock::new(LockClass::Leaf, SwapReadahead::new(window_max(memory))),
            requests: Requests::for_one(requests, out::BATCH),
            background: throttled.map(|_| Requests::for_one(requests, out::BATCH)),
            kept: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            write_failed: AtomicU64::new(0),
            written: AtomicU64::new(0),
            read_failed: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            stalled: AtomicBool::new(false),
            moved_at: AtomicU64::new(0),
            errors: Lock::new(
                LockClass::Leaf,
                Errors {
                    retry_at: Instant::ZERO,
                    last_read: IoError::Lost,
                },
            ),
        };
        self.swap
            .area
            .set(Arc::new(area))
            .map_err(|_| Error::TooMany {
                what: "swap files",
                limit: 1,
            })
    }

    /// Slots of the swap file, and what went wrong with it; zeroes if there is none.
    pub fn swap_stats(&self) -> SwapStats {
        let Some(area) = self.swap.area() else {
            return SwapStats::default();
        };
        SwapStats {
            total: area.total(),
            free: area.free(),
            writeback: Pages(get(&area.writeback)),
            write_failed: Pages(get(&area.write_failed)),
            read_failed: Pages(get(&area.read_failed)),
        }
    }

    /// Slots that pages can have now: none without a swap file, and none while it rests after a failed write.
    pub(crate) fn swap_free(&self) -> Pages {
        match self.swap.area() {
            Some(area) if !self.swap_rests() => area.free(),
            _ => Pages::ZERO,
        }
    }

    /// Whether the swap file rests after a failed write.
    pub(crate) fn swap_rests(&self) -> bool {
        let rests = |area: &Arc<Area<E>>| area.is_backing_off(&Interrupt::new(), self.env.now());
        self.swap.area().is_some_and(rests)
    }

    /// Whether anonymous pages are worth a scan: there is a slot for one or, where the law looks for that, one that has
    /// its slot.
    pub(crate) fn can_swap(&self) -> bool {
        let area = self.swap.area();
        let kept = area.map_or(Pages::ZERO, |area| Pages(get(&area.kept)));
        self.options.reclaim.scans_anon(self.swap_free(), kept)
    }

    /// Pages on their way to the swap file.
    pub(crate) fn swap_writeback(&self) -> Pages {
        let area = self.swap.area();
        area.map_or(Pages::ZERO, |area| Pages(get(&area.writeback)))
    }

    /// Pages that were ever brought to the swap file.
    pub(crate) fn swap_written(&self) -> u64 {
        self.swap.area().map_or(0, |area| get(&area.written))
    }

    /// Slots of the swap file.
    pub(crate) fn swap_total(&self) -> Pages {
        self.swap.area().map_or(Pages::ZERO, |area| area.total())
    }

    /// Whether a page has a slot (a hint without its busy bit).
    pub(crate) fn swap_has_slot(&self, frame: FrameId) -> bool {
        self.swap.slot_of(frame).is_some()
    }

    /// Gives a page that is to go out a slot if it has none. False: none is free, or the swap file rests after a
    /// failed write.
    pub(crate) fn take_slot(&self, task: &Task<'_, E>, busy: &Busy) -> bool {
        let Some(area) = self.swap.area() else {
            return false;
        };
        if area.is_backing_off(task, task.now()) {
            return false;
        }
        let slot = self.swap.slot(busy.frame());
        if slot.load(Ordering::Relaxed) != NONE {
            return true;
        }
        let Some(taken) = area.take(task, self.pages.table.owner(busy.frame())) else {
            return false;
        };
        slot.store(taken, Ordering::Relaxed);
        add(&area.kept, 1);
        true
    }

    /// A page that is in use may give its slot up, if slots are scarce; it is dirty then.
    pub(crate) fn drop_slot_if_full(&self, context: &impl Context, busy: &Busy) {
        self.give_slot_up(context, busy, SlotMoment::Activated);
    }

    /// Gives a page's slot up where the policy says so; then the page is dirty. Answers whether it has none now.
    pub(crate) fn give_slot_up(
        &self,
        context: &impl Context,
        busy: &Busy,
        moment: SlotMoment,
    ) -> bool {
        let frame = busy.frame();
        // In this order: the end of a write that fails gives the slot up itself, and only then takes WRITEBACK off. Where
        // that is off, none begins without the busy bit.
        let flags = self.pages.table.flags(frame);
        let slot = self.swap.slot(frame).load(Ordering::Relaxed);
        let (Some(area), true) = (self.swap.area(), slot != NONE) else {
            return true;
        };
        if !flags.has(Flags::UPTODATE) {
            // A read that failed: the content is in the slot alone.
            return false;
        }
        let writeback = flags.has(Flags::WRITEBACK);
        if !releases(moment, writeback, area.free(), area.total()) {
            return false;
        }
        self.swap.slot(frame).store(NONE, Ordering::Relaxed);
        sub(&area.kept, 1);
        self.pages.table.update(frame, Flags::DIRTY, Flags::NONE);
        area.put(context, &[slot]);
        true
    }

    /// Takes a page's slot from it: the caller gives it back. The page is not under writeback.
    pub(crate) fn take_slot_from(&self, busy: &Busy) -> Option<u32> {
        let place = self.swap.slot(busy.frame());
        // A look first: most pages have none, and it changes under the busy bit alone.
        if place.load(Ordering::Relaxed) == NONE {
            return None;
        }
        let slot = place.swap(NONE, Ordering::Relaxed);
        if let Some(area) = self.swap.area() {
            sub(&area.kept, 1);
        }
        Some(slot)
    }

    /// Takes a clean page that has a slot out of its region; the slot stays there, and `shadow` beside it. The frame
    /// is free; the caller has it on no list.
    ///
    /// # Panics
    /// If the page has no slot: its content would be lost.
    pub(crate) fn evict_anon(&self, context: &impl Context, busy: Busy, shadow: u32) -> FrameId {
        let frame = busy.frame();
        let owner = self.pages.table.owner(frame);
        let slot = self.swap.slot(frame).swap(NONE, Ordering::Relaxed);
        let area = self
            .swap
            .area()
            .expect("whoever has a slot has it of a swap file");
        assert!(slot != NONE, "an anonymous page without a slot is dirty");
        sub(&area.kept, 1);
        area.shadows[slot as usize].store(shadow, Ordering::Relaxed);
        let anon = self
            .registry
            .regions
            .get(context, owner.file)
            .expect("a region ends after its pages");
        anon.pages
            .replace(owner.index, frame, Slot::Shadow(Shadow(slot)));
        sub(&self.writeback.totals.anon, 1);
        self.pages.table.disown(busy)
    }
}

fn packed(owner: Owner) -> u64 {
    u64::from(owner.file) << 32 | u64::from(owner.index)
}

fn unpacked(packed: u64) -> Option<Owner> {
    let half = |shift: u32| u32::try_from(packed >> shift & u64::from(u32::MAX)).ok();
    (packed != NOBODY)
        .then(|| {
            Some(Owner {
                file: half(32)?,
                index: half(0)?,
            })
        })
        .flatten()
}

//! The swap file: its slots, its requests, and the slot of each frame.
//!
//! Its content changes with pages that go out and come back (`swap`, `anon`). Here is what is known
//! of it: which slots are free, whose page is in each, whether its device fails or hangs.
//!
//! A swap file whose device hangs takes as many requests as there are slots for. A task that needs
//! another one waits; if none has ended for `STALLED`, what it was to send is dirty again, and
//! nobody sends anything until one ends. (Under a law of Linux it is found out only if somebody
//! comes late: there, one waits for a request for ever.)
//!
//! Concurrency: the slot map is behind a leaf lock; the rest are atomics.

use core::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use env::{
    Context, DeviceId, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest, Lock, LockClass,
    ObjectId, Signal, Task,
};
use frames::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use frames::{FrameId, Owner, SlotMap};
use policy::dirty::DeviceIndex;
use policy::reclaim::swap::SwapReadahead;
use policy::reclaim::{SwapSender, WhenFull};
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, Pages};
use policy::writeback::{SwapFlight, SwapRoom};

use crate::registry::completions::Completions;
use crate::registry::requests::{Requests, submit};
use crate::vmstat::{add, get, sub};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// No page has the slot.
const NOBODY: u64 = u64::MAX;
/// First wait after a write to the swap file failed; doubles up to 64 times as long, as for files.
const RETRY_AFTER: Nanos = Nanos::millis(100);
const BACKOFF_DOUBLINGS: u32 = 6;
/// The swap file has its slots for itself.
const ONLY: DeviceIndex = DeviceIndex(0);
/// The owner of the slot that a request has (`IoRequest::cookie`).
const CALLERS: u64 = 0;
const BACKGROUND: u64 = 1;
/// A swap file that has ended no request for so long, with all of them out, hangs.
const STALLED: Nanos = Nanos::secs(5);
/// Before it is that late, only tasks that must look at the clock.
const LONG: Nanos = Nanos::secs(4);
/// Most pages of a batch: what reclaim looks at in one turn.
pub(crate) const BATCH: usize = 32;

/// The swap file of a cache, if it has one, and the slot of each frame.
pub(crate) struct State {
    /// One more than the slot of each frame that has one, else zero.
    slot_of: Box<[AtomicU32]>,
    area: OnceLock<Arc<Area>>,
}

/// A swap file.
pub(crate) struct Area {
    completions: Weak<dyn Completions<Self>>,
    device: DeviceId,
    object: ObjectId,
    total: u32,
    slots: Lock<SlotMap>,
    /// Copies of `SlotMap::free` and of `SlotMap::groups`.
    free: AtomicU32,
    groups: AtomicU32,
    /// The owner of the page in a slot: packed, or `NOBODY`. A hint for read-ahead.
    owners: Box<[AtomicU64]>,
    /// By slot: reclaim's note on the evicted page.
    shadows: Box<[AtomicU32]>,
    readahead: Lock<SwapReadahead>,
    /// Slots for requests: of those that reclaim and, where a law has it so, of the background
    /// apart.
    requests: Requests,
    background: Option<Requests>,
    /// Most pages of a write.
    request_max: usize,
    /// Pages in frames that have a slot: the clean ones can go although no slot is free.
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

/// The counters of the swap file.
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

impl State {
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            slot_of: frames::zeroed::table(frames as usize),
            area: OnceLock::new(),
        }
    }

    pub(crate) fn area(&self) -> Option<&Arc<Area>> {
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
        self.slot(frame).load(Ordering::Relaxed).checked_sub(1)
    }

    /// The cache has this swap file from now on; false: it has one.
    pub(crate) fn set(&self, area: Area) -> bool {
        self.area.set(Arc::new(area)).is_ok()
    }

    /// The page in a frame has this slot: a fresh slot, or the slot that it was read back from.
    pub(crate) fn keep(&self, frame: FrameId, slot: u32) {
        self.slot(frame).store(slot + 1, Ordering::Relaxed);
        if let Some(area) = self.area() {
            add(&area.kept, 1);
        }
    }

    /// Takes the slot of the page in a frame from it.
    pub(crate) fn take_from(&self, frame: FrameId) -> Option<u32> {
        let place = self.slot(frame);
        // A look first: most pages have none, and it changes under the busy bit alone.
        if place.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let slot = place.swap(0, Ordering::Relaxed);
        if let Some(area) = self.area() {
            sub(&area.kept, 1);
        }
        slot.checked_sub(1)
    }

    fn slot(&self, frame: FrameId) -> &AtomicU32 {
        &self.slot_of[frame.0 as usize]
    }
}

/// The layout of a swap file.
pub(crate) struct Shape {
    pub(crate) device: DeviceId,
    pub(crate) object: ObjectId,
    /// Slots.
    pub(crate) total: u32,
    pub(crate) cpus: usize,
    /// Longest window of a read.
    pub(crate) window_max: u32,
    /// Requests that may be out at a time, at most.
    pub(crate) requests: u32,
    /// The flight of writeback to its device, if that is throttled.
    pub(crate) throttled: Option<SwapFlight>,
}

impl Area {
    /// An empty one.
    pub(crate) fn new(completions: Weak<dyn Completions<Self>>, shape: &Shape) -> Self {
        let Shape {
            device,
            object,
            total,
            cpus,
            window_max,
            requests: most,
            throttled,
        } = *shape;
        let pool = |count: u32| Requests::for_one(count as usize, BATCH);
        let request_max = throttled.map_or(BATCH, |flight| {
            usize::try_from(flight.request_max.0).map_or(BATCH, |pages| pages.min(BATCH))
        });
        let (requests, background) = match throttled {
            None => (pool(most), None),
            Some(flight) => {
                let count = most.min(flight.most);
                match flight.room {
                    SwapRoom::Background => (pool(count), Some(pool(count))),
                    SwapRoom::Swap => {
                        let resume = flight.resume.min(count - 1) as usize;
                        (
                            Requests::in_lumps(count as usize, BATCH, Some(resume)),
                            None,
                        )
                    }
                }
            }
        };
        Self {
            completions,
            device,
            object,
            total,
            slots: Lock::new(LockClass::Leaf, SlotMap::new(total, cpus)),
            free: AtomicU32::new(total),
            groups: AtomicU32::new(0),
            owners: (0..total).map(|_| AtomicU64::new(NOBODY)).collect(),
            shadows: (0..total).map(|_| AtomicU32::new(0)).collect(),
            readahead: Lock::new(LockClass::Leaf, SwapReadahead::new(window_max)),
            requests,
            background,
            request_max,
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
        }
    }

    pub(crate) fn take(&self, task: &Task<'_>, owner: Owner) -> Option<u32> {
        let slot = {
            let mut slots = self.slots.lock(task);
            let slot = slots.try_take(task.cpu())?;
            self.free.store(slots.free(), Ordering::Relaxed);
            self.groups.store(slots.groups(), Ordering::Relaxed);
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
        self.groups.store(slots.groups(), Ordering::Relaxed);
    }

    /// Of how many groups of 64 neighbours a slot is in use.
    pub(crate) fn groups(&self) -> u32 {
        self.groups.load(Ordering::Relaxed)
    }

    pub(crate) fn free(&self) -> Pages {
        Pages(u64::from(self.free.load(Ordering::Relaxed)))
    }

    pub(crate) fn total(&self) -> Pages {
        Pages(u64::from(self.total))
    }

    /// True if a failed write keeps the next ones back, or a device that hangs does.
    pub(crate) fn is_backing_off(&self, context: &impl Context, now: Instant) -> bool {
        if self.is_stalled() {
            return true;
        }
        self.failures.load(Ordering::Relaxed) > 0 && now < self.errors.lock(context).retry_at
    }

    /// A slot for a request, to be waited for as long as others end. A task that blocks and does
    /// not check itself leaves when another has found out that none does.
    pub(crate) fn request(
        &self,
        task: &mut Task<'_>,
        sender: SwapSender,
        when_full: WhenFull,
    ) -> Option<Box<IoRequest>> {
        let (requests, pool) = match &self.background {
            Some(own) if sender == SwapSender::Background => (own, BACKGROUND),
            _ => (&self.requests, CALLERS),
        };
        let labelled = |mut request: Box<IoRequest>| {
            request.cookie[0] = pool;
            request
        };
        loop {
            if self.is_stalled() {
                return requests.try_take(task, ONLY).map(labelled);
            }
            if when_full == WhenFull::Skip {
                let request = requests.try_take(task, ONLY).map(labelled);
                if request.is_none() {
                    self.look(task.now());
                }
                return request;
            }
            let deadline = self.late_at();
            let checks = when_full == WhenFull::BlockAndCheckHang;
            let deadline = (checks || task.now() + LONG >= deadline).then_some(deadline);
            match requests.take_while(task, ONLY, deadline, || !self.is_stalled()) {
                Ok(Some(request)) => return Some(labelled(request)),
                Ok(None) => self.look(task.now()),
                Err(_) => return None,
            }
        }
    }

    /// Most pages of a write: more take several requests, each with room of its own.
    pub(crate) fn request_max(&self) -> usize {
        self.request_max
    }

    fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// When the swap file hangs if no request goes out or ends before.
    fn late_at(&self) -> Instant {
        Instant(self.moved_at.load(Ordering::Relaxed)) + STALLED
    }

    pub(crate) fn is_late(&self, now: Instant) -> bool {
        now >= self.late_at()
    }

    /// Somebody found no request: perhaps the swap file hangs.
    fn look(&self, now: Instant) {
        if self.is_late(now) && !self.stalled.swap(true, Ordering::AcqRel) {
            // The last write may just have ended: nobody else would say so, for none goes out while
            // it hangs.
            if !self.is_late(now) {
                self.stalled.store(false, Ordering::Relaxed);
                return;
            }
            self.requests.wake_all(Signal::SwapHangs);
            if let Some(own) = &self.background {
                own.wake_all(Signal::SwapHangs);
            }
        }
    }

    /// The slots to be read for a fault on `slot`, and the longest such window.
    pub(crate) fn window(&self, context: &impl Context, slot: u32) -> (Range<u32>, u32) {
        let mut readahead = self.readahead.lock(context);
        (readahead.window(slot, self.total), readahead.window_max())
    }

    /// A page that had been read ahead was used for the first time. Answers the longest window.
    pub(crate) fn hit(&self, context: &impl Context) -> u32 {
        let mut readahead = self.readahead.lock(context);
        readahead.on_hit();
        readahead.window_max()
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.total
    }

    /// The owner of the page in a slot: a hint.
    pub(crate) fn owner(&self, slot: u32) -> Option<Owner> {
        unpacked(self.owners[slot as usize].load(Ordering::Relaxed))
    }

    /// Reclaim's note on the page that is in a slot.
    pub(crate) fn shadow(&self, slot: u32) -> u32 {
        self.shadows[slot as usize].load(Ordering::Relaxed)
    }

    /// Why the last read failed.
    pub(crate) fn last_read_error(&self, context: &impl Context) -> IoError {
        self.errors.lock(context).last_read
    }

    /// `end`: the slot behind its last.
    pub(crate) fn send_read(
        self: &Arc<Self>,
        task: &mut Task<'_>,
        end: u32,
        wanted: u32,
        mut request: Box<IoRequest>,
    ) {
        let pages = request.pages().0;
        let first = u64::from(end) - pages;
        request.device = self.device;
        request.object = self.object;
        request.op = IoOp::Read;
        request.class = if (first..u64::from(end)).contains(&u64::from(wanted)) {
            IoClass::Read
        } else {
            IoClass::ReadAhead
        };
        request.offset = Bytes(first << PAGE_SHIFT);
        request.on_done(Arc::clone(self) as Arc<dyn IoDone>);
        submit(task, request);
    }

    /// Pages in frames that have a slot.
    pub(crate) fn kept(&self) -> Pages {
        Pages(get(&self.kept))
    }

    /// A page is on its way out.
    pub(crate) fn note_leaving(&self) {
        add(&self.writeback, 1);
    }

    /// Pages are not on their way out any more.
    pub(crate) fn note_arrived(&self, pages: u64) {
        sub(&self.writeback, pages);
    }

    /// Pages on their way out.
    pub(crate) fn writeback(&self) -> Pages {
        Pages(get(&self.writeback))
    }

    /// Pages whose write ended well, ever.
    pub(crate) fn written(&self) -> u64 {
        get(&self.written)
    }

    /// Sets reclaim's note on a page that is evicted to its slot.
    pub(crate) fn set_shadow(&self, slot: u32, shadow: u32) {
        self.shadows[slot as usize].store(shadow, Ordering::Relaxed);
    }

    /// True if a request is at hand for the callers.
    pub(crate) fn has_request(&self, context: &impl Context) -> bool {
        self.requests.has_one(context, ONLY)
    }

    /// Sends pages to slots from `first` on; `request` holds their frames.
    pub(crate) fn send_write(
        self: &Arc<Self>,
        task: &mut Task<'_>,
        first: u32,
        mut request: Box<IoRequest>,
    ) {
        request.device = self.device;
        request.object = self.object;
        request.op = IoOp::Write;
        request.class = IoClass::Writeback;
        request.offset = Bytes(u64::from(first) << PAGE_SHIFT);
        request.on_done(Arc::clone(self) as Arc<dyn IoDone>);
        self.moved_at.store(task.now().0, Ordering::Relaxed);
        submit(task, request);
    }

    /// A write of `pages` pages has ended.
    pub(crate) fn note_write(
        &self,
        context: &impl Context,
        now: Instant,
        pages: u64,
        result: Result<(), IoError>,
    ) {
        self.moved_at.store(now.0, Ordering::Relaxed);
        self.stalled.store(false, Ordering::Release);
        match result {
            Ok(()) => {
                self.failures.store(0, Ordering::Relaxed);
                add(&self.written, pages);
            }
            Err(_) => {
                add(&self.write_failed, pages);
                let doublings = self.failures.fetch_add(1, Ordering::Relaxed);
                let pause = Nanos(RETRY_AFTER.0 << doublings.min(BACKOFF_DOUBLINGS));
                self.errors.lock(context).retry_at = now + pause;
            }
        }
    }

    /// A read of `pages` pages has failed.
    pub(crate) fn note_read_failed(&self, context: &impl Context, pages: u64, error: IoError) {
        add(&self.read_failed, pages);
        self.errors.lock(context).last_read = error;
    }

    /// Gives the slot of a write request back.
    pub(crate) fn put_request(&self, context: &impl Context, request: Box<IoRequest>) {
        let requests = match &self.background {
            Some(own) if request.cookie[0] == BACKGROUND => own,
            _ => &self.requests,
        };
        requests.put(context, ONLY, request);
    }

    pub(crate) fn stats(&self) -> SwapStats {
        SwapStats {
            total: self.total(),
            free: self.free(),
            writeback: self.writeback(),
            write_failed: Pages(get(&self.write_failed)),
            read_failed: Pages(get(&self.read_failed)),
        }
    }
}

impl IoDone for Area {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        if let Some(completions) = self.completions.upgrade() {
            completions.ended(self, context, request, result);
        }
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

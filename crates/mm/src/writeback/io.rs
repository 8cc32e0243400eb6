//! Request slots, and what happens when a request ends.
//!
//! Slots for writes are made when the cache is built and used again and again, so that the
//! write-back path allocates nothing. Completions run as interrupts: they take short locks, change
//! state, unlock, wake. Reads carry the busy bits of their frames; writes are named by `WRITEBACK`.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{
    Cause, Context, DeviceId, Env, Event, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest,
    Lock, LockClass, ObjectId, Signal, Task, TaskId, WaitQueue, Wakeup,
};
use frames::{Flags, FrameId, Tag};
use policy::dirty::{Completion, DeviceIndex};
use policy::units::{Bytes, Instant, PAGE_SHIFT, Pages};

use crate::Error;
use crate::cache::{Cache, add, sub};
pub(crate) use crate::registry::REQUEST_PAGES;
use crate::registry::mapping::Mapping;

/// Write slots taken at the start for each of the first devices a cache has room for, and for each further one.
const SLOTS_PER_DEVICE: usize = 16;
const DEVICES_DEEP: usize = 16;
const SLOTS_PER_FURTHER_DEVICE: usize = 4;
/// Write slots of a cache, at least: a queue of 128 requests and a few syncs beside it.
const SLOTS_MIN: usize = 160;
/// Of the slots, this share is kept for devices that hold less than an equal part of it.
const KEPT: usize = 2;

/// Write requests that are not in use.
///
/// A device that hangs gives none of its slots back, and one whose writes are single pages wants many. So half of the
/// slots are kept, in equal parts, for devices that hold less than theirs; the other half is for whoever comes first.
pub(crate) struct Requests {
    slots: Lock<Slots>,
    wait: WaitQueue,
}

struct Slots {
    #[expect(
        clippy::vec_box,
        reason = "requests travel to devices as boxes and come back"
    )]
    free: Vec<Box<IoRequest>>,
    total: usize,
    /// Slots that each device holds, and how many of the free ones are kept for it.
    held: Vec<u32>,
    part: u32,
    /// Sum over the devices of what they hold less than their part.
    kept: usize,
}

impl Slots {
    /// Another device shares the slots.
    fn add(&mut self, device: DeviceIndex) {
        let place = usize::from(device.0);
        if place >= self.held.len() {
            self.held.resize(place + 1, 0);
        }
        let part = self.total / (KEPT * self.held.len());
        self.part = u32::try_from(part).expect("slots are few");
        let missing = |held: &u32| self.part.saturating_sub(*held) as usize;
        self.kept = self.held.iter().map(missing).sum();
    }

    fn has_for(&self, device: DeviceIndex) -> bool {
        let below = self.held[usize::from(device.0)] < self.part;
        // What is kept is of use to its owners only; right after a device has come, it may not be there yet.
        !self.free.is_empty() && (below || self.free.len() > self.kept)
    }

    fn pop(&mut self, device: DeviceIndex) -> Option<Box<IoRequest>> {
        if !self.has_for(device) {
            return None;
        }
        let held = &mut self.held[usize::from(device.0)];
        self.kept -= usize::from(*held < self.part);
        *held += 1;
        self.free.pop()
    }

    fn push(&mut self, device: DeviceIndex, request: Box<IoRequest>) {
        let held = &mut self.held[usize::from(device.0)];
        *held -= 1;
        self.kept += usize::from(*held < self.part);
        self.free.push(request);
    }
}

impl Requests {
    /// Slots of a cache with room for so many devices; they are added one by one.
    pub(crate) fn new(devices: u16) -> Self {
        let devices = usize::from(devices);
        let deep = devices.min(DEVICES_DEEP);
        let count = deep * SLOTS_PER_DEVICE + (devices - deep) * SLOTS_PER_FURTHER_DEVICE;
        Self::with_room(count.max(SLOTS_MIN), REQUEST_PAGES)
    }

    /// `count` slots for `pages` pages each, for one device.
    pub(crate) fn for_one(count: usize, pages: usize) -> Self {
        let requests = Self::with_room(count, pages);
        requests.add_device(&Interrupt::new(), DeviceIndex(0));
        requests
    }

    fn with_room(count: usize, pages: usize) -> Self {
        let slots = Slots {
            free: (0..count).map(|_| IoRequest::for_writes(pages)).collect(),
            total: count,
            held: Vec::new(),
            part: 0,
            kept: 0,
        };
        Self {
            slots: Lock::new(LockClass::Leaf, slots),
            wait: WaitQueue::new(),
        }
    }

    /// A device begins to use the slots.
    pub(crate) fn add_device(&self, context: &impl Context, device: DeviceIndex) {
        self.slots.lock(context).add(device);
    }

    /// A slot for a write to `device`, if there is one for it.
    pub(crate) fn try_take(
        &self,
        context: &impl Context,
        device: DeviceIndex,
    ) -> Option<Box<IoRequest>> {
        self.slots.lock(context).pop(device)
    }

    /// Whether there is a slot for a write to `device` now.
    pub(crate) fn has_one(&self, context: &impl Context, device: DeviceIndex) -> bool {
        self.slots.lock(context).has_for(device)
    }

    /// A slot for a write to `device`; waits while there is none for it.
    pub(crate) fn take<E: Env>(
        &self,
        task: &mut Task<'_, E>,
        device: DeviceIndex,
    ) -> Result<Box<IoRequest>, Error> {
        loop {
            if let Some(request) = self.take_while(task, device, None, || true)? {
                return Ok(request);
            }
        }
    }

    /// A slot for a write to `device`; `None`: there was none for it until the deadline, or it is not wanted any more
    /// (whoever changes that calls `wake_all`).
    pub(crate) fn take_while<E: Env>(
        &self,
        task: &mut Task<'_, E>,
        device: DeviceIndex,
        deadline: Option<Instant>,
        wanted: impl Fn() -> bool,
    ) -> Result<Option<Box<IoRequest>>, Error> {
        loop {
            if let Some(request) = self.try_take(task, device) {
                return Ok(Some(request));
            }
            let wakeup = task.wait_while(&self.wait, Cause::RequestSlot, deadline, |task| {
                wanted() && !self.slots.lock(task).has_for(device)
            });
            match wakeup {
                Wakeup::Ready(_) if wanted() => {}
                Wakeup::Ready(_) | Wakeup::TimedOut => return Ok(None),
                ended => return Err(Error::after(ended).err().unwrap_or(Error::Cancelled)),
            }
        }
    }

    /// Has all who wait look again.
    pub(crate) fn wake_all(&self, signal: Signal) {
        self.wait.wake_all(signal);
    }

    /// Gives a slot back. Among several devices, whoever waits looks again: the slot may be kept for some of them only.
    pub(crate) fn put(
        &self,
        context: &impl Context,
        device: DeviceIndex,
        mut request: Box<IoRequest>,
    ) {
        request.frames.clear();
        request.moved = false;
        let shared = {
            let mut slots = self.slots.lock(context);
            slots.push(device, request);
            slots.held.len() > 1
        };
        if shared {
            self.wait.wake_all(Signal::SlotFreed);
        } else {
            self.wait.wake_one(Signal::SlotFreed);
        }
    }
}

/// Sends a filled request; the caller has put its handler on.
pub(crate) fn submit<E: Env>(task: &mut Task<'_, E>, mut request: Box<IoRequest>) {
    request.submitted = task.now();
    task.emit(&Event::Submitted {
        device: request.device,
        op: request.op,
        pages: request.pages(),
    });
    task.did(env::Work::Submit, 1);
    task.env().submit(request);
}

pub(crate) fn emit_completed<E: Env>(
    cache: &Cache<E>,
    now: Instant,
    request: &IoRequest,
    failed: bool,
) {
    cache.env.emit(
        TaskId::NONE,
        &Event::Completed {
            device: request.device,
            op: request.op,
            pages: request.pages(),
            took: now.since(request.submitted),
            failed,
        },
    );
}

impl<E: Env> IoDone for Mapping<E> {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let now = cache.env.now();
        emit_completed(&cache, now, &request, result.is_err());
        match request.op {
            IoOp::Read => self.read_done(&cache, context, now, request, result),
            _ => self.write_done(&cache, context, now, request, result),
        }
    }

    fn io_moved(&self, _: &Interrupt, request: &IoRequest) {
        self.device.writes_inflight.leave(request.pages());
        self.device
            .writes_inflight
            .wait
            .wake_all(Signal::WriteTaken);
    }
}

impl<E: Env> Mapping<E> {
    fn write_done(
        &self,
        cache: &Cache<E>,
        context: &Interrupt,
        now: Instant,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let device = &self.device;
        let pages = request.frames.len() as u64;
        device.note_moved(now);
        // All of this before the tags say so: whoever sees the writeback ended may look for an
        // error, take the page for flushed, or count it off at once.
        match result {
            // Completed is not durable: the next sync has to flush.
            Ok(()) => self.note_completed(),
            Err(error) => {
                self.count_dirty(cache, pages);
                // It was to make the object so long, and has not.
                self.forget_device_len();
                device.on_write_failed(context, now, request.offset, error);
            }
        }
        let first = first_page(&request);
        let mut rotate = Rotate::new();
        let redirtied =
            self.end_writeback(cache, context, first, &request.frames, &result, &mut rotate);
        let last = device.writeback.fetch_sub(pages, Ordering::Relaxed) == pages;
        match result {
            Ok(()) => {
                add(&cache.writeback.totals.written, pages);
                add(&device.written, pages);
                device.on_write_done(context);
                let done = Completion {
                    pages: Pages(pages),
                    submitted: request.submitted,
                    last,
                };
                let mut domain = cache.writeback.domain.lock(context);
                domain.on_written(now, device.index, &done);
            }
            Err(_) => {
                // The others were written over meanwhile: a newer version is dirty already.
                let newer = pages - redirtied;
                self.uncount_dirty(cache, newer);
                add(&cache.writeback.totals.discarded, newer);
                add(&cache.writeback.totals.write_failed, pages);
                add(&device.failed, pages);
                if let Some(mapping) = cache.mapping(context, self.id) {
                    cache.queue_dirty(context, &mapping);
                }
            }
        }
        sub(&cache.writeback.totals.writeback, pages);
        if !request.moved {
            device.writes_inflight.leave(request.pages());
        }
        cache.wake_busy(&request.frames, Signal::PageWritten);
        cache.wrote_back(context, &request.frames, rotate.frames());
        cache.writeback.requests.put(context, device.index, request);
        let pages = u32::try_from(pages).expect("a request is at most 256 pages");
        self.writeback.fetch_sub(pages, Ordering::Release);
        self.writeback_wait.wake_all(Signal::PageWritten);
        device.writes_inflight.wait.wake_all(Signal::PageWritten);
    }

    pub(crate) fn count_dirty(&self, cache: &Cache<E>, pages: u64) {
        add(&cache.writeback.totals.dirty, pages);
        add(&self.device.dirty, pages);
        add(&self.dirty, pages);
    }

    pub(crate) fn uncount_dirty(&self, cache: &Cache<E>, pages: u64) {
        sub(&cache.writeback.totals.dirty, pages);
        sub(&self.device.dirty, pages);
        sub(&self.dirty, pages);
    }

    /// Ends writeback of the frames; answers how many became dirty by a failure.
    fn end_writeback(
        &self,
        cache: &Cache<E>,
        context: &Interrupt,
        first: u32,
        frames: &[FrameId],
        result: &Result<(), IoError>,
        rotate: &mut Rotate,
    ) -> u64 {
        let failed = result.is_err();
        let mut redirtied = 0;
        let mut token = self.token.lock(context);
        // Under the lock: a sync that has this error behind it finds the pages dirty again (`sync::write_parts`).
        if let Err(error) = result {
            let at = Bytes(u64::from(first) << PAGE_SHIFT);
            self.note_write_error(context, at, *error);
        }
        let mut index = self.index.writer(&cache.pages.pool, &mut token);
        for (frame, page) in frames.iter().zip(first..) {
            let before = cache.pages.table.end_writeback(*frame, failed);
            debug_assert!(
                !before.has(Flags::ORPHAN),
                "nothing is replaced while it is written"
            );
            index.clear_tag(page, Tag::Writeback);
            rotate.note(*frame, before, failed);
            if failed && !before.has(Flags::DIRTY) {
                index.set_tag(page, Tag::Dirty);
                redirtied += 1;
            }
        }
        redirtied
    }

    #[expect(
        clippy::boxed_local,
        reason = "the box is the request's, and ends here"
    )]
    fn read_done(
        &self,
        cache: &Cache<E>,
        context: &Interrupt,
        now: Instant,
        mut request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let pages = u32::try_from(request.frames.len()).expect("a request is at most 256 pages");
        let set = match result {
            Ok(()) => {
                self.device.on_read_done();
                Flags::UPTODATE
            }
            Err(error) => {
                self.note_read_error(context, error);
                let pages = Pages(pages.into());
                self.device
                    .on_read_failed(context, now, request.offset, error, pages);
                Flags::FAILED
            }
        };
        add(&cache.writeback.totals.read_in, request.frames.len() as u64);
        add(&self.device.read_in, request.frames.len() as u64);
        for busy in request.busy.drain(..) {
            cache.pages.table.release(busy, set, Flags::NONE);
        }
        cache.wake_busy(&request.frames, Signal::PageRead);
        self.device.reads_inflight.ended(cache, now, pages);
    }
}

/// The pages of a request that reclaim wants to find at the old end when their write has ended.
pub(crate) struct Rotate {
    frames: [FrameId; REQUEST_PAGES],
    count: usize,
}

impl Rotate {
    pub(crate) fn new() -> Self {
        Self {
            frames: [FrameId(0); REQUEST_PAGES],
            count: 0,
        }
    }

    /// Takes note of a page whose write has ended; `before`: its flags before.
    pub(crate) fn note(&mut self, frame: FrameId, before: Flags, failed: bool) {
        let clean = !failed && !before.has(Flags::DIRTY);
        if clean && before.has(Flags::RECLAIM) && self.count < self.frames.len() {
            self.frames[self.count] = frame;
            self.count += 1;
        }
    }

    pub(crate) fn frames(&self) -> &[FrameId] {
        &self.frames[..self.count]
    }
}

/// Page number of the first frame of a request.
pub(crate) fn first_page(request: &IoRequest) -> u32 {
    u32::try_from(request.offset.0 >> PAGE_SHIFT).expect("page numbers are 32 bits")
}

/// One operation that a task waits for: flush, set length, allocate, discard.
struct Answer {
    result: Lock<Option<Result<(), IoError>>>,
    done: WaitQueue,
}

impl IoDone for Answer {
    fn io_done(&self, context: &Interrupt, _request: Box<IoRequest>, result: Result<(), IoError>) {
        *self.result.lock(context) = Some(result);
        self.done.wake_all(Signal::Answered);
    }
}

/// Lets whoever keeps the object hold a writer up before a write of `len` bytes is taken in.
pub(crate) fn prepare<E: Env>(
    task: &mut Task<'_, E>,
    mapping: &Mapping<E>,
    offset: Bytes,
    len: Bytes,
) -> Result<(), Error> {
    if !mapping.device.info.prepares_writes {
        return Ok(());
    }
    may_call(task)?;
    let op = IoOp::Prepare { len };
    let (device, object) = (mapping.device.id, mapping.object);
    call(task, device, object, op, offset, Cause::Journal).map_err(Error::unprepared)
}

/// Whether the task may have a device do something and wait for it: once sent, it would be done unseen.
pub(crate) fn may_call<E: Env>(task: &Task<'_, E>) -> Result<(), Error> {
    if task.may_block() {
        Ok(())
    } else {
        Err(Error::WouldWait)
    }
}

/// Has a device do `op` and waits for its answer. The task may wait (`may_call`).
pub(crate) fn call<E: Env>(
    task: &mut Task<'_, E>,
    device: DeviceId,
    object: ObjectId,
    op: IoOp,
    offset: Bytes,
    cause: Cause,
) -> Result<(), IoError> {
    debug_assert!(task.may_block(), "the answer has to be waited for");
    let answer = Arc::new(Answer {
        result: Lock::new(LockClass::Leaf, None),
        done: WaitQueue::new(),
    });
    let mut request = IoRequest::with_room(0);
    request.device = device;
    request.object = object;
    request.op = op;
    request.class = IoClass::Sync;
    request.offset = offset;
    request.on_done(Arc::clone(&answer) as Arc<dyn IoDone>);
    submit(task, request);
    task.wait_while(&answer.done, cause, None, |task| {
        answer.result.lock(task).is_none()
    });
    let result = answer.result.lock(task).take();
    result.unwrap_or(Err(IoError::Cancelled))
}

//! Requests: how they are sent, and what their end means for a file.
//!
//! Completions run as interrupts: they take short locks, change state, unlock, wake. Reads carry
//! the busy bits of their frames; writes are named by `WRITEBACK`.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{
    Cause, DeviceId, Event, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest, Lock, LockClass,
    ObjectId, Signal, Task, TaskId, WaitQueue,
};
use frames::{Flags, FrameId, Tag};
use policy::dirty::Completion;
use policy::units::{Bytes, Instant, PAGE_SHIFT, Pages};

use crate::Error;
use crate::cache::{Cache, add, sub};
pub(crate) use crate::registry::REQUEST_PAGES;
use crate::registry::gate::ShutGate;
use crate::registry::mapping::Mapping;
pub(crate) use crate::registry::requests::submit;

pub(crate) fn emit_completed(cache: &Cache, now: Instant, request: &IoRequest, failed: bool) {
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

impl Mapping {
    pub(crate) fn write_done(
        &self,
        cache: &Cache,
        context: &Interrupt,
        now: Instant,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let device = &self.device;
        let pages = request.frames.len() as u64;
        device.note_moved(now);
        // All of this before the tags say so: the task that sees the writeback ended may look for
        // an error, take the page for flushed, or count it off at once.
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
        let ended = result.map_err(Some);
        let redirtied =
            self.end_writeback(cache, context, first, &request.frames, ended, &mut rotate);
        let last = device.writeback.fetch_sub(pages, Ordering::Relaxed) == pages;
        match result {
            Ok(()) => {
                add(&cache.writeback.totals.written, pages);
                add(&device.written, pages);
                device.on_write_done(context, now);
                let done = Completion {
                    pages: Pages(pages),
                    begun: request.begun,
                    last,
                };
                let mut domain = cache.writeback.domain.lock(context);
                domain.on_written(now, device.index, &done);
            }
            Err(_) => {
                add(&cache.writeback.totals.write_failed, pages);
                add(&device.failed, pages);
                self.not_written(cache, context, pages - redirtied);
            }
        }
        sub(&cache.writeback.totals.writeback, pages);
        if !request.moved {
            device.writes_inflight.leave(request.pages());
        }
        cache.wake_busy(&request.frames, Signal::PageWritten);
        cache.wrote_back(context, &request.frames, rotate.frames());
        cache.writeback.requests.put(context, device.index, request);
        self.ended(pages);
        device.writes_inflight.wait.wake_all(Signal::PageWritten);
    }

    /// Pages that were counted as dirty again are so: the flusher finds them. All but `newer`:
    /// these were written over meanwhile, and a newer version is dirty already.
    fn not_written(&self, cache: &Cache, context: &Interrupt, newer: u64) {
        self.uncount_dirty(cache, newer);
        add(&cache.writeback.totals.discarded, newer);
        if let Some(mapping) = cache.mapping(context, self.id) {
            cache.queue_dirty(context, &mapping);
        }
    }

    /// Pages are not under writeback any more.
    fn ended(&self, pages: u64) {
        let pages = u32::try_from(pages).expect("a request is at most 256 pages");
        self.writeback.fetch_sub(pages, Ordering::Release);
        self.writeback_wait.wake_all(Signal::PageWritten);
    }

    /// Pages that were put under writeback and are not sent after all are dirty again.
    pub(crate) fn take_back(&self, cache: &Cache, offset: Bytes, frames: &[FrameId]) {
        let context = Interrupt::new();
        let totals = &cache.writeback.totals;
        let mut offset = offset.0;
        for frames in frames.chunks(REQUEST_PAGES) {
            let pages = frames.len() as u64;
            self.count_dirty(cache, pages);
            let first = u32::try_from(offset >> PAGE_SHIFT).expect("pages of a file");
            let mut rotate = Rotate::new();
            let redirtied =
                self.end_writeback(cache, &context, first, frames, Err(None), &mut rotate);
            self.not_written(cache, &context, pages - redirtied);
            sub(&self.device.writeback, pages);
            sub(&totals.writeback, pages);
            cache.wake_busy(frames, Signal::PageWritten);
            cache.wrote_back(&context, frames, &[]);
            self.ended(pages);
            offset += pages << PAGE_SHIFT;
        }
    }

    pub(crate) fn count_dirty(&self, cache: &Cache, pages: u64) {
        add(&cache.writeback.totals.dirty, pages);
        add(&self.device.dirty, pages);
        add(&self.dirty, pages);
    }

    pub(crate) fn uncount_dirty(&self, cache: &Cache, pages: u64) {
        sub(&cache.writeback.totals.dirty, pages);
        sub(&self.device.dirty, pages);
        sub(&self.dirty, pages);
    }

    /// Ends writeback of the frames; answers how many became dirty by a failure. An error of none:
    /// they were not sent.
    fn end_writeback(
        &self,
        cache: &Cache,
        context: &Interrupt,
        first: u32,
        frames: &[FrameId],
        result: Result<(), Option<IoError>>,
        rotate: &mut Rotate,
    ) -> u64 {
        let failed = result.is_err();
        let mut redirtied = 0;
        let mut token = self.token.lock(context);
        // Under the lock: a sync that has this error behind it finds the pages dirty again
        // (`sync::write_parts`).
        if let Err(Some(error)) = result {
            let at = Bytes(u64::from(first) << PAGE_SHIFT);
            self.note_write_error(context, at, error);
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
                cache.zones.note_dirty([*frame]);
                redirtied += 1;
            }
        }
        redirtied
    }

    #[expect(
        clippy::boxed_local,
        reason = "the box is the request's, and ends here"
    )]
    pub(crate) fn read_done(
        &self,
        cache: &Cache,
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
        cache.writeback.totals.read_in.add(pages.into());
        self.device.read_in.add(pages.into());
        for busy in request.busy.drain(..) {
            cache.pages.table.release(busy, set, Flags::NONE);
        }
        cache
            .slabs
            .note_read(now.since(request.submitted), pages.into());
        cache.wake_busy(&request.frames, Signal::PageRead);
        let reading = &cache.writeback.totals.reading;
        self.device.reads_inflight.ended(reading, now, pages);
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

/// Lets the task that keeps the object hold a writer up before a write of `len` bytes is taken in.
pub(crate) fn prepare(
    task: &mut Task<'_>,
    mapping: &Mapping,
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

/// Checks that the task may have a device do something and wait for it: once sent, it would be done
/// unseen.
pub(crate) fn may_call(task: &Task<'_>) -> Result<(), Error> {
    if task.may_block() {
        Ok(())
    } else {
        Err(Error::WouldWait)
    }
}

/// Has a device do `op` and waits for its answer. The task may wait (`may_call`).
pub(crate) fn call(
    task: &mut Task<'_>,
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
    request.in_place = true;
    request.on_done(Arc::clone(&answer) as Arc<dyn IoDone>);
    submit(task, request);
    task.wait_while(&answer.done, cause, None, |task| {
        answer.result.lock(task).is_none()
    });
    let result = answer.result.lock(task).take();
    result.unwrap_or(Err(IoError::Cancelled))
}

/// Sets the length of the device's object.
pub(crate) fn set_device_len(
    task: &mut Task<'_>,
    file: &ShutGate<'_>,
    len: u64,
) -> Result<(), Error> {
    set_len(task, file, len, false)
}

/// `at_rest`: no write that ends behind `len` is under way or can begin.
pub(crate) fn set_len(
    task: &mut Task<'_>,
    mapping: &ShutGate<'_>,
    len: u64,
    at_rest: bool,
) -> Result<(), Error> {
    // Before the call: writes sent from now on raise it again.
    let before = mapping.set_device_len(len);
    // A last page under writeback may make the object longer again as it ends.
    let may_grow = !at_rest && before > len && mapping.writeback.load(Ordering::Acquire) > 0;
    let op = IoOp::SetLen { len: Bytes(len) };
    let device = mapping.device.id;
    let result = call(
        task,
        device,
        mapping.object,
        op,
        Bytes::ZERO,
        Cause::DeviceMetadata,
    );
    // A write that was sent meanwhile may have ended before the device did this, or after.
    let raised = mapping.device_len() != len;
    if may_grow || raised || result.is_err() {
        mapping.forget_device_len();
    }
    result.map_err(Error::metadata)?;
    if len <= before {
        // Space beyond a length that was cut, or set again, may be gone. The part that it grew by
        // before had none.
        mapping.lose_space_behind(len);
    }
    mapping.note_completed();
    Ok(())
}

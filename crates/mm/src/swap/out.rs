//! On the way out: a batch of pages to the swap file.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Context, Env, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest, Signal, Task};
use frames::{Busy, Flags, FrameId};
use policy::dirty::DeviceIndex;
use policy::reclaim::{SwapSender, WhenFull};
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT};

use super::{Area, BACKOFF_DOUBLINGS, NONE, RETRY_AFTER};
use crate::cache::{Cache, add, sub};
use crate::registry::regions::Cursor;
use crate::vmstat::Item;
use crate::writeback::io::{self, Rotate};

/// The swap file has its slots for itself.
const ONLY: DeviceIndex = DeviceIndex(0);
/// Whose slot a request has (`IoRequest::cookie`).
const CALLERS: u64 = 0;
const BACKGROUND: u64 = 1;
/// A swap file that has ended no request for so long, with all of them out, hangs.
const STALLED: Nanos = Nanos::secs(5);
/// Before it is that late, nobody looks at the clock but who must.
const LONG: Nanos = Nanos::secs(4);
/// Most pages of a batch: what reclaim looks at in one turn.
pub(crate) const BATCH: usize = 32;

/// Pages that are under writeback and not sent yet.
pub(crate) struct SwapOut {
    /// Slot and frame.
    pages: [(u32, FrameId); BATCH],
    count: usize,
    cursor: Cursor,
}

impl SwapOut {
    pub(crate) fn new() -> Self {
        Self {
            pages: [(NONE, FrameId(0)); BATCH],
            count: 0,
            cursor: Cursor::new(),
        }
    }
}

impl<E: Env> Cache<E> {
    /// A dirty page that has a slot goes out: it is unmapped and under writeback from now on, and on its way once the
    /// caller, who gives the busy bit back first, calls `submit_swap_out`.
    ///
    /// # Panics
    /// If the page has no slot, or `out` holds a whole batch.
    pub(crate) fn begin_swap_out(&self, context: &impl Context, busy: &Busy, out: &mut SwapOut) {
        let frame = busy.frame();
        let slot = self.swap.slot(frame).load(Ordering::Relaxed);
        assert!(slot != NONE, "a page goes out to its slot");
        let owner = self.pages.table.owner(frame);
        let anon = out
            .cursor
            .region(&self.registry.regions, context, owner.file);
        let anon = anon.expect("a region ends after its pages");
        anon.pages.unmap(owner.index);
        self.pages.table.begin_writeback(busy, Flags::RECLAIM);
        if let Some(area) = self.swap.area() {
            add(&area.writeback, 1);
        }
        out.pages[out.count] = (slot, frame);
        out.count += 1;
    }

    /// Whether what is sent out now can go: one that does not wait for a request looks first.
    pub(crate) fn can_send_out(&self, context: &impl Context, sender: SwapSender) -> bool {
        let Some(area) = self.swap.area() else {
            return true;
        };
        self.options.reclaim.when_swap_full(sender) != WhenFull::Skip
            || area.requests.has_one(context, ONLY)
            || area.is_late(self.env.now())
    }

    /// Sends what `out` holds; pages in neighbouring slots go together. Where all requests are out, the law says what
    /// `sender` does.
    pub(crate) fn submit_swap_out(
        &self,
        task: &mut Task<'_, E>,
        out: &mut SwapOut,
        sender: SwapSender,
    ) {
        let Some(area) = self.swap.area() else {
            return;
        };
        let mut pages = &mut out.pages[..core::mem::take(&mut out.count)];
        pages.sort_unstable_by_key(|(slot, _)| *slot);
        while let Some((first, _)) = pages.first().copied() {
            let neighbours = |(at, (slot, _)): (usize, &(u32, FrameId))| {
                Some(*slot) == u32::try_from(at).ok().and_then(|at| first.checked_add(at))
            };
            let count = pages
                .iter()
                .enumerate()
                .take_while(|page| neighbours(*page))
                .count();
            let (run, rest) = pages.split_at_mut(count);
            pages = rest;
            match area.request(task, self, sender) {
                Some(mut request) => {
                    self.counters.add(Item::Pswpout, run.len() as u64);
                    request.frames.extend(run.iter().map(|(_, frame)| *frame));
                    request.device = area.device;
                    request.object = area.object;
                    request.op = IoOp::Write;
                    request.class = IoClass::Writeback;
                    request.offset = Bytes(u64::from(first) << PAGE_SHIFT);
                    request.on_done(Arc::clone(area) as Arc<dyn IoDone>);
                    area.moved_at.store(task.now().0, Ordering::Relaxed);
                    io::submit(task, request);
                }
                // It hangs, or the world ends: what was not sent is dirty again.
                None => area.take_back(self, run),
            }
        }
    }
}

impl<E: Env> IoDone for Area<E> {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        io::emit_completed(&cache, cache.env.now(), &request, result.is_err());
        match request.op {
            IoOp::Read => self.read_done(&cache, context, request, result),
            _ => self.write_done(&cache, context, request, result),
        }
    }
}

impl<E: Env> Area<E> {
    /// A slot for a request, to be waited for as long as others end. One that blocks and does not check itself leaves when
    /// another has found out that none does.
    fn request(
        &self,
        task: &mut Task<'_, E>,
        cache: &Cache<E>,
        sender: SwapSender,
    ) -> Option<Box<IoRequest>> {
        let (requests, pool) = match &self.background {
            Some(own) if sender == SwapSender::Background => (own, BACKGROUND),
            _ => (&self.requests, CALLERS),
        };
        let labelled = |mut request: Box<IoRequest>| {
            request.cookie[0] = pool;
            request
        };
        let when_full = cache.options.reclaim.when_swap_full(sender);
        let stalled = || self.stalled.load(Ordering::Relaxed);
        loop {
            if stalled() {
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
            match requests.take_while(task, ONLY, deadline, || !stalled()) {
                Ok(Some(request)) => return Some(labelled(request)),
                Ok(None) => self.look(task.now()),
                Err(_) => return None,
            }
        }
    }

    /// When the swap file hangs if no request goes out or ends before.
    fn late_at(&self) -> Instant {
        Instant(self.moved_at.load(Ordering::Relaxed)) + STALLED
    }

    fn is_late(&self, now: Instant) -> bool {
        now >= self.late_at()
    }

    /// Somebody found no request: perhaps the swap file hangs.
    fn look(&self, now: Instant) {
        if self.is_late(now) && !self.stalled.swap(true, Ordering::AcqRel) {
            // The last write may just have ended: nobody else would say so, for none goes out while it hangs.
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

    /// Pages that were to go out and were not sent.
    fn take_back(&self, cache: &Cache<E>, run: &[(u32, FrameId)]) {
        let context = Interrupt::new();
        let mut frames = [FrameId(0); BATCH];
        for (at, (_, frame)) in frames.iter_mut().zip(run) {
            self.end_page(cache, &context, *frame, true, &mut Rotate::new());
            *at = *frame;
        }
        let frames = &frames[..run.len()];
        sub(&self.writeback, run.len() as u64);
        cache.wake_busy(frames, Signal::PageUnlocked);
        cache.wrote_back(&context, frames, &[]);
    }

    fn write_done(
        &self,
        cache: &Cache<E>,
        context: &Interrupt,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let pages = request.frames.len() as u64;
        self.moved_at.store(cache.env.now().0, Ordering::Relaxed);
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
                self.errors.lock(context).retry_at = cache.env.now() + pause;
            }
        }
        let mut rotate = Rotate::new();
        for frame in &request.frames {
            self.end_page(cache, context, *frame, result.is_err(), &mut rotate);
        }
        sub(&self.writeback, pages);
        cache.wake_busy(&request.frames, Signal::PageWritten);
        cache.wrote_back(context, &request.frames, rotate.frames());
        let requests = match &self.background {
            Some(own) if request.cookie[0] == BACKGROUND => own,
            _ => &self.requests,
        };
        requests.put(context, ONLY, request);
    }

    /// The write of a page has ended.
    fn end_page(
        &self,
        cache: &Cache<E>,
        context: &Interrupt,
        frame: FrameId,
        failed: bool,
        rotate: &mut Rotate,
    ) {
        // While it is under writeback, the slot is ours to give up.
        if failed {
            self.put_slot_of(cache, context, frame);
        }
        let before = cache.pages.table.end_writeback(frame, failed);
        if before.has(Flags::ORPHAN) {
            // Given back by its owner meanwhile.
            self.put_slot_of(cache, context, frame);
            if cache.pages.table.take_orphan(frame) {
                cache.memory.put(context, &[frame]);
            }
            return;
        }
        rotate.note(frame, before, failed);
    }

    fn put_slot_of(&self, cache: &Cache<E>, context: &Interrupt, frame: FrameId) {
        let slot = cache.swap.slot(frame).swap(NONE, Ordering::Relaxed);
        if slot != NONE {
            sub(&self.kept, 1);
            self.put(context, &[slot]);
        }
    }
}

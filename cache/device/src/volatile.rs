//! A device with a volatile write cache: pages that are not flushed may be lost, in any order.
//!
//! A write is copied into frames of the wrapper's own and ends Ok at once; the inner device gets it
//! when a flush asks for it, when the cache needs room, or never, if a crash comes first. So the
//! writes of an application reach the medium reordered and with holes, as on a disk whose power
//! fails.
//!
//! ```text
//!              write                 destage                ok, nobody reads
//!   (no entry) ─────> Dirty ─────────────────────> Cleaning ──────────────────> (no entry)
//!                       ^────────── failed ───────────┘  └─ ok, being read ──> Clean ──┘
//!   crash: each Dirty page is kept (and destaged) or dropped, by chance
//! ```
//!
//! Writes, flushes and the other operations go through one queue in order of arrival. A flush waits
//! at its head until no page of its object is Dirty or Cleaning, then goes down; later writes may
//! pass it then. An operation that changes length or space (or a write larger than the cache) does
//! the same and holds the queue until it has ended, so that it keeps its place among the writes.
//! Reads never queue; pages of the cache go over what the inner device read.
//!
//! Invariants
//!   1. A write that ended Ok before a flush of its object that ended Ok came in is on the inner
//!      device when that flush ends, whatever crashes later.
//!   2. A page that is Cleaning is not written to: the write waits.
//!   3. A failed destage leaves the page Dirty and fails the operation at the head of the queue.
//!   4. Frames: the wrapper's own, given at the start; one page each.
//!
//! Deviations from real disks: pages are kept or dropped whole (no torn sectors within a page); a
//! change of length is durable when it ends; a crash is seen by this wrapper alone (what the inner
//! device has, it keeps).
//!
//! Concurrency: as `Slow`: one caller at a time runs `work`, an action at a time.
//!
//! Source: docs/adr/0009: what a sync acknowledged is not lost.

mod pages;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use env::{
    Device, DeviceId, DeviceInfo, Host, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest,
    ObjectId,
};
use frames::FrameId;
use policy::units::{Bytes, Nanos, PAGE_SIZE};

use crate::chance::{Chance, Odds};
use crate::{HELD_MAX, TOO_MANY, complete_later, take_lock};
use pages::Pages;

/// Copies the contents of frames on behalf of a device, without a right to either: `to` is the
/// wrapper's own; `from` is under writeback, and a writer beside it leaves old or new bytes.
/// For reads the other way round.
pub trait FrameCopy: Send + Sync + 'static {
    /// Copies a whole frame.
    fn copy_frame(&self, to: FrameId, from: FrameId);
}

/// The options of a volatile cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolatileOptions {
    /// All chance follows from it.
    pub seed: u64,
    /// Time of a write into the cache, and of a read that the cache has whole.
    pub latency: Nanos,
    /// Odds of each unflushed page to survive a crash.
    pub survives: Odds,
}

impl Default for VolatileOptions {
    fn default() -> Self {
        let survives = Odds::from_ppb(500_000_000).expect("a half is a probability");
        Self {
            seed: 0,
            latency: Nanos::micros(20),
            survives,
        }
    }
}

/// Pages in one request to the inner device (1 MiB, as the cache above sends).
const RUN_MAX: usize = 256;
/// Requests to the inner device at once.
const DESTAGES: usize = 8;

/// Notes on requests to the inner device.
const NOTE_DESTAGE: u64 = u64::MAX;
const NOTE_FLUSH: u64 = u64::MAX - 1;
const NOTE_BARRIER: u64 = u64::MAX - 2;

/// A device whose writes are volatile until flushed.
pub struct Volatile {
    me: Weak<Self>,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    copy: Arc<dyn FrameCopy>,
    options: VolatileOptions,
    state: Mutex<State>,
}

struct State {
    pages: Pages,
    queue: VecDeque<Box<IoRequest>>,
    /// An operation that holds the queue is with the inner device.
    barrier: bool,
    /// A destage failed: for the operation at the head.
    failed: Option<IoError>,
    /// Requests for destaging that are not in use.
    #[expect(
        clippy::vec_box,
        reason = "a request is boxed once and used again and again"
    )]
    pool: Vec<Box<IoRequest>>,
    /// Pages that reads under way have taken note of, by place.
    reads: Vec<Option<Vec<u64>>>,
    chance: Chance,
    device: DeviceId,
    crashed: bool,
    working: bool,
}

/// One thing to do outside the lock.
enum Action {
    EndLater(Box<IoRequest>, Result<(), IoError>),
    Submit(Box<IoRequest>, u64),
}

impl Volatile {
    /// Puts a cache of `frames` before `inner`.
    ///
    /// # Panics
    /// Without frames.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Device>,
        host: Arc<dyn Host>,
        copy: Arc<dyn FrameCopy>,
        frames: Vec<FrameId>,
        options: VolatileOptions,
    ) -> Arc<Self> {
        assert!(!frames.is_empty(), "a cache has at least one frame");
        let state = State {
            pages: Pages::new(frames),
            queue: VecDeque::new(),
            barrier: false,
            failed: None,
            pool: (0..DESTAGES)
                .map(|_| IoRequest::with_room(RUN_MAX))
                .collect(),
            reads: Vec::new(),
            chance: Chance::new(options.seed),
            device: DeviceId(0),
            crashed: false,
            working: false,
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            host,
            copy,
            options,
            state: Mutex::new(state),
        })
    }

    /// Pages that a crash now could lose.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        take_lock(&self.state).pages.unsynced()
    }

    /// The power fails: of the unflushed pages some are lost, by chance, the others reach the inner
    /// device; queued and later requests end with `Lost`. Answers how many pages were lost.
    pub fn crash(&self) -> usize {
        let lost = {
            let mut state = take_lock(&self.state);
            let State {
                pages,
                chance,
                crashed,
                ..
            } = &mut *state;
            *crashed = true;
            pages.drop_dirty(|| !chance.happens(self.options.survives))
        };
        self.work();
        lost
    }

    /// True if the cache holds nothing that the inner device does not have.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        take_lock(&self.state).pages.unsynced() == 0
    }

    /// The power is back, the cache is empty.
    ///
    /// # Panics
    /// If the cache is not settled yet.
    pub fn restart(&self) {
        let mut state = take_lock(&self.state);
        assert_eq!(
            state.pages.unsynced(),
            0,
            "the survivors of a crash reach the device first"
        );
        state.crashed = false;
        state.failed = None;
    }

    /// For the shutdown: queued requests end with `Cancelled`.
    pub fn cancel(&self, context: &Interrupt) {
        let queue = core::mem::take(&mut take_lock(&self.state).queue);
        for request in queue {
            request.complete(context, Err(IoError::Cancelled));
        }
    }

    /// Does what there is to do, unless somebody already does.
    fn work(&self) {
        {
            let mut state = take_lock(&self.state);
            if state.working {
                return;
            }
            state.working = true;
        }
        loop {
            let action = {
                let mut state = take_lock(&self.state);
                let action = state.next_action(&*self.copy);
                state.working = action.is_some();
                action
            };
            match action {
                Some(Action::EndLater(request, result)) => {
                    complete_later(&self.host, self.options.latency, request, result);
                }
                Some(Action::Submit(mut request, note)) => {
                    if note == NOTE_DESTAGE {
                        request.submitted = self.host.now();
                    }
                    self.send(request, note);
                }
                None => return,
            }
        }
    }

    fn send(&self, mut request: Box<IoRequest>, note: u64) {
        let handler = self
            .me
            .upgrade()
            .expect("a device in use is held by its user");
        request.on_done_noted(handler, note);
        self.inner.submit(request);
    }

    /// Serves a read from the cache, or from below with the cache's pages over it.
    fn read(&self, request: Box<IoRequest>) {
        let (first, object) = (request.offset.0 / PAGE_SIZE, request.object);
        let place = {
            let mut state = take_lock(&self.state);
            let held: Vec<u64> = (first..first + request.pages().0)
                .filter(|page| state.pages.is_unsynced(object, *page))
                .collect();
            if held.len() == request.frames.len() && !held.is_empty() {
                state.overlay(&*self.copy, &request, &held);
                drop(state);
                complete_later(&self.host, self.options.latency, request, Ok(()));
                return;
            }
            state.take_note(object, held)
        };
        match place {
            None => self.inner.submit(request),
            Some(place) => self.send(request, place),
        }
    }

    fn on_read_done(
        &self,
        context: &Interrupt,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let place = usize::try_from(request.note()).expect("a note of a read is a place");
        {
            let mut state = take_lock(&self.state);
            let held = state.reads[place]
                .take()
                .expect("the read took note of pages");
            if result.is_ok() {
                state.overlay(&*self.copy, &request, &held);
            }
            for page in held {
                state.pages.end_read(request.object, page);
            }
        }
        request.complete(context, self.seen_from_above(result));
        self.work();
    }

    /// A request that was under way when the power failed is not answered with success.
    fn seen_from_above(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        if take_lock(&self.state).crashed {
            Err(IoError::Lost)
        } else {
            result
        }
    }
}

impl State {
    fn next_action(&mut self, copy: &dyn FrameCopy) -> Option<Action> {
        if self.crashed {
            if let Some(request) = self.queue.pop_front() {
                return Some(Action::EndLater(request, Err(IoError::Lost)));
            }
            return self.destage(None);
        }
        if self.barrier {
            return None;
        }
        let head = self.queue.front()?;
        self.device = head.device;
        let (object, op) = (head.object, head.op);
        let fits = head.frames.len() <= self.pages.capacity();
        if let Some(error) = self.failed.take() {
            let request = self.queue.pop_front().expect("looked at above");
            return Some(Action::EndLater(request, Err(error)));
        }
        if op == IoOp::Write && fits {
            return self.accept_write(copy);
        }
        if let Some(action) = self.destage(Some(object)) {
            return Some(action);
        }
        if self.pages.has_unsynced(object) {
            return None;
        }
        let request = self.queue.pop_front().expect("looked at above");
        self.barrier = op != IoOp::Flush;
        let note = if op == IoOp::Flush {
            NOTE_FLUSH
        } else {
            NOTE_BARRIER
        };
        Some(Action::Submit(request, note))
    }

    /// Takes the write at the head into the cache, or makes room for it, or waits.
    fn accept_write(&mut self, copy: &dyn FrameCopy) -> Option<Action> {
        let head = self.queue.front().expect("the caller looked at it");
        let first = head.offset.0 / PAGE_SIZE;
        let pages = first..first + head.pages().0;
        if self.pages.any_cleaning(head.object, pages.clone()) {
            return None;
        }
        let lacking = self.pages.lacking(head.object, pages.clone());
        if lacking > 0 {
            // Pages on their way down make room by themselves.
            return if lacking > self.pages.cleaning() {
                self.destage(None)
            } else {
                None
            };
        }
        let request = self.queue.pop_front().expect("looked at above");
        for (page, from) in pages.zip(&request.frames) {
            let to = self.pages.write(request.object, page);
            copy.copy_frame(to, *from);
        }
        Some(Action::EndLater(request, Ok(())))
    }

    /// Sends a run of dirty pages (of `object`, or of any) down, if there are any and a request is
    /// free.
    fn destage(&mut self, object: Option<ObjectId>) -> Option<Action> {
        let mut request = self.pool.pop()?;
        request.frames.clear();
        let skip = self.chance.draw();
        let Some((object, page)) = self
            .pages
            .take_run(object, skip, RUN_MAX, &mut request.frames)
        else {
            self.pool.push(request);
            return None;
        };
        request.device = self.device;
        request.object = object;
        request.op = IoOp::Write;
        request.class = IoClass::Writeback;
        request.offset = Bytes(page * PAGE_SIZE);
        Some(Action::Submit(request, NOTE_DESTAGE))
    }

    fn end_destage(&mut self, request: Box<IoRequest>, result: Result<(), IoError>) {
        let first = request.offset.0 / PAGE_SIZE;
        for page in first..first + request.pages().0 {
            // After a crash nobody tries again: the page is lost like the others.
            let again = result.is_err() && !self.crashed;
            self.pages.end_cleaning(request.object, page, again);
        }
        if let Err(error) = result
            && !self.queue.is_empty()
        {
            self.failed = Some(error);
        }
        self.pool.push(request);
    }

    fn overlay(&self, copy: &dyn FrameCopy, request: &IoRequest, held: &[u64]) {
        let first = request.offset.0 / PAGE_SIZE;
        for page in held {
            let at = usize::try_from(page - first).expect("a page of the request");
            if let Some(from) = self.pages.frame(request.object, *page) {
                copy.copy_frame(request.frames[at], from);
            }
        }
    }

    /// Keeps the pages in the cache until the read has ended. None: there are none.
    fn take_note(&mut self, object: ObjectId, held: Vec<u64>) -> Option<u64> {
        if held.is_empty() {
            return None;
        }
        for page in &held {
            self.pages.begin_read(object, *page);
        }
        let place = self
            .reads
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.reads.len());
        if place == self.reads.len() {
            self.reads.push(None);
        }
        self.reads[place] = Some(held);
        Some(place as u64)
    }
}

impl Device for Volatile {
    fn submit(&self, request: Box<IoRequest>) {
        let refused = {
            let state = take_lock(&self.state);
            if state.crashed {
                Some(IoError::Lost)
            } else if state.queue.len() >= HELD_MAX {
                Some(TOO_MANY)
            } else {
                None
            }
        };
        if let Some(error) = refused {
            complete_later(&self.host, Nanos::ZERO, request, Err(error));
        } else if request.op == IoOp::Read {
            self.read(request);
        } else {
            take_lock(&self.state).queue.push_back(request);
            self.work();
        }
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

impl IoDone for Volatile {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        match request.note() {
            NOTE_DESTAGE => {
                take_lock(&self.state).end_destage(request, result);
                self.work();
            }
            NOTE_FLUSH => request.complete(context, self.seen_from_above(result)),
            NOTE_BARRIER => {
                take_lock(&self.state).barrier = false;
                request.complete(context, self.seen_from_above(result));
                self.work();
            }
            _ => self.on_read_done(context, request, result),
        }
    }
}

#[cfg(test)]
mod tests;

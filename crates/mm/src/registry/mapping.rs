//! One file as the cache sees it: its index, size, dirty state, errors.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use env::{Cause, Context, Env, IoError, Lock, LockClass, ObjectId, Signal, Task, WaitQueue};
use frames::{NodePool, Owner, PageIndex, Slot, WriteToken};
use policy::units::{Bytes, PAGE_SIZE};

use crate::Error;
use crate::cache::Cache;
use crate::registry::device::DeviceState;

/// The length of the device's object has to be set before it is known again.
pub(crate) const LEN_UNKNOWN: u64 = u64::MAX;

/// A file in the cache.
pub(crate) struct Mapping<E: Env> {
    pub(crate) id: u32,
    /// No other file of the cache had or will have it.
    pub(crate) serial: u64,
    pub(crate) cache: Weak<Cache<E>>,
    pub(crate) device: Arc<DeviceState<E>>,
    pub(crate) object: ObjectId,
    pub(crate) index: PageIndex,
    pub(crate) token: Lock<WriteToken>,
    /// True length in bytes: what readers see.
    size: AtomicU64,
    /// Length that the device's object has been given by writes (a multiple of the page), or by
    /// `SetLen`; `LEN_UNKNOWN` after a failure, or where a write under way may have changed it.
    pub(crate) device_len: AtomicU64,
    /// Space asked for ahead on the device.
    pub(crate) allocated: AtomicU64,
    pub(crate) gate: Gate,
    /// Pages dirty, and under writeback.
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU32,
    pub(crate) writeback_wait: WaitQueue,
    /// On one of the device's lists of dirty files.
    pub(crate) queued: AtomicBool,
    /// Syncs that are writing the file: the flusher leaves it to them, so that the device sees one
    /// stream and not two.
    pub(crate) syncing: AtomicU32,
    /// Syncs of the whole cache that are in it. They have no handle: whoever takes the file out waits until they have left, for
    /// its object may be another's then.
    visits: AtomicU32,
    left: WaitQueue,
    /// Where the last slice of writeback stopped.
    pub(crate) cursor: AtomicU32,
    errors: Lock<Errors>,
    /// Bumped by every failed write; compared by holders without the lock.
    error_seq: AtomicU64,
    /// Writes and changes of length that the device has completed, and how many of them the last
    /// good flush covers.
    completed: AtomicU64,
    flushed: AtomicU64,
    /// A truncation is under way, or could not do all of it: that comes before the file grows again.
    pub(crate) cut_owed: AtomicBool,
    /// The file is being taken out of the cache, or was: no page comes in any more.
    closed: AtomicBool,
}

/// What went wrong lately.
struct Errors {
    last_write: Option<(Bytes, IoError)>,
    last_read: Option<IoError>,
}

impl<E: Env> Mapping<E> {
    pub(crate) fn new(
        (id, serial): (u32, u64),
        cache: Weak<Cache<E>>,
        device: Arc<DeviceState<E>>,
        object: ObjectId,
        len: Bytes,
    ) -> Self {
        let (index, token) = PageIndex::new();
        Self {
            id,
            serial,
            cache,
            device,
            object,
            index,
            token: Lock::new(LockClass::Index, token),
            size: AtomicU64::new(len.0),
            device_len: AtomicU64::new(len.0),
            allocated: AtomicU64::new(len.0),
            gate: Gate::new(),
            dirty: AtomicU64::new(0),
            writeback: AtomicU32::new(0),
            writeback_wait: WaitQueue::new(),
            queued: AtomicBool::new(false),
            syncing: AtomicU32::new(0),
            visits: AtomicU32::new(0),
            left: WaitQueue::new(),
            cursor: AtomicU32::new(0),
            errors: Lock::new(
                LockClass::Leaf,
                Errors {
                    last_write: None,
                    last_read: None,
                },
            ),
            error_seq: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            cut_owed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// What stands at a page, exactly. `index.get` needs no lock but may miss a page that is there.
    pub(crate) fn lookup(&self, context: &impl Context, pool: &NodePool, page: u32) -> Slot {
        let mut token = self.token.lock(context);
        self.index.writer(pool, &mut token).get(page)
    }

    /// The device has completed something that is not durable before the next flush.
    pub(crate) fn note_completed(&self) {
        self.completed.fetch_add(1, Ordering::AcqRel);
    }

    /// What a flush that begins now will cover; none: the last good one covers it all.
    pub(crate) fn unflushed(&self) -> Option<u64> {
        let completed = self.completed.load(Ordering::Acquire);
        (self.flushed.load(Ordering::Acquire) < completed).then_some(completed)
    }

    /// A flush that was to cover `completed` went well.
    pub(crate) fn note_flushed(&self, completed: u64) {
        self.flushed.fetch_max(completed, Ordering::AcqRel);
    }

    pub(crate) fn owner(&self, index: u32) -> Owner {
        Owner {
            file: self.id,
            index,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Pages that may be read in: up to its end, and none of a closed file.
    pub(crate) fn pages(&self) -> u64 {
        if self.is_closed() {
            0
        } else {
            self.size().div_ceil(PAGE_SIZE)
        }
    }

    /// Goes in by the gate, for a write; `Cancelled`: the cache ends, or the file in it.
    pub(crate) fn enter(&self, task: &mut Task<'_, E>, cache: &Cache<E>) -> Result<(), Error> {
        self.gate.enter(task)?;
        self.takes_changes(cache).inspect_err(|_| self.gate.leave())
    }

    /// Shuts the gate, for a change of the file's length, space or holes; `Cancelled`: the same.
    pub(crate) fn shut(&self, task: &mut Task<'_, E>, cache: &Cache<E>) -> Result<(), Error> {
        self.gate.shut(task)?;
        self.takes_changes(cache).inspect_err(|_| self.gate.open())
    }

    /// Behind the gate: a shutdown waits for whoever went in before.
    pub(crate) fn takes_changes(&self, cache: &Cache<E>) -> Result<(), Error> {
        if cache.registry.closing.load(Ordering::SeqCst) || self.is_closed() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Looked at behind the gate by who is about to put a page in, and under the index lock by readers.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Under the gate, before its pages are taken out; not after all, if that failed.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Ordering::Release);
    }

    /// A sync of the whole cache comes in. Under the lock of the table of files, where it still stands.
    pub(crate) fn visit(&self) {
        self.visits.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_visit(&self) {
        if self.visits.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.left.wake_all(Signal::SyncEnded);
        }
    }

    pub(crate) fn is_visited(&self) -> bool {
        self.visits.load(Ordering::Acquire) > 0
    }

    /// Waits until no sync of the whole cache is in it.
    pub(crate) fn wait_for_visits(&self, task: &mut Task<'_, E>) -> Result<(), Error> {
        Error::after(task.wait_while(&self.left, Cause::DeviceFlush, None, |_| self.is_visited()))
    }

    /// The file now reaches at least to `end`.
    pub(crate) fn extend_to(&self, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    /// Truncation, under the gate.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    pub(crate) fn note_write_error(&self, context: &impl Context, at: Bytes, error: IoError) {
        self.errors.lock(context).last_write = Some((at, error));
        self.error_seq.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn note_read_error(&self, context: &impl Context, error: IoError) {
        self.errors.lock(context).last_read = Some(error);
    }

    pub(crate) fn read_error(&self, context: &impl Context) -> IoError {
        self.errors.lock(context).last_read.unwrap_or(IoError::Lost)
    }

    pub(crate) fn error_seq(&self) -> u64 {
        self.error_seq.load(Ordering::Acquire)
    }

    pub(crate) fn write_error(&self, context: &impl Context) -> Error {
        let (offset, cause) = self
            .errors
            .lock(context)
            .last_write
            .unwrap_or((Bytes::ZERO, IoError::Lost));
        Error::WriteFailed { offset, cause }
    }
}

/// Many writers, or one truncation. Held across waits, so not a `Lock`: a counter and a queue.
pub(crate) struct Gate {
    /// Writers inside; `TRUNCATING` when a truncation is.
    state: AtomicU32,
    /// Writers who found it shut and have not gone in yet.
    turned_away: AtomicU32,
    wait: WaitQueue,
}

const TRUNCATING: u32 = 1 << 31;

impl Gate {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            turned_away: AtomicU32::new(0),
            wait: WaitQueue::new(),
        }
    }

    pub(crate) fn try_enter(&self) -> bool {
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (state & TRUNCATING == 0).then_some(state + 1)
            })
            .is_ok()
    }

    /// Enters as a writer.
    pub(crate) fn enter<E: Env>(&self, task: &mut Task<'_, E>) -> Result<(), Error> {
        if self.try_enter() {
            return Ok(());
        }
        self.turned_away.fetch_add(1, Ordering::AcqRel);
        let result = self.wait_and_enter(task);
        if self.turned_away.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wait.wake_all(Signal::GateOpened);
        }
        result
    }

    fn wait_and_enter<E: Env>(&self, task: &mut Task<'_, E>) -> Result<(), Error> {
        while !self.try_enter() {
            Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
                self.state.load(Ordering::Relaxed) & TRUNCATING != 0
            }))?;
        }
        Ok(())
    }

    /// Waits until those who were turned away have gone in: who has opened the gate and is to shut it again at once would
    /// never leave them a turn.
    pub(crate) fn let_in<E: Env>(&self, task: &mut Task<'_, E>) -> Result<(), Error> {
        Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
            self.turned_away.load(Ordering::Acquire) > 0 && !self.is_shut()
        }))
    }

    pub(crate) fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::Release) & !TRUNCATING == 1 {
            self.wait.wake_all(Signal::GateOpened);
        }
    }

    /// Whether a truncation, or a sync that settles the length, is inside or wants to be.
    pub(crate) fn is_shut(&self) -> bool {
        self.state.load(Ordering::Acquire) & TRUNCATING != 0
    }

    /// Shuts the gate unless somebody is inside.
    pub(crate) fn try_shut(&self) -> bool {
        self.state
            .compare_exchange(0, TRUNCATING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Shuts the gate to writers and waits until the last one is out.
    pub(crate) fn shut<E: Env>(&self, task: &mut Task<'_, E>) -> Result<(), Error> {
        loop {
            let before = self.state.fetch_or(TRUNCATING, Ordering::Acquire);
            if before & TRUNCATING == 0 {
                break;
            }
            Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
                self.state.load(Ordering::Relaxed) & TRUNCATING != 0
            }))?;
        }
        let inside = task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
            self.state.load(Ordering::Acquire) != TRUNCATING
        });
        Error::after(inside).inspect_err(|_| self.open())
    }

    pub(crate) fn open(&self) {
        self.state.fetch_and(!TRUNCATING, Ordering::Release);
        self.wait.wake_all(Signal::GateOpened);
    }
}

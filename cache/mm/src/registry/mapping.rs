//! One file as the cache sees it: its index, size, dirty state, errors.
//!
//! Its length, its space and its end change in few places, and only for tasks that the gate has let
//! do it (`gate`):
//!
//! | | changes | by |
//! |---|---|---|
//! | size | grows; is set | a writer inside the gate; the task that has shut it |
//! | space on the device | grows; shrinks with the object | inside or behind the shut gate; behind it |
//! | length of the object | set; raised by writes on their way; unknown after a failure | behind the shut gate; flushers; completions |
//! | a cut that is owed | owed, and paid | behind the shut gate |
//! | closed | | behind the shut gate, before its pages are taken out |

use std::sync::{Arc, OnceLock, Weak};

use env::{
    Cause, Context, Interrupt, IoDone, IoError, IoRequest, Lock, LockClass, LockGuard, ObjectId,
    Signal, Task, WaitQueue,
};
use frames::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use frames::{FrameId, NodePool, Owner, PageIndex, Slot, Tag, WriteToken};
use policy::place::mobility::Migrates;
use policy::units::{Bytes, PAGE_SIZE, Pages};

use crate::Error;
use crate::registry::Registry;
use crate::registry::ahead::WriteAhead;
use crate::registry::completions::Completions;
use crate::registry::device::DeviceState;
use crate::registry::gate::{Gate, GateGuard, ShutGate};
use crate::registry::page_map::PageMap;
use crate::registry::reads::Reads;
use crate::registry::rounds::Rounds;

/// The length of the device's object has to be set before it is known again.
const LEN_UNKNOWN: u64 = u64::MAX;

/// The number, among what a flush covers, of the content that a file had when it was opened.
const OPENED: u64 = 1;

/// A file in the cache.
pub struct Mapping {
    /// Its number.
    pub id: u32,
    /// No other file of the cache had or will have it.
    pub(crate) serial: u64,
    completions: Weak<dyn Completions<Self>>,
    pub(crate) device: Arc<DeviceState>,
    pub(crate) object: ObjectId,
    pub(crate) index: PageIndex,
    pub(crate) token: Lock<WriteToken>,
    /// Which of its pages are mapped, if it is.
    map: Lock<Option<Arc<PageMap>>>,
    /// A program uses its pages by a map of its own.
    live: AtomicBool,
    /// True length in bytes: what readers see.
    size: AtomicU64,
    /// Length that the device's object has been given by writes (a multiple of `unit`), or by
    /// `SetLen`; `LEN_UNKNOWN` after a failure, or where a write under way may have changed it.
    device_len: AtomicU64,
    /// Writes may end at a multiple of this, bytes: a page, where nothing is known of the device.
    unit: AtomicU64,
    /// Space asked for ahead on the device.
    allocated: AtomicU64,
    gate: Gate,
    /// Pages dirty, and under writeback.
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU32,
    pub(crate) writeback_wait: WaitQueue,
    /// On one of the device's lists of dirty files.
    pub(crate) queued: AtomicBool,
    /// Syncs that are writing the file: the flusher leaves it to them, so that the device sees one
    /// stream and not two.
    pub(crate) syncing: AtomicU32,
    /// Syncs of the whole cache that are in it. They have no handle: a task that takes the file out
    /// waits until they have left, for its object may be another's then.
    visits: AtomicU32,
    left: WaitQueue,
    /// The log that its pages wait for, once it follows one.
    ahead: OnceLock<Arc<WriteAhead>>,
    /// Syncs of parts of it that are carried out together, and those of all of it: these may have
    /// to wait for a page that no other one wants.
    rounds: OnceLock<Box<[Rounds; 2]>>,
    /// A flush of it is under way, and tasks that wait for its end.
    pub(crate) flushing: AtomicBool,
    pub(crate) flush_wait: WaitQueue,
    /// The end of the last slice of writeback.
    pub(crate) cursor: AtomicU32,
    /// Most pages of a slice, beside what the law says.
    pub(crate) slice_most: AtomicU64,
    errors: Lock<Errors>,
    /// Bumped by every failed write; compared by holders without the lock.
    error_seq: AtomicU64,
    /// Writes and changes of length that the device has completed, and how many of them the last
    /// good flush covers. The content that was there when the file was opened counts as one
    /// (`OPENED`): the program that wrote it may have ended without a flush. So does the making of
    /// an empty file, which may be this open's.
    completed: AtomicU64,
    flushed: AtomicU64,
    /// A truncation is under way, or could not do all of it: that comes before the file grows
    /// again.
    cut_owed: AtomicBool,
    /// The file is being taken out of the cache, or was: no page comes in any more.
    closed: AtomicBool,
    /// Handles that have ended, and how many of them have nobody behind the gate any more.
    ended: AtomicU64,
    out: AtomicU64,
    /// Pages that calls to read it asked for, and those of them that were not in memory.
    read: Reads,
    missed: AtomicU64,
}

/// The recent errors.
struct Errors {
    last_write: Option<(Bytes, IoError)>,
    last_read: Option<IoError>,
}

impl Mapping {
    /// The ability of its device to move its dirty pages.
    pub fn migrates(&self) -> Migrates {
        self.device.options.migrates
    }

    pub(crate) fn new(
        (id, serial): (u32, u64),
        completions: Weak<dyn Completions<Self>>,
        device: Arc<DeviceState>,
        object: ObjectId,
        len: Bytes,
    ) -> Self {
        let (index, token) = PageIndex::new();
        Self {
            id,
            serial,
            completions,
            device,
            object,
            index,
            token: Lock::new(LockClass::Index, token),
            map: Lock::new(LockClass::Leaf, None),
            live: AtomicBool::new(false),
            size: AtomicU64::new(len.0),
            device_len: AtomicU64::new(len.0),
            unit: AtomicU64::new(PAGE_SIZE),
            allocated: AtomicU64::new(len.0),
            gate: Gate::default(),
            dirty: AtomicU64::new(0),
            writeback: AtomicU32::new(0),
            writeback_wait: WaitQueue::new(),
            queued: AtomicBool::new(false),
            syncing: AtomicU32::new(0),
            visits: AtomicU32::new(0),
            left: WaitQueue::new(),
            ahead: OnceLock::new(),
            rounds: OnceLock::new(),
            flushing: AtomicBool::new(false),
            flush_wait: WaitQueue::new(),
            cursor: AtomicU32::new(0),
            slice_most: AtomicU64::new(u64::MAX),
            errors: Lock::new(
                LockClass::Leaf,
                Errors {
                    last_write: None,
                    last_read: None,
                },
            ),
            error_seq: AtomicU64::new(0),
            completed: AtomicU64::new(OPENED + u64::from(len.is_zero())),
            flushed: AtomicU64::new(0),
            cut_owed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            out: AtomicU64::new(0),
            read: Reads::default(),
            missed: AtomicU64::new(0),
        }
    }

    /// The rounds of syncs of all of it, or of its parts. Most files are synced by nobody but the
    /// task that closes them.
    pub(crate) fn rounds(&self, is_whole: bool) -> &Rounds {
        &self.rounds.get_or_init(Box::default)[usize::from(is_whole)]
    }

    /// The log that its pages wait for.
    pub(crate) fn ahead(&self) -> Option<&Arc<WriteAhead>> {
        self.ahead.get()
    }

    /// Its pages wait for `log` from now on; false: they wait for another one.
    pub(crate) fn follow(&self, context: &impl Context, log: &Arc<WriteAhead>) -> bool {
        let own = self.ahead.get_or_init(|| Arc::clone(log));
        log.follow(context, &self.device);
        Arc::ptr_eq(own, log)
    }

    /// The log that a page waits for, and its number.
    pub(crate) fn held_by(
        &self,
        context: &impl Context,
        page: u32,
    ) -> Option<(&Arc<WriteAhead>, u64)> {
        let log = self.ahead()?;
        let lsn = log.held_by(context, (self.serial, page))?;
        Some((log, lsn))
    }

    /// A call has read or pinned `pages` pages, of which `missed` were not in memory.
    #[inline]
    pub(crate) fn note_read(&self, pages: u64, missed: Pages) {
        self.read.add(pages);
        if !missed.is_zero() {
            self.missed.fetch_add(missed.0, Ordering::Relaxed);
        }
    }

    /// The pages that readers asked for, and those of them not in memory.
    pub(crate) fn reads(&self) -> (Pages, Pages) {
        let missed = self.missed.load(Ordering::Relaxed);
        (Pages(self.read.all()), Pages(missed))
    }

    /// The entry of a page, exactly. `index.get` needs no lock but may miss a page that is there.
    pub(crate) fn lookup(&self, context: &impl Context, pool: &NodePool, page: u32) -> Slot {
        let mut token = self.token.lock(context);
        self.index.writer(pool, &mut token).get(page)
    }

    /// The first page in memory from `from` to `to`, and its frame.
    pub(crate) fn next_frame(
        &self,
        context: &impl Context,
        pool: &NodePool,
        (from, to): (u32, u32),
    ) -> Option<(u32, FrameId)> {
        let mut token = self.token.lock(context);
        self.index.writer(pool, &mut token).next_frame(from, to)
    }

    /// The same of those that have the tag.
    pub(crate) fn next_tagged(
        &self,
        context: &impl Context,
        pool: &NodePool,
        (from, to): (u32, u32),
        tag: Tag,
    ) -> Option<(u32, FrameId)> {
        let mut token = self.token.lock(context);
        self.index
            .writer(pool, &mut token)
            .next_tagged(from, to, tag)
    }

    /// Which of its pages are mapped; `None`: it is not mapped.
    pub(crate) fn page_map(&self, context: &impl Context) -> Option<Arc<PageMap>> {
        self.map.lock(context).clone()
    }

    /// True if a program uses its pages by a map of its own: then nobody else may keep one pinned.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Under the lock of the slot.
    pub(crate) fn note_live(&self, live: bool) {
        self.live.store(live, Ordering::Release);
    }

    /// The same, locked: for a task that maps the file or ends that.
    pub(crate) fn map_slot<'a>(
        &'a self,
        context: &'a impl Context,
    ) -> LockGuard<'a, Option<Arc<PageMap>>> {
        self.map.lock(context)
    }

    /// The device has completed something that is not durable before the next flush.
    pub(crate) fn note_completed(&self) {
        self.completed.fetch_add(1, Ordering::AcqRel);
    }

    /// The number that a flush that begins now will cover; none: the last good one covers it all.
    pub(crate) fn unflushed(&self) -> Option<u64> {
        let completed = self.completed.load(Ordering::Acquire);
        (self.flushed.load(Ordering::Acquire) < completed).then_some(completed)
    }

    /// The same at the file's end, which is no sync of what others wrote before it was opened.
    pub(crate) fn unflushed_at_end(&self) -> Option<u64> {
        self.unflushed().filter(|completed| *completed > OPENED)
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

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Goes in by the gate, for a write; `Cancelled`: the cache ends, or the file in it, or the
    /// client that the task acts for has ended.
    pub(crate) fn enter<'a>(
        self: &'a Arc<Self>,
        task: &mut Task<'_>,
        registry: &Registry,
    ) -> Result<GateGuard<'a>, Error> {
        let inside = GateGuard::enter(task, self)?;
        self.takes_changes_of(task, registry).map(|()| inside)
    }

    /// Shuts the gate, for a change of the file's length, space or holes; `Cancelled`: the same.
    pub(crate) fn shut<'a>(
        self: &'a Arc<Self>,
        task: &mut Task<'_>,
        registry: &Registry,
    ) -> Result<ShutGate<'a>, Error> {
        let shut = ShutGate::shut(task, self)?;
        self.takes_changes_of(task, registry).map(|()| shut)
    }

    /// Behind the gate: once it has been shut after a client's end, none of its tasks is there.
    fn takes_changes_of(&self, task: &Task<'_>, registry: &Registry) -> Result<(), Error> {
        if !task.is_wanted() {
            return Err(Error::Cancelled);
        }
        self.takes_changes(registry)
    }

    /// A handle has ended; its client says so already.
    pub(crate) fn note_ended(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until no task is behind the gate that acts for a client whose handle has ended by now.
    pub(crate) fn wait_for_the_ended(self: &Arc<Self>, task: &mut Task<'_>) -> Result<(), Error> {
        let ended = self.ended.load(Ordering::SeqCst);
        if self.out.load(Ordering::SeqCst) < ended {
            drop(ShutGate::shut(task, self)?);
            self.out.fetch_max(ended, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Shuts the gate unless somebody is inside, or the cache ends, or the file in it.
    pub(crate) fn try_shut<'a>(self: &'a Arc<Self>, registry: &Registry) -> Option<ShutGate<'a>> {
        let shut = ShutGate::try_shut(self)?;
        self.takes_changes(registry).is_ok().then_some(shut)
    }

    /// Shuts the gate also where no change is taken any more: for a sync, and for who ends the
    /// file.
    pub(crate) fn shut_at_the_end<'a>(
        self: &'a Arc<Self>,
        task: &mut Task<'_>,
    ) -> Result<ShutGate<'a>, Error> {
        ShutGate::shut(task, self)
    }

    /// True if somebody has shut the gate, or is about to.
    pub(crate) fn is_shut(&self) -> bool {
        self.gate.is_shut()
    }

    /// Waits until the writers that found the gate shut have gone in.
    pub(crate) fn let_in(&self, task: &mut Task<'_>) -> Result<(), Error> {
        self.gate.let_in(task)
    }

    /// Asked behind the gate: a shutdown waits for those that went in before.
    fn takes_changes(&self, registry: &Registry) -> Result<(), Error> {
        if registry.closing.load(Ordering::SeqCst) || self.is_closed() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Looked at behind the gate by a task that is about to put a page in, and under the index lock
    /// by readers.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// It stays open after all: its pages could not be taken out.
    pub(crate) fn reopen(&self) {
        self.closed.store(false, Ordering::Release);
    }

    /// True if a truncation is under way, or could not do all of it.
    pub(crate) fn owes_cut(&self) -> bool {
        self.cut_owed.load(Ordering::Acquire)
    }

    /// Up to where the device has taken space for it.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Acquire)
    }

    /// The device has taken space up to `until`.
    pub(crate) fn note_allocated(&self, until: u64) {
        self.allocated.fetch_max(until, Ordering::AcqRel);
    }

    /// True if a write up to `end` may go on: there is space for it, and no cut is owed.
    pub(crate) fn is_ready_up_to(&self, end: u64) -> bool {
        self.allocated() >= end && !self.owes_cut()
    }

    /// Length of the device's object; more than any file has if it is not known.
    pub(crate) fn device_len(&self) -> u64 {
        self.device_len.load(Ordering::Acquire)
    }

    /// Writes of it may end at multiples of `unit` bytes.
    pub(crate) fn note_unit(&self, unit: u64) {
        self.unit.store(unit, Ordering::Relaxed);
    }

    /// A write of whole pages that end at `end` is about to be sent to the device's object, which
    /// is so long from then on. Answers how many bytes the write leaves out, so that the object
    /// ends where the file does, or as near to it as the device can.
    pub(crate) fn raise_device_len(&self, end: u64) -> Bytes {
        // After its pages were taken: the size covers all that stood in them then.
        let exact = self
            .size()
            .next_multiple_of(self.unit.load(Ordering::Relaxed));
        let cut = end.saturating_sub(exact);
        let is_last = cut < PAGE_SIZE && !self.owes_cut();
        let exact = if is_last { end.min(exact) } else { end };
        // An object that is longer already has to be cut anyway.
        let before = self.device_len.fetch_max(exact, Ordering::AcqRel);
        if before <= exact {
            return Bytes(end - exact);
        }
        self.device_len.fetch_max(end, Ordering::AcqRel);
        Bytes::ZERO
    }

    /// A change of the object's length failed, or another may have overtaken it.
    pub(crate) fn forget_device_len(&self) {
        self.device_len.store(LEN_UNKNOWN, Ordering::Release);
    }

    /// True if the device's object has the file's length, with nothing cut off that is still to go.
    pub(crate) fn has_settled(&self) -> bool {
        !self.owes_cut() && self.device_len() == self.size()
    }

    /// True if the device's object has a length that the file has had since it was `size`, or is
    /// about to have, with nothing cut off that is still to go.
    pub(crate) fn has_grown_from(&self, size: u64) -> bool {
        !self.owes_cut() && (size..=self.size()).contains(&self.device_len())
    }

    /// A sync of the whole cache comes in. Under the lock of the table of files, where it still
    /// stands.
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
    pub(crate) fn wait_for_visits(&self, task: &mut Task<'_>) -> Result<(), Error> {
        Error::after(task.wait_while(&self.left, Cause::DeviceFlush, None, |_| self.is_visited()))
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

impl IoDone for Mapping {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        if let Some(completions) = self.completions.upgrade() {
            completions.ended(self, context, request, result);
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

impl GateGuard<'_> {
    /// The file now reaches at least to `end`.
    pub(crate) fn extend_to(&self, end: u64) {
        // No task makes it shorter meanwhile.
        if self.size() < end {
            self.size.fetch_max(end, Ordering::AcqRel);
        }
    }
}

impl ShutGate<'_> {
    /// The file has another length from now on.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The part behind its end is still to be taken away.
    pub(crate) fn owe_cut(&self) {
        self.cut_owed.store(true, Ordering::Release);
    }

    /// It was taken away.
    pub(crate) fn cut_is_done(&self) {
        self.cut_owed.store(false, Ordering::Release);
    }

    /// The device's object is given the length `len`; answers the one it had.
    pub(crate) fn set_device_len(&self, len: u64) -> u64 {
        self.device_len.swap(len, Ordering::AcqRel)
    }

    /// Space behind `len` may be gone.
    pub(crate) fn lose_space_behind(&self, len: u64) {
        self.allocated.fetch_min(len, Ordering::AcqRel);
    }

    /// The file is being taken out of the cache: no page comes in any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

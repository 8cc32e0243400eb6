//! A journal in front of a device: a commit every few seconds, and writers held up by it.
//!
//! A file system with a journal changes its metadata in *transactions*. A task that changes
//! metadata takes a *handle* of the running transaction; every few seconds (`Options::commit`) the
//! transaction is committed, and another runs meanwhile:
//!
//! ```text
//!   running --due--> locked --no handle left--> logging --> recording --> in the log --> in place
//!              no new handle |                  | its blocks  | flush, record, flush    (after 30 s, or
//!                            |                  | go to the log                          when the log
//!                            |                  | (and its data, see below)              is full)
//!   who waits:  who needs a handle       who must change        nobody
//!                                        a block of it
//! ```
//!
//! The tasks that need a handle, of those modelled here (ext4, delayed allocation):
//!   - a call that writes, for the file's time, at most once a tick: the block of its inode. It
//!     holds the handle for no time. That is the only thing that holds a writer up;
//!   - the flusher, for each run of pages that have no blocks yet, at most 8 MiB: inode, bitmap,
//!     group descriptor. It holds the handle until all but the last bio of the run has been sent
//!     (`Options::bio`): where memory is in pieces and the device's queue is full, that is as long
//!     as the device takes;
//!   - the end of such a run's writes, to make it part of the file (`Data::Unwritten`): the inode;
//!   - a change of length.
//!
//! So a commit holds writers up twice: while it waits for the flusher's handle, and while the
//! blocks that they have to change stand to be logged. That lasts until the log has been written,
//! behind whatever the device has in its queue; with `Data::Ordered` also until the data that were
//! given blocks in the transaction are there. Every file that was written in the last seconds has
//! its inode among those blocks, and so has its neighbour (16 inodes are one block): a writer of a
//! few bytes is held up as long as a writer that writes with all its might.
//!
//! And there is a third effect, of which no wait speaks: with `Data::Unwritten` the writeback of a
//! run ends all at once, when the last of it was written. The cache sees nothing come clean for as
//! long as the device takes for 8 MiB, then all of it, and paces its writers by that.
//!
//! Its place: `Journal` is a device around a device. It is told of a write before it is taken in
//! (`IoOp::Prepare`) and answers when the writer may go on; a request that has to wait is kept
//! here. The commit itself is a task (`commit`), a procedure that waits. `ledger` keeps book.
//!
//! Invariants
//!   1. A record reaches the device after its blocks and, except with `Data::Writeback`, after the
//!      data of all pages that it makes part of a file: after a loss of power no file that a record
//!      speaks of holds what nobody wrote.
//!   2. Transactions are committed one at a time, in the order in which they began.
//!   3. Nothing is committed if nothing changed.
//!   4. A request is held only while a commit or a checkpoint is under way or asked for, and those
//!      wait for nothing that is held: a handle ends when the last of its own writes has.
//!
//! Concurrency: one mutex, a leaf, not held while a request is passed on or completed.
//!
//! Source: Linux v6.12 fs/jbd2/commit.c (jbd2_journal_commit_transaction: phases and their order),
//! fs/jbd2/transaction.c (start_this_handle: waits for a locked transaction; do_get_write_access:
//! waits for a block on its way to the log), fs/jbd2/checkpoint.c, fs/ext4/inode.c
//! (ext4_do_writepages: one handle and one io_end for an extent of up to 2048 blocks),
//! fs/ext4/page-io.c (ext4_end_io_end: conversion, then the end of writeback), fs/ext4/super.c
//! (DIOREAD_NOLOCK by default), fs/inode.c (file_update_time), fs/ext4/ext4_jbd2.h; S. Tweedie,
//! Journaling the Linux ext2fs Filesystem, 1998.
//! Deviations: blocks come from one group after another for all files; a file's extents need no
//! block of their own; data written over while a commit waits are not sent once more; orphans,
//! barriers left out (`nobarrier`) and fast commits are not modelled.

mod commit;
mod ledger;
mod ranges;
#[cfg(test)]
mod tests;

pub use ledger::Given;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::{
    Device, DeviceId, DeviceInfo, Env, Host, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest,
    ObjectId, Signal, WaitQueue,
};
use frames::FrameId;
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, Pages};

use crate::content::{SECTORS_PER_FRAME, Sector, Stamps};
use ledger::{Ledger, Write};

/// Pages of one request to the log.
const REQUEST_PAGES: u64 = 256;
/// The error of writes after the journal has failed (Linux: the file system is read-only then).
const READ_ONLY: IoError = IoError::Failed { errno: 30 };

/// The order that is kept between data and the metadata that speak of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Blocks are given as unwritten, and become part of the file when the data of the whole extent
    /// have been written; its writeback ends then (`dioread_nolock`, ext4's default since 5.6).
    Unwritten,
    /// A commit waits for the data that were given blocks in its transaction (`data=ordered` before
    /// that, and with `dioread_lock`).
    Ordered,
    /// Not at all (`data=writeback`).
    Writeback,
}

/// The options of a journal. The defaults are ext4's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest life of a transaction (`commit=5`).
    pub commit: Nanos,
    /// Size of the log; at least `Options::SIZE_MIN`.
    pub size: Pages,
    /// The way in which a file is kept from showing bytes that were never written.
    pub data: Data,
    /// Pages of the largest bio: as many as lie together in memory. An extent's last bio is sent
    /// after its handle has ended.
    pub bio: Pages,
    /// Granularity of a file's times: a tick.
    pub tick: Nanos,
}

impl Options {
    /// The smallest log: a transaction of a few blocks fits a quarter of it.
    pub const SIZE_MIN: Pages = Pages(64);
    /// The largest, so that it lies before the data (`fs::Layout`).
    pub const SIZE_MAX: Pages = Pages(16_384);
}

impl Default for Options {
    /// 5 s, 16 MiB, unwritten extents, an extent a bio, a tick of 250 Hz.
    fn default() -> Self {
        Self {
            commit: Nanos::secs(5),
            size: Pages(4_096),
            data: Data::Unwritten,
            bio: Pages(ledger::EXTENT_MAX),
            tick: Nanos::millis(4),
        }
    }
}

/// The frames and the object of a journal.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The contents of the frames.
    pub stamps: Arc<Stamps>,
    /// The first of `FRAMES` frames of its own, populated.
    pub frame: FrameId,
    /// The object that is the log, and behind it the places of metadata.
    pub log: ObjectId,
}

/// Frames that a journal needs.
pub const FRAMES: u32 = 3;

/// The content of a frame of the journal's.
#[derive(Clone, Copy, Debug)]
enum Page {
    Log,
    Record,
    Home,
}

/// The counters of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed.
    pub commits: u64,
    /// The longest commit.
    pub commit_longest: Nanos,
    /// Blocks written to the log.
    pub logged: Pages,
    /// Blocks written in place.
    pub in_place: Pages,
    /// Requests that had to wait.
    pub held: u64,
    /// Their time, together.
    pub held_time: Nanos,
    /// The longest.
    pub held_longest: Nanos,
}

/// A commit whose record is on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the transaction; the content of its record.
    pub id: u64,
    /// Page of the log that holds the record.
    pub page: u64,
    /// The files it speaks of, and their pages.
    pub given: Vec<Given>,
}

/// A journal at work; a device around a device.
pub struct Journal {
    core: Arc<Core>,
}

struct Core {
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    place: Storage,
    options: Options,
    state: Mutex<State>,
    /// The task that commits.
    wait: WaitQueue,
}

struct State {
    ledger: Ledger,
    held: VecDeque<Held>,
    /// Writes that the device is through with, by run, until the run is part of its file.
    moved: BTreeMap<u64, Vec<Ended>>,
    /// The task is there: else everything passes.
    is_live: bool,
    aborted: bool,
    /// Writes and flushes of the journal's own that a commit waits for.
    own_in_flight: u32,
    own_error: Option<IoError>,
    stats: Stats,
    records: Option<Vec<Record>>,
}

/// A request that waits.
struct Held {
    request: Box<IoRequest>,
    since: Instant,
    /// A flush: for this transaction.
    until: Option<u64>,
}

/// A request and how it ended.
type Ended = (Box<IoRequest>, Result<(), IoError>);

/// The verdict on a request.
enum Step {
    Pass(Box<IoRequest>),
    /// It is in a transaction: the ledger wants to know when it ends.
    Join(Box<IoRequest>, u64),
    Answer(Box<IoRequest>, Result<(), IoError>),
}

impl Journal {
    /// A journal in front of `inner`, at rest until `start`.
    ///
    /// # Panics
    /// If the log's size is out of range.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Device>,
        host: Arc<dyn Host>,
        place: Storage,
        options: Options,
    ) -> Self {
        assert!(
            (Options::SIZE_MIN..=Options::SIZE_MAX).contains(&options.size),
            "a log of {:?}",
            options.size
        );
        let state = State {
            ledger: Ledger::new(&options),
            held: VecDeque::new(),
            moved: BTreeMap::new(),
            is_live: false,
            aborted: false,
            own_in_flight: 0,
            own_error: None,
            stats: Stats::default(),
            records: None,
        };
        let core = Core {
            inner,
            host,
            place,
            options,
            state: Mutex::new(state),
            wait: WaitQueue::new(),
        };
        Self {
            core: Arc::new(core),
        }
    }

    /// Notes pages that a file had before the run: they have blocks.
    pub fn has(&self, object: ObjectId, pages: Pages) {
        self.core.lock().ledger.has(object, pages);
    }

    /// Keeps a list of all records, for a checker.
    pub fn keep_records(&self) {
        self.core.lock().records.get_or_insert_default();
    }

    /// All records that reached the device or were about to, if they are kept.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.core.lock().records.clone().unwrap_or_default()
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.lock().stats
    }

    /// Starts the task that commits; `device` is this journal's number.
    pub fn start(&self, env: &dyn Env, device: DeviceId) {
        self.core.lock().is_live = true;
        let core = Arc::clone(&self.core);
        env.spawn(
            "journal",
            Box::new(move |task| commit::run(task, &core, device)),
        )
        .expect("the lab has threads");
    }
}

impl Device for Journal {
    fn submit(&self, request: Box<IoRequest>) {
        let core = &self.core;
        let now = core.host.now();
        let mut state = core.lock();
        let until = match request.op {
            IoOp::Flush if state.is_live => state.ledger.wanted_by_flush(request.object),
            _ => None,
        };
        let looked = state.look(request, until, now);
        let step = match looked {
            Ok(step) => Some(step),
            Err(request) => {
                let since = now;
                state.held.push_back(Held {
                    request,
                    since,
                    until,
                });
                None
            }
        };
        drop(state);
        if let Some(step) = step {
            core.carry_out(step);
        }
        // Any request that came may have begun a transaction, or ask for something.
        core.wait.wake_all(Signal::JournalMoved);
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            prepares_writes: true,
            ..self.core.inner.info()
        }
    }
}

impl State {
    /// The verdict on a request now; the request: nothing.
    fn look(
        &mut self,
        request: Box<IoRequest>,
        until: Option<u64>,
        now: Instant,
    ) -> Result<Step, Box<IoRequest>> {
        let object = request.object;
        match request.op {
            IoOp::Read | IoOp::Discard { .. } => return Ok(Step::Pass(request)),
            // Delayed allocation: space is counted and not looked for.
            IoOp::Allocate { .. } => return Ok(Step::Answer(request, Ok(()))),
            IoOp::Prepare { .. } if !self.is_live => return Ok(Step::Answer(request, Ok(()))),
            _ if !self.is_live => return Ok(Step::Pass(request)),
            _ if self.aborted => return Ok(Step::Answer(request, Err(READ_ONLY))),
            IoOp::Write | IoOp::Flush | IoOp::SetLen { .. } | IoOp::Prepare { .. } => {}
        }
        let ledger = &mut self.ledger;
        let may = match request.op {
            IoOp::Prepare { .. } if ledger.touch(object, now) => {
                return Ok(Step::Answer(request, Ok(())));
            }
            IoOp::Write => {
                let (first, pages) = (request.offset.0 >> PAGE_SHIFT, request.pages().0);
                match ledger.write(object, first, pages, request.more, now) {
                    Write::Joined(serial) => return Ok(Step::Join(request, serial)),
                    Write::Over => true,
                    Write::Refused => false,
                }
            }
            IoOp::SetLen { len } => ledger.set_len(object, len.pages_ceil(), now),
            IoOp::Flush => until.is_none_or(|id| ledger.is_committed(id)),
            _ => false,
        };
        if may {
            Ok(Step::Pass(request))
        } else {
            Err(request)
        }
    }

    /// The writes of runs that are part of their files now, or never will be.
    fn converted(&mut self, now: Instant) -> Vec<Ended> {
        let serials = if self.is_live && !self.aborted {
            self.ledger.convert(now)
        } else {
            self.ledger.give_up()
        };
        let failed = self.aborted.then_some(READ_ONLY);
        let runs = serials.iter().filter_map(|run| self.moved.remove(run));
        runs.flatten()
            .map(|(request, result)| (request, failed.map_or(result, Err)))
            .collect()
    }

    fn note_held(&mut self, time: Nanos) {
        self.stats.held += 1;
        self.stats.held_time += time;
        self.stats.held_longest = self.stats.held_longest.at_least(time);
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out(self: &Arc<Self>, step: Step) {
        match step {
            Step::Pass(mut request) => {
                level(&mut request);
                self.inner.submit(request);
            }
            Step::Join(mut request, serial) => {
                level(&mut request);
                request.on_done_noted(Arc::clone(self) as Arc<dyn IoDone>, serial);
                self.inner.submit(request);
            }
            // Never from within `submit`: the submitter may hold what its handler needs.
            Step::Answer(request, result) => self.host.after(
                Nanos::ZERO,
                Box::new(move |context| request.complete(context, result)),
            ),
        }
    }

    /// Looks again at all that is held, in the order in which it came.
    fn retry(self: &Arc<Self>) {
        let now = self.host.now();
        let mut state = self.lock();
        let ended = state.converted(now).into_iter();
        let mut steps: Vec<Step> = ended
            .map(|(request, result)| Step::Answer(request, result))
            .collect();
        for held in core::mem::take(&mut state.held) {
            match state.look(held.request, held.until, now) {
                Ok(step) => {
                    state.note_held(now.since(held.since));
                    steps.push(step);
                }
                Err(request) => state.held.push_back(Held { request, ..held }),
            }
        }
        drop(state);
        for step in steps {
            self.carry_out(step);
        }
    }

    /// Writes pages of the log's object, all with the same content.
    fn write_own(self: &Arc<Self>, at: u64, pages: u64, what: Page, content: u64) {
        let Storage { stamps, frame, log } = &self.place;
        let frame = FrameId(frame.0 + what as u32);
        let content = u32::try_from(content).expect("transactions of a run are few");
        stamps.store(frame, [Sector(content); SECTORS_PER_FRAME]);
        let end = at + pages;
        let mut at = at;
        while at < end {
            let pages = REQUEST_PAGES.min(end - at);
            let mut request = self.own_request(*log, IoOp::Write, what);
            request.offset = Bytes(at << PAGE_SHIFT);
            request
                .frames
                .resize(usize::try_from(pages).expect("at most 256"), frame);
            self.inner.submit(request);
            at += pages;
        }
    }

    fn flush_own(self: &Arc<Self>, object: ObjectId) {
        let request = self.own_request(object, IoOp::Flush, Page::Record);
        self.inner.submit(request);
    }

    /// A request of the journal's own; no commit waits for writes to the places of metadata.
    fn own_request(self: &Arc<Self>, object: ObjectId, op: IoOp, what: Page) -> Box<IoRequest> {
        let is_home = matches!(what, Page::Home);
        if !is_home {
            self.lock().own_in_flight += 1;
        }
        let mut request = IoRequest::with_room(0);
        request.object = object;
        request.op = op;
        request.class = IoClass::Sync;
        level(&mut request);
        let done: Arc<dyn IoDone> = Arc::new(Own {
            core: Arc::clone(self),
            is_home,
        });
        request.on_done(done);
        request
    }

    /// Sends the blocks of the oldest transaction in the log to their places, if it is time.
    fn checkpoint(self: &Arc<Self>) {
        let now = self.host.now();
        let homes = self.lock().ledger.checkpoint(now);
        for home in homes {
            self.lock().stats.in_place += Pages(1);
            self.write_own(self.options.size.0 + home, 1, Page::Home, home);
        }
        self.retry();
    }

    /// No commit will come any more.
    fn stop(self: &Arc<Self>) {
        self.lock().is_live = false;
        self.retry();
    }

    /// The log cannot be written: from now on nothing is.
    fn abort(self: &Arc<Self>) {
        {
            let mut state = self.lock();
            state.aborted = true;
            state.ledger.abort();
        }
        self.retry();
    }
}

/// Linux's schedulers (none, mq-deadline) put no write before another, no matter which task waits
/// for it; a flush goes past them.
fn level(request: &mut IoRequest) {
    if request.op == IoOp::Write {
        request.class = IoClass::Writeback;
    }
}

impl IoDone for Core {
    /// The device is through with a write that is in a transaction.
    fn io_done(
        &self,
        context: &Interrupt,
        mut request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let run = request.note();
        let ends_with_its_run = self.options.data == Data::Unwritten;
        if ends_with_its_run {
            request.note_moved(context);
        }
        let mut state = self.lock();
        state.ledger.write_done(run);
        let ended = if ends_with_its_run {
            state.moved.entry(run).or_default().push((request, result));
            state.converted(self.host.now())
        } else {
            vec![(request, result)]
        };
        drop(state);
        self.wait.wake_all(Signal::JournalMoved);
        for (request, result) in ended {
            request.complete(context, result);
        }
    }
}

/// Takes the end of a request of the journal's own.
struct Own {
    core: Arc<Core>,
    is_home: bool,
}

impl IoDone for Own {
    fn io_done(&self, _: &Interrupt, _: Box<IoRequest>, result: Result<(), IoError>) {
        let core = &self.core;
        let mut state = core.lock();
        let mut has_space = false;
        if let Err(error) = result {
            state.own_error = Some(error);
        }
        if !self.is_home {
            state.own_in_flight -= 1;
        } else if !state.aborted {
            has_space = state.ledger.in_place();
        }
        drop(state);
        if has_space {
            core.checkpoint();
        }
        core.wait.wake_all(Signal::JournalMoved);
    }
}

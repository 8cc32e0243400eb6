//! The common part of all models: queue, order of service, content, completion.
//!
//! A request is cut into *pieces*: at the seams of the layout, and at the largest request the
//! device takes. A mechanism serves up to `depth` pieces at once. A layout may add pieces of its
//! own (indirect blocks, journal) that nobody waits for and that cost the device time.
//!
//! A mechanism may refuse a piece for now: then nothing is served until the time that it says, and
//! that piece goes first. Its rate may be changed in mid run (`Simulated::set_rate`).
//!
//! Held writes (NFS): a mechanism may ask that writes stay under way until a commit. Once half of
//! the pages under way have been written and wait, a commit piece goes to the device; its end
//! completes all writes it covered, in one burst.
//!
//! Concurrency: one mutex, never held while a request is completed. `Host::at` is called under it;
//! the mutex of the media is taken within it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::{Device, DeviceInfo, Host, Interrupt, IoClass, IoError, IoOp, IoRequest, ObjectId};
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, PAGE_SIZE, Pages};
use policy::writeback::DeviceQueue;

use super::turns::{Next, Slices, Turns};

use super::Surroundings;
use crate::content::Stamps;
use crate::fs::{Extent, Layout, Side};
use crate::media::{FlushMark, Media, PageStamps, SECTORS_PER_PAGE, SharedMedia, ZEROES};

/// Requests on their way back to the task that submitted them; a box is what `complete` takes.
type Requests = Vec<Box<IoRequest>>;

/// Sectors that lab I/O is a multiple of, in bytes.
const ALIGNMENT: u32 = 512;
/// Classes of `IoClass`, the order of service.
const CLASSES: usize = 4;
/// Time that readers may hold writeback back if a model says nothing else: as for disks.
const WRITE_EXPIRE: Nanos = Nanos::secs(5);
/// Buffers kept for content taken early.
const SPARE_MAX: usize = 64;

/// The request of a piece to the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Read the blocks.
    Read,
    /// Write the blocks.
    Write,
    /// Nothing stands there: no I/O.
    Hole,
    /// Make `unstable` bytes durable.
    Flush {
        /// The part that is volatile.
        unstable: Bytes,
    },
}

/// A piece of work as a mechanism sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) block: u64,
    pub(crate) pages: u32,
    /// Bytes of one page: less for the layout's own on a smaller machine.
    pub(crate) page_bytes: u64,
}

impl Job {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(u64::from(self.pages) * self.page_bytes)
    }
}

/// The length of a piece, and the cause if that is longer than usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) time: Nanos,
    pub(crate) stall: Option<Stall>,
}

impl Service {
    pub(crate) fn of(time: Nanos) -> Self {
        Self { time, stall: None }
    }

    pub(crate) fn stalled(time: Nanos, kind: StallKind, stall: Nanos) -> Self {
        Self {
            time: time + stall,
            stall: Some(Stall { kind, time: stall }),
        }
    }
}

/// A device's own pause: not to be mistaken for one of reclaim or of throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Why.
    pub kind: StallKind,
    /// Its length.
    pub time: Nanos,
}

/// Why a device pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// Flush, barrier, COMMIT.
    Flush,
    /// An erase unit is rewritten.
    UnitChange,
    /// Garbage collection.
    GarbageCollection,
    /// The write buffer is full: nothing is taken in until it has drained to its low mark.
    BufferFull,
    /// The server writes out by itself.
    ServerBurst,
}

/// In which order pieces are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By class, and within one upwards from the head, then again from the lowest (C-SCAN).
    Position,
    /// By class, and within one as they came.
    Arrival,
    /// As they came, whatever their class: there is no scheduler.
    Unscheduled,
}

/// The inside of a model.
pub(crate) trait Mechanism: Send {
    /// Pieces served at once.
    fn depth(&self) -> u32;
    /// Largest piece.
    fn request_max(&self) -> Bytes;
    /// Order of service.
    fn order(&self) -> Order;
    /// A piece of writeback that has waited so long goes first.
    fn write_expire(&self) -> Nanos {
        WRITE_EXPIRE
    }
    /// Writes stay under way until a commit.
    fn holds_writes(&self) -> bool {
        false
    }
    /// The device's own queue, if the task that fills it knows of it.
    fn queue(&self) -> Option<DeviceQueue> {
        None
    }
    /// The slices of the device's time between pieces that are waited for and writeback; none: the
    /// former always go first.
    fn slices(&self) -> Option<Slices> {
        None
    }
    /// Admits a piece now, or tells when to ask again (`Instant::MAX`: once the rate is changed).
    /// Nothing else is served before.
    fn admit(&mut self, _job: &Job, _now: Instant) -> Result<(), Instant> {
        Ok(())
    }
    /// From now on this rate, in bytes a second; zero: a standstill. False: it has no such rate.
    fn set_rate(&mut self, _now: Instant, _bytes_per_sec: u64) -> bool {
        false
    }
    /// Begins to serve a piece: how long until it ends?
    fn serve(&mut self, job: &Job, now: Instant, chance: &Chance<'_>) -> Service;
}

/// Draws from the host's stream.
pub(crate) struct Chance<'a>(&'a dyn Host);

impl Chance<'_> {
    /// A number in `0..below`; zero if there is none.
    pub(crate) fn below(&self, below: u64) -> u64 {
        if below == 0 {
            0
        } else {
            self.0.random() % below
        }
    }

    /// A time in `min..=max`.
    pub(crate) fn between(&self, min: Nanos, max: Nanos) -> Nanos {
        min + Nanos(self.below(max.saturating_sub(min).0 + 1))
    }
}

/// The model has no single rate that could be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRate;

impl core::fmt::Display for NoRate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(
            "this device model has no single rate to be changed; null_blk and token_bucket have",
        )
    }
}

impl std::error::Error for NoRate {}

/// The counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that ended.
    pub requests: u64,
    /// Pieces served, the layout's own among them.
    pub pieces: u64,
    /// Pages read for requests.
    pub pages_read: u64,
    /// Pages written for requests.
    pub pages_written: u64,
    /// Pages the layout wrote on its own: metadata, journal.
    pub pages_metadata: u64,
    /// Time pieces were in service, summed over pieces.
    pub busy: Nanos,
    /// Flushes and commits.
    pub flushes: u64,
    /// Stalls of any kind.
    pub stalls: u64,
    /// Their time.
    pub stalled: Nanos,
    /// The longest.
    pub stall_longest: Nanos,
    /// Most pieces that ever waited or were served at once.
    pub queue_longest: u64,
}

/// A model at work; an `env::Device`.
pub struct Simulated {
    core: Arc<Core>,
}

struct Core {
    host: Arc<dyn Host>,
    stamps: Arc<Stamps>,
    media: SharedMedia,
    stable_writes: bool,
    queue: Option<DeviceQueue>,
    state: Mutex<State>,
}

struct State {
    mechanism: Box<dyn Mechanism>,
    layout: Layout,
    requests: Slab,
    queue: Queue,
    in_service: u32,
    /// The piece that the mechanism has refused, and until when; nothing is served before it.
    refused: Option<(Piece, Instant)>,
    turns: Turns,
    gate: Gate,
    /// Position after the last piece, for the order of service.
    head: u64,
    /// Power cuts so far: a timer of an earlier life is ignored.
    life: u32,
    powered: bool,
    stats: Stats,
    scratch: Scratch,
}

/// Writes held until a commit, and pages under way.
#[derive(Default)]
struct Gate {
    under_way: u64,
    held: Vec<u32>,
    held_pages: u64,
    committing: Option<Vec<u32>>,
}

#[derive(Default)]
struct Scratch {
    extents: Vec<Extent>,
    sides: Vec<Side>,
    spare: Vec<Vec<PageStamps>>,
}

/// A request under way.
struct Active {
    request: Box<IoRequest>,
    pieces_left: u32,
    /// Its content, if it was taken on submission.
    early: Option<Vec<PageStamps>>,
    /// A flush covers what had completed when it was submitted, a commit what its writes wrote.
    mark: FlushMark,
}

/// Requests under way, by slot.
#[derive(Default)]
struct Slab {
    slots: Vec<Option<Active>>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    job: Job,
    owner: Owner,
    /// First frame of the request that it moves.
    first: u32,
    queued: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Request(u32),
    Layout,
    Commit,
}

/// Pieces that wait.
struct Queue {
    order: Order,
    classes: [BTreeMap<(u64, u64), Piece>; CLASSES],
    /// Writeback by age.
    oldest: VecDeque<(Instant, (u64, u64))>,
    arrivals: u64,
    len: u64,
}

impl Simulated {
    pub(crate) fn new(mechanism: Box<dyn Mechanism>, surroundings: Surroundings) -> Self {
        let Surroundings {
            host,
            stamps,
            media,
            layout,
            stable_writes,
        } = surroundings;
        let device_queue = mechanism.queue();
        let state = State {
            queue: Queue::new(mechanism.order()),
            mechanism,
            layout,
            requests: Slab::default(),
            in_service: 0,
            refused: None,
            turns: Turns::FIRST,
            gate: Gate::default(),
            head: 0,
            life: 0,
            powered: true,
            stats: Stats::default(),
            scratch: Scratch::default(),
        };
        let state = Mutex::new(state);
        Self {
            core: Arc::new(Core {
                host,
                stamps,
                media,
                stable_writes,
                queue: device_queue,
                state,
            }),
        }
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.lock().stats
    }

    /// Pieces that wait or are served now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.core.lock().waiting()
    }

    /// From now on the device has this rate, in bytes a second; zero: it stands still.
    ///
    /// # Errors
    /// The model has no single rate, or it cannot be changed.
    pub fn set_rate(&self, bytes_per_sec: u64) -> Result<(), NoRate> {
        let core = &self.core;
        let mut state = core.lock();
        let now = core.host.now();
        if !state.mechanism.set_rate(now, bytes_per_sec) {
            return Err(NoRate);
        }
        if let Some((_, until)) = &mut state.refused {
            *until = now;
        }
        core.pump(&mut state);
        Ok(())
    }

    /// Its content.
    #[must_use]
    pub fn media(&self) -> SharedMedia {
        Arc::clone(&self.core.media)
    }

    /// Makes the object's first pages hold `version`, with a place on the device, before the run.
    ///
    /// # Panics
    /// If the object was written before.
    pub fn prefill(&self, object: ObjectId, pages: Pages, version: u32) {
        self.core.lock().layout.place(object, pages);
        self.core.media().prefill(object, pages, version);
    }

    /// The power fails: of the pieces under way any part is done, of what is volatile any part
    /// survives, and every request ends with `IoError::Lost`, later ones too until `power_on`.
    pub fn power_cut(&self, context: &Interrupt) {
        let core = &*self.core;
        let mut state = core.lock();
        state.life += 1;
        state.powered = false;
        state.queue = Queue::new(state.queue.order);
        state.in_service = 0;
        state.refused = None;
        state.gate = Gate::default();
        let lost = core.tear(&mut state);
        drop(state);
        core.media().crash(|| core.host.random());
        for request in lost {
            request.complete(context, Err(IoError::Lost));
        }
    }

    /// The power is back; the media hold what survived.
    pub fn power_on(&self) {
        self.core.lock().powered = true;
    }
}

impl Device for Simulated {
    fn submit(&self, request: Box<IoRequest>) {
        let core = &self.core;
        let mut state = core.lock();
        if !state.powered {
            drop(state);
            let lost = move |context: &Interrupt| request.complete(context, Err(IoError::Lost));
            core.host.after(Nanos::ZERO, Box::new(lost));
            return;
        }
        core.take(&mut state, request);
        core.pump(&mut state);
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            alignment: ALIGNMENT,
            stable_writes: self.core.stable_writes,
            grow_ahead: None,
            prepares_writes: false,
            queue: self.core.queue,
        }
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn media(&self) -> MutexGuard<'_, Media> {
        self.media.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts a request into pieces and queues them.
    fn take(&self, state: &mut State, request: Box<IoRequest>) {
        let now = self.host.now();
        let (op, class, object) = (request.op, request.class, request.object);
        let (offset, first_page) = (request.offset, request.offset.0 >> PAGE_SHIFT);
        let pages = u32::try_from(request.frames.len()).expect("a request has few frames");
        let mark = self.media().mark(object);
        let early = self.early(state, &request);
        let slot = state.requests.insert(Active {
            request,
            pieces_left: 0,
            early,
            mark,
        });
        let mut extents = core::mem::take(&mut state.scratch.extents);
        let mut sides = core::mem::take(&mut state.scratch.sides);
        match op {
            IoOp::Read => state
                .layout
                .map_read(object, first_page, pages, &mut extents),
            IoOp::Write => {
                state.gate.under_way += u64::from(pages);
                state
                    .layout
                    .map_write(object, first_page, pages, now, &mut extents, &mut sides);
            }
            IoOp::Flush => {}
            IoOp::SetLen { len } => state.layout.truncate(object, len.pages_ceil()),
            IoOp::Allocate { len } => {
                let end = Bytes(offset.0.saturating_add(len.0)).pages_ceil();
                state.layout.allocate(object, first_page..end.0);
            }
            IoOp::Discard { .. } | IoOp::Prepare { .. } => {}
        }
        let owner = Owner::Request(slot);
        let count = if extents.is_empty() {
            let kind = match op {
                IoOp::Flush => Kind::Flush {
                    unstable: self.media().volatile_pages(object).bytes(),
                },
                IoOp::Read | IoOp::Write | IoOp::Prepare { .. } => Kind::Hole,
                IoOp::Allocate { .. } if !state.layout.logs_allocation() => Kind::Hole,
                IoOp::SetLen { .. } | IoOp::Allocate { .. } | IoOp::Discard { .. } => Kind::Write,
            };
            // A metadata operation is a block of the journal that the request waits for.
            let journal = (state.layout.journal(), 1);
            let (block, pages) = if kind == Kind::Write {
                journal
            } else {
                (state.head, 0)
            };
            let page_bytes = state.layout.side_bytes();
            let job = Job {
                kind,
                block,
                pages,
                page_bytes,
            };
            state.queue.push(
                class,
                Piece {
                    job,
                    owner,
                    first: 0,
                    queued: now,
                },
            );
            1
        } else {
            let count = state.queue_extents(&extents, owner, class, now, op == IoOp::Read);
            state.queue_sides(&sides, now);
            count
        };
        state.requests.get(slot).pieces_left = count;
        extents.clear();
        sides.clear();
        state.scratch.extents = extents;
        state.scratch.sides = sides;
        state.stats.queue_longest = state.stats.queue_longest.max(state.waiting());
    }

    /// Content of a write taken now, if chance has it so.
    fn early(&self, state: &mut State, request: &IoRequest) -> Option<Vec<PageStamps>> {
        if request.op != IoOp::Write || self.host.random() & 1 == 0 {
            return None;
        }
        let mut taken = state.scratch.spare.pop().unwrap_or_default();
        taken.extend(request.frames.iter().map(|frame| self.stamps.load(*frame)));
        Some(taken)
    }

    /// Puts pieces into service while there is room.
    fn pump(self: &Arc<Self>, state: &mut State) {
        let now = self.host.now();
        while state.in_service < state.mechanism.depth() {
            let expire = state.mechanism.write_expire();
            let piece = match state.refused.take() {
                Some((piece, until)) if now < until => {
                    state.refused = Some((piece, until));
                    break;
                }
                Some((piece, _)) => piece,
                None => match state.pop(now, expire) {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    Err(until) => {
                        self.pump_at(state.life, until);
                        break;
                    }
                },
            };
            if let Kind::Read | Kind::Write = piece.job.kind
                && let Err(until) = state.mechanism.admit(&piece.job, now)
            {
                debug_assert!(
                    until > now,
                    "a piece refused until now would be asked for ever"
                );
                state.refused = Some((piece, until));
                self.pump_at(state.life, until);
                break;
            }
            let service = match piece.job.kind {
                Kind::Hole => Service::of(Nanos::ZERO),
                Kind::Read | Kind::Write | Kind::Flush { .. } => {
                    state.mechanism.serve(&piece.job, now, &Chance(&*self.host))
                }
            };
            if let Kind::Read | Kind::Write = piece.job.kind {
                state.head = piece.job.block + u64::from(piece.job.pages);
            }
            state.stats.count(&piece, service);
            state.in_service += 1;
            let (core, life) = (Arc::clone(self), state.life);
            let ended = move |context: &Interrupt| core.ended(context, life, &piece);
            self.host.after(service.time, Box::new(ended));
        }
    }

    /// Has the queue looked at again at `until`, in this life.
    fn pump_at(self: &Arc<Self>, life: u32, until: Instant) {
        if until == Instant::MAX {
            return;
        }
        let core = Arc::clone(self);
        let again = move |_: &Interrupt| {
            let mut state = core.lock();
            if life == state.life {
                core.pump(&mut state);
            }
        };
        self.host.at(until, Box::new(again));
    }

    /// A piece has been served.
    fn ended(self: &Arc<Self>, context: &Interrupt, life: u32, piece: &Piece) {
        let mut state = self.lock();
        if life != state.life {
            return;
        }
        state.in_service -= 1;
        state.note_ended(piece, self.host.now());
        let mut burst = Vec::new();
        let mut done = None;
        match piece.owner {
            Owner::Layout => {}
            Owner::Commit => burst = self.committed(&mut state),
            Owner::Request(slot) => {
                let holds = state.mechanism.holds_writes();
                let active = state.requests.get(slot);
                self.move_content(active, piece);
                active.pieces_left -= 1;
                if active.pieces_left == 0 {
                    if holds && active.request.op == IoOp::Write {
                        active.mark = self.media().mark(active.request.object);
                        state.hold(slot);
                    } else {
                        done = Some(self.finish(&mut state, slot));
                    }
                }
            }
        }
        state.start_commit(self.host.now());
        self.pump(&mut state);
        drop(state);
        for request in done.into_iter().chain(burst) {
            request.complete(context, Ok(()));
        }
    }

    /// Moves a piece's data between frames and media.
    fn move_content(&self, active: &Active, piece: &Piece) {
        let request = &active.request;
        let first_page = request.offset.0 >> PAGE_SHIFT;
        let moved = piece.first as usize..(piece.first + piece.job.pages) as usize;
        match request.op {
            IoOp::Read => {
                let media = self.media();
                let (len, object) = (media.len(request.object), request.object);
                // A hole's piece has no blocks: it stands for all the frames of the request.
                let moved = if piece.job.pages == 0 {
                    0..request.frames.len()
                } else {
                    moved
                };
                for at in moved {
                    let page = first_page + at as u64;
                    let beyond = Bytes(page << PAGE_SHIFT) >= len;
                    let content = if beyond {
                        ZEROES
                    } else {
                        media.read(object, page)
                    };
                    self.stamps.store(request.frames[at], content);
                }
            }
            IoOp::Write => {
                let mut media = self.media();
                for at in moved {
                    let content = active.content(&self.stamps, at);
                    media.write(request.object, first_page + at as u64, content);
                }
            }
            IoOp::Flush
            | IoOp::SetLen { .. }
            | IoOp::Allocate { .. }
            | IoOp::Discard { .. }
            | IoOp::Prepare { .. } => {}
        }
    }

    /// Takes a request whose pieces have all ended out of the slab and does what it is for.
    fn finish(&self, state: &mut State, slot: u32) -> Box<IoRequest> {
        let active = state.requests.remove(slot);
        let request = active.request;
        match request.op {
            IoOp::Read => state.stats.pages_read += request.pages().0,
            IoOp::Write => {
                state.stats.pages_written += request.pages().0;
                state.gate.under_way -= request.pages().0;
            }
            IoOp::Flush => self.media().flush(request.object, active.mark),
            IoOp::SetLen { len } => self.media().set_len(request.object, len),
            IoOp::Allocate { .. } | IoOp::Prepare { .. } => {}
            IoOp::Discard { len } => self.media().discard(request.object, request.offset, len),
        }
        if let Some(mut early) = active.early
            && state.scratch.spare.len() < SPARE_MAX
        {
            early.clear();
            state.scratch.spare.push(early);
        }
        state.stats.requests += 1;
        request
    }

    /// A commit of held writes has ended: they are durable and all end at once.
    fn committed(&self, state: &mut State) -> Requests {
        let slots = state
            .gate
            .committing
            .take()
            .expect("a commit that ends has begun");
        let mut ended = Vec::with_capacity(slots.len());
        for slot in slots {
            let mark = state.requests.get(slot).mark;
            let request = self.finish(state, slot);
            self.media().flush(request.object, mark);
            ended.push(request);
        }
        ended
    }

    /// Any part of the writes under way reaches the media; all requests leave.
    fn tear(&self, state: &mut State) -> Requests {
        let mut media = self.media();
        let mut lost = Vec::new();
        for active in state.requests.slots.iter_mut().filter_map(Option::take) {
            if active.request.op == IoOp::Write {
                let first_page = active.request.offset.0 >> PAGE_SHIFT;
                for at in 0..active.request.frames.len() {
                    // Mostly whole or not at all, sometimes torn between sectors.
                    let sectors = match self.host.random() % 16 {
                        0..7 => 0,
                        7..14 => SECTORS_PER_PAGE,
                        14 => 2,
                        _ => 5,
                    };
                    let content = active.content(&self.stamps, at);
                    if sectors > 0 {
                        let page = first_page + at as u64;
                        media.write_torn(active.request.object, page, content, sectors);
                    }
                }
            }
            lost.push(active.request);
        }
        state.requests = Slab::default();
        lost
    }
}

impl Active {
    fn content(&self, stamps: &Stamps, at: usize) -> PageStamps {
        match &self.early {
            Some(early) => early[at],
            None => stamps.load(self.request.frames[at]),
        }
    }
}

impl State {
    /// The next piece, or when to ask again.
    fn pop(&mut self, now: Instant, expire: Nanos) -> Result<Option<Piece>, Instant> {
        let Some(slices) = self.mechanism.slices() else {
            return Ok(self.queue.pop(self.head, now, expire));
        };
        let sides = self.queue.sides();
        if sides == (false, false) {
            return Ok(None);
        }
        match self.turns.next(slices, now, sides) {
            Next::Waited => Ok(self.queue.pop_of(self.head, false)),
            Next::Writeback => {
                let old = self.queue.pop_expired(now, expire);
                Ok(old.or_else(|| self.queue.pop_of(self.head, true)))
            }
            Next::At(until) => Err(until),
        }
    }

    /// A piece has ended: what follows it is waited for, for a moment.
    fn note_ended(&mut self, piece: &Piece, now: Instant) {
        if let Some(slices) = self.mechanism.slices()
            && piece.job.kind == Kind::Read
        {
            self.turns.quiet = now + slices.idle;
        }
    }

    /// Pieces that wait or are served now.
    fn waiting(&self) -> u64 {
        self.queue.len + u64::from(self.in_service) + u64::from(self.refused.is_some())
    }

    /// Queues the pieces of a request's extents; answers how many.
    fn queue_extents(
        &mut self,
        extents: &[Extent],
        owner: Owner,
        class: IoClass,
        queued: Instant,
        reads: bool,
    ) -> u32 {
        let most =
            u32::try_from(self.mechanism.request_max().pages_floor().0.max(1)).unwrap_or(u32::MAX);
        let (mut first, mut count) = (0, 0);
        for extent in extents {
            let mut done = 0;
            while done < extent.pages {
                let pages = most.min(extent.pages - done);
                let (kind, block) = match extent.block {
                    None => (Kind::Hole, self.head),
                    Some(block) if reads => (Kind::Read, block + u64::from(done)),
                    Some(block) => (Kind::Write, block + u64::from(done)),
                };
                let job = Job {
                    kind,
                    block,
                    pages,
                    page_bytes: PAGE_SIZE,
                };
                self.queue.push(
                    class,
                    Piece {
                        job,
                        owner,
                        first,
                        queued,
                    },
                );
                first += pages;
                done += pages;
                count += 1;
            }
        }
        count
    }

    /// Queues what the layout writes on its own account.
    fn queue_sides(&mut self, sides: &[Side], queued: Instant) {
        for side in sides {
            let kind = if side.barrier {
                Kind::Flush {
                    unstable: Bytes::ZERO,
                }
            } else {
                Kind::Write
            };
            let job = Job {
                kind,
                block: side.block,
                pages: side.pages,
                page_bytes: self.layout.side_bytes(),
            };
            let piece = Piece {
                job,
                owner: Owner::Layout,
                first: 0,
                queued,
            };
            self.queue.push(IoClass::Writeback, piece);
        }
    }

    fn hold(&mut self, slot: u32) {
        self.gate.held_pages += self.requests.get(slot).request.pages().0;
        self.gate.held.push(slot);
    }

    /// Commits once at least half of what is under way waits for it.
    fn start_commit(&mut self, now: Instant) {
        let gate = &mut self.gate;
        if gate.committing.is_some() || gate.held.is_empty() || gate.held_pages * 2 < gate.under_way
        {
            return;
        }
        let unstable = Pages(core::mem::take(&mut gate.held_pages)).bytes();
        gate.committing = Some(core::mem::take(&mut gate.held));
        let job = Job {
            kind: Kind::Flush { unstable },
            block: self.head,
            pages: 0,
            page_bytes: PAGE_SIZE,
        };
        let piece = Piece {
            job,
            owner: Owner::Commit,
            first: 0,
            queued: now,
        };
        self.queue.push(IoClass::Sync, piece);
    }
}

impl Stats {
    fn count(&mut self, piece: &Piece, service: Service) {
        self.pieces += 1;
        self.busy += service.time;
        if piece.owner == Owner::Layout {
            self.pages_metadata += u64::from(piece.job.pages);
        }
        if let Kind::Flush { .. } = piece.job.kind {
            self.flushes += 1;
        }
        if let Some(stall) = service.stall {
            self.stalls += 1;
            self.stalled += stall.time;
            self.stall_longest = self.stall_longest.at_least(stall.time);
        }
    }
}

impl Slab {
    fn insert(&mut self, active: Active) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(active);
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).expect("requests under way are few");
        self.slots.push(Some(active));
        slot
    }

    fn get(&mut self, slot: u32) -> &mut Active {
        self.slots[slot as usize]
            .as_mut()
            .expect("a piece's request is under way")
    }

    fn remove(&mut self, slot: u32) -> Active {
        self.free.push(slot);
        self.slots[slot as usize]
            .take()
            .expect("a request ends once")
    }
}

impl Queue {
    fn new(order: Order) -> Self {
        Self {
            order,
            classes: [const { BTreeMap::new() }; CLASSES],
            oldest: VecDeque::new(),
            arrivals: 0,
            len: 0,
        }
    }

    fn push(&mut self, class: IoClass, piece: Piece) {
        let (place, class) = match self.order {
            Order::Position => (piece.job.block, class),
            Order::Arrival => (0, class),
            // A job that is no I/O (space in a file that nobody logs) does not queue.
            Order::Unscheduled if piece.job.kind == Kind::Hole => (0, IoClass::Read),
            Order::Unscheduled => (0, IoClass::Sync),
        };
        let key = (place, self.arrivals);
        self.arrivals += 1;
        self.len += 1;
        if class == IoClass::Writeback {
            self.oldest.push_back((piece.queued, key));
        }
        self.classes[class as usize].insert(key, piece);
    }

    /// Tells if there are pieces that are waited for, and of writeback.
    fn sides(&self) -> (bool, bool) {
        let writeback = IoClass::Writeback as usize;
        let waited = self.classes[..writeback]
            .iter()
            .any(|class| !class.is_empty());
        (waited, !self.classes[writeback].is_empty())
    }

    /// The next piece of one side, upwards from the head.
    fn pop_of(&mut self, head: u64, is_writeback: bool) -> Option<Piece> {
        let writeback = IoClass::Writeback as usize;
        let (waited, written) = self.classes.split_at_mut(writeback);
        let side = if is_writeback { written } else { waited };
        let piece = take_upwards(side, head)?;
        self.len -= 1;
        Some(piece)
    }

    /// A write that has waited for `expire`.
    fn pop_expired(&mut self, now: Instant, expire: Nanos) -> Option<Piece> {
        let writeback = IoClass::Writeback as usize;
        while let Some((queued, key)) = self.oldest.front() {
            if !self.classes[writeback].contains_key(key) {
                self.oldest.pop_front();
                continue;
            }
            if now.since(*queued) < expire {
                break;
            }
            let key = *key;
            self.oldest.pop_front();
            self.len -= 1;
            return self.classes[writeback].remove(&key);
        }
        None
    }

    /// The next piece: an expired write, else the first class that has any, upwards from the head.
    fn pop(&mut self, head: u64, now: Instant, expire: Nanos) -> Option<Piece> {
        if let Some(old) = self.pop_expired(now, expire) {
            return Some(old);
        }
        let piece = take_upwards(&mut self.classes, head)?;
        self.len -= 1;
        Some(piece)
    }
}

/// The next piece of the first class that has any, upwards from the head and then from the start.
fn take_upwards(classes: &mut [BTreeMap<(u64, u64), Piece>], head: u64) -> Option<Piece> {
    let class = classes.iter_mut().find(|class| !class.is_empty())?;
    let from = class
        .range((head, 0)..)
        .next()
        .or_else(|| class.iter().next());
    let key = from.map(|(key, _)| *key)?;
    class.remove(&key)
}

//! A volume kept as objects of one size in an object store: a local directory, memory, Amazon S3
//! and what speaks its protocol.
//!
//! `Objects` is an `env::Device` with one object, the volume. A request is cut at the boundaries of
//! the store's objects; parts of one object are put in order and merged while they wait, different
//! objects go side by side. A part of an object is written by reading the rest and putting the
//! whole; nothing that nobody wrote is stored.
//!
//! ```text
//!   cache --request--> cut into parts --queue by object--> job --get, put if unchanged--> store
//!                                                           '--> every part ended: complete
//! ```
//!
//! Invariants
//!   1. A put names the version that it replaces. If somebody else wrote the object, nothing is
//!      overwritten and the device is lost (`IoError::Lost`, `Objects::failure`).
//!   2. A put that was answered is durable, so a flush waits for the writes before it and asks
//!      nothing of the store.
//!   3. At most `parallel` contents of objects are in memory for writes; reads copy into the frames
//!      as they arrive.
//!   4. `submit` never waits; calls have a bound in time, and what fails is told to the cache,
//!      which decides.
//!   5. An object of a wrong length refuses writes; a reader is told at that place (EIO).
//!   6. A second server is kept out by a lease (a lock of the system's for a directory); a server
//!      that lost it stops.
//!
//! Concurrency: a thread of its own runs a tokio runtime; `Objects` may be used from any thread.
#![forbid(unsafe_code)]

mod client;
mod clock;
mod error;
mod job;
mod known;
mod layout;
mod lease;
mod local;
mod open;
mod place;
#[cfg(feature = "s3")]
mod profile;
mod pump;
mod queue;
mod request;
mod shared;
mod spare;
#[cfg(feature = "s3")]
mod wire;

// The unit tests use what the others share, which knows this crate by its name.
#[cfg(test)]
extern crate self as objects;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

pub use error::Error;
pub use open::open_on;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use env::{Device, DeviceInfo, Interrupt, IoError, IoOp, IoRequest, ObjectId};
use os::{Arena, OwnPaths};
use policy::units::{Bytes, PAGE_SIZE};
use tokio::sync::oneshot;

use error::READ_ONLY;
use layout::{OBJECT_USUAL, OBJECTS_MAX};
use queue::{Part, Want};
use request::{Whole, lock};
use shared::Shared;

/// Puts at once, if nothing is said.
pub const PARALLEL_USUAL: u16 = 8;
/// Puts at once, at most.
const PARALLEL_MAX: u16 = 64;
/// Memory beside the objects' contents: the runtime, connections and their TLS.
const MEMORY_BASE: u64 = 4 << 20;
/// Time that a device that is dropped waits for requests under way.
const DROP_BOUND: Duration = Duration::from_secs(2);
/// Interval of its looks.
const TICK: Duration = Duration::from_millis(1);

/// The place of a volume, and the manner of keeping it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `dir:PATH`, `mem:` or `s3://BUCKET/PREFIX`.
    pub url: String,
    /// Its size in bytes: made if it is not there; if it is, it must agree. None: it must be there.
    pub size: Option<u64>,
    /// Bytes of an object: a power of two from 256 KiB to 64 MiB (1 MiB for a new volume, if not
    /// set).
    pub object_size: Option<u64>,
    /// Puts at once, and as many gets: 1 to 64 (8 if not set).
    pub parallel: Option<u16>,
    /// Nothing is written, and nobody else is kept out.
    pub read_only: bool,
    /// Take the lease of another server, which is then stopped. Not for a directory: end the other
    /// process.
    pub force: bool,
    /// The life of a lease that is not renewed (30 s).
    pub lease: Duration,
    /// Bound on a call to the store, its retries included (30 s).
    pub timeout: Duration,
}

impl Config {
    /// Defaults for a place.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            size: None,
            object_size: None,
            parallel: None,
            read_only: false,
            force: false,
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
        }
    }

    fn parallel(&self) -> Result<usize, Error> {
        let parallel = self.parallel.unwrap_or(PARALLEL_USUAL);
        if parallel == 0 || parallel > PARALLEL_MAX {
            return Err(Error::Option {
                name: "parallel",
                value: u64::from(parallel),
                allowed: "1 to 64",
            });
        }
        Ok(usize::from(parallel))
    }
}

/// Answers of stores while volumes were opened, in this process so far: it grows while a start that
/// is slow goes on.
#[must_use]
pub fn answers() -> u64 {
    open::answers()
}

/// Bytes of memory that a volume takes beside the cache, at most: for `Builder::beside`. A volume
/// that is there already and has larger objects than `config` says takes more; `Objects::memory`
/// says how much.
#[must_use]
pub fn memory(config: &Config) -> u64 {
    let object_size = config.object_size.unwrap_or(OBJECT_USUAL);
    let parallel = u64::from(config.parallel.unwrap_or(PARALLEL_USUAL));
    let objects = config
        .size
        .map_or(OBJECTS_MAX, |size| size.div_ceil(object_size.max(1)));
    memory_of(object_size, parallel, objects)
}

fn memory_of(object_size: u64, parallel: u64, objects: u64) -> u64 {
    let versions = objects.min(known::TAGS_MAX as u64) * known::TAG_BYTES;
    let bits = objects / 4;
    MEMORY_BASE + 2 * parallel * object_size + versions + bits
}

/// The requests to the store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gets, also of ranges.
    pub gets: u64,
    /// Puts, those that failed included.
    pub puts: u64,
    /// Looks without content.
    pub heads: u64,
    /// Bytes got.
    pub bytes_read: u64,
    /// Bytes put and answered.
    pub bytes_written: u64,
    /// Calls that failed or had no answer; a changed object is not among them.
    pub failed: u64,
    /// Requests that went together with another one of the same object.
    pub merged: u64,
}

/// A volume in an object store.
pub struct Objects {
    shared: Arc<Shared>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Opens a volume, or makes it. Waits for the store. `arena`: the memory of the frames that
/// requests carry.
///
/// # Errors
/// See [`Error`].
pub fn open(config: &Config, arena: Arc<Arena>) -> Result<Arc<Objects>, Error> {
    let (objects, made) = open_to_be_kept(config, arena)?;
    made.keep();
    Ok(objects)
}

/// As `open`. Answers too what was made in a local directory for it, folders and all: it goes again
/// unless it is kept, which has to be before the volume is closed.
///
/// # Errors
/// See [`Error`].
pub fn open_to_be_kept(
    config: &Config,
    arena: Arc<Arena>,
) -> Result<(Arc<Objects>, OwnPaths), Error> {
    open::open_at(|| place::Location::of(config), config, arena)
}

impl Objects {
    /// The device's one object: the volume.
    pub const OBJECT: ObjectId = ObjectId(0);

    /// Bytes of the volume.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.shared.geometry.size
    }

    /// Bytes of one object.
    #[must_use]
    pub fn object_size(&self) -> u64 {
        self.shared.geometry.object_size
    }

    /// Bytes of memory that it takes beside the cache, at most.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let geometry = &self.shared.geometry;
        memory_of(
            geometry.object_size,
            self.shared.parallel as u64,
            geometry.objects(),
        )
    }

    /// The length, from `offset` on and for `len` bytes at most, for which the volume is all hole
    /// or all data: bytes, and true for a hole. Asks nothing of the store. Data that the cache has
    /// not written are not known here.
    #[must_use]
    pub fn extents(&self, offset: u64, len: u64) -> (u64, bool) {
        let geometry = self.shared.geometry;
        let end = offset.saturating_add(len).min(geometry.size);
        if offset >= end {
            return (0, true);
        }
        let object = offset / geometry.object_size;
        let (run, data) = lock(&self.shared.known).run(object, end.div_ceil(geometry.object_size));
        let reached = ((object + run) * geometry.object_size).min(end);
        (reached - offset, !data)
    }

    /// Bytes of objects that hold data.
    #[must_use]
    pub fn stored(&self) -> u64 {
        lock(&self.shared.known).filled() * self.shared.geometry.object_size
    }

    /// Why the device is lost, if it is, why calls on a directory fail until somebody brings it
    /// back, or which answer of the store was not believed, until one is again.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let lost = self.shared.lost.get().cloned();
        lost.or_else(|| self.shared.away())
            .or_else(|| self.shared.client.lie())
    }

    /// Objects of a wrong length, by name, with that length. A volume that is open for reading has
    /// them: what is in them cannot be read, all else can.
    pub fn damaged(&self) -> impl Iterator<Item = (String, u64)> {
        let damaged = self.shared.damaged.iter();
        damaged.map(|(object, has)| (layout::name_of(*object), *has))
    }

    /// Requests taken and not ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.ledger.pending()
    }

    /// The requests to the store so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counters = &self.shared.client.counters;
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            gets: of(&counters.gets),
            puts: of(&counters.puts),
            heads: of(&counters.heads),
            bytes_read: of(&counters.bytes_read),
            bytes_written: of(&counters.bytes_written),
            failed: of(&counters.failed),
            merged: of(&counters.merged),
        }
    }

    /// Ends it: waits for what is under way, at most for `bound`, ends the rest as cancelled, and
    /// gives the lease back. Requests that come later are cancelled. A second call finds nothing to
    /// do.
    pub fn close(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        while self.pending() > 0 && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.cancel_waiting();
        drop(lock(&self.stop).take());
        let thread = lock(&self.thread).take();
        // The last hold may go with a request that ends on the runtime's own thread.
        if let Some(thread) = thread.filter(|one| one.thread().id() != std::thread::current().id())
        {
            // Its panics, if any, were reported by the hook.
            let _ = thread.join();
            self.shared.unlock();
        }
    }

    fn zero_beyond_the_end(&self, request: &IoRequest) {
        let inside = self.size().saturating_sub(request.offset.0);
        let total = request.frames.len() as u64 * PAGE_SIZE;
        if inside < total {
            let from = usize::try_from(inside).expect("within a request");
            let len = usize::try_from(total - inside).expect("within a request");
            job::zero_frames(&self.shared.arena, request, from, len);
        }
    }

    /// Cuts a request that moves or zeroes `len` bytes and sends it on its way.
    fn cut(&self, mut request: Box<IoRequest>, want: Want, len: u64) {
        let shared = &self.shared;
        let geometry = shared.geometry;
        let (begin, class) = (request.offset.0, request.class);
        let range = begin..begin.saturating_add(len).min(geometry.size);
        let more = want == Want::Write && !request.more.is_zero();
        let mut cut: Vec<_> = geometry.cut(range).collect();
        let mut held = None;
        let mut moved = 0;
        if want == Want::Write {
            let bound = shared.parallel as u64 * geometry.object_size;
            moved = shared.ledger.move_on(&mut request, len, bound);
        }
        let mut jobs = lock(&shared.jobs);
        if want != Want::Write {
            // An object that is not stored, and not on its way there, is zeroes already.
            let known = lock(&shared.known);
            let is_there = |object| match want {
                // A put without an answer may still make it.
                Want::Discard => known.exists(object) || !known.seen(object).tried.is_empty(),
                Want::Read | Want::Write => known.has_data(object),
            };
            cut.retain(|(object, part)| {
                let keep = jobs.queue.has(*object) || is_there(*object);
                if want == Want::Read && !keep {
                    let from = object * geometry.object_size + part.start - begin;
                    let from = usize::try_from(from).expect("within a request");
                    let len = usize::try_from(part.end - part.start).expect("within a request");
                    job::zero_frames(&shared.arena, &request, from, len);
                }
                keep
            });
        }
        if cut.is_empty() {
            drop(jobs);
            request::complete(request, Ok(()));
            return;
        }
        let whole = Whole::new(
            &shared.ledger,
            request,
            cut.len(),
            want != Want::Read,
            moved,
        );
        let last = cut.len() - 1;
        for (place, (object, part)) in cut.into_iter().enumerate() {
            let from = object * geometry.object_size + part.start - begin;
            let hold = more && place == last && part.end < geometry.object_len(object);
            if hold {
                held = Some(object);
            }
            let part = Part {
                whole: Arc::clone(&whole),
                want,
                range: part,
                from: usize::try_from(from).unwrap_or(usize::MAX),
                class,
            };
            jobs.queue.push(object, part, hold);
        }
        drop(jobs);
        drop(whole);
        if let Some(object) = held {
            shared.let_go_soon(object);
        }
        shared.pump();
        if shared.stopping.load(Ordering::Acquire) {
            // `close` may have emptied the queue just before this came.
            shared.cancel_waiting();
        }
    }
}

impl Device for Objects {
    fn submit(&self, request: Box<IoRequest>) {
        let end = |request: Box<IoRequest>, result| request.complete(&Interrupt::new(), result);
        let moves = matches!(request.op, IoOp::Read | IoOp::Write);
        assert!(
            !moves || request.offset.0.is_multiple_of(PAGE_SIZE),
            "{:?} at {:?}: not a multiple of a page",
            request.op,
            request.offset
        );
        if let Err(error) = self.shared.check() {
            return end(request, Err(error));
        }
        let (size, total) = (self.size(), request.frames.len() as u64 * PAGE_SIZE);
        let read_only = self.shared.read_only;
        match request.op {
            IoOp::Read => {
                self.zero_beyond_the_end(&request);
                self.cut(request, Want::Read, total);
            }
            IoOp::Write | IoOp::Discard { .. } if read_only => end(request, Err(READ_ONLY)),
            IoOp::Write if total > 0 && request.offset.0 >= size => {
                end(request, Err(IoError::NoSpace))
            }
            IoOp::Write => self.cut(request, Want::Write, total),
            IoOp::Discard { len } => self.cut(request, Want::Discard, len.0),
            IoOp::Flush => self.shared.ledger.flush(request),
            // A volume has the size it has.
            IoOp::SetLen { len } if len > Bytes(size) => end(request, Err(IoError::NoSpace)),
            IoOp::Allocate { len } if len.0 > size.saturating_sub(request.offset.0) => {
                end(request, Err(IoError::NoSpace));
            }
            IoOp::SetLen { .. } | IoOp::Allocate { .. } | IoOp::Prepare { .. } => {
                end(request, Ok(()))
            }
        }
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            alignment: 4096,
            // The content is copied before it is sent.
            stable_writes: false,
            grow_ahead: None,
            prepares_writes: false,
            queue: None,
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close(DROP_BOUND);
    }
}

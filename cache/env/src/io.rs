//! Requests, devices, and what a device may use of its surroundings.
//!
//! A `Device` takes requests and completes them; it never blocks the submitter. A wrapper (slow,
//! faulty, traced) is a `Device` that holds another: it may delay the request, and it sees the
//! completion by putting itself on the request's stack of `done` handlers.
//!
//! Ownership: a request is boxed, made once and used again; it carries the frames it moves, which
//! stay busy or under writeback until `complete`. `complete` is called exactly once, from a context
//! that must not wait.

use core::fmt;
use std::sync::Arc;

use frames::{Busy, FrameId};
use policy::units::{Bytes, Instant, Nanos, Pages};
use policy::writeback::DeviceQueue;

use crate::Interrupt;

/// Number of a device within an `Env`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// Number of an object (a file, or the device as a whole) on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// The operation of a request. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Read into the frames. Bytes beyond the object's end read as zeroes.
    Read,
    /// Write from the frames.
    Write,
    /// Make all completed writes of the object durable.
    Flush,
    /// Set the object's true length.
    SetLen {
        /// The new length.
        len: Bytes,
    },
    /// Make sure that a range of the object has space; its length stays.
    Allocate {
        /// Length from the request's offset.
        len: Bytes,
    },
    /// Give the space of a range back; it reads as zeroes afterwards.
    Discard {
        /// Length from the request's offset.
        len: Bytes,
    },
    /// A write is about to be taken in: the task that keeps the object may hold the writer up.
    /// Moves and changes nothing; sent only to devices that want it
    /// (`DeviceInfo::prepares_writes`).
    Prepare {
        /// Length from the request's offset.
        len: Bytes,
    },
}

/// The kind of task that waits for the request: queues that choose serve them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoClass {
    /// A reader waits.
    Read,
    /// A sync waits.
    Sync,
    /// Read-ahead.
    ReadAhead,
    /// Nobody waits.
    Writeback,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// The device said so; an error number of the system.
    Failed {
        /// `errno`.
        errno: i32,
    },
    /// No space left.
    NoSpace,
    /// Space is left, and not for this user: a quota is used up.
    OverQuota,
    /// The device is gone and will not come back.
    Lost,
    /// Others have changed the length of the file: to go on would overwrite, or cut off, what they
    /// wrote.
    Changed,
    /// Only the first `done` bytes were moved.
    Torn {
        /// Their number.
        done: u64,
    },
    /// The `Env` shuts down.
    Cancelled,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { errno } => {
                write!(f, "{}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::NoSpace => f.write_str("no space left on the device"),
            Self::OverQuota => f.write_str("the quota on the device is used up"),
            Self::Lost => f.write_str("the device is gone"),
            Self::Changed => f.write_str("the file was made longer by others"),
            Self::Torn { done } => write!(f, "only the first {done} bytes were moved"),
            Self::Cancelled => f.write_str("cancelled: shutting down"),
        }
    }
}

impl std::error::Error for IoError {}

/// Takes the end of a request.
pub trait IoDone: Send + Sync {
    /// The request ended. Must not wait; may take locks with `context`.
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>);

    /// The device is through with the request, though its end is still to come (a file system has
    /// to make it part of a file first): there is room for others.
    fn io_moved(&self, context: &Interrupt, request: &IoRequest) {
        let _ = (context, request);
    }
}

/// One request to a device.
pub struct IoRequest {
    /// To which device.
    pub device: DeviceId,
    /// On which object of it.
    pub object: ObjectId,
    /// The operation.
    pub op: IoOp,
    /// The kind of task that waits.
    pub class: IoClass,
    /// First byte in the object; a multiple of the page size for reads and writes.
    pub offset: Bytes,
    /// The frames in order of the object, 4 KiB each.
    pub frames: Vec<FrameId>,
    /// Bytes of the last frame that a write leaves out: the object is to end before them. Only
    /// devices that were asked for it are sent any.
    pub cut: Bytes,
    /// For a read: the exclusive rights to `frames`, travelling with the request.
    pub busy: Vec<Busy>,
    /// When its submitter began to put it together.
    pub begun: Instant,
    /// When it was handed to the `Env`.
    pub submitted: Instant,
    /// Its submitter may block, and has nothing to do until it has ended: it may be done in the
    /// calling thread.
    pub in_place: bool,
    /// A hint: the next request goes on where this one ends, with at most this many pages to come.
    pub more: Pages,
    /// Its submitter has been told that it was moved; to be cleared before it is used again.
    pub moved: bool,
    /// The submitter's own words.
    pub cookie: [u64; 2],
    done: Vec<(Arc<dyn IoDone>, u64)>,
    note: u64,
}

impl IoRequest {
    /// A request with room for `frames` frames, to be used again and again.
    #[must_use]
    pub fn with_room(frames: usize) -> Box<Self> {
        let mut request = Self::for_writes(frames);
        request.busy.reserve_exact(frames);
        request
    }

    /// As `with_room`, but for requests that never carry busy bits.
    #[must_use]
    pub fn for_writes(frames: usize) -> Box<Self> {
        Box::new(Self {
            device: DeviceId(0),
            object: ObjectId(0),
            op: IoOp::Read,
            class: IoClass::Read,
            offset: Bytes::ZERO,
            frames: Vec::with_capacity(frames),
            cut: Bytes::ZERO,
            busy: Vec::new(),
            begun: Instant::ZERO,
            submitted: Instant::ZERO,
            in_place: false,
            more: Pages::ZERO,
            moved: false,
            cookie: [0; 2],
            // The submitter and a few wrappers.
            done: Vec::with_capacity(6),
            note: 0,
        })
    }

    /// Number of pages that it moves.
    #[must_use]
    pub fn pages(&self) -> Pages {
        Pages(self.frames.len() as u64)
    }

    /// Puts a handler on top: it will see the completion before those already there.
    pub fn on_done(&mut self, handler: Arc<dyn IoDone>) {
        self.on_done_noted(handler, 0);
    }

    /// Like `on_done`; `note` is what `IoRequest::note` answers while that handler has the request.
    /// So one handler serves all requests of a wrapper, and nothing is allocated per request.
    pub fn on_done_noted(&mut self, handler: Arc<dyn IoDone>, note: u64) {
        self.done.push((handler, note));
    }

    /// The word that the handler now called was put on the request with.
    #[must_use]
    pub fn note(&self) -> u64 {
        self.note
    }

    /// Tells the task that put a handler on that the device is through with it; `complete` follows.
    pub fn note_moved(&mut self, context: &Interrupt) {
        self.moved = true;
        for (handler, _) in self.done.iter().rev() {
            handler.io_moved(context, self);
        }
    }

    /// Ends the request: the topmost handler gets it. A wrapper's handler calls this again.
    ///
    /// # Panics
    /// If no handler is left: completed twice, or submitted without one.
    pub fn complete(mut self: Box<Self>, context: &Interrupt, result: Result<(), IoError>) {
        let (handler, note) = self
            .done
            .pop()
            .expect("a request has a handler and is completed once");
        self.note = note;
        handler.io_done(context, self, result);
    }
}

impl fmt::Debug for IoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoRequest")
            .field("device", &self.device)
            .field("object", &self.object)
            .field("op", &self.op)
            .field("offset", &self.offset)
            .field("pages", &self.frames.len())
            .finish_non_exhaustive()
    }
}

/// The properties of a device that `mm` has to know.
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    /// Offsets and lengths of I/O are multiples of this; at most a page.
    pub alignment: u32,
    /// Content must not change while a write is under way.
    pub stable_writes: bool,
    /// Writes beyond an object's end are slow, even where space is allocated: its length is set
    /// ahead of them, by so much at least. (ext4 lets one writer at a time extend a file, and
    /// io_uring hands such writes to its workers, which then spin for that lock.)
    pub grow_ahead: Option<Bytes>,
    /// May hold writers up: wants an `IoOp::Prepare` before each call that writes.
    pub prepares_writes: bool,
    /// The device's own queue, where it is known: Linux's flusher fits its requests to it.
    pub queue: Option<DeviceQueue>,
}

/// Something that takes requests and completes them.
pub trait Device: Send + Sync + 'static {
    /// Takes a request. Never blocks.
    fn submit(&self, request: Box<IoRequest>);
    /// Takes a request whose submitter waits for it (`IoRequest::in_place`), and may do it before
    /// it returns. A device that holds another and hands requests on later has nobody who waits
    /// then, so it leaves this as it is.
    fn submit_in_place(&self, request: Box<IoRequest>) {
        self.submit(request);
    }
    /// Its properties.
    fn info(&self) -> DeviceInfo;
}

/// The part of its `Env` that a device may use: time, timers, chance.
pub trait Host: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Instant;
    /// Calls `what` at `when`, or soon after; in order of (`when`, call of `at`).
    fn at(&self, when: Instant, what: Box<dyn FnOnce(&Interrupt) + Send>);
    /// A random number from the devices' stream.
    fn random(&self) -> u64;
    /// Calls `what` after `delay`.
    fn after(&self, delay: Nanos, what: Box<dyn FnOnce(&Interrupt) + Send>) {
        self.at(self.now() + delay, what);
    }
}

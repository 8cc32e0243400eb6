//! The memory of all frames: reserved once, populated and given back in chunks.
//!
//! One anonymous mapping is reserved at the start without any right to it (`PROT_NONE`), so that a
//! frame costs nothing before its first use and a stray access to a chunk that was given back is a
//! fault, not silent memory. `populate` opens one chunk and makes it resident; `release` takes its
//! memory away again.
//!
//! ```text
//!   base, aligned to 2 MiB
//!   | chunk 0 (resident) | chunk 1 (resident) | chunk 2 (none) | ...
//!     frame f at base + 4096 f                  PROT_NONE
//! ```
//!
//! Chunks of 2 MiB and more ask for huge pages: 1 MiB of I/O is then one segment for the disk, not
//! 256 (a virtio disk with 254 segments per request, 1 MiB at depth 8 over small and huge pages,
//! three interleaved runs: writes 1.9 -> 2.8, reads 1.4 -> 3.0 GiB/s, CPU time less than half). A
//! chunk comes and goes whole, so nothing more becomes resident.
//!
//! Watchers are told of both: an I/O ring registers a chunk's memory with the kernel after
//! `populate`, and must have given it up *before* `release` drops the memory. A registered buffer
//! keeps the pages it was made of; after MADV_DONTNEED it would go on sending the old ones.
//!
//! Invariants
//!   1. Bytes of a frame are written only through `&Busy` (exclusive) or by a device on behalf of
//!      a request that carries the frame; they are read through `&Pin` or by such a device.
//!   2. Only frames of a resident chunk are touched: every access asserts it.
//!   3. A chunk's memory is dropped only after every watcher has answered.
//!   4. A frame that is at home in a map has no memory here: `address` alone says where it is, and
//!      its bytes are copied as those that others may change meanwhile.
//!   5. The mapping lives as long as any of its users: readers borrow the arena, engines hold an
//!      `Arc`, and an engine that could not get its requests back leaks that `Arc`.
//!
//! Safety rests on one promise that types do not carry: the `Pin`s and `Busy`s come from the one
//! frame table that belongs to this arena, and a request carries frames that are busy or under
//! writeback until it is complete (cache/env/src/io.rs, "Ownership").
//!
//! Source: docs/adr/0006.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use env::IoRequest;
use frames::{Buffer, Busy, Content, Data, DataMut, FrameId, Pin, PopulateError};
use policy::units::Bytes;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::OsError;
use crate::sys::{self, NO_MEMORY, grow};
use crate::view::View;
use crate::way::{self, Way};

mod homes;

/// Bytes of a frame.
pub(crate) const FRAME: usize = 4096;
/// The base's alignment: that of a huge page, so that a chunk of 2 MiB can be one.
const BASE_ALIGN: usize = 2 << 20;
/// The smallest chunk; a 4 KiB page of its own would make the kernel's tables huge.
pub(crate) const CHUNK_FRAMES_MIN: u32 = 16;
/// The largest chunk, 64 MiB: what is given back at once.
pub(crate) const CHUNK_FRAMES_MAX: u32 = 16384;
/// Runs of frames that are received into at once; beyond them less is received.
const RECEIVED_MAX: usize = 72;

/// A user that keeps its own hold of a chunk's memory.
pub(crate) trait ChunkWatcher: Send + Sync {
    /// The chunk is resident and may be registered.
    fn populated(&self, chunk: Chunk);
    /// The chunk's memory goes away. Returns when nothing holds or uses it any more.
    fn releasing(&self, chunk: Chunk);
}

/// One chunk: its number and its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) index: u32,
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: a `Chunk` is an address and a length; sending it moves no access right. A task that turns
// it into an access (the kernel, through a ring) follows invariants 1 and 3.
unsafe impl Send for Chunk {}

/// The memory of all frames. `frames::Content` over bytes.
pub struct Arena {
    base: NonNull<u8>,
    frames: u32,
    chunk_shift: u32,
    /// The mapping as the system knows it, alignment included.
    mapping: (NonNull<c_void>, usize),
    resident: Box<[AtomicBool]>,
    /// Runs of frames that prefer a node, in order.
    parts: Vec<(Range<u32>, u32)>,
    /// By chunk, if there are such: its memory came from another node than it prefers.
    misplaced: Box<[AtomicBool]>,
    watchers: Mutex<Vec<Arc<dyn ChunkWatcher>>>,
    /// By frame, where files can be mapped: `OWN`, `ABSENT`, or its address in the alias of a view.
    homes: Box<[AtomicUsize]>,
    /// Those in use, and those that are closed and still have frames.
    views: RwLock<Vec<Lent>>,
}

/// The frame's memory is here; or it may be, as it was given back and is taken again where it is
/// touched.
const OWN: usize = 0;
const ABSENT: usize = 1;

/// A view, and how many frames are at home there.
struct Lent {
    view: Arc<View>,
    frames: AtomicUsize,
}

// SAFETY: the arena is plain memory behind an address that never changes. Shared access to bytes
// follows invariant 1: writes need `&Busy`, which nobody else has for that frame, reads `&Pin`,
// which excludes a `Busy`. The remaining fields are `Sync` themselves.
unsafe impl Sync for Arena {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Reserves address space for `frames` frames, populated by chunks of `chunk_frames`.
    ///
    /// # Errors
    /// `OsError::Option` for a chunk size that is not a power of two in 16..=16384 or for no
    /// frames, `OsError::Arena` when the system refuses the address space.
    pub(crate) fn reserve(frames: u32, chunk_frames: u32) -> Result<Self, OsError> {
        if frames == 0 {
            let allowed = "1 or more";
            return Err(OsError::Option {
                name: "frames",
                value: 0,
                allowed,
            });
        }
        let range = CHUNK_FRAMES_MIN..=CHUNK_FRAMES_MAX;
        if !chunk_frames.is_power_of_two() || !range.contains(&chunk_frames) {
            let (value, allowed) = (u64::from(chunk_frames), "a power of two from 16 to 16384");
            return Err(OsError::Option {
                name: "chunk_frames",
                value,
                allowed,
            });
        }
        let len = frames as usize * FRAME;
        let whole = len + BASE_ALIGN;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the system's choice replaces nothing.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags)
        }
        .map_err(|error| OsError::Arena {
            bytes: len as u64,
            errno: error.raw_os_error(),
        })?;
        let start = NonNull::new(mapped).expect("a mapping is not at address zero");
        let offset = start.cast::<u8>().as_ptr().align_offset(BASE_ALIGN);
        // SAFETY: the mapping is `BASE_ALIGN` longer than needed, so `offset` lies within it.
        let base = unsafe { start.cast::<u8>().add(offset) };
        if chunk_frames as usize * FRAME >= BASE_ALIGN {
            // SAFETY: advice on our own mapping, which holds nothing yet. A refusal means small
            // pages.
            let _ =
                unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        // A child of a fork does not get a copy of the cache, which would be another limit's worth
        // of memory as soon as either writes; and a core dump does not hold what belongs to
        // clients, nor a limit's worth of it.
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: advice on our own mapping, which holds nothing yet; where the system refuses,
            // it is as it was.
            let _ = unsafe { rustix::mm::madvise(mapped, whole, advice) };
        }
        let chunks = frames.div_ceil(chunk_frames) as usize;
        Ok(Self {
            base,
            frames,
            chunk_shift: chunk_frames.trailing_zeros(),
            mapping: (start, whole),
            resident: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            homes: Box::default(),
            views: RwLock::default(),
            parts: Vec::new(),
            misplaced: Box::default(),
            watchers: Mutex::new(Vec::new()),
        })
    }

    /// Core dumps of the process hold the frames too.
    pub(crate) fn be_dumped(&self) {
        let (start, whole) = self.mapping;
        // SAFETY: advice on our own mapping; a refusal leaves it as it was.
        let _ = unsafe { rustix::mm::madvise(start.as_ptr(), whole, Advice::LinuxDoDump) };
    }

    /// Asks for the memory of runs of frames, whole chunks in order, from a node of the system
    /// each; before any is resident.
    ///
    /// # Errors
    /// The system's error number.
    pub(crate) fn prefer(&mut self, parts: Vec<(Range<u32>, u32)>) -> Result<(), i32> {
        for (frames, node) in &parts {
            let bytes = |frame: u32| frame as usize * FRAME;
            let bytes = bytes(frames.start)..bytes(frames.end);
            let asked = sys::prefer_node(self.reserved(&bytes), bytes.len(), *node);
            if let Err(errno) = asked {
                // Not a part of it.
                sys::prefer_no_node(self.base.as_ptr(), self.frames as usize * FRAME);
                return Err(errno);
            }
        }
        self.misplaced = self
            .resident
            .iter()
            .map(|_| AtomicBool::new(false))
            .collect();
        self.parts = parts;
        Ok(())
    }

    /// Of these frames, those that are resident on another node than they prefer, by whole chunks.
    #[must_use]
    pub fn misplaced(&self, frames: Range<u32>) -> u64 {
        let chunks = (0u32..).zip(&self.misplaced);
        let misplaced = chunks.filter(|(_, is)| is.load(Ordering::Relaxed));
        let starts = misplaced.map(|(chunk, _)| chunk << self.chunk_shift);
        let of_chunk = |first: &u32| u64::from((1 << self.chunk_shift).min(self.frames - first));
        starts
            .filter(|first| frames.contains(first))
            .map(|first| of_chunk(&first))
            .sum()
    }

    /// A chunk has got its memory: notes whether from the node that it prefers.
    fn note_place(&self, chunk: Chunk) {
        let first = chunk.index << self.chunk_shift;
        let part = self
            .parts
            .iter()
            .find(|(frames, _)| frames.contains(&first));
        if let Some((_, wanted)) = part {
            let node = self.node_at(first);
            let elsewhere = node.is_some_and(|node| node != *wanted);
            self.misplaced[chunk.index as usize].store(elsewhere, Ordering::Relaxed);
        }
    }

    /// The system's node that a frame's memory is on; it is resident. `None`: the system does not
    /// say.
    fn node_at(&self, frame: u32) -> Option<u32> {
        let at = frame as usize * FRAME;
        sys::node_at(self.reserved(&(at..at + 1)))
    }

    /// Address of bytes of the arena, resident or not.
    ///
    /// # Panics
    /// On bytes outside it.
    pub(crate) fn reserved(&self, bytes: &Range<usize>) -> *mut u8 {
        assert!(
            bytes.start <= bytes.end && bytes.end <= self.frames as usize * FRAME,
            "bytes {bytes:?} of {} frames",
            self.frames
        );
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(bytes.start) }
    }

    /// The bytes of a pinned frame.
    #[must_use]
    #[inline]
    pub fn bytes<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        let address = self.address(pin.frame());
        // SAFETY: the frame is resident (asserted) and lives as long as `self`; while `pin` is
        // borrowed nobody holds the frame's `Busy`, so its bytes do not change (invariant 1).
        unsafe { core::slice::from_raw_parts(address, FRAME) }
    }

    /// The bytes of pinned frames that stand side by side.
    ///
    /// # Panics
    /// If they do not, each right after the one before it; if there are none.
    #[must_use]
    pub fn bytes_of_run<'a>(&'a self, pins: &'a [Pin]) -> &'a [u8] {
        let first = pins.first().expect("a run has a frame").frame();
        for (pin, at) in pins.iter().zip(first.0..) {
            assert_eq!(pin.frame().0, at, "a run of frames side by side");
            self.address(pin.frame());
        }
        // SAFETY: frames side by side are bytes side by side of one mapping, each of them resident
        // (asserted), and live as long as `self`; while the pins are borrowed nobody holds the
        // `Busy` of any of them, so none of their bytes change (invariant 1).
        unsafe { core::slice::from_raw_parts(self.address(first), pins.len() * FRAME) }
    }

    /// Fills parts of busy frames, one after the other, with what a socket has; never waits.
    /// Answers how many bytes: none at the end of the stream.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is nothing now.
    pub fn receive<'a>(
        &self,
        socket: BorrowedFd<'_>,
        parts: impl Iterator<Item = (&'a Busy, Range<usize>)>,
    ) -> io::Result<usize> {
        let mut vectors = [NO_MEMORY; RECEIVED_MAX];
        let mut used = 0;
        for (busy, part) in parts {
            let start = self.span(busy.frame(), part.start, part.len());
            if !grow(&mut vectors[..used], start, part.len()) {
                let Some(free) = vectors.get_mut(used) else {
                    break;
                };
                free.iov_base = start.cast();
                free.iov_len = part.len();
                used += 1;
            }
        }
        // The memory is that of frames whose `Busy` is borrowed over the call (invariant 1).
        sys::receive(socket, &mut vectors[..used])
    }

    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.frames
    }

    /// True if there are none; there always are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Bytes of it that are resident now.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        let chunks = 0..u32::try_from(self.resident.len()).expect("chunks are fewer than frames");
        let resident = chunks.filter(|&chunk| self.is_resident(chunk));
        Bytes(resident.map(|chunk| self.chunk(chunk).len as u64).sum())
    }

    /// Number of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.resident.len()
    }

    /// Which chunk a frame lies in.
    #[inline]
    pub(crate) fn chunk_of(&self, frame: FrameId) -> u32 {
        frame.0 >> self.chunk_shift
    }

    /// Address of a frame.
    ///
    /// # Panics
    /// On a frame outside the arena or in a chunk that is not resident.
    #[inline]
    pub(crate) fn address(&self, frame: FrameId) -> *mut u8 {
        assert!(
            frame.0 < self.frames,
            "frame {} of {}",
            frame.0,
            self.frames
        );
        assert!(
            self.is_resident(self.chunk_of(frame)),
            "frame {} is not populated",
            frame.0
        );
        if let Some(place) = self.away(frame) {
            return place;
        }
        // SAFETY: below `frames`, so within the mapping.
        unsafe { self.base.as_ptr().add(frame.0 as usize * FRAME) }
    }

    /// Zeroes the frames of a read request from byte `from` to their end: it met the end of its
    /// object. The request is not complete, and the system is done with its memory.
    pub(crate) fn zero_tail(&self, request: &mut IoRequest, from: u64) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let (first, inside) = (from / FRAME, from % FRAME);
        for (place, &frame) in request.frames.iter().enumerate().skip(first) {
            let start = if place == first { inside } else { 0 };
            // SAFETY: `start` is below `FRAME`; the frame belongs to the request until it is
            // complete (invariant 1), and `&mut` says that nobody else works on the request.
            unsafe { ptr::write_bytes(self.address(frame).add(start), 0, FRAME - start) };
        }
    }

    /// Copies what a write request carries, from byte `from` of it on, into `to`. For devices that
    /// keep bytes elsewhere than in files (object stores).
    ///
    /// A page under writeback may be overwritten meanwhile, unless the device asks for stable
    /// bytes: then it is copied as it was, as it will be, or mixed by words, and is dirty again and
    /// written again, as with a disk that reads memory by itself.
    ///
    /// # Panics
    /// Beyond the request's last frame.
    pub fn copy_from_request(&self, request: &IoRequest, from: usize, to: &mut [u8]) {
        const WORD: usize = size_of::<u64>();
        let mut done = 0;
        while done < to.len() {
            let (place, inside) = ((from + done) / FRAME, (from + done) % FRAME);
            let len = (FRAME - inside).min(to.len() - done);
            let start = self.span(request.frames[place], inside, len);
            let part = &mut to[done..done + len];
            if start.align_offset(WORD) == 0 && len.is_multiple_of(WORD) {
                for (index, word) in part.chunks_exact_mut(WORD).enumerate() {
                    // SAFETY: `span` checked the range and `start` is aligned. Volatile: a writer
                    // may be changing the word, and the compiler must neither read it twice nor
                    // assume that it stays.
                    let value = unsafe { start.add(index * WORD).cast::<u64>().read_volatile() };
                    word.copy_from_slice(&value.to_ne_bytes());
                }
            } else {
                for (index, byte) in part.iter_mut().enumerate() {
                    // SAFETY: as above, by bytes.
                    *byte = unsafe { start.add(index).read_volatile() };
                }
            }
            done += len;
        }
    }

    /// Copies `bytes` into the frames of a read, from byte `from` of the request on: the other way
    /// round.
    ///
    /// # Panics
    /// Beyond the request's last frame; a request that does not read.
    pub fn copy_to_request(&self, request: &IoRequest, from: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (place, inside) = ((from + done) / FRAME, (from + done) % FRAME);
            let len = (FRAME - inside).min(bytes.len() - done);
            self.copy_in(&request.busy[place], inside, bytes.into(), done, len);
            done += len;
        }
    }

    /// Tells `watcher` of all resident chunks, now and from now on.
    pub(crate) fn watch(&self, watcher: Arc<dyn ChunkWatcher>) {
        // The lock is held across, so that no chunk comes or goes unseen.
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = 0..u32::try_from(self.resident.len()).expect("chunks are fewer than frames");
        for chunk in chunks.filter(|&chunk| self.is_resident(chunk)) {
            watcher.populated(self.chunk(chunk));
        }
        watchers.push(watcher);
    }

    /// Forgets a watcher.
    pub(crate) fn unwatch(&self, watcher: &Arc<dyn ChunkWatcher>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|other| !Arc::ptr_eq(other, watcher));
    }

    #[inline]
    fn is_resident(&self, chunk: u32) -> bool {
        // Relaxed: the task that has a frame of the chunk got it after `populate`, through a lock.
        self.resident[chunk as usize].load(Ordering::Relaxed)
    }

    fn chunk(&self, index: u32) -> Chunk {
        let first = index << self.chunk_shift;
        let frames = (1 << self.chunk_shift).min(self.frames - first);
        // SAFETY: `first` is below `frames`, so within the mapping.
        let base = unsafe { self.base.as_ptr().add(first as usize * FRAME) };
        Chunk {
            index,
            base,
            len: frames as usize * FRAME,
        }
    }

    fn make_resident(chunk: Chunk) -> Result<(), PopulateError> {
        let start = chunk.base.cast::<c_void>();
        let failed = |error: rustix::io::Errno| PopulateError {
            errno: error.raw_os_error(),
        };
        let open = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range is one chunk of the arena's own mapping.
        unsafe { rustix::mm::mprotect(start, chunk.len, open) }.map_err(failed)?;
        // SAFETY: as above; populating changes no content.
        match unsafe { rustix::mm::madvise(start, chunk.len, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // Before Linux 5.14: touch every page.
            Err(rustix::io::Errno::INVAL) => {
                for offset in (0..chunk.len).step_by(FRAME) {
                    // SAFETY: inside the chunk, which is writable and nobody's yet.
                    unsafe { chunk.base.add(offset).write_volatile(0) };
                }
                Ok(())
            }
            Err(error) => {
                // The part that has come of it may stay: the chunk is not resident, and can be
                // populated again.
                let _ = Self::drop_memory(chunk);
                Err(failed(error))
            }
        }
    }

    /// Fails where the system keeps it: locked memory (`mlockall` of the host program) before Linux
    /// 5.18.
    fn drop_memory(chunk: Chunk) -> rustix::io::Result<()> {
        let start = chunk.base.cast::<c_void>();
        let drop_as = |advice| {
            // SAFETY: the range is one chunk of the arena's own mapping, and no frame of it is in
            // use (contract of `Content::release`), so losing its bytes is what is asked for.
            unsafe { rustix::mm::madvise(start, chunk.len, advice) }
        };
        match drop_as(Advice::LinuxDontNeed) {
            // Locked. It stays so: memory that is populated again is locked again.
            Err(rustix::io::Errno::INVAL) => drop_as(Advice::LinuxDontneedLocked)?,
            dropped => dropped?,
        }
        // A refusal (no memory for the kernel's bookkeeping) costs only the trap for stray
        // accesses. SAFETY: as above; the chunk is not resident and `address` refuses it.
        let _ = unsafe { rustix::mm::mprotect(start, chunk.len, MprotectFlags::empty()) };
        Ok(())
    }

    /// `Content::release`; `drop_memory` is an argument for tests of a system that refuses.
    fn release_with(
        &self,
        first: FrameId,
        drop_memory: impl FnOnce(Chunk) -> rustix::io::Result<()>,
    ) {
        let chunk = self.chunk(self.chunk_of(first));
        let resident = &self.resident[chunk.index as usize];
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if !resident.swap(false, Ordering::Relaxed) {
            return;
        }
        for watcher in watchers.iter() {
            watcher.releasing(chunk);
        }
        if drop_memory(chunk).is_err() {
            // It is as it was, old bytes included: nobody relies on zeroes in a frame that comes
            // off a list.
            resident.store(true, Ordering::Relaxed);
            for watcher in watchers.iter() {
                watcher.populated(chunk);
            }
        } else if let Some(misplaced) = self.misplaced.get(chunk.index as usize) {
            misplaced.store(false, Ordering::Relaxed);
        }
    }
}

impl Content for Arena {
    fn chunk_frames(&self) -> u32 {
        1 << self.chunk_shift
    }

    fn populate(&self, first: FrameId) -> Result<(), PopulateError> {
        let chunk = self.chunk(self.chunk_of(first));
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_resident(chunk.index) {
            return Ok(());
        }
        Self::make_resident(chunk)?;
        self.note_place(chunk);
        let frames = u32::try_from(chunk.len / FRAME).expect("a chunk's frames");
        let first = chunk.index << self.chunk_shift;
        self.have_come(first..first + frames);
        self.resident[chunk.index as usize].store(true, Ordering::Relaxed);
        for watcher in watchers.iter() {
            watcher.populated(chunk);
        }
        Ok(())
    }

    fn release(&self, first: FrameId) {
        self.release_with(first, Self::drop_memory);
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::Bytes(vec![0; bytes].into())
    }

    fn zero(&self, frame: &Busy, offset: usize, len: usize) {
        let start = self.span(frame.frame(), offset, len);
        // SAFETY: `span` checked the range; `Busy` is the exclusive right to the frame.
        unsafe { ptr::write_bytes(start, 0, len) };
    }

    fn zero_all(&self, frames: &[Busy]) {
        let together = self.homes.is_empty();
        let neighbours = |a: &Busy, b: &Busy| together && a.frame().0.abs_diff(b.frame().0) == 1;
        // No frame is in two hands, so a run of neighbours goes one way.
        for run in frames.chunk_by(neighbours) {
            let (a, b) = (run[0].frame().0, run[run.len() - 1].frame().0);
            let (first, last) = (a.min(b), a.max(b));
            assert!(
                (last - first) as usize + 1 == run.len(),
                "a frame between {first} and {last} is in two hands"
            );
            let start = self.address(FrameId(first));
            // A frame of each chunk that the run is in.
            let chunks = (first..last).step_by(self.chunk_frames() as usize).skip(1);
            for frame in chunks.chain([last]) {
                self.address(FrameId(frame));
            }
            // SAFETY: `address` checked the range, chunk by chunk; `Busy` is the exclusive right to
            // each of its frames.
            unsafe { ptr::write_bytes(start, 0, run.len() * FRAME) };
        }
    }

    fn copy_in(&self, frame: &Busy, offset: usize, data: Data<'_>, from: usize, len: usize) {
        let data = data.bytes();
        let start = self.span(frame.frame(), offset, len);
        let source = &data[from..from + len];
        let through = |source: &[u8]| {
            let mut at = start;
            for source in source.chunks(piece(source.as_ptr(), start)) {
                // SAFETY: `span` checked the range, of which the pieces are the parts; `Busy` is
                // the exclusive right to the frame, so the caller's slice cannot lie in it.
                unsafe { ptr::copy_nonoverlapping(source.as_ptr(), at, source.len()) };
                at = at.wrapping_add(source.len());
            }
        };
        let Ok(page) = <&[u8; FRAME]>::try_from(source) else {
            return through(source);
        };
        if data.len() < way::LARGE {
            return through(source);
        }
        way::copy(|way| match way {
            Way::Through => through(source),
            // SAFETY: as above, and a frame begins at a multiple of its size.
            Way::Past => unsafe { copy_past(page, start) },
        });
    }

    fn copy_out(&self, frame: &Pin, offset: usize, data: &mut DataMut<'_>, to: usize, len: usize) {
        if self.is_shared(frame.frame()) {
            return self.copy_bytes(frame.frame(), offset, &mut data.bytes()[to..to + len]);
        }
        let (source, data) = (
            &self.bytes(frame)[offset..offset + len],
            &mut data.bytes()[to..to + len],
        );
        let piece = piece(source.as_ptr(), data.as_ptr());
        for (from, to) in source.chunks(piece).zip(data.chunks_mut(piece)) {
            to.copy_from_slice(from);
        }
    }

    #[inline]
    fn mark(&self, frame: &Busy, word: u64) {
        let start = self.address(frame.frame()).cast::<u64>();
        // SAFETY: a frame begins at a multiple of 4 KiB; `Busy` is the exclusive right to it.
        unsafe { start.write(word.to_le()) };
    }

    fn copy_frame(&self, to: &Busy, from: &Pin) {
        if self.is_shared(from.frame()) {
            let mut bytes = [0; FRAME];
            self.copy_bytes(from.frame(), 0, &mut bytes);
            return self.copy_in(to, 0, (&bytes).into(), 0, FRAME);
        }
        self.copy_in(to, 0, self.bytes(from).into(), 0, FRAME);
    }

    fn move_frame(&self, to: &Busy, from: &Busy) {
        if self.hand_over(to, from) {
            return;
        }
        let (target, source) = (
            self.span(to.frame(), 0, FRAME),
            self.span(from.frame(), 0, FRAME),
        );
        assert_ne!(to.frame(), from.frame(), "each frame has one busy bit");
        // SAFETY: `span` checked both ranges; `Busy` is the exclusive right to a frame, and these
        // are two frames.
        unsafe { ptr::copy_nonoverlapping(source, target, FRAME) };
    }

    fn home(&self, frame: FrameId) -> Option<(u32, u32)> {
        self.home_of(frame)
    }

    fn settle(
        &self,
        map: u32,
        first: u32,
        frames: &[&Busy],
        fresh: bool,
    ) -> Result<(), PopulateError> {
        self.settle_at(map, first, frames, fresh)
    }

    fn vacate(&self, frames: &[FrameId]) {
        if !self.homes.is_empty() {
            self.vacate_all(frames);
        }
    }

    fn enter(&self, map: u32, pages: Range<u32>, storable: bool) {
        self.with_open(map, |view| view.carry_on(pages, storable));
    }

    fn protect(&self, map: u32, pages: Range<u32>) {
        self.with_open(map, |view| view.protect(pages));
    }

    fn leave(&self, map: u32, pages: &[u32]) {
        self.with_open(map, |view| view.forget(pages));
    }
}

/// Copies a page past the caches.
///
/// # Safety
/// `target` is valid for writes of a page, is no part of `source`, and lies at a multiple of 64.
unsafe fn copy_past(source: &[u8; FRAME], target: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let (from, to) = (source.as_ptr().cast::<__m128i>(), target.cast::<__m128i>());
        for line in (0..FRAME / size_of::<__m128i>()).step_by(4) {
            // SAFETY: within the page, and aligned as the caller says.
            unsafe {
                let four = [0, 1, 2, 3].map(|at| _mm_loadu_si128(from.add(line + at)));
                _mm_stream_si128(to.add(line), four[0]);
                _mm_stream_si128(to.add(line + 1), four[1]);
                _mm_stream_si128(to.add(line + 2), four[2]);
                _mm_stream_si128(to.add(line + 3), four[3]);
            }
        }
        // Before the step that shows the page: no store of another kind waits for these.
        // SAFETY: every x86-64 has it.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's.
    unsafe {
        ptr::copy_nonoverlapping(source.as_ptr(), target, FRAME);
    }
}

/// A target that lies less than this many bytes behind its source, counted within pages, is copied
/// to in pieces.
const CLOSE_BEHIND: usize = 32;
/// Small enough that the C library does not copy it by one instruction.
const PIECE: usize = 2048;

/// In which pieces a page, or a part of one, is copied.
///
/// 4 KiB are one `rep movsb` to the C library (glibc 2.36). On an AMD EPYC that takes five times as
/// long where the target lies 1 to 31 bytes behind the source, counted within pages (measured: 0.42
/// s a GiB instead of 0.08); and each large block that comes from `malloc` begins 16 bytes behind
/// the beginning of a page, which is where frames begin.
fn piece(source: *const u8, target: *const u8) -> usize {
    let behind = target.addr().wrapping_sub(source.addr()) % FRAME;
    if (1..CLOSE_BEHIND).contains(&behind) {
        PIECE
    } else {
        FRAME
    }
}

impl Arena {
    /// Address of `len` bytes at `offset` of a frame, checked.
    #[inline]
    fn span(&self, frame: FrameId, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= FRAME && len <= FRAME - offset,
            "{len} bytes at {offset} of a frame"
        );
        // SAFETY: `offset` is at most one past the frame.
        unsafe { self.address(frame).add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let (start, len) = self.mapping;
        // SAFETY: our own mapping, whole; invariant 5: nobody is left who could touch it.
        let _ = unsafe { rustix::mm::munmap(start.as_ptr(), len) };
    }
}

/// Raw access for tests of the engines, where no frame table stands behind the frames.
#[cfg(test)]
impl Arena {
    /// Fills a frame; the test has it to itself.
    pub(crate) fn fill_for_test(&self, frame: FrameId, content: &[u8]) {
        assert_eq!(content.len(), FRAME);
        // SAFETY: the test is the frame's only user; the length was checked.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), self.address(frame), FRAME) };
    }

    /// A frame's bytes; the test has it to itself.
    pub(crate) fn read_for_test(&self, frame: FrameId) -> Vec<u8> {
        // SAFETY: the test is the frame's only user.
        unsafe { core::slice::from_raw_parts(self.address(frame), FRAME) }.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frames::FrameTable;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn sizes_are_checked() {
        assert!(matches!(
            Arena::reserve(0, 64),
            Err(OsError::Option { name: "frames", .. })
        ));
        for wrong in [0, 1, 24, 32768] {
            let refused = Arena::reserve(64, wrong);
            assert!(matches!(
                refused,
                Err(OsError::Option {
                    name: "chunk_frames",
                    ..
                })
            ));
        }
    }

    /// The system's flags of the mapping that a frame is in.
    fn flags_of(arena: &Arena) -> Vec<String> {
        let at = arena.base.as_ptr().addr();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_it = false;
        for line in smaps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
                return flags.split_whitespace().map(str::to_owned).collect();
            }
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let ends = range.and_then(|(from, to)| {
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some(number(from)?..number(to)?)
            });
            is_it = ends.map_or(is_it, |range| range.contains(&at));
        }
        panic!("no mapping at {at:x}");
    }

    #[test]
    fn neither_a_child_nor_a_core_dump_has_the_frames() {
        let arena = Arena::reserve(64, 64).unwrap();
        let has = |flag: &str| flags_of(&arena).iter().any(|other| other == flag);
        arena.populate(FrameId(0)).unwrap();
        assert!(has("dc"), "a fork would copy it: {:?}", flags_of(&arena));
        assert!(has("dd"), "a dump would hold it: {:?}", flags_of(&arena));
        arena.be_dumped();
        assert!(!has("dd") && has("dc"));
    }

    #[test]
    fn memory_comes_and_goes_with_the_chunk() {
        let arena = Arena::reserve(4096, 1024).unwrap();
        assert_eq!(arena.resident(), Bytes(0));
        arena.populate(FrameId(1024)).unwrap();
        assert_eq!(arena.resident(), Bytes::mib(4));
        arena.fill_for_test(FrameId(1024), &[7; FRAME]);
        arena.release(FrameId(1024));
        assert_eq!(arena.resident(), Bytes(0));
        arena.populate(FrameId(1024)).unwrap();
        assert_eq!(
            arena.read_for_test(FrameId(1024)),
            vec![0; FRAME],
            "fresh memory is zero"
        );
    }

    #[test]
    #[cfg(not(miri))]
    fn resident_memory_follows_the_system() {
        let arena = Arena::reserve(32768, 8192).unwrap();
        assert_eq!(present(&arena), 0);
        arena.populate(FrameId(8192)).unwrap();
        assert_eq!(present(&arena), 8192);
        arena.release(FrameId(8192));
        assert_eq!(present(&arena), 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn locked_memory_is_given_back_too() {
        let arena = Arena::reserve(64, 16).unwrap();
        arena.populate(FrameId(16)).unwrap();
        let chunk = arena.chunk(1);
        // SAFETY: a chunk of the arena's own mapping, resident; locking changes no content.
        unsafe { rustix::mm::mlock(chunk.base.cast(), chunk.len) }.unwrap();
        arena.fill_for_test(FrameId(17), &[7; FRAME]);
        arena.release(FrameId(16));
        // Linux before 5.18 keeps it; either way what is said is so.
        assert_eq!(arena.resident().0, (present(&arena) * FRAME) as u64);
        arena.populate(FrameId(16)).unwrap();
        arena.fill_for_test(FrameId(17), &[8; FRAME]);
        assert_eq!(arena.read_for_test(FrameId(17)), [8; FRAME]);
    }

    /// Number of its pages that the system has in memory, as `/proc/self/pagemap` says.
    #[cfg(not(miri))]
    fn present(arena: &Arena) -> usize {
        use std::os::unix::fs::FileExt as _;
        let first = arena.base.as_ptr() as usize / FRAME;
        let mut entries = vec![0; arena.len() as usize * 8];
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        map.read_exact_at(&mut entries, first as u64 * 8).unwrap();
        // Bit 63 of each entry of 64 bits (Documentation/admin-guide/mm/pagemap.rst).
        let is_present =
            |entry: &&[u8]| u64::from_ne_bytes((*entry).try_into().unwrap()) >> 63 != 0;
        entries.chunks_exact(8).filter(is_present).count()
    }

    #[test]
    fn a_short_last_chunk_is_whole() {
        let arena = Arena::reserve(1500, 1024).unwrap();
        arena.populate(FrameId(1024)).unwrap();
        assert_eq!(arena.resident(), Bytes(476 * 4096));
        arena.fill_for_test(FrameId(1499), &[1; FRAME]);
    }

    #[test]
    #[should_panic(expected = "not populated")]
    fn an_unpopulated_frame_is_refused() {
        let arena = Arena::reserve(64, 64).unwrap();
        let _ = arena.address(FrameId(3));
    }

    #[test]
    fn content_goes_in_and_out() {
        let arena = Arena::reserve(64, 64).unwrap();
        arena.populate(FrameId(0)).unwrap();
        let table = FrameTable::new(64);
        let owner = frames::Owner { file: 1, index: 0 };
        let busy = table.claim(FrameId(5));
        table.adopt(&busy, owner);
        arena.zero(&busy, 0, FRAME);
        arena.copy_in(&busy, 100, b"paced writers".into(), 6, 7);
        table.release(busy, frames::Flags::UPTODATE, frames::Flags::NONE);
        let pin = table.try_pin(FrameId(5), owner).unwrap();
        assert_eq!(&arena.bytes(&pin)[99..108], b"\0writers\0");
        let mut out = [9; 4];
        arena.copy_out(&pin, 100, &mut DataMut::Bytes(&mut out), 1, 2);
        assert_eq!(&out, b"\x09wr\x09");
        let other = table.claim(FrameId(6));
        arena.copy_frame(&other, &pin);
        let _ = table.disown(other);
        assert_eq!(arena.read_for_test(FrameId(6)), arena.bytes(&pin));
        let _ = table.unpin(pin);
    }

    #[test]
    fn pages_are_copied_whole_wherever_they_come_from_and_go_to() {
        let arena = Arena::reserve(64, 64).unwrap();
        arena.populate(FrameId(0)).unwrap();
        let table = FrameTable::new(64);
        let owner = frames::Owner { file: 1, index: 0 };
        let page: Vec<u8> = (1..=251).cycle().take(FRAME).collect();
        for distance in [0, 1, 16, 31, 32, 33, 4080, 4095] {
            let mut memory = vec![0; 3 * FRAME];
            let first = memory.as_ptr().align_offset(FRAME) + distance;
            memory[first..first + FRAME].copy_from_slice(&page);
            let busy = table.claim(FrameId(5));
            table.adopt(&busy, owner);
            arena.copy_in(&busy, 0, Data::Bytes(&memory), first, FRAME);
            assert_eq!(
                piece(arena.address(FrameId(5)), &raw const memory[first]) == PIECE,
                (1..32).contains(&distance)
            );
            table.release(busy, frames::Flags::UPTODATE, frames::Flags::NONE);
            let pin = table.try_pin(FrameId(5), owner).unwrap();
            memory.fill(0);
            arena.copy_out(&pin, 0, &mut DataMut::Bytes(&mut memory), first, FRAME);
            assert_eq!(memory[first..first + FRAME], page, "{distance}");
            assert!(
                memory[..first]
                    .iter()
                    .chain(&memory[first + FRAME..])
                    .all(|&byte| byte == 0)
            );
            let _ = table.unpin(pin);
            let busy = table.try_busy(FrameId(5), owner).unwrap();
            let _ = table.disown(busy);
        }
    }

    #[test]
    fn a_socket_fills_busy_frames_in_the_order_that_is_asked() {
        use std::io::Write as _;
        use std::os::fd::AsFd as _;
        let arena = Arena::reserve(128, 128).unwrap();
        arena.populate(FrameId(0)).unwrap();
        let table = FrameTable::new(128);
        let (mut client, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let busy: Vec<Busy> = [9, 10, 4].map(|frame| table.claim(FrameId(frame))).into();
        let parts = || busy.iter().zip([4000..FRAME, 0..FRAME, 0..FRAME]);
        let receive = || arena.receive(socket.as_fd(), parts());
        assert_eq!(receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let data: Vec<u8> = (0..5000_u32).map(|at| (at % 251) as u8 + 1).collect();
        client.write_all(&data).unwrap();
        assert_eq!(receive().unwrap(), data.len());
        let got: Vec<u8> = [9, 10, 4]
            .map(|frame| arena.read_for_test(FrameId(frame)))
            .concat();
        assert_eq!(got[..4000], [0; 4000]);
        assert_eq!(got[4000..9000], data);
        assert_eq!(got[9000..], vec![0; 3 * FRAME - 9000]);
        drop(client);
        assert_eq!(receive().unwrap(), 0, "the end of the stream");
        // More runs than one call takes: as many as it takes, and no byte elsewhere.
        let (mut client, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let scattered: Vec<Busy> = (0..100)
            .map(|at| 16 + at)
            .filter(|frame| frame % 2 == 0)
            .map(|frame| table.claim(FrameId(frame)))
            .collect();
        client.write_all(&vec![7; 10 * FRAME]).unwrap();
        let parts = scattered
            .iter()
            .flat_map(|busy| [(busy, 0..16), (busy, 32..64)]);
        let bytes = arena.receive(socket.as_fd(), parts).unwrap();
        assert_eq!(bytes, RECEIVED_MAX / 2 * 48);
        for busy in busy.into_iter().chain(scattered) {
            let _ = table.disown(busy);
        }
    }

    #[test]
    fn a_write_requests_bytes_come_out() {
        let arena = Arena::reserve(64, 64).unwrap();
        arena.populate(FrameId(0)).unwrap();
        let mut request = IoRequest::with_room(2);
        for (frame, first) in [(9, 0_u8), (4, 100)] {
            let bytes: Vec<u8> = (0..FRAME)
                .map(|at| first.wrapping_add(u8::try_from(at % 97).expect("below 97")))
                .collect();
            arena.fill_for_test(FrameId(frame), &bytes);
            request.frames.push(FrameId(frame));
        }
        let mut whole = arena.read_for_test(FrameId(9));
        whole.extend(arena.read_for_test(FrameId(4)));
        for (from, len) in [
            (0, 2 * FRAME),
            (8, 64),
            (3, 9),
            (FRAME - 5, 11),
            (FRAME, FRAME),
        ] {
            let mut out = vec![0; len];
            arena.copy_from_request(&request, from, &mut out);
            assert_eq!(out, whole[from..from + len], "{len} at {from}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn memory_is_asked_from_a_node_or_the_refusal_has_a_number() {
        let mut arena = Arena::reserve(64, 16).unwrap();
        match arena.prefer(vec![(0..32, 0), (32..64, 0)]) {
            Ok(()) => {
                arena.populate(FrameId(0)).unwrap();
                arena.populate(FrameId(48)).unwrap();
                // Memory of node 0, unless it has none left.
                assert_eq!(arena.node_at(0), Some(0));
                assert_eq!((arena.misplaced(0..32), arena.misplaced(32..64)), (0, 0));
            }
            // A kernel without nodes, a container that refuses.
            Err(errno) => assert!([libc::ENOSYS, libc::EPERM].contains(&errno), "{errno}"),
        }
        // A node that there is not.
        assert!(arena.prefer(vec![(0..64, 1023)]).is_err());
        assert_eq!(arena.prefer(vec![(0..64, 1024)]), Err(libc::EINVAL));
    }

    #[test]
    #[cfg(not(miri))]
    fn a_chunk_that_came_from_elsewhere_is_counted_until_it_goes() {
        let mut arena = Arena::reserve(60, 16).unwrap();
        // As if the system had been told.
        arena.parts = vec![(0..32, 0), (32..60, u32::MAX)];
        arena.misplaced = (0..4).map(|_| AtomicBool::new(false)).collect();
        for chunk in 0..4 {
            arena.populate(FrameId(chunk * 16)).unwrap();
        }
        let known = arena.node_at(0).is_some();
        assert_eq!(arena.misplaced(32..60), if known { 28 } else { 0 });
        arena.release(FrameId(48));
        assert_eq!(arena.misplaced(32..60), if known { 16 } else { 0 });
    }

    struct Count(AtomicU32, AtomicU32);

    impl ChunkWatcher for Count {
        fn populated(&self, _: Chunk) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn releasing(&self, _: Chunk) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_chunk_that_the_system_keeps_stays_resident() {
        let arena = Arena::reserve(64, 16).unwrap();
        let count = Arc::new(Count(AtomicU32::new(0), AtomicU32::new(0)));
        arena.watch(count.clone());
        arena.populate(FrameId(16)).unwrap();
        arena.release_with(FrameId(16), |_| Err(rustix::io::Errno::INVAL));
        assert_eq!(arena.resident(), Bytes(16 * 4096));
        // A ring has the chunk again.
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(count.1.load(Ordering::Relaxed), 1);
        arena.populate(FrameId(16)).unwrap();
        arena.fill_for_test(FrameId(31), &[7; FRAME]);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn watchers_see_every_change() {
        let arena = Arena::reserve(64, 16).unwrap();
        arena.populate(FrameId(0)).unwrap();
        let count = Arc::new(Count(AtomicU32::new(0), AtomicU32::new(0)));
        let watcher: Arc<dyn ChunkWatcher> = count.clone();
        arena.watch(Arc::clone(&watcher));
        arena.populate(FrameId(16)).unwrap();
        arena.populate(FrameId(16)).unwrap();
        arena.release(FrameId(0));
        arena.unwatch(&watcher);
        arena.release(FrameId(16));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(count.1.load(Ordering::Relaxed), 1);
    }
}

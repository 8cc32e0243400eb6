//! One request on its way through an engine: which memory it moves, and what a result means.
//!
//! Both engines (the ring and the pool) call the system and hand every answer to `Job::on_result`,
//! which says whether to call again for the rest or how the request ended. So short transfers,
//! ends of files and error numbers mean the same in both.
//!
//! ```text
//!   answer            read                            write
//!   all of it         done                            done
//!   a part            again for the rest              again for the rest
//!   a part, unaligned end of file: zero the rest      Torn    (direct I/O only)
//!   nothing           end of file: zero the rest      Torn
//!   EINTR, EAGAIN     again, RETRIES_MAX times        again, RETRIES_MAX times
//! ```
//!
//! An object of a fixed size has its end there and nowhere else, and one that grows has at least
//! the length that it had when it was opened, written or cut by us: a read that ends before it, or
//! a write beyond where the file ends now, has met a device that lost its capacity or a file that
//! was cut, and is `Lost`. Zeroes in its place would be kept, and written back; a write, or a new
//! length, would leave them between the cut and itself.
//!
//! A file that is locked has at most the length that our requests made it: one that is longer was
//! written by others, and a write or a new length, which would overwrite or cut off what they
//! added, is `Changed`. Between that look and the request there is a moment in which this is not
//! seen.
//!
//! Adjacent frames become one element of the vector. A vector has at most `MAX_VECTORS` elements;
//! a request with more runs is moved in parts, as if the system had answered short.
//!
//! Source: docs/adr/0009 (error contract); read(2), write(2), open(2) on O_DIRECT.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use env::{Interrupt, IoError, IoOp, IoRequest};
use policy::units::{Bytes, PAGE_SIZE};
use rustix::fs::{AtFlags, FileType, StatxFlags};

use crate::arena::Arena;
use crate::lock::Lock;
use crate::sys::{IoVec, grow};

/// Elements of one call's vector: 1 MiB of single frames.
pub(crate) const MAX_VECTORS: usize = 256;
/// Times that an interrupted or refused call is tried again before that is an error.
pub(crate) const RETRIES_MAX: u32 = 64;
/// Direct I/O that ends off this boundary has met the end of the file.
const SECTOR: u64 = 512;

/// A file that is open for requests.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file.
    pub(crate) file: File,
    /// It is open with O_DIRECT.
    pub(crate) direct: bool,
    /// Size of a block device, or of a file that is to have the one it was opened with; other files
    /// may grow and shrink.
    pub(crate) fixed_size: Option<Bytes>,
    /// Discarded ranges may read as anything: the block device can discard but not zero.
    pub(crate) discards: bool,
    /// Its lock, if it has one.
    pub(crate) lock: OnceLock<Arc<Lock>>,
    /// Another file's length.
    length: Mutex<Length>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // Another one with a copy of the descriptor may have the lock, too.
        if let Some(lock) = self.lock.take().and_then(Arc::into_inner) {
            lock.end(&self.file);
        }
    }
}

/// The known length of a file that may grow.
#[derive(Clone, Copy, Debug, Default)]
struct Length {
    /// Bytes that are there at least.
    known: u64,
    /// Bytes that are there at most, by our own requests.
    most: u64,
    /// Writes on their way.
    writing: u32,
    /// The end of the farthest of them, and of those that have ended while a request was on its
    /// way that sets the length: the system may have done them after it.
    farthest: u64,
    /// Requests on their way that set it, and how often one of them began or ended. A write that
    /// meets one does not say how long the file is: it may have ended before the file was cut.
    setting: u32,
    sets: u32,
    /// Number of times that it became shorter by that than was known.
    shorter: u32,
}

impl Length {
    /// Nothing that changes it is on its way any more, maybe.
    fn settle(&mut self) {
        if self.writing == 0 && self.setting == 0 {
            self.farthest = 0;
        }
    }
}

impl OpenFile {
    /// A file that may grow, of `length` bytes at least.
    pub(crate) fn new(file: File, direct: bool, length: Bytes) -> Self {
        Self {
            file,
            direct,
            fixed_size: None,
            discards: false,
            lock: OnceLock::new(),
            length: Mutex::new(Length {
                known: length.0,
                most: length.0,
                ..Length::default()
            }),
        }
    }

    fn length(&self) -> MutexGuard<'_, Length> {
        self.length.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is so long.
    pub(crate) fn has(&self, length: Bytes) {
        let mut now = self.length();
        (now.known, now.most) = (length.0, length.0);
    }

    /// Its length, as known now.
    fn now(&self) -> Length {
        let fixed = |size: Bytes| Length {
            known: size.0,
            ..Length::default()
        };
        self.fixed_size.map_or_else(|| *self.length(), fixed)
    }

    /// A request begins; answers the length as known then.
    fn begin(&self, op: IoOp) -> Length {
        match op {
            IoOp::SetLen { len } if self.fixed_size.is_none() => {
                let mut length = self.length();
                // Before it is shorter: no request takes it for one that was cut by others.
                length.shorter += u32::from(len.0 < length.known);
                length.known = length.known.min(len.0);
                length.setting += 1;
                length.sets += 1;
                *length
            }
            _ => self.now(),
        }
    }

    /// True if others have cut it: it has ended at `end` since `had` was known, not all of which up
    /// to `wanted` was there. Unless we made it shorter meanwhile: nothing had to be there then,
    /// however long it is by now.
    fn was_cut(&self, had: Length, wanted: u64, end: u64) -> bool {
        end < had.known.min(wanted) && self.now().shorter == had.shorter
    }

    /// Its descriptor, valid as long as `self`.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A request that an engine works on.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Box<IoRequest>,
    pub(crate) file: Arc<OpenFile>,
    /// Bytes moved so far.
    pub(crate) done: u64,
    retries: u32,
    /// The file's length when the request came.
    had: Length,
    /// It is among the writes on their way.
    is_writing: bool,
}

/// The next step after an answer of the system.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Call again, for what is left.
    Again,
    /// The request has ended.
    Done(Result<(), IoError>),
}

/// The memory of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Elements of the vector in use.
    pub(crate) vectors: usize,
    /// The chunk that all of it lies in, if it is one.
    pub(crate) chunk: Option<u32>,
}

impl Job {
    /// A request at its beginning.
    pub(crate) fn new(request: Box<IoRequest>, file: Arc<OpenFile>) -> Self {
        let had = file.begin(request.op);
        Self {
            request,
            file,
            done: 0,
            retries: 0,
            had,
            is_writing: false,
        }
    }

    /// The beginning of the next call.
    pub(crate) fn position(&self) -> u64 {
        self.request.offset.0 + self.done
    }

    /// Bytes that the request moves: its frames, cut at the end of an object of a fixed size.
    fn total(&self) -> u64 {
        self.frames().min(self.up_to_end().unwrap_or(u64::MAX))
    }

    /// Bytes of all its frames, but for those that it leaves out.
    fn frames(&self) -> u64 {
        self.request.frames.len() as u64 * PAGE_SIZE - self.request.cut.0
    }

    /// Bytes from its offset to the end, if that is fixed.
    fn up_to_end(&self) -> Option<u64> {
        let size = self.file.fixed_size?;
        Some(size.0.saturating_sub(self.request.offset.0))
    }

    /// True if the file was cut since it was opened, below the range that is to be changed: that
    /// would make it longer again, with zeroes in place of its rest.
    fn is_cut(&self) -> bool {
        let file = &self.file.file;
        let len = match self.request.op {
            IoOp::Discard { len } | IoOp::SetLen { len } => len.0,
            _ => self.frames(),
        };
        let had = self.file.now();
        let wanted = self.request.offset.0.saturating_add(len);
        // As the system knows it: asking the server of the file system might wait for it. It is
        // asked before anything is lost, for it may be long ago, and where the system cannot say.
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let what = StatxFlags::TYPE | StatxFlags::SIZE;
        let is_whole = rustix::fs::statx(file, c"", how, what).is_ok_and(|stat| {
            !FileType::from_raw_mode(stat.stx_mode.into()).is_file()
                || stat.stx_size >= had.known.min(wanted)
        });
        !is_whole
            && rustix::fs::fstat(file).is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode).is_file()
                    && u64::try_from(stat.st_size)
                        .is_ok_and(|end| self.file.was_cut(had, wanted, end))
            })
    }

    /// True if others have made the file longer than any request of ours has made it: bytes that
    /// they added would be overwritten, or cut off. If not, the request may make it as long as it
    /// says from now on. Looked at only of a file that nobody else is to write: that is locked.
    fn has_grown(&mut self) -> bool {
        let is_write = self.request.op == IoOp::Write;
        let end = match self.request.op {
            IoOp::SetLen { len } => len.0,
            _ => self.request.offset.0.saturating_add(self.frames()),
        };
        let mut length = self.file.length();
        if self.file.lock.get().is_some() {
            // First from memory, then from the server of its file system.
            let grown = [AtFlags::STATX_DONT_SYNC, AtFlags::empty()]
                .iter()
                .all(|how| {
                    let how = AtFlags::EMPTY_PATH | *how;
                    let what = StatxFlags::TYPE | StatxFlags::SIZE;
                    rustix::fs::statx(&self.file.file, c"", how, what).is_ok_and(|stat| {
                        FileType::from_raw_mode(stat.stx_mode.into()).is_file()
                            && stat.stx_size > length.most
                    })
                });
            if grown {
                return true;
            }
        }
        length.most = length.most.max(end);
        if is_write && !self.is_writing {
            length.farthest = length.farthest.max(end);
            length.writing += 1;
            drop(length);
            self.is_writing = true;
        }
        false
    }

    /// The answer that can be given before anything is done.
    pub(crate) fn early(&mut self) -> Option<Result<(), IoError>> {
        let (op, size) = (self.request.op, self.file.fixed_size);
        match op {
            IoOp::Read | IoOp::Write if self.request.frames.is_empty() => Some(Ok(())),
            IoOp::Write if self.total() == 0 => Some(Err(IoError::NoSpace)),
            IoOp::Write | IoOp::Discard { .. } if self.is_cut() => Some(Err(IoError::Lost)),
            IoOp::SetLen { .. } if size.is_none() && self.is_cut() => Some(Err(IoError::Lost)),
            IoOp::Write | IoOp::SetLen { .. } if size.is_none() && self.has_grown() => {
                Some(Err(IoError::Changed))
            }
            // A block device has the length it has.
            IoOp::SetLen { len } if size.is_some() => match size {
                Some(size) if len <= size => Some(Ok(())),
                _ => Some(Err(IoError::NoSpace)),
            },
            IoOp::Allocate { len } if size.is_some() => match self.up_to_end() {
                Some(room) if len.0 <= room => Some(Ok(())),
                _ => Some(Err(IoError::NoSpace)),
            },
            IoOp::Prepare { .. }
            | IoOp::Allocate { len: Bytes::ZERO }
            | IoOp::Discard { len: Bytes::ZERO } => Some(Ok(())),
            IoOp::Read
            | IoOp::Write
            | IoOp::Flush
            | IoOp::SetLen { .. }
            | IoOp::Allocate { .. }
            | IoOp::Discard { .. } => None,
        }
    }

    /// Fills `vectors` with the memory of what is left.
    pub(crate) fn plan(&self, arena: &Arena, vectors: &mut [IoVec]) -> Plan {
        let (mut used, mut chunk, mut one_chunk) = (0_usize, None, true);
        let (mut at, mut total) = (self.done, self.total());
        if self.request.op == IoOp::Read {
            // Whole pages: direct I/O takes no other count, and a file read only may end anywhere.
            total = total.next_multiple_of(PAGE_SIZE);
        }
        while at < total {
            let place = usize::try_from(at / PAGE_SIZE).expect("an index into `frames`");
            let inside = usize::try_from(at % PAGE_SIZE).expect("below a page");
            let len = (PAGE_SIZE - at % PAGE_SIZE).min(total - at);
            let frame = self.request.frames[place];
            let start = arena.address(frame).wrapping_add(inside);
            let bytes = usize::try_from(len).expect("at most a page");
            if grow(&mut vectors[..used], start, bytes) {
                // It is a neighbour of the one before it.
            } else if used == vectors.len() {
                break;
            } else {
                vectors[used] = IoVec {
                    iov_base: start.cast(),
                    iov_len: bytes,
                };
                used += 1;
            }
            let here = arena.chunk_of(frame);
            one_chunk &= *chunk.get_or_insert(here) == here;
            at += len;
        }
        Plan {
            vectors: used,
            chunk: chunk.filter(|_| one_chunk),
        }
    }

    /// Takes the system's answer to one call: a count, or an error number.
    pub(crate) fn on_result(&mut self, arena: &Arena, answer: Result<u64, i32>) -> Step {
        let moved = match answer {
            Ok(moved) => moved,
            Err(libc::EINTR | libc::EAGAIN) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                return Step::Again;
            }
            Err(errno) => return Step::Done(Err(self.failure(errno))),
        };
        match self.request.op {
            IoOp::Flush
            | IoOp::SetLen { .. }
            | IoOp::Allocate { .. }
            | IoOp::Discard { .. }
            | IoOp::Prepare { .. } => Step::Done(Ok(())),
            IoOp::Read => self.on_read(arena, moved),
            IoOp::Write => self.on_written(moved),
        }
    }

    fn on_read(&mut self, arena: &Arena, moved: u64) -> Step {
        self.done += moved;
        let (wanted, total) = (self.frames(), self.total());
        let ended = moved == 0 || (self.file.direct && !self.done.is_multiple_of(SECTOR));
        if self.done < total && !ended {
            return Step::Again;
        }
        let (up_to, end) = (self.request.offset.0 + total, self.position());
        if self.file.was_cut(self.had, up_to, end) {
            return Step::Done(Err(IoError::Lost));
        }
        if self.done < wanted {
            arena.zero_tail(&mut self.request, self.done);
        }
        Step::Done(Ok(()))
    }

    fn on_written(&mut self, moved: u64) -> Step {
        self.done += moved;
        if self.done >= self.total() {
            self.has_written_up_to(self.position());
            return Step::Done(Ok(()));
        }
        if moved == 0 || (self.file.direct && !self.done.is_multiple_of(SECTOR)) {
            return Step::Done(Err(IoError::Torn { done: self.done }));
        }
        Step::Again
    }

    /// The file is so long at least, unless its length was set meanwhile.
    fn has_written_up_to(&self, end: u64) {
        if self.file.fixed_size.is_some() {
            return;
        }
        let mut length = self.file.length();
        if length.setting == 0 && length.sets == self.had.sets {
            length.known = length.known.max(end);
        }
    }

    /// A request that sets the length has ended; `well`: the file has it.
    fn length_was_set(&self, len: Bytes, well: bool) {
        let mut length = self.file.length();
        length.setting -= 1;
        if well && length.sets == self.had.sets {
            length.known = len.0;
            length.most = len.0.max(length.farthest);
        }
        length.sets += 1;
        length.settle();
    }

    fn failure(&self, errno: i32) -> IoError {
        match errno {
            libc::ENOSPC => IoError::NoSpace,
            libc::EDQUOT => IoError::OverQuota,
            libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN => IoError::Lost,
            libc::ECANCELED => IoError::Cancelled,
            _ if self.request.op == IoOp::Write && self.done > 0 => {
                IoError::Torn { done: self.done }
            }
            _ => IoError::Failed { errno },
        }
    }

    /// It changes the file's length no more; `well`: it has done what it was to do.
    fn leave(&self, well: bool) {
        if let IoOp::SetLen { len } = self.request.op
            && self.file.fixed_size.is_none()
        {
            self.length_was_set(len, well);
        }
        if self.is_writing {
            let mut length = self.file.length();
            length.writing -= 1;
            length.settle();
        }
    }

    /// Ends the request.
    pub(crate) fn finish(self, context: &Interrupt, result: Result<(), IoError>) {
        self.leave(result.is_ok());
        // The file first: a task that hears of the end may want to delete it.
        drop(self.file);
        self.request.complete(context, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::NO_MEMORY;
    use frames::{Content, FrameId};

    fn job(op: IoOp, frames: &[u32], direct: bool, fixed_size: Option<Bytes>) -> Job {
        let mut request = IoRequest::with_room(frames.len());
        request.op = op;
        request
            .frames
            .extend(frames.iter().map(|&frame| FrameId(frame)));
        let file = File::open("/dev/null").unwrap();
        let mut file = OpenFile::new(file, direct, Bytes::ZERO);
        file.fixed_size = fixed_size;
        Job::new(request, Arc::new(file))
    }

    fn arena() -> Arena {
        let arena = Arena::reserve(64, 16).unwrap();
        for chunk in 0..4 {
            arena.populate(FrameId(chunk * 16)).unwrap();
        }
        arena
    }

    fn lens(vectors: &[IoVec]) -> Vec<usize> {
        vectors.iter().map(|vector| vector.iov_len).collect()
    }

    #[test]
    fn neighbours_become_one_element() {
        let arena = arena();
        let mut vectors = [NO_MEMORY; 4];
        let mut job = job(IoOp::Write, &[3, 4, 5, 9, 8], true, None);
        assert_eq!(
            job.plan(&arena, &mut vectors),
            Plan {
                vectors: 3,
                chunk: Some(0)
            }
        );
        assert_eq!(lens(&vectors[..3]), [3 * 4096, 4096, 4096]);
        job.done = 4096 + 512;
        assert_eq!(
            job.plan(&arena, &mut vectors),
            Plan {
                vectors: 3,
                chunk: Some(0)
            }
        );
        assert_eq!(lens(&vectors[..3]), [2 * 4096 - 512, 4096, 4096]);
        assert_eq!(
            vectors[0].iov_base.cast::<u8>(),
            arena.address(FrameId(4)).wrapping_add(512)
        );
    }

    #[test]
    fn a_run_over_two_chunks_is_no_chunks() {
        let arena = arena();
        let mut vectors = [NO_MEMORY; 4];
        let job = job(IoOp::Write, &[15, 16], true, None);
        assert_eq!(
            job.plan(&arena, &mut vectors),
            Plan {
                vectors: 1,
                chunk: None
            }
        );
    }

    #[test]
    fn too_many_runs_are_cut() {
        let arena = arena();
        let mut vectors = [NO_MEMORY; 2];
        let job = job(IoOp::Read, &[1, 3, 5], true, None);
        assert_eq!(
            job.plan(&arena, &mut vectors),
            Plan {
                vectors: 2,
                chunk: Some(0)
            }
        );
    }

    #[test]
    fn a_block_devices_end_cuts_a_write() {
        let arena = arena();
        let mut vectors = [NO_MEMORY; 2];
        let mut job = job(IoOp::Write, &[1, 2], true, Some(Bytes(4096 + 512)));
        job.plan(&arena, &mut vectors);
        assert_eq!(vectors[0].iov_len, 4096 + 512);
        assert_eq!(job.on_result(&arena, Ok(4096 + 512)), Step::Done(Ok(())));
        job.request.offset = Bytes(8192);
        assert_eq!(job.early(), Some(Err(IoError::NoSpace)));
    }

    #[test]
    fn a_read_past_the_end_is_zeroes() {
        let arena = arena();
        for frame in [1, 2, 3] {
            arena.fill_for_test(FrameId(frame), &[9; 4096]);
        }
        let mut job = job(IoOp::Read, &[1, 2, 3], true, None);
        assert_eq!(job.on_result(&arena, Ok(4096)), Step::Again);
        assert_eq!(job.on_result(&arena, Ok(100)), Step::Done(Ok(())));
        assert_eq!(arena.read_for_test(FrameId(1)), vec![9; 4096]);
        let mut second = vec![9; 100];
        second.resize(4096, 0);
        assert_eq!(arena.read_for_test(FrameId(2)), second);
        assert_eq!(arena.read_for_test(FrameId(3)), vec![0; 4096]);
    }

    #[test]
    fn a_read_that_ends_before_a_fixed_size_is_lost() {
        let arena = arena();
        let size = Some(Bytes(2 * 4096 + 512));
        let fresh = |direct| job(IoOp::Read, &[1, 2, 3, 4], direct, size);
        for direct in [false, true] {
            // The size is gone, before the read and in the middle of it.
            let mut gone = fresh(direct);
            let lost = Step::Done(Err(IoError::Lost));
            assert_eq!(gone.on_result(&arena, Ok(0)), lost);
            let mut cut = fresh(direct);
            assert_eq!(cut.on_result(&arena, Ok(4096)), Step::Again);
            assert_eq!(cut.on_result(&arena, Ok(0)), lost);
            // All that there is: zeroes lie behind it, and only there.
            arena.fill_for_test(FrameId(3), &[9; 4096]);
            arena.fill_for_test(FrameId(4), &[9; 4096]);
            let mut whole = fresh(direct);
            assert_eq!(
                whole.on_result(&arena, Ok(2 * 4096 + 512)),
                Step::Done(Ok(()))
            );
            let mut third = vec![9; 512];
            third.resize(4096, 0);
            assert_eq!(arena.read_for_test(FrameId(3)), third);
            assert_eq!(arena.read_for_test(FrameId(4)), vec![0; 4096]);
            let mut behind = fresh(direct);
            behind.request.offset = Bytes(3 * 4096);
            assert_eq!(behind.on_result(&arena, Ok(0)), Step::Done(Ok(())));
        }
        let mut direct = fresh(true);
        assert_eq!(
            direct.on_result(&arena, Ok(100)),
            Step::Done(Err(IoError::Lost)),
            "an end off a sector"
        );
    }

    /// The system may have done the write after the cut, whichever of them ended first here.
    #[test]
    fn a_write_that_ends_before_a_cut_does_may_have_made_the_file_longer() {
        let arena = arena();
        let null = File::open("/dev/null").unwrap();
        let file = Arc::new(OpenFile::new(null, true, Bytes(8192)));
        let begun = |op| {
            let mut request = IoRequest::with_room(1);
            request.op = op;
            request.offset = Bytes(4 * 4096);
            request.frames.push(FrameId(1));
            let mut job = Job::new(request, Arc::clone(&file));
            assert_eq!(job.early(), None);
            job
        };
        let end = |job: Job| job.leave(true);
        let write = || {
            let mut write = begun(IoOp::Write);
            let done = write.on_result(&arena, Ok(4096));
            assert_eq!(done, Step::Done(Ok(())));
            write
        };
        let cut = || begun(IoOp::SetLen { len: Bytes(4096) });
        let most = || file.length().most;

        let first = cut();
        end(write());
        end(first);
        assert_eq!(most(), 5 * 4096);
        let (other, last) = (write(), cut());
        end(other);
        end(last);
        assert_eq!(most(), 5 * 4096);
        end(cut());
        assert_eq!(most(), 4096);
        let (first, other) = (cut(), write());
        end(first);
        assert_eq!(most(), 5 * 4096);
        end(other);
        end(cut());
        assert_eq!(most(), 4096);
    }

    /// Also where a later write has made it as long again.
    #[test]
    fn a_read_of_what_we_cut_meanwhile_is_not_lost() {
        let arena = arena();
        let null = File::open("/dev/null").unwrap();
        let file = Arc::new(OpenFile::new(null, true, Bytes(8192)));
        let begun = |op| {
            let mut request = IoRequest::with_room(2);
            request.op = op;
            request.frames.extend([FrameId(1), FrameId(2)]);
            Job::new(request, Arc::clone(&file))
        };
        let mut read = begun(IoOp::Read);
        drop(begun(IoOp::SetLen { len: Bytes(0) }));
        file.has(Bytes(8192));
        assert_eq!(read.on_result(&arena, Ok(0)), Step::Done(Ok(())));
        let lost = Step::Done(Err(IoError::Lost));
        // A length that grows cuts nothing off.
        let mut read = begun(IoOp::Read);
        drop(begun(IoOp::SetLen {
            len: Bytes(1 << 20),
        }));
        assert_eq!(read.on_result(&arena, Ok(0)), lost);
    }

    /// A length that was asked for while we made the file shorter says nothing of others, also
    /// where a later write has made it as long again.
    #[test]
    fn a_length_that_we_set_meanwhile_is_not_taken_for_a_cut() {
        let file = File::open("/dev/null").unwrap();
        let file = Arc::new(OpenFile::new(file, true, Bytes(8192)));
        let had = file.now();
        assert!(file.was_cut(had, 4096, 0) && !file.was_cut(had, 4096, 4096));
        let mut cut = IoRequest::with_room(0);
        cut.op = IoOp::SetLen { len: Bytes(0) };
        Job::new(cut, Arc::clone(&file)).length_was_set(Bytes(0), true);
        file.has(Bytes(8192));
        assert!(!file.was_cut(had, 4096, 0));
    }

    /// A write that meets a request which sets the length may have ended before the file was cut.
    #[test]
    fn a_write_beside_a_set_length_does_not_say_how_long_the_file_is() {
        let arena = arena();
        let null = File::open("/dev/null").unwrap();
        let file = Arc::new(OpenFile::new(null, true, Bytes(0)));
        let begun = |op, pages: usize| {
            let mut request = IoRequest::with_room(pages);
            request.op = op;
            request.frames.extend((1..).take(pages).map(FrameId));
            Job::new(request, Arc::clone(&file))
        };
        let done = Step::Done(Ok(()));
        let mut before = begun(IoOp::Write, 2);
        let cut = begun(IoOp::SetLen { len: Bytes(5000) }, 0);
        let mut beside = begun(IoOp::Write, 3);
        assert_eq!(beside.on_result(&arena, Ok(3 * 4096)), done);
        assert_eq!(file.now().known, 0);
        let mut across = begun(IoOp::Write, 4);
        cut.length_was_set(Bytes(5000), true);
        assert_eq!(file.now().known, 5000);
        let mut after = begun(IoOp::Write, 3);
        assert_eq!(across.on_result(&arena, Ok(4 * 4096)), done);
        assert_eq!(before.on_result(&arena, Ok(2 * 4096)), done);
        assert_eq!(file.now().known, 5000);
        assert_eq!(after.on_result(&arena, Ok(3 * 4096)), done);
        assert_eq!(file.now().known, 3 * 4096);
    }

    #[test]
    fn a_fixed_end_is_read_in_whole_pages() {
        let arena = arena();
        let mut vectors = [NO_MEMORY; 4];
        let job = job(IoOp::Read, &[1, 2, 3], true, Some(Bytes(4096 + 100)));
        job.plan(&arena, &mut vectors);
        assert_eq!(vectors[0].iov_len, 2 * 4096);
    }

    #[test]
    fn a_buffered_read_goes_on_after_an_odd_count() {
        let arena = arena();
        let mut job = job(IoOp::Read, &[1], false, None);
        assert_eq!(job.on_result(&arena, Ok(100)), Step::Again);
        assert_eq!(job.position(), 100);
        assert_eq!(job.on_result(&arena, Ok(3996)), Step::Done(Ok(())));
    }

    #[test]
    fn a_short_write_goes_on_or_is_torn() {
        let arena = arena();
        let mut job = job(IoOp::Write, &[1, 2], true, None);
        assert_eq!(job.on_result(&arena, Ok(4096)), Step::Again);
        assert_eq!(
            job.on_result(&arena, Ok(0)),
            Step::Done(Err(IoError::Torn { done: 4096 }))
        );
    }

    #[test]
    fn error_numbers_have_names() {
        let arena = arena();
        let fresh = |errno| {
            let mut job = job(IoOp::Write, &[1, 2], true, None);
            job.on_result(&arena, Err(errno))
        };
        assert_eq!(fresh(libc::ENOSPC), Step::Done(Err(IoError::NoSpace)));
        assert_eq!(fresh(libc::EDQUOT), Step::Done(Err(IoError::OverQuota)));
        assert_eq!(fresh(libc::ENODEV), Step::Done(Err(IoError::Lost)));
        assert_eq!(
            fresh(libc::EIO),
            Step::Done(Err(IoError::Failed { errno: libc::EIO }))
        );
        let mut begun = job(IoOp::Write, &[1, 2], true, None);
        assert_eq!(begun.on_result(&arena, Ok(4096)), Step::Again);
        let torn = IoError::Torn { done: 4096 };
        assert_eq!(
            begun.on_result(&arena, Err(libc::EIO)),
            Step::Done(Err(torn))
        );
    }

    #[test]
    fn retries_have_a_bound() {
        let arena = arena();
        let mut job = job(IoOp::Read, &[1], true, None);
        for _ in 0..RETRIES_MAX {
            assert_eq!(job.on_result(&arena, Err(libc::EINTR)), Step::Again);
        }
        let failed = IoError::Failed { errno: libc::EINTR };
        assert_eq!(
            job.on_result(&arena, Err(libc::EINTR)),
            Step::Done(Err(failed))
        );
    }
}

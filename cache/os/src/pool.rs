//! The engine of plain threads: `preadv2`, `pwritev2`, `fdatasync` and friends, one call at a time.
//!
//! It serves where io_uring is not allowed, is the reference of the differential tests, and does
//! for the ring what the ring has no operation for. Its depth is its number of threads.
//!
//! A thread whose device hangs cannot be stopped: after the bound it is left behind, and with it
//! its `Arc` of the arena, so that the memory it may still touch stays mapped.

use core::ops::Range;
use core::time::Duration;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use env::{IoError, IoOp};
use policy::units::{Bytes, PAGE_SIZE};
use rustix::fs::FallocateFlags;

use crate::OsError;
use crate::arena::Arena;
use crate::engine::{Engine, Ledger};
use crate::error::errno_of;
use crate::queue::{ClassQueue, is_read};
use crate::spawn::{STACK, start_thread};
use crate::sys::{self, IoVec, NO_MEMORY};
use crate::transfer::{Job, MAX_VECTORS, OpenFile, Step};

/// One of this many threads is for reads: a device that is slow to write may be quick to read.
const OF_READS: usize = 4;
/// Bytes of zeroes written at once where a hole cannot be punched.
const ZEROES: usize = 64 << 10;

/// Zeroes at an address that direct I/O accepts.
#[repr(align(4096))]
struct Zeroes([u8; ZEROES]);

static NOTHING: Zeroes = Zeroes([0; ZEROES]);

/// Threads that serve one queue.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

struct Shared {
    arena: Arc<Arena>,
    state: Mutex<State>,
    arrived: Condvar,
    ledger: Ledger,
}

struct State {
    queue: ClassQueue,
    /// Threads that may take what is no read, beside those that have some.
    for_others: usize,
    stopping: bool,
}

impl Pool {
    /// Starts `workers` threads.
    pub(crate) fn start(arena: &Arc<Arena>, name: &str, workers: usize) -> Result<Self, OsError> {
        let shared = Arc::new(Shared::new(arena, workers));
        let pool = Self {
            shared,
            threads: Mutex::new(Vec::with_capacity(workers)),
        };
        for _ in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let started = start_thread(name, STACK, move || shared.serve()).map_err(|error| {
                OsError::Thread {
                    name: name.to_owned(),
                    errno: errno_of(&error),
                }
            });
            match started {
                Ok(thread) => {
                    pool.threads
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(thread);
                }
                Err(error) => {
                    pool.stop(Duration::ZERO);
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }
}

impl Engine for Pool {
    fn submit(&self, job: Job) {
        self.shared.ledger.began();
        let mut state = self.shared.lock();
        if state.stopping {
            drop(state);
            self.shared.ledger.finish(job, Err(IoError::Cancelled));
            return;
        }
        state.queue.push(job.request.class, job);
        drop(state);
        self.shared.arrived.notify_one();
    }

    fn run_here(&self, job: Job) {
        let shared = &self.shared;
        shared.ledger.began();
        let state = shared.lock();
        let stopping = state.stopping;
        // Or the workers would wait for it.
        drop(state);
        finish_here(&shared.arena, &shared.ledger, job, stopping);
    }

    fn pending(&self) -> u64 {
        self.shared.ledger.pending()
    }

    fn stop(&self, bound: Duration) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let mut waiting = core::mem::take(&mut state.queue);
        drop(state);
        self.shared.arrived.notify_all();
        while let Some(job) = waiting.pop(false) {
            self.shared.ledger.finish(job, Err(IoError::Cancelled));
        }
        let threads =
            core::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let deadline = Instant::now() + bound;
        for thread in threads {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // Its panics, if any, were reported by the hook.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(1));
    }
}

impl Shared {
    fn new(arena: &Arc<Arena>, workers: usize) -> Self {
        Self {
            arena: Arc::clone(arena),
            state: Mutex::new(State {
                queue: ClassQueue::default(),
                for_others: (workers - workers / OF_READS).max(1),
                stopping: false,
            }),
            arrived: Condvar::new(),
            ledger: Ledger::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut vectors = vec![NO_MEMORY; MAX_VECTORS];
        while let Some(mut job) = self.next() {
            let class = job.request.class;
            let result = execute(&self.arena, &mut job, &mut vectors);
            self.ledger.finish(job, result);
            if !is_read(class) {
                self.lock().for_others += 1;
                self.arrived.notify_one();
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            let reads_only = state.for_others == 0;
            if let Some(job) = state.queue.pop(reads_only) {
                state.for_others -= usize::from(!is_read(job.request.class));
                return Some(job);
            }
            if state.stopping {
                return None;
            }
            state = self
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Does a job in the calling thread, whatever it is.
pub(crate) fn execute(arena: &Arena, job: &mut Job, vectors: &mut [IoVec]) -> Result<(), IoError> {
    if let Some(result) = job.early() {
        return result;
    }
    loop {
        let answer = call(arena, job, vectors);
        match job.on_result(arena, answer) {
            Step::Done(result) => return result,
            Step::Again => {}
        }
    }
}

/// Does a job that was taken and ends it; a job that is no longer wanted only ends.
pub(crate) fn finish_here(arena: &Arena, ledger: &Ledger, mut job: Job, stopping: bool) {
    let result = if stopping {
        Err(IoError::Cancelled)
    } else {
        // Most are of one page; a longer request takes several calls.
        execute(arena, &mut job, &mut [NO_MEMORY; 64])
    };
    ledger.finish(job, result);
}

/// One call to the system for what is left of the job.
fn call(arena: &Arena, job: &mut Job, vectors: &mut [IoVec]) -> Result<u64, i32> {
    let nothing = |done: rustix::io::Result<()>| match done {
        Ok(()) => Ok(0),
        Err(error) => Err(error.raw_os_error()),
    };
    match job.request.op {
        // Memory of the request's frames, which are its own, or stay resident, until it is
        // complete.
        IoOp::Read | IoOp::Write => {
            let used = job.plan(arena, vectors).vectors;
            let moves = match job.request.op {
                IoOp::Read => sys::read,
                _ => sys::write,
            };
            moves(job.file.fd(), &vectors[..used], job.position())
        }
        IoOp::Flush => nothing(rustix::fs::fdatasync(&job.file.file)),
        IoOp::SetLen { len } => nothing(rustix::fs::ftruncate(&job.file.file, len.0)),
        IoOp::Allocate { len } => nothing(rustix::fs::fallocate(
            &job.file.file,
            FallocateFlags::KEEP_SIZE,
            job.request.offset.0,
            len.0,
        )),
        IoOp::Prepare { .. } => Ok(0),
        IoOp::Discard { len } => discard(&job.file, job.request.offset, len).map(|()| 0),
    }
}

/// Punches a hole, where the file system can.
fn discard(file: &OpenFile, offset: Bytes, len: Bytes) -> Result<(), i32> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&file.file, flags, offset.0, len.0) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            discard_without_holes(file, offset, len)
        }
        Err(error) => Err(error.raw_os_error()),
    }
}

/// Discards a range of what cannot punch holes.
pub(crate) fn discard_without_holes(file: &OpenFile, offset: Bytes, len: Bytes) -> Result<(), i32> {
    match file.discards {
        true => sys::discard(&file.file, offset.0, len.0),
        false => write_zeroes(file, offset, len),
    }
}

/// Overwrites a range with zeroes, never beyond the object's end.
///
/// Direct I/O takes whole pages only, and a length that is put back would cut off what a write has
/// added meanwhile: a last part of a page goes by the system's cache.
pub(crate) fn write_zeroes(file: &OpenFile, offset: Bytes, len: Bytes) -> Result<(), i32> {
    let size = match file.fixed_size {
        Some(size) => size.0,
        None => file
            .file
            .metadata()
            .map_err(|error| errno_of(&error))?
            .len(),
    };
    let end = offset.0.saturating_add(len.0).min(size);
    let is_whole = !file.direct || file.fixed_size.is_some();
    let whole = if is_whole { end } else { end - end % PAGE_SIZE };
    zero(&file.file, offset.0..whole)?;
    let rest = offset.0.max(whole)..end;
    if rest.is_empty() {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", file.fd());
    let through = File::options().write(true).open(path);
    zero(&through.map_err(|error| errno_of(&error))?, rest)
}

fn zero(file: &File, range: Range<u64>) -> Result<(), i32> {
    let mut at = range.start;
    while at < range.end {
        let part = usize::try_from(range.end - at)
            .unwrap_or(ZEROES)
            .min(ZEROES);
        match rustix::io::pwrite(file, &NOTHING.0[..part], at) {
            Ok(0) => return Err(libc::EIO),
            Ok(written) => at += written as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.raw_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{IoClass, IoRequest};
    use std::io::Write as _;

    #[test]
    fn a_thread_is_left_for_reads() {
        let arena = Arc::new(Arena::reserve(64, 16).unwrap());
        let zero = File::open("/dev/zero").unwrap();
        let zero = Arc::new(OpenFile::new(zero, false, Bytes::ZERO));
        let shared = Shared::new(&arena, 4);
        let push = |class| {
            let mut request = IoRequest::with_room(1);
            request.class = class;
            shared
                .lock()
                .queue
                .push(class, Job::new(request, Arc::clone(&zero)));
        };
        let next = || shared.next().map(|job| job.request.class);
        for class in [IoClass::Writeback, IoClass::Sync].repeat(2) {
            push(class);
        }
        for class in [IoClass::Sync, IoClass::Sync, IoClass::Writeback] {
            assert_eq!(next(), Some(class));
        }
        push(IoClass::ReadAhead);
        assert_eq!(next(), Some(IoClass::ReadAhead));
    }

    #[test]
    fn zeroes_are_written_inside_the_file_only() {
        let dir = crate::TestDir::new("zeroes");
        let path = dir.join("file");
        File::create(&path)
            .unwrap()
            .write_all(&[7; 300_000])
            .unwrap();
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let file = OpenFile::new(file, false, Bytes(300_000));
        write_zeroes(&file, Bytes(8192), Bytes(4096)).unwrap();
        write_zeroes(&file, Bytes(200_704), Bytes(1 << 30)).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len(), 300_000);
        let zero = |at: usize| (8192..12288).contains(&at) || at >= 200_704;
        assert!(
            content
                .iter()
                .enumerate()
                .all(|(at, &byte)| (byte == 0) == zero(at))
        );
    }

    /// The length is neither passed nor put back: the file here takes no other.
    #[test]
    fn zeroes_up_to_the_end_leave_the_length_alone() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

        let memory = memfd_create(c"zeroes", MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = File::from(memory);
        file.write_all(&[7; 9000]).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK).unwrap();
        for direct in [false, true] {
            let file = OpenFile::new(file.try_clone().unwrap(), direct, Bytes(9000));
            write_zeroes(&file, Bytes(4096), Bytes(8192)).unwrap();
            let mut content = vec![0; 9000];
            let read = std::os::unix::fs::FileExt::read_at(&file.file, &mut content, 0);
            assert_eq!(read.unwrap(), 9000);
            assert!(content[..4096].iter().all(|byte| *byte == 7));
            assert!(content[4096..].iter().all(|byte| *byte == 0));
        }
    }
}

//! One disk or directory: files and block devices that share one queue.
//!
//! A `FileDevice` is an `env::Device` whose objects are open files. It has an engine of its own (a
//! ring, or a pool of threads), so that a device that hangs holds up nobody else's requests.
//!
//! Files are opened with O_DIRECT. Where a file system refuses that, or asks for an alignment
//! beyond a page, `OpenOptions::direct` decides: insisted on, it is a typed error; otherwise the
//! file goes through the system's page cache, and `is_direct` says so.
//!
//! Operations: `Flush` is fdatasync, `SetLen` ftruncate, `Allocate` fallocate without change of
//! length, `Discard` a punched hole or written zeroes. A block device has the length it has:
//! `SetLen` and `Allocate` succeed up to it and are `NoSpace` beyond.
//!
//! Source: open(2), statx(2) STATX_DIOALIGN.

use std::fs::{File, FileType, Metadata, OpenOptions as StdOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use env::{Device, DeviceInfo, Interrupt, IoError, IoOp, IoRequest, ObjectId};
use policy::units::{Bytes, PAGE_SIZE};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};

use crate::OsError;
use crate::engine::{Engine, Registration};
use crate::error::errno_of;
use crate::spawn::FIRST_MEMORY;
use crate::threads::{Mover, ThreadEnv};
use crate::transfer::{Job, OpenFile};
use crate::{place, sys};

/// Growing a file ahead of its writes is worth a call from here on.
const GROW_AHEAD: Bytes = Bytes(8 << 20);
/// The usual alignment of direct I/O.
const SECTOR: u32 = 512;

/// The options of opening an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Make the file if it is not there.
    pub create: bool,
    /// Begin with an empty file.
    pub truncate: bool,
    /// Open for reading only.
    pub read_only: bool,
    /// Take space for that much at once, without changing the length.
    pub preallocate: Option<Bytes>,
    /// The file has the size that it has, like a block device: its last page is cut there, and it
    /// neither grows nor shrinks.
    pub fixed: bool,
    /// `Discard` gives space back, and its range may read as anything afterwards: for a block
    /// device that discards, and that zeroes only if it is sent them.
    pub discards: bool,
    /// True: direct I/O or an error. False: direct I/O where the file system has it.
    pub direct: bool,
}

/// Files that are closed at a time when all are.
const CLOSERS: usize = 8;

/// One disk or directory.
pub struct FileDevice {
    mover: Mover,
    objects: RwLock<Vec<Option<Arc<OpenFile>>>>,
    alignment: AtomicU32,
    /// Bytes of a write must not change until it has ended.
    stable_writes: AtomicBool,
}

impl FileDevice {
    /// A device without objects, with an engine of its own.
    ///
    /// # Errors
    /// No thread or no ring could be started.
    pub fn new(env: &Arc<ThreadEnv>) -> Result<Arc<Self>, OsError> {
        Ok(Arc::new(Self {
            mover: env.start_engine()?,
            objects: RwLock::new(Vec::new()),
            alignment: AtomicU32::new(SECTOR),
            stable_writes: AtomicBool::new(false),
        }))
    }

    /// Files opened here will stand at `path` or beside it: `info` says from now on what holds
    /// there. For callers that have to know before the first file is open.
    pub fn expect_files_at(&self, path: &Path) {
        let stable = place::wants_stable_writes_at(path);
        self.stable_writes.fetch_or(stable, Ordering::Relaxed);
    }

    /// Opens a file or block device. Answers its number and its true length.
    ///
    /// # Errors
    /// `Open` (EROFS also for a block device that takes no writes, if it is to be written),
    /// `NotAFile`, `NoDirectIo`, `Preallocate`, `TooSmall`; each names the path.
    pub fn open(&self, path: &Path, options: OpenOptions) -> Result<(ObjectId, Bytes), OsError> {
        let (file, direct) = open_best(path, options)?;
        let mut open = OpenFile::new(file, direct, Bytes::ZERO);
        open.discards = options.discards;
        let length = measure(path, &mut open)?;
        if !options.read_only && place::is_write_protected(&open.file) {
            return Err(OsError::Open {
                path: path.into(),
                errno: libc::EROFS,
            });
        }
        // Through the system's cache they are copied first.
        let stable = direct && place::wants_stable_writes(&open.file);
        self.stable_writes.fetch_or(stable, Ordering::Relaxed);
        if options.fixed {
            open.fixed_size = Some(length);
        }
        if let Some(alignment) = alignment_of(&open.file).filter(|_| direct) {
            self.alignment.fetch_max(alignment, Ordering::Relaxed);
        }
        if let Some(wanted) = options.preallocate {
            preallocate(path, &open, wanted)?;
        }
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let place = objects
            .iter()
            .position(Option::is_none)
            .unwrap_or(objects.len());
        if place == objects.len() {
            objects.push(None);
        }
        objects[place] = Some(Arc::new(open));
        let id = u32::try_from(place).expect("open files are bounded by file descriptors");
        Ok((ObjectId(id), length))
    }

    /// Closes an object. Requests under way end as usual; its number may be given again.
    pub fn close(&self, object: ObjectId) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let closed = objects.get_mut(object.0 as usize).and_then(Option::take);
        drop(objects);
        drop(closed);
    }

    /// Closes all files, whose content nobody wants any more: for files that are removed, once no
    /// request is under way.
    ///
    /// Random writes leave a file in as many pieces as there were writes, and a file system that
    /// tells its disk of what is freed (ext4's `discard`) does so piece by piece, and waits each
    /// time: 256 MiB of 1 MiB writes took 0.9 s to close, as one piece of zeroes 0.1 s. So they
    /// become that, where the file system can, and several are closed at a time.
    pub fn give_up(&self) {
        let objects = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            core::mem::take(&mut *objects)
        };
        let next = Mutex::new(objects.into_iter().flatten());
        let one = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let close = || {
            while let Some(open) = one() {
                make_one_piece(&open);
            }
        };
        std::thread::scope(|scope| {
            // Without another thread it takes longer.
            for _ in 1..CLOSERS {
                if sys::has_memory(FIRST_MEMORY).is_err() {
                    break;
                }
                let _ =
                    sys::without_signals(|| std::thread::Builder::new().spawn_scoped(scope, close));
            }
            close();
        });
    }

    /// Locks an object that was opened at `path`, before its first request: for as long as it is
    /// open nobody else who locks opens it for writing, nor at all if it is not `read_only`.
    /// Answers its true length then: whoever had the lock before may have changed it.
    ///
    /// # Errors
    /// `InUse`, `NoLock`, `Open`. It stays open, without a lock.
    pub fn lock(&self, object: ObjectId, path: &Path, read_only: bool) -> Result<Bytes, OsError> {
        let failed = |error: std::io::Error| OsError::Open {
            path: path.into(),
            errno: errno_of(&error),
        };
        let open = self.object(object).ok_or(ErrorKind::NotFound.into());
        let open = open.map_err(failed)?;
        let flags = if open.direct { libc::O_DIRECT } else { 0 };
        let (file, lock) = crate::lock(path, &open.file, read_only, flags)?;
        let lock = Arc::new(lock);
        let Some(file) = file else {
            // It is locked once, before its first request.
            let _ = open.lock.set(lock);
            if let Some(size) = open.fixed_size {
                return Ok(size);
            }
            let length = Bytes(open.file.metadata().map_err(failed)?.len());
            open.has(length);
            return Ok(length);
        };
        let mut locked = OpenFile::new(file, open.direct, Bytes::ZERO);
        locked.fixed_size = open.fixed_size;
        locked.discards = open.discards;
        locked.lock = OnceLock::from(lock);
        let size = open.fixed_size.unwrap_or_default();
        self.replace(object, locked).map_err(failed)?;
        Ok(size)
    }

    /// An object of a fixed size has grown: from now on it is `size`. Requests under way end as if
    /// it had not.
    ///
    /// # Errors
    /// It is not open; no descriptor is left.
    pub fn set_fixed_size(&self, object: ObjectId, size: Bytes) -> std::io::Result<()> {
        let open = self.object(object).ok_or(ErrorKind::NotFound)?;
        let mut grown = OpenFile::new(open.file.try_clone()?, open.direct, Bytes::ZERO);
        grown.fixed_size = Some(size);
        grown.discards = open.discards;
        grown.lock = open.lock.clone();
        self.replace(object, grown)
    }

    fn replace(&self, object: ObjectId, open: OpenFile) -> std::io::Result<()> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let entry = objects.get_mut(object.0 as usize);
        let entry = entry.filter(|entry| entry.is_some());
        *entry.ok_or(ErrorKind::NotFound)? = Some(Arc::new(open));
        Ok(())
    }

    /// True if an object is open for direct I/O; false also if it is not open.
    #[must_use]
    pub fn is_direct(&self, object: ObjectId) -> bool {
        self.object(object).is_some_and(|file| file.direct)
    }

    /// A write to an object may end at any multiple of this, in bytes (`IoRequest::cut`).
    #[must_use]
    pub fn unit(&self, object: ObjectId) -> u64 {
        let unit = |open: Arc<OpenFile>| match open.direct {
            true => alignment_of(&open.file).map_or(PAGE_SIZE, u64::from),
            false => 1,
        };
        self.object(object).map_or(PAGE_SIZE, unit)
    }

    /// The size of an object that can become no larger, as a block device cannot.
    #[must_use]
    pub fn fixed_size(&self, object: ObjectId) -> Option<Bytes> {
        self.object(object)?.fixed_size
    }

    /// The system's metadata of an object's file.
    ///
    /// # Errors
    /// It is not open, or the system's.
    pub fn metadata(&self, object: ObjectId) -> std::io::Result<Metadata> {
        let file = self.object(object).ok_or(ErrorKind::NotFound)?;
        file.file.metadata()
    }

    /// The part of the arena that is registered with the ring.
    #[must_use]
    pub fn registration(&self) -> Registration {
        match &self.mover {
            Mover::Ring(ring) => ring.registration(),
            Mover::Pool(_) => Registration::None,
        }
    }

    /// Requests taken and not ended.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.engine().pending()
    }

    fn engine(&self) -> &dyn Engine {
        match &self.mover {
            Mover::Ring(ring) => &**ring,
            Mover::Pool(pool) => &**pool,
        }
    }

    fn object(&self, object: ObjectId) -> Option<Arc<OpenFile>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(object.0 as usize).and_then(Option::clone)
    }
}

impl FileDevice {
    /// The job that a request is; `None`: it named no open file, and has ended.
    fn job_of(&self, request: Box<IoRequest>) -> Option<Job> {
        let moves = matches!(request.op, IoOp::Read | IoOp::Write);
        assert!(
            !moves || request.offset.0.is_multiple_of(PAGE_SIZE),
            "{:?} at {:?}: not a multiple of a page",
            request.op,
            request.offset
        );
        let Some(file) = self.object(request.object) else {
            request.complete(
                &Interrupt::new(),
                Err(IoError::Failed { errno: libc::EBADF }),
            );
            return None;
        };
        Some(Job::new(request, file))
    }
}

impl Device for FileDevice {
    fn submit(&self, request: Box<IoRequest>) {
        if let Some(job) = self.job_of(request) {
            self.engine().submit(job);
        }
    }

    fn submit_in_place(&self, request: Box<IoRequest>) {
        if let Some(job) = self.job_of(request) {
            self.engine().run_here(job);
        }
    }

    fn info(&self) -> DeviceInfo {
        let alignment = self.alignment.load(Ordering::Relaxed);
        DeviceInfo {
            alignment,
            stable_writes: self.stable_writes.load(Ordering::Relaxed),
            grow_ahead: Some(GROW_AHEAD),
            prepares_writes: false,
            queue: None,
        }
    }
}

/// Opens with direct I/O if the file allows it.
fn open_best(path: &Path, options: OpenOptions) -> Result<(File, bool), OsError> {
    // Before it is opened: a pipe that nobody writes would be waited for, and other devices take an
    // open for a deed.
    let seen = std::fs::metadata(path).map(|data| data.file_type());
    if seen.as_ref().is_ok_and(|kind| !keeps_bytes(*kind)) {
        return Err(OsError::NotAFile { path: path.into() });
    }
    // A drive would be opened without its medium.
    let waits = seen.is_ok_and(|kind| kind.is_block_device());
    let mut flags = File::options();
    flags.read(true).write(!options.read_only);
    if !options.read_only {
        flags.create(options.create).truncate(options.truncate);
    }
    let failed = |error: &std::io::Error| OsError::Open {
        path: path.into(),
        errno: errno_of(error),
    };
    let open = |more| {
        if waits {
            flags.clone().custom_flags(more).open(path)
        } else {
            open_at_once(path, &flags, more)
        }
    };
    let obstacle = match open(libc::O_DIRECT) {
        Ok(file) => match alignment_of(&file) {
            Some(alignment) if u64::from(alignment) > PAGE_SIZE => Some(alignment),
            _ => return Ok((file, true)),
        },
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
        Err(error) => return Err(failed(&error)),
    };
    if options.direct {
        return Err(OsError::NoDirectIo {
            path: path.into(),
            alignment: obstacle,
        });
    }
    let file = open(0).map_err(|error| failed(&error))?;
    Ok((file, false))
}

/// Opens what stands at `path` by now. If that has become a pipe, the task that would write it is
/// not waited for.
fn open_at_once(path: &Path, flags: &StdOptions, more: i32) -> std::io::Result<File> {
    let open = |more| flags.clone().custom_flags(more).open(path);
    let file = match open(more | libc::O_NONBLOCK) {
        // Somebody has a lease of it, and is asked to give that up: it is a file.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return open(more),
        opened => opened?,
    };
    // Requests would be refused instead of waited for.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// The alignment that direct I/O on the file asks for, where the kernel tells (since 6.1).
fn alignment_of(file: &File) -> Option<u32> {
    let answer = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN);
    let alignment = answer.stx_dio_offset_align.max(answer.stx_dio_mem_align);
    (known && alignment > 0).then_some(alignment)
}

/// True if it is a file or a block device.
fn keeps_bytes(kind: FileType) -> bool {
    kind.is_file() || kind.is_block_device()
}

/// The true length; notes the size of a block device.
fn measure(path: &Path, open: &mut OpenFile) -> Result<Bytes, OsError> {
    let failed = |error: std::io::Error| OsError::Open {
        path: path.into(),
        errno: errno_of(&error),
    };
    let data = open.file.metadata().map_err(failed)?;
    if !keeps_bytes(data.file_type()) {
        return Err(OsError::NotAFile { path: path.into() });
    }
    if data.is_file() {
        open.has(Bytes(data.len()));
        return Ok(Bytes(data.len()));
    }
    let size = Bytes((&open.file).seek(SeekFrom::End(0)).map_err(failed)?);
    open.fixed_size = Some(size);
    Ok(size)
}

/// Zeroes a file, with what was allocated beyond its end; nothing of a device, and nothing where
/// the system cannot.
fn make_one_piece(open: &OpenFile) {
    let Ok(stat) = rustix::fs::fstat(&open.file) else {
        return;
    };
    let bytes = stat.st_size.max(stat.st_blocks.saturating_mul(512));
    let bytes = u64::try_from(bytes).unwrap_or(0);
    if open.fixed_size.is_none() && bytes > 0 {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        // Refused: it takes longer to close, no more.
        let _ = rustix::fs::fallocate(&open.file, flags, 0, bytes);
    }
}

fn preallocate(path: &Path, open: &OpenFile, wanted: Bytes) -> Result<(), OsError> {
    if let Some(size) = open.fixed_size {
        if wanted <= size {
            return Ok(());
        }
        let (bytes, wanted) = (size.0, wanted.0);
        return Err(OsError::TooSmall {
            path: path.into(),
            bytes,
            wanted,
        });
    }
    if wanted.is_zero() {
        return Ok(());
    }
    rustix::fs::fallocate(&open.file, FallocateFlags::KEEP_SIZE, 0, wanted.0).map_err(|error| {
        OsError::Preallocate {
            path: path.into(),
            bytes: wanted.0,
            errno: error.raw_os_error(),
        }
    })
}

#[cfg(test)]
mod tests;

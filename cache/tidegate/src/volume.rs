//! A volume: a device of its own with one object of fixed size, for servers with clients of their
//! own.
//!
//! A server must not lend a thread to every client that waits. So a read or a write is asked for in
//! one of two ways (`Mode`): without a wait, it does what can be done at once and says how far it
//! came; with one, it is for a pool of threads. There too the waits can be taken apart from the
//! moving of bytes: that is what the `prepare_` operations are for.
//!
//! ```text
//!   request ──write, nonblocking──> all taken ──pace──> reply now, or at the moment that pace names
//!                 '──────> would block ──> prepare_write on a thread of the pool ──> write again
//! ```
//!
//! Invariants
//!   1. A device, its share of the dirty limit, its flusher and its errors belong to one volume.
//!   2. A nonblocking operation never waits: not for memory, a device, a page, or a pause.
//!   3. Bytes that `write` has taken are part of the volume: readers see them, `sync` makes them
//!      durable.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use env::{Device, Env as _, ObjectId, Task};
use frames::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use mm::{DeviceOptions, ErrorPolicy, Reader};
use os::ThreadEnv;
use policy::dirty::{DeviceIndex, DeviceTunables};
use policy::units::Bytes;

use crate::map::{fill_by_copies, take_by_copies};
use crate::waits::{Call, Sums};
use crate::{Cache, CallWaits, Error, InMemory, Writer};

/// The backing of a volume's bytes.
pub struct Backing {
    /// Takes the requests.
    pub device: Arc<dyn Device>,
    /// The volume's object on it.
    pub object: ObjectId,
    /// Its size in bytes; stays as it is, or grows ([`Volume::grow`]).
    pub size: u64,
}

/// The options of a volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeOptions {
    /// The answer to writers while writes to the backing fail.
    pub on_error: ErrorPolicy,
    /// Its share of the dirty limit.
    pub tunables: DeviceTunables,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        let device = DeviceOptions::default();
        Self {
            on_error: device.on_error,
            tunables: device.tunables,
        }
    }
}

impl VolumeOptions {
    pub(crate) fn of_device(self) -> DeviceOptions {
        DeviceOptions {
            on_error: self.on_error,
            tunables: self.tunables,
            ..DeviceOptions::default()
        }
    }
}

/// A volume in a cache, as one client holds it: errors of writeback are told to each holder once.
pub struct Volume {
    pub(crate) cache: Cache,
    pub(crate) device: DeviceIndex,
    pub(crate) inner: Arc<mm::File>,
    pub(crate) holders: Arc<Holders>,
    /// The memory that holds its bytes in place of the cache and a backing.
    pub(crate) memory: Option<Arc<InMemory>>,
    /// When the environment's clock began.
    origin: Instant,
    /// Waits of this holder's operations.
    waits: Sums,
}

/// The state that all holders of a volume share.
#[derive(Default)]
pub(crate) struct Holders {
    /// It was taken out of the cache, or is being.
    pub(crate) gone: AtomicBool,
    /// It is closed: nothing of it is in memory, and the last one inside gives its place up.
    pub(crate) closed: AtomicBool,
    /// Its place was given up, or is being: once.
    pub(crate) left: AtomicBool,
    /// Operations under way. An operation that begins counts itself first and looks at `gone` then;
    /// the holder that takes the volume out does it the other way round, so that no one is missed
    /// by both. Leaving and closing it likewise.
    pub(crate) inside: AtomicUsize,
    /// Bytes; only grows.
    size: AtomicU64,
    /// The waits of operations.
    waits: Sums,
    /// For those that wait until nobody is inside.
    pub(crate) quiet: Mutex<()>,
    pub(crate) emptied: Condvar,
}

/// A task in an operation on a volume, which keeps the volume's place while it lasts.
pub(crate) struct Inside<'a> {
    task: Option<Task<'a>>,
    volume: &'a Volume,
    /// Its waits are the volume's and the holder's.
    _call: Call<'a>,
}

const IN_A_TASK: &str = "the task stays until the end";

impl<'a> Deref for Inside<'a> {
    type Target = Task<'a>;

    fn deref(&self) -> &Self::Target {
        self.task.as_ref().expect(IN_A_TASK)
    }
}

impl DerefMut for Inside<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.task.as_mut().expect(IN_A_TASK)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        drop(self.task.take());
        let holders = &self.volume.holders;
        if holders.inside.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        if holders.closed.load(Ordering::SeqCst) {
            self.volume.leave_place();
        }
        if holders.gone.load(Ordering::SeqCst) {
            // Under the lock: a task that has just looked is asleep.
            drop(holders.quiet.lock());
            holders.emptied.notify_all();
        }
    }
}

/// One client's reads of a volume so far, so that the cache can read ahead of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    reader: Reader,
}

/// The mode of a read or a write that lacks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It moves all bytes, however long that takes.
    Blocking,
    /// It moves the bytes that can be moved at once.
    Nonblocking,
}

impl Mode {
    fn run<T>(self, task: &mut Task<'_>, work: impl FnOnce(&mut Task<'_>) -> T) -> T {
        match self {
            Self::Blocking => work(task),
            Self::Nonblocking => task.nonblocking(|task| work(task)),
        }
    }
}

/// The progress of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes moved, from the first on.
    pub bytes: usize,
    /// The next byte has to be waited for: call the `prepare_` operation where waiting is allowed.
    pub would_block: bool,
}

impl Progress {
    pub(crate) fn all(bytes: usize) -> Self {
        Self {
            bytes,
            would_block: false,
        }
    }
}

impl From<mm::Progress> for Progress {
    fn from(progress: mm::Progress) -> Self {
        Self {
            bytes: usize::try_from(progress.bytes.0).expect("no more than was asked for"),
            would_block: progress.would_block,
        }
    }
}

impl Cache {
    /// Attaches a volume; `backing` makes what keeps it, with the environment that its requests
    /// come from, of the parts in [`crate::backing`].
    ///
    /// # Errors
    /// Those of `backing`; `Cache` with `TooMany` devices or files. `Closed`.
    pub fn attach<F: From<Error>>(
        &self,
        options: VolumeOptions,
        backing: impl FnOnce(&Arc<ThreadEnv>) -> Result<Backing, F>,
    ) -> Result<Volume, F> {
        self.is_open()?;
        self.give_back_devices();
        let env = &self.inner.env;
        let backing = backing(env)?;
        let info = backing.device.info();
        let id = env.add_device(backing.device);
        let mut task = env.enter();
        let device = options.of_device();
        let added = self.inner.mm.add_device(&mut task, id, info, device);
        let device = added.map_err(|error| {
            env.remove_device(id);
            Error::from(error)
        })?;
        let size = Bytes(backing.size);
        let mm = &self.inner.mm;
        let opened = mm.open(&mut task, device, backing.object, size);
        let inner = opened.map_err(|error| {
            if let Some(id) = mm.remove_device(&mut task, device) {
                env.remove_device(id);
            }
            Error::from(error)
        })?;
        // Its size is fixed: no space has to be asked for when it is written.
        inner.assume_allocated(size);
        drop(task);
        let since = Duration::from_nanos(env.now().0);
        let origin = Instant::now().checked_sub(since);
        let origin = origin.expect("the environment began after the system's clock");
        Ok(Volume {
            cache: self.clone(),
            device,
            inner,
            holders: Arc::new(Holders {
                size: AtomicU64::new(backing.size),
                ..Holders::default()
            }),
            memory: None,
            origin,
            waits: Sums::default(),
        })
    }
}

impl Volume {
    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.holders.size.load(Ordering::Acquire)
    }

    /// The waits of operations on it so far, of all holders, by cause.
    #[must_use]
    pub fn waits(&self) -> CallWaits {
        self.holders.waits.read()
    }

    /// Waits of this holder's operations alone so far, by cause.
    #[must_use]
    pub fn own_waits(&self) -> CallWaits {
        self.waits.read()
    }

    /// The volume has grown to `size`, whole pages before and after, and so has its backing,
    /// already: the new part is as it is there. It never shrinks.
    ///
    /// # Errors
    /// `BadSize` for less than it has, or where either is no multiple of a page; `Cache`: the
    /// backing refused. `Closed`.
    pub fn grow(&self, size: u64) -> Result<(), Error> {
        let has = self.size();
        let page = crate::PAGE_SIZE as u64;
        if size < has || !has.is_multiple_of(page) || !size.is_multiple_of(page) {
            return Err(Error::BadSize {
                what: "the size of a volume that grows, in whole pages,",
                bytes: size,
                allowed: (has.next_multiple_of(page), u64::from(u32::MAX) << 12),
            });
        }
        let mut task = self.enter()?;
        self.inner.truncate(&mut task, Bytes(size))?;
        self.inner.assume_allocated(Bytes(size));
        // Not before: a holder that sees it may use all of it.
        self.holders.size.fetch_max(size, Ordering::AcqRel);
        Ok(())
    }

    /// Another holder of the same volume, told of errors from now on.
    #[must_use]
    pub fn clone_handle(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            device: self.device,
            inner: self.inner.clone_handle(),
            holders: Arc::clone(&self.holders),
            memory: self.memory.clone(),
            origin: self.origin,
            waits: Sums::default(),
        }
    }

    /// This holder is gone. Operations under way for it change nothing more of the volume after
    /// their next step, and fail (`Closed`); so do new ones. Once a sync by another holder that
    /// ends after this has been answered, nothing of the volume changes for this one.
    pub fn end(&self) {
        self.inner.end();
    }

    /// `Closed` once it was detached. The cache may be closed: `enter` tells.
    pub(crate) fn is_there(&self) -> Result<(), Error> {
        if self.holders.gone.load(Ordering::SeqCst) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// Begins an operation; `Closed` once it was detached, or its cache closed.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Error> {
        self.cache.is_open()?;
        self.holders.inside.fetch_add(1, Ordering::SeqCst);
        let mut task = self.cache.task();
        task.act_for(self.inner.client());
        let inside = Inside {
            task: Some(task),
            volume: self,
            _call: Call::begin(&self.holders.waits, Some(&self.waits), None),
        };
        self.is_there().map(|()| inside)
    }

    /// Nothing lies beyond the end, and nothing can be put there.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.cache.is_open()?;
        self.is_there()?;
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            end => Err(Error::Cache(mm::Error::OutOfRange {
                what: "volume",
                end: Bytes(end.unwrap_or(u64::MAX)),
                len: Bytes(self.size()),
            })),
        }
    }

    /// Fills `data` from `offset`; if it may not block, up to the first page that is not in memory.
    ///
    /// # Errors
    /// `Cache`: beyond the end, the device failed to read, no memory. `Closed`.
    pub fn read(
        &self,
        cursor: &mut Cursor,
        data: &mut [u8],
        offset: u64,
        mode: Mode,
    ) -> Result<Progress, Error> {
        let len = data.len();
        self.check(offset, len as u64)?;
        if self.cache.inner.views.have(data) {
            return fill_by_copies(data, |part, at| self.read(cursor, part, offset + at, mode));
        }
        if let Some(memory) = &self.memory {
            memory.read(data, offset);
            // It may have been cleared meanwhile.
            return self.is_there().map(|()| Progress::all(len));
        }
        let (reader, offset) = (&mut cursor.reader, Bytes(offset));
        let read = mode.run(&mut *self.enter()?, |task| {
            self.inner.read(task, reader, offset, data)
        });
        let progress = Progress::from(read?);
        if progress.bytes < len && !progress.would_block {
            // Taken out meanwhile: the rest of `data` is not the volume's.
            return Err(Error::Closed);
        }
        Ok(progress)
    }

    /// Waits until what lies at `offset` is in memory, and more of the `len` bytes there that need
    /// no wait of their own. Where memory is short it may be gone again when it is asked for: after
    /// some tries, a read that blocks gets it.
    ///
    /// # Errors
    /// As `read`.
    pub fn prepare_read(&self, cursor: &mut Cursor, offset: u64, len: u64) -> Result<(), Error> {
        if self.memory.is_some() {
            return Ok(());
        }
        let (reader, offset, len) = (&mut cursor.reader, Bytes(offset), Bytes(len));
        let mut task = self.enter()?;
        Ok(self.inner.prepare_read(&mut task, reader, offset, len)?)
    }

    /// Waits until each of `len` bytes at `offset` has been read; it may be gone from memory again
    /// when it is asked for.
    ///
    /// # Errors
    /// As `read`.
    pub fn verify_readable(&self, cursor: &mut Cursor, offset: u64, len: u64) -> Result<(), Error> {
        self.check(offset, len)?;
        if self.memory.is_some() {
            return Ok(());
        }
        let (reader, offset, len) = (&mut cursor.reader, Bytes(offset), Bytes(len));
        let mut task = self.enter()?;
        Ok(self.inner.verify_readable(&mut task, reader, offset, len)?)
    }

    /// True if all of `len` bytes at `offset` is in memory now.
    #[must_use]
    pub fn is_cached(&self, offset: u64, len: u64) -> bool {
        self.memory.is_some() || self.inner.is_cached(Bytes(offset), Bytes(len))
    }

    /// Takes in `data` at `offset`; if it may not block, as much as can be taken at once. The
    /// writer is not paused here: ask `pace`.
    ///
    /// # Errors
    /// `Cache`: beyond the end, a failed device, no memory, a page could not be read. `Closed`.
    /// Bytes that were taken before the error stay.
    pub fn write(
        &self,
        writer: &mut Writer,
        data: &[u8],
        offset: u64,
        mode: Mode,
    ) -> Result<Progress, Error> {
        self.check(offset, data.len() as u64)?;
        if self.cache.inner.views.have(data) {
            return take_by_copies(data, |part, at| self.write(writer, part, offset + at, mode));
        }
        if let Some(memory) = &self.memory {
            self.change(memory, || memory.write(data, offset))?;
            return Ok(Progress::all(data.len()));
        }
        let (writer, offset) = (writer.of(&self.cache.inner.mm), Bytes(offset));
        let written = mode.run(&mut *self.enter()?, |task| {
            self.inner.write_unpaced(task, writer, offset, data)
        });
        Ok(written?.into())
    }

    /// Takes in what `socket` has for the `len` bytes at `offset`, straight into the pages that are
    /// in memory: at most 256 KiB. Answers how many bytes, which is none at the end of the stream,
    /// or the socket's error; `None` if the first page cannot be written to at once: nothing was
    /// taken from the socket, and `write` does what can be done. Nothing is held for what the
    /// socket does not have. As after `write`, ask `pace`.
    ///
    /// # Errors
    /// As `write`; nothing was taken from the socket.
    pub fn receive(
        &self,
        writer: &mut Writer,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> Result<Option<io::Result<usize>>, Error> {
        self.check(offset, len)?;
        if let Some(memory) = &self.memory {
            let received = self.change(memory, || memory.receive(socket, offset, len))?;
            return Ok(Some(received));
        }
        let mut task = self.enter()?;
        let mut received = None;
        let (from, len) = (Bytes(offset), Bytes(len));
        let writer = writer.of(&self.cache.inner.mm);
        self.inner
            .receive(&mut task, writer, from, len, &mut |offered| {
                let answer = self
                    .cache
                    .inner
                    .env
                    .arena()
                    .receive(socket, offered.parts());
                let bytes = *answer.as_ref().unwrap_or(&0);
                received = Some(answer);
                bytes
            })?;
        Ok(received)
    }

    /// Waits for what a write of `len` bytes at `offset` needs: memory, which the writer keeps
    /// until then, and the rest of pages that are written in part. After some tries, a write that
    /// blocks does it.
    ///
    /// # Errors
    /// As `write`.
    pub fn prepare_write(&self, writer: &mut Writer, offset: u64, len: u64) -> Result<(), Error> {
        self.check(offset, len)?;
        if self.memory.is_some() {
            return Ok(());
        }
        let mut task = self.enter()?;
        let (writer, offset, len) = (writer.of(&self.cache.inner.mm), Bytes(offset), Bytes(len));
        Ok(self.inner.prepare_write(&mut task, writer, offset, len)?)
    }

    /// When the writer may be told that what it wrote so far is done: `None` at once, otherwise not
    /// before that moment, and then ask again. Bytes that it writes meanwhile are on its next
    /// account.
    ///
    /// # Errors
    /// `Cache`: a failed device. `Closed`.
    pub fn pace(&self, writer: &mut Writer) -> Result<Option<Instant>, Error> {
        if self.memory.is_some() {
            return self.cache.is_open().map(|()| None);
        }
        let mut task = self.cache.enter()?;
        let until = self
            .cache
            .inner
            .mm
            .pace(&mut task, writer.of(&self.cache.inner.mm))?;
        Ok(until.map(|until| self.origin + Duration::from_nanos(until.0)))
    }

    /// Changes bytes that are kept in memory alone, if its client wants that still.
    pub(crate) fn change<T>(
        &self,
        memory: &InMemory,
        change: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let task = self.enter()?;
        let _under_way = memory.change();
        self.is_there()?;
        if !task.is_wanted() {
            return Err(Error::Closed);
        }
        Ok(change())
    }

    /// Changes of bytes that are kept in memory alone have been made, so far as they are under way.
    fn settle(&self) {
        if let Some(memory) = &self.memory {
            memory.settle();
        }
    }

    /// Makes everything written so far durable, by whichever holder.
    ///
    /// # Errors
    /// As `File::sync`.
    pub fn sync(&self) -> Result<(), Error> {
        let mut task = self.enter()?;
        self.settle();
        Ok(self.inner.sync(&mut task)?)
    }

    /// Makes `len` bytes at `offset` durable.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        let mut task = self.enter()?;
        self.settle();
        Ok(self
            .inner
            .sync_range(&mut task, Bytes(offset), Bytes(len))?)
    }

    /// Makes parts of the volume durable (first byte and length of each) for several holders: all
    /// that asked before this was called. Each takes its answer by `answer`.
    #[must_use]
    pub fn sync_parts(&self, parts: &[(u64, u64)]) -> Synced {
        let Ok(mut task) = self.enter() else {
            return Synced(None);
        };
        self.settle();
        let parts: Vec<_> = parts
            .iter()
            .map(|(offset, len)| (Bytes(*offset), Bytes(*len)))
            .collect();
        Synced(Some(self.inner.sync_parts(&mut task, &parts)))
    }

    /// This holder's answer from a sync that began after it had asked.
    ///
    /// # Errors
    /// As `sync`.
    pub fn answer(&self, synced: &Synced) -> Result<(), Error> {
        match &synced.0 {
            // The sync has ended: that is to be heard after the cache's end too.
            Some(synced) => Ok(self.inner.answer(&self.cache.task(), synced)?),
            None => Err(Error::Closed),
        }
    }
}

/// The result of a sync on behalf of several holders of a volume; none: the volume is not there any
/// more.
#[derive(Clone, Copy, Debug)]
pub struct Synced(Option<mm::Synced>);

impl Synced {
    /// True if all that was asked for is durable. A holder may still have to be told of an error
    /// that has healed (`Volume::answer`).
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_some_and(|synced| synced.is_done())
    }
}

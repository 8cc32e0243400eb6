//! A file in the cache. Pinned pages of it: `pin.rs`; calls that are futures: `future.rs`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, TryLockError};

use env::{ObjectId, Task};
use frames::SeatId;
use frames::sync::{AtomicU8, Mutex, Ordering};
use mm::{Advice, Reader};
use policy::units::{Bytes, Pages};

use crate::error::errno_of;
use crate::future::Lanes;
use crate::map::{fill_by_copies, take_by_copies};
use crate::opened::Disk;
use crate::opened::{Entry, FileKey};
use crate::waits::{Call, Named, Sums};
use crate::writer::with_own;
use crate::{Cache, CallWaits, Error, Map, MapOptions, Pin, PinRun, Progress, WriteAhead, Writer};

/// An open file. Shared by reference between threads. Dropping it leaves what it holds to be
/// written in the background; `close` says whether that worked.
pub struct File {
    cache: Cache,
    /// As this handle was opened.
    path: PathBuf,
    key: FileKey,
    /// It is out of the cache: nothing is left to close.
    ended: bool,
    disk: Disk,
    object: ObjectId,
    inner: Arc<mm::File>,
    /// This handle is for reading, whatever others are for.
    read_only: bool,
    /// The reads of this handle so far. Taken by one reader at a time; a second one at the same
    /// moment reads without read-ahead state.
    reader: Alone<Mutex<Reader>>,
    /// The thread that needed it last, or `ALL`: others whose pages are all in memory leave it
    /// alone.
    last: AtomicU8,
    /// The waits of calls on this handle.
    waits: Sums,
}

/// No thread's number.
const ALL: u8 = u8::MAX;

/// On a cache line of its own.
#[repr(align(64))]
struct Alone<T>(T);

impl File {
    pub(crate) fn new(
        cache: Cache,
        path: &Path,
        (key, entry): (FileKey, &Entry),
        inner: Arc<mm::File>,
        read_only: bool,
    ) -> Self {
        Self {
            cache,
            path: path.to_owned(),
            key,
            ended: false,
            disk: entry.disk.clone(),
            object: entry.object,
            inner,
            read_only,
            reader: Alone(Mutex::new(Reader::default())),
            last: AtomicU8::new(SeatId::mine().number()),
            waits: Sums::default(),
        }
    }

    /// A call begins, which ends when the answer is dropped.
    fn call<'a>(
        &'a self,
        call: &'static str,
        (offset, len): (u64, u64),
        writer: Option<&'a Sums>,
    ) -> Call<'a> {
        let named = Named {
            call,
            path: &self.path,
            offset,
            len,
        };
        let slow = self.cache.inner.waits.slow.as_ref();
        Call::of_file(&self.waits, writer, named, slow)
    }

    /// The waits of calls on this handle so far, by cause.
    #[must_use]
    pub fn waits(&self) -> CallWaits {
        self.waits.read()
    }

    /// An error of a call on this file. Before it, `taken` bytes of a write were taken in.
    pub(crate) fn failed(&self, error: mm::Error, taken: Bytes) -> Error {
        match Error::from(error) {
            Error::Cache(error) => Error::File {
                path: self.path.clone(),
                error,
                taken: taken.0,
            },
            other => other,
        }
    }

    /// The answer of a call on this file that is no write.
    fn answered<T>(&self, answer: Result<T, mm::Error>) -> Result<T, Error> {
        answer.map_err(|error| self.failed(error, Bytes::ZERO))
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn inner(&self) -> &mm::File {
        &self.inner
    }

    /// Maps bytes of the file as memory of the program, from a multiple of 4096 on and as far as
    /// the file goes. In a cache that was built with [`Builder::maps`](crate::Builder::maps).
    ///
    /// ```no_run
    /// # use tidegate::{Cache, MapOptions, OpenOptions};
    /// let cache = Cache::builder().memory(64 << 20).maps(true).build()?;
    /// let file = cache.open("vectors", OpenOptions::new())?;
    /// let map = file.map(0..file.len(), MapOptions::new().write(true))?;
    /// map.write_from(b"stored", 4096)?; // as by a pointer: a fault, then plain memory
    /// map.sync(0..map.len() as u64)?; // on the device: what is not synced is lost with the process
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `System` with `NoFaults`: the process may not answer page faults, and what would let it;
    /// with `Option` in a cache without maps. `File` with `OutOfRange` beyond the end, `Mapped`: it
    /// has a map. `PartOfPage`, `ReadOnly`, `Closed`.
    pub fn map(&self, bytes: std::ops::Range<u64>, options: MapOptions) -> Result<Map, Error> {
        self.cache.is_open()?;
        if self.read_only && options.is_for_stores() {
            return Err(Error::ReadOnly);
        }
        if bytes.end > self.len() {
            return Err(self.failed(
                mm::Error::OutOfRange {
                    what: "file",
                    end: Bytes(bytes.end),
                    len: Bytes(self.len()),
                },
                Bytes::ZERO,
            ));
        }
        let entry = self.cache.inner.opened.again(self.key);
        let entry = entry.ok_or(Error::Closed)?;
        let inner = entry.inner.clone_handle();
        let known = (self.key, &entry);
        let own = Self::new(self.cache.clone(), &self.path, known, inner, self.read_only);
        Map::new(own, bytes, options)
    }

    /// The path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pages that the file has in the cache, and the hits and misses of its reads and pins,
    /// all handles together. Counts its cached pages one by one: some 10 ms for a GiB.
    ///
    /// # Errors
    /// `Closed`.
    pub fn stats(&self) -> Result<FileStats, Error> {
        let stats = self.inner.stats(&mut self.cache.enter()?);
        let bytes = |pages: Pages| pages.bytes().0;
        Ok(FileStats {
            cached: bytes(stats.cached),
            dirty: bytes(stats.dirty),
            writeback: bytes(stats.writeback),
            hits_total: (stats.read - stats.missed.at_most(stats.read)).0,
            misses_total: stats.missed.0,
        })
    }

    /// Its length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u64 {
        self.inner.len().0
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if its I/O bypasses the kernel's page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.disk.files.is_direct(self.object)
    }

    /// Writes all of `data` at `offset` as this thread's own writer; pauses when that one is over
    /// its share. Answers `data.len()`. Far behind the end it leaves a hole; a later write into
    /// that may find the disk full only when it is written back, which `sync` tells.
    ///
    /// # Errors
    /// `File`: no space, a failed device, no memory (everything pinned), and how much of `data` was
    /// taken in before that, which is part of the file. `ReadOnly`, `Closed`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, Error> {
        with_own(&self.cache.inner.mm, |writer| {
            self.write_as((writer, None), data, offset, None)
        })
    }

    /// Takes in what it can of `data` at `offset` without a wait, as this thread's own writer: at
    /// most 256 KiB, and nothing while that writer is to pause, the system is to give memory, or
    /// the file is to become longer on its device. For a caller that may not wait; `write_at` does
    /// the rest.
    ///
    /// # Errors
    /// As `write_at`.
    pub fn try_write_at(&self, data: &[u8], offset: u64) -> Result<Progress, Error> {
        with_own(&self.cache.inner.mm, |writer| {
            self.try_write_as(writer, data, offset)
        })
    }

    /// The same on behalf of `writer`.
    ///
    /// # Errors
    /// As `write_at`.
    pub fn try_write_at_with(
        &self,
        writer: &mut Writer,
        data: &[u8],
        offset: u64,
    ) -> Result<Progress, Error> {
        self.try_write_as(writer.of(&self.cache.inner.mm), data, offset)
    }

    fn try_write_as(
        &self,
        writer: &mut mm::Writer,
        data: &[u8],
        offset: u64,
    ) -> Result<Progress, Error> {
        const MOST: usize = 256 << 10;
        let mut task = self.enter_to_change()?;
        if self.cache.inner.mm.pace(&mut task, writer)?.is_some() {
            return Ok(Progress {
                bytes: 0,
                would_block: true,
            });
        }
        let mut data = &data[..data.len().min(MOST)];
        let copy;
        if self.cache.inner.views.have(data) {
            copy = data.to_vec();
            data = &copy;
        }
        let written =
            task.nonblocking(|task| self.inner.write_unpaced(task, writer, Bytes(offset), data));
        Ok(written
            .map_err(|error| self.failed(error, Bytes::ZERO))?
            .into())
    }

    /// Writes all of `data` at `offset` on behalf of `writer`.
    ///
    /// # Errors
    /// As `write_at`.
    pub fn write_at_with(
        &self,
        writer: &mut Writer,
        data: &[u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let (writer, sums) = writer.counted(&self.cache.inner.mm);
        self.write_as((writer, Some(sums)), data, offset, None)
    }

    /// From now on its pages may wait for `log` ([`File::write_logged`]), whichever handle of it
    /// writes.
    ///
    /// # Errors
    /// `File` with `BadOption`: it follows another log. `Closed`.
    pub fn follow(&self, log: &WriteAhead) -> Result<(), Error> {
        let task = self.cache.enter()?;
        self.answered(self.inner.follow(&task, &log.0))
    }

    /// As `write_at`; what is written goes to the device after the log that the file follows is
    /// durable up to `lsn`, the program's own number. Of pages that were written to several times
    /// before they go, the highest counts.
    ///
    /// # Errors
    /// As `write_at`. `File` with `BadOption` (it follows no log, or `lsn` is zero), `LogEnded`.
    pub fn write_logged(&self, data: &[u8], offset: u64, lsn: u64) -> Result<usize, Error> {
        with_own(&self.cache.inner.mm, |writer| {
            self.write_as((writer, None), data, offset, Some(lsn))
        })
    }

    fn write_as(
        &self,
        (writer, sums): (&mut mm::Writer, Option<&Sums>),
        data: &[u8],
        offset: u64,
        lsn: Option<u64>,
    ) -> Result<usize, Error> {
        if self.cache.inner.views.have(data) {
            let written = take_by_copies(data, |part, at| {
                let place = offset.saturating_add(at);
                let written = self.write_as((&mut *writer, sums), part, place, lsn);
                written.map(Progress::all)
            });
            return written.map(|written| written.bytes);
        }
        let _call = self.call("write", (offset, data.len() as u64), sums);
        let mut task = self.enter_to_change()?;
        let offset = Bytes(offset);
        let written = match lsn {
            None => self.inner.write_counted(&mut task, writer, offset, data),
            Some(lsn) => {
                let file = &self.inner;
                file.write_logged(&mut task, writer, offset, data, lsn)
            }
        };
        written.map_err(|(taken, error)| self.failed(error, taken))?;
        Ok(data.len())
    }

    /// A task for a call that changes the file: what a handle for reading would change could never
    /// be written back.
    fn enter_to_change(&self) -> Result<Task<'_>, Error> {
        let task = self.cache.enter()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        Ok(task)
    }

    /// Fills `data` from `offset`; answers how much there was before the end of the file.
    ///
    /// # Errors
    /// `File`: the device failed to read, or no memory. `Closed`.
    pub fn read_at(&self, data: &mut [u8], offset: u64) -> Result<usize, Error> {
        if self.cache.inner.views.have(data) {
            let read = fill_by_copies(data, |part, at| {
                let read = self.read_at(part, offset.saturating_add(at));
                read.map(Progress::all)
            });
            return read.map(|read| read.bytes);
        }
        let _call = self.call("read", (offset, data.len() as u64), None);
        let offset = Bytes(offset);
        let (last, mine) = (self.last.load(Ordering::Relaxed), SeatId::mine().number());
        if last != mine && last != ALL {
            let mut task = self.cache.enter()?;
            if let Some(bytes) = self.inner.read_hits(&mut task, offset, &mut *data) {
                return Ok(usize::try_from(bytes.0).expect("no more than was asked for"));
            }
            let order = Ordering::Relaxed;
            // Refused: another thread was faster, or each needs it now.
            let _ = self.last.compare_exchange(last, mine, order, order);
        }
        let read = self.with_reader(|task, reader| self.inner.read(task, reader, offset, data))?;
        Ok(usize::try_from(read.bytes.0).expect("no more than was asked for"))
    }

    /// Fills `data` from `offset` with what is in memory, up to the first page that is not; that
    /// one is read, if there is memory for it at once. For a caller that may not wait.
    ///
    /// # Errors
    /// As `read_at`.
    pub fn try_read_at(&self, data: &mut [u8], offset: u64) -> Result<Progress, Error> {
        if self.cache.inner.views.have(data) {
            return fill_by_copies(data, |part, at| {
                self.try_read_at(part, offset.saturating_add(at))
            });
        }
        let read = self.with_reader(|task, reader| {
            task.nonblocking(|task| self.inner.read(task, reader, Bytes(offset), data))
        })?;
        Ok(read.into())
    }

    /// Shows `len` bytes from `offset` to `show` without a copy: piece by piece in order, each at
    /// most a page (4 KiB) and pinned while it is shown; answers how many there were before the end
    /// of the file. The pages that come next are read ahead, as by `read_at`: for programs that go
    /// through a file once and keep little of it, to sum, to search, to send on.
    ///
    /// ```
    /// # use tidegate::{Cache, OpenOptions};
    /// # let dir = std::env::temp_dir().join(format!("tidegate-doc-show-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// let cache = Cache::builder().memory(64 << 20).build()?;
    /// let file = cache.open(dir.join("log"), OpenOptions::new().create(true))?;
    /// file.write_at(&[b'x'; 10_000], 0)?;
    ///
    /// let mut sum = 0_u64;
    /// let shown = file.show_at(100, 1 << 20, |bytes| {
    ///     sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// })?;
    /// assert_eq!((shown, sum), (9_900, 9_900 * u64::from(b'x')));
    /// # drop(file);
    /// # cache.close()?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `read_at`; bytes shown before the error were right.
    pub fn show_at(
        &self,
        offset: u64,
        len: u64,
        mut show: impl FnMut(&[u8]),
    ) -> Result<u64, Error> {
        if self.inner.is_mapped() {
            return self.show_copies((offset, len), show);
        }
        let _call = self.call("show", (offset, len), None);
        let place = (Bytes(offset), Bytes(len));
        let shown = self.with_reader(|task, reader| {
            let mut page = |pin: &_, within| show(&self.cache.arena().bytes(pin)[within]);
            self.inner.show(task, reader, place, &mut page)
        })?;
        Ok(shown.bytes.0)
    }

    /// The same of a file that is mapped: its pages may change, and `show` may store to them.
    fn show_copies(
        &self,
        (mut offset, len): (u64, u64),
        mut show: impl FnMut(&[u8]),
    ) -> Result<u64, Error> {
        let (page, begin) = (crate::PAGE_SIZE as u64, offset);
        let end = offset.saturating_add(len);
        let mut copy = [0; crate::PAGE_SIZE];
        while offset < end {
            let most = (page - offset % page).min(end - offset);
            let most = usize::try_from(most).expect("at most a page");
            let read = self.read_at(&mut copy[..most], offset)?;
            if read == 0 {
                break;
            }
            show(&copy[..read]);
            offset += read as u64;
        }
        Ok(offset - begin)
    }

    /// Says what is to come, as `posix_fadvise` does: how this handle will read
    /// ([`Advice::Sequential`], `Random`, `NoReuse`, and `Normal` to take it back), or what becomes
    /// of `len` bytes at `offset`, to the end of the file if `len` is zero (`WillNeed`,
    /// `DontNeed`). Nobody is held to it.
    ///
    /// | advice | does |
    /// |---|---|
    /// | `Sequential` | reads twice as far ahead, up to a sixteenth of the cache |
    /// | `Random` | reads nothing ahead |
    /// | `NoReuse` | reads of this handle are no uses: pages that nobody else uses go first |
    /// | `WillNeed` | begins to read the range, up to a quarter of the cache, and returns |
    /// | `DontNeed` | drops the range's whole pages that are clean and not pinned: sync before it |
    ///
    /// # Errors
    /// `File`, `Closed`.
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<(), Error> {
        let range = (Bytes(offset), Bytes(len));
        let mut task = self.cache.enter()?;
        // It is to be heard, so it waits for a read that is under way.
        let reader = self.reader.0.lock();
        let mut reader = reader.unwrap_or_else(PoisonError::into_inner);
        let last = match advice {
            // From now on each read goes by what it says.
            Advice::Sequential | Advice::Random | Advice::NoReuse => Some(ALL),
            Advice::Normal => Some(SeatId::mine().number()),
            Advice::WillNeed | Advice::DontNeed => None,
        };
        if let Some(last) = last {
            self.last.store(last, Ordering::Relaxed);
        }
        self.answered(self.inner.advise(&mut task, &mut reader, range, advice))
    }

    /// The threads for calls that are futures.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.cache.inner.lanes
    }

    /// A call that reads, with this handle's reader, or another if that one is busy.
    fn with_reader<T>(
        &self,
        read: impl FnOnce(&mut Task<'_>, &mut Reader) -> Result<T, mm::Error>,
    ) -> Result<T, Error> {
        let mut task = self.cache.enter()?;
        self.answered(match self.reader.0.try_lock() {
            Ok(mut reader) => read(&mut task, &mut reader),
            Err(TryLockError::Poisoned(poisoned)) => read(&mut task, &mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => read(&mut task, &mut Reader::default()),
        })
    }

    /// Pins page `page` (4 KiB each) for reading without a copy, if it is in the cache: a lookup
    /// and a compare-and-swap, no lock.
    #[must_use]
    #[inline(always)]
    pub fn try_pin(&self, page: u32) -> Option<Pin<'_>> {
        self.cache.is_open().ok()?;
        let pinned = self.inner.try_pin(page)?;
        Some(Pin::new(pinned, &self.cache))
    }

    /// Pins page `page`, reading it in if it is not in the cache. The pages that come next are read
    /// ahead, as by `read_at`, where pages are pinned in order.
    ///
    /// # Errors
    /// `File`: beyond the end, too many pins, the device failed. `Closed`.
    pub fn pin(&self, page: u32) -> Result<Pin<'_>, Error> {
        let place = (u64::from(page) << 12, crate::PAGE_SIZE as u64);
        let _call = self.call("pin", place, None);
        self.cache.is_open()?;
        // Advice has to be heard by each pin.
        let hit = match self.last.load(Ordering::Relaxed) {
            ALL => None,
            _ => self.inner.try_pin_unmarked(page),
        };
        let pinned = match hit {
            Some(hit) => hit,
            None => self.with_reader(|task, reader| self.inner.pin(task, reader, page))?,
        };
        Ok(Pin::new(pinned, &self.cache))
    }

    /// Pins `pages` pages from `first` on, 1 to 512 (2 MiB), in one piece, if all are in the cache
    /// and stand side by side: no lock, no wait. A caller that pinned them with [`File::pin_run`]
    /// lately finds them so.
    #[must_use]
    pub fn try_pin_run(&self, first: u32, pages: u32) -> Option<PinRun<'_>> {
        self.cache.is_open().ok()?;
        let pinned = self.inner.try_pin_run(first, pages)?;
        Some(PinRun::new(pinned, &self.cache))
    }

    /// Pins `pages` pages from `first` on, 1 to 512 (2 MiB), in one piece: reads in what is not in
    /// the cache, and moves together what is not side by side, without a write to any device. A
    /// page that is pinned already or on its way to a device is copied. The pages that come next
    /// are read ahead, as by `read_at`, where runs are pinned in order.
    ///
    /// ```
    /// # use tidegate::{Cache, OpenOptions};
    /// # let dir = std::env::temp_dir().join(format!("tidegate-doc-run-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// let cache = Cache::builder().memory(64 << 20).build()?;
    /// let file = cache.open(dir.join("records"), OpenOptions::new().create(true))?;
    /// file.write_at(&[b'r'; 3 * 4096], 0)?;
    ///
    /// let records = file.pin_run(0, 3)?; // one slice: a record may lie across pages
    /// assert_eq!(records[4000..4200], [b'r'; 200]);
    /// # drop(records);
    /// # drop(file);
    /// # cache.close()?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `File` with `BadOption` (no pages, or more than 512), `OutOfRange` (beyond the end),
    /// `TooMany` (each page is a pin; all pins together are at most a quarter of the memory),
    /// `NoRun` (pins and requests under way leave no block that can be emptied), `ReadFailed`,
    /// `OutOfMemory`. `Closed`.
    pub fn pin_run(&self, first: u32, pages: u32) -> Result<PinRun<'_>, Error> {
        let place = (u64::from(first) << 12, u64::from(pages) << 12);
        let _call = self.call("pin_run", place, None);
        let run = (first, pages);
        let pinned = self.with_reader(|task, reader| self.inner.pin_run(task, reader, run))?;
        Ok(PinRun::new(pinned, &self.cache))
    }

    /// Sets the length. A shorter file loses what lies beyond; a longer one reads as zeroes there.
    ///
    /// # Errors
    /// `File`: the device refused. `ReadOnly`, `Closed`.
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        let _call = self.call("set_len", (0, len), None);
        let mut task = self.enter_to_change()?;
        self.answered(self.inner.truncate(&mut task, Bytes(len)))
    }

    /// Makes everything written so far durable: on the device, and the device flushed.
    ///
    /// # Errors
    /// `File` with `WriteFailed` while bytes are not durable, and once for an error that has
    /// healed; `FlushFailed` until the device is reopened. `Closed`.
    pub fn sync(&self) -> Result<(), Error> {
        let _call = self.call("sync", (0, 0), None);
        let mut task = self.cache.enter()?;
        self.answered(self.inner.sync(&mut task))
    }

    /// Makes the bytes `offset..offset + len` durable.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        let _call = self.call("sync", (offset, len), None);
        let mut task = self.cache.enter()?;
        self.answered(self.inner.sync_range(&mut task, Bytes(offset), Bytes(len)))
    }

    /// True if its length cannot be changed: a block device.
    pub(crate) fn is_fixed(&self) -> bool {
        self.disk.files.fixed_size(self.object).is_some()
    }

    /// Takes space on the device; `path` is for the words of an error.
    pub(crate) fn preallocate(&self, path: &Path, bytes: Bytes) -> Result<(), Error> {
        let mut task = self.enter_to_change()?;
        if let Some(size) = self.disk.files.fixed_size(self.object)
            && bytes > size
        {
            return Err(Error::System(os::OsError::TooSmall {
                path: path.into(),
                bytes: size.0,
                wanted: bytes.0,
            }));
        }
        let refused = |errno| {
            let (path, bytes) = (path.into(), bytes.0);
            Error::System(os::OsError::Preallocate { path, bytes, errno })
        };
        match self.inner.allocate(&mut task, bytes) {
            Err(error @ mm::Error::MetadataFailed { cause, .. }) => {
                Err(errno_of(cause).map_or_else(|| self.failed(error, Bytes::ZERO), refused))
            }
            allocated => self.answered(allocated),
        }
    }

    /// Makes what was written durable and, with its last handle, takes the file out of the cache. A
    /// file that had content when it was opened, and that nothing has changed since, is not
    /// flushed: `sync` makes durable the writes of another program to it.
    ///
    /// # Errors
    /// As `sync`. The error holds the file: it is still open and has lost nothing.
    pub fn close(mut self) -> Result<(), CloseError> {
        match self.end("close", mm::File::close, mm::File::sync) {
            Ok(ended) => {
                self.ended = ended;
                Ok(())
            }
            Err(error) => Err(CloseError {
                file: Box::new(self),
                error,
            }),
        }
    }

    /// Takes the file out of the cache without writing what is dirty: for a file that is about to
    /// be removed. While it has other handles, only this one goes.
    ///
    /// # Errors
    /// `Closed`.
    pub fn discard(mut self) -> Result<(), Error> {
        self.ended = self.end("discard", mm::File::discard, |_, _| Ok(()))?;
        Ok(())
    }

    /// The last handle takes the file out by `last`, another does `otherwise`; whether it was the
    /// last.
    fn end(
        &self,
        call: &'static str,
        last: fn(&mm::File, &mut Task<'_>) -> Result<(), mm::Error>,
        otherwise: fn(&mm::File, &mut Task<'_>) -> Result<(), mm::Error>,
    ) -> Result<bool, Error> {
        let _call = self.call(call, (0, 0), None);
        self.cache.is_open()?;
        let mut task = self.cache.task();
        let opened = &self.cache.inner.opened;
        if opened.begin_end(self.key, 1).is_none() {
            self.answered(otherwise(&self.inner, &mut task))?;
            return Ok(false);
        }
        let ended = last(&self.inner, &mut task);
        match ended {
            Ok(()) => opened.end(self.key),
            Err(_) => opened.keep(self.key),
        }
        self.answered(ended).map(|()| true)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.ended {
            self.cache.inner.opened.let_go(self.key);
        }
    }
}

/// A reading of a file. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileStats {
    /// In memory.
    pub cached: u64,
    /// Written and not yet on its way to the device.
    pub dirty: u64,
    /// On its way there.
    pub writeback: u64,
    /// Pages that calls to read or to pin asked for and found in memory.
    pub hits_total: u64,
    /// Pages that they did not find. A `try_pin` that finds none counts nothing: the `pin` after it
    /// does.
    pub misses_total: u64,
}

/// A file that could not be closed, with everything it holds.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct CloseError {
    /// The file: sync it again, or discard it.
    pub file: Box<File>,
    /// Why.
    pub error: Error,
}

impl fmt::Debug for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

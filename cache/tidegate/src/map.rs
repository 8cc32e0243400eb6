//! A map of a file: plain loads and stores, within the cache's limit, and paced.
//!
//! ```text
//!   a thread of the program --load, store--> view --fault--> one of the map's threads:
//!       ^                                                      mm: in memory, at home, allowed
//!       '---------------------- wake --------------------------'   and until when it is paused
//! ```
//!
//! The map's threads wait for faults, and the system wakes one of them for each. It answers at once
//! what needs no wait; where a fault needs a read, memory or a pause, the thread goes on to wait
//! for it, having seen to it that another one waits for faults. Each thread of the program is a
//! writer and a reader of its own.
//!
//! Invariants
//!   1. The map's threads touch no view.
//!   2. A fault is answered: by the page, or by SIGBUS (`View::poison`).
//!   3. The map's end: its threads, then the pages' state, then the view.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

use env::{Cause, Event, Signal, Task, Wakeup};
use mm::{Access, Advice, Reader, Stream};
use os::{Fault, Rights, View};
use policy::units::{Bytes, Nanos, Pages};

use crate::{Error, File, PAGE_SIZE, Progress, Writer};

/// Threads of a map at most: as many faults can wait at once.
const THREADS: usize = 64;
const STACK: usize = 256 << 10;
/// Threads of the program whose accesses are remembered; above that, those that have ended are
/// forgotten.
const SOURCES: usize = 256;
/// A fault that finds no memory tries again after this time, and so long.
const MEMORY_PAUSE: Nanos = Nanos::millis(10);
const MEMORY_PATIENCE: Nanos = Nanos::millis(10_000);

/// The options of a map.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapOptions {
    write: bool,
    user_mode: bool,
}

impl MapOptions {
    /// For loads.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For stores, too.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    pub(crate) fn is_for_stores(self) -> bool {
        self.write
    }

    /// Take less than full rights, where the process has no more: loads and stores of the program
    /// work, and a system call that is given memory of the map which is not there answers EFAULT
    /// (read, write, send, recv, futex, io_uring and others). [`Map::rights`] says what it is.
    #[must_use]
    pub fn user_mode(mut self, user_mode: bool) -> Self {
        self.user_mode = user_mode;
        self
    }
}

/// A part of a file as memory of the program: within the cache's limit whatever it touches, evicted
/// by the cache's rule, and paced where it stores. There is one map of a file at a time; while it
/// lives, pages of the file are not pinned ([`File::pin`]). Calls on the file go on as ever, and
/// see the same bytes.
///
/// Stores are in the file for every call at once, and on the device once [`Map::sync`] or
/// [`File::sync`] answers. **Stores that were not synced when the process ends are lost**: a map of
/// the kernel's would keep them.
///
/// An access that cannot be answered (the device fails, is full, the file was cut) ends in SIGBUS.
/// A cache is not closed while a map lives. A child of a fork does not have the memory.
pub struct Map {
    /// `None`: its end.
    shared: Option<Arc<Shared>>,
    bytes: Range<u64>,
}

struct Shared {
    file: File,
    view: Arc<View>,
    inner: mm::FileMap,
    write: bool,
    /// Threads that wait for faults.
    idle: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// By the system's number of a thread of the program.
    sources: Mutex<HashMap<u32, Source>>,
    /// Advice for the readers to come.
    reader: Mutex<Reader>,
    counts: Counts,
}

/// One thread of the program.
struct Source {
    writer: Writer,
    stream: Stream,
}

#[derive(Default)]
struct Counts {
    faults: AtomicU64,
    reads: AtomicU64,
    stores: AtomicU64,
    waited: AtomicU64,
    pages: AtomicU64,
}

/// A reading of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapStats {
    /// Accesses that had to be answered.
    pub faults_total: u64,
    /// Of these, those whose page was read from the device.
    pub reads_total: u64,
    /// Of all, stores.
    pub stores_total: u64,
    /// Of all, those that waited: for the device, for memory, for the end of a pause.
    pub waited_total: u64,
    /// Pages that they were answered with: more than faults where accesses run in order.
    pub pages_total: u64,
    /// Those that ended in SIGBUS.
    pub failed_total: u64,
    /// Bytes of the map in memory.
    pub resident: u64,
}

/// The views of a cache's files.
#[derive(Default)]
pub(crate) struct Views {
    count: AtomicUsize,
    views: RwLock<Vec<(Arc<View>, PathBuf)>>,
    /// Set under the lock.
    ended: AtomicBool,
}

impl Views {
    /// True if the memory lies in a view: then it is copied before a call takes it, which would
    /// hold what the fault on it needs.
    #[inline]
    pub(crate) fn have(&self, memory: &[u8]) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.overlap(memory)
    }

    #[cold]
    fn overlap(&self, memory: &[u8]) -> bool {
        let start = memory.as_ptr().addr();
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        let mut views = views.iter();
        views.any(|(view, _)| view.overlaps(start..start + memory.len()))
    }

    /// After `end`, one more is refused.
    fn add(&self, view: &Arc<View>, path: &Path) -> Result<(), Error> {
        self.change(|views| {
            if self.ended.load(Ordering::Relaxed) {
                return Err(Error::Closed);
            }
            views.push((Arc::clone(view), path.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, view: &Arc<View>) {
        self.change(|views| views.retain(|(other, _)| !Arc::ptr_eq(other, view)));
    }

    /// No view comes any more.
    ///
    /// # Errors
    /// `File` with `Mapped`: there is one, and others may come.
    pub(crate) fn end(&self) -> Result<(), Error> {
        self.change(|views| match views.first() {
            Some((_, path)) => Err(Error::File {
                path: path.clone(),
                error: mm::Error::Mapped,
                taken: 0,
            }),
            None => {
                self.ended.store(true, Ordering::Relaxed);
                Ok(())
            }
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<(Arc<View>, PathBuf)>) -> T) -> T {
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut views);
        self.count.store(views.len(), Ordering::Release);
        changed
    }
}

/// Bytes of memory in a view that are copied at a time.
const COPIED: usize = 256 << 10;

/// Has `read` fill memory that lies in a view, part after part from the first byte on, by copies:
/// no page is held while they come to it.
#[cold]
pub(crate) fn fill_by_copies(
    data: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> Result<Progress, Error>,
) -> Result<Progress, Error> {
    let mut done = Progress::all(0);
    for part in data.chunks_mut(COPIED) {
        let mut copy = vec![0; part.len()];
        let Progress { bytes, would_block } = read(&mut copy, done.bytes as u64)?;
        part[..bytes].copy_from_slice(&copy[..bytes]);
        done = Progress {
            bytes: done.bytes + bytes,
            would_block,
        };
        if bytes < part.len() {
            break;
        }
    }
    Ok(done)
}

/// Has `write` take memory that lies in a view in the same way.
#[cold]
pub(crate) fn take_by_copies(
    data: &[u8],
    mut write: impl FnMut(&[u8], u64) -> Result<Progress, Error>,
) -> Result<Progress, Error> {
    let mut done = Progress::all(0);
    for part in data.chunks(COPIED) {
        let at = done.bytes as u64;
        let copy = part.to_vec();
        let written = write(&copy, at).map_err(|error| error.after(at))?;
        done = Progress {
            bytes: done.bytes + written.bytes,
            would_block: written.would_block,
        };
        if written.bytes < part.len() {
            break;
        }
    }
    Ok(done)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Map {
    /// `file` is a handle of the map's own.
    pub(crate) fn new(file: File, bytes: Range<u64>, options: MapOptions) -> Result<Self, Error> {
        let page = PAGE_SIZE as u64;
        if bytes.is_empty() || !bytes.start.is_multiple_of(page) {
            return Err(Error::PartOfPage {
                offset: bytes.start,
                end: bytes.end,
            });
        }
        let cache = file.cache().clone();
        let pages = u32::try_from(bytes.end.div_ceil(page)).unwrap_or(u32::MAX);
        let arena = cache.arena();
        let view = arena
            .open_view(pages, options.write, options.user_mode)
            .map_err(Error::System)?;
        let views = &cache.inner.views;
        let inner = views.add(&view, file.path()).and_then(|()| {
            let pages = Pages(u64::from(pages));
            let inner = file.inner().map_live(&cache.task(), pages, view.id());
            inner.map_err(|error| file.failed(error, Bytes::ZERO))
        });
        let inner = inner.inspect_err(|_| {
            views.remove(&view);
            arena.close_view(&view);
        })?;
        let shared = Arc::new(Shared {
            file,
            view,
            inner,
            write: options.write,
            idle: AtomicUsize::new(0),
            threads: Mutex::default(),
            sources: Mutex::default(),
            reader: Mutex::default(),
            counts: Counts::default(),
        });
        // Dropped, it ends as far as it has begun.
        let map = Self {
            shared: Some(Arc::clone(&shared)),
            bytes,
        };
        shared.start_thread()?;
        Ok(map)
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().expect("taken by drop only")
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.bytes.end - self.bytes.start).expect("it is in memory")
    }

    /// True if it has no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn start(&self) -> usize {
        usize::try_from(self.bytes.start).expect("it is in memory")
    }

    /// Its first byte. Accesses through it follow the language's rules for memory that others
    /// change: by atomics, or while nobody does. They end with the map.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.shared().view.as_ptr().wrapping_add(self.start())
    }

    /// The memory behind it, for `View::as_slice`: from the file's first byte on.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.shared().view
    }

    /// The file that it is of.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared().file.path()
    }

    /// The calls of the system that may be given its memory.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.shared().view.rights()
    }

    /// The place of bytes of the map in its view.
    fn place(&self, offset: u64, len: usize) -> Result<usize, Error> {
        let end = offset.saturating_add(len as u64);
        if end > self.len() as u64 {
            let error = mm::Error::OutOfRange {
                what: "map",
                end: Bytes(end),
                len: Bytes(self.len() as u64),
            };
            return Err(self.shared().file.failed(error, Bytes::ZERO));
        }
        Ok(self.start() + usize::try_from(offset).expect("within the map"))
    }

    /// Copies `to.len()` bytes at `offset` of the map. A store of another thread meanwhile is seen
    /// in part.
    ///
    /// # Errors
    /// `File` with `OutOfRange` beyond its end.
    pub fn read_into(&self, to: &mut [u8], offset: u64) -> Result<(), Error> {
        self.shared().view.load(self.place(offset, to.len())?, to);
        Ok(())
    }

    /// Stores `from` at `offset` of the map.
    ///
    /// # Errors
    /// `File` with `OutOfRange` beyond its end; `ReadOnly` without [`MapOptions::write`].
    pub fn write_from(&self, from: &[u8], offset: u64) -> Result<(), Error> {
        if !self.shared().write {
            return Err(Error::ReadOnly);
        }
        self.shared()
            .view
            .store(self.place(offset, from.len())?, from);
        Ok(())
    }

    /// The bytes of the file that a range of the map is: from, how many.
    fn part(&self, range: &Range<u64>) -> Result<(u64, u64), Error> {
        let len = range.end.saturating_sub(range.start);
        self.place(range.start, usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok((self.bytes.start + range.start, len))
    }

    /// Makes what was stored in a range of the map durable, before this call began: on the device,
    /// and the device flushed.
    ///
    /// # Errors
    /// As [`File::sync`].
    pub fn sync(&self, range: Range<u64>) -> Result<(), Error> {
        let (from, len) = self.part(&range)?;
        self.shared().file.sync_range(from, len)
    }

    /// Brings a range of the map into memory, as far as the cache has room, so that loads from it
    /// find it there.
    ///
    /// # Errors
    /// `File`: the device failed, no memory. `Closed`.
    pub fn populate(&self, range: Range<u64>) -> Result<(), Error> {
        let shared = self.shared();
        let (from, len) = self.part(&range)?;
        let mut source = shared.new_source();
        let page = |bytes: u64| u32::try_from(bytes / PAGE_SIZE as u64).expect("within the map");
        let end = page((from + len).next_multiple_of(PAGE_SIZE as u64));
        let mut task = shared.file.cache().enter()?;
        let mut at = page(from);
        while at < end {
            let fault = Fault {
                page: at,
                stores: false,
                thread: 0,
            };
            let answered = shared.have(&mut task, fault, &mut source);
            let pages = answered.map_err(|error| shared.file.failed(error, Bytes::ZERO))?;
            at += pages.end - pages.start;
        }
        Ok(())
    }

    /// Says what is to come: how it will be read (`Normal`, `Sequential`, `Random`, `NoReuse`), or
    /// what becomes of a range of the map: `WillNeed` begins to read it, `DontNeed` drops its whole
    /// pages that are clean. Nobody is held to it.
    ///
    /// # Errors
    /// `File`, `Closed`.
    pub fn advise(&self, advice: Advice, range: Range<u64>) -> Result<(), Error> {
        let shared = self.shared();
        let (from, len) = self.part(&range)?;
        let mut task = shared.file.cache().enter()?;
        let place = (Bytes(from), Bytes(len));
        if advice == Advice::DontNeed {
            shared.inner.let_go(&task, place);
        }
        let mut reader = lock(&shared.reader);
        let advised = shared
            .file
            .inner()
            .advise(&mut task, &mut reader, place, advice);
        // They begin anew, with what was said.
        lock(&shared.sources).clear();
        advised.map_err(|error| shared.file.failed(error, Bytes::ZERO))
    }

    /// Bytes of the map in memory, of those that were used through it.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.shared().view.resident()
    }

    /// Faults so far, and what is resident.
    #[must_use]
    pub fn stats(&self) -> MapStats {
        let shared = self.shared();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MapStats {
            faults_total: read(&shared.counts.faults),
            reads_total: read(&shared.counts.reads),
            stores_total: read(&shared.counts.stores),
            waited_total: read(&shared.counts.waited),
            pages_total: read(&shared.counts.pages),
            failed_total: shared.view.poisoned(),
            resident: shared.view.resident(),
        }
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("path", &self.path())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        shared.view.end_faults();
        loop {
            let thread = lock(&shared.threads).pop();
            let Some(thread) = thread else { break };
            let _ = thread.join();
        }
        let (cache, view) = (shared.file.cache().clone(), Arc::clone(&shared.view));
        // The last of it: its threads have ended.
        drop(shared);
        cache.inner.views.remove(&view);
        cache.arena().close_view(&view);
    }
}

impl Shared {
    fn start_thread(self: &Arc<Self>) -> Result<(), Error> {
        let shared = Arc::clone(self);
        let started = os::start_thread("tg-map", STACK, move || shared.serve());
        let thread = started.map_err(|error| {
            Error::System(os::OsError::Thread {
                name: "tg-map".into(),
                errno: error.raw_os_error().unwrap_or(0),
            })
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// The life of a thread of the map.
    fn serve(self: Arc<Self>) {
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            let fault = self.view.next_fault();
            self.idle.fetch_sub(1, Ordering::SeqCst);
            let Some(fault) = fault else { return };
            let mut source = self.source(fault.thread);
            let answer = self.answer_at_once(fault, &mut source).or_else(|| {
                self.see_to_another();
                self.wait_for(fault, &mut source)
            });
            // First: its next fault may be another thread's to answer.
            self.keep_source(fault.thread, source);
            match answer {
                Some(pages) => self.view.wake(pages),
                None => self.view.poison(fault.page),
            }
        }
    }

    /// Somebody else waits for faults meanwhile; where the system has no thread, nobody does.
    fn see_to_another(self: &Arc<Self>) {
        let threads = lock(&self.threads).len();
        if self.idle.load(Ordering::SeqCst) == 0 && threads < THREADS {
            let _ = self.start_thread();
        }
    }

    /// The pages that the access may use; `None`: it has to wait.
    fn answer_at_once(&self, fault: Fault, source: &mut Source) -> Option<Range<u32>> {
        let mm = &self.file.cache().inner.mm;
        let mut task = self.file.cache().task();
        let answered = task.nonblocking(|task| self.have(task, fault, source));
        let pages = answered.ok()?;
        // A pause that it has earned, or an error of the device, is waited for.
        let paces = fault.stores && !matches!(mm.pace(&mut task, source.writer.of(mm)), Ok(None));
        (!paces).then_some(pages)
    }

    /// The same after a wait; `None`: it cannot be answered.
    fn wait_for(&self, fault: Fault, source: &mut Source) -> Option<Range<u32>> {
        self.counts.waited.fetch_add(1, Ordering::Relaxed);
        let mut task = self.file.cache().task();
        let began = task.now();
        let answered = loop {
            match self.have(&mut task, fault, source) {
                Err(mm::Error::OutOfMemory { .. } | mm::Error::NoMemory { .. })
                    if task.now() < began + MEMORY_PATIENCE =>
                {
                    let _ = task.sleep(Cause::Memory, MEMORY_PAUSE);
                }
                // Of an earlier write: `sync` answers it, and this store's writer has heard of it.
                Err(mm::Error::WriteFailed { .. }) => {}
                answered => break answered,
            }
        };
        task.emit(&Event::Waited {
            cause: match fault.stores {
                false => Cause::MapFault,
                true => Cause::MapStore,
            },
            waited: task.now().since(began),
            wakeup: Wakeup::Ready(Signal::Seen),
        });
        answered.ok()
    }

    /// Has the page of a fault, and those that come with it, in memory and allowed; answers which.
    fn have(
        &self,
        task: &mut Task<'_>,
        fault: Fault,
        source: &mut Source,
    ) -> Result<Range<u32>, mm::Error> {
        let access = match fault.stores {
            false => Access::Load,
            true if self.write => Access::Store,
            // The system has ended the program before: its view is for loads.
            true => return Err(mm::Error::Mapped),
        };
        let mm = &self.file.cache().inner.mm;
        let by = (source.writer.of(mm), &mut source.stream);
        let touched = self.inner.fault(task, by, fault.page, access)?;
        let count = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        count(&self.counts.faults, 1);
        count(&self.counts.stores, u64::from(fault.stores));
        count(&self.counts.reads, touched.major.0);
        count(&self.counts.pages, touched.pages.0);
        let pages = u32::try_from(touched.pages.0).expect("within the map");
        Ok(fault.page..fault.page + pages)
    }

    fn new_source(&self) -> Source {
        Source {
            writer: self.file.cache().writer(),
            stream: Stream::of(*lock(&self.reader)),
        }
    }

    fn source(&self, thread: u32) -> Source {
        let kept = lock(&self.sources).remove(&thread);
        kept.unwrap_or_else(|| self.new_source())
    }

    fn keep_source(&self, thread: u32, source: Source) {
        let mut sources = lock(&self.sources);
        if sources.len() >= SOURCES {
            sources.retain(|thread, _| Path::new(&format!("/proc/self/task/{thread}")).exists());
        }
        sources.insert(thread, source);
    }
}

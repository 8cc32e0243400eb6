//! The cache, and how files are opened in it.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use device::{FaultPlan, Layer, Stack};
use env::{Device, Interrupt, Task};
use frames::sync::{AtomicBool, Ordering};
use mm::DeviceOptions;
use os::{Arena, FileDevice, ThreadEnv};
use policy::units::{Bytes, Pages};

use crate::error::{BUSY, NO_DESCRIPTORS};
use crate::future::Lanes;
use crate::group::Follower;
use crate::map::Views;
use crate::nodes::Placement;
use crate::opened::{Disk, Entries, Entry, FileKey, Opened};
use crate::stats::{NodeStats, PageUse, Swap, Waits};
use crate::{Builder, Error, File, PAGE_SIZE, Spill, Stats, Writer};

/// A page cache. Cheap to clone: all clones are the same cache.
#[derive(Clone)]
pub struct Cache {
    pub(crate) inner: Arc<Inner>,
}

/// A cache that may have gone: all of its clones were dropped.
#[derive(Clone)]
pub struct WeakCache(Weak<Inner>);

impl WeakCache {
    /// The cache, if it is still there.
    #[must_use]
    pub fn upgrade(&self) -> Option<Cache> {
        self.0.upgrade().map(|inner| Cache { inner })
    }
}

pub(crate) struct Inner {
    pub(crate) env: Arc<ThreadEnv>,
    pub(crate) mm: Arc<mm::Cache>,
    pub(crate) waits: Arc<Waits>,
    division: Arc<Division>,
    /// Ends before the rest does.
    follower: Mutex<Option<Follower>>,
    short: Option<u64>,
    placement: Placement,
    device: DeviceOptions,
    /// The layers between the cache and each disk.
    layers: Vec<Layer>,
    /// By the system's number of the file system or block device: a disk of its own, with its own
    /// share of the dirty limit and its own flusher.
    disks: Mutex<BTreeMap<u64, Disk>>,
    pub(crate) opened: Opened,
    pub(crate) lanes: Lanes,
    /// Memory of the program that faults.
    pub(crate) views: Views,
    /// Held by `close`, and how it ended: a second `close` hears that, not that the cache is being
    /// closed.
    closing: Mutex<Option<Result<(), mm::Error>>>,
    /// `close` has ended.
    closed: AtomicBool,
}

/// The division of the memory.
#[derive(Clone, Copy)]
struct Memory {
    /// As it was asked for.
    limit: u64,
    /// The part of it that is left to the program.
    beside: u64,
    /// The part that the control group leaves the cache.
    ceiling: u64,
}

/// The memory of a cache, and the right to change how it is divided.
struct Division {
    env: Arc<ThreadEnv>,
    mm: Arc<mm::Cache>,
    /// The limit it was built with.
    built: u64,
    /// The part of it that was left to the program then.
    beside_built: u64,
    memory: Mutex<Memory>,
}

impl Division {
    /// The part of a limit that is not pages, with `beside` left to the program.
    fn overhead(&self, frames: Pages, beside: u64) -> u64 {
        self.built.saturating_sub(frames.bytes().0) + (beside - self.beside_built)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn divide(&self, wanted: Memory, memory: &mut Memory) -> Result<(), Error> {
        let bytes = wanted.limit.min(wanted.ceiling);
        let frames = self.mm.stats().frames;
        let overhead = self.overhead(frames, wanted.beside);
        let too_large = |least: Pages| Error::BadSize {
            what: "set_limit",
            bytes: wanted.limit,
            allowed: (overhead + least.bytes().0, self.built),
        };
        let pages = Pages(bytes.saturating_sub(overhead) / PAGE_SIZE as u64);
        // More than it was built with, whatever is left to the program.
        let pages = if wanted.limit > self.built {
            frames + Pages(1)
        } else {
            pages
        };
        match self.mm.set_limit(&mut self.env.enter(), pages) {
            Err(mm::Error::LimitTooSmall { least, .. }) => Err(Error::LimitTooSmall {
                limit: bytes,
                least: overhead + least.bytes().0,
                overhead,
            }),
            Err(mm::Error::BadOption { allowed, .. }) => Err(too_large(Pages(allowed.0))),
            changed => {
                changed?;
                *memory = wanted;
                Ok(())
            }
        }
    }

    /// The control group leaves so much, or as little as the cache can do with. Pinned pages stay,
    /// and the next change is another try.
    fn set_ceiling(&self, ceiling: u64) {
        let mut memory = self.memory();
        let wanted = Memory { ceiling, ..*memory };
        if let Err(Error::LimitTooSmall { least, .. }) = self.divide(wanted, &mut memory) {
            let ceiling = least;
            let wanted = Memory { ceiling, ..*memory };
            let _ = self.divide(wanted, &mut memory);
        }
    }
}

/// The options of opening a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    inner: os::OpenOptions,
    unlocked: bool,
}

impl OpenOptions {
    /// An existing file, for reading and writing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Make the file if it is not there.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.inner.create = create;
        self
    }

    /// Begin with an empty file.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.inner.truncate = truncate;
        self
    }

    /// For reading only: this handle refuses to write, whatever others of the file do. Does not go
    /// with `create`, `truncate` and `preallocate`.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.inner.read_only = read_only;
        self
    }

    /// Take space for `bytes` on the device now. Where it has not as much, what it took behind the
    /// file's end is given back.
    #[must_use]
    pub fn preallocate(mut self, bytes: u64) -> Self {
        self.inner.preallocate = Some(Bytes(bytes));
        self
    }

    /// Refuse file systems without direct I/O instead of going through the kernel's page cache.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.inner.direct = direct;
        self
    }

    /// Locks the file while it is open (yes if not set): against other caches and servers, of this
    /// process and others, and against QEMU; one that is opened for reading only may be open for
    /// reading elsewhere. Without a lock a writer elsewhere loses data here, and the other way
    /// round, and neither is told: for a file system without locks.
    #[must_use]
    pub fn lock(mut self, lock: bool) -> Self {
        self.unlocked = !lock;
        self
    }

    /// A reader changes nothing.
    fn check(&self) -> Result<(), Error> {
        let options = &self.inner;
        let changes = [
            ("create", options.create),
            ("truncate", options.truncate),
            ("preallocate", options.preallocate.is_some()),
        ];
        match changes.iter().find(|(_, is_asked)| *is_asked) {
            Some((option, _)) if options.read_only => Err(Error::OptionsContradict { option }),
            _ => Ok(()),
        }
    }
}

/// The kind of file that was found at a path as it was opened.
enum Opening {
    New(FileKey, Entry),
    /// That file is open.
    Known(FileKey),
}

impl Cache {
    /// Settings for a new cache.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(
        env: Arc<ThreadEnv>,
        options: mm::Options,
        (device, layers): (DeviceOptions, Vec<Layer>),
        waits: Arc<Waits>,
        (limit, beside): (u64, u64),
        placement: Placement,
        (follows_group, short): (bool, Option<u64>),
    ) -> Result<Self, Error> {
        let mm = match mm::Cache::new(env.clone(), options) {
            Ok(mm) => mm,
            Err(error) => {
                env.shutdown();
                return Err(error.into());
            }
        };
        let disks = Mutex::new(BTreeMap::new());
        let division = Arc::new(Division {
            env: Arc::clone(&env),
            mm: Arc::clone(&mm),
            built: limit,
            beside_built: beside,
            memory: Mutex::new(Memory {
                limit,
                beside,
                ceiling: u64::MAX,
            }),
        });
        let divided = Arc::clone(&division);
        let follow = move |ceiling| divided.set_ceiling(ceiling);
        let follower = follows_group
            .then(|| Follower::start(limit, follow))
            .flatten();
        Ok(Self {
            inner: Arc::new(Inner {
                env,
                mm,
                waits,
                division,
                follower: Mutex::new(follower),
                short,
                placement,
                device,
                layers,
                disks,
                opened: Opened::default(),
                lanes: Lanes::default(),
                views: Views::default(),
                closing: Mutex::new(None),
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// Opens a file or a block device. While it is open, its content belongs to the cache: it is
    /// locked ([`OpenOptions::lock`]). Opened again, under whatever name, it is the same file with
    /// the same pages, also after all its handles were dropped.
    ///
    /// # Errors
    /// `System` (the path, the reason; `InUse`: another cache or program has it; busy: it is open
    /// for reading only; no space for what is to be preallocated), `Cache` (more files than there
    /// is room for; a device that failed). `OptionsContradict`. `Closed`.
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, Error> {
        self.is_open()?;
        options.check()?;
        let path = path.as_ref();
        match self.try_open(path, options, FileKey::of(path)) {
            // Files that were dropped hold places, and descriptors of the system.
            Err(error) if is_out_of_places(&error) && self.end_dropped() > 0 => {
                self.try_open(path, options, FileKey::of(path))
            }
            opened => opened,
        }
    }

    /// Opens what stands at a path, which looked like `key`. The file that was opened counts: a
    /// file system may number it otherwise each time that it is looked at.
    fn try_open(
        &self,
        path: &Path,
        options: OpenOptions,
        mut key: Option<FileKey>,
    ) -> Result<File, Error> {
        loop {
            let mut entries = self.inner.opened.lock(key);
            let known = key.and_then(|key| Some((key, entries.get_mut(&key)?)));
            let Some((known, entry)) = known else {
                let (key, entry) = match self.open_new(path, options, &entries)? {
                    Opening::New(key, entry) => (key, entry),
                    Opening::Known(known) => {
                        key = Some(known);
                        continue;
                    }
                };
                let inner = Arc::clone(&entry.inner);
                let read_only = options.inner.read_only;
                let file = File::new(self.clone(), path, (key, &entry), inner, read_only);
                entries.insert(key, entry);
                drop(entries);
                let opened = Self::prepared(path, options, file);
                if opened.is_err() {
                    // As nobody has a handle of it, nor its descriptor is kept.
                    self.end(key);
                }
                return opened;
            };
            if entry.read_only && !options.inner.read_only {
                let is_free = entry.handles == 0;
                drop(entries);
                if is_free && self.end(known) {
                    continue;
                }
                return Err(Error::System(os::OsError::Open {
                    path: path.into(),
                    errno: BUSY,
                }));
            }
            let inner = match entry.handles {
                0 => Arc::clone(&entry.inner),
                _ => entry.inner.clone_handle(),
            };
            entry.handles += 1;
            let read_only = options.inner.read_only;
            let file = File::new(self.clone(), path, (known, entry), inner, read_only);
            drop(entries);
            return Self::prepared(path, options, file);
        }
    }

    /// A file that was not open when it was looked for.
    fn open_new(
        &self,
        path: &Path,
        options: OpenOptions,
        entries: &Entries<'_>,
    ) -> Result<Opening, Error> {
        let disk = self.disk_of(path)?;
        let plain = os::OpenOptions {
            truncate: false,
            preallocate: None,
            ..options.inner
        };
        let (object, len) = disk.files.open(path, plain)?;
        let data = disk.files.metadata(object);
        let key = data.map(|data| FileKey::of_data(&data));
        let opened = match key {
            Ok(key) if entries.contains_key(&key) => {
                disk.files.close(object);
                return Ok(Opening::Known(key));
            }
            Ok(key) => {
                // Not before: it may be one of ours.
                let locked = match options.unlocked {
                    true => Ok(len),
                    false => disk.files.lock(object, path, options.inner.read_only),
                };
                let opened = locked.map_err(Error::from).and_then(|len| {
                    let opened = self
                        .inner
                        .mm
                        .open(&mut self.task(), disk.index, object, len);
                    opened.map_err(Error::from)
                });
                if let Ok(file) = &opened
                    && options.inner.read_only
                {
                    // It is not for those that only read to make it durable.
                    file.assume_durable();
                }
                if let Ok(file) = &opened
                    && disk.layers.is_none()
                {
                    file.writes_end_at(disk.files.unit(object));
                }
                opened.map(|file| (key, file))
            }
            Err(error) => Err(Error::System(os::OsError::Open {
                path: path.into(),
                errno: error.raw_os_error().unwrap_or(0),
            })),
        };
        match opened {
            Ok((key, file)) => {
                let entry = Entry::new(disk, object, file, options.inner.read_only);
                Ok(Opening::New(key, entry))
            }
            Err(error) => {
                disk.files.close(object);
                Err(error)
            }
        }
    }

    /// Prepares a file that is open as the options ask beyond opening.
    fn prepared(path: &Path, options: OpenOptions, file: File) -> Result<File, Error> {
        // A block device stays as large as it is, with what is on it.
        if options.inner.truncate && !file.is_fixed() {
            file.set_len(0)?;
        }
        if let Some(bytes) = options.inner.preallocate {
            file.preallocate(path, bytes)?;
        }
        Ok(file)
    }

    /// Writes back and closes the files that have no handle; answers how many that were.
    fn end_dropped(&self) -> usize {
        let dropped = self.inner.opened.dropped();
        dropped.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Writes a file without handles back and closes it.
    fn end(&self, key: FileKey) -> bool {
        let opened = &self.inner.opened;
        let Some(entry) = opened.begin_end(key, 0) else {
            return false;
        };
        let mut task = self.task();
        let is_closed = entry.inner.close(&mut task).is_ok();
        if is_closed {
            opened.end(key);
        } else {
            opened.keep(key);
        }
        is_closed
    }

    /// The disk that a path is on.
    fn disk_of(&self, path: &Path) -> Result<Disk, Error> {
        let number = system_device(path)?;
        let mut disks = self
            .inner
            .disks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(disk) = disks.get(&number) {
            return Ok(disk.clone());
        }
        let env = &self.inner.env;
        let files = FileDevice::new(env)?;
        files.expect_files_at(path);
        let info = files.info();
        let mut device: Arc<dyn Device> = Arc::<FileDevice>::clone(&files);
        let mut layers = None;
        if !self.inner.layers.is_empty() {
            let stack = Stack::new(&self.inner.layers, device, &env.host(), None);
            let stack = stack.expect("`Builder::layers` takes none that needs frames");
            device = Arc::clone(&stack.device);
            layers = Some(Arc::new(stack));
        }
        let id = env.add_device(device);
        let mut task = env.enter();
        let mm = &self.inner.mm;
        let added = mm.add_device(&mut task, id, info, self.inner.device);
        let index = added.inspect_err(|_| env.remove_device(id))?;
        let disk = Disk {
            files,
            index,
            layers,
        };
        disks.insert(number, disk.clone());
        Ok(disk)
    }

    /// Makes the swap file and unlinks its name.
    pub(crate) fn add_swap_file(&self, path: &Path, bytes: u64) -> Result<(), Error> {
        let pages = Pages(bytes / PAGE_SIZE as u64);
        let made = std::fs::File::create_new(path);
        let made = made.map_err(|error| {
            Error::System(os::OsError::Open {
                path: path.into(),
                errno: error.raw_os_error().unwrap_or(0),
            })
        });
        drop(made?);
        let opened = self.disk_of(path).and_then(|disk| {
            let options = OpenOptions::new().preallocate(pages.bytes().0);
            let (object, _) = disk.files.open(path, options.inner)?;
            Ok((disk, object))
        });
        // The descriptor keeps it.
        let _ = std::fs::remove_file(path);
        let (disk, object) = opened?;
        let mut task = self.enter()?;
        let added = self.inner.mm.add_swap(&mut task, disk.index, object, pages);
        if added.is_err() {
            disk.files.close(object);
        }
        Ok(added?)
    }

    /// A region of `bytes` bytes of anonymous memory: it takes memory as it is written, and shares
    /// the limit. With a swap file it may be much larger than the limit. Its own table, four and a
    /// quarter bytes for each 4 KiB, comes on top of the limit; the tables of all regions take at
    /// most a 32nd of it, so that regions may have thirty times the limit together.
    ///
    /// # Errors
    /// `BadSize` for no bytes, or more than are left for regions; `Cache`: more than 65536 regions.
    /// `Closed`.
    pub fn spill(&self, bytes: u64) -> Result<Spill, Error> {
        let mut task = self.enter()?;
        let pages = Pages(bytes.div_ceil(PAGE_SIZE as u64));
        match self.inner.mm.spill(&mut task, pages) {
            Ok(inner) => Ok(Spill::new(self.clone(), inner, bytes)),
            Err(mm::Error::BadOption { allowed, .. }) => Err(Error::BadSize {
                what: "spill, beside the other regions of the cache,",
                bytes,
                allowed: (1, Pages(allowed.1).bytes().0),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes the memory limit while the cache runs, up to the one it was built with. A lower one
    /// is reached in the background: pages in use are moved out of the memory given up, without a
    /// write to any device, and pages that were not used lately are evicted. [`Stats::over_limit`]
    /// says how far it is. Metadata stays that of the limit it was built with. The limit moves in
    /// steps of 2 MiB (more in caches above 32 GiB) and is rounded up: by less than a step, never
    /// above the one it was built with; [`Stats::limit`] says what it is.
    ///
    /// # Errors
    /// `LimitTooSmall`; `BadSize` for more than it was built with; `Cache` with `PinnedAboveLimit`
    /// while callers have more pinned, with `RegionsAboveLimit` while regions have more than thirty
    /// times as much; `System` when there is no thread to clear what is above a lower one. The
    /// limit is then what it was. `Closed`.
    pub fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        self.is_open()?;
        let mut memory = self.inner.division.memory();
        let limit = bytes;
        let wanted = Memory { limit, ..*memory };
        self.inner.division.divide(wanted, &mut memory)
    }

    /// The same for what the pages alone may have, or as little as the cache can do with, if that
    /// is more: for a limiter of several caches. Answers whether no more is in use already.
    ///
    /// # Errors
    /// As `set_limit`.
    pub fn bound_pages(&self, bytes: u64) -> Result<bool, Error> {
        let division = &self.inner.division;
        let beside = division.memory().beside;
        let overhead = division.overhead(division.mm.stats().frames, beside);
        match self.set_limit((bytes + overhead).min(division.built)) {
            Err(Error::LimitTooSmall { least, .. }) => self.set_limit(least)?,
            set => set?,
        }
        Ok(self.inner.mm.limit().over.is_zero())
    }

    /// Memory for pages, and what more of it would have been worth. Cheap beside `stats`.
    #[must_use]
    pub fn page_use(&self) -> PageUse {
        let (mm, bytes) = (&self.inner.mm, |pages: Pages| pages.bytes().0);
        let (stats, refaults) = (mm.stats(), mm.refaults());
        PageUse {
            most: bytes(stats.frames),
            used: bytes(mm.limit().used),
            evicted_total: bytes(refaults.evicted),
            read_total: bytes(stats.read_in),
            refaults: refaults.by_distance,
            read_time: Duration::from_nanos(refaults.read.0),
        }
    }

    /// The cache without keeping it open.
    #[must_use]
    pub fn downgrade(&self) -> WeakCache {
        WeakCache(Arc::downgrade(&self.inner))
    }

    /// Leaves `bytes` of the limit to the program itself from now on (`Builder::beside`);
    /// at least as many as when the cache was built.
    ///
    /// # Errors
    /// As `set_limit`; it is then what it was.
    pub fn set_beside(&self, bytes: u64) -> Result<(), Error> {
        self.is_open()?;
        let mut memory = self.inner.division.memory();
        let beside = bytes.max(self.inner.division.beside_built);
        let wanted = Memory { beside, ..*memory };
        self.inner.division.divide(wanted, &mut memory)
    }

    /// A task for one call; `Closed` once the cache was closed. Every call that is not to work then
    /// comes in here.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Task<'_>, Error> {
        self.is_open()?;
        Ok(self.task())
    }

    /// A task for what has to end, or be told, after `close` too.
    pub(crate) fn task(&self) -> Task<'_> {
        self.inner.env.enter()
    }

    /// The memory that pages are in.
    #[inline(always)]
    pub(crate) fn arena(&self) -> &Arena {
        self.inner.env.arena()
    }

    /// `Closed` once it was closed.
    #[inline]
    pub(crate) fn is_open(&self) -> Result<(), Error> {
        // A caller that comes after `close` returned knows that from the thread that called it, and
        // sees this with it.
        if self.inner.closed.load(Ordering::Relaxed) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// A writer of its own: writes through it are paced by themselves.
    #[must_use]
    pub fn writer(&self) -> Writer {
        Writer::new(&self.inner.mm)
    }

    /// Makes everything written so far durable, in all files.
    ///
    /// # Errors
    /// The first file's that failed; the others are synced all the same. `Closed`.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.inner.mm.sync(&mut self.enter()?);
        self.give_back_devices();
        Ok(synced?)
    }

    /// Makes all that was written durable, as [`File::close`] does, and ends the cache. Every later
    /// call on it, its files, regions and volumes that can fail answers `Closed`;
    /// [`File::try_pin`] finds nothing. Pins that are held stay as they are, dropped ones are given
    /// back, readings ([`Cache::stats`], lengths) go on. A second call hears how the first one
    /// ended.
    ///
    /// # Errors
    /// `File` with `Mapped`: a [`Map`](crate::Map) of that file lives, and so does the cache. The
    /// data that could not be made durable; the cache is ended all the same.
    pub fn close(&self) -> Result<(), Error> {
        let closing = &self.inner.closing;
        let mut ended = closing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = *ended {
            return Ok(ended?);
        }
        self.inner.views.end()?;
        let synced = {
            let mut task = self.task();
            self.inner.mm.shutdown(&mut task)
        };
        drop(self.inner.take_follower());
        // Not before: until here the task that syncs has to hear how that ended.
        self.inner.closed.store(true, Ordering::Relaxed);
        self.inner.env.shutdown();
        // Others may have them from now on, whoever still has a handle.
        self.inner.opened.close();
        *ended = Some(synced);
        Ok(synced?)
    }

    /// The layers that [`Builder::layers`] has put there hold nothing up any more: hung requests
    /// end, slow ones are fast, and nothing fails from now on, but on a disk that is lost
    /// (`lost_at`). For the end of a test, or for a disk that works again.
    pub fn release_layers(&self) {
        let disks = self.inner.disks.lock();
        for disk in disks.unwrap_or_else(PoisonError::into_inner).values() {
            if let Some(stack) = &disk.layers {
                for faulty in &stack.faulty {
                    faulty.set_plan(FaultPlan::default());
                }
                stack.cancel(&Interrupt::new());
            }
        }
    }

    /// The disk that `path` is on works again, and the caller answers for it: a failed flush or the
    /// policy `Stop` holds it back no longer. Data that it had taken between its last good flush
    /// and the failure are unknown; write them again.
    ///
    /// # Errors
    /// `System` if the path's disk cannot be told. `Closed`.
    pub fn reopen_device(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let mut task = self.enter()?;
        let disk = self.disk_of(path.as_ref())?;
        self.inner.mm.reopen_device(&mut task, disk.index);
        Ok(())
    }

    /// Gives memory that no page needs back to the system; it is taken again when needed. Pages
    /// that stand in the way are moved together: no page is evicted or written for it. Answers how
    /// many bytes that were.
    pub fn trim(&self) -> u64 {
        let mut task = self.task();
        self.inner.mm.trim(&mut task).bytes().0
    }

    /// Levels, totals, waits.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (stats, swap) = (self.inner.mm.stats(), self.inner.mm.swap_stats());
        let bytes = |pages: Pages| pages.bytes().0;
        let division = &self.inner.division;
        let (limit, memory) = {
            // Both of one change.
            let memory = division.memory();
            (self.inner.mm.limit(), *memory)
        };
        let overhead = division.overhead(stats.frames, memory.beside);
        let (asked, kept) = (
            memory.limit.min(memory.ceiling),
            overhead + bytes(limit.limit),
        );
        // Pages are whole: what of a limit fills none is nobody's, and kept all the same.
        let is_asked = kept < asked && asked - kept < PAGE_SIZE as u64;
        Stats {
            limit: if is_asked {
                asked
            } else {
                division.built.min(kept)
            },
            over_limit: bytes(limit.over),
            refused: bytes(limit.refused),
            ceiling: (memory.ceiling < memory.limit).then_some(memory.ceiling),
            short_at_start: self.inner.short,
            no_io_uring: self.inner.env.fallback().map(ToString::to_string),
            beside: memory.beside,
            cached: bytes(stats.cached),
            free: bytes(stats.free),
            pinned: bytes(stats.pinned),
            dirty: bytes(stats.dirty),
            writeback: bytes(stats.writeback),
            dirty_limit: bytes(stats.dirty_limit),
            background_limit: bytes(stats.background_limit),
            dirtied_total: bytes(stats.dirtied),
            written_total: bytes(stats.written),
            read_total: bytes(stats.read_in),
            reclaimed_total: bytes(stats.reclaimed),
            moved_total: stats.moved,
            move_refused_total: stats.move_refused,
            runs: self.inner.mm.free_blocks(),
            failed_total: bytes(stats.write_failed),
            metadata: stats.metadata_bytes,
            anonymous: bytes(stats.anon),
            swap: Swap {
                total: bytes(swap.total),
                free: bytes(swap.free),
                writeback: bytes(swap.writeback),
                write_failed_total: bytes(swap.write_failed),
                read_failed_total: bytes(swap.read_failed),
            },
            nodes: self.node_stats(),
            one_node: self.inner.placement.one.clone(),
            waits: self.inner.waits.read(),
            pressure: self.inner.waits.pressure(),
            vmstat: self.inner.mm.vmstat().entries().collect(),
        }
    }
}

impl Cache {
    fn node_stats(&self) -> Vec<NodeStats> {
        let inner = &self.inner;
        let arena = inner.env.arena();
        let mut first = 0;
        let nodes = inner.mm.node_stats().into_iter().enumerate();
        let nodes = nodes.map(|(at, node)| {
            let frames = u32::try_from(node.frames.0).expect("no more than all");
            let end = first + frames;
            let own = core::mem::replace(&mut first, end)..end;
            let bytes = |pages: Pages| pages.bytes().0;
            NodeStats {
                number: inner.placement.numbers.get(at).copied(),
                size: bytes(node.frames),
                free: bytes(node.free),
                cached: bytes(node.file),
                anonymous: bytes(node.anon),
                aside: bytes(node.aside),
                dirty: bytes(node.dirty),
                taken_here_total: bytes(node.taken_here),
                taken_elsewhere_total: bytes(node.taken_elsewhere),
                misplaced: arena.misplaced(own) * PAGE_SIZE as u64,
                scanned_total: bytes(node.scanned),
                reclaimed_total: bytes(node.reclaimed),
            }
        });
        nodes.collect()
    }
}

impl Inner {
    fn take_follower(&self) -> Option<Follower> {
        let follower = self.follower.lock();
        follower.unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.take_follower());
        {
            let mut task = self.env.enter();
            // Best effort: a program that wants to know calls `close`.
            let _ = self.mm.shutdown(&mut task);
        }
        self.env.shutdown();
    }
}

/// True if closing files would help.
fn is_out_of_places(error: &Error) -> bool {
    match error {
        Error::Cache(mm::Error::TooMany { what, .. }) => *what == "files",
        Error::System(os::OsError::Open { errno, .. }) => NO_DESCRIPTORS.contains(errno),
        _ => false,
    }
}

/// The number of the file system that a path is on, or of the block device that it is. A path that
/// is not there yet is where its directory is.
fn system_device(path: &Path) -> Result<u64, Error> {
    let of = |path: &Path| std::fs::metadata(path);
    let metadata = of(path).or_else(|_| {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        of(parent.unwrap_or(Path::new(".")))
    });
    match metadata {
        // Other special files are no disks: they are refused when they are opened.
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(metadata.rdev()),
        Ok(metadata) => Ok(metadata.dev()),
        Err(error) => Err(Error::System(os::OsError::Open {
            path: PathBuf::from(path),
            errno: error.raw_os_error().unwrap_or(0),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when two threads open a file that neither has found, and one of them makes it.
    #[test]
    fn a_file_that_somebody_has_opened_meanwhile_is_not_opened_beside_it() {
        let name = format!("tidegate-meanwhile-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let cache = Cache::builder().memory(16 << 20).build().unwrap();
        let create = OpenOptions::new().create(true).truncate(true);
        let file = cache.open(&path, create).unwrap();
        file.write_at(b"theirs", 0).unwrap();
        file.sync().unwrap();
        let entries = cache.inner.opened.lock(None);
        let opened = cache.open_new(&path, create, &entries).unwrap();
        assert!(matches!(opened, Opening::Known(_)));
        drop(entries);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        // As where each look at a path numbers the file otherwise: another file's number, and none.
        for other in [FileKey::of(Path::new("/")), None] {
            let again = cache.try_open(&path, OpenOptions::new(), other).unwrap();
            again.write_at(b"shared", 0).unwrap();
            let mut read = [0; 6];
            file.read_at(&mut read, 0).unwrap();
            assert_eq!(&read, b"shared", "it has the same pages");
            drop(again);
            file.write_at(b"theirs", 0).unwrap();
        }
        file.close().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

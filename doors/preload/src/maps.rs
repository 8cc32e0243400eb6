//! The files that are mapped, and the parts of their maps that the program has.
//!
//! Concurrency: `CHANGES` is held while a file becomes ours or ends being it, which takes I/O;
//! `FILES` for moments, and by nobody who waits or allocates. A call on a file holds the file
//! (`Arc`): one that is under way when the last map ends finishes first.

use std::fs::File as Opened;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fstat};
use tidegate::{Advice, Cache, Error, File, Map, MapOptions, OpenOptions};

use crate::said::say;
use crate::system;

/// Maps below this are the kernel's.
pub(crate) const LEAST: usize = 16 << 20;
const PAGE: usize = tidegate::PAGE_SIZE;
/// Times that pages or files which are in use are looked at again, a millisecond apart.
const TRIES: u32 = 1000;

/// Held while a file becomes ours or ends being it.
static CHANGES: Mutex<Changes> = Mutex::new(Changes::New);
static FILES: RwLock<Vec<Arc<Ours>>> = RwLock::new(Vec::new());
/// A bit for each file of ours, by its number: a call on a file whose bit is not set is not for us.
static BITS: AtomicU64 = AtomicU64::new(0);
/// This is a child of a process that had a cache.
static INERT: AtomicBool = AtomicBool::new(false);

/// The cache of the process.
enum Changes {
    New,
    Built(Cache),
    /// It cannot be built, which was said.
    Refused,
}

/// A file that is mapped. Dropped, it is synced and closed.
pub(crate) struct Ours {
    /// Device and number.
    key: (u64, u64),
    name: PathBuf,
    start: usize,
    writable: bool,
    /// The program's maps, as addresses.
    parts: Mutex<Vec<Range<usize>>>,
    /// Something of the kernel's was put into its memory, which therefore stays.
    is_covered: AtomicBool,
    /// Held while a call makes it longer or shorter, or uses the position of a descriptor.
    end: Mutex<()>,
    /// Of our own, whatever the program closes.
    kept: Opened,
    map: Option<Map>,
    file: Option<File>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of an error.
pub(crate) fn errno(error: &Error) -> i32 {
    error.errno().unwrap_or(libc::EIO)
}

impl Ours {
    fn map(&self) -> &Map {
        self.map.as_ref().expect("taken by drop only")
    }

    pub(crate) fn file(&self) -> &File {
        self.file.as_ref().expect("taken by drop only")
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Its memory, as addresses.
    fn span(&self) -> Range<usize> {
        self.start..self.start + self.map().len().next_multiple_of(PAGE)
    }

    /// Bytes of the file: others may have made one longer that is mapped for loads.
    fn len(&self) -> u64 {
        let len = self.file().len();
        if self.writable {
            return len;
        }
        self.kept.metadata().map_or(len, |data| data.len().max(len))
    }

    /// The part of the map that addresses are.
    fn part(&self, bytes: &Range<usize>) -> Range<u64> {
        let len = self.map().len();
        let place = |address: usize| address.saturating_sub(self.start).min(len) as u64;
        place(bytes.start)..place(bytes.end)
    }

    pub(crate) fn sync(&self, bytes: &Range<usize>) -> Result<(), Error> {
        self.map().sync(self.part(bytes))
    }

    pub(crate) fn advise(&self, advice: Advice, bytes: &Range<usize>) -> Result<(), Error> {
        self.map().advise(advice, self.part(bytes))
    }

    pub(crate) fn populate(&self, bytes: &Range<usize>) -> Result<(), Error> {
        self.map().populate(self.part(bytes))
    }

    /// For a call that makes the file longer or shorter: no other one does meanwhile.
    pub(crate) fn at_its_end(&self) -> MutexGuard<'_, ()> {
        lock(&self.end)
    }

    /// Sets the length, also as the system has it. `at_its_end` is held.
    pub(crate) fn set_len(&self, len: u64) -> Result<(), Error> {
        self.file().set_len(len)?;
        self.settle()
    }

    /// The system has the length that the cache has, for `fstat` and whoever seeks the end: a sync
    /// of the last page settles it.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.file()
            .sync_range(self.file().len().saturating_sub(1), 1)
    }

    /// Pages of the file were changed past the cache: they are read anew. Of a file that is mapped
    /// for loads, where none is dirty; one that is in use just then stays, and is tried again.
    pub(crate) fn forget(&self, offset: u64, len: u64) {
        let page = PAGE as u64;
        let whole = self.map().len() as u64;
        let end = offset.saturating_add(len).min(whole);
        let from = (offset / page * page).min(end);
        for _ in 0..TRIES {
            let last = end.next_multiple_of(page).min(whole);
            let _ = self.map().advise(Advice::DontNeed, from..last);
            if self.is_as_the_system_has_it(from..end) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        say(&format!(
            "{}: its map, which is for loads, may not show what was written to it by a call",
            self.name.display()
        ));
    }

    fn is_as_the_system_has_it(&self, bytes: Range<u64>) -> bool {
        let (mut cached, mut there) = (vec![0; 16 * PAGE], vec![0; 16 * PAGE]);
        let mut at = bytes.start;
        while at < bytes.end {
            let left = usize::try_from(bytes.end - at).unwrap_or(usize::MAX);
            let len = left.min(cached.len());
            // Not `read_at` of the standard library: that call is replaced here.
            let had = rustix::io::pread(&self.kept, &mut there[..len], at);
            let Ok(had @ 1..) = had else { return false };
            match self.file().read_at(&mut cached[..had], at) {
                Ok(count) if count == had && cached[..had] == there[..had] => at += had as u64,
                _ => return false,
            }
        }
        true
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let map = self.map.take();
        if self.is_covered.load(Ordering::Relaxed) {
            std::mem::forget(map);
        } else {
            drop(map);
        }
        let Some(file) = self.file.take() else { return };
        if let Err(failed) = file.close() {
            let (name, error) = (self.name.display(), failed.error);
            say(&format!(
                "{name}: what was stored is not all on the device: {error}"
            ));
        }
    }
}

/// Sets the bits anew.
fn note(files: &[Arc<Ours>]) {
    let bits = files.iter().fold(0, |bits, file| bits | bit(file.key.1));
    BITS.store(bits, Ordering::Release);
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// The file of ours whose memory an address is in.
pub(crate) fn at(address: usize) -> Option<Arc<Ours>> {
    if BITS.load(Ordering::Acquire) == 0 {
        return None;
    }
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    let is_it = |file: &&Arc<Ours>| file.span().contains(&address);
    files.iter().find(is_it).cloned()
}

/// The file of ours that a descriptor is of.
pub(crate) fn of(fd: RawFd) -> Option<Arc<Ours>> {
    let bits = BITS.load(Ordering::Acquire);
    if bits == 0 || fd < 0 {
        return None;
    }
    let stat = fstat(system::borrow(fd)).ok()?;
    if bits & bit(stat.st_ino) == 0 {
        return None;
    }
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    let is_it = |file: &&Arc<Ours>| file.key == (stat.st_dev, stat.st_ino);
    files.iter().find(is_it).cloned()
}

/// The cache, which is built where there is none yet.
fn cache(changes: &mut Changes) -> Option<Cache> {
    if matches!(changes, Changes::New) {
        *changes = match build() {
            Ok(cache) => Changes::Built(cache),
            Err(why) => {
                say(&format!("{why}; maps are the kernel's"));
                Changes::Refused
            }
        };
    }
    match changes {
        Changes::Built(cache) => Some(cache.clone()),
        _ => None,
    }
}

fn build() -> Result<Cache, String> {
    let Some(memory) = std::env::var_os("TIDEGATE_MEMORY") else {
        return Err("TIDEGATE_MEMORY is not set; set it to a limit such as 64MiB".into());
    };
    let memory = memory.to_string_lossy();
    let memory = figures::size(&memory).map_err(|error| format!("TIDEGATE_MEMORY: {error}"))?;
    let built = Cache::builder().memory(memory).maps(true).build();
    built.map_err(|error| format!("TIDEGATE_MEMORY: {error}"))
}

/// The answer to a map that is asked for.
pub(crate) enum Answer {
    At(usize),
    Kernel,
    Refused(i32),
}

/// A map that is asked for.
pub(crate) struct Asked {
    pub(crate) fd: RawFd,
    pub(crate) len: usize,
    pub(crate) stores: bool,
    pub(crate) is_fixed: bool,
    pub(crate) offset: u64,
}

/// Maps a part of a regular file.
pub(crate) fn map(asked: &Asked) -> Answer {
    if INERT.load(Ordering::Relaxed) || (asked.len < LEAST && of(asked.fd).is_none()) {
        return Answer::Kernel;
    }
    let fd = system::borrow(asked.fd);
    let (Ok(stat), Ok(flags)) = (fstat(fd), fcntl_getfl(fd)) else {
        return Answer::Kernel;
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || flags.contains(OFlags::WRONLY) {
        return Answer::Kernel;
    }
    let for_writing = flags.contains(OFlags::RDWR);
    if asked.stores && !for_writing {
        // The system says that it is not possible.
        return Answer::Kernel;
    }
    let mut changes = lock(&CHANGES);
    let name = std::fs::read_link(path_of(asked.fd)).unwrap_or_else(|_| path_of(asked.fd));
    let mapped = of(asked.fd);
    match try_map(&mut changes, fd, asked, &name, for_writing) {
        Ok(address) => Answer::At(address),
        // Nothing to say more than once.
        Err(_) if matches!(*changes, Changes::Refused) => refusal(),
        Err(why) if mapped.is_some_and(|ours| ours.writable || asked.stores) => {
            say(&format!(
                "{}: {why}; a second map of the file is refused",
                name.display()
            ));
            Answer::Refused(libc::ENOTSUP)
        }
        Err(why) => {
            say(&format!(
                "{}: {why}; the map is the kernel's",
                name.display()
            ));
            refusal()
        }
    }
}

/// Before a map of the kernel's: the file, if it is ours, has what was stored up to then. Only a
/// private map of it may be the kernel's, which never sees what is stored later; or one for loads
/// of a file that is ours for loads.
pub(crate) fn beside(fd: RawFd, is_shared: bool, stores: bool) -> Result<(), i32> {
    let Some(ours) = of(fd) else { return Ok(()) };
    let name = ours.name.display();
    if is_shared && (ours.writable || stores) {
        say(&format!(
            "{name}: it is mapped by tidegate already; a shared map that cannot be (longer than the \
             file was then, executable, at a fixed address) is refused"
        ));
        return Err(libc::ENOTSUP);
    }
    if !ours.writable {
        return Ok(());
    }
    ours.file().sync().map_err(|error| {
        say(&format!("{name}: not synced before a private map: {error}"));
        errno(&error)
    })
}

/// The kernel's map instead, unless nothing but ours will do.
fn refusal() -> Answer {
    match std::env::var_os("TIDEGATE_STRICT") {
        None => Answer::Kernel,
        Some(_) => Answer::Refused(libc::EPERM),
    }
}

fn path_of(fd: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

fn try_map(
    changes: &mut Changes,
    fd: BorrowedFd<'_>,
    asked: &Asked,
    name: &Path,
    for_writing: bool,
) -> Result<usize, String> {
    if asked.is_fixed {
        return Err("the program asks for an address (MAP_FIXED)".into());
    }
    let offset = usize::try_from(asked.offset).map_err(|_| "too far behind".to_owned())?;
    let end = offset.saturating_add(asked.len);
    let ours = match of(fd.as_raw_fd()) {
        Some(ours) => ours,
        None => open(changes, fd, name, for_writing)?,
    };
    let span = ours.span();
    let part = span.start + offset..(span.start.saturating_add(end)).next_multiple_of(PAGE);
    if part.end > span.end {
        let words = "the map would be longer than the file";
        unmap_if_unused(ours);
        return Err(words.into());
    }
    if asked.stores && !ours.writable {
        return Err("it is mapped for loads already, by a descriptor that is for reading".into());
    }
    let address = part.start;
    lock(&ours.parts).push(part);
    Ok(address)
}

/// Makes a file ours.
fn open(
    changes: &mut Changes,
    fd: BorrowedFd<'_>,
    name: &Path,
    for_writing: bool,
) -> Result<Arc<Ours>, String> {
    let cache = cache(changes).ok_or("there is no cache")?;
    let path = path_of(fd.as_raw_fd());
    let words = |error: Error| {
        let words = error.to_string();
        // The words name the descriptor: the program knows the file by its name.
        words
            .trim_start_matches(&format!("{}: ", path.display()))
            .to_owned()
    };
    let kept = Opened::options().read(true).write(for_writing).open(&path);
    let kept = kept.map_err(|error| error.to_string())?;
    let data = kept.metadata().map_err(|error| error.to_string())?;
    let key = (data.dev(), data.ino());
    if is_shared_by_the_kernel(key.1) {
        return Err("a small part of it is mapped already, by the kernel".into());
    }
    let options = OpenOptions::new().read_only(!for_writing);
    let file = cache.open(&path, options).map_err(words)?;
    let map = file.map(0..file.len(), MapOptions::new().write(for_writing));
    let map = match map {
        Ok(map) => map,
        Err(error) => {
            let why = words(error);
            let _ = file.close();
            return Err(why);
        }
    };
    let ours = Arc::new(Ours {
        key,
        name: name.to_owned(),
        start: map.as_ptr().addr(),
        writable: for_writing,
        parts: Mutex::default(),
        is_covered: AtomicBool::new(false),
        end: Mutex::default(),
        kept,
        map: Some(map),
        file: Some(file),
    });
    // `CHANGES` is held: there are as many until then. Nothing is allocated under the lock.
    let count = FILES.read().unwrap_or_else(PoisonError::into_inner).len();
    let mut more = Vec::with_capacity(count + 1);
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    more.append(&mut files);
    more.push(Arc::clone(&ours));
    note(&more);
    std::mem::swap(&mut *files, &mut more);
    drop(files);
    Ok(ours)
}

/// True if the process may have a shared map of the file: of a file with its number, for btrfs
/// shows one device to stat(2), another there.
fn is_shared_by_the_kernel(number: u64) -> bool {
    let number = number.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (access, of) = (words.nth(1), words.nth(2));
        access.is_some_and(|access| access.ends_with('s')) && of == Some(&number)
    })
}

/// Takes `cut` from the program's maps: from the one that is it, or that it lies in, or else from
/// all that it meets.
fn take(parts: &mut Vec<Range<usize>>, cut: &Range<usize>) {
    let is_within = |part: &Range<usize>| part.start <= cut.start && cut.end <= part.end;
    let one = parts
        .iter()
        .position(|part| part == cut)
        .or_else(|| parts.iter().position(is_within));
    let met: Vec<Range<usize>> = match one {
        Some(at) => vec![parts.swap_remove(at)],
        None => {
            let meets = |part: &mut Range<usize>| part.start < cut.end && cut.start < part.end;
            parts.extract_if(.., meets).collect()
        }
    };
    for part in met {
        for rest in [
            part.start..cut.start.min(part.end),
            cut.end.max(part.start)..part.end,
        ] {
            if !rest.is_empty() {
                parts.push(rest);
            }
        }
    }
}

/// Ends being a file of ours if the program has no map of it. `CHANGES` is held.
fn unmap_if_unused(ours: Arc<Ours>) {
    if !lock(&ours.parts).is_empty() {
        return;
    }
    {
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|other| !Arc::ptr_eq(other, &ours));
        note(&files);
    }
    // A map that comes next is to find it closed. A call under way on it ends first.
    for _ in 0..TRIES {
        if Arc::strong_count(&ours) == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // Syncs and closes.
    drop(ours);
}

/// The first file of ours whose memory meets these addresses. Nothing is allocated while `FILES` is
/// held: an allocator calls `munmap` and `madvise`, which ask here.
fn first_in(bytes: &Range<usize>) -> Option<Arc<Ours>> {
    if BITS.load(Ordering::Acquire) == 0 {
        return None;
    }
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    let meets = |file: &&Arc<Ours>| {
        let span = file.span();
        span.start < bytes.end && bytes.start < span.end
    };
    let met = files.iter().filter(meets);
    met.min_by_key(|file| file.start).cloned()
}

/// Each file of ours whose memory meets these addresses.
fn all_in(bytes: &Range<usize>) -> impl Iterator<Item = Arc<Ours>> {
    let mut rest = bytes.clone();
    std::iter::from_fn(move || {
        let found = first_in(&rest)?;
        rest.start = found.span().end;
        Some(found)
    })
}

/// Ends the program's maps in `bytes`; answers what of it is none of ours, or nothing if all of it
/// is not.
pub(crate) fn unmap(bytes: &Range<usize>) -> Option<Vec<Range<usize>>> {
    first_in(bytes)?;
    let mut rest = vec![bytes.clone()];
    let _changes = lock(&CHANGES);
    for ours in all_in(bytes) {
        let span = ours.span();
        take(&mut rest, &span);
        let cut = bytes.start.max(span.start)..bytes.end.min(span.end);
        take(&mut lock(&ours.parts), &cut);
        unmap_if_unused(ours);
    }
    Some(rest)
}

/// Something of the kernel's is put there.
pub(crate) fn cover(bytes: &Range<usize>) {
    for file in all_in(bytes) {
        file.is_covered.store(true, Ordering::Relaxed);
        let name = file.name.display();
        say(&format!(
            "{name}: the program maps something else over its map, whose memory stays until it ends"
        ));
    }
}

/// Changes the length of the program's map at `old`; answers its address, as mremap(2).
pub(crate) fn resize(
    ours: Arc<Ours>,
    old: &Range<usize>,
    len: usize,
    may_move: bool,
) -> Result<usize, i32> {
    let len = len.next_multiple_of(PAGE);
    let end = old.start + len;
    if end <= ours.span().end {
        let _changes = lock(&CHANGES);
        let mut parts = lock(&ours.parts);
        take(&mut parts, old);
        parts.push(old.start..end);
        return Ok(old.start);
    }
    let name = ours.name.clone();
    let offset = (old.start - ours.start) as u64;
    // All that can be known before the old map ends: the steps after it may not fail.
    let is_strict = std::env::var_os("TIDEGATE_STRICT").is_some();
    let there = ours.len().next_multiple_of(PAGE as u64);
    if is_strict && offset + len as u64 > there {
        say(&format!(
            "{}: the map would be longer than the file (mremap); it stays as it is",
            name.display()
        ));
        return Err(libc::EPERM);
    }
    let is_only = *lock(&ours.parts) == [old.clone()];
    if !may_move || !is_only {
        say(&format!(
            "{}: a map cannot grow in place, or while there is another one (mremap)",
            name.display()
        ));
        return Err(libc::ENOMEM);
    }
    let kept = ours
        .kept
        .try_clone()
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    let writable = ours.writable;
    drop(ours);
    unmap(old);
    let asked = Asked {
        fd: kept.as_raw_fd(),
        len,
        stores: writable,
        is_fixed: false,
        offset,
    };
    match map(&asked) {
        Answer::At(address) => Ok(address),
        // The old map is gone: the kernel's is better than none.
        Answer::Refused(_) | Answer::Kernel => {
            if is_strict {
                let name = name.display();
                say(&format!(
                    "{name}: the map that grew is the kernel's (mremap)"
                ));
            }
            system::map_by_the_kernel(kept.as_fd(), 0, len, writable, offset)
        }
    }
}

/// Makes everything that was stored durable.
pub(crate) fn sync_all() {
    for file in all_in(&(0..usize::MAX)) {
        if let Err(error) = file.file().sync() {
            let name = file.name.display();
            say(&format!(
                "{name}: what was stored is not all on the device: {error}"
            ));
        }
    }
}

/// The locks of a fork, until it is over.
pub(crate) struct Forking(
    MutexGuard<'static, Changes>,
    RwLockReadGuard<'static, Vec<Arc<Ours>>>,
);

/// Before a fork: all stores go to the file, for the child to find. A child itself has nothing
/// of ours, and its locks stay as the fork left them.
pub(crate) fn before_fork() -> Option<Forking> {
    if INERT.load(Ordering::Relaxed) {
        return None;
    }
    sync_all();
    let changes = lock(&CHANGES);
    if all_in(&(0..usize::MAX)).any(|file| file.writable) {
        say(
            "a child of a fork has the kernel's maps: what it stores, its parent may not see, and the reverse",
        );
    }
    // For reading: other threads may ask here with locks of their allocator held, for which its
    // part of the fork waits. Nobody changes it, as `CHANGES` is held.
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    Some(Forking(changes, files))
}

/// In the child of a fork: the kernel's maps at the same places.
pub(crate) fn in_child(forking: Forking) {
    if !matches!(*forking.0, Changes::Built(_)) {
        return;
    }
    if BITS.swap(0, Ordering::AcqRel) != 0 {
        for file in forking.1.iter() {
            for part in lock(&file.parts).iter() {
                let offset = (part.start - file.start) as u64;
                let len = part.end - part.start;
                let fd = file.kept.as_fd();
                let _ = system::map_by_the_kernel(fd, part.start, len, file.writable, offset);
            }
        }
    }
    INERT.store(true, Ordering::Relaxed);
    // Their owners are the parent's.
    std::mem::forget(forking);
}

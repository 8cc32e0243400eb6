//! The functions of the C library that are replaced.
//!
//! Each asks `maps` first. A call that is not for us goes to the function that the program would
//! have called without this library; one about addresses of memory, to the system.
//!
//! Invariants
//!   1. Pointers are the program's, as the replaced function takes them: memory that it names is
//!      there for as many bytes as it says, until the call returns. Null is passed on.
//!   2. Nothing unwinds into the program: a panic ends as the call that it would have been.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use libc::{iovec, off_t, ssize_t};
use rustix::fs::{self, FallocateFlags, OFlags, SeekFrom, fcntl_getfl, seek};
use rustix::io::Errno;
use tidegate::Advice;

use crate::maps::{self, Answer, Asked, Forking, errno};
use crate::said::say;
use crate::system::{borrow, by_the_kernel, pointer, unmap};

fn set_errno(errno: c_int) {
    // SAFETY: the place of this thread's number.
    unsafe { *libc::__errno_location() = errno }
}

/// The outcome of a call that may be ours: none where it is not.
type Done<T> = Option<Result<T, i32>>;

/// Runs our part of a call; a panic is said, and the call is passed on.
fn ours<T>(what: impl FnOnce() -> Done<T>) -> Done<T> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| {
        say("a bug of tidegate; its message is above");
        None
    })
}

/// An outcome as the program has it: `failed` with errno.
fn told<T>(done: Result<T, i32>, failed: T) -> T {
    done.unwrap_or_else(|errno| {
        set_errno(errno);
        failed
    })
}

/// The function of this name behind this library; none: there is none.
fn next(name: &CStr) -> usize {
    // SAFETY: a name that ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.expose_provenance()
}

/// Replaces functions: `ours` answers, or else the next library's function of the same name. Those
/// are looked up as the library is loaded, for `dlsym` allocates: an allocator's `madvise` would
/// wait for itself.
macro_rules! replace {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) -> $answer:ty { $ours:expr })*) => {
        $(
            mod $name {
                pub(super) static NEXT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
                pub(super) fn next() -> usize {
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    let name = std::ffi::CStr::from_bytes_with_nul(name).unwrap_or_default();
                    *NEXT.get_or_init(|| super::next(name))
                }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $kind),*) -> $answer {
                type Function = unsafe extern "C" fn($($kind),*) -> $answer;
                let pass_on = || {
                    let found = $name::next();
                    assert!(found != 0, "the C library has {}", stringify!($name));
                    // SAFETY: the C library's function of this name has this type.
                    let function: Function = unsafe {
                        std::mem::transmute(std::ptr::with_exposed_provenance::<c_void>(found))
                    };
                    // SAFETY: with what the program gave for it.
                    unsafe { function($($arg),*) }
                };
                let ours: Call<'_, $answer> = &$ours;
                ours(&pass_on)
            }
        )*
        /// As the library is loaded.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_BEGIN: extern "C" fn() = {
            extern "C" fn at_begin() {
                $($name::next();)*
            }
            at_begin
        };
    };
}

/// Ours, which may call the next one.
type Call<'a, T> = &'a dyn Fn(&dyn Fn() -> T) -> T;

/// Addresses of memory.
fn span(start: *const c_void, len: usize) -> Range<usize> {
    start.addr()..start.addr().saturating_add(len)
}

fn map(
    start: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && flags & libc::MAP_ANONYMOUS == 0;
    let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    let is_whole = offset % 4096 == 0;
    if is_shared && fd >= 0 && len > 0 && is_whole && access & libc::PROT_EXEC == 0 {
        watch_forks();
        let done = ours(|| {
            let asked = Asked {
                fd,
                len,
                stores: access & libc::PROT_WRITE != 0,
                is_fixed,
                offset: u64::try_from(offset).ok()?,
            };
            match maps::map(&asked) {
                Answer::At(address) => Some(Ok(address)),
                Answer::Kernel => None,
                Answer::Refused(errno) => Some(Err(errno)),
            }
        });
        if let Some(done) = done {
            let address = told(done, usize::MAX);
            return std::ptr::with_exposed_provenance_mut(address);
        }
    }
    if fd >= 0 && is_whole && flags & libc::MAP_ANONYMOUS == 0 {
        let stores = access & libc::PROT_WRITE != 0;
        let done = ours(|| Some(maps::beside(fd, is_shared, stores)));
        if let Some(Err(errno)) = done {
            return std::ptr::with_exposed_provenance_mut(told(Err(errno), usize::MAX));
        }
    }
    if is_fixed {
        maps::cover(&span(start, len));
    }
    by_the_kernel((start, len), access, flags, fd, offset)
}

#[unsafe(no_mangle)]
extern "C" fn mmap(
    start: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    map(start, len, access, flags, fd, offset)
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(
    start: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    map(start, len, access, flags, fd, offset)
}

#[unsafe(no_mangle)]
extern "C" fn munmap(start: *mut c_void, len: usize) -> c_int {
    let whole = start.addr()..start.addr().saturating_add(len).saturating_add(4095) & !4095;
    let Some(Ok(rest)) = ours(|| maps::unmap(&whole).map(Ok)) else {
        return unmap((start, len));
    };
    for part in rest {
        let start = start.with_addr(part.start);
        if unmap((start, part.end - part.start)) != 0 {
            return -1;
        }
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let done = ours(|| {
        let found = maps::at(old.addr())?;
        if flags & !libc::MREMAP_MAYMOVE != 0 {
            say(
                "mremap to an address, or without an unmap, is not possible with a map of tidegate",
            );
            return Some(Err(libc::EINVAL));
        }
        let whole = old.addr()..(old.addr() + old_len).next_multiple_of(tidegate::PAGE_SIZE);
        Some(maps::resize(
            found,
            &whole,
            len,
            flags & libc::MREMAP_MAYMOVE != 0,
        ))
    });
    match done {
        Some(done) => std::ptr::with_exposed_provenance_mut(told(done, usize::MAX)),
        None => {
            if flags & libc::MREMAP_FIXED != 0 {
                maps::cover(&span(new, len));
            }
            // SAFETY: mremap(2), as the program asks for it.
            let answer = unsafe { libc::syscall(libc::SYS_mremap, old, old_len, len, flags, new) };
            pointer(answer)
        }
    }
}

/// An advice on a map of ours.
fn advise(bytes: &Range<usize>, advice: c_int) -> Done<()> {
    let found = maps::at(bytes.start)?;
    let done = match advice {
        libc::MADV_NORMAL => found.advise(Advice::Normal, bytes),
        libc::MADV_RANDOM => found.advise(Advice::Random, bytes),
        libc::MADV_SEQUENTIAL => found.advise(Advice::Sequential, bytes),
        libc::MADV_WILLNEED => found.advise(Advice::WillNeed, bytes),
        libc::MADV_DONTNEED | libc::MADV_COLD | libc::MADV_PAGEOUT => {
            found.advise(Advice::DontNeed, bytes)
        }
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => found.populate(bytes),
        libc::MADV_REMOVE | libc::MADV_FREE => {
            say("MADV_REMOVE and MADV_FREE are not possible on a map of tidegate");
            return Some(Err(libc::EINVAL));
        }
        // About forks, dumps, huge pages: nobody is held to it.
        _ => Ok(()),
    };
    Some(done.map_err(|error| errno(&error)))
}

fn sync(bytes: &Range<usize>, flags: c_int) -> Done<()> {
    let found = maps::at(bytes.start)?;
    // The cache writes by itself; on Linux MS_ASYNC begins nothing either.
    if flags & libc::MS_SYNC == 0 {
        return Some(Ok(()));
    }
    Some(found.sync(bytes).map_err(|error| errno(&error)))
}

/// Protection is not enforced: the map stays readable, and storable where it was.
fn protect(bytes: &Range<usize>, access: c_int) -> Done<()> {
    let found = maps::at(bytes.start)?;
    if access & libc::PROT_EXEC != 0 || (access & libc::PROT_WRITE != 0 && !found.is_writable()) {
        return Some(Err(libc::EACCES));
    }
    if access & libc::PROT_WRITE == 0 {
        say("mprotect is not enforced on a map of tidegate: stores stay possible");
    }
    Some(Ok(()))
}

/// A lock in memory is against the limit.
fn keep(start: *const c_void, len: usize) -> Done<()> {
    maps::at(span(start, len).start)?;
    say("mlock is refused for a map of tidegate: its memory comes and goes");
    Some(Err(libc::ENOMEM))
}

/// Moves bytes between the program's memory and a file of ours. `pass_on` does it past the cache.
fn transfer(
    fd: c_int,
    parts: &[iovec],
    place: Option<off_t>,
    writes: bool,
    pass_on: &dyn Fn() -> ssize_t,
) -> ssize_t {
    let done = ours(|| try_transfer(fd, parts, place, writes, pass_on));
    match done {
        None => pass_on(),
        Some(done) => told(done, -1),
    }
}

fn try_transfer(
    fd: c_int,
    parts: &[iovec],
    place: Option<off_t>,
    writes: bool,
    pass_on: &dyn Fn() -> ssize_t,
) -> Done<ssize_t> {
    let found = maps::of(fd)?;
    let (file, fd) = (found.file(), borrow(fd));
    let flags = fcntl_getfl(fd).ok()?;
    let refused = if writes {
        OFlags::RDONLY
    } else {
        OFlags::WRONLY
    };
    if flags & OFlags::RWMODE == refused || flags.contains(OFlags::PATH) {
        return None;
    }
    let position = || seek(fd, SeekFrom::Current(0)).ok();
    if writes && !found.is_writable() {
        let moved = pass_on();
        let end = match place {
            Some(place) => u64::try_from(place)
                .ok()?
                .saturating_add_signed(i64::try_from(moved).unwrap_or(0)),
            None => position()?,
        };
        let from = end.saturating_sub(u64::try_from(moved).unwrap_or(0));
        let failed = std::io::Error::last_os_error();
        found.forget(from, end - from);
        return Some(if moved < 0 {
            Err(failed.raw_os_error().unwrap_or(libc::EIO))
        } else {
            Ok(moved)
        });
    }
    let appends = writes && flags.contains(OFlags::APPEND);
    let len: u64 = parts.iter().map(|part| part.iov_len as u64).sum();
    let grows = |begin: u64| writes && begin.saturating_add(len) > file.len();
    // As the system does it: one call at a time finds the position, or the end, and moves it.
    let held = match place {
        Some(place) if !appends && !grows(u64::try_from(place).ok()?) => None,
        _ => Some(found.at_its_end()),
    };
    let begin = match place {
        _ if appends => file.len(),
        Some(place) => u64::try_from(place).ok()?,
        None => position()?,
    };
    let grows = grows(begin);
    let mut at = begin;
    let mut moved = Ok(());
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        if part.iov_base.is_null() {
            return Some(Err(libc::EFAULT));
        }
        let answer = if writes {
            // SAFETY: memory of the program's, for this call (invariant 1).
            let bytes =
                unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            file.write_at(bytes, at)
        } else {
            // SAFETY: the same.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len) };
            file.read_at(bytes, at)
        };
        match answer {
            Ok(count) => {
                at += count as u64;
                if count < part.iov_len {
                    break;
                }
            }
            Err(error) => {
                moved = Err(errno(&error));
                break;
            }
        }
    }
    if at == begin
        && let Err(errno) = moved
    {
        return Some(Err(errno));
    }
    if place.is_none() {
        let _ = seek(fd, SeekFrom::Start(at));
    }
    // The program may ask for the length of the file at once.
    if grows && let Err(error) = found.settle() {
        return Some(Err(errno(&error)));
    }
    drop(held);
    if writes
        && flags.intersects(OFlags::SYNC | OFlags::DSYNC)
        && let Err(error) = file.sync_range(begin, at - begin)
    {
        return Some(Err(errno(&error)));
    }
    Some(Ok(ssize_t::try_from(at - begin).unwrap_or(ssize_t::MAX)))
}

fn one(data: *const c_void, len: usize) -> [iovec; 1] {
    [iovec {
        iov_base: data.cast_mut(),
        iov_len: len,
    }]
}

/// As `transfer`, with as many parts as the program says.
fn scatter(
    fd: c_int,
    (parts, count): (*const iovec, c_int),
    place: Option<off_t>,
    writes: bool,
    pass_on: &dyn Fn() -> ssize_t,
) -> ssize_t {
    match usize::try_from(count) {
        Ok(count @ 1..=1024) if !parts.is_null() => {
            // SAFETY: as many as the program says (invariant 1).
            let parts = unsafe { std::slice::from_raw_parts(parts, count) };
            transfer(fd, parts, place, writes, pass_on)
        }
        // The system says that it is not possible.
        _ => pass_on(),
    }
}

/// All of a file that a descriptor is of, on the device; writes past the cache, too.
fn sync_file(fd: c_int, pass_on: &dyn Fn() -> c_int) -> c_int {
    let synced = ours(|| Some(maps::of(fd)?.file().sync().map_err(|error| errno(&error))));
    match synced {
        Some(Err(errno)) => told(Err(errno), -1),
        _ => pass_on(),
    }
}

fn cut(fd: c_int, len: off_t) -> Done<()> {
    let found = maps::of(fd).filter(|found| found.is_writable())?;
    let len = u64::try_from(len).ok()?;
    let _end = found.at_its_end();
    Some(found.set_len(len).map_err(|error| errno(&error)))
}

/// Space for a part of a file of ours, which is as long as that part's end afterwards. The system
/// reserves it, where it can; past the cache, nobody but the cache may make the file longer.
fn allocate(fd: c_int, mode: c_int, offset: off_t, len: off_t, must: bool) -> Done<()> {
    let found = maps::of(fd).filter(|found| found.is_writable())?;
    let (from, len) = (u64::try_from(offset).ok()?, u64::try_from(len).ok()?);
    let fd = borrow(fd);
    if len == 0 || fcntl_getfl(fd).ok()? & OFlags::RWMODE == OFlags::RDONLY {
        return None;
    }
    if mode != 0 {
        say("fallocate with a mode is not possible with a file that is mapped by tidegate");
        return Some(Err(libc::EOPNOTSUPP));
    }
    let end = from.saturating_add(len);
    let _end = found.at_its_end();
    match fs::fallocate(fd, FallocateFlags::KEEP_SIZE, from, len) {
        Err(Errno::OPNOTSUPP) if !must => {}
        Err(error) => return Some(Err(error.raw_os_error())),
        Ok(()) => {}
    }
    if end <= found.file().len() {
        return Some(Ok(()));
    }
    Some(found.set_len(end).map_err(|error| errno(&error)))
}

/// Its answer is the number of the error.
fn reserve(fd: c_int, offset: off_t, len: off_t, pass_on: &dyn Fn() -> c_int) -> c_int {
    match ours(|| allocate(fd, 0, offset, len, false)) {
        None => pass_on(),
        Some(done) => done.err().unwrap_or(0),
    }
}

fn or_next(done: Done<()>, pass_on: &dyn Fn() -> c_int) -> c_int {
    match done {
        None => pass_on(),
        Some(done) => told(done.map(|()| 0), -1),
    }
}

replace! {
    fn msync(start: *mut c_void, len: usize, flags: c_int) -> c_int {
        |next| or_next(ours(|| sync(&span(start, len), flags)), next)
    }
    fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int {
        |next| or_next(ours(|| advise(&span(start, len), advice)), next)
    }
    fn mprotect(start: *mut c_void, len: usize, access: c_int) -> c_int {
        |next| or_next(ours(|| protect(&span(start, len), access)), next)
    }
    fn mlock(start: *const c_void, len: usize) -> c_int {
        |next| or_next(ours(|| keep(start, len)), next)
    }
    // The cache has the file's lock for the process.
    fn flock(fd: c_int, what: c_int) -> c_int {
        |next| or_next(ours(|| maps::of(fd).map(|_| Ok(()))), next)
    }
    fn fsync(fd: c_int) -> c_int { |next| sync_file(fd, next) }
    fn fdatasync(fd: c_int) -> c_int { |next| sync_file(fd, next) }
    fn ftruncate(fd: c_int, len: off_t) -> c_int { |next| or_next(ours(|| cut(fd, len)), next) }
    fn ftruncate64(fd: c_int, len: off_t) -> c_int { |next| or_next(ours(|| cut(fd, len)), next) }
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        |next| or_next(ours(|| allocate(fd, mode, offset, len, true)), next)
    }
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        |next| or_next(ours(|| allocate(fd, mode, offset, len, true)), next)
    }
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
        |next| reserve(fd, offset, len, next)
    }
    fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int {
        |next| reserve(fd, offset, len, next)
    }
    fn read(fd: c_int, data: *mut c_void, len: usize) -> ssize_t {
        |next| transfer(fd, &one(data, len), None, false, next)
    }
    fn __read_chk(fd: c_int, data: *mut c_void, len: usize, room: usize) -> ssize_t {
        |next| if len > room { next() } else { transfer(fd, &one(data, len), None, false, next) }
    }
    fn pread(fd: c_int, data: *mut c_void, len: usize, offset: off_t) -> ssize_t {
        |next| transfer(fd, &one(data, len), Some(offset), false, next)
    }
    fn pread64(fd: c_int, data: *mut c_void, len: usize, offset: off_t) -> ssize_t {
        |next| transfer(fd, &one(data, len), Some(offset), false, next)
    }
    fn __pread_chk(fd: c_int, data: *mut c_void, len: usize, offset: off_t, room: usize) -> ssize_t {
        |next| if len > room { next() } else { transfer(fd, &one(data, len), Some(offset), false, next) }
    }
    fn __pread64_chk(fd: c_int, data: *mut c_void, len: usize, offset: off_t, room: usize) -> ssize_t {
        |next| if len > room { next() } else { transfer(fd, &one(data, len), Some(offset), false, next) }
    }
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        |next| scatter(fd, (parts, count), None, false, next)
    }
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        |next| scatter(fd, (parts, count), Some(offset), false, next)
    }
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        |next| scatter(fd, (parts, count), Some(offset), false, next)
    }
    fn write(fd: c_int, data: *const c_void, len: usize) -> ssize_t {
        |next| transfer(fd, &one(data, len), None, true, next)
    }
    fn pwrite(fd: c_int, data: *const c_void, len: usize, offset: off_t) -> ssize_t {
        |next| transfer(fd, &one(data, len), Some(offset), true, next)
    }
    fn pwrite64(fd: c_int, data: *const c_void, len: usize, offset: off_t) -> ssize_t {
        |next| transfer(fd, &one(data, len), Some(offset), true, next)
    }
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        |next| scatter(fd, (parts, count), None, true, next)
    }
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        |next| scatter(fd, (parts, count), Some(offset), true, next)
    }
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        |next| scatter(fd, (parts, count), Some(offset), true, next)
    }
}

/// The locks of a fork, from before it until after it.
struct Held(UnsafeCell<Option<Forking>>);

// SAFETY: the thread that forks uses it, between locks that it has taken itself.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Forks are told from now on.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    // SAFETY: functions of this library, which is never unloaded.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    });
}

extern "C" fn before_fork() {
    let forking = ours(|| maps::before_fork().map(Ok)).and_then(Result::ok);
    // SAFETY: this thread holds the locks that are in it, so no other is here.
    unsafe { *HELD.0.get() = forking }
}

extern "C" fn after_fork() {
    // SAFETY: as above.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    // SAFETY: as above; the child has one thread.
    if let Some(forking) = unsafe { (*HELD.0.get()).take() } {
        maps::in_child(forking);
    }
}

/// At the end of the process, after all that the program does there.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = {
    extern "C" fn at_end() {
        let _ = ours(|| {
            maps::sync_all();
            Some(Ok(()))
        });
    }
    at_end
};

//! The memory of a map: pages that a program loads from and stores to, and that the cache fills,
//! writes and takes away.
//!
//! The pages are those of a memfd, mapped twice. The cache works through the *alias*, the program
//! through the *view*, which is registered with userfaultfd: an access that the cache has not
//! allowed stops its thread until it is answered.
//!
//! ```text
//!   program --load, store--> view --.                     .-- fault --> `next_fault` --> a thread of
//!                                   |--> pages of a memfd |             the map's, which has the
//!   cache --read, write----> alias -'                     '-- `wake` <- cache allow the access
//! ```
//!
//! A page of the memfd is there while a frame of the arena is *at home* in it (`Arena::settle`);
//! the frame's own memory is given back meanwhile, so that both together are one page.
//!
//! Invariants
//!   1. The view has a page only while a frame is at home there: who takes the frame away takes the
//!      page out of memfd and view in the same call (`remove`).
//!   2. A page is made storable by a task that holds its frame's busy bit, and is made dirty before
//!      that bit is given back (`mm::file::map`); `protect` may come late, and then costs a fault.
//!   3. No thread that answers faults touches a view.
//!   4. Views are not inherited by children of a fork: there they are no memory at all.
//!
//! Source: docs/adr/0033; userfaultfd(2), ioctl_userfaultfd(2); Linux 6.6,
//! include/uapi/linux/userfaultfd.h.

use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, UserfaultfdFlags};
use rustix::process::PidfdFlags;

use crate::OsError;

/// Faults that are read at once.
const AT_ONCE: usize = 16;
/// Bytes of a page.
const FRAME: usize = 4096;
/// The same as the system's calls count them.
const PAGE: u64 = FRAME as u64;

/// Codes of ioctls: direction, size of the argument, type 0xAA, number.
const fn code(read: bool, write: bool, bytes: usize, number: u64) -> u64 {
    let direction = if read { 2 } else { 0 } | if write { 1 } else { 0 };
    direction << 30 | (bytes as u64) << 16 | 0xAA << 8 | number
}

const NEW: u64 = code(false, false, 0, 0x00);
const API: u64 = code(true, true, size_of::<Api>(), 0x3F);
const REGISTER: u64 = code(true, true, size_of::<Register>(), 0x00);
const WAKE: u64 = code(true, false, size_of::<Part>(), 0x02);
const WRITEPROTECT: u64 = code(true, true, size_of::<Protect>(), 0x06);
const CONTINUE: u64 = code(true, true, size_of::<Given>(), 0x07);
const POISON: u64 = code(true, true, size_of::<Given>(), 0x08);

const API_VERSION: u64 = 0xAA;
/// Faults name their thread; pages of a memfd fault where they are missing, where they are there
/// and not mapped, and where they are protected; pages can be poisoned (Linux 6.6, which protects a
/// page as it maps it, too).
const FEATURES: u64 = 1 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14;
/// Missing, write-protected, minor.
const MODES: u64 = 1 | 1 << 1 | 1 << 2;
const USER_MODE_ONLY: u32 = 1;
/// Of CONTINUE.
const DONT_WAKE: u64 = 1;
const PROTECTED: u64 = 1 << 1;
/// Of WRITEPROTECT.
const PROTECT: u64 = 1;
const PROTECT_DONT_WAKE: u64 = 1 << 1;
/// Of a message.
const EVENT_PAGEFAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1;
const FAULT_PROTECTED: u64 = 1 << 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Part {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    part: Part,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Protect {
    part: Part,
    mode: u64,
}

/// CONTINUE, POISON: the last word answers how many bytes were done, or an error.
#[repr(C)]
struct Given {
    part: Part,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    padding: u32,
}

/// Calls of the system on a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The system's calls may take memory of a view, as any other.
    Full,
    /// Loads and stores of the program alone: system calls that are given memory of a view that is
    /// not there answer EFAULT.
    UserMode,
}

/// An access that has to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page of the view.
    pub page: u32,
    /// It changes the page.
    pub stores: bool,
    /// The system's number of its thread.
    pub thread: u32,
}

/// Memory of a map. See the module.
pub struct View {
    id: u32,
    pages: u32,
    memory: OwnedFd,
    faults: OwnedFd,
    /// Its own; `None`: the system refuses it, and pages leave run by run.
    process: Option<OwnedFd>,
    /// Wakes one thread that waits for faults for each time that there are some, or the bell rings.
    waits: OwnedFd,
    bell: OwnedFd,
    /// Faults that were read and that no thread has taken yet.
    taken: Mutex<VecDeque<Fault>>,
    /// No more of them are.
    is_ended: AtomicBool,
    rights: Rights,
    alias: NonNull<u8>,
    view: NonNull<u8>,
    /// Nobody uses the view any more: it is unmapped.
    closed: AtomicBool,
    /// Accesses that end in a SIGBUS since then.
    poisoned: AtomicU64,
}

// SAFETY: the fields but the pointers are `Sync`. The pointers never change; the memory behind them
// is shared with the program, which is told what that means (`as_slice`), and the cache touches it
// by raw copies and on behalf of frames only, whose busy bits and pins order that.
unsafe impl Sync for View {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for View {}

/// A call on a userfaultfd; answers the error number.
fn control<T>(faults: &OwnedFd, code: u64, argument: &mut T) -> Result<i32, i32> {
    // SAFETY: `code` says the size of `T`, which the system reads and writes; each of these calls
    // names memory of our own views, whose pages invariant 1 is about.
    let answer = unsafe { libc::ioctl(faults.as_raw_fd(), code as _, ptr::from_mut(argument)) };
    if answer < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(answer)
    }
}

/// A userfaultfd with what a view needs, whose reads do not wait.
fn faults(allow_user_mode: bool) -> Result<(OwnedFd, Rights), OsError> {
    let refused = |errno: i32| OsError::NoFaults { errno };
    const FLAGS: UserfaultfdFlags = UserfaultfdFlags::CLOEXEC.union(UserfaultfdFlags::NONBLOCK);
    let device = rustix::fs::open(
        "/dev/userfaultfd",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let by_device = device.ok().and_then(|device| {
        // SAFETY: the call takes flags by value and answers a descriptor of its own.
        let made = unsafe { libc::ioctl(device.as_raw_fd(), NEW as _, FLAGS.bits()) };
        // SAFETY: a fresh descriptor, which nobody else has.
        (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) })
    });
    let call = |flags| {
        // SAFETY: by itself it changes no memory.
        unsafe { rustix::mm::userfaultfd(FLAGS | flags) }
    };
    let user_mode = UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    let full = by_device
        .ok_or(Errno::PERM)
        .or_else(|_| call(UserfaultfdFlags::empty()));
    let (faults, rights) = match full {
        Ok(faults) => (faults, Rights::Full),
        Err(_) if allow_user_mode => {
            let faults = call(user_mode).map_err(|error| refused(error.raw_os_error()))?;
            (faults, Rights::UserMode)
        }
        Err(error) => return Err(refused(error.raw_os_error())),
    };
    let mut api = Api {
        api: API_VERSION,
        features: FEATURES,
        ioctls: 0,
    };
    match control(&faults, API, &mut api) {
        Ok(_) => Ok((faults, rights)),
        // It does not know one of the features.
        Err(errno) => Err(OsError::System {
            what: "userfaultfd with pages of a memfd (Linux 6.6 or later)",
            errno,
        }),
    }
}

impl View {
    /// Memory of `pages` pages, none of which is there yet.
    ///
    /// # Errors
    /// `NoFaults`: userfaultfd is refused. `System`.
    pub(crate) fn new(
        id: u32,
        pages: u32,
        write: bool,
        allow_user_mode: bool,
    ) -> Result<Self, OsError> {
        let failed = |what| {
            move |error: Errno| OsError::System {
                what,
                errno: error.raw_os_error(),
            }
        };
        let (faults, rights) = faults(allow_user_mode)?;
        let own = rustix::process::getpid();
        let process = rustix::process::pidfd_open(own, PidfdFlags::empty()).ok();
        let memory = rustix::fs::memfd_create("tidegate-map", MemfdFlags::CLOEXEC)
            .map_err(failed("memfd_create"))?;
        let len = Self::bytes(pages);
        rustix::fs::ftruncate(&memory, len as u64).map_err(failed("ftruncate of a memfd"))?;
        let open = |access| {
            // SAFETY: a fresh mapping at an address of the system's choice replaces nothing.
            let mapped = unsafe {
                rustix::mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &memory, 0)
            };
            let mapped = mapped.map_err(failed("mmap of a memfd"))?;
            for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
                // SAFETY: advice on our own mapping, which holds nothing yet.
                unsafe { rustix::mm::madvise(mapped, len, advice) }
                    .map_err(failed("madvise of a memfd"))?;
            }
            Ok(NonNull::new(mapped.cast::<u8>()).expect("a mapping is not at address zero"))
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed("eventfd"))?;
        let waits = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        for source in [&faults, &bell] {
            let once = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&waits, source, epoll::EventData::new_u64(0), once)
                .map_err(failed("epoll_ctl"))?;
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let alias = open(both)?;
        let view = open(if write { both } else { ProtFlags::READ })?;
        let made = Self {
            id,
            pages,
            memory,
            faults,
            process,
            waits,
            bell,
            taken: Mutex::default(),
            is_ended: AtomicBool::new(false),
            rights,
            alias,
            view,
            closed: AtomicBool::new(false),
            poisoned: AtomicU64::new(0),
        };
        let mut register = Register {
            part: Part {
                start: view.addr().get() as u64,
                len: len as u64,
            },
            mode: MODES,
            ioctls: 0,
        };
        control(&made.faults, REGISTER, &mut register).map_err(|errno| OsError::System {
            what: "registration of a map's memory with userfaultfd",
            errno,
        })?;
        Ok(made)
    }

    const fn bytes(pages: u32) -> usize {
        pages as usize * FRAME
    }

    /// Its number among the maps of its arena.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The calls of the system that may be given its memory.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Accesses that were answered by SIGBUS.
    #[must_use]
    pub fn poisoned(&self) -> u64 {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// The beginning of the view.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.view.as_ptr()
    }

    /// The first `len` bytes.
    ///
    /// # Safety
    /// Nobody stores to them while the slice lives: neither through this view nor by a call that
    /// writes to the file.
    ///
    /// # Panics
    /// Beyond its end.
    #[must_use]
    pub unsafe fn as_slice(&self, len: usize) -> &[u8] {
        assert!(len <= Self::bytes(self.pages), "{len} bytes of a map");
        // SAFETY: within the view, which lives as long as `self`; the rest is the caller's.
        unsafe { core::slice::from_raw_parts(self.view.as_ptr(), len) }
    }

    /// Copies bytes out of the view.
    ///
    /// # Panics
    /// Beyond its end.
    pub fn load(&self, offset: usize, to: &mut [u8]) {
        let from = self.span(offset, to.len());
        // SAFETY: `span` checked the range; a store of another thread meanwhile is seen in part, as
        // through any memory that is shared.
        unsafe { copy_shared(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes into the view.
    ///
    /// # Panics
    /// Beyond its end.
    pub fn store(&self, offset: usize, from: &[u8]) {
        let to = self.span(offset, from.len());
        // SAFETY: as in `load`.
        unsafe { copy_shared(from.as_ptr(), to, from.len()) };
    }

    fn span(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(!self.closed.load(Ordering::Relaxed), "the map has ended");
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= Self::bytes(self.pages)),
            "{len} bytes at {offset} of a map of {} pages",
            self.pages
        );
        // SAFETY: within the view.
        unsafe { self.view.as_ptr().add(offset) }
    }

    /// True if these bytes, of whoever's, lie in the view in part.
    #[must_use]
    pub fn overlaps(&self, bytes: Range<usize>) -> bool {
        let start = self.view.addr().get();
        bytes.start < start + Self::bytes(self.pages) && start < bytes.end
    }

    /// Waits for the next access that has to be answered, which no other thread is given. `None`:
    /// there are no more (`end_faults`).
    pub fn next_fault(&self) -> Option<Fault> {
        loop {
            if self.is_ended.load(Ordering::Acquire) {
                // The next thread hears of it, too.
                self.ring();
                return None;
            }
            let (fault, is_last) = {
                let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
                (taken.pop_front(), taken.is_empty())
            };
            if !is_last {
                self.ring();
            }
            if fault.is_some() {
                return fault;
            }
            let mut events = [MaybeUninit::uninit(); 1];
            match epoll::wait(&self.waits, &mut events, None) {
                Ok(_) => self.take_faults(),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads all that there are: a thread is woken for those to come, and not for those left.
    fn take_faults(&self) {
        const MESSAGE: usize = size_of::<Message>();
        let mut messages = [0_u8; AT_ONCE * MESSAGE];
        loop {
            let bytes = match rustix::io::read(&self.faults, &mut messages) {
                Ok(bytes) => bytes,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            for message in messages[..bytes].chunks_exact(MESSAGE) {
                // SAFETY: any bytes are a message, and these are as many; read unaligned.
                let message = unsafe { message.as_ptr().cast::<Message>().read_unaligned() };
                if message.event != EVENT_PAGEFAULT {
                    continue;
                }
                let at = (message.address - self.view.addr().get() as u64) / PAGE;
                taken.push_back(Fault {
                    page: u32::try_from(at).expect("a view has 32 bits of pages"),
                    stores: message.flags & (FAULT_WRITE | FAULT_PROTECTED) != 0,
                    thread: message.thread,
                });
            }
            if bytes < messages.len() {
                return;
            }
        }
    }

    /// Has `next_fault` answer `None` to every thread from now on.
    pub fn end_faults(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.ring();
    }

    /// Wakes one thread that waits for a fault.
    fn ring(&self) {
        // The only refusal is a counter at its maximum: then it is readable anyhow.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn part(&self, pages: &Range<u32>) -> Part {
        assert!(pages.start < pages.end && pages.end <= self.pages);
        Part {
            start: self.view.addr().get() as u64 + u64::from(pages.start) * PAGE,
            len: u64::from(pages.end - pages.start) * PAGE,
        }
    }

    /// Maps the pages, whose frames are at home; without `storable` for loads only, where they are
    /// not mapped already.
    pub(crate) fn carry_on(&self, pages: Range<u32>, storable: bool) {
        let mut at = pages.start;
        let mut is_open = !storable;
        while at < pages.end {
            let mut given = Given {
                part: self.part(&(at..pages.end)),
                mode: DONT_WAKE | if storable { 0 } else { PROTECTED },
                done: 0,
            };
            let answer = control(&self.faults, CONTINUE, &mut given);
            let done = u32::try_from(given.done.max(0) as u64 / PAGE).unwrap_or(0);
            at += done;
            match answer {
                Ok(_) => break,
                Err(libc::EEXIST) if done == 0 => {
                    if !is_open {
                        self.set_protection(at..pages.end, false);
                        is_open = true;
                    }
                    at += 1;
                }
                // A part was done, or the system changes the process's mappings at this moment.
                Err(libc::EAGAIN | libc::EEXIST) => {}
                // The view is gone, or the page: the access faults again.
                Err(_) => break,
            }
        }
    }

    /// The next store to each of the pages is a fault.
    pub(crate) fn protect(&self, pages: Range<u32>) {
        self.set_protection(pages, true);
    }

    fn set_protection(&self, pages: Range<u32>, on: bool) {
        let mut protect = Protect {
            part: self.part(&pages),
            mode: if on { PROTECT } else { PROTECT_DONT_WAKE },
        };
        while let Err(libc::EAGAIN) = control(&self.faults, WRITEPROTECT, &mut protect) {}
    }

    /// Threads that wait for the pages try again.
    pub fn wake(&self, pages: Range<u32>) {
        let mut part = self.part(&pages);
        let _ = control(&self.faults, WAKE, &mut part);
    }

    /// Accesses to the page end in SIGBUS, those that wait for it first.
    pub fn poison(&self, page: u32) {
        self.poisoned.fetch_add(1, Ordering::Relaxed);
        self.forget(&[page]);
        // A page that was protected leaves a mark of that behind, over which the system poisons
        // nothing (Linux 6.6, mm/userfaultfd.c, mfill_atomic_pte_poison()).
        self.set_protection(page..page + 1, false);
        let mut given = Given {
            part: self.part(&(page..page + 1)),
            mode: 0,
            done: 0,
        };
        while let Err(libc::EAGAIN) = control(&self.faults, POISON, &mut given) {}
        self.wake(page..page + 1);
    }

    /// The view has the pages, in order, no more; they stay where they are.
    pub(crate) fn forget(&self, pages: &[u32]) {
        self.unmap(&runs(pages), &[self.view]);
    }

    /// The pages, in order, are gone: from the memfd and from both of its mappings.
    pub(crate) fn remove(&self, pages: &[u32]) {
        let runs = runs(pages);
        // Else the calls below would stop the other CPUs once a run.
        self.unmap(&runs, &[self.view, self.alias]);
        for (offset, len) in runs {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punch = || rustix::fs::fallocate(&self.memory, how, offset as u64, len as u64);
            while let Err(Errno::INTR) = punch() {}
        }
    }

    /// Takes pages out of mappings; the next access to one faults. In one call, so that the CPUs
    /// that the process runs on are stopped once.
    fn unmap(&self, runs: &[(usize, usize)], mappings: &[NonNull<u8>]) {
        let is_mapped = |at: &&NonNull<u8>| **at != self.view || !self.is_closed();
        let parts = mappings.iter().filter(is_mapped).flat_map(|start| {
            runs.iter().map(|(offset, len)| libc::iovec {
                iov_base: start.as_ptr().wrapping_add(*offset).cast(),
                iov_len: *len,
            })
        });
        let parts: Vec<_> = parts.collect();
        for parts in parts.chunks(libc::UIO_MAXIOV as usize) {
            let bytes: usize = parts.iter().map(|part| part.iov_len).sum();
            // SAFETY: pages of our own mappings of a memfd: their bytes stay in it, and the next
            // access faults. The view is mapped: `close` comes before or after this (`Arena`).
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    self.process.as_ref().map_or(-1, |own| own.as_raw_fd()),
                    parts.as_ptr(),
                    parts.len(),
                    libc::MADV_DONTNEED,
                    0,
                )
            };
            if usize::try_from(done) != Ok(bytes) {
                // Linux before 6.13 takes no such advice.
                for part in parts {
                    // SAFETY: as above.
                    unsafe { libc::madvise(part.iov_base, part.iov_len, libc::MADV_DONTNEED) };
                }
            }
        }
    }

    /// Makes the pages of the memfd, and answers where the cache finds the first.
    ///
    /// # Errors
    /// The system has no memory.
    pub(crate) fn populate(&self, pages: Range<u32>) -> Result<*mut u8, i32> {
        let start = self.place(pages.start);
        let len = Self::bytes(pages.end - pages.start);
        // SAFETY: pages of our own alias, and no content is changed.
        match unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(start),
            Err(error) => Err(error.raw_os_error()),
        }
    }

    /// The place of a page in the alias.
    pub(crate) fn place(&self, page: u32) -> *mut u8 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: within the alias.
        unsafe { self.alias.as_ptr().add(Self::bytes(page)) }
    }

    /// The page at a place in the alias; `None`: it is elsewhere.
    pub(crate) fn page_at(&self, place: usize) -> Option<u32> {
        let at = place.checked_sub(self.alias.addr().get())?;
        let page = u32::try_from(at / FRAME).ok()?;
        (page < self.pages).then_some(page)
    }

    /// Bytes of the memfd that the system holds in memory.
    #[must_use]
    pub fn resident(&self) -> u64 {
        const SECTOR: u64 = 512;
        rustix::fs::fstat(&self.memory).map_or(0, |stat| {
            u64::try_from(stat.st_blocks).unwrap_or(0) * SECTOR
        })
    }

    /// The program is done with the view: it is unmapped. Frames that are at home stay so.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            let len = Self::bytes(self.pages);
            // SAFETY: our own mapping, whole, and the program is done with it (the owner of the
            // only handle says so).
            let _ = unsafe { rustix::mm::munmap(self.view.as_ptr().cast(), len) };
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.close();
        let len = Self::bytes(self.pages);
        // SAFETY: our own mapping, whole; no frame is at home there any more.
        let _ = unsafe { rustix::mm::munmap(self.alias.as_ptr().cast(), len) };
    }
}

/// Pages, in order, as runs of neighbours: the offset and the length of each in bytes.
fn runs(pages: &[u32]) -> Vec<(usize, usize)> {
    let runs = pages.chunk_by(|a, b| *b == *a + 1);
    runs.map(|run| (View::bytes(run[0]), run.len() * FRAME))
        .collect()
}

/// Copies bytes that others may change meanwhile, by words where they are aligned.
///
/// # Safety
/// `from` is valid for reads of `len` bytes and `to` for writes, and they do not overlap.
pub(crate) unsafe fn copy_shared(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    const WORD: usize = size_of::<u64>();
    let aligned = |at: usize| at.is_multiple_of(WORD);
    if aligned(from.addr()) && aligned(to.addr()) {
        while len >= WORD {
            // SAFETY: within the range, and aligned. Volatile: the compiler must neither read a
            // word twice nor assume that it stays.
            unsafe {
                let word = from.cast::<u64>().read_volatile();
                to.cast::<u64>().write_volatile(word);
                (from, to) = (from.add(WORD), to.add(WORD));
            }
            len -= WORD;
        }
    }
    for at in 0..len {
        // SAFETY: as above, by bytes.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view of two pages, or nothing where the system has none for this process.
    fn view() -> Option<View> {
        let view = View::new(0, 2, true, true);
        view.inspect_err(|error| eprintln!("SKIPPED: a view: {error}"))
            .ok()
    }

    #[test]
    fn a_child_of_a_fork_has_no_view_and_its_parent_has() {
        let Some(view) = view() else { return };
        view.populate(0..1).expect("a page of memory");
        // SAFETY: a page of the alias, which only this test uses.
        unsafe { view.place(0).write_volatile(7) };
        view.carry_on(0..1, true);
        let load = |page: usize| {
            // SAFETY: within the view; a child has no such memory, and ends.
            unsafe { view.as_ptr().add(page * FRAME).read_volatile() }
        };
        for page in [0, 1] {
            // SAFETY: the child does no more than load, and leave without a destructor.
            let child = unsafe { libc::fork() };
            if child == 0 {
                load(page);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
            assert_eq!(signal, Some(libc::SIGSEGV), "page {page}: status {status}");
        }
        assert_eq!(load(0), 7);
        view.remove(&[0]);
        assert_eq!(view.resident(), 0);
    }
}

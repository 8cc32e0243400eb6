//! The door to the kernel: the calls that the standard library has no words for.
//!
//! All unsafe code of the program is here, behind functions that are safe for any argument. Memory
//! that others may write to (another process, the kernel) is handed out as atomics alone.
#![allow(
    unsafe_code,
    reason = "the one module that calls the C library; each block says why it is sound"
)]

use std::fs::File;
use std::io::Error;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicU64;

use guest::Result;

const SECOND: u64 = 1_000_000_000;
/// Exit status of a child that panicked.
const PANICKED: i32 = 101;

fn failed(what: &str) -> String {
    format!("{what}: {}", Error::last_os_error())
}

fn checked(returned: i32, what: &str) -> Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(failed(what))
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is ours and of the type that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * SECOND + time.tv_nsec.cast_unsigned()
}

/// Sleeps until the clock of `now` shows `at`.
pub(crate) fn sleep_until(at: u64) {
    let time = libc::timespec {
        tv_sec: (at / SECOND).cast_signed(),
        tv_nsec: (at % SECOND).cast_signed(),
    };
    loop {
        // SAFETY: `time` outlives the call, which only reads it; with an absolute time nothing is
        // written back, so the last argument may be null.
        let ended = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const time,
                ptr::null_mut(),
            )
        };
        if ended != libc::EINTR {
            return;
        }
    }
}

/// Sleeps for `ns` nanoseconds.
pub(crate) fn sleep(ns: u64) {
    sleep_until(now() + ns);
}

/// Sleeps until somebody ends the process.
pub(crate) fn pause() -> ! {
    loop {
        // SAFETY: takes nothing and touches no memory.
        unsafe { libc::pause() };
    }
}

/// The memory that `lock_memory` locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The memory that the process has now.
    Now,
    /// And what it gets from now on.
    Always,
}

/// Keeps the process's memory from being swapped out.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn lock_memory(what: Locked) -> Result<()> {
    let flags = match what {
        Locked::Now => libc::MCL_CURRENT,
        Locked::Always => libc::MCL_CURRENT | libc::MCL_FUTURE,
    };
    // SAFETY: changes where pages may lie, never what is in them.
    checked(unsafe { libc::mlockall(flags) }, "mlockall")
}

/// Maps memory; the address is one of `bytes` bytes, page-aligned, that nothing else uses.
fn map(bytes: usize, flags: i32, file: i32) -> Result<*mut libc::c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: with a null address and without MAP_FIXED the kernel chooses a place that is free.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
    if address == libc::MAP_FAILED {
        return Err(failed(&format!("mmap of {bytes} bytes")));
    }
    Ok(address)
}

/// Words that this process and those it starts share, all zero, locked and there. They stay mapped.
///
/// # Errors
/// There is no memory for them.
pub(crate) fn shared_words(count: usize) -> Result<&'static [AtomicU64]> {
    let bytes = count * size_of::<AtomicU64>();
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let address = map(bytes, flags, -1)?;
    // SAFETY: the range is the mapping made above.
    checked(unsafe { libc::mlock(address, bytes) }, "mlock")?;
    // SAFETY: aligned to a page, `bytes` long, never unmapped; any bits are a word. The process
    // that shares it sees atomics too.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), count) })
}

/// Bytes of this process alone, all zero, page-aligned, locked and there; a child does not get
/// them. They stay mapped.
///
/// # Errors
/// There is no memory for them.
pub(crate) fn own_bytes(bytes: usize) -> Result<&'static mut [u8]> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let address = map(bytes, flags, -1)?;
    for advice in [libc::MADV_DONTFORK, libc::MADV_NOHUGEPAGE] {
        // SAFETY: the range is the mapping made above, and neither changes what is in it. A child
        // has no such memory; it has no use of the slice either (only process 1 keeps one past a
        // fork).
        checked(unsafe { libc::madvise(address, bytes, advice) }, "madvise")?;
    }
    // SAFETY: the same range. Locking makes every page be there.
    checked(unsafe { libc::mlock(address, bytes) }, "mlock")?;
    // SAFETY: `bytes` long, zeroed by the kernel, never unmapped, and this is the only reference.
    Ok(unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), bytes) })
}

/// A mapping to touch: words that the kernel may take away and bring back.
pub(crate) struct Region {
    address: *mut libc::c_void,
    bytes: usize,
}

impl Region {
    /// Memory of no file.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn anonymous(bytes: usize) -> Result<Self> {
        let address = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        Ok(Self { address, bytes })
    }

    /// A file's pages, shared.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub(crate) fn of_file(file: &File, bytes: usize) -> Result<Self> {
        let address = map(bytes, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok(Self { address, bytes })
    }
}

impl Deref for Region {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let count = self.bytes / size_of::<AtomicU64>();
        // SAFETY: page-aligned, mapped as long as `self` is there; any bits are a word, and others
        // (the kernel, through the file) are met by atomics alone.
        unsafe { std::slice::from_raw_parts(self.address.cast::<AtomicU64>(), count) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and borrows of it end before `self`.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

/// A process that was started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(i32);

/// The end of a process, and its use of CPU time and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// As `wait` has it: the signal in the low seven bits, the exit status above eight.
    pub(crate) status: i32,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) minor_faults: i64,
    pub(crate) major_faults: i64,
    pub(crate) yielded: i64,
    pub(crate) preempted: i64,
    pub(crate) resident_kib_max: i64,
}

impl Process {
    /// Starts a process that runs `body` and ends with its status.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn start(body: impl FnOnce() -> i32) -> Result<Self> {
        // SAFETY: this program has one thread, so the child's copy of memory is whole: no lock in
        // it is held by a thread that is not there.
        match unsafe { libc::fork() } {
            -1 => Err(failed("fork")),
            0 => {
                let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
                // SAFETY: ends the child where it stands; what runs at a normal exit is the
                // parent's.
                unsafe { libc::_exit(status) }
            }
            child => Ok(Self(child)),
        }
    }

    /// Ends it.
    pub(crate) fn kill(self) {
        // SAFETY: touches no memory; the process is a child that was not waited for, so its number
        // is its own.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It is none of our children.
    pub(crate) fn wait(self) -> Result<Ended> {
        match wait4(self.0, 0) {
            Some((_, ended)) => Ok(ended),
            None => Err(failed("wait4")),
        }
    }
}

/// A child that has ended, if there is one.
pub(crate) fn ended_child() -> Option<(Process, Ended)> {
    wait4(-1, libc::WNOHANG)
}

fn wait4(which: i32, options: i32) -> Option<(Process, Ended)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places are ours and of the types that the call fills in.
    let child = unsafe { libc::wait4(which, &raw mut status, options, usage.as_mut_ptr()) };
    if child <= 0 {
        return None;
    }
    // SAFETY: plain numbers, for which zeros are values too.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| {
        time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_usec.cast_unsigned()
    };
    let ended = Ended {
        status,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        minor_faults: usage.ru_minflt,
        major_faults: usage.ru_majflt,
        yielded: usage.ru_nvcsw,
        preempted: usage.ru_nivcsw,
        resident_kib_max: usage.ru_maxrss,
    };
    Some((Process(child), ended))
}

/// Gives this process the first turn among normal ones. Not a real-time one: for such a task the
/// kernel shows dirty limits that are a quarter higher.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn go_first() -> Result<()> {
    // SAFETY: touches no memory.
    checked(
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) },
        "setpriority",
    )
}

/// Names this process; the trace and `/proc` tell workers apart by it.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn name(name: &str) -> Result<()> {
    std::fs::write("/proc/self/comm", name).map_err(|error| format!("name {name}: {error}"))
}

/// Turns the machine off.
pub(crate) fn power_off() -> ! {
    // SAFETY: touches no memory of ours. Nothing on the disks is wanted any more.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    pause()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn words_are_shared_with_a_child_and_regions_are_not() {
        let words = shared_words(4).unwrap();
        let region = Region::anonymous(crate::PAGE).unwrap();
        let child = Process::start(|| {
            words[1].store(7, Ordering::Relaxed);
            region[1].store(7, Ordering::Relaxed);
            3
        });
        let ended = child.unwrap().wait().unwrap();
        assert_eq!(ended.status >> 8, 3);
        assert_eq!(words[1].load(Ordering::Relaxed), 7);
        assert_eq!(region[1].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sleep_ends_no_earlier_than_asked() {
        let at = now() + 2_000_000;
        sleep_until(at);
        assert!(now() >= at);
    }
}

//! The live world: threads, the system's clock, real files, and the memory of frames.
//!
//! `ThreadEnv` implements `env::Env` on threads, `FileDevice` implements `env::Device` over files
//! and block devices (io_uring with O_DIRECT, or a pool of threads), `Arena` implements
//! `frames::Content` over one mapping.
//!
//! Invariants, mostly absences
//!   1. Nothing here decides policy, and nothing knows the lab.
//!   2. `unsafe` is in `arena` and `view` (memory), `ring` (io_uring) and `sys` (calls of the C
//!      library) only.
//!   3. The path of a request allocates nothing (queues have room from the start).
//!
//! ```
//! use os::{Options, ThreadEnv};
//! use env::Cause;
//! use policy::units::Nanos;
//!
//! let env = ThreadEnv::start(Options::new(1024))?;
//! let mut task = env.enter();
//! task.sleep(Cause::Think, Nanos::millis(1));
//! drop(task);
//! env.shutdown();
//! # Ok::<(), os::OsError>(())
//! ```
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "raw memory of frames")]
mod arena;
mod backing;
mod budget;
mod engine;
mod error;
mod file;
mod group;
mod lock;
mod numa;
mod own_path;
mod parker;
mod place;
mod pool;
mod queue;
#[expect(unsafe_code, reason = "io_uring takes raw memory and descriptors")]
mod ring;
mod spawn;
#[expect(unsafe_code, reason = "calls of the C library")]
mod sys;
mod threads;
mod timer;
mod transfer;
#[expect(unsafe_code, reason = "memory that a program uses without a call")]
mod view;
mod way;

pub use arena::Arena;
pub use budget::{Available, Budget, BudgetError};
pub use engine::Registration;
pub use error::{Holder, OsError};
pub use file::{FileDevice, OpenOptions};
pub use group::{GroupLimit, Groups};
pub use lock::{Lock, LockedFile, lock};
pub use numa::{Binding, SystemNode, Topology, TopologyError};
pub use own_path::{Identity, OwnPath, OwnPaths, identity, leads_to};
pub use place::is_write_protected;
pub use spawn::{STACK, spawn, start_thread};
pub use sys::receive_into;
pub use threads::{Backend, Options, Sink, ThreadEnv};
pub use view::{Fault, Rights, View};

use policy::units::Nanos;

/// Resident memory of this process in bytes, as the system counts it; zero if it does not say.
#[must_use]
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// The most that was resident of this process at once, in bytes; zero if the system does not say.
#[must_use]
pub fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Gives memory back to the system that the allocator keeps and nobody uses: what threads that have
/// ended left, mostly. Where the allocator has no such call, nothing happens.
pub fn trim_heaps() {
    sys::trim_heaps();
}

/// Number of CPUs that the system may have; `Task::cpu` is below it.
#[must_use]
pub fn cpus() -> usize {
    sys::configured_cpus()
}

/// User and system CPU time of this process so far, all threads.
#[must_use]
pub fn cpu_times() -> (Nanos, Nanos) {
    sys::process_times()
}

/// User and system CPU time of the calling thread so far.
#[must_use]
pub fn thread_cpu_times() -> (Nanos, Nanos) {
    sys::thread_times()
}

/// The first descriptor that a supervisor passes (sd_listen_fds(3)).
const PASSED_FIRST: i32 = 3;

/// The sockets that the task that started the process passed to it, `count` of them: to be called
/// before other descriptors are opened, or at least only where the supervisor says that there are
/// `count`. A second call has none.
#[must_use]
pub fn passed_descriptors(count: u32) -> Vec<std::os::fd::OwnedFd> {
    sys::passed_descriptors(PASSED_FIRST, count)
}

/// Tells the system that its own memory may have to be written back through this thread and those
/// that it starts from now on (a file system on a disk that this process serves): their allocations
/// then neither wait for such writes nor are throttled for them. Call it before any thread is
/// started.
///
/// # Errors
/// `System` with EPERM without CAP_SYS_RESOURCE, EINVAL before Linux 5.6. Nothing is changed then;
/// where nothing of this machine's file systems is on what the process serves, it does no harm.
pub fn io_flusher() -> Result<(), OsError> {
    sys::set_io_flusher().map_err(|errno| OsError::System {
        what: "prctl(PR_SET_IO_FLUSHER)",
        errno,
    })
}

/// A fresh directory for a test, on a file system with direct I/O; removed with its content.
#[cfg(test)]
struct TestDir(std::path::PathBuf);

#[cfg(test)]
impl TestDir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tidegate-os-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        Self(dir)
    }

    fn join(&self, name: impl AsRef<std::path::Path>) -> std::path::PathBuf {
        self.0.join(name)
    }
}

#[cfg(test)]
impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes what is in a folder durable, no matter which program wrote it, with all else on its file
/// system.
///
/// # Errors
/// The system's; since Linux 5.8 also that of a write that failed lately.
pub fn sync_file_system(folder: &std::path::Path) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(std::fs::File::open(folder)?)?)
}

/// Of which of these sockets (by their numbers) the other end is closed; where the second of a pair
/// is true, also if it has only ended its half of the stream. Waits for nothing. The caller sees to
/// it that the numbers are those of open sockets.
#[must_use]
pub fn hung_up(sockets: &[(std::os::fd::RawFd, bool)]) -> Vec<bool> {
    sys::hung_up(sockets)
}

/// The time since the machine was started, suspensions included (CLOCK_BOOTTIME).
#[must_use]
pub fn time_since_boot() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    std::time::Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

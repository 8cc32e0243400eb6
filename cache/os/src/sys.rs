//! The few calls of the C library that have no safe form elsewhere.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use policy::units::Nanos;

/// An element of a vector for the system: raw memory.
pub(crate) type IoVec = libc::iovec;

/// An empty element.
pub(crate) const NO_MEMORY: IoVec = IoVec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

/// Adds `bytes` of memory from `start` on to the last element if they follow it; false: they do
/// not.
pub(crate) fn grow(vectors: &mut [IoVec], start: *mut u8, bytes: usize) -> bool {
    let last = vectors.last_mut();
    let before = last.filter(|last| last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == start);
    before.map(|last| last.iov_len += bytes).is_some()
}

/// Linux 5.6, include/uapi/linux/prctl.h; the next number asks for it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// The CPU this thread runs on.
#[inline]
pub(crate) fn current_cpu() -> usize {
    // SAFETY: no arguments, no memory; answers -1 where the system has no such call.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}

/// Tests that the system gives the process a little memory now.
pub(crate) fn has_memory(bytes: usize) -> io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping at an address of the system's choice replaces nothing, and
    // nobody has seen it when it goes.
    unsafe {
        let memory = mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)?;
        munmap(memory, bytes)?;
    }
    Ok(())
}

/// Number of CPUs that the system may have; every answer of `current_cpu` is below it.
pub(crate) fn configured_cpus() -> usize {
    // SAFETY: one number in, one number out.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(cpus).unwrap_or(1).max(1)
}

/// Linux 6.12, include/uapi/linux/mempolicy.h: the node, and that of an address.
const MPOL_F_NODE: libc::c_int = 1;
const MPOL_F_ADDR: libc::c_int = 1 << 1;
/// Words of a mask of nodes: 1024 of them, the most that the system can be built for.
const NODE_WORDS: usize = 1024 / libc::c_ulong::BITS as usize;

/// Memory of `bytes` from `start` on is asked from that node of the system from now on, as long as
/// it has any (mbind(2), MPOL_PREFERRED). Answers the error number where the system refuses:
/// EPERM in many containers, ENOSYS without nodes.
pub(crate) fn prefer_node(start: *mut u8, bytes: usize, node: u32) -> Result<(), i32> {
    let bits = libc::c_ulong::BITS as usize;
    let node = node as usize;
    if node >= NODE_WORDS * bits {
        return Err(libc::EINVAL);
    }
    let mut mask: [libc::c_ulong; NODE_WORDS] = [0; NODE_WORDS];
    mask[node / bits] |= 1 << (node % bits);
    // The system takes one bit off it (mm/mempolicy.c, get_nodes()).
    let most = NODE_WORDS * bits + 1;
    // SAFETY: where memory is to come from changes nothing of its content, whoever has it; the call
    // touches none. `mask` has `most - 1` bits and lives over the call.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            most,
            0,
        )
    };
    if refused == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Memory there comes from wherever the system likes again.
pub(crate) fn prefer_no_node(start: *mut u8, bytes: usize) {
    // SAFETY: as in `prefer_node`; this policy takes no mask. A refusal leaves what is preferred.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes,
            libc::MPOL_DEFAULT,
            ptr::null::<libc::c_ulong>(),
            0,
            0,
        )
    };
}

/// The system's node that the memory at `start` is on. `None`: the system does not say.
pub(crate) fn node_at(start: *mut u8) -> Option<u32> {
    let mut node: libc::c_int = -1;
    // SAFETY: the call looks the node of the place up, whatever is there, and writes one `int`
    // (MPOL_F_NODE | MPOL_F_ADDR).
    let refused = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            ptr::null_mut::<libc::c_ulong>(),
            0,
            start,
            MPOL_F_NODE | MPOL_F_ADDR,
        )
    };
    (refused == 0).then(|| u32::try_from(node).ok()).flatten()
}

/// Lets timers of this thread fire within `slack` of their time instead of the default 50 us.
pub(crate) fn set_timer_slack(slack: Nanos) {
    let slack = libc::c_ulong::try_from(slack.0).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: PR_SET_TIMERSLACK takes one number and touches nothing but this thread's setting. A
    // refusal leaves the default, which is only less precise.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
}

/// Tells the system that this process is on the way of its memory to a disk.
pub(crate) fn set_io_flusher() -> Result<(), i32> {
    // SAFETY: PR_SET_IO_FLUSHER takes one number and touches nothing but this process' setting.
    let refused = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if refused == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Gives pages back to the system in which the allocator has nothing any more, of all threads'
/// heaps.
pub(crate) fn trim_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: one number in, one number out: the heaps are the allocator's, and it locks each as it
    // looks through it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// User and system time of the process so far.
pub(crate) fn process_times() -> (Nanos, Nanos) {
    times(libc::RUSAGE_SELF)
}

/// User and system time of the calling thread so far.
pub(crate) fn thread_times() -> (Nanos, Nanos) {
    times(libc::RUSAGE_THREAD)
}

fn times(who: libc::c_int) -> (Nanos, Nanos) {
    // SAFETY: `rusage` is plain numbers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer and lives over the call.
    let refused = unsafe { libc::getrusage(who, &raw mut usage) };
    assert_eq!(
        refused, 0,
        "getrusage has no way to fail with a number that it knows"
    );
    (nanos(usage.ru_utime), nanos(usage.ru_stime))
}

fn nanos(time: libc::timeval) -> Nanos {
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Nanos(secs * policy::units::SECOND + micros * 1_000)
}

/// Signals that a fault of the thread itself raises: blocked, they would end the process unseen.
const FAULTS: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Does `start` while the calling thread has all signals blocked but those of faults: a thread that
/// it starts has them blocked for good.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    struct Before(libc::sigset_t);

    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: it is the set that this thread had, and lives over the call.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }

    // SAFETY: sets of signals are plain numbers, for which all zeroes is a value.
    let (mut blocked, mut before) =
        unsafe { core::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: both sets are valid places over the calls, and the signals are those of the system:
    // none of the calls has a way to fail.
    unsafe {
        libc::sigfillset(&raw mut blocked);
        for signal in FAULTS {
            libc::sigdelset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
    }
    let _before = Before(before);
    start()
}

/// The `count` descriptors that begin at `first` and are open: from the task that started the
/// process. A second call has none.
pub(crate) fn passed_descriptors(first: i32, count: u32) -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let last = first.saturating_add_unsigned(count);
    let is_open = |fd: &i32| {
        // SAFETY: two numbers in, one number out; a descriptor that is not open is an error.
        unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) == 0 }
    };
    (first..last)
        .filter(is_open)
        // SAFETY: it is open, was given to this process for its own, and nobody else takes it: this
        // is the first call.
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect()
}

/// Puts a lock on a range of a file's bytes, for as long as the file is open: fcntl(2), locks of
/// open file descriptions. An end of `u64::MAX` is none. Answers the error number where somebody
/// has a lock there that is against it (EAGAIN, EACCES) or such locks are not available.
pub(crate) fn lock_bytes(file: &File, bytes: Range<u64>, shared: bool) -> Result<(), i32> {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    byte_lock(file, libc::F_OFD_SETLK, bytes, kind).map(|_| ())
}

/// Takes all such locks of a file off again, whoever has a copy of its descriptor.
pub(crate) fn unlock_bytes(file: &File) {
    // Where there are no such locks, none are left.
    let _ = byte_lock(file, libc::F_OFD_SETLK, 0..u64::MAX, libc::F_UNLCK);
}

/// True if somebody else has a lock in a range of a file's bytes, shared or not, by process or by
/// open file description.
pub(crate) fn are_bytes_locked(file: &File, bytes: Range<u64>) -> Result<bool, i32> {
    // The lock that is in the way of a lock for its holder alone, if there is one.
    let found = byte_lock(file, libc::F_OFD_GETLK, bytes, libc::F_WRLCK)?;
    Ok(found != libc::F_UNLCK)
}

/// Answers the kind of lock that is left in the place of the question.
fn byte_lock(
    file: &File,
    call: libc::c_int,
    bytes: Range<u64>,
    kind: libc::c_int,
) -> Result<libc::c_int, i32> {
    // SAFETY: `flock` is plain numbers, for which all zeroes is a value; its process has to be zero
    // here.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).expect("kinds of locks are few");
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).expect("it is zero");
    lock.l_start = offset_of(bytes.start)?;
    // None: up to the end, wherever that comes to be.
    lock.l_len = match bytes.end {
        u64::MAX => 0,
        end => offset_of(end.saturating_sub(bytes.start))?,
    };
    // SAFETY: the descriptor is open over the call, and `lock` is a valid place for question and
    // answer.
    let refused = unsafe { libc::fcntl(file.as_raw_fd(), call, &raw mut lock) };
    if refused == 0 {
        Ok(libc::c_int::from(lock.l_type))
    } else {
        Err(last_errno())
    }
}

/// Device and inode of the file that a loop device, or a partition of one, shows
/// (LOOP_GET_STATUS64).
pub(crate) fn loop_backing(device: &File) -> Option<(u64, u64)> {
    const LOOP_GET_STATUS64: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x4c, 5);
    // As long as `struct loop_info64`, which begins with the two.
    type Status = [u64; 29];
    // SAFETY: the call writes one `struct loop_info64`, which is what `Getter` has room for; any
    // bytes are a value of numbers.
    let told = unsafe {
        let get = rustix::ioctl::Getter::<LOOP_GET_STATUS64, Status>::new();
        rustix::ioctl::ioctl(device, get)
    };
    told.ok().map(|status| (status[0], status[1]))
}

/// True if a block device takes no writes (BLKROGET).
pub(crate) fn is_read_only_device(file: &File) -> Result<bool, i32> {
    const BLKROGET: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 94);
    // SAFETY: the call writes one `int`, which is what `Getter` has room for.
    let told = unsafe {
        let get = rustix::ioctl::Getter::<BLKROGET, libc::c_int>::new();
        rustix::ioctl::ioctl(file, get)
    };
    told.map(|says| says != 0)
        .map_err(rustix::io::Errno::raw_os_error)
}

/// Has a block device forget a range (BLKDISCARD), which may read as anything afterwards.
pub(crate) fn discard(device: &File, offset: u64, len: u64) -> Result<(), i32> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: the call reads two numbers, which is what `Setter` hands it.
    let done = unsafe {
        let range = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        rustix::ioctl::ioctl(device, range)
    };
    done.map_err(rustix::io::Errno::raw_os_error)
}

/// `preadv2` into memory of which the caller has all rights over the call. Answers the bytes read,
/// or the error number.
pub(crate) fn read(fd: RawFd, vectors: &[IoVec], offset: u64) -> Result<u64, i32> {
    let (count, offset) = (count_of(vectors), offset_of(offset)?);
    // SAFETY: the array is as long as `count` says and lives over the call; the caller vouches for
    // the memory that its elements describe.
    let moved = unsafe { libc::preadv2(fd, vectors.as_ptr(), count, offset, 0) };
    u64::try_from(moved).map_err(|_| last_errno())
}

/// `pwritev2` of memory that stays resident over the call; others may change it meanwhile, only the
/// system reads it. Answers the bytes written, or the error number.
pub(crate) fn write(fd: RawFd, vectors: &[IoVec], offset: u64) -> Result<u64, i32> {
    let (count, offset) = (count_of(vectors), offset_of(offset)?);
    // SAFETY: as in `read`.
    let moved = unsafe { libc::pwritev2(fd, vectors.as_ptr(), count, offset, 0) };
    u64::try_from(moved).map_err(|_| last_errno())
}

/// Reads the bytes that a socket has into `data`; never waits. Answers how many bytes: none at the
/// end of the stream.
///
/// # Errors
/// The system's; `WouldBlock` if there is nothing now.
pub fn receive_into(socket: BorrowedFd<'_>, data: &mut [u8]) -> io::Result<usize> {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    let (bytes, _) = rustix::net::recv(socket, data, flags)?;
    Ok(bytes)
}

/// Reads the bytes that a socket has into memory of which the caller has all rights over the call;
/// never waits.
pub(crate) fn receive(socket: BorrowedFd<'_>, vectors: &mut [IoVec]) -> io::Result<usize> {
    // SAFETY: `msghdr` is plain numbers and addresses, for which all zeroes is a value: no name,
    // nothing beside the bytes.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    // As wide as the C library has it.
    message.msg_iovlen = vectors.len() as _;
    // SAFETY: the socket is open over the call, `message` is a valid place with as many elements as
    // it says, and the caller vouches for the memory that they describe.
    let moved = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Of which of these sockets the other end is closed, or, where the second of a pair says so,
/// writes nothing any more. Waits for nothing; a number that is none of an open file is not closed.
pub(crate) fn hung_up(sockets: &[(RawFd, bool)]) -> Vec<bool> {
    let asked = |(fd, half): &(RawFd, bool)| libc::pollfd {
        fd: *fd,
        events: if *half { libc::POLLRDHUP } else { 0 },
        revents: 0,
    };
    let mut asked: Vec<libc::pollfd> = sockets.iter().map(asked).collect();
    let count = asked.len().try_into().expect("no more than open files");
    loop {
        // SAFETY: the array is as long as `count` says and lives over the call, which writes to
        // nothing else.
        let answered = unsafe { libc::poll(asked.as_mut_ptr(), count, 0) };
        if answered >= 0 || last_errno() != libc::EINTR {
            break;
        }
    }
    let gone = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    asked.iter().map(|it| it.revents & gone != 0).collect()
}

fn count_of(vectors: &[IoVec]) -> libc::c_int {
    libc::c_int::try_from(vectors.len()).expect("a request's vectors are bounded by MAX_VECTORS")
}

fn offset_of(offset: u64) -> Result<libc::off_t, i32> {
    libc::off_t::try_from(offset).map_err(|_| libc::EFBIG)
}

fn last_errno() -> i32 {
    crate::error::errno_of(&io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = process_times();
        let began = std::time::Instant::now();
        let mut sum = 0_u64;
        while began.elapsed().as_millis() < 20 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let after = process_times();
        assert!(after.0 + after.1 > before.0 + before.1);
    }

    #[test]
    fn an_io_flusher_is_one_or_says_why_not() {
        // In a thread of its own: it is inherited.
        let (answer, is_one) = std::thread::spawn(|| {
            let answer = set_io_flusher();
            // SAFETY: as for setting it; it answers the setting.
            (answer, unsafe {
                libc::prctl(PR_SET_IO_FLUSHER + 1, 0, 0, 0, 0)
            })
        })
        .join()
        .expect("it does not panic");
        match answer {
            Ok(()) => assert_eq!(is_one, 1),
            Err(errno) => assert!([libc::EPERM, libc::EINVAL].contains(&errno), "{errno}"),
        }
    }

    #[test]
    fn a_lock_on_a_byte_is_seen_by_others_and_ends_with_its_file() {
        let path = std::env::temp_dir().join(format!("tidegate-os-{}-bytes", std::process::id()));
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        };
        let (ours, theirs) = (open().unwrap(), open().unwrap());
        lock_bytes(&ours, 100..101, true).unwrap();
        assert_eq!(
            are_bytes_locked(&ours, 0..u64::MAX),
            Ok(false),
            "it is its own"
        );
        assert_eq!(are_bytes_locked(&theirs, 0..u64::MAX), Ok(true));
        assert_eq!(are_bytes_locked(&theirs, 101..u64::MAX), Ok(false));
        lock_bytes(&theirs, 100..101, true).unwrap();
        assert!(lock_bytes(&theirs, 50..200, false).is_err());
        unlock_bytes(&theirs);
        assert_eq!(are_bytes_locked(&ours, 100..101), Ok(false));
        drop(ours);
        assert_eq!(are_bytes_locked(&theirs, 100..101), Ok(false));
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn an_offset_beyond_the_system_is_an_error() {
        assert_eq!(offset_of(u64::MAX), Err(libc::EFBIG));
        assert_eq!(offset_of(4096), Ok(4096));
    }

    #[test]
    #[cfg(all(target_env = "gnu", not(miri)))]
    fn what_a_thread_has_freed_goes_back_to_the_system() {
        const MIB: u64 = 1 << 20;
        // A heap of its own whose end is in use: freeing what lies before it gives nothing back.
        let last = std::thread::spawn(|| {
            let mut blocks: Vec<Box<[u8]>> = (0..128 << 10).map(|_| vec![1; 1000].into()).collect();
            blocks.pop()
        });
        let last = last.join();
        let before = crate::resident_bytes();
        trim_heaps();
        let after = crate::resident_bytes();
        // Four times as much goes: other tests take and give back meanwhile.
        assert!(before > after + 32 * MIB, "{before} {after}");
        drop(last);
    }
}

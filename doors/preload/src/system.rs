//! The system's own calls about memory, past those that are replaced.
//!
//! Invariant
//!   1. Memory that `map_by_the_kernel` puts something else into is none of this process: a map of
//!      ours, in the child of a fork.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};

use libc::off_t;

/// A descriptor of the program's.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    assert!(fd >= 0, "checked before");
    // SAFETY: the program has it open during the call that named it; if not, the system says so.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

pub(crate) fn by_the_kernel(
    (start, len): (*mut c_void, usize),
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: mmap(2), as the program asks for it.
    let answer = unsafe { libc::syscall(libc::SYS_mmap, start, len, access, flags, fd, offset) };
    pointer(answer)
}

/// The address that a system call answers.
pub(crate) fn pointer(answer: i64) -> *mut c_void {
    let address = usize::try_from(answer.cast_unsigned()).expect("64 bits");
    std::ptr::with_exposed_provenance_mut(address)
}

/// Maps a file as the kernel does; at `start`, in place of what is there, if it is not zero.
pub(crate) fn map_by_the_kernel(
    fd: BorrowedFd<'_>,
    start: usize,
    len: usize,
    writable: bool,
    offset: u64,
) -> Result<usize, i32> {
    let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    let flags = libc::MAP_SHARED | if start == 0 { 0 } else { libc::MAP_FIXED };
    let place = (std::ptr::with_exposed_provenance_mut(start), len);
    let offset = off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    match by_the_kernel(place, access, flags, fd.as_raw_fd(), offset).expose_provenance() {
        usize::MAX => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::ENOMEM)),
        address => Ok(address),
    }
}

pub(crate) fn unmap((start, len): (*mut c_void, usize)) -> c_int {
    // SAFETY: munmap(2) of what the program unmaps, and that is not in a map of ours.
    if unsafe { libc::syscall(libc::SYS_munmap, start, len) } == 0 {
        0
    } else {
        -1
    }
}

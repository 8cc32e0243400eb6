//! The kernel's map of a file, as a peer.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr;

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};

/// It, for loads and stores.
pub(super) struct KernelMap {
    start: *mut u8,
    len: usize,
}

// SAFETY: nothing in it belongs to one thread; its words are loaded and stored whole.
unsafe impl Send for KernelMap {}
// SAFETY: the same.
unsafe impl Sync for KernelMap {}

impl KernelMap {
    /// Of `len` bytes of a file, touched at random.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the system's choice replaces nothing.
        let start =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)? };
        let map = Self {
            start: start.cast(),
            len,
        };
        // SAFETY: advice on our own mapping.
        unsafe { rustix::mm::madvise(start, len, Advice::Random)? };
        Ok(map)
    }

    fn word(&self, at: usize) -> *mut u64 {
        assert!(
            at.is_multiple_of(8) && at + 8 <= self.len,
            "byte {at} of a map"
        );
        // SAFETY: within the mapping, which is as aligned as a page.
        unsafe { self.start.add(at).cast() }
    }

    /// The word at a byte.
    pub(super) fn load(&self, at: usize) -> u64 {
        // SAFETY: `word` checked the place; volatile, as others may change it.
        unsafe { self.word(at).read_volatile() }
    }

    /// Changes it.
    pub(super) fn store(&self, at: usize, value: u64) {
        // SAFETY: as in `load`.
        unsafe { self.word(at).write_volatile(value) }
    }

    /// Waits until all of it is on the device.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: our own mapping.
        unsafe { rustix::mm::msync(self.start.cast(), self.len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for KernelMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole; the borrows of it have ended.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

//! Giving back to the system what the allocator keeps: glibc's, which keeps freed memory between
//! what is in use.
//!
//! The only foreign function of the governor itself. Another allocator beside it (jemalloc,
//! mimalloc) has nothing here, and the call is one of an empty heap.
#![allow(unsafe_code)]

/// Gives free pages of glibc's heaps back to the system; nothing elsewhere. Takes the locks of the
/// heaps, and some ms a GiB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn trim() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: a function of glibc that may be called at any time from any thread; it touches free
    // memory only.
    let _ = unsafe { malloc_trim(0) };
}

/// Nothing is known of the allocator.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim() {}

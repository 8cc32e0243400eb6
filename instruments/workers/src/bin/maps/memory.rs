//! Memory behind which a file lies, whoever keeps it: loads and stores of one word of a page.
//!
//! All unsafe code of the program is here, behind functions that check their page.

#![allow(
    unsafe_code,
    reason = "calls of the C library, and loads from memory that others change"
)]

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::ptr::{self, NonNull};

use tidegate::Map;

use super::{BYTES, PAGE, Problem};

/// The word of a page that says which page it is, and the one that is stored to.
const NUMBER: usize = 1;
const STORED: usize = 3;
/// A scan sums one word of this many: one a cache line.
const LINE: usize = 8;
const WORDS: usize = BYTES / size_of::<u64>();

/// See the module.
pub(crate) struct Memory {
    start: NonNull<u64>,
    pages: u64,
    keeper: Keeper,
}

/// The keeper of the memory, which takes it back.
enum Keeper {
    Kernel,
    /// It reads and writes by the file.
    Umap {
        unmap: UunmapFn,
        _file: File,
    },
    Tidegate(Map),
}

// SAFETY: the memory lives as long as this does, and every access to it is one of a word, by
// `word`.
unsafe impl Sync for Memory {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Memory {}

type UmapFn =
    unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, libc::off_t) -> *mut c_void;
type UunmapFn = unsafe extern "C" fn(*mut c_void, usize) -> c_int;

impl Memory {
    /// A map of the kernel's. `random`: with the advice that accesses are.
    pub(crate) fn of_kernel(file: &File, pages: u64, random: bool) -> Result<Self, Problem> {
        let len = bytes(pages)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the system's choice replaces nothing.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: advice on our own mapping.
        if random && unsafe { libc::madvise(start, len, libc::MADV_RANDOM) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Self::new(start, pages, Keeper::Kernel)
    }

    /// A map of umap's, a library that is looked for where libraries are; `None`: it is not there.
    pub(crate) fn of_umap(file: File, pages: u64) -> Result<Option<Self>, Problem> {
        // SAFETY: its constructors read the environment and no more.
        let library = unsafe { libc::dlopen(c"libumap.so".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Ok(None);
        }
        let symbol = |name: &CStr| {
            // SAFETY: a library that is never closed, and a name that ends.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (Some(umap), Some(uunmap)) = (symbol(c"umap"), symbol(c"uunmap")) else {
            return Err("libumap.so has no umap() or no uunmap()".into());
        };
        // SAFETY: as umap 2.1's umap.h declares them.
        let umap = unsafe { std::mem::transmute::<*mut c_void, UmapFn>(umap) };
        // SAFETY: the same.
        let uunmap = unsafe { std::mem::transmute::<*mut c_void, UunmapFn>(uunmap) };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: as `mmap` above.
        let start = unsafe {
            umap(
                ptr::null_mut(),
                bytes(pages)?,
                access,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err("umap() fails".into());
        }
        let keeper = Keeper::Umap {
            unmap: uunmap,
            _file: file,
        };
        Self::new(start, pages, keeper).map(Some)
    }

    /// A map of Tidegate's.
    pub(crate) fn of_tidegate(map: Map) -> Result<Self, Problem> {
        let pages = map.len() as u64 / PAGE;
        Self::new(map.as_ptr().cast(), pages, Keeper::Tidegate(map))
    }

    fn new(start: *mut c_void, pages: u64, keeper: Keeper) -> Result<Self, Problem> {
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or("memory at address zero")?,
            pages,
            keeper,
        })
    }

    /// The map, if it is one of Tidegate's.
    pub(crate) fn map(&self) -> Option<&Map> {
        match &self.keeper {
            Keeper::Tidegate(map) => Some(map),
            _ => None,
        }
    }

    /// The number that the page says it has.
    pub(crate) fn load(&self, page: u64) -> u64 {
        // SAFETY: `word` checked the page.
        unsafe { self.word(page, NUMBER).read_volatile() }
    }

    /// Adds one to a word of the page.
    pub(crate) fn store(&self, page: u64) {
        let word = self.word(page, STORED);
        // SAFETY: as above; nobody else stores to this page's word at the time.
        unsafe { word.write_volatile(word.read_volatile() + 1) };
    }

    /// Loads a word of each line of the page; their sum.
    pub(crate) fn sum(&self, page: u64) -> u64 {
        let first = self.word(page, 0);
        let lines = (0..WORDS).step_by(LINE);
        // SAFETY: as above, within the page.
        let words = lines.map(|at| unsafe { first.add(at).read_volatile() });
        words.fold(0, u64::wrapping_add)
    }

    fn word(&self, page: u64, word: usize) -> *mut u64 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        let page = usize::try_from(page).expect("below the number of pages");
        // SAFETY: within the memory.
        unsafe { self.start.as_ptr().add(page * WORDS + word) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (start, len) = (self.start.as_ptr().cast(), bytes(self.pages).unwrap_or(0));
        match &self.keeper {
            Keeper::Kernel => {
                // SAFETY: our own mapping, whole, which nobody uses any more.
                let _ = unsafe { libc::munmap(start, len) };
            }
            Keeper::Umap { unmap, .. } => {
                // SAFETY: the same, of umap's.
                let _ = unsafe { unmap(start, len) };
            }
            Keeper::Tidegate(_) => {}
        }
    }
}

fn bytes(pages: u64) -> Result<usize, Problem> {
    Ok(usize::try_from(pages * PAGE)?)
}

//! `libtidegate-preload.so`: large shared maps of files, of a program that knows nothing of it,
//! within a limit and paced.
//!
//! ```text
//!   LD_PRELOAD=.../libtidegate-preload.so TIDEGATE_MEMORY=64MiB PROGRAM
//!
//!   mmap, munmap, msync, read, ... --> calls --> maps: of a file of ours? --> tidegate::Map, File
//!                                        '-- not ours, or refused (a line on stderr) --> the kernel
//! ```
//!
//! A file is ours from its first large shared map to the end of its last one, with one map of all
//! of it, which the program's maps are parts of. Meanwhile calls that read, write, sync or cut it
//! are answered by the cache, so they see what was stored.
//!
//! Invariants
//!   1. A call that is neither about memory of ours nor about a file of ours is the C library's,
//!      unchanged.
//!   2. A map that cannot be ours is the kernel's, unless `TIDEGATE_STRICT` is set; the reason is
//!      said once.
//!   3. Memory of a map is never touched here, and no lock is held while the cache is waited for
//!      but the one that maps and unmaps (`maps::CHANGES`), and a file's for its end and positions.
//!   4. A child of a fork has the kernel's maps at the same addresses, and nothing of ours.
//!
//! `unsafe` stands in `calls` and `system` only.
#![deny(unsafe_code)]

mod calls;
mod maps;
mod said;
mod system;

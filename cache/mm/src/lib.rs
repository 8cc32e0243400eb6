//! Blocking procedures over any `Env`: read, write, balance dirty pages, flush, sync, reclaim.
//!
//! `policy` decides, `frames` holds, `env` is the door to the world; this crate waits. It is plain
//! synchronous Rust and never names a concrete `Env`.
//!
//! The life of a page
//!
//! ```text
//!   free --claim--> busy --insert--> cached, clean <--------- end of writeback ok --+
//!                     ^                |      |                                     |
//!        miss: read --+              write  reclaim -> free                         |
//!                                      v                                            |
//!                                    dirty --flusher, sync, foreground--> writeback-+
//!                                      ^----------- end of writeback failed --------+
//! ```
//!
//! Rules (style D2)
//!   1. Content changes only under the busy bit; it is read only under a pin or by a device under
//!      writeback. A writer that finds a page pinned puts a fresh frame in its place, once the
//!      page is not under writeback: a page has at most one write in flight.
//!   2. A cached frame that is not busy is on exactly one LRU list, or isolated by exactly one
//!      reclaimer, which knows it again by its generation. A task that takes a page out of an index
//!      takes it off its list and disowns or orphans it in one hold of the LRU lock.
//!   3. `DIRTY` and `WRITEBACK` in the state word and the tags of the index change together, under
//!      the file's index lock.
//!   4. Nobody waits for anything while holding busy bits, except for the read that fills them, and
//!      for the device that discards what they hold (`punch`).
//!   5. Lock order: busy bit, then index, LRU, free lists, dirty domain, device (env::LockClass).
//!      Wake after unlocking.
//!   6. From a dirty page to its completed write nothing is allocated: request slots, index nodes
//!      and lists are taken when the cache is built.
#![forbid(unsafe_code)]

mod alloc;
mod anon;
mod cache;
mod complete;
mod error;
mod file;
pub mod inside;
mod lifecycle;
mod lists;
mod memory;
mod options;
mod pages;
mod reclaim;
mod registry;
mod relocate;
mod slabs;
mod stats;
mod swap;
mod swapfile;
#[cfg(test)]
mod testing;
mod vmstat;
mod writeback;

pub use anon::{Spill, Touched};
pub use cache::Cache;
pub use cache::kernel::{Asked, Done, Ended, ForRun, Kernel, Turned};
pub use error::Error;
pub use file::advise::Advice;
pub use file::drop::Dropped;
pub use file::map::{FileMap, Stream};
pub use file::pin::{Pinned, PinnedBy};
pub use file::read::Reader;
pub use file::run::{PinnedRun, PinnedRunBy, RUN_MAX};
pub use file::write::Progress;
pub use file::write::received::Offered;
pub use file::writer::Writer;
pub use file::{File, FileStats};
pub use lists::NodeId;
pub use memory::offline::Limit;
pub use memory::overhead::Overhead;
pub use options::{Apart, DeviceOptions, ErrorPolicy, Options, Populate, Runs};
pub use registry::ahead::WriteAhead;
pub use registry::page_map::Access;
pub use registry::rounds::Synced;
pub use slabs::{PageWatch, SlabPages};
pub use stats::{DeviceStats, Health, NodeStats, ReadsFailing, Refaults, Stats};
pub use swapfile::SwapStats;
pub use vmstat::{Item, Vmstat};

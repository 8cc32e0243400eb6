//! Blocking procedures over `E: Env`: read, write, balance dirty pages, flush, sync, reclaim.
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
//! Rules (style guide D2)
//!   1. Content changes only under the busy bit; it is read only under a pin or by a device under
//!      writeback. A writer that finds a page pinned puts a fresh frame in its place, once the
//!      page is not under writeback: a page has at most one write in flight.
//!   2. A cached frame that is not busy is on exactly one LRU list, or isolated by exactly one reclaimer, which
//!      knows it again by its generation. Whoever takes a page out of an index takes it off its list and disowns
//!      or orphans it in one hold of the LRU lock.
//!   3. `DIRTY` and `WRITEBACK` in the state word and the tags of the index change together, under
//!      the file's index lock.
//!   4. Nobody waits for anything while holding busy bits, except for the read that fills them, and for the device
//!      that discards what they hold (`punch`).
//!   5. Lock order: busy bit, then index, LRU, free lists, dirty domain, device (env::LockClass).
//!      Wake after unlocking.
//!   6. From a dirty page to its completed write nothing is allocated: request slots, index nodes
//!      and lists are taken when the cache is built.
#![forbid(unsafe_code)]

mod alloc;
mod awaited;
mod cache;
mod device;
mod dirty;
mod error;
mod file;
mod flight;
mod flush;
mod io;
mod limit;
mod mapping;
mod options;
mod pace;
mod pin;
mod punch;
mod read;
mod reading;
mod reclaim;
mod replace;
mod spill;
mod stash;
mod stats;
mod swap;
mod sync;
#[cfg(test)]
mod testing;
mod truncate;
mod unwilling;
mod vmstat;
mod write;

pub use cache::Cache;
pub use error::Error;
pub use file::File;
pub use limit::Limit;
pub use options::{DeviceOptions, ErrorPolicy, Options, Populate};
pub use pin::Pinned;
pub use read::Reader;
pub use spill::{Spill, Touched};
pub use stats::{DeviceStats, Health, ReadsFailing, Stats};
pub use swap::SwapStats;
pub use sync::Synced;
pub use unwilling::Tried;
pub use vmstat::{Item, Vmstat};
pub use write::Writer;
pub use write::received::Offered;

//! A page cache with one memory limit that holds, and writers that are paced to their device.
//!
//! ```
//! use tidegate::{Cache, OpenOptions};
//!
//! let dir = std::env::temp_dir().join(format!("tidegate-doc-{}", std::process::id()));
//! std::fs::create_dir_all(&dir)?;
//! let cache = Cache::builder().memory(64 << 20).build()?;
//! let file = cache.open(dir.join("data"), OpenOptions::new().create(true))?;
//!
//! file.write_at(b"hello, page cache", 0)?; // into memory; paced when the device is behind
//! let mut word = [0; 5];
//! assert_eq!(file.read_at(&mut word, 7)?, 5);
//! assert_eq!(&word, b"page ");
//!
//! let page = file.pin(0)?; // zero-copy: the bytes stay as they are while `page` lives
//! assert_eq!(&page[..5], b"hello");
//!
//! file.sync()?; // on the device, and the device flushed
//! drop(page);
//! drop(file);
//! cache.close()?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It promises that the memory limit counts pages, metadata and what is pinned; a writer that is
//! over its share sleeps for short, even times instead of stalling; nothing that `sync` answered
//! for is lost; nothing dirty is dropped or called clean after a failed write; every stall has a
//! name (`Stats::waits`; of one file, one writer, one call: `File::waits`, `Writer::waits`,
//! `Builder::on_slow`).
//!
//! All types may be used from any thread. Calls block: reads for the device, writes while the
//! writer is paced. There is no runtime to enter and no context to pass. Futures, for a
//! program that has a runtime, are [`File::read_async`] and its like.
//!
//! Invariants
//!   1. Nothing here decides or waits: that is `policy` and `mm`. This crate sizes the arena,
//!      opens files, and keeps a writer for each thread.
//!   2. A cache that is dropped has tried to sync; `close` is how to hear that it did not work.
#![forbid(unsafe_code)]

mod ahead;
mod budget;
mod builder;
mod cache;
mod causes;
mod error;
mod file;
mod future;
mod group;
mod in_memory;
mod map;
mod nodes;
mod opened;
mod pin;
mod pressure;
mod spill;
mod stats;
mod upkeep;
mod volume;
mod waits;
mod writer;

pub use ahead::WriteAhead;
pub use builder::Builder;
pub use cache::{Cache, OpenOptions, WeakCache};
pub use error::Error;
pub use file::{CloseError, File, FileStats};
pub use future::Answer;
pub use in_memory::InMemory;
pub use map::{Map, MapOptions, MapStats};
pub use mm::{Advice, Error as CacheError, ErrorPolicy};
pub use nodes::{Nodes, OneNode};
pub use os::{OsError as SystemError, Rights, View};
pub use pin::{OwnedPin, Pin, PinRun};
pub use policy::dirty::{DeviceTunables, Law, Threshold};
pub use policy::reclaim::ReclaimLaw;
/// The parts of which a page rule of one's own is made.
pub use policy::rule;
pub use policy::rule::RuleMaker;
pub use policy::units::{Bytes, Nanos, Pages};
pub use pressure::Pressure;
pub use spill::{Spill, Touched};
pub use stats::{NodeStats, PageUse, Stats, Swap, Wait};
pub use upkeep::{VolumeState, VolumeStats};
/// The parts of which a device of one's own is made, for [`Cache::attach`]. docs/embed/volume.md
/// has one whole.
pub mod backing {
    pub use env::{Device, DeviceInfo, Interrupt, IoError, IoOp, IoRequest, ObjectId};
    pub use os::{Arena, ThreadEnv};
}
pub use volume::{Backing, Cursor, Mode, Progress, Synced, Volume, VolumeOptions};
pub use waits::{CallWait, CallWaits, SlowCall};
pub use writer::Writer;

/// The code of pages for users is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embed/give-memory-back.md")]
#[doc = include_str!("../../../docs/embed/map.md")]
#[doc = include_str!("../../../docs/embed/volume.md")]
mod pages {}

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;

/// Metadata of a slot of the swap file: whose page it holds, what reclaim noted of it, whether it
/// is in use (checked by `tests/spill.rs`).
const METADATA_PER_SLOT: u64 = 13;

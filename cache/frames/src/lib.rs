//! The memory itself: frame table and state word, free lists, page index, lists, counters.
//!
//! Nothing here waits and nothing spins without a bound: every operation that can be refused is
//! `try_` or answers with a refusal; waiting is `mm`'s job. A compare-and-swap loop goes round
//! again only because another thread made progress.
//!
//! | module | holds | shared how |
//! |---|---|---|
//! | [`table`] | state word and owner of each frame | atomics, no lock |
//! | [`index`] | which frame holds page i of a file | readers without a lock, writers by token |
//! | [`stack`] | free nodes of the index pool | lock-free |
//! | [`free`] | free frames, a buddy system | one lock of `mm` |
//! | [`list`] | LRU and other lists of frames | one lock of `mm` |
//! | [`mapped`] | which pages may be used without a fault, and which were | atomics, their owner's rules |
//! | [`region`] | where each page of anonymous memory is | atomics, busy bits |
//! | [`slots`] | which slots of a swap file are in use | one lock of `mm` |
//! | [`counters`] | totals | relaxed atomics |
//! | [`ledger`] | a total under a limit | a seat for each thread |
//! | [`sync`] | where atomics come from | |
//! | [`content`] | what the frames hold (a trait) | by `Pin` and `Busy` |
//!
//! All of it is safe code, but for tables that begin as zeroes ([`zeroed`]): links are numbers, and
//! a reader that follows a stale number gets a wrong answer that the owner comparison of
//! [`FrameTable::try_pin`] catches.
//!
//! A frame that nobody has used yet costs nothing: in each table it is zero bits, and these are not
//! touched.

#![deny(unsafe_code)]

pub mod content;
#[cfg(feature = "count")]
pub mod counted;
pub mod counters;
pub mod free;
pub mod index;
pub mod ledger;
pub mod list;
pub mod mapped;
pub mod region;
pub mod slots;
pub mod stack;
pub mod sync;
pub mod table;
#[allow(unsafe_code, reason = "zero bytes as values")]
pub mod zeroed;

pub use content::{Buffer, Content, Data, DataMut, PopulateError, SECTOR_SIZE, Sector};
pub use counters::{Counter, Spread};
pub use free::{FreeLists, Group, Pageblocks};
pub use index::{IndexWriter, NoNodes, NodePool, PageIndex, Shadow, Slot, Tag, WriteToken};
pub use ledger::{Ledger, SeatId, Tally};
pub use list::Lists;
pub use mapped::Mapped;
pub use region::{Region, RegionEntry};
pub use slots::SlotMap;
pub use table::{Busy, Flags, FrameTable, Generation, Owner, PINS_MAX, Pin, Refusal};

/// Number of a frame of the arena: its place times 4 KiB is its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

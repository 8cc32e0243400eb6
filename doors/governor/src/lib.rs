//! One memory limit for several caches, of any authors.
//!
//! A program with a block cache, a row cache and a write buffer has three limits, and each is wrong
//! most of the time. A [`Governor`] has one. Each cache registers as a member with a [`Shrinker`];
//! an entry that was evicted and is missed again tells what memory would be worth to it, and a
//! little at a time memory goes to the member that regrets most. The limit holds: for permits to
//! the byte, for caches that report afterwards within what they grow in a moment, and for the whole
//! process by its resident memory.
//!
//! ```
//! use governor::{Governor, Share};
//! use std::sync::{Arc, Mutex};
//!
//! let governor = Governor::new(1 << 30)?;                       // bytes, for all that register
//! let cache = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
//! let of_thread = cache.clone();
//! let rows = governor.register(
//!     "rows",
//!     Share::default().floor(64 << 20),
//!     governor::by(
//!         { let cache = cache.clone(); move || cache.lock().unwrap().iter().map(|row| row.len() as u64).sum() },
//!         move |ask| {
//!             let mut freed = 0;
//!             while freed < ask.bytes {
//!                 let Some(row) = of_thread.lock().unwrap().pop() else { break };
//!                 freed += row.len() as u64;
//!             }
//!             freed
//!         },
//!     ),
//! )?;
//! let buffer = rows.reserve(4096)?;                             // waits 200 ms at most, then names the member in the way
//! println!("{}", governor.report());
//! # drop(buffer);
//! # Ok::<(), governor::Error>(())
//! ```
//!
//! | what | where |
//! |---|---|
//! | what a cache must be able to do | [`Shrinker`], or two closures: [`by`] |
//! | what it may have | [`Share`]: floor, ceiling, weight, cost of a miss |
//! | how it reports | [`Member`]: `grew`, `shrank`, `reserve`; `evicted`, `missed`, `used` |
//! | its driver | a thread of the governor's, woken by events; or the caller, by [`Governor::turn`] |
//! | moves of memory, and why | [`Governor::report`] |
//! | caches that are there already | features `quick-cache`, `tidegate`: `governor::adapters` |
//!
//! Rules that the governor keeps to, whatever its members do; each has a test in `tests/rules.rs`:
//!
//! 1. A shrinker is called from the governor's thread, without a lock of the governor's, and never
//!    by the task that reserves.
//! 2. One call at a time for a member.
//! 3. A call that takes longer than 100 ms is counted; the member rests, from 100 ms doubling to 5
//!    s, and a second lane asks the others meanwhile. There are two lanes at most. A member that is
//!    the only one above its target does not rest: nobody else is to give for it.
//! 4. The bytes that a scan says it freed are a claim; the fall of what is held counts, from a look
//!    before the scan to one after it. Three claims without that, and the member is
//!    [`Standing::Lies`]: by name in reports, and its memory counts as not available. Of a member
//!    that is filled meanwhile no such thing is said.
//! 5. A panic disables the member, not the process.
//! 6. To reserve inside a scan is refused.
//! 7. A member that is dropped gives its target back.
//! 8. Nobody is asked for memory below its floor; memory above targets goes first.
//!
//! `policy::shares` decides the division of memory; here are counting, waiting and calling.
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod adapters;
mod due;
mod error;
mod ghost;
mod governor;
mod lanes;
mod member;
mod queue;
mod report;
mod resident;
mod seat;
mod share;
mod shrinker;
mod state;
mod threads;
mod trim;
mod turn;

pub use crate::due::Next;
pub use crate::error::Error;
pub use crate::governor::{Builder, Governor, Regret};
pub use crate::member::{Member, Permit};
pub use crate::report::{MemberReport, Move, Report, Standing, Waits, WhyMoved};
pub use crate::share::Share;
pub use crate::shrinker::{Ask, Freeable, Resized, Scanned, Shrinker, by};

/// The code of the page for users is compiled and run.
#[cfg(all(doctest, feature = "quick-cache"))]
#[doc = include_str!("../../../docs/embed/one-limit.md")]
mod page {}

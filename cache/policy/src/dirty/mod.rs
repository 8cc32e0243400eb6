//! Dirty throttling: how much may be dirty, and how long a writer that dirties more is held.
//!
//! `mm` keeps one `Domain` behind one lock. For each batch of pages a writer dirtied it calls
//! `Domain::on_dirtied`; if the answer says that a balance is due, it begins one and asks for
//! verdicts until `Done`:
//!
//! ```text
//! domain.begin(&writer, device, due.pages);
//! loop {
//!     let counts = snapshot();                                   // atomics of mm, one read each,
//!     match domain.decide(now, &writer, &counts) {               // both under the lock: `untold`
//!         Verdict::Done { .. } => break,
//!         Verdict::Pause { .. } => sleep until the deadline,      // after unlocking
//!         Verdict::WriteYourself { pages } => { let n = write_pages(pages); domain.wrote(&writer, n) }
//!     }
//! }
//! ```
//!
//! Vocabulary: *dirty limit* and *background limit*, see `limits`; *freerun*, halfway between them,
//! up to which nobody is held; *set point*, the level a law steers to; *share*, a device's part of
//! a limit; *balance*, one call of a writer that is due, from `begin` to `Done` (kernel:
//! `balance_dirty_pages`); *level*, pages dirty or under writeback.
//!
//! ```text
//!   mm -> Domain -> Engine: a law and its writers -> rules, which each law answers
//! ```
//!
//! One law is chosen when the domain is built: ours is `tidegate`, those of Linux are in
//! `history`. A law's memory of a writer and of its balance stays with the law; outside a writer
//! is a number.
//!
//! Invariants
//!   1. A single pause is at most 200 ms (one tick where a tick is longer), under every law.
//!   2. Below freerun no law pauses.
//!   3. Same calls, same answers: nothing depends on addresses, time of day or order of devices.
//!   4. No counter value makes a law panic or overflow: counts are cut off at 2^44 pages.
//!   5. Memory is taken by `Domain::new`, and by `add_writer` for more writers than there were at
//!      any time before; nothing else allocates.
//!
//! Concurrency: plain data; `mm` holds one lock around each call and none across a pause.
//!
//! Source: mechanisms 5; paper p1; Linux 2.6.36 and 6.12 mm/page-writeback.c.

mod domain;
mod law;
pub mod limits;
pub mod rules;
pub mod running;
mod tidegate;
mod types;
mod untold;

pub use self::domain::{Domain, WriterIndex};
pub use self::law::{Law, Prints, Profile, Tunables};
pub use self::types::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due,
    InitialBandwidth, Limits, PauseReason, Threshold, Verdict,
};
pub use self::untold::{Teller, Untold};

//! The number of objects that a pass over memory asks of each cache, and the fate of those it did
//! not get.
//!
//! A cache (of inodes, of directory entries, of anything that can be made again) is asked in the
//! proportion in which the pass looks at the lists of pages. It is asked in batches; what is too
//! little for a batch, and what a cache could not give to this caller, is *deferred*: owed by the
//! cache, on that node, to the task that asks next.
//!
//! ```text
//!   count() -> freeable      delta = freeable / 2^priority * 4 / seeks              (or by pages scanned: before 4.16)
//!   Scan::begin              total = what is owed, in whole or by priority, + delta; never above 2 * freeable
//!     step -> Ask(128)         scan(128) -> answered(Freed { .. })
//!     step -> Ask(128)         scan(128) -> answered(Stop): it cannot work for this caller
//!     step -> Done
//!   end -> Outcome           owed again: what was to be scanned and was not
//! ```
//!
//! Vocabulary: *freeable*, objects that a cache could free, as it says; *seeks*, what an object
//! costs that has to be made again, 2 for one read of a disk; *deferred*, objects owed.
//!
//! | module | decides |
//! |---|---|
//! | `rule` | how eras differ, one row each |
//! | `scan` | what one pass asks of one cache |
//!
//! Invariants
//!   1. One pass scans no more than twice what is freeable.
//!   2. A pass ends: each step scans at least one object, or is the last.
//!   3. Objects that a cache refused to free are owed afterwards, up to the bound of the rule.
//!
//! Concurrency: plain data. Two passes over a cache each take what is owed then, and each give back
//! their own rest.
//!
//! Source: mechanisms 7, vectors SH1; kernel-facts 17; Linux 2.6.36 and 3.2 mm/vmscan.c,
//! shrink_slab(); Linux 4.20, 5.0 and 5.17 mm/vmscan.c, 6.12 mm/shrinker.c, do_shrink_slab().
//! Deviations: no memory cgroups; a cache that looked at nothing is taken to have stopped.

mod rule;
mod scan;

pub use self::rule::{Left, Owed, ShrinkRule, Weight};
pub use self::scan::{Answer, BATCH, Cache, Deferred, Outcome, Pressure, Scan, ScanStep};

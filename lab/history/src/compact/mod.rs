//! Runs of frames that stand together: how one is got where none is free.
//!
//! A fault on a huge page wants 2^order frames at once. Frames come free one by one, so sooner or
//! later there are many and hardly two beside each other. *Compaction* moves pages until some stand
//! together. Paper p4 is about three things: what compaction may do with a page that is dirty or
//! being written, how often it tries, and what reclaim does beside it. Where it writes such a page
//! and waits for it, a fault takes as long as a USB stick.
//!
//! | module | decides |
//! |---|---|
//! | `law` | everything in which the columns differ: one row of switches each |
//! | `patches` | the paper's eleven patches, any subset of them by name |
//! | `attempt` | what one request tries, in which order |
//! | `suitable` | whether there is a run to take, and whether moving pages could make one |
//! | `defer` | how long a zone is left alone after that has failed |
//! | `scanner` | which frames are looked at |
//! | `migrate` | what is done with a page |
//! | `blocks` | ours: which block is emptied, and what becomes of the pages in it |
//! | `reclaim` | when reclaim for a run has done enough |
//!
//! Source: mechanisms 8; kernel-facts A; Linux 3.1, 3.2 and 3.3 mm/compaction.c, mm/migrate.c,
//! mm/vmscan.c; paper p4.

pub mod attempt;
pub mod blocks;
pub mod defer;
pub mod law;
pub mod migrate;
pub mod patches;
pub mod reclaim;
pub mod scanner;
pub mod suitable;

pub use law::{Background, Blocks, Compaction, Moves, Scans};
pub use patches::{Patch, Patches};

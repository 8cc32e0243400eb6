//! Parts of a kernel that a page cache in a program has no use for, over the same `mm`: for
//! experiments. No live program compiles them.
//!
//! | room | does | entered by |
//! |---|---|---|
//! | `compact` | gets runs of frames for faults: huge pages | `mm::Kernel`, at a fault of a region |
//! | `slab` | holds objects on pages of the cache's memory | who keeps objects: `workload`, `campaign` |
//!
//! A room asks the cache through `mm::inside` and keeps the rules of `mm`; decisions are
//! `history`'s and `policy`'s.
#![forbid(unsafe_code)]

pub mod compact;
pub mod slab;
#[cfg(test)]
mod testing;

pub use compact::Compactor;
pub use slab::{Object, SlabSpec, Slabs};

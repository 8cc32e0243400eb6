//! Where the cache's atomics come from: the machine's, loom's (`--cfg loom`), shuttle's in this
//! crate's own tests (`--cfg shuttle`), or such as count who writes to them (feature `count`).
//!
//! `mm`, `os` and `tidegate` take theirs from here too, and the mutexes that calls pass through: so
//! that a test can say which writes of an operation go to memory that other threads use
//! (`counted`).

#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(all(shuttle, test))]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(not(any(loom, all(shuttle, test), feature = "count")))]
pub use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(any(loom, all(shuttle, test))))]
pub use core::sync::atomic::{Ordering, fence};

#[cfg(all(feature = "count", not(any(loom, all(shuttle, test)))))]
pub use crate::counted::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(feature = "count")]
pub use crate::counted::Mutex;
#[cfg(not(feature = "count"))]
pub use std::sync::Mutex;

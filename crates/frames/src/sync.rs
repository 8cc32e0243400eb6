//! Where this crate's atomics come from: the machine's, loom's (`--cfg loom`) or, in the crate's
//! own tests, shuttle's (`--cfg shuttle`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

#[cfg(all(shuttle, test))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

#[cfg(not(any(loom, all(shuttle, test))))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

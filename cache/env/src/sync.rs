//! Atomics and mutexes of wait queues and locks: `frames::sync`'s, or loom's (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use frames::sync::{AtomicUsize, Mutex, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::MutexGuard;

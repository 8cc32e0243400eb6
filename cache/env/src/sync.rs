//! Where the atomics and mutexes of wait queues and locks come from: `frames::sync`, or loom (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use frames::sync::{AtomicUsize, Mutex, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::MutexGuard;

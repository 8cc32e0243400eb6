//! Where the wait queue's atomics and mutex come from: the machine's, or loom's (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

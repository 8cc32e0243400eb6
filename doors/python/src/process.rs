//! The state that belongs to one process: a child of a fork has neither the threads of a cache nor
//! its memory, and must not touch it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Number of forks between the process that loaded the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in the child of a fork (`os.register_at_fork`).
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// See `forked`.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// A value that only the process that made it may use or drop.
pub(crate) struct Own<T> {
    forks: u32,
    value: Option<T>,
    /// It ends by itself, or never: nobody waits for that.
    is_left: AtomicBool,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            forks: forks(),
            value: Some(value),
            is_left: AtomicBool::new(false),
        }
    }

    fn is_here(&self) -> bool {
        self.forks == forks()
    }

    /// The value is not dropped any more.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// The value.
    ///
    /// # Errors
    /// `RuntimeError` in a child of the process that made it.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if self.is_here() {
            Ok(self
                .value
                .as_ref()
                .expect("it is there until it is dropped"))
        } else {
            Err(PyRuntimeError::new_err(
                "this belongs to the process before the fork, whose cache the child has not; \
                 make a Cache of its own in the child, or start it with 'spawn'",
            ))
        }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_here() || *self.is_left.get_mut() {
            // Its threads are not here, or at what may never end: dropping it would wait for them.
            std::mem::forget(self.value.take());
        }
    }
}

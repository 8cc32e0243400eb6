//! The interface of a device to the engine that moves its data: the ring or the pool.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Interrupt, IoError};

use crate::transfer::Job;

/// Takes jobs and finishes them, on threads of its own.
pub(crate) trait Engine: Send + Sync {
    /// Takes a job. Never blocks; after `stop` the job ends with `Cancelled` at once.
    fn submit(&self, job: Job);
    /// Does a job in the calling thread, which waits for it: no other thread has to be woken, to
    /// begin it or to tell of its end. After `stop` the job ends with `Cancelled` at once; a job
    /// that hangs holds its caller.
    fn run_here(&self, job: Job);
    /// Jobs taken and not finished.
    fn pending(&self) -> u64;
    /// Stops: requests still under way end with `Cancelled`, threads end, at most after `bound`.
    fn stop(&self, bound: Duration);
}

/// Counts jobs under way, and ends them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pending: AtomicU64,
    panics: AtomicU64,
}

impl Ledger {
    /// A job was taken.
    pub(crate) fn began(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a job that was taken. The handlers' own panics are reported by the panic hook and
    /// counted; the engine goes on, so that nobody else's request is lost.
    pub(crate) fn finish(&self, job: Job, result: Result<(), IoError>) {
        let ended = catch_unwind(AssertUnwindSafe(|| job.finish(&Interrupt::new(), result)));
        if ended.is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        // After the handlers: what they submit is counted before this one is not.
        self.pending.fetch_sub(1, Ordering::Release);
    }

    /// A job that was taken goes to another engine.
    pub(crate) fn handed_on(&self) {
        self.pending.fetch_sub(1, Ordering::Release);
    }

    /// Jobs taken and not ended.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Acquire)
    }
}

/// The part of the arena that is registered with the device's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// There is no ring.
    None,
    /// All that was populated so far, give or take one under way.
    Registered {
        /// Chunks registered now.
        chunks: u32,
    },
    /// The system refused some; I/O there goes unregistered, a little slower.
    Refused {
        /// Chunks registered now.
        chunks: u32,
        /// Why: ENOMEM is `ulimit -l`.
        errno: i32,
    },
}

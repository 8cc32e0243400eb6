//! The gate of a volume, which requests that change it pass: shut while the volume is held.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keeps clients from changing a volume for a while.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Requests under way that change it.
    changing: AtomicU64,
    is_shut: AtomicBool,
}

impl Gate {
    /// A request that changes the volume begins, or `is_refused`; false: not now.
    pub(crate) fn enter(&self, is_refused: bool) -> bool {
        // Counted first: a hold that begins sees it, or is seen here.
        self.changing.fetch_add(1, Ordering::SeqCst);
        let may = is_refused || !self.is_shut();
        if !may {
            self.leave(1);
        }
        may
    }

    /// Requests that change it have ended.
    pub(crate) fn leave(&self, count: u64) {
        self.changing.fetch_sub(count, Ordering::SeqCst);
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::SeqCst)
    }

    /// Shuts it; false: it is shut already.
    pub(crate) fn shut(&self) -> bool {
        !self.is_shut.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }

    /// Requests under way that change the volume.
    pub(crate) fn changing(&self) -> u64 {
        self.changing.load(Ordering::SeqCst)
    }
}

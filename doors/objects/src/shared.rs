//! The state shared by the device's caller and its runtime: the queue, the known objects, and the
//! right to write.
//!
//! Lock order: `queue`, then `known`. Neither is held while a request ends or a call is under way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use env::IoError;
use os::Arena;
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use crate::client::{Client, Trouble};
use crate::error::TIMED_OUT;
use crate::known::Known;
use crate::layout::{Geometry, name_of};
use crate::lease::{Lease, Renewed};
use crate::local::DirectoryLock;
use crate::queue::{Part, Queue};
use crate::request::{Ledger, Whole, lock};

pub(crate) type WholePart = Part<Arc<Whole>>;

/// The fence against a second server.
pub(crate) enum Fence {
    /// Nothing: only this process can reach the store, or nothing is written.
    None,
    /// A lock of the system's; a reader has none.
    Lock(Mutex<Option<Arc<DirectoryLock>>>),
    /// An object in the store.
    Lease(Box<Lease>),
}

/// Jobs under way, and what waits.
pub(crate) struct Jobs {
    pub(crate) queue: Queue<Arc<Whole>>,
    pub(crate) writing: usize,
    pub(crate) reading: usize,
    /// Writes that may be under way now.
    pub(crate) writes_max: usize,
    /// Puts that were answered since that was changed.
    answered: usize,
}

impl Jobs {
    pub(crate) fn new(parallel: usize) -> Self {
        Self {
            queue: Queue::new(),
            writing: 0,
            reading: 0,
            writes_max: parallel,
            answered: 0,
        }
    }

    /// Puts that share a slow line may all be too late, for ever: half as many then, and one more
    /// when each of them has been answered.
    pub(crate) fn on_written(&mut self, result: Result<(), IoError>, parallel: usize) {
        self.answered += 1;
        if result == Err(TIMED_OUT) {
            // At once the first time, then when as many were answered as may be under way.
            if self.answered >= self.writes_max || self.writes_max == parallel {
                self.writes_max = (self.writes_max / 2).max(1);
                self.answered = 0;
            }
        } else if result.is_ok() && self.answered >= self.writes_max {
            self.writes_max = (self.writes_max + 1).min(parallel);
            self.answered = 0;
        }
    }
}

/// See the module's header.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) geometry: Geometry,
    pub(crate) arena: Arc<Arena>,
    pub(crate) jobs: Mutex<Jobs>,
    pub(crate) known: Mutex<Known>,
    /// Objects of a wrong length, and that length; only where nothing is written.
    pub(crate) damaged: BTreeMap<u64, u64>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) fence: Fence,
    pub(crate) read_only: bool,
    pub(crate) parallel: usize,
    pub(crate) handle: Handle,
    pub(crate) stopping: AtomicBool,
    pub(crate) lost: OnceLock<String>,
}

impl Shared {
    /// Checks that the device still serves at all.
    pub(crate) fn check(&self) -> Result<(), IoError> {
        if self.lost.get().is_some() {
            return Err(IoError::Lost);
        }
        if self.stopping.load(Ordering::Acquire) {
            return Err(IoError::Cancelled);
        }
        Ok(())
    }

    /// Checks that a put may be sent now.
    pub(crate) fn check_write(&self) -> Result<(), IoError> {
        self.check()?;
        match &self.fence {
            // Nobody took it as far as is known; it may be renewed yet.
            Fence::Lease(_) if self.client.guard.left().is_none() => Err(TIMED_OUT),
            Fence::Lease(_) | Fence::Lock(_) | Fence::None => Ok(()),
        }
    }

    /// The device is lost, for this reason; the first one stays.
    pub(crate) fn lose(&self, why: String) -> IoError {
        let _ = self.lost.set(why);
        IoError::Lost
    }

    /// Somebody else changed an object.
    pub(crate) fn changed(&self, object: u64) -> IoError {
        self.lose(format!(
            "{}: somebody else changed the object {}; not overwriting it",
            self.client.place,
            name_of(object)
        ))
    }

    /// The error of a call on an object that must be there, and as it was.
    pub(crate) fn missing_is_lost(&self, object: u64, trouble: Trouble) -> IoError {
        match trouble {
            Trouble::Missing(_) => self.lose(format!(
                "{}: the object {} is gone; somebody removed it, or the bucket",
                self.client.place,
                name_of(object)
            )),
            Trouble::Changed => self.changed(object),
            other => other.io(),
        }
    }

    /// The finding that a directory is not where it was locked, if it still is not.
    pub(crate) fn away(&self) -> Option<String> {
        let Fence::Lock(held) = &self.fence else {
            return None;
        };
        let held = lock(held).clone();
        held.filter(|held| held.is_away()).map(|_| {
            format!(
                "{}: the folder, or its lock, is not where it was; bring it back",
                self.client.place
            )
        })
    }

    /// Lets go of a directory's lock: no put will begin. A put that hangs in the file system has a
    /// hold of its own.
    pub(crate) fn unlock(&self) {
        if let Fence::Lock(held) = &self.fence {
            drop(lock(held).take());
        }
    }

    /// Ends everything that has not begun as cancelled.
    pub(crate) fn cancel_waiting(&self) {
        let waiting = lock(&self.jobs).queue.drain();
        drop(waiting);
    }

    /// Renews the lease for ever.
    pub(crate) async fn keep_lease(self: Arc<Self>) {
        let Fence::Lease(lease) = &self.fence else {
            return;
        };
        let turn = lease.ttl() / crate::lease::RENEWALS;
        let mut turns = tokio::time::interval(turn);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one is now.
        turns.tick().await;
        loop {
            turns.tick().await;
            // A renewal that hangs must not take the others' time: the next begins when it is given
            // up, and sees whether it was done.
            let renewed = tokio::time::timeout(turn, lease.renew(&self.client)).await;
            if let Ok(Renewed::Taken { by }) = renewed {
                self.lose(format!(
                    "{}: the lease was taken by {by}",
                    self.client.place
                ));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_that_are_all_late_become_fewer_and_come_back() {
        let mut jobs = Jobs::new(8);
        for _ in 0..8 {
            jobs.on_written(Err(TIMED_OUT), 8);
        }
        assert!(jobs.writes_max <= 2, "{}", jobs.writes_max);
        for _ in 0..20 {
            jobs.on_written(Err(TIMED_OUT), 8);
        }
        assert_eq!(jobs.writes_max, 1);
        // Other errors say nothing of the line.
        jobs.on_written(Err(IoError::NoSpace), 8);
        assert_eq!(jobs.writes_max, 1);
        for _ in 0..40 {
            jobs.on_written(Ok(()), 8);
        }
        assert_eq!(jobs.writes_max, 8);
    }
}

//! The waiters for memory, in the order in which they came.
//!
//! A member that frees memory gives it to the first waiter, if it is enough for it, and wakes it
//! alone. Nobody passes a waiter: while there is one, a later request stands in line.
//!
//! Concurrency: one lock, under which nothing waits but the sleepers themselves, each on a
//! condition of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::due::LATEST;

#[derive(Default)]
pub(crate) struct Queue {
    line: Mutex<VecDeque<Arc<Waiter>>>,
    /// Bytes that those in line want; read without the lock.
    wanted: AtomicU64,
}

struct Waiter {
    bytes: u64,
    granted: Mutex<bool>,
    changed: Condvar,
}

impl Queue {
    /// Bytes that are waited for.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(SeqCst)
    }

    /// Waits until `bytes` were taken for the caller, or for `at_most`; true if they were.
    pub(crate) fn wait(&self, bytes: u64, at_most: Duration, stand: impl FnOnce()) -> bool {
        let waiter = Arc::new(Waiter {
            bytes,
            granted: Mutex::new(false),
            changed: Condvar::new(),
        });
        let until = Instant::now() + at_most.min(LATEST);
        {
            let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
            line.push_back(waiter.clone());
            self.wanted.fetch_add(bytes, SeqCst);
        }
        // Now that a member that frees something can see it.
        stand();
        let mut granted = waiter
            .granted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while !*granted {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = waiter.changed.wait_timeout(granted, left);
            granted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(granted);
        // A grant is made under the line's lock: a waiter that is still in it has nothing.
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = line.iter().position(|other| Arc::ptr_eq(other, &waiter)) {
            line.remove(at);
            self.wanted.fetch_sub(bytes, SeqCst);
            return false;
        }
        true
    }

    /// Gives memory to those in line as long as `try_take` has it.
    pub(crate) fn grant(&self, mut try_take: impl FnMut(u64) -> bool) {
        if self.wanted() == 0 {
            return;
        }
        let mut granted = Vec::new();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(first) = line.front() {
            if !try_take(first.bytes) {
                break;
            }
            self.wanted.fetch_sub(first.bytes, SeqCst);
            granted.extend(line.pop_front());
        }
        drop(line);
        for waiter in granted {
            *waiter
                .granted
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = true;
            waiter.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_served_first_and_the_rest_stay() {
        let queue = Arc::new(Queue::default());
        let wait = |bytes| {
            let (theirs, before) = (queue.clone(), queue.wanted());
            let waiter =
                std::thread::spawn(move || theirs.wait(bytes, Duration::from_secs(20), || {}));
            while queue.wanted() == before {
                std::thread::yield_now();
            }
            waiter
        };
        let (first, second) = (wait(10), wait(1));
        // Enough for the second only: it does not pass the first.
        queue.grant(|bytes| bytes <= 5);
        assert_eq!(queue.wanted(), 11);
        let mut there = 10;
        queue.grant(|bytes| {
            let fits = bytes <= there;
            there -= if fits { bytes } else { 0 };
            fits
        });
        assert!(first.join().unwrap());
        assert_eq!(queue.wanted(), 1, "the second still waits");
        queue.grant(|_| true);
        assert!(second.join().unwrap());
        assert!(!queue.wait(1, Duration::ZERO, || {}), "nobody gave any");
        assert_eq!(queue.wanted(), 0);
    }
}

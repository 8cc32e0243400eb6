//! First come, first served queues of tasks that wait for something to change.
//!
//! A queue does not know what its tasks wait for: they look at the condition themselves, after
//! they have queued and again after every wake (`Task::wait_while`). Wakers change the condition
//! first, unlock, then wake. Between the two there is a full fence on both sides, so either the
//! waker sees the waiter or the waiter sees the change (model: tests/loom.rs).
//!
//! Entries hold a `core::task::Waker`, so threads, coroutines and later async callers share one
//! queue. Storage for `ROOM` waiters is taken when the queue is made.
//!
//! Source: design.md promise 3; docs/adr/0001.

use core::task::Waker;
use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::sync::{AtomicUsize, Mutex, Ordering, fence};

/// Waiters a queue has room for before it has to allocate.
const ROOM: usize = 8;

/// Tasks waiting for one thing.
#[derive(Debug)]
pub struct WaitQueue {
    /// Length of the queue, read without the lock by `wake`.
    waiting: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    tickets: u64,
    queue: VecDeque<(u64, Waker)>,
}

/// A place in a queue.
#[derive(Debug)]
pub(crate) struct Ticket(u64);

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let queue = VecDeque::with_capacity(ROOM);
        Self {
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner { tickets: 0, queue }),
        }
    }

    /// How many wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes the task that has waited longest.
    pub fn wake_one(&self) -> usize {
        self.wake(1)
    }

    /// Wakes all that wait now; one that queues again meanwhile is not woken twice.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }

    /// Wakes up to `count` tasks, the longest waiting first; answers how many.
    pub fn wake(&self, count: usize) -> usize {
        // Pairs with the fence in `join`: the caller's change, then this load.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let last = self
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tickets;
        let mut woken = 0;
        while woken < count {
            // One at a time, woken outside the lock: the woken thread takes it at once.
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            if inner
                .queue
                .front()
                .is_none_or(|(ticket, _)| *ticket >= last)
            {
                break;
            }
            let entry = inner.queue.pop_front();
            self.waiting.store(inner.queue.len(), Ordering::Relaxed);
            drop(inner);
            if let Some((_, waker)) = entry {
                waker.wake();
                woken += 1;
            }
        }
        woken
    }

    /// Takes a place at the end.
    pub(crate) fn join(&self, waker: &Waker) -> Ticket {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = inner.tickets;
        inner.tickets += 1;
        inner.queue.push_back((ticket, waker.clone()));
        self.waiting.store(inner.queue.len(), Ordering::Relaxed);
        drop(inner);
        // Pairs with the fence in `wake`: the place in the queue, then the caller's look.
        fence(Ordering::SeqCst);
        Ticket(ticket)
    }

    /// Gives the place back; false: it was already used by a wake.
    pub(crate) fn leave(&self, ticket: &Ticket) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = inner.queue.iter().position(|(other, _)| *other == ticket.0) else {
            return false;
        };
        let entry = inner.queue.remove(at);
        self.waiting.store(inner.queue.len(), Ordering::Relaxed);
        drop(inner);
        drop(entry);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    /// Queues again inside its own wake, as a task on another CPU might.
    struct Eager {
        queue: Arc<WaitQueue>,
        wakes: AtomicUsize,
    }

    impl Wake for Eager {
        fn wake(self: Arc<Self>) {
            // Without a bound a queue that wakes newcomers would never come to an end.
            if self.wakes.fetch_add(1, Ordering::Relaxed) < 10 {
                self.queue.join(&Waker::from(Arc::clone(&self)));
            }
        }
    }

    #[test]
    fn wake_all_does_not_wake_who_queues_meanwhile() {
        let queue = Arc::new(WaitQueue::new());
        let wakes = AtomicUsize::new(0);
        let eager = Arc::new(Eager {
            queue: Arc::clone(&queue),
            wakes,
        });
        for _ in 0..3 {
            queue.join(&Waker::from(Arc::clone(&eager)));
        }
        assert_eq!(queue.wake_all(), 3);
        assert_eq!(eager.wakes.load(Ordering::Relaxed), 3);
        assert_eq!(queue.len(), 3, "all have queued again");
    }

    #[test]
    fn a_place_is_given_back_once() {
        let queue = WaitQueue::new();
        let [first, second] = [(); 2].map(|()| queue.join(Waker::noop()));
        assert!(queue.leave(&first));
        assert!(!queue.leave(&first), "it has left already");
        assert_eq!(queue.wake(5), 1);
        assert!(!queue.leave(&second), "its place was used by a wake");
        assert!(queue.is_empty());
    }
}

//! First come, first served queues of tasks that wait for something to change.
//!
//! A queue does not know what its tasks wait for: they look at the condition themselves, after
//! they have queued and again after every wake (`Task::wait_while`). Wakers change the condition
//! first, unlock, then wake. Between the two there is a full fence on both sides, so either the
//! waker sees the waiter or the waiter sees the change (model: tests/loom.rs).
//!
//! A wake says what has happened (`Signal`). The signal stays in the place that it took until the
//! waiter leaves it, so the task that waits learns which wake was its own. Wakes take places from
//! the front: those taken are always the first ones.
//!
//! Entries hold a `core::task::Waker`, so threads, coroutines and later async callers share one
//! queue. Storage for `ROOM` waiters is taken when the queue is made.
//!
//! Source: docs/adr/0001.

use core::task::Waker;
use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::Signal;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, fence};

/// Waiters a queue has room for before it has to allocate.
const ROOM: usize = 8;

/// Tasks waiting for one thing.
#[derive(Debug)]
pub struct WaitQueue {
    /// Places that no wake has taken, read without the lock by `wake`.
    waiting: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    tickets: u64,
    places: VecDeque<Waiting>,
    /// Number of places, from the front, that a wake has taken and whose waiters have not left yet.
    woken: usize,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits(Waker),
    Woken(Signal),
}

impl Inner {
    fn waiting(&self) -> usize {
        self.places.len() - self.woken
    }

    /// Takes the place that has waited longest, of those before `last`.
    fn take(&mut self, last: u64, signal: Signal) -> Option<Waker> {
        let place = self.places.get_mut(self.woken)?;
        if place.ticket >= last {
            return None;
        }
        self.woken += 1;
        match core::mem::replace(&mut place.state, State::Woken(signal)) {
            State::Waits(waker) => Some(waker),
            State::Woken(_) => None,
        }
    }
}

/// A place in a queue, to be left.
#[derive(Debug)]
#[must_use = "the place is in the way until it is left"]
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
        Self {
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                tickets: 0,
                places: VecDeque::with_capacity(ROOM),
                woken: 0,
            }),
        }
    }

    /// Number of waiters now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// True if nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes the task that has waited longest: `signal` has happened.
    pub fn wake_one(&self, signal: Signal) -> usize {
        self.wake(1, signal)
    }

    /// Wakes all that wait now; a task that queues again meanwhile is not woken twice.
    pub fn wake_all(&self, signal: Signal) -> usize {
        self.wake(usize::MAX, signal)
    }

    /// Wakes up to `count` tasks, the longest waiting first; answers how many.
    pub fn wake(&self, count: usize, signal: Signal) -> usize {
        // Pairs with the fence in `join`: the caller's change, then this load.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let last = self.lock().tickets;
        let mut woken = 0;
        while woken < count {
            // One at a time, woken outside the lock: the woken thread takes it at once.
            let mut inner = self.lock();
            let waker = inner.take(last, signal);
            self.waiting.store(inner.waiting(), Ordering::Relaxed);
            drop(inner);
            let Some(waker) = waker else { break };
            waker.wake();
            woken += 1;
        }
        woken
    }

    /// Takes a place at the end.
    pub(crate) fn join(&self, waker: Waker) -> Ticket {
        let mut inner = self.lock();
        let ticket = inner.tickets;
        inner.tickets += 1;
        inner.places.push_back(Waiting {
            ticket,
            state: State::Waits(waker),
        });
        self.waiting.store(inner.waiting(), Ordering::Relaxed);
        drop(inner);
        // Pairs with the fence in `wake`: the place in the queue, then the caller's look.
        fence(Ordering::SeqCst);
        Ticket(ticket)
    }

    /// Gives the place back; answers what the wake said that had taken it, if one had.
    #[expect(clippy::needless_pass_by_value, reason = "a place is left once")]
    pub(crate) fn leave(&self, ticket: Ticket) -> Option<Signal> {
        let mut inner = self.lock();
        let at = inner
            .places
            .iter()
            .position(|place| place.ticket == ticket.0)?;
        let place = inner.places.remove(at)?;
        if at < inner.woken {
            inner.woken -= 1;
        }
        self.waiting.store(inner.waiting(), Ordering::Relaxed);
        drop(inner);
        match place.state {
            State::Waits(_) => None,
            State::Woken(signal) => Some(signal),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
                let _never_left = self.queue.join(Waker::from(Arc::clone(&self)));
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
            let _never_left = queue.join(Waker::from(Arc::clone(&eager)));
        }
        assert_eq!(queue.wake_all(Signal::Other), 3);
        assert_eq!(eager.wakes.load(Ordering::Relaxed), 3);
        assert_eq!(queue.len(), 3, "all have queued again");
    }

    #[test]
    fn a_place_that_is_left_is_woken_no_more() {
        let queue = WaitQueue::new();
        let [first, second] = [(); 2].map(|()| queue.join(Waker::noop().clone()));
        assert_eq!(queue.leave(first), None);
        assert_eq!(queue.wake(5, Signal::Freed), 1);
        assert!(queue.is_empty(), "a place that was taken waits no more");
        assert_eq!(queue.leave(second), Some(Signal::Freed));
    }

    #[test]
    fn each_place_keeps_the_signal_of_the_wake_that_took_it() {
        let queue = WaitQueue::new();
        let places = [(); 4].map(|()| queue.join(Waker::noop().clone()));
        assert_eq!(queue.wake_one(Signal::PageRead), 1);
        assert_eq!(queue.wake(2, Signal::PageWritten), 2);
        let late = queue.join(Waker::noop().clone());
        assert_eq!(queue.len(), 2);
        // They leave in any order.
        let [first, second, third, fourth] = places;
        assert_eq!(queue.leave(third), Some(Signal::PageWritten));
        assert_eq!(queue.leave(fourth), None);
        assert_eq!(queue.leave(first), Some(Signal::PageRead));
        assert_eq!(queue.wake_all(Signal::Shutdown), 1);
        assert_eq!(queue.leave(second), Some(Signal::PageWritten));
        assert_eq!(queue.leave(late), Some(Signal::Shutdown));
        assert_eq!(queue.wake_all(Signal::Other), 0);
    }
}

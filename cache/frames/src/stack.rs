//! A lock-free stack of the numbers `0..n`: the free nodes of the index pool.
//!
//! Several indexes share the pool, and their writers hold only their own index' lock. A Treiber
//! stack whose head carries a counter was preferred to a short lock: nobody can be preempted while
//! holding it (in the lab a coroutine, live a thread), so it needs neither a bound on spinning nor
//! a refusal that means "try again". It is touched once per node, so about once in 64 pages.
//!
//! Invariants
//!   1. A number is pushed only by the thread that popped it (or `full` put it there): it is on the
//!      stack at most once.
//!   2. The counter in the head is stepped by every push and pop, so a head that a thread has
//!      looked at never comes back (within 2^32 steps): a `next` that has become stale meanwhile is
//!      never used.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::zeroed;

/// Free numbers, last in first out.
///
/// ```text
///   head: | 63 .. 32 counter | 31 .. 0 top number, or `len` |
/// ```
pub struct IndexStack {
    head: AtomicU64,
    /// The number below each, less the one after it: as long as nobody has pushed a number, the
    /// next one lies below it, and its entry is a zero that was never touched.
    next: Box<[AtomicU32]>,
    /// At least how many are on the stack: counted before a push and after a pop, so never below
    /// zero.
    len: AtomicU32,
}

/// Fewer numbers than this, so that the one after the last is a number too: the bottom.
const MOST: u32 = u32::MAX;

impl IndexStack {
    /// A stack of all numbers below `len`, the smallest on top.
    ///
    /// # Panics
    /// If `len` is `u32::MAX`.
    #[must_use]
    pub fn full(len: u32) -> Self {
        assert!(len < MOST, "one number is kept for the bottom");
        Self {
            head: AtomicU64::new(0),
            next: zeroed::table(len as usize),
            len: AtomicU32::new(len),
        }
    }

    /// Takes the top number. `None`: the stack was empty at that moment.
    pub fn try_pop(&self) -> Option<u32> {
        // Acquire: the popped node is as its last user left it. Every step of the head is a
        // read-modify-write, so any head we see continues the release of the push of its top.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let top = number(head);
            // The bottom is the number after the last.
            let next = self.next.get(top as usize)?;
            let below = next.load(Ordering::Relaxed).wrapping_add(top + 1);
            match self.head.compare_exchange_weak(
                head,
                stepped(head, below),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(number(head))
    }

    /// Puts a popped number back.
    pub fn push(&self, returned: u32) {
        self.len.fetch_add(1, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let below = number(head).wrapping_sub(returned + 1);
            self.next[returned as usize].store(below, Ordering::Relaxed);
            // Release: what was done to the node, and its `next`, comes before the next pop.
            match self.head.compare_exchange_weak(
                head,
                stepped(head, returned),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Number of indices on the stack (a hint while others push and pop).
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// True if the stack is empty (a hint as well).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.next) as u64
    }
}

fn number(head: u64) -> u32 {
    (head & 0xffff_ffff) as u32
}

fn stepped(head: u64, top: u32) -> u64 {
    let counter = (head >> 32).wrapping_add(1);
    counter << 32 | u64::from(top)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn gives_each_number_once_and_takes_it_back() {
        let stack = IndexStack::full(3);
        assert_eq!(
            [stack.try_pop(), stack.try_pop(), stack.try_pop()],
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(stack.try_pop(), None);
        assert!(stack.is_empty());
        stack.push(1);
        stack.push(0);
        assert_eq!(stack.len(), 2);
        assert_eq!(
            [stack.try_pop(), stack.try_pop(), stack.try_pop()],
            [Some(0), Some(1), None]
        );
    }

    #[test]
    fn no_numbers_at_all() {
        assert_eq!(IndexStack::full(0).try_pop(), None);
    }

    #[test]
    fn threads_never_share_a_number() {
        const NUMBERS: u32 = 8;
        let stack = IndexStack::full(NUMBERS);
        let held: Vec<AtomicU32> = (0..NUMBERS).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(mine) = stack.try_pop() else {
                            continue;
                        };
                        assert_eq!(
                            held[mine as usize].swap(1, Ordering::Relaxed),
                            0,
                            "handed out twice"
                        );
                        held[mine as usize].store(0, Ordering::Relaxed);
                        stack.push(mine);
                    }
                });
            }
        });
        assert_eq!(stack.len(), NUMBERS);
        assert_eq!(
            std::iter::from_fn(|| stack.try_pop()).count(),
            NUMBERS as usize
        );
    }
}

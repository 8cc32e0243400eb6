//! The events that are due: a binary heap in order of (time, sequence number).
//!
//! The sequence number breaks ties in the order in which things were asked for. It is given out
//! here for everything that has a place in time, also for what the scheduler keeps elsewhere (the
//! end of a computation stands in its CPU), so that there is one order over all of them.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

/// A point in time and a place among what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// Nanoseconds.
    pub(crate) time: u64,
    /// Order within the same nanosecond.
    pub(crate) seq: u64,
}

impl Moment {
    /// Later than everything.
    pub(crate) const NEVER: Self = Self {
        time: u64::MAX,
        seq: u64::MAX,
    };
}

#[derive(Debug)]
struct Entry<T> {
    place: Moment,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed: the standard heap keeps the greatest on top.
    fn cmp(&self, other: &Self) -> Ordering {
        other.place.cmp(&self.place)
    }
}

/// The queue, and the counter of places.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    seq: u64,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::with_capacity(1024),
            seq: 0,
        }
    }

    /// The next place at `time`, behind all others given out for it.
    pub(crate) fn place(&mut self, time: u64) -> Moment {
        self.seq += 1;
        Moment {
            time,
            seq: self.seq,
        }
    }

    pub(crate) fn push(&mut self, place: Moment, what: T) {
        self.heap.push(Entry { place, what });
    }

    /// The moment of the first entry; `Moment::NEVER` if there is none.
    pub(crate) fn first(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |entry| entry.place)
    }

    pub(crate) fn pop(&mut self) -> Option<(Moment, T)> {
        self.heap.pop().map(|entry| (entry.place, entry.what))
    }

    /// Takes everything out, in no order.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        core::mem::take(&mut self.heap)
            .into_iter()
            .map(|entry| entry.what)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_time_then_by_place() {
        let mut queue = EventQueue::new();
        for (time, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            let place = queue.place(time);
            queue.push(place, what);
        }
        // A place taken early keeps its rank however late it is used.
        let early = Moment { time: 5, seq: 0 };
        queue.push(early, 'x');
        assert_eq!(queue.first().time, 3);
        let order: String = std::iter::from_fn(|| queue.pop())
            .map(|(_, what)| what)
            .collect();
        assert_eq!(order, "abxcde");
        assert_eq!(queue.first(), Moment::NEVER);
    }
}

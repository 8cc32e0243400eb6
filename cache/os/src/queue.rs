//! Requests that wait for a place in an engine: readers first, nobody starved.
//!
//! One first-in first-out list per `IoClass`. The next request is the oldest of the first class
//! that has one, except that after `PASSED_OVER_MAX` requests have been served past a waiting
//! class, the last such class gets one turn. The last places of an engine are for reads: a device
//! that is slow to write may be quick to read.
//!
//! Storage for `ROOM` requests per class is taken when the queue is made; the write-back path
//! allocates nothing below that.

use std::collections::VecDeque;

use env::IoClass;

use crate::transfer::Job;

/// Requests per class there is room for without allocating; `mm` has fewer request slots than this.
const ROOM: usize = 1024;
/// Requests served past a waiting class before it gets one turn.
const PASSED_OVER_MAX: u32 = 16;
/// Number of classes.
const CLASSES: usize = 4;

/// The classes, each at its place.
const ALL: [IoClass; CLASSES] = [
    IoClass::Read,
    IoClass::Sync,
    IoClass::ReadAhead,
    IoClass::Writeback,
];

/// True for a class of requests that bring bytes, and change nothing.
pub(crate) fn is_read(class: IoClass) -> bool {
    matches!(class, IoClass::Read | IoClass::ReadAhead)
}

/// The queue in front of an engine.
#[derive(Debug)]
pub(crate) struct ClassQueue<T = Job> {
    classes: [VecDeque<T>; CLASSES],
    /// Of all requests, and where reads alone may go.
    passed_over: [u32; 2],
    len: usize,
}

impl<T> Default for ClassQueue<T> {
    fn default() -> Self {
        let classes = core::array::from_fn(|_| VecDeque::with_capacity(ROOM));
        Self {
            classes,
            passed_over: [0; 2],
            len: 0,
        }
    }
}

impl<T> ClassQueue<T> {
    /// Adds a request at the end of its class.
    pub(crate) fn push(&mut self, class: IoClass, job: T) {
        self.classes[class as usize].push_back(job);
        self.len += 1;
    }

    /// Takes the next one, or the next read.
    pub(crate) fn pop(&mut self, reads_only: bool) -> Option<T> {
        let may = |class: &usize| !reads_only || is_read(ALL[*class]);
        let mut waiting =
            (0..CLASSES).filter(|class| !self.classes[*class].is_empty() && may(class));
        let first = waiting.next()?;
        let last = waiting.next_back().unwrap_or(first);
        let passed_over = &mut self.passed_over[usize::from(reads_only)];
        let turn = if first == last {
            *passed_over = 0;
            first
        } else if *passed_over >= PASSED_OVER_MAX {
            *passed_over = 0;
            last
        } else {
            *passed_over += 1;
            first
        };
        self.len -= 1;
        let job = self.classes[turn].pop_front();
        if self.classes[turn].is_empty() {
            // Back to the beginning of its storage: a queue that is never long touches little of
            // it.
            self.classes[turn].clear();
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_go_first_in_order() {
        let mut queue = ClassQueue::default();
        queue.push(IoClass::Writeback, 10);
        queue.push(IoClass::Sync, 20);
        queue.push(IoClass::Read, 30);
        queue.push(IoClass::ReadAhead, 40);
        queue.push(IoClass::Read, 31);
        let order: Vec<_> = core::iter::from_fn(|| queue.pop(false)).collect();
        assert_eq!(order, [30, 31, 20, 40, 10]);
        assert_eq!(queue.len, 0);
    }

    #[test]
    fn the_last_places_are_for_reads() {
        let mut queue = ClassQueue::default();
        for class in [
            IoClass::Writeback,
            IoClass::ReadAhead,
            IoClass::Sync,
            IoClass::Read,
        ] {
            queue.push(class, class);
        }
        let reads: Vec<_> = core::iter::from_fn(|| queue.pop(true)).collect();
        assert_eq!(reads, [IoClass::Read, IoClass::ReadAhead]);
        assert_eq!(queue.pop(false), Some(IoClass::Sync));
        assert_eq!(queue.pop(false), Some(IoClass::Writeback));
    }

    #[test]
    fn writeback_gets_a_turn_under_a_flood_of_reads() {
        // A place for a read alone comes free as often, or never.
        for beside in [true, false] {
            let mut queue = ClassQueue::default();
            queue.push(IoClass::Writeback, u32::MAX);
            for read in 0..100 {
                queue.push(IoClass::Read, read);
            }
            let mut order = core::iter::from_fn(|| {
                if beside {
                    queue.pop(true)?;
                }
                queue.pop(false)
            });
            let place = order.position(|job| job == u32::MAX).unwrap();
            assert_eq!(place, PASSED_OVER_MAX as usize);
        }
    }
}

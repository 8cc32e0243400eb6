//! The bound: the page is evicted that is needed again last.
//!
//! Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems
//! Journal 1966.

use std::collections::BinaryHeap;

use super::{Access, Rule};
use crate::trace::Trace;

/// Never accessed again.
const NEVER: u32 = u32::MAX;

pub(crate) struct Belady {
    /// By access: when its page is accessed next.
    next: Vec<u32>,
    now: usize,
    /// By page: when it is accessed next, if it is in memory.
    due: Vec<Option<u32>>,
    /// Pages by when they are accessed next, with old entries among them.
    heap: BinaryHeap<(u32, u32)>,
    cached: u32,
    capacity: u32,
}

impl Belady {
    pub(crate) fn new(trace: &Trace, capacity: u32) -> Self {
        let mut seen = vec![NEVER; trace.distinct() as usize];
        let mut next = vec![NEVER; trace.len()];
        for (at, (page, _)) in trace.accesses().enumerate().rev() {
            let at_page = &mut seen[page as usize];
            next[at] = *at_page;
            *at_page = u32::try_from(at).expect("a trace has fewer than 2^32 accesses");
        }
        Self {
            next,
            now: 0,
            due: vec![None; trace.distinct() as usize],
            heap: BinaryHeap::new(),
            cached: 0,
            capacity,
        }
    }

    fn evict(&mut self) -> Option<u32> {
        loop {
            let (due, page) = self.heap.pop()?;
            if self.due[page as usize] == Some(due) {
                self.due[page as usize] = None;
                self.cached -= 1;
                return Some(page);
            }
        }
    }
}

impl Rule for Belady {
    fn access(&mut self, page: u32) -> Access {
        let due = self.next[self.now];
        self.now += 1;
        let hit = self.due[page as usize].is_some();
        let evicted = if !hit && self.cached >= self.capacity {
            self.evict()
        } else {
            None
        };
        self.due[page as usize] = Some(due);
        if self.heap.len() > 2 * self.due.len() {
            self.heap
                .retain(|(due, page)| self.due[*page as usize] == Some(*due));
        }
        self.heap.push((due, page));
        if hit {
            return Access::Hit;
        }
        self.cached += 1;
        Access::Miss { evicted }
    }
}

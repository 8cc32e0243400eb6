//! LIRS: pages are kept by how many others were accessed between their last two accesses.
//!
//! A *low* page has come back soon and stays; all others are *high* and pass through a queue of a
//! hundredth of memory. The stack has pages in order of their last access, those of high pages
//! that were evicted, too, down to the oldest low page: a high page that is accessed while it is in
//! the stack has come back sooner than that one, and takes its place.
//!
//! Source: Jiang and Zhang, LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy,
//! SIGMETRICS 2002, section 3. The paper leaves the stack without a bound; here, as in libCacheSim,
//! it has at most two capacities of pages, and the ghost goes that has been one for longest.

use super::lists::Lists;
use super::{Access, Rule, percent};

/// Of the stack.
const STACK: u8 = 0;
/// Of the lists of high pages: in memory, and gone but in the stack.
const QUEUE: u8 = 0;
const GHOST: u8 = 1;

pub(crate) struct Lirs {
    stack: Lists,
    high: Lists,
    low: Vec<bool>,
    lows: u32,
    low_most: u32,
    capacity: u32,
}

impl Lirs {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        let high_most = percent(capacity, 1).max(1);
        Self {
            stack: Lists::new(pages, 1),
            high: Lists::new(pages, 2),
            low: vec![false; pages as usize],
            lows: 0,
            low_most: capacity - high_most,
            capacity,
        }
    }

    fn is_in_stack(&self, page: u32) -> bool {
        self.stack.on(page) == STACK
    }

    fn move_to_top(&mut self, page: u32) {
        if self.is_in_stack(page) {
            self.stack.renew(STACK, page);
        } else {
            self.stack.push(STACK, page);
        }
    }

    /// The stack ends with a low page.
    fn prune(&mut self) {
        while let Some(page) = self.stack.oldest(STACK) {
            if self.low[page as usize] {
                return;
            }
            self.stack.remove(page);
            if self.high.on(page) == GHOST {
                self.high.remove(page);
            }
        }
    }

    /// A page becomes low; as many become high as are then too many.
    fn make_low(&mut self, page: u32) {
        self.low[page as usize] = true;
        self.lows += 1;
        while self.lows > self.low_most {
            let Some(oldest) = self.stack.pop(STACK) else {
                return;
            };
            self.low[oldest as usize] = false;
            self.lows -= 1;
            self.high.push(QUEUE, oldest);
            self.prune();
        }
    }

    fn make_room(&mut self) -> Option<u32> {
        if self.lows + self.high.len(QUEUE) < self.capacity {
            return None;
        }
        let page = self.high.pop(QUEUE)?;
        if self.is_in_stack(page) {
            self.high.push(GHOST, page);
        }
        Some(page)
    }

    fn bound_stack(&mut self) {
        while self.stack.len(STACK) > 2 * self.capacity {
            let Some(ghost) = self.high.pop(GHOST) else {
                return;
            };
            self.stack.remove(ghost);
        }
    }

    fn hit_high(&mut self, page: u32) {
        if self.is_in_stack(page) {
            self.high.remove(page);
            self.move_to_top(page);
            self.make_low(page);
        } else {
            self.move_to_top(page);
            self.high.renew(QUEUE, page);
        }
    }
}

impl Rule for Lirs {
    fn access(&mut self, page: u32) -> Access {
        if self.low[page as usize] {
            self.move_to_top(page);
            self.prune();
            return Access::Hit;
        }
        if self.high.on(page) == QUEUE {
            self.hit_high(page);
            self.bound_stack();
            return Access::Hit;
        }
        let evicted = self.make_room();
        let came_back = self.high.on(page) == GHOST;
        if came_back {
            self.high.remove(page);
        }
        self.move_to_top(page);
        if came_back || self.lows < self.low_most {
            self.make_low(page);
        } else {
            self.high.push(QUEUE, page);
        }
        self.bound_stack();
        Access::Miss { evicted }
    }
}

//! S3-FIFO: a small queue that most pages only pass through, a main queue that goes round, and the
//! names of pages that left the small one.
//!
//! Source: Yang et al., FIFO Queues are All You Need for Cache Eviction, SOSP 2023, section 4. As
//! libCacheSim has it: until the first page has to go, what the small queue has no place for goes
//! to the main one; two accesses in the small queue make a page stay.

use super::lists::Lists;
use super::{Access, Rule, percent};

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

/// Accesses in the small queue that make a page stay.
const STAYS: u8 = 2;
/// Accesses of a page are counted up to this.
const COUNT_MOST: u8 = 3;

pub(crate) struct S3Fifo {
    lists: Lists,
    count: Vec<u8>,
    capacity: u32,
    small_most: u32,
    ghost_most: u32,
    has_evicted: bool,
}

impl S3Fifo {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        Self {
            lists: Lists::new(pages, 3),
            count: vec![0; pages as usize],
            capacity,
            small_most: percent(capacity, 10),
            ghost_most: percent(capacity, 90),
            has_evicted: false,
        }
    }

    fn evict(&mut self) -> Option<u32> {
        self.has_evicted = true;
        let mut evicted = None;
        while evicted.is_none() {
            let main_is_full = self.lists.len(MAIN) > self.capacity - self.small_most;
            evicted = if main_is_full || self.lists.len(SMALL) == 0 {
                self.evict_main()
            } else {
                self.evict_small()
            };
        }
        evicted
    }

    fn evict_small(&mut self) -> Option<u32> {
        while let Some(page) = self.lists.pop(SMALL) {
            if self.count[page as usize] >= STAYS {
                self.count[page as usize] = 0;
                self.lists.push(MAIN, page);
                continue;
            }
            if self.lists.len(GHOST) >= self.ghost_most {
                self.lists.pop(GHOST);
            }
            self.lists.push(GHOST, page);
            return Some(page);
        }
        None
    }

    fn evict_main(&mut self) -> Option<u32> {
        loop {
            let page = self.lists.pop(MAIN)?;
            let count = &mut self.count[page as usize];
            if *count == 0 {
                return Some(page);
            }
            *count -= 1;
            self.lists.push(MAIN, page);
        }
    }
}

impl Rule for S3Fifo {
    fn access(&mut self, page: u32) -> Access {
        let on = self.lists.on(page);
        let count = &mut self.count[page as usize];
        if on == SMALL || on == MAIN {
            *count = (*count + 1).min(COUNT_MOST);
            return Access::Hit;
        }
        *count = 0;
        if on == GHOST {
            self.lists.remove(page);
        }
        let full = self.lists.len(SMALL) + self.lists.len(MAIN) >= self.capacity;
        let evicted = if full { self.evict() } else { None };
        let fills = !self.has_evicted && self.lists.len(SMALL) >= self.small_most;
        let to = if on == GHOST || fills { MAIN } else { SMALL };
        self.lists.push(to, page);
        Access::Miss { evicted }
    }
}

//! Least recently used.

use super::lists::Lists;
use super::{Access, Rule};

pub(crate) struct Lru {
    lists: Lists,
    capacity: u32,
}

impl Lru {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        Self {
            lists: Lists::new(pages, 1),
            capacity,
        }
    }
}

impl Rule for Lru {
    fn access(&mut self, page: u32) -> Access {
        if self.lists.on(page) == 0 {
            self.lists.renew(0, page);
            return Access::Hit;
        }
        let full = self.lists.len(0) >= self.capacity;
        let evicted = if full { self.lists.pop(0) } else { None };
        self.lists.push(0, page);
        Access::Miss { evicted }
    }
}

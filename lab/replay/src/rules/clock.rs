//! A hand goes round and takes the first page that was not accessed since it last came by.

use super::lists::Lists;
use super::{Access, Rule};

pub(crate) struct Clock {
    lists: Lists,
    accessed: Vec<bool>,
    capacity: u32,
}

impl Clock {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        Self {
            lists: Lists::new(pages, 1),
            accessed: vec![false; pages as usize],
            capacity,
        }
    }

    fn evict(&mut self) -> Option<u32> {
        loop {
            let page = self.lists.pop(0)?;
            if !core::mem::take(&mut self.accessed[page as usize]) {
                return Some(page);
            }
            self.lists.push(0, page);
        }
    }
}

impl Rule for Clock {
    fn access(&mut self, page: u32) -> Access {
        if self.lists.on(page) == 0 {
            self.accessed[page as usize] = true;
            return Access::Hit;
        }
        let full = self.lists.len(0) >= self.capacity;
        let evicted = if full { self.evict() } else { None };
        self.lists.push(0, page);
        Access::Miss { evicted }
    }
}

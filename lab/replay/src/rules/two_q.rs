//! 2Q: a page has to come back after it went to be worth a place for long.
//!
//! ```text
//!   new page --> IN, first in first out --(gone)--> OUT, its name alone --(accessed)--> MAIN, LRU
//! ```
//!
//! Source: Johnson and Shasha, 2Q: A Low Overhead High Performance Buffer Management Replacement
//! Algorithm, VLDB 1994, full version. Kin and Kout are as there: a quarter, and half.

use super::lists::Lists;
use super::{Access, Rule, percent};

const IN: u8 = 0;
const OUT: u8 = 1;
const MAIN: u8 = 2;

pub(crate) struct TwoQ {
    lists: Lists,
    capacity: u32,
    in_most: u32,
    out_most: u32,
}

impl TwoQ {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        Self {
            lists: Lists::new(pages, 3),
            capacity,
            in_most: percent(capacity, 25),
            out_most: percent(capacity, 50),
        }
    }

    fn make_room(&mut self) -> Option<u32> {
        let lists = &mut self.lists;
        if lists.len(IN) + lists.len(MAIN) < self.capacity {
            return None;
        }
        if lists.len(IN) <= self.in_most && lists.len(MAIN) > 0 {
            return lists.pop(MAIN);
        }
        let page = lists.pop(IN)?;
        if lists.len(OUT) >= self.out_most {
            lists.pop(OUT);
        }
        lists.push(OUT, page);
        Some(page)
    }
}

impl Rule for TwoQ {
    fn access(&mut self, page: u32) -> Access {
        match self.lists.on(page) {
            IN => return Access::Hit,
            MAIN => {
                self.lists.renew(MAIN, page);
                return Access::Hit;
            }
            _ => {}
        }
        let came_back = self.lists.on(page) == OUT;
        if came_back {
            self.lists.remove(page);
        }
        let evicted = self.make_room();
        self.lists.push(if came_back { MAIN } else { IN }, page);
        Access::Miss { evicted }
    }
}

//! ARC: one list of pages seen once, one of pages seen again, and between them a border that moves
//! towards the one whose ghosts come back.
//!
//! Source: Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003,
//! figure 4. The border moves by whole pages.

use super::lists::Lists;
use super::{Access, Rule};

/// Seen once; seen again; and the ghosts of each.
const ONCE: u8 = 0;
const AGAIN: u8 = 1;
const ONCE_GHOST: u8 = 2;
const AGAIN_GHOST: u8 = 3;

pub(crate) struct Arc {
    lists: Lists,
    capacity: u32,
    /// Pages that the list of those seen once is to have.
    target: u32,
}

impl Arc {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        Self {
            lists: Lists::new(pages, 4),
            capacity,
            target: 0,
        }
    }

    /// Takes one page out of memory; its ghost stays.
    fn replace(&mut self, for_again_ghost: bool) -> Option<u32> {
        let once = self.lists.len(ONCE);
        let from_once = once > 0 && (once > self.target || for_again_ghost && once == self.target);
        let (from, ghost) = if from_once || self.lists.len(AGAIN) == 0 {
            (ONCE, ONCE_GHOST)
        } else {
            (AGAIN, AGAIN_GHOST)
        };
        let page = self.lists.pop(from)?;
        self.lists.push(ghost, page);
        Some(page)
    }

    fn came_back(&mut self, page: u32, ghost: u8) -> Option<u32> {
        let [once, again] = [ONCE_GHOST, AGAIN_GHOST].map(|list| self.lists.len(list));
        if ghost == ONCE_GHOST {
            self.target = (self.target + (again / once).max(1)).min(self.capacity);
        } else {
            self.target = self.target.saturating_sub((once / again).max(1));
        }
        let evicted = self.replace(ghost == AGAIN_GHOST);
        self.lists.renew(AGAIN, page);
        evicted
    }

    fn is_new(&mut self, page: u32) -> Option<u32> {
        let len = |list| self.lists.len(list);
        let first = len(ONCE) + len(ONCE_GHOST);
        let all = first + len(AGAIN) + len(AGAIN_GHOST);
        let evicted = if first >= self.capacity {
            if len(ONCE) < self.capacity {
                self.lists.pop(ONCE_GHOST);
                self.replace(false)
            } else {
                self.lists.pop(ONCE)
            }
        } else if all >= self.capacity {
            if all >= 2 * self.capacity {
                self.lists.pop(AGAIN_GHOST);
            }
            self.replace(false)
        } else {
            None
        };
        self.lists.push(ONCE, page);
        evicted
    }
}

impl Rule for Arc {
    fn access(&mut self, page: u32) -> Access {
        let evicted = match self.lists.on(page) {
            ONCE | AGAIN => {
                self.lists.renew(AGAIN, page);
                return Access::Hit;
            }
            ghost @ (ONCE_GHOST | AGAIN_GHOST) => self.came_back(page, ghost),
            _ => self.is_new(page),
        };
        Access::Miss { evicted }
    }
}

//! Reuse: pages compete by how long they were not used, and a page that comes back has to have been
//! away for less long than the oldest that stays has been idle.
//!
//! ```text
//!                         two hits, or room at the start
//!   new page --> YOUNG, a queue -------------------------> MAIN, in order of use, lazily
//!                  |  ^                                     |
//!       (no hits)  v  | was away longer                     v (oldest)
//!                 ghosts <----------------------------------'
//!                  '--- was away less long than MAIN's oldest page is idle --> MAIN
//! ```
//!
//! Time is the number of misses so far, as a node's age is (`policy::reclaim::workingset`). A hit
//! stores the time into its page, if it is another, and counts up to two: no list moves and no lock
//! is taken. MAIN is put in order when something has to go: a page at its old end that was hit goes
//! to the new end, once for each hit that was counted, so that of pages used as lately the one
//! stays that is used more.
//!
//! The part of YOUNG adapts. A page that comes back within a hundredth of memory after it left
//! YOUNG would have been hit had YOUNG been that much larger. One that comes back so soon after it
//! left MAIN says the opposite, for as many as leave YOUNG while one leaves MAIN.
//!
//! Invariants
//!   1. YOUNG's part is between a hundredth and half of memory.
//!   2. A loop over more than memory keeps what is in MAIN: a page of it was away for a round,
//!      MAIN's oldest is idle for less.
//!   3. A scan takes YOUNG alone: what comes once has no ghost, and goes first.
//!
//! State: 12 bytes a frame (two links, time of use) and a count of two bits; 8 a ghost (times of
//! use and of leaving, where it was), two ghosts a page of memory.
//!
//! Source: docs/adr/0028. After LIRS (Jiang and Zhang, SIGMETRICS 2002: reuse against recency, a
//! hundredth for what is new), S3-FIFO (Yang et al., SOSP 2023: nothing moves on a hit, two hits to
//! stay), ARC (Megiddo and Modha, FAST 2003: ghosts move a border), Linux' refault distance.

use super::lists::Lists;
use super::{Access, Rule, percent};

const YOUNG: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

/// Hits that make a young page stay: the first may belong to the access that brought it (S3-FIFO).
/// More are not counted.
const STAYS: u8 = 2;
/// YOUNG's part at least, in hundredths (LIRS), and at most; how far its border is looked beyond.
const YOUNG_LEAST: u32 = 1;
const YOUNG_MOST: u32 = 50;
/// Pages that the border moves at once, at most.
const STEP_MOST: u32 = 64;
/// Ghosts, in hundredths of memory: with what is in memory three times as many pages are known.
const GHOSTS: u32 = 200;

/// What is known of a page, in memory or gone.
#[derive(Clone, Copy, Default)]
struct Page {
    /// When it was used last.
    used: u32,
    /// Of a ghost: when it went.
    gone: u32,
    hits: u8,
    /// Of a ghost: it was in MAIN.
    main: bool,
}

pub(crate) struct Reuse {
    lists: Lists,
    pages: Vec<Page>,
    /// Misses so far.
    now: u32,
    capacity: u32,
    /// Pages that YOUNG is to have, and between what.
    young: u32,
    young_least: u32,
    young_most: u32,
    ghosts: u32,
    /// Pages that left YOUNG, and MAIN; halved when they are as many as memory has.
    left: [u32; 2],
}

impl Reuse {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        let young = percent(capacity, YOUNG_LEAST).max(1);
        Self {
            lists: Lists::new(pages, 3),
            pages: vec![Page::default(); pages as usize],
            now: 0,
            capacity,
            young,
            young_least: young,
            young_most: percent(capacity, YOUNG_MOST).max(1),
            ghosts: percent(capacity, GHOSTS),
            left: [0; 2],
        }
    }

    fn hit(&mut self, page: u32) {
        let page = &mut self.pages[page as usize];
        page.used = self.now;
        page.hits = (page.hits + 1).min(STAYS);
    }

    fn put(&mut self, list: u8, page: u32) {
        self.pages[page as usize].hits = 0;
        self.lists.push(list, page);
    }

    /// The page of MAIN that is idle for longest.
    fn oldest(&mut self) -> Option<u32> {
        loop {
            let page = self.lists.oldest(MAIN)?;
            let hits = &mut self.pages[page as usize].hits;
            if *hits == 0 {
                return Some(page);
            }
            *hits -= 1;
            self.lists.renew(MAIN, page);
        }
    }

    /// Takes a page out of memory.
    fn evict(&mut self) -> Option<u32> {
        let (page, main) = loop {
            let main_is_over = self.lists.len(MAIN) + self.young > self.capacity;
            if main_is_over || self.lists.len(YOUNG) == 0 {
                let page = self.oldest()?;
                self.lists.remove(page);
                break (page, true);
            }
            let page = self.lists.pop(YOUNG)?;
            if self.pages[page as usize].hits < STAYS {
                break (page, false);
            }
            self.put(MAIN, page);
        };
        if self.lists.len(GHOST) >= self.ghosts {
            self.lists.pop(GHOST);
        }
        self.put(GHOST, page);
        let at = &mut self.pages[page as usize];
        (at.gone, at.main) = (self.now, main);
        self.left[usize::from(main)] += 1;
        if self.left[0] + self.left[1] > self.capacity {
            self.left = self.left.map(|left| left / 2);
        }
        Some(page)
    }

    /// A ghost comes back: where YOUNG's border should be.
    fn adapt(&mut self, ghost: Page) {
        if self.now - ghost.gone > self.young_least {
            return;
        }
        // As many as leave the one while a page leaves the other.
        let [young, main] = self.left.map(|left| left + 1);
        self.young = if ghost.main {
            let fewer = (young / main).clamp(1, STEP_MOST);
            self.young.saturating_sub(fewer).max(self.young_least)
        } else {
            let more = (main / young).clamp(1, STEP_MOST);
            (self.young + more).min(self.young_most)
        };
    }

    fn stays(&mut self, ghost: Page) -> bool {
        let oldest = self.oldest();
        oldest.is_none_or(|oldest| self.pages[oldest as usize].used < ghost.used)
    }
}

impl Rule for Reuse {
    fn access(&mut self, page: u32) -> Access {
        let on = self.lists.on(page);
        if on == YOUNG || on == MAIN {
            self.hit(page);
            return Access::Hit;
        }
        self.now += 1;
        let is_full = self.lists.len(YOUNG) + self.lists.len(MAIN) >= self.capacity;
        let stays = if on == GHOST {
            let ghost = self.pages[page as usize];
            self.lists.remove(page);
            self.adapt(ghost);
            self.stays(ghost)
        } else {
            !is_full && self.lists.len(MAIN) + self.young < self.capacity
        };
        let evicted = if is_full { self.evict() } else { None };
        self.put(if stays { MAIN } else { YOUNG }, page);
        self.pages[page as usize].used = self.now;
        Access::Miss { evicted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hits of these accesses.
    fn hits(rule: &mut Reuse, pages: impl IntoIterator<Item = u32>) -> usize {
        let accesses = pages.into_iter().map(|page| rule.access(page));
        accesses.filter(|access| *access == Access::Hit).count()
    }

    #[test]
    fn a_loop_over_more_than_memory_hits_for_all_but_what_is_young() {
        let mut rule = Reuse::new(1500, 1000);
        hits(&mut rule, 0..1500);
        for _ in 0..20 {
            // All of memory but its young hundredth.
            assert_eq!(hits(&mut rule, 0..1500), 990);
        }
    }

    #[test]
    fn a_scan_of_ten_times_memory_takes_nothing_of_a_hot_set() {
        let mut rule = Reuse::new(20_000, 1000);
        for _ in 0..3 {
            hits(&mut rule, 0..600);
        }
        let mut hot = 0;
        for scanned in 10_000..20_000 {
            rule.access(scanned);
            hot += hits(&mut rule, [scanned % 600]);
        }
        assert_eq!(hot, 10_000);
    }

    #[test]
    fn a_set_that_moves_is_followed() {
        let mut rule = Reuse::new(4000, 1000);
        for set in 0..5 {
            let pages = set * 700..(set + 1) * 700;
            for _ in 0..4 {
                hits(&mut rule, pages.clone());
            }
            assert_eq!(hits(&mut rule, pages), 700, "set {set}");
        }
    }

    #[test]
    fn young_grows_where_pages_come_back_just_after_they_went() {
        let mut rule = Reuse::new(100_000, 1000);
        hits(&mut rule, 0..1000);
        // New pages, each once more when 12 others have come: two more than are young at first.
        for page in 1000..3000 {
            hits(&mut rule, [page, page - 12]);
        }
        assert!(rule.young > 12, "{}", rule.young);
        assert!(rule.young <= rule.young_most);
    }
}

//! The multi-generational LRU of Linux 6.12, of pages of files that are read by calls.
//!
//! ```text
//!   oldest                                               youngest
//!   min_seq         min_seq + 1                           max_seq
//!   [ generation ]  [ generation ]  [ generation ]  [ generation ]
//!       |  ^              ^  ^
//!       |  '--------------+--'-- a page comes in: oldest of three, second oldest of four
//!       |  in a tier that is protected
//!       v
//!     goes, unless it is in a tier that is protected
//! ```
//!
//! Pages are in two to four generations. A hit moves nothing: it counts a use. A page that a call
//! brings in begins at the old end, and has to be used again to stay: only a page of a page table
//! that is found young goes to the youngest generation. *Ageing* begins a new, empty generation;
//! the oldest is given up when it is empty.
//!
//! *Tiers* are the logarithms of uses after the first. While the oldest generation is emptied, it
//! is counted by tier how many pages went, how many of these came back before it was empty, and how
//! many were protected. A tier is protected if, of what went from it, more than twice the part came
//! back that came back of tier 0; a page goes one generation up for it, to the old end, and begins
//! anew. Counts of earlier generations weigh half, a quarter, and so on. A page of the last tier is
//! protected in any case, and one that comes back with three uses after the first is of it at once.
//!
//! Invariants
//!   1. There are two to four generations, and no page goes while there are two.
//!   2. A page in the oldest generation is protected once: its uses are zero then.
//!
//! Source: Linux 6.12 include/linux/mmzone.h (generations, tiers), include/linux/mm_inline.h
//! (`lru_tier_from_refs`, `folio_lru_refs`, `lru_gen_add_folio`), mm/swap.c (`folio_inc_refs`),
//! mm/workingset.c (`lru_gen_eviction`, `lru_gen_refault`), mm/vmscan.c (`read_ctrl_pos`,
//! `reset_ctrl_pos`, `positive_ctrl_err`, `get_tier_idx`, `sort_folio`, `try_to_inc_min_seq`,
//! `should_run_aging`), Documentation/mm/multigen_lru.rst.
//!
//! Deviations: one page goes at a time, and ageing is looked at before each, where the kernel
//! isolates 64 and ages from the second priority on. A write counts as a read. Left out, as a trace
//! says nothing of it: page tables, so their walks, Bloom filters and pages that are young when
//! they come in; anonymous memory, so swappiness, which chooses between the two; time, so
//! `min_ttl_ms`; dirty pages, which are put one generation up; cgroups.

use super::lists::Lists;
use super::{Access, Rule};

const GENERATIONS_MOST: u32 = LISTS as u32;
const LISTS: u8 = 4;
const GENERATIONS_LEAST: u32 = 2;
const TIERS: usize = 4;
/// Uses of a page are counted up to this: the first, and four after it.
const USES_MOST: u8 = 5;
/// Uses after the first with which a page that comes back is of the last tier at once.
const KNOWN: u8 = 3;
/// Pages that came back, below which a tier is not protected; and the weight of tier 0's misses
/// where it has few.
const BATCH: u64 = 64;
/// A tier is protected if its part that came back is above so many times that of tier 0.
const GAIN: u64 = 2;

/// The tier of a page that was used so many times after the first.
fn tier(again: u8) -> usize {
    let above = u32::from(again) + 1;
    above.next_power_of_two().trailing_zeros() as usize
}

/// Fate of the pages of a tier.
#[derive(Clone, Copy, Default)]
struct Fate {
    /// Came back after they went.
    refaulted: u64,
    /// Went, or were protected.
    total: u64,
}

/// Fate of pages, by tier: of the generation that is emptied now, and on average before.
#[derive(Default)]
struct Fates {
    now: [Fate; TIERS],
    before: [Fate; TIERS],
}

impl Fates {
    fn of(&self, tier: usize) -> Fate {
        let (now, before) = (self.now[tier], self.before[tier]);
        Fate {
            refaulted: now.refaulted + before.refaulted,
            total: now.total + before.total,
        }
    }

    /// The last tier that is not protected.
    fn last_that_goes(&self) -> usize {
        let first = self.of(0);
        let goes = |tier: &usize| {
            let Fate { refaulted, total } = self.of(*tier);
            refaulted < BATCH
                || refaulted * (first.total + BATCH) <= (first.refaulted + 1) * total * GAIN
        };
        (1..TIERS).take_while(goes).last().unwrap_or(0)
    }

    /// The generation is empty.
    fn carry_over(&mut self) {
        for tier in 0..TIERS {
            let Fate { refaulted, total } = self.of(tier);
            self.before[tier] = Fate {
                refaulted: refaulted / 2,
                total: total / 2,
            };
        }
        self.now = [Fate::default(); TIERS];
    }
}

/// Memory of a page that went.
#[derive(Clone, Copy)]
struct Ghost {
    /// The oldest generation at that time.
    min_seq: u32,
    /// Uses after the first.
    again: u8,
}

pub(crate) struct Mglru {
    /// By number of a generation, modulo their most.
    lists: Lists,
    min_seq: u32,
    max_seq: u32,
    fates: Fates,
    /// By page: uses in its generation.
    uses: Vec<u8>,
    ghosts: Vec<Option<Ghost>>,
    cached: u32,
    capacity: u32,
}

/// The list of a generation.
fn list(seq: u32) -> u8 {
    u8::try_from(seq % GENERATIONS_MOST).expect("lists are few")
}

impl Mglru {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        Self {
            lists: Lists::new(pages, LISTS),
            min_seq: 0,
            max_seq: GENERATIONS_LEAST + 1,
            fates: Fates::default(),
            uses: vec![0; pages as usize],
            ghosts: vec![None; pages as usize],
            cached: 0,
            capacity,
        }
    }

    fn generations(&self) -> u32 {
        self.max_seq - self.min_seq + 1
    }

    fn len(&self, seq: u32) -> u32 {
        self.lists.len(list(seq))
    }

    /// Whether a new generation is to begin: there are too few to empty one, or, of three, the
    /// youngest has more than half of the pages, or the oldest less than a quarter.
    fn has_to_age(&self) -> bool {
        match self.generations() {
            ..=GENERATIONS_LEAST => true,
            GENERATIONS_MOST.. => false,
            _ => {
                let (young, old) = (self.len(self.max_seq), self.len(self.min_seq));
                young > self.cached / GENERATIONS_LEAST
                    || old < self.cached.div_ceil(GENERATIONS_LEAST + 2)
            }
        }
    }

    /// Gives up the oldest generations that are empty.
    fn give_up_empty(&mut self) {
        let before = self.min_seq;
        while self.generations() > GENERATIONS_LEAST && self.len(self.min_seq) == 0 {
            self.min_seq += 1;
        }
        if self.min_seq != before {
            self.fates.carry_over();
        }
    }

    /// The page of the oldest generation that goes; those that are protected have been moved.
    fn pop(&mut self) -> Option<u32> {
        let last_that_goes = self.fates.last_that_goes();
        while let Some(page) = self.lists.pop(list(self.min_seq)) {
            let again = self.uses[page as usize].saturating_sub(1);
            let tier = tier(again);
            self.fates.now[tier].total += 1;
            if tier <= last_that_goes && tier + 1 < TIERS {
                self.ghosts[page as usize] = Some(Ghost {
                    min_seq: self.min_seq,
                    again,
                });
                return Some(page);
            }
            self.uses[page as usize] = 0;
            self.lists.push_old(list(self.min_seq + 1), page);
        }
        None
    }

    fn evict(&mut self) -> Option<u32> {
        while self.cached > 0 {
            if self.has_to_age() {
                self.max_seq += 1;
            }
            let page = self.pop();
            self.give_up_empty();
            if page.is_some() {
                self.cached -= 1;
                return page;
            }
        }
        None
    }

    /// A page comes back if it went from the generation that is still being emptied: answers how
    /// often it counts as used before.
    fn refault(&mut self, page: u32) -> u8 {
        let ghost = self.ghosts[page as usize].take();
        let Some(Ghost { again, .. }) = ghost.filter(|ghost| ghost.min_seq == self.min_seq) else {
            return 0;
        };
        self.fates.now[tier(again)].refaulted += 1;
        if again >= KNOWN { USES_MOST } else { 0 }
    }
}

impl Rule for Mglru {
    fn access(&mut self, page: u32) -> Access {
        if self.lists.on(page) < LISTS {
            let uses = &mut self.uses[page as usize];
            *uses = (*uses + 1).min(USES_MOST);
            return Access::Hit;
        }
        let is_full = self.cached >= self.capacity;
        let evicted = if is_full { self.evict() } else { None };
        let before = self.refault(page);
        self.uses[page as usize] = (before + 1).min(USES_MOST);
        let has_most = self.generations() == GENERATIONS_MOST;
        self.lists
            .push(list(self.min_seq + u32::from(has_most)), page);
        self.cached += 1;
        Access::Miss { evicted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u32 = 400;

    /// With pages from 0 in memory, as many as there is room for, each used once.
    fn filled(pages: u32) -> Mglru {
        let mut rule = Mglru::new(pages, MEMORY);
        for page in 0..MEMORY {
            rule.access(page);
        }
        rule
    }

    fn is_cached(rule: &Mglru, page: u32) -> bool {
        rule.lists.on(page) < LISTS
    }

    #[test]
    fn tiers_are_logarithms_of_uses_after_the_first() {
        assert_eq!([0, 1, 2, 3, 4].map(tier), [0, 1, 2, 2, 3]);
        assert_eq!(tier(USES_MOST - 1), TIERS - 1);
    }

    #[test]
    fn a_tier_is_protected_if_it_comes_back_more_than_twice_as_often_as_the_first() {
        let fates = |of_first, of_second| {
            let mut fates = Fates::default();
            for (tier, (refaulted, total)) in [of_first, of_second].into_iter().enumerate() {
                fates.now[tier] = Fate { refaulted, total };
            }
            fates
        };
        // By parts that came back of the first tier and of the second.
        for (first, second, last) in [
            ((0, 0), (0, 0), 3),
            ((100, 1000), (199, 1000), 0),
            ((100, 1000), (189, 1000), 3),
            ((10, 1000), (63, 100), 3),
            ((10, 1000), (64, 100), 0),
        ] {
            let found = fates(first, second).last_that_goes();
            assert_eq!(found, last, "{first:?} {second:?}");
        }
        let mut fates = fates((10, 1000), (100, 100));
        fates.carry_over();
        // 50 are too few.
        assert_eq!(fates.last_that_goes(), 3);
        fates.now[1] = Fate {
            refaulted: 14,
            total: 14,
        };
        assert_eq!(fates.last_that_goes(), 0);
    }

    #[test]
    fn pages_begin_second_oldest_of_four_and_oldest_of_three() {
        let mut rule = filled(MEMORY + 1);
        assert_eq!((rule.generations(), rule.len(1)), (4, MEMORY));
        assert_eq!(rule.access(MEMORY), Access::Miss { evicted: Some(0) });
        assert_eq!((rule.min_seq, rule.generations()), (1, 3));
        assert_eq!(u32::from(rule.lists.on(MEMORY)), rule.min_seq);
    }

    #[test]
    fn of_three_generations_the_parts_of_the_young_and_the_old_say_when_to_age() {
        let mut rule = filled(MEMORY + 1);
        assert!(!rule.has_to_age(), "four");
        rule.access(MEMORY);
        let mut pages = 1..;
        let mut move_to = |rule: &mut Mglru, seq: u32, count: usize| {
            for page in pages.by_ref().take(count) {
                rule.lists.renew(list(seq), page);
            }
        };
        move_to(&mut rule, 2, 300);
        assert!(!rule.has_to_age(), "a quarter is old");
        move_to(&mut rule, 2, 1);
        assert!(rule.has_to_age(), "less than a quarter is old");
        let mut rule = filled(MEMORY + 1);
        rule.access(MEMORY);
        let mut pages = 1..;
        for page in pages.by_ref().take(200) {
            rule.lists.renew(list(3), page);
        }
        assert!(!rule.has_to_age(), "half is young");
        rule.lists.renew(list(3), 300);
        assert!(rule.has_to_age(), "more than half is young");
    }

    #[test]
    fn five_uses_protect_a_page_and_four_do_not_where_nothing_comes_back() {
        let mut rule = filled(3 * MEMORY);
        for (page, uses) in [(0, 5), (1, 4)] {
            for _ in 1..uses {
                assert_eq!(rule.access(page), Access::Hit);
            }
        }
        for page in MEMORY..3 * MEMORY {
            rule.access(page);
        }
        assert!(is_cached(&rule, 0) && !is_cached(&rule, 1));
        assert_eq!(rule.cached, MEMORY);
    }

    #[test]
    fn a_protected_page_that_is_used_no_more_goes_when_its_turn_has_come() {
        let mut rule = Mglru::new(5 * MEMORY, MEMORY);
        for page in 0..5 * MEMORY {
            for _ in 0..USES_MOST {
                rule.access(page);
            }
            assert!((GENERATIONS_LEAST..=GENERATIONS_MOST).contains(&rule.generations()));
        }
        assert!(!is_cached(&rule, 0));
        assert!(is_cached(&rule, 5 * MEMORY - 1));
        assert_eq!(rule.cached, MEMORY);
    }

    #[test]
    fn pages_that_come_back_count_while_their_generation_is_the_oldest() {
        let mut rule = filled(2 * MEMORY);
        let (min_seq, page) = (rule.min_seq, MEMORY);
        for (seq, again, counted, before) in [
            (min_seq + 1, KNOWN, 0, 0),
            (min_seq, KNOWN, 1, USES_MOST),
            (min_seq, KNOWN - 1, 2, 0),
        ] {
            rule.ghosts[page as usize] = Some(Ghost {
                min_seq: seq,
                again,
            });
            assert_eq!(rule.refault(page), before);
            assert_eq!(rule.fates.now[2].refaulted, counted);
        }
        assert_eq!(rule.refault(page), 0, "its ghost is gone");
    }

    /// Hits of the first rounds and of the last, over pages that are read twice in a row and come
    /// round when more pages than memory have been read.
    #[test]
    fn a_tier_that_comes_back_is_protected_from_a_scan() {
        const SET: u32 = MEMORY / 4 * 3;
        let mut rule = Mglru::new(100 * MEMORY, MEMORY);
        let mut scan = MEMORY..;
        let mut hits = [0; 2];
        for round in 0..20 {
            for page in 0..SET {
                for _ in 0..2 {
                    let hit = rule.access(page) == Access::Hit;
                    hits[usize::from(round >= 10)] += u32::from(hit);
                }
                rule.access(scan.next().expect("a scan without an end"));
            }
        }
        assert!(hits[1] > hits[0], "{hits:?}");
    }
}

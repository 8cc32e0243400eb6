//! Any rule of the cache (`policy::rule`) over a trace: two queues, words and ghosts as the cache
//! has them, one page at a time.
//!
//! The cache has more beside: clusters of 32, a background reclaimer, dirty and pinned pages. A
//! preset with the rule has all of it (`tidegate+reuse`).

use policy::rule::{Clock, Coming, End, Ghost, PageRule, Queue, Queues, Use, used};
use policy::units::Pages;

use super::lists::Lists;
use super::{Access, Rule};

const YOUNG: u8 = 0;
const MAIN: u8 = 1;
const NONE: u8 = 2;
/// No ghost: more than its bits.
const NO_GHOST: u32 = u32::MAX;

pub(crate) struct TwoQueues<R> {
    rule: R,
    clock: Clock,
    lists: Lists,
    /// By page: its word.
    words: Vec<u32>,
    /// By page: the ghost that it left when it was evicted.
    ghosts: Vec<u32>,
    capacity: u32,
}

fn list(queue: Queue) -> u8 {
    match queue {
        Queue::Young => YOUNG,
        Queue::Main => MAIN,
    }
}

impl<R: PageRule> TwoQueues<R> {
    pub(crate) fn new(
        pages: u32,
        capacity: u32,
        rule: impl FnOnce(policy::rule::Memory) -> R,
    ) -> Self {
        let clock = Clock::new(Pages(u64::from(capacity)));
        Self {
            rule: rule(clock.memory()),
            clock,
            lists: Lists::new(pages, NONE),
            words: vec![0; pages as usize],
            ghosts: vec![NO_GHOST; pages as usize],
            capacity,
        }
    }

    /// Looks at the page at an end of a queue: true if it is evicted. One that stays has been
    /// moved.
    fn look(&mut self, queue: Queue, end: End) -> Option<(u32, Use, bool)> {
        let page = match end {
            End::Old => self.lists.oldest(list(queue)),
            End::New => self.lists.newest(list(queue)),
        }?;
        let now = self.clock.now();
        let mut used = Use::of(self.words[page as usize], now);
        let to = self.rule.look(queue, &mut used);
        if let Some(to) = to {
            self.words[page as usize] = used.word(now);
            self.lists.remove(page);
            self.lists.push(list(to), page);
        }
        Some((page, used, to.is_none()))
    }

    fn evict(&mut self) -> Option<u32> {
        loop {
            let queues = Queues {
                young: Pages(u64::from(self.lists.len(YOUNG))),
                main: Pages(u64::from(self.lists.len(MAIN))),
                ahead: Pages::ZERO,
            };
            let (queue, end) = self.rule.next(&queues);
            let (page, used, goes) = self.look(queue, end)?;
            if goes {
                self.lists.remove(page);
                let is_ghost = self.rule.went(queue);
                let ghost = Ghost::of(used, queue).bits(self.clock.now());
                self.ghosts[page as usize] = if is_ghost { ghost } else { NO_GHOST };
                return Some(page);
            }
        }
    }

    /// The page of the main queue that would go first.
    fn oldest(&mut self) -> Option<Use> {
        loop {
            let (_, used, goes) = self.look(Queue::Main, End::Old)?;
            if goes {
                return Some(used);
            }
        }
    }
}

impl<R: PageRule> Rule for TwoQueues<R> {
    fn access(&mut self, page: u32) -> Access {
        if self.lists.on(page) != NONE {
            let word = &mut self.words[page as usize];
            *word = used(*word, self.clock.now());
            return Access::Hit;
        }
        self.clock.arrive(Pages(1), false);
        let now = self.clock.now();
        let bits = std::mem::replace(&mut self.ghosts[page as usize], NO_GHOST);
        let ghost = (bits != NO_GHOST).then(|| Ghost::from_bits(bits, now));
        let is_full = self.lists.len(YOUNG) + self.lists.len(MAIN) >= self.capacity;
        let compares = ghost.is_some() && self.rule.compares();
        let coming = Coming {
            ghost,
            has_room: !is_full,
            oldest: if compares { self.oldest() } else { None },
        };
        let queue = self.rule.place(&coming);
        let evicted = if is_full { self.evict() } else { None };
        self.lists.push(list(queue), page);
        self.words[page as usize] = used(0, now);
        Access::Miss { evicted }
    }
}

#[cfg(test)]
mod tests {
    use policy::rule::reuse::Reuse;

    use super::*;

    /// Of a trace of `pages` pages, with a memory of a thousand.
    fn of(pages: u32) -> TwoQueues<Reuse> {
        TwoQueues::new(pages, 1000, Reuse::new)
    }

    /// Hits of these accesses.
    fn hits(rule: &mut TwoQueues<Reuse>, pages: impl IntoIterator<Item = u32>) -> usize {
        let accesses = pages.into_iter().map(|page| rule.access(page));
        accesses.filter(|access| *access == Access::Hit).count()
    }

    #[test]
    fn a_loop_over_more_than_memory_hits_for_all_but_what_is_young() {
        let mut rule = of(1500);
        hits(&mut rule, 0..1500);
        for _ in 0..20 {
            // All of memory but its young hundredth.
            assert_eq!(hits(&mut rule, 0..1500), 990);
        }
    }

    #[test]
    fn a_scan_of_ten_times_memory_takes_nothing_of_a_hot_set() {
        let mut rule = of(20_000);
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
        let mut rule = of(4000);
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
        let mut rule = of(100_000);
        hits(&mut rule, 0..1000);
        // New pages, each once more when 12 others have come: two more than are young at first.
        for page in 1000..3000 {
            hits(&mut rule, [page, page - 12]);
        }
        let young = rule.rule.young();
        assert!(young > Pages(12) && young <= Pages(500), "{young:?}");
    }
}

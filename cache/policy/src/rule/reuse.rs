//! Reuse: pages compete by how long they were not used, and a page that comes back has to have been
//! away for less long than the oldest that stays has been idle.
//!
//! ```text
//!                         used again, or room at the start
//!   new page --> young, a queue -------------------------> main, in order of use, lazily
//!                  |  ^                                     |
//!      (not used) v  | was away longer                     v (oldest)
//!                 ghosts <----------------------------------'
//!                  '--- was away less long than main's oldest page is idle --> main
//! ```
//!
//! The part of the young adapts. A page that comes back within a hundredth of memory after it left
//! them would have been hit had they been that many more. One that comes back so soon after it left
//! main says the opposite, for as many as leave the young while one leaves main.
//!
//! Invariants
//!   1. The young's part is between a hundredth and half of memory.
//!   2. A loop over more than memory keeps what is in main: a page of it was away for a round,
//!      main's oldest is idle for less.
//!   3. A scan takes young pages alone: what comes once has no ghost, and goes first.
//!
//! Source: docs/adr/0028. After LIRS (Jiang and Zhang, SIGMETRICS 2002: reuse against recency, a
//! hundredth for what is new), 2Q (Johnson and Shasha, VLDB 1994: uses soon after the first say
//! nothing), S3-FIFO (Yang et al., SOSP 2023: nothing moves on a hit), ARC (Megiddo and Modha, FAST
//! 2003: ghosts move a border), Linux' refault distance.

use super::{Coming, End, Ghost, Memory, PageRule, Queue, Queues, Use};
use crate::units::Pages;

/// Uses that make a young page stay: the one that brought it, and one in another tick.
const STAYS: u8 = 2;
/// The young's part at least, in hundredths (LIRS), and at most; how far its border is looked
/// beyond.
const YOUNG_LEAST: u64 = 1;
const YOUNG_MOST: u64 = 50;
/// Pages that the border moves at once, at most.
const STEP_MOST: u64 = 64;
/// The life of a ghost, in hundredths of memory: with the pages in memory three times as many are
/// known.
const GHOSTS: u64 = 200;

/// See the module.
#[derive(Clone, Debug)]
pub struct Reuse {
    memory: Memory,
    /// Pages that are to be young where pages of files have all of memory, and between what.
    young: Pages,
    least: Pages,
    most: Pages,
    /// Pages that left the young, and main; halved when they are as many as memory has.
    left: [u64; 2],
}

impl Reuse {
    /// For a memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        let least = memory.percent(YOUNG_LEAST);
        Self {
            memory,
            young: least,
            least,
            most: memory.percent(YOUNG_MOST),
            left: [0; 2],
        }
    }

    /// Pages that are to be young.
    #[must_use]
    pub fn young(&self) -> Pages {
        self.young
    }

    /// A ghost comes back: where the border should be.
    fn adapt(&mut self, ghost: Ghost) {
        if ghost.gone > self.memory.ticks_percent(YOUNG_LEAST) {
            return;
        }
        // As many as leave the one while a page leaves the other.
        let [young, main] = self.left.map(|left| left + 1);
        self.young = match ghost.from {
            Queue::Main => {
                let fewer = Pages((young / main).clamp(1, STEP_MOST));
                self.young.saturating_sub(fewer).at_least(self.least)
            }
            Queue::Young => {
                let more = Pages((main / young).clamp(1, STEP_MOST));
                (self.young + more).at_most(self.most)
            }
        };
    }
}

impl PageRule for Reuse {
    fn place(&mut self, coming: &Coming) -> Queue {
        if let Some(ghost) = coming.ghost {
            self.adapt(ghost);
        }
        coming.by_reuse(self.memory.ticks_percent(GHOSTS))
    }

    fn next(&self, queues: &Queues) -> (Queue, End) {
        (queues.next(self.young, self.memory.pages), End::Old)
    }

    fn look(&mut self, from: Queue, used: &mut Use) -> Option<Queue> {
        used.second_chance(from, STAYS)
    }

    fn went(&mut self, from: Queue) -> bool {
        self.left[usize::from(from == Queue::Main)] += 1;
        if self.left[0] + self.left[1] > self.memory.pages.0 {
            self.left = self.left.map(|left| left / 2);
        }
        true
    }

    fn compares(&self) -> bool {
        true
    }
}

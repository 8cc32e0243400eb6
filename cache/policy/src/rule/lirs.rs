//! LIRS by times instead of a stack: a page that comes back stays if it was away for less long than
//! the oldest that stays has been idle; new pages have a hundredth, whatever comes of it.
//!
//! Source: Jiang and Zhang, LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy,
//! SIGMETRICS 2002, section 3. Deviations: recency is in ticks, a hit moves nothing before its page
//! is looked at; ghosts mean something for two memories, as libCacheSim bounds the stack.

use super::{Coming, End, Memory, PageRule, Queue, Queues, Use};
use crate::units::Pages;

/// The part of new pages, in hundredths.
const HIGH: u64 = 1;
/// The life of a ghost, in hundredths of memory.
const GHOSTS: u64 = 200;

pub(super) struct Lirs {
    high: Pages,
    known: u32,
    memory: Pages,
}

impl Lirs {
    pub(super) fn new(memory: Memory) -> Self {
        Self {
            high: memory.percent(HIGH),
            known: memory.ticks_percent(GHOSTS),
            memory: memory.pages,
        }
    }
}

impl PageRule for Lirs {
    fn place(&mut self, coming: &Coming) -> Queue {
        coming.by_reuse(self.known)
    }

    fn next(&self, queues: &Queues) -> (Queue, End) {
        (queues.next(self.high, self.memory), End::Old)
    }

    fn look(&mut self, _: Queue, used: &mut Use) -> Option<Queue> {
        let is_used_again = used.count > 1;
        used.count = used.count.min(1);
        is_used_again.then_some(Queue::Main)
    }

    fn compares(&self) -> bool {
        true
    }
}

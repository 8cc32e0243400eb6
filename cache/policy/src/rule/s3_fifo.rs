//! S3-FIFO: a small queue that most pages only pass through, a main queue that goes round, and the
//! names of pages that left the small one.
//!
//! Source: Yang et al., FIFO Queues are All You Need for Cache Eviction, SOSP 2023, section 4.
//! Deviation: how many ghosts there are is bounded by how long ago they went.

use super::{COUNT_MOST, Coming, End, Memory, PageRule, Queue, Queues, Use};
use crate::units::Pages;

/// The small queue, and the ghosts, in hundredths of memory.
const SMALL: u64 = 10;
const GHOSTS: u64 = 90;

pub(super) struct S3Fifo {
    small: Pages,
    known: u32,
    memory: Pages,
}

impl S3Fifo {
    pub(super) fn new(memory: Memory) -> Self {
        Self {
            small: memory.percent(SMALL),
            known: memory.ticks_percent(GHOSTS),
            memory: memory.pages,
        }
    }
}

impl PageRule for S3Fifo {
    fn place(&mut self, coming: &Coming) -> Queue {
        let comes_back = coming.ghost.is_some_and(|ghost| ghost.gone <= self.known);
        if comes_back || coming.has_room {
            Queue::Main
        } else {
            Queue::Young
        }
    }

    fn next(&self, queues: &Queues) -> (Queue, End) {
        (queues.next(self.small, self.memory), End::Old)
    }

    fn look(&mut self, from: Queue, used: &mut Use) -> Option<Queue> {
        used.second_chance(from, COUNT_MOST)
    }

    fn went(&mut self, from: Queue) -> bool {
        from == Queue::Young
    }
}

//! MRU: what came last goes first. Of a loop over more than memory it hits all that has room, and
//! for everything else it is the wrong rule: a page that is used no more never goes.
//!
//! Source: Chou and DeWitt, An Evaluation of Buffer Management Strategies for Relational Database
//! Systems, VLDB 1985, section 4: MRU for loops. Deviation: by when pages came, not by when they
//! were used last.

use super::{Coming, End, PageRule, Queue, Queues, Use};

pub(super) struct Mru;

impl PageRule for Mru {
    fn place(&mut self, _: &Coming) -> Queue {
        Queue::Young
    }

    fn next(&self, queues: &Queues) -> (Queue, End) {
        if queues.young.is_zero() {
            (Queue::Main, End::New)
        } else {
            (Queue::Young, End::New)
        }
    }

    fn look(&mut self, _: Queue, _: &mut Use) -> Option<Queue> {
        None
    }

    fn went(&mut self, _: Queue) -> bool {
        false
    }
}

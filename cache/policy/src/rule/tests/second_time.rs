//! Second time: a page that comes back stays; new pages are first in, first out.
//!
//! Source: ours, the example of docs/work/add-a-policy.md.

use super::{Coming, End, PageRule, Queue, Queues, Use};

pub(super) struct SecondTime;

impl PageRule for SecondTime {
    fn place(&mut self, coming: &Coming) -> Queue {
        if coming.ghost.is_some() {
            Queue::Main
        } else {
            Queue::Young
        }
    }

    fn next(&self, queues: &Queues) -> (Queue, End) {
        if queues.young.is_zero() {
            (Queue::Main, End::Old)
        } else {
            (Queue::Young, End::Old)
        }
    }

    fn look(&mut self, _: Queue, _: &mut Use) -> Option<Queue> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::SecondTime;
    use crate::rule::tests::evicted;

    #[test]
    fn new_pages_go_in_order_and_one_that_came_back_stays() {
        let pages = [1, 2, 3, 4, 1, 5, 6, 7];
        assert_eq!(evicted(&mut SecondTime, 3, &pages), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn of_pages_that_came_back_the_first_goes_first() {
        let pages = [1, 2, 3, 1, 2, 3];
        assert_eq!(evicted(&mut SecondTime, 2, &pages), [1, 2, 3, 1]);
    }
}

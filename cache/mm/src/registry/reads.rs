//! The number of pages of a file that were read: a count that many threads add to.
//!
//! A file that is read much has a place for each thread, so that its readers do not wait for one
//! another, and a pin of a page in memory costs a nanosecond more for it; most files never have
//! them.

use std::sync::OnceLock;

use frames::sync::{AtomicU64, Ordering};
use frames::{SeatId, Tally};

/// Pages from which on a file has places.
const MANY: u64 = 1024;

#[derive(Default)]
pub(crate) struct Reads {
    first: AtomicU64,
    later: OnceLock<Tally>,
}

impl Reads {
    #[inline]
    pub(crate) fn add(&self, pages: u64) {
        if let Some(later) = self.later.get() {
            later.add(SeatId::mine(), pages);
        } else if self.first.fetch_add(pages, Ordering::Relaxed) >= MANY {
            self.later.get_or_init(Tally::default);
        }
    }

    pub(crate) fn all(&self) -> u64 {
        self.first.load(Ordering::Relaxed) + self.later.get().map_or(0, Tally::total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_where_threads_begin_to_have_places() {
        let reads = Reads::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2 * MANY).for_each(|_| reads.add(3)));
            }
        });
        assert_eq!(reads.all(), 4 * 2 * MANY * 3);
        assert!(reads.later.get().is_some());
    }
}

//! The number of pages of a file that were read: a count that many threads add to.
//!
//! A file that is read much has a place for each of some threads, a cache line apart, so that
//! readers of one file do not wait for one another; most files never have them.

use std::sync::OnceLock;

use frames::Spread;
use frames::sync::{AtomicU64, Ordering};

/// Pages from which on a file has places.
const MANY: u64 = 1024;

#[derive(Default)]
pub(crate) struct Reads {
    first: AtomicU64,
    later: OnceLock<Box<Spread>>,
}

impl Reads {
    pub(crate) fn add(&self, pages: u64) {
        if let Some(later) = self.later.get() {
            later.add(pages);
        } else if self.first.fetch_add(pages, Ordering::Relaxed) >= MANY {
            self.later.get_or_init(Box::default);
        }
    }

    pub(crate) fn all(&self) -> u64 {
        self.first.load(Ordering::Relaxed) + self.later.get().map_or(0, |later| later.get())
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

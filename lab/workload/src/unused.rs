//! The objects that shrinkers of files could free, told without the lock of their table.

use core::sync::atomic::{AtomicU64, Ordering};

use history::files::Objects;

/// Of each node, or of all together: entries, inodes and the file system's own, as last seen.
pub(crate) struct Unused(Box<[[AtomicU64; 3]]>);

impl Unused {
    pub(crate) fn new(lanes: usize) -> Self {
        Self((0..lanes).map(|_| Default::default()).collect())
    }

    pub(crate) fn tell(&self, lane: usize, seen: Objects) {
        let seen = [seen.entries, seen.inodes, seen.own];
        for (told, seen) in self.0[lane].iter().zip(seen) {
            told.store(seen, Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, lane: usize) -> Objects {
        let [entries, inodes, own] = self.0[lane].each_ref();
        let [entries, inodes, own] =
            [entries, inodes, own].map(|told| told.load(Ordering::Relaxed));
        Objects {
            entries,
            inodes,
            own,
        }
    }
}

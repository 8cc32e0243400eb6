//! Which way pages of a large call are copied: measured while they are.
//!
//! A copy through the caches reads each line of its target before it overwrites it; where a call is
//! larger than they are, that is a third of its memory traffic. A copy past them does not, and
//! leaves the target out of the caches, which is slower where it would have stayed. Which of them
//! wins depends on the machine, on how source and target lie, and on what else is in the caches: so
//! a thread times both on some pages of its own large calls, goes the faster way with those that
//! follow, and times both again after a while.

use std::cell::Cell;
use std::time::Instant;

/// A call of fewer bytes stays in the caches of one core.
pub(crate) const LARGE: usize = 1 << 20;
/// Pages that are timed one way, then the other; how often; and pages until it is done again.
const RUN: u32 = 256;
const RUNS: u32 = 8;
const GOES: u32 = 1 << 18;

/// The way in which a page is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Through,
    Past,
}

#[derive(Clone, Copy)]
struct Measured {
    /// Since both were begun to be timed.
    pages: u32,
    /// Nanoseconds through the caches, and past them.
    took: [u64; 2],
}

thread_local! {
    static MEASURED: Cell<Measured> = const { Cell::new(Measured::NOTHING) };
}

impl Measured {
    const NOTHING: Self = Self {
        pages: 0,
        took: [0; 2],
    };

    fn is_timed(self) -> bool {
        self.pages < RUN * RUNS
    }

    fn way(self) -> Way {
        let past = if self.is_timed() {
            self.pages / RUN % 2 == 1
        } else {
            self.took[1] < self.took[0]
        };
        if past { Way::Past } else { Way::Through }
    }

    fn took(mut self, way: Way, nanos: u64) -> Self {
        // The first page of a run pays for the run before it.
        if self.is_timed() && !self.pages.is_multiple_of(RUN) {
            self.took[usize::from(way == Way::Past)] += nanos;
        }
        self.pages += 1;
        if self.pages >= GOES {
            Self::NOTHING
        } else {
            self
        }
    }
}

/// Has `copy` copy a page of a large call the way that is faster.
pub(crate) fn copy(copy: impl FnOnce(Way)) {
    let measured = MEASURED.get();
    let way = measured.way();
    let began = measured.is_timed().then(Instant::now);
    copy(way);
    let took = began.map_or(0, |began| {
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    });
    MEASURED.set(measured.took(way, took));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken_until_both_are_timed_again() {
        for (through, past, best) in [(400, 300, Way::Past), (300, 400, Way::Through)] {
            let mut measured = Measured::NOTHING;
            let mut timed = [0; 2];
            for page in 0..GOES {
                let way = measured.way();
                if page < RUN * RUNS {
                    timed[usize::from(way == Way::Past)] += 1;
                } else {
                    assert_eq!(way, best, "page {page}");
                }
                let took = if way == Way::Past { past } else { through };
                measured = measured.took(way, took);
            }
            assert_eq!(timed, [RUN * RUNS / 2; 2]);
            assert!(measured.is_timed(), "and again");
        }
    }
}

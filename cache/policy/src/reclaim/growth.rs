//! The recent growth of a task: frames it took less those it gave back itself.
//!
//! Kept as the *net* number of pages a task ever took. Pages that reclaim took away from it do not
//! count as given back: a hog that walks over more than fits grows for ever. Growth is how far the
//! net number stands above the highest it had before this last second:
//!
//! ```text
//!   net                      hog  .'|  growth        net    mapper
//!                              .'   |                  .|  .|  .|  .    peak -----------------
//!                            .'- - -'                .' |.' |.' |.'     growth 0: it has had that before
//!                          .'                      .'   '   '   '
//!       ------------------+----+> now               ------------------+----+> now
//!                        the last second                              the last second
//! ```
//!
//! For a task that only takes, that is what it took in the last second. For a task that gives back
//! as much as it takes it is nothing, wherever in its round it stands and however long a round
//! lasts, up to `MEMORY`. A plain difference over the last second would call that task the worst of
//! all when its round is slow, which is when it needs the memory most.
//!
//! Invariants
//!   1. Growth is at most what was taken in the last second and an eighth.
//!   2. A task that never holds more than it has held before, within `MEMORY`, does not grow.
//!   3. Every call takes a bounded number of steps, and nothing allocates.
//!
//! Source: ours; mechanisms 4.7 (p0's author on prioritising by rate of allocation); docs/adr/0014.

use crate::units::{Instant, Pages, SECOND};

#[cfg(test)]
mod tests;

/// Parts of the second that are told apart.
const PARTS: usize = 8;
/// Length of a part, ns.
const PART: u64 = SECOND / PARTS as u64;
/// The highest of before is remembered for one to two of these, in parts: 8 s, several rounds of a
/// task that gives back, each as slow as a round may get.
const MEMORY: u64 = 8 * PARTS as u64;

/// The growth of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Taken less given back, ever.
    net: i64,
    /// Number of the part that is running.
    part: u64,
    /// Highest `net` in each of the last parts, by number modulo `PARTS`.
    highs: [i64; PARTS],
    /// The part in which pages were last given back.
    gave_back: Option<u64>,
    /// The highest in parts that ended a second ago or earlier: of this period of `MEMORY`, and of
    /// the last.
    before: i64,
    earlier: i64,
}

impl Growth {
    /// A task that has taken nothing yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            net: 0,
            part: now.0 / PART,
            highs: [0; PARTS],
            gave_back: None,
            before: 0,
            earlier: 0,
        }
    }

    /// The task took pages, and gave pages back itself.
    pub fn note(&mut self, now: Instant, taken: Pages, given_back: Pages) {
        self.advance(now);
        if !given_back.is_zero() {
            self.gave_back = Some(self.part);
        }
        let taken = i64::try_from(taken.0).unwrap_or(i64::MAX);
        let given_back = i64::try_from(given_back.0).unwrap_or(i64::MAX);
        self.net = self.net.saturating_add(taken).saturating_sub(given_back);
        let at = index(self.part);
        self.highs[at] = self.highs[at].max(self.net);
    }

    /// Pages that it took and had no use for are free again: as if they had not been taken, but for
    /// the highest it had, which is too high by no more than one such batch. That is no giving
    /// back.
    pub fn unused(&mut self, now: Instant, pages: Pages) {
        self.advance(now);
        let pages = i64::try_from(pages.0).unwrap_or(i64::MAX);
        self.net = self.net.saturating_sub(pages);
    }

    /// Pages by which it has grown in the last second.
    pub fn growth(&mut self, now: Instant) -> Pages {
        self.advance(now);
        positive(self.net.saturating_sub(self.before.max(self.earlier)))
    }

    /// True if it gives back as much as it takes: it does not grow, and has given pages back within
    /// `MEMORY`. A task that got nothing for a second does not grow either, but only because others
    /// were before it.
    pub fn is_modest(&mut self, now: Instant) -> bool {
        let grows = !self.growth(now).is_zero();
        let lately = |then| self.part.saturating_sub(then) <= 2 * MEMORY;
        !grows && self.gave_back.is_some_and(lately)
    }

    fn advance(&mut self, now: Instant) {
        let part = now.0 / PART;
        if part.saturating_sub(self.part) >= 2 * MEMORY {
            // All that is remembered has passed.
            let net = self.net;
            *self = Self::new(now);
            (self.net, self.before, self.earlier) = (net, net, net);
            self.highs = [net; PARTS];
            return;
        }
        while self.part < part {
            self.part += 1;
            if self.part.is_multiple_of(MEMORY) {
                self.earlier = self.before;
                self.before = i64::MIN;
            }
            let at = index(self.part);
            self.before = self.before.max(self.highs[at]);
            self.highs[at] = self.net;
        }
    }
}

fn index(part: u64) -> usize {
    usize::try_from(part % PARTS as u64).unwrap_or(0)
}

fn positive(pages: i64) -> Pages {
    Pages(u64::try_from(pages).unwrap_or(0))
}

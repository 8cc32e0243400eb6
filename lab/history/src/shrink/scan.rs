//! One pass's request to one cache.
//!
//! ```text
//!   SH1: 1 000 000 freeable, seeks 2, priority 12, nothing owed
//!        delta 488  ->  Ask 128, Ask 128, Ask 128, Done  ->  104 owed
//! ```
//!
//! Source: mechanisms 7.2; kernel-facts 17; Linux 3.2 mm/vmscan.c, shrink_slab(); Linux 5.0 and
//! 6.12, do_shrink_slab().
//! Deviation: before 4.16 an object that costs nothing is scanned as since then; there it was not
//! available.

use super::rule::{Left, Owed, ShrinkRule, Weight};
use policy::reclaim::scan::{CLUSTER, Priority};
use policy::units::Pages;

/// Objects asked for at a time, unless a cache says otherwise (`SHRINK_BATCH`).
pub const BATCH: u64 = 128;
/// Seeks at which a cache is scanned in the proportion of the lists.
const SEEKS_EVEN: u64 = 4;

/// The terms on which a cache is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The cost of making an object again. 0: nothing, half of them may go at each pass.
    pub seeks: u32,
    /// Objects asked for at a time; 0: `BATCH`.
    pub batch: u64,
}

impl Default for Cache {
    /// One read of a disk an object (`DEFAULT_SEEKS`).
    fn default() -> Self {
        Self {
            seeks: 2,
            batch: BATCH,
        }
    }
}

/// The pressure of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Its priority.
    pub priority: Priority,
    /// Pages it has scanned.
    pub scanned: Pages,
    /// Pages on the lists it scanned.
    pub listed: Pages,
}

/// Objects that a cache owes on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deferred(u64);

impl Deferred {
    /// Their number.
    #[must_use]
    pub fn objects(self) -> u64 {
        self.0
    }

    /// A pass takes it all upon itself.
    fn take(&mut self) -> u64 {
        core::mem::take(&mut self.0)
    }

    /// A pass has ended that could not scan this many (`Outcome::deferred`).
    pub fn add(&mut self, objects: u64) {
        self.0 = self.0.saturating_add(objects);
    }
}

/// The next step of a `Scan`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Asks the cache to look at this many objects; then `Scan::answered`.
    Ask(u64),
    /// The scan has ended: `Scan::end`.
    Done,
}

/// The answer of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has looked.
    Freed {
        /// Objects freed.
        freed: u64,
        /// Objects it looked at; not more than it was asked for.
        looked_at: u64,
    },
    /// It cannot work for this caller, which may hold what it needs (`SHRINK_STOP`).
    Stop,
}

/// The outcome of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Objects freed. Pages are free only where all objects of a slab are.
    pub freed: u64,
    /// Objects that were looked at (`slabs_scanned`).
    pub scanned: u64,
    /// Objects that are owed again: for `Deferred::add`.
    pub deferred: u64,
}

/// One pass over one cache.
#[derive(Clone, Debug)]
pub struct Scan {
    left: Left,
    takes_the_last: bool,
    freeable: u64,
    batch: u64,
    /// Still to be looked at.
    total: u64,
    /// All that was owed, and what this pass adds.
    next: u64,
    scanned: u64,
    freed: u64,
    stopped: bool,
}

impl Scan {
    /// A pass over a cache that has `freeable` objects; takes what it owes. `None`: there is
    /// nothing to free, and what it owes it goes on owing.
    #[must_use]
    pub fn begin(
        rule: &ShrinkRule,
        cache: Cache,
        freeable: u64,
        pressure: Pressure,
        deferred: &mut Deferred,
    ) -> Option<Self> {
        if freeable == 0 {
            return None;
        }
        let batch = if cache.batch == 0 { BATCH } else { cache.batch };
        let mut delta = delta(rule.weight, cache.seeks, freeable, pressure);
        if rule.batch_at_least {
            delta = delta.max(freeable.min(batch));
        }
        let owed = deferred.take();
        let due = match rule.owed {
            Owed::Whole => owed,
            Owed::ByPriority => shifted(owed, pressure.priority),
        };
        let mut total = due.saturating_add(delta);
        if rule.gentle_to_half && delta < freeable / 4 {
            total = total.min(freeable / 2);
        }
        Some(Self {
            left: rule.left,
            takes_the_last: rule.takes_the_last,
            freeable,
            batch,
            total: total.min(freeable.saturating_mul(2)),
            next: owed.saturating_add(delta),
            scanned: 0,
            freed: 0,
            stopped: false,
        })
    }

    /// The next step.
    #[must_use]
    pub fn step(&self) -> ScanStep {
        let is_last = self.takes_the_last && self.total >= self.freeable;
        if self.stopped || !(self.total >= self.batch || is_last) {
            return ScanStep::Done;
        }
        ScanStep::Ask(self.total.min(self.batch))
    }

    /// The cache has answered.
    pub fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Freed { freed, looked_at } => {
                self.freed = self.freed.saturating_add(freed);
                self.scanned = self.scanned.saturating_add(looked_at);
                self.total = self.total.saturating_sub(looked_at);
                self.stopped = looked_at == 0;
            }
            Answer::Stop => self.stopped = true,
        }
    }

    /// Its outcome.
    #[must_use]
    pub fn end(self) -> Outcome {
        let missed = self.next.saturating_sub(self.scanned);
        let deferred = match self.left {
            Left::OfTotal => self.total,
            Left::All => missed,
            Left::Bounded => missed.min(self.freeable.saturating_mul(2)),
        };
        Outcome {
            freed: self.freed,
            scanned: self.scanned,
            deferred,
        }
    }
}

/// The addition of a pass to the debt.
fn delta(weight: Weight, seeks: u32, freeable: u64, pressure: Pressure) -> u64 {
    let seeks = u64::from(seeks);
    if seeks == 0 {
        return freeable / 2;
    }
    match weight {
        Weight::Priority => shifted(freeable, pressure.priority).saturating_mul(SEEKS_EVEN) / seeks,
        Weight::PagesScanned => {
            // A pass that has scanned none, as one for the caches alone, presses like one over a
            // cluster.
            let scanned = if pressure.scanned.is_zero() {
                CLUSTER.0
            } else {
                pressure.scanned.0
            };
            let weighed = u128::from(scanned.saturating_mul(SEEKS_EVEN) / seeks);
            let share = weighed * u128::from(freeable) / (u128::from(pressure.listed.0) + 1);
            u64::try_from(share).unwrap_or(u64::MAX)
        }
    }
}

/// A part by a priority.
fn shifted(objects: u64, priority: Priority) -> u64 {
    objects.checked_shr(u32::from(priority.0)).unwrap_or(0)
}

#[cfg(test)]
mod tests;

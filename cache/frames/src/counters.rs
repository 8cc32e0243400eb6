//! Totals that many threads change: each on a cache line of its own.

use crate::ledger::PLACES;
use crate::sync::{AtomicU64, Ordering};

/// A total, kept apart from its neighbours by two cache lines (adjacent lines are fetched in
/// pairs).
///
/// The steps are relaxed: a total orders nothing, it only never loses an addition.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter that stands at `value`.
    #[must_use]
    pub fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Adds `amount`; answers the total after it.
    #[inline]
    #[track_caller]
    pub fn add(&self, amount: u64) -> u64 {
        at_least_zero(
            self.0
                .fetch_add(amount, Ordering::Relaxed)
                .wrapping_add(amount),
        )
    }

    /// Takes `amount` off; answers the total after it.
    #[inline]
    #[track_caller]
    pub fn sub(&self, amount: u64) -> u64 {
        at_least_zero(
            self.0
                .fetch_sub(amount, Ordering::Relaxed)
                .wrapping_sub(amount),
        )
    }

    /// The total now. Zero while a subtraction has overtaken the addition it belongs to.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        at_least_zero(self.0.load(Ordering::Relaxed))
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new(0)
    }
}

/// A total that many threads change and few read: each thread in its own place, so that none waits
/// for a cache line of another. A reading adds the places up.
#[derive(Debug, Default)]
pub struct Spread([Counter; PLACES]);

impl Spread {
    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.place().0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` off; another thread may have added it.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.place().0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The total now. Zero while a subtraction has overtaken the addition it belongs to.
    #[must_use]
    pub fn get(&self) -> u64 {
        let places = self.0.iter().map(|place| place.0.load(Ordering::Relaxed));
        at_least_zero(places.fold(0, u64::wrapping_add))
    }

    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    fn place(&self) -> &Counter {
        &self.0[crate::ledger::SeatId::mine().place()]
    }

    /// Models have no seats.
    #[cfg(any(loom, shuttle))]
    fn place(&self) -> &Counter {
        &self.0[0]
    }
}

/// Totals stay far below 2^63, so a set top bit means "below zero for a moment".
fn at_least_zero(total: u64) -> u64 {
    if total >> 63 == 0 { total } else { 0 }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn adds_and_takes_off() {
        let counter = Counter::new(5);
        assert_eq!(counter.add(7), 12);
        assert_eq!(counter.sub(2), 10);
        assert_eq!(counter.get(), 10);
    }

    #[test]
    fn reads_zero_while_a_subtraction_is_early() {
        let counter = Counter::default();
        assert_eq!(counter.sub(3), 0);
        assert_eq!(counter.get(), 0);
        assert_eq!(counter.add(4), 1, "the early subtraction was not lost");
    }

    #[test]
    fn a_spread_total_is_that_of_all_threads() {
        let total = Spread::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| total.add(3)));
            }
        });
        total.sub(5000);
        assert_eq!(total.get(), 7000);
        total.sub(7001);
        assert_eq!(total.get(), 0);
    }

    #[test]
    fn has_its_lines_to_itself() {
        assert_eq!(size_of::<Counter>(), 128);
    }
}

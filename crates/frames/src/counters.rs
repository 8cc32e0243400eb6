//! Totals that many threads change: each on a cache line of its own.

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
    fn has_its_lines_to_itself() {
        assert_eq!(size_of::<Counter>(), 128);
    }
}

//! The worth of more memory, from misses on things that were evicted.

use crate::units::{Bytes, Nanos};

/// Octaves of distance: up to 1, 2, 4 .. 64 deltas, all of the limit. An eviction further off than
/// that would not have been kept by any share.
pub const OCTAVES: usize = 7;
/// Most that one miss counts: a device that hung says nothing about memory.
pub const COST_MAX: Nanos = Nanos::secs(1);
/// Regrets fade by this part an epoch as a number, by half as a cost: a slow member beside a fast
/// one needs several epochs for the few that make its cost believable.
const SEEN_FADES: u64 = 32;

/// The octave of a distance: 0 up to a delta, 6 up to 64 of them, none beyond.
#[must_use]
pub fn octave(distance: Bytes, delta: Bytes) -> Option<usize> {
    let deltas = distance.0.div_ceil(delta.0.max(1)).max(1);
    let octave = usize::try_from(deltas.next_power_of_two().trailing_zeros()).ok()?;
    (octave < OCTAVES).then_some(octave)
}

/// Costs of misses by octave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regrets {
    /// Sums of costs, by octave of distance.
    pub cost: [Nanos; OCTAVES],
    /// Number seen; where one of several is looked at, of those looked at.
    pub seen: u64,
}

impl Regrets {
    /// Adds one miss; beyond the last octave nothing is added.
    pub fn add(&mut self, distance: Bytes, delta: Bytes, cost: Nanos) {
        if let Some(octave) = octave(distance, delta) {
            let sum = &mut self.cost[octave];
            *sum = sum.saturating_add(cost.at_most(COST_MAX));
            self.seen += 1;
        }
    }

    pub(super) fn join(&mut self, more: &Self) {
        for (sum, cost) in self.cost.iter_mut().zip(more.cost) {
            *sum = sum.saturating_add(cost);
        }
        self.seen = self.seen.saturating_add(more.seen);
    }

    /// The gain of one delta more: the best of growing by 1, 2, 4 .. 64.
    #[must_use]
    pub fn gain(&self) -> Nanos {
        let mut sum = Nanos::ZERO;
        let mut best = Nanos::ZERO;
        for (octave, cost) in self.cost.into_iter().enumerate() {
            sum = sum.saturating_add(cost);
            best = best.at_least(Nanos(sum.0 >> octave));
        }
        best
    }

    /// An epoch has ended.
    pub(super) fn fade(&mut self) {
        for cost in &mut self.cost {
            cost.0 /= 2;
        }
        self.seen -= self.seen.div_ceil(SEEN_FADES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELTA: Bytes = Bytes(100);

    #[test]
    fn octaves_end_at_their_distance_and_the_last_at_the_limit() {
        let table = [
            (0, Some(0)),
            (100, Some(0)),
            (101, Some(1)),
            (200, Some(1)),
            (201, Some(2)),
            (800, Some(3)),
            (1_600, Some(4)),
            (6_400, Some(6)),
            (6_401, None),
            (u64::MAX, None),
        ];
        for (distance, expected) in table {
            assert_eq!(octave(Bytes(distance), DELTA), expected, "{distance}");
        }
    }

    #[test]
    fn a_loop_that_lacks_eight_deltas_shows_an_eighth_of_all_its_cost() {
        let mut regrets = Regrets::default();
        for _ in 0..80 {
            regrets.add(Bytes(750), DELTA, Nanos(1_000));
        }
        assert_eq!(regrets.gain(), Nanos(10_000));
        // The first delta's savings count whole.
        regrets.add(Bytes(50), DELTA, Nanos(20_000));
        assert_eq!(regrets.gain(), Nanos(20_000));
    }

    #[test]
    fn a_cost_is_cut_at_a_second_and_a_far_miss_is_forgotten() {
        let mut regrets = Regrets::default();
        regrets.add(Bytes(1), DELTA, Nanos::secs(90));
        regrets.add(Bytes(99_999), DELTA, Nanos::secs(90));
        assert_eq!((regrets.gain(), regrets.seen), (COST_MAX, 1));
    }

    #[test]
    fn costs_halve_and_numbers_fade_slowly_to_nothing() {
        let mut regrets = Regrets::default();
        for _ in 0..32 {
            regrets.add(Bytes(1), DELTA, Nanos(10));
        }
        regrets.fade();
        assert_eq!((regrets.gain(), regrets.seen), (Nanos(160), 31));
        for _ in 0..64 {
            regrets.fade();
        }
        assert_eq!((regrets.gain(), regrets.seen), (Nanos::ZERO, 0));
    }
}

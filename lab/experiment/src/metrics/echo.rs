//! The echo of one reason's timeout among the sleeps for another: a reclaimer that sleeps for want
//! of progress is woken by a reclaimer that has just come back from a timeout of WRITEBACK and
//! finds pages. Those sleeps end within two ticks after that timeout, and make a peak among the
//! *partial* ones (longer than nothing, shorter than their own timeout).
//!
//! A peak is measured against the ticks around it, from half of where it begins to twice that,
//! since short sleeps are more than long ones whatever wakes them. The published delays of p0 make
//! 13.8 of the 100 ms (experiments A1: 2364 in three ticks, 1993 in the 35 around), and would make
//! about 1 without an echo.

use policy::reclaim::Reason;

use super::throttles::{Who, is_timeout, is_zero, of_reason, real};
use crate::outcome::Outcome;

/// Ticks of a peak after its first.
const AFTER: usize = 2;
/// A peak is looked for from this many tenths of the sleepers' own timeout on, and up to as many
/// before it.
const EDGE_TENTHS: usize = 1;

/// Partial sleeps for want of progress, by length in ticks; as many as their timeout has.
struct Partial {
    by_tick: Vec<u64>,
    tick_ms: f64,
}

/// A number of sleeps in a number of ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sleeps: u64,
    ticks: u64,
}

impl Part {
    fn of(by_tick: &[u64]) -> Self {
        Self {
            sleeps: by_tick.iter().sum(),
            ticks: by_tick.len() as u64,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            sleeps: self.sleeps + other.sleeps,
            ticks: self.ticks + other.ticks,
        }
    }

    fn a_tick(self) -> f64 {
        real(self.sleeps) / real(self.ticks.max(1))
    }
}

impl Partial {
    /// None: nobody slept for it, or all to the end.
    fn of(outcome: &Outcome) -> Option<Self> {
        let all = || of_reason(outcome, Who::Direct, Reason::NoProgress);
        let longest = super::largest(all().map(|throttle| throttle.timeout_ms))?;
        let mut by_tick = vec![0; ticks(longest, outcome.tick_ms)?];
        for throttle in all().filter(|throttle| !is_zero(throttle) && !is_timeout(throttle)) {
            let length = ticks(throttle.delayed_ms, outcome.tick_ms)?;
            if let Some(sleeps) = by_tick.get_mut(length) {
                *sleeps += throttle.count;
            }
        }
        by_tick.iter().any(|sleeps| *sleeps > 0).then_some(Self {
            by_tick,
            tick_ms: outcome.tick_ms,
        })
    }

    /// The sleeps of `from` to `to` ticks, the latter not among them.
    fn between(&self, from: usize, to: usize) -> Part {
        let to = to.min(self.by_tick.len());
        Part::of(&self.by_tick[from.min(to)..to])
    }

    fn peak(&self, first: usize) -> Part {
        self.between(first, first + AFTER + 1)
    }

    fn around(&self, first: usize) -> Part {
        let before = self.between(first / 2 + 1, first);
        before.and(self.between(first + AFTER + 1, 2 * first + 1))
    }

    /// The excess of sleeps a tick in the peak over those around it.
    fn excess(&self, first: usize) -> f64 {
        self.peak(first).a_tick() - self.around(first).a_tick()
    }
}

/// The whole ticks nearest to a length.
fn ticks(ms: f64, tick_ms: f64) -> Option<usize> {
    (tick_ms > 0.0).then(|| super::index((ms / tick_ms).round()))
}

/// Where the echo of WRITEBACK would begin, in ticks; none: nobody slept for writeback.
fn expected(outcome: &Outcome) -> Option<usize> {
    let writeback = of_reason(outcome, Who::Direct, Reason::Writeback).next()?;
    ticks(writeback.timeout_ms, outcome.tick_ms)
}

/// Part of the partial sleeps that lie in the echo.
pub(super) fn share(outcome: &Outcome) -> Option<f64> {
    let partial = Partial::of(outcome)?;
    let near = partial.peak(expected(outcome)?).sleeps;
    Some(real(near) / real(Part::of(&partial.by_tick).sleeps))
}

/// The ratio of sleeps a tick in the peak to those around it.
pub(super) fn rise(outcome: &Outcome) -> Option<f64> {
    let (partial, first) = (Partial::of(outcome)?, expected(outcome)?);
    let mut around = partial.around(first);
    // Where nothing is around, one is: a rise is finite.
    around.sleeps = around.sleeps.max(1);
    Some(partial.peak(first).a_tick() / around.a_tick())
}

/// The most frequent length in the peak that stands out most, wherever it is, ms.
pub(super) fn place(outcome: &Outcome) -> Option<f64> {
    let partial = Partial::of(outcome)?;
    let edge = partial.by_tick.len() * EDGE_TENTHS / 10;
    let firsts = edge..partial.by_tick.len().saturating_sub(edge + AFTER);
    let best = firsts.max_by(|a, b| partial.excess(*a).total_cmp(&partial.excess(*b)))?;
    let most = (best..=best + AFTER).max_by_key(|tick| partial.by_tick[*tick])?;
    Some(super::count(most) * partial.tick_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{ThrottleCount, ThrottleEnd};

    fn slept(reason: Reason, timeout_ms: f64, delayed_ms: f64, count: u64) -> ThrottleCount {
        ThrottleCount {
            background: false,
            reason,
            timeout_ms,
            delayed_ms,
            ended: ThrottleEnd::Event,
            count,
        }
    }

    /// The published delays: sums of several ticks are spread evenly over them.
    fn published(writeback_ms: f64) -> Outcome {
        let spread: [(u32, u32, u32); 12] = [
            (1, 1, 7888),
            (2, 2, 2447),
            (3, 5, 1993),
            (6, 12, 1395),
            (13, 24, 1360),
            (25, 25, 182),
            (26, 26, 2001),
            (27, 27, 181),
            (28, 50, 633),
            (51, 75, 415),
            (76, 100, 320),
            (101, 124, 399),
        ];
        let mut throttles = vec![
            slept(Reason::Writeback, writeback_ms, writeback_ms, 83_962),
            slept(Reason::NoProgress, 500.0, 0.0, 22_727),
            slept(Reason::NoProgress, 500.0, 500.0, 51_305),
        ];
        for (from, to, sleeps) in spread {
            let ticks = to - from + 1;
            for tick in from..=to {
                let rest = u32::from(tick - from < sleeps % ticks);
                let each = u64::from(sleeps / ticks + rest);
                throttles.push(slept(
                    Reason::NoProgress,
                    500.0,
                    f64::from(tick) * 4.0,
                    each,
                ));
            }
        }
        Outcome {
            tick_ms: 4.0,
            throttles,
            ..Outcome::default()
        }
    }

    fn near(value: Option<f64>, expected: f64) {
        let value = value.unwrap();
        assert!((value - expected).abs() < expected * 0.005, "{value}");
    }

    #[test]
    fn the_published_delays_echo_a_timeout_of_100_ms() {
        near(share(&published(100.0)), 2364.0 / 19_214.0);
        near(rise(&published(100.0)), 2364.0 / 3.0 / (1993.0 / 35.0));
        near(place(&published(100.0)), 104.0);
    }

    #[test]
    fn where_there_is_no_peak_nothing_rises() {
        // The same delays, had WRITEBACK another timeout: the peak is where it was, and not where
        // it should be.
        let other = published(200.0);
        assert!(rise(&other).unwrap() < 1.0, "{:?}", rise(&other));
        near(place(&other), 104.0);
        let mut flat = published(100.0);
        let throttles = flat.throttles.iter_mut();
        for throttle in throttles.filter(|throttle| !is_zero(throttle)) {
            throttle.count = 50;
        }
        near(rise(&flat), 1.0);
    }

    #[test]
    fn without_partial_sleeps_or_writeback_there_is_none() {
        let mut none = published(100.0);
        let whole = |throttle: &ThrottleCount| is_zero(throttle) || is_timeout(throttle);
        none.throttles.retain(whole);
        assert_eq!(
            (share(&none), rise(&none), place(&none)),
            (None, None, None)
        );
        let mut other = published(100.0);
        let of = |throttle: &ThrottleCount| throttle.reason == Reason::NoProgress;
        other.throttles.retain(of);
        assert_eq!((share(&other), rise(&other)), (None, None));
        near(place(&other), 104.0);
    }
}

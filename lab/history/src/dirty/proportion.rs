//! Each one's recent part of something: floating proportions.
//!
//! A *period* counts events of all parties, a *share* those of one. When a period ends everything
//! is halved, so that old events fade. Shares are halved lazily, once per period they have missed,
//! when they are next looked at: nobody has to visit them all.
//!
//! Two forms, by what ends a period:
//!   - `EventPeriod`, Linux 2.6.24..3.6: after P events; P is a power of two between one and two
//!     times the dirty limit. Used for devices (events: writeback that ended) and, up to 3.1, for
//!     writers (events: pages dirtied).
//!   - `TimedPeriod`, Linux 3.7+: after 3 s. It stands still while there are no events.
//!
//! Invariants
//!   1. A fraction lies in 0..=1.
//!   2. The answer does not depend on when, or how often, a share is looked at.
//!   3. A party at its upper bound is not counted, neither for itself nor for all.
//!
//! Source: mechanisms 5.2; Linux 2.6.36 lib/proportions.c, 6.12 lib/flex_proportions.c and
//! mm/page-writeback.c, writeout_period(), wb_domain_writeout_add().
//! Deviations: counters are exact (the kernel's are batched per CPU); the timer of the timed form
//! is always on time (the kernel's may be deferred on an idle CPU); events that come together are
//! tested against an upper bound once per run of events that ends no period (event form).

use policy::dirty::DeviceTunables;
use policy::dirty::limits::mul_div;
use policy::ticks::{TickRate, Ticks};
use policy::units::Pages;

/// Length of a timed period, seconds (`VM_COMPLETIONS_PERIOD_LEN`).
const PERIOD_SECONDS: u64 = 3;
/// After this many periods of nothing but its own events a share no longer changes from one to the
/// next.
const PERIODS_TO_SETTLE: u64 = 64;
/// `DeviceTunables::max_ratio` that means no bound.
const RATIO_ONE: u32 = 10_000;
const RATIO_ALL: u64 = RATIO_ONE as u64;

/// A part of a whole; the denominator is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    pub(crate) numerator: u64,
    pub(crate) denominator: u64,
}

impl Fraction {
    fn exceeds(self, ratio: u32) -> bool {
        ratio < RATIO_ONE
            && u128::from(self.numerator) * u128::from(RATIO_ONE)
                > u128::from(self.denominator) * u128::from(ratio)
    }
}

/// Events of all parties, in periods of a fixed number of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventPeriod {
    /// log2 of the events in a period.
    length_log2: u32,
    total: u64,
}

/// Events of one party.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    events: u64,
    /// The period up to which `events` has been halved.
    period: u64,
}

impl Share {
    const fn halved(self, period: u64) -> Self {
        let missed = period - self.period;
        let events = if missed < 64 {
            self.events >> missed
        } else {
            0
        };
        Self { events, period }
    }
}

impl EventPeriod {
    /// Periods as long as suits that dirty limit.
    pub(crate) fn new(limit: Pages) -> Self {
        // The kernel's shift is 2 + ilog2(limit - 1); a period is half of 2^shift.
        let log = limit.0.saturating_sub(1).checked_ilog2().unwrap_or(0);
        Self {
            length_log2: 1 + log,
            total: 0,
        }
    }

    const fn length(&self) -> u64 {
        1 << self.length_log2
    }

    const fn period(&self) -> u64 {
        self.total >> self.length_log2
    }

    /// Counts `events` of the party `share`, unless it has more than `max_ratio` (1/10000) already.
    pub(crate) fn count(&mut self, share: &mut Share, events: u64, max_ratio: u32) {
        let mut left = self.without_settled_periods(share, events);
        while left > 0 {
            *share = share.halved(self.period());
            if self.fraction(share).exceeds(max_ratio) {
                return;
            }
            let until_end = self.length() - self.total % self.length();
            let run = left.min(until_end);
            share.events += run;
            self.total += run;
            left -= run;
        }
    }

    /// Passes over periods in the middle of a very large batch, which change nothing.
    fn without_settled_periods(&mut self, share: &mut Share, events: u64) -> u64 {
        let surplus = (events >> self.length_log2).saturating_sub(PERIODS_TO_SETTLE);
        self.total += surplus << self.length_log2;
        share.period += surplus;
        events - (surplus << self.length_log2)
    }

    /// The party's part of the recent events.
    pub(crate) fn fraction(&self, share: &Share) -> Fraction {
        let denominator = self.length() + self.total % self.length();
        let numerator = share.halved(self.period()).events.min(denominator);
        Fraction {
            numerator,
            denominator,
        }
    }
}

/// Events of all parties, in periods of 3 s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedPeriod {
    length: Ticks,
    /// When the open period ends. `None`: nothing happens, no period is open.
    ends: Option<Ticks>,
    period: u64,
    events: u64,
}

impl TimedPeriod {
    pub(crate) fn new(rate: TickRate) -> Self {
        Self {
            length: Ticks(PERIOD_SECONDS * rate.hz()),
            ends: None,
            period: 0,
            events: 0,
        }
    }

    /// Ends the periods that have passed at `now`.
    pub(crate) fn catch_up(&mut self, now: Ticks) {
        let Some(ends) = self.ends else { return };
        if now < ends {
            return;
        }
        let over = (now.0 - ends.0) / self.length.0 + 1;
        // The timer stops when it finds one event or none: no further halving happens then.
        let until_still = u64::from(self.events.checked_ilog2().unwrap_or(0));
        let halvings = over.min(until_still);
        self.events >>= halvings;
        self.period += halvings;
        self.ends = (over == halvings).then(|| Ticks(ends.0 + over * self.length.0));
    }

    /// Counts `events` of the party `share`, as far as it stays within `max_ratio` (1/10000).
    pub(crate) fn count(&mut self, now: Ticks, share: &mut Share, events: u64, max_ratio: u32) {
        self.catch_up(now);
        *share = share.halved(self.period);
        let events = self.admissible(share, events, max_ratio);
        share.events = share.events.saturating_add(events);
        self.events = self.events.saturating_add(events);
        if self.ends.is_none() && events > 0 {
            self.ends = Some(Ticks(now.0 + self.length.0));
        }
    }

    /// As many of `events` as bring the party up to `max_ratio`, at least one if it is not above.
    fn admissible(&self, share: &Share, events: u64, max_ratio: u32) -> u64 {
        if max_ratio >= RATIO_ONE {
            return events;
        }
        let most = u128::from(self.events) * u128::from(max_ratio);
        let have = u128::from(share.events) * u128::from(RATIO_ONE);
        if have > most {
            return 0;
        }
        let room = (most - have)
            .div_ceil(u128::from(RATIO_ONE - max_ratio))
            .max(1);
        events.min(u64::try_from(room).unwrap_or(u64::MAX))
    }

    /// The party's part of the recent events, as of the last event or `catch_up`.
    pub(crate) fn fraction(&self, share: &Share) -> Fraction {
        let numerator = share.halved(self.period).events;
        Fraction {
            numerator,
            denominator: self.events.max(numerator).max(1),
        }
    }
}

/// The share of `limit` that belongs to a device which did `fraction` of the recent writeback.
///
/// `reserved`: the sum of all devices' lower bounds, 1/10000. The rest, which is not reserved, is
/// dealt out by fraction; the device's own reserve comes on top.
pub(super) fn share(
    limit: Pages,
    reserved: u64,
    tunables: &DeviceTunables,
    fraction: Fraction,
) -> Pages {
    let open = mul_div(limit.0, RATIO_ALL.saturating_sub(reserved), RATIO_ALL);
    let dealt = mul_div(open, fraction.numerator, fraction.denominator);
    let own = mul_div(limit.0, u64::from(tunables.min_ratio), RATIO_ALL);
    let most = mul_div(limit.0, u64::from(tunables.max_ratio), RATIO_ALL);
    Pages(dealt.saturating_add(own).min(most).min(limit.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::dirty::InitialBandwidth;
    use policy::dirty::limits::PAGES_MAX;

    #[test]
    fn a_share_obeys_its_bounds() {
        let whole = Fraction {
            numerator: 1,
            denominator: 1,
        };
        let none = Fraction {
            numerator: 0,
            denominator: 1,
        };
        let free = DeviceTunables {
            min_ratio: 0,
            max_ratio: 10_000,
            strict: false,
            initial: InitialBandwidth::Assumed,
        };
        let bound = DeviceTunables {
            min_ratio: 1000,
            max_ratio: 2000,
            strict: false,
            initial: InitialBandwidth::Assumed,
        };
        assert_eq!(share(Pages(1000), 0, &free, whole), Pages(1000));
        assert_eq!(share(Pages(1000), 1000, &free, whole), Pages(900));
        assert_eq!(share(Pages(1000), 1000, &bound, none), Pages(100));
        assert_eq!(share(Pages(1000), 1000, &bound, whole), Pages(200));
        assert_eq!(share(Pages(PAGES_MAX), 90_000, &free, whole), Pages(0));
    }

    fn per_mille(fraction: Fraction) -> u64 {
        fraction.numerator * 1000 / fraction.denominator
    }

    #[test]
    fn a_period_of_events_suits_the_limit() {
        // limit 16384: shift 2 + 13 = 15, half of 2^15.
        assert_eq!(EventPeriod::new(Pages(16384)).length(), 16384);
        assert_eq!(EventPeriod::new(Pages(16385)).length(), 32768);
        assert_eq!(EventPeriod::new(Pages(0)).length(), 2);
    }

    #[test]
    fn one_party_reaches_the_whole_and_fades_when_another_takes_over() {
        let mut all = EventPeriod::new(Pages(1024));
        let (mut a, mut b) = (Share::default(), Share::default());
        all.count(&mut a, 20 * 1024, 10_000);
        assert!(per_mille(all.fraction(&a)) >= 999);
        assert_eq!(per_mille(all.fraction(&b)), 0);
        all.count(&mut b, 1024, 10_000);
        // One period on: a has been halved once against a full period of b, halved too.
        assert!((490..=510).contains(&per_mille(all.fraction(&a))));
        all.count(&mut b, 10 * 1024, 10_000);
        assert_eq!(per_mille(all.fraction(&a)), 0);
        assert!(per_mille(all.fraction(&b)) >= 998);
    }

    #[test]
    fn equal_parties_get_equal_fractions() {
        let mut all = EventPeriod::new(Pages(4096));
        let mut shares = [Share::default(); 4];
        for turn in 0..40_000 {
            all.count(&mut shares[turn % 4], 1, 10_000);
        }
        for share in &shares {
            assert!((245..=255).contains(&per_mille(all.fraction(share))));
        }
    }

    #[test]
    fn batches_and_single_events_agree() {
        for batch in [1, 7, 300, 5000, 1 << 20] {
            let (mut one, mut many) = (EventPeriod::new(Pages(256)), EventPeriod::new(Pages(256)));
            let (mut in_one, mut in_many) = (Share::default(), Share::default());
            for _ in 0..3 {
                one.count(&mut in_one, batch, 10_000);
                for _ in 0..batch {
                    many.count(&mut in_many, 1, 10_000);
                }
            }
            assert_eq!(one.total, many.total, "{batch}");
            assert_eq!(one.fraction(&in_one), many.fraction(&in_many), "{batch}");
        }
    }

    #[test]
    fn a_party_at_its_bound_is_not_counted() {
        let mut all = EventPeriod::new(Pages(1024));
        let mut share = Share::default();
        for _ in 0..5000 {
            all.count(&mut share, 1, 1000);
        }
        assert!((99..=101).contains(&per_mille(all.fraction(&share))));

        let mut timed = TimedPeriod::new(TickRate::new(250));
        let (mut capped, mut free) = (Share::default(), Share::default());
        for _ in 0..5000 {
            timed.count(Ticks(0), &mut capped, 10, 1000);
            timed.count(Ticks(0), &mut free, 1, 10_000);
        }
        assert!((90..=101).contains(&per_mille(timed.fraction(&capped))));
    }

    #[test]
    fn a_timed_share_halves_every_three_seconds() {
        let mut all = TimedPeriod::new(TickRate::new(100));
        let (mut a, mut b) = (Share::default(), Share::default());
        all.count(Ticks(10), &mut a, 800, 10_000);
        all.catch_up(Ticks(309));
        assert_eq!(
            all.fraction(&a),
            Fraction {
                numerator: 800,
                denominator: 800
            }
        );
        all.catch_up(Ticks(310));
        assert_eq!(
            all.fraction(&a),
            Fraction {
                numerator: 400,
                denominator: 400
            }
        );
        all.count(Ticks(311), &mut b, 400, 10_000);
        assert_eq!(
            all.fraction(&a),
            Fraction {
                numerator: 400,
                denominator: 800
            }
        );
        // Three more periods at once.
        all.catch_up(Ticks(310 + 900));
        assert_eq!(
            all.fraction(&b),
            Fraction {
                numerator: 50,
                denominator: 100
            }
        );
    }

    #[test]
    fn a_domain_at_rest_keeps_its_last_proportions() {
        let mut all = TimedPeriod::new(TickRate::new(250));
        let (mut a, mut b) = (Share::default(), Share::default());
        all.count(Ticks(0), &mut a, 1000, 10_000);
        all.catch_up(Ticks(1 << 40));
        assert_eq!(all.events, 1);
        assert_eq!(all.ends, None);
        assert_eq!(
            all.fraction(&a),
            Fraction {
                numerator: 1,
                denominator: 1
            }
        );
        assert_eq!(all.fraction(&b).numerator, 0);
        all.count(Ticks(1 << 41), &mut b, 9, 10_000);
        assert_eq!(
            all.fraction(&b),
            Fraction {
                numerator: 9,
                denominator: 10
            }
        );
    }

    #[test]
    fn looking_often_or_rarely_gives_one_answer() {
        let mut often = TimedPeriod::new(TickRate::new(250));
        let (mut a, mut lazy_a) = (Share::default(), Share::default());
        often.count(Ticks(5), &mut a, 12_345, 10_000);
        let mut rarely = often;
        lazy_a.clone_from(&a);
        for now in 0..20_000 {
            often.catch_up(Ticks(now));
        }
        rarely.catch_up(Ticks(19_999));
        assert_eq!(often.events, rarely.events);
        assert_eq!(often.ends, rarely.ends);
        assert_eq!(often.fraction(&a), rarely.fraction(&lazy_a));
    }
}

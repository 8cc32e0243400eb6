//! The sleep of a writer of the rate-based law, and the number of pages between two.
//!
//! A writer that may dirty `rate` pages a second and has dirtied n has used up a *period* of `n /
//! rate`. The time spent elsewhere since its last pause ended, its *think time*, is a part of the
//! period; the rest it sleeps.
//!
//! ```text
//!   paused_until            now                           paused_until'
//!      |------ think time ---|------------ pause -----------|
//!      |<------------- period = pages / rate -------------->|
//! ```
//!
//! A pause shorter than the least one is not taken: the period is put on account instead
//! (`paused_until` moves by it), as credit or debt. A pause longer than the longest is cut; the
//! rest is remembered only up to once more the longest.
//!
//! Invariants
//!   1. `1 <= longest <= max(HZ/5, 1)`; a pause taken lies in `least..=longest`.
//!   2. A writer away for more than a second starts afresh.
//!
//! Source: mechanisms 5.6; Linux 6.12 mm/page-writeback.c, wb_max_pause(), wb_min_pause(),
//! balance_dirty_pages().

use policy::ticks::{TickRate, Ticks};
use policy::units::{Pages, PagesPerSec};

/// The longest pause of all is a fifth of a second.
const PAUSE_MAX_PER_SECOND: u64 = 5;
/// Pages worth a poll: 128 KiB.
pub(crate) const POLL_PAGES: Pages = Pages(32);

/// The longest pause: the time in which the device could run dry, at most 200 ms.
///
/// It is what the device needs for an eighth of its backlog, counting `HZ/8` rounded up to a power
/// of two ticks.
pub(crate) fn longest(rate: TickRate, device_dirty: Pages, bandwidth: PagesPerSec) -> Ticks {
    let per_slot = bandwidth.0 / (1 + rate.hz() / 8).next_power_of_two();
    let ticks = device_dirty.0 / (1 + per_slot) + 1;
    Ticks(ticks).min(rate.second_over(PAUSE_MAX_PER_SECOND))
}

/// The target of a writer's pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// A shorter pause is not worth taking.
    pub(crate) least: Ticks,
    /// Pages between two pauses.
    pub(crate) pages: Pages,
}

/// Rates that an aim is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Smoothed bandwidth of the device.
    pub(crate) bandwidth: PagesPerSec,
    /// Base rate of its writers.
    pub(crate) base: PagesPerSec,
    /// This writer's rate.
    pub(crate) task: PagesPerSec,
}

/// Chooses the pause to aim at: 10 ms, and 10 ms more for each doubling of the number of writers,
/// so that many writers do not wake up all the time; but no fewer than 128 KiB between pauses.
pub(crate) fn aim(rate: TickRate, longest: Ticks, rates: &Rates) -> Aim {
    let hz = rate.hz();
    let pages_in = |pages_per_sec: u64, ticks: u64| pages_per_sec * ticks / hz.next_power_of_two();

    let base = rates.base.0.max(1);
    let doublings = rates
        .bandwidth
        .0
        .max(1)
        .ilog2()
        .saturating_sub(base.ilog2());
    let mut ticks = rate.second_over(100).0 + u64::from(doublings) * (10 * hz) / 1024;
    ticks = ticks.min(1 + longest.0 / 2);

    let mut pages = pages_in(base, ticks);
    if pages < POLL_PAGES.0 {
        ticks = longest.0;
        pages = pages_in(base, ticks);
        if pages > POLL_PAGES.0 {
            pages = POLL_PAGES.0;
            ticks = hz * POLL_PAGES.0 / base;
        }
    }
    // A writer held far below the base rate: its pause must still fit.
    if hz * pages / (rates.task.0 + 1) > longest.0 {
        ticks = longest.0;
        pages = pages_in(rates.task.0, ticks);
    }
    let least = if pages >= POLL_PAGES.0 {
        1 + ticks / 2
    } else {
        ticks
    };
    Aim {
        least: Ticks(least),
        pages: Pages(pages),
    }
}

/// One writer's dirtied pages and sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Dirtied since the last balance (`nr_dirtied`).
    pub(crate) dirtied: Pages,
    /// Pages until the next balance (`nr_dirtied_pause`).
    pub(crate) dirtied_pause: Pages,
    /// Up to when it has slept for what it dirtied (`dirty_paused_when`). `None`: never paused.
    paused_until: Option<Ticks>,
}

/// The account's answer to pages just dirtied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The worth of the pages in time.
    pub(crate) period: Ticks,
    /// The part of it already spent elsewhere.
    pub(crate) think: Ticks,
    /// The pause to take now.
    pub(crate) pause: Option<Ticks>,
}

impl Account {
    pub(crate) const fn new() -> Self {
        Self {
            dirtied: Pages::ZERO,
            dirtied_pause: POLL_PAGES,
            paused_until: None,
        }
    }

    /// Nobody is held: the account is closed, the next balance comes after `interval` pages.
    pub(crate) fn run_free(&mut self, now: Ticks, interval: Pages) {
        self.dirtied = Pages::ZERO;
        self.dirtied_pause = interval;
        self.paused_until = Some(now);
    }

    /// Charges `dirtied` pages at `task` pages a second.
    pub(crate) fn charge(
        &mut self,
        rate: TickRate,
        now: Ticks,
        dirtied: Pages,
        task: PagesPerSec,
        bounds: (Aim, Ticks),
    ) -> Due {
        let (aim, longest) = bounds;
        let think = self
            .paused_until
            .map_or(Ticks::ZERO, |until| now.since(until));
        if task.0 == 0 {
            self.sleep(now, longest, aim.pages);
            return Due {
                period: longest,
                think,
                pause: Some(longest),
            };
        }
        let period = Ticks(rate.hz() * dirtied.0 / task.0);
        // The end of what is slept already may lie ahead of `now`, after a pause that was cut.
        let ahead = self
            .paused_until
            .map_or(Ticks::ZERO, |until| until.since(now));
        let owed = (period.0 + ahead.0).cast_signed() - think.0.cast_signed();
        if owed < aim.least.0.cast_signed() {
            self.settle(rate, now, dirtied, period, owed);
            return Due {
                period,
                think,
                pause: None,
            };
        }
        let owed = owed.unsigned_abs();
        let pause = Ticks(owed.min(longest.0));
        let cut = (owed - pause.0).min(longest.0);
        self.sleep(Ticks(now.0 + cut), pause, aim.pages);
        Due {
            period,
            think,
            pause: Some(pause),
        }
    }

    /// Takes no pause; keeps what is owed.
    fn settle(&mut self, rate: TickRate, now: Ticks, dirtied: Pages, period: Ticks, owed: i64) {
        if owed < -rate.hz().cast_signed() {
            self.paused_until = Some(now);
            self.dirtied = Pages::ZERO;
        } else if period > Ticks::ZERO {
            let until = self.paused_until.unwrap_or(now);
            self.paused_until = Some(Ticks(until.0 + period.0));
            self.dirtied = Pages::ZERO;
        } else if self.dirtied_pause <= dirtied {
            // Not worth a tick: look again after twice as many.
            self.dirtied_pause = self.dirtied_pause.saturating_add(dirtied);
        }
    }

    fn sleep(&mut self, now: Ticks, pause: Ticks, next: Pages) {
        self.paused_until = Some(Ticks(now.0 + pause.0));
        self.dirtied = Pages::ZERO;
        self.dirtied_pause = next;
    }
}

/// Pages between two looks while nobody is held: the root of the distance to the limit.
pub(crate) fn poll_interval(dirty: Pages, limit: Pages) -> Pages {
    match limit.saturating_sub(dirty).0.checked_ilog2() {
        Some(log) => Pages(1 << (log / 2)),
        None => Pages(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (hz, base rate, least pause, pages) with 60000 dirty pages and 25600 pages/s.
    const D1: [(u32, u64, u64, u64); 9] = [
        (250, 25_600, 2, 200),
        (250, 1600, 6, 68),
        (250, 400, 11, 32),
        (1000, 25_600, 6, 250),
        (1000, 1600, 25, 76),
        (1000, 400, 41, 32),
        (100, 25_600, 1, 200),
        (100, 1600, 3, 50),
        (100, 400, 5, 32),
    ];

    const BANDWIDTH: PagesPerSec = PagesPerSec(25_600);

    fn rates(base: u64, task: u64) -> Rates {
        Rates {
            bandwidth: BANDWIDTH,
            base: PagesPerSec(base),
            task: PagesPerSec(task),
        }
    }

    #[test]
    fn vector_d1() {
        for (hz, max_pause) in [(250, 50), (1000, 200), (100, 20)] {
            assert_eq!(
                longest(TickRate::new(hz), Pages(60_000), BANDWIDTH),
                Ticks(max_pause)
            );
        }
        for (hz, base, least, pages) in D1 {
            let rate = TickRate::new(hz);
            let longest = longest(rate, Pages(60_000), BANDWIDTH);
            let expected = Aim {
                least: Ticks(least),
                pages: Pages(pages),
            };
            assert_eq!(
                aim(rate, longest, &rates(base, base)),
                expected,
                "{hz} {base}"
            );
        }
    }

    #[test]
    fn the_longest_pause_shrinks_with_the_backlog() {
        let rate = TickRate::new(250);
        assert_eq!(longest(rate, Pages(0), BANDWIDTH), Ticks(1));
        assert_eq!(longest(rate, Pages(8010), BANDWIDTH), Ticks(11));
        assert_eq!(longest(rate, Pages(1 << 44), PagesPerSec(1)), Ticks(50));
        assert_eq!(
            longest(TickRate::new(1), Pages(1 << 44), BANDWIDTH),
            Ticks(1)
        );
    }

    #[test]
    fn an_aim_fits_the_longest_pause_for_every_rate() {
        for hz in [1, 100, 250, 1000, 10_000] {
            let rate = TickRate::new(hz);
            for dirty in [0, 100, 60_000] {
                let longest = longest(rate, Pages(dirty), BANDWIDTH);
                for base in [1, 7, 33, 400, 25_600, 1 << 36] {
                    for task in [0, 1, 40, 5000, 1 << 40] {
                        let aim = aim(rate, longest, &rates(base, task));
                        assert!(aim.least.0 <= longest.0.max(rate.second_over(100).0) + 1);
                        let pause = rate.hz() * aim.pages.0 / (task + 1);
                        assert!(pause <= longest.0 * 2, "{hz} {dirty} {base} {task} {aim:?}");
                    }
                }
            }
        }
    }

    fn bounds() -> (Aim, Ticks) {
        (
            Aim {
                least: Ticks(6),
                pages: Pages(68),
            },
            Ticks(50),
        )
    }

    #[test]
    fn think_time_is_not_slept_again() {
        let rate = TickRate::new(250);
        let mut account = Account::new();
        account.run_free(Ticks(1000), Pages(1));
        let due = account.charge(rate, Ticks(1004), Pages(80), PagesPerSec(1000), bounds());
        let expected = Due {
            period: Ticks(20),
            think: Ticks(4),
            pause: Some(Ticks(16)),
        };
        assert_eq!(due, expected);
        assert_eq!(account.dirtied_pause, Pages(68));
        // On time after the pause: the whole period again.
        let due = account.charge(rate, Ticks(1020), Pages(80), PagesPerSec(1000), bounds());
        assert_eq!(due.pause, Some(Ticks(20)));
    }

    #[test]
    fn short_pauses_add_up_until_one_is_worth_taking() {
        let rate = TickRate::new(250);
        let mut account = Account::new();
        account.run_free(Ticks(1000), Pages(1));
        let mut charge =
            || account.charge(rate, Ticks(1000), Pages(10), PagesPerSec(1000), bounds());
        assert_eq!(charge().pause, None); // 2 ticks owed
        assert_eq!(charge().pause, None); // 4
        assert_eq!(charge().pause, Some(Ticks(6)));
    }

    #[test]
    fn a_cut_pause_leaves_at_most_one_more_as_debt() {
        let rate = TickRate::new(250);
        let mut account = Account::new();
        account.run_free(Ticks(1000), Pages(1));
        let due = account.charge(rate, Ticks(1000), Pages(8000), PagesPerSec(1000), bounds());
        assert_eq!((due.period, due.pause), (Ticks(2000), Some(Ticks(50))));
        // 50 ticks were slept, 50 are remembered, 1900 forgiven.
        let due = account.charge(rate, Ticks(1050), Pages(4), PagesPerSec(1000), bounds());
        assert_eq!((due.period, due.pause), (Ticks(1), Some(Ticks(50))));
    }

    #[test]
    fn idleness_earns_no_credit() {
        let rate = TickRate::new(250);
        let mut account = Account::new();
        account.run_free(Ticks(1000), Pages(1));
        account.dirtied = Pages(40);
        // 400 ticks away, 10 owed.
        let due = account.charge(rate, Ticks(1400), Pages(40), PagesPerSec(1000), bounds());
        assert_eq!(due.pause, None);
        assert_eq!(account.paused_until, Some(Ticks(1400)));
        assert_eq!(account.dirtied, Pages(0));
        // Away for less than a second it keeps the credit.
        account.charge(rate, Ticks(1500), Pages(40), PagesPerSec(1000), bounds());
        assert_eq!(account.paused_until, Some(Ticks(1410)));
    }

    #[test]
    fn pages_worth_less_than_a_tick_are_looked_at_less_often() {
        let rate = TickRate::new(250);
        let mut account = Account::new();
        account.run_free(Ticks(1000), Pages(8));
        account.dirtied = Pages(8);
        let due = account.charge(rate, Ticks(1000), Pages(8), PagesPerSec(1 << 30), bounds());
        assert_eq!((due.period, due.pause), (Ticks(0), None));
        assert_eq!(
            (account.dirtied, account.dirtied_pause),
            (Pages(8), Pages(16))
        );
    }

    #[test]
    fn the_poll_interval_is_the_root_of_the_distance() {
        assert_eq!(poll_interval(Pages(0), Pages(1 << 16)), Pages(256));
        assert_eq!(poll_interval(Pages(100), Pages(101)), Pages(1));
        assert_eq!(poll_interval(Pages(101), Pages(101)), Pages(1));
        assert_eq!(poll_interval(Pages(900), Pages(101)), Pages(1));
    }
}

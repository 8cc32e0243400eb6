//! The background reclaimer (kswapd): when it is woken, what it does, when it sleeps.
//!
//! ```text
//!   wants_wake() -> balance: Balance::begin, step, shrunk ... -> rest() -> nap of 100 ms -> rest() -> sleep
//!                       ^                                          |            | woken
//!                       '------------ not balanced ---------------'<-----------'
//! ```
//!
//! Invariants
//!   1. One balance makes at most 12 passes that raise the priority, 24 if it begins again
//!      (`Sparing`), and ends at priority 1: it never scans a whole list.
//!   2. A pass that freed something and scanned less than was wanted does not raise it; each such
//!      pass frees at least one page, so a balance ends.
//!   3. After 16 balances in a row that freed nothing it rests until somebody frees a page; ours
//!      makes one more whenever there may be more to find (`Failures::look_again`).
//!
//! Source: mechanisms 3.1 to 3.3; Linux 5.15 and 6.12 mm/vmscan.c: wakeup_kswapd(), kswapd(),
//! kswapd_try_to_sleep(), prepare_kswapd_sleep(), balance_pgdat(), kswapd_shrink_node().
//! Deviations: one node of one zone, order 0, no boost.

use super::scan::{CLUSTER, Priority, ScanRule};
use crate::ticks::TickRate;
use crate::units::{Nanos, Pages};

/// Balances without a page after which the background reclaimer gives up (`MAX_RECLAIM_RETRIES`).
const FAILURES: u32 = 16;
/// The last priority of a balance.
pub const LAST: Priority = Priority(1);
/// The nap before it sleeps for good is `HZ / NAP`.
const NAP: u64 = 10;

/// Balances in a row that freed nothing (`kswapd_failures`), one for a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    count: u32,
    /// It looks again whenever there may be more to find.
    revives: bool,
}

impl Failures {
    /// `revives`: having given up it looks again whenever there may be more to find
    /// (`Tunables::revives_background`).
    #[must_use]
    pub fn new(revives: bool) -> Self {
        Self { count: 0, revives }
    }

    /// A balance has ended; `come`: pages that can be freed came meanwhile, behind its passes. A
    /// reclaimer that slept for them to the end has not looked at them, and if it revives says
    /// nothing of what is left.
    pub fn balanced(&mut self, reclaimed: Pages, come: bool) {
        if reclaimed.is_zero() && !(self.revives && come) {
            self.count = self.count.saturating_add(1);
        }
    }

    /// Anybody's pass over the node has reclaimed pages.
    pub fn reclaimed(&mut self, pages: Pages) {
        if !pages.is_zero() {
            self.count = 0;
        }
    }

    /// There may be more to find than when it gave up: one more balance is worth the while, if it
    /// revives. Answers whether it had given up and has not any more.
    pub fn look_again(&mut self) -> bool {
        if !self.revives {
            return false;
        }
        let had = self.hopeless();
        self.count = self.count.min(FAILURES - 1);
        had
    }

    /// The background reclaimer has given up: direct reclaim has to do.
    #[must_use]
    pub fn hopeless(&self) -> bool {
        self.count >= FAILURES
    }
}

/// True if the node needs no reclaim in the background: free pages are above HIGH.
#[must_use]
pub fn is_balanced(free: Pages, high: Pages) -> bool {
    free > high
}

/// True if an allocator that found free pages below LOW wakes a sleeping background reclaimer.
#[must_use]
pub fn wants_wake(free: Pages, high: Pages, failures: Failures) -> bool {
    !failures.hopeless() && !is_balanced(free, high)
}

/// The background reclaimer's rest after a balance, and again after its nap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Balances again.
    Work,
    /// Naps for that long; if it was woken meanwhile, it works, else it asks again.
    Nap(Nanos),
    /// Sleeps until it is woken. The flags of the node are cleared: see `clears_flags`.
    Sleep,
}

/// Decides whether it may rest. `napped`: it has just napped all through.
///
/// # Panics
/// Unless `hz` lies in 1..=10000.
#[must_use]
pub fn rest(free: Pages, high: Pages, failures: Failures, napped: bool, hz: u32) -> Rest {
    rest_if(failures.hopeless() || is_balanced(free, high), napped, hz)
}

/// The same, if there is no more to do.
///
/// # Panics
/// Unless `hz` lies in 1..=10000.
#[must_use]
pub fn rest_if(done: bool, napped: bool, hz: u32) -> Rest {
    if !done {
        return Rest::Work;
    }
    if napped {
        return Rest::Sleep;
    }
    Rest::Nap(nap(hz))
}

/// The length of a nap.
///
/// # Panics
/// Unless `hz` lies in 1..=10000.
#[must_use]
pub fn nap(hz: u32) -> Nanos {
    let rate = TickRate::new(hz);
    rate.nanos(rate.second_over(NAP))
}

/// True if the node's flags (WRITEBACK, DIRTY, CONGESTED) are cleared when it prepares to rest: it
/// is balanced, and has not merely given up.
#[must_use]
pub fn clears_flags(free: Pages, high: Pages, failures: Failures) -> bool {
    !failures.hopeless() && is_balanced(free, high)
}

/// Spares anonymous pages in the passes of a balance while inactive pages of files are plenty.
///
/// # Source
/// Linux 6.12 mm/vmscan.c, balance_pgdat(), `no_cache_trim_mode`; since 6.10.
#[derive(Clone, Copy, Debug)]
pub struct Sparing {
    once: bool,
    allowed: bool,
    in_vain: bool,
}

impl Sparing {
    /// Sparing is allowed to begin with.
    #[must_use]
    pub const fn new(rule: ScanRule) -> Self {
        Self {
            once: rule.spares_once,
            allowed: true,
            in_vain: false,
        }
    }

    /// True if sparing is allowed.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// A pass has ended; `spared`: inactive pages of files sufficed for it.
    pub fn passed(&mut self, freed: Pages, spared: bool) {
        self.in_vain |= spared && freed.is_zero();
    }

    /// All priorities have been gone through, and nothing was freed. Answers whether to begin
    /// again.
    pub fn begins_again(&mut self) -> bool {
        let again = self.once && self.allowed && self.in_vain;
        self.allowed &= !again;
        again
    }
}

/// The next step of a `Balance`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceStep {
    /// Shrink the node, having aged its anonymous pages (32 of the active list, if the inactive one
    /// is low); then `Balance::shrunk`.
    Shrink {
        /// Share of each list to look at.
        priority: Priority,
        /// Pages wanted.
        target: Pages,
        /// `Sparing`.
        spares_anon: bool,
    },
    /// Over: that many pages were reclaimed. `Failures::balanced` is due.
    Done(Pages),
}

/// One balance of the node (`balance_pgdat`; `pageoutrun` counts them).
#[derive(Clone, Debug)]
pub struct Balance {
    high: Pages,
    priority: Option<Priority>,
    reclaimed: Pages,
    sparing: Sparing,
}

impl Balance {
    /// A balance up to the mark `high`.
    #[must_use]
    pub fn begin(high: Pages, rule: ScanRule) -> Self {
        Self {
            high,
            priority: Some(Priority::GENTLEST),
            reclaimed: Pages::ZERO,
            sparing: Sparing::new(rule),
        }
    }

    /// The next step.
    #[must_use]
    pub fn step(&mut self, free: Pages) -> BalanceStep {
        match self.priority {
            Some(priority) if !is_balanced(free, self.high) => BalanceStep::Shrink {
                priority,
                target: self.target(),
                spares_anon: self.sparing.allowed(),
            },
            Some(_) | None => BalanceStep::Done(self.reclaimed),
        }
    }

    /// The pass that is due is made at that priority.
    pub fn goes_at(&mut self, priority: Priority) {
        self.priority = Some(priority);
    }

    /// The pass has ended; `spared_anon`: inactive pages of files sufficed for it.
    pub fn shrunk(&mut self, reclaimed: Pages, scanned: Pages, spared_anon: bool) {
        self.reclaimed += reclaimed;
        self.sparing.passed(reclaimed, spared_anon);
        let enough = scanned.at_least(reclaimed) >= self.target();
        if enough && !reclaimed.is_zero() {
            return;
        }
        self.priority = self
            .priority
            .filter(|priority| *priority > LAST)
            .and_then(Priority::raised);
        if self.priority.is_none() && self.reclaimed.is_zero() && self.sparing.begins_again() {
            self.priority = Some(Priority::GENTLEST);
        }
    }

    /// A fatal end: the next step is `Done`.
    pub fn stop(&mut self) {
        self.priority = None;
    }

    fn target(&self) -> Pages {
        self.high.at_least(CLUSTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::{LINUX_5_15, LINUX_6_12};

    const HIGH: Pages = Pages(1000);

    fn run(mut pass: impl FnMut(Priority) -> (u64, u64)) -> (Vec<u8>, Pages) {
        let mut balance = Balance::begin(HIGH, LINUX_5_15.scan);
        let mut free = Pages(0);
        let mut passes = Vec::new();
        loop {
            match balance.step(free) {
                BalanceStep::Shrink {
                    priority, target, ..
                } => {
                    assert_eq!(target, HIGH);
                    passes.push(priority.0);
                    let (reclaimed, scanned) = pass(priority);
                    free += Pages(reclaimed);
                    balance.shrunk(Pages(reclaimed), Pages(scanned), false);
                }
                BalanceStep::Done(reclaimed) => return (passes, reclaimed),
            }
        }
    }

    #[test]
    fn it_ends_at_priority_one() {
        let down: Vec<u8> = (1..=12).rev().collect();
        assert_eq!(run(|_| (0, 5000)), (down.clone(), Pages(0)), "nothing came");
        assert_eq!(
            run(|_| (10, 20)),
            (down, Pages(120)),
            "too little was scanned"
        );
    }

    #[test]
    fn enough_scanned_and_something_freed_keeps_the_priority() {
        let (passes, reclaimed) = run(|_| (100, 1000));
        assert_eq!(passes, [12; 11], "until more than 1000 are free");
        assert_eq!(reclaimed, Pages(1100));
        let (passes, _) = run(|priority| if priority.0 > 10 { (0, 0) } else { (2000, 10) });
        assert_eq!(passes, [12, 11, 10]);
    }

    #[test]
    fn a_balance_that_spared_anonymous_pages_in_vain_begins_again_once() {
        let rule = LINUX_6_12.scan;
        let run = |rule, mut freed: Vec<u64>, spared| {
            let mut balance = Balance::begin(HIGH, rule);
            let mut passes = Vec::new();
            while let BalanceStep::Shrink {
                priority,
                spares_anon,
                ..
            } = balance.step(Pages(0))
            {
                passes.push((priority.0, spares_anon));
                let freed = Pages(freed.pop().unwrap_or(0));
                balance.shrunk(freed, freed, spared && spares_anon);
            }
            passes
        };
        let down = |spares| (1..=12).rev().map(move |priority| (priority, spares));
        let once: Vec<_> = down(true).collect();
        let twice: Vec<_> = down(true).chain(down(false)).collect();
        assert_eq!(run(rule, vec![], true), twice);
        assert_eq!(run(rule, vec![], false), once, "none was spared");
        assert_eq!(run(rule, vec![1], true), once, "a page came");
        assert_eq!(run(LINUX_5_15.scan, vec![], true), once, "before 6.10");
    }

    #[test]
    fn sixteen_balances_for_nothing_and_it_gives_up() {
        let mut failures = Failures::default();
        for _ in 0..15 {
            failures.balanced(Pages(0), false);
        }
        assert!(!failures.hopeless());
        failures.balanced(Pages(1), false);
        assert!(!failures.hopeless());
        failures.balanced(Pages(0), false);
        assert!(failures.hopeless());
        assert!(!wants_wake(Pages(0), HIGH, failures));
        assert_eq!(rest(Pages(0), HIGH, failures, true, 250), Rest::Sleep);
        assert!(!clears_flags(Pages(0), HIGH, failures));
        failures.reclaimed(Pages(0));
        assert!(failures.hopeless());
        failures.reclaimed(Pages(1));
        assert!(!failures.hopeless());
        assert!(wants_wake(Pages(0), HIGH, failures));
    }

    #[test]
    fn one_more_balance_may_find_what_has_come_since_it_gave_up() {
        let mut failures = Failures::new(true);
        assert!(!failures.look_again(), "it has not given up");
        for _ in 0..100 {
            failures.balanced(Pages(0), false);
        }
        assert!(failures.look_again());
        assert!(wants_wake(Pages(0), HIGH, failures));
        failures.balanced(Pages(0), true);
        assert!(!failures.hopeless(), "it has not looked at what came");
        failures.balanced(Pages(0), false);
        assert!(failures.hopeless(), "one, not sixteen");
        let mut failures = Failures::new(false);
        for _ in 0..16 {
            failures.balanced(Pages(0), true);
        }
        assert!(failures.hopeless() && !failures.look_again(), "for good");
        assert!(failures.hopeless());
    }

    #[test]
    fn it_naps_before_it_sleeps() {
        let none = Failures::default();
        assert_eq!(
            rest(HIGH, HIGH, none, false, 250),
            Rest::Work,
            "at the mark is not above it"
        );
        let above = Pages(1001);
        assert_eq!(
            rest(above, HIGH, none, false, 250),
            Rest::Nap(Nanos::millis(100))
        );
        assert_eq!(rest(above, HIGH, none, true, 250), Rest::Sleep);
        assert!(clears_flags(above, HIGH, none));
        assert!(!wants_wake(above, HIGH, none));
    }
}

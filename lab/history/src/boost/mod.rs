//! Laws of boosts (`policy::reclaim::boost`), and a balance of a node some of whose zones are
//! boosted.
//!
//! ```text
//!   begin(sum of boosts)
//!        above HIGH + boost    -> boosted passes, priorities 12 to 10: no write, no swap, and in 5.0 no shrinker
//!                                 until as much is freed as was boosted, or a pass frees nothing
//!        not above it          -> ordinary passes, from 12 on; the marks stay boosted until the end
//!   Done -> Boost::retire(what it was at the beginning)
//! ```
//!
//! Invariants
//!   1. A boosted pass never writes, never swaps, and is never below priority 10.
//!   2. A balance ends: it turns from boosted to ordinary once, and each pass that keeps its
//!      priority frees a page.
//!
//! Source: mechanisms 3.4; kernel-facts 16; paper p3; Linux 5.0, 5.3 and 6.12 mm/vmscan.c,
//! balance_pgdat().

use policy::reclaim::background::{LAST, Sparing};
use policy::reclaim::boost::{BoostRule, BoostedBy};
use policy::reclaim::scan::{Priority, ScanRule};
use policy::units::Pages;

/// `vm.watermark_boost_factor`: the cap, in 1/10000 of HIGH.
const FACTOR: u64 = 15_000;
/// Boosted passes go no further than this (`DEF_PRIORITY - 2`).
const BOOSTED_LAST: Priority = Priority(10);

/// Linux 4.20: there is none.
pub const LINUX_4_20: BoostRule = BoostRule {
    name: "linux-4.20",
    by: BoostedBy::Nothing,
    factor: 0,
    blocks_least: 0,
    marks_unboosted: false,
    finder_may_wake: false,
    spares_urgent: false,
    shrinks: true,
    trims_shrink: true,
};
/// Linux 5.0, the paper's baseline.
pub const LINUX_5_0: BoostRule = BoostRule {
    name: "linux-5.0",
    by: BoostedBy::Events,
    factor: FACTOR,
    marks_unboosted: true,
    shrinks: false,
    trims_shrink: false,
    ..LINUX_4_20
};
/// The paper's patch: shrinkers run in every pass.
pub const LINUX_5_0_P3: BoostRule = BoostRule {
    name: "linux-5.0+p3",
    shrinks: true,
    trims_shrink: true,
    ..LINUX_5_0
};
/// Linux 5.3, which has the patch as it was merged (commit 28360f398778).
pub const LINUX_5_3: BoostRule = BoostRule {
    name: "linux-5.3",
    ..LINUX_5_0_P3
};
/// Linux 6.12.117.
pub const LINUX_6_12: BoostRule = BoostRule {
    name: "linux-6.12",
    by: BoostedBy::Claims,
    blocks_least: 4,
    marks_unboosted: false,
    finder_may_wake: true,
    spares_urgent: true,
    ..LINUX_5_3
};

/// All of them, in the order of history, and ours. A new one joins here.
pub const ALL: [BoostRule; 6] = [
    LINUX_4_20,
    LINUX_5_0,
    LINUX_5_0_P3,
    LINUX_5_3,
    LINUX_6_12,
    BoostRule::TIDEGATE,
];

/// The rule of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<BoostRule> {
    ALL.into_iter().find(|rule| rule.name == name)
}

/// The permissions of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Write dirty pages.
    pub writes: bool,
    /// Take anonymous pages.
    pub swaps: bool,
    /// Run the shrinkers.
    pub shrinks: bool,
}

/// The next step of a `BoostedBalance`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoostStep {
    /// A pass over the node; then `BoostedBalance::shrunk`.
    Shrink {
        /// Share of each list and cache to look at.
        priority: Priority,
        /// Its rights.
        allowed: Allowed,
        /// It frees for the boost, and not because the node is short.
        boosted: bool,
        /// `background::Sparing`.
        spares_anon: bool,
    },
    /// Over. Each zone retires the boost it had at the beginning.
    Done(BalanceEnd),
}

/// The outcome of a balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceEnd {
    /// Pages freed, those of slabs included.
    pub freed: Pages,
    /// The balance counts as failed.
    pub failed: bool,
    /// Compaction of a pageblock is due.
    pub compacts: bool,
}

/// A balance of a node some of whose zones may be boosted.
#[derive(Clone, Debug)]
pub struct BoostedBalance {
    rule: BoostRule,
    /// Still to be freed for the boost.
    left: Pages,
    boosted: bool,
    priority: Option<Priority>,
    freed: Pages,
    sparing: Sparing,
}

impl BoostedBalance {
    /// A balance; `boosts`: the sum over the node's zones, each of which is noted by the caller.
    #[must_use]
    pub fn begin(rule: BoostRule, boosts: Pages, scan: ScanRule) -> Self {
        Self {
            rule,
            left: boosts,
            boosted: !boosts.is_zero(),
            priority: Some(Priority::GENTLEST),
            freed: Pages::ZERO,
            sparing: Sparing::new(scan),
        }
    }

    /// The next step. `balanced`: some zone is above HIGH and the boost that it has now.
    #[must_use]
    pub fn step(&mut self, balanced: bool) -> BoostStep {
        let Some(mut priority) = self.priority else {
            return BoostStep::Done(self.end(false));
        };
        if !balanced && self.is_for_boost() {
            self.left = Pages::ZERO;
            priority = Priority::GENTLEST;
            self.priority = Some(priority);
        }
        if balanced && !self.is_for_boost() {
            return BoostStep::Done(self.end(true));
        }
        let boosted = self.is_for_boost();
        BoostStep::Shrink {
            priority,
            allowed: Allowed {
                writes: !boosted,
                swaps: !boosted,
                shrinks: !boosted || self.rule.shrinks,
            },
            boosted,
            spares_anon: self.sparing.allowed(),
        }
    }

    /// The pass that is due is made at that priority.
    pub fn goes_at(&mut self, priority: Priority) {
        self.priority = Some(priority);
    }

    /// The pass has ended. `freed`: with the pages of slabs. `enough`: it scanned as many as the
    /// zones' marks say (HIGH and boost of each, at least a cluster).
    pub fn shrunk(&mut self, freed: Pages, enough: bool, spared_anon: bool) {
        self.sparing.passed(freed, spared_anon);
        let stays = self.is_for_boost() && self.priority == Some(BOOSTED_LAST);
        self.freed += freed;
        self.left = self.left.saturating_sub(freed);
        if self.is_for_boost() && freed.is_zero() {
            self.priority = None;
        } else if freed.is_zero() || !(enough || stays) {
            self.priority = self
                .priority
                .filter(|priority| *priority > LAST)
                .and_then(Priority::raised);
            if self.priority.is_none() && self.freed.is_zero() && self.sparing.begins_again() {
                self.priority = Some(Priority::GENTLEST);
            }
        }
    }

    fn is_for_boost(&self) -> bool {
        !self.left.is_zero()
    }

    fn end(&self, balanced: bool) -> BalanceEnd {
        BalanceEnd {
            freed: self.freed,
            // A boosted one, too (until 6.18).
            failed: !balanced && self.freed.is_zero(),
            compacts: self.boosted,
        }
    }
}

#[cfg(test)]
mod tests;

//! The watermark boost: a zone whose pageblocks were mixed keeps more memory free for a while.
//!
//! Where an allocation has to take from the free lists of another mobility, a pageblock comes to
//! hold both, and no huge page can be made of it. Since 5.0 Linux answers each such event by
//! raising the marks of the zone by a pageblock, up to a cap; the background reclaimer then frees
//! as much more, gently.
//!
//! ```text
//!   event -> Boost::on_event: + 1 pageblock, at most 150 % of HIGH     every mark of the zone stands higher by it
//!         -> Boost::on_allocated: wake the background reclaimer
//!   a balance of the background (`history::boost`)
//!         -> Boost::retire(what it was at the beginning)
//! ```
//!
//! Invariants
//!   1. A boost is never above its cap, and falls at the end of a balance only: not with time, and
//!      not by what was freed.
//!   2. A boost that was added during a balance outlives it.
//!
//! Source: mechanisms 1.4, 3.4; kernel-facts 15, 16; paper p3; Linux 5.0, 5.3 and 6.12
//! mm/page_alloc.c, boost_watermark(), rmqueue(); mm/vmscan.c, balance_pgdat(), wakeup_kswapd().
//! Deviations: a pageblock has the size its owner says, so that a scaled memory keeps the
//! proportion; order 0; no laptop mode.

use crate::units::Pages;
use crate::watermark::{AllocRight, Watermarks};

/// An allocation's effect on a pageblock of another mobility, of which it takes less than the
/// whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It tries to make the pageblock its own; whether it can is seen later.
    Claims,
    /// It takes a block and leaves the rest as it is.
    Takes,
}

/// Which events boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoostedBy {
    /// None.
    Nothing,
    /// All.
    Events,
    /// Requests that try to claim.
    Claims,
}

/// A law of boosts, and the rights of its boosted passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoostRule {
    /// Name of its column.
    pub name: &'static str,
    /// Which events boost.
    pub by: BoostedBy,
    /// The cap, in 1/10000 of HIGH (`vm.watermark_boost_factor`). 0: no boost.
    pub factor: u64,
    /// A zone of fewer pageblocks is not boosted (4 since 5.7).
    pub blocks_least: u64,
    /// The zone is marked, so that the next allocation wakes the reclaimer, even if the event did
    /// not boost it.
    pub marks_unboosted: bool,
    /// A mark is heeded only by an allocation that may itself wake the reclaimer; else by any.
    pub finder_may_wake: bool,
    /// A task that others depend on goes below MIN as if there were no boost (5.9 and later).
    pub spares_urgent: bool,
    /// Boosted passes run the shrinkers.
    pub shrinks: bool,
    /// Trims of a zone (`place::trim`) run the shrinkers. Linux 5.0 forgot to allow it.
    pub trims_shrink: bool,
}

impl BoostRule {
    /// Tidegate's own: events are counted and not answered.
    pub const TIDEGATE: Self = Self {
        name: "tidegate",
        by: BoostedBy::Nothing,
        factor: 0,
        blocks_least: 0,
        marks_unboosted: false,
        finder_may_wake: false,
        spares_urgent: false,
        shrinks: true,
        trims_shrink: true,
    };

    /// True if a zone is ever boosted.
    #[must_use]
    pub fn boosts(&self) -> bool {
        self.by != BoostedBy::Nothing && self.factor > 0
    }

    fn heeds(&self, event: Event) -> bool {
        match self.by {
            BoostedBy::Nothing => false,
            BoostedBy::Events => true,
            BoostedBy::Claims => event == Event::Claims,
        }
    }

    /// The highest boost of a zone; `None`: it is not boosted at all.
    fn most(&self, zone: BoostZone) -> Option<Pages> {
        let too_small = zone.pages.0 < zone.pageblock.0.saturating_mul(self.blocks_least);
        let share = u128::from(zone.high.0) * u128::from(self.factor) / 10_000;
        let share = Pages(u64::try_from(share).unwrap_or(u64::MAX));
        // Without a mark, as while the machine comes up, there is no cap of a pageblock either.
        (!too_small && !share.is_zero()).then(|| share.at_least(zone.pageblock))
    }
}

/// The sizes of a zone that bound its boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoostZone {
    /// Its size.
    pub pages: Pages,
    /// Its mark HIGH, without a boost.
    pub high: Pages,
    /// Pages of a pageblock.
    pub pageblock: Pages,
}

/// The boost of one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boost {
    pages: Pages,
    /// An allocation will wake the reclaimer (`ZONE_BOOSTED_WATERMARK`).
    marked: bool,
}

impl Boost {
    /// A pageblock of the zone was mixed. `may_wake`: the request may wake the background reclaimer
    /// (`ALLOC_KSWAPD`). Answers whether the zone was boosted, if only up to its cap.
    pub fn on_event(
        &mut self,
        rule: &BoostRule,
        zone: BoostZone,
        event: Event,
        may_wake: bool,
    ) -> bool {
        if !rule.heeds(event) {
            return false;
        }
        let most = rule.most(zone);
        if let Some(most) = most {
            self.pages = self.pages.saturating_add(zone.pageblock).at_most(most);
        }
        self.marked |= may_wake && (most.is_some() || rule.marks_unboosted);
        most.is_some()
    }

    /// An allocation from the zone has ended; `may_wake` as in `on_event`. Answers whether the
    /// reclaimer of the node is to be woken, for single pages.
    pub fn on_allocated(&mut self, rule: &BoostRule, may_wake: bool) -> bool {
        let heeds = self.marked && (may_wake || !rule.finder_may_wake);
        if heeds {
            self.marked = false;
        }
        heeds
    }

    /// Pages by which the marks of the zone stand higher.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The marks as they are compared with.
    #[must_use]
    pub fn raised(&self, marks: Watermarks) -> Watermarks {
        marks.raised_by(self.pages)
    }

    /// MIN as a request for a single page compares with it.
    #[must_use]
    pub fn min(&self, rule: &BoostRule, marks: Watermarks, right: AllocRight) -> Pages {
        let is_urgent = matches!(right, AllocRight::High | AllocRight::Atomic);
        if rule.spares_urgent && is_urgent {
            marks.min
        } else {
            self.raised(marks).min
        }
    }

    /// A balance has ended at whose beginning the boost was `noted`.
    pub fn retire(&mut self, noted: Pages) {
        self.pages = self.pages.saturating_sub(noted);
    }

    /// The marks were set anew, as by `vm.watermark_scale_factor`.
    pub fn reset(&mut self) {
        self.pages = Pages::ZERO;
    }
}

/// The terms of waking a node's reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waking {
    /// Some zone is above HIGH and its boost.
    pub balanced: bool,
    /// Some zone is boosted.
    pub boosted: bool,
    /// The reclaimer has given up (`background::Failures::hopeless`).
    pub hopeless: bool,
}

/// True if the reclaimer of a node is woken: a boost wakes it though the node is balanced.
#[must_use]
pub fn wants_wake(node: Waking) -> bool {
    !node.hopeless && (!node.balanced || node.boosted)
}

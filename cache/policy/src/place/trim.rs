//! Decides whether a zone is trimmed before another one is tried, how far, and names the outcome.
//!
//! A trim is worth it where enough of the zone can be freed without a write or an unmapping that
//! its mode does not allow. It begins at a sixteenth of the lists and looks at twice as much with
//! each pass.
//!
//! ```text
//!   page cache within the mode <= 1 % and slab <= 5 % of the zone      -> Full
//!   the task may not wait, frees memory itself, is of another node,
//!   or somebody is at it                                                 -> NoScan
//!   else passes at 1/16, 1/8, 1/4, 1/2, 1 of the lists until enough      -> Some or Success
//!        3.0: with page cache > 1 %; behind them objects, with slab > 5 %, until slabs have enough less
//! ```
//!
//! Source: mechanisms 1.7; Linux 3.0 mm/vmscan.c, zone_reclaim(), __zone_reclaim();
//! Linux 6.12 mm/vmscan.c, node_reclaim(), __node_reclaim(); mm/page_alloc.c,
//! zone_allows_reclaim().

use crate::reclaim::scan::{CLUSTER, Priority};
use crate::units::Pages;

/// Of a zone: page cache that a trim may take at least, in per cent (`sysctl_min_unmapped_ratio`).
const UNMAPPED_PERCENT: u64 = 1;
/// Of a zone: slab that can be reclaimed, in per cent (`sysctl_min_slab_ratio`).
const SLAB_PERCENT: u64 = 5;
/// The first pass looks at a sixteenth (`ZONE_RECLAIM_PRIORITY`).
const FIRST: Priority = Priority(4);

/// The permissions of a trim (`zone_reclaim_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// Write dirty pages.
    pub writes: bool,
    /// Unmap pages.
    pub unmaps: bool,
}

impl Mode {
    /// Neither: clean page cache that nobody has mapped (mode 1).
    pub const RECLAIM: Self = Self {
        writes: false,
        unmaps: false,
    };
}

/// A zone as a trim sees it; sizes in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The zone itself.
    pub zone: Pages,
    /// Of files, on its lists.
    pub file: Pages,
    /// Of those, mapped somewhere.
    pub mapped: Pages,
    /// Of files, dirty.
    pub dirty: Pages,
    /// Slab that can be reclaimed.
    pub slab: Pages,
    /// Its reclaimer has given up on it (3.x: `all_unreclaimable`).
    pub hopeless: bool,
}

/// The task that asks for a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// It may wait.
    pub may_wait: bool,
    /// It is freeing memory, or writes pages for others (`PF_MEMALLOC`).
    pub frees_memory: bool,
    /// The zone is of its own node, or of one without CPUs.
    pub is_local: bool,
    /// From its node to the zone's.
    pub distance: u8,
}

/// The decision on a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Not by this task, not now. Says nothing of the zone.
    NoScan,
    /// There is too little that could be freed.
    Full,
    /// Passes, with `Trim`. The caller claims the zone for itself first; where another task has it,
    /// that is `NoScan`.
    Go,
}

/// The outcome of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As `Start::NoScan`.
    NoScan,
    /// As `Start::Full`.
    Full,
    /// It freed less than was wanted.
    Some,
    /// It freed what was wanted.
    Success,
}

/// Page cache that a trim in that mode could free.
#[must_use]
pub fn reclaimable(mode: Mode, seen: &Seen) -> Pages {
    let unmapped = seen.file.saturating_sub(seen.mapped);
    let within = if mode.unmaps { seen.file } else { unmapped };
    let dirty = if mode.writes { Pages::ZERO } else { seen.dirty };
    within.saturating_sub(dirty)
}

/// Decides whether a task trims a zone. `within`: see `PlaceLaw::trims_within`.
#[must_use]
pub fn start(mode: Mode, within: Option<u8>, seen: &Seen, asker: Asker) -> Start {
    // Since the list has been asked whether it may be trimmed at all, a far zone is passed over
    // like a full one.
    if within.is_some_and(|most| asker.distance > most) {
        return Start::Full;
    }
    let worth = has_page_cache(mode, seen) || has_slab(seen);
    if !worth || seen.hopeless {
        return Start::Full;
    }
    if !asker.may_wait || asker.frees_memory || !asker.is_local {
        return Start::NoScan;
    }
    Start::Go
}

/// True if it has page cache enough that a trim in that mode could free.
#[must_use]
pub fn has_page_cache(mode: Mode, seen: &Seen) -> bool {
    is_more(reclaimable(mode, seen), UNMAPPED_PERCENT, seen)
}

/// True if it has slab enough to ask caches of objects.
#[must_use]
pub fn has_slab(seen: &Seen) -> bool {
    is_more(seen.slab, SLAB_PERCENT, seen)
}

fn is_more(pages: Pages, percent: u64, seen: &Seen) -> bool {
    pages.0 * 100 > seen.zone.0 * percent
}

/// The passes of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    wanted: Pages,
    freed: Pages,
    next: Option<Priority>,
}

/// One pass over the zone's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimPass {
    /// Share of each list to look at.
    pub priority: Priority,
    /// It stops when this many pages are freed.
    pub target: Pages,
}

impl Trim {
    /// For an allocation of `wanted` pages in a run.
    #[must_use]
    pub fn begin(wanted: Pages) -> Self {
        Self {
            wanted: wanted.at_least(Pages(1)),
            freed: Pages::ZERO,
            next: Some(FIRST),
        }
    }

    /// The next pass; `None`: the trim has ended.
    #[must_use]
    pub fn step(&self) -> Option<TrimPass> {
        if self.freed >= self.wanted {
            return None;
        }
        let priority = self.next?;
        let target = self.wanted.at_least(CLUSTER);
        Some(TrimPass { priority, target })
    }

    /// A pass has freed pages.
    pub fn passed(&mut self, freed: Pages) {
        self.freed += freed;
        self.next = self.next.and_then(Priority::raised);
    }

    /// It has asked caches of objects behind its passes: the slabs of the zone have `pages` fewer
    /// pages. Pages that went with inodes do not count.
    pub fn slabs_fell(&mut self, pages: Pages) {
        self.freed += pages;
    }

    /// Its outcome.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.freed >= self.wanted {
            Outcome::Success
        } else {
            Outcome::Some
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Asker = Asker {
        may_wait: true,
        frees_memory: false,
        is_local: true,
        distance: 10,
    };
    const WRITES: Mode = Mode {
        writes: true,
        unmaps: false,
    };
    const UNMAPS: Mode = Mode {
        writes: false,
        unmaps: true,
    };

    fn seen() -> Seen {
        Seen {
            zone: Pages(10_000),
            file: Pages(6_000),
            mapped: Pages(1_000),
            dirty: Pages(2_000),
            ..Seen::default()
        }
    }

    #[test]
    fn a_mode_says_what_could_be_freed() {
        let clean = |mode| reclaimable(mode, &seen());
        assert_eq!(clean(Mode::RECLAIM), Pages(3_000));
        assert_eq!(clean(WRITES), Pages(5_000));
        assert_eq!(clean(UNMAPS), Pages(4_000));
        let all_dirty = Seen {
            dirty: Pages(5_500),
            ..seen()
        };
        assert_eq!(reclaimable(Mode::RECLAIM, &all_dirty), Pages::ZERO);
    }

    #[test]
    fn one_per_cent_of_page_cache_or_five_of_slab_is_too_little() {
        let with = |dirty, slab| {
            let seen = Seen {
                dirty: Pages(dirty),
                slab: Pages(slab),
                ..seen()
            };
            start(Mode::RECLAIM, None, &seen, LOCAL)
        };
        assert_eq!(with(4_900, 0), Start::Full);
        assert_eq!(with(4_899, 0), Start::Go);
        assert_eq!(with(5_000, 500), Start::Full);
        assert_eq!(with(5_000, 501), Start::Go);
    }

    #[test]
    fn a_hopeless_zone_is_full_for_who_could_trim_it_and_who_could_not() {
        let hopeless = Seen {
            hopeless: true,
            ..seen()
        };
        let remote = Asker {
            is_local: false,
            ..LOCAL
        };
        assert_eq!(start(Mode::RECLAIM, None, &hopeless, LOCAL), Start::Full);
        assert_eq!(start(Mode::RECLAIM, None, &hopeless, remote), Start::Full);
    }

    #[test]
    fn who_cannot_trim_learns_nothing_of_the_zone() {
        let of = |asker| start(Mode::RECLAIM, None, &seen(), asker);
        let cannot = [
            Asker {
                may_wait: false,
                ..LOCAL
            },
            Asker {
                frees_memory: true,
                ..LOCAL
            },
            Asker {
                is_local: false,
                ..LOCAL
            },
        ];
        assert_eq!(cannot.map(of), [Start::NoScan; 3]);
        assert_eq!(of(LOCAL), Start::Go);
    }

    #[test]
    fn since_nodes_have_distances_a_far_one_is_passed_over() {
        let far = Asker {
            distance: 31,
            ..LOCAL
        };
        let near = Asker {
            distance: 30,
            ..LOCAL
        };
        assert_eq!(start(Mode::RECLAIM, Some(30), &seen(), far), Start::Full);
        assert_eq!(start(Mode::RECLAIM, Some(30), &seen(), near), Start::Go);
    }

    #[test]
    fn passes_begin_at_a_sixteenth_and_end_with_all() {
        let mut trim = Trim::begin(Pages(1));
        let mut priorities = Vec::new();
        while let Some(pass) = trim.step() {
            assert_eq!(pass.target, CLUSTER);
            priorities.push(pass.priority.0);
            trim.passed(Pages::ZERO);
        }
        assert_eq!(priorities, [4, 3, 2, 1, 0]);
        assert_eq!(trim.outcome(), Outcome::Some);
    }

    #[test]
    fn a_trim_ends_with_the_run_that_was_wanted() {
        let mut trim = Trim::begin(Pages(512));
        trim.passed(Pages(500));
        assert_eq!(trim.outcome(), Outcome::Some);
        assert_eq!(
            trim.step(),
            Some(TrimPass {
                priority: Priority(3),
                target: Pages(512)
            })
        );
        trim.passed(Pages(12));
        assert_eq!(trim.step(), None);
        assert_eq!(trim.outcome(), Outcome::Success);
    }
}

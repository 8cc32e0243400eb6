//! Reclaim by a task on its own behalf: which passes, and when to stop.
//!
//! ```text
//! let mut direct = Direct::begin(CLUSTER);
//! loop {
//!     match direct.step() {
//!         DirectStep::Begin => count("allocstall"),           // once, and at each start over
//!         DirectStep::Shrink(sweep) => {
//!             let mut got = Got::default();
//!             for each node {
//!                 got += shrink_node(node, sweep.priority, ...);     // reclaimed, scanned, skipped
//!                 throttle.after_node(direct.progress(&got))         // mechanisms 4.5
//!             }
//!             throttle.after_nodes(direct.progress(&got));
//!             direct.shrunk(got);
//!         }
//!         DirectStep::Done(reclaimed) => return reclaimed,
//!     }
//! }
//! ```
//!
//! Invariants
//!   1. At most 13 passes, and 13 more after a start over; there is one start over at most.
//!   2. Pages reclaimed add up over the passes; pages scanned are of one pass alone.
//!
//! Source: mechanisms 3.6; Linux 5.15 and 6.12 mm/vmscan.c: try_to_free_pages(),
//! do_try_to_free_pages(), too_many_isolated(), allow_direct_reclaim().
//! Deviations: no cgroups, order 0.

use super::scan::Priority;
use super::throttle::Progress;
use crate::units::Pages;

/// A task that may start I/O and enter the file system leaves off at an eighth of the inactive
/// pages, so that a task that may not can get on then.
const ISOLATED_SHIFT: u32 = 3;

/// The next step of a `Direct`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectStep {
    /// Count a stall (`allocstall`): the priorities start over.
    Begin,
    /// Shrink the node, then `Direct::shrunk`.
    Shrink(Sweep),
    /// Enough, or nothing more to try: that many pages were reclaimed.
    Done(Pages),
}

/// The parameters of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Share of each list to look at.
    pub priority: Priority,
    /// Active lists are deactivated even if the inactive ones are large enough.
    pub force_deactivate: bool,
    /// Pages still wanted when the pass begins, at least one.
    pub wanted: Pages,
}

/// The yield of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Pages reclaimed.
    pub reclaimed: Pages,
    /// Pages scanned.
    pub scanned: Pages,
    /// An active list was left alone because the inactive one was large enough.
    pub skipped_deactivate: bool,
    /// It met hardly anything but pages in use (`page::Tally::is_fruitless`).
    pub fruitless: bool,
    /// Inactive pages of files sufficed for it (`background::Sparing`).
    pub spared_anon: bool,
}

impl core::ops::AddAssign for Got {
    /// Adds the yield of a pass over another node at one priority.
    fn add_assign(&mut self, other: Self) {
        self.reclaimed += other.reclaimed;
        self.scanned += other.scanned;
        self.skipped_deactivate |= other.skipped_deactivate;
        self.fruitless |= other.fruitless;
        self.spared_anon |= other.spared_anon;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Shrink(Priority),
    Done,
}

/// One direct reclaim.
#[derive(Clone, Debug)]
pub struct Direct {
    target: Pages,
    state: State,
    reclaimed: Pages,
    priority: Priority,
    force_deactivate: bool,
    skipped_deactivate: bool,
}

impl Direct {
    /// Reclaim of `target` pages (`scan::CLUSTER` in the kernel, whatever is to be allocated).
    #[must_use]
    pub fn begin(target: Pages) -> Self {
        Self {
            target: target.at_least(Pages(1)),
            state: State::Begin,
            reclaimed: Pages::ZERO,
            priority: Priority::GENTLEST,
            force_deactivate: false,
            skipped_deactivate: false,
        }
    }

    /// The next step.
    #[must_use]
    pub fn step(&mut self) -> DirectStep {
        match self.state {
            State::Begin => {
                self.state = State::Shrink(Priority::GENTLEST);
                DirectStep::Begin
            }
            State::Shrink(priority) => {
                self.priority = priority;
                DirectStep::Shrink(Sweep {
                    priority,
                    force_deactivate: self.force_deactivate,
                    wanted: self
                        .target
                        .saturating_sub(self.reclaimed)
                        .at_least(Pages(1)),
                })
            }
            State::Done => DirectStep::Done(self.reclaimed),
        }
    }

    /// The pass that `step` asked for has ended.
    pub fn shrunk(&mut self, got: Got) {
        let State::Shrink(priority) = self.state else {
            return;
        };
        self.reclaimed += got.reclaimed;
        self.skipped_deactivate |= got.skipped_deactivate;
        self.state = if self.reclaimed >= self.target {
            State::Done
        } else if let Some(next) = priority.raised() {
            State::Shrink(next)
        } else if self.reclaimed.is_zero() && self.skipped_deactivate && !self.force_deactivate {
            self.force_deactivate = true;
            State::Begin
        } else {
            State::Done
        };
    }

    /// Its progress in the midst of a pass, `got` by the nodes so far. Before `shrunk`.
    #[must_use]
    pub fn progress(&self, got: &Got) -> Progress {
        Progress {
            reclaimed: self.reclaimed + got.reclaimed,
            scanned: got.scanned,
            priority: self.priority,
            background: false,
        }
    }

    /// A fatal end of the task: the next step is `Done`.
    pub fn stop(&mut self) {
        self.state = State::Done;
    }
}

/// True if a direct reclaimer finds too many pages of a kind isolated. The background reclaimer
/// does not ask.
///
/// # Source
/// Mechanisms 2.4; Linux 5.15 mm/vmscan.c, too_many_isolated().
#[must_use]
pub fn too_many_isolated(isolated: Pages, inactive: Pages, may_io_and_fs: bool) -> bool {
    isolated > isolated_limit(inactive, may_io_and_fs)
}

/// As many pages of a kind may be isolated.
#[must_use]
pub fn isolated_limit(inactive: Pages, may_io_and_fs: bool) -> Pages {
    if may_io_and_fs {
        Pages(inactive.0 >> ISOLATED_SHIFT)
    } else {
        inactive
    }
}

/// True if a task may begin direct reclaim now; if not, it waits until it may
/// (`pgscan_direct_throttle`): half the reserve is left to those that free memory.
///
/// # Source
/// Mechanisms 3.6; Linux 5.15 mm/vmscan.c, allow_direct_reclaim().
#[must_use]
pub fn may_begin(free: Pages, min: Pages, hopeless: bool) -> bool {
    min.is_zero() || hopeless || free > Pages(min.0 / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mut pass: impl FnMut(Sweep) -> Got) -> (Vec<(u8, bool)>, u32, Pages) {
        let mut direct = Direct::begin(Pages(32));
        let (mut passes, mut stalls) = (Vec::new(), 0);
        loop {
            match direct.step() {
                DirectStep::Begin => stalls += 1,
                DirectStep::Shrink(sweep) => {
                    passes.push((sweep.priority.0, sweep.force_deactivate));
                    let got = pass(sweep);
                    let progress = direct.progress(&got);
                    assert_eq!(progress.priority, sweep.priority);
                    assert_eq!(progress.scanned, got.scanned, "of this pass alone");
                    direct.shrunk(got);
                }
                DirectStep::Done(reclaimed) => return (passes, stalls, reclaimed),
            }
        }
    }

    fn got(reclaimed: u64) -> Got {
        Got {
            reclaimed: Pages(reclaimed),
            scanned: Pages(100),
            skipped_deactivate: false,
            fruitless: false,
            spared_anon: false,
        }
    }

    #[test]
    fn thirteen_passes_and_no_more() {
        let (passes, stalls, reclaimed) = run(|_| got(0));
        let expected: Vec<_> = (0..=12).rev().map(|priority| (priority, false)).collect();
        assert_eq!(passes, expected);
        assert_eq!((stalls, reclaimed), (1, Pages::ZERO));
    }

    #[test]
    fn pages_of_all_passes_count_for_the_target() {
        let (passes, _, reclaimed) = run(|_| got(16));
        assert_eq!(passes.len(), 2);
        assert_eq!(reclaimed, Pages(32));
        let (passes, _, reclaimed) = run(|_| got(1));
        assert_eq!(
            (passes.len(), reclaimed),
            (13, Pages(13)),
            "some is not none"
        );
    }

    #[test]
    fn it_starts_over_once_if_active_lists_were_spared_and_nothing_came() {
        let spared = |sweep: Sweep| Got {
            skipped_deactivate: !sweep.force_deactivate,
            ..got(0)
        };
        let (passes, stalls, _) = run(spared);
        assert_eq!((passes.len(), stalls), (26, 2));
        assert!(passes[13..].iter().all(|(_, forced)| *forced));
        let always = |_| Got {
            skipped_deactivate: true,
            ..got(0)
        };
        assert_eq!(run(always).1, 2, "once");
        let some = |_| Got {
            skipped_deactivate: true,
            ..got(1)
        };
        assert_eq!(run(some).1, 1, "not if something came");
    }

    #[test]
    fn what_is_wanted_shrinks_and_a_stop_ends_it() {
        let mut direct = Direct::begin(Pages(32));
        assert_eq!(direct.step(), DirectStep::Begin);
        let DirectStep::Shrink(_) = direct.step() else {
            panic!("a pass comes first")
        };
        direct.shrunk(got(30));
        assert!(matches!(
            direct.step(),
            DirectStep::Shrink(Sweep {
                wanted: Pages(2),
                priority: Priority(11),
                ..
            })
        ));
        direct.stop();
        assert_eq!(direct.step(), DirectStep::Done(Pages(30)));
    }

    #[test]
    fn one_who_may_do_io_leaves_off_first() {
        assert!(!too_many_isolated(Pages(100), Pages(800), true));
        assert!(too_many_isolated(Pages(101), Pages(800), true));
        assert!(!too_many_isolated(Pages(800), Pages(800), false));
        assert!(too_many_isolated(Pages(801), Pages(800), false));
        assert!(!too_many_isolated(Pages(0), Pages(0), true));
    }

    #[test]
    fn half_the_reserve_is_for_those_who_free() {
        assert!(!may_begin(Pages(50), Pages(100), false));
        assert!(may_begin(Pages(51), Pages(100), false));
        assert!(may_begin(Pages(0), Pages(100), true));
        assert!(may_begin(Pages(0), Pages(0), false));
    }
}

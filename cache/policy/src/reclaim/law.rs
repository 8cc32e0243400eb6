//! The parts of a law of reclaim: one row of `Rules`, written down in one file of
//! `history::reclaim`.
//!
//! A procedure asks the row (`tunables.law.admission`, `tunables.law.page`), never for the name of
//! the law. So a new law is a file with its row and a line in the `ALL` there.

use core::fmt;
use core::ops::Deref;

use super::page::JudgeRule;
use super::scan::{CostRule, ScanRule};
use super::throttle::law::ThrottleLaw;
use crate::units::Pages;
use crate::watermark::Watermarks;

/// A law of reclaim. Its rules are read through it: `law.page`, `law.cost`.
#[derive(Clone, Copy)]
pub struct ReclaimLaw(&'static Rules);

/// Everything in which laws of reclaim differ.
pub struct Rules {
    /// Its name in scenarios. No two laws share one.
    pub name: &'static str,
    /// Pages are in generations (`generations`), and not on inactive and active lists.
    pub generations: bool,
    /// Of generations: before one begins, page tables are walked for pages that were used, which
    /// are the youngest then.
    pub walks_tables: bool,
    /// The verdicts on isolated pages.
    pub page: JudgeRule,
    /// The measure of the cost of reclaiming pages of a kind.
    pub cost: CostRule,
    /// The passes over the lists.
    pub scan: ScanRule,
    /// The kind of passes, and their end.
    pub loops: Loops,
    /// The bound on isolated pages, and the course of a reclaimer that finds more.
    pub isolation: Isolation,
    /// When inactive pages of files suffice, so that anonymous ones are left alone.
    pub plenty: Plenty,
    /// Why reclaimers sleep, and what wakes them.
    pub throttle: &'static dyn ThrottleLaw,
    /// Admission of a task that finds memory short.
    pub admission: Admission,
    /// Half of the reserve is for those that free memory (`direct::may_begin`; 3.6 and later).
    pub keeps_half_the_reserve: bool,
    /// A page that was evicted and is read again is known again (`workingset`; 3.15 and later).
    pub knows_again: bool,
    /// A page of a file that is accessed a second time goes to the active list at once (3.x). Else
    /// it is marked, and goes when a scan meets it: the lists are as long as they would be only
    /// then, but an access takes no lock.
    pub activates_at_once: bool,
    /// Writing to a page of a file is a use, as reading it is (before 4.7; Linux 3.0 mm/filemap.c,
    /// generic_perform_write()): what is read once after it was written is active.
    pub writes_are_uses: bool,
    /// A page that ages counts as not used since (ours). In Linux it keeps the mark of its last use
    /// and is active again at the next (since 2.6.34; Linux 2.6.36 and 6.12 mm/vmscan.c,
    /// shrink_active_list() clears PageActive alone).
    pub ageing_forgets_uses: bool,
    /// Fresh anonymous pages begin on the active list (before 5.9).
    pub fresh_is_active: bool,
    /// After each pass over a zone a reclaimer waits as long as too much is under writeback
    /// (`prospects::is_over_writeout`; 3.x).
    pub waits_for_writeout: bool,
    /// Fresh pages that one fault brings at most, of the range that the task says it touches.
    pub fault_around: u32,
    /// Of so much memory, this many pages count as dirtyable no matter which owner has them.
    pub files_least: fn(Pages) -> Pages,
    /// Anonymous memory counts as dirtyable as long as swap is free (2.6.36 to about 3.13).
    pub anon_is_dirtyable: bool,
    /// A task that asks for a page from within a file system reclaims differently
    /// (`Tunables::files_within_fs`).
    pub heeds_within_fs: bool,
    /// Pages that may be on their way to the swap file where the law says so (3.x).
    pub swap_queue: Option<Pages>,
    /// The marks of a memory.
    pub marks: fn(Pages) -> Watermarks,
}

/// Admission of a task that finds memory short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It reclaims by itself, in competition with all others, and tries again.
    Direct,
    /// It waits in a queue for what the background reclaimer frees (`turn`).
    Queue,
    /// It reclaims by itself and waits for a change: a law with a queue, without its queue (an
    /// ablation, `Tunables::admission`).
    Unqueued,
}

/// The passes that reclaim consists of, and the steps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// Over nodes (`direct`, `background`; 4.8 and later, and ours).
    Nodes,
    /// Over the zones of a list or of a node, each for itself (`history::zoned`; before 4.8).
    Zones,
}

/// The bound on pages off the lists at once, and the course of a reclaimer on its own behalf that
/// finds more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// A task that may do I/O and enter a file system leaves off at an eighth of the inactive
    /// pages; else all leave off when as many are off the lists as on the inactive one.
    pub leaves_off_at_an_eighth: bool,
    /// It is throttled again and again until there are fewer; else once, and makes do without this
    /// turn.
    pub repeats: bool,
}

/// When inactive pages of files suffice, so that a pass leaves anonymous memory alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plenty {
    /// Any number does: a handful keeps a pass of a high priority from anonymous memory.
    Any,
    /// Only as many as the pass is to free, besides those that are pinned.
    Target,
}

impl ReclaimLaw {
    /// The law that has these rules.
    #[must_use]
    pub const fn new(rules: &'static Rules) -> Self {
        Self(rules)
    }

    /// Its rules, in a constant.
    #[must_use]
    pub const fn rules(self) -> &'static Rules {
        self.0
    }
}

impl Deref for ReclaimLaw {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        self.0
    }
}

/// Laws are told apart by name.
impl PartialEq for ReclaimLaw {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ReclaimLaw {}

impl fmt::Debug for ReclaimLaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

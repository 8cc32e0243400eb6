//! What a law of reclaim consists of: one row of `Rules`, written down in one file of `laws`.
//!
//! A procedure asks the row (`tunables.law.admission`, `tunables.law.page`), never for the name of
//! the law. So a new law is a file with its row and a line in `laws::ALL`.

use core::fmt;
use core::ops::Deref;

use super::page::PageRule;
use super::scan::CostRule;
use super::throttle::law::ThrottleLaw;
use crate::units::Pages;

/// A law of reclaim. Its rules are read through it: `law.page`, `law.cost`.
#[derive(Clone, Copy)]
pub struct ReclaimLaw(&'static Rules);

/// Everything in which laws of reclaim differ.
pub struct Rules {
    /// Its name in scenarios. No two laws share one.
    pub name: &'static str,
    /// What becomes of an isolated page.
    pub page: PageRule,
    /// What counts as the cost of reclaiming pages of a kind.
    pub cost: CostRule,
    /// When inactive pages of files suffice, so that anonymous ones are left alone.
    pub plenty: Plenty,
    /// Why reclaimers sleep, and who wakes them.
    pub(super) throttle: &'static dyn ThrottleLaw,
    /// What a task does that finds memory short.
    pub admission: Admission,
    /// Fresh pages that one fault brings at most, of the range that the task says it touches.
    pub fault_around: u32,
    /// Of so much memory, this many pages count as dirtyable whoever has them.
    pub files_least: fn(Pages) -> Pages,
    /// A task that asks for a page from within a file system reclaims differently
    /// (`Tunables::files_within_fs`).
    pub heeds_within_fs: bool,
    /// Nodes that it can divide the memory into.
    pub nodes_max: u8,
}

/// What a task does that finds memory short.
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

/// When inactive pages of files suffice, so that a pass leaves anonymous memory alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plenty {
    /// Any number does: a handful keeps a pass of a high priority from anonymous memory.
    Any,
    /// Only as many as the pass is to free, besides those that are pinned.
    Target,
}

impl ReclaimLaw {
    pub(super) const fn new(rules: &'static Rules) -> Self {
        Self(rules)
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

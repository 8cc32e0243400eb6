//! The door to rooms outside this crate: parts of a kernel that a live cache does not enter.
//!
//! A cache that is built with a `Kernel` (`Cache::with_kernel`) asks it at a few places; another
//! one finds none there. A room asks the cache through `Inside`.
//!
//! Source: ours (ADR 31).

use env::Task;
use frames::FrameId;
use policy::reclaim::Loops;
use policy::units::Pages;

use super::Cache;
use crate::Error;
use crate::lists::{NodeId, ZoneId};
use crate::options::Runs;
use crate::vmstat::Item;

/// The requests of a cache to the rooms of a kernel.
pub trait Kernel: Send + Sync {
    /// The runs of frames that faults ask for. Asked once.
    fn runs(&self) -> Option<Runs>;

    /// Takes a run for a fault; appends its frames. False: there is none, and single pages have to
    /// do. The caller holds no busy bit.
    ///
    /// # Errors
    /// `NoMemory`, `Cancelled`.
    fn take_run(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error>;

    /// True if each node has a task that makes runs in the background.
    fn has_compactor(&self) -> bool;

    /// That task: sleeps until it is asked, and makes runs. False: it is to end.
    fn compact(&self, task: &mut Task<'_>, cache: &Cache, node: NodeId) -> bool;

    /// The background reclaimer has worked off the boost of a zone.
    fn worked_off(&self, cache: &Cache, zone: ZoneId);

    /// The cache stops: tasks of the background end.
    fn stop(&self);
}

/// A run of frames that a task reclaims for, and what is enough for one.
pub trait ForRun {
    /// The passes that it knows; a law with other ones reclaims as for single pages.
    fn loops(&self) -> Loops;

    /// A zone is passed over, as a run can be had there.
    fn is_ready(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId) -> bool;

    /// Such a zone ends reclaim, when those behind it have had their turn.
    fn ends_when_ready(&self) -> bool;

    /// A pass over a zone is begun again.
    fn goes_on(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId, done: &Done) -> bool;
}

/// The account of reclaim for a run when a pass over a zone ends.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Freed by the pass that has just ended.
    pub last: Pages,
    /// By all passes over the zone in this round, and how many they were.
    pub here: (Pages, u64),
    /// By the task's reclaim in all.
    pub all: Pages,
    /// A page of its last batch was plainly kept.
    pub plainly: bool,
}

impl Cache {
    /// The kernel whose rooms it has.
    pub(crate) fn kernel(&self) -> Option<&dyn Kernel> {
        self.kernel.as_deref()
    }

    /// The runs that faults ask for.
    pub(crate) fn runs_of_faults(&self) -> Option<Runs> {
        self.runs.filter(|runs| runs.faults)
    }

    /// Takes a run for a fault; see `Kernel::take_run`.
    pub(crate) fn take_run(
        &self,
        task: &mut Task<'_>,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error> {
        let taken = match self.kernel() {
            Some(kernel) => kernel.take_run(task, self, out)?,
            None => false,
        };
        let item = if taken {
            Item::ThpFaultAlloc
        } else {
            Item::ThpFaultFallback
        };
        self.counters.add(item, 1);
        Ok(taken)
    }
}

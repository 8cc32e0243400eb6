//! Allocation where each task reclaims for itself, as in Linux: direct reclaim, a retry as long as
//! there is something to hope for, a sleep for a reason, and out of memory.
//!
//! Source: mechanisms 1.6; Linux 5.15 mm/page_alloc.c, __alloc_pages_slowpath(),
//! should_reclaim_retry().

use env::Task;
use frames::FrameId;
use policy::reclaim::retry::RetryVerdict;
use policy::reclaim::throttle::Who;

use super::rounds::Rounds;
use super::{Wanted, search};
use crate::Error;
use crate::cache::Cache;
use crate::reclaim::throttle;

/// Takes between one frame and as many as are wanted, reclaiming and waiting as it must.
///
/// # Errors
/// `OutOfMemory`, `NoMemory`, `Cancelled`.
pub(super) fn alloc(
    task: &mut Task<'_>,
    cache: &Cache,
    who: Who,
    mut wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let mut rounds = Rounds::default();
    let mut has_freed = false;
    loop {
        let taken = cache.alloc_at_hand(task, wanted, out)?;
        if taken > 0 {
            return Ok(taken);
        }
        // Frames that it has freed may be on lists of CPUs, and count as taken there.
        if core::mem::take(&mut has_freed) && cache.memory.finder_empties_lists(task) {
            continue;
        }
        let verdict = rounds.reclaim(task, cache, wanted.frames(), who)?;
        // The frames it has freed may have stayed on lists of CPUs.
        if verdict.is_some() && cache.memory.drain_cpu_lists(task) {
            continue;
        }
        wanted.is_retry = true;
        has_freed = verdict.is_none();
        match verdict {
            None => search::reclaimed(task, cache),
            Some(RetryVerdict::Retry) => {}
            Some(RetryVerdict::RetryAfter(finding)) => {
                throttle::found(task, cache, cache.home(task), finding, who);
            }
            Some(RetryVerdict::OutOfMemory) => rounds.wait(task, cache, who)?,
        }
    }
}

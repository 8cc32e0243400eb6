//! Allocation by tasks that others need to get on: threads of I/O. They reclaim for themselves and
//! stand in no queue.

use env::Task;
use frames::FrameId;
use policy::reclaim::throttle::Who;

use super::Wanted;
use super::rounds::Rounds;
use crate::Error;
use crate::cache::Cache;

/// Takes between one frame and as many as are wanted for a task that others need: it reclaims for
/// itself and stands in no queue.
///
/// # Errors
/// `OutOfMemory`, `NoMemory`, `Cancelled`.
pub(super) fn alloc(
    task: &mut Task<'_>,
    cache: &Cache,
    who: Who,
    wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let mut rounds = Rounds::default();
    loop {
        let taken = cache.alloc_at_hand(task, wanted, out)?;
        if taken > 0 {
            return Ok(taken);
        }
        if rounds.reclaim(task, cache, wanted.frames(), who)?.is_some() {
            rounds.wait(task, cache, who)?;
        }
    }
}

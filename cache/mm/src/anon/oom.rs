//! Out of memory, as Linux ends it: the region with the most pages gives way, and the task that
//! asked tries again.
//!
//! Off by default (`Tunables::oom_kills`): then the task that asked is told (`OutOfMemory`). In the
//! lab it is a part of the machine of an experiment whose programs want more than there is.
//!
//! ```text
//!    17 rounds without a page --> largest region: killed --> its pages and slots go back --> the caller tries again
//!                                     '--> its next touch: Error::Killed
//! ```
//!
//! Invariants
//!   1. One region at a time: while one is being emptied, other tasks that run out wait for that.
//!   2. A killed region is never touched again.
//!
//! Source: Linux 5.15 mm/oom_kill.c: out_of_memory(), oom_badness(), oom_reap_task_mm().
//! Deviations: a region stands for its process; the task that ran out empties it, not a thread of
//! its own.

use std::sync::Arc;

use env::{Cause, Task};
use frames::RegionEntry;
use policy::reclaim::throttle::Who;
use policy::units::Nanos;

use super::discard;
use crate::Error;
use crate::cache::Cache;
use crate::registry::regions::Anon;
use crate::vmstat::Item;

/// Time that a task waits that runs out while a region is being emptied, or from within a file
/// system, before it looks again.
const LOOK: Nanos = Nanos::millis(4);

/// Pages in memory and in the swap file. Walks over all of them.
fn weight(anon: &Anon) -> u32 {
    let taken = |page: &u32| anon.pages.get(*page) != RegionEntry::Empty;
    let count = (0..anon.pages.len()).filter(taken).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Cache {
    /// There is no memory available. Either somebody has given way, and the caller is to try again,
    /// or it is told. A task within a file system makes nobody give way: it tries again, at the
    /// next tick (the kernel: at once).
    ///
    /// # Errors
    /// `OutOfMemory`, `Cancelled`.
    pub(crate) fn out_of_memory(&self, task: &mut Task<'_>, who: Who) -> Result<(), Error> {
        let told = self.no_memory();
        if !self.options.reclaim.oom_kills {
            return Err(told);
        }
        let regions = &self.registry.regions;
        if who.within_fs || !regions.try_begin_emptying() {
            return Error::after(task.sleep(Cause::Memory, LOOK));
        }
        let emptied = match self.largest(task) {
            Some(anon) => {
                anon.kill();
                self.counters.add(Item::OomKill, 1);
                discard::discard(task, self, &anon, 0, anon.pages.len())
            }
            None => Err(told),
        };
        regions.end_emptying();
        // It had given up on a memory that was fuller.
        self.look_again(task);
        emptied
    }

    fn largest(&self, task: &Task<'_>) -> Option<Arc<Anon>> {
        let regions = self.registry.regions.all(task);
        let alive = regions.into_iter().filter(|anon| !anon.is_killed());
        let weighed = alive.map(|anon| (weight(&anon), anon));
        let (weight, anon) = weighed.max_by_key(|(weight, _)| *weight)?;
        (weight > 0).then_some(anon)
    }
}

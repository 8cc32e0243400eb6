//! Runs of frames for faults: taken from what is free, or made by moving pages.
//!
//! All decisions are `policy::compact`'s.
//!
//! Source: mechanisms 1.6, 8; Linux 3.1 to 3.3 mm/page_alloc.c, __alloc_pages_slowpath().

use env::{Env, Task, Work};
use frames::{Flags, FrameId};
use policy::compact::Compaction;
use policy::compact::suitable::Standing;
use policy::place::marks::Marks;
use policy::place::search::Floor;

use crate::Error;
use crate::cache::Cache;
use crate::lists::ZoneId;
use crate::memory::room::Asked;
use crate::options::Runs;
use crate::registry::regions::Anon;
use crate::vmstat::Item;

impl<E: Env> Cache<E> {
    /// The runs that faults ask for.
    pub(crate) fn runs_of_faults(&self) -> Option<Runs> {
        self.options.runs.filter(|runs| runs.faults)
    }

    /// A page of a region is about to be elsewhere than its neighbours; the caller has its busy bit.
    #[inline]
    pub(crate) fn break_run(&self, anon: &Anon, page: u32) {
        if anon.pages.break_run(page) {
            self.counters.add(Item::ThpSplit, 1);
        }
    }

    /// The same of a page that is given back, as all up to `end` are.
    #[inline]
    pub(crate) fn leave_run(&self, anon: &Anon, page: u32, end: u32) {
        if anon.pages.break_run(page) {
            let stretch = anon.pages.stretch(page);
            let whole = stretch.is_some_and(|all| all.start == page && all.end <= end);
            let item = if whole {
                Item::ThpFreed
            } else {
                Item::ThpSplit
            };
            self.counters.add(item, 1);
        }
    }

    /// Takes a run for a fault, whatever its law does for one; appends its frames. False: there is none, and single pages
    /// have to do. The caller holds no busy bit.
    ///
    /// # Errors
    /// `NoMemory`, `Cancelled`.
    pub(crate) fn take_run(
        &self,
        task: &mut Task<'_, E>,
        runs: Runs,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error> {
        let taken = take_free(task, self, runs, Floor::Low, out)?
            || take_free(task, self, runs, Floor::Min, out)?;
        let item = if taken {
            Item::ThpFaultAlloc
        } else {
            Item::ThpFaultFallback
        };
        self.counters.add(item, 1);
        Ok(taken)
    }
}

/// Takes a run that is free, of the first zone that has one above a mark.
fn take_free<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    runs: Runs,
    floor: Floor,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    for zone in cache.zones_for(task) {
        if take_of(task, cache, runs, *zone, floor, out)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same of one zone.
fn take_of<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    runs: Runs,
    zone: ZoneId,
    floor: Floor,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let memory = &cache.memory;
    let Marks {
        watermarks,
        reserve,
    } = memory.zone_marks(zone);
    let mark = match floor {
        Floor::Low => watermarks.low,
        Floor::Min => watermarks.min,
    };
    // What reclaim finds on its lists. The last pageblock may reach beyond the memory.
    let is_movable = |frame: FrameId| {
        frame.0 < cache.options.frames && cache.pages.table.flags(frame).has(Flags::CACHED)
    };
    let asked = Asked {
        zone,
        floor,
        want: 1 << runs.order,
        first: true,
        exempt: false,
    };
    let taken = match runs.compaction {
        Compaction::Never | Compaction::Scans(_) => {
            let may = |free: &Standing| free.is_above(runs.order, mark, reserve);
            memory.take_run(task, zone, runs.order, out, may, is_movable)?
        }
        // What is promised to those who wait in the queue is not free for a run.
        Compaction::Blocks(_) => {
            let may = |_: &Standing| memory.room(task, &asked) >= 1 << runs.order;
            memory.take_run(task, zone, runs.order, out, may, is_movable)?
        }
    };
    if taken.frames == 0 {
        return Ok(false);
    }
    cache.counters.add(Item::Pgalloc, u64::from(taken.frames));
    memory.took(task, taken.frames);
    task.did(Work::Alloc, 1);
    if !taken.mixed.is_empty() {
        cache.note_mixed(task, &taken.mixed);
    }
    Ok(true)
}

#[cfg(test)]
mod tests;

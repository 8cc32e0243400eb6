//! Runs of frames for faults: taken from what is free, or made by moving pages.
//!
//! All decisions are `policy::compact`'s.
//!
//! Source: mechanisms 1.6, 8; Linux 3.1 to 3.3 and 6.12 mm/page_alloc.c, __alloc_pages_slowpath().

use env::{Task, Work};
use frames::{Flags, FrameId};
use policy::compact::attempt::{Attempt, Pass, Step};
use policy::compact::blocks::lies_with;
use policy::compact::suitable::{Aim, Standing, Suitable};
use policy::compact::{Compaction, Scans};
use policy::place::marks::Marks;
use policy::place::mobility::Mobility;
use policy::place::search::Floor;
use policy::units::Pages;

use crate::Error;
use crate::cache::Cache;
use crate::lists::ZoneId;
use crate::memory::room::Asked;
use crate::options::Runs;
use crate::reclaim::direct::{ForRun, direct_for_run};
use crate::registry::mapping::Mapping;
use crate::registry::regions::Anon;
use crate::vmstat::Item;

use zone::Way;

pub(crate) mod background;
mod blocks;
mod zone;

impl Cache {
    /// A task moves pages in the background.
    pub(crate) fn compacts_in_background(&self) -> bool {
        let has = |runs: &Runs| runs.compaction.has_background();
        self.options.runs.as_ref().is_some_and(has)
    }

    /// Asks that task to make runs in the node of a zone, if there is one.
    pub(crate) fn ask_compactor(&self, zone: ZoneId) {
        if self.compacts_in_background() {
            self.zones.node_of(zone).compactor().ask();
        }
    }

    /// The runs that faults ask for.
    pub(crate) fn runs_of_faults(&self) -> Option<Runs> {
        self.options.runs.filter(|runs| runs.faults)
    }

    /// The mobility whose pageblocks hold the pages of a file that are to be written to, or read.
    pub(crate) fn lies_in(&self, mapping: &Mapping, written: bool) -> Mobility {
        if self.groups() {
            lies_with(written)
        } else {
            mapping.device.options.mobility
        }
    }

    /// True if pages lie in pageblocks of their like.
    pub(crate) fn groups(&self) -> bool {
        let groups = |runs: &Runs| runs.compaction.groups();
        self.options.runs.as_ref().is_some_and(groups)
    }

    /// A page of a region is about to be elsewhere than its neighbours; the caller has its busy
    /// bit.
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

    /// Takes a run for a fault, whatever its law does for one; appends its frames. False: there is
    /// none, and single pages have to do. The caller holds no busy bit.
    ///
    /// # Errors
    /// `NoMemory`, `Cancelled`.
    pub(crate) fn take_run(
        &self,
        task: &mut Task<'_>,
        runs: Runs,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error> {
        let taken = match &runs.compaction {
            Compaction::Never => {
                let zones = self.zones_for(task);
                take_free(task, self, zones, (runs, Floor::Low), out)?
                    || take_free(task, self, zones, (runs, Floor::Min), out)?
            }
            Compaction::Blocks(law) => blocks::take(task, self, runs, law, out)?,
            Compaction::Scans(scans) => by_scans(task, self, runs, scans, out)?,
            Compaction::Background(law) => background::take(task, self, runs, law, out)?,
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

/// Takes a run as `Attempt` says.
fn by_scans(
    task: &mut Task<'_>,
    cache: &Cache,
    runs: Runs,
    scans: &Scans,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let zones = cache.zones_for(task);
    let first = zones[0];
    let mut attempt = Attempt::begin(*scans);
    loop {
        let step = attempt.step(&mut cache.zones[first].deferral(task));
        match step {
            Step::Take(floor) => {
                if take_free(task, cache, zones, (runs, floor), out)? {
                    return Ok(true);
                }
            }
            Step::Compact(pass) => {
                let answer = compact(task, cache, runs, scans, pass);
                let mut got = false;
                if answer != Suitable::Skipped {
                    // Frames that have come free on lists of CPUs stand beside other frames.
                    cache.memory.drain_cpu_lists(task);
                    got = take_free(task, cache, zones, (runs, Floor::Min), out)?;
                    let item = if got {
                        Item::CompactSuccess
                    } else {
                        Item::CompactFail
                    };
                    // Deviation: the kernel counts a stall also where no zone was gone over.
                    cache.counters.add(Item::CompactStall, 1);
                    cache.counters.add(item, 1);
                }
                let mut deferral = cache.zones[first].deferral(task);
                attempt.compacted(&mut deferral, pass, answer, got);
                if got {
                    return Ok(true);
                }
            }
            Step::Reclaim => {
                let run = ForRun {
                    order: runs.order,
                    scans: Some(*scans),
                };
                let freed = direct_for_run(task, cache, &run);
                cache.memory.drain_cpu_lists(task);
                attempt.reclaimed(!freed.is_zero());
            }
            Step::Fail => return Ok(false),
        }
    }
}

/// A pass over the zones, until one has a run above LOW; answers the best that one of them said.
fn compact(task: &mut Task<'_>, cache: &Cache, runs: Runs, scans: &Scans, pass: Pass) -> Suitable {
    let way = Way {
        moves: match pass {
            Pass::First => &scans.first,
            Pass::Last => &scans.last,
        },
        aim: Aim::AboveLow,
        resumes: false,
        captures: false,
    };
    let mut best = Suitable::Skipped;
    for zone in cache.zones_for(task) {
        best = best.max(zone::compact_zone(task, cache, *zone, runs, &way).answer);
        let low = cache.memory.marks_of(*zone).low;
        let standing = cache.memory.standing(task, *zone);
        if standing.is_above(runs.order, low, Pages::ZERO) {
            break;
        }
    }
    best
}

/// Takes a run that is free, of the first of these zones that has one above a mark.
fn take_free(
    task: &mut Task<'_>,
    cache: &Cache,
    zones: &[ZoneId],
    (runs, floor): (Runs, Floor),
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    for zone in zones {
        if take_of(task, cache, runs, *zone, Some(floor), out)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same of one zone; without a mark, whatever is free beside it.
fn take_of(
    task: &mut Task<'_>,
    cache: &Cache,
    runs: Runs,
    zone: ZoneId,
    floor: Option<Floor>,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let memory = &cache.memory;
    let Marks {
        watermarks,
        reserve,
    } = memory.zone_marks(zone);
    // Pages that reclaim finds on its lists. The last pageblock may reach beyond the memory.
    let is_movable = |frame: FrameId| {
        frame.0 < cache.options.frames && cache.pages.table.flags(frame).has(Flags::CACHED)
    };
    // Frames promised to tasks that wait in a queue are not free for a run.
    let has_room = |floor: Floor| {
        let asked = Asked {
            zone,
            floor,
            want: 1 << runs.order,
            first: true,
            exempt: false,
        };
        memory.room(task, &asked) >= 1 << runs.order
    };
    let may = |free: &Standing| {
        let Some(floor) = floor else { return true };
        let mark = match floor {
            Floor::Low => watermarks.low,
            Floor::Min => watermarks.min,
        };
        match runs.compaction {
            Compaction::Never | Compaction::Scans(_) => free.is_above(runs.order, mark, reserve),
            Compaction::Background(_) => free.has_above(runs.order, mark, reserve),
            Compaction::Blocks(_) => has_room(floor),
        }
    };
    let taken = memory.take_run(task, zone, runs.order, out, may, is_movable)?;
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

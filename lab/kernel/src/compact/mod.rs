//! Runs of frames for faults: taken from what is free, or made by moving pages.
//!
//! All decisions are `history::compact`'s.
//!
//! Source: mechanisms 1.6, 8; Linux 3.1 to 3.3 and 6.12 mm/page_alloc.c, __alloc_pages_slowpath().

use core::ops::Deref;

use env::{Context, Lock, LockClass, LockGuard, Task, Work};
use frames::sync::{AtomicU32, Ordering};
use frames::{Flags, FrameId};
use history::compact::attempt::{Attempt, Pass, Step};
use history::compact::defer::Deferral;
use history::compact::suitable::{Aim, Standing, Suitable};
use history::compact::{Compaction, Scans};
use mm::inside::{Asked, Background, Inside, ZoneId};
use mm::{Cache, Error, Item, NodeId, Runs};
use policy::place::marks::Marks;
use policy::place::search::Floor;
use policy::units::Pages;

use reclaim::ByZones;
use zone::Way;

mod background;
mod blocks;
mod reclaim;
#[cfg(test)]
mod tests;
mod zone;

/// The way of a machine to its huge pages, and its memory of what failed.
pub(crate) struct Compactor {
    runs: Runs,
    law: Compaction,
    zones: Box<[OfZone]>,
    /// The alarms of the tasks of the background, by node.
    alarms: Box<[Background]>,
}

/// Its memory of a zone.
struct OfZone {
    /// Time for which the zone is left alone after moving pages for a run has failed.
    deferral: Lock<Deferral>,
    /// The block of it that is looked at next, in search of a block that can be emptied.
    next_block: AtomicU32,
    /// The positions that the last pass that moved pages of it had reached, from below and from
    /// above.
    scanned: [AtomicU32; 2],
}

/// The inside of a cache, and its compactor.
#[derive(Clone, Copy)]
struct At<'a> {
    inside: Inside<'a>,
    compactor: &'a Compactor,
}

impl<'a> Deref for At<'a> {
    type Target = Inside<'a>;

    fn deref(&self) -> &Inside<'a> {
        &self.inside
    }
}

impl Compactor {
    /// Of a machine of `nodes` nodes and `zones` zones; `runs` but for what the law says of them.
    pub(crate) fn new(law: Compaction, runs: Runs, nodes: usize, zones: usize) -> Self {
        let runs = Runs {
            groups: law.groups(),
            immediate: law.immediate(),
            ..runs
        };
        let zone = |_| OfZone {
            deferral: Lock::new(LockClass::Leaf, Deferral::default()),
            next_block: AtomicU32::new(0),
            scanned: [const { AtomicU32::new(0) }; 2],
        };
        Self {
            runs,
            law,
            zones: (0..zones).map(zone).collect(),
            alarms: (0..nodes).map(|_| Background::default()).collect(),
        }
    }

    fn at<'a>(&'a self, cache: &'a Cache) -> At<'a> {
        At {
            inside: cache.inside(),
            compactor: self,
        }
    }
}

impl OfZone {
    /// Time for which the zone is left alone after moving pages for a run has failed.
    fn deferral<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, Deferral> {
        self.deferral.lock(context)
    }

    /// The block of it that is looked at next.
    fn next_block(&self) -> u32 {
        self.next_block.load(Ordering::Relaxed)
    }

    fn set_next_block(&self, block: u32) {
        self.next_block.store(block, Ordering::Relaxed);
    }

    /// The positions that the last pass that moved pages of it had reached, from below and from
    /// above.
    fn scanned(&self) -> (u32, u32) {
        let [low, high] = &self.scanned;
        (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed))
    }

    fn set_scanned(&self, (low, high): (u32, u32)) {
        self.scanned[0].store(low, Ordering::Relaxed);
        self.scanned[1].store(high, Ordering::Relaxed);
    }
}

impl At<'_> {
    fn of(&self, zone: ZoneId) -> &OfZone {
        &self.compactor.zones[zone.index()]
    }

    fn standing(&self, task: &Task<'_>, zone: ZoneId) -> Standing {
        Standing::of(self.memory.standing(task, zone))
    }
}

impl Compactor {
    pub(crate) fn runs(&self) -> Runs {
        self.runs
    }

    /// See `mm::Kernel::take_run`.
    pub(crate) fn take_run(
        &self,
        task: &mut Task<'_>,
        cache: &Cache,
        out: &mut Vec<FrameId>,
    ) -> Result<bool, Error> {
        let (runs, at) = (self.runs, self.at(cache));
        match &self.law {
            Compaction::Never => {
                let zones = at.zones_for(task);
                Ok(take_free(task, at, zones, (runs, Floor::Low), out)?
                    || take_free(task, at, zones, (runs, Floor::Min), out)?)
            }
            Compaction::Blocks(law) => blocks::take(task, at, runs, law, out),
            Compaction::Scans(scans) => by_scans(task, at, runs, scans, out),
            Compaction::Background(law) => background::take(task, at, runs, law, out),
        }
    }

    pub(crate) fn has_background(&self) -> bool {
        self.law.has_background()
    }

    /// See `mm::Kernel::compact`.
    pub(crate) fn compact(&self, task: &mut Task<'_>, cache: &Cache, node: NodeId) -> bool {
        match &self.law {
            Compaction::Background(law) => background::work(task, self.at(cache), law, node),
            Compaction::Never | Compaction::Blocks(_) | Compaction::Scans(_) => false,
        }
    }

    /// The boost of a zone was worked off: the task of its node is asked for runs.
    pub(crate) fn worked_off(&self, cache: &Cache, zone: ZoneId) {
        if self.has_background() {
            let node = cache.inside().zones.layout().node_of(zone);
            self.alarms[node.index()].ask();
        }
    }

    pub(crate) fn stop(&self) {
        self.alarms.iter().for_each(Background::stop);
    }
}

/// Takes a run as `Attempt` says.
fn by_scans(
    task: &mut Task<'_>,
    cache: At<'_>,
    runs: Runs,
    scans: &Scans,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let zones = cache.zones_for(task);
    let first = zones[0];
    let mut attempt = Attempt::begin(*scans);
    loop {
        let step = attempt.step(&mut cache.of(first).deferral(task));
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
                let mut deferral = cache.of(first).deferral(task);
                attempt.compacted(&mut deferral, pass, answer, got);
                if got {
                    return Ok(true);
                }
            }
            Step::Reclaim => {
                let run = ByZones {
                    runs,
                    scans,
                    compactor: cache.compactor,
                };
                let freed = cache.reclaim_for_run(task, &run);
                cache.memory.drain_cpu_lists(task);
                attempt.reclaimed(!freed.is_zero());
            }
            Step::Fail => return Ok(false),
        }
    }
}

/// A pass over the zones, until one has a run above LOW; answers the best that one of them said.
fn compact(task: &mut Task<'_>, cache: At<'_>, runs: Runs, scans: &Scans, pass: Pass) -> Suitable {
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
        let standing = cache.standing(task, *zone);
        if standing.is_above(runs.order, low, Pages::ZERO) {
            break;
        }
    }
    best
}

/// Takes a run that is free, of the first of these zones that has one above a mark.
fn take_free(
    task: &mut Task<'_>,
    cache: At<'_>,
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
    cache: At<'_>,
    runs: Runs,
    zone: ZoneId,
    floor: Option<Floor>,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let memory = cache.memory;
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
    let may = |free| {
        let Some(floor) = floor else { return true };
        let free = Standing::of(free);
        let mark = match floor {
            Floor::Low => watermarks.low,
            Floor::Min => watermarks.min,
        };
        match cache.compactor.law {
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

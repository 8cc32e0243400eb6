//! Runs as Linux gets them since 4.6: a fault moves pages only for a program that asked for huge
//! pages, or where the system is told so; besides, a task of its own moves them when a reclaimer
//! has worked off a boost.
//!
//! ```text
//!   boost worked off --ask--> compactor: each zone of the node that is not left out, until it has a run, or all was looked at
//!   fault ------------------> of its own node, then of all: take, a pass, reclaim, a pass; what stands together during its
//!                             pass is its own
//! ```
//!
//! Deviations: pageblocks in which nothing was found are not marked to be skipped; the compactor
//! moves pages on its own account alone (in the kernel also every 500 ms, where free memory is
//! scattered and the reclaimer idle: `compaction_proactiveness`); reclaim for a run on a fault's
//! own node looks at all nodes.
//!
//! Source: mechanisms 8.3 to 8.8; Linux 6.12 mm/compaction.c, kcompactd(), kcompactd_do_work(),
//! try_to_compact_pages(); mm/page_alloc.c, __alloc_pages_direct_compact(); mm/mempolicy.c,
//! alloc_pages_mpol_noprof().

use env::{Task, Wakeup};
use frames::FrameId;
use history::compact::suitable::{Aim, Suitable};
use history::compact::{Background, Moves};
use mm::inside::ZoneId;
use mm::{Error, Item, NodeId, Runs};
use policy::place::search::Floor;
use policy::reclaim::scan::Kind;

use super::reclaim::OverNodes;
use super::zone::{Passed, Way, compact_zone};
use super::{At, take_free};

/// Takes a run that is free, or as the law has it for a task that asks for one.
///
/// # Errors
/// `NoMemory`.
pub(super) fn take(
    task: &mut Task<'_>,
    cache: At<'_>,
    runs: Runs,
    law: &Background,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let all = cache.zones_for(task);
    if law.home_first {
        let (home, layout) = (cache.home_node(task), cache.zones.layout());
        let own = all.iter().filter(|zone| layout.node_of(**zone) == home);
        let own: Vec<_> = own.copied().collect();
        if take_of_zones(task, cache, &own, (runs, law), out)? {
            return Ok(true);
        }
        // Where a fault may not move pages, it does not look further.
        if !law.for_all {
            return Ok(false);
        }
    }
    take_of_zones(task, cache, all, (runs, law), out)
}

fn take_of_zones(
    task: &mut Task<'_>,
    cache: At<'_>,
    zones: &[ZoneId],
    (runs, law): (Runs, &Background),
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    if take_free(task, cache, zones, (runs, Floor::Low), out)?
        || take_free(task, cache, zones, (runs, Floor::Min), out)?
    {
        return Ok(true);
    }
    if !law.for_all {
        return Ok(false);
    }
    match compact(task, cache, zones, (runs, law), out)? {
        Answer::Got => return Ok(true),
        Answer::NotTried => return Ok(false),
        Answer::InVain => {}
    }
    if law.reclaims_for_it {
        let compactor = cache.compactor;
        cache.reclaim_for_run(task, &OverNodes { runs, compactor });
    } else {
        let who = cache.who(task, Kind::Anon);
        cache.reclaim(task, who);
    }
    cache.memory.drain_cpu_lists(task);
    if take_free(task, cache, zones, (runs, Floor::Min), out)? {
        return Ok(true);
    }
    Ok(compact(task, cache, zones, (runs, law), out)? == Answer::Got)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Got,
    /// Pages were moved, and there is no run.
    InVain,
    /// All zones were left out, or could have none.
    NotTried,
}

/// A pass over the zones for a fault. A pass that fails does not have a zone left out. It counts as
/// a stall if a zone was gone over, or left out as passes have failed there.
fn compact(
    task: &mut Task<'_>,
    cache: At<'_>,
    zones: &[ZoneId],
    (runs, law): (Runs, &Background),
    out: &mut Vec<FrameId>,
) -> Result<Answer, Error> {
    let mut best = Suitable::Skipped;
    let mut deferred = false;
    for zone in zones {
        if law.is_deferred(&mut cache.of(*zone).deferral(task)) {
            deferred = true;
            continue;
        }
        let passed = pass(task, cache, *zone, runs, &law.faults, law.captures);
        best = best.max(passed.answer);
        if !passed.captured.is_empty() {
            out.extend(passed.captured);
            break;
        }
        if cache.standing(task, *zone).has(runs.order) {
            break;
        }
    }
    if best == Suitable::Skipped && !deferred {
        return Ok(Answer::NotTried);
    }
    cache.memory.drain_cpu_lists(task);
    let got = !out.is_empty() || take_free(task, cache, zones, (runs, Floor::Min), out)?;
    let item = if got {
        let first = zones[0];
        cache.of(first).deferral(task).succeeded();
        Item::CompactSuccess
    } else {
        Item::CompactFail
    };
    cache.counters.add(Item::CompactStall, 1);
    cache.counters.add(item, 1);
    Ok(match (got, best) {
        (true, _) => Answer::Got,
        (false, Suitable::Skipped) => Answer::NotTried,
        (false, _) => Answer::InVain,
    })
}

fn pass(
    task: &mut Task<'_>,
    cache: At<'_>,
    zone: ZoneId,
    runs: Runs,
    moves: &Moves,
    captures: bool,
) -> Passed {
    let way = Way {
        moves,
        aim: Aim::AnyRun,
        resumes: true,
        captures,
    };
    compact_zone(task, cache, zone, runs, &way)
}

/// A turn of the task of its own (`kcompactd`); false: it is to end.
pub(super) fn work(task: &mut Task<'_>, cache: At<'_>, law: &Background, node: NodeId) -> bool {
    let runs = cache.compactor.runs;
    let own = &cache.compactor.alarms[node.index()];
    let wakeup = own.sleep(task, None, || cache.is_stopping());
    if wakeup == Wakeup::Cancelled || cache.is_stopping() {
        return false;
    }
    own.begin();
    cache.counters.add(Item::CompactDaemonWake, 1);
    let zones: Vec<_> = cache.zones.layout().zones_of(node).collect();
    for zone in zones {
        if law.is_deferred(&mut cache.of(zone).deferral(task)) {
            continue;
        }
        let passed = pass(task, cache, zone, runs, &law.own, false);
        if passed.answer == Suitable::Skipped || cache.is_stopping() {
            continue;
        }
        let has = cache.standing(task, zone).has(runs.order);
        let mut deferral = cache.of(zone).deferral(task);
        if has {
            deferral.succeeded();
        } else if passed.complete {
            deferral.failed();
        }
    }
    true
}

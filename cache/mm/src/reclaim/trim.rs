//! Trimming a zone: reclaim by a task that wants a frame of it, before it looks at another zone.
//!
//! It frees page cache within its mode, and objects: it neither ages anonymous pages nor sleeps for
//! what it finds. 6.12 asks for objects in each pass, however few there are; 3.0 behind them all,
//! where slabs have more than a twentieth of the zone, and again until they have lost as much as
//! was wanted, or a call freed no object. So each trim of such a zone frees inodes, and pages of
//! theirs of whichever zone. Two tasks do not trim one zone at a time: the second goes
//! elsewhere.
//!
//! Source: mechanisms 1.7; Linux 3.0 mm/vmscan.c, zone_reclaim(), __zone_reclaim(); Linux 6.12,
//! __node_reclaim().

use core::sync::atomic::Ordering;

use env::Task;
use policy::place::ZoneId;
use policy::place::trim::{Asker, Outcome, Seen, Start, Trim, has_page_cache, has_slab, start};
use policy::reclaim::page::Tally;
use policy::reclaim::scan::{CLUSTER, Lru, Priority, Turn};
use policy::reclaim::throttle::Who;
use policy::units::Pages;

use super::shrink::shrink_inactive;
use super::{Control, take_turns};
use crate::cache::Cache;
use crate::lists::NodeId;
use crate::vmstat::Item;

/// Trims a zone for a task of the node `home`, if the law does.
pub(crate) fn trim(task: &mut Task<'_>, cache: &Cache, home: NodeId, zone: ZoneId) -> Outcome {
    let law = cache.options.place;
    let Some(mode) = law.trims else {
        return Outcome::Full;
    };
    let seen = seen(task, cache, zone);
    match start(
        mode,
        law.trims_within,
        &seen,
        asker(task, cache, home, zone),
    ) {
        Start::NoScan => return Outcome::NoScan,
        Start::Full => return Outcome::Full,
        Start::Go => {}
    }
    // Held until the passes have ended, also while the task works: the task that looks meanwhile
    // goes elsewhere.
    let Some(_only) = cache.zones[zone].try_trim() else {
        return Outcome::NoScan;
    };
    let wanted = Pages(1);
    let mut trim = Trim::begin(wanted);
    let mut scanned = Pages::ZERO;
    let takes_pages = !law.objects_last || has_page_cache(mode, &seen);
    while let Some(pass) = trim.step().filter(|_| takes_pages) {
        let control = Control {
            may_unmap: mode.unmaps,
            may_write: mode.writes,
            zone,
            who: Who::DIRECT,
            priority: pass.priority,
            target: pass.target,
            force_deactivate: false,
            may_swap: true,
            may_shrink: !law.objects_last && cache.has_objects(),
            spares_anon: true,
            run: None,
        };
        let mut tally = Tally::default();
        let listed = cache.zones.listed(task, zone);
        cache.zones[zone].enter_work();
        let mut freed = take_turns(task, cache, &control, &mut tally).reclaimed;
        if control.may_shrink {
            let seen = (tally.scanned, listed);
            freed += cache.ask_objects(task, &control, seen).pages;
        }
        cache.zones[zone].leave_work();
        scanned += tally.scanned;
        trim.passed(freed);
    }
    if law.objects_last && cache.has_objects() {
        trim.slabs_fell(shake(task, cache, zone, scanned, wanted));
    }
    let outcome = trim.outcome();
    count(cache, outcome == Outcome::Success);
    outcome
}

fn count(cache: &Cache, gave_enough: bool) {
    let item = if gave_enough {
        Item::ZoneReclaimSuccess
    } else {
        Item::ZoneReclaimFailed
    };
    cache.counters.add(item, 1);
}

/// Asks caches of objects until the slabs of a zone have `wanted` pages less, in the proportion of
/// `scanned` pages; not where slabs are few. Answers how many pages less.
fn shake(task: &mut Task<'_>, cache: &Cache, zone: ZoneId, scanned: Pages, wanted: Pages) -> Pages {
    if !has_slab(&seen(task, cache, zone)) {
        return Pages::ZERO;
    }
    let control = gently(zone, wanted);
    let before = cache.slabs.reclaimable_of(zone);
    loop {
        let listed = cache.zones.listed(task, zone);
        let asked = cache.ask_objects(task, &control, (scanned, listed));
        let now = cache.slabs.reclaimable_of(zone);
        let stops = cache.registry.stopping.load(Ordering::Relaxed);
        if asked.objects == 0 || stops || now + wanted <= before {
            return before.saturating_sub(now);
        }
    }
}

/// A look at a zone that takes clean pages of files alone.
fn gently(zone: ZoneId, target: Pages) -> Control<'static> {
    Control {
        may_unmap: false,
        may_write: false,
        zone,
        who: Who::DIRECT,
        priority: Priority::GENTLEST,
        target,
        force_deactivate: false,
        may_swap: false,
        may_shrink: false,
        spares_anon: true,
        run: None,
    }
}

/// Frees a cluster of clean pages of files, if two clusters at the old end of the inactive list
/// have as many; answers whether they had.
pub(crate) fn trim_cluster(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) -> bool {
    let own = &cache.zones[zone];
    let Some(_only) = own.try_trim() else {
        return false;
    };
    let control = gently(zone, CLUSTER);
    let turn = Turn {
        list: Lru::InactiveFile,
        pages: cache.options.reclaim.cluster(),
    };
    let mut tally = Tally::default();
    let mut freed = Pages::ZERO;
    own.enter_work();
    for _ in 0..2 {
        freed += shrink_inactive(task, cache, turn, &control, &mut tally);
        if freed >= turn.pages {
            break;
        }
    }
    own.leave_work();
    let changed = cache.changed(zone);
    own.worth(task).note_pass(tally.scanned, freed, changed);
    count(cache, freed >= turn.pages);
    freed >= turn.pages
}

/// The pages of a zone by use.
fn seen(task: &Task<'_>, cache: &Cache, zone: ZoneId) -> Seen {
    let sizes = cache.zones.sizes(task, zone);
    Seen {
        zone: cache.zones.layout().zone(zone).pages,
        file: sizes.of(Lru::InactiveFile) + sizes.of(Lru::ActiveFile),
        mapped: cache.zones[zone].mapped(),
        dirty: cache.zones[zone].dirty(),
        slab: cache.slabs.reclaimable_of(zone),
        hopeless: cache.is_hopeless(task, zone),
    }
}

fn asker(task: &Task<'_>, cache: &Cache, home: NodeId, zone: ZoneId) -> Asker {
    let layout = cache.zones.layout();
    let node = layout.node_of(zone);
    let machine = layout.machine();
    let has_cpus = machine.nodes()[node.index()].cpus > 0;
    Asker {
        may_wait: task.may_block(),
        frees_memory: cache.memory.is_exempt(task),
        is_local: node == home || !has_cpus,
        distance: machine.distances().between(home.index(), node.index()),
    }
}

//! The part of a pass that goes to caches of objects: each is asked in the proportion in which the
//! lists were looked at.
//!
//! Source: mechanisms 3.4, 7; Linux 5.0 mm/vmscan.c, shrink_node(), shrink_slab(). Deviation: where
//! passes go over zones (before 4.8), those of a node are asked once for each of its zones.

use env::Task;
use history::shrink::{Answer, BATCH, Outcome, Pressure, Scan, ScanStep};
use mm::inside::{Control, Inside};
use mm::{Asked, Item};
use policy::reclaim::scan::Priority;
use policy::reclaim::throttle::Who;
use policy::units::Pages;

use super::{Ask, Objects, Registered};

/// Objects that are looked at for a page of them, at the gentlest priority: some lie on a page,
/// each is looked at some times before it goes, and a slab goes with its last one (GUESS; a pass
/// that gets too little is followed by a harder one).
const LOOKS_A_PAGE: u64 = 32;

/// Asks caches of objects on the node of a zone whose lists a pass has just looked at: all, or
/// where memory is shared those that do not say what they hold. The caller holds nothing.
pub(crate) fn ask(
    task: &mut Task<'_>,
    (cache, own): (Inside<'_>, &Objects),
    control: &Control,
    (scanned_pages, listed): (Pages, Pages),
    shared: bool,
) -> Asked {
    let pressure = Pressure {
        priority: control.priority,
        scanned: scanned_pages,
        listed,
    };
    let mut all = own.all(task);
    if shared {
        all.retain(|one| one.member.is_none());
        if all.is_empty() {
            return Asked::default();
        }
    }
    // A shrinker that needs memory itself makes do with the lists.
    if !own.begin(task, control.who.background) {
        return Asked::default();
    }
    let (mut scanned, mut objects) = (0, 0);
    for one in &all {
        let outcome = ask_one(task, (cache, own), control, pressure, one);
        scanned += outcome.scanned;
        objects += outcome.freed;
        if cache.is_stopping() {
            break;
        }
    }
    let pages = own.end(task);
    cache.counters.add(Item::SlabsScanned, scanned);
    cache.counters.add(Item::SlabFreed, pages.0);
    Asked { pages, objects }
}

/// Asks all caches of objects on all nodes, for frames that have to go wherever they are.
pub(crate) fn ask_everywhere(
    task: &mut Task<'_>,
    (cache, own): (Inside<'_>, &Objects),
    priority: Priority,
) {
    let layout = cache.zones.layout();
    let firsts = layout.nodes().map(|node| layout.zones_of(node).next());
    for zone in firsts.flatten() {
        let control = Control {
            zone,
            who: Who::DIRECT,
            priority,
            target: Pages::MAX,
            force_deactivate: false,
            may_unmap: false,
            may_write: false,
            may_swap: false,
            may_shrink: true,
            spares_anon: true,
            run: None,
        };
        let listed = cache.zones.listed(task, zone);
        ask(task, (cache, own), &control, (Pages::ZERO, listed), false);
    }
}

/// Asks one for `wanted` pages. It looks at no more objects than may be worth them, by the
/// priority, and at none more than twice. Answers how many pages came free.
pub(crate) fn give(
    task: &mut Task<'_>,
    (cache, own): (Inside<'_>, &Objects),
    control: &Control,
    one: &Registered,
    wanted: Pages,
) -> Pages {
    // A shrinker that needs memory itself makes do with the lists.
    if wanted.is_zero() || !own.begin(task, control.who.background) {
        return Pages::ZERO;
    }
    let node = cache.zones.layout().node_of(control.zone);
    let harder = Priority::GENTLEST.0.saturating_sub(control.priority.0);
    let worth = wanted.0.saturating_mul(LOOKS_A_PAGE << harder);
    let mut left = worth.min(one.shrinker.count(node).saturating_mul(2));
    let mut scanned = 0;
    while left > 0 && own.freed(task) < wanted {
        let ask = Ask {
            node,
            objects: left.min(BATCH),
            may_enter_fs: !control.who.within_fs,
            background: control.who.background,
        };
        let Answer::Freed { looked_at, .. } = one.shrinker.scan(task, ask) else {
            break;
        };
        scanned += looked_at;
        left = left.saturating_sub(looked_at);
        if looked_at == 0 || cache.is_stopping() {
            break;
        }
    }
    let freed = own.end(task);
    cache.counters.add(Item::SlabsScanned, scanned);
    cache.counters.add(Item::SlabFreed, freed.0);
    freed
}

/// Asks one; answers how many objects it has looked at, and freed.
///
/// Each object of the count and of the answer stands for several, as the pages of the lists do
/// (`Tunables::stands_for`).
fn ask_one(
    task: &mut Task<'_>,
    (cache, own): (Inside<'_>, &Objects),
    control: &Control,
    pressure: Pressure,
    one: &Registered,
) -> Outcome {
    let node = cache.zones.layout().node_of(control.zone);
    let factor = u64::from(cache.options.reclaim.stands_for);
    let freeable = one.shrinker.count(node).saturating_mul(factor);
    let wants = history::shrink::Cache {
        seeks: one.shrinker.seeks(),
        ..history::shrink::Cache::default()
    };
    let scan = {
        let mut deferred = one.deferred(node).lock(task);
        Scan::begin(&own.rule, wants, freeable, pressure, &mut deferred)
    };
    let Some(mut scan) = scan else {
        return Outcome::default();
    };
    while let ScanStep::Ask(objects) = scan.step() {
        let answer = one.shrinker.scan(
            task,
            Ask {
                node,
                objects: objects.div_ceil(factor),
                may_enter_fs: !control.who.within_fs,
                background: control.who.background,
            },
        );
        let answer = match answer {
            Answer::Freed { freed, looked_at } => Answer::Freed {
                freed: freed.saturating_mul(factor),
                looked_at: looked_at.saturating_mul(factor),
            },
            Answer::Stop => Answer::Stop,
        };
        scan.answered(answer);
        if cache.is_stopping() {
            break;
        }
    }
    let outcome = scan.end();
    one.deferred(node).lock(task).add(outcome.deferred);
    Outcome {
        scanned: outcome.scanned / factor,
        freed: outcome.freed / factor,
        ..outcome
    }
}

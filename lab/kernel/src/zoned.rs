//! Reclaim over zones, as it was before Linux 4.8: the background's work on the zones of a node,
//! and a task's own over those that it may take memory of. The procedure for one zone is the same
//! as ever (`shrink_zone`).
//!
//! Source: mechanisms 3.5, 3.6; Linux 3.0 mm/vmscan.c, balance_pgdat(), kswapd_try_to_sleep(),
//! do_try_to_free_pages().

use env::{Context, Event, Signal, Task};
use history::zoned::balance::{self, Balance};
use history::zoned::direct::{self, Direct, answer};
use history::zoned::{self, ZoneView};
use mm::inside::{Control, Inside, RunPass, ZoneId};
use mm::{Cache, Ended, ForRun, Item, NodeId};
use policy::reclaim::Reason;
use policy::reclaim::background::Rest;
use policy::reclaim::direct::Got;
use policy::reclaim::throttle::Who;
use policy::units::Pages;

/// A zone at one look.
fn view(cache: Inside<'_>, context: &dyn Context, zone: ZoneId) -> ZoneView {
    let marks = cache.memory.zone_marks(zone);
    ZoneView {
        free: Pages(u64::from(cache.memory.free_of(zone))),
        marks: marks.watermarks,
        size: cache.zones.layout().zone(zone).pages,
        kept_back: marks.reserve,
        hopeless: cache.is_hopeless(context, zone),
    }
}

/// True if an allocator that found no zone above its mark wakes the background reclaimer for this
/// one.
pub(crate) fn wants_wake(cache: Inside<'_>, context: &dyn Context, zone: ZoneId) -> bool {
    zoned::wants_wake(&view(cache, context, zone))
}

/// The background balances the zones of a node until it may rest; false on shutdown.
pub(crate) fn work(task: &mut Task<'_>, cache: Inside<'_>, node: NodeId) -> bool {
    // Frames lie in the order of their zones, the lowest first.
    let zones: Vec<_> = cache.zones.layout().zones_of(node).collect();
    let background = cache.zones.node(node).background();
    let mut napped = false;
    loop {
        if !napped {
            cache.begin_balance(task, node);
            if !balance(task, cache, &zones) {
                return false;
            }
        }
        if cache.is_stopping() {
            return false;
        }
        let views: Vec<_> = zones.iter().map(|zone| view(cache, task, *zone)).collect();
        match zoned::rest(&views, napped, cache.options.reclaim.hz) {
            Rest::Work => napped = false,
            Rest::Sleep => return true,
            Rest::Nap(nap) => {
                if !cache.sleep(task, zones[0], Some(nap)) {
                    return false;
                }
                napped = !background.is_asked();
            }
        }
    }
}

/// One balance of a node's zones; false if the task is to end.
fn balance(task: &mut Task<'_>, cache: Inside<'_>, zones: &[ZoneId]) -> bool {
    let mut goes_on = true;
    let mut balance = Balance::begin(cache.options.reclaim.cluster());
    let mut scanned = Pages::ZERO;
    let mut views = Vec::with_capacity(zones.len());
    let freed = loop {
        views.clear();
        views.extend(zones.iter().map(|zone| view(cache, task, *zone)));
        match balance.step(&views) {
            balance::Step::Begin => cache.counters.add(Item::Pageoutrun, 1),
            balance::Step::Age { zone } => cache.age_anon(task, zones[zone]),
            balance::Step::Shrink { zone, priority } => {
                let zone = zones[zone];
                let control = Control {
                    zone,
                    who: Who::BACKGROUND,
                    priority,
                    target: Pages::MAX,
                    force_deactivate: false,
                    may_unmap: true,
                    may_write: true,
                    may_swap: true,
                    may_shrink: true,
                    spares_anon: true,
                    run: None,
                };
                let got = cache.shrink_zone(task, &control);
                scanned += got.scanned;
                judge(task, cache, zone);
                balance.shrunk(got);
                // Others may find what this pass has freed, or that it freed nothing.
                cache.memory.wake(Signal::Balanced);
            }
            balance::Step::Wait => {
                let highest = zones[zones.len() - 1];
                let reason = Reason::CongestionWait;
                if !cache.pause(task, highest, reason, Who::BACKGROUND) {
                    balance.stop();
                    goes_on = false;
                }
            }
            balance::Step::SkipWait => cache.counters.add(Item::KswapdSkipCongestionWait, 1),
            balance::Step::Done(freed) => break freed,
        }
        if cache.is_stopping() {
            balance.stop();
        }
    };
    task.emit(&Event::Reclaimed {
        background: true,
        scanned,
        freed,
    });
    cache.memory.wake(Signal::Balanced);
    goes_on
}

/// Passes over a zone have ended: judges its prospects.
fn judge(task: &Task<'_>, cache: Inside<'_>, zone: ZoneId) {
    let sizes = cache.zones.sizes(task, zone);
    let reclaimable = sizes.reclaimable(cache.can_swap());
    let given_back = cache.memory.given_back_of(zone);
    cache.zones[zone]
        .balance(task)
        .prospects(given_back)
        .judge(reclaimable);
}

/// A task reclaims at least `target` pages, or as many as 13 rounds give, or until it has `enough`;
/// for a run, if one is named.
pub(crate) fn direct(
    task: &mut Task<'_>,
    whole: &Cache,
    target: Pages,
    (who, run): (Who, Option<&dyn ForRun>),
    enough: &dyn Fn(&Task<'_>) -> bool,
) -> Ended {
    let cache = whole.inside();
    let zones = cache.zones_for(task);
    let mut direct = Direct::begin(target);
    let mut scanned = Pages::ZERO;
    let mut freed = Pages::ZERO;
    loop {
        match direct.step() {
            direct::Step::Begin => cache.counters.add(Item::Allocstall, 1),
            direct::Step::Shrink(round) => {
                let mut got = Got::default();
                let mut is_ready = false;
                for zone in zones {
                    if view(cache, task, *zone).is_left_out(round.priority) {
                        continue;
                    }
                    if run.is_some_and(|run| run.is_ready(task, whole, *zone)) {
                        is_ready = true;
                        continue;
                    }
                    let control = Control {
                        zone: *zone,
                        who,
                        priority: round.priority,
                        target: round.target,
                        force_deactivate: false,
                        may_unmap: true,
                        may_write: true,
                        may_swap: true,
                        may_shrink: true,
                        spares_anon: true,
                        run: run.map(|run| RunPass {
                            run,
                            freed: freed + got.reclaimed,
                        }),
                    };
                    got += cache.shrink_zone(task, &control);
                }
                scanned += got.scanned;
                freed += got.reclaimed;
                direct.shrunk(got);
                if is_ready && run.is_some_and(ForRun::ends_when_ready) {
                    direct.stop();
                }
            }
            direct::Step::WakeFlushers(pages) => cache.want_of_each(task, pages),
            direct::Step::Wait => {
                cache.pause(task, zones[0], Reason::WaitIffCongested, who);
            }
            direct::Step::Done(freed) => {
                // Deviation: in the kernel the background alone judges. Where a device that is gone
                // holds it up, those that are told of progress would come back for ever; so they
                // would in a cache that stops.
                if freed.is_zero() {
                    for zone in zones {
                        judge(task, cache, *zone);
                    }
                }
                let stops = cache.is_stopping();
                let hopeless = |zone: &ZoneId| stops || cache.is_hopeless(task, *zone);
                return Ended {
                    scanned,
                    freed,
                    answer: answer(freed, scanned, zones.iter().all(hopeless)),
                };
            }
        }
        if cache.is_stopping() || enough(task) {
            direct.stop();
        }
    }
}

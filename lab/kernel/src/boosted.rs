//! A balance of the background reclaimer where zones are boosted (`history::boost`): as
//! long as the node is balanced it frees for the boost, within its limits; else it does as ever,
//! with the marks raised.
//!
//! Source: mechanisms 3.4; kernel-facts 16; Linux 5.0 mm/vmscan.c, balance_pgdat(),
//! kswapd_shrink_node().

use env::{Event, Signal, Task};
use history::boost::{BoostStep, BoostedBalance};
use mm::Item;
use mm::inside::{Control, Inside, ZoneId};
use policy::reclaim::background::is_balanced;
use policy::reclaim::direct::may_begin;
use policy::reclaim::scan::CLUSTER;
use policy::reclaim::throttle::Who;
use policy::units::Pages;

/// One balance of a zone whose boost was `noted`; `worked_off` is called when that is retired.
pub(crate) fn balance(
    task: &mut Task<'_>,
    cache: Inside<'_>,
    (zone, noted): (ZoneId, Pages),
    worked_off: impl FnOnce(),
) {
    let memory = cache.memory;
    let scan = cache.options.reclaim.law.scan;
    let mut balance = BoostedBalance::begin(cache.options.boost, noted, scan);
    let mut scanned = Pages::ZERO;
    cache.counters.add(Item::Pageoutrun, 1);
    let end = loop {
        let stops = cache.is_stopping();
        let balanced = is_balanced(memory.spare_of(zone), memory.marks_of(zone).high);
        match balance.step(balanced) {
            BoostStep::Done(end) => break Some(end),
            BoostStep::Shrink { .. } if stops => break None,
            BoostStep::Shrink {
                mut priority,
                allowed,
                boosted,
                spares_anon,
            } => {
                cache.age_anon(task, zone);
                let target = memory.marks_of(zone).high.at_least(CLUSTER);
                if !boosted {
                    priority = cache.goes_at(task, zone, (priority, target));
                    balance.goes_at(priority);
                }
                let control = Control {
                    zone,
                    who: Who::BACKGROUND,
                    priority,
                    target,
                    force_deactivate: false,
                    may_unmap: true,
                    may_write: allowed.writes,
                    may_swap: allowed.swaps,
                    may_shrink: allowed.shrinks,
                    spares_anon,
                    run: None,
                };
                let got = cache.shrink_zone(task, &control);
                scanned += got.scanned;
                if boosted {
                    cache.counters.add(Item::PgstealBoosted, got.reclaimed.0);
                }
                balance.shrunk(got.reclaimed, got.scanned >= target, got.spared_anon);
                let free = Pages(u64::from(memory.free_of(zone)));
                let min = memory.marks_of(zone).min;
                if may_begin(free, min, cache.is_hopeless(task, zone)) {
                    cache.wake_reserve(zone);
                }
            }
        }
    };
    memory.retire_boost(task, zone, noted);
    worked_off();
    if end.is_some_and(|end| end.failed) {
        let mut balance = cache.zones[zone].balance(task);
        balance.failures_mut().balanced(Pages::ZERO, false);
    }
    cache.zones.snapshot_refaults(task);
    task.emit(&Event::Reclaimed {
        background: true,
        scanned,
        freed: end.map_or(Pages::ZERO, |end| end.freed),
    });
    // Others may find what this has freed, or that it freed nothing.
    memory.wake(Signal::Balanced);
}

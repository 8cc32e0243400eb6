//! A balance of the background reclaimer where zones are boosted (`policy::reclaim::boost`): as
//! long as the node is balanced it frees for the boost, within its limits; else it does as ever,
//! with the marks raised.
//!
//! Source: mechanisms 3.4; kernel-facts 16; Linux 5.0 mm/vmscan.c, balance_pgdat(),
//! kswapd_shrink_node().

use core::sync::atomic::Ordering;

use env::{Event, Signal, Task};
use policy::reclaim::background::is_balanced;
use policy::reclaim::boost::{BoostStep, BoostedBalance};
use policy::reclaim::direct::may_begin;
use policy::reclaim::scan::CLUSTER;
use policy::reclaim::throttle::Who;
use policy::units::Pages;

use super::{Control, age_anon, shrink_zone};
use crate::cache::Cache;
use crate::lists::ZoneId;
use crate::vmstat::Item;

/// One balance of a zone.
pub(super) fn balance(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) {
    let memory = &cache.memory;
    let noted = memory.boost_of(zone);
    let scan = cache.options.reclaim.law.scan;
    let mut balance = BoostedBalance::begin(cache.options.boost, noted, scan);
    let mut scanned = Pages::ZERO;
    cache.counters.add(Item::Pageoutrun, 1);
    let end = loop {
        let stops = cache.registry.stopping.load(Ordering::Acquire);
        let balanced = is_balanced(memory.spare_of(zone), memory.marks_of(zone).high);
        match balance.step(balanced) {
            BoostStep::Done(end) => break Some(end),
            BoostStep::Shrink { .. } if stops => break None,
            BoostStep::Shrink {
                priority,
                allowed,
                boosted,
                spares_anon,
            } => {
                age_anon(task, cache, zone);
                let target = memory.marks_of(zone).high.at_least(CLUSTER);
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
                let got = shrink_zone(task, cache, &control);
                scanned += got.scanned;
                if boosted {
                    cache.counters.add(Item::PgstealBoosted, got.reclaimed.0);
                }
                balance.shrunk(got.reclaimed, got.scanned >= target, got.spared_anon);
                let free = Pages(u64::from(memory.free_of(zone)));
                let min = memory.marks_of(zone).min;
                if may_begin(free, min, cache.is_hopeless(task, zone)) {
                    cache.reserve_wait(zone).wake_all(Signal::Balanced);
                }
            }
        }
    };
    memory.retire_boost(task, zone, noted);
    if let Some(kernel) = cache.kernel().filter(|_| !noted.is_zero()) {
        kernel.worked_off(cache, zone);
    }
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

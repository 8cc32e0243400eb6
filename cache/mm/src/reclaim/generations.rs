//! A pass over the generations of a zone.
//!
//! ```text
//!   too few are old: a generation begins, over       (not at the gentlest priority)
//!   else, until as many were looked at as the priority says:
//!     a cluster of the oldest -> judged as any other: freed, sent to the swap file, or the youngest again
//! ```
//!
//! Source: Linux 6.12 mm/vmscan.c, lru_gen_shrink_node(), try_to_shrink_lruvec(),
//! should_abort_scan(), get_swappiness().

use env::{Task, Work};
use policy::reclaim::generations::BATCH;
use policy::reclaim::page::Tally;
use policy::units::Pages;

use super::{Control, shrink};
use crate::cache::Cache;
use crate::lists::Generational;

/// Answers how many pages were freed.
pub(super) fn pass(
    task: &mut Task<'_>,
    cache: &Cache,
    generational: &Generational,
    control: &Control,
    tally: &mut Tally,
) -> Pages {
    let mut reclaimed = Pages::ZERO;
    if !control.may_unmap || !control.may_write {
        return reclaimed;
    }
    let zone = control.zone;
    let reclaim = &cache.options.reclaim;
    let batch = Pages(u64::from((BATCH / reclaim.stands_for.max(1)).max(1)));
    let enough = |reclaimed: Pages| {
        let full = cache.memory.marks_of(zone).high + batch;
        reclaimed >= control.target || control.who.background && cache.memory.spare_of(zone) >= full
    };
    let mut looked = Pages::ZERO;
    loop {
        let may_swap = control.may_swap && cache.can_swap() && cache.swap_free() >= batch;
        let swappiness = if may_swap { reclaim.swappiness } else { 0 };
        let how = (swappiness > 0, control.priority);
        let wanted = cache.zones.plan(generational, task, zone, how);
        if wanted.is_zero() {
            break;
        }
        let from = (zone, swappiness);
        let cluster = reclaim.cluster();
        let taken = cache
            .zones
            .take_oldest(generational, task, &cache.pages, from, cluster);
        task.did(Work::Deactivate, taken.moved);
        reclaimed += shrink::shrink(task, cache, taken.kind, &taken.batch, control, tally);
        looked += taken.looked;
        let stops = taken.looked.is_zero() || looked >= wanted || enough(reclaimed);
        if stops
            || cache
                .registry
                .stopping
                .load(core::sync::atomic::Ordering::Relaxed)
        {
            break;
        }
    }
    reclaimed
}

//! Ageing: pages of an active list go to the inactive one, where they have to be used again to come
//! back.
//!
//! Source: mechanisms 2.6; Linux 5.15 mm/vmscan.c, shrink_active_list(). Deviation: nothing is
//! executable here, so every page goes.

use env::{Task, Work};
use frames::Flags;
use policy::reclaim::scan::{Kind, Turn};
use policy::units::Pages;

use super::isolate;
use super::mapped::Maps;
use crate::cache::Cache;
use crate::lists::ZoneId;
use crate::lists::isolate::Page;
use crate::registry::regions::Cursor;
use crate::vmstat::Item;

/// One turn on an active list.
pub(super) fn shrink_active(task: &mut Task<'_>, cache: &Cache, zone: ZoneId, turn: Turn) {
    let kind = turn.list.kind();
    let batch = isolate(task, cache, zone, turn);
    let taken = batch.len();
    if taken == 0 {
        return;
    }
    cache.contend(task, zone);
    task.did(Work::Deactivate, taken);
    let cleared = if cache.options.reclaim.law.ageing_forgets_uses {
        Flags::ACTIVE | Flags::REFERENCED
    } else {
        Flags::ACTIVE
    };
    let mut regions = Cursor::default();
    let mut maps = Maps::new();
    let (mut used, mut deactivated) = (0, 0);
    for page in batch.pages() {
        let Page { frame, generation } = *page;
        if kind == Kind::Anon {
            // Used or not: it has to be used again.
            let young = regions.test_and_clear_young(
                &cache.registry.regions,
                task,
                cache.pages.table.owner(frame),
            );
            used += u64::from(young);
        } else if cache.pages.table.flags(frame).has(Flags::MAPPED) {
            let owner = cache.pages.table.owner(frame);
            used += u64::from(maps.test_and_clear_young(cache, task, owner));
        }
        let set = Flags::WORKINGSET;
        let done = cache.pages.table.update_of(frame, generation, set, cleared);
        deactivated += u64::from(done.is_some());
    }
    maps.leave(cache);
    cache
        .zones
        .put_back(task, &cache.pages, batch.pages(), false);
    cache.zones[zone].note_gone(kind, taken);
    cache.zones[zone]
        .balance(task)
        .note_aged(kind, Pages(taken), Pages(used));
    cache.counters.add(Item::Pgrefill, taken);
    cache.counters.add(Item::Pgdeactivate, deactivated);
}

//! Reclaim: freeing pages by scanning the LRU lists, in the background and by those that need
//! memory.
//!
//! ```text
//!   background (kswapd) --.                        .--> shrink: inactive pages are judged, freed, written, put back
//!                         +--> shrink_zone --turns-+
//!   direct (an allocator) -'   one pass at a        '--> active: pages are aged
//!                              priority
//!                                 '--> throttle: what a pass found may be a reason to sleep
//! ```
//!
//! | module | does |
//! |---|---|
//! | `lists` (beside) | the lists, marks and counters of a zone; what ends a write |
//! | `lists::isolate` | takes pages off a list and puts them back |
//! | `shrink`, `active` | a turn on an inactive, on an active list |
//! | `mapped` | pages of files that are used without a call |
//! | `background`, `direct` | when to make passes, and when to stop; over zones, before 4.8: a `Kernel` |
//! | `throttle` | sleeps for a reason, and wakes |
//! | `lists::workingset` | knows evicted pages again |
//!
//! All decisions are `policy::reclaim`'s.
//!
//! Source: mechanisms 1 to 4; Linux 5.15 mm/vmscan.c, shrink_node(), shrink_lruvec().

mod active;
pub(crate) mod background;
pub(crate) mod direct;
pub(crate) mod index_nodes;
mod mapped;
pub(crate) mod shrink;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;
pub(crate) mod trim;

use core::sync::atomic::Ordering;

use env::{Context, Task, Work};
use policy::place::Way;
use policy::reclaim::background::LAST;
use policy::reclaim::direct::Got;
use policy::reclaim::page::{Pass, PassStall, Tally, after_pass};
use policy::reclaim::scan::{CountInput, Lru, Priority, Turn, Turns, plan};
use policy::reclaim::throttle::Finding;
use policy::units::Pages;

use crate::cache::Cache;
pub(crate) use crate::cache::kernel::Control;
use crate::cache::kernel::{Done, Turned};
use crate::lists::ZoneId;
use crate::lists::isolate::Batch;
use crate::vmstat::Item;

/// One pass over a zone at one priority.
pub(crate) fn shrink_zone(task: &mut Task<'_>, cache: &Cache, control: &Control) -> Got {
    let zone = &cache.zones[control.zone];
    zone.enter_work();
    let mut tally = Tally::default();
    let kernel = cache.kernel();
    let kernel = kernel.filter(|kernel| control.may_shrink && kernel.has_objects());
    let listed = kernel.map_or(Pages::ZERO, |_| cache.zones.listed(task, control.zone));
    let by_shares = kernel.and_then(|kernel| kernel.pass_shared(task, cache, control, &mut tally));
    let shared = by_shares.is_some();
    let turned = by_shares.unwrap_or_else(|| take_turns(task, cache, control, &mut tally));
    let mut reclaimed = turned.reclaimed;
    age_anon(task, cache, control.zone);
    if let Some(run) = &control.run {
        let (mut last, mut passes) = (reclaimed, 1);
        loop {
            let done = Done {
                last,
                here: (reclaimed, passes),
                all: run.freed + reclaimed,
                plainly: !tally.plainly_kept.is_zero(),
            };
            let stops = cache.registry.stopping.load(Ordering::Relaxed);
            if stops || !run.run.goes_on(task, cache, control.zone, &done) {
                break;
            }
            last = take_turns(task, cache, control, &mut tally).reclaimed;
            reclaimed += last;
            passes += 1;
            age_anon(task, cache, control.zone);
        }
    }
    if let Some(kernel) = kernel {
        let seen = (tally.scanned, listed);
        reclaimed += kernel.ask_objects(task, cache, control, seen, shared).pages;
    }
    let (sizes, aside) = cache.zones.sizes_and_aside(task, control.zone);
    let rule = cache.options.reclaim.judge_rule();
    let pass = Pass {
        background: control.who.background,
        may_throttle: !control.who.exempt,
        node: zone.flags(),
        aside,
        inactive_file: sizes.of(Lru::InactiveFile),
        last: control.priority <= LAST,
        rule,
    };
    let change = after_pass(&tally, &pass);
    zone.set_flags(change.set);
    if change.flushers {
        cache.wake_flushers(task);
    }
    if let Some(stall) = change.stall {
        let finding = match stall {
            PassStall::Immediate => Finding::Immediate,
            PassStall::Congested => Finding::Congested,
        };
        throttle::found_at_work(task, cache, control.zone, finding, control.who);
    }
    zone.balance(task).failures_mut().reclaimed(reclaimed);
    if !cache.zones.layout().is_one() {
        let changed = cache.changed(control.zone);
        zone.worth(task)
            .note_pass(tally.scanned, reclaimed, changed);
    }
    zone.leave_work();
    if cache.options.reclaim.law.waits_for_writeout {
        throttle::wait_for_writeout(task, cache, control);
    }
    Got {
        reclaimed,
        scanned: tally.scanned,
        skipped_deactivate: turned.skipped_deactivate,
        fruitless: tally.is_fruitless(rule),
        spared_anon: turned.spared_anon,
    }
}

/// The turns of a pass: how much of which list, and cluster by cluster until the target is reached.
pub(crate) fn take_turns(
    task: &mut Task<'_>,
    cache: &Cache,
    control: &Control,
    tally: &mut Tally,
) -> Turned {
    if let Some(kernel) = cache.kernel().filter(|_| cache.zones.order().is_some()) {
        let reclaimed = kernel.pass_in_order(task, cache, control, tally);
        return Turned {
            reclaimed,
            ..Turned::default()
        };
    }
    let zone = &cache.zones[control.zone];
    let factor = cache.options.reclaim.stands_for;
    let times = |pages: Pages| Pages(pages.0.saturating_mul(u64::from(factor)));
    let own = cache.zones.sizes(task, control.zone);
    let takes_main = cache.zones.takes_main(task, control.zone);
    let sizes = own.times(factor);
    let may_swap = control.may_unmap && control.may_swap && cache.can_swap();
    let rule = cache.options.reclaim.law.scan;
    let mut scan = {
        let mut balance = zone.balance(task);
        let costs = balance.costs(&own);
        let told = balance.tell(task.now(), &own).times(factor);
        plan(&CountInput {
            sizes: &sizes,
            told: &told,
            free: times(Pages(u64::from(cache.memory.free_of(control.zone)))),
            high_mark_sum: times(cache.memory.marks_of(control.zone).high),
            priority: control.priority,
            background: control.who.background,
            rule,
            swappiness: cache.options.reclaim.swappiness,
            may_swap,
            costs: &costs,
            may_deactivate: rule.may_deactivate(|| {
                let [anon, file] = balance.may_deactivate(&told, control.force_deactivate);
                [anon, file || takes_main]
            }),
            // Pinned ones are at hand for nobody.
            plenty: times(
                cache
                    .options
                    .reclaim
                    .plenty(control.target.saturating_add(cache.pinned())),
            ),
            spares_anon: control.spares_anon,
        })
    };
    scan.counts = scan.counts.part(factor);
    scan.cluster = cache.options.reclaim.cluster();
    let patient = !control.who.background && control.priority == Priority::GENTLEST;
    let spared_anon = scan.spares_anon;
    let mut turns = Turns::new(scan, control.target, patient);
    let mut reclaimed = Pages::ZERO;
    while let Some(turn) = turns.next(reclaimed) {
        if turn.list.is_active() {
            let sizes = || cache.zones.sizes(task, control.zone).times(factor);
            let size = cache.size_of(control.zone);
            if rule.takes_turn(sizes, turn.list.kind(), size) {
                active::shrink_active(task, cache, control.zone, turn);
            }
        } else {
            reclaimed += shrink::shrink_inactive(task, cache, turn, control, tally);
        }
        if cache.registry.stopping.load(Ordering::Relaxed) {
            break;
        }
    }
    Turned {
        reclaimed,
        skipped_deactivate: turns.skipped_deactivate(),
        spared_anon,
    }
}

/// Takes the pages of a turn off their list.
fn isolate(task: &Task<'_>, cache: &Cache, zone: ZoneId, turn: Turn) -> Batch {
    let (batch, moved) = cache
        .zones
        .isolate(task, &cache.pages, zone, turn.list, turn.pages.0);
    cache.counters.add(Item::Pgactivate, moved);
    batch
}

/// Ages a cluster of active anonymous pages if the inactive ones are few.
pub(crate) fn age_anon(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) {
    if cache.zones.order().is_some() {
        return;
    }
    let told = cache.zones.told(task, zone, || task.now());
    let sizes = told.times(cache.options.reclaim.stands_for);
    let rule = cache.options.reclaim.law.scan;
    let size = cache.size_of(zone);
    if rule.ages_anon(&sizes, !cache.swap_total().is_zero(), size) {
        let turn = Turn {
            list: Lru::ActiveAnon,
            pages: cache.options.reclaim.cluster(),
        };
        active::shrink_active(task, cache, zone, turn);
    }
}

impl Cache {
    /// Frames of a zone, at the size that is stood for.
    fn size_of(&self, zone: ZoneId) -> Pages {
        self.at_full_size(self.zones.layout().zone(zone).pages)
    }

    pub(crate) fn at_full_size(&self, pages: Pages) -> Pages {
        let factor = u64::from(self.options.reclaim.stands_for);
        Pages(pages.0.saturating_mul(factor))
    }

    /// True if a task's own passes leave a zone out: a pass found next to nothing there, nothing on
    /// it has changed since, and there is another where that is not so.
    pub(crate) fn leaves_out(&self, context: &impl Context, zone: ZoneId) -> bool {
        self.options.place.way == Way::ByUse
            && self.is_poor(context, zone)
            && !self
                .zones
                .layout()
                .zones()
                .all(|zone| self.is_poor(context, zone))
    }

    /// True if a pass over a zone would find next to nothing.
    pub(crate) fn is_poor(&self, context: &impl Context, zone: ZoneId) -> bool {
        let changed = self.changed(zone);
        self.zones[zone].worth(context).is_poor(changed)
    }

    /// True if the background reclaimer has given up on a zone.
    pub(crate) fn is_hopeless(&self, context: &impl Context, zone: ZoneId) -> bool {
        let given_back = self.memory.given_back_of(zone);
        self.zones[zone].is_hopeless(context, given_back)
    }

    /// Reclaimers of a zone meet at the lock of its lists, once a cluster.
    fn contend(&self, task: &mut Task<'_>, zone: ZoneId) {
        let at_work = self.zones[zone].at_work();
        let others = at_work.min(self.options.dirty.cpus).saturating_sub(1);
        task.did(Work::ContendLru, u64::from(others));
    }

    /// Asks the flusher of each device for `pages`: nothing is clean, and dirty pages have to be
    /// written first.
    pub(crate) fn want_of_each(&self, context: &impl Context, pages: Pages) {
        for device in self.writeback.devices.lock(context).iter() {
            device.want(pages);
        }
    }

    /// The memory is full of dirty pages that nobody is writing: the flushers are to write them.
    pub(crate) fn wake_flushers(&self, context: &impl Context) {
        for device in self.writeback.devices.lock(context).iter() {
            let dirty = device.dirty.load(Ordering::Relaxed);
            if dirty > 0 {
                device.want(Pages(dirty));
            }
        }
    }
}

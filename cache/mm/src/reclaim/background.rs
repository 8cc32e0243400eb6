//! The background reclaimer: woken below LOW, it works until HIGH is passed.
//!
//! Source: mechanisms 3.1 to 3.3; Linux 5.15 mm/vmscan.c, kswapd(), balance_pgdat().

use core::sync::atomic::{Ordering, fence};
use std::sync::Weak;

use env::{Event, Signal, Task, Wakeup};
use policy::reclaim::Loops;
use policy::reclaim::background::{
    Balance, BalanceStep, Rest, clears_flags, is_balanced, nap, rest,
};
use policy::reclaim::boost::{self, Waking};
use policy::reclaim::direct::may_begin;
use policy::reclaim::scan::{Lru, Priority};
use policy::reclaim::throttle::{Throttle, Who};
use policy::units::{Nanos, Pages};

use super::{Control, age_anon, shrink_zone};
use crate::cache::Cache;
use crate::cache::kernel::OF_ZONES;
use crate::lists::{NodeId, ZoneId};
use crate::vmstat::Item;

/// The task of a node. Its lists are of one zone, unless the law works on zones.
pub(crate) fn background(task: &mut Task<'_>, cache: &Weak<Cache>, node: NodeId) {
    let (first, loops) = {
        let Some(cache) = cache.upgrade() else { return };
        for zone in cache.zones.layout().zones_of(node) {
            let sleepers = cache.zones[zone].sleepers();
            sleepers.law(task, Throttle::background_starts);
        }
        let Some(first) = cache.zones.layout().zones_of(node).next() else {
            return;
        };
        (first, cache.options.reclaim.law.loops)
    };
    while let Some(cache) = cache.upgrade() {
        if !sleep(task, &cache, first, None) {
            return;
        }
        task.emit(&Event::Background { awake: true });
        let goes_on = match loops {
            Loops::Nodes => work(task, &cache, first),
            Loops::Zones => {
                let kernel = cache.kernel().expect(OF_ZONES);
                kernel.balance_zones(task, &cache, node)
            }
        };
        task.emit(&Event::Background { awake: false });
        if !goes_on {
            return;
        }
    }
}

/// Sleeps until it is asked, at most for `nap`; false on shutdown. The reclaimer is that of the
/// zone's node.
pub(crate) fn sleep(task: &mut Task<'_>, cache: &Cache, zone: ZoneId, nap: Option<Nanos>) -> bool {
    let background = cache.zones.node_of(zone).background();
    let deadline = nap.map(|nap| task.now() + nap);
    let stopping = || cache.registry.stopping.load(Ordering::Acquire);
    let wakeup = background.sleep(task, deadline, stopping);
    wakeup != Wakeup::Cancelled && !cache.registry.stopping.load(Ordering::Acquire)
}

/// Begins a balance: pages that nobody waits for go first.
pub(crate) fn begin(task: &Task<'_>, cache: &Cache, node: NodeId) {
    cache.zones.node(node).background().begin();
    cache.drop_remains(task);
    cache.memory.ask_again(task);
}

/// Balances until it may rest; false on shutdown.
fn work(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) -> bool {
    let memory = &cache.memory;
    let background = cache.zones.node_of(zone).background();
    let hz = cache.options.reclaim.hz;
    let mut napped = false;
    loop {
        if !napped {
            begin(task, cache, cache.zones.layout().node_of(zone));
            let boosts = memory.boost_rule().boosts();
            memory.balances(task, zone, true);
            let ended = if let Some(kernel) = cache.kernel().filter(|_| boosts) {
                kernel.balance_boosted(task, cache, zone);
                Ended::Balanced
            } else {
                balance(task, cache, zone)
            };
            memory.balances(task, zone, false);
            if ended == Ended::InVain && !cache.registry.stopping.load(Ordering::Acquire) {
                if !rest_in_vain(task, cache, zone) {
                    return false;
                }
                continue;
            }
        }
        if cache.registry.stopping.load(Ordering::Acquire) {
            return false;
        }
        let (free, high) = (memory.spare_of(zone), memory.marks_of(zone).high);
        let failures = cache.zones[zone].balance(task).failures();
        // A task that waits for the reserve looks again: at the failures too.
        cache.reserve_wait(zone).wake_all(Signal::Balanced);
        if clears_flags(free, high, failures) {
            cache.zones[zone].clear_flags();
        }
        match rest(free, high, failures, napped, hz) {
            Rest::Work => napped = false,
            Rest::Sleep => return true,
            Rest::Nap(nap) => {
                if !sleep(task, cache, zone, Some(nap)) {
                    return false;
                }
                napped = !background.is_asked();
            }
        }
    }
}

/// All that could be freed is in use, and nobody waits for memory: rests until somebody does, or
/// for a nap; false on shutdown.
fn rest_in_vain(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) -> bool {
    let background = cache.zones.node_of(zone).background();
    let nap = nap(cache.options.reclaim.hz);
    let until = task.now() + nap;
    background.rest_until(until);
    background.begin();
    // A task that has taken a place in the line before this look is seen here; the task that comes
    // after it asks again.
    fence(Ordering::SeqCst);
    cache.memory.is_short() || sleep(task, cache, zone, Some(nap))
}

/// The end of a balance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// As it should.
    Balanced,
    /// It would have to take pages in use, for nobody.
    InVain,
}

/// The priority of a pass that is due at this one: a law with an order of its own may begin late.
pub(crate) fn goes_at(
    task: &Task<'_>,
    cache: &Cache,
    zone: ZoneId,
    (priority, target): (Priority, Pages),
) -> Priority {
    let order = cache.zones.order();
    let Some(order) = order.filter(|_| priority == Priority::GENTLEST) else {
        return priority;
    };
    let sizes = cache.zones.sizes(task, zone);
    let mut inactive = sizes.of(Lru::InactiveFile);
    if cache.can_swap() {
        inactive += sizes.of(Lru::InactiveAnon);
    }
    order.begins_at(inactive, target)
}

/// One balance of a zone.
fn balance(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) -> Ended {
    let memory = &cache.memory;
    let marks = memory.marks_of(zone);
    let free = || Pages(u64::from(memory.free_of(zone)));
    let mut balance = Balance::begin(marks.high, cache.options.reclaim.law.scan);
    let mut scanned = Pages::ZERO;
    let mut passes = 0;
    let mut ended = Ended::Balanced;
    cache.counters.add(Item::Pageoutrun, 1);
    let rotated = || cache.counters.get(Item::Pgrotated);
    let before = rotated();
    let reclaimed = loop {
        match balance.step(memory.spare_of(zone)) {
            BalanceStep::Done(reclaimed) => break reclaimed,
            BalanceStep::Shrink {
                priority,
                target,
                spares_anon,
            } => {
                age_anon(task, cache, zone);
                let priority = goes_at(task, cache, zone, (priority, target));
                balance.goes_at(priority);
                let control = Control {
                    zone,
                    who: Who::BACKGROUND,
                    priority,
                    target,
                    force_deactivate: false,
                    may_unmap: true,
                    may_write: true,
                    may_swap: true,
                    may_shrink: true,
                    spares_anon,
                    run: None,
                };
                let got = shrink_zone(task, cache, &control);
                scanned += got.scanned;
                passes += 1;
                balance.shrunk(got.reclaimed, got.scanned, got.spared_anon);
                if may_begin(free(), marks.min, cache.is_hopeless(task, zone)) {
                    cache.reserve_wait(zone).wake_all(Signal::Balanced);
                }
                if got.fruitless && !memory.is_short() {
                    ended = Ended::InVain;
                    balance.stop();
                }
                if cache.registry.stopping.load(Ordering::Acquire) {
                    balance.stop();
                }
            }
        }
    };
    if passes > 0 {
        if ended == Ended::Balanced {
            let mut balance = cache.zones[zone].balance(task);
            balance
                .failures_mut()
                .balanced(reclaimed, rotated() != before);
        }
        cache.zones.snapshot_refaults(task);
    }
    task.emit(&Event::Reclaimed {
        background: true,
        scanned,
        freed: reclaimed,
    });
    // Others may find what this pass has freed, or that it freed nothing.
    memory.wake(Signal::Balanced);
    ended
}

impl Cache {
    /// A zone is below LOW: its background reclaimer is to work, unless it has given up. Answers
    /// whether it has been asked.
    pub(crate) fn ask_reclaim(&self, context: &impl env::Context, zone: ZoneId) -> bool {
        let memory = &self.memory;
        let background = self.zones.node_of(zone).background();
        if background.is_asked() {
            return true;
        }
        let rests = background.is_resting(self.env.now());
        if rests && !memory.is_short() {
            return false;
        }
        let wakes = match self.options.reclaim.law.loops {
            Loops::Nodes => {
                let failures = self.zones[zone].balance(context).failures();
                boost::wants_wake(Waking {
                    balanced: is_balanced(memory.spare_of(zone), memory.marks_of(zone).high),
                    boosted: !memory.boost_of(zone).is_zero(),
                    hopeless: failures.hopeless(),
                })
            }
            Loops::Zones => {
                let kernel = self.kernel().expect(OF_ZONES);
                kernel.wants_wake(&context, self, zone)
            }
        };
        if wakes {
            background.ask();
        }
        wakes
    }

    /// The same for all zones.
    pub(crate) fn ask_reclaim_of_all(&self, context: &impl env::Context) {
        for zone in self.zones.layout().zones() {
            self.ask_reclaim(context, zone);
        }
    }

    /// Pages that can be freed have come, or may have: a background reclaimer that had given up
    /// looks again, once, where the law says so. Nobody else would where those that want memory
    /// wait in a queue.
    pub(crate) fn look_again(&self, context: &impl env::Context) {
        for zone in self.zones.layout().zones() {
            let looks = {
                let mut balance = self.zones[zone].balance(context);
                balance.failures_mut().look_again()
            };
            if looks {
                self.ask_reclaim(context, zone);
            }
        }
    }
}

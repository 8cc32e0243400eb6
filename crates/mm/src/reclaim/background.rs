//! The background reclaimer: woken below LOW, it works until HIGH is passed.
//!
//! Source: mechanisms 3.1 to 3.3; Linux 5.15 mm/vmscan.c, kswapd(), balance_pgdat().

use core::sync::atomic::{Ordering, fence};
use std::sync::Weak;

use env::{Cause, Env, Event, Signal, Task, Wakeup};
use policy::reclaim::background::{
    Balance, BalanceStep, Rest, clears_flags, nap, rest, wants_wake,
};
use policy::reclaim::direct::may_begin;
use policy::reclaim::throttle::Who;
use policy::units::{Nanos, Pages};

use super::{Control, age_anon, shrink_node};
use crate::cache::Cache;
use crate::vmstat::Item;

/// The task.
pub(crate) fn background<E: Env>(task: &mut Task<'_, E>, cache: &Weak<Cache<E>>) {
    if let Some(cache) = cache.upgrade() {
        cache.node.throttle.lock(task).background_starts();
    }
    while let Some(cache) = cache.upgrade() {
        if !sleep(task, &cache, None) {
            return;
        }
        task.emit(&Event::Background { awake: true });
        let goes_on = work(task, &cache);
        task.emit(&Event::Background { awake: false });
        if !goes_on {
            return;
        }
    }
}

/// Sleeps until it is asked, at most for `nap`; false at the end of the world.
fn sleep<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>, nap: Option<Nanos>) -> bool {
    let memory = &cache.memory;
    let deadline = nap.map(|nap| task.now() + nap);
    let wakeup = task.wait_while(&memory.reclaim_wait, Cause::Idle, deadline, |_| {
        !memory.reclaim_asked.load(Ordering::Acquire) && !cache.stopping.load(Ordering::Acquire)
    });
    wakeup != Wakeup::Cancelled && !cache.stopping.load(Ordering::Acquire)
}

/// Balances until it may rest; false at the end of the world.
fn work<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>) -> bool {
    let memory = &cache.memory;
    let high = memory.marks.high;
    let hz = cache.options.reclaim.hz;
    let mut napped = false;
    loop {
        if !napped {
            memory.reclaim_asked.store(false, Ordering::Release);
            let ended = balance(task, cache);
            if ended == Ended::InVain && !cache.stopping.load(Ordering::Acquire) {
                if !rest_in_vain(task, cache) {
                    return false;
                }
                continue;
            }
        }
        if cache.stopping.load(Ordering::Acquire) {
            return false;
        }
        let free = memory.spare();
        let failures = cache.node.balance.lock(task).failures;
        // Whoever waits for the reserve looks again: at the failures too.
        cache.node.reserve_wait.wake_all(Signal::Balanced);
        if clears_flags(free, high, failures) {
            cache.node.clear_flags();
        }
        match rest(free, high, failures, napped, hz) {
            Rest::Work => napped = false,
            Rest::Sleep => return true,
            Rest::Nap(nap) => {
                if !sleep(task, cache, Some(nap)) {
                    return false;
                }
                napped = !memory.reclaim_asked.load(Ordering::Acquire);
            }
        }
    }
}

/// All that could be freed is in use, and nobody waits for memory: rests until somebody does, or for a nap; false at the
/// end of the world.
fn rest_in_vain<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>) -> bool {
    let memory = &cache.memory;
    let nap = nap(cache.options.reclaim.hz);
    let until = task.now() + nap;
    memory.reclaim_rests.store(until.0, Ordering::Relaxed);
    memory.reclaim_asked.store(false, Ordering::Release);
    // Whoever has taken a place in the line before this look is seen here; whoever comes after it asks again.
    fence(Ordering::SeqCst);
    memory.is_short() || sleep(task, cache, Some(nap))
}

/// How a balance ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// As it should.
    Balanced,
    /// It would have to take pages in use, for nobody.
    InVain,
}

/// One balance of the node.
fn balance<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>) -> Ended {
    let memory = &cache.memory;
    let free = || Pages(u64::from(memory.free()));
    let mut balance = Balance::begin(memory.marks.high);
    let mut scanned = Pages::ZERO;
    let mut passes = 0;
    let mut ended = Ended::Balanced;
    cache.counters.add(Item::Pageoutrun, 1);
    let reclaimed = loop {
        match balance.step(memory.spare()) {
            BalanceStep::Done(reclaimed) => break reclaimed,
            BalanceStep::Shrink { priority, target } => {
                age_anon(task, cache);
                let control = Control {
                    who: Who::BACKGROUND,
                    priority,
                    target,
                    force_deactivate: false,
                    may_write: true,
                    may_swap: true,
                    rule: cache.node.rule,
                };
                let got = shrink_node(task, cache, &control);
                scanned += got.scanned;
                passes += 1;
                balance.shrunk(got.reclaimed, got.scanned);
                if may_begin(free(), memory.marks.min, cache.node.is_hopeless(task)) {
                    cache.node.reserve_wait.wake_all(Signal::Balanced);
                }
                if got.in_vain && cache.node.rule.insists && !memory.is_short() {
                    ended = Ended::InVain;
                    balance.stop();
                }
                if cache.stopping.load(Ordering::Acquire) {
                    balance.stop();
                }
            }
        }
    };
    if passes > 0 {
        if ended == Ended::Balanced {
            cache.node.balance.lock(task).failures.balanced(reclaimed);
        }
        cache.snapshot_refaults(task);
    }
    task.emit(&Event::Reclaimed {
        background: true,
        scanned,
        freed: reclaimed,
    });
    // Others may find what this pass has freed, or that it freed nothing.
    memory.wait.wake_all(Signal::Balanced);
    ended
}

impl<E: Env> Cache<E> {
    /// Memory is below LOW: the background reclaimer is to work, unless it has given up.
    pub(crate) fn ask_reclaim(&self, context: &impl env::Context) {
        let memory = &self.memory;
        if memory.reclaim_asked.load(Ordering::Acquire) {
            return;
        }
        let rests = self.env.now().0 < memory.reclaim_rests.load(Ordering::Relaxed);
        if rests && !memory.is_short() {
            return;
        }
        let free = memory.spare();
        let failures = self.node.balance.lock(context).failures;
        if wants_wake(free, memory.marks.high, failures)
            && !memory.reclaim_asked.swap(true, Ordering::AcqRel)
        {
            memory.reclaim_wait.wake_all(Signal::ReclaimAsked);
        }
    }
}

//! A first reclaimer: clean pages from the old end of the inactive list.
//!
//! Both sides of memory pressure use one pass: the background reclaimer, woken below the low mark
//! and working up to the high one, and a caller that found the free frames at the floor. A pass
//! isolates a cluster from the tail of the inactive list by taking busy bits under the list's
//! lock, so an isolated page belongs to this pass alone. Pages that were accessed twice move to
//! the active list; dirty, pinned and busy ones go back to the young end. When the active list has
//! outgrown the inactive one, its old end is moved over.
//!
//! Source: mechanisms 2 and 3 in outline; the complete machinery is a later capability.

use core::sync::atomic::Ordering;
use std::sync::Weak;

use env::{Cause, Env, Event, Task, Wakeup, Work};
use frames::{Busy, Flags, FrameId, Refusal};
use policy::reclaim::scan::{CLUSTER, Priority, inactive_is_low, scan_count};
use policy::units::{Nanos, Pages};

use crate::Error;
use crate::cache::{Cache, add, sub};

pub(crate) mod isolate;
pub(crate) mod node;

use node::{ACTIVE_FILE as ACTIVE, INACTIVE_FILE as INACTIVE};

const CLUSTER_FRAMES: usize = 32;
const _: () = assert!(CLUSTER_FRAMES as u64 == CLUSTER.0);
/// The background reclaimer rests this long after a pass that freed nothing.
const REST: Nanos = Nanos::millis(10);
/// Rounds of reclaim for index nodes before a caller is refused.
const NODE_ROUNDS: u32 = 64;

/// The background reclaimer of a cache.
pub(crate) fn background<E: Env>(task: &mut Task<'_, E>, cache: &Weak<Cache<E>>) {
    loop {
        {
            let Some(cache) = cache.upgrade() else { return };
            let memory = &cache.memory;
            let wakeup = task.wait_while(&memory.reclaim_wait, Cause::Idle, None, |_| {
                !memory.reclaim_asked.load(Ordering::Acquire)
                    && !cache.stopping.load(Ordering::Acquire)
            });
            if wakeup == Wakeup::Cancelled || cache.stopping.load(Ordering::Acquire) {
                return;
            }
            memory.reclaim_asked.store(false, Ordering::Release);
            balance(task, &cache);
        }
    }
}

/// Frees pages until the high mark is reached or a whole round of priorities freed nothing.
fn balance<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>) {
    let memory = &cache.memory;
    loop {
        let high = memory.marks.high.0;
        let free = u64::from(memory.free());
        if free >= high {
            return;
        }
        let freed = shrink(task, cache, Pages(high - free), true);
        if freed.is_zero() {
            // Dirty pages are the flusher's business; it wakes whoever waits for memory.
            if task.sleep(Cause::Idle, REST) == Wakeup::Cancelled {
                return;
            }
            return;
        }
    }
}

/// Reclaims on behalf of a caller that needs frames now; answers how many pages were freed.
pub(crate) fn direct<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>, target: Pages) -> Pages {
    shrink(task, cache, target, false)
}

/// Frees index nodes by freeing the pages that they hold.
pub(crate) fn nodes<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>) -> Result<(), Error> {
    let before = cache.pool.free();
    for _ in 0..NODE_ROUNDS {
        let freed = shrink(task, cache, CLUSTER, false);
        if cache.pool.free() > before {
            return Ok(());
        }
        if freed.is_zero() {
            for device in cache.devices.lock(task).iter() {
                device.want(CLUSTER);
            }
            if task.sleep(Cause::Memory, REST) == Wakeup::Cancelled {
                return Err(Error::Cancelled);
            }
        }
    }
    Err(Error::OutOfMemory {
        frames: Pages(u64::from(cache.options.frames)),
    })
}

/// One pass from the gentlest priority to the most desperate, until `target` pages are free.
fn shrink<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    target: Pages,
    background: bool,
) -> Pages {
    let (mut scanned, mut freed) = (Pages::ZERO, Pages::ZERO);
    let mut priority = Some(Priority::GENTLEST);
    while let Some(now) = priority {
        if freed >= target {
            break;
        }
        let size = Pages(u64::from(cache.node.lru.lock(task).len(INACTIVE)));
        let mut left = scan_count(size, now);
        while left > Pages::ZERO && freed < target {
            let pass = shrink_cluster(task, cache, left.at_most(CLUSTER));
            if pass.scanned.is_zero() {
                break;
            }
            scanned += pass.scanned;
            freed += pass.freed;
            left = left.saturating_sub(pass.scanned);
        }
        priority = now.raised();
    }
    add(&cache.totals.scanned, scanned.0);
    add(&cache.totals.reclaimed, freed.0);
    task.emit(&Event::Reclaimed {
        background,
        scanned,
        freed,
    });
    freed
}

struct Pass {
    scanned: Pages,
    freed: Pages,
}

fn shrink_cluster<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>, count: Pages) -> Pass {
    let mut isolated: [Option<Busy>; CLUSTER_FRAMES] = [const { None }; CLUSTER_FRAMES];
    let scanned = isolate(task, cache, count, &mut isolated);
    task.did(Work::Scan, scanned.0);
    let mut freed = [FrameId(0); CLUSTER_FRAMES];
    let mut count = 0;
    let mut next = 0;
    while next < CLUSTER_FRAMES {
        let Some(busy) = isolated[next].as_ref() else {
            break;
        };
        let file = cache.table.owner(busy.frame()).file;
        let Some(mapping) = cache.mapping(task, file) else {
            unreachable!("a cached page belongs to an open file");
        };
        // Neighbours on the list are mostly of one file: one lock for all of them.
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pool, &mut token);
        while next < CLUSTER_FRAMES {
            let same = |busy: &Busy| cache.table.owner(busy.frame()).file == file;
            if !isolated[next].as_ref().is_some_and(same) {
                break;
            }
            let Some(busy) = isolated[next].take() else {
                break;
            };
            index.remove(cache.table.owner(busy.frame()).index, None);
            freed[count] = cache.table.disown(busy);
            count += 1;
            next += 1;
        }
    }
    let freed = &freed[..count];
    sub(&cache.totals.cached, count as u64);
    cache.wake_busy(freed);
    cache.memory.put(task, freed);
    task.did(Work::Free, count as u64);
    Pass {
        scanned,
        freed: Pages(count as u64),
    }
}

/// Takes up to `count` pages from the tail of the inactive list; those that can be freed come out
/// busy, the others go where they belong. Answers how many were looked at.
fn isolate<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    count: Pages,
    isolated: &mut [Option<Busy>; CLUSTER_FRAMES],
) -> Pages {
    let mut lru = cache.node.lru.lock(task);
    let sizes = (lru.len(INACTIVE), lru.len(ACTIVE));
    if inactive_is_low(Pages(u64::from(sizes.0)), Pages(u64::from(sizes.1))) {
        for _ in 0..CLUSTER_FRAMES {
            let Some(frame) = lru.pop_tail(ACTIVE) else {
                break;
            };
            // It has to be accessed again to come back.
            let accessed = Flags::ACTIVE | Flags::REFERENCED;
            cache.table.update(frame, Flags::NONE, accessed);
            lru.push_head(INACTIVE, frame);
        }
    }
    let mut scanned = Pages::ZERO;
    let mut taken = 0;
    while scanned < count && taken < CLUSTER_FRAMES {
        let Some(frame) = lru.pop_tail(INACTIVE) else {
            break;
        };
        scanned += Pages(1);
        if cache.table.flags(frame).has(Flags::ACTIVE) {
            lru.push_head(ACTIVE, frame);
            continue;
        }
        match cache.table.try_busy_clean(frame) {
            Ok(busy) => {
                isolated[taken] = Some(busy);
                taken += 1;
            }
            Err(Refusal::Gone) => {
                unreachable!("a frame on an LRU list is cached: only its busy holder unlists it")
            }
            Err(_) => lru.push_head(INACTIVE, frame),
        }
    }
    scanned
}

//! Direct reclaim: a task that finds no free frame frees some itself.
//!
//! Source: mechanisms 3.6; Linux 5.15 mm/vmscan.c, try_to_free_pages(), throttle_direct_reclaim().

use core::sync::atomic::Ordering;

use env::{Cause, Event, Signal, Task, WaitQueue};
use policy::reclaim::direct::{Direct, DirectStep, Got, may_begin};
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::{After, Wake, Who};
use policy::reclaim::{Loops, Reason, ReserveWakes};
use policy::units::{Nanos, Pages};

use super::{Control, shrink_zone, throttle};
use crate::cache::Cache;
use crate::cache::kernel::{Done, Ended, ForRun, OF_ZONES};
use crate::lists::ZoneId;
use crate::vmstat::Item;

/// Reclaims at least `target` pages, or as many as 13 passes give; answers how many.
pub(crate) fn direct(task: &mut Task<'_>, cache: &Cache, target: Pages, who: Who) -> Pages {
    direct_until(task, cache, target, who, |_| false)
}

/// The same, until `enough` says after a pass that the task has no more need of it.
pub(crate) fn direct_until(
    task: &mut Task<'_>,
    cache: &Cache,
    target: Pages,
    who: Who,
    enough: impl Fn(&Task<'_>) -> bool,
) -> Pages {
    reclaim(task, cache, target, who, None, enough)
}

/// Reclaims until moving pages could make a run, as the law says; answers how many pages were
/// freed, or one if there is hope. A law that knows other passes than the run frees a cluster.
pub(crate) fn direct_for_run(task: &mut Task<'_>, cache: &Cache, run: &dyn ForRun) -> Pages {
    let who = cache.who(task, Kind::Anon);
    let target = cache.options.reclaim.cluster();
    reclaim(task, cache, target, who, Some(run), |_| false)
}

fn reclaim(
    task: &mut Task<'_>,
    cache: &Cache,
    target: Pages,
    who: Who,
    run: Option<&dyn ForRun>,
    enough: impl Fn(&Task<'_>) -> bool,
) -> Pages {
    debug_assert!(task.may_block(), "a pass may have to be waited for");
    task.emit(&Event::DirectReclaim);
    if !who.exempt && cache.options.reclaim.law.keeps_half_the_reserve {
        leave_reserve(task, cache);
    }
    let loops = cache.options.reclaim.law.loops;
    let run = run.filter(|run| run.loops() == loops);
    let ended = match loops {
        Loops::Nodes => over_nodes(task, cache, target, (who, run), enough),
        Loops::Zones => {
            let kernel = cache.kernel().expect(OF_ZONES);
            kernel.reclaim_zones(task, cache, target, (who, run), &enough)
        }
    };
    cache.zones.snapshot_refaults(task);
    task.emit(&Event::Reclaimed {
        background: false,
        scanned: ended.scanned,
        freed: ended.freed,
    });
    ended.answer
}

/// The passes since 4.8; for a run, if one is named.
fn over_nodes(
    task: &mut Task<'_>,
    cache: &Cache,
    target: Pages,
    (who, run): (Who, Option<&dyn ForRun>),
    enough: impl Fn(&Task<'_>) -> bool,
) -> Ended {
    let mut direct = Direct::begin(target);
    let mut scanned = Pages::ZERO;
    loop {
        match direct.step() {
            DirectStep::Begin => cache.counters.add(Item::Allocstall, 1),
            DirectStep::Done(freed) => {
                return Ended {
                    scanned,
                    freed,
                    answer: freed,
                };
            }
            DirectStep::Shrink(sweep) => {
                let mut got = Got::default();
                let mut is_ready = false;
                for &zone in cache.zones_for(task) {
                    if cache.leaves_out(task, zone) {
                        continue;
                    }
                    if run.is_some_and(|run| run.is_ready(task, cache, zone)) {
                        is_ready = true;
                        continue;
                    }
                    let control = Control {
                        zone,
                        who,
                        priority: sweep.priority,
                        target: sweep.wanted,
                        force_deactivate: sweep.force_deactivate,
                        may_unmap: true,
                        may_write: true,
                        may_swap: true,
                        may_shrink: true,
                        spares_anon: true,
                        run: None,
                    };
                    loop {
                        let one = shrink_zone(task, cache, &control);
                        got += one;
                        let done = Done {
                            last: one.reclaimed,
                            here: (one.reclaimed, 1),
                            all: got.reclaimed,
                            plainly: false,
                        };
                        let goes_on = run.is_some_and(|run| run.goes_on(task, cache, zone, &done));
                        if !goes_on || cache.registry.stopping.load(Ordering::Acquire) {
                            break;
                        }
                    }
                    let progress = direct.progress(&got);
                    let sleepers = cache.zones[zone].sleepers();
                    let after = sleepers.law(task, |law| law.after_node(&progress));
                    follow(task, cache, zone, after, who);
                }
                let first = cache.home(task);
                let progress = direct.progress(&got);
                let sleepers = cache.zones[first].sleepers();
                let after = sleepers.law(task, |law| law.after_nodes(&progress));
                follow(task, cache, first, after, who);
                scanned += got.scanned;
                direct.shrunk(got);
                let ready = is_ready && run.is_some_and(ForRun::ends_when_ready);
                if ready || cache.registry.stopping.load(Ordering::Acquire) || enough(task) {
                    direct.stop();
                }
            }
        }
    }
}

/// After a pass: wakes those of a zone that made no progress, or joins them.
fn follow(task: &mut Task<'_>, cache: &Cache, zone: ZoneId, after: After, who: Who) {
    if after.wake != Wake::None {
        let sleepers = cache.zones[zone].sleepers();
        sleepers.wake(task, Reason::NoProgress, Signal::Progress, |_| after.wake);
    }
    if let Some(reason) = after.throttle {
        throttle::pause(task, cache, zone, reason, who);
    }
}

impl Cache {
    /// The queue of tasks that leave the reserve alone.
    pub(crate) fn reserve_wait(&self, zone: ZoneId) -> &WaitQueue {
        match self.options.reclaim.reserve_wakes() {
            ReserveWakes::Anyone => self.memory.waiters(),
            ReserveWakes::Background => self.zones.node_of(zone).reserve_wait(),
        }
    }
}

/// Half of the reserve is for those that free memory: others wait for the background reclaimer.
fn leave_reserve(task: &mut Task<'_>, cache: &Cache) {
    let memory = &cache.memory;
    let home = cache.home(task);
    let zones = || memory.zones_of_reserve(home);
    let may = |task: &Task<'_>| {
        let free = zones()
            .map(|zone| Pages(u64::from(memory.free_of(zone))))
            .sum();
        let min = zones().map(|zone| memory.marks_of(zone).min).sum();
        may_begin(free, min, zones().all(|zone| cache.is_hopeless(task, zone)))
    };
    if may(task) {
        return;
    }
    for zone in zones() {
        cache.ask_reclaim(task, zone);
    }
    cache.counters.add(Item::PgscanDirectThrottle, 1);
    let deadline = task.now() + RESERVE;
    task.wait_while(
        cache.reserve_wait(home),
        Cause::Memory,
        Some(deadline),
        |task| !may(task) && !cache.registry.stopping.load(Ordering::Acquire),
    );
}

/// A task that waits for the reserve goes on after this in any case (in the kernel only a task that
/// may not enter the file system: `HZ`).
const RESERVE: Nanos = Nanos::secs(1);

//! Sleeping for a reason, and waking those that do. The law decides (`policy::reclaim::throttle`);
//! the zone knows the sleepers (`lists::sleepers`).
//!
//! Under Tidegate's law a sleeper for writes is also woken when none is left: the last write that
//! ends wakes all, and a sleeper that comes too late for it looks whether any is left
//! (`Cache::on_written` says why one of the two always sees the other).
//!
//! Source: mechanisms 4; Linux 5.16 mm/vmscan.c, reclaim_throttle().

use core::sync::atomic::{Ordering, fence};

use env::{Cause, Context, Event, Signal, Task, Wakeup};
use frames::FrameId;
use policy::reclaim::Reason;
use policy::reclaim::direct::{isolated_limit, too_many_isolated};
use policy::reclaim::prospects::is_over_writeout;
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::{Facts, Finding, Verdict, Who};
use policy::units::{Nanos, Pages};

use super::Control;
use crate::cache::{Cache, get};
use crate::lists::ZoneId;
use crate::vmstat::Item;

#[cfg(test)]
mod tests;

/// The cause that waits for a reason have.
fn cause_of(reason: Reason) -> Cause {
    match reason {
        Reason::Writeback => Cause::ReclaimWriteback,
        Reason::Isolated => Cause::ReclaimIsolated,
        Reason::NoProgress => Cause::ReclaimNoProgress,
        Reason::Congested => Cause::ReclaimCongested,
        Reason::CongestionWait | Reason::WaitIffCongested => Cause::CongestionWait,
        Reason::Turn => Cause::Memory,
    }
}

/// Throttles the reclaimer for what it found, if the law makes a reason of it. False: its sleep was
/// cancelled.
pub(crate) fn found(
    task: &mut Task<'_>,
    cache: &Cache,
    zone: ZoneId,
    finding: Finding,
    who: Who,
) -> bool {
    let sleepers = cache.zones[zone].sleepers();
    let reason = sleepers.law(task, |law| law.reason_of(finding));
    reason.is_none_or(|reason| pause(task, cache, zone, reason, who))
}

/// The same for a task that is at work on the zone: it is not while it sleeps.
pub(super) fn found_at_work(
    task: &mut Task<'_>,
    cache: &Cache,
    zone: ZoneId,
    finding: Finding,
    who: Who,
) -> bool {
    cache.zones[zone].leave_work();
    let goes_on = found(task, cache, zone, finding, who);
    cache.zones[zone].enter_work();
    goes_on
}

/// Throttles the reclaimer for a reason, as long as the law says. One event for each, also if it
/// does not sleep. False: its sleep was cancelled.
pub(crate) fn pause(
    task: &mut Task<'_>,
    cache: &Cache,
    zone: ZoneId,
    reason: Reason,
    who: Who,
) -> bool {
    let facts = cache.facts(task, zone);
    let began = task.now();
    let sleepers = cache.zones[zone].sleepers();
    let (verdict, ticket) = sleepers.begin(task, began, (reason, who), &facts);
    let (timeout, delayed, wakeup) = match verdict {
        Verdict::Go | Verdict::Yield { traced: None } => return true,
        Verdict::Yield {
            traced: Some(timeout),
        } => (timeout, Nanos::ZERO, None),
        Verdict::Sleep { timeout, deadline } => {
            let queue = sleepers.queue(reason);
            let wakeup = task.wait_while(queue, cause_of(reason), Some(deadline), |task| {
                sleepers.goes_on(task, reason, ticket, cache.write_pending())
            });
            let lasted = (began, task.now());
            let delayed = sleepers.end(task, (reason, ticket), timeout, lasted);
            (timeout, delayed, Some(wakeup))
        }
    };
    task.emit(&Event::Throttled {
        background: who.background,
        reason,
        timeout,
        delayed,
        wakeup,
    });
    wakeup != Some(Wakeup::Cancelled)
}

/// Waits after a pass as long as too much is under writeback; a task that may not enter a file
/// system waits once.
///
/// # Source
/// Mechanisms 2.3; Linux 3.0 mm/page-writeback.c, throttle_vm_writeout().
pub(super) fn wait_for_writeout(task: &mut Task<'_>, cache: &Cache, control: &Control) {
    let is_over = |task: &Task<'_>| {
        let dirtyable = cache.dirtyable();
        let limit = cache.writeback.domain.lock(task).limits(dirtyable).dirty;
        is_over_writeout(cache.under_writeback(), limit)
    };
    let (zone, who) = (control.zone, control.who);
    while is_over(task) && !cache.registry.stopping.load(Ordering::Acquire) {
        let goes_on = pause(task, cache, zone, Reason::CongestionWait, who);
        if !goes_on || who.within_fs {
            return;
        }
    }
}

/// Decides whether the reclaimer may isolate pages of a kind; if too many are, it is throttled and
/// looks again, once or until it may.
pub(super) fn may_isolate(
    task: &mut Task<'_>,
    cache: &Cache,
    kind: Kind,
    control: &Control,
) -> bool {
    if control.who.background {
        return true;
    }
    let mut stalled = false;
    let factor = cache.options.reclaim.stands_for;
    let zone = &cache.zones[control.zone];
    let rule = cache.options.reclaim.law.isolation;
    let leaves_off_first = rule.leaves_off_at_an_eighth && !control.who.within_fs;
    loop {
        let sizes = cache.zones.sizes(task, control.zone).times(factor);
        let inactive = sizes.of(kind.inactive());
        let isolated = cache.options.reclaim.isolated(zone.isolated(kind));
        if !too_many_isolated(isolated, inactive, leaves_off_first) {
            let room = isolated_limit(inactive, leaves_off_first).saturating_sub(isolated);
            zone.sleepers()
                .wake(task, Reason::Isolated, Signal::PutBack, |law| {
                    law.on_checked(room)
                });
            return true;
        }
        if stalled || control.who.exempt {
            return false;
        }
        let stops = cache.registry.stopping.load(Ordering::Acquire);
        let goes_on = found_at_work(task, cache, control.zone, Finding::Isolated, control.who);
        stalled = !rule.repeats || stops || !goes_on;
    }
}

impl Cache {
    /// The writes of these pages have ended; all locks are released. Those in `rotate` had the flag
    /// `RECLAIM`: they go to the inactive tail, to be freed next, unless they are dirty again.
    pub(crate) fn wrote_back(
        &self,
        context: &impl Context,
        written: &[FrameId],
        rotate: &[FrameId],
    ) {
        if !rotate.is_empty() || self.options.reclaim.judge_rule().defers(Kind::File) {
            let done = self.zones.rotate(context, &self.pages, written, rotate);
            self.counters.add(Item::Pgrotated, done.rotated);
            self.counters.add(Item::Pgrescued, done.rescued);
            if done.rotated > 0 {
                self.look_again(context);
            }
        }
        self.on_written(context, written);
        self.memory.wake(Signal::PageWritten);
    }

    /// Pages have been written, and are not counted as under writeback any more: the task that
    /// sleeps for writeback may go on.
    ///
    /// Two counters, of files and of the swap file, say if these were the last; the task that ends
    /// a write has counted them down before this fence. Of two that end the last writes side by
    /// side the one whose fence is the later finds both sums zero. A sleeper has published itself
    /// before the fence of its queue (`env::wait`), after which it looks whether any write is left:
    /// if its fence is the earlier, it is seen here, else it sees here what has ended.
    pub(crate) fn on_written(&self, context: &impl Context, written: &[FrameId]) {
        fence(Ordering::SeqCst);
        let last = self.under_writeback().is_zero();
        for (zone, written) in self.zones.layout().parts(written) {
            let zone = &self.zones[zone];
            if !self.zones.layout().is_one() {
                zone.note_cleaned(written.len() as u64);
            }
            if !zone.sleepers().are_for_writeback() {
                continue;
            }
            let factor = u64::from(self.options.reclaim.cluster_stands_for);
            let pages = Pages((written.len() as u64).saturating_mul(factor));
            zone.sleepers()
                .wake(context, Reason::Writeback, Signal::WrittenEnough, |law| {
                    law.on_written(pages, last)
                });
        }
    }

    /// A zone at one look.
    pub(super) fn facts(&self, context: &impl Context, zone: ZoneId) -> Facts {
        Facts {
            reclaimable: self.reclaimable(context),
            write_pending: self.write_pending(),
            hopeless: self.is_hopeless(context, zone),
        }
    }

    /// Pages that reclaim may hope for.
    pub(crate) fn reclaimable(&self, context: &impl Context) -> Pages {
        let (sizes, aside) = self.zones.all_sizes_and_aside(context);
        sizes.reclaimable(self.can_swap()) + aside
    }

    /// Pages dirty or under writeback.
    pub(crate) fn write_pending(&self) -> Pages {
        Pages(get(&self.writeback.totals.dirty)) + self.under_writeback()
    }

    /// Pages under writeback, to files and to the swap file.
    pub(crate) fn under_writeback(&self) -> Pages {
        Pages(get(&self.writeback.totals.writeback)) + self.swap_writeback()
    }
}

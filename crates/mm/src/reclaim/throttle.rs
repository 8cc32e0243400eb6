//! Sleeping for a reason, and waking those who do. The law decides (`policy::reclaim::throttle`); here are the queues.
//!
//! Whoever sleeps has a ticket. The law and the tickets change under one lock: to be told to sleep is to have a ticket,
//! and an event that the law answers takes tickets out, the oldest first, before anybody else is told anything. A sleeper
//! whose ticket is gone was woken, one that finds it there at its deadline takes it out itself. So no wake is lost between
//! the verdict and the sleep, none goes to one who has left, and each sleep ends by an event or a counted timeout.
//!
//! Whoever sleeps for writes under Tidegate's law is also woken when none is left: the last that ends wakes all, and one
//! that comes too late for it looks whether any is left (`Cache::on_written` says why one of the two always sees the other).
//!
//! Source: mechanisms 4; Linux 5.16 mm/vmscan.c, reclaim_throttle().

use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::collections::VecDeque;

use env::{Cause, Context, Env, Event, Lock, LockClass, Signal, Task, WaitQueue};
use frames::FrameId;
use policy::reclaim::direct::{isolated_limit, too_many_isolated};
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::{Facts, Finding, Throttle, Verdict, Wake, Who};
use policy::reclaim::{Reason, Tunables};
use policy::units::{Instant, Nanos, Pages};

use super::Control;
use crate::cache::{Cache, get};
use crate::lists::{Node, NodeId};

#[cfg(test)]
mod tests;

/// Sleepers that a reason has room for before it has to allocate.
const ROOM: usize = 256;

/// Who sleeps on a node, for each reason.
pub(crate) struct Sleepers {
    inner: Lock<Inner>,
    queues: [WaitQueue; Reason::COUNT],
    /// How many sleep for WRITEBACK; a copy for looks without the lock.
    for_writeback: AtomicU32,
}

struct Inner {
    law: Throttle,
    next: u64,
    tickets: [VecDeque<u64>; Reason::COUNT],
}

impl Sleepers {
    pub(crate) fn new(tunables: &Tunables) -> Self {
        let inner = Inner {
            law: Throttle::new(*tunables),
            next: 0,
            tickets: core::array::from_fn(|_| VecDeque::with_capacity(ROOM)),
        };
        Self {
            inner: Lock::new(LockClass::Leaf, inner),
            queues: core::array::from_fn(|_| WaitQueue::new()),
            for_writeback: AtomicU32::new(0),
        }
    }

    /// Asks the law, or tells it something of which nobody is woken or put to sleep.
    pub(crate) fn law<T>(&self, context: &impl Context, ask: impl FnOnce(&mut Throttle) -> T) -> T {
        ask(&mut self.inner.lock(context).law)
    }

    /// Something has happened: lets those go whom it can serve, as the law says, of those who sleep for `reason`.
    pub(super) fn wake(
        &self,
        context: &impl Context,
        reason: Reason,
        signal: Signal,
        event: impl FnOnce(&mut Throttle) -> Wake,
    ) {
        {
            let mut inner = self.inner.lock(context);
            let count = match event(&mut inner.law) {
                Wake::None => return,
                Wake::All => usize::MAX,
                Wake::Some(count) => count as usize,
            };
            let tickets = &mut inner.tickets[reason as usize];
            let count = count.min(tickets.len());
            if count == 0 {
                return;
            }
            tickets.drain(..count);
        }
        // The queue's order may differ from that of the tickets: each looks whether its own is gone.
        self.queues[reason as usize].wake_all(signal);
    }

    /// What the law says to one that has a reason to sleep. `Sleep` comes with a ticket.
    fn begin(
        &self,
        context: &impl Context,
        now: Instant,
        (reason, who): (Reason, Who),
        facts: &Facts,
    ) -> (Verdict, u64) {
        let mut inner = self.inner.lock(context);
        let ticket = inner.next;
        let verdict = inner.law.begin(now, reason, who, facts);
        if matches!(verdict, Verdict::Sleep { .. }) {
            inner.next += 1;
            inner.tickets[reason as usize].push_back(ticket);
        }
        self.publish(&inner);
        (verdict, ticket)
    }

    /// Whether a sleep is to go on, with so many pages dirty or under writeback.
    fn goes_on(
        &self,
        context: &impl Context,
        reason: Reason,
        ticket: u64,
        write_pending: Pages,
    ) -> bool {
        let inner = self.inner.lock(context);
        inner.law.may_be_woken(reason, write_pending)
            && inner.tickets[reason as usize].contains(&ticket)
    }

    /// A sleep is over; answers its length as the trace line prints it.
    fn end(
        &self,
        context: &impl Context,
        (reason, ticket): (Reason, u64),
        timeout: Nanos,
        (began, now): (Instant, Instant),
    ) -> Nanos {
        let mut inner = self.inner.lock(context);
        inner.tickets[reason as usize].retain(|out| *out != ticket);
        let delayed = inner.law.end(reason, timeout, began, now);
        self.publish(&inner);
        delayed
    }

    fn publish(&self, inner: &Inner) {
        let sleepers = inner.law.writeback_sleepers();
        self.for_writeback.store(sleepers, Ordering::Relaxed);
    }
}

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

/// Throttles the reclaimer for what it found, if the law makes a reason of it.
pub(crate) fn found<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    node: NodeId,
    finding: Finding,
    who: Who,
) {
    let reason = cache.nodes[node]
        .sleepers
        .law(task, |law| law.reason_of(finding));
    if let Some(reason) = reason {
        pause(task, cache, node, reason, who);
    }
}

/// The same for one that is at work on the node: it is not while it sleeps.
pub(super) fn found_at_work<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    node: NodeId,
    finding: Finding,
    who: Who,
) {
    leave_work(&cache.nodes[node]);
    found(task, cache, node, finding, who);
    enter_work(&cache.nodes[node]);
}

/// Throttles the reclaimer for a reason, as long as the law says. One event for each, also if it does not sleep.
pub(crate) fn pause<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    node: NodeId,
    reason: Reason,
    who: Who,
) {
    let facts = cache.facts(task, node);
    let began = task.now();
    let sleepers = &cache.nodes[node].sleepers;
    let (verdict, ticket) = sleepers.begin(task, began, (reason, who), &facts);
    let (timeout, delayed, wakeup) = match verdict {
        Verdict::Go | Verdict::Yield { traced: None } => return,
        Verdict::Yield {
            traced: Some(timeout),
        } => (timeout, Nanos::ZERO, None),
        Verdict::Sleep { timeout, deadline } => {
            let queue = &sleepers.queues[reason as usize];
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
}

/// A reclaimer is at work on the node.
pub(super) fn enter_work(node: &Node) {
    node.shrinkers.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn leave_work(node: &Node) {
    node.shrinkers.fetch_sub(1, Ordering::Relaxed);
}

/// Whether the reclaimer may isolate pages of a kind; if too many are, it is throttled once and looks again.
pub(super) fn may_isolate<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    kind: Kind,
    control: &Control,
) -> bool {
    if control.who.background {
        return true;
    }
    let mut stalled = false;
    let factor = cache.options.reclaim.stands_for;
    let node = &cache.nodes[control.node];
    let may_enter_fs = !control.who.within_fs;
    loop {
        let sizes = cache.nodes.sizes(task, control.node).times(factor);
        let inactive = sizes.of(kind.inactive());
        let isolated = Pages(get(&node.isolated[kind.index()]));
        let isolated = cache.options.reclaim.isolated(isolated);
        if !too_many_isolated(isolated, inactive, may_enter_fs) {
            let room = isolated_limit(inactive, may_enter_fs).saturating_sub(isolated);
            node.sleepers
                .wake(task, Reason::Isolated, Signal::PutBack, |law| {
                    law.on_checked(room)
                });
            return true;
        }
        if stalled || control.who.exempt {
            return false;
        }
        stalled = true;
        found_at_work(task, cache, control.node, Finding::Isolated, control.who);
    }
}

impl<E: Env> Cache<E> {
    /// Pages have been written, and are not counted as under writeback any more: whoever sleeps for writeback may go on.
    ///
    /// Whether these were the last is a sum of two counters, of files and of the swap file, which whoever ends a write
    /// has counted down before this fence. Of two that end the last writes side by side the one whose fence is the later
    /// finds both sums zero. A sleeper has published itself before the fence of its queue (`env::wait`), after which it
    /// looks whether any write is left: if its fence is the earlier, it is seen here, else it sees here what has ended.
    pub(crate) fn on_written(&self, context: &impl Context, written: &[FrameId]) {
        fence(Ordering::SeqCst);
        let last = self.under_writeback().is_zero();
        for (node, written) in self.nodes.division.parts(written) {
            let node = &self.nodes[node];
            if node.sleepers.for_writeback.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let factor = u64::from(self.options.reclaim.cluster_stands_for);
            let pages = Pages((written.len() as u64).saturating_mul(factor));
            node.sleepers
                .wake(context, Reason::Writeback, Signal::WrittenEnough, |law| {
                    law.on_written(pages, last)
                });
        }
    }

    /// A node at one look.
    pub(super) fn facts(&self, context: &impl Context, node: NodeId) -> Facts {
        Facts {
            reclaimable: self.reclaimable(context),
            write_pending: self.write_pending(),
            hopeless: self.nodes[node].is_hopeless(context),
        }
    }

    /// Pages that reclaim may hope for.
    pub(crate) fn reclaimable(&self, context: &impl Context) -> Pages {
        let (sizes, aside) = self.nodes.all_sizes_and_aside(context);
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

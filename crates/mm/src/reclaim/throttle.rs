//! Sleeping for a reason, and waking those who do. The law decides (`policy::reclaim::throttle`); here are the queues.
//!
//! Whoever sleeps has a ticket. An event takes tickets out, the oldest first, under the lock; a sleeper whose
//! ticket is gone was woken, one that finds it there at its deadline takes it out itself. So no wake is lost between
//! the look and the sleep, none goes to one who has left, and each sleep ends by an event or a counted timeout.
//!
//! Source: mechanisms 4; Linux 5.16 mm/vmscan.c, reclaim_throttle().

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use env::{Cause, Context, Env, Event, Lock, LockClass, Signal, Task, WaitQueue};
use frames::FrameId;
use policy::reclaim::Reason;
use policy::reclaim::direct::{isolated_limit, too_many_isolated};
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::{Facts, Finding, Verdict, Wake, Who};
use policy::units::{Nanos, Pages};

use super::Control;
use super::node::{Node, NodeId};
use crate::cache::{Cache, get};

/// Sleepers that a reason has room for before it has to allocate.
const ROOM: usize = 256;

/// Who sleeps for one reason.
pub(crate) struct Sleepers {
    tickets: Lock<Tickets>,
    queue: WaitQueue,
}

struct Tickets {
    next: u64,
    out: VecDeque<u64>,
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        let out = VecDeque::with_capacity(ROOM);
        Self {
            tickets: Lock::new(LockClass::Leaf, Tickets { next: 0, out }),
            queue: WaitQueue::new(),
        }
    }

    fn join(&self, context: &impl Context) -> u64 {
        let mut tickets = self.tickets.lock(context);
        let ticket = tickets.next;
        tickets.next += 1;
        tickets.out.push_back(ticket);
        ticket
    }

    fn is_waiting(&self, context: &impl Context, ticket: u64) -> bool {
        self.tickets.lock(context).out.contains(&ticket)
    }

    fn leave(&self, context: &impl Context, ticket: u64) {
        self.tickets.lock(context).out.retain(|out| *out != ticket);
    }

    /// Lets those go whom the event can serve.
    pub(super) fn wake(&self, context: &impl Context, wake: Wake, signal: Signal) {
        let count = match wake {
            Wake::None => return,
            Wake::All => usize::MAX,
            Wake::Some(count) => count as usize,
        };
        {
            let mut tickets = self.tickets.lock(context);
            let count = count.min(tickets.out.len());
            if count == 0 {
                return;
            }
            tickets.out.drain(..count);
        }
        // The queue's order may differ from that of the tickets: each looks whether its own is gone.
        self.queue.wake_all(signal);
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
    let reason = cache.nodes[node].throttle.lock(task).reason_of(finding);
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
    let node = &cache.nodes[node];
    let verdict = {
        let mut throttle = node.throttle.lock(task);
        let verdict = throttle.begin(began, reason, who, &facts);
        note_sleepers(node, throttle.writeback_sleepers());
        verdict
    };
    let (timeout, delayed, wakeup) = match verdict {
        Verdict::Go | Verdict::Yield { traced: None } => return,
        Verdict::Yield {
            traced: Some(timeout),
        } => (timeout, Nanos::ZERO, None),
        Verdict::Sleep { timeout, deadline } => {
            let sleepers = &node.sleepers[reason as usize];
            let ticket = sleepers.join(task);
            let cause = cause_of(reason);
            let wakeup = task.wait_while(&sleepers.queue, cause, Some(deadline), |task| {
                sleepers.is_waiting(task, ticket)
            });
            sleepers.leave(task, ticket);
            let now = task.now();
            let mut throttle = node.throttle.lock(task);
            let delayed = throttle.end(reason, timeout, began, now);
            note_sleepers(node, throttle.writeback_sleepers());
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

fn note_sleepers(node: &Node, sleepers: u32) {
    node.written_matters.store(sleepers, Ordering::Relaxed);
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
            let wake = node.throttle.lock(task).on_checked(room);
            node.sleepers[Reason::Isolated as usize].wake(task, wake, Signal::PutBack);
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
    /// Pages have been written: whoever sleeps for writeback may go on.
    pub(super) fn on_written(&self, context: &impl Context, written: &[FrameId]) {
        let last = self.under_writeback().is_zero();
        for (node, written) in self.nodes.division.parts(written) {
            let node = &self.nodes[node];
            if node.written_matters.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let factor = u64::from(self.options.reclaim.cluster_stands_for);
            let pages = Pages((written.len() as u64).saturating_mul(factor));
            let wake = node.throttle.lock(context).on_written(pages, last);
            node.sleepers[Reason::Writeback as usize].wake(context, wake, Signal::WrittenEnough);
        }
    }

    /// A node at one look.
    pub(super) fn facts(&self, context: &impl Context, node: NodeId) -> Facts {
        Facts {
            reclaimable: self.reclaimable(context),
            write_pending: self.write_pending(),
            device_congested: false,
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
        Pages(get(&self.totals.dirty)) + self.under_writeback()
    }

    /// Pages under writeback, to files and to the swap file.
    pub(crate) fn under_writeback(&self) -> Pages {
        Pages(get(&self.totals.writeback)) + self.swap_writeback()
    }
}

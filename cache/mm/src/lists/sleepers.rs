//! The tasks that sleep for a reason on a zone, and those that an event wakes. The law decides
//! (`policy::reclaim::throttle`); here are the queues.
//!
//! A sleeper has a ticket. The law and the tickets change under one lock: to be told to sleep is to
//! have a ticket, and an event that the law answers takes tickets out, the oldest first, before
//! anybody else is told anything. A sleeper whose ticket is gone was woken; a sleeper that finds it
//! there at its deadline takes it out itself. So no wake is lost between the verdict and the sleep,
//! none goes to a task that has left, and each sleep ends by an event or a counted timeout.
//!
//! Source: mechanisms 4; Linux 5.16 mm/vmscan.c, reclaim_throttle().

use std::collections::VecDeque;

use env::{Context, Lock, LockClass, Signal, WaitQueue};
use frames::sync::{AtomicU32, Ordering};
use policy::reclaim::throttle::{Facts, Throttle, Verdict, Wake, Who};
use policy::reclaim::{Reason, Tunables};
use policy::units::{Instant, Nanos, Pages};

#[cfg(test)]
mod tests;

/// Sleepers that a reason has room for before it has to allocate.
const ROOM: usize = 256;

/// The tasks that sleep on a zone, for each reason.
pub(crate) struct Sleepers {
    inner: Lock<Inner>,
    queues: [WaitQueue; Reason::COUNT],
    /// Number of sleepers for WRITEBACK; a copy for looks without the lock.
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

    /// Something has happened: lets those go whom it can serve, as the law says, of those that
    /// sleep for `reason`.
    pub(crate) fn wake(
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
        // The queue's order may differ from that of the tickets: each looks whether its own is
        // gone.
        self.queues[reason as usize].wake_all(signal);
    }

    /// The law's verdict on a task that has a reason to sleep. `Sleep` comes with a ticket.
    pub(crate) fn begin(
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

    /// True if a sleep is to go on, with `write_pending` pages dirty or under writeback.
    pub(crate) fn goes_on(
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

    /// A sleep has ended; answers its length as the trace line prints it.
    pub(crate) fn end(
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

    /// True if anybody sleeps for WRITEBACK.
    pub(crate) fn are_for_writeback(&self) -> bool {
        self.for_writeback.load(Ordering::Relaxed) > 0
    }

    /// The queue of those that sleep for a reason.
    pub(crate) fn queue(&self, reason: Reason) -> &WaitQueue {
        &self.queues[reason as usize]
    }

    fn publish(&self, inner: &Inner) {
        let sleepers = inner.law.writeback_sleepers();
        self.for_writeback.store(sleepers, Ordering::Relaxed);
    }
}

//! Allocation where memory is handed out in turn: a place in the queue instead of a pass of one's
//! own.
//!
//! ```text
//!   too little free -> ticket -> granted: take what was promised
//!                        `-> bound reached: pages were freed -> wait on, with one's age
//!                                           none were -> one pass of one's own, then on; hopeless -> a typed error
//! ```
//!
//! Source: docs/adr/0014.

use core::sync::atomic::Ordering;

use env::{Task, Wakeup};
use frames::FrameId;
use policy::reclaim::SwapSender;
use policy::reclaim::retry::{Retry, RetryVerdict};
use policy::reclaim::throttle::Who;
use policy::reclaim::turn::Ticket;
use policy::units::{Instant, Nanos, Pages};

use super::rounds::{HOPELESS_ROUNDS, Standstill, WANTED};
use super::{Wanted, by_use};
use crate::Error;
use crate::cache::{Cache, get};
use crate::lists::ZoneId;
use crate::memory::queue::MemoryQueue;
use crate::reclaim::direct::direct_until;

/// A waiter is refused after so long without one page, while pages of files were written and went
/// to others and no anonymous page could leave for want of a slot: somebody's memory is too much.
/// One such waiter is refused at a time.
const PASSED_OVER: Nanos = Nanos::secs(10);

/// The same where the swap file is full and no page of a file was written, if all that was freed
/// went to pages that came back.
const FULL: Nanos = Nanos::secs(1);

/// A waiter's observations since it began to wait; they decide when to give up.
struct Patience {
    /// When its wait began, which stays as it is.
    began: Instant,
    /// The work done by then: pages ever written, those to the swap file and without them.
    cleaned: u64,
    written: u64,
    /// Pages ever reclaimed that did not go to others that came back.
    freed: Pages,
    tries: Tries,
}

/// Its own passes, since it began or somebody gave way.
#[derive(Default)]
struct Tries {
    retry: Retry,
    fruitless: u32,
    standstill: Standstill,
    /// The last one found that there is nothing to hope for.
    is_hopeless: bool,
}

impl Patience {
    fn new(cache: &Cache, began: Instant) -> Self {
        Self {
            began,
            cleaned: cache.cleaned(),
            written: get(&cache.writeback.totals.written),
            freed: freed(cache),
            tries: Tries::default(),
        }
    }

    /// True if the waiter is to be refused now.
    fn is_over(&self, cache: &Cache, queue: &MemoryQueue, now: Instant) -> bool {
        self.tries.is_hopeless || self.is_passed_over(cache, queue, now) || self.is_full(cache, now)
    }

    /// The first waiter that asks, and none for as long after it.
    fn is_passed_over(&self, cache: &Cache, queue: &MemoryQueue, now: Instant) -> bool {
        let last = queue.last_refused();
        now.since(self.began.max(last)) >= PASSED_OVER
            && cache.cleaned() > self.cleaned
            && cache.swap_free().is_zero()
            && cache.swap_writeback().is_zero()
            && queue.refuses_first(last, now)
    }

    /// There is a place for every page, and none for more: not while more is being written to the
    /// swap file than goes around, which will be free.
    fn is_full(&self, cache: &Cache, now: Instant) -> bool {
        now.since(self.began) >= FULL
            && cache.swap_slots_recycle()
            && get(&cache.writeback.totals.written) == self.written
            && freed(cache).saturating_sub(self.freed) <= cache.memory.marks().min
            && cache.swap_writeback() <= cache.memory.marks().min
    }
}

/// Takes between one frame and as many as are wanted, waiting for a turn as it must.
///
/// # Errors
/// `OutOfMemory`, `NoMemory`, `Cancelled`.
pub(super) fn alloc(
    task: &mut Task<'_>,
    cache: &Cache,
    queue: &MemoryQueue,
    wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let memory = &cache.memory;
    let mut patience: Option<Patience> = None;
    loop {
        let taken = cache.alloc_at_hand(task, wanted, out)?;
        if taken > 0 {
            return Ok(taken);
        }
        let now = task.now();
        // A task that waits again keeps its age.
        let patience = patience.get_or_insert_with(|| Patience::new(cache, now));
        let need = Pages(u64::from(wanted.frames()));
        let since = (patience.began, now);
        let Some(ticket) = queue.join(task, task.id(), since, need) else {
            let given_back = memory.given_back();
            cache.wait_for_memory(task, |memory| memory.given_back() == given_back)?;
            continue;
        };
        cache.ask_reclaim_of_all(task);
        // Frames that have become free between the look and the ticket.
        memory.hand_out(task);
        let waiter = Waiter {
            cache,
            queue,
            ticket,
            wanted,
        };
        let taken = waiter.wait(task, out, patience);
        queue.leave(task, ticket);
        memory.hand_out(task);
        match taken {
            Ok(0) => {}
            taken => return taken,
        }
    }
}

/// Pages that were ever reclaimed, but for those that went to pages that came back while the swap
/// file was full.
fn freed(cache: &Cache) -> Pages {
    cache.reclaimed().saturating_sub(cache.memory.returned())
}

/// A task that has a place in the queue.
struct Waiter<'a> {
    cache: &'a Cache,
    queue: &'a MemoryQueue,
    ticket: Ticket,
    wanted: Wanted,
}

impl Waiter<'_> {
    /// Waits until its turn has come, and takes what was granted. `Ok(0)`: what was granted could
    /// not be taken, and is to be asked for again.
    fn wait(
        &self,
        task: &mut Task<'_>,
        out: &mut Vec<FrameId>,
        patience: &mut Patience,
    ) -> Result<u32, Error> {
        let Self { cache, queue, .. } = *self;
        loop {
            // Pages that tasks give back may be kept for them: they say nothing about reclaim.
            let before = freed(cache);
            let wakeup = queue.wait(task, self.ticket);
            if wakeup == Wakeup::TimedOut {
                // Pages kept for others may be kept no more, and nobody puts anything back when
                // their time is up.
                cache.memory.hand_out(task);
            }
            if let Some(granted) = queue.granted(task, self.ticket) {
                return self.take(task, granted, out);
            }
            if wakeup == Wakeup::Cancelled || cache.registry.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            cache.look_again(task);
            cache.ask_reclaim_of_all(task);
            if freed(cache) <= before {
                self.reclaim(task, &mut patience.tries)?;
            }
            if patience.is_over(cache, queue, task.now()) {
                cache.out_of_memory(task, Who::DIRECT)?;
                patience.tries = Tries::default();
            }
        }
    }

    fn take(
        &self,
        task: &mut Task<'_>,
        granted: Pages,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let granted = u32::try_from(granted.0).unwrap_or(u32::MAX);
        let wanted = Wanted {
            blocks: self.wanted.frames().min(granted) >> self.wanted.order,
            ..self.wanted
        };
        let cache = self.cache;
        if cache.zones.layout().is_one() {
            let zone = ZoneId(0);
            let free = |_: &Task<'_>, _| cache.memory.free_of(zone);
            return cache.take(task, wanted.pick(zone, wanted.frames()), out, free);
        }
        by_use::take_granted(task, cache, wanted, out)
    }

    /// Nothing has become free for as long as a turn may take: it reclaims itself, and finds out
    /// whether there is anything to hope for.
    fn reclaim(&self, task: &mut Task<'_>, tries: &mut Tries) -> Result<(), Error> {
        let Self { cache, queue, .. } = *self;
        // It has its pages, or whatever it finds could not be sent out: looking on would cost time
        // and free nothing.
        let enough = |task: &Task<'_>| {
            queue.granted(task, self.ticket).is_some()
                || !cache.can_send_out(task, SwapSender::Direct)
        };
        let target = cache.options.reclaim.direct_target(self.wanted.frames());
        let reclaimed = direct_until(task, cache, target, Who::DIRECT, enough);
        if cache.registry.stopping.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
        let verdict = tries.retry.decide(&cache.retry_view(task, reclaimed));
        let is_fruitless = reclaimed.is_zero() && cache.write_pending().is_zero();
        tries.fruitless = if is_fruitless { tries.fruitless + 1 } else { 0 };
        let seen = (cache.reclaimed(), cache.cleaned());
        tries.is_hopeless = tries.standstill.lasts(task.now(), seen)
            || is_fruitless && verdict == RetryVerdict::OutOfMemory
            || tries.fruitless > HOPELESS_ROUNDS;
        // Nothing clean: dirty pages have to be written first.
        if reclaimed.is_zero() && !tries.is_hopeless {
            cache.want_of_each(task, WANTED);
        }
        Ok(())
    }
}

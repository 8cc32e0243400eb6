//! Allocation where memory is handed out in turn: a place in the line instead of a pass of one's own.
//!
//! ```text
//!   too little free -> ticket -> granted: take what was promised
//!                        `-> bound reached: pages were freed, or are being written -> wait on, with one's age
//!                                           none for long -> one pass of one's own, then on; hopeless -> a typed error
//! ```
//!
//! And what a task took and gave back, which is what it is ranked by.
//!
//! Source: docs/adr/0014.

use core::sync::atomic::Ordering;

use env::{Context, Env, Task, TaskId, Wakeup};
use frames::FrameId;
use policy::reclaim::retry::{Retry, RetryVerdict};
use policy::reclaim::throttle::Who;
use policy::reclaim::turn::{Overdue, Ticket, at_bound};
use policy::units::{Instant, Nanos, Pages};

use super::{HOPELESS_ROUNDS, Standstill, WANTED};
use crate::Error;
use crate::cache::{Cache, get};
use crate::lists::NodeId;
use crate::reclaim::direct::direct_until;
use crate::swap::Patience;
use crate::vmstat::Item;

/// Who has waited for a turn so long without one page, while pages of files were written and went to others and no anonymous page
/// could leave for want of a slot, will not get one: somebody's memory is too much. One such waiter is refused at a time.
const PASSED_OVER: Nanos = Nanos::secs(10);

/// The same where the swap file is full and no page of a file was written, if all that was freed went to pages that came back.
const FULL: Nanos = Nanos::secs(1);

/// What a waiter has seen of the chances to get memory at all.
struct Outlook {
    /// When its wait began, which stays as it is.
    began: Instant,
    /// What had been done by then: pages ever written, those to the swap file and without them.
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
    in_vain: u32,
    standstill: Standstill,
    /// The last one found that there is nothing to hope for.
    is_hopeless: bool,
}

impl Outlook {
    fn new<E: Env>(cache: &Cache<E>, began: Instant) -> Self {
        Self {
            began,
            cleaned: cache.cleaned(),
            written: get(&cache.writeback.totals.written),
            freed: cache.freed(),
            tries: Tries::default(),
        }
    }

    /// Whether who waits is to be refused now.
    fn is_over<E: Env>(&self, cache: &Cache<E>, now: Instant) -> bool {
        self.tries.is_hopeless || self.is_passed_over(cache, now) || self.is_full(cache, now)
    }

    /// The first who asks, and none for as long after it.
    fn is_passed_over<E: Env>(&self, cache: &Cache<E>, now: Instant) -> bool {
        let refused = &cache.memory.refused;
        let last = refused.load(Ordering::Relaxed);
        now.since(self.began.max(Instant(last))) >= PASSED_OVER
            && cache.cleaned() > self.cleaned
            && cache.swap_free().is_zero()
            && cache.swap_writeback().is_zero()
            && refused
                .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// There is a place for every page, and none for more: not while more is being written to the swap file than goes around,
    /// which will be free.
    fn is_full<E: Env>(&self, cache: &Cache<E>, now: Instant) -> bool {
        now.since(self.began) >= FULL
            && cache.slots_go_around()
            && get(&cache.writeback.totals.written) == self.written
            && cache.freed().saturating_sub(self.freed) <= cache.memory.marks.min
            && cache.swap_writeback() <= cache.memory.marks.min
    }
}

impl<E: Env> Cache<E> {
    /// How many frames a task that found none waits for, if it can use `want`: one page at a time in Linux, a batch
    /// where each wait is a turn.
    pub(crate) fn asks_for(&self, want: u32) -> u32 {
        if self.memory.line.is_open() {
            want.max(1)
        } else {
            1
        }
    }

    /// A task wants a page back that was taken from it. Where memory is handed out in turn and short, it may have to
    /// wait for that too. Answers whether it may read the pages beside it.
    pub(crate) fn may_return(&self, task: &mut Task<'_, E>) -> bool {
        let memory = &self.memory;
        if !memory.line.is_open() || memory.spare() > memory.marks.high || self.is_exempt(task) {
            return true;
        }
        memory.line.may_return(task)
    }

    /// The same for pages that nobody waits for: not while another task's memory is coming back.
    pub(crate) fn may_read_on(&self, task: &Task<'_, E>) -> bool {
        let memory = &self.memory;
        let line = &memory.line;
        !line.is_open() || memory.spare() > memory.marks.high || line.may_read_on(task)
    }

    /// The task has given back pages of its own.
    pub(crate) fn gave_back(&self, task: &Task<'_, E>, pages: u64) {
        self.credit(task, task.id(), pages);
    }

    /// Puts frames back that the task took and did not use.
    pub(crate) fn put_unused(&self, task: &Task<'_, E>, frames: &[FrameId]) {
        let memory = &self.memory;
        // First, as in `credit`'s callers: what is kept for it and its like is not handed out to others.
        if memory.line.is_open() && !frames.is_empty() {
            let (now, pages) = (task.now(), Pages(frames.len() as u64));
            memory.line.unused(task, task.id(), now, pages);
        }
        memory.put(task, frames);
    }

    /// Somebody has given back pages that the task `who` took.
    pub(crate) fn credit(&self, context: &impl Context, who: TaskId, pages: u64) {
        if self.memory.line.is_open() {
            let now = self.env.now();
            self.memory
                .line
                .note(context, who, now, Pages::ZERO, Pages(pages));
        }
    }

    /// The same where memory is handed out in turn: takes a place in the line instead of reclaiming.
    pub(super) fn alloc_in_turn(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let mut outlook: Option<Outlook> = None;
        loop {
            let taken = self.alloc_at_hand(task, want, out)?;
            if taken > 0 {
                return Ok(taken);
            }
            let now = task.now();
            // One that waits again keeps its age.
            let outlook = outlook.get_or_insert_with(|| Outlook::new(self, now));
            let need = Pages(u64::from(want));
            let since = (outlook.began, now);
            let Some(ticket) = memory.line.join(task, task.id(), since, need) else {
                let given_back = memory.given_back();
                self.wait_for_memory(task, |memory| memory.given_back() == given_back)?;
                continue;
            };
            self.ask_reclaim(task, NodeId::FIRST);
            // What has become free between the look and the ticket.
            memory.hand_out(task);
            let taken = self.wait_for_turn(task, ticket, want, out, outlook);
            memory.line.leave(task, ticket);
            memory.hand_out(task);
            match taken {
                Ok(0) => {}
                taken => return taken,
            }
        }
    }

    /// Waits until the ticket's turn has come, and takes what was granted. `Ok(0)`: what was granted could not be
    /// had, to be asked for again.
    fn wait_for_turn(
        &self,
        task: &mut Task<'_, E>,
        ticket: Ticket,
        want: u32,
        out: &mut Vec<FrameId>,
        outlook: &mut Outlook,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let mut in_vain = 0;
        loop {
            // What tasks give back may be kept for them: it says nothing about reclaim.
            let before = self.freed();
            let wakeup = memory.line.wait(task, ticket);
            if wakeup == Wakeup::TimedOut {
                // What was kept for others may be so no more, and nobody puts anything back when its time is over.
                memory.hand_out(task);
            }
            if let Some(granted) = memory.line.granted(task, ticket) {
                let granted = u32::try_from(granted.0).unwrap_or(u32::MAX);
                let node = NodeId::FIRST;
                return self.take(task, node, want.min(granted), out, |_, taken| {
                    memory.free().min(granted - taken)
                });
            }
            if wakeup == Wakeup::Cancelled || self.registry.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            self.look_again(task);
            self.ask_reclaim(task, NodeId::FIRST);
            let freed = self.freed().saturating_sub(before);
            in_vain = if freed.is_zero() { in_vain + 1 } else { 0 };
            if at_bound(freed, self.under_writeback(), in_vain) == Overdue::Reclaim {
                in_vain = 0;
                self.reclaim_in_turn(task, ticket, want, &mut outlook.tries)?;
            }
            if outlook.is_over(self, task.now()) {
                self.out_of_memory(task, Who::DIRECT)?;
                outlook.tries = Tries::default();
            }
        }
    }

    /// Pages that were ever reclaimed, but for those that went to pages that came back while the swap file was full.
    fn freed(&self) -> Pages {
        self.reclaimed()
            .saturating_sub(Pages(get(&self.memory.returned)))
    }

    /// Pages that were ever reclaimed.
    pub(super) fn reclaimed(&self) -> Pages {
        let steals = [Item::PgstealKswapd, Item::PgstealDirect];
        Pages(steals.into_iter().map(|item| self.counters.get(item)).sum())
    }

    /// Nothing has become free for as long as a turn may take: the waiter reclaims itself, and finds out whether there
    /// is anything to hope for.
    fn reclaim_in_turn(
        &self,
        task: &mut Task<'_, E>,
        ticket: Ticket,
        want: u32,
        tries: &mut Tries,
    ) -> Result<(), Error> {
        let line = &self.memory.line;
        // It has its pages, or whatever it finds could not be sent out: looking on would cost time and free nothing.
        let enough = |task: &Task<'_, E>| {
            line.granted(task, ticket).is_some() || !self.can_send_out(task, Patience::Leaves)
        };
        let reclaimed = direct_until(task, self, self.target(want), Who::DIRECT, enough);
        if self.registry.stopping.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
        let verdict = tries.retry.decide(&self.retry_view(task, reclaimed));
        let is_vain = reclaimed.is_zero() && self.write_pending().is_zero();
        tries.in_vain = if is_vain { tries.in_vain + 1 } else { 0 };
        let seen = (self.reclaimed(), self.cleaned());
        tries.is_hopeless = tries.standstill.lasts(task.now(), seen)
            || is_vain && verdict == RetryVerdict::OutOfMemory
            || tries.in_vain > HOPELESS_ROUNDS;
        // Nothing clean: what is dirty has to be written first.
        if reclaimed.is_zero() && !tries.is_hopeless {
            self.want_of_each(task, WANTED);
        }
        Ok(())
    }
}

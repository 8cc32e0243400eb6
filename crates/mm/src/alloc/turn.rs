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
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::Who;
use policy::reclaim::turn::{Overdue, Ticket, at_bound};
use policy::units::{Instant, Nanos, Pages};

use super::{HOPELESS_ROUNDS, Memory, Standstill, WANTED};
use crate::Error;
use crate::cache::Cache;
use crate::reclaim::direct::direct_until;
use crate::reclaim::node::NodeId;
use crate::swap::Patience;
use crate::vmstat::Item;

/// Who has waited for a turn so long without one page, while pages of files were written and went to others and no anonymous page
/// could leave for want of a slot, will not get one: somebody's memory is too much. One such waiter is refused at a time.
const PASSED_OVER: Nanos = Nanos::secs(10);

/// One over this of the reserve stays where pages come back while the swap file is full.
const RESERVE_REST: u64 = 4;

/// What a waiter has seen of the chances to get memory at all.
#[derive(Default)]
struct Outlook {
    retry: Retry,
    hopeless: u32,
    standstill: Standstill,
    /// When the wait began, and the pages ever written then.
    began: Option<(Instant, u64)>,
}

impl Outlook {
    /// Somebody has given way. That the wait began when it did stays.
    fn start_over(&mut self) {
        *self = Self {
            began: self.began,
            ..Self::default()
        };
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

    /// Takes a frame for a page that is out, as `alloc` does. Where the swap file has so few slots left that they do not even
    /// fill the reserve, it may be one of that: what comes back gives its slot up, so that another page can go. Otherwise
    /// what is out would stay there until somebody gives memory up.
    pub(crate) fn alloc_for_return(
        &self,
        task: &mut Task<'_, E>,
        out: &mut Vec<FrameId>,
    ) -> Result<(), Error> {
        let memory = &self.memory;
        let may_use_reserve = memory.line.is_open() && !self.options.reclaim.oom_kills;
        while may_use_reserve && self.swap_stats().free <= memory.marks.min {
            let given_back = memory.given_back();
            if self.try_alloc(task, 1, out)? > 0 || self.take_of_reserve(task, out)? > 0 {
                return Ok(());
            }
            // Others have what their slots let go of: as long as frames are given back, there is one for each.
            self.look_again(task);
            let unchanged = |memory: &Memory<E>| memory.given_back() == given_back;
            if !task.is_willing() || self.stopping.load(Ordering::Acquire) {
                break;
            }
            self.wait_for_memory(task, unchanged)?;
            if unchanged(memory) {
                break;
            }
        }
        self.alloc(task, Kind::Anon, 1, out).map(drop)
    }

    /// A frame of the reserve, of which a part stays.
    fn take_of_reserve(
        &self,
        task: &mut Task<'_, E>,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let rest = memory.marks.min.0 / RESERVE_REST;
        let rest = u32::try_from(rest).expect("no more than all frames");
        self.take(task, NodeId::FIRST, 1, out, |task, _| {
            memory.room_in_turn(task, 1, true).saturating_sub(rest)
        })
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
        let mut outlook = Outlook::default();
        loop {
            let taken = self.alloc_at_hand(task, want, out)?;
            if taken > 0 {
                return Ok(taken);
            }
            let now = task.now();
            // One that waits again keeps its age.
            let (since, _) = *outlook.began.get_or_insert_with(|| (now, self.cleaned()));
            let need = Pages(u64::from(want));
            let Some(ticket) = memory.line.join(task, task.id(), (since, now), need) else {
                let given_back = memory.given_back();
                self.wait_for_memory(task, |memory| memory.given_back() == given_back)?;
                continue;
            };
            self.ask_reclaim(task, NodeId::FIRST);
            // What has become free between the look and the ticket.
            memory.hand_out(task);
            let taken = self.wait_for_turn(task, ticket, want, out, &mut outlook);
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
            let before = self.reclaimed();
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
            if wakeup == Wakeup::Cancelled || self.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            self.look_again(task);
            self.ask_reclaim(task, NodeId::FIRST);
            let freed = self.reclaimed() - before;
            in_vain = if freed.is_zero() { in_vain + 1 } else { 0 };
            if at_bound(freed, self.under_writeback(), in_vain) == Overdue::Reclaim {
                in_vain = 0;
                self.reclaim_in_turn(task, ticket, want, outlook)?;
            }
            if outlook
                .began
                .is_some_and(|began| self.passes_over(task.now(), began))
            {
                self.out_of_memory(task, Who::DIRECT)?;
                outlook.start_over();
            }
        }
    }

    /// Whether one whose wait began then is to be refused now: the first who asks, and none for as long after it.
    fn passes_over(&self, now: Instant, (since, cleaned): (Instant, u64)) -> bool {
        let refused = &self.memory.refused;
        let last = refused.load(Ordering::Relaxed);
        now.since(since.max(Instant(last))) >= PASSED_OVER
            && self.cleaned() > cleaned
            && self.swap_free().is_zero()
            && self.swap_writeback().is_zero()
            && refused
                .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
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
        outlook: &mut Outlook,
    ) -> Result<(), Error> {
        let line = &self.memory.line;
        // It has its pages, or whatever it finds could not be sent out: looking on would cost time and free nothing.
        let enough = |task: &Task<'_, E>| {
            line.granted(task, ticket).is_some() || !self.can_send_out(task, Patience::Leaves)
        };
        let reclaimed = direct_until(task, self, self.target(want), Who::DIRECT, enough);
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
        let verdict = outlook.retry.decide(&self.retry_view(task, reclaimed));
        let pending = !self.write_pending().is_zero();
        if !reclaimed.is_zero() || pending {
            outlook.hopeless = 0;
        } else {
            outlook.hopeless += 1;
        }
        let seen = (self.reclaimed(), self.cleaned());
        let over = outlook.standstill.lasts(task.now(), seen);
        if !pending && verdict == RetryVerdict::OutOfMemory && reclaimed.is_zero()
            || outlook.hopeless > HOPELESS_ROUNDS
            || over
        {
            self.out_of_memory(task, Who::DIRECT)?;
            outlook.start_over();
            return Ok(());
        }
        // Nothing clean: what is dirty has to be written first.
        if reclaimed.is_zero() {
            self.want_of_each(task, WANTED);
        }
        Ok(())
    }
}

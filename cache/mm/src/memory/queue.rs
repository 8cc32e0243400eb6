//! Waiting for memory in turn: tickets, grants, and what each task has taken of late.
//!
//! `policy::reclaim::turn` decides which task is next; here are the queues. Under laws without
//! turns there is no queue at all (`super::slow_path`).
//!
//! ```text
//!   alloc finds too little -> ticket -> hand_out (what has become free meanwhile) -> wait
//!   frames put back -> hand_out: grants -> wakes those -> they take what was promised -> ticket back
//!   bound reached: pages were freed -> wait on, the place is kept; none were -> reclaim yourself
//! ```
//!
//! Invariants
//!   1. Pages promised are free and nobody else takes them: `alloc` leaves `promised` behind. A
//!      grant is made from what is free above the reserve and not promised.
//!   2. A task that puts frames back hands out, and so does the task that has just queued: no free
//!      page above the reserve stays while somebody waits.
//!   3. A ticket is given back by its holder whatever ends the wait; what it did not take is handed
//!      on.
//!   4. Nothing allocates after the start; no lock is held across a wake or a wait.
//!
//! Source: docs/adr/0014; mechanisms 4.7.

use env::{Cause, Context, Event, Lock, LockClass, Signal, Task, TaskId, WaitQueue, Wakeup};
use frames::sync::{AtomicU32, AtomicU64, Ordering};
use policy::reclaim::growth::Growth;
use policy::reclaim::lead::Lead;
use policy::reclaim::token::{Entry, Token};
use policy::reclaim::turn::{Kept, Request, Stock, Ticket, Turns, rank};
use policy::reclaim::{Reason, Tunables};
use policy::units::{Instant, Nanos, Pages};

/// Tickets that can be out at a time; a task that finds none waits for any change.
const TICKETS: u32 = 1024;
/// Queues of waiters, picked by ticket: few of those awake that were not meant.
const QUEUES: usize = 64;
/// Tasks whose growth is known. Tasks are numbered in the order of their start, so that two share
/// an account only if more than this are alive; then the account is that of the task that was here
/// last.
const ACCOUNTS: usize = 1024;
/// Grants that one hand-out wakes without looking again: its memory for them.
const AT_ONCE: u32 = 32;
/// And of those that do not grow, from what is kept for them.
const KEPT_AT_ONCE: u32 = 8;

/// The tasks that wait for memory, and what tasks took of late.
pub(crate) struct MemoryQueue {
    turns: Lock<Turns>,
    /// Copies for looks without the lock; changed under it.
    waiting: AtomicU32,
    wanted: AtomicU32,
    promised: AtomicU32,
    queues: Vec<WaitQueue>,
    accounts: Vec<Lock<Account>>,
    token: Lock<Token>,
    kept: Lock<Kept>,
    /// Pages kept back, and until when, ns: copies for looks without the lock.
    kept_pages: AtomicU32,
    kept_until: AtomicU64,
    lead: Lock<Lead>,
    /// Its pages, and until when, ns: copies for looks without the lock.
    lead_pages: AtomicU32,
    lead_until: AtomicU64,
    /// When one of those that wait was last refused for having been passed over, ns.
    refused: AtomicU64,
    /// Nobody is woken from a pause for the token: its deadline is when it may pass on.
    paused: WaitQueue,
    wakes: bool,
}

/// The frames that a task has taken. No owner: nobody has yet.
struct Account {
    owner: TaskId,
    growth: Growth,
}

impl MemoryQueue {
    pub(crate) fn new(tunables: &Tunables, frames: u32) -> Self {
        let account = || Lock::new(LockClass::Leaf, Account::new(TaskId::NONE, Instant(0)));
        Self {
            turns: Lock::new(LockClass::Leaf, Turns::new(TICKETS, tunables.hz)),
            waiting: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            promised: AtomicU32::new(0),
            queues: (0..QUEUES).map(|_| WaitQueue::new()).collect(),
            accounts: (0..ACCOUNTS).map(|_| account()).collect(),
            token: Lock::new(LockClass::Leaf, Token::new(tunables.hz)),
            kept: Lock::new(LockClass::Leaf, Kept::new(Pages(u64::from(frames)))),
            kept_pages: AtomicU32::new(0),
            kept_until: AtomicU64::new(0),
            lead: Lock::new(LockClass::Leaf, Lead::new(Pages(u64::from(frames)))),
            lead_pages: AtomicU32::new(0),
            lead_until: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            paused: WaitQueue::new(),
            wakes: tunables.wakes,
        }
    }

    /// Bytes of its own.
    pub(crate) fn bytes(&self) -> u64 {
        let accounts = size_of::<Lock<Account>>() * self.accounts.len();
        u64::from(TICKETS) * Turns::BYTES_PER_TICKET
            + (accounts + size_of::<WaitQueue>() * self.queues.len()) as u64
    }

    /// Free pages that are promised.
    pub(crate) fn promised(&self) -> u32 {
        self.promised.load(Ordering::Acquire)
    }

    /// Pages that waiters still want: the background reclaimer frees them besides what its mark
    /// says.
    pub(crate) fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The task took pages, and gave pages back itself.
    pub(crate) fn note(
        &self,
        context: &impl Context,
        task: TaskId,
        now: Instant,
        taken: Pages,
        given_back: Pages,
    ) {
        let modest = self.with_account(context, task, now, |account| {
            // A task that may take kept pages takes them from there, also if it grows by it.
            let takes = given_back.is_zero() && account.growth.is_modest(now);
            account.growth.note(now, taken, given_back);
            takes || !given_back.is_zero() && account.growth.is_modest(now)
        });
        let keeps = self.kept_pages.load(Ordering::Relaxed) > 0;
        if modest && (keeps || !given_back.is_zero()) {
            self.keep(context, |kept| kept.note(now, taken, given_back));
        }
    }

    /// Pages that the task took and had no use for are free again.
    pub(crate) fn unused(&self, context: &impl Context, task: TaskId, now: Instant, pages: Pages) {
        self.with_account(context, task, now, |account| {
            account.growth.unused(now, pages);
        });
    }

    /// There is so much memory from now on.
    pub(crate) fn resize(&self, context: &impl Context, frames: u32) {
        self.keep(context, |kept| kept.resize(Pages(u64::from(frames))));
        self.leads(context, |lead| lead.resize(Pages(u64::from(frames))));
    }

    /// Pages by which the background reclaimer begins earlier than its marks say.
    pub(crate) fn lead(&self, now: Instant) -> Pages {
        let pages = self.lead_pages.load(Ordering::Relaxed);
        if pages > 0 && now.0 < self.lead_until.load(Ordering::Relaxed) {
            Pages(u64::from(pages))
        } else {
            Pages::ZERO
        }
    }

    /// A reader has taken a window of `pages`.
    pub(crate) fn took_window(&self, context: &impl Context, now: Instant, pages: Pages) {
        self.leads(context, |lead| lead.took(now, pages));
    }

    fn leads(&self, context: &impl Context, change: impl FnOnce(&mut Lead)) {
        let mut lead = self.lead.lock(context);
        change(&mut lead);
        let (pages, until) = lead.until();
        self.lead_pages.store(saturated(pages), Ordering::Relaxed);
        self.lead_until.store(until.0, Ordering::Relaxed);
    }

    fn keep(&self, context: &impl Context, change: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept.lock(context);
        change(&mut kept);
        let (pages, until) = kept.until();
        self.kept_pages.store(saturated(pages), Ordering::Relaxed);
        self.kept_until.store(until.0, Ordering::Relaxed);
    }

    /// Free pages kept back for tasks that do not grow, promised or not.
    pub(crate) fn kept_back(&self, now: Instant) -> u32 {
        let pages = self.kept_pages.load(Ordering::Relaxed);
        if pages > 0 && now.0 < self.kept_until.load(Ordering::Relaxed) {
            pages
        } else {
            0
        }
    }

    /// Takes a place; `since`: when the task first asked for these pages.
    pub(crate) fn join(
        &self,
        context: &impl Context,
        task: TaskId,
        (since, now): (Instant, Instant),
        need: Pages,
    ) -> Option<Ticket> {
        let growth =
            self.with_account(context, task, now, |account| rank(&mut account.growth, now));
        let mut turns = self.turns.lock(context);
        let ticket = turns.join(&Request {
            need,
            growth,
            since,
        });
        self.publish(&turns);
        ticket
    }

    /// Gives a place back, after what was granted has been taken. The caller hands out again if it
    /// took less.
    pub(crate) fn leave(&self, context: &impl Context, ticket: Ticket) -> Pages {
        let mut turns = self.turns.lock(context);
        let granted = turns.leave(ticket);
        self.publish(&turns);
        granted
    }

    /// The pages granted to the ticket.
    pub(crate) fn granted(&self, context: &impl Context, ticket: Ticket) -> Option<Pages> {
        self.turns.lock(context).granted(ticket)
    }

    /// Hands out free pages, those above the reserve to the task that is next, and those that are
    /// kept back to whom they are kept for. Called after the frames were put back, under no lock.
    pub(crate) fn hand_out(
        &self,
        context: &impl Context,
        now: impl Fn() -> Instant,
        stock: impl Fn() -> Stock,
    ) {
        // Pairs with the publication in `join`: frames first, then this look; place first, then the
        // look for frames that `join`'s caller takes.
        frames::sync::fence(Ordering::SeqCst);
        while self.waiting.load(Ordering::Relaxed) > 0 {
            let mut woken = [0; (AT_ONCE + KEPT_AT_ONCE) as usize];
            let mut count = 0;
            let more = {
                let mut turns = self.turns.lock(context);
                let most = (AT_ONCE, KEPT_AT_ONCE);
                let more = turns.hand_out(now(), &stock(), most, |ticket| {
                    woken[count] = ticket.slot();
                    count += 1;
                });
                self.publish(&turns);
                more
            };
            if self.wakes {
                for slot in &woken[..count] {
                    self.queue(*slot).wake_all(Signal::TurnGiven);
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Waits until something was granted to the ticket, at most the bound.
    pub(crate) fn wait(&self, task: &mut Task<'_>, ticket: Ticket) -> Wakeup {
        let began = task.now();
        let (deadline, timeout) = {
            let turns = self.turns.lock(task);
            (turns.deadline(began), turns.bound())
        };
        let queue = self.queue(ticket.slot());
        let wakeup = task.wait_while(queue, Cause::Memory, Some(deadline), |task| {
            self.granted(task, ticket).is_none()
        });
        let delayed = self.turns.lock(task).delayed(began, task.now());
        tell(task, timeout, delayed, wakeup);
        wakeup
    }

    /// When somebody was last refused for having been passed over.
    pub(crate) fn last_refused(&self) -> Instant {
        Instant(self.refused.load(Ordering::Relaxed))
    }

    /// A waiter that has seen `last` is to be refused: answers whether it is the first since then.
    pub(crate) fn refuses_first(&self, last: Instant, now: Instant) -> bool {
        self.refused
            .compare_exchange(last.0, now.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// A task wants a page back that was taken from it, while memory is short: waits for the token,
    /// or until it may have one page. Answers whether it may read those beside it too.
    pub(crate) fn may_return(&self, task: &mut Task<'_>) -> bool {
        let began = task.now();
        let id = task.id();
        if !self.grows(task, id, began) {
            return true;
        }
        let mut paused = None;
        loop {
            let entry = self.token.lock(task).ask(task.now(), id.0, paused);
            let deadline = match entry {
                Entry::Go => return true,
                Entry::OnePage => return false,
                Entry::Pause(deadline) => deadline,
            };
            paused = Some(began);
            let from = task.now();
            let wakeup = task.wait_while(&self.paused, Cause::Memory, Some(deadline), |_| true);
            let (timeout, delayed) = {
                let turns = self.turns.lock(task);
                let until = |then| turns.delayed(from, then);
                (until(deadline), until(task.now()))
            };
            tell(task, timeout, delayed, wakeup);
            if wakeup == Wakeup::Cancelled {
                return true;
            }
        }
    }

    /// True if a task that has its pages back may read on without a wait: it has not grown, or
    /// keeps the token.
    pub(crate) fn may_read_on(&self, task: &Task<'_>) -> bool {
        let now = task.now();
        let id = task.id();
        if !self.grows(task, id, now) {
            return true;
        }
        let mut token = self.token.lock(task);
        token.is_held_by(id.0) && token.ask(now, id.0, None) == Entry::Go
    }

    /// True if a task has grown of late: else it need not be held.
    fn grows(&self, context: &impl Context, task: TaskId, now: Instant) -> bool {
        self.with_account(context, task, now, |account| {
            !account.growth.growth(now).is_zero()
        })
    }

    /// True if a task gives back what it takes: pages returned by its like are for it too.
    pub(crate) fn is_modest(&self, context: &impl Context, task: TaskId, now: Instant) -> bool {
        self.with_account(context, task, now, |account| account.growth.is_modest(now))
    }

    fn queue(&self, slot: u32) -> &WaitQueue {
        &self.queues[slot as usize % self.queues.len()]
    }

    /// Asks the task's account.
    fn with_account<T>(
        &self,
        context: &impl Context,
        task: TaskId,
        now: Instant,
        ask: impl FnOnce(&mut Account) -> T,
    ) -> T {
        let mut account = self.accounts[task.0 as usize % ACCOUNTS].lock(context);
        ask(account.of(task, now))
    }

    fn publish(&self, turns: &Turns) {
        self.promised
            .store(saturated(turns.promised()), Ordering::Release);
        self.wanted
            .store(saturated(turns.wanted()), Ordering::Relaxed);
        self.waiting.store(turns.waiting(), Ordering::SeqCst);
        frames::sync::fence(Ordering::SeqCst);
    }
}

/// A wait for a turn has ended.
fn tell(task: &Task<'_>, timeout: Nanos, delayed: Nanos, wakeup: Wakeup) {
    task.emit(&Event::Throttled {
        background: false,
        reason: Reason::Turn,
        timeout,
        delayed,
        wakeup: Some(wakeup),
    });
}

fn saturated(pages: Pages) -> u32 {
    u32::try_from(pages.0).unwrap_or(u32::MAX)
}

impl Account {
    fn new(owner: TaskId, now: Instant) -> Self {
        Self {
            owner,
            growth: Growth::new(now),
        }
    }

    /// The account of `task`; another's is forgotten.
    fn of(&mut self, task: TaskId, now: Instant) -> &mut Self {
        if self.owner != task {
            *self = Self::new(task, now);
        }
        self
    }
}

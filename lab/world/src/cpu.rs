//! Which task runs on which CPU, and what happens next.
//!
//! A task needs a CPU to run. It runs in no time at all, except where it reports work: then it
//! occupies its CPU for as long as the work costs. So the only thing to decide is the order.
//!
//! ```text
//!            spawn                  dispatch (a CPU is free)
//!   (new) ---------> on the queue -----------------------------> on a CPU
//!                      ^   ^                                     |   |   |
//!                      |   +-- preempted: another gets it, ------+   |   +--> (ended)
//!                      |       as the law says, debt kept            |
//!                      +--- woken, timed out --- parked <------------+
//! ```
//!
//! Vocabulary: *place*, a time and a rank within it; *settle*, to bring the charges since the last
//! switch to the scheduler; *debt*, CPU time that is charged and not yet spent; *hard*, what a task
//! must not compute past (timers, completions, a task that was woken), as against *soft*, another
//! CPU's computation, which it may pass by up to `QUANTUM` so as not to switch for every charge.
//!
//! Invariants
//!   1. The next thing to happen is the least place among the queue of timers and calls, the look
//!      at who loses a CPU, and the ends of computation on the busy CPUs. Places never go back.
//!   2. A task that executes has no end of computation (`Moment::NEVER`); every other task on a CPU
//!      has one. No task executes while `next` looks.
//!   3. Nobody waits, or no CPU is idle and a look at who loses one is going to come.
//!   4. To the nanosecond, user + system + asleep + ready + stolen is the time a task has existed.
//!
//! Which task gets a CPU, and which loses it when, is a law of its own (`run_queue`).
//!
//! Deviations: no priorities. Interrupts run on CPU 0; what they cost delays the task there.
//!
//! Concurrency: confined to the thread of the lab (`env::Core`).

use std::collections::BTreeMap;

use ::env::{Body, Cause, Interrupt, TaskId, Unparked, Wakeup};
use policy::units::{Instant, Nanos};

use crate::clock::Clock;
use crate::coroutine::Resume;
use crate::cpu_deadlines::{CPUS_MAX, CpuDeadlines};
use crate::event_queue::{EventQueue, Moment};
use crate::hash::TraceHash;
use crate::record::{Blocked, TaskReport, Wakes};
use crate::run_queue::eevdf::Eevdf;
use crate::run_queue::first_come::FirstCome;
use crate::run_queue::{Joins, Leaves, RunQueue};

/// The lead that a computation may have on one on another CPU. Long against a switch (tens of
/// nanoseconds of our own time), short against any device or pause that is studied.
const QUANTUM: u64 = Nanos::micros(2).0;

/// The CPU that interrupts run on.
const INTERRUPT_CPU: usize = 0;

/// Steps without the clock moving before a run is given up. With a table of zero costs a whole
/// workload can happen in one instant, so it is large: about ten seconds of our time.
const STILL_MAX: u64 = 200_000_000;

/// A closure to be called at its time.
pub(crate) type Call = Box<dyn FnOnce(&Interrupt) + Send>;

/// An entry of the queue.
enum Due {
    /// The task's deadline, or an older one of the same task.
    Timer(TaskId),
    /// A device's.
    Call(Call),
}

/// CPU time of a task, kept by the task while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) user: u64,
    pub(crate) system: u64,
}

/// The next step of the loop.
pub(crate) enum Step {
    /// Run the task; with its body if it has not run yet.
    Resume {
        task: TaskId,
        resume: Resume,
        body: Option<Body>,
    },
    /// Call this.
    Call(Call),
    /// Nothing is left that could happen.
    Idle,
    /// The next event lies beyond the limit of time.
    TimeLimit,
    /// Time stands still (`still_max`).
    NoProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On the queue or on a CPU.
    Runnable,
    /// In a park.
    Parked,
    Ended,
}

/// One task.
struct Slot {
    name: Box<str>,
    /// Number of tasks of this name before it. With the name, it tells random streams apart
    /// whatever else is spawned.
    ordinal: u64,
    body: Option<Body>,
    state: State,
    /// Its park has ended and it has not run since: more wakes are the same wake.
    resuming: bool,
    /// It was woken while it ran; the next park returns at once.
    token: bool,
    /// The end of the park.
    unparked: Unparked,
    /// Where it runs, or ran last.
    cpu: u32,
    debt: u64,
    /// When the park ends by itself.
    deadline: Moment,
    /// Time of the earliest timer that stands in the queue for it. A park with a later deadline
    /// relies on that one to put it there: a task woken often leaves no trail of dead timers.
    timer: u64,
    parked_at: u64,
    ready_since: u64,
    account: Account,
}

/// The use of its time.
#[derive(Default)]
struct Account {
    started: u64,
    ended: Option<u64>,
    spent: Spent,
    ready: u64,
    stolen: u64,
    sleeps: u64,
    asleep: Vec<(Cause, Nanos, Wakes)>,
    /// Asleep, and not named by an event yet.
    unnamed: u64,
    /// Of the wait that it is in.
    cause: Option<Cause>,
}

struct Cpu {
    /// `TaskId::NONE` when idle.
    task: TaskId,
    /// Time that interrupts took from `task`, not yet added to `until`.
    stolen: u64,
    /// When the last task left; it may have run ahead.
    free_at: u64,
}

enum Source {
    Queue,
    Look,
    Cpu(usize),
}

/// Tasks, CPUs and the queue of one lab.
pub(crate) struct Scheduler {
    due: EventQueue<Due>,
    slots: Vec<Slot>,
    cpus: Vec<Cpu>,
    deadlines: CpuDeadlines,
    idle: u128,
    law: Box<dyn RunQueue>,
    /// Number of tasks that wait for a CPU.
    ready: u32,
    /// When the law is asked who loses one; `NEVER` when nobody waits.
    look: Moment,
    /// The time of the last step.
    frontier: u64,
    /// Steps since the time of the last step changed.
    still: u64,
    still_max: u64,
    time_limit: u64,
    cancelled: bool,
    live: usize,
    /// Tasks by name.
    names: BTreeMap<Box<str>, u64>,
}

impl Scheduler {
    pub(crate) fn new(cpus: u32) -> Self {
        assert!(
            (1..=CPUS_MAX).contains(&cpus),
            "a lab has 1 to {CPUS_MAX} CPUs, not {cpus}"
        );
        let cpu = || Cpu {
            task: TaskId::NONE,
            stolen: 0,
            free_at: 0,
        };
        Self {
            due: EventQueue::new(),
            slots: Vec::new(),
            cpus: (0..cpus).map(|_| cpu()).collect(),
            deadlines: CpuDeadlines::new(cpus),
            idle: u128::MAX >> (CPUS_MAX - cpus),
            law: Box::new(FirstCome::new(cpus as usize)),
            ready: 0,
            look: Moment::NEVER,
            frontier: 0,
            still: 0,
            still_max: STILL_MAX,
            time_limit: u64::MAX,
            cancelled: false,
            live: 0,
            names: BTreeMap::new(),
        }
    }

    /// Makes a task, runnable from now.
    pub(crate) fn spawn(&mut self, name: &str, body: Body, clock: &Clock) -> TaskId {
        let id = TaskId(u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks a lab"));
        let now = clock.local();
        let ordinal = self.names.get(name).copied().unwrap_or(0);
        self.names.insert(name.into(), ordinal + 1);
        self.slots.push(Slot {
            name: name.into(),
            ordinal,
            body: Some(body),
            state: State::Runnable,
            resuming: false,
            token: false,
            unparked: Unparked::Woken,
            cpu: id.0 % u32::try_from(self.cpus.len()).expect("at most CPUS_MAX"),
            debt: 0,
            deadline: Moment::NEVER,
            timer: u64::MAX,
            parked_at: now,
            ready_since: now,
            account: Account {
                started: now,
                ..Account::default()
            },
        });
        self.live += 1;
        self.make_runnable(id, Joins::New, now, clock);
        id
    }

    /// Calls `call` at `when`, or now if that has passed.
    pub(crate) fn call_at(&mut self, when: u64, call: Call, clock: &Clock) {
        let place = self.due.place(when.max(clock.local()));
        self.due.push(place, Due::Call(call));
        clock.lower_limit(place.time);
    }

    /// Ends the task's park, or remembers that it should end at once.
    pub(crate) fn wake(&mut self, id: TaskId, clock: &Clock) {
        let slot = self.slot(id);
        match slot.state {
            State::Ended => {}
            State::Parked => self.unpark(id, Unparked::Woken, clock),
            State::Runnable if slot.resuming => {
                if slot.unparked == Unparked::TimedOut {
                    slot.unparked = Unparked::Woken;
                }
            }
            State::Runnable => slot.token = true,
        }
    }

    /// Brings the charges of the executing task, on `cpu`, to the books: it computed from `before`
    /// to `after`. True: something is due before that and the task must suspend itself.
    #[must_use]
    pub(crate) fn settle(
        &mut self,
        cpu: usize,
        before: u64,
        after: u64,
        spent: Spent,
        clock: &Clock,
    ) -> bool {
        let after = after + self.pay_stolen(cpu);
        if self.first().0.time > after {
            clock.set(after);
            clock.set_limit(self.limit(after));
            return false;
        }
        // The task has shown nobody a later time than this.
        clock.raise_floor(before);
        let task = self.cpus[cpu].task;
        self.slot(task).account.spent = spent;
        let until = self.due.place(after);
        self.deadlines.set(cpu, until, false);
        true
    }

    /// Parks the executing task, on `cpu`. An answer: there is no need to, or no point.
    #[must_use]
    pub(crate) fn park(
        &mut self,
        cpu: usize,
        deadline: Option<u64>,
        spent: Spent,
        clock: &Clock,
    ) -> Option<Unparked> {
        let (task, now) = (self.cpus[cpu].task, clock.local());
        let cancelled = self.cancelled;
        let slot = self.slot(task);
        if cancelled {
            return self.answer_at_once(cpu, Unparked::Cancelled, clock);
        }
        if core::mem::take(&mut slot.token) {
            return Some(Unparked::Woken);
        }
        slot.account.spent = spent;
        if deadline.is_some_and(|deadline| deadline <= clock.now()) {
            return self.give_way(cpu, clock);
        }
        slot.account.sleeps += 1;
        if let Some(deadline) = deadline
            && self.ready == 0
            && deadline < self.first().0.time
            && deadline <= self.time_limit
        {
            self.sleep_through(cpu, deadline, clock);
            return Some(Unparked::TimedOut);
        }
        let slot = self.slot(task);
        slot.state = State::Parked;
        slot.parked_at = now;
        if let Some(deadline) = deadline {
            self.set_timer(task, deadline);
        }
        clock.raise_floor(now);
        self.leave(cpu, Leaves::Sleeps, now, clock);
        None
    }

    /// The executing task, on `cpu`, has ended.
    pub(crate) fn finish(&mut self, cpu: usize, spent: Spent, clock: &Clock) {
        let (task, now) = (self.cpus[cpu].task, clock.local());
        let slot = self.slot(task);
        slot.state = State::Ended;
        slot.account.ended = Some(now);
        slot.account.spent = spent;
        self.live -= 1;
        clock.raise_floor(now);
        self.leave(cpu, Leaves::Sleeps, now, clock);
    }

    /// An interrupt took `time` of its CPU.
    pub(crate) fn interrupt(&mut self, time: u64) {
        let cpu = &mut self.cpus[INTERRUPT_CPU];
        if cpu.task != TaskId::NONE {
            cpu.stolen += time;
        }
    }

    /// The next step; the clock and its limit are set for it.
    pub(crate) fn next(&mut self, clock: &Clock, hash: &TraceHash) -> Step {
        loop {
            let (place, source) = self.first();
            if place == Moment::NEVER {
                return Step::Idle;
            }
            if place.time > self.time_limit {
                return Step::TimeLimit;
            }
            assert!(place.time >= self.frontier, "time goes back to {place:?}");
            if place.time > self.frontier {
                self.frontier = place.time;
                self.still = 0;
            }
            self.still += 1;
            if self.still > self.still_max {
                return Step::NoProgress;
            }
            clock.set(place.time);
            match source {
                Source::Queue => {
                    if let Some(call) = self.pop_due(clock, hash) {
                        hash.add([place.time, place.seq]);
                        return Step::Call(call);
                    }
                }
                Source::Look => self.look(place.time, clock, hash),
                Source::Cpu(cpu) => {
                    let stolen = self.pay_stolen(cpu);
                    if stolen > 0 {
                        let fresh = self.deadlines.is_fresh(cpu);
                        let until = self.due.place(place.time + stolen);
                        self.deadlines.set(cpu, until, fresh);
                    } else {
                        return self.resume(cpu, clock, hash);
                    }
                }
            }
        }
    }

    /// The world ends: every park, now and later, ends with `Cancelled`. Answers the tasks it met.
    pub(crate) fn cancel(&mut self, clock: &Clock) -> Vec<Blocked> {
        self.cancelled = true;
        self.still = 0;
        let mut met = Vec::new();
        for at in 0..self.slots.len() {
            let id = TaskId(u32::try_from(at).expect("ids are 32 bits"));
            let slot = &mut self.slots[at];
            if slot.state == State::Ended {
                continue;
            }
            let asleep = slot.state == State::Parked;
            met.push(Blocked {
                id,
                name: slot.name.to_string(),
                cause: slot.account.cause.filter(|_| asleep),
                since: asleep.then_some(Instant(slot.parked_at)),
                deadline: (asleep && slot.deadline != Moment::NEVER)
                    .then_some(Instant(slot.deadline.time)),
            });
            if asleep {
                self.unpark(id, Unparked::Cancelled, clock);
            }
        }
        met
    }

    /// After `cancel` and when all tasks have ended: a new world, at the same time. Answers the
    /// calls that were never made.
    pub(crate) fn reset(&mut self) -> Vec<Call> {
        self.cancelled = false;
        self.still = 0;
        let calls = self.due.take_all().into_iter().filter_map(|due| match due {
            Due::Call(call) => Some(call),
            Due::Timer(_) => None,
        });
        calls.collect()
    }

    /// Bodies of tasks that never ran.
    pub(crate) fn take_bodies(&mut self) -> Vec<Body> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.body.take())
            .collect()
    }

    /// True if the task on `cpu` waits for a timer of its own: user space's are exact.
    pub(crate) fn waits_exactly(&mut self, cpu: usize) -> bool {
        let task = self.cpus[cpu].task;
        self.slot(task).account.cause == Some(Cause::Think)
    }

    /// The task is about to wait on `cause`.
    pub(crate) fn begin_wait(&mut self, task: TaskId, cause: Cause) {
        if let Some(slot) = self.slots.get_mut(task.0 as usize) {
            slot.account.cause = Some(cause);
        }
    }

    /// A wait of the task on `cause` has ended: what it slept has a name.
    pub(crate) fn end_wait(&mut self, task: TaskId, cause: Cause, wakeup: Wakeup) {
        let Some(slot) = self.slots.get_mut(task.0 as usize) else {
            return;
        };
        let account = &mut slot.account;
        account.cause = None;
        let time = Nanos(core::mem::take(&mut account.unnamed));
        let known = account.asleep.iter().position(|entry| entry.0 == cause);
        let at = known.unwrap_or_else(|| {
            account.asleep.push((cause, Nanos::ZERO, Wakes::default()));
            account.asleep.len() - 1
        });
        let (_, total, wakes) = &mut account.asleep[at];
        *total += time;
        wakes.count(wakeup);
    }

    pub(crate) fn name(&self, task: TaskId) -> &str {
        &self.slots[task.0 as usize].name
    }

    pub(crate) fn ordinal(&self, task: TaskId) -> u64 {
        self.slots[task.0 as usize].ordinal
    }

    /// Tasks that have not ended.
    pub(crate) const fn live(&self) -> usize {
        self.live
    }

    /// Before there is a task.
    pub(crate) fn preempt_at_ticks(&mut self, hz: u32) {
        assert!(self.slots.is_empty(), "tasks wait by another law");
        self.law = Box::new(Eevdf::new(self.cpus.len(), hz));
    }

    pub(crate) const fn set_still_max(&mut self, steps: u64) {
        self.still_max = steps;
    }

    pub(crate) const fn set_time_limit(&mut self, limit: u64) {
        self.time_limit = limit;
    }

    pub(crate) fn reports(&self) -> Vec<TaskReport> {
        let report = |(id, slot): (usize, &Slot)| {
            let account = &slot.account;
            let mut causes = account.asleep.clone();
            causes.sort_unstable_by_key(|entry| entry.0);
            TaskReport {
                id: TaskId(u32::try_from(id).expect("ids are 32 bits")),
                name: slot.name.to_string(),
                started: Instant(account.started),
                ended: account.ended.map(Instant),
                user: Nanos(account.spent.user),
                system: Nanos(account.spent.system),
                asleep: causes.iter().map(|entry| (entry.0, entry.1)).collect(),
                wakes: causes.iter().map(|entry| (entry.0, entry.2)).collect(),
                unnamed: Nanos(account.unnamed),
                ready: Nanos(account.ready),
                stolen: Nanos(account.stolen),
                sleeps: account.sleeps,
            }
        };
        self.slots.iter().enumerate().map(report).collect()
    }

    fn slot(&mut self, id: TaskId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }

    fn busy(&self) -> impl Iterator<Item = usize> + use<> {
        let cpus = u32::try_from(self.cpus.len()).expect("at most CPUS_MAX");
        let mut busy = !self.idle & (u128::MAX >> (CPUS_MAX - cpus));
        core::iter::from_fn(move || {
            let cpu = busy.trailing_zeros() as usize;
            busy &= busy.wrapping_sub(1);
            (cpu < CPUS_MAX as usize).then_some(cpu)
        })
    }

    /// The least place of all, and whose it is.
    fn first(&mut self) -> (Moment, Source) {
        let mut first = (self.due.first(), Source::Queue);
        if self.look < first.0 {
            first = (self.look, Source::Look);
        }
        let (until, cpu) = self.deadlines.least();
        if until < first.0 {
            first = (until, Source::Cpu(cpu));
        }
        first
    }

    /// The time to which the task that executes from `now` may compute before it must settle.
    fn limit(&mut self, now: u64) -> u64 {
        let (hard, soft) = self.deadlines.hard_and_soft();
        let hard = hard.min(self.due.first().time).min(self.look.time);
        hard.min(soft.max(now.saturating_add(QUANTUM)))
    }

    /// Takes the first entry of the queue; a timer is dealt with here.
    fn pop_due(&mut self, clock: &Clock, hash: &TraceHash) -> Option<Call> {
        let (place, due) = self.due.pop().expect("it is the first of all");
        let task = match due {
            Due::Call(call) => return Some(call),
            Due::Timer(task) => task,
        };
        let slot = self.slot(task);
        let current = slot.timer == place.time;
        if current {
            slot.timer = u64::MAX;
        }
        if slot.state == State::Parked && slot.deadline != Moment::NEVER {
            if slot.deadline.seq == place.seq {
                hash.add([place.time, u64::from(task.0)]);
                self.unpark(task, Unparked::TimedOut, clock);
            } else if current {
                let deadline = slot.deadline;
                slot.timer = deadline.time;
                self.due.push(deadline, Due::Timer(task));
            }
        }
        None
    }

    fn set_timer(&mut self, task: TaskId, deadline: u64) {
        let place = self.due.place(deadline);
        let slot = self.slot(task);
        slot.deadline = place;
        if place.time < slot.timer {
            slot.timer = place.time;
            self.due.push(place, Due::Timer(task));
        }
    }

    /// Ends the park of a parked task.
    fn unpark(&mut self, id: TaskId, unparked: Unparked, clock: &Clock) {
        let slot = self.slot(id);
        // It may have run ahead before it parked.
        let now = clock.local().max(slot.parked_at);
        slot.account.unnamed += now - slot.parked_at;
        slot.unparked = unparked;
        slot.resuming = true;
        slot.deadline = Moment::NEVER;
        slot.state = State::Runnable;
        self.make_runnable(id, Joins::Woken, now, clock);
    }

    /// Gives the task an idle CPU, its last one if it can be, or lets it wait.
    fn make_runnable(&mut self, id: TaskId, how: Joins, now: u64, clock: &Clock) {
        let slot = self.slot(id);
        slot.ready_since = now;
        let last = slot.cpu as usize;
        let cpu = if self.idle == 0 || self.idle >> last & 1 == 1 {
            last
        } else {
            self.idle.trailing_zeros() as usize
        };
        let at_once = self.law.join(id, cpu, how, now);
        self.ready += 1;
        if self.idle == 0 {
            self.arm_look(now, at_once, clock);
        } else {
            self.dispatch_next(cpu, now, clock);
        }
    }

    /// Gives the CPU, which nobody has, to the task that is to have it, if one waits.
    fn dispatch_next(&mut self, at: usize, now: u64, clock: &Clock) -> bool {
        let Some(next) = self.law.take(at, now) else {
            return false;
        };
        self.ready -= 1;
        if self.ready == 0 {
            self.look = Moment::NEVER;
        }
        let since = self.slot(next).ready_since;
        self.dispatch(next, at, now.max(since), clock);
        true
    }

    /// Puts the task on the CPU, which nobody has, from `now` or from when it was free.
    fn dispatch(&mut self, id: TaskId, at: usize, now: u64, clock: &Clock) {
        let now = now.max(self.cpus[at].free_at);
        let slot = &mut self.slots[id.0 as usize];
        slot.account.ready += now - slot.ready_since;
        slot.cpu = u32::try_from(at).expect("at most CPUS_MAX");
        let debt = core::mem::take(&mut slot.debt);
        self.idle &= !(1 << at);
        let cpu = &mut self.cpus[at];
        cpu.task = id;
        self.law.start(at, now);
        let until = self.due.place(now + debt);
        self.deadlines.set(at, until, debt == 0);
        clock.lower_limit(until.time);
    }

    /// The task on the CPU leaves it at `now`: the next one gets it.
    fn leave(&mut self, at: usize, why: Leaves, now: u64, clock: &Clock) {
        let cpu = &mut self.cpus[at];
        let task = core::mem::replace(&mut cpu.task, TaskId::NONE);
        cpu.free_at = now;
        self.deadlines.set(at, Moment::NEVER, false);
        self.law.leave(at, task, why, now);
        self.ready += u32::from(why == Leaves::Waits);
        if !self.dispatch_next(at, now, clock) {
            self.cpus[at].stolen = 0;
            self.idle |= 1 << at;
        }
    }

    /// The executing task sleeps until `deadline`, and nothing happens before: no need to switch.
    fn sleep_through(&mut self, at: usize, deadline: u64, clock: &Clock) {
        let (task, now) = (self.cpus[at].task, clock.local());
        self.slot(task).account.unnamed += deadline - now;
        self.law.leave(at, task, Leaves::Sleeps, now);
        let none = self.law.take(at, now);
        debug_assert!(none.is_none(), "{none:?} waited");
        self.law.join(task, at, Joins::Woken, deadline);
        let taken = self.law.take(at, deadline);
        debug_assert_eq!(taken, Some(task));
        self.law.start(at, deadline);
        self.cpus[at].stolen = 0;
        self.frontier = deadline;
        self.still = 0;
        clock.set(deadline);
        clock.set_limit(self.limit(deadline));
    }

    /// The executing task's deadline has passed before it parked: whatever is due goes first.
    fn give_way(&mut self, at: usize, clock: &Clock) -> Option<Unparked> {
        let now = clock.local();
        if self.ready == 0 && self.first().0.time > now {
            return self.answer_at_once(at, Unparked::TimedOut, clock);
        }
        let task = self.cpus[at].task;
        let slot = self.slot(task);
        slot.unparked = Unparked::TimedOut;
        slot.resuming = true;
        slot.ready_since = now;
        clock.raise_floor(now);
        if self.ready == 0 {
            let until = self.due.place(now);
            self.deadlines.set(at, until, false);
        } else {
            self.leave(at, Leaves::Waits, now, clock);
        }
        None
    }

    /// A park that does not block; a task that does nothing else comes to `Step::NoProgress`.
    fn answer_at_once(&mut self, at: usize, unparked: Unparked, clock: &Clock) -> Option<Unparked> {
        self.still += 1;
        if self.still <= self.still_max {
            return Some(unparked);
        }
        let until = self.due.place(clock.local());
        self.deadlines.set(at, until, false);
        None
    }

    /// Somebody waits for a CPU at `now`: it must be looked at who loses one.
    fn arm_look(&mut self, now: u64, at_once: bool, clock: &Clock) {
        if self.look == Moment::NEVER || at_once && now < self.look.time {
            let at = self.law.look_at(now);
            self.look = self.due.place(at);
            clock.lower_limit(at);
        }
    }

    /// Takes the CPU from every task that is to lose it, for those that wait.
    fn look(&mut self, now: u64, clock: &Clock, hash: &TraceHash) {
        self.look = Moment::NEVER;
        for at in self.busy() {
            if self.ready == 0 {
                return;
            }
            if !self.law.loses(at, now) {
                continue;
            }
            let stolen = self.pay_stolen(at);
            let (task, until) = (self.cpus[at].task, self.deadlines.of(at).time);
            hash.add([now, u64::from(task.0) << 1 | 1]);
            let slot = self.slot(task);
            slot.debt = until - now + stolen;
            slot.ready_since = now;
            self.leave(at, Leaves::Waits, now, clock);
        }
        if self.ready > 0 {
            self.arm_look(now, false, clock);
        }
    }

    /// Books what interrupts took from the task on the CPU; answers how much to add to its time.
    fn pay_stolen(&mut self, at: usize) -> u64 {
        let stolen = core::mem::take(&mut self.cpus[at].stolen);
        if stolen > 0 {
            let task = self.cpus[at].task;
            self.slot(task).account.stolen += stolen;
        }
        stolen
    }

    /// The computation on the CPU has ended: its task executes.
    fn resume(&mut self, at: usize, clock: &Clock, hash: &TraceHash) -> Step {
        self.deadlines.set(at, Moment::NEVER, false);
        clock.set_limit(self.limit(clock.local()));
        let task = self.cpus[at].task;
        hash.add([clock.local(), u64::from(task.0) << 32 | at as u64]);
        let slot = self.slot(task);
        slot.resuming = false;
        let resume = Resume {
            cpu: slot.cpu,
            unparked: slot.unparked,
        };
        Step::Resume {
            task,
            resume,
            body: slot.body.take(),
        }
    }
}

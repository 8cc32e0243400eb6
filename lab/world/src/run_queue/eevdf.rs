//! Earliest eligible virtual deadline first, as Linux 6.12 shares a CPU.
//!
//! Tasks of one weight are owed the same time. A task's *virtual time* is what it has run; the
//! mean of those that run or wait is the time that each of them should have had. A task's *lag* is
//! how much of that it lacks: with a lag of zero or more it is *eligible*. It asks for the CPU a
//! *slice* at a time, and its *deadline* is the virtual time by which it should have had that. The
//! CPU goes to the eligible task with the earliest deadline.
//!
//! ```text
//!   virtual time  ------+-----------+--------------+----------->
//!                  A's time       mean          B's time
//!                  eligible, its lag is          not eligible: had more
//!                  mean - A's time               than its share
//! ```
//!
//!   - A task that was picked keeps the CPU until it has had its slice or is eligible no more, be
//!     the others' deadlines what they may (run to parity).
//!   - The end of its slice is noticed when the tick comes, or when a task is woken; then it asks
//!     for the next slice, and the law picks anew.
//!   - A task that is woken gets the CPU at once if the law would pick it, and waits for one of
//!     these moments otherwise.
//!   - A task that parks while it lacks time keeps its lag, and is placed by it when it is woken. A
//!     task that parks after it has had more than its share stays on the queue, asleep, until the
//!     mean has come up to its time; then it owes nothing. When it is woken before that, it still
//!     owes the rest.
//!
//! So a task that hardly runs gets in at once if the other has had its slice, and waits for the
//! tick if the other has just got the CPU.
//!
//! Invariants
//!   1. Of the tasks on a queue, asleep ones included, at least one is eligible.
//!   2. An idle CPU has an empty queue.
//!   3. No lag is beyond a tick, or two slices if they are longer.
//!
//! Source: I. Stoica, H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995 (lag,
//! eligibility, deadlines); lwn.net/Articles/925371, 969062; Linux 6.12 kernel/sched/fair.c:
//! pick_eevdf(), update_deadline(), place_entity(), update_entity_lag(),
//! check_preempt_wakeup_fair(), requeue_delayed_entity(); features.h: RUN_TO_PARITY, PLACE_LAG,
//! PLACE_DEADLINE_INITIAL, DELAY_DEQUEUE, DELAY_ZERO; update_sysctl().
//! Deviations: all weights are one; time that interrupts take counts as the task's; a task moves to
//! another CPU when it is woken and that one is idle, or when that one becomes idle: queues are not
//! balanced in between.

use ::env::TaskId;
use policy::units::Nanos;

use super::{Joins, Leaves, RunQueue};

/// A slice on one CPU; with two, four and eight CPUs it is twice to four times as long.
const BASE_SLICE: u64 = Nanos::micros(750).0;
/// More CPUs make it no longer.
const SLICE_CPUS_MAX: u32 = 8;

/// The law's account of a task. Times are virtual, in nanoseconds, of its queue's scale.
#[derive(Clone, Copy, Debug, Default)]
struct Entity {
    time: i64,
    deadline: i64,
    /// Its deadline when it was picked: as long as that stands, it has not had its slice.
    picked: i64,
    /// While it is on no queue: what it lacked when it left.
    lag: i64,
    /// On this queue, asleep, until it owes nothing.
    owes_on: Option<usize>,
}

/// The tasks of a CPU.
#[derive(Default)]
struct Queue {
    running: Option<TaskId>,
    /// The running task's time is counted until then.
    counted: u64,
    /// Those that wait, and those asleep that owe.
    others: Vec<TaskId>,
    /// The law is to pick anew.
    stale: bool,
}

/// One queue a CPU.
pub(crate) struct Eevdf {
    slice: i64,
    tick: u64,
    /// By task.
    entities: Vec<Entity>,
    /// By CPU.
    queues: Box<[Queue]>,
}

impl Eevdf {
    /// With `hz` ticks a second.
    pub(crate) fn new(cpus: usize, hz: u32) -> Self {
        let halved = u32::try_from(cpus).map_or(SLICE_CPUS_MAX, |cpus| cpus.min(SLICE_CPUS_MAX));
        Self {
            slice: signed(BASE_SLICE * u64::from(1 + halved.ilog2())),
            tick: Nanos::secs(1).0 / u64::from(hz),
            entities: Vec::new(),
            queues: (0..cpus).map(|_| Queue::default()).collect(),
        }
    }

    fn of(&mut self, task: TaskId) -> &mut Entity {
        let at = task.0 as usize;
        if at >= self.entities.len() {
            self.entities.resize(at + 1, Entity::default());
        }
        &mut self.entities[at]
    }

    /// The times of all on the queue, summed up, and how many they are.
    fn sum(&self, cpu: usize) -> (i128, i128) {
        let queue = &self.queues[cpu];
        let all = queue.others.iter().chain(&queue.running);
        all.fold((0, 0), |(sum, count), task| {
            (
                sum + i128::from(self.entities[task.0 as usize].time),
                count + 1,
            )
        })
    }

    /// The mean of the times on the queue; zero if it is empty.
    fn mean(&self, cpu: usize) -> i64 {
        let (sum, count) = self.sum(cpu);
        i64::try_from(sum.div_euclid(count.max(1))).expect("a mean of times is a time")
    }

    fn lag(&self, cpu: usize, task: TaskId) -> i64 {
        let most = (2 * self.slice).max(signed(self.tick));
        let lag = self.mean(cpu) - self.entities[task.0 as usize].time;
        lag.clamp(-most, most)
    }

    /// The task that should have the CPU; the queue is not empty.
    fn pick(&self, cpu: usize) -> TaskId {
        let queue = &self.queues[cpu];
        let (sum, count) = self.sum(cpu);
        let entity = |task: &TaskId| &self.entities[task.0 as usize];
        let is_eligible = |task: &TaskId| i128::from(entity(task).time) * count <= sum;
        let running = queue.running.filter(is_eligible);
        if let Some(running) = running
            && entity(&running).picked == entity(&running).deadline
        {
            return running;
        }
        let eligible = queue.others.iter().copied().filter(is_eligible);
        // Of equals, the running one gives way, and the one that came first is first.
        let first = eligible
            .chain(running)
            .min_by_key(|task| entity(task).deadline);
        first.expect("one of them has had no more than the mean")
    }

    /// Counts the running task's time until `now`, and asks for its next slice if it has had one.
    fn count(&mut self, cpu: usize, now: u64) {
        let slice = self.slice;
        let queue = &mut self.queues[cpu];
        let Some(running) = queue.running else { return };
        let entity = &mut self.entities[running.0 as usize];
        entity.time += signed(now.saturating_sub(queue.counted));
        queue.counted = queue.counted.max(now);
        if entity.time >= entity.deadline {
            entity.deadline = entity.time + slice;
            queue.stale |= !queue.others.is_empty();
        }
    }

    /// Does what has been due on the CPU until `now`: ticks that nobody was there to wait for.
    fn catch_up(&mut self, cpu: usize, now: u64) {
        while self.queues[cpu].running.is_some() {
            let tick = (self.queues[cpu].counted / self.tick + 1) * self.tick;
            if tick > now {
                break;
            }
            self.count(cpu, tick);
            if self.queues[cpu].stale && !self.has_waiting(cpu) {
                self.queues[cpu].stale = false;
                self.forgive(cpu);
            }
        }
        self.count(cpu, now);
    }

    /// Takes tasks off the queue that are asleep and would be picked.
    fn forgive(&mut self, cpu: usize) {
        while self.queues[cpu].running.is_some() || !self.queues[cpu].others.is_empty() {
            let picked = self.pick(cpu);
            if self.of(picked).owes_on.is_none() {
                return;
            }
            let lag = self.lag(cpu, picked).min(0);
            let entity = self.of(picked);
            entity.lag = lag;
            entity.owes_on = None;
            self.queues[cpu].others.retain(|task| *task != picked);
        }
    }

    /// True if a task waits for this CPU, and is not asleep.
    fn has_waiting(&self, cpu: usize) -> bool {
        self.waiting(cpu).next().is_some()
    }

    fn waiting(&self, cpu: usize) -> impl Iterator<Item = TaskId> + '_ {
        let is_awake = |task: &TaskId| self.entities[task.0 as usize].owes_on.is_none();
        self.queues[cpu].others.iter().copied().filter(is_awake)
    }

    /// Puts the task on the queue where its lag is what it was, and its slice is still to come.
    fn place(&mut self, task: TaskId, cpu: usize, how: Joins) {
        let (_, count) = self.sum(cpu);
        let count = i64::try_from(count).expect("fewer than 2^32 tasks");
        let mean = self.mean(cpu);
        let slice = match how {
            Joins::New => self.slice / 2,
            Joins::Woken => self.slice,
        };
        let entity = self.of(task);
        // Its own time moves the mean: with the lag as it was it would have less.
        let lag = core::mem::take(&mut entity.lag) * (count + 1) / count.max(1);
        entity.time = if count == 0 { 0 } else { mean - lag };
        entity.deadline = entity.time + slice;
        entity.owes_on = None;
        self.queues[cpu].others.push(task);
    }

    /// Takes the task off the queue it is on.
    fn remove(&mut self, task: TaskId, cpu: usize) {
        let lag = self.lag(cpu, task);
        self.of(task).lag = lag;
        self.queues[cpu].others.retain(|other| *other != task);
    }

    /// Brings a task that waits for another CPU here: of the longest queue, the one that came
    /// first.
    fn pull(&mut self, cpu: usize) {
        let longest = (0..self.queues.len())
            .rev()
            .max_by_key(|other| self.waiting(*other).count());
        let from = longest.expect("a lab has a CPU");
        let Some(task) = self.waiting(from).next() else {
            return;
        };
        self.remove(task, from);
        self.place(task, cpu, Joins::Woken);
    }
}

impl RunQueue for Eevdf {
    fn join(&mut self, task: TaskId, cpu: usize, how: Joins, now: u64) -> bool {
        self.catch_up(cpu, now);
        match self.of(task).owes_on.take() {
            Some(on) if on == cpu && self.lag(cpu, task) <= 0 => {}
            Some(on) => {
                self.remove(task, on);
                let entity = self.of(task);
                entity.lag = entity.lag.min(0);
                self.place(task, cpu, how);
            }
            None => self.place(task, cpu, how),
        }
        let is_picked = self.pick(cpu) == task;
        self.queues[cpu].stale |= is_picked;
        self.queues[cpu].stale
    }

    fn take(&mut self, cpu: usize, now: u64) -> Option<TaskId> {
        self.forgive(cpu);
        if self.queues[cpu].others.is_empty() {
            self.pull(cpu);
        }
        if self.queues[cpu].others.is_empty() {
            return None;
        }
        let task = self.pick(cpu);
        let entity = self.of(task);
        entity.picked = entity.deadline;
        let queue = &mut self.queues[cpu];
        queue.others.retain(|other| *other != task);
        queue.running = Some(task);
        queue.counted = now;
        queue.stale = false;
        Some(task)
    }

    fn start(&mut self, cpu: usize, now: u64) {
        self.queues[cpu].counted = now;
    }

    fn leave(&mut self, cpu: usize, task: TaskId, why: Leaves, now: u64) {
        self.catch_up(cpu, now);
        let lag = self.lag(cpu, task);
        let owes = why == Leaves::Sleeps && lag < 0;
        self.queues[cpu].running = None;
        let entity = self.of(task);
        if owes || why == Leaves::Waits {
            entity.owes_on = owes.then_some(cpu);
            self.queues[cpu].others.push(task);
        } else {
            entity.lag = lag;
        }
    }

    fn look_at(&self, now: u64) -> u64 {
        if self.queues.iter().any(|queue| queue.stale) {
            return now;
        }
        (now / self.tick + 1) * self.tick
    }

    fn loses(&mut self, cpu: usize, now: u64) -> bool {
        self.catch_up(cpu, now);
        if !core::mem::take(&mut self.queues[cpu].stale) {
            return false;
        }
        self.forgive(cpu);
        self.queues[cpu].running != Some(self.pick(cpu))
    }
}

fn signed(time: u64) -> i64 {
    i64::try_from(time).expect("a lab's time is below 2^63 ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const A: TaskId = TaskId(0);
    const B: TaskId = TaskId(1);
    const C: TaskId = TaskId(2);

    /// One CPU of 250 ticks a second, where `A` runs from the start.
    fn alone() -> Eevdf {
        let mut law = Eevdf::new(1, 250);
        law.join(A, 0, Joins::New, 0);
        assert_eq!(law.take(0, 0), Some(A));
        law
    }

    /// The running task leaves the CPU. Answers the task that gets it.
    fn switch(law: &mut Eevdf, running: TaskId, why: Leaves, now: u64) -> Option<TaskId> {
        law.leave(0, running, why, now);
        law.take(0, now)
    }

    #[test]
    fn a_task_that_was_just_picked_keeps_the_cpu_until_the_tick() {
        let mut law = alone();
        law.join(B, 0, Joins::Woken, 300_000);
        assert_eq!(law.look_at(300_000), 4 * MS);
        assert!(law.loses(0, 4 * MS));
        assert_eq!(switch(&mut law, A, Leaves::Waits, 4 * MS), Some(B));
    }

    #[test]
    fn a_task_that_has_had_its_slice_gives_way_to_one_that_is_woken() {
        let mut law = alone();
        law.join(B, 0, Joins::Woken, 900_000);
        assert_eq!(law.look_at(900_000), 900_000);
        assert!(law.loses(0, 900_000));
        // Alone for long, it has asked for its next slice by itself.
        let mut law = alone();
        law.join(B, 0, Joins::Woken, 10 * MS + 1);
        assert_eq!(law.look_at(10 * MS + 1), 10 * MS + 1);
    }

    #[test]
    fn a_task_that_has_had_more_than_its_share_owes_it_when_it_is_woken() {
        let mut law = alone();
        law.join(B, 0, Joins::Woken, 10 * MS);
        assert_eq!(switch(&mut law, A, Leaves::Waits, 10 * MS), Some(B));
        assert_eq!(
            switch(&mut law, B, Leaves::Sleeps, 10 * MS + 500_000),
            Some(A)
        );
        law.join(B, 0, Joins::Woken, 10 * MS + 700_000);
        assert_eq!(law.lag(0, B), -150_000, "half of what it has run more");
        assert_eq!(law.look_at(10 * MS + 700_000), 12 * MS);
        assert!(law.loses(0, 12 * MS), "the other has run as much since");
    }

    #[test]
    fn a_task_asleep_that_owes_is_forgiven_when_it_would_be_picked() {
        let mut law = alone();
        law.join(B, 0, Joins::Woken, 10 * MS);
        switch(&mut law, A, Leaves::Waits, 10 * MS);
        switch(&mut law, B, Leaves::Sleeps, 10 * MS + 500_000);
        law.join(C, 0, Joins::Woken, 17 * MS);
        assert_eq!(law.of(B).owes_on, None);
        assert_eq!(law.of(B).lag, 0);
        assert_eq!(law.sum(0).1, 2);
    }

    #[test]
    fn a_task_that_lacked_time_when_it_parked_lacks_it_still() {
        let mut law = alone();
        law.join(B, 0, Joins::Woken, 10 * MS);
        // It was let in; the other has had a millisecond more since, and again.
        switch(&mut law, A, Leaves::Waits, 10 * MS);
        switch(&mut law, B, Leaves::Waits, 10 * MS + 100_000);
        switch(&mut law, A, Leaves::Waits, 11 * MS + 100_000);
        let lag = law.lag(0, B);
        assert_eq!(lag, 450_000);
        switch(&mut law, B, Leaves::Sleeps, 11 * MS + 100_000);
        law.join(B, 0, Joins::Woken, 15 * MS);
        assert_eq!(law.lag(0, B), lag);
    }

    #[test]
    fn slices_grow_with_the_cpus_up_to_eight() {
        let slice = |cpus| Eevdf::new(cpus, 250).slice;
        let slices = [1, 2, 3, 4, 8, 64].map(slice);
        let base = signed(BASE_SLICE);
        assert_eq!(slices, [1, 2, 2, 3, 4, 4].map(|times| times * base));
    }

    #[test]
    fn a_cpu_that_becomes_idle_takes_a_task_that_waits_for_another() {
        let mut law = Eevdf::new(2, 250);
        for (task, cpu) in [(A, 0), (B, 1)] {
            law.join(task, cpu, Joins::New, 0);
            assert_eq!(law.take(cpu, 0), Some(task));
        }
        law.join(C, 0, Joins::New, 0);
        law.leave(1, B, Leaves::Sleeps, MS);
        assert_eq!(law.take(1, MS), Some(C));
        law.leave(0, A, Leaves::Sleeps, MS);
        assert_eq!(law.take(0, MS), None);
    }

    /// Tasks that sleep and wake by chance, and others that never do.
    #[test]
    fn whatever_others_do_a_task_that_never_sleeps_gets_its_share() {
        let (tick, steps) = (4 * MS, 50_000);
        let mut law = alone();
        law.join(B, 0, Joins::New, 0);
        let mut asleep: Vec<TaskId> = (2..6).map(TaskId).collect();
        let (mut now, mut running) = (0, A);
        let mut had = [0; 6];
        let mut random = 7_u64;
        for _ in 0..steps {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let step = (random >> 40) % (tick / 4);
            let next = law.look_at(now).min(now + step);
            had[running.0 as usize] += next - now;
            now = next;
            if random >> 33 & 7 == 0 && running.0 > 1 {
                asleep.push(running);
                running = switch(&mut law, running, Leaves::Sleeps, now).unwrap();
            } else if random >> 33 & 7 == 1 && !asleep.is_empty() {
                let task = asleep.remove((random >> 50) as usize % asleep.len());
                law.join(task, 0, Joins::Woken, now);
            }
            if law.loses(0, now) {
                running = switch(&mut law, running, Leaves::Waits, now).unwrap();
            }
            let (sum, count) = law.sum(0);
            let queue = &law.queues[0];
            let all: Vec<TaskId> = queue.others.iter().chain(&queue.running).copied().collect();
            let is_eligible =
                |task: &TaskId| i128::from(law.entities[task.0 as usize].time) * count <= sum;
            assert!(all.iter().any(is_eligible));
            assert_eq!(all.len() + asleep.len() - law.owing().count(), 6);
        }
        let [one, other] = [had[0], had[1]];
        assert!(one.abs_diff(other) < 4 * tick, "{had:?}");
        let most = had[2..].iter().max().unwrap();
        assert!(*most <= one, "{had:?}");
    }

    impl Eevdf {
        fn owing(&self) -> impl Iterator<Item = &Entity> {
            self.entities
                .iter()
                .filter(|entity| entity.owes_on.is_some())
        }
    }
}

//! Which task is woken, in which order, and what a wake before the park is worth.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use policy::units::Nanos;

use super::{Harness, PATIENCE, must_wait, run_root, take_lock, until, until_waiting};
use env::{Cause, Signal, Task, WaitQueue, Wakeup, spawn};

/// A queue, what it waits for, and a log of the tasks that got it.
#[derive(Default)]
struct Gate {
    queue: WaitQueue,
    permits: AtomicUsize,
    log: Mutex<Vec<usize>>,
}

impl Gate {
    /// Takes a permit. False: there is none.
    fn take(&self) -> bool {
        let take = |permits: usize| permits.checked_sub(1);
        self.permits
            .try_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }

    fn log(&self) -> Vec<usize> {
        take_lock(&self.log).clone()
    }
}

/// Starts `count` tasks that wait at the gate, in the order of their numbers.
fn queue_up(task: &mut Task<'_>, gate: &Arc<Gate>, count: usize) {
    for number in 0..count {
        let gate_of_task = Arc::clone(gate);
        spawn(task.env(), "waiter", move |task| {
            must_wait(task, &gate_of_task.queue, "waiting at the gate", |_| {
                !gate_of_task.take()
            });
            take_lock(&gate_of_task.log).push(number);
        });
        until_waiting(task, &gate.queue, number + 1);
    }
}

/// `wake_one` wakes the task that has waited longest.
pub fn wake_one_is_first_come_first_served<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let gate = Arc::new(Gate::default());
        queue_up(task, &gate, 5);
        for turn in 0..5 {
            gate.permits.fetch_add(1, Ordering::SeqCst);
            assert_eq!(
                gate.queue.wake_one(Signal::Other),
                1,
                "wake_one of a queue of {} tasks",
                5 - turn
            );
            until(task, &"the woken task", |_| gate.log().len() > turn);
        }
        assert_eq!(
            gate.log(),
            [0, 1, 2, 3, 4],
            "tasks were woken in another order than they came"
        );
    });
}

/// `wake` answers how many it woke, and wakes those in front.
pub fn wake_answers_how_many_it_woke<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let gate = Arc::new(Gate::default());
        assert_eq!(
            gate.queue.wake_all(Signal::Other),
            0,
            "wake_all of an empty queue"
        );
        queue_up(task, &gate, 5);
        gate.permits.fetch_add(3, Ordering::SeqCst);
        assert_eq!(gate.queue.wake(3, Signal::Other), 3, "wake(3) of five");
        until(task, &"three woken tasks", |_| gate.log().len() == 3);
        let mut first = gate.log();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2], "wake(3) woke others than the first three");
        assert_eq!(
            gate.queue.len(),
            2,
            "tasks still waiting after wake(3) of five"
        );
        gate.permits.fetch_add(2, Ordering::SeqCst);
        assert_eq!(gate.queue.wake(9, Signal::Other), 2, "wake(9) of two");
        until(task, &"the last two tasks", |_| gate.log().len() == 5);
    });
}

/// `wake_all` wakes each of those waiting once; a task that queues again and a task that comes
/// later wait.
pub fn wake_all_wakes_only_those_waiting<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let gate = Arc::new(Gate::default());
        let looks = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            let (gate, looks) = (Arc::clone(&gate), Arc::clone(&looks));
            spawn(task.env(), "stubborn", move |task| {
                must_wait(task, &gate.queue, "a stubborn waiter", |_| {
                    looks.fetch_add(1, Ordering::SeqCst);
                    !gate.take()
                });
            });
        }
        until_waiting(task, &gate.queue, 4);
        until(task, &"two looks of each", |_| {
            looks.load(Ordering::SeqCst) == 8
        });
        assert_eq!(gate.queue.wake_all(Signal::Other), 4, "wake_all of four");
        // Woken for nothing: each looks, queues again, looks, and waits for the next wake.
        until_waiting(task, &gate.queue, 4);
        until(task, &"two more looks of each", |_| {
            looks.load(Ordering::SeqCst) == 16
        });
        task.sleep(Cause::Think, Nanos::millis(2));
        assert_eq!(
            looks.load(Ordering::SeqCst),
            16,
            "looks after one wake_all of four"
        );
        let late = task.now() + Nanos::millis(3);
        let wakeup = task.wait_while(&gate.queue, Cause::Idle, Some(late), |_| true);
        assert_eq!(wakeup, Wakeup::TimedOut, "a wait begun after wake_all");
        gate.permits.store(4, Ordering::SeqCst);
        assert_eq!(gate.queue.wake_all(Signal::Other), 4, "the second wake_all");
        until(task, &"all permits to be taken", |_| {
            gate.permits.load(Ordering::SeqCst) == 0
        });
    });
}

/// A wake between the look at the condition and the park is not lost.
pub fn a_wake_before_the_park_is_remembered<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let queue = WaitQueue::new();
        let mut looks = 0;
        let began = task.now();
        must_wait(task, &queue, "a wake just before the park", |_| {
            looks += 1;
            if looks == 2 {
                assert_eq!(
                    queue.wake_one(Signal::Other),
                    1,
                    "the task that looks is in the queue"
                );
            }
            looks < 3
        });
        assert_eq!(
            looks, 3,
            "looks: before queueing, after it, after the remembered wake"
        );
        assert!(
            task.now().since(began) < Nanos::secs(30),
            "a remembered wake ends the park at once"
        );
    });
}

/// A wake that nobody parked for is remembered once: the next park ends, the one after blocks.
pub fn a_remembered_wake_counts_once<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        // A machine that stalls past the deadline cuts looks off: that try shows nothing.
        let mut all = Vec::new();
        while all.len() < 50 && all.last() != Some(&5) {
            all.push(looks_after_a_wake(task));
        }
        // Before queueing, after it, after the remembered wake, after queueing again, at the end.
        assert!(
            all.last() == Some(&5) && all.iter().all(|looks| *looks <= 5),
            "looks of a wait with one remembered wake and a deadline: {all:?}"
        );
    });
}

fn looks_after_a_wake(task: &mut Task<'_>) -> u32 {
    let queue = WaitQueue::new();
    let mut looks = 0;
    must_wait(task, &queue, "a wait that ends before its park", |_| {
        looks += 1;
        // In the queue by now: the wake is for this task, which then sees no reason to park.
        if looks == 2 {
            queue.wake_one(Signal::Other);
        }
        looks < 2
    });
    let mut looks = 0;
    let deadline = task.now() + Nanos::millis(5);
    let wakeup = task.wait_while(&queue, Cause::Idle, Some(deadline), |_| {
        looks += 1;
        true
    });
    assert_eq!(wakeup, Wakeup::TimedOut, "nobody woke the second wait");
    looks
}

/// Each wait answers what the wake said that ended it: not an earlier wake that changed nothing,
/// nor a later wake of the queue.
pub fn a_wait_names_the_wake_that_ended_it<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let gate = Arc::new(Gate::default());
        let looks = Arc::new(AtomicUsize::new(0));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (gate, looks) = (Arc::clone(&gate), Arc::clone(&looks));
                spawn(task.env(), "waiter", move |task| {
                    let deadline = Some(task.now() + PATIENCE);
                    task.wait_while(&gate.queue, Cause::Idle, deadline, |_| {
                        let taken = gate.take();
                        looks.fetch_add(1, Ordering::SeqCst);
                        !taken
                    })
                })
            })
            .collect();
        // Before it queues and after it; and so once more, for the wake changes nothing.
        until(task, &"two looks of each", |_| {
            looks.load(Ordering::SeqCst) == 6
        });
        assert_eq!(gate.queue.wake_all(Signal::Freed), 3, "wake_all of three");
        until(task, &"two more looks of each", |_| {
            looks.load(Ordering::SeqCst) == 12
        });
        for signal in [Signal::PageRead, Signal::PageWritten, Signal::TurnGiven] {
            gate.permits.fetch_add(1, Ordering::SeqCst);
            assert_eq!(gate.queue.wake_one(signal), 1, "wake_one for {signal:?}");
        }
        let mut ends: Vec<_> = waiters
            .into_iter()
            .map(|waiter| waiter.join(task).expect("a waiter ends"))
            .collect();
        ends.sort_by_key(|wakeup| wakeup.by());
        let signals = [Signal::PageRead, Signal::PageWritten, Signal::TurnGiven];
        assert_eq!(ends, signals.map(Wakeup::Ready), "what ended three waits");
    });
}

/// A condition that holds already ends the wait without a park, a queue entry or a wake.
pub fn a_condition_that_holds_needs_no_wait<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let queue = WaitQueue::new();
        let wakeup = task.wait_while(&queue, Cause::Idle, None, |_| false);
        assert_eq!(
            wakeup,
            Wakeup::Ready(Signal::Seen),
            "a condition that holds"
        );
        let mut looks = 0;
        let wakeup = task.wait_while(&queue, Cause::Idle, None, |_| {
            looks += 1;
            looks < 2
        });
        assert_eq!(
            wakeup,
            Wakeup::Ready(Signal::Seen),
            "a condition that holds at the second look"
        );
        assert!(
            queue.is_empty(),
            "a task that left its wait is still in the queue"
        );
    });
}

/// A wait of a task that may not is refused: it neither takes time nor a place in the queue, and
/// later waits are as ever.
pub fn a_task_that_may_not_wait_is_refused_and_leaves_no_trace<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let queue = WaitQueue::new();
        let hour = Nanos::secs(3600);
        let answer = task.nonblocking(|task| {
            assert_eq!(task.sleep(Cause::Idle, hour), Wakeup::Refused, "a sleep");
            let ready = task.wait_while(&queue, Cause::Idle, None, |_| false);
            assert_eq!(ready, Wakeup::Ready(Signal::Seen), "a condition that holds");
            let inner =
                task.nonblocking(|task| task.wait_while(&queue, Cause::Idle, None, |_| true));
            assert_eq!(inner, Wakeup::Refused, "a wait within");
            assert!(!task.may_block(), "it is asked once more within");
            task.wait_while(&queue, Cause::Idle, None, |_| {
                assert!(queue.is_empty(), "it looks before it queues");
                true
            })
        });
        assert_eq!(answer, Wakeup::Refused, "a wait");
        assert!(queue.is_empty(), "a task that was refused is in the queue");
        assert!(task.may_block(), "it still may not block");
        let wakeup = task.sleep(Cause::Idle, Nanos::millis(1));
        assert_eq!(wakeup, Wakeup::TimedOut, "a sleep after it");
    });
}

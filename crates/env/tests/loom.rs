//! No wake-up is lost: `Task::wait_while` and `WaitQueue` under every interleaving that loom finds.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-env --test loom --release`.
//!
//! The protocol: a waker changes the condition, then wakes; a waiter looks, takes its place in the
//! queue, looks again, then parks. The conditions below are relaxed atomics, so that nothing but
//! the two fences of the queue orders a change and a place against each other. A lost wake-up
//! leaves a thread parked for ever, which loom reports as a deadlock.
#![cfg(loom)]

use std::task::{Wake, Waker};

use env::suite::TestContent;
use env::{
    Body, Cause, Env, Event, IoRequest, NoThread, Signal, Task, TaskId, Unparked, WaitQueue,
    Wakeup, Work,
};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use policy::units::Instant;

/// Keeps one wake until the next park.
#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parker {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().expect("nobody panics under it") = true;
        self.changed.notify_one();
    }
}

/// The least `Env` that a wait needs. A deadline has passed when the task parks.
struct LoomEnv {
    content: TestContent,
}

impl Env for LoomEnv {
    type Content = TestContent;
    type Local = std::sync::Arc<Parker>;

    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn park(&self, local: &mut Self::Local, deadline: Option<Instant>) -> Unparked {
        let mut woken = local.woken.lock().expect("nobody panics under it");
        if deadline.is_some() && !*woken {
            return Unparked::TimedOut;
        }
        while !*woken {
            woken = local.changed.wait(woken).expect("nobody panics under it");
        }
        *woken = false;
        Unparked::Woken
    }

    fn waker(&self, local: &Self::Local) -> Waker {
        Waker::from(std::sync::Arc::clone(local))
    }

    fn did(&self, _local: &mut Self::Local, _work: Work, _units: u64) {}

    fn submit(&self, _request: Box<IoRequest>) {
        unreachable!("the model has no devices")
    }

    fn spawn(&self, _name: &str, _body: Body<Self>) -> Result<(), NoThread> {
        unreachable!("the model starts its own threads")
    }

    fn cpu(&self, _local: &Self::Local) -> usize {
        0
    }

    fn random(&self, _local: &mut Self::Local) -> u64 {
        0
    }

    fn emit(&self, _task: TaskId, _event: &Event) {}

    fn content(&self) -> &TestContent {
        &self.content
    }
}

/// A queue and the permits that its tasks wait for.
#[derive(Default)]
struct Gate {
    permits: AtomicUsize,
    taken: AtomicUsize,
    queue: WaitQueue,
}

impl Gate {
    fn give(&self) {
        self.permits.fetch_add(1, Ordering::Relaxed);
        self.queue.wake_one(Signal::Other);
    }

    fn take(&self) -> bool {
        let mut permits = self.permits.load(Ordering::Relaxed);
        while permits > 0 {
            let (new, order) = (permits - 1, Ordering::Relaxed);
            match self.permits.compare_exchange(permits, new, order, order) {
                Ok(_) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                Err(now) => permits = now,
            }
        }
        false
    }
}

/// Waits for a permit on a thread of its own.
fn taker(
    gate: &loom::sync::Arc<Gate>,
    deadline: Option<Instant>,
) -> loom::thread::JoinHandle<Wakeup> {
    let gate = loom::sync::Arc::clone(gate);
    loom::thread::spawn(move || {
        let env = LoomEnv {
            content: TestContent::new(0),
        };
        let mut task = Task::new(&env, std::sync::Arc::new(Parker::default()), TaskId(0));
        task.wait_while(&gate.queue, Cause::Idle, deadline, |_| !gate.take())
    })
}

#[test]
fn a_change_and_a_wake_reach_the_waiter() {
    loom::model(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiter = taker(&gate, None);
        gate.give();
        assert!(waiter.join().expect("the waiter ends").is_ready());
        assert_eq!(gate.taken.load(Ordering::Relaxed), 1);
    });
}

/// A store and one `wake_all` free every waiter.
#[test]
fn wake_all_reaches_two_waiters() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiters = [taker(&gate, None), taker(&gate, None)];
        gate.permits.store(2, Ordering::Relaxed);
        gate.queue.wake_all(Signal::Other);
        for waiter in waiters {
            assert!(waiter.join().expect("a waiter ends").is_ready());
        }
    });
}

/// Two permits, one at a time, for two waiters.
#[test]
fn two_wakes_reach_two_waiters() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiters = [taker(&gate, None), taker(&gate, None)];
        gate.give();
        gate.give();
        for waiter in waiters {
            assert!(waiter.join().expect("a waiter ends").is_ready());
        }
        assert_eq!(gate.taken.load(Ordering::Relaxed), 2);
    });
}

/// One waiter gives up at any moment, one never does, and there is one permit for each that wants
/// one: whatever the first used up must reach the second.
#[test]
fn a_wake_used_up_by_a_deadline_is_passed_on() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        // Wants no permit and is gone at its deadline: a wake that it gets is another's.
        let passing = {
            let gate = loom::sync::Arc::clone(&gate);
            loom::thread::spawn(move || {
                let env = LoomEnv {
                    content: TestContent::new(0),
                };
                let parker = std::sync::Arc::new(Parker::default());
                let mut task = Task::new(&env, parker, TaskId(0));
                // Leaves the queue before it parks: the path on which a wake is used for nothing.
                let mut looks = 0;
                task.wait_while(&gate.queue, Cause::Idle, Some(Instant::ZERO), |_| {
                    looks += 1;
                    looks < 2
                })
            })
        };
        let waiter = taker(&gate, None);
        gate.give();
        passing.join().expect("the passing task ends");
        assert!(waiter.join().expect("the waiter ends").is_ready());
    });
}

/// One waiter gives up at its first park, one never does: with a permit for each, the patient one
/// gets one, no matter where the wakes went to.
#[test]
fn an_impatient_waiter_takes_no_wake_away() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let impatient = taker(&gate, Some(Instant::ZERO));
        let patient = taker(&gate, None);
        gate.give();
        gate.give();
        impatient.join().expect("the impatient waiter ends");
        assert!(patient.join().expect("the patient waiter ends").is_ready());
    });
}

/// A waiter whose deadline passes takes the permit or leaves it, and says which.
#[test]
fn a_timeout_and_a_permit_agree() {
    loom::model(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiter = taker(&gate, Some(Instant::ZERO));
        gate.give();
        let taken = usize::from(waiter.join().expect("the waiter ends").is_ready());
        assert_eq!(gate.taken.load(Ordering::Relaxed), taken);
        assert_eq!(gate.permits.load(Ordering::Relaxed), 1 - taken);
        assert!(gate.queue.is_empty());
    });
}

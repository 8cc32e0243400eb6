//! The baton passes the suite, repeats itself, and names a deadlock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use env::{Cause, DeviceId, Signal, Task, TaskId, WaitQueue, Work, spawn};
use policy::units::{Instant, Nanos};
use testkit::baton::{BatonEnv, BatonOptions, Order};
use testkit::suite::{Harness, MakeDevice, TestContent, Timing, World};

const TICK: u64 = 1_000_000;

struct BatonHarness {
    order: Order,
    tick: Nanos,
}

struct BatonWorld {
    env: Arc<BatonEnv>,
    device: DeviceId,
}

impl Harness for BatonHarness {
    type World = BatonWorld;

    fn start(&self, cpus: usize, seed: u64, device: MakeDevice<'_>) -> BatonWorld {
        let options = BatonOptions {
            cpus,
            seed,
            tick: self.tick,
            order: self.order,
        };
        let env = BatonEnv::new(options, Arc::new(TestContent::new(4)));
        let device = env.add_device(device(env.host()));
        BatonWorld { env, device }
    }

    fn timing(&self) -> Timing {
        let ticked: fn(Instant) -> Instant = |at| Instant(at.0.next_multiple_of(TICK));
        let exact: fn(Instant) -> Instant = |at| at;
        let wakes_at = if self.tick.is_zero() { exact } else { ticked };
        Timing {
            wakes_at: Some(wakes_at),
            slack: Nanos::ZERO,
            deterministic: true,
        }
    }
}

impl World for BatonWorld {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn run<T: Send + 'static>(
        &mut self,
        root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
    ) -> T {
        self.env.run(root)
    }

    fn shutdown(&mut self) {
        self.env.shutdown();
    }

    fn tasks(&self) -> usize {
        self.env.tasks()
    }
}

mod fifo {
    macro_rules! tests {
        ($($module:ident: $($case:ident)+;)+) => { $($(
            #[test]
            fn $case() {
                let order = super::Order::Fifo;
                let tick = super::Nanos::ZERO;
                testkit::suite::$module::$case(&super::BatonHarness { order, tick });
            }
        )+)+ };
    }
    testkit::suite_cases!(tests);
}

mod random {
    macro_rules! tests {
        ($($module:ident: $($case:ident)+;)+) => { $($(
            #[test]
            fn $case() {
                let order = super::Order::Random;
                let tick = super::Nanos(super::TICK);
                testkit::suite::$module::$case(&super::BatonHarness { order, tick });
            }
        )+)+ };
    }
    testkit::suite_cases!(tests);
}

/// Which task went through the gate when; and the hash of the whole run.
fn crowd(seed: u64, order: Order) -> (Vec<(TaskId, Instant)>, u64) {
    let options = BatonOptions {
        seed,
        order,
        ..BatonOptions::default()
    };
    let env = BatonEnv::new(options, Arc::new(TestContent::new(1)));
    let log = env.run(|task| {
        let shared = Arc::new((Mutex::new(Vec::new()), WaitQueue::new()));
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(task.env(), "member", move |task| {
                    for _ in 0..20 {
                        let pause = Nanos::micros(task.random() % 50);
                        task.sleep(Cause::Think, pause);
                        task.did(Work::Scan, 1);
                        shared
                            .0
                            .lock()
                            .expect("nobody panics")
                            .push((task.id(), task.now()));
                        shared.1.wake_one(Signal::Other);
                        let until = task.now() + Nanos::micros(10);
                        task.wait_while(&shared.1, Cause::Idle, Some(until), |_| true);
                    }
                })
            })
            .collect();
        for member in tasks {
            member.join(task).expect("a member ends");
        }
        let log = shared.0.lock().expect("nobody panics");
        log.clone()
    });
    env.shutdown();
    (log, env.trace_hash())
}

#[test]
fn the_same_seed_gives_the_same_order_of_everything() {
    for order in [Order::Fifo, Order::Random] {
        let first = crowd(5, order);
        assert_eq!(first.0.len(), 120);
        for _ in 0..3 {
            assert_eq!(first, crowd(5, order), "a second run of seed 5, {order:?}");
        }
        let other = crowd(6, order);
        assert_ne!(
            first.0, other.0,
            "seeds 5 and 6 gave the same order, {order:?}"
        );
        assert_ne!(
            first.1, other.1,
            "seeds 5 and 6 gave the same hash, {order:?}"
        );
    }
    assert_ne!(crowd(5, Order::Fifo).1, crowd(5, Order::Random).1);
}

/// The message of the panic of `run`.
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run))
        .err()
        .expect("it panics");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| String::from(*text)))
        .expect("a panic with a message")
}

#[test]
fn a_deadlock_names_every_task_and_its_cause() {
    let env = BatonEnv::new(BatonOptions::default(), Arc::new(TestContent::new(1)));
    let message = panic_of(|| {
        env.run(|task| {
            let queue = Arc::new(WaitQueue::new());
            let waited = Arc::clone(&queue);
            spawn(task.env(), "flusher", move |task| {
                task.wait_while(&waited, Cause::DeviceFlush, None, |_| true);
            });
            spawn(task.env(), "short", |_| ());
            task.sleep(Cause::Think, Nanos::millis(3));
            task.wait_while(&queue, Cause::PageBusy, None, |_| true);
        })
    });
    assert_eq!(
        message,
        "deadlock: no task can run and no timer is set, at 3000000ns@:\n  \
         task 0 `root` waits for PageBusy\n  task 1 `flusher` waits for DeviceFlush"
    );
    assert_eq!(env.tasks(), 0, "tasks left after a deadlock");
    env.shutdown();
}

#[test]
fn a_panic_of_a_task_comes_out_of_run_and_cancels_the_others() {
    let env = BatonEnv::new(BatonOptions::default(), Arc::new(TestContent::new(1)));
    let message = panic_of(|| {
        env.run(|task| {
            let queue = WaitQueue::new();
            spawn(task.env(), "culprit", |task| {
                task.sleep(Cause::Think, Nanos::millis(1));
                panic!("page 7 is gone");
            });
            task.wait_while(&queue, Cause::Idle, None, |_| true)
        })
    });
    assert_eq!(message, "page 7 is gone");
    assert_eq!(env.tasks(), 0, "tasks left after a panic");
}

#[test]
fn work_is_counted() {
    let env = BatonEnv::new(BatonOptions::default(), Arc::new(TestContent::new(1)));
    env.run(|task| {
        task.did(Work::Scan, 7);
        task.env()
            .emit(task.id(), &env::Event::Waiting { cause: Cause::Idle });
        task.did(Work::Scan, 4);
    });
    assert_eq!(env.units(Work::Scan), 11);
    env.shutdown();
}

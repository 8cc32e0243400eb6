//! Many rounds of few tasks: what is lost or torn once in a thousand shows here.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use policy::units::Nanos;

use super::{Harness, World, finish, must_wait, run_root, start, take_lock, until};
use env::{Cause, JoinHandle, Lock, LockClass, Signal, Task, WaitQueue, Wakeup, Work, spawn};

/// Rounds of each task. Miri is a thousand times slower.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 3_000 };

/// Two tasks that wake each other in turn.
pub fn ping_pong_loses_no_wake<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        // The number of the task whose turn it is, and one queue for each.
        let shared = Arc::new((AtomicUsize::new(0), [WaitQueue::new(), WaitQueue::new()]));
        let players: Vec<_> = (0..2)
            .map(|me| {
                let shared = Arc::clone(&shared);
                spawn(task.env(), "player", move |task| {
                    let (turn, queues) = &*shared;
                    for round in 0..ROUNDS {
                        let mine = 2 * round + me;
                        must_wait(task, &queues[me], "ping-pong", |_| {
                            turn.load(Ordering::Relaxed) != mine
                        });
                        turn.store(mine + 1, Ordering::Relaxed);
                        queues[1 - me].wake_one(Signal::Other);
                    }
                })
            })
            .collect();
        join_all(task, players);
        assert_eq!(shared.0.load(Ordering::Relaxed), 2 * ROUNDS, "turns played");
    });
}

/// A bounded buffer of numbers.
struct Buffer {
    items: Mutex<Vec<usize>>,
    not_empty: WaitQueue,
    not_full: WaitQueue,
}

impl Buffer {
    const ROOM: usize = 2;

    fn put(&self, item: usize) -> bool {
        let mut items = take_lock(&self.items);
        let fits = items.len() < Self::ROOM;
        if fits {
            items.push(item);
        }
        fits
    }
}

/// Producers and consumers around a buffer of two, woken one at a time: every item arrives once.
pub fn producers_and_consumers_lose_no_wake<H: Harness>(harness: &H) {
    const PAIRS: usize = 3;
    run_root(harness, |task| {
        let buffer = Arc::new(Buffer {
            items: Mutex::new(Vec::new()),
            not_empty: WaitQueue::new(),
            not_full: WaitQueue::new(),
        });
        let mut producers = Vec::new();
        let mut consumers = Vec::new();
        for number in 0..PAIRS {
            let shared = Arc::clone(&buffer);
            producers.push(spawn(task.env(), "producer", move |task| {
                for round in 0..ROUNDS {
                    let item = number * ROUNDS + round;
                    must_wait(task, &shared.not_full, "a producer", |_| !shared.put(item));
                    shared.not_empty.wake_one(Signal::Other);
                }
            }));
            let shared = Arc::clone(&buffer);
            consumers.push(spawn(task.env(), "consumer", move |task| {
                let mut sum = 0;
                for _ in 0..ROUNDS {
                    must_wait(task, &shared.not_empty, "a consumer", |_| {
                        let item = take_lock(&shared.items).pop();
                        sum += item.unwrap_or(0);
                        item.is_none()
                    });
                    shared.not_full.wake_one(Signal::Other);
                }
                sum
            }));
        }
        join_all(task, producers);
        let sum: usize = join_all(task, consumers).into_iter().sum();
        let all = PAIRS * ROUNDS;
        assert_eq!(sum, all * (all - 1) / 2, "sum of the items that arrived");
    });
}

/// Tasks with deadlines as short as the producer's pace wait beside patient ones: a wake that goes
/// to one whose deadline passes in that moment must reach another.
pub fn wakes_used_up_by_deadlines_are_passed_on<H: Harness>(harness: &H) {
    const PERMITS: usize = if cfg!(miri) { 10 } else { 400 };
    run_root(harness, |task| {
        let shared = Arc::new((
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            WaitQueue::new(),
            WaitQueue::new(),
        ));
        let take = |permits: usize| permits.checked_sub(1);
        for number in 0..4_u64 {
            let shared = Arc::clone(&shared);
            spawn(task.env(), "taker", move |task| {
                let (permits, taken, queue, progress) = &*shared;
                loop {
                    // Half of them give up all the time, half never do.
                    let patience = Nanos::micros(50 + 10 * number);
                    let deadline = (number % 2 == 0).then(|| task.now() + patience);
                    let wakeup = task.wait_while(queue, Cause::Idle, deadline, |_| {
                        permits
                            .try_update(Ordering::SeqCst, Ordering::SeqCst, take)
                            .is_err()
                    });
                    match wakeup {
                        Wakeup::Ready(_) => {
                            taken.fetch_add(1, Ordering::SeqCst);
                            progress.wake_one(Signal::Other);
                        }
                        Wakeup::TimedOut => {}
                        Wakeup::Cancelled | Wakeup::Refused => break,
                    }
                }
            });
        }
        let (permits, taken, queue, progress) = &*shared;
        for round in 1..=PERMITS {
            if round % 3 != 0 {
                task.sleep(Cause::Think, Nanos::micros(50));
            }
            permits.fetch_add(1, Ordering::SeqCst);
            queue.wake_one(Signal::Other);
            must_wait(task, progress, "a permit that somebody waits for", |_| {
                taken.load(Ordering::SeqCst) < round
            });
        }
        assert_eq!(taken.load(Ordering::SeqCst), PERMITS, "permits taken");
    });
}

/// A counter and its twin that are changed one after the other, under a lock.
type Twins = Lock<(u64, u64)>;

fn step(twins: &mut (u64, u64)) {
    assert_eq!(twins.0, twins.1, "two were under one lock at once");
    twins.0 += 1;
    core::hint::black_box(&mut *twins);
    twins.1 += 1;
}

/// A lock admits one task at a time.
pub fn locks_exclude<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let twins = Arc::new(Twins::new(LockClass::Leaf, (0, 0)));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let twins = Arc::clone(&twins);
                spawn(task.env(), "locker", move |task| {
                    for round in 0..ROUNDS {
                        step(&mut twins.lock(task));
                        if round % 64 == 0 {
                            task.did(Work::Scan, 64);
                        }
                    }
                })
            })
            .collect();
        join_all(task, tasks);
        let steps = 4 * ROUNDS as u64;
        assert_eq!(*twins.lock(task), (steps, steps), "steps under the lock");
    });
}

/// A lock admits a task or an interrupt, not both.
pub fn locks_exclude_tasks_and_interrupts<H: Harness>(harness: &H) {
    const TIMERS: u64 = if cfg!(miri) { 10 } else { 300 };
    let (mut world, device) = start(harness, 2);
    world.run(move |task| {
        let twins = Arc::new(Twins::new(LockClass::Leaf, (0, 0)));
        let host = device.host();
        let began = host.now();
        for number in 0..TIMERS {
            let twins = Arc::clone(&twins);
            let what = Box::new(move |context: &env::Interrupt| step(&mut twins.lock(context)));
            host.at(began + Nanos::micros(10 * number), what);
        }
        let mut own = 0;
        until(task, &"all timers", |task| {
            for _ in 0..20 {
                step(&mut twins.lock(task));
                own += 1;
            }
            twins.lock(task).0 == own + TIMERS
        });
        assert_eq!(
            *twins.lock(task),
            (own + TIMERS, own + TIMERS),
            "steps under the lock"
        );
    });
    finish(&mut world);
}

fn join_all<T>(task: &mut Task<'_>, handles: Vec<JoinHandle<T>>) -> Vec<T> {
    handles
        .into_iter()
        .map(|handle| handle.join(task).expect("a task ends with an answer"))
        .collect()
}

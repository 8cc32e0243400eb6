//! Tasks: their start, their answers, their CPUs and their chance.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use policy::units::Nanos;

use super::{Harness, World, finish, run_root, start, start_seeded, take_lock, until};
use env::{Cause, Task, TaskId, Wakeup, Work, spawn};

/// A joined task's answer comes, before and after the task has ended; a handle may be dropped.
pub fn join_gives_the_answer<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let handle = spawn(task.env(), "answerer", |_| String::from("forty-two"));
        assert_eq!(handle.join(task).as_deref(), Some("forty-two"), "an answer");
        let handle = spawn(task.env(), "answerer", |_| 43);
        until(task, &"the answer", |_| handle.is_done());
        assert_eq!(handle.join(task), Some(43), "an answer that was there");
        let handle = spawn(task.env(), "answerer", |_| 44);
        until(task, &"the answer", |_| handle.is_done());
        assert_eq!(
            handle.try_join(),
            Some(44),
            "an answer taken without waiting"
        );
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        drop(spawn(task.env(), "forgotten", move |_| {
            count.fetch_add(1, Ordering::SeqCst)
        }));
        until(task, &"a task whose handle was dropped", |_| {
            ended.load(Ordering::SeqCst) == 1
        });
    });
}

/// `join` blocks until the task has ended, whatever that task waits for.
pub fn join_waits_for_a_task_that_waits<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let began = task.now();
        let handle = spawn(task.env(), "sleeper", |task| {
            task.sleep(Cause::Think, Nanos::millis(8));
            task.now()
        });
        assert!(!handle.is_done(), "a task that sleeps 8 ms ended at once");
        let ended = handle.join(task).expect("the sleeper answers");
        assert!(
            ended.since(began) >= Nanos::millis(8),
            "the sleeper did not sleep"
        );
        assert!(
            task.now() >= ended,
            "join came back before the end of the task"
        );
    });
}

/// A tree of tasks, three levels deep.
pub fn tasks_start_tasks<H: Harness>(harness: &H) {
    fn grow<H: Harness>(task: &mut Task<'_>, depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let children: Vec<_> = (0..3)
            .map(|_| spawn(task.env(), "child", move |task| grow::<H>(task, depth - 1)))
            .collect();
        children
            .into_iter()
            .map(|child| child.join(task).expect("a child answers"))
            .sum()
    }
    assert_eq!(
        run_root(harness, |task| grow::<H>(task, 3)),
        27,
        "leaves of a tree 3 * 3 * 3"
    );
}

/// Many tasks run beside each other, each with a number of its own, and none is left.
pub fn many_tasks_end<H: Harness>(harness: &H) {
    const TASKS: usize = if cfg!(miri) { 12 } else { 64 };
    let (mut world, _) = start(harness, 2);
    let ids = world.run(|task| {
        let ids = Arc::new(Mutex::new(BTreeSet::from([task.id()])));
        for number in 0..TASKS as u64 {
            let ids = Arc::clone(&ids);
            spawn(task.env(), "one of many", move |task| {
                let wakeup = task.sleep(Cause::Think, Nanos::micros(100 * (number % 7)));
                assert_eq!(wakeup, Wakeup::TimedOut, "a sleep of one of many");
                take_lock(&ids).insert(task.id());
            });
        }
        until(task, &"all tasks", |_| take_lock(&ids).len() > TASKS);
        take_lock(&ids).clone()
    });
    assert_eq!(ids.len(), TASKS + 1, "numbers of tasks");
    assert!(
        !ids.contains(&TaskId::NONE),
        "a task has the number of no task"
    );
    finish(&mut world);
}

/// A task runs on one of the CPUs.
pub fn cpus_are_in_range<H: Harness>(harness: &H) {
    const CPUS: usize = 2;
    let timing = harness.timing();
    let (mut world, _) = start(harness, CPUS);
    world.run(move |task| {
        let seen: Vec<_> = (0..8)
            .map(|_| {
                spawn(task.env(), "traveller", |task| {
                    let mut highest = 0;
                    for _ in 0..10 {
                        task.did(Work::Scan, 10);
                        highest = highest.max(task.cpu());
                        task.sleep(Cause::Think, Nanos::micros(20));
                    }
                    highest
                })
            })
            .collect();
        for handle in seen {
            let cpu = handle.join(task).expect("a traveller answers");
            // Live the machine has as many as it has.
            assert!(!timing.deterministic || cpu < CPUS, "CPU {cpu} of {CPUS}");
        }
    });
    finish(&mut world);
}

/// The first random numbers of four tasks, in the order of their start.
fn random_streams<H: Harness>(harness: &H, seed: u64) -> Vec<[u64; 4]> {
    let (mut world, _) = start_seeded(harness, 2, seed);
    let streams = world.run(|task| {
        let handles: Vec<_> = (0..4)
            .map(|_| {
                spawn(task.env(), "gambler", |task| {
                    core::array::from_fn(|_| task.random())
                })
            })
            .collect();
        let mut streams = vec![core::array::from_fn(|_| task.random())];
        streams.extend(
            handles
                .into_iter()
                .map(|h| h.join(task).expect("a gambler answers")),
        );
        streams
    });
    finish(&mut world);
    streams
}

/// No two tasks have the same stream, and no stream repeats itself.
pub fn random_streams_differ_between_tasks<H: Harness>(harness: &H) {
    let streams = random_streams(harness, 7);
    let distinct: BTreeSet<u64> = streams.iter().flatten().copied().collect();
    assert_eq!(
        distinct.len(),
        4 * streams.len(),
        "distinct random numbers in {streams:?}"
    );
}

/// In a deterministic world a task's stream follows from the seed alone.
pub fn random_streams_repeat_with_the_seed<H: Harness>(harness: &H) {
    if !harness.timing().deterministic {
        return;
    }
    let first = random_streams(harness, 7);
    assert_eq!(
        first,
        random_streams(harness, 7),
        "streams of the same seed"
    );
    let other = random_streams(harness, 8);
    for (one, two) in first.iter().zip(&other) {
        assert_ne!(one, two, "a stream of seeds 7 and 8");
    }
}

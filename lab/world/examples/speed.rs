//! What the machinery of the lab costs, in nanoseconds of our own time:
//! `cargo run --release -p tidegate-world --example speed`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant as Clock;

use env::{Cause, Event, Signal, Task, WaitQueue, Work, spawn};
use policy::dirty::DeviceIndex;
use policy::units::{Nanos, Pages};
use world::{CostTable, Lab, LabEnv, Options};

const ROUNDS: u64 = 2_000_000;

type LabTask<'e> = Task<'e, LabEnv>;

fn lab(cpus: u32) -> Lab {
    let costs = CostTable::zero()
        .with_picos(Work::Dirty, 333_333)
        .with(Work::Copy, Nanos(300))
        .with(Work::Switch, Nanos(1500));
    Lab::new(Options {
        cpus,
        costs,
        ..Options::default()
    })
}

/// Runs `root` and prints our time per one of `count`.
fn measure(
    what: &str,
    cpus: u32,
    count: u64,
    root: impl FnOnce(&mut LabTask<'_>) + Send + 'static,
) {
    let mut lab = lab(cpus);
    let began = Clock::now();
    lab.run(root).expect("nothing here blocks for ever");
    let took = began.elapsed();
    let nanos = took.as_secs_f64() * 1e9 / count as f64;
    println!(
        "{what:<58} {nanos:>8.1} ns   trace {:016x}",
        lab.trace_hash()
    );
}

/// `tasks` tasks of `body` side by side.
fn crowd(
    task: &mut LabTask<'_>,
    tasks: u64,
    body: impl Fn(&mut LabTask<'_>) + Copy + Send + 'static,
) {
    let all: Vec<_> = (0..tasks)
        .map(|_| spawn(task.env(), "one", move |task: &mut LabTask<'_>| body(task)))
        .collect();
    for one in all {
        one.join(task);
    }
}

fn main() {
    measure("now", 1, ROUNDS, |task| {
        for _ in 0..ROUNDS {
            black_box(task.now());
        }
    });
    measure("did, alone", 1, ROUNDS, |task| {
        for _ in 0..ROUNDS {
            task.did(Work::Dirty, 1);
        }
    });
    for tasks in [2, 4] {
        let what = format!("did, {tasks} tasks on {tasks} CPUs side by side (0.3 us each)");
        measure(
            &what,
            u32::try_from(tasks).expect("few"),
            ROUNDS,
            move |task| {
                crowd(task, tasks, move |task| {
                    for _ in 0..ROUNDS / tasks {
                        task.did(Work::Dirty, 1);
                    }
                });
            },
        );
    }
    measure(
        "did of 10 us, 4 tasks on 4 CPUs: a switch each",
        4,
        ROUNDS,
        |task| {
            crowd(task, 4, |task| {
                for _ in 0..ROUNDS / 4 {
                    task.did(Work::User, 10_000);
                }
            });
        },
    );
    measure("random", 1, ROUNDS, |task| {
        for _ in 0..ROUNDS {
            black_box(task.random());
        }
    });
    measure("emit, not recorded", 1, ROUNDS, |task| {
        for _ in 0..ROUNDS {
            task.emit(&Event::Dirtied {
                device: DeviceIndex(0),
                pages: Pages(1),
            });
        }
    });
    measure(
        "sleep, alone (timer, two switches, event, charge)",
        1,
        ROUNDS,
        |task| {
            for _ in 0..ROUNDS {
                task.sleep(Cause::Think, Nanos(5_000));
            }
        },
    );
    for tasks in [100, 10_000] {
        let what = format!("sleep, {tasks} tasks, random lengths");
        measure(&what, 16, ROUNDS, move |task| {
            crowd(task, tasks, move |task| {
                for _ in 0..ROUNDS / tasks {
                    let pause = Nanos(task.random() % 1_000_000);
                    task.sleep(Cause::Think, pause);
                }
            });
        });
    }
    measure("wait and wake between two tasks", 2, ROUNDS, |task| {
        ping_pong(task, ROUNDS / 2)
    });
    measure("timer of a device", 1, ROUNDS, |task| {
        let host = task.env().host();
        for at in 0..ROUNDS {
            host.after(Nanos(at % 1000), Box::new(|_| {}));
            if at % 64 == 0 {
                task.sleep(Cause::Think, Nanos(1000));
            }
        }
    });
    measure("spawn and join", 2, ROUNDS / 10, |task| {
        for _ in 0..ROUNDS / 10 {
            spawn(task.env(), "short", |_| ()).join(task);
        }
    });
}

/// Two tasks wake each other in turns, `rounds` times each.
fn ping_pong(task: &mut LabTask<'_>, rounds: u64) {
    let shared = Arc::new((AtomicU64::new(0), WaitQueue::new()));
    let play = move |task: &mut LabTask<'_>, shared: &(AtomicU64, WaitQueue), mine: u64| {
        let (turn, queue) = shared;
        for _ in 0..rounds {
            task.wait_while(queue, Cause::Idle, None, |_| {
                turn.load(Ordering::Relaxed) % 2 != mine
            });
            turn.store(turn.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            queue.wake_all(Signal::Other);
        }
    };
    let theirs = Arc::clone(&shared);
    let other = spawn(task.env(), "other", move |task: &mut LabTask<'_>| {
        play(task, &theirs, 1)
    });
    play(task, &shared, 0);
    other.join(task);
}

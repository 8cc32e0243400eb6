//! What the calls of `ThreadEnv` cost: `cargo run --release -p tidegate-os --example costs`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use env::{Cause, Env, Signal, WaitQueue, Work};
use frames::{Content, FrameId};
use os::{Options, ThreadEnv};
use policy::units::Nanos;

fn per_call(name: &str, count: u32, mut call: impl FnMut()) {
    let began = Instant::now();
    for _ in 0..count {
        call();
    }
    println!(
        "{name:24} {:8.1} ns",
        began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    );
}

fn main() {
    let env = ThreadEnv::start(Options::new(1024)).expect("the environment starts");
    per_call("enter and leave", 2_000_000, || {
        drop(black_box(env.enter()))
    });
    let mut task = env.enter();
    per_call("did", 20_000_000, || task.did(Work::Lookup, black_box(1)));
    per_call("now", 5_000_000, || _ = black_box(task.now()));
    per_call("cpu", 5_000_000, || _ = black_box(task.cpu()));
    per_call("random", 5_000_000, || _ = black_box(task.random()));

    for round in 0..3 {
        let began = Instant::now();
        env.content().populate(FrameId(0)).expect("there is memory");
        let populated = began.elapsed();
        env.content().release(FrameId(0));
        let released = began.elapsed() - populated;
        println!("chunk of 4 MiB, {round}: populate {populated:?}, release {released:?}");
    }

    let turn = Arc::new((AtomicU64::new(0), WaitQueue::new()));
    let rounds = 20_000_u64;
    let other = Arc::clone(&turn);
    env.spawn(
        "pong",
        Box::new(move |task| {
            for round in 0..rounds {
                task.wait_while(&other.1, Cause::Idle, None, |_| {
                    other.0.load(Ordering::Relaxed) != 2 * round + 1
                });
                other.0.store(2 * round + 2, Ordering::Relaxed);
                other.1.wake_all(Signal::Other);
            }
        }),
    )
    .expect("there are threads");
    let began = Instant::now();
    for round in 0..rounds {
        turn.0.store(2 * round + 1, Ordering::Relaxed);
        turn.1.wake_all(Signal::Other);
        task.wait_while(&turn.1, Cause::Idle, None, |_| {
            turn.0.load(Ordering::Relaxed) != 2 * round + 2
        });
    }
    println!(
        "ping-pong, round trip    {:8.0} ns",
        began.elapsed().as_nanos() as f64 / rounds as f64
    );

    println!("\nsleep      late: median      p90      max, us (entered thread, then spawned)");
    sleeps(&mut task);
    drop(task);
    env::spawn(&*env, "sleeper", sleeps).join(&mut env.enter());
    env.shutdown();
}

fn sleeps(task: &mut env::Task<'_, ThreadEnv>) {
    for millis in [1, 10, 50] {
        let mut late: Vec<u64> = (0..500 / (millis + 5))
            .map(|_| {
                let (began, pause) = (task.now(), Nanos::millis(millis));
                task.sleep(Cause::Think, pause);
                (task.now().since(began) - pause).0 / 1000
            })
            .collect();
        late.sort_unstable();
        let at = |percent: usize| late[(late.len() - 1) * percent / 100];
        println!(
            "{millis:4} ms          {:8} {:8} {:8}",
            at(50),
            at(90),
            at(100)
        );
    }
}

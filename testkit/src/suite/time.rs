//! Sleeps, deadlines, timers of devices, and the clock.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use policy::units::{Instant, Nanos};

use super::{Harness, PATIENCE, World, finish, must_wait, run_root, start, take_lock, until};
use env::{Cause, Host, Signal, Task, WaitQueue, Wakeup, Work, spawn};

/// Lengths of sleeps: none, below a tick, odd, and at and around whole milliseconds.
const PAUSES: [Nanos; 8] = [
    Nanos(0),
    Nanos(1),
    Nanos(1_000),
    Nanos(999_999),
    Nanos(1_000_000),
    Nanos(3_300_001),
    Nanos(10_000_000),
    Nanos(12_345_678),
];

/// A sleep lasts at least as long as asked and ends by its deadline, nothing else.
pub fn a_sleep_is_never_shorter_than_asked<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        for pause in PAUSES {
            let began = task.now();
            let wakeup = task.sleep(Cause::Think, pause);
            let took = task.now().since(began);
            assert_eq!(wakeup, Wakeup::TimedOut, "a sleep of {pause:?}");
            assert!(took >= pause, "a sleep of {pause:?} took {took:?}");
        }
    });
}

/// In virtual time a sleep ends at the tick at or after its deadline, and never later; a program's
/// own may end at its deadline.
pub fn a_sleep_ends_exactly_at_its_tick_in_virtual_time<H: Harness>(harness: &H) {
    let timing = harness.timing();
    let Some(wakes_at) = timing.wakes_at else {
        return;
    };
    run_root(harness, move |task| {
        let causes = [Cause::Idle, Cause::Think];
        for (cause, pause) in causes
            .iter()
            .flat_map(|cause| PAUSES.map(|pause| (*cause, pause)))
        {
            let began = task.now();
            let deadline = began + pause;
            // A deadline that has passed is no reason to wait for the next tick.
            let latest = if pause.is_zero() {
                deadline
            } else {
                wakes_at(deadline)
            };
            let earliest = if cause == Cause::Think {
                deadline
            } else {
                latest
            };
            task.sleep_until(cause, deadline);
            let now = task.now();
            assert!(
                now >= earliest,
                "a sleep of {pause:?} from {began:?} ended early, at {now:?}"
            );
            assert!(
                now <= latest + timing.slack,
                "a sleep of {pause:?} from {began:?} ended at {now:?}, not at {latest:?}"
            );
        }
    });
}

/// A waker used late, or by a queue left long ago, does not end a sleep.
pub fn a_wake_does_not_shorten_a_sleep<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let queue = WaitQueue::new();
        let mut looks = 0;
        must_wait(task, &queue, "a wait that ends before its park", |_| {
            looks += 1;
            if looks == 2 {
                queue.wake_one(Signal::Other);
            }
            looks < 2
        });
        let (began, pause) = (task.now(), Nanos::millis(4));
        let wakeup = task.sleep(Cause::Think, pause);
        let took = task.now().since(began);
        assert_eq!(
            wakeup,
            Wakeup::TimedOut,
            "a sleep after a wake that was not used"
        );
        assert!(
            took >= pause,
            "a remembered wake cut a sleep of {pause:?} to {took:?}"
        );
    });
}

/// Runs a waiter with a deadline beside a waker; answers how the wait ended and when.
fn wait_with_waker<H: Harness>(harness: &H, deadline: Nanos, wake: Nanos) -> (Wakeup, Nanos) {
    run_root(harness, move |task| {
        let shared = Arc::new((WaitQueue::new(), AtomicBool::new(true)));
        let began = task.now();
        let waker = {
            let shared = Arc::clone(&shared);
            spawn(task.env(), "waker", move |task| {
                task.sleep_until(Cause::Think, began + wake);
                shared.1.store(false, Ordering::SeqCst);
                shared.0.wake_all(Signal::Other);
            })
        };
        let wakeup = task.wait_while(&shared.0, Cause::Idle, Some(began + deadline), |_| {
            shared.1.load(Ordering::SeqCst)
        });
        let took = task.now().since(began);
        waker.join(task).expect("the waker ends");
        (wakeup, took)
    })
}

/// A wake well before the deadline ends the wait as `Ready`, at its time.
pub fn ready_before_the_deadline<H: Harness>(harness: &H) {
    // Long enough for a busy machine to have begun the wait.
    let wake = Nanos::millis(50);
    let (wakeup, took) = wait_with_waker(harness, PATIENCE, wake);
    assert_eq!(
        wakeup,
        Wakeup::Ready(Signal::Other),
        "woken after {wake:?} of {PATIENCE:?}"
    );
    assert!(took >= wake, "ready after {took:?}, before the wake");
    assert!(
        took < PATIENCE,
        "ready only at the deadline: the wake was lost"
    );
}

/// A wake at the very deadline: the condition holds, or does not hold yet; both are right, and the
/// answer must say which.
pub fn ready_at_the_deadline<H: Harness>(harness: &H) {
    for round in 0..5 {
        let at = Nanos::millis(4) + Nanos(round);
        let (wakeup, took) = wait_with_waker(harness, at, at);
        assert_ne!(wakeup, Wakeup::Cancelled, "a wake at the deadline");
        assert!(
            took >= at,
            "a wait until {at:?} ended after {took:?}, before wake and deadline"
        );
    }
}

/// A deadline that passes ends the wait, not before it, and the task leaves the queue.
pub fn a_deadline_that_passes_times_out<H: Harness>(harness: &H) {
    let timing = harness.timing();
    run_root(harness, move |task| {
        let queue = WaitQueue::new();
        for pause in PAUSES {
            let deadline = task.now() + pause;
            let wakeup = task.wait_while(&queue, Cause::Idle, Some(deadline), |_| true);
            let now = task.now();
            assert_eq!(
                wakeup,
                Wakeup::TimedOut,
                "a wait of {pause:?} that nobody ends"
            );
            assert!(
                now >= deadline,
                "a wait until {deadline:?} timed out early, at {now:?}"
            );
            if let (Some(wakes_at), false) = (timing.wakes_at, pause.is_zero()) {
                let latest = wakes_at(deadline) + timing.slack;
                assert!(
                    now <= latest,
                    "a wait until {deadline:?} timed out late, at {now:?}"
                );
            }
            assert!(
                queue.is_empty(),
                "a task that timed out is still in the queue"
            );
        }
        // Nobody is there to be woken in its place.
        assert_eq!(
            queue.wake_one(Signal::Other),
            0,
            "wake_one after all waits timed out"
        );
    });
}

/// A deadline in the past: no block, and the condition still decides the answer.
pub fn a_deadline_in_the_past_does_not_block<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        task.sleep(Cause::Think, Nanos::millis(1));
        let queue = WaitQueue::new();
        let past = Some(Instant::ZERO);
        let wakeup = task.wait_while(&queue, Cause::Idle, past, |_| true);
        assert_eq!(wakeup, Wakeup::TimedOut, "a deadline in the past, blocked");
        let wakeup = task.wait_while(&queue, Cause::Idle, past, |_| false);
        assert_eq!(
            wakeup,
            Wakeup::Ready(Signal::Seen),
            "a deadline in the past, not blocked"
        );
        let mut looks = 0;
        let wakeup = task.wait_while(&queue, Cause::Idle, past, |_| {
            looks += 1;
            looks < 3
        });
        assert_eq!(
            wakeup,
            Wakeup::Ready(Signal::AtDeadline),
            "ready at the look after the deadline"
        );
        assert_eq!(
            task.sleep_until(Cause::Think, Instant::ZERO),
            Wakeup::TimedOut
        );
    });
}

/// In a deterministic world, sleepers end in the order of their deadlines whatever the order of
/// their start.
pub fn sleepers_end_in_the_order_of_their_deadlines<H: Harness>(harness: &H) {
    if !harness.timing().deterministic {
        return;
    }
    run_root(harness, |task| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let start = task.now();
        let delays = [70_u64, 20, 50, 10, 60, 30, 40];
        for delay in delays {
            let log = Arc::clone(&log);
            spawn(task.env(), "sleeper", move |task| {
                task.sleep_until(Cause::Think, start + Nanos::millis(delay));
                take_lock(&log).push(delay);
            });
        }
        until(task, &"all sleepers", |_| {
            take_lock(&log).len() == delays.len()
        });
        assert_eq!(
            *take_lock(&log),
            [10, 20, 30, 40, 50, 60, 70],
            "order of sleepers"
        );
    });
}

/// No task reads a time before a time that any task has read already.
pub fn now_never_goes_back<H: Harness>(harness: &H) {
    run_root(harness, |task| {
        let latest = Arc::new(AtomicU64::new(0));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let latest = Arc::clone(&latest);
                spawn(task.env(), "reader of the clock", move |task| {
                    for round in 0..500_u64 {
                        let seen = latest.load(Ordering::SeqCst);
                        let now = task.now().0;
                        assert!(now >= seen, "now went back from {seen} to {now} ns");
                        latest.fetch_max(now, Ordering::SeqCst);
                        match round % 10 {
                            0 => drop(task.sleep(Cause::Think, Nanos::micros(round % 70))),
                            5 => task.did(Work::User, 20_000),
                            _ => task.did(Work::Scan, 3),
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join(task).expect("a reader ends");
        }
    });
}

/// Timers of a device run in the order of (time, call), and none before its time.
pub fn timers_of_the_host_run_in_order_and_never_early<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    world.run(move |task| {
        // A machine that stalls may come to their time before all have been handed over: that try
        // shows nothing.
        let in_time = (0..1000).any(|_| timers_in_order(task, device.host()));
        assert!(in_time, "timers were never handed over within 5 ms");
    });
    finish(&mut world);
}

/// True if all timers were handed over before the first one's time; then they have run in order.
fn timers_in_order(task: &mut Task<'_>, host: &Arc<dyn Host>) -> bool {
    let log = Arc::new(Mutex::new(Vec::new()));
    let start = host.now() + Nanos::millis(5);
    // (Delay in ms, which of those with that delay.)
    let timers = [(3_u64, 0), (1, 0), (2, 0), (1, 1), (3, 1), (1, 2), (2, 1)];
    for (delay, number) in timers {
        let when = start + Nanos::millis(delay);
        let (log, ours) = (Arc::clone(&log), Arc::clone(host));
        host.at(
            when,
            Box::new(move |_| {
                let now = ours.now();
                take_lock(&log).push((delay, number, now >= when));
            }),
        );
    }
    let is_shown = host.now() < start;
    until(task, &"all timers", |_| {
        take_lock(&log).len() == timers.len()
    });
    let (mut sorted, seen) = (
        timers.map(|(delay, number)| (delay, number, true)),
        take_lock(&log).clone(),
    );
    sorted.sort_unstable();
    assert!(
        seen.iter().all(|timer| timer.2),
        "timers that came early: {seen:?}"
    );
    if is_shown {
        assert_eq!(seen, sorted, "timers as (ms, number, not early)");
    }
    is_shown
}

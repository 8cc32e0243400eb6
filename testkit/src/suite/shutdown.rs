//! Shutdown: every wait ends as cancelled, no task is left, and no request is forgotten.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use policy::units::Nanos;

use super::{Harness, Reply, Script, World, finish, start, take_lock, until};
use env::{Cause, IoError, IoOp, Signal, WaitQueue, Wakeup, spawn};

/// Longer than any test runs.
const FOR_EVER: Nanos = Nanos::secs(100_000);

/// Notes how waits ended.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<(&'static str, Wakeup)>>>);

impl Ends {
    fn note(&self, what: &'static str, wakeup: Wakeup) {
        take_lock(&self.0).push((what, wakeup));
    }

    /// Asserts that exactly `what` ended, all of it cancelled.
    fn check(&self, what: &[&'static str]) {
        let mut ends = take_lock(&self.0).clone();
        ends.sort_unstable_by_key(|(name, _)| *name);
        let mut expected: Vec<_> = what.iter().map(|name| (*name, Wakeup::Cancelled)).collect();
        expected.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(ends, expected, "how waits ended at shutdown");
    }
}

/// Sleep, wait without and with deadline, join, and a wait for I/O all end with `Cancelled`.
pub fn every_kind_of_wait_is_cancelled<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    let ends = Ends::default();
    let noted = ends.clone();
    let held = Arc::clone(&device);
    world.run(move |task| {
        let begun = Arc::new(AtomicUsize::new(0));
        let queue = Arc::new(WaitQueue::new());
        let (ends, count) = (noted.clone(), Arc::clone(&begun));
        let sleeper = spawn(task.env(), "sleeper", move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            ends.note("sleep", task.sleep(Cause::Think, FOR_EVER));
        });
        for (name, deadline) in [("wait", None), ("wait until", Some(task.now() + FOR_EVER))] {
            let (ends, count, queue) = (noted.clone(), Arc::clone(&begun), Arc::clone(&queue));
            spawn(task.env(), name, move |task| {
                count.fetch_add(1, Ordering::SeqCst);
                ends.note(
                    name,
                    task.wait_while(&queue, Cause::Idle, deadline, |_| true),
                );
            });
        }
        let (ends, count) = (noted.clone(), Arc::clone(&begun));
        spawn(task.env(), "joiner", move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = sleeper.join(task);
            // The sleeper may have ended, cancelled, before this task looks.
            let _: Option<()> = answer;
            ends.note("join", Wakeup::Cancelled);
        });
        let (ends, count) = (noted, begun.clone());
        spawn(task.env(), "reader", move |task| {
            let reply = Arc::new(Reply::default());
            task.env().submit(reply.request(id, IoOp::Read));
            count.fetch_add(1, Ordering::SeqCst);
            ends.note(
                "io",
                reply.wait(task).expect_err("the device holds the request"),
            );
            assert!(
                held.complete_next(Err(IoError::Cancelled)),
                "the device holds the request"
            );
        });
        until(task, &"all to wait", |_| {
            begun.load(Ordering::SeqCst) == 5 && queue.len() == 2
        });
        task.sleep(Cause::Think, Nanos::millis(2));
    });
    finish(&mut world);
    ends.check(&["sleep", "wait", "wait until", "join", "io"]);
    assert_eq!(device.held(), 0, "requests that the device still holds");
}

/// A task that waits again after its wait was cancelled is not blocked again.
pub fn a_wait_begun_after_cancellation_is_cancelled<H: Harness>(harness: &H) {
    let (mut world, _) = start(harness, 2);
    let ends = Ends::default();
    let noted = ends.clone();
    world.run(move |task| {
        let queue = Arc::new(WaitQueue::new());
        let waited = Arc::clone(&queue);
        spawn(task.env(), "slow to end", move |task| {
            noted.note(
                "first",
                task.wait_while(&waited, Cause::Idle, None, |_| true),
            );
            noted.note(
                "second",
                task.wait_while(&waited, Cause::Idle, None, |_| true),
            );
            noted.note("sleep", task.sleep(Cause::Think, FOR_EVER));
            // A wake does not hide the cancellation.
            let mut looks = 0;
            let wakeup = task.wait_while(&waited, Cause::Idle, None, |_| {
                looks += 1;
                if looks == 2 {
                    waited.wake_all(Signal::Other);
                }
                true
            });
            noted.note("woken", wakeup);
            let wakeup = task.wait_while(&waited, Cause::Idle, None, |_| false);
            assert_eq!(
                wakeup,
                Wakeup::Ready(Signal::Seen),
                "a condition that holds is ready even at shutdown"
            );
        });
        until(task, &"the task to wait", |_| queue.len() == 1);
    });
    finish(&mut world);
    ends.check(&["first", "second", "sleep", "woken"]);
}

/// A task started by a task that is being cancelled runs, and its waits end.
pub fn tasks_started_while_shutting_down_end<H: Harness>(harness: &H) {
    let (mut world, _) = start(harness, 2);
    let ends = Ends::default();
    let noted = ends.clone();
    world.run(move |task| {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        spawn(task.env(), "parent", move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            noted.note("parent", task.sleep(Cause::Think, FOR_EVER));
            spawn(task.env(), "child", move |task| {
                noted.note("child", task.sleep(Cause::Think, FOR_EVER));
            });
        });
        until(task, &"the parent", |_| begun.load(Ordering::SeqCst) == 1);
        task.sleep(Cause::Think, Nanos::millis(1));
    });
    finish(&mut world);
    ends.check(&["parent", "child"]);
}

/// Shutting down again, and shutting down a world without tasks, does nothing.
pub fn shutdown_twice_is_fine<H: Harness>(harness: &H) {
    let (mut world, _) = start(harness, 1);
    world.shutdown();
    finish(&mut world);
    let (mut world, _) = start(harness, 2);
    world.run(|task| {
        spawn(task.env(), "left behind", |task| {
            task.sleep(Cause::Think, FOR_EVER)
        });
    });
    finish(&mut world);
    finish(&mut world);
}

/// Requests under way at shutdown, whose waiters were cancelled, still come back once.
pub fn a_cancelled_io_gives_its_request_back<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    let replies: Vec<_> = (0..8).map(|_| Arc::new(Reply::default())).collect();
    let submitted = replies.clone();
    world.run(move |task| {
        device.set_script(Script::After(Nanos::millis(20), Ok(())));
        for reply in submitted {
            task.env().submit(reply.request(id, IoOp::Write));
        }
    });
    finish(&mut world);
    for reply in replies {
        let answer = reply
            .take()
            .expect("a request under way at shutdown comes back");
        let fine = [Ok(()), Err(IoError::Cancelled)].contains(&answer.result);
        assert!(
            fine,
            "result of a request under way at shutdown: {:?}",
            answer.result
        );
    }
}

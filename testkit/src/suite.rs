//! The conformance suite that every `Env` passes.
//!
//! A case is a function `fn(&H)` over a `Harness`; it starts a world, runs one root task in it, and
//! panics with what was expected and what came. The cases know nothing of threads or of virtual
//! time: they wait, sleep and wake like any procedure, so a case that spins would be a bug here. A
//! case that an `Env` fails is a bug there, or a hole in the contract written at `Env`'s methods.
//!
//! Its use, in a test of the crate that has the `Env`:
//!
//! ```ignore
//! macro_rules! tests {
//!     ($($module:ident: $($case:ident)+;)+) => { $($(
//!         #[test]
//!         fn $case() { testkit::suite::$module::$case(&MyHarness) }
//!     )+)+ };
//! }
//! testkit::suite_cases!(tests);
//! ```
//!
//! or, in one test, `testkit::suite::run_all(&MyHarness)`.
//!
//! Vocabulary: a *world* is a started `Env` with one `TestDevice`, the *root* is the one task that
//! a case runs in it. Tasks that the root leaves behind are cancelled at the latest at shutdown.
//!
//! Every wait of a case has the deadline `PATIENCE` or ends by shutdown, so a lost wake-up is a
//! failure with a name and not a test that hangs.
//!
//! Source: docs/adr/0001 (sleepers are woken by the event they wait for); style A10.

mod content;
mod device;
pub mod hammer;
pub mod io;
pub mod shutdown;
pub mod tasks;
pub mod time;
pub mod wake;

pub use content::TestContent;
pub use device::{Answer, Reply, Script, TestDevice};

use core::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::units::{Instant, Nanos};

use env::{Cause, Device, DeviceId, Host, Task, WaitQueue, Wakeup};

/// Time that a case waits for an event that must come: past any delay of a busy machine.
const PATIENCE: Nanos = Nanos::secs(60);
/// Interval at which a case looks at a state that nobody wakes it for.
const POLL: Nanos = Nanos::micros(200);

/// The clock and the chance of an `Env`.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Virtual time: a wait with a deadline ends at this moment, exactly (plus `slack`). Live:
    /// none.
    pub wakes_at: Option<fn(deadline: Instant) -> Instant>,
    /// CPU time that the `Env` may charge for a wake-up before the task sees the clock.
    pub slack: Nanos,
    /// Equal seeds give equal random streams and the same order of tasks.
    pub deterministic: bool,
}

/// Makes the device of a world from what the `Env` gives to devices.
pub type MakeDevice<'a> = &'a dyn Fn(Arc<dyn Host>) -> Arc<dyn Device>;

/// Starts worlds of one kind of `Env`.
pub trait Harness {
    /// The world that it starts.
    type World: World;

    /// A fresh `Env` with `cpus` CPUs and one device. (Live, `cpus` is a wish.)
    fn start(&self, cpus: usize, seed: u64, device: MakeDevice<'_>) -> Self::World;

    /// The behaviour of its clock and its chance.
    fn timing(&self) -> Timing;
}

/// A started `Env`.
pub trait World {
    /// The number of the device that it was started with.
    fn device(&self) -> DeviceId;

    /// Runs a root task to its end, once per world; answers with what it returned. A panic of a
    /// task comes out here. Tasks left behind may be cancelled now or at shutdown.
    fn run<T: Send + 'static>(
        &mut self,
        root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
    ) -> T;

    /// Ends all waits with `Cancelled` and returns when no task is left. The second time: nothing.
    fn shutdown(&mut self);

    /// Tasks that have begun or will, and have not ended.
    fn tasks(&self) -> usize;
}

/// Names all cases, by module, to the macro given.
#[macro_export]
macro_rules! suite_cases {
    ($callback:ident) => {
        $callback! {
            wake:
                wake_one_is_first_come_first_served
                wake_answers_how_many_it_woke
                wake_all_wakes_only_those_waiting
                a_wake_before_the_park_is_remembered
                a_remembered_wake_counts_once
                a_wait_names_the_wake_that_ended_it
                a_condition_that_holds_needs_no_wait
                a_task_that_may_not_wait_is_refused_and_leaves_no_trace;
            time:
                a_sleep_is_never_shorter_than_asked
                a_sleep_ends_exactly_at_its_tick_in_virtual_time
                a_wake_does_not_shorten_a_sleep
                ready_before_the_deadline
                ready_at_the_deadline
                a_deadline_that_passes_times_out
                a_deadline_in_the_past_does_not_block
                sleepers_end_in_the_order_of_their_deadlines
                now_never_goes_back
                timers_of_the_host_run_in_order_and_never_early;
            hammer:
                ping_pong_loses_no_wake
                producers_and_consumers_lose_no_wake
                wakes_used_up_by_deadlines_are_passed_on
                locks_exclude
                locks_exclude_tasks_and_interrupts;
            tasks:
                join_gives_the_answer
                join_waits_for_a_task_that_waits
                tasks_start_tasks
                many_tasks_end
                cpus_are_in_range
                random_streams_differ_between_tasks
                random_streams_repeat_with_the_seed;
            io:
                a_completion_wakes_the_waiter
                errors_arrive_as_they_are
                a_completion_may_come_inside_submit
                many_requests_in_flight_all_come_back
                a_request_comes_back_as_it_went
                handlers_run_in_reverse_order_with_their_notes;
            shutdown:
                every_kind_of_wait_is_cancelled
                a_wait_begun_after_cancellation_is_cancelled
                tasks_started_while_shutting_down_end
                shutdown_twice_is_fine
                a_cancelled_io_gives_its_request_back;
        }
    };
}

/// A case and its name.
pub type Case<H> = (&'static str, fn(&H));

macro_rules! list_cases {
    ($($module:ident: $($case:ident)+;)+) => {
        /// All cases.
        #[must_use]
        pub fn cases<H: Harness>() -> Vec<Case<H>> {
            vec![$($((concat!(stringify!($module), "::", stringify!($case)), $module::$case::<H>)),+),+]
        }
    };
}
suite_cases!(list_cases);

/// Runs all cases one after the other, naming each on standard error before it begins.
///
/// # Panics
/// With the first case that fails.
pub fn run_all<H: Harness>(harness: &H) {
    for (name, case) in cases::<H>() {
        eprintln!("suite: {name}");
        case(harness);
    }
}

/// A world whose device is made by `TestDevice`, and that device.
fn start<H: Harness>(harness: &H, cpus: usize) -> (H::World, Arc<TestDevice>) {
    start_seeded(harness, cpus, 1)
}

fn start_seeded<H: Harness>(harness: &H, cpus: usize, seed: u64) -> (H::World, Arc<TestDevice>) {
    let made: Mutex<Option<Arc<TestDevice>>> = Mutex::new(None);
    let world = harness.start(cpus, seed, &|host| {
        let device = TestDevice::new(host);
        *take_lock(&made) = Some(Arc::clone(&device));
        device
    });
    let device = take_lock(&made)
        .take()
        .expect("a harness makes its device once, at the start");
    (world, device)
}

/// Runs `root` in a fresh world of two CPUs and shuts it down.
fn run_root<H: Harness, T: Send + 'static>(
    harness: &H,
    root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
) -> T {
    let (mut world, _) = start(harness, 2);
    let answer = world.run(root);
    finish(&mut world);
    answer
}

fn finish<W: World>(world: &mut W) {
    world.shutdown();
    let left = world.tasks();
    assert_eq!(left, 0, "tasks left after shutdown");
}

fn take_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `count` tasks are in `queue`.
fn until_waiting(task: &mut Task<'_>, queue: &WaitQueue, count: usize) {
    until(task, &format!("{count} tasks in the queue"), |_| {
        queue.len() == count
    });
}

/// Looks again and again until `holds`.
fn until(task: &mut Task<'_>, what: &dyn Display, mut holds: impl FnMut(&Task<'_>) -> bool) {
    let deadline = task.now() + PATIENCE;
    while !holds(task) {
        assert!(
            task.now() < deadline,
            "waited {PATIENCE:?} in vain for {what}"
        );
        let wakeup = task.sleep(Cause::Think, POLL);
        assert_eq!(
            wakeup,
            Wakeup::TimedOut,
            "a sleep of a running world, for {what}"
        );
    }
}

/// Waits in `queue` until the condition is no longer blocked; it must come.
fn must_wait(
    task: &mut Task<'_>,
    queue: &WaitQueue,
    what: &str,
    blocked: impl FnMut(&Task<'_>) -> bool,
) {
    let deadline = task.now() + PATIENCE;
    let wakeup = task.wait_while(queue, Cause::Idle, Some(deadline), blocked);
    assert!(
        wakeup.is_ready(),
        "{what}: {wakeup:?}: a wake-up was lost (waited {PATIENCE:?})"
    );
}

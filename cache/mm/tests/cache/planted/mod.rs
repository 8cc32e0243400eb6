//! Bugs that were planted on purpose: each is found by random plans, shrunk to a few steps, and
//! fails again in the same way from its file. Without the plant the same plans pass.
//!
//! A plant is a wrong device within all other layers, never an `if` in the product.

#![allow(
    clippy::unwrap_used,
    clippy::vec_box,
    reason = "a failure here is a failed test; a device is handed boxes"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use campaign::{Failure, Op, Plan, Plant, Setup, run, shrink};
use env::{Device, DeviceInfo, Host, IoOp, IoRequest, ObjectId};
use policy::units::{Bytes, Nanos};

/// Seeds until a planted bug has to be found.
const SEEDS: u64 = 100;
/// Our own time for shrinking one: it ends when nothing is found any more, however slow the machine
/// is.
const BUDGET: Duration = Duration::from_secs(600);

/// The one fault of a wrong device.
#[derive(Clone, Copy)]
enum Wrong {
    /// The first write of an object after a good flush of it ends well and is dropped.
    DropsAfterFlush,
    /// The third write goes to the page after its own.
    Misdirects,
    /// The third write is never completed: the task that waits for it is never woken.
    ForgetsToComplete,
    /// Flushes end well and do nothing.
    NeverFlushes,
    /// Every third write to the swap file ends well and is dropped.
    ForgetsMemory,
}

/// The object of the swap file.
const SWAP: ObjectId = ObjectId(14);

struct WrongDevice {
    wrong: Wrong,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writes: u64,
    swapped: u64,
    flushed: BTreeSet<ObjectId>,
    /// Requests that are never completed. It goes with the device.
    forgotten: Vec<Box<IoRequest>>,
}

impl WrongDevice {
    fn ends_well(&self, request: Box<IoRequest>) {
        self.host.after(
            Nanos::micros(100),
            Box::new(move |context| request.complete(context, Ok(()))),
        );
    }
}

impl Device for WrongDevice {
    fn submit(&self, mut request: Box<IoRequest>) {
        let mut state = self.state.lock().unwrap();
        let is_write = request.op == IoOp::Write;
        state.writes += u64::from(is_write);
        let to_swap = is_write && request.object == SWAP;
        state.swapped += u64::from(to_swap);
        let third = is_write && state.writes == 3;
        match self.wrong {
            Wrong::DropsAfterFlush if request.op == IoOp::Flush => {
                state.flushed.insert(request.object);
            }
            Wrong::DropsAfterFlush if is_write && state.flushed.remove(&request.object) => {
                drop(state);
                return self.ends_well(request);
            }
            Wrong::ForgetsMemory if to_swap && state.swapped.is_multiple_of(3) => {
                drop(state);
                return self.ends_well(request);
            }
            Wrong::Misdirects if third => request.offset = Bytes(request.offset.0 + 4096),
            Wrong::ForgetsToComplete if third => return state.forgotten.push(request),
            Wrong::NeverFlushes if request.op == IoOp::Flush => {
                drop(state);
                return self.ends_well(request);
            }
            _ => {}
        }
        drop(state);
        self.inner.submit(request);
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

fn planted(wrong: Wrong) -> Setup {
    let plant: Plant = Arc::new(move |_, inner, host| {
        Arc::new(WrongDevice {
            wrong,
            inner,
            host,
            state: Mutex::default(),
        })
    });
    Setup {
        plant: Some(plant),
        ..Setup::default()
    }
}

/// The first seed that meets the bug.
fn find(setup: &Setup, kinds: &[&str]) -> (Plan, Failure) {
    (1..=SEEDS)
        .find_map(|seed| {
            let plan = Plan::draw(seed);
            let failure = run(&plan, setup).err()?;
            kinds
                .contains(&failure.kind.as_str())
                .then_some((plan, failure))
        })
        .unwrap_or_else(|| panic!("{SEEDS} seeds do not meet the bug"))
}

fn is_found_and_shrunk(wrong: Wrong, kinds: &[&str], steps_max: usize) {
    let setup = planted(wrong);
    let (plan, failure) = find(&setup, kinds);
    assert!(
        run(&plan, &Setup::default()).is_ok(),
        "without the plant the plan passes"
    );
    let small = shrink(&plan, &setup, BUDGET).unwrap();
    assert_eq!(small.failure.kind, failure.kind);
    let steps: Vec<Op> = small
        .plan
        .tasks
        .iter()
        .flat_map(|task| task.ops.clone())
        .collect();
    let text = small.plan.to_toml();
    assert!(
        steps.len() <= steps_max && small.plan.devices.len() == 1 && small.plan.files.len() == 1,
        "{} steps after {} runs:\n{text}",
        steps.len(),
        small.runs
    );
    let again = Plan::from_toml(&text).unwrap();
    let failed = again.failed.clone().unwrap();
    let once_more = run(&again, &setup).unwrap_err();
    assert_eq!(
        once_more.kind, failed.kind,
        "replayed from its file:\n{text}"
    );
    assert_eq!(once_more.message, small.failure.message);
    assert!(
        run(&again, &Setup::default()).is_ok(),
        "and passes without the plant"
    );
}

#[test]
fn a_write_dropped_after_a_flush_is_found_and_shrunk() {
    let kinds = ["wrong-version", "not-durable", "lost-in-crash"];
    is_found_and_shrunk(Wrong::DropsAfterFlush, &kinds, 4);
}

#[test]
fn a_misdirected_write_is_found_and_shrunk() {
    let kinds = ["wrong-version", "not-durable", "lost-in-crash", "length"];
    is_found_and_shrunk(Wrong::Misdirects, &kinds, 4);
}

#[test]
fn a_completion_that_never_comes_is_found_and_shrunk() {
    let kinds = ["starvation", "stuck", "deadlock", "time-limit"];
    is_found_and_shrunk(Wrong::ForgetsToComplete, &kinds, 6);
}

#[test]
fn a_flush_that_does_nothing_is_found_and_shrunk() {
    let kinds = ["not-durable", "lost-in-crash"];
    is_found_and_shrunk(Wrong::NeverFlushes, &kinds, 2);
}

#[test]
fn anonymous_memory_that_does_not_come_back_is_found_and_shrunk() {
    is_found_and_shrunk(Wrong::ForgetsMemory, &["wrong-version"], 8);
}

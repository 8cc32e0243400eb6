//! Calls that may wait for a device, and hear signals meanwhile.
//!
//! Python runs the handlers of signals on its main thread alone. A call that this thread makes is
//! done by another one; an exception of a handler (`KeyboardInterrupt`) is its answer then, and the
//! call goes on by itself: a sync to its end, a write up to its next piece. Other threads do their
//! calls themselves.
//!
//! The threads that do the calls are kept for the next ones. In a child of a fork there are none.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::{errors, process};

/// Interval at which a call that waits looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(40);

type Job = Box<dyn FnOnce() + Send>;

/// Tells a call that nobody waits for it any more.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Threads without a call, and in which child of a fork.
static IDLE: Mutex<(u32, Vec<Sender<Job>>)> = Mutex::new((0, Vec::new()));

thread_local! {
    static HEARS: OnceCell<bool> = const { OnceCell::new() };
}

/// True on the thread that runs the handlers of signals.
pub(crate) fn hears(py: Python<'_>) -> bool {
    let ask = || {
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        main.eq(threading.call_method0("get_ident")?)
    };
    HEARS.with(|hears| *hears.get_or_init(|| ask().unwrap_or(false)))
}

/// Does `call` without the interpreter's lock, and handles signals meanwhile. It is told to stop
/// when nobody waits for it any more.
///
/// # Errors
/// The exception that a handler raised.
pub(crate) fn heard<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce(&Stop) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Stop::default();
    if !hears(py) {
        return Ok(py.detach(|| call(&stop)));
    }
    let (sender, receiver) = mpsc::channel();
    let own = stop.clone();
    let job: Job = Box::new(move || {
        // Nobody is left to hear it, maybe.
        let _ = sender.send(call(&own));
    });
    py.detach(|| hand_over(job));
    let receiver = Mutex::new(receiver);
    loop {
        let answer = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(LOOK_EVERY)
        });
        match answer {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py
                .check_signals()
                .inspect_err(|_| stop.0.store(true, Ordering::Relaxed))?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(pyo3::exceptions::PyRuntimeError::new_err(
                    "the call panicked; its words are on standard error",
                ));
            }
        }
    }
}

/// The answer of a call that may wait, as Python has it.
pub(crate) fn answer<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, tidegate::Error> + Send + 'static,
) -> PyResult<T> {
    heard(py, |_| call())?.map_err(errors::cache)
}

/// Has a kept thread do it, or a new one; where the system has none, does it here.
pub(crate) fn hand_over(job: Job) {
    // Held by another thread, of the parent maybe: there is none then.
    let kept = IDLE.try_lock().ok().and_then(|mut idle| {
        if idle.0 != process::forks() {
            // Those threads are not here: nothing of theirs is touched.
            idle.1.drain(..).for_each(std::mem::forget);
            idle.0 = process::forks();
        }
        idle.1.pop()
    });
    let job = match kept {
        Some(kept) => match kept.send(job) {
            Ok(()) => return,
            Err(refused) => refused.0,
        },
        None => job,
    };
    let (sender, receiver) = mpsc::channel::<Job>();
    let again = sender.clone();
    let builder = std::thread::Builder::new().name("tidegate call".into());
    let started = os::spawn(builder, move || {
        while let Ok(job) = receiver.recv() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            match IDLE.try_lock() {
                Ok(mut idle) => idle.1.push(again.clone()),
                Err(_) => return,
            }
        }
    });
    let unsent = if started.is_ok() {
        sender.send(job).err().map(|refused| refused.0)
    } else {
        Some(job)
    };
    if let Some(job) = unsent {
        job();
    }
}

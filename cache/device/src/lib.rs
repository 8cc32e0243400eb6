//! Wrappers that make any device slow, faulty, forgetful or traced: once for the lab and for live.
//!
//! A wrapper is an `env::Device` that holds another and knows of its surroundings only what an
//! `env::Host` gives: time, timers, chance. It is never an `if` in the code under test.
//!
//! ```text
//!   cache -> Trace -> Slow -> Faulty -> Volatile -> disk, or the lab's model of one
//! ```
//!
//! | wrapper | what it does to a request |
//! |---|---|
//! | `Slow` | serves `depth` at a time, each with a latency, at a rate; readers first |
//! | `Faulty` | fails it, tears it, holds it, or answers for a device that is full or gone |
//! | `Volatile` | takes writes into a cache that a crash empties; a flush makes them durable |
//! | `Meter` | counts what it moves, and how long the device has something to do |
//! | `Trace` | writes down when it came, what it was, how long it took and how it ended |
//!
//! `Layer::parse_stack` reads the program's `--device slow:rate=16MB,latency=2ms+trace`, `Stack`
//! puts the layers on a device.
//!
//! Invariants
//!   1. Every request that comes in is completed once, after `Stack::cancel` at the latest.
//!   2. No wrapper calls out (inner device, handlers, host) with its own lock held.
//!   3. A completion by a wrapper's own decision comes from a timer, not inside `submit`, so that a
//!      handler which submits again cannot recurse without end.
//!   4. Nothing grows without bound: rings, queues and caches have limits taken at the start.
//!
//! Source: style T6, A8.
#![forbid(unsafe_code)]

mod chance;
mod faulty;
mod link;
mod meter;
mod slow;
mod spec;
mod stack;
#[cfg(test)]
mod testing;
mod trace;
mod volatile;

pub use chance::Odds;
pub use faulty::{FaultPlan, Faulty, FaultyCounts};
pub use link::BytesPerSec;
pub use meter::{Meter, MeterReading};
pub use slow::{RateStep, Slow, SlowOptions};
pub use spec::{Layer, SpecError};
pub use stack::{Scratch, Stack, StackError};
pub use trace::{Trace, TraceRecord};
pub use volatile::{FrameCopy, Volatile, VolatileOptions};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::{Host, IoError, IoRequest};

/// Requests that a wrapper holds at most. Upper layers bound theirs by request slots, far below.
pub(crate) const HELD_MAX: usize = 1 << 16;

/// The answer to a request that finds `HELD_MAX` before it: EAGAIN.
pub(crate) const TOO_MANY: IoError = IoError::Failed { errno: 11 };

/// The answer to a failed read, write or flush: EIO.
pub(crate) const EIO: IoError = IoError::Failed { errno: 5 };

pub(crate) fn take_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Completes a request from a timer, as soon as may be after `delay`.
pub(crate) fn complete_later(
    host: &Arc<dyn Host>,
    delay: policy::units::Nanos,
    request: Box<IoRequest>,
    result: Result<(), IoError>,
) {
    host.after(
        delay,
        Box::new(move |context| request.complete(context, result)),
    );
}

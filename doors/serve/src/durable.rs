//! The clients that wait for something of a volume to be durable (`rounds.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::Volume;

use crate::job::Tell;

/// A client that wants something durable.
pub(crate) struct Asker {
    /// As the connection holds it: it is told of errors once.
    pub(crate) volume: Arc<Volume>,
    /// First byte and length; none: all of it.
    pub(crate) part: Option<(u64, u64)>,
    /// Takes the answer. Dropped without one, it says so itself.
    pub(crate) tell: Tell,
}

#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) waiting: Vec<Asker>,
    pub(crate) is_running: bool,
}

/// The flushes that wait for a volume to be durable.
#[derive(Default)]
pub(crate) struct Durable {
    whole: Mutex<Lane>,
    parts: Mutex<Lane>,
}

impl Durable {
    pub(crate) fn lane(&self, is_whole: bool) -> MutexGuard<'_, Lane> {
        let lane = if is_whole { &self.whole } else { &self.parts };
        lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Which replies to writes are held back, and until when.
//!
//! ```text
//!   taken in ──> fresh ──pace: None──> answered
//!                  └─pace: until t──> held ──t passed, pace: None──> answered; what came meanwhile is fresh
//! ```
//!
//! Bytes count from when they are taken in, also those of a write whose payload is still arriving: so one long write is
//! held up like many short ones.

use std::time::Instant;

use super::job::Place;
use crate::counters::Counters;

/// Over so many bytes taken in and not paid for, the connection is not read.
pub(super) const HELD_MAX: u64 = 256 << 10;

/// Writes that are taken in and not answered.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// On the account that is due next.
    pub(super) fresh: Vec<Place>,
    pub(super) fresh_bytes: u64,
    /// On the account of the stay under way.
    pub(super) held: Vec<Place>,
    pub(super) held_bytes: u64,
    /// The end of the stay under way.
    pub(super) until: Option<Instant>,
    /// When it began.
    since: Option<Instant>,
}

impl Hold {
    pub(super) fn is_full(&self) -> bool {
        self.fresh_bytes + self.held_bytes >= HELD_MAX
    }

    /// A stay begins for what is fresh, or the one under way goes on.
    pub(super) fn begin_or_go_on(&mut self, until: Instant, counters: &Counters) {
        if self.until.is_none() {
            core::mem::swap(&mut self.fresh, &mut self.held);
            self.held_bytes = core::mem::take(&mut self.fresh_bytes);
            self.since = Some(Instant::now());
            let held = &counters.held_total;
            held.fetch_add(
                self.held.len() as u64,
                core::sync::atomic::Ordering::Relaxed,
            );
        }
        self.until = Some(until);
    }

    /// What is answered next: the writes of the stay under way or, without one, the fresh ones.
    pub(super) fn due(&self) -> &[Place] {
        match self.until {
            Some(_) => &self.held,
            None => &self.fresh,
        }
    }

    /// Answers what is due; a stay under way is over.
    pub(super) fn release(&mut self, counters: &Counters, mut answer: impl FnMut(Place)) {
        if self.until.take().is_none() {
            self.fresh_bytes = 0;
            self.fresh.drain(..).for_each(answer);
            return;
        }
        if let Some(since) = self.since.take() {
            counters
                .held_for
                .note_many(since.elapsed(), self.held.len() as u64);
        }
        self.held_bytes = 0;
        self.held.drain(..).for_each(&mut answer);
    }
}

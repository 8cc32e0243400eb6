//! Which replies to writes are held back, and until when.
//!
//! ```text
//!   taken in ──> unpaced ──pace: None──> answered
//!                  └─pace: until t──> held ──t passed, pace: None──> answered; what came meanwhile is unpaced
//! ```
//!
//! Bytes count from when they are taken in, also those of a write whose payload is still arriving:
//! so one long write is held up like many short ones.

use std::time::Instant;

use crate::clients::Seen;
use crate::counters::Counters;
use crate::job::RequestId;

/// Above this many bytes taken in and not paid for, the connection is not read.
pub(super) const HELD_MAX: u64 = 256 << 10;

/// Writes that are taken in and not answered.
#[derive(Debug, Default)]
pub(super) struct PacedReplies {
    /// On the account that is due next.
    pub(super) unpaced: Vec<RequestId>,
    pub(super) unpaced_bytes: u64,
    /// On the account of the pause under way.
    pub(super) held: Vec<RequestId>,
    pub(super) held_bytes: u64,
    /// The end of the pause under way.
    pub(super) until: Option<Instant>,
    /// When it began.
    since: Option<Instant>,
}

impl PacedReplies {
    pub(super) fn is_full(&self) -> bool {
        self.unpaced_bytes + self.held_bytes >= HELD_MAX
    }

    /// A pause begins for what is unpaced, or the one under way goes on.
    pub(super) fn begin_or_go_on(&mut self, until: Instant, counters: &Counters) {
        if self.until.is_none() {
            core::mem::swap(&mut self.unpaced, &mut self.held);
            self.held_bytes = core::mem::take(&mut self.unpaced_bytes);
            self.since = Some(Instant::now());
            let held = &counters.held_total;
            held.fetch_add(
                self.held.len() as u64,
                core::sync::atomic::Ordering::Relaxed,
            );
        }
        self.until = Some(until);
    }

    /// The next to be answered: the writes of the pause under way or, without one, the unpaced
    /// ones.
    pub(super) fn due(&self) -> &[RequestId] {
        match self.until {
            Some(_) => &self.held,
            None => &self.unpaced,
        }
    }

    /// Answers those that are due; a pause under way has ended.
    pub(super) fn release(
        &mut self,
        (counters, seen): (&Counters, &Seen),
        mut answer: impl FnMut(RequestId),
    ) {
        if self.until.take().is_none() {
            self.unpaced_bytes = 0;
            self.unpaced.drain(..).for_each(answer);
            return;
        }
        if let Some(since) = self.since.take() {
            let (time, replies) = (since.elapsed(), self.held.len());
            counters.held_for.note_many(time, replies as u64);
            seen.held(time, replies);
        }
        self.held_bytes = 0;
        self.held.drain(..).for_each(&mut answer);
    }
}

//! Syncs of a file that are carried out together.
//!
//! A sync of few pages that comes while another one is carried out waits for the next round, which
//! one of those that wait carries out for all of them: their pages in as few requests as there are
//! runs, one length, one flush.
//!
//! ```text
//!   A  ask ─> leads round 1: write ── flush ─> done
//!   B     ask ─> waits ─────────────────────────> leads round 2: write ── flush ─> done
//!   C         ask ─> waits ──────────────────────────────────────────────────────> done
//! ```
//!
//! Invariants
//!   1. A round has the parts of tasks that asked before it began, and no others: so its flush
//!      covers what they wrote.
//!   2. A round is led by one task, and one is carried out at a time.
//!   3. A round that went well answers all its tasks. After one that failed each does its own
//!      part: the failure may be another one's.

use env::{Cause, Interrupt, Lock, LockClass, Signal, Task, WaitQueue};

use crate::Error;

/// Pages of a file, the first and the last.
pub(crate) type Part = (u32, u32);

/// Errors of a file that its holder has already reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenErrors {
    /// Failed writes of the file (`Mapping::error_seq`).
    pub(crate) writes: u64,
    /// Failed flushes of its device (`DeviceState::flush_failures`).
    pub(crate) flushes: u64,
}

/// The result of a sync, before a holder has taken its answer from it.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    pub(crate) done: Result<(), Error>,
    /// Failed writes of the file, and failed flushes of its device, when it began.
    pub(crate) before: SeenErrors,
}

impl Synced {
    fn failed(error: Error) -> Self {
        let before = SeenErrors {
            writes: 0,
            flushes: 0,
        };
        Self {
            done: Err(error),
            before,
        }
    }
}

/// Results that are kept for tasks that have yet to run since they were woken.
const KEPT: usize = 8;

/// The rounds of a file, or of its parts.
pub(crate) struct Rounds {
    state: Lock<State>,
    /// Tasks of rounds with an even number, and of those with an odd one.
    wait: [WaitQueue; 2],
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            state: Lock::new(LockClass::Leaf, State::default()),
            wait: Default::default(),
        }
    }
}

#[derive(Default)]
struct State {
    /// The number of the last that has begun.
    begun: u64,
    is_running: bool,
    /// Tasks that are in the next one, and their parts.
    tasks: u32,
    parts: Vec<Part>,
    /// The last that went well.
    results: [Option<(u64, Synced)>; KEPT],
}

impl State {
    fn has_ended(&self, number: u64) -> bool {
        self.begun > number || self.begun == number && !self.is_running
    }
}

/// The place of a round, or of its queue.
fn place(number: u64, of: usize) -> usize {
    usize::try_from(number % of as u64).expect("below it")
}

/// A round is carried out until this goes.
struct Led<'a> {
    rounds: &'a Rounds,
    number: u64,
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        let Self { rounds, number } = self;
        rounds.state.lock(&Interrupt::new()).is_running = false;
        let of = |number| &rounds.wait[place(number, 2)];
        // The task that leads the next one first: the device has nothing to do.
        of(*number + 1).wake_one(Signal::SyncEnded);
        of(*number).wake_all(Signal::SyncEnded);
        // Meanwhile a later one may have ended, and its wake a task of this one, which stood before
        // those of the same queue.
        let context = Interrupt::new();
        let state = rounds.state.lock(&context);
        let next = state.begun + 1;
        let is_left = next > *number + 1 && !state.is_running && state.tasks > 0;
        drop(state);
        if is_left {
            of(next).wake_all(Signal::SyncEnded);
        }
    }
}

impl Rounds {
    /// Has `parts` synced in the next round; a task does by `carry_out` what all want of its round,
    /// or what it wants itself.
    pub(crate) fn join(
        &self,
        task: &mut Task<'_>,
        parts: &[Part],
        carry_out: impl Fn(&mut Task<'_>, &[Part]) -> Synced,
    ) -> Synced {
        let number = {
            let mut state = self.state.lock(task);
            state.tasks += 1;
            state.parts.extend_from_slice(parts);
            state.begun + 1
        };
        let mut leads = None;
        let wait = &self.wait[place(number, 2)];
        let wakeup = task.wait_while(wait, Cause::DeviceFlush, None, |task| {
            let mut state = self.state.lock(task);
            let is_free = state.begun < number && !state.is_running;
            if is_free {
                state.begun = number;
                state.is_running = true;
                let tasks = core::mem::take(&mut state.tasks);
                leads = Some((tasks, core::mem::take(&mut state.parts)));
            }
            !is_free && !state.has_ended(number)
        });
        let synced = if let Some((tasks, mut all)) = leads {
            let led = Led {
                rounds: self,
                number,
            };
            merge(&mut all);
            let synced = carry_out(task, &all);
            if synced.done.is_ok() {
                self.state.lock(task).results[place(number, KEPT)] = Some((number, synced));
            }
            drop(led);
            (synced.done.is_ok() || tasks == 1).then_some(synced)
        } else if let Err(error) = Error::after(wakeup) {
            Some(Synced::failed(error))
        } else {
            let kept = self.state.lock(task).results[place(number, KEPT)];
            kept.filter(|kept| kept.0 == number).map(|kept| kept.1)
        };
        synced.unwrap_or_else(|| carry_out(task, parts))
    }
}

/// Sorts parts and makes one of those that touch.
fn merge(parts: &mut Vec<Part>) {
    parts.sort_unstable();
    parts.dedup_by(|next, before| {
        let touches = next.0 <= before.1.saturating_add(1);
        if touches {
            before.1 = before.1.max(next.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_touch_become_one() {
        let mut parts = vec![(7, 9), (0, 3), (4, 4), (2, 3), (11, u32::MAX), (20, 30)];
        merge(&mut parts);
        assert_eq!(parts, [(0, 4), (7, 9), (11, u32::MAX)]);
    }
}

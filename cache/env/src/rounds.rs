//! Syncs that are carried out together.
//!
//! A sync that comes while another one is carried out waits for the next round, which one of those
//! that wait carries out for all of them.
//!
//! ```text
//!   A  ask ─> leads round 1 ─────> done
//!   B     ask ─> waits ──────────────> leads round 2 ─────> done
//!   C         ask ─> waits ───────────────────────────────> done
//! ```
//!
//! Invariants
//!   1. A round has what tasks wanted that asked before it began, and nothing else: so its flush
//!      covers what they wrote.
//!   2. A round is led by one task, and one is carried out at a time.
//!   3. A round that went well answers all its tasks. After one that failed each does its own
//!      part: the failure may be another one's.
//!   4. The tasks of a round wait in a queue of its own: a task of another round uses up no wake of
//!      theirs (model: tests/loom.rs).

use std::sync::{Arc, OnceLock};

use crate::{Cause, Interrupt, Lock, LockClass, Signal, Task, WaitQueue, Wakeup};

/// The rounds of one thing that is synced: of wants `W`, with an answer `A`.
pub struct Rounds<W, A> {
    state: Lock<State<W, A>>,
}

struct State<W, A> {
    is_running: bool,
    next: Arc<Round<A>>,
    /// Tasks that are in the next one, and what they want.
    tasks: u32,
    wants: Vec<W>,
}

struct Round<A> {
    /// Set at its end: the answer, if it went well.
    end: OnceLock<Option<A>>,
    wait: WaitQueue,
}

impl<W, A> State<W, A> {
    fn new(is_running: bool) -> Self {
        let next = Round {
            end: OnceLock::new(),
            wait: WaitQueue::new(),
        };
        Self {
            is_running,
            next: Arc::new(next),
            tasks: 0,
            wants: Vec::new(),
        }
    }
}

impl<W, A> Default for Rounds<W, A> {
    fn default() -> Self {
        Self {
            state: Lock::new(LockClass::Leaf, State::new(false)),
        }
    }
}

/// A round is carried out until this goes.
struct Led<'a, W, A> {
    rounds: &'a Rounds<W, A>,
    round: Arc<Round<A>>,
}

impl<W, A> Drop for Led<'_, W, A> {
    fn drop(&mut self) {
        // Set already, if it went well.
        let _ = self.round.end.set(None);
        let next = {
            let context = Interrupt::new();
            let mut state = self.rounds.state.lock(&context);
            state.is_running = false;
            Arc::clone(&state.next)
        };
        // The task that leads the next one first: the device has nothing to do.
        next.wait.wake_one(Signal::SyncEnded);
        self.round.wait.wake_all(Signal::SyncEnded);
    }
}

impl<W: Clone, A: Clone> Rounds<W, A> {
    /// Has `wants` synced in the next round; a task does by `carry_out` what all want of its round,
    /// or what it wants itself.
    ///
    /// # Errors
    /// The wakeup that ended the wait instead: `Cancelled`, `Refused`.
    pub fn join(
        &self,
        task: &mut Task<'_>,
        wants: &[W],
        carry_out: impl Fn(&mut Task<'_>, Vec<W>) -> A,
        went_well: impl Fn(&A) -> bool,
    ) -> Result<A, Wakeup> {
        let round = {
            let mut state = self.state.lock(task);
            state.tasks += 1;
            state.wants.extend_from_slice(wants);
            Arc::clone(&state.next)
        };
        let mut leads = None;
        let wakeup = task.wait_while(&round.wait, Cause::DeviceFlush, None, |task| {
            let mut state = self.state.lock(task);
            if state.is_running || !Arc::ptr_eq(&state.next, &round) {
                return round.end.get().is_none();
            }
            leads = Some(core::mem::replace(&mut *state, State::new(true)));
            false
        });
        let answer = if let Some(all) = leads {
            let led = Led {
                rounds: self,
                round,
            };
            let answer = carry_out(task, all.wants);
            let is_common = went_well(&answer);
            if is_common {
                let _ = led.round.end.set(Some(answer.clone()));
            }
            (is_common || all.tasks == 1).then_some(answer)
        } else if let Wakeup::Cancelled | Wakeup::Refused = wakeup {
            return Err(wakeup);
        } else {
            round.end.get().cloned().flatten()
        };
        Ok(answer.unwrap_or_else(|| carry_out(task, wants.to_vec())))
    }
}

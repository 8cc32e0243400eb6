//! The barrier at which the tasks of one program wait for each other between two rounds.
//!
//! ```text
//!   task 0  |---- round 0 ----| waits ..........|---- round 1 ----
//!   task 1  |------- round 0 ---------| waits ..|---- round 1 ----
//!   task 2  |----------- round 0 ---------------|---- round 1 ----
//!           ^ began                             ^ the last one is here: round 0 took this long
//! ```
//!
//! Invariants
//!   1. No task is in a round before all that have not left have ended the one before.
//!   2. A task that leaves, however its work ended, is waited for by nobody.

use env::{Cause, Lock, LockClass, Signal, Task, WaitQueue, Wakeup};
use policy::units::{Instant, Nanos};

use crate::Failure;

/// A round that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// When.
    pub(crate) ended: Instant,
    /// The time since the one before.
    pub(crate) took: Nanos,
}

/// A meeting place of a fixed number of tasks.
#[derive(Debug)]
pub struct Barrier {
    state: Lock<State>,
    queue: WaitQueue,
}

#[derive(Debug)]
struct State {
    /// Tasks that have not left.
    members: u32,
    /// Those of them that have ended the round.
    here: u32,
    round: u64,
    /// When the round began; nothing before the first.
    began: Option<Instant>,
}

impl State {
    /// All are here: a new round begins. Answers the old one.
    fn turn(&mut self, now: Instant) -> Round {
        self.here = 0;
        self.round += 1;
        let began = self.began.replace(now);
        Round {
            ended: now,
            took: now.since(began.unwrap_or(now)),
        }
    }
}

impl Barrier {
    /// A barrier for `members` tasks; each of them has to begin, and to leave.
    #[must_use]
    pub fn of(members: u32) -> Self {
        Self {
            state: Lock::new(
                LockClass::Leaf,
                State {
                    members,
                    here: 0,
                    round: 0,
                    began: None,
                },
            ),
            queue: WaitQueue::new(),
        }
    }

    /// A task begins its first round: with the first one's, that of all has begun.
    pub(crate) fn begin(&self, task: &Task<'_>) {
        let now = task.now();
        self.state.lock(task).began.get_or_insert(now);
    }

    /// Waits for all others. A task that comes last is told of the round.
    ///
    /// # Errors
    /// `Cache(Cancelled)`: the environment shuts down.
    pub(crate) fn meet(&self, task: &mut Task<'_>) -> Result<Option<Round>, Failure> {
        let (number, ended) = {
            let mut state = self.state.lock(task);
            let now = task.now();
            state.here += 1;
            let last = state.here == state.members;
            (state.round, last.then(|| state.turn(now)))
        };
        if ended.is_some() {
            self.queue.wake_all(Signal::Other);
            return Ok(ended);
        }
        let others = |task: &Task<'_>| self.state.lock(task).round == number;
        match task.wait_while(&self.queue, Cause::Join, None, others) {
            Wakeup::Ready(_) => Ok(None),
            Wakeup::Cancelled | Wakeup::TimedOut | Wakeup::Refused => Err(Failure::CANCELLED),
        }
    }

    /// A task is done with all rounds. If the others have waited for it alone, they go on.
    pub(crate) fn leave(&self, task: &Task<'_>) {
        let now = task.now();
        let all_here = {
            let mut state = self.state.lock(task);
            state.members -= 1;
            let all_here = state.members > 0 && state.here == state.members;
            if all_here {
                state.turn(now);
            }
            all_here
        };
        if all_here {
            self.queue.wake_all(Signal::Other);
        }
    }
}

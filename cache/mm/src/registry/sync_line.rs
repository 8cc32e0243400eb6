//! Small syncs of a file, one at a time: those that come while one is under way are the next,
//! together, whatever their number.
//!
//! ```text
//!   sync --> nobody at it: leads, with all that stand in line
//!        '-> joins the line --> the one before has ended: one of them leads --> all take its result
//! ```
//!
//! Invariants
//!   1. One small sync of a file is carried out at a time; large ones go beside it.
//!   2. A sync that leads begins after all that joined it came, so its result is theirs.
//!   3. Those in line are not forgotten: the end of a sync wakes one of them, and a task that does
//!      not want to lead any more passes the wake on (`Task::wait_while`). A task that comes
//!      between leads in its place.

use core::mem;
use std::sync::{Arc, OnceLock};

use env::{Cause, Signal, Task, WaitQueue};

use crate::Error;
use crate::registry::mapping::Mapping;

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

/// The line of a file.
#[derive(Default)]
pub(crate) struct SyncLine {
    led: bool,
    next: Option<Arc<Group>>,
    /// The parts that those in line ask for.
    parts: Vec<Part>,
}

/// Syncs that are carried out as one.
#[derive(Default)]
struct Group {
    result: OnceLock<Synced>,
    wait: WaitQueue,
}

impl SyncLine {
    fn is_next(&self, group: &Arc<Group>) -> bool {
        !self.led
            && self
                .next
                .as_ref()
                .is_some_and(|next| Arc::ptr_eq(next, group))
    }
}

/// Leads until it goes.
struct Leader<'a, 'e> {
    task: &'a mut Task<'e>,
    mapping: &'a Mapping,
    group: Option<Arc<Group>>,
}

impl Leader<'_, '_> {
    fn carry_out(self, work: impl FnOnce(&mut Task<'_>, &[Part]) -> Synced) -> Synced {
        let parts = mem::take(&mut self.mapping.line.lock(&*self.task).parts);
        let synced = work(self.task, &joined(parts));
        if let Some(group) = &self.group {
            // It is written here only.
            let _ = group.result.set(synced);
        }
        synced
    }
}

impl Drop for Leader<'_, '_> {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.wait.wake_all(Signal::SyncEnded);
        }
        let next = {
            let mut line = self.mapping.line.lock(&*self.task);
            line.led = false;
            line.next.clone()
        };
        if let Some(next) = next {
            next.wait.wake_one(Signal::SyncEnded);
        }
    }
}

/// Has `work` sync these parts of a file with those that others ask for, in this task or another.
///
/// # Errors
/// `Cancelled`.
pub(crate) fn sync_together(
    task: &mut Task<'_>,
    mapping: &Mapping,
    parts: &[Part],
    work: impl FnOnce(&mut Task<'_>, &[Part]) -> Synced,
) -> Result<Synced, Error> {
    let mut joined = None;
    loop {
        let lead = {
            let mut line = mapping.line.lock(task);
            if joined.is_none() {
                line.parts.extend_from_slice(parts);
            }
            let may_lead = joined.as_ref().is_none_or(|group| line.is_next(group));
            if may_lead && !line.led {
                line.led = true;
                Some(line.next.take())
            } else {
                joined.get_or_insert_with(|| Arc::clone(line.next.get_or_insert_default()));
                None
            }
        };
        if let Some(group) = lead {
            let leader = Leader {
                task,
                mapping,
                group,
            };
            return Ok(leader.carry_out(work));
        }
        if let Some(group) = &joined {
            Error::after(
                task.wait_while(&group.wait, Cause::DeviceFlush, None, |task| {
                    group.result.get().is_none() && !mapping.line.lock(task).is_next(group)
                }),
            )?;
            if let Some(synced) = group.result.get() {
                return Ok(*synced);
            }
        }
    }
}

/// Parts that touch each other as one.
fn joined(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable();
    parts.dedup_by(|next, before| {
        let touches = next.0 <= before.1.saturating_add(1);
        if touches {
            before.1 = before.1.max(next.1);
        }
        touches
    });
    parts
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn parts_that_touch_are_one() {
        let last = u32::MAX;
        for (parts, wanted) in [
            (vec![], vec![]),
            (vec![(3, 3), (0, 0)], vec![(0, 0), (3, 3)]),
            (vec![(1, 1), (0, 0), (1, 1), (2, 5)], vec![(0, 5)]),
            (vec![(7, 9), (0, last), (3, 3)], vec![(0, last)]),
            (vec![(9, 9), (5, 8), (0, 3)], vec![(0, 3), (5, 9)]),
        ] {
            assert_eq!(joined(parts), wanted);
        }
    }
}

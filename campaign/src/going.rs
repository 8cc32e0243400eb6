//! The end of a run, as its tasks meet it.

use env::{Cause, Task, Wakeup};
use policy::units::Nanos;

/// The run has ended.
pub(crate) struct Over;

pub(crate) type Going = Result<(), Over>;

pub(crate) fn pause(task: &mut Task<'_>, time: Nanos) -> Going {
    match task.sleep(Cause::Think, time) {
        Wakeup::Cancelled | Wakeup::Refused => Err(Over),
        Wakeup::Ready(_) | Wakeup::TimedOut => Ok(()),
    }
}

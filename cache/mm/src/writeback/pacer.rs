//! The state of a writer for pacing it: its number in the law, the pages it has dirtied and was not
//! paused for yet, the errors it has reported.

use env::{Cause, Event, Task, Wakeup};
use policy::dirty::{DeviceIndex, Domain, Teller, Untold, WriterIndex};
use policy::units::{Instant, Pages};

use crate::Error;
use crate::registry::device::DeviceState;

/// A writer, as `balance` knows it.
#[derive(Debug)]
pub(crate) struct Pacer {
    pub(crate) id: u32,
    pub(crate) index: WriterIndex,
    /// For each device slot: how many errors this writer has already reported, and the serial of
    /// the device it counted them for.
    seen_errors: Vec<(u64, u64)>,
    pub(crate) account: Account,
}

impl Pacer {
    pub(crate) fn new(id: u32, index: WriterIndex, seen_errors: Vec<(u64, u64)>) -> Self {
        Self {
            id,
            index,
            seen_errors,
            account: Account::default(),
        }
    }

    /// Errors of a device that it has reported. A device younger than the writer had none before.
    pub(crate) fn seen_errors(&mut self, device: &DeviceState) -> &mut u64 {
        let at = usize::from(device.index.0);
        if at >= self.seen_errors.len() {
            self.seen_errors.resize(at + 1, (0, 0));
        }
        let (serial, seen) = &mut self.seen_errors[at];
        if *serial != device.serial {
            (*serial, *seen) = (device.serial, 0);
        }
        seen
    }
}

/// Pages that a writer has dirtied and was not paused for yet.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Pages that the law was not told of yet.
    pub(super) untold: Untold,
    /// Pages that a balance is due for, by device: mostly one.
    pub(super) due: Vec<(DeviceIndex, Pages)>,
    /// A balance under way, of that device, in a pause.
    pub(super) paused: Option<(DeviceIndex, Pause)>,
}

/// One sleep of a balance.
#[derive(Debug)]
pub(crate) struct Pause {
    pub(super) cause: Cause,
    pub(super) until: Instant,
    /// When it was answered to a task that may not block; none: the task sleeps itself.
    pub(super) answered: Option<Instant>,
}

impl Account {
    /// True if a balance is due that has not begun.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Tells the law what was not told of yet, and of `more`; notes what is due then.
    pub(super) fn tell(
        &mut self,
        domain: &mut Domain,
        by: Teller<'_>,
        more: Option<(DeviceIndex, Pages)>,
    ) {
        let all = &mut self.due;
        self.untold.tell(domain, by, more, |device, due| {
            let earlier = all.iter_mut().find(|(other, _)| *other == device);
            match earlier {
                Some((_, pages)) if due.replaces => *pages = (*pages).at_least(due.pages),
                Some((_, pages)) => *pages = pages.saturating_add(due.pages),
                None => all.push((device, due.pages)),
            }
        });
    }

    /// The end of the pause that is under way, if it is yet to come.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        let (_, pause) = self.paused.as_ref()?;
        (now < pause.until).then_some(pause.until)
    }
}

impl Pause {
    /// Sees the pause to its end.
    pub(super) fn end(self, task: &mut Task<'_>) -> Result<(), Error> {
        let now = task.now();
        if let Some(since) = self.answered {
            task.emit(&Event::Waited {
                cause: self.cause,
                waited: now.min(self.until).since(since),
                wakeup: Wakeup::TimedOut,
            });
            if now >= self.until {
                return Ok(());
            }
        }
        Error::after(task.sleep_until(self.cause, self.until))
    }
}

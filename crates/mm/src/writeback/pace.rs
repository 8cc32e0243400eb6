//! Pacing for writers that may not wait: what they owe is kept, and whoever serves them is told until when each is to be
//! held.
//!
//! ```text
//!   try_write ──dirtied──> owed ──pace──> a stay under way ──pace at its deadline──> over: None
//!                            ^                   |                                  or another pause: Some(t)
//!                            '--- dirtied meanwhile: the next stay
//! ```
//!
//! The law, its verdicts and their order are those of `dirty`; what is a sleep there is a deadline here. A pause is told
//! to `Env` as the wait that it is, once, when it is over.

use core::fmt;
use std::sync::Arc;

use core::sync::atomic::Ordering;

use env::{Cause, Env, Event, Interrupt, Task, Wakeup};
use policy::dirty::{DeviceIndex, Episode, Law, Verdict};
use policy::units::{Instant, Pages};

use crate::cache::Cache;
use crate::registry::device::DeviceState;
use crate::writeback::dirty::{ask, begin_pause, cause_of};
use crate::{Error, Writer};

/// What a writer that may not wait has dirtied and was not held for yet.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Pages that a balance is due for, by device: mostly one.
    owed: Vec<(DeviceIndex, Pages)>,
    stay: Option<Stay>,
}

/// A stay under way: the writer is held.
struct Stay {
    episode: Episode,
    device: DeviceIndex,
    cause: Cause,
    since: Instant,
    until: Instant,
}

impl fmt::Debug for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stay")
            .field("device", &self.device)
            .field("cause", &self.cause)
            .field("since", &self.since)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// Whether a balance is due that was not asked for yet.
    pub(crate) fn is_due(&self) -> bool {
        !self.owed.is_empty()
    }

    /// A balance over `pages` is due. `again`: the law counts those of an earlier one that was not asked for once more.
    fn owe(&mut self, device: DeviceIndex, pages: Pages, again: bool) {
        match self.owed.iter_mut().find(|(other, _)| *other == device) {
            Some((_, owed)) if again => *owed = (*owed).at_least(pages),
            Some((_, owed)) => *owed = owed.saturating_add(pages),
            None => self.owed.push((device, pages)),
        }
    }
}

/// The writer has dirtied `pages`: accounts them, and keeps what is due.
pub(crate) fn keep_account<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    device: &DeviceState<E>,
    writer: &mut Writer,
    pages: Pages,
) {
    if pages.is_zero() {
        return;
    }
    let (now, cpu) = (task.now(), task.cpu());
    task.emit(&Event::Dirtied {
        device: device.index,
        pages,
    });
    let due = {
        let mut domain = cache.writeback.domain.lock(task);
        domain.on_dirtied(now, &mut writer.state, device.index, cpu, pages)
    };
    if let Some(pages) = due {
        // Its count goes on until a verdict closes it.
        let again = cache.options.dirty.law == Law::RateBased;
        writer.account.owe(device.index, pages, again);
    }
}

/// Until when the writer is held for what it owed when its stay began; `None`: it may go on.
pub(crate) fn pace<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    writer: &mut Writer,
) -> Result<Option<Instant>, Error> {
    if let Some(stay) = &writer.account.stay {
        let until = stay.until;
        if task.now() < until {
            return Ok(Some(until));
        }
    }
    if cache.registry.stopping.load(Ordering::Acquire) {
        return Err(Error::Cancelled);
    }
    let Some(stay) = writer.account.stay.take() else {
        while let Some((index, pages)) = writer.account.owed.pop() {
            let episode = cache.writeback.domain.lock(task).begin(index, pages);
            let held = next(task, cache, writer, index, episode);
            if held.is_some() {
                return Ok(held);
            }
        }
        return Ok(None);
    };
    task.emit(&Event::Waited {
        cause: stay.cause,
        waited: stay.until.since(stay.since),
        wakeup: Wakeup::TimedOut,
    });
    let device = cache.device(task, stay.device);
    // A device that fails meanwhile may not clear anything for a long time.
    device.admit(task, writer.told(&device))?;
    Ok(next(task, cache, writer, stay.device, stay.episode))
}

/// Asks the law once more; a pause is noted in the account.
fn next<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    writer: &mut Writer,
    index: DeviceIndex,
    mut episode: Episode,
) -> Option<Instant> {
    let device = cache.device(task, index);
    let (verdict, now) = loop {
        match ask(task, cache, &device, writer, &mut episode) {
            // It cannot be done here: the flusher is to, and the writer, which has written nothing, naps meanwhile.
            (Verdict::WriteYourself { pages }, _) => {
                device.want(pages);
                episode.wrote(Pages::ZERO);
            }
            answer => break answer,
        }
    };
    match verdict {
        Verdict::Done { start_background } => {
            if start_background {
                device.kick();
            }
            None
        }
        Verdict::WriteYourself { .. } => unreachable!("it was answered above"),
        Verdict::Pause {
            pause,
            why,
            start_background,
        } => {
            begin_pause(task, cache, &device, now, start_background);
            let (cause, until) = (cause_of(why), now + pause);
            task.emit(&Event::Waiting { cause });
            writer.account.stay = Some(Stay {
                episode,
                device: index,
                cause,
                since: now,
                until,
            });
            Some(until)
        }
    }
}

impl<E: Env> Cache<E> {
    /// Until when the writer is to be held for what it took in by `try_write` so far. `None`: it need not be. `Some`: ask
    /// again then, not before; it may be held for longer. What it takes in meanwhile is a matter of the next stay, which
    /// begins with the first call after this one has ended with `None`.
    ///
    /// Never waits. Under the law of 2.6.36 a writer writes pages itself, which cannot be done here: the flusher does it, and the
    /// writer is held by the naps of that law.
    ///
    /// # Errors
    /// That of a device that has failed meanwhile, as a write gets it. `Cancelled`.
    pub fn pace(
        self: &Arc<Self>,
        task: &mut Task<'_, E>,
        writer: &mut Writer,
    ) -> Result<Option<Instant>, Error> {
        pace(task, self, writer)
    }

    /// A writer is done for now: what it still owes is passed on, as that of one that is gone, and it is as a new one.
    pub fn settle(&self, writer: &mut Writer) {
        let context = Interrupt::new();
        writer.account = Account::default();
        let mut domain = self.writeback.domain.lock(&context);
        let fresh = domain.add_writer();
        let state = core::mem::replace(&mut writer.state, fresh);
        // Of the CPUs, which are all the same to somebody outside any task.
        domain.remove_writer(state, 0);
    }
}

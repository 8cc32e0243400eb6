//! Balancing dirty pages: a writer that has dirtied enough asks the law, and does what it says.
//!
//! The law decides under a short lock, from one reading of the counters; the sleep comes after the
//! lock, until an absolute deadline. So a thread, a coroutine or a later async caller can take the
//! same verdicts.
//!
//! Source: mechanisms 5; Linux v6.12 mm/page-writeback.c, balance_dirty_pages(), in our own words.

use std::sync::Arc;

use core::sync::atomic::Ordering;

use env::{Cause, Context, Env, Event, Signal, Task, Work};
use policy::dirty::{Episode, PauseReason, Verdict};
use policy::units::{Instant, Pages};

use crate::cache::Cache;
use crate::registry::device::DeviceState;
use crate::registry::mapping::Mapping;
use crate::{Error, Writer, writeback::flush};

impl<E: Env> Cache<E> {
    /// Puts a file that has dirty pages on its device's list, unless it is on one.
    pub(crate) fn queue_dirty(&self, context: &impl Context, mapping: &Arc<Mapping<E>>) {
        if mapping.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.env.now();
        let first = {
            let mut files = mapping.device.files.lock(context);
            files.dirty.push_back((Arc::clone(mapping), now));
            files.dirty.len() + files.io.len() + files.more_io.len() == 1
        };
        if first {
            // The flusher's periodic look begins with the first dirty file.
            mapping.device.flusher.wait.wake_all(Signal::FileDirtied);
        }
    }
}

/// The writer has dirtied `pages`: accounts them and balances if that is due.
pub(crate) fn after_dirtying<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    device: &Arc<DeviceState<E>>,
    writer: &mut Writer,
    pages: Pages,
) -> Result<(), Error> {
    let (now, cpu) = (task.now(), task.cpu());
    task.emit(&Event::Dirtied {
        device: device.index,
        pages,
    });
    let due = {
        let mut domain = cache.writeback.domain.lock(task);
        domain.on_dirtied(now, &mut writer.state, device.index, cpu, pages)
    };
    match due {
        Some(pages) => balance_dirty_pages(task, cache, device, writer, pages),
        None => Ok(()),
    }
}

/// Makes the writer wait until dirtying more pages is sustainable for the device.
fn balance_dirty_pages<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    device: &Arc<DeviceState<E>>,
    writer: &mut Writer,
    pages: Pages,
) -> Result<(), Error> {
    let mut episode = cache.writeback.domain.lock(task).begin(device.index, pages);
    loop {
        let (verdict, now) = ask(task, cache, device, writer, &mut episode);
        match verdict {
            Verdict::Done { start_background } => {
                if start_background {
                    device.kick();
                }
                return Ok(());
            }
            Verdict::Pause {
                pause,
                why,
                start_background,
            } => {
                begin_pause(task, cache, device, now, start_background);
                Error::after(task.sleep_until(cause_of(why), now + pause))?;
                // A device that fails meanwhile may not clear anything for a long time.
                device.admit(task, writer.told(device))?;
            }
            Verdict::WriteYourself { pages } => {
                let wrote = flush::write_some(task, cache, device, pages)?;
                episode.wrote(wrote);
            }
        }
    }
}

/// Asks the law for the next verdict of a stay; answers it with the moment it is of.
pub(crate) fn ask<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    device: &DeviceState<E>,
    writer: &mut Writer,
    episode: &mut Episode,
) -> (Verdict, Instant) {
    task.did(Work::Balance, 1);
    let now = task.now();
    let counts = cache.counts(device);
    let (verdict, trace) = {
        let mut domain = cache.writeback.domain.lock(task);
        let answer = episode.decide(now, &mut domain, &mut writer.state, &counts);
        device.note_pace(&domain);
        answer
    };
    let (why, done) = match verdict {
        Verdict::Pause { why, .. } => (Some(why), false),
        Verdict::Done { .. } => (None, true),
        Verdict::WriteYourself { .. } => (None, false),
    };
    task.emit(&Event::BalanceDirtyPages {
        device: device.index,
        writer: writer.id,
        trace,
        why,
        done,
    });
    (verdict, now)
}

/// What comes before a pause that begins now: somebody has to clean meanwhile.
pub(crate) fn begin_pause<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    device: &DeviceState<E>,
    now: Instant,
    start_background: bool,
) {
    if start_background {
        device.kick();
    }
    let law = cache.options.dirty.law;
    let has_others = || {
        let all = cache.writeback.totals.dirty.load(Ordering::Relaxed);
        all > device.dirty.load(Ordering::Relaxed)
    };
    if law.wakes_other_flushers() && has_others() {
        kick_others(task, cache, device);
    }
    device.note_pause(now);
}

/// The name of a pause.
pub(crate) const fn cause_of(why: PauseReason) -> Cause {
    match why {
        PauseReason::OverShare => Cause::DirtyPause,
        PauseReason::NoProgress => Cause::DeviceStalled,
    }
}

/// Has the flushers of the other devices write what is dirty there.
fn kick_others<E: Env>(task: &Task<'_, E>, cache: &Cache<E>, own: &DeviceState<E>) {
    for other in cache.writeback.devices.lock(task).iter() {
        let has_dirty = other.dirty.load(Ordering::Relaxed) > 0;
        if other.index != own.index && has_dirty {
            other.kick();
        }
    }
}

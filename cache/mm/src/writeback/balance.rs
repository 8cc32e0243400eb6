//! Balancing dirty pages: a writer that has dirtied enough asks the law, and does what it says.
//!
//! A balance becomes due as pages are dirtied, and stands in the writer's account until it begins.
//! The law decides under a short lock, from one reading of the counters; a pause is an absolute
//! deadline. A task that may block sleeps until then. A task that may not gets the deadline as its
//! answer, and pauses its client by it. Verdicts and their order are the same.
//!
//! ```text
//!   write ──dirtied──> due ──balance──> asks the law ──> over: the next one that is due, or None
//!                       ^                 ^      '─────> a pause: sleeps until t, or answers Some(t)
//!                       |                 '──── at t ────'
//!                       '--- dirtied while one that does not sleep is paused: the next balance
//! ```
//!
//! A pause that is answered is told to `Env` as the wait that it is, once, when it ends.
//!
//! Under the law of 2.6.36 a writer writes pages itself. A writer that may not block has the
//! flusher do it, and is paused by the naps of that law, having written nothing.
//!
//! Source: mechanisms 5; Linux v6.12 mm/page-writeback.c, balance_dirty_pages(), in our own words.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, Event, Task, Work};
use policy::dirty::{Domain, PauseReason, Teller, Verdict};
use policy::units::{Instant, Pages};

use crate::Error;
use crate::cache::Cache;
use crate::registry::device::DeviceState;
use crate::writeback::flush;
use crate::writeback::pacer::{Pacer, Pause};

/// The writer has dirtied `pages`: accounts them.
pub(crate) fn account(
    task: &Task<'_>,
    cache: &Cache,
    device: &DeviceState,
    writer: &mut Pacer,
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
    let account = &mut writer.account;
    if account.untold.keeps(device.index, pages) {
        return;
    }
    let by = Teller {
        writer: &writer.index,
        now,
        cpu,
    };
    let mut domain = cache.writeback.domain.lock(task);
    account.tell(&mut domain, by, Some((device.index, pages)));
    if cache.options.tells_in_batches && !account.is_due() {
        account.untold.keep(&domain, by, device.index);
    }
}

/// Tells the law what is left to tell of a writer that is done.
pub(crate) fn tell_the_rest(domain: &mut Domain, now: Instant, cpu: usize, writer: &mut Pacer) {
    let by = Teller {
        writer: &writer.index,
        now,
        cpu,
    };
    writer.account.tell(domain, by, None);
}

/// Pauses the writer until dirtying more pages is sustainable, for all balances that are due. A
/// task that may not block gets the end of the pause as the answer, and asks again then.
pub(crate) fn balance(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    writer: &mut Pacer,
) -> Result<Option<Instant>, Error> {
    if !task.may_block() {
        let until = writer.account.paused_until(task.now());
        if until.is_some() {
            return Ok(until);
        }
        // A task that sleeps is told of that by its sleep.
        if cache.registry.stopping.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
    }
    loop {
        let paused = writer.account.paused.take();
        let goes_on = paused.is_some();
        let device = match paused {
            Some((device, pause)) => {
                pause.end(task)?;
                let device = cache.device(task, device);
                // A device that fails meanwhile may not clear anything for a long time.
                device.admit(task, writer.seen_errors(&device))?;
                device
            }
            None => {
                let Some((device, pages)) = writer.account.due.pop() else {
                    return Ok(None);
                };
                {
                    let mut domain = cache.writeback.domain.lock(task);
                    domain.begin(&writer.index, device, pages);
                }
                cache.device(task, device)
            }
        };
        if let Some(pause) = next_pause(task, cache, &device, writer)? {
            let until = pause.until;
            let is_answered = pause.answered.is_some();
            writer.account.paused = Some((device.index, pause));
            if is_answered {
                return Ok(Some(until));
            }
        } else if goes_on && !task.may_block() {
            // Pages that were dirtied during its pauses are a matter of the next call.
            return Ok(None);
        }
    }
}

/// Asks the law until it names a pause, which begins now; none: the balance has ended.
fn next_pause(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    device: &Arc<DeviceState>,
    writer: &Pacer,
) -> Result<Option<Pause>, Error> {
    loop {
        let (verdict, now) = ask(task, cache, device, writer);
        match verdict {
            Verdict::Done { start_background } => {
                if start_background {
                    device.kick();
                }
                return Ok(None);
            }
            Verdict::Pause {
                pause,
                why,
                start_background,
            } => {
                have_cleaned(task, cache, device, start_background);
                device.note_pause(now);
                let (cause, until) = (cause_of(why), now + pause);
                let answered = (!task.may_block()).then_some(now);
                if answered.is_some() {
                    task.emit(&Event::Waiting { cause });
                }
                return Ok(Some(Pause {
                    cause,
                    until,
                    answered,
                }));
            }
            Verdict::WriteYourself { pages } => {
                let wrote = if task.may_block() {
                    flush::write_some(task, cache, device, pages)?
                } else {
                    device.want(pages);
                    Pages::ZERO
                };
                let mut domain = cache.writeback.domain.lock(task);
                domain.wrote(&writer.index, wrote);
            }
        }
    }
}

/// Asks the law for the next verdict of a balance; answers it with the moment it is of.
fn ask(
    task: &mut Task<'_>,
    cache: &Cache,
    device: &DeviceState,
    writer: &Pacer,
) -> (Verdict, Instant) {
    task.did(Work::Balance, 1);
    let now = task.now();
    let (verdict, trace) = {
        let mut domain = cache.writeback.domain.lock(task);
        // Under the lock: what the law was told of is in it (`policy::dirty::Untold`).
        let counts = cache.counts(device);
        let answer = domain.decide(now, &writer.index, &counts);
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

/// Sees that somebody cleans while a writer of the device is paused.
fn have_cleaned(task: &Task<'_>, cache: &Cache, device: &DeviceState, start_background: bool) {
    if start_background {
        device.kick();
    }
    if !cache.options.dirty.law.wakes_other_flushers {
        return;
    }
    let all = cache.writeback.totals.dirty.load(Ordering::Relaxed);
    if all <= device.dirty.load(Ordering::Relaxed) {
        return;
    }
    for other in cache.writeback.devices.lock(task).iter() {
        let has_dirty = other.dirty.load(Ordering::Relaxed) > 0;
        if other.index != device.index && has_dirty {
            other.kick();
        }
    }
}

/// The name of a pause.
const fn cause_of(why: PauseReason) -> Cause {
    match why {
        PauseReason::OverShare => Cause::DirtyPause,
        PauseReason::NoProgress => Cause::DeviceStalled,
    }
}

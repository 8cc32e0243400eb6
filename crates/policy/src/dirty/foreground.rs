//! The law of Linux 2.6.36: a writer over its limit writes pages itself.
//!
//! ```text
//!   over the limit? --no--> done
//!        | yes
//!   more dirty than the limit? --yes--> write one and a half times what was dirtied
//!        | no                                | enough written: done
//!        v                                   v
//!   sleep 1, 2, 4 ... ticks, at most 100 ms, and look again
//! ```
//!
//! The pauses of one call add up: at 250 ticks a second 4, 12, 28, 60, 124, 224, 324 ms ... That sum
//! is what paper p1 prints as its "before".
//!
//! Invariants
//!   1. A pause is at most HZ/10 (100 ms), or one tick.
//!   2. A writer that wrote its chunk leaves, however much is dirty.
//!
//! Source: mechanisms 5.3; Linux 2.6.36 mm/page-writeback.c, balance_dirty_pages(),
//! sync_writeback_pages().

use super::limits::bounded;
use super::proportion::Share;
use super::shares::{Shares, Standing};
use super::{BalanceTrace, Counts, DeviceIndex, Verdict};
use crate::ticks::Ticks;
use crate::units::{Nanos, Pages};

/// A writer's limit is up to one eighth below its device's.
const WEIGHT_DIVISOR: u64 = 8;
/// The longest pause is a tenth of a second.
const PAUSE_MAX_PER_SECOND: u64 = 10;

/// One stay of a writer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    /// What the writer has to write before it may leave.
    chunk: Pages,
    written: Pages,
    next_pause: Ticks,
    /// Over a limit when last looked at.
    exceeded: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// About to look at the counters.
    Look,
    /// The writer was told to write.
    Writing,
}

impl Stay {
    pub(super) const fn new(chunk: Pages) -> Self {
        Self {
            chunk,
            written: Pages::ZERO,
            next_pause: Ticks(1),
            exceeded: false,
            phase: Phase::Look,
        }
    }

    /// The writer submitted `pages`.
    ///
    /// # Panics
    /// When it was not told to.
    pub(super) fn wrote(&mut self, pages: Pages) {
        assert!(
            self.phase == Phase::Writing,
            "wrote() answers WriteYourself only"
        );
        self.written = self.written.saturating_add(pages);
    }
}

/// What a writer is asked to write for `dirtied` pages: one and a half times as much.
pub(super) fn write_chunk(shares: &Shares, dirtied: Pages) -> Pages {
    let base = bounded(dirtied).at_least(shares.ratelimit_pages);
    Pages(base.0 + base.0 / 2)
}

/// The next verdict of a stay.
pub(super) fn decide(
    shares: &mut Shares,
    stay: &mut Stay,
    writer: &Share,
    device: DeviceIndex,
    now: Ticks,
    counts: &Counts,
) -> (Verdict, BalanceTrace) {
    let standing = shares.standing(writer, device, counts);
    let limit = standing.writer_limit(WEIGHT_DIVISOR);
    let mut trace = trace(stay, &standing, limit);

    if stay.phase == Phase::Writing {
        stay.phase = Phase::Look;
        if stay.written >= stay.chunk {
            return leave(shares, stay, device, counts, &standing, trace);
        }
        return sleep(shares, stay, device, now, counts, trace);
    }
    if standing.level.dirty < standing.limits.freerun() {
        return leave(shares, stay, device, counts, &standing, trace);
    }
    stay.exceeded =
        standing.level.device_dirty >= limit || standing.level.dirty >= standing.limits.dirty;
    if !stay.exceeded {
        return leave(shares, stay, device, counts, &standing, trace);
    }
    shares.device_mut(device).exceeded = true;
    if standing.level.device_reclaimable > limit {
        stay.phase = Phase::Writing;
        trace.line = false;
        return (Verdict::WriteYourself { pages: stay.chunk }, trace);
    }
    sleep(shares, stay, device, now, counts, trace)
}

fn sleep(
    shares: &mut Shares,
    stay: &mut Stay,
    device: DeviceIndex,
    now: Ticks,
    counts: &Counts,
    mut trace: BalanceTrace,
) -> (Verdict, BalanceTrace) {
    let rate = shares.rate;
    let longest = rate.second_over(PAUSE_MAX_PER_SECOND);
    let pause = stay.next_pause.min(longest);
    stay.next_pause = Ticks(pause.0 * 2).min(longest);
    // Whoever sleeps here is over a limit: only completions help.
    let progress = &mut shares.device_mut(device).progress;
    let why = progress.reason(rate, now, counts.device_written, true);
    trace.line = false;
    trace.pause = rate.nanos(pause);
    (
        Verdict::Pause {
            pause: trace.pause,
            why,
            start_background: false,
        },
        trace,
    )
}

fn leave(
    shares: &mut Shares,
    stay: &Stay,
    device: DeviceIndex,
    counts: &Counts,
    standing: &Standing,
    trace: BalanceTrace,
) -> (Verdict, BalanceTrace) {
    if !stay.exceeded {
        let device = shares.device_mut(device);
        device.exceeded = false;
        device.progress.on_room();
    }
    let start_background =
        !counts.flusher_running && standing.level.reclaimable > standing.limits.background;
    (Verdict::Done { start_background }, trace)
}

/// The paper's line is one per call, at its end.
fn trace(stay: &Stay, standing: &Standing, limit: Pages) -> BalanceTrace {
    BalanceTrace {
        limit: standing.limits.dirty,
        setpoint: standing.limits.freerun(),
        dirty: standing.level.dirty,
        device_setpoint: limit,
        device_dirty: standing.level.device_dirty,
        device_limit: limit,
        dirtied: stay.chunk,
        written: stay.written,
        pause: Nanos::ZERO,
        line: true,
        ..BalanceTrace::default()
    }
}

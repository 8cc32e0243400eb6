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
//! The pauses of one call add up: at 250 ticks a second 4, 12, 28, 60, 124, 224, 324 ms ... Their
//! sum is the "before" that paper p1 prints.
//!
//! Invariants
//!   1. A pause is at most HZ/10 (100 ms), or one tick.
//!   2. A writer that wrote its chunk leaves, however much is dirty.
//!
//! Source: mechanisms 5.3; Linux 2.6.36 mm/page-writeback.c, balance_dirty_pages(),
//! sync_writeback_pages().

use super::shares::{Shares, Standing};
use crate::dirty::proportion::Share;
use policy::dirty::limits::bounded;
use policy::dirty::rules::{DeviceRules, Dirtied, Look, WriterRules};
use policy::dirty::running::Running;
use policy::dirty::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due, Limits, Verdict,
};
use policy::dirty::{Law, Prints, Profile};
use policy::ticks::Ticks;
use policy::units::{Instant, Nanos, Pages, PagesPerSec};

/// A writer's limit is up to one eighth below its device's.
const WEIGHT_DIVISOR: u64 = 8;
/// The longest pause is a tenth of a second.
const PAUSE_MAX_PER_SECOND: u64 = 10;

/// Linux 2.6.36: the writer writes pages itself (mechanisms 5.3).
pub const FOREGROUND: Law = Law::new(&PROFILE);

const PROFILE: Profile = Profile {
    name: "foreground",
    start: |tunables, devices| Running::start(Foreground(Shares::new(tunables, devices))),
    wakes_other_flushers: false,
    prints: Prints::Whole,
};

/// State of a domain under this law.
struct Foreground(Shares);

impl DeviceRules for Foreground {
    fn add_device(&mut self, now: Instant, tunables: DeviceTunables) {
        self.0.add_device(now, tunables);
    }

    fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        self.0.set_device(device, tunables);
    }

    fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion) {
        self.0.on_written(now, device, done.pages);
    }

    fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        self.0.update(now, device, counts);
    }

    fn limits(&self, dirtyable: Dirtyable) -> Limits {
        self.0.limits(dirtyable.now)
    }

    fn over_background(&self, _device: DeviceIndex, counts: &Counts) -> bool {
        self.0.over_background(counts)
    }

    fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        self.0.bandwidth(device)
    }

    fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        self.0.device_limit_of(device, counts)
    }
}

impl WriterRules for Foreground {
    /// Its part of recent dirtying. Its dirtied pages are on its CPU's counter, so it owes nothing.
    type Writer = Share;
    type Balance = Balance;

    fn new_writer(&self) -> Share {
        Share::default()
    }

    fn budget(&self, _writer: &Share, device: DeviceIndex, cpu: usize) -> Pages {
        self.0.budget(device, cpu)
    }

    fn on_dirtied(&mut self, writer: &mut Share, dirtied: &Dirtied) -> Option<Due> {
        let pages = self.0.on_dirtied(writer, dirtied)?;
        Some(Due {
            pages: write_chunk(&self.0, pages),
            replaces: false,
        })
    }

    fn begin(&self, pages: Pages) -> Balance {
        Balance::new(pages)
    }

    fn decide(
        &mut self,
        balance: &mut Balance,
        writer: &mut Share,
        look: &Look<'_>,
    ) -> (Verdict, BalanceTrace) {
        decide(&mut self.0, balance, writer, look)
    }

    fn wrote(&self, balance: &mut Balance, pages: Pages) {
        balance.wrote(pages);
    }
}

/// One balance of a writer.
#[derive(Clone, Copy, Debug)]
struct Balance {
    /// Pages that the writer has to write before it may leave.
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

impl Balance {
    const fn new(chunk: Pages) -> Self {
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
    fn wrote(&mut self, pages: Pages) {
        assert!(
            self.phase == Phase::Writing,
            "wrote() answers WriteYourself only"
        );
        self.written = self.written.saturating_add(pages);
    }
}

/// Pages that a writer is asked to write for `dirtied` pages: one and a half times as many.
fn write_chunk(shares: &Shares, dirtied: Pages) -> Pages {
    let base = bounded(dirtied).at_least(shares.ratelimit_pages);
    Pages(base.0 + base.0 / 2)
}

/// The next verdict of a balance.
fn decide(
    shares: &mut Shares,
    balance: &mut Balance,
    writer: &Share,
    look: &Look<'_>,
) -> (Verdict, BalanceTrace) {
    let (device, counts) = (look.device, look.counts);
    let now = shares.rate.tick_at(look.now);
    let standing = shares.standing(writer, device, counts);
    let limit = standing.writer_limit(WEIGHT_DIVISOR);
    let mut trace = trace(balance, &standing, limit);

    if balance.phase == Phase::Writing {
        balance.phase = Phase::Look;
        if balance.written >= balance.chunk {
            return leave(shares, balance, device, counts, &standing, trace);
        }
        return sleep(shares, balance, device, now, counts, trace);
    }
    if standing.level.dirty < standing.limits.freerun() {
        return leave(shares, balance, device, counts, &standing, trace);
    }
    balance.exceeded =
        standing.level.device_dirty >= limit || standing.level.dirty >= standing.limits.dirty;
    if !balance.exceeded {
        return leave(shares, balance, device, counts, &standing, trace);
    }
    shares.device_mut(device).exceeded = true;
    if standing.level.device_reclaimable > limit {
        balance.phase = Phase::Writing;
        trace.line = false;
        return (
            Verdict::WriteYourself {
                pages: balance.chunk,
            },
            trace,
        );
    }
    sleep(shares, balance, device, now, counts, trace)
}

fn sleep(
    shares: &mut Shares,
    balance: &mut Balance,
    device: DeviceIndex,
    now: Ticks,
    counts: &Counts,
    mut trace: BalanceTrace,
) -> (Verdict, BalanceTrace) {
    let rate = shares.rate;
    let longest = rate.second_over(PAUSE_MAX_PER_SECOND);
    let pause = balance.next_pause.min(longest);
    balance.next_pause = Ticks(pause.0 * 2).min(longest);
    // A writer that sleeps here has exceeded a limit: only completions help.
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
    balance: &Balance,
    device: DeviceIndex,
    counts: &Counts,
    standing: &Standing,
    trace: BalanceTrace,
) -> (Verdict, BalanceTrace) {
    if !balance.exceeded {
        let device = shares.device_mut(device);
        device.exceeded = false;
        device.progress.on_room();
    }
    let start_background =
        !counts.flusher_running && standing.level.reclaimable > standing.limits.background;
    (Verdict::Done { start_background }, trace)
}

/// The paper's line is one per call, at its end.
fn trace(balance: &Balance, standing: &Standing, limit: Pages) -> BalanceTrace {
    BalanceTrace {
        limit: standing.limits.dirty,
        setpoint: standing.limits.freerun(),
        dirty: standing.level.dirty,
        device_setpoint: limit,
        device_dirty: standing.level.device_dirty,
        device_limit: limit,
        dirtied: balance.chunk,
        written: balance.written,
        pause: Nanos::ZERO,
        line: true,
        ..BalanceTrace::default()
    }
}

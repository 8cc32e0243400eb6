//! Pressure totals as PSI counts them: for how long somebody, and for how long everybody, was
//! stalled.
//!
//! Memory: a task is stalled while it reclaims (asleep or not) and while it waits for memory, for
//! the end of a throttling, or for a page from the swap file. *some*: at least one is; *full*: at
//! least one is, and no task runs that is not itself reclaiming. I/O: a task is stalled while it
//! sleeps on a device, be it in a pause of `balance_dirty_pages` or in `congestion_wait`, both of
//! which the kernel counts as waiting for I/O. *full*: and no task runs at all. Tasks that idle,
//! think or join others count as neither.
//!
//! Source: Linux v6.12 kernel/sched/psi.c (`test_states`), and who calls `psi_memstall_enter` and
//! `io_schedule`. Deviations: one count for the whole machine, where the kernel weighs CPUs; a task
//! that was woken is stalled until it runs; a page of a file read again soon after its eviction
//! counts as I/O only, since its event does not tell it from others; tasks count from their first
//! event on.

use env::Cause;
use policy::units::{Instant, Nanos};

use super::{Doing, is_idle, seconds};
use crate::outcome::Pressure;

/// Counts tasks by state, and adds up the time in which conditions hold.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Stalled for memory.
    memory: u32,
    /// Asleep for I/O.
    io: u32,
    /// Run, or want to.
    running: u32,
    /// ... and reclaim.
    reclaiming: u32,
    open: bool,
    last: Instant,
    over: Nanos,
    memory_some: Nanos,
    memory_full: Nanos,
    io_some: Nanos,
    io_full: Nanos,
}

impl Meter {
    pub(super) fn opens(&mut self, at: Instant) {
        self.last = at;
        self.open = true;
    }

    pub(super) fn closes(&mut self, at: Instant) {
        self.pass(at);
        self.open = false;
    }

    pub(super) fn changes(&mut self, at: Instant, before: Option<Doing>, after: Option<Doing>) {
        self.pass(at);
        for (doing, add) in [(before, false), (after, true)] {
            let Some(doing) = doing else { continue };
            let step = |count: &mut u32, is: bool| match (is, add) {
                (false, _) => {}
                (true, true) => *count += 1,
                (true, false) => *count -= 1,
            };
            let runs = doing.asleep.is_none();
            let naps = doing.asleep.is_some_and(is_idle);
            let stalled = doing.reclaims && !naps || doing.asleep.is_some_and(Cause::is_memory);
            step(&mut self.memory, stalled);
            step(&mut self.io, doing.asleep.is_some_and(is_io));
            step(&mut self.running, runs);
            step(&mut self.reclaiming, runs && doing.reclaims);
        }
    }

    /// The state so far lasted until now.
    fn pass(&mut self, at: Instant) {
        if !self.open {
            return;
        }
        let passed = at.since(self.last);
        self.last = at.max(self.last);
        let add = |sum: &mut Nanos, holds: bool| {
            if holds {
                *sum += passed;
            }
        };
        let none_runs = self.running == 0;
        add(&mut self.over, true);
        add(&mut self.memory_some, self.memory > 0);
        let only_reclaimers = self.running == self.reclaiming;
        add(&mut self.memory_full, self.memory > 0 && only_reclaimers);
        add(&mut self.io_some, self.io > 0);
        add(&mut self.io_full, self.io > 0 && none_runs);
    }

    pub(super) fn totals(&self) -> Pressure {
        Pressure {
            over_s: seconds(self.over),
            memory_some_s: seconds(self.memory_some),
            memory_full_s: seconds(self.memory_full),
            io_some_s: seconds(self.io_some),
            io_full_s: seconds(self.io_full),
        }
    }
}

const fn is_io(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::DirtyPause
            | Cause::DeviceStalled
            | Cause::PageBusy
            | Cause::PageRetry
            | Cause::ReadIo
            | Cause::WritebackIo
            | Cause::WritebackFlight
            | Cause::DeviceFlush
            | Cause::DeviceMetadata
            | Cause::CongestionWait
            | Cause::SwapIo
            | Cause::RequestSlot
    )
}

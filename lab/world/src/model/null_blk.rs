//! Linux's `null_blk` with a bandwidth: a device that takes requests at once out of a budget that
//! is filled up fifty times a second.
//!
//! ```text
//!   tick (20 ms)      |                 |                 |
//!   budget   rate/50  |\__              |\__              |
//!   requests           16 16 16 (waits)  16 16 16 (waits)  16 ..      pages; what is left is lost
//! ```
//!
//! A request goes whole if the budget has its bytes, and completes at once. One for which there is
//! not enough waits for the next tick, and all behind it with it. The rest of a budget is not saved
//! up: with requests of 64 KiB the device gives 3.125, 15.625 and 62.5 MiB/s of 4, 16 and 64.
//!
//! It has no scheduler (`none`): a read waits behind all writes that came before it.
//!
//! The timer that ticks stops at a tick before which nothing was used, and is started by the next
//! request; its old time of expiry has passed, so that it fires at once and that request is free.
//! From then on it keeps to its old grid.
//!
//! Invariants
//!   1. Between two ticks no more than one budget goes through.
//!   2. A request larger than the budget never goes: the device then stands still, as the kernel's
//!      does.
//!
//! Source: Linux v6.12 drivers/block/null_blk/main.c, null_handle_throttled(), nullb_bwtimer_fn(),
//! mb_per_tick(), nullb_setup_bwtimer(); limits of the queue: the same file, null_init_tag_set(),
//! and block/blk-mq.c (`nr_requests` of a queue without a scheduler is its depth).
//! Deviations: requests beyond the depth wait in our queue, not for a tag; the rate may be changed
//! while the device works, which the kernel refuses (in a guest it is done from outside).

use policy::units::{Bytes, Instant, Nanos};
use policy::writeback::DeviceQueue;

use super::engine::{Chance, Job, Mechanism, Order, Service};
use super::params;

/// Length of a tick.
const TICK: Nanos = Nanos::millis(20);
/// Bytes a tick for each MiB/s: a 50th of it, rounded down.
const TICK_BYTES_PER_MIB: u64 = (1 << 20) / 50;

pub(super) struct NullBlk {
    params: params::NullBlk,
    /// Left of this tick's budget. Below zero once a request did not fit.
    left: i64,
    /// When the timer fires next, or last would have.
    tick: Instant,
    ticking: bool,
}

impl NullBlk {
    pub(super) fn new(params: &params::NullBlk) -> Self {
        Self {
            left: budget(params.rate_bytes_per_sec),
            params: params.clone(),
            tick: Instant::ZERO + Nanos::micros(params.tick_phase_us),
            ticking: true,
        }
    }

    fn full(&self) -> i64 {
        budget(self.params.rate_bytes_per_sec)
    }

    /// Lets the ticks up to `now` happen.
    fn catch_up(&mut self, now: Instant) {
        while self.ticking && self.tick <= now {
            if self.left == self.full() {
                self.ticking = false;
            } else {
                self.refill(now);
            }
        }
    }

    /// One tick: a full budget, and the next time on the grid after `now`.
    fn refill(&mut self, now: Instant) {
        self.left = self.full();
        let behind = now.since(self.tick).0 / TICK.0;
        self.tick = self.tick + Nanos((behind + 1) * TICK.0);
    }
}

/// Bytes of one tick at a rate.
fn budget(bytes_per_sec: u64) -> i64 {
    let bytes = (u128::from(bytes_per_sec) * u128::from(TICK_BYTES_PER_MIB)) >> 20;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Mechanism for NullBlk {
    fn depth(&self) -> u32 {
        u32::try_from(self.params.queue_depth).unwrap_or(u32::MAX)
    }

    fn request_max(&self) -> Bytes {
        Bytes(self.params.request_max_bytes)
    }

    fn order(&self) -> Order {
        Order::Unscheduled
    }

    fn queue(&self) -> Option<DeviceQueue> {
        Some(DeviceQueue {
            requests: self.depth(),
            request_max: self.request_max().pages_floor(),
        })
    }

    fn admit(&mut self, job: &Job, now: Instant) -> Result<(), Instant> {
        self.catch_up(now);
        let starts = !self.ticking;
        let bytes = i64::try_from(job.bytes().0).unwrap_or(i64::MAX);
        if starts {
            // This one is free: the timer fires once it has taken its bytes, or found too few.
            self.ticking = true;
            self.refill(now);
            if bytes <= self.left {
                return Ok(());
            }
        }
        self.left = self.left.saturating_sub(bytes);
        if self.left >= 0 {
            Ok(())
        } else {
            Err(self.tick)
        }
    }

    fn set_rate(&mut self, now: Instant, bytes_per_sec: u64) -> bool {
        self.catch_up(now);
        self.params.rate_bytes_per_sec = bytes_per_sec;
        true
    }

    fn serve(&mut self, _job: &Job, _now: Instant, _chance: &Chance<'_>) -> Service {
        Service::of(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::Kind;
    use super::*;

    fn device(mib: u64) -> NullBlk {
        let mut params = params::NullBlk::DEFAULT;
        params.rate_bytes_per_sec = mib << 20;
        params.tick_phase_us = 0;
        NullBlk::new(&params)
    }

    fn job(pages: u32) -> Job {
        Job {
            kind: Kind::Write,
            block: 0,
            pages,
            page_bytes: 4096,
        }
    }

    /// Requests that go through in a second, asked for without a break.
    fn in_a_second(device: &mut NullBlk, from: Instant, pages: u32) -> u32 {
        let (mut now, mut count) = (from, 0);
        let end = from + Nanos::secs(1);
        while now < end {
            match device.admit(&job(pages), now) {
                Ok(()) => count += 1,
                Err(until) => now = until,
            }
        }
        count
    }

    #[test]
    fn whole_requests_of_each_budget_go_and_the_rest_is_lost() {
        for (mib, expected) in [(4, 50), (16, 250), (25, 350), (50, 750), (64, 1000)] {
            let mut device = device(mib);
            // The first requests find a timer that has stopped, and a bonus.
            in_a_second(&mut device, Instant(500_000_000), 16);
            let count = in_a_second(&mut device, Instant(2_000_000_000), 16);
            assert!(count.abs_diff(expected) <= 7, "{mib} MiB/s: {count}");
        }
    }

    #[test]
    fn a_request_that_does_not_fit_waits_for_the_grid() {
        let mut device = device(16);
        let at = |ms: u64| Instant(ms * 1_000_000);
        // Nothing was used before: the timer has stopped, the first is free.
        for _ in 0..6 {
            assert_eq!(device.admit(&job(16), at(103)), Ok(()));
        }
        assert_eq!(device.admit(&job(16), at(104)), Err(at(120)));
        assert_eq!(device.admit(&job(16), at(120)), Ok(()));
    }

    #[test]
    fn a_request_larger_than_the_budget_never_goes() {
        let mut device = device(2);
        let mut now = Instant(1_000_000);
        for _ in 0..100 {
            now = match device.admit(&job(16), now) {
                Ok(()) => panic!("it went at {now:?}"),
                Err(until) => until,
            };
        }
        assert!(now >= Instant(1_980_000_000));
        assert!(device.set_rate(now, 16 << 20));
        assert!(device.admit(&job(16), now + TICK).is_ok());
    }
}

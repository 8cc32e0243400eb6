//! The clock that the running task carries, and how far it may carry it.
//!
//! Only one task of a lab runs at a time, so one set of registers will do: `local`, the running
//! task's own time; `limit`, the time at which it must let others go first; `floor`, the latest
//! time that anybody has been shown. With several CPUs a task that computes may be up to
//! `cpu::QUANTUM` ahead of one on another CPU; `floor` keeps what they read from going back.
//!
//! Concurrency: relaxed atomics, plain loads and stores in machine code. The thread that runs the
//! lab is the only one to store.

use core::sync::atomic::{AtomicU64, Ordering};

/// The registers, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Clock {
    local: AtomicU64,
    floor: AtomicU64,
    limit: AtomicU64,
}

impl Clock {
    pub(crate) const fn new() -> Self {
        Self {
            local: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            limit: AtomicU64::new(0),
        }
    }

    /// The running task's own time; that of the event where no task runs.
    pub(crate) fn local(&self) -> u64 {
        self.local.load(Ordering::Relaxed)
    }

    /// The time to show: never before a time that was shown.
    pub(crate) fn now(&self) -> u64 {
        self.local().max(self.floor.load(Ordering::Relaxed))
    }

    /// When the running task must settle.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, local: u64) {
        self.local.store(local, Ordering::Relaxed);
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Something is due at `time`, maybe sooner than the limit.
    pub(crate) fn lower_limit(&self, time: u64) {
        if time < self.limit() {
            self.set_limit(time);
        }
    }

    /// `time` has been shown.
    pub(crate) fn raise_floor(&self, time: u64) {
        if time > self.floor.load(Ordering::Relaxed) {
            self.floor.store(time, Ordering::Relaxed);
        }
    }
}

/// The first tick of a clock of `hz` ticks a second that is not before `time`; `time` itself when
/// `hz` is zero. None: beyond the end of time.
pub(crate) fn tick_up(time: u64, hz: u32) -> Option<u64> {
    const SECOND: u128 = policy::units::SECOND as u128;
    if time == u64::MAX {
        return None;
    }
    if hz == 0 {
        return Some(time);
    }
    let tick = (u128::from(time) * u128::from(hz)).div_ceil(SECOND);
    // A tick that is no whole nanosecond is taken at the nanosecond after it.
    u64::try_from((tick * SECOND).div_ceil(u128::from(hz)))
        .ok()
        .filter(|time| *time < u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_on_the_next_tick() {
        for (hz, tick) in [(100, 10_000_000), (250, 4_000_000), (1000, 1_000_000)] {
            assert_eq!(tick_up(0, hz), Some(0));
            assert_eq!(tick_up(1, hz), Some(tick));
            assert_eq!(tick_up(tick, hz), Some(tick));
            assert_eq!(tick_up(tick + 1, hz), Some(2 * tick));
        }
        assert_eq!(tick_up(12_345, 0), Some(12_345));
        // 300 Hz: 3,333,333.3 ns.
        assert_eq!(tick_up(3_333_333, 300), Some(3_333_334));
        assert_eq!(tick_up(3_333_334, 300), Some(6_666_667));
    }

    #[test]
    fn the_end_of_time_has_no_tick() {
        assert_eq!(tick_up(u64::MAX, 0), None);
        assert_eq!(tick_up(u64::MAX, 100), None);
        assert_eq!(tick_up(u64::MAX - 1, 100), None);
        assert_eq!(tick_up(u64::MAX - 1, 0), Some(u64::MAX - 1));
    }

    #[test]
    fn what_is_shown_never_goes_back() {
        let clock = Clock::new();
        clock.set(10);
        clock.raise_floor(10);
        clock.set(7);
        assert_eq!((clock.local(), clock.now()), (7, 10));
        clock.raise_floor(5);
        clock.set(12);
        assert_eq!(clock.now(), 12);
        clock.set_limit(9);
        clock.lower_limit(11);
        assert_eq!(clock.limit(), 9);
    }
}

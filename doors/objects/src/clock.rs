//! Until when puts may be sent: the clock of a lease.
//!
//! A lease runs out for all others while its owner's machine is suspended, or stands still as a
//! copy of another. So a lease expires by either of two clocks: the clock that goes on over a
//! suspension (CLOCK_BOOTTIME), and the time of day, which a machine is told anew when it was
//! stopped from outside. A time of day that was set by mistake costs no more than the wait for the
//! next renewal.
//!
//! It is asked last of all, by the sender: the client library tries a call again, and may do so
//! after a long sleep of the machine.
//!
//! Source: clock_gettime(2).

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::request::lock;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Since the machine was started, with the time that it was suspended.
    pub(crate) boot: Duration,
    /// Of the day: since 1970.
    pub(crate) wall: Duration,
}

impl Moment {
    /// This one.
    pub(crate) fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            boot: os::time_since_boot(),
            wall: wall.unwrap_or_default(),
        }
    }

    fn after(self, time: Duration) -> Self {
        Self {
            boot: self.boot + time,
            wall: self.wall + time,
        }
    }

    /// The time until then; nothing if it has come by one of the clocks.
    fn from(self, now: Self) -> Duration {
        let boot = self.boot.saturating_sub(now.boot);
        boot.min(self.wall.saturating_sub(now.wall))
    }
}

/// Says whether puts of the volume's objects may be sent.
pub(crate) struct Guard {
    /// `None`: no lease is needed, so puts are always allowed.
    until: Mutex<Option<Moment>>,
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
}

impl Default for Guard {
    fn default() -> Self {
        Self::by(Moment::now)
    }
}

impl core::fmt::Debug for Guard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Guard").field(&*lock(&self.until)).finish()
    }
}

impl Guard {
    pub(crate) fn by(clock: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self {
            until: Mutex::new(None),
            clock: Box::new(clock),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        (self.clock)()
    }

    /// They may, for so long after `began`.
    pub(crate) fn allow(&self, began: Moment, time: Duration) {
        *lock(&self.until) = Some(began.after(time));
    }

    /// They may no more.
    pub(crate) fn forbid(&self) {
        *lock(&self.until) = Some(Moment {
            boot: Duration::ZERO,
            wall: Duration::ZERO,
        });
    }

    /// The time for which they may yet, at most; none: not now.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = *lock(&self.until);
        let left = until.map_or(Duration::MAX, |until| until.from(self.now()));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_moment_is_by_clocks_that_the_system_has_too() {
        let now = Moment::now();
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let boot = now.boot.as_secs_f64();
        assert!((boot - uptime).abs() < 60., "{boot} {uptime}");
        assert!(Moment::now().boot >= now.boot);
    }
}

//! Moments by the governor's clock.

use std::time::Duration;

/// The last moment of any clock: a deadline behind it is still one.
pub(crate) const LATEST: Duration = Duration::from_nanos(1 << 62);

/// When a turn is due again, if nothing happens before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    pub(crate) at: Option<Duration>,
}

impl Next {
    /// The time, by the governor's clock; none where only an event makes one due.
    #[must_use]
    pub fn at(self) -> Option<Duration> {
        self.at
    }

    /// Time until then; none where only an event makes a turn due.
    #[must_use]
    pub fn wait(self, now: Duration) -> Option<Duration> {
        Some(self.at?.saturating_sub(now))
    }

    pub(crate) fn no_later_than(&mut self, at: Duration) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }
}

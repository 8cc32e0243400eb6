//! A device's work, and its division into laps: a lap is enough of it to tell the rate.

use crate::dirty::limits::{RATE_MAX, mul_div};
use crate::units::{Nanos, Pages, PagesPerSec, SECOND};

/// Completions closer than this come at once.
pub(super) const AT_ONCE: Nanos = Nanos::millis(1);
/// The fewest completions of a lap.
const LAP_COMPLETIONS: u32 = 4;
/// A lap that lasts this long is closed with fewer.
const LAP_LONGEST: Nanos = Nanos::secs(1);

/// Pages written over time in which the device had work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pages: u64,
    time: Nanos,
    completions: u32,
}

impl Work {
    pub(super) fn add(&mut self, pages: Pages, time: Nanos) {
        self.pages = self.pages.saturating_add(pages.0);
        self.time = self.time.saturating_add(time);
        self.completions = self.completions.saturating_add(1);
    }

    pub(super) const fn time(&self) -> Nanos {
        self.time
    }

    pub(super) fn rate(&self) -> PagesPerSec {
        let rate = mul_div(self.pages, SECOND, self.time.0.max(1));
        PagesPerSec(rate.clamp(1, RATE_MAX))
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self {
            pages: self.pages.saturating_add(other.pages),
            time: self.time.saturating_add(other.time),
            completions: self.completions.saturating_add(other.completions),
        }
    }

    pub(super) const fn is_lap(&self, least: Nanos) -> bool {
        self.time.0 >= LAP_LONGEST.0
            || (self.time.0 >= least.0 && self.completions >= LAP_COMPLETIONS)
    }
}

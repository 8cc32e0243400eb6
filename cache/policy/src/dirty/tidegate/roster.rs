//! Which writers are held at a device, and what passes without being held.
//!
//! A writer that had to pause is *held* for the rest of the window and the next one. The fair rate
//! of a held writer is what the others leave, divided by the number of the held:
//!
//! ```text
//!   fair = (rate of the device - rate of writers not held) / held
//! ```
//!
//! A writer that dirties less than that is never held, a writer that dirties more is held sooner or
//! later: that is max-min fairness, found without a control loop. A newcomer counts from its first
//! pause, and a writer that has gone is missed after a window, so N writers share the device
//! equally after that time.
//!
//! Invariants
//!   1. `held` is at least one.
//!   2. A writer counts once in a window, however often it pauses and however many devices it
//!      alternates between (up to `MARKS` of them).
//!
//! Source: Tidegate's own; max-min fairness as in Bertsekas and Gallager, Data Networks, 6.5. It
//! replaces two others: Linux's base rate finds rate / N by steps (mechanisms 5.5), paper p1's
//! proportions by halves.

use crate::dirty::limits::mul_div;
use crate::dirty::types::DeviceIndex;
use crate::units::{Instant, Nanos, Pages, PagesPerSec, SECOND};

/// The time for which a writer counts after its last pause, at least; at most twice that.
const WINDOW: Nanos = Nanos::millis(500);
/// Devices at which a writer is known at once.
const MARKS: usize = 4;
/// The held share at least this part of the device among them.
const HELD_SHARE_MIN: u64 = 4;

/// The devices at which a writer is held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks([Option<Mark>; MARKS]);

#[derive(Clone, Copy, Debug)]
struct Mark {
    device: DeviceIndex,
    /// The window in which it was last held.
    last: u64,
    /// The window since which it is held in every one.
    since: u64,
}

impl Marks {
    /// The devices at which the writer may count.
    pub(super) fn devices(&self) -> impl Iterator<Item = DeviceIndex> {
        self.0.iter().flatten().map(|mark| mark.device)
    }

    fn of(&self, device: DeviceIndex) -> Option<Mark> {
        let mut marks = self.0.iter().flatten();
        marks.find(|mark| mark.device == device).copied()
    }

    /// Puts a mark in its device's place, or in that of the device that held it the longest time
    /// ago.
    fn set(&mut self, mark: Mark) {
        let place = self.0.iter_mut().min_by_key(|place| match place {
            Some(at) if at.device == mark.device => 0,
            None => 1,
            Some(at) => at.last.saturating_add(2),
        });
        *place.expect("there are places") = Some(mark);
    }
}

/// The fair rate of each held writer: the rate left for all of them, and their number. Kept apart,
/// as a part of a page a second is no small thing where there are a thousand writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fair {
    left: PagesPerSec,
    held: u64,
}

impl Fair {
    /// In whole pages a second, at least one: for a trace.
    pub(super) const fn rate(self) -> PagesPerSec {
        PagesPerSec(self.left.0 / self.held).at_least(PagesPerSec(1))
    }

    /// The time after which one writer is allowed `pages`.
    pub(super) const fn time_for(self, pages: Pages) -> Nanos {
        self.left.time_for(Pages(pages.0.saturating_mul(self.held)))
    }

    /// The pages that one writer is allowed in a time, rounded down.
    pub(super) const fn pages_in(self, time: Nanos) -> Pages {
        Pages(self.left.pages_in(time).0 / self.held)
    }
}

/// One device's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roster {
    window: u64,
    /// Writers held in this window, and in the one before.
    held_now: u32,
    held_before: u32,
    /// Of `held_now`, those that were not held before.
    joined: u32,
    /// Pages that passed in this window.
    passed: Pages,
    /// Pages that passed a window: the mean of the last two.
    passing: Pages,
}

impl Roster {
    /// Writers that are held here.
    pub(super) fn held(&self) -> u64 {
        let known = self.held_before.saturating_add(self.joined);
        u64::from(known.max(self.held_now).max(1))
    }

    /// The rate of each held writer where all together dirty `rate`.
    pub(super) fn fair(&self, rate: PagesPerSec) -> Fair {
        let passing = mul_div(self.passing.0, SECOND, WINDOW.0);
        let left = rate.0.saturating_sub(passing);
        Fair {
            left: PagesPerSec(left.max(rate.0 / HELD_SHARE_MIN).max(1)),
            held: self.held(),
        }
    }

    /// Moves on to the window of `now`.
    pub(super) fn turn(&mut self, now: Instant) {
        let window = now.0 / WINDOW.0;
        if window == self.window {
            return;
        }
        let next = window == self.window + 1;
        self.held_before = if next { self.held_now } else { 0 };
        let before = if next { self.passed } else { Pages::ZERO };
        self.passing = Pages(u64::midpoint(self.passing.0, before.0));
        if !next {
            self.passing = Pages::ZERO;
        }
        self.window = window;
        self.held_now = 0;
        self.joined = 0;
        self.passed = Pages::ZERO;
    }

    /// A writer is held.
    pub(super) fn hold(&mut self, marks: &mut Marks, device: DeviceIndex) {
        let window = self.window;
        let before = marks.of(device);
        if before.is_some_and(|mark| mark.last == window) {
            return;
        }
        self.held_now = self.held_now.saturating_add(1);
        let since = match before {
            Some(mark) if mark.last + 1 == window => mark.since,
            Some(_) | None => {
                self.joined = self.joined.saturating_add(1);
                window
            }
        };
        marks.set(Mark {
            device,
            last: window,
            since,
        });
    }

    /// Pages of a writer passed; of a held one they are in its fair rate already.
    pub(super) fn pass(&mut self, marks: &Marks, device: DeviceIndex, pages: Pages) {
        let mark = marks.of(device);
        if mark.is_none_or(|mark| mark.last + 1 < self.window) {
            self.passed = self.passed.saturating_add(pages);
        }
    }

    /// A writer has gone.
    pub(super) fn leave(&mut self, marks: &Marks, device: DeviceIndex) {
        let Some(mark) = marks.of(device) else {
            return;
        };
        if mark.last == self.window {
            self.held_now = self.held_now.saturating_sub(1);
        }
        if mark.since == self.window {
            self.joined = self.joined.saturating_sub(1);
        } else if mark.last + 1 >= self.window {
            self.held_before = self.held_before.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceIndex = DeviceIndex(3);
    const RATE: PagesPerSec = PagesPerSec(4096);

    fn at(window: u64) -> Instant {
        Instant(window * WINDOW.0)
    }

    #[test]
    fn a_newcomer_counts_at_once_and_one_who_left_after_a_window() {
        let mut roster = Roster::default();
        let (mut a, mut b) = (Marks::default(), Marks::default());
        roster.turn(at(7));
        assert_eq!(roster.held(), 1);
        roster.hold(&mut a, DEVICE);
        roster.hold(&mut a, DEVICE);
        assert_eq!(roster.held(), 1);
        roster.turn(at(8));
        roster.hold(&mut b, DEVICE);
        assert_eq!(roster.held(), 2, "b has joined, a is known from before");
        roster.hold(&mut a, DEVICE);
        assert_eq!(roster.held(), 2);
        assert_eq!(roster.fair(RATE).rate(), PagesPerSec(2048));
        roster.turn(at(9));
        roster.hold(&mut a, DEVICE);
        assert_eq!(roster.held(), 2, "b may come yet");
        roster.turn(at(10));
        roster.hold(&mut a, DEVICE);
        assert_eq!(roster.held(), 1);
        roster.turn(at(99));
        assert_eq!(roster.held(), 1);
    }

    #[test]
    fn whoever_says_goodbye_is_not_waited_for() {
        for held_before in [false, true] {
            let mut roster = Roster::default();
            let mut all = [Marks::default(); 3];
            roster.turn(at(1));
            for marks in &mut all {
                roster.hold(marks, DEVICE);
            }
            if held_before {
                roster.turn(at(2));
                roster.hold(&mut all[0], DEVICE);
            }
            roster.leave(&all[0], DEVICE);
            roster.leave(&all[1], DEVICE);
            assert_eq!(roster.held(), 1);
        }
    }

    #[test]
    fn alternating_between_devices_counts_once_at_each() {
        let mut rosters = [Roster::default(); 4];
        let mut marks = Marks::default();
        for window in 1..5 {
            for _ in 0..10 {
                for (device, roster) in (0..).zip(&mut rosters) {
                    roster.turn(at(window));
                    roster.hold(&mut marks, DeviceIndex(device));
                }
            }
            for roster in &rosters {
                assert_eq!(roster.held(), 1);
            }
        }
    }

    #[test]
    fn the_held_share_what_the_others_leave() {
        let mut roster = Roster::default();
        let (mut held, free) = (Marks::default(), Marks::default());
        for window in 1..12 {
            roster.turn(at(window));
            roster.hold(&mut held, DEVICE);
            roster.pass(&held, DEVICE, Pages(1000));
            roster.pass(&free, DEVICE, Pages(50));
        }
        // 50 pages in half a second.
        assert_eq!(roster.fair(RATE).rate().0.abs_diff(4096 - 100), 2);
        // However much passes, the held are not starved.
        for window in 12..20 {
            roster.turn(at(window));
            roster.pass(&free, DEVICE, Pages(1 << 20));
        }
        assert_eq!(roster.fair(RATE).rate(), PagesPerSec(1024));
    }
}

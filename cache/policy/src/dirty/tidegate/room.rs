//! The part of the dirty limit that a device may fill, and the rate at which its writers are held
//! for it.
//!
//! ```text
//!  0 ...... background ...... freerun ...... target ...... cap      one device's level
//!    idle    its flusher        free          5/4 .. 1      1 .. 0   what its writers may dirty,
//!            writes                                                  in parts of the device's rate
//! ```
//!
//! Alone on a cache, a device has the marks of the whole limit: freerun at three quarters of it,
//! the target halfway to the cap. Among others:
//!
//!   - A quarter of the whole target is *reserved*, in equal parts. Nobody else can take a device's
//!     reserve, however slow or dead that device is.
//!   - The rest goes by rate to the devices at work, so that all of them hold the same *time*; what
//!     one holds beyond its part is missing there. At work is a device that holds something, or did
//!     within `HOLD`.
//!   - No device holds more than it writes in `HOLD`: more would only be older.
//!
//! A target that has to shrink does so at an eighth of the device's rate, and its writers go on
//! at seven eighths: a target moves, nobody stops.
//!
//! Required
//!   1. The sum of the targets is at most the whole target, and so that of the caps at most the
//!      limit.
//!   2. At freerun 5/4, at the target 1, at the cap 0; never rising with the level.
//!   3. Near the whole limit all are held, so that it is not passed.
//!
//! Source: Tidegate's own. Freerun and set point as in mechanisms 5.1, 5.5 (Linux 6.12
//! mm/page-writeback.c, wb_position_ratio()) where the background limit is half of the limit; its
//! shares follow completions only, so that a device alone takes all.

use crate::dirty::limits::mul_div;
use crate::dirty::types::{DeviceTunables, Limits};
use crate::units::{Instant, Nanos, Pages, PagesPerSec, SECOND};

/// One: a factor of the device's rate.
pub(super) const ONE: u64 = 1024;
/// The factor at freerun.
const AT_FREERUN: u64 = ONE * 5 / 4;
/// This part of the limit lies above freerun, at most.
const FREERUN_LEAVES: u64 = 4;
/// This part of the whole target is reserved.
const RESERVED: u64 = 4;
/// At most this part of a limit is kept free for writers that are on their way.
const MARGIN_SHARE: u64 = 8;
/// A target shrinks by this part of what the device writes.
const SHRINK: u64 = 8;
/// No device's target is below this, if the limit allows: a few requests.
const TARGET_MIN: Pages = Pages(256);
/// `DeviceTunables` ratios that mean "all".
const RATIO_ONE: u64 = 10_000;

/// Up to here nobody is held: three quarters of the limit, which is what Linux has with its usual
/// background limit of half of it; more where that is higher. A lower one has the flusher begin
/// sooner, and is no reason to hold writers sooner.
pub(super) const fn freerun(limits: Limits) -> Pages {
    let quarter = limits.dirty.0.div_ceil(FREERUN_LEAVES);
    Pages(limits.dirty.0 - quarter).at_least(limits.freerun())
}

/// The target of all devices together: halfway from there to the limit.
pub(super) const fn whole(limits: Limits) -> Pages {
    Pages(u64::midpoint(freerun(limits).0, limits.dirty.0))
}

/// The limits, levels and rates that a device's marks follow from: its own and the others'.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) limits: Limits,
    /// Dirty and under writeback, of all devices.
    pub(super) dirty: Pages,
    /// Devices there are.
    pub(super) devices: u64,
    /// Pages that are reserved for the others and that they do not hold.
    pub(super) unclaimed: Pages,
    /// Of all rates, this device's; and all of them.
    pub(super) rate: PagesPerSec,
    pub(super) rates: PagesPerSec,
}

impl Field {
    /// The target of all devices together.
    const fn whole(&self) -> Pages {
        whole(self.limits)
    }

    /// Pages that one of `devices` has for itself, independent of the others.
    pub(super) fn reserve(limits: Limits, devices: u64, tunables: &DeviceTunables) -> Pages {
        let whole = whole(limits).0;
        let asked = mul_div(whole, u64::from(tunables.min_ratio), RATIO_ONE);
        let most = mul_div(whole, u64::from(tunables.max_ratio), RATIO_ONE);
        Pages((whole / RESERVED / devices.max(1)).max(asked).min(most))
    }

    /// The level at which a device that holds `level` should stand.
    fn target(&self, level: Pages, tunables: &DeviceTunables, hold: Nanos) -> Pages {
        let whole = self.whole();
        let reserve = Self::reserve(self.limits, self.devices, tunables);
        let by_rate = mul_div(
            whole.0 - whole.0 / RESERVED,
            self.rate.0,
            self.rates.0.max(1),
        );
        let most = mul_div(whole.0, u64::from(tunables.max_ratio), RATIO_ONE);
        let others = self
            .dirty
            .saturating_sub(level)
            .saturating_add(self.unclaimed);
        let target = whole
            .saturating_sub(others)
            .at_most(Pages(reserve.0.saturating_add(by_rate)))
            .at_least(reserve)
            .at_most(Pages(most));
        target.at_most(self.rate.pages_in(hold).at_least(TARGET_MIN))
    }
}

/// One device's target, as it moves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target {
    pages: Pages,
    /// When it was last moved. None: never.
    moved: Option<Instant>,
}

impl Target {
    /// When it was last moved.
    pub(super) const fn moved(&self) -> Option<Instant> {
        self.moved
    }

    /// Brings the target to where it should be: up at once, down no faster than the device can
    /// follow.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        field: &Field,
        level: Pages,
        tunables: &DeviceTunables,
        hold: Nanos,
    ) -> Marks {
        let wanted = field.target(level, tunables, hold);
        let pages = match self.moved {
            Some(moved) if wanted < self.pages => {
                // Divided last: a device of a few pages a second sinks, too.
                let written = field.rate.pages_in(now.since(moved));
                let sunk = Pages(written.0 / SHRINK).at_most(self.pages - wanted);
                // The time for a part of a page is not lost: it counts with the next.
                let time = mul_div(sunk.0, SHRINK * SECOND, field.rate.0.max(1));
                self.moved = Some(moved + Nanos(time));
                self.pages - sunk
            }
            Some(_) | None => {
                self.moved = Some(now);
                wanted
            }
        };
        // A limit that was lowered holds at once.
        self.pages = pages.at_most(field.whole());
        let pages = self.pages;
        Marks::of(field, pages)
    }
}

/// The marks that a device's level is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) background: Pages,
    pub(super) freerun: Pages,
    pub(super) target: Pages,
    pub(super) cap: Pages,
    /// From here to the limit all devices are held.
    alarm: Pages,
    limit: Pages,
}

impl Marks {
    fn of(field: &Field, target: Pages) -> Self {
        let whole = field.whole();
        let part = |of: Pages| Pages(mul_div(of.0, target.0, whole.0.max(1)));
        let limits = field.limits;
        Self {
            background: part(limits.background),
            freerun: part(freerun(limits)),
            target,
            cap: part(limits.dirty),
            alarm: Pages(u64::midpoint(whole.0, limits.dirty.0)),
            limit: limits.dirty,
        }
    }

    /// The caps in proportion under a higher limit; the device's not above `most` for that.
    pub(super) fn raised_to(self, limit: Pages, most: Pages) -> Self {
        let limit = limit.at_least(self.limit);
        let cap = Pages(mul_div(self.cap.0, limit.0, self.limit.0.max(1)));
        Self {
            cap: cap.at_most(most).at_least(self.cap),
            limit,
            ..self
        }
    }

    /// True if nobody is held: `level` of the device, `dirty` of all.
    pub(super) fn is_free(&self, level: Pages, dirty: Pages) -> bool {
        level <= self.freerun && dirty <= self.alarm && dirty < self.limit.at_least(Pages(1))
    }

    /// True if nothing is near its limit: the device is nearer to its target than to its cap, and
    /// all are to theirs.
    pub(super) fn has_room(&self, level: Pages, dirty: Pages) -> bool {
        level.0 <= u64::midpoint(self.target.0, self.cap.0) && dirty <= self.alarm
    }

    /// The rate at which the device's writers may dirty together, in 1/1024 of the device's rate.
    pub(super) fn factor(&self, level: Pages, dirty: Pages) -> u64 {
        let own = if level <= self.target {
            let above = level.saturating_sub(self.freerun).0;
            let span = self.target.saturating_sub(self.freerun).0;
            AT_FREERUN - mul_div(AT_FREERUN - ONE, above.min(span), span.max(1))
        } else {
            falling(level, self.target, self.cap)
        };
        own.min(falling(dirty, self.alarm, self.limit).saturating_mul(2))
    }

    /// Pages that have to go before `writers` may dirty one page each.
    pub(super) fn excess(&self, level: Pages, dirty: Pages, writers: u64) -> Pages {
        let over = |level: Pages, most: Pages| {
            // Of a limit of a few pages a part has to be left, or nobody would ever write.
            let kept = Pages(writers.min(most.0 / MARGIN_SHARE));
            level.saturating_sub(most.saturating_sub(kept))
        };
        over(level, self.cap).at_least(over(dirty, self.limit))
    }

    /// Pages that may still come.
    pub(super) fn left(&self, level: Pages, dirty: Pages) -> Pages {
        let own = self.cap.saturating_sub(level);
        own.at_most(self.limit.saturating_sub(dirty))
    }
}

/// From `ONE` at `from` to zero at `to`.
fn falling(value: Pages, from: Pages, to: Pages) -> u64 {
    let span = to.saturating_sub(from).0;
    if span == 0 {
        return if value < to { ONE } else { 0 };
    }
    let left = to.saturating_sub(value).0.min(span);
    mul_div(ONE, left, span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty::types::InitialBandwidth;

    const MIB: u64 = 256;
    const HOLD: Nanos = Nanos::secs(30);
    const PLAIN: DeviceTunables = DeviceTunables {
        min_ratio: 0,
        max_ratio: 10_000,
        strict: false,
        initial: InitialBandwidth::Assumed,
    };

    fn field(devices: u64, dirty: u64, unclaimed: u64, rate: u64, rates: u64) -> Field {
        Field {
            limits: Limits {
                dirty: Pages(64 * MIB),
                background: Pages(32 * MIB),
            },
            dirty: Pages(dirty * MIB),
            devices,
            unclaimed: Pages(unclaimed * MIB),
            rate: PagesPerSec(rate * MIB),
            rates: PagesPerSec(rates * MIB),
        }
    }

    fn target(field: &Field, level: u64) -> u64 {
        field.target(Pages(level * MIB), &PLAIN, HOLD).0 / MIB
    }

    #[test]
    fn alone_a_device_has_the_marks_of_the_whole_limit() {
        let field = field(1, 0, 0, 16, 16);
        let marks = Target::default().follow(Instant(9), &field, Pages(0), &PLAIN, HOLD);
        assert_eq!(marks.background, Pages(32 * MIB));
        assert_eq!(marks.freerun, Pages(48 * MIB));
        assert_eq!(marks.target, Pages(56 * MIB));
        assert_eq!(marks.cap, Pages(64 * MIB));
        let factor = |mib: u64| marks.factor(Pages(mib * MIB), Pages(mib * MIB));
        assert_eq!([48, 52, 56, 60, 64].map(factor), [1280, 1152, 1024, 512, 0]);
        assert!(marks.is_free(Pages(48 * MIB), Pages(48 * MIB)));
        assert!(!marks.is_free(Pages(48 * MIB + 1), Pages(48 * MIB + 1)));
    }

    #[test]
    fn under_a_higher_limit_a_device_has_the_same_part_of_it() {
        let field = field(2, 20, 14, 4, 52);
        let marks = Target::default().follow(Instant(9), &field, Pages(0), &PLAIN, HOLD);
        let all = Pages(1000 * MIB);
        let raised = marks.raised_to(Pages(256 * MIB), all);
        assert_eq!(raised.cap.0 / 4, marks.cap.0);
        let excess = |marks: Marks, level| marks.excess(level, level, 1);
        assert_eq!(excess(marks, marks.cap), Pages(1));
        assert_eq!(excess(raised, raised.cap - Pages(1)), Pages::ZERO);
        assert_eq!(excess(raised, raised.cap), Pages(1));
        assert_eq!(marks.raised_to(Pages(1), all), marks);
        // Nor more than it writes in the time given.
        let cap = |most| marks.raised_to(Pages(256 * MIB), most).cap;
        assert_eq!(cap(marks.cap + Pages(9)), marks.cap + Pages(9));
        assert_eq!(cap(Pages(9)), marks.cap);
    }

    #[test]
    fn the_factor_never_rises_with_the_level() {
        let field = field(2, 20, 14, 4, 52);
        let marks = Target::default().follow(Instant(9), &field, Pages(0), &PLAIN, HOLD);
        let mut before = u64::MAX;
        for level in 0..=marks.cap.0 + 9 {
            let factor = marks.factor(Pages(level), Pages(20 * MIB + level));
            assert!(factor <= before, "{level}");
            before = factor;
        }
        assert_eq!(before, 0);
    }

    #[test]
    fn a_reserve_is_there_whatever_the_others_hold() {
        // Alone at work, one of two has its reserve and all that is dealt out.
        assert_eq!(target(&field(2, 49, 7, 16, 16), 49), 49);
        // The other one comes while that is stuck: its reserve is free.
        assert_eq!(target(&field(2, 49, 0, 48, 64), 0), 7);
        // Both at work and settled: by rate.
        assert_eq!(target(&field(2, 56, 0, 4, 52), 10), 10);
        assert_eq!(target(&field(2, 56, 0, 48, 52), 46), 45);
    }

    #[test]
    fn no_device_holds_more_than_it_writes_in_the_time_given() {
        let field = field(1, 0, 0, 1, 1);
        assert_eq!(
            field.target(Pages(0), &PLAIN, Nanos::secs(5)),
            Pages(5 * MIB)
        );
        assert_eq!(target(&field, 0), 30);
    }

    #[test]
    fn a_target_rises_at_once_and_sinks_slowly() {
        let mut moving = Target::default();
        let alone = field(2, 0, 7, 16, 16);
        let mut at = |ms: u64, field: &Field| {
            let now = Instant(ms * 1_000_000);
            moving.follow(now, field, Pages(0), &PLAIN, HOLD).target.0
        };
        assert_eq!(at(1000, &alone), 49 * MIB);
        let crowded = field(2, 49, 0, 16, 64);
        assert_eq!(at(2000, &crowded), 47 * MIB);
        // However often it is looked at.
        for ms in 2001..=3000 {
            at(ms, &crowded);
        }
        assert_eq!(at(3000, &crowded), 45 * MIB);
        assert_eq!(at(3001, &alone), 49 * MIB);
    }

    #[test]
    fn the_target_of_a_device_of_a_few_pages_a_second_sinks_too() {
        let mut moving = Target::default();
        let mut field = field(1, 0, 0, 16, 16);
        let start = moving.follow(Instant(1), &field, Pages(0), &PLAIN, HOLD);
        field.rate = PagesPerSec(7);
        let mut now = Instant(1);
        for _ in 0..6000 {
            now = now + Nanos::millis(100);
            moving.follow(now, &field, Pages(0), &PLAIN, HOLD);
        }
        let sunk = start.target - moving.follow(now, &field, Pages(0), &PLAIN, HOLD).target;
        // An eighth of 7 pages a second for ten minutes.
        assert_eq!(sunk.0.abs_diff(7 * 600 / 8), 0, "{sunk:?}");
    }

    #[test]
    fn limits_of_nothing_are_marks_of_nothing() {
        let mut field = field(3, 0, 0, 1, 1);
        field.limits = Limits {
            dirty: Pages(0),
            background: Pages(0),
        };
        let marks = Target::default().follow(Instant(9), &field, Pages(5), &PLAIN, HOLD);
        assert!(!marks.is_free(Pages(1), Pages(1)));
        assert_eq!(marks.factor(Pages(1), Pages(1)), 0);
        assert_eq!(marks.excess(Pages(1), Pages(1), 3), Pages(1));
        assert_eq!(marks.excess(Pages(0), Pages(0), 3), Pages(0));
    }
}

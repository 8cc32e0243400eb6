//! The digest of the writers' events as they happen: the pauses that the originals print, the pages
//! each task dirtied and when, the height of the level.
//!
//! Live there are thousands of such events a second, and memory that they take comes on top of the
//! limit that the run is about. So none is kept: a pause is 104 bytes, all balances without one of
//! a hundredth of a second 16.
//!
//! Invariant: memory is bounded by the pauses, of which at most a given number is kept (the others
//! are counted), and by the run's length: of each slot one level is kept, its highest.

use std::collections::BTreeMap;

use env::{Event, TaskId};
use policy::dirty::{BalanceTrace, Law, PauseReason, Prints};
use policy::units::{Nanos, Pages};

use super::real::{millis, number, seconds};
use crate::outcome::{Level, Pause};

/// Tenths of a second that are told apart: a day of them.
const TENTHS_MAX: usize = 864_000;
/// A tenth of a second.
const TENTH: Nanos = Nanos::millis(100);

/// The events of one run so far.
#[derive(Debug)]
pub(super) struct Digest {
    law: Law,
    /// Within one of these only the highest level counts.
    slot: Nanos,
    pauses_most: usize,
    pauses: Vec<Pause>,
    /// Pauses after those.
    left_out: u64,
    /// Of each writer: what its next line will say.
    open: BTreeMap<u32, Pause>,
    tenths: BTreeMap<u32, Vec<f64>>,
    /// Dirty and writeback as balances saw them, with their times.
    seen: Vec<(Nanos, Pages)>,
}

impl Digest {
    /// Nothing so far. `slot`: how finely the level is told apart in time.
    pub(super) fn new(law: Law, slot: Nanos, pauses_most: usize) -> Self {
        Self {
            law,
            slot: slot.at_least(Nanos(1)),
            pauses_most,
            pauses: Vec::new(),
            left_out: 0,
            open: BTreeMap::new(),
            tenths: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    /// An event, so long after the run began. In order of time.
    pub(super) fn saw(&mut self, at: Nanos, task: TaskId, event: &Event) {
        match event {
            Event::Dirtied { pages, .. } => self.dirtied(at, task, *pages),
            Event::BalanceDirtyPages {
                writer,
                trace,
                why,
                done,
                ..
            } => {
                self.level(at, trace.dirty);
                let stalled = *why == Some(PauseReason::NoProgress);
                self.balanced(at, task, *writer, trace, stalled);
                if *done {
                    self.open.remove(writer);
                }
            }
            _ => {}
        }
    }

    fn dirtied(&mut self, at: Nanos, task: TaskId, pages: Pages) {
        let tenth = at.0 / TENTH.0;
        let tenth = usize::try_from(tenth).map_or(TENTHS_MAX - 1, |at| at.min(TENTHS_MAX - 1));
        let tenths = self.tenths.entry(task.0).or_default();
        if tenths.len() <= tenth {
            tenths.resize(tenth + 1, 0.0);
        }
        tenths[tenth] += number(pages.bytes().0);
    }

    fn level(&mut self, at: Nanos, dirty: Pages) {
        match self.seen.last_mut() {
            Some(last) if last.0.0 / self.slot.0 == at.0 / self.slot.0 => {
                if last.1 < dirty {
                    *last = (at, dirty);
                }
            }
            _ => self.seen.push((at, dirty)),
        }
    }

    /// One pause for each decision that the original prints a line for (`BalanceTrace::line`).
    /// Sleep of decisions without a line belongs to the stay's next line, and is lost with it when
    /// a stay ends without one.
    fn balanced(
        &mut self,
        at: Nanos,
        task: TaskId,
        writer: u32,
        trace: &BalanceTrace,
        stalled: bool,
    ) {
        let law = self.law;
        let line = self.open.entry(writer).or_default();
        line.longest_ms = line.longest_ms.max(millis(trace.pause));
        line.dirtied = line.dirtied.max(number(trace.dirtied.0));
        line.written = line.written.max(number(trace.written.0));
        line.stalled |= stalled;
        if trace.task_ratelimit.0 > 0 {
            line.task_ratelimit = number(trace.task_ratelimit.0);
        }
        if !trace.line {
            return;
        }
        line.at_s = seconds(at);
        line.task = task.0;
        line.writer = writer;
        line.printed_after = law.prints == Prints::Whole;
        line.slept_ms = millis(printed_pause(law, trace));
        line.device_dirty = number(trace.device_dirty.0);
        line.device_limit = number(trace.device_limit.0);
        line.dirty_ratelimit = number(trace.dirty_ratelimit.0);
        let line = self.open.remove(&writer);
        if self.pauses.len() < self.pauses_most {
            self.pauses.extend(line);
        } else {
            self.left_out += 1;
        }
    }

    /// Bytes that a task dirtied in each tenth of a second; they are gone then.
    pub(super) fn take_tenths(&mut self, task: TaskId) -> Vec<f64> {
        self.tenths.remove(&task.0).unwrap_or_default()
    }

    /// The highest level as a part of its limit, which is that of the last of `levels` before it.
    pub(super) fn level_peak(&self, levels: &[Level]) -> f64 {
        let part = |level: f64, limit: f64| if limit > 0.0 { level / limit } else { 0.0 };
        let mut peak = levels
            .iter()
            .map(|level| part(level.dirty + level.writeback, level.limit))
            .fold(0.0, f64::max);
        let mut samples = levels.iter().peekable();
        let mut limit = levels.first().map_or(0.0, |level| level.limit);
        for (at, dirty) in &self.seen {
            let at = seconds(*at);
            while let Some(level) = samples.next_if(|level| level.at_s <= at) {
                limit = level.limit;
            }
            peak = peak.max(part(number(dirty.0), limit));
        }
        peak
    }

    /// The pauses, in order of time, and how many more there were.
    pub(super) fn pauses(self) -> (Vec<Pause>, u64) {
        (self.pauses, self.left_out)
    }
}

/// The pause that the original prints in its line.
fn printed_pause(law: Law, trace: &BalanceTrace) -> Nanos {
    match law.prints {
        Prints::Whole => trace.paused,
        Prints::Pauses => trace.pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::dirty::DeviceIndex;

    fn seen(at_ms: u64, trace: BalanceTrace, done: bool) -> (Nanos, Event) {
        let event = Event::BalanceDirtyPages {
            device: DeviceIndex(0),
            writer: 1,
            trace,
            why: None,
            done,
        };
        (Nanos::millis(at_ms), event)
    }

    fn trace(pause: u64, paused: u64, line: bool) -> BalanceTrace {
        BalanceTrace {
            pause: Nanos::millis(pause),
            paused: Nanos::millis(paused),
            line,
            ..BalanceTrace::default()
        }
    }

    fn digest(law: Law, slot: Nanos, events: &[(Nanos, Event)]) -> Digest {
        let mut digest = Digest::new(law, slot, usize::MAX);
        for (at, event) in events {
            digest.saw(*at, TaskId(3), event);
        }
        digest
    }

    fn printed(law: Law, events: &[(Nanos, Event)]) -> Vec<(f64, f64)> {
        let (pauses, _) = digest(law, Nanos::ZERO, events).pauses();
        pauses.iter().map(|p| (p.at_s, p.slept_ms)).collect()
    }

    #[test]
    fn the_line_of_2_6_36_is_a_whole_call_and_may_be_zero() {
        let events = [
            seen(0, trace(4, 0, false), false),
            seen(4, trace(8, 4, false), false),
            seen(12, trace(0, 12, true), true),
            seen(50, trace(0, 0, true), true),
        ];
        let lines = printed(history::dirty::FOREGROUND, &events);
        assert_eq!(lines, [(0.012, 12.0), (0.05, 0.0)]);
    }

    #[test]
    fn a_line_of_p1_is_one_pause_and_a_call_without_one_prints_nothing() {
        let events = [
            seen(0, trace(8, 0, true), false),
            seen(8, trace(0, 8, false), true),
            seen(20, trace(0, 0, false), true),
            seen(30, trace(200, 0, true), false),
            seen(230, trace(8, 200, true), false),
            seen(238, trace(0, 208, false), true),
        ];
        let lines = printed(history::dirty::SOFT_REGION_MEASURED, &events);
        assert_eq!(lines, [(0.0, 8.0), (0.03, 200.0), (0.23, 8.0)]);
    }

    #[test]
    fn a_skipped_pause_of_6_12_is_a_line_of_zero() {
        let events = [seen(7, trace(0, 0, true), true)];
        assert_eq!(printed(history::dirty::RATE_BASED, &events), [(0.007, 0.0)]);
    }

    #[test]
    fn a_million_balances_without_a_line_leave_the_highest_of_each_slot() {
        let mut digest = Digest::new(history::dirty::RATE_BASED, Nanos::millis(10), usize::MAX);
        for number in 0..1_000_000_u64 {
            let balance = BalanceTrace {
                // It rises with every balance, to 100 in each slot.
                dirty: Pages(match number {
                    777_777 => 900,
                    _ => number % 10_000 / 100,
                }),
                ..BalanceTrace::default()
            };
            let (_, event) = seen(0, balance, true);
            digest.saw(Nanos::micros(number), TaskId(3), &event);
        }
        assert!(digest.pauses.is_empty() && digest.open.is_empty());
        assert!(digest.seen.len() <= 101, "{}", digest.seen.len());
        let level = |at_s, limit| Level {
            at_s,
            limit,
            ..Level::default()
        };
        let levels = [level(0.0, 1000.0), level(0.7, 500.0), level(0.8, 2000.0)];
        assert_eq!(digest.level_peak(&levels).to_bits(), 1.8_f64.to_bits());
    }

    #[test]
    fn pauses_are_kept_up_to_a_number() {
        let mut digest = Digest::new(history::dirty::RATE_BASED, Nanos::ZERO, 2);
        for at in 0..5 {
            let (at, event) = seen(at, trace(1, 0, true), true);
            digest.saw(at, TaskId(3), &event);
        }
        let (pauses, left_out) = digest.pauses();
        let kept: Vec<f64> = pauses.iter().map(|pause| pause.at_s).collect();
        assert_eq!((kept.as_slice(), left_out), ([0.0, 0.001].as_slice(), 3));
    }
}

//! The watch of a run while it runs: sums over events that nobody could keep.
//!
//! A run of an hour has more events than memory. A `Watch` is told of each as it happens, in the
//! lab and live, and keeps sums of bounded size: throttlings by kind, waits by cause, pressure
//! totals, sleepers over time, and, where it was asked for, a timeline of bounded length for a
//! trace.
//!
//! ```text
//!   Env::emit -> Watch::event -> tasks: asleep on what? reclaiming? -> pressure, slots
//!                             -> lengths of waits, kinds of throttlings
//!                             -> timeline (only with --trace)
//!   session: opens() when the jobs begin, closes() when they have ended; outside, nothing is counted
//! ```
//!
//! Invariants
//!   1. Memory is bounded, whatever the run does: by the constants here.
//!   2. Events come in the order of their times (the lab shows no earlier time than it has shown;
//!      live the time is taken under the lock), so every sum is exact to the nanosecond of that
//!      time.
//!   3. It changes nothing: a run with a watch has the trace hash of one without.
//!
//! Source: experiments D2, D3; Linux v6.12 kernel/sched/psi.c (what counts as a stall: `pressure`).

mod lengths;
mod pressure;
mod slots;

pub use crate::timeline::{Item, Timeline, What};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::{Cause, Event, TaskId, Wakeup};
use policy::reclaim::Reason;
use policy::units::{Instant, Nanos, Pages};

use crate::outcome::{Longest, Outcome, Throttle, ThrottleCount, ThrottleEnd, WaitLengths};
use lengths::Lengths;
use pressure::Meter;
use slots::SlotSums;

/// Causes that are told apart, by their number in `Cause`.
const CAUSES_MOST: usize = 32;
/// Tasks that are followed; ids beyond belong to nobody we know of.
const TASKS_MOST: usize = 1 << 16;
/// Throttlings kept one by one: 6 MB.
const THROTTLED_MOST: usize = 100_000;
/// Kinds of throttlings told apart: reasons, timeouts and whole ticks of delay, far fewer in
/// practice.
const KINDS_MOST: usize = 100_000;

/// A watch that a world and its session share.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<Watch>>);

impl Shared {
    /// `trace`: a timeline is kept.
    pub(crate) fn new(trace: bool) -> Self {
        Self(Arc::new(Mutex::new(Watch::new(trace))))
    }

    /// The watch; live, the time of an event is to be taken while it is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl world::Watcher for Shared {
    fn event(&mut self, at: Instant, task: TaskId, event: &Event) {
        self.lock().event(at, task, event);
    }

    fn ended(&mut self, at: Instant, task: TaskId) {
        self.lock().ended(at, task);
    }
}

/// The activity of a task, as far as events tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doing {
    /// Asleep on this; none: it runs or wants to.
    asleep: Option<Cause>,
    /// Reclaims memory, on its own behalf or as the background reclaimer.
    reclaims: bool,
}

/// The sums of one run.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When the jobs began; none: they have not, or have ended.
    since: Option<Instant>,
    /// By task; none: nothing heard of it, or it has ended.
    tasks: Vec<Option<Doing>>,
    pressure: Meter,
    slots: SlotSums,
    waits: [Lengths; CAUSES_MOST],
    causes: [Option<Cause>; CAUSES_MOST],
    kinds: BTreeMap<Kind, u64>,
    samples: BTreeMap<u32, Sample>,
    throttled: Vec<(Instant, TaskId, Kind)>,
    timeline: Option<Timeline>,
}

/// The key by which two throttlings are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    background: bool,
    reason: Reason,
    timeout: Nanos,
    delayed: Nanos,
    ended: ThrottleEnd,
}

/// Waits of a task by cause since its last sample, and its longest sample so far.
#[derive(Debug, Default)]
struct Sample {
    since: [Nanos; CAUSES_MOST],
    longest: Option<(Instant, Nanos, [Nanos; CAUSES_MOST])>,
}

impl Watch {
    fn new(trace: bool) -> Self {
        Self {
            since: None,
            tasks: Vec::new(),
            pressure: Meter::default(),
            slots: SlotSums::default(),
            waits: core::array::from_fn(|_| Lengths::default()),
            causes: [None; CAUSES_MOST],
            kinds: BTreeMap::new(),
            samples: BTreeMap::new(),
            throttled: Vec::new(),
            timeline: trace.then(Timeline::default),
        }
    }

    /// The jobs begin: from here on it is counted.
    pub(crate) fn opens(&mut self, at: Instant) {
        self.since = Some(at);
        self.pressure.opens(at);
        self.slots.opens(at);
        if let Some(timeline) = &mut self.timeline {
            timeline.opens(at);
        }
    }

    /// The jobs have ended: from here on it is not.
    pub(crate) fn closes(&mut self, at: Instant) {
        self.pressure.closes(at);
        self.slots.closes(at);
        if let Some(timeline) = &mut self.timeline {
            timeline.closes(at);
        }
        self.since = None;
    }

    /// The time that the jobs are at it; none: they have not begun, or have ended.
    pub(crate) fn running(&self, at: Instant) -> Option<Nanos> {
        self.since.map(|since| at.since(since))
    }

    /// Something happened.
    pub(crate) fn event(&mut self, at: Instant, task: TaskId, event: &Event) {
        let index = task.0 as usize;
        if index < TASKS_MOST {
            if self.tasks.len() <= index {
                self.tasks.resize(index + 1, None);
            }
            let before = self.tasks[index];
            let after = Some(doing(before.unwrap_or_default(), event));
            if before != after {
                self.tasks[index] = after;
                self.changes(at, before, after);
            }
        }
        if self.since.is_some() {
            self.count(at, task, event);
            if let Some(timeline) = &mut self.timeline {
                timeline.event(at, task, event);
            }
        }
    }

    /// A task is no more.
    pub(crate) fn ended(&mut self, at: Instant, task: TaskId) {
        let Some(slot) = self.tasks.get_mut(task.0 as usize) else {
            return;
        };
        let before = slot.take();
        self.changes(at, before, None);
        if let Some(timeline) = self.timeline.as_mut().filter(|_| self.since.is_some()) {
            timeline.ended(at, task);
        }
    }

    fn changes(&mut self, at: Instant, before: Option<Doing>, after: Option<Doing>) {
        self.pressure.changes(at, before, after);
        let slept = |doing: Option<Doing>| doing.and_then(|doing| doing.asleep);
        self.slots.sleeps(at, slept(before), slept(after));
    }

    fn count(&mut self, at: Instant, task: TaskId, event: &Event) {
        match *event {
            Event::Waited {
                cause,
                waited,
                wakeup,
            } if !is_idle(cause) => {
                let index = cause as usize % CAUSES_MOST;
                self.causes[index] = Some(cause);
                self.waits[index].record(waited, wakeup);
                self.samples.entry(task.0).or_default().since[index] += waited;
            }
            Event::Sampled { took, .. } => {
                let sample = self.samples.entry(task.0).or_default();
                let waits = core::mem::take(&mut sample.since);
                if sample.longest.is_none_or(|(_, longest, _)| longest < took) {
                    sample.longest = Some((at, took, waits));
                }
            }
            Event::Reclaimed {
                background,
                scanned,
                freed,
            } => self.slots.reclaimed(at, background, scanned, freed),
            Event::Throttled {
                background,
                reason,
                timeout,
                delayed,
                wakeup,
            } => {
                let kind = Kind {
                    background,
                    reason,
                    timeout,
                    delayed,
                    ended: match wakeup {
                        None => ThrottleEnd::NoSleep,
                        Some(Wakeup::TimedOut) => ThrottleEnd::Timeout,
                        Some(Wakeup::Ready(_) | Wakeup::Cancelled | Wakeup::Refused) => {
                            ThrottleEnd::Event
                        }
                    },
                };
                if self.kinds.len() < KINDS_MOST || self.kinds.contains_key(&kind) {
                    *self.kinds.entry(kind).or_default() += 1;
                }
                if self.throttled.len() < THROTTLED_MOST {
                    self.throttled.push((at, task, kind));
                }
            }
            _ => {}
        }
    }

    /// Fills in what it saw. `origin`: the run's time zero.
    pub(crate) fn finish(&mut self, origin: Instant, outcome: &mut Outcome) {
        outcome.throttles = self
            .kinds
            .iter()
            .map(|(kind, count)| ThrottleCount {
                background: kind.background,
                reason: kind.reason,
                timeout_ms: millis(kind.timeout),
                delayed_ms: millis(kind.delayed),
                ended: kind.ended,
                count: *count,
            })
            .collect();
        outcome.throttled = core::mem::take(&mut self.throttled)
            .into_iter()
            .map(|(at, task, kind)| Throttle {
                at_s: seconds(at.since(origin)),
                task: task.0,
                background: kind.background,
                reason: kind.reason,
                timeout_ms: millis(kind.timeout),
                delayed_ms: millis(kind.delayed),
                ended: kind.ended,
            })
            .collect();
        let causes = self.causes.iter().zip(&self.waits);
        outcome.waits = causes
            .filter_map(|(cause, lengths)| cause.map(|cause| wait_lengths(cause, lengths)))
            .collect();
        outcome.longest = self.longest(origin);
        outcome.pressure = self.pressure.totals();
        outcome.slots = self.slots.finish();
        outcome.timeline = self.timeline.take();
    }
}

impl Watch {
    /// The longest sample of each task that took any.
    fn longest(&self, origin: Instant) -> Vec<Longest> {
        let of = |(task, sample): (&u32, &Sample)| {
            let (at, took, waits) = sample.longest?;
            let named = self.causes.iter().zip(&waits);
            let mut parts: Vec<(String, f64)> = named
                .filter_map(|(cause, waited)| Some(((*cause)?, *waited)))
                .filter(|(_, waited)| !waited.is_zero())
                .map(|(cause, waited)| (format!("{cause:?}"), millis(waited)))
                .collect();
            parts.sort_by(|left, right| right.1.total_cmp(&left.1));
            Some(Longest {
                task: *task,
                at_s: seconds(at.since(origin)),
                took_ms: millis(took),
                parts,
            })
        };
        self.samples.iter().filter_map(of).collect()
    }
}

/// The activity of a task after an event of its own.
fn doing(mut doing: Doing, event: &Event) -> Doing {
    match *event {
        Event::Waiting { cause } => doing.asleep = Some(cause),
        Event::Waited { .. } => doing.asleep = None,
        Event::DirectReclaim => doing.reclaims = true,
        Event::Reclaimed {
            background: false, ..
        } => doing.reclaims = false,
        Event::Background { awake } => doing.reclaims = awake,
        _ => {}
    }
    doing
}

/// A wait in which a task has nothing to do, or wants to do nothing: no stall.
pub const fn is_idle(cause: Cause) -> bool {
    matches!(cause, Cause::Idle | Cause::Think | Cause::Join)
}

fn wait_lengths(cause: Cause, lengths: &Lengths) -> WaitLengths {
    WaitLengths {
        cause: format!("{cause:?}"),
        count: lengths.count(),
        timed_out: lengths.timed_out(),
        total_s: seconds(lengths.total()),
        p50_ms: millis(lengths.percentile(50)),
        p99_ms: millis(lengths.percentile(99)),
        max_ms: millis(lengths.max()),
        lengths: lengths
            .classes()
            .map(|(most, waits)| (millis(most), waits))
            .collect(),
        ends: lengths
            .ends()
            .map(|(by, count, total)| (by.to_owned(), count, seconds(total)))
            .collect(),
    }
}

/// A time in seconds.
#[must_use]
pub fn seconds(time: Nanos) -> f64 {
    number(time.0) / 1e9
}

fn millis(time: Nanos) -> f64 {
    number(time.0) / 1e6
}

fn pages(pages: Pages) -> f64 {
    number(pages.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times are below 2^53"
)]
fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;

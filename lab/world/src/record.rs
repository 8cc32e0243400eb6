//! The record of a run: events, one line of account per task, and the reason why a run could not
//! end.
//!
//! Every event goes into the trace hash. Events whose kind `Options::record` names are kept as
//! well, with time and task.

use core::fmt;

use ::env::{Cause, Event, IoOp, TaskId, Wakeup};
use policy::dirty::BalanceTrace;
use policy::units::{Instant, Nanos};

use crate::hash::{self, TraceHash};

/// Kinds of events, to choose what to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// `Event::Waiting`.
    Waiting,
    /// `Event::Waited`.
    Waited,
    /// `Event::BalanceDirtyPages`.
    BalanceDirtyPages,
    /// `Event::Wrote`.
    Wrote,
    /// `Event::Read`.
    Read,
    /// `Event::Dirtied`.
    Dirtied,
    /// `Event::Submitted`.
    Submitted,
    /// `Event::Completed`.
    Completed,
    /// `Event::Reclaimed`.
    Reclaimed,
    /// `Event::Committed`.
    Committed,
    /// `Event::Throttled`.
    Throttled,
    /// `Event::DirectReclaim`.
    DirectReclaim,
    /// `Event::Background`.
    Background,
    /// `Event::Faulted`.
    Faulted,
    /// `Event::Sampled`.
    Sampled,
    /// An event that this crate does not know.
    Other,
}

impl EventKind {
    /// The kind of an event.
    #[must_use]
    pub const fn of(event: &Event) -> Self {
        match event {
            Event::Waiting { .. } => Self::Waiting,
            Event::Waited { .. } => Self::Waited,
            Event::BalanceDirtyPages { .. } => Self::BalanceDirtyPages,
            Event::Wrote { .. } => Self::Wrote,
            Event::Read { .. } => Self::Read,
            Event::Dirtied { .. } => Self::Dirtied,
            Event::Submitted { .. } => Self::Submitted,
            Event::Completed { .. } => Self::Completed,
            Event::Reclaimed { .. } => Self::Reclaimed,
            Event::Committed { .. } => Self::Committed,
            Event::Throttled { .. } => Self::Throttled,
            Event::DirectReclaim => Self::DirectReclaim,
            Event::Background { .. } => Self::Background,
            Event::Faulted { .. } => Self::Faulted,
            Event::Sampled { .. } => Self::Sampled,
            _ => Self::Other,
        }
    }
}

/// Which kinds of events to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record(u32);

impl Record {
    /// None.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(u32::MAX);

    /// These and `kind`.
    #[must_use]
    pub const fn with(self, kind: EventKind) -> Self {
        Self(self.0 | 1 << kind as u16)
    }

    /// These without `kind`.
    #[must_use]
    pub const fn without(self, kind: EventKind) -> Self {
        Self(self.0 & !(1 << kind as u16))
    }

    /// True if `kind` is kept.
    #[must_use]
    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & 1 << kind as u16 != 0
    }
}

/// An event that was kept.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When, on its task's clock.
    pub at: Instant,
    /// By whom.
    pub task: TaskId,
    /// The event.
    pub event: Event,
}

/// An observer that is told of every event as it happens and keeps what it wants of it: for runs
/// with more events than memory. It sees a task's events in order, and those of different tasks
/// nearly so: each stands at its task's clock.
pub trait Watcher: Send {
    /// Something happened.
    fn event(&mut self, at: Instant, task: TaskId, event: &Event);
    /// A task's body returned.
    fn ended(&mut self, at: Instant, task: TaskId);
}

/// A watcher as a lab holds it.
pub type Watch = Box<dyn Watcher>;

/// The ends of waits of one cause: each by its event, or by its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakes {
    /// By the event.
    pub ready: u64,
    /// By the deadline. A sleep (`Task::sleep`) always.
    pub timed_out: u64,
    /// By the shutdown.
    pub cancelled: u64,
}

impl Wakes {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.ready + self.timed_out + self.cancelled
    }

    pub(crate) const fn count(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Ready(_) => self.ready += 1,
            Wakeup::TimedOut => self.timed_out += 1,
            Wakeup::Cancelled => self.cancelled += 1,
            Wakeup::Refused => {}
        }
    }
}

/// Account of one task. `user + system + asleep + unnamed + ready + stolen` is the time from
/// `started` to `ended` (or to now), to the nanosecond.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// Its number.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// When it was spawned.
    pub started: Instant,
    /// When its body returned; none: not yet.
    pub ended: Option<Instant>,
    /// CPU time of `Work::User`.
    pub user: Nanos,
    /// CPU time of all other work.
    pub system: Nanos,
    /// Time blocked, by cause; the causes in order.
    pub asleep: Vec<(Cause, Nanos)>,
    /// The ends of waits, by cause: as many entries as `asleep`.
    pub wakes: Vec<(Cause, Wakes)>,
    /// Time blocked in a park that no `Event::Waited` named: a wait that has not ended.
    pub unnamed: Nanos,
    /// Time runnable without a CPU.
    pub ready: Nanos,
    /// Time on a CPU that interrupts took.
    pub stolen: Nanos,
    /// Times it blocked.
    pub sleeps: u64,
}

impl TaskReport {
    /// CPU time of both kinds.
    #[must_use]
    pub fn cpu(&self) -> Nanos {
        self.user + self.system
    }

    /// Time blocked, whatever the cause.
    #[must_use]
    pub fn asleep_total(&self) -> Nanos {
        self.asleep.iter().map(|(_, time)| *time).sum::<Nanos>() + self.unnamed
    }

    /// Time blocked on `cause`.
    #[must_use]
    pub fn asleep_on(&self, cause: Cause) -> Nanos {
        self.asleep
            .iter()
            .filter(|(other, _)| *other == cause)
            .map(|(_, time)| *time)
            .sum()
    }

    /// Time blocked on input and output.
    #[must_use]
    pub fn io(&self) -> Nanos {
        let io = self.asleep.iter().filter(|(cause, _)| cause.is_io());
        io.map(|(_, time)| *time).sum()
    }

    /// Time asleep in reclaim, whatever the reason.
    #[must_use]
    pub fn throttled(&self) -> Nanos {
        let asleep = self.asleep.iter().filter(|(cause, _)| cause.is_reclaim());
        asleep.map(|(_, time)| *time).sum()
    }

    /// The ends of waits on `cause`.
    #[must_use]
    pub fn wakes_on(&self, cause: Cause) -> Wakes {
        let found = self.wakes.iter().find(|(other, _)| *other == cause);
        found.map_or_else(Wakes::default, |(_, wakes)| *wakes)
    }

    /// All of it: the time the task has existed.
    #[must_use]
    pub fn total(&self) -> Nanos {
        self.cpu() + self.asleep_total() + self.ready + self.stolen
    }
}

/// A task that had not ended when a run got stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its number.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// The cause of its wait; none: it was not asleep, or slept without a cause.
    pub cause: Option<Cause>,
    /// When it fell asleep; none: it was not asleep.
    pub since: Option<Instant>,
    /// When it would have given up by itself.
    pub deadline: Option<Instant>,
}

/// Why a run could not come to its end. All name every task that had not ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// Nothing can happen any more, and the root has not ended: a lost wake-up or a cycle of waits.
    Deadlock {
        /// When.
        at: Instant,
        /// The tasks involved, and their waits.
        tasks: Vec<Blocked>,
    },
    /// Virtual time passed the limit (`Lab::set_time_limit`), and the root has not ended: a
    /// deadlock beside something periodic, or a longer run than was thought.
    TimeLimit {
        /// When.
        at: Instant,
        /// The tasks involved, and their waits.
        tasks: Vec<Blocked>,
    },
    /// Tasks ran again and again and time stood still.
    NoProgress {
        /// When.
        at: Instant,
        /// The tasks involved, and their waits.
        tasks: Vec<Blocked>,
    },
    /// The system has no memory, or no more mappings, for another stack: run fewer tasks at once,
    /// or raise `vm.max_map_count` (two per task).
    Stack {
        /// Of which task.
        task: String,
        /// The system's error.
        error: std::io::Error,
    },
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, at, tasks) = match self {
            Self::Deadlock { at, tasks } => ("deadlock: nothing can happen any more", at, tasks),
            Self::TimeLimit { at, tasks } => ("the limit of virtual time is reached", at, tasks),
            Self::NoProgress { at, tasks } => ("tasks run and time stands still", at, tasks),
            Self::Stack { task, error } => {
                return write!(f, "no stack for the task '{task}': {error}");
            }
        };
        write!(f, "{what} at {} ns; tasks that have not ended:", at.0)?;
        for task in tasks {
            write!(f, "\n  {task}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LabError {}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' ({})", self.name, self.id.0)?;
        match (self.since, self.cause) {
            (None, _) => f.write_str(" runs")?,
            (Some(since), Some(cause)) => write!(f, " waits for {cause:?} since {} ns", since.0)?,
            (Some(since), None) => write!(f, " waits, for no named cause, since {} ns", since.0)?,
        }
        self.deadline
            .map_or(Ok(()), |deadline| write!(f, ", until {} ns", deadline.0))
    }
}

/// Takes an event into the fingerprint.
pub(crate) fn hash_event(into: &TraceHash, at: Instant, task: TaskId, event: &Event) {
    let head = u64::from(task.0) << 8 | EventKind::of(event) as u64;
    match event {
        Event::Waiting { cause } => into.add([at.0, head, *cause as u64]),
        Event::Waited {
            cause,
            waited,
            wakeup,
        } => {
            into.add([at.0, head, *cause as u64, waited.0, wakeup_code(*wakeup)]);
        }
        Event::BalanceDirtyPages {
            device,
            writer,
            trace,
            why,
            done,
        } => {
            let why = why.map_or(0, |why| 1 + why as u64) << 1 | u64::from(*done);
            into.add([at.0, head, u64::from(device.0), u64::from(*writer), why]);
            into.add(trace_words(trace));
        }
        Event::Wrote {
            writer,
            bytes,
            took,
        } => {
            into.add([at.0, head, u64::from(*writer), bytes.0, took.0]);
        }
        Event::Read {
            bytes,
            missed,
            took,
        } => into.add([at.0, head, bytes.0, missed.0, took.0]),
        Event::Dirtied { device, pages } => into.add([at.0, head, u64::from(device.0), pages.0]),
        Event::Submitted { device, op, pages } => {
            into.add([at.0, head, u64::from(device.0), op_code(*op), pages.0]);
        }
        Event::Completed {
            device,
            op,
            pages,
            took,
            failed,
        } => {
            let failed = u64::from(*failed);
            into.add([
                at.0,
                head,
                u64::from(device.0),
                op_code(*op),
                pages.0,
                took.0,
                failed,
            ]);
        }
        Event::Reclaimed {
            background,
            scanned,
            freed,
        } => {
            into.add([at.0, head, u64::from(*background), scanned.0, freed.0]);
        }
        Event::Throttled {
            background,
            reason,
            timeout,
            delayed,
            wakeup,
        } => {
            let wakeup = wakeup.map_or(0, |wakeup| 1 + wakeup_code(wakeup));
            let what = u64::from(*background) << 8 | *reason as u64;
            into.add([at.0, head, what, timeout.0, delayed.0, wakeup]);
        }
        Event::DirectReclaim => into.add([at.0, head]),
        Event::Background { awake } => into.add([at.0, head, u64::from(*awake)]),
        Event::Faulted { major, took } => into.add([at.0, head, u64::from(*major), took.0]),
        Event::Sampled { pages, took } => into.add([at.0, head, pages.0, took.0]),
        // Slow, and right for whatever is added.
        other => into.add([at.0, head, hash::name(&format!("{other:?}"))]),
    }
}

/// One word for an operation.
pub(crate) fn op_code(op: IoOp) -> u64 {
    match op {
        IoOp::Read => 0,
        IoOp::Write => 1,
        IoOp::Flush => 2,
        IoOp::SetLen { len } => hash::mix(3, len.0),
        IoOp::Allocate { len } => hash::mix(4, len.0),
        IoOp::Discard { len } => hash::mix(5, len.0),
        IoOp::Prepare { len } => hash::mix(6, len.0),
    }
}

const fn wakeup_code(wakeup: Wakeup) -> u64 {
    match wakeup {
        Wakeup::TimedOut => 0,
        Wakeup::Cancelled => 1,
        Wakeup::Refused => 2,
        Wakeup::Ready(signal) => 3 + signal as u64,
    }
}

fn trace_words(trace: &BalanceTrace) -> [u64; 15] {
    [
        trace.limit.0,
        trace.setpoint.0,
        trace.dirty.0,
        trace.device_setpoint.0,
        trace.device_dirty.0,
        trace.device_limit.0,
        trace.dirty_ratelimit.0,
        trace.task_ratelimit.0,
        trace.dirtied.0,
        trace.dirtied_pause.0,
        trace.paused.0,
        trace.pause.0,
        trace.period.0,
        trace.think.0,
        trace.written.0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::units::{Bytes, Pages};

    #[test]
    fn kinds_are_chosen_one_by_one() {
        let record = Record::NONE
            .with(EventKind::Wrote)
            .with(EventKind::Throttled);
        assert!(record.has(EventKind::Wrote) && record.has(EventKind::Throttled));
        assert!(!record.has(EventKind::Waited));
        assert!(!record.without(EventKind::Wrote).has(EventKind::Wrote));
        assert!(Record::ALL.has(EventKind::Other));
    }

    #[test]
    fn every_field_of_an_event_counts() {
        let hash = |bytes, missed, took| {
            let hash = TraceHash::new(0);
            let event = Event::Read {
                bytes: Bytes(bytes),
                missed: Pages(missed),
                took: Nanos(took),
            };
            hash_event(&hash, Instant(1), TaskId(2), &event);
            hash.value()
        };
        assert_eq!(hash(1, 2, 3), hash(1, 2, 3));
        assert_ne!(hash(1, 2, 3), hash(0, 2, 3));
        assert_ne!(hash(1, 2, 3), hash(1, 0, 3));
        assert_ne!(hash(1, 2, 3), hash(1, 2, 0));
    }

    #[test]
    fn a_deadlock_names_task_cause_and_time() {
        let task = Blocked {
            id: TaskId(3),
            name: "flusher".into(),
            cause: Some(Cause::Idle),
            since: Some(Instant(5)),
            deadline: None,
        };
        let error = LabError::Deadlock {
            at: Instant(9),
            tasks: vec![task],
        };
        let text = error.to_string();
        assert!(
            text.contains("'flusher' (3) waits for Idle since 5 ns"),
            "{text}"
        );
    }
}

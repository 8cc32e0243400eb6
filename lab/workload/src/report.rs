//! A job's account of its work: plain data.

use core::fmt;

use env::{TaskId, Wakeup};
use mm::Touched;
use policy::units::{Bytes, Instant, Nanos, Pages, SECOND};

use crate::Latencies;

/// Bytes moved in each second since the run began. At most `SECONDS_MAX` seconds are told apart;
/// later bytes count for the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerSecond(Vec<u64>);

/// A day: bounds the memory of a run that never ends.
const SECONDS_MAX: usize = 86_400;

impl PerSecond {
    /// Counts bytes at `since` the beginning of the run.
    pub fn add(&mut self, since: Nanos, bytes: Bytes) {
        let second = usize::try_from(since.0 / SECOND)
            .unwrap_or(SECONDS_MAX)
            .min(SECONDS_MAX - 1);
        if self.0.len() <= second {
            self.0.resize(second + 1, 0);
        }
        self.0[second] += bytes.0;
    }

    /// Bytes of each second, in order.
    #[must_use]
    pub fn bytes(&self) -> &[u64] {
        &self.0
    }
}

/// One iteration of `thpavail`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iteration {
    /// Name of the task that touched the memory.
    pub alloc: String,
    /// When the copies began, since the beginning of the run.
    pub began: Nanos,
    /// When `alloc` began.
    pub alloc_began: Nanos,
    /// Its length.
    pub took: Nanos,
    /// Free frames when it began.
    pub free: Pages,
    /// Dirty pages when it began, those under writeback included.
    pub dirty: Pages,
    /// Huge pages that could have been made of what was free when it began.
    pub runs_free: u64,
    /// Huge pages that its memory had at the end.
    pub huge: u64,
    /// Bytes that the reader had read by then.
    pub read: Bytes,
    /// Every counter that changed while it ran: (name, by how much).
    pub counters: Vec<(&'static str, u64)>,
}

impl Iteration {
    /// By how much a counter changed while `alloc` ran.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.counters.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, by)| *by)
    }
}

/// One measured operation of a job: a mapping touched and unmapped, an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it ended, since the beginning of the run.
    pub at: Nanos,
    /// Its length, by the job's own rule.
    pub took: Nanos,
}

/// Samples of one job that are kept at most: half a day of the busiest job there is.
const SAMPLES_MAX: usize = 4_000_000;

/// One call that took long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongCall {
    /// When it began, since the beginning of the run.
    pub began: Nanos,
    /// Its length.
    pub took: Nanos,
    /// Bytes that it moved.
    pub bytes: Bytes,
}

/// A part of a job's work that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Its length.
    pub took: Nanos,
}

/// Why a job ended before its work was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The cache said so.
    Cache(mm::Error),
    /// Fewer bytes than asked for were there to read.
    ShortRead {
        /// The end of the file.
        at: Bytes,
    },
    /// A file could not be made; why, in words.
    NoFile(String),
    /// A task that was to fill the memory did not.
    NeverFull {
        /// Memory that was free in the end.
        free: Pages,
    },
}

impl Failure {
    /// The run is at its end.
    pub(crate) const CANCELLED: Self = Self::Cache(mm::Error::Cancelled);

    /// Says whether a task may go on after a wait that ended so.
    pub(crate) fn after(wakeup: Wakeup) -> Result<(), Self> {
        match wakeup {
            Wakeup::Cancelled => Err(Self::CANCELLED),
            Wakeup::Ready(_) | Wakeup::TimedOut | Wakeup::Refused => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache(error) => write!(f, "{error}"),
            Self::ShortRead { at } => {
                write!(
                    f,
                    "the file ended at byte {}, before the job had read its share",
                    at.0
                )
            }
            Self::NoFile(why) => write!(f, "a file could not be made: {why}"),
            Self::NeverFull { free } => write!(
                f,
                "the copies never filled the memory: {} pages are still free; let them read and write more",
                free.0
            ),
        }
    }
}

impl std::error::Error for Failure {}

impl From<mm::Error> for Failure {
    fn from(error: mm::Error) -> Self {
        Self::Cache(error)
    }
}

/// The report of one job.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name in the plan.
    pub name: String,
    /// Which task it was.
    pub task: TaskId,
    /// When it began its work, after any delay.
    pub began: Instant,
    /// From the beginning to the end of its last read or write.
    pub moving: Nanos,
    /// From the beginning to the end of everything, its sync included.
    pub elapsed: Nanos,
    /// Bytes that the cache took or gave.
    pub bytes: Bytes,
    /// Lengths of the calls.
    pub latencies: Latencies,
    /// The lateness of each call of a job with a schedule: its end, counted from when it was due.
    pub responses: Latencies,
    /// Bytes in each second of the run.
    pub per_second: PerSecond,
    /// The longest call of those that ended in the same second of the run, in order: at most
    /// `SECONDS_MAX`.
    pub long_calls: Vec<LongCall>,
    /// Every measured operation, in order: at most `SAMPLES_MAX`.
    pub samples: Vec<Sample>,
    /// The parts of its work that were done, in order.
    pub parts: Vec<Part>,
    /// Iterations of a `thpavail`, in order.
    pub iterations: Vec<Iteration>,
    /// Whole rounds: over the job's own memory, of phases, of files.
    pub passes: u64,
    /// Pages of anonymous memory touched.
    pub touched: Pages,
    /// Of these, pages on another node than the job's.
    pub far: Pages,
    /// Of these, pages that were not there.
    pub faults: Pages,
    /// Of these, pages that had to be read from the swap file.
    pub major: Pages,
    /// Inodes that it looked for were not in memory and had to be read.
    pub misses: u64,
    /// Pages that were passed over when they were to be written, for its log.
    pub passed_over: u64,
    /// Requests for memory that the cache refused, and that the job went on without.
    pub refused: u64,
    /// All of its work was done.
    pub complete: bool,
    /// Why not, when the cache failed it.
    pub failure: Option<Failure>,
}

impl Report {
    /// A report of a job that begins now.
    #[must_use]
    pub fn begin(name: &str, task: TaskId, now: Instant) -> Self {
        Self {
            name: name.to_owned(),
            task,
            began: now,
            moving: Nanos::ZERO,
            elapsed: Nanos::ZERO,
            bytes: Bytes::ZERO,
            latencies: Latencies::default(),
            responses: Latencies::default(),
            per_second: PerSecond::default(),
            long_calls: Vec::new(),
            samples: Vec::new(),
            parts: Vec::new(),
            iterations: Vec::new(),
            passes: 0,
            touched: Pages::ZERO,
            far: Pages::ZERO,
            faults: Pages::ZERO,
            major: Pages::ZERO,
            misses: 0,
            passed_over: 0,
            refused: 0,
            complete: false,
            failure: None,
        }
    }

    /// Counts one call that moved `bytes` and ended at `now`.
    pub fn moved(&mut self, called: Instant, now: Instant, origin: Instant, bytes: Bytes) {
        self.latencies.record(now.since(called));
        self.per_second.add(now.since(origin), bytes);
        self.bytes += bytes;
        self.moving = now.since(self.began);
        self.note_length(LongCall {
            began: called.since(origin),
            took: now.since(called),
            bytes,
        });
    }

    /// Counts pages that were touched.
    pub fn touched(&mut self, touched: &Touched) {
        self.touched += touched.pages;
        self.far += touched.far;
        self.faults += touched.faults;
        self.major += touched.major;
    }

    /// Keeps a measured operation that ended at `now`.
    pub fn sampled(&mut self, now: Instant, origin: Instant, took: Nanos) {
        self.latencies.record(took);
        self.moving = now.since(self.began);
        self.measured(now, origin, took);
    }

    /// Keeps a measured operation of many calls, which are counted apart.
    pub fn measured(&mut self, now: Instant, origin: Instant, took: Nanos) {
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(Sample {
                at: now.since(origin),
                took,
            });
        }
    }

    /// A part of the work is done.
    pub fn part(&mut self, name: &'static str, took: Nanos) {
        self.parts.push(Part { name, took });
    }

    /// Keeps the call if it is the longest of its second.
    fn note_length(&mut self, call: LongCall) {
        let second = |call: &LongCall| (call.began + call.took).0 / SECOND;
        let full = self.long_calls.len() >= SECONDS_MAX;
        match self.long_calls.last_mut() {
            Some(last) if full || second(last) == second(&call) => {
                if call.took > last.took {
                    *last = call;
                }
            }
            _ => self.long_calls.push(call),
        }
    }

    /// Ends the report: `outcome` tells whether all work was done.
    #[must_use]
    pub fn end(mut self, now: Instant, outcome: Result<bool, Failure>) -> Self {
        self.elapsed = now.since(self.began);
        match outcome {
            Ok(complete) => self.complete = complete,
            Err(failure) => self.failure = Some(failure),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_counted_from_the_origin_of_the_run() {
        let mut report = Report::begin("dd", TaskId(3), Instant(5 * SECOND));
        report.moved(
            Instant(5 * SECOND),
            Instant(6 * SECOND + 1),
            Instant(4 * SECOND),
            Bytes(10),
        );
        assert_eq!(report.per_second.bytes(), [0, 0, 10]);
        assert_eq!(report.moving, Nanos(SECOND + 1));
        let report = report.end(Instant(9 * SECOND), Ok(true));
        assert_eq!((report.elapsed, report.complete), (Nanos::secs(4), true));
    }

    #[test]
    fn the_longest_call_of_each_second_is_kept() {
        let mut report = Report::begin("dd", TaskId(3), Instant(0));
        for (from, to, bytes) in [(0, 300, 1), (300, 900, 2), (900, 950, 3), (950, 1_100, 4)] {
            let at = |ms| Instant(Nanos::millis(ms).0);
            report.moved(at(from), at(to), Instant(0), Bytes(bytes));
        }
        let kept: Vec<_> = report.long_calls.iter().map(|call| call.bytes.0).collect();
        assert_eq!(kept, [2, 4]);
    }

    #[test]
    fn seconds_beyond_a_day_count_for_the_last() {
        let mut seconds = PerSecond::default();
        seconds.add(Nanos::MAX, Bytes(3));
        assert_eq!(seconds.bytes().len(), SECONDS_MAX);
    }
}

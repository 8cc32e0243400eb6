//! The outcome of one run: plain data that metrics, tables, files and plots are made from.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use policy::reclaim::Reason;

use crate::timeline::Timeline;

/// CPU time of one task.
#[derive(Clone, Debug, Default)]
pub struct TaskCpu {
    /// Its name.
    pub name: String,
    /// One of the scenario's jobs.
    pub is_job: bool,
    /// Not a task: the time of completions.
    pub is_interrupt: bool,
    /// User time.
    pub user_s: f64,
    /// System time.
    pub system_s: f64,
    /// Time asleep by cause, seconds.
    pub waits: Vec<(String, f64)>,
}

/// The work of one job. Times are seconds since the run began.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Name of the scenario's task that it is one of.
    pub entry: String,
    /// Which task it was.
    pub task: u32,
    /// Id of the device its file is on.
    pub device: String,
    /// Name of its kind.
    pub kind: &'static str,
    /// Writes as fast as it may.
    pub is_heavy: bool,
    /// Writes a little on a schedule.
    pub is_light: bool,
    /// Only reads.
    pub is_reader: bool,
    /// When it began.
    pub began_s: f64,
    /// When its last call ended.
    pub moved_s: f64,
    /// When it ended, its sync included.
    pub ended_s: f64,
    /// Bytes moved.
    pub bytes: f64,
    /// Calls made.
    pub calls: u64,
    /// Mean call.
    pub call_mean_ms: f64,
    /// Median call.
    pub call_p50_ms: f64,
    /// 99 % of the calls are no longer.
    pub call_p99_ms: f64,
    /// Longest call.
    pub call_max_ms: f64,
    /// The same from when the call was due; zero without a schedule.
    pub response_p99_ms: f64,
    /// The same, longest.
    pub response_max_ms: f64,
    /// Bytes moved / bytes that its schedule asks for; 1 without one.
    pub rate_share: f64,
    /// Bytes in each second of the run.
    pub per_second: Vec<f64>,
    /// (length in ms, calls): its distribution.
    pub call_lengths: Vec<(f64, u64)>,
    /// The same from when the call was due; empty without a schedule.
    pub response_lengths: Vec<(f64, u64)>,
    /// Bytes that became dirty in each tenth of a second of the run; empty where nobody asked.
    pub per_tenth: Vec<f64>,
    /// (when it ended, its length in ms) of each measured pass: a mapping, a bystander's
    /// allocation.
    pub samples: Vec<(f64, f64)>,
    /// Its files push each other out of memory: those that it makes while it runs, or a file that
    /// it maps and writes.
    pub fills_memory: bool,
    /// Files that all tasks of its entry make while one of its samples passes; zero: it makes none.
    pub files_a_round: f64,
    /// Makes small files whose inodes take memory.
    pub makes_small: bool,
    /// The files that it makes have inodes in memory.
    pub has_inodes: bool,
    /// Pages that were passed over for its log when they were to be written.
    pub passed_over: f64,
    /// Inodes that it looked for and had to read.
    pub misses: f64,
    /// Iterations of a `thpavail`, in order.
    pub iterations: Vec<Iteration>,
    /// (name, its length in s) of each part of its work.
    pub parts: Vec<(&'static str, f64)>,
    /// Walks over all of its memory.
    pub passes: f64,
    /// Pages of its memory written to.
    pub touched: f64,
    /// Of these: on another node than the job's.
    pub touched_far: f64,
    /// Of these: the page was not there.
    pub faults: f64,
    /// Of these: it had to be read.
    pub major: f64,
    /// Has memory and writes to it as fast as it may.
    pub is_hog: bool,
    /// Takes a little memory on a schedule.
    pub is_bystander: bool,
    /// Maps, touches and unmaps.
    pub is_mapper: bool,
    /// Its longest call against what an equal share of the device allows, as a factor; `None`: it
    /// is no heavy writer, or the device never moved anything.
    pub write_bound: Option<f64>,
}

/// One iteration of a `thpavail`: all memory touched beside two copies. Counts of pages are of the
/// scaled machine.
#[derive(Clone, Debug, Default)]
pub struct Iteration {
    /// Name of the task that touched the memory.
    pub alloc: String,
    /// When the copies began.
    pub began_s: f64,
    /// When that task began.
    pub alloc_began_s: f64,
    /// Its length.
    pub took_s: f64,
    /// Free pages when it began.
    pub free: f64,
    /// Dirty pages when it began, those under writeback included.
    pub dirty: f64,
    /// Huge pages that were free when it began.
    pub runs_free: f64,
    /// Huge pages at its end.
    pub huge: f64,
    /// Bytes that the reader read.
    pub read: f64,
    /// Counters of the cache that changed while it ran: (name, by how much).
    pub counters: Vec<(&'static str, f64)>,
}

impl Iteration {
    /// By how much a counter changed while the memory was touched.
    #[must_use]
    pub fn counter(&self, name: &str) -> f64 {
        let found = self.counters.iter().find(|(known, _)| *known == name);
        found.map_or(0.0, |(_, by)| *by)
    }
}

impl Job {
    /// True if its samples are measured for themselves: those of a hog are only the times of its
    /// rounds.
    #[must_use]
    pub fn measures(&self) -> bool {
        self.kind != "hog" && !self.samples.is_empty()
    }
}

/// One device's levels and totals at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceLevel {
    /// When.
    pub at_s: f64,
    /// Dirty pages.
    pub dirty: f64,
    /// Pages under writeback.
    pub writeback: f64,
    /// Bytes written to it so far.
    pub written: f64,
    /// Write requests that it has completed so far.
    pub writes: f64,
    /// Time for which it has had something to do so far.
    pub busy_s: f64,
}

/// The work of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceOutcome {
    /// Its id in the scenario.
    pub id: String,
    /// Times in which its rate was zero: (from, to), seconds since the run began.
    pub hangs: Vec<(f64, f64)>,
    /// The longest write that it completed, bytes.
    pub longest_write: f64,
    /// Its levels, in order of time.
    pub levels: Vec<DeviceLevel>,
}

/// One line of the trace of `balance_dirty_pages`, as the original of the law would print it: a
/// pause of p1 and 6.12, a whole call of 2.6.36.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    /// When it was printed: before the sleep under p1 and 6.12, after it under 2.6.36.
    pub at_s: f64,
    /// Which task.
    pub task: u32,
    /// Which writer handle.
    pub writer: u32,
    /// The pause it prints: of 2.6.36 all naps of the call together.
    pub slept_ms: f64,
    /// The longest nap.
    pub longest_ms: f64,
    /// Pages dirtied before it.
    pub dirtied: f64,
    /// Pages the writer wrote back itself.
    pub written: f64,
    /// The device's dirty + writeback pages then.
    pub device_dirty: f64,
    /// The device's limit then.
    pub device_limit: f64,
    /// The writer's rate then, pages a second.
    pub task_ratelimit: f64,
    /// The base rate of all writers of its device then, pages a second.
    pub dirty_ratelimit: f64,
    /// It waited for a device without progress.
    pub stalled: bool,
    /// Its line is printed at its end, not at its beginning.
    pub printed_after: bool,
}

/// Levels at one moment, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    /// When.
    pub at_s: f64,
    /// Dirty pages.
    pub dirty: f64,
    /// Pages under writeback.
    pub writeback: f64,
    /// Free frames.
    pub free: f64,
    /// Pages in the cache.
    pub cached: f64,
    /// Dirty limit.
    pub limit: f64,
    /// Background limit.
    pub background: f64,
    /// Resident memory of the process, bytes; zero in the lab.
    pub resident: f64,
}

/// The end of a throttling of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThrottleEnd {
    /// It did not sleep.
    NoSleep,
    /// The event it waited for happened.
    Event,
    /// Its timeout passed.
    Timeout,
}

impl ThrottleEnd {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSleep => "no_sleep",
            Self::Event => "event",
            Self::Timeout => "timeout",
        }
    }
}

/// One throttling of reclaim (kernel tracepoint `mm_vmscan_throttled`, and the two before it).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// When it ended.
    pub at_s: f64,
    /// Which task.
    pub task: u32,
    /// By the background reclaimer.
    pub background: bool,
    /// Why.
    pub reason: Reason,
    /// The longest sleep allowed.
    pub timeout_ms: f64,
    /// Its length, in whole ticks.
    pub delayed_ms: f64,
    /// Its end.
    pub ended: ThrottleEnd,
}

/// The number of throttlings that were alike. A run's list is complete and sorted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleCount {
    /// By the background reclaimer.
    pub background: bool,
    /// Why.
    pub reason: Reason,
    /// The longest sleep allowed.
    pub timeout_ms: f64,
    /// Their length, in whole ticks.
    pub delayed_ms: f64,
    /// Their end.
    pub ended: ThrottleEnd,
    /// Their number.
    pub count: u64,
}

/// All waits of one cause, idling and think time apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitLengths {
    /// Its name.
    pub cause: String,
    /// Number of waits.
    pub count: u64,
    /// Number of those that ended by a deadline: of pauses the normal end.
    pub timed_out: u64,
    /// All of them, task-seconds.
    pub total_s: f64,
    /// Half are no longer; within an eighth.
    pub p50_ms: f64,
    /// 99 % are no longer; within an eighth.
    pub p99_ms: f64,
    /// The longest, exactly.
    pub max_ms: f64,
    /// (no longer than this many ms, waits), ascending: every class that is not empty.
    pub lengths: Vec<(f64, u64)>,
    /// (the event or deadline that ended them, waits, task-seconds), each once.
    pub ends: Vec<(String, u64, f64)>,
}

/// The longest sample of one job, and what it consisted of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Longest {
    /// Which task.
    pub task: u32,
    /// When it ended.
    pub at_s: f64,
    /// Its length.
    pub took_ms: f64,
    /// Waits in it by cause, ms, the longest first; the rest is running, or wanting a CPU.
    pub parts: Vec<(String, f64)>,
}

/// For how long tasks were stalled, as PSI counts it (`/proc/pressure`), seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// The time observed.
    pub over_s: f64,
    /// Somebody was stalled for memory.
    pub memory_some_s: f64,
    /// Somebody was, and nobody else ran.
    pub memory_full_s: f64,
    /// Somebody waited for I/O.
    pub io_some_s: f64,
    /// Somebody did, and nobody ran.
    pub io_full_s: f64,
}

/// The events in equal slots of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// Length of a slot.
    pub slot_s: f64,
    /// Mean number of tasks asleep, by cause; idling and think time apart.
    pub asleep: Vec<(String, Vec<f64>)>,
    /// Pages scanned a second by callers.
    pub scanned_direct: Vec<f64>,
    /// Pages scanned a second by the background reclaimer.
    pub scanned_background: Vec<f64>,
    /// Pages freed a second by callers.
    pub freed_direct: Vec<f64>,
    /// Pages freed a second by the background reclaimer.
    pub freed_background: Vec<f64>,
}

/// Levels and counters of the cache over time, under the kernel's names; raw pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmSeries {
    /// Names.
    pub names: Vec<&'static str>,
    /// (time in s, values in the order of the names).
    pub rows: Vec<(f64, Vec<f64>)>,
}

impl VmSeries {
    /// One value over time; `None`: there is none of that name.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<Vec<(f64, f64)>> {
        let at = self.names.iter().position(|other| *other == name)?;
        let rows = self.rows.iter();
        Some(
            rows.filter_map(|(t, row)| Some((*t, *row.get(at)?)))
                .collect(),
        )
    }
}

/// A counter's difference over the run.
pub type Counter = (&'static str, f64);

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Row.
    pub case: String,
    /// Column.
    pub policy: String,
    /// Number of the repetition.
    pub replica: u32,
    /// Its seed.
    pub seed: u64,
    /// Its scale.
    pub scale: f64,
    /// CPU times divided by this are those of the full size.
    pub cpu_scale: f64,
    /// Left out of what is summed over rows.
    pub apart: bool,
    /// Length of a tick, ms.
    pub tick_ms: f64,
    /// Its jobs.
    pub jobs: Vec<Job>,
    /// Its tasks; live, last, what the process used besides them (`others`).
    pub tasks: Vec<TaskCpu>,
    /// Its pauses, in order of time.
    pub pauses: Vec<Pause>,
    /// Pauses after those, which only their number is kept of.
    pub pauses_left_out: u64,
    /// Its levels, in order of time.
    pub levels: Vec<Level>,
    /// Highest (dirty + writeback) / limit that was seen: in the levels, and by each balance.
    pub level_peak: f64,
    /// Its devices.
    pub devices: Vec<DeviceOutcome>,
    /// When a writer began or a rate changed, in order; seconds since the run began.
    pub changes: Vec<f64>,
    /// Its counters.
    pub counters: Vec<Counter>,
    /// Its throttlings by kind, all of them.
    pub throttles: Vec<ThrottleCount>,
    /// Its throttlings one by one, of the first repetition and up to a bound.
    pub throttled: Vec<Throttle>,
    /// Its waits by cause.
    pub waits: Vec<WaitLengths>,
    /// The longest sample of each task that measures itself.
    pub longest: Vec<Longest>,
    /// Its pressure totals.
    pub pressure: Pressure,
    /// Sleepers and scanned pages, over time.
    pub slots: Slots,
    /// Its levels and counters over time, of the first repetition.
    pub vmstat: VmSeries,
    /// Levels of each node over time, of a machine with several, of the first repetition.
    pub nodes: Vec<VmSeries>,
    /// The timeline of each task and device, where it was asked for.
    pub timeline: Option<Timeline>,
    /// Its length in its own time.
    pub virtual_s: f64,
    /// Its length in ours.
    pub wall_s: f64,
    /// Fingerprint of the trace; zero live.
    pub trace_hash: u64,
    /// Memory allowed, bytes.
    pub memory_limit: f64,
    /// Stopped before its end by an interrupt.
    pub interrupted: bool,
    /// The values of all metrics.
    pub values: Values,
}

/// The values of all metrics of a run, as soon as they were asked for: then the run is as it will
/// stay.
#[derive(Clone, Debug, Default)]
pub struct Values(pub(crate) OnceLock<Vec<Option<f64>>>);

impl Outcome {
    /// The part of one task or device of the scenario: its jobs, their pauses, its devices. Figures
    /// of the whole run (levels, changes, counters) stay.
    #[must_use]
    pub fn only(&self, of: &str) -> Self {
        let mut part = self.clone();
        part.values = Values::default();
        let of_device = self.devices.iter().any(|device| device.id == of);
        part.jobs
            .retain(|job| job.entry == of || (of_device && job.device == of));
        let devices: Vec<String> = part.jobs.iter().map(|job| job.device.clone()).collect();
        part.devices
            .retain(|device| device.id == of || devices.contains(&device.id));
        let tasks: Vec<u32> = part.jobs.iter().map(|job| job.task).collect();
        part.pauses.retain(|pause| tasks.contains(&pause.task));
        part
    }

    /// Gives the tasks and devices of its timeline their names.
    pub(crate) fn name_timeline(
        &mut self,
        tasks: BTreeMap<u32, String>,
        devices: impl IntoIterator<Item = (u16, String)>,
    ) {
        if let Some(timeline) = &mut self.timeline {
            timeline.tasks = tasks;
            timeline.devices = devices.into_iter().collect();
        }
    }

    /// Drops what only the plots and the long tables of a first repetition need: a table of a
    /// hundred runs is held in memory at once.
    pub fn forget_details(&mut self) {
        self.throttled = Vec::new();
        self.vmstat = VmSeries::default();
        self.nodes = Vec::new();
        self.slots = Slots::default();
        self.timeline = None;
    }

    /// `case/policy/replica`, the key of all tables.
    #[must_use]
    pub fn run_id(&self) -> String {
        format!("{}/{}/{}", self.case, self.policy, self.replica)
    }
}

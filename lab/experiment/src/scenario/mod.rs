//! A scenario: one experiment as a TOML file. Machine, devices, tasks, and three lists: the rows
//! (`[[case]]`), the columns (`[[policy]]`) and what must come out (`[[expect]]`).
//!
//! Reading goes in three steps, and each finds its own kind of mistake: TOML into these types
//! (unknown keys, wrong types), `check` (ranges, names, sizes that cannot be met), and `--set`
//! before both, so that an override is judged like the file itself.
//!
//! Invariants
//!   1. A `Scenario` that `load` answered has passed every check: its user need not look again.
//!   2. Every number has its unit in its key's name.
//!   3. A refusal is shown with its place and the allowed values.
//!
//! Source: experiments D1, adapted: names are kept where the thing is the same.

mod check;
mod journal;
pub(crate) mod machine;
mod nodes;
mod overrides;
mod parse;
mod reproduce;
mod runs;
pub(crate) mod small;
mod tasks;
#[cfg(test)]
mod tests;

pub use crate::mistake::{Mistake, Mistakes, Source, choices, nearest, renderer};
pub use crate::task::units::MEMORY_MOST_MIB;
pub use check::{HZ, RATE_LEAST_MIB, RATE_MOST_MIB};
pub use journal::{JournalData, JournalEntry, JournalTable};
pub use nodes::{NodeEntry, ZonelistKind};
pub use overrides::{Override, OverrideError};
pub use reproduce::ReproduceSection;
pub use runs::{DefragKind, FileSystems};
pub use small::{ObjectCacheEntry, RoleKind};

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::kinds::Task;
use crate::task::{Field, Keyed as _, keys};

/// The only schema there is.
pub const SCHEMA: &str = "tidegate-exp/1";

/// The row that is all rows together.
pub const ALL: &str = "all";

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// `SCHEMA`.
    pub schema: Spanned<String>,
    /// Name of the experiment, and of its results folder.
    pub name: Spanned<String>,
    /// One line about it.
    #[serde(default)]
    pub title: String,
    /// The publication of its numbers.
    #[serde(default)]
    pub paper: Option<String>,
    /// The way it is run.
    #[serde(default)]
    pub run: RunSection,
    /// On what.
    pub machine: Machine,
    /// Its devices.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceEntry>,
    /// Its tasks.
    #[serde(rename = "task")]
    pub tasks: Vec<TaskEntry>,
    /// Rows; without any, one row named after the experiment.
    #[serde(rename = "case", default)]
    pub cases: Vec<CaseEntry>,
    /// Columns; the first is the baseline.
    #[serde(rename = "policy")]
    pub policies: Vec<PolicyEntry>,
    /// Printed metrics, in order; without any, all that apply.
    #[serde(default)]
    pub metrics: Vec<Spanned<String>>,
    /// Published values.
    #[serde(default)]
    pub published: Vec<PublishedEntry>,
    /// Published delays of throttled reclaimers.
    #[serde(default)]
    pub delays: Vec<DelaysEntry>,
    /// The bands of its outcome.
    #[serde(rename = "expect", default)]
    pub expects: Vec<ExpectEntry>,
    /// The part of it that `reproduce` runs.
    #[serde(default)]
    pub reproduce: ReproduceSection,
}

/// The way the experiment is run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// Memory, files and device rates are shrunk to this part, one over a whole number; times,
    /// request sizes and HZ are not.
    pub scale: Spanned<f64>,
    /// Runs per cell.
    pub replicas: Spanned<u32>,
    /// Seed of the first; the others follow from it.
    pub seed: u64,
    /// A run that takes longer in its own time is stopped and fails.
    pub max_s: Spanned<f64>,
    /// Time between two samples of the levels.
    pub sample_ms: Spanned<f64>,
}

impl Default for RunSection {
    fn default() -> Self {
        let nowhere = 0..0;
        Self {
            scale: Spanned::new(nowhere.clone(), 1.0),
            replicas: Spanned::new(nowhere.clone(), 3),
            seed: 1,
            max_s: Spanned::new(nowhere.clone(), 86_400.0),
            sample_ms: Spanned::new(nowhere, 500.0),
        }
    }
}

/// The machine, before scaling.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// CPUs.
    pub cpus: Spanned<u32>,
    /// Memory for pages. Live: the limit of the process's resident memory.
    pub memory_mib: Spanned<f64>,
    /// `vm.dirty_ratio`.
    #[serde(default)]
    pub dirty_percent: Option<Spanned<u8>>,
    /// `vm.dirty_background_ratio`.
    #[serde(default)]
    pub background_percent: Option<Spanned<u8>>,
    /// `vm.dirty_bytes`; replaces the percentage.
    #[serde(default)]
    pub dirty_mib: Option<Spanned<f64>>,
    /// `vm.dirty_background_bytes`; replaces the percentage.
    #[serde(default)]
    pub background_mib: Option<Spanned<f64>>,
    /// The swap file of anonymous pages; without it they stay.
    #[serde(default)]
    pub swap: Option<SwapEntry>,
    /// `vm.swappiness`.
    #[serde(default)]
    pub swappiness: Option<Spanned<u32>>,
    /// `vm.min_free_kbytes` of the full size; without it, what the kernel computes from the memory.
    #[serde(default)]
    pub min_free_kib: Option<Spanned<f64>>,
    /// `vm.watermark_scale_factor`: the gap between two marks, in 1/10000 of the memory.
    #[serde(default)]
    pub watermark_scale_factor: Option<Spanned<u32>>,
    /// The part of the memory that holds neither pages of files nor anonymous ones: the kernel's
    /// tables, slabs, programs. Sizes that are parts of the memory are of all of it.
    #[serde(default)]
    pub reserved_percent: Option<Spanned<f64>>,
    /// The cost of work, by the machine's name; without it, by the file system of the first device.
    #[serde(default)]
    pub costs: Option<Spanned<String>>,
    /// Scaled down, a page costs as much more CPU time as there are fewer of them, so that CPUs are
    /// as busy as at full size. Without it, pages cost the same and CPU times are brought back to
    /// full size afterwards.
    #[serde(default)]
    pub scale_costs: bool,
    /// Scaled down, reclaim takes as many fewer pages at a time, so that tasks are throttled as
    /// often as at full size. Slow: as many clusters as at full size.
    #[serde(default)]
    pub scale_clusters: bool,
    /// Scaled down, requests to devices have as many fewer pages, down to one, and take as long:
    /// there are as many of them as at full size, and a disk seeks as often. Only with
    /// `scale_costs`.
    #[serde(default)]
    pub scale_requests: Option<Spanned<bool>>,
    /// Huge pages are available (`transparent_hugepage/enabled` is `always`): runs of 2 MiB, or
    /// what stands for them at a scale. Without it there are none, and no row can have them.
    #[serde(default)]
    pub thp: Option<Spanned<bool>>,
    /// Out of memory, the program with the most memory is killed, as Linux does; without it, the
    /// task that asks is refused, and its job has failed.
    #[serde(default)]
    pub oom_kills: bool,
    /// The largest read-ahead window (`read_ahead_kb` of a bdi), before scaling. Without it, ours:
    /// several requests deep, up to 8 MiB.
    #[serde(default)]
    pub readahead_kib: Option<Spanned<f64>>,
    /// Tasks share CPUs as under Linux 6.12 with this many ticks a second (`world::run_queue`);
    /// without it, a task loses its CPU to a waiting task as soon as it has had 3 ms.
    #[serde(default)]
    pub preempt_hz: Option<Spanned<u32>>,
    /// Its nodes, if they are not equal; instead of `nodes`.
    #[serde(default)]
    pub node: Vec<NodeEntry>,
    /// The distances between nodes, a row each; 10 is from a node to itself. Without it, 20 between
    /// any two.
    #[serde(default)]
    pub distance: Option<Spanned<Vec<Vec<u32>>>>,
    /// In which order zones are tried; without it, as Linux chooses by its rule.
    #[serde(default)]
    pub zonelist: Option<Spanned<ZonelistKind>>,
    /// Sockets with memory of their own, NUMA nodes to Linux: under its laws each has lists, marks
    /// and a background reclaimer. One if not given.
    #[serde(default)]
    pub nodes: Option<Spanned<u32>>,
    /// The caches of objects of small files; without it, those of xfs on the machine of paper p3.
    #[serde(default)]
    pub object_cache: Option<Spanned<Vec<ObjectCacheEntry>>>,
    /// Index nodes, heads of pages that were written to and page tables take frames of the memory.
    #[serde(default)]
    pub overhead: bool,
    /// `vm.vfs_cache_pressure`, in per cent.
    #[serde(default)]
    pub vfs_cache_pressure: Option<Spanned<u32>>,
}

/// The swap file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapEntry {
    /// Its device.
    pub device: Spanned<String>,
    /// Its size, before scaling.
    pub mib: Spanned<f64>,
}

/// A device of the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// Its name for tasks.
    pub id: Spanned<String>,
    /// Model in the lab; live, a file in the folder stands for it.
    pub model: Spanned<String>,
    /// File system on it: allocation and CPU costs.
    #[serde(default)]
    pub fs: Option<Spanned<String>>,
    /// Its file system's journal: commits, and writers held up by them. In the lab only.
    #[serde(default)]
    pub journal: Option<Spanned<JournalEntry>>,
    /// Wrappers: `slow:rate=16MB,latency=2ms`.
    #[serde(default)]
    pub wrap: Option<Spanned<String>>,
    /// Its rate in MiB/s: of the models that have one, and of `null`, which gets a slow wrapper.
    /// Live, the file gets that wrapper.
    #[serde(default)]
    pub rate_mib: Option<Spanned<f64>>,
    /// Changes of that rate, in order.
    #[serde(default)]
    pub change: Vec<ChangeEntry>,
    /// The device's own limits hold even when the global ones are far (`strict_limit` of a bdi).
    #[serde(default)]
    pub strict: Option<Spanned<bool>>,
    /// Upper bound of its share of the dirty limit (`max_ratio` of a bdi).
    #[serde(default)]
    pub max_percent: Option<Spanned<f64>>,
    /// Its rates times this, beside the run's scale: an ablation.
    #[serde(default)]
    pub rate_factor: Option<Spanned<f64>>,
    /// Files that are there before the run lie somewhere on it, so that reading them takes its
    /// time. Without it reads of what was never written take none, as in experiments that are about
    /// writers.
    #[serde(default)]
    pub placed_files: Option<Spanned<bool>>,
    /// Blocks of its file system in a page: heads of a page that was written to, where these take
    /// memory (`Machine::overhead`). 1 if not given.
    #[serde(default)]
    pub blocks_a_page: Option<Spanned<u32>>,
    /// Parameters of the model by name (`tidegate list devices`), before scaling.
    #[serde(default)]
    pub params: BTreeMap<Spanned<String>, Spanned<u64>>,
}

/// A change of a device's rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeEntry {
    /// Time from the beginning of the run.
    pub at_s: Spanned<f64>,
    /// The rate from then on, MiB/s; zero: the device stands still.
    pub rate_mib: Spanned<f64>,
}

keys! {
    /// A task of the experiment, or several alike: the keys that all kinds have, and in `kind`
    /// those of its own.
    pub struct TaskEntry {
        /// Its name; with `count` > 1 numbers follow.
        pub id: Spanned<String>,
        /// Its kind.
        pub kind: Spanned<Task>,
        /// The device of its files; not of a task that has memory alone.
        pub device: Option<Spanned<String>>,
        /// Number of them.
        pub count: Option<Spanned<u32>>,
        /// Starts this long after the run began.
        pub start_s: Option<Spanned<f64>>,
        /// Stops this long after it began.
        pub run_s: Option<Spanned<f64>>,
    }
}

impl Field for Spanned<Task> {}

impl TaskEntry {
    /// The number of a key, be it one of all kinds or of its own.
    pub(crate) fn key(&self, name: &str) -> Option<Spanned<f64>> {
        let own = self.kind.get_ref();
        self.number(name).or_else(|| own.number(name))
    }

    /// The same without its place, and zero where it is not given.
    pub(crate) fn amount(&self, name: &str) -> f64 {
        self.key(name).map_or(0.0, Spanned::into_inner)
    }
}

/// A row of the table: what differs from the scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseEntry {
    /// Its name.
    pub name: Spanned<String>,
    /// Model of the first device.
    #[serde(default)]
    pub model: Option<Spanned<String>>,
    /// File system of the first device.
    #[serde(default)]
    pub fs: Option<Spanned<String>>,
    /// Count of the first task.
    #[serde(default)]
    pub count: Option<Spanned<u32>>,
    /// `file_mib` of the first task.
    #[serde(default)]
    pub file_mib: Option<Spanned<f64>>,
    /// `rate_mib` of the first device.
    #[serde(default)]
    pub rate_mib: Option<Spanned<f64>>,
    /// `dirty_mib` of the machine.
    #[serde(default)]
    pub dirty_mib: Option<Spanned<f64>>,
    /// `background_mib` of the machine.
    #[serde(default)]
    pub background_mib: Option<Spanned<f64>>,
    /// `memory_mib` of the machine.
    #[serde(default)]
    pub memory_mib: Option<Spanned<f64>>,
    /// Counts of tasks by their ids.
    #[serde(default)]
    pub counts: BTreeMap<Spanned<String>, Spanned<u32>>,
    /// `files` of tasks by their ids.
    #[serde(default)]
    pub files: BTreeMap<Spanned<String>, Spanned<u32>>,
    /// The tasks of this row by id; without it, all. Devices that none of them uses are left out.
    #[serde(default)]
    pub tasks: Vec<Spanned<String>>,
    /// Left out of what is summed over rows (`Duration`, `Ops`, delays).
    #[serde(default)]
    pub apart: bool,
    /// File systems of devices by their ids.
    #[serde(default)]
    pub file_systems: FileSystems,
    /// The machine has huge pages in this row.
    #[serde(default)]
    pub thp: Option<Spanned<bool>>,
    /// `min_free_kib` of the machine.
    #[serde(default)]
    pub min_free_kib: Option<Spanned<f64>>,
}

impl CaseEntry {
    /// True if two rows differ in nothing but models and names, which files do not have.
    #[must_use]
    pub fn is_same_live(&self, other: &Self) -> bool {
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map(|v| v.get_ref().to_bits());
        let by_id = |numbers: &BTreeMap<Spanned<String>, Spanned<u32>>| {
            let pairs = numbers.iter();
            let pairs = pairs.map(|(id, number)| (id.get_ref().clone(), *number.get_ref()));
            pairs.collect::<Vec<_>>()
        };
        let key = |row: &Self| {
            (
                row.count.as_ref().map(|count| *count.get_ref()),
                [
                    number(&row.file_mib),
                    number(&row.rate_mib),
                    number(&row.dirty_mib),
                    number(&row.background_mib),
                    number(&row.memory_mib),
                    number(&row.min_free_kib),
                ],
                by_id(&row.counts),
                by_id(&row.files),
                row.apart,
                row.thp.as_ref().map(|thp| *thp.get_ref()),
                row.tasks
                    .iter()
                    .map(|task| task.get_ref().clone())
                    .collect::<Vec<_>>(),
            )
        };
        key(self) == key(other)
    }

    /// A row that differs in nothing.
    #[must_use]
    pub fn plain(name: Spanned<String>) -> Self {
        Self {
            name,
            model: None,
            fs: None,
            count: None,
            file_mib: None,
            rate_mib: None,
            dirty_mib: None,
            background_mib: None,
            memory_mib: None,
            counts: BTreeMap::new(),
            files: BTreeMap::new(),
            tasks: Vec::new(),
            apart: false,
            file_systems: FileSystems::new(),
            thp: None,
            min_free_kib: None,
        }
    }
}

/// A column of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyEntry {
    /// Its name.
    pub name: Spanned<String>,
    /// The preset it is made from; without it, the one of its name.
    #[serde(default)]
    pub preset: Option<Spanned<String>>,
    /// Ticks per second, instead of the preset's.
    #[serde(default)]
    pub hz: Option<Spanned<u32>>,
    /// `strict` of all devices, in this column.
    #[serde(default)]
    pub strict: Option<Spanned<bool>>,
    /// `max_percent` of all devices, in this column.
    #[serde(default)]
    pub max_percent: Option<Spanned<f64>>,
    /// The law by which reclaim is throttled, instead of the preset's.
    #[serde(default)]
    pub reclaim: Option<Spanned<String>>,
    /// Which page of a file goes: a rule of `policy::rule`, instead of the law's lists.
    #[serde(default)]
    pub page_rule: Option<Spanned<String>>,
    /// The law of looking for a frame on a machine of several nodes, instead of the preset's.
    #[serde(default)]
    pub place: Option<Spanned<String>>,
    /// Takes the memory of all nodes for that of one, as a program does that does not look.
    #[serde(default)]
    pub one_node: bool,
    /// The law by which inodes are freed, instead of the preset's.
    #[serde(default)]
    pub inodes: Option<Spanned<String>>,
    /// Pages, objects and unmovable memory have free lists of their own, instead of the preset's
    /// way.
    #[serde(default)]
    pub keeps_apart: Option<Spanned<bool>>,
    /// The boost where pageblocks are mixed, instead of the preset's. Nothing, unless
    /// `keeps_apart`.
    #[serde(default)]
    pub boost: Option<Spanned<String>>,
    /// `vm.watermark_boost_factor`: most of a boost, in 1/10000 of HIGH: an ablation.
    #[serde(default)]
    pub boost_factor: Option<Spanned<u32>>,
    /// Boosted balances that free nothing count towards those after which the background gives up:
    /// an ablation.
    #[serde(default)]
    pub boost_failures: Option<Spanned<bool>>,
    /// The rule by which caches of objects are asked for their share, instead of the preset's.
    #[serde(default)]
    pub shrink: Option<Spanned<String>>,
    /// Reclaim may write single pages of files, where the file system lets it: versions of one
    /// differ.
    #[serde(default)]
    pub writes_files: Option<Spanned<bool>>,
    /// CPUs keep free frames for themselves, instead of the preset's way: an ablation.
    #[serde(default)]
    pub cpu_lists: Option<Spanned<bool>>,
    /// Reasons that never throttle: an ablation.
    #[serde(default)]
    pub reclaim_off: Vec<Spanned<String>>,
    /// Events end a reclaimer's sleep; without, timeouts alone do: an ablation.
    #[serde(default)]
    pub wakes: Option<Spanned<bool>>,
    /// Timeout of WRITEBACK, and of what was before it, instead of 100 ms: an ablation.
    #[serde(default)]
    pub writeback_timeout_ms: Option<Spanned<f64>>,
    /// `vm.swappiness`, in this column.
    #[serde(default)]
    pub swappiness: Option<Spanned<u32>>,
    /// Which of paper p4's patches its kernel has, instead of the preset's: `"1-8"`, `"11"`,
    /// `"-7b"`.
    #[serde(default)]
    pub patches: Vec<Spanned<String>>,
    /// Reclaim for a huge page looks at pages a second time and waits for their writes: an
    /// ablation.
    #[serde(default)]
    pub reclaim_waits: Option<Spanned<bool>>,
    /// A kernel that did not get a huge page leaves the next ones out for a while: an ablation.
    #[serde(default)]
    pub defers: Option<Spanned<bool>>,
    /// The tasks whose faults move pages for a huge page, in a kernel since 4.6; without it, as the
    /// preset has it.
    #[serde(default)]
    pub defrag: Option<Spanned<DefragKind>>,
    /// `readahead_kib` of the machine, in this column.
    #[serde(default)]
    pub readahead_kib: Option<Spanned<f64>>,
}

/// A number that somebody published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedEntry {
    /// Which metric.
    pub metric: Spanned<String>,
    /// Which row.
    pub case: Spanned<String>,
    /// Which column.
    pub policy: Spanned<String>,
    /// The number.
    pub value: f64,
}

/// The tasks whose delays count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByKind {
    /// Of tasks that need memory.
    Direct,
    /// Of the background reclaimer.
    Kswapd,
    /// Of all: not told apart.
    Any,
}

/// The delays of one reason that somebody published, of the whole test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaysEntry {
    /// Which column.
    pub policy: Spanned<String>,
    /// The tasks they are of.
    pub by: ByKind,
    /// For which reason.
    pub reason: Spanned<String>,
    /// Their number.
    pub n: u64,
    /// Of these: no sleep of a tick.
    pub zero: u64,
    /// Of these: the whole timeout or more.
    pub timeout: u64,
    /// Mean of all.
    pub mean_ms: f64,
}

/// The comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareKind {
    /// The column's own mean.
    Value,
    /// Column / other column.
    Ratio,
    /// 100 x (column / other column - 1).
    ChangePercent,
    /// The chance that two means of the metric's samples differ so (a t-test): below 0.10 they have
    /// a star in tables.
    Chance,
}

/// A band of the outcome.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectEntry {
    /// Its name in messages.
    pub id: Spanned<String>,
    /// The source of the band.
    pub source: String,
    /// The claim of the paper, in one sentence.
    #[serde(default)]
    pub claim: Option<Spanned<String>>,
    /// The published figure as text, where it does not follow from published values.
    #[serde(default)]
    pub published: Option<Spanned<String>>,
    /// Repetitions from which on the band can be judged: it is of a mean that single runs stray
    /// from.
    #[serde(default)]
    pub replicas_least: Option<Spanned<u32>>,
    /// Which metric.
    pub metric: Spanned<String>,
    /// Which rows; without it, all.
    #[serde(default)]
    pub cases: Vec<Spanned<String>>,
    /// Which column.
    pub policy: Spanned<String>,
    /// Of which task or device alone, by id; without it, of the whole run.
    #[serde(default)]
    pub of: Option<Spanned<String>>,
    /// Compared with which column.
    #[serde(default)]
    pub vs: Option<Spanned<String>>,
    /// Compared with which row.
    #[serde(default)]
    pub vs_case: Option<Spanned<String>>,
    /// The comparison.
    pub op: Spanned<CompareKind>,
    /// Not below.
    #[serde(default)]
    pub min: Option<Spanned<f64>>,
    /// Not above.
    #[serde(default)]
    pub max: Option<Spanned<f64>>,
    /// The experiment of ours that holds this very band, on another machine. Here it is judged and
    /// printed, and no check fails for it.
    #[serde(default)]
    pub held_in: Option<Spanned<String>>,
    /// Why this band is known not to hold, as measured. It is judged and printed, and no check
    /// fails for it.
    #[serde(default)]
    pub missed: Option<Spanned<String>>,
}

impl ExpectEntry {
    /// True if two bands say the same, but for where they are held.
    fn is_same(&self, other: &Self) -> bool {
        let name = |entry: &Option<Spanned<String>>| entry.as_ref().map(|e| e.get_ref().clone());
        let bound = |entry: &Option<Spanned<f64>>| entry.as_ref().map(|e| *e.get_ref());
        let names = |entry: &Self| {
            let all = [&entry.of, &entry.vs, &entry.vs_case].map(name);
            let cases: Vec<_> = entry
                .cases
                .iter()
                .map(|case| case.get_ref().clone())
                .collect();
            let own = [&entry.id, &entry.metric, &entry.policy].map(|e| e.get_ref().clone());
            (own, all, cases)
        };
        names(self) == names(other)
            && self.op.get_ref() == other.op.get_ref()
            && bound(&self.min) == bound(&other.min)
            && bound(&self.max) == bound(&other.max)
    }
}

impl Scenario {
    /// The published value of a metric, in that row and column.
    #[must_use]
    pub fn published_value(&self, metric: &str, case: &str, policy: &str) -> Option<f64> {
        let entry = self.published.iter().find(|entry| {
            entry.metric.get_ref() == metric
                && entry.case.get_ref() == case
                && entry.policy.get_ref() == policy
        });
        entry.map(|entry| entry.value)
    }

    /// Reads a scenario, overridden as the command line says, and checks it.
    ///
    /// # Errors
    /// All mistakes found, with their places.
    pub fn load(source: Source, overrides: &[Override]) -> Result<(Self, Source), LoadError> {
        let given = source.clone();
        let source = overrides::apply(source, overrides)?;
        let scenario = parse::parse(&source).map_err(|error| in_the_file(&given, error))?;
        let list = check::check(&scenario);
        if list.is_empty() {
            return Ok((scenario, source));
        }
        Err(LoadError::Mistakes(Mistakes { source, list }))
    }

    /// The rows; a scenario without any has one, named after it.
    #[must_use]
    pub fn rows(&self) -> Vec<CaseEntry> {
        if !self.cases.is_empty() {
            return self.cases.clone();
        }
        vec![CaseEntry::plain(self.name.clone())]
    }
}

/// A mistake that the file has without the overrides is shown in the file: its user has not seen
/// the text that they made.
fn in_the_file(given: &Source, error: LoadError) -> LoadError {
    let titles = |error: &LoadError| match error {
        LoadError::Mistakes(mistakes) => {
            let titles = mistakes.list.iter().map(|mistake| mistake.title.clone());
            titles.collect::<Vec<_>>()
        }
        LoadError::Override(_) => Vec::new(),
    };
    match parse::parse(given) {
        Err(own) if titles(&own) == titles(&error) => own,
        _ => error,
    }
}

/// True if `c` may be in a plain name: of a device, a task, a case or a policy, which stand in
/// tables and in names of files.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.+".contains(c)
}

/// Why a scenario could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Mistakes in its text.
    #[error("{}", .0.render(false))]
    Mistakes(Mistakes),
    /// An override that fits nowhere.
    #[error(transparent)]
    Override(#[from] OverrideError),
}

//! A scenario: one experiment as a TOML file. Machine, devices, tasks, and three lists: the rows
//! (`[[row]]`), the columns (`[[column]]`) and what must come out (`[[expect]]`).
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
mod counters;
mod journal;
pub mod machine;
mod metrics;
mod nodes;
mod overrides;
mod parse;
mod reproduce;
mod runs;
pub mod small;
mod tasks;
#[cfg(test)]
mod tests;

pub use crate::limits::{HZ, RATE_LEAST_MIB, RATE_MOST_MIB};
pub use crate::mistake::{Mistake, Mistakes, Source, choices, nearest, renderer};
pub use crate::units::MEMORY_MOST_MIB;
pub use journal::{JournalData, JournalEntry, JournalTable};
pub use metrics::{METRICS, SAMPLED};
pub use nodes::{NodeEntry, ZonelistKind};
pub use overrides::{Override, OverrideError, drop_twin, settle_limits};
pub use reproduce::ReproduceSection;
pub use runs::{DefragKind, FileSystems};
pub use small::{ObjectCacheEntry, RoleKind};
pub use tasks::TaskEntry;

use std::collections::BTreeMap;

use policy::place::NODES_MAX;
use toml::Spanned;

use crate::catalogue;
use crate::keys::{Allowed, Key, May, absent, keys, names, range, words};
use crate::kinds::Task;
use crate::limits::{
    BOOST, COUNT, FILE_MIB, FILE_MOST_MIB, FILE_SYSTEMS, FILES, INODES, LIMIT, MEMORY, MODELS,
    PAGE_RULE, PERCENT, PLACE, RATE, READAHEAD, REASON, RECLAIM, RUN, SHARE, SHRINK, SWAPPINESS,
    TICKS,
};

/// The only schema there is.
pub const SCHEMA: &str = "tidegate-exp/1";

/// A table of scenarios, for lists of keys.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its name for `tidegate list keys`.
    pub name: &'static str,
    /// Its header.
    pub header: &'static str,
    /// Its meaning.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

macro_rules! tables {
    ($($name:literal $header:literal $Table:ident,)*) => {
        /// The tables of a scenario, in the order in which one is written.
        pub const TABLES: &[Listed] = &[$(Listed {
            name: $name,
            header: $header,
            about: $Table::ABOUT,
            keys: $Table::KEYS,
        }),*];
    };
}
tables! {
    "top" "at the top" Scenario,
    "run" "[run]" RunSection,
    "machine" "[machine]" Machine,
    "device" "[[device]]" DeviceEntry,
    "task" "[[task]]" TaskKeys,
    "row" "[[row]]" RowEntry,
    "column" "[[column]]" ColumnEntry,
    "published" "[[published]]" PublishedEntry,
    "counters" "[[counters]]" CountersEntry,
    "delays" "[[delays]]" DelaysEntry,
    "expect" "[[expect]]" ExpectEntry,
    "reproduce" "[reproduce]" ReproduceSection,
}

/// The row that is all rows together.
pub const ALL: &str = "all";

const METRIC: Allowed = names("metric", || METRICS.to_vec());

keys! {
    /// One experiment.
    Scenario:
        schema: Spanned<String>, "The schema: tidegate-exp/1.";
        name: Spanned<String>, "Name of the experiment, and of its results folder.";
        title: String = String::new(), "One line about it.";
        paper: Option<String>, "The publication of its numbers.";
        run: RunSection, "The way it is run.";
        machine: Machine, "On what.";
        devices as "device": Vec<DeviceEntry>, "Its devices.";
        tasks as "task": Vec<TaskEntry>, "Its tasks.";
        rows as "row": Vec<RowEntry> = Vec::new(), "Rows; without any, one row named after the experiment.";
        columns as "column": Vec<ColumnEntry>, "Columns; the first is the baseline.";
        metrics: Vec<Spanned<String>> = Vec::new(), "Printed metrics, in order; without any, all that apply.", METRIC;
        published: Vec<PublishedEntry> = Vec::new(), "Published values.";
        counters: Vec<CountersEntry> = Vec::new(), "Tables whose published values are claims.";
        delays: Vec<DelaysEntry> = Vec::new(), "Published delays of throttled reclaimers.";
        expects as "expect": Vec<ExpectEntry> = Vec::new(), "The bands of its outcome.";
        reproduce: ReproduceSection, "The part of it that `reproduce` runs.";
}

keys! {
    /// The settings of its runs.
    RunSection:
        scale: Spanned<f64> = absent(1.0), "Memory, files and device rates are shrunk to this part, one over a whole number; times, request sizes and HZ are not. 1 if not given, 1/64 at least.";
        replicas: Spanned<u32> = absent(3), "Runs per cell; 3 if not given.", range(1.0, 1000.0, "");
        seed: u64 = 1, "Seed of the first; the others follow from it. 1 if not given.";
        max_s: Spanned<f64> = absent(86_400.0), "A run that takes longer in its own time is stopped and fails; a day if not given. Live, its files are there when it begins.", range(0.001, 1e7, " s");
        sample_ms: Spanned<f64> = absent(500.0), "Time between two samples of the levels; 500 if not given.", range(1.0, 1e7, " ms");
}

keys! {
    /// The machine, before scaling.
    Machine:
        cpus: Spanned<u32>, "CPUs.", range(1.0, world::CPUS_MAX as f64, "");
        memory_mib: Spanned<f64>, "Memory for pages. Live: the limit of the process's resident memory.", MEMORY;
        dirty_percent: May<u8>, "`vm.dirty_ratio`.", PERCENT;
        background_percent: May<u8>, "`vm.dirty_background_ratio`.", PERCENT;
        dirty_mib: May<f64>, "`vm.dirty_bytes`; replaces the percentage.", LIMIT;
        background_mib: May<f64>, "`vm.dirty_background_bytes`; replaces the percentage.", LIMIT;
        swap: Option<SwapEntry>, "The swap file of anonymous pages; without it they stay.";
        swappiness: May<u32>, "`vm.swappiness`.", SWAPPINESS;
        min_free_kib: May<f64>, "`vm.min_free_kbytes` of the full size; without it, what the kernel computes from the memory.";
        watermark_scale_factor: May<u32>, "`vm.watermark_scale_factor`: the gap between two marks, in 1/10000 of the memory.", range(1.0, 3000.0, "");
        reserved_percent: May<f64>, "The part of the memory that holds neither pages of files nor anonymous ones: the kernel's tables, slabs, programs. Sizes that are parts of the memory are of all of it.", range(0.0, 50.0, " %");
        costs: May<String>, "The cost of work, by the machine's name; without it, by the file system of the first device.", names("machine", catalogue::machines);
        scale_costs: bool = false, "Scaled down, a page costs as much more CPU time as there are fewer of them, so that CPUs are as busy as at full size. Without it, pages cost the same and CPU times are brought back to full size afterwards.";
        scale_clusters: bool = false, "Scaled down, reclaim takes as many fewer pages at a time, so that tasks are throttled as often as at full size. Slow: as many clusters as at full size.";
        scale_requests: May<bool>, "Scaled down, requests to devices have as many fewer pages, down to one, and take as long: there are as many of them as at full size, and a disk seeks as often. Only with `scale_costs`.";
        thp: May<bool>, "Huge pages are available (`transparent_hugepage/enabled` is `always`): runs of 2 MiB, or what stands for them at a scale. Without it there are none, and no row can have them.";
        used_before: bool = false, "Its memory was in use before the run: free blocks are in an order that the seed draws, so that repetitions begin in as many states. Without it they are in the order of their addresses.";
        oom_kills: bool = false, "Out of memory, the program with the most memory is killed, as Linux does; without it, the task that asks is refused, and its job has failed.";
        readahead_kib: May<f64>, "The largest read-ahead window (`read_ahead_kb` of a bdi), before scaling. Without it, ours: several requests deep, up to 8 MiB.", READAHEAD;
        preempt_hz: May<u32>, "Tasks share CPUs as under Linux 6.12 with this many ticks a second (`world::run_queue`); without it, a task loses its CPU to a waiting task as soon as it has had 3 ms.", TICKS;
        node: Vec<NodeEntry> = Vec::new(), "Its nodes, if they are not equal; instead of `nodes`.";
        distance: May<Vec<Vec<u32>>>, "The distances between nodes, a row each; 10 is from a node to itself. Without it, 20 between any two.";
        zonelist: May<ZonelistKind>, "In which order zones are tried; without it, as Linux chooses by its rule.";
        nodes: May<u32>, "Sockets with memory of their own, NUMA nodes to Linux: under its laws each has lists, marks and a background reclaimer. One if not given.", range(1.0, NODES_MAX as f64, "");
        object_cache: May<Vec<ObjectCacheEntry>>, "The caches of objects of small files; without it, those of xfs on the machine of paper p3.";
        overhead: bool = false, "Index nodes, heads of pages that were written to and page tables take frames of the memory.";
        vfs_cache_pressure: May<u32>, "`vm.vfs_cache_pressure`, in per cent.", range(0.0, 10_000.0, " %");
}

keys! {
    /// The swap file.
    SwapEntry:
        device: Spanned<String>, "Its device.";
        mib: Spanned<f64>, "Its size, before scaling.", range(1.0, FILE_MOST_MIB, " MiB");
}

keys! {
    /// A device of the machine.
    DeviceEntry:
        id: Spanned<String>, "Its name for tasks.";
        model: Spanned<String>, "Model in the lab; live, a file in the folder stands for it.", MODELS;
        fs: May<String>, "File system on it: allocation and CPU costs.", FILE_SYSTEMS;
        journal: May<JournalEntry>, "Its file system's journal: commits, and writers held up by them. In the lab only.";
        wrap: May<String>, "Wrappers: `slow:rate=16MB,latency=2ms`.";
        rate_mib: May<f64>, "Its rate in MiB/s: of the models that have one, and of `null`, which gets a slow wrapper. Live, the file gets that wrapper.", RATE;
        change: Vec<ChangeEntry> = Vec::new(), "Changes of that rate, in order.";
        strict: May<bool>, "The device's own limits hold even when the global ones are far (`strict_limit` of a bdi).";
        max_percent: May<f64>, "Upper bound of its share of the dirty limit (`max_ratio` of a bdi).", SHARE;
        rate_factor: May<f64>, "Its rates times this, beside the run's scale: an ablation.", range(0.01, 100.0, "");
        placed_files: May<bool>, "Files that are there before the run lie somewhere on it, so that reading them takes its time. Without it reads of what was never written take none, as in experiments that are about writers.";
        blocks_a_page: May<u32>, "Blocks of its file system in a page: heads of a page that was written to, where these take memory (`Machine::overhead`). 1 if not given.", range(1.0, 8.0, "");
        params: BTreeMap<Spanned<String>, Spanned<u64>> = BTreeMap::new(), "Parameters of the model by name (`tidegate list devices`), before scaling.";
}

keys! {
    /// A change of a device's rate.
    ChangeEntry:
        at_s: Spanned<f64>, "Time from the beginning of the run.", range(0.001, 1e7, " s");
        rate_mib: Spanned<f64>, "The rate from then on, MiB/s; zero: the device stands still.";
}

keys! {
    /// A task of the experiment, or several alike: the keys that all kinds have, and in `kind`
    /// those of its own.
    TaskKeys:
        id: Spanned<String>, "Its name; with `count` > 1 numbers follow.";
        kind: Spanned<Task>, "Its kind (`tidegate list kinds`).";
        device: May<String>, "The device of its files; not of a task that has memory alone.";
        count: May<u32>, "The number of such tasks.", COUNT;
        start_s: May<f64>, "Starts this long after the run began.", range(0.0, 1e7, " s");
        run_s: May<f64>, "Stops this long after it began.", RUN;
}

keys! {
    /// A row of the table: what differs from the scenario.
    RowEntry:
        name: Spanned<String>, "Its name.";
        model: May<String>, "Model of the first device.", MODELS;
        fs: May<String>, "File system of the first device.", FILE_SYSTEMS;
        count: May<u32>, "Count of the first task.", COUNT;
        file_mib: May<f64>, "`file_mib` of the first task.", FILE_MIB;
        rate_mib: May<f64>, "`rate_mib` of the first device.", RATE;
        dirty_mib: May<f64>, "`dirty_mib` of the machine.", LIMIT;
        background_mib: May<f64>, "`background_mib` of the machine.", LIMIT;
        memory_mib: May<f64>, "`memory_mib` of the machine.";
        counts: BTreeMap<Spanned<String>, Spanned<u32>> = BTreeMap::new(), "Counts of tasks by their ids.", COUNT;
        files: BTreeMap<Spanned<String>, Spanned<u32>> = BTreeMap::new(), "`files` of tasks by their ids.", FILES;
        tasks: Vec<Spanned<String>> = Vec::new(), "The tasks of this row by id; without it, all. Devices that none of them uses are left out.";
        apart: bool = false, "Left out of what is summed over rows (`Duration`, `Ops`, delays).";
        file_systems: FileSystems = BTreeMap::new(), "File systems of devices by their ids.", FILE_SYSTEMS;
        thp: May<bool>, "The machine has huge pages in this row.";
        min_free_kib: May<f64>, "`min_free_kib` of the machine.";
}

impl RowEntry {
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

keys! {
    /// A column of the table.
    ColumnEntry:
        name: Spanned<String>, "Its name.";
        preset: May<String>, "The preset it is made from; without it, the one of its name.";
        hz: May<u32>, "Ticks per second, instead of the preset's.", TICKS;
        strict: May<bool>, "`strict` of all devices, in this column.";
        max_percent: May<f64>, "`max_percent` of all devices, in this column.", SHARE;
        reclaim: May<String>, "The law by which reclaim is throttled, instead of the preset's.", RECLAIM;
        page_rule: May<String>, "The rule that evicts pages of files, instead of the law's lists.", PAGE_RULE;
        place: May<String>, "The law of looking for a frame on a machine of several nodes, instead of the preset's.", PLACE;
        one_node: bool = false, "Takes the memory of all nodes for that of one, as a program does that does not look.";
        inodes: May<String>, "The law by which inodes are freed, instead of the preset's.", INODES;
        keeps_apart: May<bool>, "Pages, objects and unmovable memory have free lists of their own, instead of the preset's way.";
        boost: May<String>, "The boost where pageblocks are mixed, instead of the preset's. Nothing, unless `keeps_apart`.", BOOST;
        boost_factor: May<u32>, "`vm.watermark_boost_factor`: most of a boost, in 1/10000 of HIGH: an ablation.";
        shrink: May<String>, "The rule by which caches of objects are asked for their share, instead of the preset's.", SHRINK;
        writes_files: May<bool>, "Reclaim may write single pages of files, where the file system lets it: versions of one differ.";
        cpu_lists: May<bool>, "CPUs keep free frames for themselves, instead of the preset's way: an ablation.";
        cpu_lists_part: May<u32>, "`vm.percpu_pagelist_high_fraction`: the CPUs of a node keep this part of each zone, where they keep frames; 0: as the preset has it.";
        reclaim_off: Vec<Spanned<String>> = Vec::new(), "Reasons that never throttle: an ablation.", REASON;
        wakes: May<bool>, "Events end a reclaimer's sleep; without, timeouts alone do: an ablation.";
        writeback_timeout_ms: May<f64>, "Timeout of WRITEBACK, and of what was before it, instead of 100 ms: an ablation.", range(1.0, 60_000.0, " ms");
        swappiness: May<u32>, "`vm.swappiness`, in this column.", SWAPPINESS;
        patches: Vec<Spanned<String>> = Vec::new(), "The patches of paper p4 that its kernel has, instead of the preset's: `\"1-8\"`, `\"11\"`, `\"-7b\"`.";
        defers: May<bool>, "A kernel that did not get a huge page leaves the next ones out for a while: an ablation.";
        defrag: May<DefragKind>, "The tasks whose faults move pages for a huge page, in a kernel since 4.6; without it, as the preset has it.";
        readahead_kib: May<f64>, "`readahead_kib` of the machine, in this column.", READAHEAD;
}

keys! {
    /// A number that somebody published.
    PublishedEntry:
        metric: Spanned<String>, "The metric.", METRIC;
        row: Spanned<String>, "The row.";
        column: Spanned<String>, "The column.";
        value: f64, "The number.";
}

keys! {
    /// A table of published values whose rows are claims about a change: each value comes out with
    /// it, within a factor of two, and not before it.
    CountersEntry:
        row: Spanned<String>, "The row of the scenario that the table is of.";
        column: Spanned<String>, "The column with the change.";
        before: Spanned<String>, "The column without it.";
        but: Vec<Spanned<String>> = Vec::new(), "Metrics that make no claim: another claim is about the same quantity.", METRIC;
        missed: Vec<Spanned<String>> = Vec::new(), "Metrics that are known not to come out.", METRIC;
        why: May<String>, "Why they do not, as measured.";
}

words! {
    /// The tasks whose delays count.
    ByKind:
        Direct = "direct", "Of tasks that need memory.";
        Kswapd = "kswapd", "Of the background reclaimer.";
        Any = "any", "Of all: not told apart.";
}

keys! {
    /// The delays of one reason that somebody published, of the whole test.
    DelaysEntry:
        column: Spanned<String>, "The column.";
        by: ByKind, "The tasks they are of.";
        reason: Spanned<String>, "For which reason.", REASON;
        n: u64, "Their number.";
        zero: u64, "Of these: no sleep of a tick.";
        timeout: u64, "Of these: the whole timeout or more.";
        mean_ms: f64, "Mean of all.";
}

words! {
    /// The comparison of two values.
    CompareKind:
        Value = "value", "The column's own mean.";
        Ratio = "ratio", "Column / other column.";
        ChangePercent = "change_percent", "100 x (column / other column - 1).";
        Chance = "chance", "The chance that two means of the metric's samples differ so (a t-test): below 0.10 they have a star in tables.";
}

keys! {
    /// The cells of a run in which a claim must not hold: those that differ from its own.
    KnockOutEntry:
        row: May<String>, "The row.";
        column: May<String>, "The column.";
        vs: May<String>, "Compared with which column.";
        vs_row: May<String>, "Compared with which row.";
}

keys! {
    /// A band of its outcome.
    ExpectEntry:
        id: Spanned<String>, "Its name in messages.";
        source: String, "The source of the band.";
        claim: May<String>, "The claim of the paper, in one sentence.";
        published: May<String>, "The published figure as text, where it does not follow from published values.";
        deviation: May<f64>, "The deviation that the paper prints beside the published figure, in its unit.";
        knock_out: Option<KnockOutEntry>, "The run in which the claim must not hold: without the mechanism, or before the change.";
        replicas_least: May<u32>, "Repetitions from which on the band can be judged: it is of a mean that single runs stray from.";
        metric: Spanned<String>, "The metric.", METRIC;
        rows: Vec<Spanned<String>> = Vec::new(), "The rows; without it, all.";
        column: Spanned<String>, "The column.";
        of: May<String>, "Of which task or device alone, by id; without it, of the whole run.";
        vs: May<String>, "Compared with which column.";
        vs_row: May<String>, "Compared with which row.";
        op: Spanned<CompareKind>, "The comparison.";
        min: May<f64>, "Not below.";
        max: May<f64>, "Not above.";
        held_in: May<String>, "The experiment of ours that holds this very band, on another machine. Here it is judged and printed, and no check fails for it.";
        missed: May<String>, "Why this band is known not to hold, as measured. It is judged and printed, and no check fails for it.";
}

impl ExpectEntry {
    /// The same band in the run in which it must not hold, if the claim names one.
    #[must_use]
    pub fn knocked_out(&self) -> Option<Self> {
        let out = self.knock_out.as_ref()?;
        let other = |given: &Option<Spanned<String>>, own: &Option<Spanned<String>>| {
            given.clone().or_else(|| own.clone())
        };
        Some(Self {
            rows: (out.row.clone()).map_or_else(|| self.rows.clone(), |row| vec![row]),
            column: out.column.clone().unwrap_or_else(|| self.column.clone()),
            vs: other(&out.vs, &self.vs),
            vs_row: other(&out.vs_row, &self.vs_row),
            knock_out: None,
            ..self.clone()
        })
    }

    /// True if two bands say the same, but for where they are held.
    fn is_same(&self, other: &Self) -> bool {
        let name = |entry: &Option<Spanned<String>>| entry.as_ref().map(|e| e.get_ref().clone());
        let bound = |entry: &Option<Spanned<f64>>| entry.as_ref().map(|e| *e.get_ref());
        let names = |entry: &Self| {
            let all = [&entry.of, &entry.vs, &entry.vs_row].map(name);
            let rows: Vec<_> = entry.rows.iter().map(|row| row.get_ref().clone()).collect();
            let own = [&entry.id, &entry.metric, &entry.column].map(|e| e.get_ref().clone());
            (own, all, rows)
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
    pub fn published_value(&self, metric: &str, row: &str, column: &str) -> Option<f64> {
        let entry = self.published.iter().find(|entry| {
            entry.metric.get_ref() == metric
                && entry.row.get_ref() == row
                && entry.column.get_ref() == column
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
        let (scenario, values) = match parse::parse(&source) {
            Ok(parsed) => parsed,
            Err(error) => return Err(in_the_file(&given, error)),
        };
        let list = check::check(&scenario, values);
        if list.is_empty() {
            return Ok((scenario, source));
        }
        Err(LoadError::Mistakes(Mistakes { source, list }))
    }

    /// The rows; a scenario without any has one, named after it.
    #[must_use]
    pub fn rows(&self) -> Vec<RowEntry> {
        if !self.rows.is_empty() {
            return self.rows.clone();
        }
        vec![RowEntry::plain(self.name.clone())]
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

/// True if `c` may be in a plain name: of a device, a task, a row or a column, which stand in
/// tables and in names of files.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.+".contains(c)
}

/// The mistakes by which a scenario could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Mistakes in its text.
    #[error("{}", .0.render(false))]
    Mistakes(Mistakes),
    /// An override that fits nowhere.
    #[error(transparent)]
    Override(#[from] OverrideError),
}

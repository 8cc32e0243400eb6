//! Prints the tables of docs/study/notebooks/ablations.md: every band, as shipped and with one
//! thing changed.
//!
//! ```text
//! cargo run --release -p tidegate-experiment --example ablations                 all: many minutes
//! cargo run --release -p tidegate-experiment --example ablations stutterp        the table of one experiment
//! cargo run --release -p tidegate-experiment --example ablations stutterp HZ     its lines with HZ in their name
//! cargo run --release -p tidegate-experiment --example ablations stutterp machine.nodes=1     all of it with an override, as of `--set`
//! ```
//!
//! Each line is runs of its own, on all cores; which one is under way stands on the standard error.
//! A band that measures its mechanism fails when the mechanism is taken away, and stays when
//! something changes that it is not about.

use std::process::ExitCode;

use experiment::expect::Verdict;
use experiment::metrics;
use experiment::outcome::Outcome;
use experiment::pool;
use experiment::run::Cell;
use experiment::trial::{Trial, TrialError, with_hz, with_law, with_model, with_rate};
use mm::SlabSpec;
use policy::compact::{Background, Blocks, Compaction, Patches, Scans};
use policy::dirty::Law;
use policy::place::PlaceLaw;
use policy::place::machine::Machine;
use policy::reclaim::Reason;
use policy::shares::{Mode, ShareRule};
use policy::units::Nanos;
use policy::writeback::Flight;

const BEFORE: &str = "linux-2.6.36";
/// Paper p3's, before.
const VANILLA: &str = "linux-5.0";
/// Paper p2's: before its patches, with the first, with both.
const TRIMMED: &str = "linux-3.0";
const FIRST: &str = "linux-3.0+zlcfirst";
const BOTH: &str = "linux-3.0+zlc";
/// Paper p4's: before its patches, with all of them.
const UNPATCHED: &str = "linux-3.2-rc5";
const ISOLATE: &str = "linux-3.2-rc5+p4.1-11";
/// What came of it.
const ALWAYS: &str = "linux-6.12-always";
/// The column that p0 is about.
const REASONS: &str = "linux-5.16-rc1";
const FOREGROUND: Law = history::dirty::FOREGROUND;
const FIXED: Law = history::dirty::SOFT_REGION;
const MEASURED: Law = history::dirty::SOFT_REGION_MEASURED;

/// What is changed in which experiment.
struct Table {
    experiment: &'static str,
    /// Overrides, as of `--set`.
    sets: &'static [&'static str],
    /// The columns that its bands need.
    columns: &'static [&'static str],
    /// The rows that they need; none: all that do not stand apart.
    rows: &'static [&'static str],
    /// What is shown beside the bands: metrics of all rows of the last column together.
    shows: &'static [&'static str],
    ablations: &'static [Ablation],
}

/// What p0 publishes of those that sleep, and no band or only one is about.
const SLEEPERS: &[&str] = &["asleep", "noprogress_echo", "noprogress_echo_ms"];

const TABLES: [Table; 15] = [
    Table {
        experiment: "dd",
        sets: &[],
        columns: &[BEFORE, "p1", "p1-measured"],
        rows: &["ext2", "ext3", "ext4", "xfs", "btrfs"],
        shows: &[],
        ablations: &PACING,
    },
    Table {
        experiment: "cp-pauses",
        sets: &[],
        columns: &[BEFORE, "p1-measured"],
        rows: &["cp"],
        shows: &[],
        ablations: &PACING,
    },
    Table {
        experiment: "dd-many",
        sets: &[],
        columns: &[BEFORE, "p1", "p1-measured"],
        rows: &["1", "2", "100"],
        shows: &[],
        ablations: &PACING,
    },
    Table {
        experiment: "two-writers",
        sets: &[],
        columns: &[BEFORE, "p1", "p1-measured"],
        rows: &[],
        shows: &[],
        ablations: &PACING,
    },
    Table {
        experiment: "stutterp",
        sets: &["run.replicas=1"],
        columns: &["linux-5.15", REASONS],
        rows: &[],
        shows: SLEEPERS,
        ablations: &RECLAIM,
    },
    Table {
        experiment: "stutterp-oom",
        sets: &["run.replicas=1"],
        columns: &["linux-5.15", REASONS],
        rows: &[],
        shows: SLEEPERS,
        ablations: &RECLAIM,
    },
    Table {
        experiment: "fsmark-small",
        sets: &["run.replicas=1"],
        columns: &[VANILLA, "linux-5.0+p3"],
        rows: &[],
        shows: &["slab_share", "files_last"],
        ablations: &OBJECTS,
    },
    Table {
        experiment: "metadata-reread",
        sets: &[],
        columns: &[VANILLA, "linux-5.0+p3", "tidegate"],
        rows: &["after-75", "beside"],
        shows: &["slab_share", "visit_misses", "visit_s", "files_last"],
        ablations: &SHARING,
    },
    Table {
        experiment: "data-reread",
        sets: &[],
        columns: &["linux-5.0+p3", "tidegate"],
        rows: &["read-40"],
        shows: &["visit_first_s", "visit_last_s"],
        ablations: &SHARING,
    },
    runs(
        &[UNPATCHED, ISOLATE],
        &["Devicevfat", "Deviceext4"],
        &COMPACTING,
    ),
    runs(&[ALWAYS], &["Devicevfat"], &IN_BACKGROUND),
    runs(&["tidegate"], &["Devicevfat"], &BY_BLOCKS),
    nodes("zone-dd"),
    nodes("zone-fsmark"),
    nodes("zone-mapped"),
];

/// Paper p4's experiment.
const fn runs(
    columns: &'static [&'static str],
    rows: &'static [&'static str],
    ablations: &'static [Ablation],
) -> Table {
    Table {
        experiment: "thpavail",
        sets: &[],
        columns,
        rows,
        shows: &[
            "alloc_elapsed_s",
            "alloc_system_s",
            "thp_success",
            "pgscan_direct",
        ],
        ablations,
    }
}

/// An experiment of paper p2.
const fn nodes(experiment: &'static str) -> Table {
    Table {
        experiment,
        sets: &["run.replicas=1"],
        columns: &[TRIMMED, FIRST, BOTH],
        rows: &[],
        shows: &[],
        ablations: &PLACING,
    }
}

/// One thing changed.
struct Ablation {
    name: &'static str,
    change: fn(&mut Cell),
    /// Times the machine's memory.
    memory: f64,
    swapped: bool,
}

/// Of what throttles reclaimers: one reason less, no events, another clock, device and memory.
const RECLAIM: [Ablation; 14] = [
    ablation("as shipped", |_| {}),
    ablation("without WRITEBACK", |cell| without(cell, Reason::Writeback)),
    ablation("without ISOLATED", |cell| without(cell, Reason::Isolated)),
    ablation("without NOPROGRESS", |cell| {
        without(cell, Reason::NoProgress);
    }),
    ablation("no wake-ups, timeouts only", |cell| {
        if cell.policy == REASONS {
            cell.laws.reclaim.wakes = false;
        }
    }),
    ablation("WRITEBACK 200 ms", |cell| {
        if cell.policy == REASONS {
            cell.laws.reclaim.writeback_timeout = Some(Nanos::millis(200));
        }
    }),
    ablation("HZ 100", |cell| with_hz(cell, 100)),
    ablation("HZ 1000", |cell| with_hz(cell, 1000)),
    ablation("disk at half the rate", |cell| with_rate(cell, 0.5)),
    ablation("disk at twice the rate", |cell| with_rate(cell, 2.0)),
    ablation("disk without buffer", |cell| {
        unbuffered(cell, "write_buffer_us")
    }),
    ablation("disk that seeks", |cell| with_model(cell, "p0_disk")),
    Ablation {
        name: "half the memory",
        memory: 0.5,
        ..ablation("", |_| {})
    },
    Ablation {
        name: "twice the memory",
        memory: 2.0,
        ..ablation("", |_| {})
    },
];

/// Of what keeps caches of objects and pages in balance: no boost, boosts of the other kind, one
/// list for all, objects and files of other sizes, another clock and machine.
const OBJECTS: [Ablation; 18] = [
    ablation("as shipped", |_| {}),
    Ablation {
        name: "columns swapped",
        swapped: true,
        ..ablation("", |_| {})
    },
    ablation("no boost in both", |cell| cell.laws.slabs.boost.factor = 0),
    ablation("vanilla asks caches in boosted passes", |cell| {
        cell.laws.slabs.boost.shrinks = true;
    }),
    ablation("patched does not", |cell| {
        cell.laws.slabs.boost.shrinks = false
    }),
    ablation("vfs_cache_pressure 10", |cell| pressure(cell, 10)),
    ablation("vfs_cache_pressure 1000", |cell| pressure(cell, 1000)),
    ablation("one list for all mobilities", |cell| {
        cell.laws.slabs.keeps_apart = false;
    }),
    ablation("slabs of single pages", |cell| {
        objects(cell, |spec| spec.order = 0);
    }),
    ablation("half the objects of a file", |cell| {
        objects(cell, |spec| spec.object.0 /= 2);
    }),
    ablation("reclaim writes no file pages", |cell| {
        cell.laws.reclaim.writes_files = false;
    }),
    ablation("boosted failures do not count", |cell| {
        cell.laws.slabs.boost.failures_count = false;
    }),
    ablation("boosts of a tenth", |cell| {
        cell.laws.slabs.boost.factor /= 10
    }),
    ablation("one node", |cell| cell.machine = None),
    ablation("HZ 100", |cell| with_hz(cell, 100)),
    ablation("HZ 1000", |cell| with_hz(cell, 1000)),
    Ablation {
        name: "half the memory",
        memory: 0.5,
        ..ablation("", |_| {})
    },
    Ablation {
        name: "twice the memory",
        memory: 2.0,
        ..ablation("", |_| {})
    },
];

/// Of how a huge page is got: one of the paper's patches less, and what stands beside them. The
/// signs were written down in docs/study/notebooks/ablations.md before the first run.
const COMPACTING: [Ablation; 17] = [
    ablation("as shipped", |_| {}),
    ablation("without 1", |cell| patches(cell, "1-11,-1")),
    ablation("without 2, 3, 4", |cell| patches(cell, "1,5-11")),
    ablation("without 5", |cell| patches(cell, "1-11,-5")),
    ablation("without 6", |cell| patches(cell, "1-11,-6")),
    ablation("without 7a", |cell| patches(cell, "1-11,-7a")),
    ablation("without 7b", |cell| patches(cell, "1-11,-7b")),
    ablation("without 8", |cell| patches(cell, "1-11,-8")),
    ablation("without 9", |cell| patches(cell, "1-11,-9")),
    ablation("without 10", |cell| patches(cell, "1-11,-10")),
    ablation("without 11", |cell| patches(cell, "1-10")),
    ablation("11 with right counts", |cell| patches(cell, "1-10,11c")),
    ablation("without 7b; reclaim does not wait", |cell| {
        patches(cell, "1-11,-7b");
        scans(cell, |scans| scans.reclaim_waits = false);
    }),
    ablation("rc5 never defers", |cell| {
        if cell.policy == UNPATCHED {
            scans(cell, |scans| scans.defers = false);
        }
    }),
    ablation("a queue of 32 requests", |cell| {
        for device in &mut cell.devices {
            if device.model == "usb_stick" {
                device.params.push(("queue_requests".to_owned(), 32));
            }
        }
    }),
    ablation("one zone", one_zone),
    ablation("one zone, without 10", |cell| {
        patches(cell, "1-11,-10");
        one_zone(cell);
    }),
];

/// Of 6.12's, where faults of all programs move pages.
const IN_BACKGROUND: [Ablation; 3] = [
    ablation("6.12: as shipped", |_| {}),
    ablation("6.12: nothing is captured", |cell| {
        background(cell, |law| law.captures = false);
    }),
    ablation("6.12: no task of its own", |cell| {
        background(cell, |law| law.works = false);
    }),
];

/// Of ours.
const BY_BLOCKS: [Ablation; 6] = [
    ablation("tidegate: as shipped", |_| {}),
    ablation("tidegate: nothing is captured", |cell| {
        blocks(cell, |law| law.captures = false);
    }),
    ablation("tidegate: not grouped", |cell| {
        blocks(cell, |law| law.groups = false);
        cell.laws.slabs.keeps_apart = false;
    }),
    ablation("tidegate: the first block, not the cheapest", |cell| {
        blocks(cell, |law| law.by_cost = false);
    }),
    ablation("tidegate: what was read once moves", |cell| {
        blocks(cell, |law| law.drops = false);
    }),
    ablation("tidegate: takes what is free", |cell| {
        blocks(cell, |law| law.looks = 0);
    }),
];

fn one_zone(cell: &mut Cell) {
    cell.machine = cell.machine.as_ref().map(Machine::with_one_zone_a_node);
}

/// Changes how ours empties a block.
fn blocks(cell: &mut Cell, change: impl Fn(&mut Blocks)) {
    if let Some(runs) = &mut cell.runs
        && let Compaction::Blocks(law) = &mut runs.compaction
    {
        change(law);
    }
}

/// Changes what a kernel since 4.6 does.
fn background(cell: &mut Cell, change: impl Fn(&mut Background)) {
    if let Some(runs) = &mut cell.runs
        && let Compaction::Background(law) = &mut runs.compaction
    {
        change(law);
    }
}

/// The column with all patches has these instead.
fn patches(cell: &mut Cell, names: &str) {
    if cell.policy == ISOLATE {
        let these = Patches::by_name(names).expect("a subset of the paper's patches");
        scans(cell, |scans| *scans = Scans::of(these));
    }
}

/// Changes how a column moves pages for a huge page.
fn scans(cell: &mut Cell, change: impl Fn(&mut Scans)) {
    if let Some(runs) = &mut cell.runs
        && let Compaction::Scans(scans) = &mut runs.compaction
    {
        change(scans);
    }
}

fn pressure(cell: &mut Cell, percent: u32) {
    if let Some(small) = &mut cell.small {
        small.pressure = percent;
    }
}

/// Changes how pages and objects share the memory, where they do.
fn sharing(cell: &mut Cell, change: impl Fn(&mut ShareRule)) {
    if let Some(rule) = &mut cell.laws.slabs.shares {
        change(rule);
    }
}

/// Of how Tidegate shares memory between pages and objects.
const SHARING: [Ablation; 5] = [
    ablation("as shipped", |_| {}),
    ablation("targets frozen", |cell| {
        sharing(cell, |rule| rule.mode = Mode::Fixed);
    }),
    ablation("no floor for writers", |cell| {
        sharing(cell, |rule| rule.writers_floor = false);
    }),
    ablation("pages do not go first", |cell| {
        sharing(cell, |rule| rule.carried_first = false);
    }),
    ablation("by pressure alone", |cell| cell.laws.slabs.shares = None),
];

/// Changes what slabs are made of.
fn objects(cell: &mut Cell, change: impl Fn(&mut SlabSpec)) {
    for cache in cell.small.iter_mut().flat_map(|small| &mut small.caches) {
        change(&mut cache.spec);
    }
}

/// Of where frames come from on a machine of several nodes. Other machines are overrides
/// (`machine.node=[...]`).
const PLACING: [Ablation; 8] = [
    ablation("as shipped", |_| {}),
    ablation("no lists of CPUs", |cell| cell.laws.place.cpu_lists = false),
    ablation("patches: the first zone is not asked after", |cell| {
        if cell.policy != TRIMMED {
            cell.laws.place.cache = PlaceLaw::LINUX_3_0.cache;
        }
    }),
    ablation("patch 2: direct reclaim clears nothing", |cell| {
        if cell.policy == BOTH {
            cell.laws.place.cache = PlaceLaw::LINUX_3_0_FIRST.cache;
        }
    }),
    ablation("before the patches: no trims", |cell| {
        if cell.policy == TRIMMED {
            cell.laws.place.trims = None;
        }
    }),
    ablation("patches: no trims", |cell| {
        if cell.policy != TRIMMED {
            cell.laws.place.trims = None;
        }
    }),
    ablation("one node", |cell| cell.machine = None),
    Ablation {
        name: "columns swapped",
        swapped: true,
        ..ablation("", |_| {})
    },
];

/// Of what paces writers.
const PACING: [Ablation; 15] = [
    ablation("as shipped", |_| {}),
    Ablation {
        name: "columns swapped",
        swapped: true,
        ..ablation("", |_| {})
    },
    ablation("before: law of p1, fixed", |cell| before(cell, FIXED)),
    ablation("before: law of p1, measured", |cell| before(cell, MEASURED)),
    ablation("after: law of 2.6.36", |cell| after(cell, FOREGROUND)),
    ablation("after: law of p1, fixed", |cell| after(cell, FIXED)),
    ablation("after: law of p1, measured", |cell| after(cell, MEASURED)),
    ablation("after: law of 6.12", |cell| {
        after(cell, history::dirty::RATE_BASED)
    }),
    ablation("disk at half the rate", |cell| with_rate(cell, 0.5)),
    ablation("disk at twice the rate", |cell| with_rate(cell, 2.0)),
    ablation("HZ 100 in all columns", |cell| with_hz(cell, 100)),
    ablation("HZ 1000 in all columns", |cell| with_hz(cell, 1000)),
    ablation("before: disk at half the rate", |cell| {
        if cell.policy == BEFORE {
            with_rate(cell, 0.5);
        }
    }),
    ablation("disk without buffer", without_buffer),
    ablation(
        "disk without buffer; after: one request in flight",
        |cell| {
            without_buffer(cell);
            if cell.policy != BEFORE {
                cell.laws.flush.flight = Flight::Requests(1);
            }
        },
    ),
];

const fn ablation(name: &'static str, change: fn(&mut Cell)) -> Ablation {
    Ablation {
        name,
        change,
        memory: 1.0,
        swapped: false,
    }
}

/// A reason never throttles in the column that has reasons.
fn without(cell: &mut Cell, reason: Reason) {
    if cell.policy == REASONS {
        cell.laws.reclaim.off = cell.laws.reclaim.off.with(reason);
    }
}

/// A disk that takes nothing in ahead, and loses a turn when nothing is queued behind what it
/// writes.
fn without_buffer(cell: &mut Cell) {
    unbuffered(cell, "write_buffer_us");
    unbuffered(cell, "stream_gap_us");
}

/// Takes a buffer of the first device away, by the name of its size.
fn unbuffered(cell: &mut Cell, name: &str) {
    cell.devices[0].params.push((name.to_owned(), 0));
}

fn before(cell: &mut Cell, law: Law) {
    if cell.policy == BEFORE {
        with_law(cell, law);
    }
}

fn after(cell: &mut Cell, law: Law) {
    if cell.policy != BEFORE {
        with_law(cell, law);
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_one = |word: &String| TABLES.iter().any(|table| table.experiment == word);
    let (named, rest): (Vec<String>, Vec<String>) = words.into_iter().partition(is_one);
    let (sets, parts): (Vec<String>, Vec<String>) = rest.into_iter().partition(|w| w.contains('='));
    let part = parts.join(" ");
    let chosen = |table: &&Table| named.is_empty() || named.iter().any(|n| n == table.experiment);
    for table in TABLES.iter().filter(chosen) {
        match rendered(table, &sets, &part) {
            Ok(text) => print!("{text}"),
            Err(error) => {
                eprintln!("ablations: {}: {error}", table.experiment);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The table in Markdown: a line for each ablation with `part` in its name, each with the overrides
/// `sets`.
fn rendered(table: &Table, sets: &[String], part: &str) -> Result<String, TrialError> {
    let own = table.sets.iter().copied();
    let sets: Vec<&str> = own.chain(sets.iter().map(String::as_str)).collect();
    let mut shipped = Trial::load(table.experiment, table.columns, &sets)?;
    shipped = if table.rows.is_empty() {
        shipped.summed_rows()
    } else {
        shipped.rows(table.rows)
    };
    let chosen = || {
        let all = table.ablations.iter();
        all.filter(|ablation| ablation.name.contains(part))
    };
    let mut text = String::new();
    let mut head = None;
    for (at, ablation) in chosen().enumerate() {
        let (of, name) = (chosen().count(), ablation.name);
        eprintln!("{} {}/{of}: {name}", table.experiment, at + 1);
        let trial = shipped.clone().memory_times(ablation.memory);
        let mut outcomes: Vec<Outcome> = match trial.run(ablation.change) {
            Ok(outcomes) => outcomes,
            // A job that memory ran out for, and the like: the other lines stand.
            Err(error) => {
                eprintln!("{} {name}: {error}", table.experiment);
                text.push_str(&format!("| {name} | failed: {error} |\n"));
                continue;
            }
        };
        if ablation.swapped {
            outcomes = exchanged(&outcomes, table.columns);
        }
        let verdicts = trial.judge(&outcomes);
        let bands = bands(&verdicts);
        head.get_or_insert_with(|| heads(table, &bands));
        let mut cells: Vec<String> = bands.iter().map(|worst| shown(worst)).collect();
        cells.extend(beside(table, &outcomes));
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    Ok(format!("{}{text}\n", head.unwrap_or_default()))
}

/// What is shown beside the bands.
fn beside(table: &Table, outcomes: &[Outcome]) -> Vec<String> {
    let last = table.columns.last().copied().unwrap_or(BEFORE);
    let of: Vec<&Outcome> = outcomes.iter().filter(|run| run.policy == last).collect();
    let all = pool::together(&of);
    let shown = table.shows.iter().map(|name| {
        let metric = metrics::by_name(name).and_then(|metric| metric.value(&all));
        figure(metric)
    });
    shown.collect()
}

/// Every after column with the runs of the before column, and that one with the last of theirs.
fn exchanged(outcomes: &[Outcome], columns: &[&str]) -> Vec<Outcome> {
    let (first, last) = (columns.first(), columns.last());
    let (first, last) = first.zip(last).expect("a table has columns");
    let mut all = renamed(outcomes, last, first);
    for column in columns.iter().filter(|column| *column != first) {
        all.extend(renamed(outcomes, first, column));
    }
    all
}

fn renamed(outcomes: &[Outcome], policy: &str, name: &str) -> Vec<Outcome> {
    let of = outcomes.iter().filter(|outcome| outcome.policy == policy);
    let renamed = of.cloned().map(|outcome| Outcome {
        policy: name.to_owned(),
        ..outcome
    });
    renamed.collect()
}

/// One verdict a band: of several rows the verdict that is furthest out.
fn bands(verdicts: &[Verdict]) -> Vec<&Verdict> {
    let mut bands: Vec<&Verdict> = Vec::new();
    for verdict in verdicts {
        match bands.iter_mut().find(|other| other.id == verdict.id) {
            None => bands.push(verdict),
            Some(worst) if size(verdict) > size(worst) => *worst = verdict,
            Some(_) => {}
        }
    }
    bands
}

fn size(verdict: &Verdict) -> f64 {
    verdict.value.map_or(f64::INFINITY, f64::abs)
}

fn heads(table: &Table, bands: &[&Verdict]) -> String {
    let bands = bands
        .iter()
        .map(|band| format!("{} ({})", band.id, limits(band)));
    let beside = table.shows.iter().map(|name| format!("`{name}`"));
    let names: Vec<String> = bands.chain(beside).collect();
    format!(
        "| {} | {} |\n|---|{}\n",
        table.experiment,
        names.join(" | "),
        "--:|".repeat(names.len())
    )
}

fn limits(band: &Verdict) -> String {
    match (band.min, band.max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!(">= {min}"),
        (None, Some(max)) => format!("<= {max}"),
        (None, None) => String::new(),
    }
}

fn shown(verdict: &Verdict) -> String {
    let value = figure(verdict.value);
    if verdict.holds() {
        value
    } else {
        format!("**{value}**")
    }
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) if value.abs() >= 10.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    }
}

//! `cargo instruments bench pacing`: writers on a slow device, through the kernel's page cache and
//! through ours, in one run and one table.
//!
//! | row | writers | device, MiB/s |
//! |---|---|---|
//! | `alone` | one heavy | 16 |
//! | `light` | a heavy and a light one; then the light one alone on a device that is not slow | 16 |
//! | `two` | two heavy, the second from a third of the time on | 16 |
//! | `devices` | a heavy one on each; then the fast one alone | 4 and 48 |
//! | `drop` | one heavy | 32, from half of the time on 8 |
//!
//! A heavy writer writes 1 MiB at a time, a light one 4 KiB every 10 ms; none of them syncs, so a
//! figure is of bytes taken into a cache, not of durable ones. Throughput is from a quarter of the
//! time on, everything else of the whole run. Figures are printed, not judged: the machine is
//! noisy, and what is wanted stands beside them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::chain;
use super::column::{Bench, Column};
use super::plan::{BACKGROUND_MIB, DIRTY_MIB, Device, Measured, Plan, Writer, jain};
use super::undo::Undo;
use super::watch::Watch;
use crate::steps::End;
use crate::workspace::{Workspace, build_program};
use crate::{Arguments, Result, at};

/// Seconds of a run.
const SECONDS: u64 = 24;
/// The seconds after the second writer's start whose bytes are compared.
const SETTLED: (u64, u64) = (2, 6);
/// Seconds that the kernel takes to follow lowered limits, and some.
const SETTLE_S: u64 = 40;
/// A strict device limit, per cent of the dirty limit.
const STRICT_PERCENT: u64 = 1;

/// The options of `pacing`.
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) columns: Vec<Column>,
    pub(crate) strict_percent: u64,
    pub(crate) out: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seconds: SECONDS,
            rows: ROWS.iter().collect(),
            columns: Column::ALL.into(),
            strict_percent: STRICT_PERCENT,
            out: None,
        }
    }
}

impl Options {
    /// Takes an option of this step; false: it is none.
    ///
    /// # Errors
    /// Its value is wrong.
    pub(crate) fn take(&mut self, word: &str, arguments: &mut Arguments) -> Result<bool> {
        match word {
            "--seconds" => {
                self.seconds = arguments.number_of("--seconds")?;
                // The second writer must have its settled seconds in the run.
                let least = (SETTLED.1 + 2) * 3 / 2;
                if !(least..=600).contains(&self.seconds) {
                    return Err(format!("--seconds: {least} to 600"));
                }
            }
            "--row" => {
                let name = arguments.value_of("--row")?;
                let row = ROWS.iter().find(|row| row.name == name);
                let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
                let row = row.ok_or_else(|| format!("--row: one of {}", names.join(", ")))?;
                narrow(&mut self.rows, ROWS.len(), row);
            }
            "--column" => {
                let name = arguments.value_of("--column")?;
                let column = Column::ALL.into_iter().find(|column| column.word() == name);
                let names = Column::ALL.map(Column::word).join(", ");
                let column = column.ok_or_else(|| format!("--column: one of {names}"))?;
                narrow(&mut self.columns, Column::ALL.len(), column);
            }
            "--strict" => {
                self.strict_percent = arguments.number_of("--strict")?;
                if !(1..=100).contains(&self.strict_percent) {
                    return Err("--strict: 1 to 100, per cent of the dirty limit".into());
                }
            }
            "--out" => self.out = Some(arguments.value_of("--out")?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The first choice replaces everything, each later one comes beside it.
fn narrow<T>(chosen: &mut Vec<T>, all: usize, one: T) {
    if chosen.len() == all {
        chosen.clear();
    }
    chosen.push(one);
}

/// A row: its figures' names, what the issue wants of Tidegate, and how they are measured.
pub(crate) struct Row {
    name: &'static str,
    figures: &'static [(&'static str, &'static str)],
    measure: fn(&Bench<'_>, Column, u64) -> Result<Vec<f64>>,
}

const ROWS: &[Row] = &[
    Row {
        name: "alone",
        figures: &[
            ("throughput, MiB/s", "16"),
            ("write p50, ms", ""),
            ("write p99, ms", ""),
            ("write max, ms", "<= 200"),
            ("longest pause, ms", "<= 200"),
            ("level max / limit", "<= 1"),
            ("dirty of other programs, mean MiB", ""),
        ],
        measure: alone,
    },
    Row {
        name: "light",
        figures: &[
            ("light rate, of its full", "1"),
            ("light writes later than 10 ms, %", ""),
            ("light p50, ms", ""),
            ("light p99, ms", "<= 5"),
            ("light max, ms", ""),
            ("light p99, device not slow, ms", ""),
            ("light max, device not slow, ms", ""),
            ("light call alone p99, ms", ""),
            ("light call alone max, ms", ""),
            ("heavy throughput, MiB/s", ""),
            ("heavy write max, ms", "<= 200"),
        ],
        measure: light,
    },
    Row {
        name: "two",
        figures: &[
            ("Jain, seconds 2-6 of the second", ">= 0.99"),
            ("old in these, MiB/s", ""),
            ("new in these, MiB/s", ""),
            ("write max, ms", "<= 200"),
        ],
        measure: two,
    },
    Row {
        name: "devices",
        figures: &[
            ("slow: write max, ms", "<= 400"),
            ("slow: throughput, MiB/s", "4"),
            ("fast: throughput, MiB/s", "48"),
            ("fast: alone, MiB/s", ""),
            ("fast: beside / alone", ">= 0.95"),
            ("fast: write max, ms", "<= 200"),
        ],
        measure: devices,
    },
    Row {
        name: "drop",
        figures: &[
            ("write max, ms", ""),
            ("level max / limit", "<= 1"),
            ("throughput before, MiB/s", "32"),
            ("throughput after, MiB/s", "8"),
        ],
        measure: drop,
    },
];

fn alone(bench: &Bench<'_>, column: Column, seconds: u64) -> Result<Vec<f64>> {
    let measured = bench.run(
        column,
        &Plan {
            name: "alone",
            seconds,
            devices: vec![Device::of(16)],
            writers: vec![Writer::heavy("heavy", 0, 0)],
        },
    )?;
    let met = &measured.writers[0];
    Ok(vec![
        met.mib_s(seconds / 4, seconds),
        met.p50_ms,
        met.p99_ms,
        met.max_ms,
        measured.pause_max_ms.unwrap_or(f64::NAN),
        measured.level_max.unwrap_or(f64::NAN),
        measured.others_mib.unwrap_or(f64::NAN),
    ])
}

fn light(bench: &Bench<'_>, column: Column, seconds: u64) -> Result<Vec<f64>> {
    let mut plan = Plan {
        name: "light",
        seconds,
        devices: vec![Device::of(16)],
        writers: vec![Writer::heavy("heavy", 0, 0), Writer::LIGHT],
    };
    let beside = bench.run(column, &plan)?;
    plan.name = "light-null";
    plan.seconds = seconds / 3;
    plan.devices[0].rate_mib = None;
    plan.writers.remove(0);
    let null = bench.run(column, &plan)?;
    let (heavy, light) = (&beside.writers[0], &beside.writers[1]);
    let (bytes, every) = Writer::LIGHT.pattern();
    let full = (seconds * 1000 / every * bytes) as f64;
    Ok(vec![
        light.bytes(0, u64::MAX) / full,
        light.late * 100.0,
        light.p50_ms,
        light.p99_ms,
        light.max_ms,
        null.writers[0].p99_ms,
        null.writers[0].max_ms,
        light.call_p99_ms,
        light.call_max_ms,
        heavy.mib_s(seconds / 4, seconds),
        heavy.max_ms,
    ])
}

fn two(bench: &Bench<'_>, column: Column, seconds: u64) -> Result<Vec<f64>> {
    let second = seconds / 3;
    let measured = bench.run(
        column,
        &Plan {
            name: "two",
            seconds,
            devices: vec![Device::of(16)],
            writers: vec![Writer::heavy("old", 0, 0), Writer::heavy("new", 0, second)],
        },
    )?;
    let (from, to) = (second + SETTLED.0, second + SETTLED.1);
    let rates: Vec<f64> = measured
        .writers
        .iter()
        .map(|met| met.mib_s(from, to))
        .collect();
    Ok(vec![jain(&rates), rates[0], rates[1], write_max(&measured)])
}

fn devices(bench: &Bench<'_>, column: Column, seconds: u64) -> Result<Vec<f64>> {
    let beside = bench.run(
        column,
        &Plan {
            name: "devices",
            seconds,
            devices: vec![Device::of(4), Device::of(48)],
            writers: vec![Writer::heavy("slow", 0, 0), Writer::heavy("fast", 1, 0)],
        },
    )?;
    let alone = bench.run(
        column,
        &Plan {
            name: "devices-fast",
            seconds: seconds / 2,
            devices: vec![Device::of(48)],
            writers: vec![Writer::heavy("fast", 0, 0)],
        },
    )?;
    let (slow, fast) = (&beside.writers[0], &beside.writers[1]);
    let with = fast.mib_s(seconds / 4, seconds);
    let without = alone.writers[0].mib_s(seconds / 4, seconds / 2);
    Ok(vec![
        slow.max_ms,
        slow.mib_s(seconds / 4, seconds),
        with,
        without,
        with / without,
        fast.max_ms,
    ])
}

fn drop(bench: &Bench<'_>, column: Column, seconds: u64) -> Result<Vec<f64>> {
    let half = seconds / 2;
    let measured = bench.run(
        column,
        &Plan {
            name: "drop",
            seconds,
            devices: vec![Device {
                rate_mib: Some(32),
                then: Some((half, 8)),
            }],
            writers: vec![Writer::heavy("heavy", 0, 0)],
        },
    )?;
    let met = &measured.writers[0];
    Ok(vec![
        met.max_ms,
        measured.level_max.unwrap_or(f64::NAN),
        met.mib_s(seconds / 4, half),
        met.mib_s(half + half / 3, seconds),
    ])
}

fn write_max(measured: &Measured) -> f64 {
    let lengths = measured.writers.iter().map(|met| met.max_ms);
    lengths.fold(f64::NAN, f64::max)
}

/// The step.
pub(crate) fn run(options: &Options, files: &Path) -> End {
    match measure(options, files) {
        Ok(failed) if failed.is_empty() => End::Passed,
        Ok(failed) => End::Failed(failed.join("; ")),
        Err(problem) => End::Failed(problem),
    }
}

/// Answers what could not be measured.
fn measure(options: &Options, files: &Path) -> Result<Vec<String>> {
    let workspace = Workspace::load()?;
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| workspace.target.join("xtask/pacing"));
    for folder in [&out, files] {
        std::fs::create_dir_all(folder).map_err(at(folder))?;
    }
    let writers = super::worker("writers")?;
    let program = build_program()?;
    let mut columns = options.columns.clone();
    let undo = undo_for(&mut columns)?;
    // After `undo`, so that everything is undone before the lock is given back.
    let _all = undo.as_ref().map(Undo::scope);
    let watch = undo.as_ref().and_then(watch_with);
    let bench = Bench {
        undo: undo.as_ref(),
        watch,
        writers,
        program,
        out: out.clone(),
        files: files.to_owned(),
        strict_percent: options.strict_percent,
    };
    let heading = heading(options);
    let mut table = TableOfFigures::new(&columns);
    let mut failed = Vec::new();
    // The kernel's columns first and together: the machine has its limits back after them.
    let is_kernel = |column: &Column| column.is_kernel();
    let (kernel, ours): (Vec<Column>, Vec<Column>) = columns.iter().copied().partition(is_kernel);
    let mut values: Values = BTreeMap::new();
    if let (Some(undo), false) = (&undo, kernel.is_empty()) {
        let _limits = undo.scope();
        set_limits(undo, &bench)?;
        run_rows(&bench, options, &kernel, &mut values);
    }
    run_rows(&bench, options, &ours, &mut values);
    for row in &options.rows {
        let of = |column: &Column| {
            let measured = values.remove(&(row.name, column.word()));
            measured.unwrap_or_else(|| Err("not run".into()))
        };
        let values: Vec<Result<Vec<f64>>> = columns.iter().map(of).collect();
        for (column, value) in columns.iter().zip(&values) {
            if let Err(problem) = value {
                failed.push(format!("{} {}: {problem}", row.name, column.word()));
            }
        }
        table.add(row, &values);
    }
    let text = format!("{heading}\n{}", table.markdown());
    println!("\n{text}");
    for (name, text) in [("pacing.md", &text), ("pacing.csv", &table.csv())] {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(at(&path))?;
    }
    println!("in {}", out.display());
    Ok(failed)
}

/// Figures by the names of row and column.
type Values = BTreeMap<(&'static str, &'static str), Result<Vec<f64>>>;

fn run_rows(bench: &Bench<'_>, options: &Options, columns: &[Column], values: &mut Values) {
    for row in &options.rows {
        for column in columns {
            println!(
                "  > {}: {} (load {})",
                row.name,
                column.title(),
                super::load()
            );
            let measured = (row.measure)(bench, *column, options.seconds);
            if let Err(problem) = &measured {
                println!("  > {}: {}: FAILED: {problem}", row.name, column.title());
            }
            values.insert((row.name, column.word()), measured);
        }
    }
}

/// Sets the machine's dirty limits and waits for them to hold. The kernel follows a limit that was
/// lowered by a thirty-second part each time it looks, five times a second while somebody writes:
/// from a fifth of memory that takes half a minute, in which writers may go on far beyond the new
/// limit.
///
/// Source: Linux v6.18 mm/page-writeback.c, update_dirty_limit().
fn set_limits(undo: &Undo, bench: &Bench<'_>) -> Result<()> {
    chain::set_dirty_limits(undo, DIRTY_MIB << 20, BACKGROUND_MIB << 20)?;
    let plan = Plan {
        name: "settle",
        seconds: SETTLE_S,
        devices: vec![Device::of(32)],
        writers: vec![Writer::heavy("heavy", 0, 0)],
    };
    println!("  > {SETTLE_S} s of writing, until the machine's lowered limits hold");
    bench.run(Column::Bare, &plan).map(|_| ())
}

/// The right to change the machine; without it the columns that need it go, and say so.
fn undo_for(columns: &mut Vec<Column>) -> Result<Option<Undo>> {
    if !columns.iter().any(|column| column.needs_chain()) {
        return Ok(None);
    }
    if let Some(missing) = chain::missing() {
        for column in columns.iter().filter(|column| column.needs_chain()) {
            println!("SKIPPED: column '{}': {missing}", column.title());
        }
        columns.retain(|column| !column.needs_chain());
        return Ok(None);
    }
    Undo::begin().map(Some)
}

fn watch_with(undo: &Undo) -> Option<Watch> {
    let watch = Watch::begin(undo);
    if let Err(problem) = &watch {
        println!("SKIPPED: the kernel's own pauses and levels: {problem}");
    }
    watch.ok()
}

fn heading(options: &Options) -> String {
    format!(
        "{}; runs of {} s; dirty limits {DIRTY_MIB} / {BACKGROUND_MIB} MiB, strict device limit {} % \
         of them. Durability of every figure: written to cache, not durable.\n",
        super::circumstances(),
        options.seconds,
        options.strict_percent
    )
}

/// Figures by rows, columns beside each other.
struct TableOfFigures {
    columns: Vec<Column>,
    /// Row, figure, what is wanted, values.
    lines: Vec<(&'static str, &'static str, &'static str, Vec<f64>)>,
}

impl TableOfFigures {
    fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.into(),
            lines: Vec::new(),
        }
    }

    fn add(&mut self, row: &Row, values: &[Result<Vec<f64>>]) {
        for (at, (figure, wanted)) in row.figures.iter().enumerate() {
            let of = |column: &Result<Vec<f64>>| {
                let value = column.as_ref().ok().and_then(|values| values.get(at));
                value.copied().unwrap_or(f64::NAN)
            };
            let values = values.iter().map(of).collect();
            self.lines.push((row.name, figure, wanted, values));
        }
    }

    fn markdown(&self) -> String {
        let mut text = "| row | figure | wanted |".to_owned();
        for column in &self.columns {
            let _ = write!(text, " {} |", column.title());
        }
        text += "\n|---|---|---|";
        text += &"---:|".repeat(self.columns.len());
        for (row, figure, wanted, values) in &self.lines {
            let _ = write!(text, "\n| {row} | {figure} | {wanted} |");
            for value in values {
                let _ = write!(text, " {} |", shown(*value));
            }
        }
        text + "\n"
    }

    fn csv(&self) -> String {
        let mut text = "row,figure,wanted,column,value\n".to_owned();
        for (row, figure, wanted, values) in &self.lines {
            for (column, value) in self.columns.iter().zip(values) {
                let column = column.word();
                let _ = writeln!(text, "{row},\"{figure}\",\"{wanted}\",{column},{value}");
            }
        }
        text
    }
}

/// Three digits that count; nothing for what was not measured.
pub(super) fn shown(value: f64) -> String {
    // A zero has no sign.
    let value = value + 0.0;
    match value.abs() {
        _ if value.is_nan() => "-".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_missing_is_a_dash() {
        let mut table = TableOfFigures::new(&[Column::Linux, Column::Lab]);
        let row = Row {
            name: "alone",
            figures: &[("throughput, MiB/s", "16"), ("write max, ms", "")],
            measure: alone,
        };
        table.add(&row, &[Err("no".into()), Ok(vec![15.96, 120.4])]);
        let text = table.markdown();
        assert!(
            text.contains("| alone | throughput, MiB/s | 16 | - | 16.0 |"),
            "{text}"
        );
        assert!(
            table
                .csv()
                .contains("alone,\"write max, ms\",\"\",lab,120.4")
        );
    }

    #[test]
    fn choices_narrow_what_is_run() {
        let mut options = Options::default();
        let words = ["light", "drop"].map(str::to_owned);
        let mut arguments = Arguments::new(words.into());
        assert!(options.take("--row", &mut arguments).unwrap());
        assert!(options.take("--row", &mut arguments).unwrap());
        let names: Vec<&str> = options.rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["light", "drop"]);
        let mut wrong = Arguments::new(vec!["3".to_owned()]);
        assert!(options.take("--seconds", &mut wrong).is_err());
        assert!(!options.take("--pairs", &mut wrong).unwrap());
    }

    #[test]
    fn every_row_of_the_table_has_its_plan() {
        for row in ROWS {
            assert!(!row.figures.is_empty(), "{}", row.name);
        }
    }
}

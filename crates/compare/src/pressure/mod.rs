//! Recordings of memory pressure: which tasks scanned, reclaimed and swapped how much, how long a
//! task waited for fresh memory, what it cost in CPU time, which tasks were throttled and why, what
//! memory held; by node, with slabs, with huge pages where these are.
//!
//! ```text
//!   scenario.json, facts.json, first sample --> Setting --> scenario --> lab --> Outcome --.
//!                                                                                          >-- FIGURES --> table, bands
//!   vmstat.csv, samples.csv, summary.json, tables of shapes ---------------> Outcome ------'
//! ```
//!
//! As with recordings of dirty throttling, the lab sees the setting and nothing else, and one
//! function of `FIGURES` measures both sides. The differences between shapes (two nodes, small
//! files, huge pages) are a file of `shapes` each.
//!
//! Invariants
//!   1. A recording that cannot be used is refused with file, line and what is allowed (`Fault`).
//!   2. Assumptions, inferences and omissions are notes, and every note is printed.
//!   3. Counters are under the kernel's names and in its units; levels in MiB, lengths in ms, CPU
//!      time in s.

pub mod figures;
pub mod guess;
pub mod lab;
pub mod recording;
pub mod setting;
pub mod shapes;
mod what_if;
pub mod worker;

use core::fmt::Write as _;
use std::path::Path;

pub use figures::{FIGURES, Figure, judge, measure};
pub use recording::Recording;
pub use setting::Setting;

use super::bands::Verdict;
use super::fault::Fault;
use super::kind::{Beside, Kind, Loaded};
use super::lab::{LabError, Planned};
use super::label::Label;
use super::show::Row;
use super::what_if::{Change, Keys};
use experiment::outcome::Outcome;
use figures::Band;

/// The kind.
#[derive(Clone, Copy, Debug)]
pub struct Pressure;

impl Kind for Pressure {
    const OF: &'static str = "memory pressure";
    const KEYS: Keys = what_if::KEYS;
    type Setting = Setting;
    type Measures = Vec<Option<f64>>;

    fn is_one(path: &Path) -> bool {
        Recording::is_one(path)
    }

    fn load(path: &Path, given: &[Change], _: &[Change]) -> Result<Loaded<Setting>, Fault> {
        let Recording {
            mut setting,
            outcome,
            notes,
        } = Recording::load(path)?;
        for change in given {
            what_if::put(change, &mut setting).map_err(|problem| {
                let help = "state what is so, with the keys of --set";
                Fault::of(path, format!("--given {change}: {problem}"), help)
            })?;
        }
        Ok(Loaded {
            setting,
            outcome,
            notes,
            filled: Vec::new(),
        })
    }

    fn name(setting: &Setting) -> &str {
        &setting.name
    }

    fn rename(setting: &mut Setting, name: &str) {
        name.clone_into(&mut setting.name);
    }

    fn summary(setting: &Setting) -> String {
        setting.summary()
    }

    fn differences(one: &Setting, other: &Setting) -> Vec<String> {
        one.differences(other)
    }

    fn put(change: &Change, setting: &mut Setting) -> Result<(), String> {
        what_if::put(change, setting)
    }

    fn check(setting: &Setting) -> Result<(), String> {
        setting.check()
    }

    fn plan(setting: &Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError> {
        lab::plan(setting, columns, seed)
    }

    fn measure(setting: &Setting, outcome: &Outcome) -> Vec<Option<f64>> {
        measure(setting, outcome)
    }

    fn labels() -> Vec<Label> {
        FIGURES.iter().map(|figure| figure.label).collect()
    }

    fn values(measures: &Vec<Option<f64>>) -> Vec<Option<f64>> {
        measures.clone()
    }

    fn judged() -> Vec<&'static str> {
        let banded = FIGURES.iter().filter(|figure| figure.band.is_some());
        banded.map(|figure| figure.label.name).collect()
    }

    /// A figure that is nowhere is left out.
    fn rows(_: &Setting, columns: &[&Vec<Option<f64>>]) -> Vec<Row> {
        let all = FIGURES.iter().enumerate().map(|(index, figure)| Row {
            name: match figure.band {
                Some(Band::Part(part) | Band::OfMemory(part)) => {
                    format!("{} [{:.0}%]", figure.label.name, part * 100.0)
                }
                Some(Band::Factor(factor)) => format!("{} [x{factor}]", figure.label.name),
                None => figure.label.name.to_owned(),
            },
            unit: figure.label.unit,
            digits: figure.label.digits,
            values: columns.iter().map(|values| values[index]).collect(),
        });
        let is_there = |row: &Row| {
            let mut values = row.values.iter();
            values.any(|value| value.is_some_and(|value| value != 0.0))
        };
        all.filter(is_there).collect()
    }

    fn judge(
        setting: &Setting,
        recorded: &Vec<Option<f64>>,
        lab: &Vec<Option<f64>>,
    ) -> Vec<Verdict> {
        judge(setting, recorded, lab)
    }

    /// Mean errors over all recordings, beside those of the best constants.
    fn overview(sides: &[Beside<'_, Self>], column: &str) -> String {
        let mut text = format!(
            "All {} recordings: mean error of {column}, of the best constant\n",
            sides.len()
        );
        for (index, figure) in FIGURES.iter().enumerate() {
            if figure.band.is_none() {
                continue;
            }
            let points: Vec<_> = sides
                .iter()
                .filter_map(|side| {
                    let recorded = side.recorded[index]?;
                    Some((side.setting, recorded, side.lab[index].unwrap_or(0.0)))
                })
                .collect();
            if let Some((own, constant)) = guess::errors(figure, &points) {
                let _ = writeln!(
                    text,
                    "{:28}{:>8.1} %{:>8.1} %",
                    figure.label.name,
                    own * 100.0,
                    constant * 100.0
                );
            }
        }
        text
    }
}

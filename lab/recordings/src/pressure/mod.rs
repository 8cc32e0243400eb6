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
use guess::Ways;

/// The kind.
#[derive(Clone, Copy, Debug)]
pub struct Pressure;

impl Kind for Pressure {
    const OF: &'static str = "memory pressure";
    const KEYS: Keys<Setting> = what_if::KEYS;
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
            Self::put(change, &mut setting).map_err(|problem| {
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
        change.put_by(Self::KEYS, setting)
    }

    fn settle(setting: &mut Setting, _: &Setting) {
        setting.settle_limits();
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
                Some(Band::Part(part)) => {
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

    fn judge(_: &Setting, recorded: &Vec<Option<f64>>, lab: &Vec<Option<f64>>) -> Vec<Verdict> {
        judge(recorded, lab)
    }

    fn most(setting: &Setting) -> Vec<f64> {
        let most = |figure| figures::most(setting, figure);
        FIGURES.iter().map(most).collect()
    }

    /// Mean errors over all recordings, beside those of guesses.
    fn overview(sides: &[Beside<'_, Self>], column: &str) -> String {
        const NAME: usize = 28;
        const FIELD: usize = 12;
        let mut text = format!(
            "All {} recordings: mean error of {column}, of a lab of zeroes, of a copy of the \
             nearest recording, of the best constant; skill = 1 - error / error of the constant; \
             bands held by each\n{:NAME$}",
            sides.len(),
            ""
        );
        for name in ["lab", "zeroes", "copy", "constant", "skill", "bands held"] {
            let _ = write!(text, "{name:>FIELD$}");
        }
        text.push('\n');
        let mut held = Ways::default().map(|_: f64| 0);
        let (mut of, mut skilled, mut figures) = (0, 0, 0);
        for (index, figure) in FIGURES.iter().enumerate() {
            let Some(judged) = guess::judge(figure, &points(sides, index)) else {
                continue;
            };
            let _ = write!(text, "{:NAME$}", figure.label.name);
            for error in judged.errors.list() {
                let _ = write!(text, "{:>10.1} %", error * 100.0);
            }
            let skill = judged.skill();
            let _ = write!(text, "{skill:>FIELD$.2}");
            let _ = writeln!(text, "    {} of {}", judged.held, judged.of);
            held = held.plus(judged.held);
            of += judged.of;
            figures += 1;
            skilled += u32::from(skill > 0.0);
        }
        let _ = writeln!(
            text,
            "bands held by lab/zeroes/copy/constant: {held} of {of}; skill above zero in {skilled} of {figures} figures"
        );
        text
    }
}

/// A figure of all recordings that have it.
fn points<'a>(sides: &[Beside<'a, Pressure>], index: usize) -> Vec<guess::Point<'a>> {
    let point = |side: &Beside<'a, Pressure>| {
        Some(guess::Point {
            setting: side.setting,
            recorded: side.recorded[index]?,
            lab: side.lab[index].unwrap_or(0.0),
        })
    };
    sides.iter().filter_map(point).collect()
}

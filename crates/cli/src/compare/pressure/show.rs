//! The command over recordings of memory pressure: load, run, measure, print, write, judge.

use core::fmt::Write as _;
use std::path::PathBuf;

use workload::Stop;

use super::super::bands::{self, Verdict};
use super::super::command::{self, CompareError, Made, Names};
use super::super::lab::{self, COLUMNS};
use super::super::recording::COLUMN;
use super::super::show::{self, Row, Value};
use super::figures::{Band, FIGURES, Figure, judge, measure};
use super::recording::Recording;
use super::{guess, lab as own};
use crate::args::CompareArguments;
use crate::output::Folder;

/// A recording with its runs: the values of all figures.
struct Side {
    recording: Recording,
    recorded: Vec<Option<f64>>,
    /// In the order of the columns.
    lab: Vec<Vec<Option<f64>>>,
}

impl Side {
    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.recording.setting, &self.recorded, &self.lab[0])
    }
}

/// Does what the command line says with these recordings; answers the exit status.
pub(in super::super) fn run(
    arguments: &CompareArguments,
    paths: &[PathBuf],
    stop: &Stop,
) -> Result<u8, CompareError> {
    let changes = [
        ("--set", !arguments.set.is_empty()),
        ("--given", !arguments.given.is_empty()),
    ];
    if let Some((option, _)) = changes.iter().find(|(_, is_there)| *is_there) {
        return Err(CompareError::Usage(format!(
            "{option} is for recordings of dirty throttling, and {} is one of memory pressure: change the scenario \
             that the results have (scenario.toml), and `tidegate run` it",
            paths[0].display()
        )));
    }
    let columns: Vec<&str> = if arguments.policy.is_empty() {
        COLUMNS.to_vec()
    } else {
        arguments.policy.iter().map(String::as_str).collect()
    };
    let mut names = Names::default();
    let mut recordings = Vec::new();
    for path in paths {
        let mut recording = Recording::load(path)?;
        let name = names.take(&recording.setting.name);
        recording.outcome.case.clone_from(&name);
        recording.setting.name = name;
        recordings.push(recording);
    }
    let mut plans = Vec::new();
    for recording in &recordings {
        plans.push(own::plan(&recording.setting, &columns, arguments.seed)?);
    }
    let name = format!("compare-{}", lab::plain(&recordings[0].setting.name));
    let folder = Folder::make(arguments.out.as_deref(), &name, arguments.seed)?;
    let runs = match command::run_plans(&plans, stop) {
        Ok(runs) => runs,
        Err(error) => {
            folder.remove_made();
            return Err(error.into());
        }
    };
    let mut outcomes = Vec::new();
    let mut sides = Vec::new();
    for ((mut recording, plan), runs) in recordings.into_iter().zip(&plans).zip(runs) {
        recording.notes.extend(plan.notes.iter().cloned());
        let setting = &recording.setting;
        let recorded = measure(setting, &recording.outcome);
        let lab = runs.iter().map(|run| measure(setting, run)).collect();
        outcomes.push(recording.outcome.clone());
        outcomes.extend(
            runs.iter()
                .map(|run| command::relabelled(run, &setting.name)),
        );
        sides.push(Side {
            recording,
            recorded,
            lab,
        });
    }
    let text = render(&sides, &columns);
    crate::terminal::print(&text);
    let rows: Vec<String> = sides
        .iter()
        .map(|side| side.recording.setting.name.clone())
        .collect();
    let made = Made {
        rows: &rows,
        plans: &plans,
        outcomes: &outcomes,
        printed: &text,
        seed: arguments.seed,
    };
    let table = show::tidy_of(values(&sides, &columns));
    command::write(folder.path(), &made, vec![table])?;
    let judged = sides.iter().map(|side| {
        let verdicts = side.verdicts();
        (side.recording.setting.name.as_str(), verdicts)
    });
    Ok(command::judged(arguments.check, judged, columns[0]))
}

fn render(sides: &[Side], columns: &[&str]) -> String {
    let mut text = String::new();
    for side in sides {
        let setting = &side.recording.setting;
        let heads: Vec<&str> = [COLUMN]
            .into_iter()
            .chain(columns.iter().copied())
            .collect();
        let _ = write!(
            text,
            "{}: {}\n{}{}\n",
            setting.name,
            setting.summary(),
            show::table(&heads, &rows(side)),
            bands::summary(&side.verdicts(), columns[0]),
        );
    }
    if sides.len() > 1 {
        text.push_str(&overview(sides, columns[0]));
    }
    let notes = sides.iter().map(|side| {
        let name = side.recording.setting.name.as_str();
        (name, side.recording.notes.as_slice())
    });
    text.push_str(&command::notes(&notes.collect::<Vec<_>>()));
    text
}

/// The rows of a recording: what is nowhere is left out.
fn rows(side: &Side) -> Vec<Row> {
    let all = FIGURES.iter().enumerate().map(|(index, figure)| Row {
        name: match figure.band {
            Some(Band::Part(part) | Band::OfMemory(part)) => {
                format!("{} [{:.0}%]", figure.name, part * 100.0)
            }
            Some(Band::Factor(factor)) => format!("{} [x{factor}]", figure.name),
            None => figure.name.to_owned(),
        },
        unit: figure.unit,
        digits: figure.digits,
        values: [&side.recorded]
            .into_iter()
            .chain(&side.lab)
            .map(|values| values[index])
            .collect(),
    });
    let is_there = |row: &Row| {
        row.values
            .iter()
            .any(|value| value.is_some_and(|value| value != 0.0))
    };
    all.filter(is_there).collect()
}

/// Mean errors over all recordings, beside those of the best constants.
fn overview(sides: &[Side], column: &str) -> String {
    let mut text = format!(
        "All {} recordings: mean error of {column}, of the best constant\n",
        sides.len()
    );
    for (index, figure) in FIGURES.iter().enumerate() {
        let points: Vec<_> = sides
            .iter()
            .filter_map(|side| {
                let recorded = side.recorded[index]?;
                Some((
                    &side.recording.setting,
                    recorded,
                    side.lab[0][index].unwrap_or(0.0),
                ))
            })
            .collect();
        let banded = figure.band.is_some();
        if let Some((own, constant)) = guess::errors(figure, &points).filter(|_| banded) {
            let _ = writeln!(
                text,
                "{:28}{:>8.1} %{:>8.1} %",
                figure.name,
                own * 100.0,
                constant * 100.0
            );
        }
    }
    text.push('\n');
    text
}

fn values<'a>(sides: &'a [Side], columns: &'a [&'a str]) -> impl Iterator<Item = Value<'a>> {
    sides.iter().flat_map(move |side| {
        let of_columns = columns.iter().copied().zip(&side.lab);
        let all = core::iter::once((COLUMN, &side.recorded)).chain(of_columns);
        all.flat_map(move |(column, values)| {
            let of = FIGURES.iter().zip(values);
            of.map(move |(figure, value): (&Figure, &Option<f64>)| Value {
                recording: &side.recording.setting.name,
                column,
                figure: figure.name.to_owned(),
                unit: figure.unit,
                value: *value,
            })
        })
    })
}

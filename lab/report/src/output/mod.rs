//! The results folder: tidy tables as CSV, plots, the printed comparison, the scenario.
//!
//! Everything is written to a new folder `NAME-seedN[-...]` and nothing outside it; an existing one
//! of that name gets a number behind. Tables are of experiments D2, in long form: one thing a row.

mod columns;
mod curves;
mod html;
mod perfetto;
mod plots;
mod svg;
mod tables;
pub mod web;

pub use columns::{Column, Data, TidyTable};
pub use curves::{Curve, Lines};
pub use html::{Shown, part};
pub use tables::{About, tables};

use std::fs::{DirEntry, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use experiment::expect::Judged;
use experiment::outcome::Outcome;
use experiment::scenario::{Scenario, is_plain};

/// Most folders of one name.
const FOLDERS_MOST: u32 = 10_000;

/// Results could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the results to {}: {cause}; name another folder with --out", path.display())]
pub struct OutputError {
    path: PathBuf,
    cause: String,
}

impl OutputError {
    /// Says of a path why it could not be written.
    pub fn at(path: &Path) -> impl Fn(&dyn core::fmt::Display) -> Self + '_ {
        |cause| Self {
            path: path.to_owned(),
            cause: cause.to_string(),
        }
    }
}

/// The table of runs: a folder that has it holds results.
const RUNS: &str = "runs";

/// The outcome of each band, for programs; `table.txt` has the same in words.
const BANDS: &str = "bands.json";

/// Table of a comparison with recordings: their figures.
pub const FIGURES: &str = "figures";
/// That of pairs, where there are several recordings.
pub const PAIRS: &str = "pairs";
/// That of answers, where something was changed.
pub const ANSWERS: &str = "answers";
const COMPARED: [&str; 3] = [FIGURES, PAIRS, ANSWERS];

/// Written and removed at once: whether the folder can be written is to be known before the work.
const PROBE: &str = ".tidegate-probe";

/// The folder for results. Nobody else writes there as long as this lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Folders that were made for it, the innermost last.
    made: Vec<PathBuf>,
    /// Open and locked; the system takes the lock away however the program ends.
    _locked: File,
}

impl Folder {
    /// Makes the folder for results: the one asked for, or a new one under `results`.
    ///
    /// # Errors
    /// It cannot be made or written, it is a folder of something else, or results are being written
    /// there.
    pub fn make(asked: Option<&Path>, name: &str, seed: u64) -> Result<Self, OutputError> {
        Self::make_marked(asked, &format!("{name}-seed{seed}"), &format!("{RUNS}.csv"))
    }

    /// The same for other results, known by a file that is in their folder, and with the name of a
    /// new one.
    ///
    /// # Errors
    /// As of `make`.
    pub fn make_marked(
        asked: Option<&Path>,
        name: &str,
        marker: &str,
    ) -> Result<Self, OutputError> {
        if let Some(path) = asked {
            let made = make_all(path)?;
            let folder = Self::locked(path.to_owned(), made)?;
            folder.check(marker)?;
            return Ok(folder);
        }
        let parent = Path::new("results");
        let mut made = make_all(parent)?;
        for number in 1..=FOLDERS_MOST {
            let tail = if number == 1 {
                String::new()
            } else {
                format!("-{number}")
            };
            let path = parent.join(format!("{name}{tail}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    made.push(path.clone());
                    return Self::locked(path, made);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(OutputError::at(&path)(&error)),
            }
        }
        let path = parent.join(name);
        Err(OutputError::at(&path)(
            &"there are ten thousand folders of that name",
        ))
    }

    fn locked(path: PathBuf, made: Vec<PathBuf>) -> Result<Self, OutputError> {
        let failed = |error: std::io::Error| OutputError::at(&path)(&error);
        let opened = File::open(&path).map_err(failed)?;
        // A file system without locks has none to wait for.
        if let Err(TryLockError::WouldBlock) = opened.try_lock() {
            return Err(OutputError::at(&path)(
                &"another tidegate is about to write its results there",
            ));
        }
        Ok(Self {
            path,
            made,
            _locked: opened,
        })
    }

    /// It holds results or nothing, and can be written.
    fn check(&self, marker: &str) -> Result<(), OutputError> {
        let failed = |error: std::io::Error| OutputError::at(&self.path)(&error);
        let inside = self.path.read_dir().map_err(failed)?;
        let is_probe = |entry: &DirEntry| entry.file_name() == PROBE;
        let mut inside = inside.filter(|entry| !entry.as_ref().is_ok_and(is_probe));
        if inside.next().is_some() && !self.path.join(marker).exists() {
            return Err(OutputError::at(&self.path)(
                &"it holds files that are not results, and they might be overwritten",
            ));
        }
        let probe = self.path.join(PROBE);
        // A probe that a killed program has left is no hindrance.
        match File::create_new(&probe) {
            Ok(_) => drop(std::fs::remove_file(&probe)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Nothing came of the work: folders that were made for its results go again, those with
    /// anything in them apart.
    pub fn remove_made(self) {
        for path in self.made.iter().rev() {
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// Makes a folder and those above it; answers those that were not there, the innermost last.
fn make_all(path: &Path) -> Result<Vec<PathBuf>, OutputError> {
    let missing = path.ancestors().take_while(|path| !path.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    // The folder above a relative path is the folder where we are.
    missing.retain(|path| !path.as_os_str().is_empty());
    missing.reverse();
    std::fs::create_dir_all(path).map_err(|error| OutputError::at(path)(&error))?;
    Ok(missing)
}

/// Writes everything into the folder.
///
/// # Errors
/// The first file that could not be written.
pub fn write(
    folder: &Path,
    about: &About,
    tables: &[TidyTable],
    outcomes: &[Outcome],
    printed: &str,
    shown: &Shown,
) -> Result<(), OutputError> {
    let text = |name: &str, text: &str| write_text(folder, name, text);
    remove_old_plots(folder);
    remove_old_runs(folder);
    remove_old_tables(folder, tables);
    // First the file that tells a folder of results from others: a folder that a full disk cut
    // short is to be used again.
    let (runs, others): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.name == RUNS);
    runs.iter()
        .try_for_each(|table| write_table(folder, table))?;
    text("scenario.toml", &about.scenario_text)?;
    text("table.txt", printed)?;
    let judged: Vec<Judged<'_>> = shown.bands.iter().map(Judged::of).collect();
    let bands = serde_json::to_string_pretty(&judged).expect("plain data is JSON");
    text(BANDS, &bands)?;
    // Tables beside plots: neither is to wait for the other.
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            others
                .iter()
                .try_for_each(|table| write_table(folder, table))
        });
        let drawn = draw(folder, about, outcomes, printed, shown);
        tables::joined(written).and(drawn)
    })
}

fn write_text(folder: &Path, name: &str, text: &str) -> Result<(), OutputError> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|error| OutputError::at(&path)(&error))
}

fn write_table(folder: &Path, table: &TidyTable) -> Result<(), OutputError> {
    let path = folder.join(format!("{}.csv", table.name));
    table
        .write_csv(&path)
        .map_err(|error| OutputError::at(&path)(&error))
}

/// Plots, traces, and the page with all of it.
fn draw(
    folder: &Path,
    about: &About,
    outcomes: &[Outcome],
    printed: &str,
    shown: &Shown,
) -> Result<(), OutputError> {
    let text = |name: &str, text: &str| write_text(folder, name, text);
    let own = shown.lines.iter().map(Lines::figure);
    let published = |metric: &str, row: &str, column: &str| shown.published(metric, row, column);
    let figures: Vec<_> = own.chain(plots::figures(outcomes, &published)).collect();
    for (name, figure) in &figures {
        text(&format!("{name}.svg"), &figure.render())?;
    }
    for outcome in outcomes {
        if let Some(trace) = perfetto::trace(outcome) {
            let path = folder.join(trace_name(outcome));
            std::fs::write(&path, trace).map_err(|error| OutputError::at(&path)(&error))?;
        }
    }
    text(
        "report.html",
        &html::page(about, printed, shown, outcomes, &figures),
    )
}

/// One plot of these runs, its title and its picture: the one of that name, or the first.
pub fn one_figure(
    scenario: &Scenario,
    outcomes: &[Outcome],
    name: Option<&str>,
) -> Option<(String, String)> {
    let published =
        |metric: &str, row: &str, column: &str| scenario.published_value(metric, row, column);
    let figures = plots::figures(outcomes, &published);
    let named = name.and_then(|name| figures.iter().find(|(known, _)| known == name));
    let (known, figure) = named.or_else(|| figures.first())?;
    Some((figure.title.clone(), figure.render_html(known)))
}

/// Name of the file with a run's trace: what is no letter, digit or sign of a plain name becomes
/// `_`.
#[must_use]
pub fn trace_name(outcome: &Outcome) -> String {
    trace_of(&outcome.case, &outcome.policy)
}

/// The same by the names of its row and column.
pub fn trace_of(case: &str, policy: &str) -> String {
    format!("{}.perfetto-trace", plain(&format!("{case}-{policy}")))
}

/// Name of the file with the scenario of one of several recordings.
pub fn scenario_of(case: &str) -> String {
    format!("scenario-{}.toml", plain(case))
}

/// The name as names of files have it.
pub fn plain(name: &str) -> String {
    let plain = |c| if is_plain(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

/// Removes what an earlier run into the same folder left of the rows and columns in its table of
/// runs: traces, and scenarios of a comparison.
fn remove_old_runs(folder: &Path) {
    let Ok(mut runs) = csv::Reader::from_path(folder.join(format!("{RUNS}.csv"))) else {
        return;
    };
    let Ok(head) = runs.headers() else { return };
    let place = |name| head.iter().position(|column| column == name);
    let (Some(case), Some(policy)) = (place("case"), place("policy")) else {
        return;
    };
    // Others may keep files of such names beside the results of a run.
    let has = |name| folder.join(format!("{name}.csv")).exists();
    let compared = COMPARED.into_iter().any(has);
    for run in runs.records().flatten() {
        if let (Some(case), Some(policy)) = (run.get(case), run.get(policy)) {
            // Most runs have none.
            let _ = std::fs::remove_file(folder.join(trace_of(case, policy)));
            if compared {
                let _ = std::fs::remove_file(folder.join(scenario_of(case)));
            }
        }
    }
}

/// Removes the tables that not all results have; the others are written over.
fn remove_old_tables(folder: &Path, tables: &[TidyTable]) {
    for name in COMPARED {
        if tables.iter().all(|table| table.name != name) {
            let _ = std::fs::remove_file(folder.join(format!("{name}.csv")));
        }
    }
}

/// Removes the plots of an earlier run into the same folder: those that its report names, and no
/// other file. Tables and report are written over.
fn remove_old_plots(folder: &Path) {
    let Ok(report) = std::fs::read_to_string(folder.join("report.html")) else {
        return;
    };
    let named = report.split("<figure class=\"plot\" id=\"").skip(1);
    for name in named.filter_map(|rest| rest.split('"').next()) {
        if name.chars().all(is_plain) {
            // A file that is gone already is not in the way.
            let _ = std::fs::remove_file(folder.join(format!("{name}.svg")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::experiments;

    #[test]
    fn a_folder_that_was_written_in_part_is_one_of_results() {
        let path = std::env::temp_dir().join(format!("tidegate-partly-{}", std::process::id()));
        // In the way, as a disk without space is.
        std::fs::create_dir_all(path.join("scenario.toml")).unwrap();
        let (scenario, source) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let about = About::of(&scenario, &source, false, "");
        let tables = tables(&about, &[], &[]);
        let error = write(&path, &about, &tables, &[], "", &Shown::default()).unwrap_err();
        assert!(error.to_string().contains("scenario.toml"), "{error}");
        let folder = Folder::make(Some(&path), "dd", 1).unwrap();
        assert_eq!(folder.path(), path);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

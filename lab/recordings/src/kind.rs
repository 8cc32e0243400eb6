//! The part of its own of a kind of recording. All else is the command's, and the same for every
//! kind.
//!
//! A further kind of recording is a file with an `impl Kind`, and one line of `command::KINDS`.

use std::path::Path;

use super::bands::Verdict;
use super::fault::Fault;
use super::lab::{LabError, Planned};
use super::label::Label;
use super::show::Row;
use super::what_if::{Change, Keys};
use experiment::outcome::Outcome;

/// A recording of some kind.
#[derive(Clone, Debug)]
pub struct Loaded<S> {
    /// Under what it was made.
    pub setting: S,
    /// The measurements.
    pub outcome: Outcome,
    /// The values assumed, inferred, left out or found.
    pub notes: Vec<String>,
    /// Keys of `--set` that it needed for itself.
    pub filled: Vec<String>,
}

/// A kind of recording.
pub trait Kind: Sized + 'static {
    /// The subject of its recordings.
    const OF: &'static str;
    /// The settings that can be changed.
    const KEYS: Keys<Self::Setting>;
    /// Under what a recording was made.
    type Setting: Clone + 'static;
    /// All figures of a recording or of a run.
    type Measures;

    /// True if there is such a recording.
    fn is_one(path: &Path) -> bool;

    /// Reads one; `given` states parameters, `fill` those that it may not tell.
    ///
    /// # Errors
    /// The mistake or the missing part, with file and line.
    fn load(path: &Path, given: &[Change], fill: &[Change])
    -> Result<Loaded<Self::Setting>, Fault>;

    /// Its name.
    fn name(setting: &Self::Setting) -> &str;

    /// Gives it another name.
    fn rename(setting: &mut Self::Setting, name: &str);

    /// One line about it.
    fn summary(setting: &Self::Setting) -> String;

    /// In what two settings differ, in words, one per kind of setting.
    fn differences(one: &Self::Setting, other: &Self::Setting) -> Vec<String>;

    /// Changes a setting, without a look at the whole.
    ///
    /// # Errors
    /// It fits nowhere.
    fn put(change: &Change, setting: &mut Self::Setting) -> Result<(), String>;

    /// Settles limits of dirty memory that contradict each other, as the kernel does, and what
    /// follows from other limits than there were before.
    fn settle(_setting: &mut Self::Setting, _before: &Self::Setting) {}

    /// Checks that it can be run.
    ///
    /// # Errors
    /// The value that is wrong, and what is allowed.
    fn check(setting: &Self::Setting) -> Result<(), String>;

    /// Plans its runs; `columns` are presets.
    ///
    /// # Errors
    /// A column that is not known; or a bug of ours, when the scenario does not load.
    fn plan(setting: &Self::Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError>;

    /// Measures a recording, or the lab's run of its setting.
    fn measure(setting: &Self::Setting, outcome: &Outcome) -> Self::Measures;

    /// The figures, in the order of the tables.
    fn labels() -> Vec<Label>;

    /// Their values; `None`: there is nothing of it.
    fn values(measures: &Self::Measures) -> Vec<Option<f64>>;

    /// Figures that only some settings have: (name, unit, value).
    fn others(_measures: &Self::Measures) -> Vec<(String, &'static str, f64)> {
        Vec::new()
    }

    /// Names of the figures that pairs of recordings are judged by.
    fn judged() -> Vec<&'static str>;

    /// The rows of the table of a recording: its own figures, then those of each column.
    fn rows(setting: &Self::Setting, columns: &[&Self::Measures]) -> Vec<Row>;

    /// Judges the lab against the bands.
    fn judge(
        setting: &Self::Setting,
        recorded: &Self::Measures,
        lab: &Self::Measures,
    ) -> Vec<Verdict>;

    /// The most that each figure can be, in the order of the labels.
    fn most(_setting: &Self::Setting) -> Vec<f64> {
        vec![f64::INFINITY; Self::labels().len()]
    }

    /// A note on the way it is judged.
    fn judged_by(_setting: &Self::Setting) -> &'static str {
        ""
    }

    /// The table over several recordings.
    fn overview(sides: &[Beside<'_, Self>], column: &str) -> String;
}

/// A recording and the first column's run of it.
pub struct Beside<'a, K: Kind> {
    /// Under what it was made.
    pub setting: &'a K::Setting,
    /// Its measurements.
    pub recorded: &'a K::Measures,
    /// The lab's run.
    pub lab: &'a K::Measures,
}

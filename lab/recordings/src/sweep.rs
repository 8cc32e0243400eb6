//! Effects of changes, as a table for programs; several values of one key as one printed table
//! and one plot.

use core::fmt::Write as _;

use super::answer::{self, Doubt, FIELD};
use super::change::Change;
use super::figures::Figure;
use super::several::NOTICEABLE;
use report::output::{self, Curve, Lines, TidyTable};
use report::tidy_table;

/// Panels of the plot, at most.
const PANELS_MOST: usize = 12;
/// From this factor between least and most value on, the plot's axis is logarithmic.
const WIDE: f64 = 8.0;

/// A recording under every value of a list, or under one.
pub(super) struct Sweep<'a> {
    pub(super) recording: &'a str,
    pub(super) columns: &'a [&'a str],
    /// Of each value, all that is changed.
    pub(super) changes: &'a [Vec<Change>],
    /// Of each value, the change that varies; of a single one, the first.
    pub(super) values: Vec<&'a Change>,
    pub(super) figures: &'static [Figure],
    pub(super) recorded: Vec<Option<f64>>,
    /// Of each column, without any change.
    pub(super) lab: Vec<Vec<Option<f64>>>,
    /// Of each value and column.
    pub(super) changed: Vec<Vec<Vec<Option<f64>>>>,
    /// Of each value, the most that each figure can be.
    pub(super) most: Vec<Vec<f64>>,
    pub(super) doubts: &'a [Doubt],
    /// A recording of the change.
    pub(super) against: Option<Vec<Option<f64>>>,
}

impl Sweep<'_> {
    pub(super) fn is_list(&self) -> bool {
        self.values.len() > 1
    }

    fn key(&self) -> &str {
        &self.values[0].key
    }

    /// The answer for a figure under a value; of columns that are not judged, the lab's own.
    fn answer(&self, value: usize, column: usize, figure: usize) -> Option<f64> {
        let changed = self.changed[value][column][figure];
        if column > 0 {
            return changed;
        }
        let values = (self.recorded[figure], self.lab[0][figure], changed);
        answer::answer(self.doubts[figure], values, self.most[value][figure])
    }

    fn row(&self, column: usize, figure: usize) -> Vec<Option<f64>> {
        let values = 0..self.values.len();
        values
            .map(|value| self.answer(value, column, figure))
            .collect()
    }

    /// The table of the first column's answers.
    pub(super) fn table(&self) -> String {
        let width = answer::width(self.figures);
        let texts: Vec<&str> = self.values.iter().map(|change| &*change.text).collect();
        let mut text = format!(
            "What if {} were {}? Answers of {}\n{:width$}{:>FIELD$}",
            self.key(),
            texts.join(", "),
            self.columns[0],
            "",
            "recording"
        );
        for value in &texts {
            let _ = write!(text, "{value:>FIELD$}");
        }
        text.push('\n');
        for (figure, own) in self.figures.iter().enumerate() {
            let row = self.row(0, figure);
            if answer::is_nothing(&row) && answer::is_nothing(&[self.recorded[figure]]) {
                continue;
            }
            let _ = write!(text, "{:width$}", own.with_unit());
            for value in core::iter::once(self.recorded[figure]).chain(row) {
                text.push_str(&answer::field(value, own.digits));
            }
            answer::end_line(&mut text, &self.doubts[figure].words(own.name));
        }
        answer::put_marks(&mut text, self.figures, self.doubts);
        text.push('\n');
        text
    }

    /// The figures that the change moves, over its values; words have no place on an axis.
    pub(super) fn plot(&self) -> Option<Lines> {
        let xs: Vec<f64> = self.values.iter().map(|change| change.shown()).collect();
        let low = xs.iter().copied().fold(f64::MAX, f64::min);
        let high = xs.iter().copied().fold(0.0, f64::max);
        if low == high {
            return None;
        }
        let moved = |figure: &usize| {
            let row = self.row(0, *figure);
            let known = || row.iter().flatten().copied();
            let (low, high) = (
                known().fold(f64::MAX, f64::min),
                known().fold(0.0, f64::max),
            );
            high - low > NOTICEABLE * high
        };
        let figures = (0..self.figures.len()).filter(|figure| self.doubts[*figure].answers());
        let panels = figures.filter(moved).take(PANELS_MOST).map(|figure| {
            let curve = |(column, name): (usize, &&str)| {
                let points = xs.iter().copied().zip(self.row(column, figure));
                Curve {
                    name: (*name).to_owned(),
                    points: points.filter_map(|(x, y)| Some((x, y?))).collect(),
                }
            };
            let curves = self.columns.iter().enumerate().map(curve);
            (self.figures[figure].with_unit(), curves.collect())
        });
        Some(Lines {
            name: format!("what-if-{}", self.recording),
            title: format!("{}: what {} does", self.recording, self.key()),
            x_label: self.values[0].axis(),
            log_x: low > 0.0 && high / low >= WIDE,
            panels: panels.collect(),
            ..Lines::default()
        })
    }
}

/// The answers to all changes of all recordings: a row for each change, column and figure of which
/// there is anything.
pub(super) fn answers<'a>(sweeps: impl Iterator<Item = &'a Sweep<'a>>) -> TidyTable {
    let mut rows = Vec::new();
    for sweep in sweeps {
        for (value, changes) in sweep.changes.iter().enumerate() {
            let change: Vec<String> = changes.iter().map(Change::to_string).collect();
            for column in 0..sweep.columns.len() {
                for figure in 0..sweep.figures.len() {
                    let recorded = sweep.recorded[figure];
                    let lab = sweep.lab[column][figure];
                    let changed = sweep.changed[value][column][figure];
                    let all = [recorded, lab, changed];
                    if all.iter().any(Option::is_some) {
                        let change = change.join(", ");
                        rows.push((sweep, change, [value, column, figure], all));
                    }
                }
            }
        }
    }
    let or_nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let doubt = |(sweep, _, [_, column, figure], _): &Row<'_>| match column {
        0 => sweep.doubts[*figure].words(sweep.figures[*figure].name),
        _ => String::new(),
    };
    let against = |sweep: &Sweep<'_>, figure: usize| sweep.against.as_ref()?[figure];
    tidy_table!(output::ANSWERS, rows, {
        "recording": Text = |row| row.0.recording.to_owned(),
        "change": Text = |row| row.1.clone(),
        "value": Real = |row| row.0.values[row.2[0]].shown(),
        "column": Text = |row| row.0.columns[row.2[1]].to_owned(),
        "figure": Text = |row| row.0.figures[row.2[2]].name.to_owned(),
        "unit": Text = |row| row.0.figures[row.2[2]].unit.to_owned(),
        "recorded": Real = |row| or_nan(row.3[0]),
        "lab": Real = |row| or_nan(row.3[1]),
        "changed": Real = |row| or_nan(row.3[2]),
        "answer": Real = |row| or_nan(row.0.answer(row.2[0], row.2[1], row.2[2])),
        "doubt": Text = |row| doubt(row),
        "against": Real = |row| or_nan(against(row.0, row.2[2])),
    })
}

/// A sweep, its change, the places of value, column and figure, and the figure as it was recorded,
/// in the lab and changed.
type Row<'a> = (&'a Sweep<'a>, String, [usize; 3], [Option<f64>; 3]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{PRESSURE, THROTTLING};
    use report::output::Data;

    fn of<'a>(values: &'a [Change], changes: &'a [Vec<Change>]) -> Sweep<'a> {
        Sweep {
            changes,
            recording: "one",
            columns: &["linux-6.12"],
            values: values.iter().collect(),
            figures: &crate::figures::of_kind(&PRESSURE)[..1],
            recorded: vec![Some(10.0)],
            lab: vec![vec![Some(10.0)]],
            changed: vec![vec![vec![Some(40.0)]]; values.len()],
            most: (1..)
                .map(|cpus| vec![20.0 * f64::from(cpus)])
                .take(values.len())
                .collect(),
            doubts: &[Doubt::Little],
            against: None,
        }
    }

    #[test]
    fn an_answer_is_no_more_than_there_is_under_its_own_value() {
        let values = Change::parse_all(&THROTTLING, "cpus=1..3:1").unwrap();
        let changes: Vec<_> = values.iter().map(|value| vec![value.clone()]).collect();
        let sweep = of(&values, &changes);
        assert_eq!(sweep.row(0, 0), [20.0, 40.0, 40.0].map(Some));
        let plot = sweep.plot().unwrap();
        let (_, curves) = &plot.panels[0];
        assert_eq!(curves[0].points, [(1.0, 20.0), (2.0, 40.0), (3.0, 40.0)]);
        let table = answers([&sweep].into_iter());
        let of = |name| table.columns.iter().find(|column| column.name == name);
        assert_eq!(
            of("answer").unwrap().data,
            Data::Real(vec![20.0, 40.0, 40.0])
        );
        assert_eq!(of("value").unwrap().data, Data::Real(vec![1.0, 2.0, 3.0]));
    }

    #[test]
    fn values_that_are_words_have_a_table_and_no_plot() {
        let values = Change::parse_all(&PRESSURE, "device.0.fs=ext4,vfat");
        let values = values.unwrap();
        assert!(of(&values, &[]).plot().is_none());
        assert!(
            of(&values, &[])
                .table()
                .contains("device.0.fs were ext4, vfat?")
        );
    }
}

//! The tables of the papers, each as its paper printed it, with the published columns behind ours.
//! Their rows are data (`papers/rows.toml`).
//!
//! A row's value is the mean of its metric over the repetitions, each of which is one test. The
//! jobs of a run say whose tables it has, so that a scenario of one's own has them, too.

mod p0;
mod p2;
mod p3;
mod p4;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::sync::LazyLock;

use experiment::metrics;
use experiment::outcome::Job;
use experiment::scenario::PublishedEntry;
use serde::Deserialize;

use super::Report;

static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    toml::from_str(include_str!("papers/rows.toml")).expect("the rows are read by our own tests")
});

/// The rows of each paper.
#[derive(Deserialize)]
struct Rows {
    p0: Vec<List<(String, String)>>,
    p2: Vec<List<(String, String, usize)>>,
    p3: p3::Rows,
    p4: p4::Rows,
}

/// Rows under one title.
#[derive(Deserialize)]
struct List<Row> {
    title: String,
    /// Each value has its change behind it.
    #[serde(default)]
    changes: bool,
    rows: Vec<Row>,
}

impl Report<'_> {
    /// The tables of the paper whose jobs these are; `None`: of none.
    pub(super) fn papers(&self) -> Option<String> {
        let any = |is: fn(&Job) -> bool| self.outcomes.iter().any(|run| run.jobs.iter().any(is));
        if any(|job| !job.iterations.is_empty()) {
            Some(self.p4())
        } else if any(|job| job.makes_small) {
            Some(self.p3())
        } else if any(|job| job.is_mapper) {
            Some(self.p0())
        } else {
            any(|job| job.fills_memory).then(|| self.p2())
        }
    }

    /// The row's name, where there are several.
    fn title(&self, case: &str) -> String {
        if self.rows.len() > 1 {
            format!("{case}\n")
        } else {
            String::new()
        }
    }

    fn mean(&self, metric: &str, case: &str, policy: &str) -> Option<f64> {
        let metric = metrics::by_name(metric).expect("a metric of ours");
        let values = self.samples(metric, case, policy);
        (!values.is_empty()).then(|| values.amean())
    }

    /// The mean of each column.
    fn means(&self, metric: &str, case: &str) -> Vec<Option<f64>> {
        let columns = self.columns.iter();
        columns.map(|own| self.mean(metric, case, own)).collect()
    }

    /// Columns with published values that are asked for.
    fn published_columns(&self, asked: impl Fn(&PublishedEntry) -> bool) -> Vec<&String> {
        let mut columns: Vec<_> = self.columns.iter().collect();
        columns.retain(|column| {
            let mut entries = self.scenario.published.iter();
            entries.any(|entry| entry.column.get_ref() == *column && asked(entry))
        });
        columns
    }

    /// The published values of a metric in these columns.
    fn published(&self, metric: &str, case: &str, columns: &[&String]) -> Vec<Option<f64>> {
        let columns = columns.iter();
        columns
            .map(|policy| self.scenario.published_value(metric, case, policy))
            .collect()
    }
}

/// A name, and cells at the right of their columns.
fn line(name: &str, width: usize, cells: impl IntoIterator<Item = (String, usize)>) -> String {
    let mut line = format!("{name:<width$}");
    for (cell, width) in cells {
        let _ = write!(line, "{cell:>width$}");
    }
    format!("{}\n", line.trim_end())
}

/// The value with its digits, or a dash.
fn digits(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}

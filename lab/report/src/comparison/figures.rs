//! The figures of each metric, row by row, for a page: what the printed table says, as data.

use super::Report;
use experiment::metrics::Metric;
use experiment::stats::{Stat, percent};

/// One metric in all rows and columns.
#[derive(Clone, Debug)]
pub struct MetricTable {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its meaning, in a line.
    pub about: &'static str,
    /// The columns.
    pub columns: Vec<String>,
    /// (row, a figure for each column).
    pub rows: Vec<(String, Vec<Figure>)>,
}

/// A metric in one row and column.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figure {
    /// Mean of the repetitions.
    pub mean: Option<f64>,
    /// Their deviation, where there are several.
    pub deviation: Option<f64>,
    /// Change against the first column, positive when better.
    pub percent: Option<f64>,
    /// The change is more than chance.
    pub starred: bool,
    /// The published value.
    pub published: Option<f64>,
}

impl Report<'_> {
    /// The printed metrics, in order.
    #[must_use]
    pub fn figures(&self) -> Vec<MetricTable> {
        let tables = self.metrics().into_iter();
        tables.map(|metric| self.metric_table(metric)).collect()
    }

    fn metric_table(&self, metric: &'static Metric) -> MetricTable {
        let row = |row: &String| {
            let base = self.columns.first();
            let base = base.map(|column| self.samples(metric, row, column));
            let figures = self.columns.iter().enumerate().map(|(at, column)| {
                let samples = self.samples(metric, row, column);
                let mean = samples.value(Stat::Mean);
                let base = base.as_ref().filter(|_| at > 0);
                let base_mean = base.and_then(|base| base.value(Stat::Mean));
                let change = base_mean.zip(mean);
                Figure {
                    mean,
                    deviation: samples.value(Stat::Stddev).filter(|_| samples.len() > 1),
                    percent: change.map(|(base, own)| percent(base, own, metric.better)),
                    starred: base.is_some_and(|base| samples.is_significant(base)),
                    published: self.scenario.published_value(metric.name, row, column),
                }
            });
            (row.clone(), figures.collect())
        };
        let rows = self.rows.iter().map(row);
        MetricTable {
            name: metric.name,
            unit: metric.unit,
            about: metric.about,
            columns: self.columns.clone(),
            rows: rows
                .filter(|(_, figures): &(String, Vec<Figure>)| {
                    figures.iter().any(|figure| figure.mean.is_some())
                })
                .collect(),
        }
    }
}

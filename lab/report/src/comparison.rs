//! From outcomes to the printed comparison and the `compare` table.

pub mod figures;
mod papers;
pub mod summary;

use crate::stalls;
use crate::table::{Monitor, Operation, Published, Table, head};
use experiment::metrics::{self, METRICS, Metric};
use experiment::outcome::Outcome;
use experiment::scenario::Scenario;
use experiment::stats::{Samples, Stat, percent};

/// Statistics of the tables, in order.
const STATS: [Stat; 2] = [Stat::Mean, Stat::Stddev];
/// Statistics of the `compare` table.
const COMPARED: [Stat; 4] = [Stat::Mean, Stat::Stddev, Stat::Max(90), Stat::Worst];

/// One comparison of two columns.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Metric and row.
    pub operation: String,
    /// Statistic.
    pub stat: String,
    /// Baseline.
    pub base_policy: String,
    /// Column.
    pub policy: String,
    /// Its value there.
    pub base_value: Option<f64>,
    /// Its value here.
    pub value: Option<f64>,
    /// Change, positive when better.
    pub percent: Option<f64>,
    /// Samples there.
    pub n_base: i64,
    /// Samples here.
    pub n: i64,
    /// Of the two-sided t-test.
    pub p_value: Option<f64>,
    /// Below 0.10.
    pub starred: bool,
    /// The published value of the baseline.
    pub published_base: Option<f64>,
    /// The published value of the column.
    pub published: Option<f64>,
}

/// Rows, columns and their outcomes.
pub struct Report<'a> {
    scenario: &'a Scenario,
    outcomes: &'a [Outcome],
    rows: Vec<String>,
    columns: Vec<String>,
}

impl<'a> Report<'a> {
    /// A report over the columns that were run, in order; the first is the baseline.
    #[must_use]
    pub fn new(scenario: &'a Scenario, outcomes: &'a [Outcome], columns: Vec<String>) -> Self {
        let mut rows: Vec<String> = Vec::new();
        for outcome in outcomes {
            if !rows.contains(&outcome.case) {
                rows.push(outcome.case.clone());
            }
        }
        Self {
            scenario,
            outcomes,
            rows,
            columns,
        }
    }

    /// All tables as text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        for metric in self.metrics() {
            let unit = if metric.unit.is_empty() {
                "no unit"
            } else {
                metric.unit
            };
            text.push_str(&format!("{} ({unit}): {}\n", metric.name, metric.about));
            text.push_str(&self.table(metric).render());
            text.push('\n');
        }
        let papers = self.papers();
        text.push_str(&papers.unwrap_or_else(|| self.durations().render()));
        text.push_str(&stalls::render(self.outcomes, &self.columns));
        text.push_str(&left_out(self.outcomes));
        text
    }

    /// The `compare` table: every metric that applies.
    #[must_use]
    pub fn comparisons(&self) -> Vec<Comparison> {
        let mut all = Vec::new();
        for metric in METRICS.iter().filter(|metric| self.applies(metric)) {
            for row in &self.rows {
                self.compare_row(metric, row, &mut all);
            }
        }
        all
    }

    fn compare_row(&self, metric: &Metric, row: &str, all: &mut Vec<Comparison>) {
        let Some(base_policy) = self.columns.first() else {
            return;
        };
        let base = self.samples(metric, row, base_policy);
        for policy in &self.columns {
            let samples = self.samples(metric, row, policy);
            for stat in COMPARED {
                let (base_value, value) = (base.value(stat), samples.value(stat));
                let direction = stat.direction(metric.better);
                let is_mean = stat == Stat::Mean;
                let p_value = samples.p_value(&base).filter(|_| is_mean);
                let published = |policy| {
                    self.scenario
                        .published_value(metric.name, row, policy)
                        .filter(|_| is_mean)
                };
                all.push(Comparison {
                    operation: format!("{}-{row}", metric.name),
                    stat: stat.label(metric.better),
                    base_policy: base_policy.clone(),
                    policy: policy.clone(),
                    base_value,
                    value,
                    percent: base_value.zip(value).map(|(b, v)| percent(b, v, direction)),
                    n_base: i64::try_from(base.len()).unwrap_or(i64::MAX),
                    n: i64::try_from(samples.len()).unwrap_or(i64::MAX),
                    p_value,
                    starred: p_value.is_some() && samples.is_significant(&base),
                    published_base: published(base_policy),
                    published: published(policy),
                });
            }
        }
    }

    fn metrics(&self) -> Vec<&'static Metric> {
        let named = self.scenario.metrics.iter();
        let named: Vec<_> = named
            .filter_map(|name| metrics::by_name(name.get_ref()))
            .collect();
        let chosen = if named.is_empty() {
            METRICS.iter().collect()
        } else {
            named
        };
        chosen
            .into_iter()
            .filter(|metric| self.applies(metric))
            .collect()
    }

    fn applies(&self, metric: &Metric) -> bool {
        self.outcomes
            .iter()
            .any(|outcome| metric.value(outcome).is_some())
    }

    fn table(&self, metric: &Metric) -> Table {
        let published: Vec<&String> = self
            .columns
            .iter()
            .filter(|policy| {
                self.rows.iter().any(|row| {
                    self.scenario
                        .published_value(metric.name, row, policy)
                        .is_some()
                })
            })
            .collect();
        let operations = self.rows.iter().map(|row| Operation {
            name: format!("{}-{row}", metric.name),
            samples: self
                .columns
                .iter()
                .map(|policy| self.samples(metric, row, policy))
                .collect(),
            published: published
                .iter()
                .map(|policy| {
                    Published::mean(self.scenario.published_value(metric.name, row, policy))
                })
                .collect(),
            better: metric.better,
        });
        Table {
            heads: self.columns.iter().map(|policy| head(policy)).collect(),
            published_heads: published
                .iter()
                .map(|policy| ("published".to_owned(), (*policy).clone()))
                .collect(),
            operations: operations.collect(),
            stats: STATS.to_vec(),
            precision: if matches!(metric.unit, "" | "s") {
                4
            } else {
                2
            },
        }
    }

    /// User, system and elapsed time of all runs of a column.
    fn durations(&self) -> Monitor {
        let row = |name: &str, metric: &str| {
            let metric = metrics::by_name(metric).expect("a metric of ours");
            let sums = self.columns.iter().map(|policy| {
                let runs = self
                    .outcomes
                    .iter()
                    .filter(|outcome| outcome.policy == *policy);
                let values: Vec<f64> = runs.filter_map(|outcome| metric.value(outcome)).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>())
            });
            (name.to_owned(), sums.collect())
        };
        let rows = vec![
            row("User", "user"),
            row("System", "system"),
            row("Elapsed", "real"),
        ];
        Monitor {
            kind: "Duration",
            field: 12,
            rows,
        }
    }

    /// The repetitions of a row and column.
    fn runs<'b>(&'b self, row: &'b str, policy: &'b str) -> impl Iterator<Item = &'b Outcome> {
        let all = self.outcomes.iter();
        all.filter(move |run| run.case == row && run.policy == policy)
    }

    fn samples(&self, metric: &Metric, row: &str, policy: &str) -> Samples {
        let values = self.runs(row, policy).filter_map(|run| metric.value(run));
        Samples::new(values, metric.better)
    }
}

/// Runs of which not all pauses were kept: what is told of pauses is of their beginning.
fn left_out(outcomes: &[Outcome]) -> String {
    let runs = outcomes.iter().filter(|run| run.pauses_left_out > 0);
    runs.map(|run| {
        format!(
            "{}: the first {} pauses are told; {} after them are not, nor in any quantity of pauses\n",
            run.run_id(),
            run.pauses.len(),
            run.pauses_left_out
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::outcome::Pause;

    #[test]
    fn pauses_that_were_not_kept_are_said_with_their_number() {
        let whole = Outcome {
            pauses: vec![Pause::default(); 2],
            ..Outcome::default()
        };
        let cut = Outcome {
            case: "4".into(),
            policy: "tidegate".into(),
            pauses_left_out: 17,
            ..whole.clone()
        };
        let said = left_out(&[whole, cut.clone()]);
        let expected = "the first 2 pauses are told; 17 after them are not";
        assert!(said.starts_with(&format!("{}: {expected}", cut.run_id())));
        assert_eq!(said.lines().count(), 1);
    }
}

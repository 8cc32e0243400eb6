//! The tables of paper p4 as it printed them, with what it printed behind ours: times and huge
//! pages with their deviation, the block of counters line by line, and, what it did not print,
//! every iteration.
//!
//! ```text
//! writebackCPDevicevfat        linux-3.1   linux-3.2-rc5        |  pub. linux-3.1 ...
//! System Time               1.22 (   0.00%)   13.89 (-1038.52%) |  ...
//! +/-                       0.06 (   0.00%)   22.82 (...)
//! ```
//!
//! A change is against the first column: of times and of fallbacks 100 (base - new) / base, so
//! positive when better; of huge pages the plain ratio 100 new / base, as the tool of December 2011
//! printed them, and 0.00 for the base itself. A deviation is as of all iterations there are.
//! Counters are sums over all iterations.
//!
//! Source: experiments A5, B6.

use serde::Deserialize;

use super::{ROWS, Report, digits, line};
use experiment::metrics::runs;
use experiment::outcome::{Iteration, Outcome};

/// The form in which a change is printed.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    /// Less is better: 100 (base - new) / base.
    Saved,
    /// 100 new / base.
    Ratio,
}

/// Rows of each block.
#[derive(Deserialize)]
pub(super) struct Rows {
    times: Vec<(String, String, String, Change)>,
    duration: Vec<(String, String)>,
    vmstat: Vec<(String, String)>,
}

const NAME: usize = 32;
const LEAST: usize = 22;
const SHORT: usize = 10;

impl Report<'_> {
    pub(super) fn p4(&self) -> String {
        let rows = &ROWS.p4;
        let times = || rows.times.iter().map(|row| &row.1);
        let asked = |metric: &String| {
            let mut names = times().chain(rows.vmstat.iter().map(|row| &row.1));
            names.any(|name| name == metric)
        };
        let row = |case: &String| {
            let published = self.published_columns(|entry| {
                entry.row.get_ref() == case && asked(entry.metric.get_ref())
            });
            let mut text = self.p4_head(case, &published);
            for (name, mean, deviation, change) in &rows.times {
                let values = |policy: &String| {
                    let all = self.runs(case, policy).filter_map(|run| each(run, mean));
                    all.flatten().collect::<Vec<f64>>()
                };
                let values: Vec<_> = self.columns.iter().map(values).collect();
                for (name, metric, sum) in [
                    (name.as_str(), mean, runs::mean as fn(&[f64]) -> Option<f64>),
                    ("+/-", deviation, runs::deviation),
                ] {
                    let own: Vec<_> = values.iter().map(|values| sum(values)).collect();
                    let theirs = self.published(metric, case, &published).into_iter();
                    let theirs = theirs.map(|value| digits(value, 2)).collect();
                    if own.iter().any(Option::is_some) {
                        let cells =
                            (0..own.len()).map(|at| cell(own[0], own[at], at == 0, *change));
                        text += &self.p4_line(name, cells.collect(), theirs);
                    }
                }
            }
            for (name, metric) in rows.duration.iter().chain(&rows.vmstat) {
                let own = self.means(metric, case);
                let theirs = self.published(metric, case, &published);
                if own.iter().chain(&theirs).any(Option::is_some) {
                    let [own, theirs] =
                        [own, theirs].map(|values| values.into_iter().map(number).collect());
                    text += &self.p4_line(name, own, theirs);
                }
            }
            text + "\n" + &self.iterations(case)
        };
        self.rows.iter().map(row).collect()
    }

    fn p4_head(&self, case: &str, published: &[&String]) -> String {
        let theirs = published.iter().map(|policy| {
            // Without what all of them share.
            let short = policy.strip_prefix("linux-").unwrap_or(policy);
            format!("pub. {short}")
        });
        let title = format!("writebackCP{case}");
        self.p4_line(&title, self.columns.clone(), theirs.collect())
    }

    fn p4_line(&self, name: &str, own: Vec<String>, theirs: Vec<String>) -> String {
        let widths = self
            .columns
            .iter()
            .map(|policy| (policy.len() + 2).max(LEAST));
        let own = own.into_iter().zip(widths);
        line(
            name,
            NAME,
            own.chain(theirs.into_iter().map(|cell| (cell, LEAST))),
        )
    }

    /// Every iteration of every column.
    fn iterations(&self, case: &str) -> String {
        let heads = [
            "elapsed s",
            "system s",
            "huge",
            "fallback",
            "at start",
            "free MiB",
            "dirty MiB",
            "stalls",
            "swapped",
            "read MB",
        ];
        let short =
            |name: &str, cells: [String; 10]| line(name, NAME, cells.map(|cell| (cell, SHORT)));
        let mut text = short(&format!("{case}, by iteration"), heads.map(str::to_owned));
        for policy in &self.columns {
            for run in self.runs(case, policy) {
                let system = runs::alloc_cpu(run, |task| task.system_s).unwrap_or_default();
                let mib = |pages: f64| pages / 256.0 / run.scale;
                for (at, one) in runs::iterations(run).enumerate() {
                    let values = [
                        one.took_s,
                        system.get(at).copied().unwrap_or(f64::NAN),
                        one.counter("thp_fault_alloc"),
                        one.counter("thp_fault_fallback"),
                        one.runs_free,
                        mib(one.free),
                        mib(one.dirty),
                        one.counter("compact_stall"),
                        one.counter("pswpout") / run.scale,
                        one.read / 1e6 / run.scale,
                    ];
                    let values = values.map(|value| number(Some(value)));
                    text += &short(&format!("{policy} {}", at + 1), values);
                }
            }
        }
        text + "\n"
    }
}

/// The values of a run's iterations that a metric is the mean of.
fn each(run: &Outcome, metric: &str) -> Option<Vec<f64>> {
    let all = |what: &dyn Fn(&Iteration) -> f64| Some(runs::iterations(run).map(what).collect());
    match metric {
        "alloc_system_s" => runs::alloc_cpu(run, |task| task.system_s),
        "alloc_user_s" => runs::alloc_cpu(run, |task| task.user_s),
        "alloc_elapsed_s" => runs::took(run),
        "thp_active" => all(&|one| one.huge),
        counter => all(&|one| one.counter(counter)),
    }
}

fn cell(base: Option<f64>, value: Option<f64>, is_base: bool, change: Change) -> String {
    let (Some(base), Some(value)) = (base, value) else {
        return "-".into();
    };
    let percent = match change {
        _ if is_base || base.abs() < f64::EPSILON => 0.0,
        Change::Saved => 100.0 * (base - value) / base,
        Change::Ratio => 100.0 * value / base,
    };
    format!("{value:.2} ({percent:8.2}%)")
}

/// Counts whole, small values with decimals.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() < 1000.0 && value.fract().abs() > 1e-9 => format!("{value:.2}"),
        Some(value) => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_printed_as_in_december_2011() {
        // 1.22 -> 13.89 s, and 15.60 -> 35.20 huge pages, as the paper has them.
        let times = cell(Some(1.22), Some(13.89), false, Change::Saved);
        assert_eq!(times, "13.89 (-1038.52%)");
        let huge = cell(Some(15.6), Some(35.2), false, Change::Ratio);
        assert_eq!(huge, "35.20 (  225.64%)");
        let base = cell(Some(15.6), Some(15.6), true, Change::Ratio);
        assert_eq!(base, "15.60 (    0.00%)");
        assert_eq!(cell(None, Some(1.0), false, Change::Saved), "-");
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_need() {
        let all = [Some(3_024_951_463.0), Some(0.844), Some(12.0), None];
        assert_eq!(all.map(number), ["3024951463", "0.84", "12", "-"]);
    }
}

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

use std::fmt::Write as _;

use experiment::metrics::{self, runs};
use experiment::outcome::{Iteration, Outcome};
use experiment::scenario::Scenario;

/// How a change is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Less is better: 100 (base - new) / base.
    Saved,
    /// 100 new / base.
    Ratio,
}

/// Values of all iterations.
type Of = fn(&Outcome) -> Option<Vec<f64>>;

/// (name, metric of the mean, metric of the deviation, how it changes, its values).
const TIMES: [(&str, &str, &str, Change, Of); 6] = [
    (
        "System Time",
        "alloc_system_s",
        "alloc_system_sd",
        Change::Saved,
        |o| runs::alloc_cpu(o, |task| task.system_s),
    ),
    ("User Time", "alloc_user_s", "", Change::Saved, |o| {
        runs::alloc_cpu(o, |task| task.user_s)
    }),
    (
        "Elapsed Time",
        "alloc_elapsed_s",
        "alloc_elapsed_sd",
        Change::Saved,
        runs::took,
    ),
    ("THP Active", "thp_active", "", Change::Ratio, |o| {
        each(o, |one| one.huge)
    }),
    ("Fault Alloc", "thp_fault_alloc", "", Change::Ratio, |o| {
        each(o, |one| one.counter("thp_fault_alloc"))
    }),
    (
        "Fault Fallback",
        "thp_fault_fallback",
        "",
        Change::Saved,
        |o| each(o, |one| one.counter("thp_fault_fallback")),
    ),
];

/// (name, metric): of the whole test.
const DURATION: [(&str, &str); 2] = [
    ("User/Sys Time Running Test (s)", "test_cpu_s"),
    ("Total Elapsed Time (s)", "elapsed"),
];

/// The block of counters, in the paper's order.
const VMSTAT: [(&str, &str); 29] = [
    ("Page Ins", "page_ins"),
    ("Page Outs", "page_outs"),
    ("Swap Ins", "swap_reads"),
    ("Swap Outs", "anon_writes"),
    ("Direct pages scanned", "pgscan_direct"),
    ("Kswapd pages scanned", "pgscan_kswapd"),
    ("Kswapd pages reclaimed", "pgsteal_kswapd"),
    ("Direct pages reclaimed", "pgsteal_direct"),
    ("Kswapd efficiency (%)", "kswapd_efficiency"),
    ("Kswapd velocity", "kswapd_velocity"),
    ("Direct efficiency (%)", "direct_efficiency"),
    ("Direct velocity", "direct_velocity"),
    ("Percentage direct scans", "direct_percent"),
    ("Page writes by reclaim", "reclaim_writes"),
    ("Page writes file", "file_writes"),
    ("Page writes anon", "anon_writes"),
    ("Page reclaim immediate", "immediate"),
    ("Page rescued immediate", "rescued"),
    ("Slabs scanned", "slabs_scanned"),
    ("Direct inode steals", "direct_inode_steals"),
    ("Kswapd inode steals", "kswapd_inode_steals"),
    ("Kswapd skipped wait", "kswapd_skipped_wait"),
    ("THP splits", "thp_splits"),
    ("Compaction stalls", "compact_stalls"),
    ("Compaction success", "compact_success"),
    ("Compaction failures", "compact_failures"),
    ("Compaction pages moved", "compact_moved"),
    ("Compaction move failure", "compact_move_failed"),
    // Ours: what the paper's figures cannot tell apart from a mechanism's merit.
    ("Huge pages free at start", "thp_at_start"),
];

const NAME: usize = 32;
const LEAST: usize = 22;
const SHORT: usize = 10;

/// Everything that the tables are made from.
pub(super) struct Thpavail<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) outcomes: &'a [Outcome],
    pub(super) rows: &'a [String],
    pub(super) columns: &'a [String],
}

impl Thpavail<'_> {
    /// Whether there is such a test.
    pub(super) fn applies(&self) -> bool {
        let mut all = self.outcomes.iter();
        all.any(|outcome| runs::iterations(outcome).next().is_some())
    }

    /// All tables as text.
    pub(super) fn render(&self) -> String {
        let row = |case: &String| {
            let published = self.published(case);
            let mut text = self.head(&format!("writebackCP{case}"), &published);
            for (name, mean, deviation, change, of) in TIMES {
                self.times(
                    &mut text,
                    (case, &published),
                    (name, mean, deviation),
                    change,
                    of,
                );
            }
            for (name, metric) in DURATION.into_iter().chain(VMSTAT) {
                self.line(&mut text, (case, &published), name, metric);
            }
            text.push('\n');
            text + &self.iterations(case)
        };
        self.rows.iter().map(row).collect()
    }

    /// Columns of which something was published in a row.
    fn published(&self, case: &str) -> Vec<String> {
        let has = |policy: &&String| {
            let names = TIMES.iter().map(|time| time.1);
            let mut names = names.chain(VMSTAT.iter().map(|line| line.1));
            names.any(|name| self.scenario.published_value(name, case, policy).is_some())
        };
        self.columns.iter().filter(has).cloned().collect()
    }

    fn head(&self, title: &str, published: &[String]) -> String {
        let mut text = format!("{title:<NAME$}");
        for policy in self.columns {
            let _ = write!(text, "{policy:>0$}", width(policy));
        }
        for policy in published {
            let head = format!("pub. {}", short(policy));
            let _ = write!(text, "{head:>0$}", LEAST);
        }
        text.push('\n');
        text
    }

    /// Values of the iterations of all repetitions of a column.
    fn values(&self, case: &str, policy: &str, of: Of) -> Option<Vec<f64>> {
        let runs = self.outcomes.iter();
        let runs = runs.filter(|run| run.case == case && run.policy == policy);
        let all: Vec<f64> = runs.filter_map(of).flatten().collect();
        (!all.is_empty()).then_some(all)
    }

    fn times(
        &self,
        text: &mut String,
        (case, published): (&str, &[String]),
        (name, mean, deviation): (&str, &str, &str),
        change: Change,
        of: Of,
    ) {
        let own = |sum: fn(&[f64]) -> Option<f64>| -> Vec<Option<f64>> {
            let columns = self.columns.iter();
            let values = columns.map(|policy| self.values(case, policy, of));
            values.map(|values| sum(&values?)).collect()
        };
        for (label, metric, sum) in [
            (name, mean, runs::mean as fn(&[f64]) -> Option<f64>),
            ("+/-", deviation, runs::deviation),
        ] {
            let values = own(sum);
            if values.iter().all(Option::is_none) {
                return;
            }
            let _ = write!(text, "{label:<NAME$}");
            for (at, policy) in self.columns.iter().enumerate() {
                let cell = cell(values[0], values[at], at == 0, change);
                let _ = write!(text, "{cell:>0$}", width(policy));
            }
            for policy in published {
                let value = self.scenario.published_value(metric, case, policy);
                let value = value.map_or("-".to_owned(), |value| format!("{value:.2}"));
                let _ = write!(text, "{value:>0$}", LEAST);
            }
            text.push('\n');
        }
    }

    fn line(
        &self,
        text: &mut String,
        (case, published): (&str, &[String]),
        name: &str,
        metric: &str,
    ) {
        let known = metrics::by_name(metric).expect("a metric of ours");
        let of = |policy: &String| {
            let runs = self.outcomes.iter();
            let runs = runs.filter(|run| run.case == case && run.policy == *policy);
            let values: Vec<f64> = runs.filter_map(|run| known.value(run)).collect();
            runs::mean(&values)
        };
        let values: Vec<Option<f64>> = self.columns.iter().map(of).collect();
        let theirs = |policy: &String| self.scenario.published_value(metric, case, policy);
        let theirs: Vec<Option<f64>> = published.iter().map(theirs).collect();
        if values.iter().chain(&theirs).all(Option::is_none) {
            return;
        }
        let _ = write!(text, "{name:<NAME$}");
        for (value, policy) in values.iter().zip(self.columns) {
            let _ = write!(text, "{:>1$}", number(*value), width(policy));
        }
        for value in theirs {
            let _ = write!(text, "{:>LEAST$}", number(value));
        }
        text.push('\n');
    }

    /// Every iteration of every column.
    fn iterations(&self, case: &str) -> String {
        let mut text = format!("{:<NAME$}", format!("{case}, by iteration"));
        for head in [
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
        ] {
            let _ = write!(text, "{head:>SHORT$}");
        }
        text.push('\n');
        for policy in self.columns {
            let runs = self.outcomes.iter();
            for run in runs.filter(|run| run.case == case && run.policy == *policy) {
                let system = runs::alloc_cpu(run, |task| task.system_s).unwrap_or_default();
                for (at, one) in runs::iterations(run).enumerate() {
                    let system = system.get(at).copied().unwrap_or(f64::NAN);
                    let _ = write!(text, "{:<NAME$}", format!("{policy} {}", at + 1));
                    let mib = |pages: f64| pages / 256.0 / run.scale;
                    for value in [
                        one.took_s,
                        system,
                        one.counter("thp_fault_alloc"),
                        one.counter("thp_fault_fallback"),
                        one.runs_free,
                        mib(one.free),
                        mib(one.dirty),
                        one.counter("compact_stall"),
                        one.counter("pswpout") / run.scale,
                        one.read / 1e6 / run.scale,
                    ] {
                        let _ = write!(text, "{:>SHORT$}", number(Some(value)));
                    }
                    text.push('\n');
                }
            }
        }
        text.push('\n');
        text
    }
}

fn each(outcome: &Outcome, what: fn(&Iteration) -> f64) -> Option<Vec<f64>> {
    let all: Vec<f64> = runs::iterations(outcome).map(what).collect();
    (!all.is_empty()).then_some(all)
}

fn width(policy: &str) -> usize {
    (policy.len() + 2).max(LEAST)
}

/// A column's name without what all of them share.
fn short(policy: &str) -> &str {
    policy.strip_prefix("linux-").unwrap_or(policy)
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

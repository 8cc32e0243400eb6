//! The tables of paper p0 in mmtests' own form: latencies of the worker that maps memory,
//! `Duration`, `Ops`, and the delays of throttled reclaimers by reason; published values stand on
//! the right, or below.
//!
//! Samples of an operation are those of all repetitions. A figure of a whole test (all rows that do
//! not stand apart, one after the other) is the mean over the repetitions, so that it compares with
//! one test. A throttling is *zero* when it did not sleep a tick, *timeout* when it slept as long
//! as it may or longer, *partial* otherwise.
//!
//! Source: experiments A1, B6 "Format", B7; paper p0.

use std::fmt::Write as _;

use policy::reclaim::Reason;

use crate::table::{Monitor, Operation, Published, Table, head};
use experiment::metrics::{self, reclaim};
use experiment::outcome::{Outcome, ThrottleCount};
use experiment::pool::ALL;
use experiment::presets;
use experiment::scenario::{ByKind, DelaysEntry, Scenario};
use experiment::stats::{Better, Samples, Stat};

/// Statistics of the latencies, in order, and the metric that each one is.
const LATENCIES: [(Stat, &str); 4] = [
    (Stat::Mean, "lat_amean_ms"),
    (Stat::Stddev, "lat_stddev_ms"),
    (Stat::Max(90), "lat_max90_ms"),
    (Stat::Worst, "lat_max_ms"),
];
/// Rows of `Duration`.
const DURATIONS: [(&str, &str); 3] = [
    ("User", "user"),
    ("System", "system-tasks"),
    ("Elapsed", "elapsed"),
];
/// Rows of `Ops`, in mmtests' order.
const OPS: [(&str, &str); 12] = [
    ("Direct pages scanned", "pgscan_direct"),
    ("Kswapd pages scanned", "pgscan_kswapd"),
    ("Kswapd pages reclaimed", "pgsteal_kswapd"),
    ("Direct pages reclaimed", "pgsteal_direct"),
    ("Kswapd efficiency %", "kswapd_efficiency"),
    ("Kswapd velocity", "kswapd_velocity"),
    ("Direct efficiency %", "direct_efficiency"),
    ("Direct velocity", "direct_velocity"),
    ("Percentage direct scans", "direct_percent"),
    ("Page writes by reclaim", "reclaim_writes"),
    ("Page writes anon", "anon_writes"),
    ("Page reclaim immediate", "immediate"),
];
/// Rows that mmtests does not have, and without which the others mislead: a kernel that scans less
/// because its tasks sleep has saved nothing.
const WORK: [(&str, &str); 3] = [
    ("Hogs touched GiB", "hog_gib"),
    ("Tasks asleep", "asleep"),
    ("Swap pages read", "swap_reads"),
];
/// Width of a value of `Ops`: mmtests'; of a `Duration`.
const OPS_FIELD: usize = 16;

/// Everything that the tables are made from.
pub(super) struct Mmtests<'a> {
    pub(super) scenario: &'a Scenario,
    /// With the row of all rows.
    pub(super) outcomes: &'a [Outcome],
    pub(super) rows: &'a [String],
    pub(super) columns: &'a [String],
}

impl Mmtests<'_> {
    /// Whether there is a worker whose latencies could be told.
    pub(super) fn applies(&self) -> bool {
        let jobs = self.outcomes.iter().flat_map(|outcome| &outcome.jobs);
        jobs.into_iter().any(|job| job.is_mapper)
    }

    /// All tables as text.
    pub(super) fn render(&self) -> String {
        let mut text = String::from(
            "Latency of mapping, touching and unmapping (ms), samples of all repetitions\n",
        );
        text.push_str(&self.latencies().render());
        if self.all().next().is_some() {
            text.push_str("\nOf the whole test, mean of the repetitions\n");
            text.push_str(&self.totals());
            text.push('\n');
            text.push_str(&self.delays());
        }
        text
    }

    fn all(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.case == ALL)
    }

    /// Columns with published values of these metrics.
    fn published_columns(&self, of: &[(&str, &str)]) -> Vec<&String> {
        let has = |column: &&String| {
            self.scenario.published.iter().any(|entry| {
                entry.policy.get_ref() == *column
                    && of
                        .iter()
                        .any(|(_, metric)| entry.metric.get_ref() == metric)
            })
        };
        self.columns.iter().filter(has).collect()
    }

    fn latencies(&self) -> Table {
        let names = LATENCIES.map(|(_, metric)| ("", metric));
        let published = self.published_columns(&names);
        let rows = self.rows.iter().filter(|row| *row != ALL);
        let operation = |row: &String| Operation {
            name: format!("mmap-{row}"),
            samples: self
                .columns
                .iter()
                .map(|policy| self.samples(row, policy))
                .collect(),
            published: published
                .iter()
                .map(|policy| {
                    let values = LATENCIES.iter();
                    let values = values.filter_map(|(stat, metric)| {
                        Some((*stat, self.scenario.published_value(metric, row, policy)?))
                    });
                    Published(values.collect())
                })
                .collect(),
            better: Better::Lower,
        };
        Table {
            heads: self.columns.iter().map(|policy| head(policy)).collect(),
            published_heads: published
                .iter()
                .map(|policy| published_head(policy))
                .collect(),
            operations: rows.map(operation).collect(),
            stats: LATENCIES.iter().map(|(stat, _)| *stat).collect(),
            precision: 4,
        }
    }

    fn samples(&self, row: &str, policy: &str) -> Samples {
        let runs = self.outcomes.iter();
        let runs = runs.filter(|outcome| outcome.case == row && outcome.policy == policy);
        Samples::new(runs.filter_map(reclaim::mapped).flatten(), Better::Lower)
    }

    /// Mean over the repetitions of a metric of the whole test.
    fn total(&self, metric: &str, policy: &str) -> Option<f64> {
        let metric = metrics::by_name(metric).expect("a metric of ours");
        let runs = self.all().filter(|outcome| outcome.policy == policy);
        let values = Samples::new(runs.filter_map(|run| metric.value(run)), metric.better);
        (!values.is_empty()).then(|| values.amean())
    }

    /// `Duration`, `Ops` and the work done, under one pair of head lines.
    fn totals(&self) -> String {
        let blocks: [(&'static str, &[(&str, &str)]); 3] =
            [("Duration", &DURATIONS), ("Ops", &OPS), ("Work", &WORK)];
        let names: Vec<(&str, &str)> = blocks
            .iter()
            .flat_map(|(_, rows)| rows.iter().copied())
            .collect();
        let published = self.published_columns(&names);
        // All blocks line up: the names of each are as wide as the widest with its first word.
        let width = |(kind, rows): &(&'static str, &[(&str, &str)])| {
            let names = rows.iter().map(|(name, _)| name.len());
            kind.len() + names.max().unwrap_or(0)
        };
        let widest = blocks.iter().map(width).max().unwrap_or(0);
        let mut text = String::new();
        for second in [false, true] {
            let mut line = " ".repeat(widest + 1);
            let own = self.columns.iter().map(|policy| head(policy));
            for parts in own.chain(published.iter().map(|policy| published_head(policy))) {
                let part = if second { parts.1 } else { parts.0 };
                let _ = write!(line, "{part:>OPS_FIELD$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for (kind, rows) in blocks {
            let pad = widest - kind.len();
            let rows = rows.iter().map(|(name, metric)| {
                let own = self.columns.iter().map(|policy| self.total(metric, policy));
                let theirs = published
                    .iter()
                    .map(|policy| self.scenario.published_value(metric, ALL, policy));
                (format!("{name:<pad$}"), own.chain(theirs).collect())
            });
            let block = Monitor {
                kind,
                field: OPS_FIELD,
                rows: rows.collect(),
            };
            text.push_str(&block.render());
        }
        text
    }

    /// Throttlings by task and reason, and their lengths.
    fn delays(&self) -> String {
        let mut text = String::from("Delays of throttled reclaimers, of the whole test\n");
        let _ = writeln!(
            text,
            "{:<18} {:<7} {:<26}{:>10}{:>9}{:>10}{:>10}{:>10}{:>10}{:>13}",
            "",
            "by",
            "reason",
            "timeout ms",
            "n",
            "zero %",
            "partial %",
            "timeout %",
            "mean ms",
            "task-seconds"
        );
        for column in self.columns {
            let repetitions = self
                .all()
                .filter(|outcome| outcome.policy == *column)
                .count();
            let mut name = column.as_str();
            for reason in Reason::ALL {
                for background in [true, false] {
                    let own = self.all().filter(|outcome| outcome.policy == *column);
                    let all: Vec<&ThrottleCount> = own
                        .flat_map(|outcome| &outcome.throttles)
                        .filter(|t| t.reason == reason && t.background == background)
                        .collect();
                    if let Some(delays) = Delays::of(&all, repetitions) {
                        let by = if background { "kswapd" } else { "direct" };
                        text.push_str(&delays.line((name, by, reason.name())));
                        name = "";
                    }
                }
            }
            let published = self.scenario.delays.iter();
            for entry in published.filter(|entry| entry.policy.get_ref() == column) {
                text.push_str(&Delays::published(entry).line((
                    "  published",
                    by_name(entry.by),
                    presets::reason(entry.reason.get_ref()).map_or("", Reason::name),
                )));
            }
        }
        text
    }
}

fn published_head(policy: &str) -> (String, String) {
    ("published".to_owned(), policy.to_owned())
}

const fn by_name(by: ByKind) -> &'static str {
    match by {
        ByKind::Direct => "direct",
        ByKind::Kswapd => "kswapd",
        ByKind::Any => "any",
    }
}

/// The delays of one reason in one test.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delays {
    n: f64,
    zero: f64,
    timeout: f64,
    /// The shortest and the longest: some laws set one for each sleep.
    timeout_ms: Option<(f64, f64)>,
    total_ms: f64,
}

impl Delays {
    /// Of counts from so many repetitions; `None`: there are no delays.
    fn of(counts: &[&ThrottleCount], repetitions: usize) -> Option<Self> {
        let timeouts = || counts.iter().map(|delay| delay.timeout_ms);
        let shortest = timeouts().reduce(f64::min)?;
        let longest = timeouts().reduce(f64::max)?;
        let repetitions = experiment::stats::count(repetitions.max(1));
        let sum = |which: fn(&ThrottleCount) -> f64| {
            let parts = counts.iter().map(|delay| which(delay));
            parts.sum::<f64>() / repetitions
        };
        Some(Self {
            n: sum(|delay| reclaim::real(delay.count)),
            zero: sum(|delay| part(reclaim::is_zero(delay), delay)),
            timeout: sum(|delay| part(reclaim::is_timeout(delay), delay)),
            timeout_ms: Some((shortest, longest)),
            total_ms: sum(|delay| delay.delayed_ms * reclaim::real(delay.count)),
        })
    }

    fn published(entry: &DelaysEntry) -> Self {
        let n = reclaim::real(entry.n);
        Self {
            n,
            zero: reclaim::real(entry.zero),
            timeout: reclaim::real(entry.timeout),
            timeout_ms: None,
            total_ms: n * entry.mean_ms,
        }
    }

    fn line(&self, (name, by, reason): (&str, &str, &str)) -> String {
        let percent = |part: f64| 100.0 * part / self.n.max(f64::MIN_POSITIVE);
        let timeout = match self.timeout_ms {
            None => String::new(),
            Some((shortest, longest)) => {
                let ends = [format!("{shortest:.0}"), format!("{longest:.0}")];
                if ends[0] == ends[1] {
                    ends[0].clone()
                } else {
                    ends.join(" to ")
                }
            }
        };
        format!(
            "{name:<18} {by:<7} {reason:<26}{timeout:>10}{:>9.0}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>13.1}\n",
            self.n,
            percent(self.zero),
            percent(self.n - self.zero - self.timeout),
            percent(self.timeout),
            self.total_ms / self.n.max(f64::MIN_POSITIVE),
            self.total_ms / 1e3,
        )
    }
}

fn part(is: bool, delay: &ThrottleCount) -> f64 {
    if is { reclaim::real(delay.count) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::experiments;
    use experiment::outcome::{Job, ThrottleEnd};
    use experiment::pool;

    fn run(case: &str, policy: &str, lengths: &[f64]) -> Outcome {
        let throttle = |delayed_ms, count| ThrottleCount {
            background: false,
            reason: Reason::NoProgress,
            timeout_ms: 500.0,
            delayed_ms,
            ended: ThrottleEnd::Timeout,
            count,
        };
        Outcome {
            case: case.into(),
            policy: policy.into(),
            scale: 0.5,
            cpu_scale: 1.0,
            virtual_s: 100.0,
            jobs: vec![Job {
                is_mapper: true,
                samples: lengths.iter().map(|length| (0.0, *length)).collect(),
                ..Job::default()
            }],
            throttles: vec![throttle(500.0, 3), throttle(0.0, 1)],
            counters: vec![("pgscan_direct", 50.0), ("pgscan_kswapd", 150.0)],
            ..Outcome::default()
        }
    }

    #[test]
    fn timeouts_that_differ_are_shown_from_the_shortest_to_the_longest() {
        let with = |timeouts: [f64; 2]| {
            let [first, second] = timeouts.map(|timeout_ms| ThrottleCount {
                timeout_ms,
                ..run("4", "tidegate", &[]).throttles[0]
            });
            let delays = Delays::of(&[&first, &second], 1).unwrap();
            delays.line(("tidegate", "direct", "TURN"))
        };
        let column = |line: &str| line[53..63].trim().to_owned();
        assert_eq!(column(&with([1.0, 200.0])), "1 to 200");
        assert_eq!(column(&with([200.0, 1.2])), "1 to 200");
        assert_eq!(column(&with([500.0, 500.0])), "500");
    }

    #[test]
    fn the_tables_of_the_paper_with_the_published_values_beside() {
        let (scenario, _) = Scenario::load(experiments::by_name("stutterp").unwrap(), &[]).unwrap();
        let columns = ["linux-5.15".to_owned(), "linux-5.16-rc1".to_owned()];
        let runs = [
            run("4", "linux-5.15", &[30.0, 34.0]),
            run("7", "linux-5.15", &[40.0, 40.0]),
            run("4", "linux-5.16-rc1", &[64.0, 64.0]),
            run("7", "linux-5.16-rc1", &[20.0, 20.0]),
        ];
        let mut outcomes = runs.to_vec();
        outcomes.extend(pool::rows_together(&runs, &["4", "7"].map(str::to_owned)));
        let rows = ["4", "7", ALL].map(str::to_owned);
        let tables = Mmtests {
            scenario: &scenario,
            outcomes: &outcomes,
            rows: &rows,
            columns: &columns,
        };
        assert!(tables.applies());
        let text = tables.render();
        let has = |line: &str| assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        has(
            "Amean     mmap-4     32.0000 (   0.00%)     64.0000 *-100.00%*     31.4003 (   0.00%)   2661.0198 (-8374.50%)",
        );
        has(
            "Max-90    mmap-7     40.0000 (   0.00%)     20.0000 (  50.00%)     41.0410 (   0.00%)     41.0720 (  -0.08%)",
        );
        has(
            "Ops Direct pages scanned             200.00          200.00   1056608451.00    503594991.00",
        );
        has(
            "Ops Percentage direct scans           25.00           25.00           90.59           77.37",
        );
        // Two rows of one repetition: six sleeps of 500 ms, two of none.
        has(
            "linux-5.16-rc1     direct  VMSCAN_THROTTLE_NOPROGRESS       500        8     25.00      0.00     75.00    375.00          3.0",
        );
        has(
            "  published        direct  VMSCAN_THROTTLE_NOPROGRESS              93246     24.37     20.61     55.02    285.60      26631.1",
        );
    }
}

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

use policy::reclaim::Reason;

use super::{ROWS, Report, line};
use crate::table::{Monitor, Operation, Published, Table, head, heads};
use experiment::metrics::{reclaim, throttles};
use experiment::outcome::ThrottleCount;
use experiment::pool::ALL;
use experiment::presets;
use experiment::scenario::{ByKind, DelaysEntry};
use experiment::stats::{Better, Samples, Stat};

/// Statistics of the latencies, in order, and the metric that each one is.
const LATENCIES: [(Stat, &str); 4] = [
    (Stat::Mean, "lat_amean_ms"),
    (Stat::Stddev, "lat_stddev_ms"),
    (Stat::Max(90), "lat_max90_ms"),
    (Stat::Worst, "lat_max_ms"),
];
/// Width of a value of `Ops`: mmtests'; of a `Duration`.
const OPS_FIELD: usize = 16;
/// Columns of the delays, with their widths.
const DELAYS: [(&str, usize); 7] = [
    ("timeout ms", 10),
    ("n", 9),
    ("zero %", 10),
    ("partial %", 10),
    ("timeout %", 10),
    ("mean ms", 10),
    ("task-seconds", 13),
];

impl Report<'_> {
    pub(super) fn p0(&self) -> String {
        let mut text = String::from(
            "Latency of mapping, touching and unmapping (ms), samples of all repetitions\n",
        );
        text.push_str(&self.latencies().render());
        if self.rows.iter().any(|row| row == ALL) {
            text.push_str("\nOf the whole test, mean of the repetitions\n");
            text.push_str(&self.totals());
            text.push('\n');
            text.push_str(&self.delays());
        }
        text
    }

    fn latencies(&self) -> Table {
        let is_latency = |name: &String| LATENCIES.iter().any(|(_, metric)| name == metric);
        let published = self.published_columns(|entry| is_latency(entry.metric.get_ref()));
        let mapped = |row: &str, policy: &str| {
            let runs = self.runs(row, policy).filter_map(reclaim::mapped);
            Samples::new(runs.flatten(), Better::Lower)
        };
        let theirs = |row: &str, policy: &str| {
            let value = |metric| self.scenario.published_value(metric, row, policy);
            let values = LATENCIES.iter();
            Published(
                values
                    .filter_map(|(stat, metric)| Some((*stat, value(metric)?)))
                    .collect(),
            )
        };
        let operation = |row: &String| Operation {
            name: format!("mmap-{row}"),
            samples: self
                .columns
                .iter()
                .map(|policy| mapped(row, policy))
                .collect(),
            published: published.iter().map(|policy| theirs(row, policy)).collect(),
            better: Better::Lower,
        };
        let rows = self.rows.iter().filter(|row| *row != ALL);
        Table {
            heads: self.columns.iter().map(|policy| head(policy)).collect(),
            published_heads: published
                .iter()
                .map(|policy| published_head(policy))
                .collect(),
            operations: rows.map(operation).collect(),
            stats: LATENCIES.map(|(stat, _)| stat).into(),
            precision: 4,
        }
    }

    /// `Duration`, `Ops` and the work done, under one pair of head lines.
    fn totals(&self) -> String {
        let metrics = || ROWS.p0.iter().flat_map(|list| &list.rows).map(|row| &row.1);
        let published =
            self.published_columns(|entry| metrics().any(|name| name == entry.metric.get_ref()));
        // All blocks line up: the names of each are as wide as the widest with its first word.
        let widest = ROWS.p0.iter().map(|list| {
            let names = list.rows.iter().map(|(name, _)| name.len());
            list.title.len() + names.max().unwrap_or(0)
        });
        let widest = widest.max().unwrap_or(0);
        let own = self.columns.iter().map(|policy| head(policy));
        let all: Vec<_> = own
            .chain(published.iter().map(|policy| published_head(policy)))
            .collect();
        let mut text = heads(widest + 1, OPS_FIELD, &all);
        for list in &ROWS.p0 {
            let pad = widest - list.title.len();
            let rows = list.rows.iter().map(|(name, metric)| {
                let own = self.means(metric, ALL);
                let theirs = self.published(metric, ALL, &published);
                (format!("{name:<pad$}"), [own, theirs].concat())
            });
            let block = Monitor {
                kind: &list.title,
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
        let names = DELAYS.map(|(name, width)| (name.to_owned(), width));
        text.push_str(&line(&named(("", "by", "reason")), 0, names));
        for column in self.columns.iter() {
            let mut name = column.as_str();
            let repetitions = self.runs(ALL, column).count();
            for reason in Reason::ALL {
                for (background, by) in [(true, "kswapd"), (false, "direct")] {
                    let all = self.runs(ALL, column).flat_map(|run| &run.throttles);
                    let all = all.filter(|t| t.reason == reason && t.background == background);
                    if let Some(delays) = Delays::of(&all.collect::<Vec<_>>(), repetitions) {
                        text.push_str(&delays.line((name, by, reason.name())));
                        name = "";
                    }
                }
            }
            let published = self.scenario.delays.iter();
            for entry in published.filter(|entry| entry.column.get_ref() == column) {
                let by = match entry.by {
                    ByKind::Direct => "direct",
                    ByKind::Kswapd => "kswapd",
                    ByKind::Any => "any",
                };
                let reason = presets::reason(entry.reason.get_ref()).map_or("", Reason::name);
                text.push_str(&Delays::published(entry).line(("  published", by, reason)));
            }
        }
        text
    }
}

fn published_head(policy: &str) -> (String, String) {
    ("published".to_owned(), policy.to_owned())
}

fn named((name, by, reason): (&str, &str, &str)) -> String {
    format!("{name:<18} {by:<7} {reason:<26}")
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
    /// Of counts from this many repetitions; `None`: there are no delays.
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
            n: sum(|delay| throttles::real(delay.count)),
            zero: sum(|delay| part(throttles::is_zero(delay), delay)),
            timeout: sum(|delay| part(throttles::is_timeout(delay), delay)),
            timeout_ms: Some((shortest, longest)),
            total_ms: sum(|delay| delay.delayed_ms * throttles::real(delay.count)),
        })
    }

    fn published(entry: &DelaysEntry) -> Self {
        let n = throttles::real(entry.n);
        Self {
            n,
            zero: throttles::real(entry.zero),
            timeout: throttles::real(entry.timeout),
            timeout_ms: None,
            total_ms: n * entry.mean_ms,
        }
    }

    fn line(&self, names: (&str, &str, &str)) -> String {
        let percent = |part: f64| format!("{:.2}", 100.0 * part / self.n.max(f64::MIN_POSITIVE));
        let timeout = self.timeout_ms.map_or_else(String::new, |ends| {
            let (shortest, longest) = (format!("{:.0}", ends.0), format!("{:.0}", ends.1));
            if shortest == longest {
                shortest
            } else {
                format!("{shortest} to {longest}")
            }
        });
        let cells = [
            timeout,
            format!("{:.0}", self.n),
            percent(self.zero),
            percent(self.n - self.zero - self.timeout),
            percent(self.timeout),
            format!("{:.2}", self.total_ms / self.n.max(f64::MIN_POSITIVE)),
            format!("{:.1}", self.total_ms / 1e3),
        ];
        line(
            &named(names),
            0,
            cells.into_iter().zip(DELAYS.map(|(_, width)| width)),
        )
    }
}

fn part(is: bool, delay: &ThrottleCount) -> f64 {
    if is {
        throttles::real(delay.count)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::outcome::ThrottleEnd;

    #[test]
    fn timeouts_that_differ_are_shown_from_the_shortest_to_the_longest() {
        let with = |timeouts: [f64; 2]| {
            let [first, second] = timeouts.map(|timeout_ms| ThrottleCount {
                background: false,
                reason: Reason::NoProgress,
                timeout_ms,
                delayed_ms: 500.0,
                ended: ThrottleEnd::Timeout,
                count: 3,
            });
            let delays = Delays::of(&[&first, &second], 1).unwrap();
            delays.line(("tidegate", "direct", "TURN"))
        };
        let column = |line: &str| line[53..63].trim().to_owned();
        assert_eq!(column(&with([1.0, 200.0])), "1 to 200");
        assert_eq!(column(&with([200.0, 1.2])), "1 to 200");
        assert_eq!(column(&with([500.0, 500.0])), "500");
    }
}

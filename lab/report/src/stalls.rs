//! Waits by task and cause: pressure totals and lengths of waits, as the tables that a run prints.
//!
//! Sums are over all repetitions, and over all rows but those that stand apart. A wait's
//! percentiles are those of all its lengths together, within an eighth.

use std::collections::BTreeMap;

use experiment::outcome::{Outcome, Pressure, WaitLengths};
use experiment::pool;

/// Width of a value.
const FIELD: usize = 16;

/// All waits of one cause under one column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitRow {
    pub(crate) cause: String,
    pub(crate) policy: String,
    /// Both sums and the extremes of the lengths.
    pub(crate) waits: WaitLengths,
}

/// Parts of the time of one column, in per cent: memory some, full, I/O some, full.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PressureRow {
    pub(crate) policy: String,
    pub(crate) percent: [f64; 4],
}

/// Names of the parts.
pub(crate) const PRESSURES: [&str; 4] = ["memory some", "memory full", "io some", "io full"];

/// Pressure of each column, in order, over the outcomes given.
pub(crate) fn pressures(outcomes: &[&Outcome], columns: &[String]) -> Vec<PressureRow> {
    let row = |policy: &String| {
        let own = outcomes.iter().filter(|outcome| outcome.policy == *policy);
        let sum = own.fold(Pressure::default(), |sum, outcome| {
            let more = &outcome.pressure;
            Pressure {
                over_s: sum.over_s + more.over_s,
                memory_some_s: sum.memory_some_s + more.memory_some_s,
                memory_full_s: sum.memory_full_s + more.memory_full_s,
                io_some_s: sum.io_some_s + more.io_some_s,
                io_full_s: sum.io_full_s + more.io_full_s,
            }
        });
        let all = [
            sum.memory_some_s,
            sum.memory_full_s,
            sum.io_some_s,
            sum.io_full_s,
        ];
        (sum.over_s > 0.0).then(|| PressureRow {
            policy: policy.clone(),
            percent: all.map(|part| part / sum.over_s * 100.0),
        })
    };
    columns.iter().filter_map(row).collect()
}

/// Waits by cause, the longest altogether first, and by column within it.
pub(crate) fn waits(outcomes: &[&Outcome], columns: &[String]) -> Vec<WaitRow> {
    let mut sums: BTreeMap<(&str, usize), Vec<&WaitLengths>> = BTreeMap::new();
    for outcome in outcomes {
        let Some(column) = columns.iter().position(|policy| *policy == outcome.policy) else {
            continue;
        };
        for waits in &outcome.waits {
            sums.entry((&waits.cause, column)).or_default().push(waits);
        }
    }
    let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
    for ((cause, _), all) in &sums {
        *totals.entry(cause).or_default() += all.iter().map(|waits| waits.total_s).sum::<f64>();
    }
    let mut causes: Vec<&str> = totals.keys().copied().collect();
    causes.sort_by(|left, right| totals[right].total_cmp(&totals[left]).then(left.cmp(right)));
    let of = |cause: &str| {
        let own = sums.iter().filter(|((of, _), _)| *of == cause);
        own.map(|((cause, column), all)| WaitRow {
            cause: (*cause).to_owned(),
            policy: columns[*column].clone(),
            waits: together(cause, all),
        })
        .collect::<Vec<_>>()
    };
    causes.into_iter().flat_map(of).collect()
}

fn together(cause: &str, all: &[&WaitLengths]) -> WaitLengths {
    let mut lengths: Vec<(f64, u64)> = all.iter().flat_map(|waits| waits.lengths.clone()).collect();
    lengths.sort_by(|left, right| left.0.total_cmp(&right.0));
    let count = all.iter().map(|waits| waits.count).sum::<u64>();
    let quantile = |thousandths| figures::weighted(lengths.iter().copied(), thousandths);
    let (p50, p99) = (quantile(500), quantile(990));
    WaitLengths {
        cause: cause.to_owned(),
        count,
        timed_out: all.iter().map(|waits| waits.timed_out).sum(),
        total_s: all.iter().map(|waits| waits.total_s).sum(),
        p50_ms: p50.unwrap_or(0.0),
        p99_ms: p99.unwrap_or(0.0),
        max_ms: all.iter().map(|waits| waits.max_ms).fold(0.0, f64::max),
        lengths,
        ends: ends(all),
    }
}

/// The ends of the waits, the most frequent first.
fn ends(all: &[&WaitLengths]) -> Vec<(String, u64, f64)> {
    let mut sums: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for (by, count, total_s) in all.iter().flat_map(|waits| &waits.ends) {
        let sum = sums.entry(by).or_default();
        *sum = (sum.0 + count, sum.1 + total_s);
    }
    let mut ends: Vec<_> = sums
        .into_iter()
        .map(|(by, (count, total_s))| (by.to_owned(), count, total_s))
        .collect();
    ends.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    ends
}

/// Both as text: what a run prints below its tables. Empty if nothing was watched.
pub(crate) fn render(outcomes: &[Outcome], columns: &[String]) -> String {
    let summed: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| !outcome.apart && outcome.case != pool::ALL)
        .collect();
    let pressures = pressures(&summed, columns);
    let waits = waits(&summed, columns);
    let mut text = String::new();
    if !pressures.is_empty() {
        text.push_str(
            "\nPressure: % of the time in which somebody was stalled (some), and nobody else ran (full)\n",
        );
        let heads = pressures.iter().map(|row| row.policy.as_str());
        text.push_str(&line("", heads.map(str::to_owned)));
        for (index, name) in PRESSURES.iter().enumerate() {
            let values = pressures.iter();
            text.push_str(&line(
                name,
                values.map(|row| format!("{:.2}", row.percent[index])),
            ));
        }
    }
    text.push_str(&longest(outcomes, columns));
    if !waits.is_empty() {
        text.push_str(
            "\nWaits by cause: number, task-seconds, lengths in ms, and what ended them\n",
        );
        text.push_str(&wait_line(
            "cause",
            "column",
            ["waits", "task-s", "p50", "p99", "max", "ended by"].map(str::to_owned),
        ));
        for row in &waits {
            text.push_str(&wait_line(&row.cause, &row.policy, wait_values(&row.waits)));
        }
    }
    text
}

/// Of each row and column the longest sample of a job that measures itself, and what it consisted
/// of.
fn longest(outcomes: &[Outcome], columns: &[String]) -> String {
    let mut rows: Vec<&str> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.case != pool::ALL) {
        if !rows.contains(&outcome.case.as_str()) {
            rows.push(&outcome.case);
        }
    }
    let mut lines = String::new();
    for (row, column) in rows
        .iter()
        .flat_map(|row| columns.iter().map(move |of| (row, of)))
    {
        let own = outcomes
            .iter()
            .filter(|outcome| outcome.case == **row && outcome.policy == *column);
        let samples = own.flat_map(|outcome| {
            let jobs = outcome.jobs.iter().filter(|job| job.measures());
            jobs.flat_map(|job| {
                let samples = outcome
                    .longest
                    .iter()
                    .filter(|sample| sample.task == job.task);
                samples.map(move |sample| (job, sample))
            })
        });
        let Some((job, sample)) =
            samples.max_by(|left, right| left.1.took_ms.total_cmp(&right.1.took_ms))
        else {
            continue;
        };
        let waited: f64 = sample.parts.iter().map(|(_, ms)| ms).sum();
        let runs = ("runs".to_owned(), (sample.took_ms - waited).max(0.0));
        let parts = sample.parts.iter().chain(core::iter::once(&runs));
        let parts: Vec<String> = parts
            .map(|(cause, ms)| format!("{cause} {ms:.0}"))
            .collect();
        lines.push_str(&format!(
            "  {row:<6} {column:<18} {:<12}{:>10.1}{:>9.2}  {}\n",
            job.name,
            sample.took_ms,
            sample.at_s,
            parts.join(", ")
        ));
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "\nLongest samples: ms, when they ended (s), and what they consisted of (ms)\n  {:<6} {:<18} \
         {:<12}{:>10}{:>9}  of which\n{lines}",
        "row", "column", "job", "ms", "at s"
    )
}

/// The cells of a row of waits, as text.
pub(crate) fn wait_values(waits: &WaitLengths) -> [String; 6] {
    [
        waits.count.to_string(),
        format!("{:.2}", waits.total_s),
        format!("{:.3}", waits.p50_ms),
        format!("{:.3}", waits.p99_ms),
        format!("{:.3}", waits.max_ms),
        ended_by(&waits.ends),
    ]
}

/// The ends of waits, with how many of each.
fn ended_by(ends: &[(String, u64, f64)]) -> String {
    let ends = ends.iter();
    let ends: Vec<String> = ends.map(|(by, count, _)| format!("{by} {count}")).collect();
    ends.join(", ")
}

fn line(name: &str, values: impl Iterator<Item = String>) -> String {
    let values: String = values.map(|value| format!("{value:>FIELD$}")).collect();
    format!("  {name:<12}{values}\n")
}

fn wait_line(cause: &str, policy: &str, values: [String; 6]) -> String {
    let [values @ .., ends] = values;
    let values: String = values.iter().map(|value| format!("{value:>12}")).collect();
    format!("  {cause:<18} {policy:<20}{values}  {ends}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, waits: &[(&str, f64, u64)]) -> Outcome {
        Outcome {
            policy: policy.into(),
            pressure: Pressure {
                over_s: 10.0,
                memory_some_s: 5.0,
                memory_full_s: 1.0,
                ..Pressure::default()
            },
            waits: waits
                .iter()
                .map(|(cause, ms, count)| WaitLengths {
                    cause: (*cause).into(),
                    count: *count,
                    total_s: ms / 1e3,
                    max_ms: *ms,
                    lengths: vec![(*ms, *count)],
                    ends: vec![
                        ("deadline".to_owned(), 1, ms / 1e3),
                        ("pages freed".to_owned(), count - 1, 0.0),
                    ],
                    ..WaitLengths::default()
                })
                .collect(),
            ..Outcome::default()
        }
    }

    #[test]
    fn lengths_of_all_runs_of_a_column_count_together() {
        let runs = [
            run("a", &[("Memory", 5.0, 99), ("ReadIo", 900.0, 1)]),
            run("a", &[("Memory", 80.0, 1)]),
            run("b", &[("Memory", 7.0, 1)]),
        ];
        let runs: Vec<&Outcome> = runs.iter().collect();
        let columns = ["a".to_owned(), "b".to_owned()];
        let rows = waits(&runs, &columns);
        let names: Vec<_> = rows
            .iter()
            .map(|row| (row.cause.as_str(), row.policy.as_str()))
            .collect();
        assert_eq!(names, [("ReadIo", "a"), ("Memory", "a"), ("Memory", "b")]);
        let memory = &rows[1].waits;
        assert_eq!(
            (memory.count, memory.p50_ms, memory.p99_ms),
            (100, 5.0, 5.0)
        );
        assert_eq!(memory.max_ms, 80.0);
        let ends: Vec<_> = memory
            .ends
            .iter()
            .map(|end| (end.0.as_str(), end.1))
            .collect();
        assert_eq!(ends, [("pages freed", 98), ("deadline", 2)]);
    }

    #[test]
    fn pressure_is_a_part_of_all_runs_time() {
        let runs = [run("a", &[]), run("a", &[])];
        let runs: Vec<&Outcome> = runs.iter().collect();
        let rows = pressures(&runs, &["a".to_owned(), "none".to_owned()]);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].percent, [50.0, 10.0, 0.0, 0.0]);
    }

    #[test]
    fn what_stands_apart_is_not_summed_and_without_a_watch_nothing_is_printed() {
        let mut runs = vec![run("a", &[("Memory", 5.0, 2)])];
        let text = render(&runs, &["a".to_owned()]);
        assert!(text.contains("memory some            50.00"), "{text}");
        assert!(text.contains("Memory             a"), "{text}");
        assert!(text.contains("  deadline 1, pages freed 1\n"), "{text}");
        runs[0].apart = true;
        assert_eq!(render(&runs, &["a".to_owned()]), "");
    }
}

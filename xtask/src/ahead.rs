//! `cargo xtask ahead`: our own column beside those of Linux as it is today, in every experiment.
//!
//! ```text
//!   experiments/ahead.txt    row and metric of each experiment: the columns, with two seeds
//!   experiments/behind.txt   where ours is more than 3 % behind the best of them, and why
//!   experiments/judged.txt   the metrics
//! ```
//!
//! The command runs the experiments and compares with the first file; `--bless` writes it. A
//! value that falls behind has to get a cause in the second, and one that is behind no more has to
//! lose it: a change that loses says so in its commit, and so does one that wins.
//!
//! Runs are those of one repetition, at the scenario's own scale but for `SCALES`. They are the
//! same on every machine, as in `lab`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::csv::{self, Table};
use crate::experiments;
use crate::lab::run_once;
use crate::workspace::{Workspace, build_program, root};
use crate::{Arguments, Result};

/// Ours, and what it is held against.
const COLUMNS: [&str; 3] = ["tidegate", "linux-6.12", "linux-6.12-mglru"];
/// Master seeds.
const SEEDS: [&str; 2] = ["1", "2"];
/// Experiments that are run smaller than their scenario says: two as `reproduce` runs them, and one
/// that would take half of the time of all.
const SCALES: [(&str, &str); 3] = [
    ("fsmark-small", "0.125"),
    ("zone-dd", "0.5"),
    ("zone-fsmark", "0.0625"),
];
/// Longest time for one run of an experiment.
const RUN_MAX: Duration = Duration::from_secs(60 * 60);
/// A value is behind by more than this part of the best other one.
const BEHIND: f64 = 0.03;

const TABLE: &str = "experiments/ahead.txt";
const CAUSES: &str = "experiments/behind.txt";
const JUDGED: &str = "experiments/judged.txt";

const TABLE_HEAD: &str = "\
# Our own column beside those of Linux as it is today: experiment, row, metric (< less is better, > more is), then with seeds 1 and 2
# the values of tidegate, linux-6.12 and linux-6.12-mglru; `behind`: ours is more than 3 % behind the best other, by the mean of both.
# Written by `cargo xtask ahead --bless [EXPERIMENT]...`. A commit that changes a line says why.
";

/// Runs the experiments and compares them with the table, or writes it.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut names = Vec::new();
    let mut blesses = false;
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--bless" => blesses = true,
            option if option.starts_with('-') => {
                return Err(format!("ahead: unexpected '{option}'; it takes --bless"));
            }
            _ => names.push(word),
        }
    }
    let known = experiments::named("ahead", &names)?;
    if names.is_empty() {
        names.clone_from(&known);
    }
    let mut stored = parse(&read(TABLE)?, &known)?;
    let listed = read(JUDGED)?;
    let metrics = judged(&listed);
    let program = build_program()?;
    let target = Workspace::load()?.target;
    let mut differ = Vec::new();
    for name in &names {
        let out = target.join("xtask/ahead").join(name);
        let lines = measure(&program, name, &metrics, &out)?;
        let before = stored
            .insert(name.clone(), lines.clone())
            .unwrap_or_default();
        let changed: Vec<String> = lines
            .iter()
            .filter(|line| !before.contains(line))
            .cloned()
            .collect();
        let gone = before.iter().filter(|line| !lines.contains(line)).count();
        let behind = lines.iter().filter(|line| is_behind(line)).count();
        println!(
            "    {name}: {} lines, {behind} behind, {} not as stored",
            lines.len(),
            changed.len().max(gone)
        );
        if changed.is_empty() && gone > 0 {
            differ.push(format!("{name}: {gone} lines are no more"));
        }
        differ.extend(changed);
        if blesses {
            let text = text(&stored);
            fs::write(root().join(TABLE), text).map_err(|error| format!("{TABLE}: {error}"))?;
        }
    }
    if !blesses && !differ.is_empty() {
        return Err(format!(
            "not as in {TABLE}:\n  {}\nIf the change is on purpose: cargo xtask ahead --bless {}, and say in the commit what it wins and loses",
            differ.join("\n  "),
            names.join(" ")
        ));
    }
    let wrong = without_cause(&stored, &read(CAUSES)?);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(root().join(name)).map_err(|error| format!("{name}: {error}"))
}

fn judged(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Lines of each experiment.
type Lines = BTreeMap<String, Vec<String>>;

/// The lines of the table; those of experiments that are no more are left out.
fn parse(text: &str, known: &[String]) -> Result<Lines> {
    let mut lines = Lines::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let words = line.split(' ').count();
        let Some((name, _)) = line.split_once(' ').filter(|_| words == 10 || words == 11) else {
            return Err(format!("{TABLE}:{}: not ten words", at + 1));
        };
        if known.iter().any(|known| known == name) {
            lines
                .entry(name.to_owned())
                .or_default()
                .push(line.to_owned());
        }
    }
    Ok(lines)
}

fn text(lines: &Lines) -> String {
    let mut text = TABLE_HEAD.to_owned();
    for line in lines.values().flatten() {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn is_behind(line: &str) -> bool {
    line.ends_with(" behind")
}

/// Values of a row in a metric: by seed and column.
#[derive(Clone, Copy, Default)]
struct Cell {
    lower: bool,
    values: [[Option<f64>; COLUMNS.len()]; SEEDS.len()],
}

impl Cell {
    /// The mean of both seeds.
    fn mean(&self, column: usize) -> Option<f64> {
        let values = self.values.iter().map(|seed| seed[column]);
        let values: Vec<f64> = values.collect::<Option<_>>()?;
        let count = u32::try_from(values.len()).ok()?;
        Some(values.iter().sum::<f64>() / f64::from(count))
    }

    /// Ours has a value, another column has one, and they are not all the same.
    fn says_something(&self) -> bool {
        let ours = self.mean(0);
        let others = (1..COLUMNS.len()).filter_map(|column| self.mean(column));
        ours.is_some_and(|ours| {
            others
                .into_iter()
                .any(|other| figure(other) != figure(ours))
        })
    }

    fn is_behind(&self) -> bool {
        let others = (1..COLUMNS.len()).filter_map(|column| self.mean(column));
        let best = others.reduce(if self.lower { f64::min } else { f64::max });
        match (self.mean(0), best) {
            (Some(ours), Some(best)) if self.lower => ours > best * (1.0 + BEHIND),
            (Some(ours), Some(best)) => ours < best * (1.0 - BEHIND),
            _ => false,
        }
    }

    fn line(&self, name: &str, row: &str, metric: &str) -> String {
        let direction = if self.lower { '<' } else { '>' };
        let mut line = format!("{name} {row} {metric} {direction}");
        for value in self.values.iter().flatten() {
            let _ = write!(line, " {}", value.map_or("-".to_owned(), figure));
        }
        if self.is_behind() {
            line.push_str(" behind");
        }
        line
    }
}

/// Four digits.
fn figure(value: f64) -> String {
    let digits = [1000.0, 100.0, 10.0, 1.0, 0.1, 0.01, 0.001];
    let decimals = digits.iter().position(|least| value.abs() >= *least);
    // No zero is negative.
    let text = format!("{:.*}", decimals.unwrap_or(digits.len()), value + 0.0);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Runs an experiment with each seed, in a folder of its own; its lines.
fn measure(program: &Path, name: &str, metrics: &[&str], out: &Path) -> Result<Vec<String>> {
    let scale = SCALES.iter().find(|(own, _)| *own == name);
    let scale = scale.map(|(_, scale)| *scale);
    let columns = COLUMNS.join(",");
    let mut cells: BTreeMap<(String, usize), Cell> = BTreeMap::new();
    for (seed_at, seed) in SEEDS.into_iter().enumerate() {
        let out = out.join(seed);
        let options = ["--seed", seed, "--column", &columns];
        run_once(program, name, scale, &options, &out, RUN_MAX)?;
        let table = Table::read(&csv::only(&out, "samples.csv")?)?;
        for sample in
            table.select(&["run_id", "phase", "task_kind", "metric", "better", "value"])?
        {
            let [run, "run", "run", metric, better, value] = sample[..] else {
                continue;
            };
            let Some(metric_at) = metrics.iter().position(|known| *known == metric) else {
                continue;
            };
            let [row, column, _] = run.split('/').collect::<Vec<_>>()[..] else {
                return Err(format!("{name}: {run} is no row, column and repetition"));
            };
            let Some(column_at) = COLUMNS.iter().position(|known| *known == column) else {
                continue;
            };
            let cell = cells.entry((row.to_owned(), metric_at)).or_default();
            cell.lower = better == "lower";
            cell.values[seed_at][column_at] = value.parse().ok();
        }
    }
    if cells.is_empty() {
        return Err(format!("{name}: no values of {}", metrics.join(", ")));
    }
    let said = cells.iter().filter(|(_, cell)| cell.says_something());
    Ok(said
        .map(|((row, metric), cell)| cell.line(name, row, metrics[*metric]))
        .collect())
}

/// Problems with causes: lines that are behind and have none, and causes of none.
///
/// A cause is `EXPERIMENT ROW METRIC: words`; a row may be `*`.
fn without_cause(lines: &Lines, causes: &str) -> Vec<String> {
    let behind: Vec<[&str; 3]> = lines
        .values()
        .flatten()
        .filter(|line| is_behind(line))
        .filter_map(|line| line.split(' ').take(3).collect::<Vec<_>>().try_into().ok())
        .collect();
    let mut problems = Vec::new();
    let mut named = Vec::new();
    for (at, line) in causes
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
    {
        let Some((place, cause)) = line.split_once(": ").filter(|(_, cause)| !cause.is_empty())
        else {
            problems.push(format!(
                "{CAUSES}:{}: no `EXPERIMENT ROW METRIC: cause`",
                at + 1
            ));
            continue;
        };
        let words: Vec<&str> = place.split(' ').collect();
        let is_of = |cell: &&[&str; 3]| {
            let mut pairs = words.iter().zip(cell.iter());
            words.len() == 3 && pairs.all(|(word, own)| word == own || *word == "*")
        };
        let before = named.len();
        named.extend(behind.iter().filter(is_of));
        if named.len() == before {
            problems.push(format!(
                "{CAUSES}:{}: {place} is not behind: {cause}",
                at + 1
            ));
        }
    }
    let unnamed = behind.iter().filter(|cell| !named.contains(cell));
    problems.extend(unnamed.map(|cell| format!("{CAUSES}: no cause for {}", cell.join(" "))));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(lower: bool, values: [[f64; 3]; 2]) -> Cell {
        Cell {
            lower,
            values: values.map(|seed| seed.map(Some)),
        }
    }

    #[test]
    fn behind_is_three_per_cent_beside_the_best_other() {
        let of = |lower, ours| cell(lower, [[ours, 100.0, 120.0]; 2]).is_behind();
        assert!(of(true, 103.1) && !of(true, 102.9));
        assert!(of(false, 116.0) && !of(false, 117.0));
        let noisy = cell(true, [[110.0, 100.0, 120.0], [90.0, 100.0, 120.0]]);
        assert!(!noisy.is_behind(), "by the mean");
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, said) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.000_812_5, "0.0008125"),
            (0.364, "0.364"),
            (12.345_6, "12.35"),
            (12_345.6, "12346"),
            (100.0, "100"),
        ] {
            assert_eq!(figure(value), said);
        }
    }

    #[test]
    fn what_is_behind_has_a_cause_and_no_cause_is_of_nothing() {
        let line = cell(true, [[2.0, 1.0, 1.0]; 2]).line("dd", "1", "system");
        assert_eq!(line, "dd 1 system < 2 1 1 2 1 1 behind");
        let lines = Lines::from([("dd".to_owned(), vec![line])]);
        assert_eq!(without_cause(&lines, "").len(), 1);
        assert_eq!(without_cause(&lines, "dd 1 system: it costs more"), [""; 0]);
        assert_eq!(without_cause(&lines, "dd * system: it costs more"), [""; 0]);
        assert_eq!(
            without_cause(&lines, "# dd * system: no\ndd 1 jain: no").len(),
            2
        );
        assert_eq!(
            without_cause(&lines, "dd * *:"),
            [
                "experiments/behind.txt:1: no `EXPERIMENT ROW METRIC: cause`",
                "experiments/behind.txt: no cause for dd 1 system",
            ]
        );
    }

    #[test]
    fn the_table_has_every_experiment_and_each_loss_its_cause() {
        let known = experiments::names().unwrap();
        let stored = parse(&read(TABLE).unwrap(), &known).unwrap();
        let missing: Vec<_> = known
            .iter()
            .filter(|name| !stored.contains_key(*name))
            .collect();
        assert!(missing.is_empty(), "cargo xtask ahead --bless {missing:?}");
        assert_eq!(text(&stored), read(TABLE).unwrap());
        assert_eq!(without_cause(&stored, &read(CAUSES).unwrap()), [""; 0]);
    }
}

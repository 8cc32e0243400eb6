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
//! `--column tidegate` runs that column alone, a third of the time, and keeps what is stored of the
//! others: a change of our own law leaves theirs alone, as `cargo xtask lab` shows.
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
# Written by `cargo xtask ahead --bless [--column COLUMN] [EXPERIMENT]...`. A commit that changes a line says why.
";

/// Runs the experiments and compares them with the table, or writes it.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut names = Vec::new();
    let mut columns = Vec::new();
    let mut blesses = false;
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--bless" => blesses = true,
            "--column" => columns.push(column_at(&arguments.value_of("--column")?)?),
            option if option.starts_with('-') => {
                let takes = "it takes --bless and --column";
                return Err(format!("ahead: unexpected '{option}'; {takes}"));
            }
            _ => names.push(word),
        }
    }
    let known = experiments::named("ahead", &names)?;
    if names.is_empty() {
        names.clone_from(&known);
    }
    let listed = read(JUDGED)?;
    let metrics = judged(&listed);
    let mut stored = parse(&read(TABLE)?, &known, &metrics)?;
    let program = build_program()?;
    let target = Workspace::load()?.target;
    let mut differ = Vec::new();
    for name in &names {
        let before = stored.remove(name).unwrap_or_default();
        let out = target.join("xtask/ahead").join(name);
        let after = measure(&program, name, &metrics, &columns, &before, &out)?;
        let lines = lines(name, &after, &metrics);
        let before = self::lines(name, &before, &metrics);
        let (changed, gone) = (missing(&lines, &before), missing(&before, &lines));
        println!(
            "    {name}: {} lines, {} behind, {} not as stored",
            lines.len(),
            after.values().filter(|cell| cell.is_behind()).count(),
            changed.len().max(gone.len())
        );
        if changed.is_empty() && !gone.is_empty() {
            differ.push(format!("{name}: {} lines are no more", gone.len()));
        }
        differ.extend(changed);
        stored.insert(name.clone(), after);
        if blesses {
            let text = text(&stored, &metrics);
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
    let wrong = without_cause(&stored, &metrics, &read(CAUSES)?);
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

fn column_at(name: &str) -> Result<usize> {
    let at = COLUMNS.iter().position(|known| *known == name);
    at.ok_or_else(|| format!("ahead: no column '{name}' among {}", COLUMNS.join(", ")))
}

/// Lines of the first that the second has not.
fn missing(of: &[String], from: &[String]) -> Vec<String> {
    let missing = of.iter().filter(|line| !from.contains(line));
    missing.cloned().collect()
}

/// Cells of an experiment, by row and number of the metric.
type Cells = BTreeMap<(String, usize), Cell>;

/// Cells of each experiment.
type Stored = BTreeMap<String, Cells>;

/// The cells of the table; those of experiments that are no more are left out.
fn parse(text: &str, known: &[String], metrics: &[&str]) -> Result<Stored> {
    let mut stored = Stored::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let wrong = |what| format!("{TABLE}:{}: {what}", at + 1);
        let (&[name, row, metric, direction], values) = words
            .split_first_chunk()
            .filter(|_| words.len() == 10 || words.len() == 11)
            .ok_or_else(|| wrong("not ten words"))?;
        let metric = metrics.iter().position(|judged| *judged == metric);
        let metric = metric.ok_or_else(|| wrong("the metric is not in experiments/judged.txt"))?;
        let mut cell = Cell {
            lower: direction == "<",
            ..Cell::default()
        };
        for (place, value) in cell.values.iter_mut().flatten().zip(values) {
            *place = value.parse().ok();
        }
        if known.iter().any(|known| known == name) {
            let cells = stored.entry(name.to_owned()).or_default();
            cells.insert((row.to_owned(), metric), cell);
        }
    }
    Ok(stored)
}

fn lines(name: &str, cells: &Cells, metrics: &[&str]) -> Vec<String> {
    let line = |((row, metric), cell): (&(String, usize), &Cell)| {
        cell.line(&place(name, row, metrics[*metric]))
    };
    cells.iter().map(line).collect()
}

fn place(name: &str, row: &str, metric: &str) -> String {
    format!("{name} {row} {metric}")
}

fn text(stored: &Stored, metrics: &[&str]) -> String {
    let mut text = TABLE_HEAD.to_owned();
    for (name, cells) in stored {
        for line in lines(name, cells, metrics) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// Values of a row in a metric, with four digits: by seed and column.
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

    /// The best of the others, if one has a value.
    fn best_other(&self) -> Option<f64> {
        let others = (1..COLUMNS.len()).filter_map(|column| self.mean(column));
        others.reduce(if self.lower { f64::min } else { f64::max })
    }

    fn is_behind(&self) -> bool {
        match (self.mean(0), self.best_other()) {
            (Some(ours), Some(best)) if self.lower => ours > best * (1.0 + BEHIND),
            (Some(ours), Some(best)) => ours < best * (1.0 - BEHIND),
            _ => false,
        }
    }

    fn line(&self, place: &str) -> String {
        let direction = if self.lower { '<' } else { '>' };
        let mut line = format!("{place} {direction}");
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

/// Runs an experiment with each seed, in a folder of its own; its cells. Columns that were not
/// chosen have the values of `stored`.
fn measure(
    program: &Path,
    name: &str,
    metrics: &[&str],
    chosen: &[usize],
    stored: &Cells,
    out: &Path,
) -> Result<Cells> {
    let scale = SCALES.iter().find(|(own, _)| *own == name);
    let scale = scale.map(|(_, scale)| *scale);
    let runs = |column: &usize| chosen.is_empty() || chosen.contains(column);
    let ran: Vec<&str> = (0..COLUMNS.len())
        .filter(runs)
        .map(|column| COLUMNS[column])
        .collect();
    let columns = ran.join(",");
    let mut cells = Cells::new();
    if !chosen.is_empty() {
        cells.clone_from(stored);
        for seed in cells.values_mut().flat_map(|cell| &mut cell.values) {
            for column in chosen {
                seed[*column] = None;
            }
        }
    }
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
            if !chosen.is_empty() && !stored.keys().any(|(known, _)| known == row) {
                return Err(format!(
                    "{name}: {TABLE} has no row {row}: run all columns, without --column"
                ));
            }
            let Some(column_at) = COLUMNS.iter().position(|known| *known == column) else {
                continue;
            };
            let cell = cells.entry((row.to_owned(), metric_at)).or_default();
            cell.lower = better == "lower";
            let value = value.parse().ok().map(figure);
            cell.values[seed_at][column_at] = value.and_then(|value| value.parse().ok());
        }
    }
    // A value that nothing stands beside says nothing.
    cells.retain(|_, cell| cell.mean(0).is_some() && cell.best_other().is_some());
    if cells.is_empty() {
        return Err(format!("{name}: no values of {}", metrics.join(", ")));
    }
    Ok(cells)
}

/// Problems with causes: lines that are behind and have none, and causes of none.
///
/// A cause is `EXPERIMENT ROW METRIC: words`; a row may be `*`.
fn without_cause(stored: &Stored, metrics: &[&str], causes: &str) -> Vec<String> {
    let mut behind = Vec::new();
    for (name, cells) in stored {
        let lost = cells.iter().filter(|(_, cell)| cell.is_behind());
        behind.extend(lost.map(|((row, metric), _)| [name, row.as_str(), metrics[*metric]]));
    }
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
        let line = "dd 1 system < 2 1 1 2 1 1 behind\n";
        let metrics = ["jain", "system"];
        let stored = parse(line, &["dd".to_owned()], &metrics).unwrap();
        assert_eq!(text(&stored, &metrics), format!("{TABLE_HEAD}{line}"));
        let wrong = |causes| without_cause(&stored, &metrics, causes);
        assert_eq!(wrong("").len(), 1);
        assert_eq!(wrong("dd 1 system: it costs more"), [""; 0]);
        assert_eq!(wrong("dd * system: it costs more"), [""; 0]);
        assert_eq!(wrong("# dd * system: no\ndd 1 jain: no").len(), 2);
        assert_eq!(
            wrong("dd * *:"),
            [
                "experiments/behind.txt:1: no `EXPERIMENT ROW METRIC: cause`",
                "experiments/behind.txt: no cause for dd 1 system",
            ]
        );
    }

    #[test]
    fn the_table_has_every_experiment_and_each_loss_its_cause() {
        let known = experiments::names().unwrap();
        let listed = read(JUDGED).unwrap();
        let metrics = judged(&listed);
        let stored = parse(&read(TABLE).unwrap(), &known, &metrics).unwrap();
        let missing: Vec<_> = known
            .iter()
            .filter(|name| !stored.contains_key(*name))
            .collect();
        assert!(missing.is_empty(), "cargo xtask ahead --bless {missing:?}");
        assert_eq!(text(&stored, &metrics), read(TABLE).unwrap());
        let causes = read(CAUSES).unwrap();
        assert_eq!(without_cause(&stored, &metrics, &causes), [""; 0]);
    }
}

//! The comparison table in the layout of mmtests, byte for byte.
//!
//! ```text
//!                                    6.1.0                  6.1.0
//!                                  vanilla               policy-a
//! Amean     mmap-4      30.0000 (   0.00%)     33.0000 ( -10.00%)
//! ```
//!
//! The first columns are the statistic and the operation, left-aligned; then for each column of the
//! experiment a value `%12.Pf` and its change against the first column, positive when better, in
//! brackets that are stars where the difference of the means is significant. Published columns
//! follow on the right, compared with the first published one.
//!
//! Source: experiments B6 "Format".

use std::fmt::Write as _;

use experiment::stats::{Better, Samples, Stat, percent};

/// Width of a value.
const FIELD: usize = 12;
/// Width of a column: value, space, bracket, seven for the change, per cent sign, bracket.
const COLUMN: usize = FIELD + 7 + 4;
/// The statistic's column is at least this wide, so that tables of one report line up.
const STAT: usize = 9;

/// One operation in the table: its samples per column.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Name, for example `real-ext4`.
    pub name: String,
    /// Samples per column; empty: not measured.
    pub samples: Vec<Samples>,
    /// Published values, one per published column.
    pub published: Vec<Published>,
    /// Direction.
    pub better: Better,
}

/// The published values of one operation in one column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published(pub Vec<(Stat, f64)>);

impl Published {
    /// A mean alone, if there is one.
    #[must_use]
    pub(crate) fn mean(value: Option<f64>) -> Self {
        Self(value.map(|value| (Stat::Mean, value)).into_iter().collect())
    }

    fn value(&self, stat: Stat) -> Option<f64> {
        let found = self.0.iter().find(|(known, _)| *known == stat);
        found.map(|(_, value)| *value)
    }
}

/// A block of rows over the same columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Column heads: (first line, second line).
    pub heads: Vec<(String, String)>,
    /// Heads of the published columns.
    pub published_heads: Vec<(String, String)>,
    /// Operations, in order.
    pub operations: Vec<Operation>,
    /// Statistics, in order: all operations for one, then the next.
    pub stats: Vec<Stat>,
    /// Digits after the point.
    pub precision: usize,
}

/// Splits a name at its first '-' for the two lines of the head; an "-rcN" stays left.
#[must_use]
pub(crate) fn head(name: &str) -> (String, String) {
    let mut cut = name.find('-');
    if let Some(at) = cut {
        let rest = &name[at + 1..];
        let number = rest.strip_prefix("rc").unwrap_or("");
        let digits = number.len()
            - number
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        if digits > 0 {
            let end = at + 3 + digits;
            cut = name[end..].starts_with('-').then_some(end);
            if cut.is_none() && end == name.len() {
                return (name.to_owned(), String::new());
            }
        }
    }
    match cut {
        Some(at) => (name[..at].to_owned(), name[at + 1..].to_owned()),
        None => (name.to_owned(), String::new()),
    }
}

/// The two head lines of columns of that width.
pub(crate) fn heads(indent: usize, width: usize, heads: &[(String, String)]) -> String {
    let lines = [false, true].map(|second| {
        let parts = heads.iter();
        let parts = parts.map(|head| if second { &head.1 } else { &head.0 });
        let parts: String = parts.map(|part| format!("{part:>width$}")).collect();
        format!("{}\n", format!("{:indent$}{parts}", "").trim_end())
    });
    lines.concat()
}

impl Table {
    /// The table as text, each line ended.
    #[must_use]
    pub(crate) fn render(&self) -> String {
        let width = self
            .operations
            .iter()
            .map(|operation| operation.name.len())
            .max()
            .unwrap_or(0);
        let labels = self.stats.iter().flat_map(|stat| {
            self.operations
                .iter()
                .map(|operation| stat.label(operation.better).len())
        });
        let stat_width = labels.max().unwrap_or(0).max(STAT);
        let all: Vec<_> = [self.heads.as_slice(), &self.published_heads].concat();
        let mut text = heads(stat_width + 1 + width, COLUMN, &all);
        for stat in &self.stats {
            for operation in &self.operations {
                let label = stat.label(operation.better);
                let mut line = format!("{label:<stat_width$} {:<width$}", operation.name);
                self.render_cells(&mut line, operation, *stat);
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text
    }

    fn render_cells(&self, line: &mut String, operation: &Operation, stat: Stat) {
        let direction = stat.direction(operation.better);
        let base = operation.samples.first();
        let base_value = base.and_then(|samples| samples.value(stat));
        for (index, samples) in operation.samples.iter().enumerate() {
            let star = index > 0
                && stat == Stat::Mean
                && base.is_some_and(|base| samples.is_significant(base));
            self.cell(line, base_value, samples.value(stat), direction, star);
        }
        let published = || operation.published.iter().map(|column| column.value(stat));
        if published().any(|value| value.is_some()) || stat == Stat::Mean {
            let base = published().next().flatten();
            for value in published() {
                self.cell(line, base, value, direction, false);
            }
        }
    }

    fn cell(
        &self,
        line: &mut String,
        base: Option<f64>,
        value: Option<f64>,
        direction: Better,
        star: bool,
    ) {
        let precision = self.precision;
        let Some(value) = value.filter(|value| !value.is_nan()) else {
            let _ = write!(line, "{:>FIELD$}{:11}", "NA", "");
            return;
        };
        let shown = unsigned_zero(value, precision);
        let _ = write!(line, "{shown:FIELD$.precision$}");
        let Some(base) = base.filter(|base| !base.is_nan()) else {
            let _ = write!(line, "{:11}", "");
            return;
        };
        let (open, close) = if star { ('*', '*') } else { ('(', ')') };
        let _ = write!(
            line,
            " {open}{:7.2}%{close}",
            percent(base, value, direction)
        );
    }
}

/// The value, or zero when it would be printed as minus zero.
fn unsigned_zero(value: f64, precision: usize) -> f64 {
    let digits = i32::try_from(precision).unwrap_or(i32::MAX);
    if value.abs() * 10_f64.powi(digits) < 0.5 {
        0.0
    } else {
        value
    }
}

/// Rows of plain values without percentages: `Duration System  100.00  11.00`.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    /// First word of every row: `Ops`, `Duration`.
    pub kind: &'static str,
    /// Width of a value.
    pub field: usize,
    /// Name and one value per column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Monitor {
    /// The rows as text, each line ended.
    #[must_use]
    pub(crate) fn render(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (name, values) in &self.rows {
            let _ = write!(text, "{} {name:<width$}", self.kind);
            for value in values {
                let field = self.field;
                let _ = match value {
                    Some(value) => write!(text, "{:field$.2}", unsigned_zero(*value, 2)),
                    None => write!(text, "{:>field$}", "NA"),
                };
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three samples with exactly this mean and sample deviation.
    fn around(mean: f64, deviation: f64) -> Samples {
        Samples::new([mean - deviation, mean, mean + deviation], Better::Lower)
    }

    fn operation(name: &str, columns: &[(f64, f64)]) -> Operation {
        Operation {
            name: name.into(),
            samples: columns
                .iter()
                .map(|(mean, deviation)| around(*mean, *deviation))
                .collect(),
            published: Vec::new(),
            better: Better::Lower,
        }
    }

    #[test]
    fn the_layout_of_the_reference_byte_for_byte() {
        let table = Table {
            heads: ["6.1.0-vanilla", "6.1.0-policy-a", "6.1.0-policy-b"]
                .map(head)
                .into(),
            published_heads: Vec::new(),
            operations: vec![
                operation("mmap-4", &[(30.0, 4.0), (33.0, 8.0), (15.0, 2.0)]),
                operation("mmap-12", &[(60.0, 1.0), (90.0, 1.0), (57.0, 6.0)]),
            ],
            stats: vec![Stat::Mean, Stat::Stddev],
            precision: 4,
        };
        // The four lines of the reference, then the one its excerpt leaves out.
        let expected = "
                                   6.1.0                  6.1.0                  6.1.0
                                 vanilla               policy-a               policy-b
Amean     mmap-4      30.0000 (   0.00%)     33.0000 ( -10.00%)     15.0000 *  50.00%*
Amean     mmap-12     60.0000 (   0.00%)     90.0000 * -50.00%*     57.0000 (   5.00%)
Stddev    mmap-4       4.0000 (   0.00%)      8.0000 (-100.00%)      2.0000 (  50.00%)
Stddev    mmap-12      1.0000 (   0.00%)      1.0000 (   0.00%)      6.0000 (-500.00%)
";
        assert_eq!(format!("\n{}", table.render()), expected);
    }

    #[test]
    fn monitors_print_values_alone() {
        let ops = Monitor {
            kind: "Ops",
            field: 15,
            rows: vec![(
                "Direct pages scanned    ".into(),
                vec![Some(1000.0), Some(500.0)],
            )],
        };
        assert_eq!(
            ops.render(),
            "Ops Direct pages scanned            1000.00         500.00\n"
        );
        let duration = Monitor {
            kind: "Duration",
            field: 12,
            rows: vec![
                ("System".into(), vec![Some(100.0), Some(11.0)]),
                ("Elapsed".into(), vec![Some(2.0), None]),
            ],
        };
        assert_eq!(
            duration.render(),
            "Duration System       100.00       11.00\nDuration Elapsed        2.00          NA\n"
        );
    }

    #[test]
    fn nothing_is_printed_as_minus_zero() {
        let rows = vec![(
            "User".to_owned(),
            vec![Some(-0.0), Some(-0.004), Some(-0.006)],
        )];
        let duration = Monitor {
            kind: "Duration",
            field: 8,
            rows,
        };
        assert_eq!(duration.render(), "Duration User    0.00    0.00   -0.01\n");
        assert_eq!(unsigned_zero(0.5, 0).to_bits(), 0.5_f64.to_bits());
        assert_eq!(unsigned_zero(-0.0, 4).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn heads_split_at_the_first_dash_but_keep_a_release_candidate() {
        assert_eq!(head("linux-2.6.36"), ("linux".into(), "2.6.36".into()));
        assert_eq!(
            head("5.15.0-rc1-vanilla"),
            ("5.15.0-rc1".into(), "vanilla".into())
        );
        assert_eq!(head("5.15.0-rc1"), ("5.15.0-rc1".into(), String::new()));
        assert_eq!(head("p1"), ("p1".into(), String::new()));
    }

    #[test]
    fn what_was_not_measured_is_na_and_published_values_stand_on_their_statistic_alone() {
        let mut real = operation("real", &[(10.0, 1.0), (11.0, 1.0)]);
        real.samples[1] = Samples::new([], Better::Lower);
        real.published = [8.0, 6.0].map(|value| Published::mean(Some(value))).into();
        let table = Table {
            heads: vec![head("a"), head("b")],
            published_heads: vec![head("paper-a"), head("paper-b")],
            operations: vec![real],
            stats: vec![Stat::Mean, Stat::Stddev],
            precision: 2,
        };
        let text = table.render();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[2],
            "Amean     real       10.00 (   0.00%)          NA                   8.00 (   0.00%)        6.00 (  25.00%)"
        );
        assert_eq!(
            lines[3],
            "Stddev    real        1.00 (   0.00%)          NA"
        );
    }
}

//! The printed tables of `compare`.

use core::fmt::Write as _;

use super::figures::{Band, of_kind, of_writers, with_unit};
use super::setting::Setting;
use experiment::outcome::Outcome;
use report::output::web::{self, Cell};
use report::output::{self, TidyTable};
use report::tidy_table;

/// Rows of single writers, at most; of more, the least and the most.
const OF_WRITERS_MOST: usize = 12;
/// Least width of the first column; of a value, and of a value with its difference.
const NAME: usize = 28;
const FIELD: usize = 12;
const COLUMN: usize = 22;

/// A row of a table.
pub(super) struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// One a column.
    pub values: Vec<Option<f64>>,
}

/// All rows that any column has something for; the first is the recording.
pub(super) fn rows(setting: &Setting, columns: &[(&[Option<f64>], &Outcome)]) -> Vec<Row> {
    let all = of_kind(setting.kind).iter().enumerate();
    let all = all.map(|(index, figure)| Row {
        name: match figure.band_of(setting) {
            Some(Band::Part(part)) => format!("{} [{:.0}%]", figure.name, part * 100.0),
            Some(Band::Factor(factor)) => format!("{} [x{factor}]", figure.name),
            None => figure.name.to_owned(),
        },
        unit: figure.unit,
        digits: figure.digits,
        values: columns.iter().map(|(values, _)| values[index]).collect(),
    });
    let is_there = |row: &Row| {
        let mut values = row.values.iter();
        values.any(|value| value.is_some_and(|value| value != 0.0))
    };
    all.chain(writer_rows(setting, columns))
        .filter(is_there)
        .collect()
}

/// Figures of single writers; of many, the slowest and the fastest.
fn writer_rows(setting: &Setting, columns: &[(&[Option<f64>], &Outcome)]) -> Vec<Row> {
    let of = |(_, outcome): &(&[Option<f64>], &Outcome)| of_writers(setting, outcome);
    let all: Vec<_> = columns.iter().map(of).collect();
    let row = |name: &str, unit, digits, values: Vec<Option<f64>>| Row {
        name: format!("  {name}"),
        unit,
        digits,
        values,
    };
    let several = setting.scenario.tasks.len() > 1;
    let Some(first) = all.first().filter(|first| several && !first.is_empty()) else {
        return Vec::new();
    };
    if first.len() > OF_WRITERS_MOST {
        let extreme = |of: fn(f64, f64) -> f64| {
            let values = all
                .iter()
                .map(|own| own.iter().filter_map(|own| own.3).reduce(of));
            values.collect()
        };
        return vec![
            row("slowest writer", "MiB/s", 2, extreme(f64::min)),
            row("fastest writer", "MiB/s", 2, extreme(f64::max)),
        ];
    }
    let line = |(at, (name, unit, digits, _)): (usize, &(String, &'static str, usize, _))| {
        let values = all.iter().map(|own| own.get(at).and_then(|own| own.3));
        row(name, unit, *digits, values.collect())
    };
    first.iter().enumerate().map(line).collect()
}

/// A table whose first column is what the others are compared with.
pub(super) fn table(heads: &[&str], rows: &[Row]) -> String {
    let labels = rows.iter().map(|row| with_unit(&row.name, row.unit));
    let labels: Vec<String> = labels.collect();
    let widest = labels.iter().map(|label| label.chars().count() + 1).max();
    let name = NAME.max(widest.unwrap_or(0));
    let mut text = format!("{:name$}", "");
    for (index, head) in heads.iter().enumerate() {
        let _ = if index == 0 {
            write!(text, "{head:>FIELD$}")
        } else {
            write!(text, "{head:>COLUMN$}")
        };
    }
    text.push('\n');
    for (row, label) in rows.iter().zip(&labels) {
        let _ = write!(text, "{label:name$}");
        let base = row.values.first().copied().flatten();
        for (index, value) in row.values.iter().enumerate() {
            let shown = value.map_or("-".to_owned(), |value| format!("{value:.*}", row.digits));
            if index == 0 {
                let _ = write!(text, "{shown:>FIELD$}");
                continue;
            }
            let change =
                percent(base, *value).map_or(String::new(), |change| format!("({change})"));
            let _ = write!(text, "{shown:>FIELD$} {change:>9}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The same for a page.
pub(super) fn page_table(columns: &[&str], rows: &[Row]) -> String {
    let names = ["figure", "unit", "recording"];
    let heads = names.iter().chain(columns).map(|head| (*head).to_owned());
    let rows = rows.iter().map(|row| {
        let base = row.values.first().copied().flatten();
        let shown = |value: f64| format!("{value:.*}", row.digits);
        let cell = |(at, value): (usize, &Option<f64>)| match value {
            None => Cell::number("-", None),
            Some(own) if at == 0 => Cell::number(&shown(*own), *value),
            Some(own) => {
                let change = percent(base, *value).unwrap_or_default();
                let html = format!("{}<br><span class=\"faint\">{change}</span>", shown(*own));
                Cell::sorted(html, *own)
            }
        };
        let values = row.values.iter().enumerate().map(cell);
        [Cell::text(&row.name), Cell::text(row.unit)]
            .into_iter()
            .chain(values)
            .collect()
    });
    web::table(&heads.collect::<Vec<_>>(), &[0, 1], rows)
}

/// The distance of a value from the one it is compared with.
pub(super) fn percent(base: Option<f64>, value: Option<f64>) -> Option<String> {
    let (base, value) = (base?, value?);
    if base == 0.0 {
        return (value == 0.0).then(|| "+0.0%".to_owned());
    }
    let percent = 100.0 * (value / base - 1.0);
    Some(if percent.abs() < 1000.0 {
        format!("{percent:+.1}%")
    } else {
        format!("x{:.0}", value / base)
    })
}

/// One value of the table of all figures.
pub(super) struct Value<'a> {
    pub(super) recording: &'a str,
    pub(super) column: &'a str,
    pub(super) figure: String,
    pub(super) unit: &'a str,
    pub(super) value: Option<f64>,
}

/// All of them as a table, one a row.
pub(super) fn tidy(all: &[Value<'_>]) -> TidyTable {
    tidy_table!(output::FIGURES, all, {
        "recording": Text = |value| value.recording.to_owned(),
        "column": Text = |value| value.column.to_owned(),
        "figure": Text = |value| value.figure.clone(),
        "unit": Text = |value| value.unit.to_owned(),
        "value": Real = |value| value.value.unwrap_or(f64::NAN),
    })
}

//! The printed tables of `compare`.

use core::fmt::Write as _;

use super::measure::{Lengths, Measures, QUANTITIES};
use super::setting::Setting;
use report::output::web::{self, Cell};
use report::output::{self, Column, Data, TidyTable};

/// Writers that get a row each.
const WRITERS_MOST: usize = 4;
/// Least width of the first column; of a value, and of a value with its difference.
const NAME: usize = 28;
const FIELD: usize = 12;
const COLUMN: usize = 22;

/// A row of a table.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// One a column.
    pub values: Vec<Option<f64>>,
}

/// All rows that any column has a value for.
pub(super) fn rows(setting: &Setting, columns: &[&Measures]) -> Vec<Row> {
    let mut rows = Vec::new();
    for quantity in &QUANTITIES {
        let values: Vec<Option<f64>> = columns.iter().map(|m| (quantity.of)(m)).collect();
        if values.iter().any(Option::is_some) {
            rows.push(Row {
                name: quantity.label.name.to_owned(),
                unit: quantity.label.unit,
                digits: quantity.label.digits,
                values,
            });
        }
        let several = setting.writers.len() > 1;
        if quantity.label.name == "throughput" && several {
            rows.extend(writer_rows(setting, columns));
        }
        if quantity.label.name == "pauses: sum" && several {
            rows.extend(pause_rows(setting, columns));
        }
    }
    rows
}

/// Pauses of single writers, if they are few.
fn pause_rows(setting: &Setting, columns: &[&Measures]) -> Vec<Row> {
    if setting.writers.len() > WRITERS_MOST {
        return Vec::new();
    }
    let row = |index: usize, name: &str, unit, of: fn(&Lengths) -> f64| Row {
        name: format!("  writer {index}: {name}"),
        unit,
        digits: usize::from(unit == "ms"),
        values: columns
            .iter()
            .map(|m| m.writer_pauses.get(index)?.as_ref().map(of))
            .collect(),
    };
    (0..setting.writers.len())
        .flat_map(|index| {
            [
                row(index, "count", "", |pauses| pauses.count),
                row(index, "median", "ms", |pauses| pauses.median),
            ]
        })
        .filter(|row| row.values.iter().any(Option::is_some))
        .collect()
}

/// Throughput of single writers; of many, the least and the most.
fn writer_rows(setting: &Setting, columns: &[&Measures]) -> Vec<Row> {
    let row = |name: String, values: Vec<Option<f64>>| Row {
        name,
        unit: "MiB/s",
        digits: 2,
        values,
    };
    if setting.writers.len() <= WRITERS_MOST {
        let one = |index: usize| {
            let kind = if setting.writers[index].is_heavy() {
                "writer"
            } else {
                "light writer"
            };
            let values = columns.iter().map(|m| m.writers.get(index).copied());
            row(format!("  {kind} {index}"), values.collect())
        };
        return (0..setting.writers.len()).map(one).collect();
    }
    let extreme = |of: fn(f64, f64) -> f64| {
        let values = columns.iter().map(|m| m.writers.iter().copied().reduce(of));
        values.collect::<Vec<_>>()
    };
    vec![
        row("  slowest writer".into(), extreme(f64::min)),
        row("  fastest writer".into(), extreme(f64::max)),
    ]
}

/// A table whose first column is what the others are compared with.
pub(super) fn table(heads: &[&str], rows: &[Row]) -> String {
    let labels: Vec<String> = rows
        .iter()
        .map(|row| {
            if row.unit.is_empty() {
                row.name.clone()
            } else {
                format!("{} ({})", row.name, row.unit)
            }
        })
        .collect();
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
pub(super) fn tidy(all: Vec<Value<'_>>) -> TidyTable {
    let (mut recordings, mut columns) = (Vec::new(), Vec::new());
    let (mut names, mut units, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for value in all {
        recordings.push(value.recording.to_owned());
        columns.push(value.column.to_owned());
        names.push(value.figure);
        units.push(value.unit.to_owned());
        values.push(value.value.unwrap_or(f64::NAN));
    }
    let column = |name, data| Column { name, data };
    TidyTable::new(
        output::FIGURES,
        vec![
            column("recording", Data::Text(recordings)),
            column("column", Data::Text(columns)),
            column("figure", Data::Text(names)),
            column("unit", Data::Text(units)),
            column("value", Data::Real(values)),
        ],
    )
}

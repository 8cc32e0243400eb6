//! The output: a table a trace, rows as CSV or JSON, a plot of hits over size.

use core::fmt::Write as _;

use policy::units::{Nanos, PAGE_SIZE};
use report::output::{Curve, Lines};
use serde_json::{Value, json};

use crate::run::Counts;
use crate::trace::Trace;

/// Everything of one trace.
pub struct Table {
    /// The trace's file.
    pub file: String,
    accesses: u64,
    writes: u64,
    /// Its pages: an estimate where a part was replayed.
    pub pages: u64,
    /// The part of the pages that was replayed; below 1, all else is what the whole is taken to
    /// be.
    pub rate: f64,
    /// Accesses and pages of that part.
    sampled: (u64, u64),
    /// A row for each size and rule.
    pub rows: Vec<Row>,
}

/// A rule at a size.
pub struct Row {
    /// Name of the rule or preset.
    pub rule: String,
    /// Pages of the memory.
    pub pages: u32,
    /// `None`: the rule cannot work in so little.
    pub counts: Option<Counts>,
    /// The standard error of the hit ratio, where it is that of a sample which is large enough.
    pub error: Option<f64>,
}

impl Table {
    pub(crate) fn new(file: String, trace: &Trace) -> Self {
        let (accesses, writes) = trace.all();
        Self {
            file,
            accesses,
            writes,
            pages: trace.pages(),
            rate: trace.rate(),
            sampled: (trace.len() as u64, trace.distinct().into()),
            rows: Vec::new(),
        }
    }

    /// Rules, and sizes, in the order in which they first come.
    #[must_use]
    pub fn heads(&self) -> (Vec<&str>, Vec<u32>) {
        let (mut rules, mut sizes) = (Vec::new(), Vec::new());
        for row in &self.rows {
            if !rules.contains(&row.rule.as_str()) {
                rules.push(row.rule.as_str());
            }
            if !sizes.contains(&row.pages) {
                sizes.push(row.pages);
            }
        }
        (rules, sizes)
    }

    /// The counts of a rule at a size; `None`: it cannot work in so little.
    #[must_use]
    pub fn counts(&self, rule: &str, pages: u32) -> Option<&Counts> {
        self.row(rule, pages)?.counts.as_ref()
    }

    fn row(&self, rule: &str, pages: u32) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.rule == rule && row.pages == pages)
    }

    fn is_sampled(&self) -> bool {
        self.rate < 1.0
    }
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Pages as bytes, as people write them.
fn bytes(pages: u64) -> String {
    let kib = pages * PAGE_SIZE / 1024;
    let unit = [(1 << 20, "GiB"), (1 << 10, "MiB")];
    let unit = unit.iter().find(|(unit, _)| kib >= *unit);
    let Some((unit, name)) = unit else {
        return format!("{kib} KiB");
    };
    let tenths = kib * 10 / unit;
    if tenths >= 100 {
        return format!("{} {name}", tenths / 10);
    }
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

fn seconds(nanos: Nanos) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 ns")]
    let nanos = nanos.0 as f64;
    nanos / 1e9
}

/// A line for each size, a column for each rule.
fn body(text: &mut String, table: &Table, head: &str, cell: &dyn Fn(&Row) -> Option<String>) {
    let (rules, sizes) = table.heads();
    let _ = write!(text, "{head:>11} {:>9}", "memory");
    for rule in &rules {
        let _ = write!(text, " {rule:>9}");
    }
    text.push('\n');
    for pages in sizes {
        let (count, size) = (grouped(u64::from(pages)), bytes(u64::from(pages)));
        let _ = write!(text, "{count:>11} {size:>9}");
        for rule in &rules {
            let width = rule.len().max(9);
            let cell = table.row(rule, pages).and_then(cell);
            let _ = write!(text, " {:>width$}", cell.as_deref().unwrap_or("-"));
        }
        text.push('\n');
    }
}

/// Tables for people: hits of all accesses in per cent.
pub(crate) fn text(tables: &[Table]) -> String {
    let mut text = String::new();
    for table in tables {
        if !text.is_empty() {
            text.push('\n');
        }
        let writes = table.writes * 100 / table.accesses.max(1);
        let about = if table.is_sampled() { "about " } else { "" };
        let _ = writeln!(
            text,
            "{}: {} accesses ({writes} % writes) of {about}{} pages, {}",
            table.file,
            grouped(table.accesses),
            grouped(table.pages),
            bytes(table.pages),
        );
        if table.is_sampled() {
            let (accesses, pages) = table.sampled;
            let _ = writeln!(
                text,
                "sampled: one page in {:.1}, {} accesses of {} pages",
                1.0 / table.rate,
                grouped(accesses),
                grouped(pages),
            );
        }
        text.push('\n');
        body(&mut text, table, "pages", &|row| {
            let counts = row.counts?;
            Some(format!("{:.2}", 100.0 * counts.hit_ratio()))
        });
        if table.is_sampled() {
            text.push('\n');
            body(&mut text, table, "+- of", &|row| {
                Some(format!("{:.2}", 100.0 * row.error?))
            });
        }
        let times = |row: &Row| row.counts?.times;
        if table.rows.iter().any(|row| times(row).is_some()) {
            text.push('\n');
            body(&mut text, table, "seconds of", &|row| {
                Some(format!("{:.2}", seconds(times(row)?.all)))
            });
            text.push('\n');
            body(&mut text, table, "stalls of", &|row| {
                Some(times(row)?.stalls.to_string())
            });
        }
    }
    if !tables.is_empty() {
        text.push_str("\nHits of all accesses, in per cent.");
        if text.contains("stalls of") {
            text.push_str(" A stall is an access that took 100 ms or more.");
        }
        if tables.iter().any(Table::is_sampled) {
            text.push_str(" Behind +- stands the standard error of a sample, in points.");
        }
        text.push('\n');
    }
    text
}

/// Rows for spreadsheets.
pub(crate) fn csv(tables: &[Table]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let heads = [
        "trace",
        "rule",
        "pages",
        "hit_ratio",
        "accesses",
        "hits",
        "misses",
        "refaults",
        "evicted",
        "written",
        "read_ahead",
        "cached",
        "seconds",
        "longest_ms",
        "stalls",
        "rate",
        "error",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for table in tables {
        for row in &table.rows {
            let Some(counts) = &row.counts else {
                continue;
            };
            let mut line = vec![
                table.file.clone(),
                row.rule.clone(),
                row.pages.to_string(),
                format!("{:.6}", counts.hit_ratio()),
            ];
            line.extend(numbers(counts).map(|(_, number)| number.to_string()));
            line.extend(match times(counts) {
                Some(times) => times.map(|(_, value)| value.to_string()),
                None => [const { String::new() }; 3],
            });
            line.push(table.rate.to_string());
            line.push(
                row.error
                    .map_or(String::new(), |error| format!("{error:.6}")),
            );
            rows.push(line);
        }
    }
    for row in rows {
        writer.write_record(row).expect("memory can be written");
    }
    let bytes = writer.into_inner().expect("memory can be written");
    String::from_utf8(bytes).expect("text of text")
}

fn numbers(counts: &Counts) -> [(&'static str, u64); 8] {
    [
        ("accesses", counts.accesses),
        ("hits", counts.hits),
        ("misses", counts.misses()),
        ("refaults", counts.refaults),
        ("evicted", counts.evicted),
        ("written", counts.written),
        ("read_ahead", counts.read_ahead),
        ("cached", counts.cached),
    ]
}

/// Figures of a replay on a device alone.
fn times(counts: &Counts) -> Option<[(&'static str, Value); 3]> {
    let times = counts.times?;
    Some([
        ("seconds", json!(seconds(times.all))),
        ("longest_ms", json!(1000.0 * seconds(times.longest))),
        ("stalls", json!(times.stalls)),
    ])
}

/// The same for programs.
pub(crate) fn json(tables: &[Table]) -> String {
    let row = |row: &Row| {
        let mut value = json!({ "rule": row.rule, "pages": row.pages });
        if let (Some(counts), Some(map)) = (&row.counts, value.as_object_mut()) {
            map.insert("hit_ratio".to_owned(), json!(counts.hit_ratio()));
            for (name, number) in numbers(counts) {
                map.insert(name.to_owned(), json!(number));
            }
            for (name, value) in times(counts).into_iter().flatten() {
                map.insert(name.to_owned(), value);
            }
            if let Some(error) = row.error {
                map.insert("error".to_owned(), json!(error));
            }
        }
        value
    };
    let table = |table: &Table| {
        json!({
            "trace": table.file,
            "accesses": table.accesses,
            "writes": table.writes,
            "pages": table.pages,
            "rate": table.rate,
            "sampled_accesses": table.sampled.0,
            "sampled_pages": table.sampled.1,
            "rows": table.rows.iter().map(row).collect::<Vec<Value>>(),
        })
    };
    let all: Vec<Value> = tables.iter().map(table).collect();
    format!("{:#}\n", Value::Array(all))
}

/// One panel a trace, a line a rule.
pub(crate) fn plot(tables: &[Table]) -> String {
    let panel = |table: &Table| {
        let (rules, sizes) = table.heads();
        let curve = |rule: &&str| {
            let point = |pages: &u32| {
                let counts = table.counts(rule, *pages)?;
                Some((f64::from(*pages), 100.0 * counts.hit_ratio()))
            };
            Curve {
                name: (*rule).to_owned(),
                points: sizes.iter().filter_map(point).collect(),
            }
        };
        let name = table.file.rsplit('/').next().unwrap_or_default();
        (name.to_owned(), rules.iter().map(curve).collect())
    };
    let panels = tables.iter().map(panel).collect();
    Lines {
        title: "Hits of all accesses".into(),
        x_label: "pages of memory".into(),
        y_label: "per cent",
        log_x: true,
        own_x: true,
        panels,
        ..Lines::default()
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Vec<Table> {
        let trace = Trace::of_reads(&[1, 2, 1, 3]);
        let mut table = Table::new("a/b.txt".to_owned(), &trace);
        let counts = Counts {
            accesses: 4,
            hits: 1,
            cached: 2,
            ..Counts::default()
        };
        for (rule, counts) in [("lru", Some(counts)), ("tidegate", None)] {
            table.rows.push(Row {
                rule: rule.to_owned(),
                pages: 2,
                counts,
                error: None,
            });
        }
        vec![table]
    }

    #[test]
    fn every_form_says_the_same() {
        let tables = tables();
        let text = text(&tables);
        assert!(
            text.contains("\n          2     8 KiB     25.00         -\n"),
            "{text}"
        );
        assert!(csv(&tables).ends_with("a/b.txt,lru,2,0.250000,4,1,3,0,0,0,0,2,,,,1,\n"));
        let json: Value = serde_json::from_str(&json(&tables)).unwrap();
        assert_eq!(json[0]["rows"][0]["hit_ratio"], 0.25);
        assert_eq!(json[0]["rows"][0]["misses"], 3);
        assert_eq!(json[0]["rows"][1].get("hit_ratio"), None);
        let plot = plot(&tables);
        assert!(plot.starts_with("<svg") && plot.contains("b.txt"), "{plot}");
    }

    #[test]
    fn sizes_read_well() {
        for (pages, text) in [
            (2, "8 KiB"),
            (256, "1.0 MiB"),
            (7000, "27 MiB"),
            (1 << 20, "4.0 GiB"),
        ] {
            assert_eq!(bytes(pages), text);
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
    }
}

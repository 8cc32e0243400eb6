//! The result of a run on one screen: the headline figures beside the published ones, the bands
//! that are missed, and where the rest is.
//!
//! A figure that was published of the row `all` comes first, then figures of rows, then what nobody
//! published. Columns that do not fit the width are named instead.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Report;
use crate::terminal::wrap;
use experiment::expect::Verdict;
use experiment::metrics::Metric;
use experiment::pool;

/// Lines of the whole, those with the results' folder included.
const LINES_MOST: usize = 40;
/// Of them, of the table of figures, and lines that others need below it.
const FIGURES_MOST: usize = 18;
const BELOW: usize = 5;
/// Lines of one band that is missed.
const BAND_LINES: usize = 3;
/// Figures that are named for being far from what was published.
const FAR_MOST: usize = 3;
/// Our own column, which is shown whatever else is not.
const OURS: &str = "tidegate";

/// The lines around the figures.
pub struct Around<'a> {
    /// The experiment that was run, in a line.
    pub runs: &'a str,
    /// The part of it that is missing, if one is.
    pub headline: Option<&'a str>,
    /// The bands.
    pub verdicts: &'a [&'a Verdict],
    /// Letters in a line.
    pub width: usize,
}

/// One line of figures.
struct Line {
    metric: &'static Metric,
    row: String,
    /// (ours, published) of each column.
    figures: Vec<(Option<f64>, Option<f64>)>,
}

impl Line {
    fn name(&self) -> String {
        let unit = match self.metric.unit {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        format!("{}-{}{unit}", self.metric.name, self.row)
    }

    fn is_published(&self) -> bool {
        self.figures
            .iter()
            .any(|(_, published)| published.is_some())
    }

    fn cell(&self, column: usize) -> String {
        match self.figures[column] {
            (None, None) => "-".into(),
            (None, Some(published)) => format!("- [{}]", figure(published)),
            (Some(ours), None) => figure(ours),
            (Some(ours), Some(published)) => format!("{} [{}]", figure(ours), figure(published)),
        }
    }
}

impl Report<'_> {
    /// The summary, at most 38 lines of it: the folder comes behind.
    #[must_use]
    pub fn summary(&self, around: &Around<'_>) -> String {
        let width = around.width;
        let mut lines: Vec<String> = Vec::new();
        if let Some(headline) = around.headline {
            lines.extend(wrap(headline, width));
        }
        let name = self.scenario.name.get_ref();
        lines.extend(wrap(&format!("{name}: {}", self.scenario.title), width));
        lines.extend(wrap(around.runs.trim(), width));
        lines.push(String::new());
        let all = self.lines();
        self.put_figures(&mut lines, &all, width);
        let far = self.far(&all);
        let room = LINES_MOST - BELOW - far.len();
        put_bands(&mut lines, around, room);
        for line in far {
            lines.extend(wrap(&line, width).into_iter().take(1));
        }
        let mut text = lines.join("\n");
        text.push('\n');
        text
    }

    /// All figures, the headlines first.
    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<(u8, Line)> = Vec::new();
        for metric in self.metrics() {
            for row in &self.rows {
                let figures = self.columns.iter().map(|column| {
                    let ours = self.samples(metric, row, column);
                    let ours = (!ours.is_empty()).then(|| ours.amean());
                    let published = self.scenario.published_value(metric.name, row, column);
                    (ours, published)
                });
                let line = Line {
                    metric,
                    row: row.clone(),
                    figures: figures.collect(),
                };
                if line.figures.iter().all(|(ours, _)| ours.is_none()) {
                    continue;
                }
                let is_all = *row == pool::ALL || self.rows.len() == 1;
                lines.push((rank(is_all, line.is_published()), line));
            }
        }
        lines.sort_by_key(|(rank, _)| *rank);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    fn put_figures(&self, lines: &mut Vec<String>, all: &[Line], width: usize) {
        let shown = &all[..all.len().min(FIGURES_MOST)];
        let label = shown
            .iter()
            .map(|line| line.name().len())
            .max()
            .unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = shown.iter().map(|line| line.cell(column).len());
                let head = self.columns[column].len();
                2 + cells.max().unwrap_or(0).max(head)
            })
            .collect();
        let fits = fitting(&self.columns, &widths, width.saturating_sub(label));
        let mut head = " ".repeat(label);
        for &column in &fits {
            let _ = write!(head, "{:>1$}", self.columns[column], widths[column]);
        }
        lines.push(head);
        for line in shown {
            let mut text = format!("{:<label$}", line.name());
            for &column in &fits {
                let _ = write!(text, "{:>1$}", line.cell(column), widths[column]);
            }
            lines.push(text);
        }
        let mut notes = Vec::new();
        if shown.iter().any(Line::is_published) {
            notes.push("[published]".to_owned());
        }
        if all.len() > shown.len() {
            notes.push(format!("{} more figures", all.len() - shown.len()));
        }
        let left_out = (0..self.columns.len()).filter(|column| !fits.contains(column));
        let left_out: Vec<&str> = left_out
            .map(|column| self.columns[column].as_str())
            .collect();
        if !left_out.is_empty() {
            notes.push(format!("columns {}", left_out.join(", ")));
        }
        match (notes.len(), all.len() > shown.len() || !left_out.is_empty()) {
            (0, _) => {}
            (_, true) => lines.extend(wrap(&format!("{}: with --tables", notes.join("; ")), width)),
            (_, false) => lines.push(notes.join("; ")),
        }
    }

    /// The figures that are farthest from what was published, as lines.
    fn far(&self, all: &[Line]) -> Vec<String> {
        let mut far: Vec<(f64, String)> = Vec::new();
        for line in all {
            for (column, figures) in self.columns.iter().zip(&line.figures) {
                let (Some(ours), Some(published)) = figures else {
                    continue;
                };
                let ratio = ours / published;
                if ratio.is_finite() && ratio > 0.0 {
                    let percent = 100.0 * (ratio - 1.0);
                    far.push((
                        ratio.max(1.0 / ratio),
                        format!(
                            "far from published: {} of {column} {} [{}] {percent:+.0} %",
                            line.name(),
                            figure(*ours),
                            figure(*published)
                        ),
                    ));
                }
            }
        }
        far.retain(|(factor, _)| *factor > 1.1);
        far.sort_by(|one, other| other.0.total_cmp(&one.0));
        far.truncate(FAR_MOST);
        far.into_iter().map(|(_, line)| line).collect()
    }
}

const fn rank(is_all: bool, is_published: bool) -> u8 {
    match (is_all, is_published) {
        (true, true) => 0,
        (false, true) => 1,
        (true, false) => 2,
        (false, false) => 3,
    }
}

/// The columns that fit: the first, ours, and of the others as many as there is room for, in order.
fn fitting(columns: &[String], widths: &[usize], room: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    let ours = columns.iter().position(|column| column == OURS);
    let mut left = room;
    for column in (0..1).chain(ours).chain(1..columns.len()) {
        if chosen.is_empty() || (!chosen.contains(&column) && widths[column] <= left) {
            left = left.saturating_sub(widths[column]);
            chosen.push(column);
        }
    }
    chosen.sort_unstable();
    chosen
}

/// Prints the number of bands that hold, and those that do not.
fn put_bands(lines: &mut Vec<String>, around: &Around<'_>, room: usize) {
    if around.verdicts.is_empty() {
        return;
    }
    let judged: Vec<&Verdict> = around
        .verdicts
        .iter()
        .copied()
        .filter(|one| !one.skipped)
        .collect();
    let not_run = around.verdicts.len() - judged.len();
    let others: Vec<&Verdict> = judged.iter().copied().filter(|one| !one.holds()).collect();
    let holds = judged.len() - others.len();
    let mut sum = format!("{holds} of {} bands hold", judged.len());
    if not_run > 0 {
        let _ = write!(sum, "; {not_run} not run");
    }
    lines.push(String::new());
    lines.push(sum);
    let mut causes = BTreeSet::new();
    for (at, verdict) in others.iter().enumerate() {
        let mut line = verdict.line();
        if let Some(why) = &verdict.missed
            && let Some(rest) = line.strip_suffix(&format!("({why})"))
            && !causes.insert(why)
        {
            line = format!("{rest}(as above)");
        }
        let mut own = wrap(&line, around.width.saturating_sub(2));
        if own.len() > BAND_LINES {
            own.truncate(BAND_LINES);
            own[BAND_LINES - 1].push_str(" ...");
        }
        if lines.len() + own.len() > room {
            lines.push(format!("  and {} more", others.len() - at));
            return;
        }
        lines.extend(own.into_iter().map(|line| format!("  {line}")));
    }
}

/// Four digits, or the whole number.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 1e7 {
        return format!("{:.1}M", value / 1e6);
    }
    let decimals = match size {
        _ if size == 0.0 || size >= 999.5 => 0,
        _ if size >= 99.95 => 1,
        _ if size >= 0.9995 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_and_ours_are_shown_whatever_does_not_fit() {
        let columns = ["a", "b", "c", OURS].map(str::to_owned);
        assert_eq!(fitting(&columns, &[10; 4], 40), [0, 1, 2, 3]);
        assert_eq!(fitting(&columns, &[10; 4], 30), [0, 1, 3]);
        assert_eq!(fitting(&columns, &[10; 4], 20), [0, 3]);
        assert_eq!(fitting(&columns, &[10; 4], 5), [0]);
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.109, "0.1090"),
            (12.345, "12.35"),
            (324.44, "324.4"),
            (7308.12, "7308"),
            (1_056_608_451.0, "1056.6M"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}

//! The report of a run: bands, figures, plots of each row, and who waited for what, in one HTML
//! file.
//!
//! Plots are drawn in the page until it is as large as a page may be; those after it are files
//! beside it, named with links. Plots of the first row are expanded, the others collapsed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::curves::Lines;
use super::plots;
use super::svg::{self, escape};
use super::tables::About;
use super::web::{Cell, Page, Section, details, marks, table};
use crate::comparison::figures::{Figure, MetricTable};
use crate::stalls::{self, PRESSURES};
use experiment::expect::Verdict;
use experiment::outcome::Outcome;

/// Bytes of plots in the page: the rest of it is some hundred kilobytes at most, and the whole is
/// to stay below 2 MB.
const PLOTS_MOST: usize = 1_600_000;

/// The rest of a run, or of a comparison with recordings, beside its outcomes.
#[derive(Debug, Default)]
pub struct Shown {
    /// Its bands.
    pub bands: Vec<Verdict>,
    /// The printed metrics.
    pub figures: Vec<MetricTable>,
    /// Parts of the page that only this has.
    pub sections: Vec<Section>,
    /// Plots that are not of one run.
    pub lines: Vec<Lines>,
}

impl Shown {
    /// The published value of a printed metric in a row and a column.
    pub(super) fn published(&self, metric: &str, row: &str, column: &str) -> Option<f64> {
        let table = self.figures.iter().find(|table| table.name == metric)?;
        let at = table.columns.iter().position(|own| own == column)?;
        let (_, figures) = table.rows.iter().find(|(own, _)| own == row)?;
        figures.get(at)?.published
    }
}

/// The page.
pub(super) fn page(
    about: &About,
    printed: &str,
    shown: &Shown,
    outcomes: &[Outcome],
    plots: &[(String, svg::Figure)],
) -> String {
    let mode = if about.live {
        "live, on files"
    } else {
        "in virtual time"
    };
    let head = format!(
        "<p class=\"faint\">Run {mode}; seed {seed}; scenario {scenario} (sha256 {sha}). The tables beside this file hold every \
         number.</p>\n{verdict}",
        seed = about.master_seed,
        scenario = escape(&about.scenario_id),
        sha = &about.scenario_sha256[..12],
        verdict = verdict(&shown.bands),
    );
    let mut sections = Vec::new();
    let mut body = String::new();
    let mut add = |at: &str, words: &str, html: &str| {
        if !html.is_empty() {
            sections.push((at.to_owned(), words.to_owned()));
            let _ = writeln!(
                body,
                "<section id=\"{at}\">\n<h2>{words}</h2>\n{html}</section>"
            );
        }
    };
    add("bands", "Bands", &bands(&shown.bands));
    add("figures", "Figures", &figures(&shown.figures));
    for section in &shown.sections {
        add(&section.at, &section.words, &section.html);
    }
    let text = format!("<pre>{}</pre>\n", escape(printed));
    let has_tables = !shown.figures.is_empty() || !shown.sections.is_empty();
    if !has_tables {
        add("text", "Result", &text);
    }
    add("plots", "Plots", &drawn(plots, PLOTS_MOST));
    add("waits", "Waits and pressure", &waited(outcomes));
    let mut rest = String::new();
    if has_tables {
        rest.push_str(&details("text", "All of it as text", &text));
    }
    let scenario = format!("<pre>{}</pre>\n", escape(&about.scenario_text));
    rest.push_str(&details("scenario", "Scenario", &scenario));
    add("rest", "As text", &rest);
    let title = format!("{}: {}", about.experiment, about.title);
    let page = Page {
        title: &title,
        head,
        sections,
        body,
    };
    page.render()
}

/// Bytes of plots in a part of somebody else's page.
const PLOTS_IN_PART: usize = 300_000;

/// Bands, figures and plots as a part of somebody else's page, a notebook's cell; without styles
/// that would reach the rest of it.
pub fn part(shown: &Shown, outcomes: &[Outcome]) -> String {
    let plots = plots::figures(outcomes, &|metric, row, column| {
        shown.published(metric, row, column)
    });
    format!(
        "<div class=\"tidegate\">\n<style>{PART_STYLE}</style>\n{}{}{}{}</div>\n",
        verdict(&shown.bands),
        bands(&shown.bands),
        figures(&shown.figures),
        drawn(&plots, PLOTS_IN_PART)
    )
}

const PART_STYLE: &str = "
.tidegate .panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 8px }
.tidegate .panels svg { width: 100%; max-width: 560px; height: auto; background: #ffffff }
.tidegate td, .tidegate th { vertical-align: top }
.tidegate .marks { width: 150px; height: 18px }
.tidegate .marks .band { fill: #bfe3d0 }
.tidegate .marks .axis { stroke: #d9dfe4 }
.tidegate .marks .paper { fill: none; stroke: currentColor }
.tidegate .marks .ours { fill: #0b5fa5 }
.tidegate .scroll { overflow-x: auto }
.tidegate .sum div { display: inline-block; margin-right: 2em }
";

fn verdict(bands: &[Verdict]) -> String {
    let judged: Vec<&Verdict> = bands.iter().filter(|band| !band.skipped).collect();
    if judged.is_empty() {
        return String::new();
    }
    let holds = judged.iter().filter(|band| band.holds()).count();
    let fails = judged.iter().filter(|band| band.fails()).count();
    let missed = judged.len() - holds - fails;
    let mut html = format!("<div class=\"sum\"><div><b class=\"good\">{holds}</b>bands hold</div>");
    for (count, class, word) in [(missed, "bad", "missed, as known"), (fails, "bad", "fail")] {
        if count > 0 {
            let _ = write!(html, "<div><b class=\"{class}\">{count}</b>{word}</div>");
        }
    }
    html.push_str("</div>\n");
    html
}

fn bands(bands: &[Verdict]) -> String {
    if bands.is_empty() {
        return String::new();
    }
    let heads = [
        "",
        "band",
        "row",
        "value",
        "from",
        "to",
        "marks",
        "whose band",
    ]
    .map(str::to_owned);
    let number = |value: Option<f64>| Cell::number(&shown(value), value);
    let mut causes = BTreeMap::new();
    let rows = bands.iter().map(|band| {
        let (word, class) = match band {
            band if band.skipped => ("not run", "other"),
            band if band.holds() => ("holds", "good"),
            band if band.fails() => ("fails", "bad"),
            _ => ("missed", "bad"),
        };
        let mut words = format!(
            "{}<br><span class=\"faint\">{}</span>",
            escape(&band.id),
            escape(&band.what)
        );
        for why in band.missed.iter().filter(|_| !band.holds()) {
            let first = *causes.entry(why).or_insert((&band.id, &band.case));
            let same = format!("cause: see {}, row {}", first.0, first.1);
            let why = if first == (&band.id, &band.case) {
                why
            } else {
                &same
            };
            let _ = write!(words, "<br><span class=\"faint\">{}</span>", escape(why));
        }
        let value: Vec<f64> = band.value.into_iter().collect();
        vec![
            Cell::html(
                format!("<span class=\"verdict {class}\">{word}</span>"),
                "text",
            ),
            Cell::html(words, "text long"),
            Cell::text(&band.case),
            number(band.value),
            number(band.min),
            number(band.max),
            Cell::html(marks(&[], &value, (band.min, band.max)), "text"),
            Cell::html(escape(&band.source), "note"),
        ]
    });
    table(&heads, &[0, 1, 2, 6, 7], rows)
}

/// Five digits, or the whole number.
fn shown(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| {
        let decimals = match value.abs() {
            size if size >= 9_999.5 => 0,
            size if size >= 99.95 => 1,
            size if size >= 0.9995 => 2,
            _ => 4,
        };
        let text = format!("{value:.decimals$}");
        let zero = text.trim_start_matches(['-', '0', '.']).is_empty();
        if zero { "0".to_owned() } else { text }
    })
}

fn figures(tables: &[MetricTable]) -> String {
    let mut html = String::new();
    if tables.is_empty() {
        return html;
    }
    html.push_str(
        "<p class=\"faint\">Means of the repetitions with their deviation; below, by how much the value is above or below the first \
         column's, green where that is better and red where it is worse (from 1 % on), with a star where it is more than chance (t-test at 0.10). In brackets what was published.</p>\n",
    );
    for metric in tables {
        let unit = if metric.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", escape(metric.unit))
        };
        let _ = writeln!(
            html,
            "<h3>{}{unit}</h3>\n<p class=\"faint\">{}</p>",
            escape(metric.name),
            escape(metric.about)
        );
        let heads: Vec<String> = core::iter::once("row".to_owned())
            .chain(metric.columns.iter().cloned())
            .collect();
        let rows = metric.rows.iter().map(|(row, figures)| {
            let base = figures.first().and_then(|first| first.mean);
            let cells = figures.iter().map(|figure| one(figure, base));
            core::iter::once(Cell::text(row)).chain(cells).collect()
        });
        html.push_str(&table(&heads, &[0], rows));
    }
    html
}

/// A figure; `base`: the first column's.
fn one(figure: &Figure, base: Option<f64>) -> Cell {
    let Some(mean) = figure.mean else {
        return Cell::number("", None);
    };
    let mut html = shown(Some(mean));
    if let Some(deviation) = figure.deviation.filter(|deviation| *deviation > 0.0) {
        let _ = write!(html, " \u{b1} {}", shown(Some(deviation)));
    }
    if let Some(published) = figure.published {
        let _ = write!(html, " [{}]", shown(Some(published)));
    }
    if let Some(percent) = figure.percent.filter(|percent| percent.is_finite()) {
        let star = if figure.starred { "*" } else { "" };
        // One sign everywhere, as in bands: above zero is more.
        let change = base.map(|base| 100.0 * (mean / base - 1.0));
        let change = change
            .filter(|change| change.is_finite())
            .unwrap_or(percent);
        let class = match percent {
            // Less than what is worth a look, and no more than chance.
            _ if change.abs() < 1.0 && !figure.starred => "faint",
            percent if percent > 0.0 => "good",
            percent if percent < 0.0 => "bad",
            _ => "faint",
        };
        let _ = write!(
            html,
            "<br><span class=\"faint {class}\">{change:+.1} %{star}</span>"
        );
    }
    Cell::sorted(html, mean)
}

/// The plots of each row, in at most `most` bytes: those of the first are open.
fn drawn(plots: &[(String, svg::Figure)], most: usize) -> String {
    let mut html = String::new();
    let mut left = most;
    // The name of a plot's row stands before the colon of its title.
    let row = |figure: &svg::Figure| {
        let (row, _) = figure.title.split_once(": ").unwrap_or(("", ""));
        row.to_owned()
    };
    let mut rest = plots;
    let mut number = 0;
    while let Some((_, first)) = rest.first() {
        let name = row(first);
        let end = rest.iter().position(|(_, figure)| row(figure) != name);
        let (own, others) = rest.split_at(end.unwrap_or(rest.len()));
        rest = others;
        let mut inner = String::new();
        for (name, figure) in own {
            let picture = figure.render_html(name);
            if picture.len() <= left {
                left -= picture.len();
                inner.push_str(&picture);
            } else {
                let _ = writeln!(
                    inner,
                    "<figure class=\"plot\" id=\"{0}\"><a href=\"{0}.svg\">{1}</a></figure>",
                    escape(name),
                    escape(&figure.title)
                );
            }
        }
        let open = if number == 0 { " open" } else { "" };
        let _ = writeln!(
            html,
            "<details id=\"row-{number}\"{open}><summary>{}</summary>\n{inner}</details>",
            escape(&name)
        );
        number += 1;
    }
    html
}

/// Pressure and waits of each row, one table each. Empty if nothing was watched.
fn waited(outcomes: &[Outcome]) -> String {
    let (mut cases, mut columns): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        if !cases.contains(&outcome.case.as_str()) {
            cases.push(&outcome.case);
        }
        if !columns.contains(&outcome.policy) {
            columns.push(outcome.policy.clone());
        }
    }
    let mut body = String::new();
    for case in cases {
        let own = outcomes.iter().filter(|outcome| outcome.case == case);
        let own: Vec<&Outcome> = own.collect();
        let pressures = stalls::pressures(&own, &columns);
        let waits = stalls::waits(&own, &columns);
        if pressures.is_empty() && waits.is_empty() {
            continue;
        }
        let _ = writeln!(
            body,
            "<details><summary>{}: who waited for what</summary>",
            escape(case)
        );
        body.push_str(
            "<p>Pressure: % of the time in which somebody was stalled (some), and nobody else ran \
             (full); all repetitions.</p>\n",
        );
        let mut head = vec!["column".to_owned()];
        head.extend(PRESSURES.map(str::to_owned));
        let rows = pressures.iter().map(|row| {
            let values = row.percent.iter();
            let values = values.map(|part| Cell::number(&format!("{part:.2}"), None));
            core::iter::once(Cell::text(&row.policy))
                .chain(values)
                .collect()
        });
        body.push_str(&table(&head, &[0], rows));
        body.push_str("<p>Waits by cause: lengths in ms; percentiles within an eighth.</p>\n");
        let head = [
            "cause",
            "column",
            "waits",
            "task-seconds",
            "p50",
            "p99",
            "max",
            "ended by",
        ];
        let rows = waits.iter().map(|row| {
            let names = [Cell::text(&row.cause), Cell::text(&row.policy)];
            let values = stalls::wait_values(&row.waits);
            let last = values.len().saturating_sub(1);
            let values = values.into_iter().enumerate().map(|(at, value)| {
                if at == last {
                    Cell::text(&value)
                } else {
                    Cell::number(&value, None)
                }
            });
            names.into_iter().chain(values).collect()
        });
        body.push_str(&table(&head.map(str::to_owned), &[0, 1, 7], rows));
        body.push_str("</details>\n");
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_of_several_bands_is_said_once_with_the_name_of_its_band() {
        let why = "the device is busy";
        let missed = |id: &str, case: &str| Verdict {
            id: id.to_owned(),
            case: case.to_owned(),
            what: "a / b".to_owned(),
            value: Some(2.0),
            min: None,
            max: Some(1.0),
            source: "a paper".to_owned(),
            skipped: false,
            held_in: None,
            missed: Some(why.to_owned()),
        };
        let html = bands(&[missed("A7-14", "ext3"), missed("A7-14", "ext4")]);
        assert_eq!(html.matches(why).count(), 1, "{html}");
        let last = html.rsplit("<tr>").next().unwrap();
        assert!(last.contains("cause: see A7-14, row ext3"), "{last}");
    }
}

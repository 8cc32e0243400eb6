//! The report: one HTML file with the table and all figures in it, without script or network.

use std::fmt::Write as _;

use super::svg::{DARK_BACK, Figure, escape};
use super::tables::About;
use crate::outcome::Outcome;
use crate::stalls::{self, PRESSURES};

/// The page.
pub(super) fn page(
    about: &About,
    printed: &str,
    outcomes: &[Outcome],
    figures: &[(String, Figure)],
) -> String {
    let mut body = waited(outcomes);
    for (name, figure) in figures {
        body.push_str(&format!(
            "<figure id=\"{}\">\n{}</figure>\n",
            escape(name),
            figure.render()
        ));
    }
    let mode = if about.live {
        "live, on files"
    } else {
        "in virtual time"
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{experiment}: {title}</title>\n<style>\n\
         body {{ font-family: sans-serif; margin: 2em; color: #222 }}\n\
         p, figure {{ max-width: 1300px }}\n\
         pre {{ overflow-x: auto; background: #f6f6f6; padding: 1em; font-size: 12px }}\n\
         figure {{ margin: 2em 0 }}\nsvg {{ max-width: 100%; height: auto }}\n\
         table {{ border-collapse: collapse; font-size: 13px; margin: 0.5em 0 1.5em }}\n\
         th, td {{ padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #ddd }}\n\
         th:first-child, td:first-child, .name {{ text-align: left }}\n\
         @media screen and (prefers-color-scheme: dark) {{\n\
         body {{ color: #e6e9ec; background: #12161a }}\npre {{ background: {DARK_BACK} }}\n\
         th, td {{ border-bottom-color: #2d353d }}\n}}\n\
         </style>\n</head>\n<body>\n<h1>{experiment}: {title}</h1>\n\
         <p>Run {mode}; seed {seed}; scenario {scenario} (sha256 {sha}). The tables beside this file \
         hold every number.</p>\n<pre>{printed}</pre>\n{body}\
         <details><summary>Scenario</summary><pre>{text}</pre></details>\n</body>\n</html>\n",
        experiment = escape(&about.experiment),
        title = escape(&about.title),
        seed = about.master_seed,
        scenario = escape(&about.scenario_id),
        sha = &about.scenario_sha256[..12],
        printed = escape(printed),
        text = escape(&about.scenario_text),
    )
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
        table(
            &mut body,
            &head,
            pressures.iter().map(|row| {
                let values = row.percent.iter().map(|part| format!("{part:.2}"));
                core::iter::once(row.policy.clone()).chain(values).collect()
            }),
        );
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
        table(
            &mut body,
            &head.map(str::to_owned),
            waits.iter().map(|row| {
                let names = [row.cause.clone(), row.policy.clone()];
                names
                    .into_iter()
                    .chain(stalls::wait_values(&row.waits))
                    .collect()
            }),
        );
        body.push_str("</details>\n");
    }
    body
}

fn table(body: &mut String, head: &[String], rows: impl Iterator<Item = Vec<String>>) {
    let cells = |values: &[String], tag: &str| {
        let cells = values
            .iter()
            .map(|value| format!("<{tag}>{}</{tag}>", escape(value)));
        cells.collect::<String>()
    };
    let _ = writeln!(body, "<table>\n<tr>{}</tr>", cells(head, "th"));
    for row in rows {
        let _ = writeln!(body, "<tr>{}</tr>", cells(&row, "td"));
    }
    body.push_str("</table>\n");
}

//! The parts that all pages have in common: one file without network, light and dark, from a phone
//! to a wide screen.
//!
//! Tables are complete without the script; with it a click on a head sorts them. A table that is
//! wider than the screen scrolls within its own frame, the page never does. A printed page has
//! light colours.

use std::fmt::Write as _;

use super::svg::dark_rules;
pub use super::svg::escape;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2329; --faint: #5c6873; --back: #ffffff; --panel: #f4f6f8; --rule: #d9dfe4;
  --link: #0b5fa5; --good: #0a6b45; --bad: #b3261e; --other: #7a5c00; --band: #bfe3d0 }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 0 }
header, main { max-width: 1280px; margin: 0 auto; padding: 0 16px }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.2rem 0 0.3rem }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.4rem 0 0.3rem; padding-top: 0.6rem; border-top: 1px solid var(--rule) }
h3 { font-size: 1.05rem; margin: 1.8rem 0 0.3rem }
h1, h2, h3, p, summary, td.long, td.note { overflow-wrap: anywhere }
p { margin: 0.4rem 0; max-width: 75ch }
a { color: var(--link) }
.faint { color: var(--faint); font-size: 0.9rem }
nav { position: sticky; top: 0; z-index: 1; background: var(--back); border-bottom: 1px solid var(--rule); margin-top: 0.8rem }
nav ul { display: flex; gap: 0 1.2rem; overflow-x: auto; scrollbar-width: none; list-style: none; margin: 0 auto; padding: 0 16px;
  max-width: 1280px; mask-image: linear-gradient(to right, #000 calc(100% - 3rem), transparent) }
@media (min-width: 900px) { nav ul { flex-wrap: wrap; mask-image: none } }
nav a { display: block; padding: 0.5rem 0; white-space: nowrap; text-decoration: none }
nav a:hover { text-decoration: underline }
section, figure, details { scroll-margin-top: 3rem }
.board { display: block; min-width: 560px; width: 100%; height: auto; padding: 8px }
.scroll { overflow-x: auto; margin: 0.6rem 0 1rem; border: 1px solid var(--rule); border-radius: 6px }
table { border-collapse: collapse; font-size: 0.875rem; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: 0.35rem 0.7rem; text-align: right; border-bottom: 1px solid var(--rule); vertical-align: top; white-space: nowrap }
tbody tr:last-child td { border-bottom: 0 }
th { background: var(--panel); font-weight: 600 }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: inherit }
th[aria-sort=ascending] button::after { content: ' \\2191' }
th[aria-sort=descending] button::after { content: ' \\2193' }
th.text, td.text { text-align: left }
td.text.long { min-width: 16rem; max-width: 34rem; white-space: normal }
td.note { color: var(--faint); font-size: 0.82rem; text-align: left; min-width: 15rem; white-space: normal }
.verdict { font-weight: 600; white-space: nowrap }
.good { color: var(--good) } .bad { color: var(--bad) } .other { color: var(--other) }
.marks { display: block; width: 150px; height: 18px }
.marks .axis { stroke: var(--rule) } .marks .band { fill: var(--band) } .marks .paper { fill: none; stroke: var(--ink) }
.marks .ours { fill: var(--link) }
figure { margin: 1rem 0 1.4rem }
figcaption { font-weight: 600; overflow-wrap: anywhere }
.legend { font-size: 0.82rem; display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; max-width: none }
.legend svg { vertical-align: middle }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 8px }
.panels svg { width: 100%; max-width: 560px; height: auto; background: #ffffff }
summary { cursor: pointer; padding: 0.4rem 0; font-weight: 600 }
pre { overflow-x: auto; background: var(--panel); padding: 0.8rem; font-size: 12px; line-height: 1.35; border-radius: 6px }
.sum { display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 0.8rem 0 }
.sum div { border: 1px solid var(--rule); border-radius: 6px; padding: 0.3rem 0.9rem; min-width: 6.5rem }
.sum b { display: block; font-size: 1.5rem; line-height: 1.3 }
@media (max-width: 600px) { h1 { font-size: 1.3rem } body { font-size: 15px } th, td { padding: 0.3rem 0.5rem } td.text.long { min-width: 13rem } }
@media print { nav { display: none } }
@media screen and (prefers-color-scheme: dark) {
:root { --ink: #e6e9ec; --faint: #9aa7b3; --back: #12161a; --panel: #1b2127; --rule: #2d353d; --link: #6cb6ff; --good: #5fd39a;
  --bad: #ff8a80; --other: #e3b341; --band: #1f4a37 }
.panels svg { background: #1b2127 }
";

/// Sorts a table by the column whose head is clicked: by number where both are numbers.
const SCRIPT: &str = "
for (const head of document.querySelectorAll('table.sort thead th')) {
  const button = document.createElement('button');
  button.append(...head.childNodes); head.append(button);
  button.onclick = () => {
    const up = head.getAttribute('aria-sort') !== 'ascending', at = head.cellIndex;
    for (const other of head.parentNode.children) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const key = row => row.cells[at].dataset.value ?? row.cells[at].textContent.trim();
    const body = head.closest('table').tBodies[0];
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)], n = parseFloat(x) - parseFloat(y);
      return (isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
    };
    body.append(...[...body.rows].sort(order));
  };
}
";

/// A part of a page, with a link to it.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its anchor.
    pub at: String,
    /// Its head.
    pub words: String,
    /// The rest.
    pub html: String,
}

/// A page.
pub struct Page<'a> {
    /// In its head.
    pub title: &'a str,
    /// Below the title: HTML.
    pub head: String,
    /// (anchor, words) of the sections.
    pub sections: Vec<(String, String)>,
    /// The sections: HTML.
    pub body: String,
}

impl Page<'_> {
    /// The whole of it, as HTML.
    #[must_use]
    pub fn render(&self) -> String {
        let title = escape(self.title);
        let links = self
            .sections
            .iter()
            .fold(String::new(), |mut links, (at, words)| {
                let _ = write!(
                    links,
                    "<li><a href=\"#{}\">{}</a></li>",
                    escape(at),
                    escape(words)
                );
                links
            });
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}{dark}}}\n</style>\n</head>\n<body>\n\
             <header>\n<h1>{title}</h1>\n{head}</header>\n<nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n\
             <main>\n{body}</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
            dark = dark_rules(),
            head = self.head,
            body = self.body,
        )
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    html: String,
    classes: &'static str,
    /// The number it is sorted by, if not by its text.
    value: Option<f64>,
}

impl Cell {
    /// A number as text, sorted by its value.
    #[must_use]
    pub fn number(text: &str, value: Option<f64>) -> Self {
        Self {
            html: escape(text),
            classes: "",
            value,
        }
    }

    /// Text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self {
            html: escape(text),
            classes: "text",
            value: None,
        }
    }

    /// HTML in a column of numbers, sorted by this one.
    pub fn sorted(html: String, value: f64) -> Self {
        Self {
            html,
            classes: "",
            value: Some(value),
        }
    }

    /// HTML in a column of text.
    pub fn html(html: String, classes: &'static str) -> Self {
        Self {
            html,
            classes,
            value: None,
        }
    }
}

/// A table that can be sorted, in a frame that scrolls. `texts`: the columns that are no numbers.
pub fn table(
    heads: &[String],
    texts: &[usize],
    rows: impl IntoIterator<Item = Vec<Cell>>,
) -> String {
    let mut html =
        String::from("<div class=\"scroll\" tabindex=\"0\"><table class=\"sort\">\n<thead><tr>");
    for (at, head) in heads.iter().enumerate() {
        let class = if texts.contains(&at) {
            " class=\"text\""
        } else {
            ""
        };
        let _ = write!(html, "<th scope=\"col\"{class}>{}</th>", escape(head));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let class = if cell.classes.is_empty() {
                String::new()
            } else {
                format!(" class=\"{}\"", cell.classes)
            };
            let value = cell.value.map(|value| format!(" data-value=\"{value}\""));
            let _ = write!(
                html,
                "<td{class}{}>{}</td>",
                value.unwrap_or_default(),
                cell.html
            );
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// Width and height of a picture of marks.
const MARKS: (f64, f64) = (150.0, 18.0);

/// A band with what was published (a ring) and what came out here (a dot) on one axis.
pub fn marks(published: &[f64], ours: &[f64], (min, max): (Option<f64>, Option<f64>)) -> String {
    let all = published.iter().chain(ours).copied().chain(min).chain(max);
    let finite: Vec<f64> = all.filter(|value| value.is_finite()).collect();
    let (Some(low), Some(high)) = (
        finite.iter().copied().reduce(f64::min),
        finite.iter().copied().reduce(f64::max),
    ) else {
        return String::new();
    };
    // A series that spans orders of magnitude is drawn by them.
    let log = low > 0.0 && high / low > 20.0;
    let scaled = |value: f64| if log { value.ln() } else { value };
    let (low, high) = (scaled(low), scaled(high));
    let room = if high > low { (high - low) * 0.15 } else { 1.0 };
    let (low, high) = (low - room, high + room);
    let (width, height) = MARKS;
    let at = |value: f64| (scaled(value) - low) / (high - low) * width;
    let middle = height / 2.0;
    let (from, to) = (min.map_or(0.0, at), max.map_or(width, at));
    let mut svg = format!(
        "<svg class=\"marks\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"band, published, ours\">\
         <rect class=\"band\" x=\"{from:.1}\" y=\"2\" width=\"{:.1}\" height=\"{}\"/>\
         <path class=\"axis\" d=\"M0 {middle}H{width}\"/>",
        (to - from).max(2.0),
        height - 4.0
    );
    for value in published {
        let x = at(*value);
        let _ = write!(
            svg,
            "<circle class=\"paper\" cx=\"{x:.1}\" cy=\"{middle}\" r=\"4.5\"/>"
        );
    }
    for value in ours.iter().filter(|value| value.is_finite()) {
        let x = at(*value);
        let _ = write!(
            svg,
            "<circle class=\"ours\" cx=\"{x:.1}\" cy=\"{middle}\" r=\"3\"/>"
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A part that is shown on demand.
pub fn details(anchor: &str, words: &str, html: &str) -> String {
    format!(
        "<details id=\"{}\"><summary>{}</summary>\n{html}</details>\n",
        escape(anchor),
        escape(words)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_scripts_has_its_tables_and_nothing_from_the_network() {
        let cell = |text: &str| Cell::number(text, None);
        let rows = [vec![Cell::text("a & b"), cell("1")]];
        let page = Page {
            title: "<t>",
            head: String::new(),
            sections: vec![("one".into(), "One".into())],
            body: table(&["name".into(), "n".into()], &[0], rows),
        };
        let html = page.render();
        for part in [
            "&lt;t&gt;",
            "<td class=\"text\">a &amp; b</td>",
            "href=\"#one\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("http"), "{html}");
    }

    #[test]
    fn marks_are_within_their_picture() {
        for (published, ours, band) in [
            (vec![0.109], vec![0.21], (Some(0.05), Some(0.35))),
            (vec![], vec![5.0], (None, Some(1.0))),
            (vec![1.0], vec![1e6], (Some(1.0), None)),
            (vec![1.0], vec![1.0], (Some(1.0), Some(1.0))),
        ] {
            let svg = marks(&published, &ours, band);
            for part in svg.split("cx=\"").skip(1) {
                let x: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=MARKS.0).contains(&x), "{svg}");
            }
        }
        assert_eq!(marks(&[], &[], (None, None)), "");
    }
}

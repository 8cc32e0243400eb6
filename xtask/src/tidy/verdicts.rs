//! One number for one claim: pages say of a claim what the scoreboard says.
//!
//! The scoreboard is docs/study/papers.md, the output of `tidegate reproduce --format markdown`.
//!
//! | checked | why |
//! |---|---|
//! | a row holds exactly if its value is within its band | verdict and value are of one run |
//! | a missed row has a cause, and a cause a missed row | "Missed (ID): ..." below the table |
//! | a cause begins with a value of its row | a cause of another run explains another number |
//! | elsewhere, in a table of A7 by experiments, a missed value is bold | two pages, one verdict |

use super::{Findings, text_of};
use crate::workspace::Source;

const BOARD: &str = "docs/study/papers.md";

/// A row of the scoreboard.
#[derive(Debug, PartialEq)]
struct Row {
    line: usize,
    experiment: String,
    band: String,
    ours: Vec<f64>,
    min: f64,
    max: f64,
    missed: bool,
}

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    let Some(board) = text_of(sources, BOARD) else {
        return findings.wrong(BOARD, "is the scoreboard, and is not there");
    };
    let rows = rows(board);
    if rows.is_empty() {
        findings.wrong(BOARD, "has no row that can be read");
    }
    of_board(board, &rows, findings);
    let pages = sources.iter().filter(|source| source.extension() == "md");
    for page in pages.filter(|page| page.path != BOARD) {
        for (line, what) in elsewhere(&page.text, &rows) {
            findings.wrong(&format!("{}:{line}", page.path), what);
        }
    }
}

fn of_board(board: &str, rows: &[Row], findings: &mut Findings) {
    let causes = causes(board);
    for row in rows {
        let place = format!("{BOARD}:{}", row.line);
        let within = |value: &f64| (row.min..=row.max).contains(value);
        let holds = row.ours.iter().all(within);
        // Printed values are rounded: at an edge either may be so.
        let edge = |value: &f64| {
            let near = |edge: f64| (value - edge).abs() <= 0.01 * edge.abs();
            near(row.min) || near(row.max)
        };
        if holds == row.missed && !row.ours.iter().any(edge) {
            findings.wrong(&place, format!("{}: verdict and value differ", row.band));
        }
        let cause = causes.iter().find(|cause| cause.bands.contains(&row.band));
        match (row.missed, cause) {
            (true, None) => {
                findings.wrong(&place, format!("{} is missed without a cause", row.band))
            }
            (true, Some(cause)) if !cause.is_of(row) => findings.wrong(
                &format!("{BOARD}:{}", cause.line),
                format!(
                    "{}: the cause is of {}, the row of {:?}",
                    row.band, cause.value, row.ours
                ),
            ),
            _ => {}
        }
    }
    for cause in &causes {
        for band in &cause.bands {
            let known = |row: &&Row| row.band == *band && row.missed;
            if !rows.iter().any(|row| known(&row)) {
                let place = format!("{BOARD}:{}", cause.line);
                findings.wrong(&place, format!("{band} has a cause and is not missed"));
            }
        }
    }
}

/// The cells of a line of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn rows(board: &str) -> Vec<Row> {
    let row = |(at, line): (usize, &str)| {
        let [_, of, _, ours, band, verdict] = cells(line)?[..] else {
            return None;
        };
        let (experiment, id) = of.strip_prefix('`')?.split_once("` ")?;
        let limits = numbers(band);
        let (min, max) = match (band.starts_with(">="), band.starts_with("<="), &limits[..]) {
            (true, _, [min]) => (*min, f64::INFINITY),
            (_, true, [max]) => (f64::NEG_INFINITY, *max),
            (_, _, [min, max]) => (*min, *max),
            _ => return None,
        };
        let ours = numbers(ours);
        (!ours.is_empty()).then(|| Row {
            line: at + 1,
            experiment: experiment.to_owned(),
            band: id.to_owned(),
            ours,
            min,
            max,
            missed: verdict.contains("missed"),
        })
    };
    board.lines().enumerate().filter_map(row).collect()
}

/// All numbers of a text, in order.
fn numbers(text: &str) -> Vec<f64> {
    let part = |c: char| !(c.is_ascii_digit() || c == '.' || c == '-');
    text.split(part)
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The distance of a cause's value from its row's, as a part of it, at most: repetitions differ as
/// much.
const NEAR: f64 = 0.02;

/// Why bands are missed.
struct Cause {
    line: usize,
    bands: Vec<String>,
    /// The first number, as it is written.
    value: String,
}

impl Cause {
    /// True if its number is one of the row's, as far as it is written out.
    fn is_of(&self, row: &Row) -> bool {
        let decimals = self.value.split_once('.').map_or(0, |(_, rest)| rest.len());
        let Ok(value) = self.value.parse::<f64>() else {
            return false;
        };
        let step = (0..decimals).fold(1.0_f64, |step, _| step / 10.0);
        let near = |ours: &f64| (ours - value).abs() <= (step * 0.51).max(NEAR * ours.abs());
        row.ours.iter().any(near)
    }
}

fn causes(board: &str) -> Vec<Cause> {
    let cause = |(at, line): (usize, &str)| {
        let (bands, rest) = line.strip_prefix("- Missed (")?.split_once("): ")?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
        Some(Cause {
            line: at + 1,
            bands: bands.split(", ").map(str::to_owned).collect(),
            value: rest[..end.unwrap_or(rest.len())].to_owned(),
        })
    };
    board.lines().enumerate().filter_map(cause).collect()
}

/// In a table whose first head is A7 and whose others name experiments: a value that the scoreboard
/// says is missed is bold.
fn elsewhere(page: &str, rows: &[Row]) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let mut heads: Vec<String> = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let Some(cells) = cells(line) else {
            heads.clear();
            continue;
        };
        if cells[0] == "A7" {
            let name = |cell: &&str| cell.trim_matches('`').to_owned();
            heads = cells.iter().map(name).collect();
            continue;
        }
        for (head, cell) in heads.iter().zip(&cells).skip(1) {
            let number = format!("A7-{}", cells[0]);
            let of = |row: &&Row| {
                let rest = row.band.strip_prefix(&number);
                row.missed
                    && row.experiment == *head
                    && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            if let Some(row) = rows.iter().find(of)
                && !cell.contains("**")
            {
                wrong.push((
                    at + 1,
                    format!(
                        "{} of `{head}` is missed in {BOARD}, and not bold here",
                        row.band
                    ),
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD_TEXT: &str = "| claim | experiment | published | ours | band | |\n\
        | a | `x` A7-1 | 0.1 | 0.2 | 0.05 to 0.35 | holds |\n\
        | b | `x` A7-8-timeout | 0.5 | 0.84 | 0.3 to 0.8 | **missed** |\n\
        | c | `y` A7-14 | -15 % | -0.42 to -0.18 % | -30 to -2 % | **missed** |\n\n\
        - Missed (A7-8-timeout): 0.84: few work\n\
        - Missed (A7-14): -0.2 to -0.4 %: locks\n";

    fn found(board: &str, page: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.into(),
            text: text.into(),
        };
        let mut findings = Findings::default();
        judge(
            &[source(BOARD, board), source("docs/x.md", page)],
            &mut findings,
        );
        findings.wrong
    }

    #[test]
    fn a_scoreboard_that_agrees_with_itself_is_right() {
        assert_eq!(found(BOARD_TEXT, ""), [""; 0]);
    }

    #[test]
    fn another_number_of_one_claim_is_found() {
        for (from, to, said) in [
            ("| 0.84 |", "| 0.74 |", "verdict and value differ"),
            ("0.35 | holds", "0.15 | holds", "verdict and value differ"),
            ("): 0.84:", "): 0.81:", "the cause is of 0.81"),
            (
                "- Missed (A7-14)",
                "- (A7-14)",
                "A7-14 is missed without a cause",
            ),
            (
                "(A7-14)",
                "(A7-14, A7-1)",
                "A7-1 has a cause and is not missed",
            ),
        ] {
            let wrong = found(&BOARD_TEXT.replace(from, to), "").join("\n");
            assert!(wrong.contains(said), "{from}: {wrong}");
        }
    }

    #[test]
    fn a_missed_value_is_bold_on_other_pages() {
        let page =
            |cell: &str| format!("| A7 | `x` | paper |\n|---|---|---|\n| 8 | {cell} | 55 |\n");
        assert_eq!(found(BOARD_TEXT, &page("**84**")), [""; 0]);
        let wrong = found(BOARD_TEXT, &page("78.6"));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with("docs/x.md:3: A7-8-timeout of `x` is missed"));
    }
}

//! The scoreboard as one picture: how far our figure of each claim is from the paper's, and whether
//! it is within its band.
//!
//! ```text
//!                    1/10        published       x 10
//!  p0  congestion      |     o   o oOo     o       |          no ratio: oo
//!  p1  ...             x                           |
//! ```
//!
//! A claim has a place where both figures are numbers of one sign; a claim of nought or of a change
//! around it stands at the side. A figure further than the axis stands at its end. Light and dark
//! by the reader's own setting.

use std::fmt::Write as _;

use super::board::{Claim, Verdict};
use super::scoreboard::{Board, PaperBoard};
use report::output::web::escape;

const WIDTH: f64 = 760.0;
/// Where the axis begins and ends, and where claims without a ratio begin.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 610.0;
const ASIDE: f64 = 650.0;
const TOP: f64 = 64.0;
const ROW: f64 = 58.0;
/// Decades to each side of the published figure.
const DECADES: f64 = 2.0;
/// Dots, and how near two of them may come before one moves up or down.
const RADIUS: f64 = 4.5;
const STEP: f64 = 10.0;
/// Dots in a line of those at the side.
const ASIDE_LINE: usize = 9;

/// Scoped, as the picture also stands in a page.
const STYLE: &str = ".board text{font:13px sans-serif;fill:#1f2328}.board .f{fill:#59636e;font-size:11px}\
.board .l{stroke:#d1d9e0}.board .c{stroke:#59636e}.board .h{fill:#1a7f37}\
.board .m{fill:none;stroke:#cf222e;stroke-width:2}.board .o{fill:none;stroke:#818b98}\
@media(prefers-color-scheme:dark){.board text{fill:#f0f6fc}.board .f{fill:#9198a1}.board .l{stroke:#3d444d}\
.board .c{stroke:#9198a1}.board .h{fill:#3fb950}.board .m{stroke:#f85149}.board .o{stroke:#9198a1}}";

pub(super) fn draw(board: &Board) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a count of papers")]
    let bottom = TOP + ROW * board.papers.len() as f64;
    let height = bottom + 34.0;
    let mut svg = format!(
        "<svg class=\"board\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <style>{STYLE}</style>\n<title>Claims of {} papers: ours against the published figures</title>\n",
        board.papers.len()
    );
    legend(&mut svg, board);
    for (decade, name) in [
        (-2.0, "1/100"),
        (-1.0, "1/10"),
        (0.0, "as published"),
        (1.0, "10 times"),
        (2.0, "100 times"),
    ] {
        let x = x_of(decade);
        let class = if decade == 0.0 { "c" } else { "l" };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{x:.0} {:.0}V{bottom:.0}\"/><text class=\"f\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{name}</text>",
            TOP - 4.0,
            bottom + 16.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"f\" x=\"{:.0}\" y=\"{:.0}\">without a ratio</text>",
        ASIDE - RADIUS,
        bottom + 16.0
    );
    let mut middle = TOP + ROW / 2.0;
    for paper in &board.papers {
        row(&mut svg, paper, middle);
        middle += ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, board: &Board) {
    let mut x = LEFT;
    for (verdicts, word) in [
        (&[Verdict::Holds][..], "within its band"),
        (&[Verdict::Missed], "missed"),
        (
            &[Verdict::NotJudged, Verdict::NotRun, Verdict::NotBuilt],
            "not judged",
        ),
    ] {
        let of = board
            .claims()
            .filter(|claim| verdicts.contains(&claim.verdict));
        let count = of.count();
        if count == 0 {
            continue;
        }
        dot(svg, verdicts[0], x, 24.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"28\">{count} {word}</text>",
            x + 10.0
        );
        x += 160.0;
    }
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"28\">Claims of the papers</text><text class=\"f\" x=\"{LEFT}\" y=\"48\">ours / published</text>"
    );
}

fn row(svg: &mut String, paper: &PaperBoard, middle: f64) {
    let holds = paper
        .claims()
        .filter(|claim| claim.verdict == Verdict::Holds);
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"{:.0}\">{}: {} of {} hold</text><text class=\"f\" x=\"8\" y=\"{:.0}\">{}</text>",
        middle - 3.0,
        escape(&paper.id),
        holds.count(),
        paper.claims().count(),
        middle + 13.0,
        escape(&paper.subject)
    );
    let mut placed: Vec<(f64, f64)> = Vec::new();
    let mut aside = 0;
    for claim in paper.claims() {
        if let Some(ratio) = ratio(claim) {
            let x = x_of(ratio.log10().clamp(-DECADES, DECADES));
            let y = free(&placed, x);
            placed.push((x, y));
            dot(svg, claim.verdict, x, middle + y);
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a count of dots")]
            let (column, line) = ((aside % ASIDE_LINE) as f64, (aside / ASIDE_LINE) as f64);
            dot(
                svg,
                claim.verdict,
                ASIDE + STEP * column,
                middle - STEP + STEP * line,
            );
            aside += 1;
        }
    }
}

/// The distance of a dot from the line at which it covers no other.
fn free(placed: &[(f64, f64)], x: f64) -> f64 {
    let is_free = |y: f64| {
        let hides = |other: &(f64, f64)| (other.0 - x).abs() < STEP && (other.1 - y).abs() < 1.0;
        !placed.iter().any(hides)
    };
    let places = [0.0, -STEP, STEP, -2.0 * STEP, 2.0 * STEP];
    places.into_iter().find(|y| is_free(*y)).unwrap_or(0.0)
}

fn x_of(decade: f64) -> f64 {
    LEFT + (decade + DECADES) / (2.0 * DECADES) * (RIGHT - LEFT)
}

fn dot(svg: &mut String, verdict: Verdict, x: f64, y: f64) {
    let _ = match verdict {
        Verdict::Holds => writeln!(
            svg,
            "<circle class=\"h\" cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"{RADIUS}\"/>"
        ),
        // Not by its colour alone.
        Verdict::Missed => writeln!(
            svg,
            "<path class=\"m\" d=\"M{:.0} {:.0}l8 8m0-8l-8 8\"/>",
            x - 4.0,
            y - 4.0
        ),
        Verdict::NotBuilt | Verdict::NotRun | Verdict::NotJudged => writeln!(
            svg,
            "<circle class=\"o\" cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"{RADIUS}\"/>"
        ),
    };
}

/// Ours over the published figure; of several rows, of their means.
fn ratio(claim: &Claim) -> Option<f64> {
    let mean = |values: &[f64]| {
        #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
        let count = values.len() as f64;
        (count > 0.0).then(|| values.iter().sum::<f64>() / count)
    };
    let ratio = mean(&claim.marks.ours)? / mean(&claim.marks.published)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_two_numbers_of_one_sign() {
        let of = |ours: &[f64], published: &[f64]| {
            ratio(&Claim::example(Verdict::Holds, ours, published))
        };
        assert_eq!(of(&[2.0, 4.0], &[3.0]), Some(1.0));
        for (ours, published) in [(&[1.0][..], &[0.0][..]), (&[1.0], &[-1.0]), (&[], &[1.0])] {
            assert_eq!(of(ours, published), None);
        }
    }

    #[test]
    fn every_claim_has_a_mark_and_none_hides_another() {
        let claims = vec![
            Claim::example(Verdict::Holds, &[1.0], &[1.0]),
            Claim::example(Verdict::Holds, &[1.0], &[1.01]),
            Claim::example(Verdict::Missed, &[1e6], &[1.0]),
            Claim::example(Verdict::NotBuilt, &[], &[]),
        ];
        let paper = PaperBoard {
            id: "p1".into(),
            name: "A <name>".into(),
            subject: "writers & flushers".into(),
            who: String::new(),
            idea: String::new(),
            parts: Vec::new(),
            not_built: claims,
            not_run: Vec::new(),
        };
        let board = Board {
            version: "0".into(),
            missing: Vec::new(),
            go_on: None,
            papers: vec![paper],
        };
        let svg = draw(&board);
        assert!(svg.contains("writers &amp; flushers") && svg.contains("p1: 2 of 4 hold"));
        // A mark each, and one a verdict in the legend.
        assert_eq!(svg.matches("class=\"h\"").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"m\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"o\"").count(), 2, "{svg}");
        let places: Vec<&str> = svg
            .lines()
            .filter(|line| line.contains("<circle class=\"h\""))
            .collect();
        assert!(places[1] != places[2], "{svg}");
        assert!(svg.contains(&format!("d=\"M{:.0} ", RIGHT - 4.0)), "{svg}");
    }
}

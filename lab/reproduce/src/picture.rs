//! The scoreboard as one picture: the distance of our figure of each claim from the paper's, and
//! its grade.
//!
//! ```text
//!                    1/10    B |  A  | B      x 10
//!  p0  congestion      |  c    |o ooo|o    c    |          no ratio: oc
//!                      |   d   | d dx|          |          d
//! ```
//!
//! The place of a mark explains it: claims that hold, and not without their mechanism, stand in the
//! upper line of their paper, those of grade A and B in the shaded zones, those of grade C outside.
//! In the lower line stand those that are missed and those that hold without their mechanism,
//! wherever their figure is. A claim whose two figures have no ratio stands at the side. A figure
//! further than the axis stands at its end. Light and dark by the reader's own setting.

use std::fmt::Write as _;

use super::board::{Claim, Verdict};
use super::grade::{FACTOR, Grade, NEAR};
use super::scoreboard::{Board, PaperBoard, Sum};
use report::output::web::escape;

const WIDTH: f64 = 760.0;
/// Where the axis begins and ends, and where claims without a ratio begin.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 610.0;
const ASIDE: f64 = 650.0;
const TOP: f64 = 64.0;
const ROW: f64 = 84.0;
/// The lower line of a paper, below its upper one.
const LOWER: f64 = 34.0;
/// Decades to each side of the published figure.
const DECADES: f64 = 2.0;
/// Dots, and how near two of them may come before one moves up or down.
const RADIUS: f64 = 4.5;
const STEP: f64 = 10.0;
/// Dots in a line of those at the side.
const ASIDE_LINE: usize = 9;

/// Scoped, as the picture also stands in a page.
const STYLE: &str = ".board text{font:13px sans-serif;fill:#1f2328}.board .f{fill:#59636e;font-size:11px}\
.board .l{stroke:#d1d9e0}.board .c{stroke:#59636e}.board .z{fill:#1a7f37;fill-opacity:.1}.board .h{fill:#1a7f37}\
.board .d{fill:#818b98}.board .m{fill:none;stroke:#cf222e;stroke-width:2}.board .o{fill:none;stroke:#818b98}\
@media(prefers-color-scheme:dark){.board text{fill:#f0f6fc}.board .f{fill:#9198a1}.board .l{stroke:#3d444d}\
.board .c{stroke:#9198a1}.board .h{fill:#3fb950}.board .z{fill:#3fb950}.board .d{fill:#9198a1}.board .m{stroke:#f85149}.board .o{stroke:#9198a1}}";

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
    for (low, high) in [(1.0 - NEAR, 1.0 + NEAR), (1.0 / FACTOR, FACTOR)] {
        let (low, high) = (x_of(f64::log10(low)), x_of(f64::log10(high)));
        let _ = writeln!(
            svg,
            "<rect class=\"z\" x=\"{low:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.0}\"/>",
            high - low,
            bottom - TOP
        );
    }
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
    let mut top = TOP + (ROW - LOWER) / 2.0;
    for paper in &board.papers {
        row(&mut svg, paper, top);
        top += ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

/// A kind of mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Grade A or B.
    Reproduced,
    /// Grade C, or not judged.
    Direction,
    /// Grade D.
    Hollow,
    Missed,
}

impl Mark {
    const ALL: [(Self, &str); 4] = [
        (Self::Reproduced, "reproduced (A, B)"),
        (Self::Direction, "a direction (C)"),
        (Self::Missed, "missed"),
        (Self::Hollow, "in no count (D)"),
    ];

    const fn of(claim: &Claim) -> Self {
        match (claim.grade, claim.verdict) {
            (Some(Grade::A | Grade::B), _) => Self::Reproduced,
            (Some(Grade::D), _) => Self::Hollow,
            (None, Verdict::Missed) => Self::Missed,
            _ => Self::Direction,
        }
    }

    /// The line of its paper that it stands in, 0 or 1.
    const fn line(self) -> usize {
        match self {
            Self::Reproduced | Self::Direction => 0,
            Self::Hollow | Self::Missed => 1,
        }
    }
}

fn legend(svg: &mut String, board: &Board) {
    let mut x = 150.0;
    for (mark, word) in Mark::ALL {
        let count = board
            .claims()
            .filter(|claim| Mark::of(claim) == mark)
            .count();
        if count == 0 {
            continue;
        }
        dot(svg, mark, x, 24.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"28\">{count} {word}</text>",
            x + 10.0
        );
        x += 158.0;
    }
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"28\">Claims of the papers</text><text class=\"f\" x=\"8\" y=\"48\">ours / published; shaded: within 25 % and a factor of two</text>"
    );
}

fn row(svg: &mut String, paper: &PaperBoard, top: f64) {
    let sum = Sum::of(paper.claims());
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"{:.0}\">{}: {} of {} reproduced</text><text class=\"f\" x=\"8\" y=\"{:.0}\">{}</text>",
        top + LOWER / 2.0 - 3.0,
        escape(&paper.id),
        sum.reproduced(),
        sum.counted(),
        top + LOWER / 2.0 + 13.0,
        escape(&paper.subject)
    );
    let mut placed: [Vec<(f64, f64)>; 2] = Default::default();
    let mut aside = [0, 0];
    for claim in paper.claims() {
        let mark = Mark::of(claim);
        let line = mark.line();
        let middle = top + LOWER * f64::from(u8::from(line == 1));
        if let Some(ratio) = claim.ratio {
            let x = x_of(ratio.log10().clamp(-DECADES, DECADES));
            let y = free(&placed[line], x);
            placed[line].push((x, y));
            dot(svg, mark, x, middle + y);
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a count of dots")]
            let (column, down) = (
                (aside[line] % ASIDE_LINE) as f64,
                (aside[line] / ASIDE_LINE) as f64,
            );
            dot(svg, mark, ASIDE + STEP * column, middle + STEP * down);
            aside[line] += 1;
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

/// A mark: not told apart by its colour alone.
fn dot(svg: &mut String, mark: Mark, x: f64, y: f64) {
    let circle = |class: &str| {
        format!("<circle class=\"{class}\" cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"{RADIUS}\"/>")
    };
    let (left, up) = (x - 4.0, y - 4.0);
    let drawn = match mark {
        Mark::Reproduced => circle("h"),
        Mark::Direction => circle("o"),
        Mark::Missed => format!("<path class=\"m\" d=\"M{left:.0} {up:.0}l8 8m0-8l-8 8\"/>"),
        Mark::Hollow => format!("<path class=\"d\" d=\"M{left:.0} {up:.0}h8v8h-8z\"/>"),
    };
    let _ = writeln!(svg, "{drawn}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_has_a_mark_and_none_hides_another() {
        let claims = vec![
            Claim::example(Verdict::Holds, &[1.0], &[1.0]),
            Claim::example(Verdict::Holds, &[1.0], &[1.01]),
            Claim::example(Verdict::Missed, &[1e6], &[1.0]),
            Claim::example(Verdict::NotBuilt, &[], &[]),
            Claim {
                grade: Some(Grade::D),
                ..Claim::example(Verdict::Holds, &[1.0], &[1.0])
            },
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
        assert!(svg.contains("writers &amp; flushers") && svg.contains("p1: 2 of 4 reproduced"));
        // A mark each, and one a verdict in the legend.
        assert_eq!(svg.matches("class=\"h\"").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"m\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"o\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"d\"").count(), 2, "{svg}");
        let places: Vec<&str> = svg
            .lines()
            .filter(|line| line.contains("<circle class=\"h\""))
            .collect();
        assert!(places[1] != places[2], "{svg}");
        assert!(svg.contains(&format!("d=\"M{:.0} ", RIGHT - 4.0)), "{svg}");
    }
}

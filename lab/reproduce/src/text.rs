//! The scoreboard as text: for a terminal of any width, and for a file.

use std::fmt::Write as _;

use super::board::{Causes, Claim, Part, Side, TradeOff, Verdict, figure, with_unit};
use super::scoreboard::{Board, PaperBoard};
use super::wanted::TODAY;
use report::terminal::wrap;

/// Width of the text in the file.
pub(super) const WIDTH: usize = 100;
/// Narrower than this there is no room for columns.
const COLUMNS_LEAST: usize = 80;
/// Columns around the claim.
const VERDICT: usize = 11;
const COLUMNS: [(&str, usize); 4] = [
    ("published", 14),
    ("ours", 14),
    ("ratio", 8),
    ("without", 15),
];

pub(super) fn render(board: &Board, width: usize) -> String {
    let mut text = String::new();
    if !board.missing.is_empty() {
        let line = format!("INTERRUPTED: not run: {}", board.missing.join(", "));
        put(&mut text, "", &line, width);
        text.push('\n');
    }
    for paper in &board.papers {
        render_paper(&mut text, paper, width);
    }
    render_trade_offs(&mut text, board, width);
    render_sum(&mut text, board, width);
    text
}

fn render_paper(text: &mut String, paper: &PaperBoard, width: usize) {
    put(
        text,
        "",
        &format!("{}  {} ({})", paper.id, paper.name, paper.who),
        width,
    );
    put(text, "    ", &paper.idea, width);
    text.push('\n');
    if width >= COLUMNS_LEAST {
        let heads = COLUMNS.map(|(head, _)| vec![head.to_owned()]);
        columns(text, "grade", &["claim".to_owned()], &heads, width);
    }
    let mut causes = Causes::default();
    for part in &paper.parts {
        put(text, "", &of(part), width);
        for claim in part.published() {
            render_claim(text, claim, &mut causes, width);
        }
        render_own(text, part, &mut causes, width);
    }
    for claim in paper.not_run.iter().chain(&paper.not_built) {
        render_claim(text, claim, &mut causes, width);
    }
    text.push('\n');
}

/// The runs of an experiment, in a line.
fn of(part: &Part) -> String {
    let times = |n: u32| if n == 1 { "repetition" } else { "repetitions" };
    let mut line = format!(
        "{} at 1/{:.0}, {} {}",
        part.experiment,
        1.0 / part.scale,
        part.replicas,
        times(part.replicas)
    );
    if part.replicas < part.replicas_asked {
        let _ = write!(line, " of {}", part.replicas_asked);
    }
    if !part.set.is_empty() {
        let _ = write!(line, "; with {}", part.set.join(", "));
    }
    if !part.left_out.is_empty() {
        let _ = write!(line, "; without {}", part.left_out.join(", "));
    }
    if part.failed_runs > 0 {
        let _ = write!(line, "; {} runs FAILED", part.failed_runs);
    }
    line
}

fn render_claim<'a>(text: &mut String, claim: &'a Claim, causes: &mut Causes<'a>, width: usize) {
    let word = if claim.fails() {
        "MISSED"
    } else {
        claim.word()
    };
    let ratio = claim.ratio_said();
    let figures = [
        claim.published.as_deref().unwrap_or("-"),
        claim.ours.as_deref().unwrap_or("-"),
        &ratio,
        &claim.knocked(),
    ];
    if width < COLUMNS_LEAST {
        put(text, "", &format!("{word}: {}", claim.claim), width);
        let named = COLUMNS.iter().zip(figures);
        let named: Vec<String> = named
            .map(|((head, _), one)| format!("{head} {one}"))
            .collect();
        put(text, "  ", &named.join(", "), width);
    } else {
        let mut cells = COLUMNS.into_iter().zip(figures);
        let cells = core::array::from_fn(|_| {
            let ((_, room), figure) = cells.next().expect("a figure a column");
            wrap(figure, room - 2)
        });
        let room = width - VERDICT - COLUMNS.iter().map(|(_, room)| room).sum::<usize>();
        columns(text, word, &wrap(&claim.claim, room - 1), &cells, width);
    }
    for line in causes.below(claim) {
        let indent = if width < COLUMNS_LEAST {
            "  "
        } else {
            "            "
        };
        put(text, indent, &line, width);
    }
}

/// The cells of a row, each in its lines.
fn columns(
    text: &mut String,
    word: &str,
    claim: &[String],
    cells: &[Vec<String>; 4],
    width: usize,
) {
    let room = width - VERDICT - COLUMNS.iter().map(|(_, room)| room).sum::<usize>();
    let others = cells.iter().map(Vec::len).max().unwrap_or(1);
    for at in 0..others.max(claim.len()) {
        let part = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
        let word = if at == 0 { word } else { "" };
        let mut line = format!("{word:<VERDICT$}{:<room$}", part(claim));
        for ((_, room), cell) in COLUMNS.iter().zip(cells) {
            let _ = write!(line, "{:>room$}", part(cell));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Our own bands of the experiment, those that do not hold by name.
fn render_own<'a>(text: &mut String, part: &'a Part, causes: &mut Causes<'a>, width: usize) {
    let all = part.own().count();
    if all == 0 {
        return;
    }
    let holds = part.own().filter(|claim| claim.verdict == Verdict::Holds);
    let line = format!("bands of our own: {} of {all} hold", holds.count());
    put(text, "          ", &line, width);
    let others = part.own().filter(|claim| claim.verdict != Verdict::Holds);
    for claim in others {
        render_claim(text, claim, causes, width);
    }
}

/// Where our own column wins, and where it loses, on both sides of a paper.
fn render_trade_offs(text: &mut String, board: &Board, width: usize) {
    let parts: Vec<&Part> = board
        .parts()
        .filter(|part| !part.trade_offs.is_empty())
        .collect();
    if parts.is_empty() {
        return;
    }
    put(
        text,
        "",
        "Tidegate's own policy beside both sides of each paper, (before, after) the paper's change, and where it is more than 3 % behind linux-6.12",
        width,
    );
    for part in parts {
        let (before, after) = (
            part.before.as_deref().unwrap_or_default(),
            part.after.as_deref().unwrap_or_default(),
        );
        put(
            text,
            "  ",
            &format!("{} ({before}, {after})", part.experiment),
            width,
        );
        for (side, word) in [
            (Side::BetterThanBoth, "wins"),
            (Side::WorseThanBoth, "loses"),
        ] {
            let own = part.trade_offs.iter().filter(|one| one.outcome == side);
            let list: Vec<String> = own.map(trade_off).collect();
            let mut line = if list.is_empty() {
                "nothing on both sides".to_owned()
            } else {
                list.join("; ")
            };
            if side == Side::BetterThanBoth
                && let Some(behind) = said_behind(part)
            {
                let _ = write!(line, "; {behind}");
            }
            put_hanging(text, &format!("    {word:<7}"), &line, width);
        }
    }
    text.push('\n');
}

/// The metrics in which it is behind today's Linux, if that is known.
pub(super) fn said_behind(part: &Part) -> Option<String> {
    let behind = part.behind.as_ref()?;
    if behind.is_empty() {
        return Some(format!("behind {TODAY} in nothing"));
    }
    let list = behind.iter().map(|one| {
        let ours = with_unit(figure(one.ours), &one.unit);
        format!("{} {ours} ({})", one.metric, figure(one.today))
    });
    let list: Vec<String> = list.collect();
    Some(format!("behind {TODAY} in {}", list.join(", ")))
}

fn trade_off(one: &TradeOff) -> String {
    format!(
        "{} {} ({}, {})",
        one.metric,
        with_unit(figure(one.ours), &one.unit),
        figure(one.before),
        figure(one.after)
    )
}

fn render_sum(text: &mut String, board: &Board, width: usize) {
    let short = |part: &Part| part.replicas < part.replicas_asked;
    if board.parts().any(short) {
        let note = "With fewer repetitions than an experiment asks for (\"1 repetition of 5\") a figure may stray from its mean; \
                    `--replicas 5` makes them all.";
        put(text, "", note, width);
    }
    let mut line = board.sum().said();
    let unknown = board.failing().count();
    if unknown > 0 {
        let _ = write!(line, "; {unknown} MISSED without a cause that is known");
    }
    put(text, "", &line, width);
}

/// A text in lines of at most that width.
fn put(text: &mut String, indent: &str, line: &str, width: usize) {
    for part in wrap(line, width.saturating_sub(indent.len())) {
        let _ = writeln!(text, "{indent}{part}");
    }
}

/// The same with a head before its first line.
fn put_hanging(text: &mut String, head: &str, line: &str, width: usize) {
    let indent = " ".repeat(head.len());
    let parts = wrap(line, width.saturating_sub(head.len()));
    for (at, part) in parts.iter().enumerate() {
        let before = if at == 0 { head } else { &indent };
        let _ = writeln!(text, "{before}{part}");
    }
}

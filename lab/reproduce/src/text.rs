//! The scoreboard as text: for a terminal of any width, and for a file.

use std::fmt::Write as _;

use super::board::{Causes, Claim, Part, Side, TradeOff, Verdict, figure};
use super::scoreboard::{Board, PaperBoard};
use report::terminal::wrap;

/// Width of the text in the file.
pub(super) const WIDTH: usize = 100;
/// Narrower than this there is no room for columns.
const COLUMNS_LEAST: usize = 80;
/// Columns behind the claim.
const PUBLISHED: usize = 15;
const OURS: usize = 15;
const BAND: usize = 15;
const VERDICT: usize = 10;

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
        let claim = width - VERDICT - PUBLISHED - OURS - BAND;
        let _ = writeln!(
            text,
            "{:<VERDICT$}{:<claim$}{:>PUBLISHED$}{:>OURS$}{:>BAND$}",
            "", "claim", "published", "ours", "band"
        );
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
        claim.verdict.word()
    };
    let published = claim.published.as_deref().unwrap_or("-");
    let ours = claim.ours.as_deref().unwrap_or("-");
    if width < COLUMNS_LEAST {
        put(text, "", &format!("{word}: {}", claim.claim), width);
        let figures = format!("published {published}, ours {ours}, band {}", claim.band);
        put(text, "  ", &figures, width);
    } else {
        let room = width - VERDICT - PUBLISHED - OURS - BAND;
        let columns = [
            wrap(&claim.claim, room - 1),
            wrap(published, PUBLISHED - 2),
            wrap(ours, OURS - 2),
            wrap(&claim.band, BAND - 2),
        ];
        let lines = columns.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..lines {
            let part = |column: usize| columns[column].get(at).map_or("", String::as_str);
            let word = if at == 0 { word } else { "" };
            let line = format!(
                "{word:<VERDICT$}{:<room$}{:>PUBLISHED$}{:>OURS$}{:>BAND$}",
                part(0),
                part(1),
                part(2),
                part(3)
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let seeds = claim.seeds.map(|seeds| seeds.said().into());
    for line in seeds.into_iter().chain(causes.of(claim)) {
        let indent = if width < COLUMNS_LEAST {
            "  "
        } else {
            "            "
        };
        put(text, indent, &line, width);
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
        "Tidegate's own policy beside both sides of each paper: (before, after) the paper's change",
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
            let line = if list.is_empty() {
                "nothing on both sides".to_owned()
            } else {
                list.join("; ")
            };
            put_hanging(text, &format!("    {word:<7}"), &line, width);
        }
    }
    text.push('\n');
}

fn trade_off(one: &TradeOff) -> String {
    let unit = if one.unit.is_empty() {
        String::new()
    } else {
        format!(" {}", one.unit)
    };
    format!(
        "{} {}{unit} ({}, {})",
        one.metric,
        figure(one.ours),
        figure(one.before),
        figure(one.after)
    )
}

fn render_sum(text: &mut String, board: &Board, width: usize) {
    let count = |verdict| {
        let of = board.claims().filter(|claim| claim.verdict == verdict);
        of.count()
    };
    let mut line = format!("{} claims:", board.claims().count());
    let all = [
        Verdict::Holds,
        Verdict::Missed,
        Verdict::NotJudged,
        Verdict::NotRun,
        Verdict::NotBuilt,
    ];
    let counts: Vec<String> = all
        .into_iter()
        .filter(|verdict| count(*verdict) > 0)
        .map(|verdict| (count(verdict), verdict))
        .map(|(count, verdict)| format!("{count} {}", verdict.word_of(count)))
        .collect();
    let _ = write!(line, " {}", counts.join(", "));
    let unknown = board.failing().count();
    if unknown > 0 {
        let _ = write!(line, "; {unknown} MISSED without a cause that is known");
    }
    put(text, "", &line, width);
    if board
        .parts()
        .any(|part| part.replicas < part.replicas_asked)
    {
        let note = "With fewer repetitions than an experiment asks for (\"1 repetition of 5\") a figure may stray from its mean; \
                    `--replicas 5` makes them all.";
        put(text, "", note, width);
    }
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

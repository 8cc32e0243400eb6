//! The scoreboard as Markdown: for `--format markdown`, and for `docs/study/papers.md`.

use std::fmt::Write as _;

use super::board::{Claim, Part, Verdict};
use super::scoreboard::{Board, PaperBoard};

pub(super) fn render(board: &Board) -> String {
    let mut text = String::new();
    for paper in &board.papers {
        render_paper(&mut text, paper);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

pub(super) fn render_paper(text: &mut String, paper: &PaperBoard) {
    let _ = writeln!(
        text,
        "## {}: {}\n\n{}. {}\n",
        paper.id, paper.name, paper.who, paper.idea
    );
    let _ = writeln!(
        text,
        "| claim | experiment | published | ours | ratio | band | without | grade |\n|---|---|--:|--:|--:|--:|--:|---|"
    );
    let own = paper.parts.iter().flat_map(Part::published);
    for claim in own.chain(&paper.not_run).chain(&paper.not_built) {
        render_claim(text, claim);
    }
    text.push('\n');
    let mut whys: Vec<(&str, String, Vec<&str>)> = Vec::new();
    for claim in paper.claims() {
        let (word, why) = match (claim.verdict, claim.hollow()) {
            (_, Some(why)) => ("D", why),
            (Verdict::Missed, None) => {
                let why = claim.why.as_deref().unwrap_or("its cause is not known yet");
                ("Missed", why.to_owned())
            }
            _ => continue,
        };
        match whys.iter_mut().find(|(_, known, _)| *known == why) {
            Some((_, _, ids)) => ids.push(&claim.id),
            None => whys.push((word, why, vec![&claim.id])),
        }
    }
    for (word, why, ids) in &whys {
        let _ = writeln!(text, "- {word} ({}): {why}", ids.join(", "));
    }
    for part in &paper.parts {
        render_odds(text, part);
    }
}

/// The differences from the whole experiment: its own runs may be longer.
fn render_odds(text: &mut String, part: &Part) {
    let name = &part.experiment;
    if !part.set.is_empty() {
        let set = part.set.join(", ");
        let _ = writeln!(text, "- `{name}` ran here with {set}.");
    }
    let holds = part
        .published()
        .filter(|claim| claim.known && claim.verdict == Verdict::Holds);
    let ids: Vec<&str> = holds.map(|claim| claim.id.as_str()).collect();
    if !ids.is_empty() {
        let ids = ids.join(", ");
        let _ = writeln!(
            text,
            "- Holds here, but `tidegate run {name} --check` lists it as missed: {ids}."
        );
    }
}

fn render_claim(text: &mut String, claim: &Claim) {
    let experiment = match &claim.experiment {
        Some(name) => format!("`{name}` {}", claim.id),
        None => claim.id.clone(),
    };
    let word = match claim.verdict {
        Verdict::Missed => "**missed**",
        _ => claim.word(),
    };
    let seeds = claim.seeds.map(|seeds| format!(", {}", seeds.said()));
    let seeds = seeds.unwrap_or_default();
    let _ = writeln!(
        text,
        "| {} | {experiment} | {} | {} | {} | {} | {} | {word}{seeds} |",
        claim.claim.replace('|', "\\|"),
        claim.published.as_deref().unwrap_or(""),
        claim.ours.as_deref().unwrap_or(""),
        claim.ratio_said(),
        claim.band,
        claim.knocked()
    );
}

//! The scoreboard as Markdown, as `docs/study/papers.md` has it.

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

fn render_paper(text: &mut String, paper: &PaperBoard) {
    let _ = writeln!(
        text,
        "## {}: {}\n\n{}. {}\n",
        paper.id, paper.name, paper.who, paper.idea
    );
    let _ = writeln!(
        text,
        "| claim | experiment | published | ours | band | |\n|---|---|--:|--:|--:|---|"
    );
    let own = paper.parts.iter().flat_map(Part::published);
    for claim in own.chain(&paper.not_run).chain(&paper.not_built) {
        render_claim(text, claim);
    }
    text.push('\n');
    let mut whys: Vec<(&str, Vec<&str>)> = Vec::new();
    let missed = paper
        .claims()
        .filter(|claim| claim.verdict == Verdict::Missed);
    for claim in missed {
        let why = claim.why.as_deref().unwrap_or("its cause is not known yet");
        match whys.iter_mut().find(|(known, _)| *known == why) {
            Some((_, ids)) => ids.push(&claim.id),
            None => whys.push((why, vec![&claim.id])),
        }
    }
    for (why, ids) in &whys {
        let _ = writeln!(text, "- Missed ({}): {why}", ids.join(", "));
    }
    if !whys.is_empty() {
        text.push('\n');
    }
}

fn render_claim(text: &mut String, claim: &Claim) {
    let experiment = match &claim.experiment {
        Some(name) => format!("`{name}` {}", claim.id),
        None => claim.id.clone(),
    };
    let word = match claim.verdict {
        Verdict::Missed => "**missed**",
        other => other.word(),
    };
    let seeds = claim.seeds.map(|seeds| format!(", {}", seeds.said()));
    let seeds = seeds.unwrap_or_default();
    let _ = writeln!(
        text,
        "| {} | {experiment} | {} | {} | {} | {word}{seeds} |",
        claim.claim.replace('|', "\\|"),
        claim.published.as_deref().unwrap_or(""),
        claim.ours.as_deref().unwrap_or(""),
        claim.band
    );
}

#[cfg(test)]
mod tests {
    use super::super::{Asked, Papers, claims_not_run, plan};
    use super::*;

    const PAGE: &str = include_str!("../../../docs/study/papers.md");

    /// Our own figures in the page are of a run; all else there is what the experiments say.
    #[test]
    fn the_page_has_every_claim_as_its_experiment_says_it() {
        let papers = Papers::read();
        let planned = plan::plan(&papers, &Asked::default()).unwrap();
        let built: Vec<Claim> = planned.iter().flat_map(claims_not_run).collect();
        let not_built = papers
            .papers
            .iter()
            .flat_map(|paper| papers.not_built(&paper.id));
        let claims: Vec<Claim> = built.into_iter().chain(not_built).collect();
        let is_claim = |line: &&str| {
            line.starts_with("| ") && line.contains(" | ") && line.matches(" | ").count() >= 4
        };
        let rows: Vec<&str> = PAGE
            .lines()
            .filter(is_claim)
            .filter(|line| !line.starts_with("| claim "))
            .collect();
        for claim in &claims {
            let experiment = match &claim.experiment {
                Some(name) => format!("`{name}` {}", claim.id),
                None => claim.id.clone(),
            };
            let published = claim.published.as_deref().unwrap_or("");
            let head = format!("| {} | {experiment} | {published} | ", claim.claim);
            let own: Vec<&&str> = rows.iter().filter(|row| row.starts_with(&head)).collect();
            // Claims that several experiments have are in the page once.
            let is_elsewhere = || {
                let same =
                    |other: &&Claim| other.id == claim.id && other.experiment != claim.experiment;
                claims.iter().any(|other| same(&other))
            };
            if own.is_empty() && is_elsewhere() {
                continue;
            }
            assert_eq!(own.len(), 1, "{head}");
            let tail = format!(" | {} | ", claim.band);
            assert!(own[0].contains(&tail), "{}: no{tail}", own[0]);
            let is_missed = own[0].ends_with("| **missed** |");
            assert!(
                !is_missed || claim.known,
                "{}: its experiment names no cause",
                own[0]
            );
        }
        let known = |row: &&&str| {
            claims
                .iter()
                .any(|claim| row.starts_with(&format!("| {} | ", claim.claim)))
        };
        assert_eq!(rows.iter().find(|row| !known(row)), None);
        // A cause has one source: the page repeats what an experiment says.
        let expects = planned.iter().flat_map(|one| &one.scenario.expects);
        let causes: Vec<(&str, &str)> = expects
            .filter_map(|one| {
                Some((
                    one.id.get_ref().as_str(),
                    one.missed.as_ref()?.get_ref().as_str(),
                ))
            })
            .collect();
        for line in PAGE.lines() {
            let Some((ids, why)) = line
                .strip_prefix("- Missed (")
                .and_then(|rest| rest.split_once("): "))
            else {
                continue;
            };
            for id in ids.split(", ") {
                assert!(causes.contains(&(id, why)), "{id} is not missed by: {why}");
            }
        }
    }
}

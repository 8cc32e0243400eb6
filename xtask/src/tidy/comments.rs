//! How comments are written: no line of prose wider than `WIDTH`, and no sentence whose subject is
//! a relative clause (style C6).
//!
//! Such sentences begin with "Who", "Whoever", "The one that" or "What". The first sentence of a
//! doc comment may begin with "What": it names the item ("What a pass may do with a page.").
//! Questions may begin as they like.

use super::Findings;
use crate::workspace::Source;

/// Columns of a line, those before the comment included.
const WIDTH: usize = 100;

/// Words that no sentence begins with.
const NEVER: [&str; 5] = ["Who ", "Whoever ", "Whose ", "The one that ", "Those who "];
/// Words that only the name of an item begins with.
const FIRST_ONLY: [&str; 2] = ["What ", "Whatever "];

pub(super) fn judge(source: &Source, findings: &mut Findings) {
    let (mut marker, mut is_fenced) = (None, false);
    let mut run: Vec<Line<'_>> = Vec::new();
    for (at, text) in source.text.lines().enumerate() {
        let line = Line::of(at + 1, text);
        let next = line.as_ref().map(|line| line.marker);
        if next != marker {
            sentences(source, &run, findings);
            (run, marker, is_fenced) = (Vec::new(), next, false);
        }
        let Some(line) = line else { continue };
        if line.words.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let place = format!("{}:{}", source.path, line.at);
            let columns = text.chars().count();
            if columns > WIDTH && !line.is_drawn() {
                findings.wrong(
                    &place,
                    format!("a comment of {columns} columns: {WIDTH} at most"),
                );
            }
            if line.words.contains("in vain") {
                findings.wrong(
                    &place,
                    "'in vain': say what came of it: it failed, it freed nothing",
                );
            }
            run.push(line);
        }
    }
    sentences(source, &run, findings);
}

/// A line that is a comment and nothing else.
struct Line<'a> {
    at: usize,
    marker: &'a str,
    words: &'a str,
}

impl<'a> Line<'a> {
    fn of(at: usize, text: &'a str) -> Option<Self> {
        let text = text.trim();
        let words = text.strip_prefix("//")?.trim_start_matches(['/', '!']);
        let marker = &text[..text.len() - words.len()];
        let words = words.trim_start();
        Some(Self { at, marker, words })
    }

    /// A row of a table, or a part of a picture: its columns have a meaning.
    fn is_drawn(&self) -> bool {
        self.words.starts_with('|') || self.words.contains("  ") || self.words.contains("--")
    }
}

fn sentences(source: &Source, run: &[Line<'_>], findings: &mut Findings) {
    for (nth, line) in run.iter().enumerate() {
        let mut from = 0;
        for (end, _) in line.words.match_indices(['.', ';', ':', '!', '?']) {
            if line.words[end + 1..].starts_with(' ') {
                sentence(source, run, (nth, from), findings);
                from = end + 2;
            }
        }
        sentence(source, run, (nth, from), findings);
    }
}

/// Judges the words of a line from a place on, where a sentence may begin.
fn sentence(
    source: &Source,
    run: &[Line<'_>],
    (nth, from): (usize, usize),
    findings: &mut Findings,
) {
    let line = &run[nth];
    let words = line.words[from..].trim_start_matches(['-', '*', ' ', '(']);
    let is_first = from == 0 && nth == 0 && line.marker.len() > 2;
    let begins = |with: &&&str| words.starts_with(**with);
    let found = NEVER.iter().find(begins);
    let found = found.or_else(|| FIRST_ONLY.iter().find(begins).filter(|_| !is_first));
    let Some(found) = found else { return };
    let rest = run[nth + 1..]
        .iter()
        .flat_map(|line| line.words.chars().chain([' ']));
    let end = words.chars().chain(rest).find(|c| matches!(c, '.' | '?'));
    if end != Some('?') {
        let place = format!("{}:{}", source.path, line.at);
        let found = found.trim_end();
        findings.wrong(
            &place,
            format!("a sentence begins with '{found}': its subject is a noun (style C6)"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Vec<String> {
        let source = Source {
            path: "a.rs".into(),
            text: text.into(),
        };
        let mut findings = Findings::default();
        judge(&source, &mut findings);
        findings.wrong
    }

    #[test]
    fn a_relative_clause_is_no_subject() {
        for text in [
            "// Who comes late waits.\n",
            "/// A page. What is left of it goes.\n",
            "//! A page, and\n//! so on. The one that frees it\n//! wakes all.\n",
            "/// The law of pages.\n///\n/// What it does: nothing.\n",
            "//!   1. Those who wait are woken.\n",
            "// What is left goes.\n",
            "// it was tried in vain\n",
        ] {
            assert_eq!(wrong(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_name_a_question_and_a_picture_are_none() {
        for text in [
            "/// What a pass may do.\nstruct Pass;\n/// What it did.\n",
            "// Who waits here, and\n// for what?\n",
            "let text = \"Who waits\"; // it says who\n",
            "//! ```text\n//! Who waits.\n//! ```\n//! A page.\n",
        ] {
            assert_eq!(wrong(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn prose_is_bounded_and_tables_are_not() {
        let long = "wide ".repeat(21);
        assert_eq!(wrong(&format!("// {long}\n")).len(), 1);
        assert_eq!(wrong(&format!("    /// {}\n", "a".repeat(92))), [""; 0]);
        assert_eq!(wrong(&format!("    /// {}\n", "a".repeat(93))).len(), 1);
        for text in ["| ", "a --> b ", "```\n//! "] {
            assert_eq!(wrong(&format!("//! {text}{long}\n")), [""; 0], "{text}");
        }
    }
}

//! The writing of comments and pages: no line of a comment wider than `WIDTH`, no word of `WORDS`,
//! and no sentence whose subject is a clause (style C6).
//!
//! Such a sentence begins with a word of `CLAUSES`. Allowed are questions; "Where X, Y", which has
//! a subject of its own behind the comma; and "That", unless a word of `AFTER_THAT` follows, for
//! then it is no pronoun. Headings of pages are names, and begin as they like.

use super::Findings;
use crate::workspace::Source;

/// Columns of a line, those before the comment included.
const WIDTH: usize = 100;

/// Words with which a clause begins that stands for a noun.
const CLAUSES: [&str; 12] = [
    "What",
    "Whatever",
    "Whether",
    "How",
    "Who",
    "Whoever",
    "Whose",
    "Where",
    "Wherever",
    "That",
    "Those who",
    "The one that",
];
/// Words behind "That" which make it a clause.
const AFTER_THAT: [&str; 16] = [
    "a", "an", "the", "it", "its", "they", "their", "no", "nobody", "somebody", "each", "every",
    "all", "this", "these", "such",
];

/// Words that say too little, and better ones.
const WORDS: [(&str, &str); 3] = [
    ("in vain", "the outcome: it failed, it freed nothing"),
    ("so many", "this many, or the number by its name"),
    ("let go", "freed, evicted, released, dropped, closed"),
];

/// Pages that are kept as they were written.
const RECORDS: [&str; 2] = ["docs/study/reference/", "docs/study/notebooks/"];

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for source in sources {
        if source.is_rust() {
            comments(source, findings);
        } else if source.extension() == "md" && !RECORDS.iter().any(|at| source.path.contains(at)) {
            page(source, findings);
        }
    }
}

fn comments(source: &Source, findings: &mut Findings) {
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
            let columns = text.chars().count();
            if columns > WIDTH && !line.is_drawn() {
                let place = format!("{}:{}", source.path, line.at);
                findings.wrong(
                    &place,
                    format!("a comment of {columns} columns: {WIDTH} at most"),
                );
            }
            run.push(line);
        }
    }
    sentences(source, &run, findings);
}

fn page(source: &Source, findings: &mut Findings) {
    let mut is_fenced = false;
    let mut run: Vec<Line<'_>> = Vec::new();
    for (at, text) in source.text.lines().enumerate() {
        let words = text.trim_start();
        is_fenced ^= words.starts_with("```");
        if is_fenced || words.is_empty() || words.starts_with(['`', '#', '|', '-', '*']) {
            sentences(source, &run, findings);
            run.clear();
        }
        if !is_fenced && !words.starts_with(['`', '#', '|']) {
            let (at, marker) = (at + 1, "");
            run.push(Line { at, marker, words });
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
        let place = || format!("{}:{}", source.path, line.at);
        let words = line.words.to_lowercase();
        for (word, better) in WORDS {
            if words.contains(word) {
                findings.wrong(&place(), format!("'{word}': write {better}"));
            }
        }
        let ends = line.words.match_indices(['.', ';', ':', '!', '?']);
        let ends = ends.filter(|(end, _)| line.words[end + 1..].starts_with(' '));
        for from in [0].into_iter().chain(ends.map(|(end, _)| end + 2)) {
            if let Some(word) = clause(&line.words[from..], &run[nth + 1..]) {
                let complaint = "its subject is a noun (style C6)";
                findings.wrong(
                    &place(),
                    format!("a sentence begins with '{word}': {complaint}"),
                );
            }
        }
    }
}

/// The word with which a sentence begins whose subject is a clause: the rest of a line, and the
/// lines behind it.
fn clause(words: &str, behind: &[Line<'_>]) -> Option<&'static str> {
    let words = words.trim_start_matches(['-', '*', ' ', '(', '>', '_']);
    let behind_word = |word: &&&str| {
        let rest = words.strip_prefix(**word)?;
        rest.starts_with(' ').then_some(rest)
    };
    let word = CLAUSES.iter().find(|word| behind_word(word).is_some())?;
    let behind = behind.iter().flat_map(|line| [" ", line.words]);
    let sentence: String = [words].into_iter().chain(behind).collect();
    let ends = |&(at, _): &(usize, &str)| {
        !sentence[at + 1..].starts_with(|next: char| next.is_alphanumeric())
    };
    let end = sentence.match_indices(['.', '?', '!']).find(ends);
    let (end, mark) = end.unwrap_or((sentence.len(), "."));
    let next = sentence[word.len()..].split_whitespace().next();
    let is_allowed = match *word {
        _ if mark == "?" => true,
        "Where" | "Wherever" => sentence[..end].contains(','),
        "That" => !next.is_some_and(|next| AFTER_THAT.contains(&next)),
        _ => false,
    };
    (!is_allowed).then_some(*word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_in(path: &str, text: &str) -> Vec<String> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let mut findings = Findings::default();
        judge(&[source], &mut findings);
        findings.wrong
    }

    fn wrong(text: &str) -> Vec<String> {
        wrong_in("xtask/a.rs", text)
    }

    #[test]
    fn a_clause_is_no_subject() {
        for text in [
            "// Who comes late waits.\n",
            "/// A page. What is left of it goes.\n",
            "//! A page, and\n//! so on. The one that frees it\n//! wakes all.\n",
            "/// What a pass may do.\nstruct Pass;\n",
            "//!   1. Those who wait are woken.\n",
            "/// Whether it waits, and\n/// for what.\n",
            "// Where it stands: there.\n",
            "// That the page is there is known.\n",
            "// it was tried in vain\n",
        ] {
            assert_eq!(wrong(text).len(), 1, "{text}");
        }
        for text in [
            "A page.\n\nWhat is left goes.\n",
            "- **How it is done.** So.\n",
        ] {
            assert_eq!(wrong_in("docs/a.md", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_question_a_picture_and_a_heading_are_none() {
        for text in [
            "// Who waits here, and\n// for what?\n",
            "// Where a page is dirty,\n// it is written.\n",
            "// That is known. That page is there.\n",
            "let text = \"Who waits\"; // it says who\n",
            "//! ```text\n//! Who waits.\n//! ```\n//! A page.\n",
        ] {
            assert_eq!(wrong(text), [""; 0], "{text}");
        }
        let page = "# How it works\n\n| What | it |\n\n```text\nWho waits.\n```\nSo.\n";
        assert_eq!(wrong_in("docs/a.md", page), [""; 0]);
        assert_eq!(
            wrong_in("docs/study/notebooks/a.md", "What it was.\n"),
            [""; 0]
        );
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

//! Citations of the reference pages: each leads to a section, and to a row where it names one.
//!
//! ```text
//!   mechanisms 4.7           docs/study/reference/mechanisms.md, the heading that begins with 4.7
//!   mechanisms 5.5, 5.6      both; `to`, `and`, `or` and a dash join sections, too
//!   mechanisms 2.5 row 6a    a line of a table in that section whose first cell is 6a
//!   experiments A7 row 15    docs/study/reference/experiments.md
//!   experiments 0.7          point 7 of the list in section 0
//!   kernel facts A4          docs/study/reference/kernel-facts.md
//!   style A9                 docs/work/style.md, the rule that begins with **A9**
//! ```
//!
//! A page's name that no section follows is a word of English. A citation may break over the lines
//! of a comment. A citation that nobody can look up any more is in `banned`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, text_of};
use crate::workspace::Source;

/// The word that begins a citation, and the page that it means.
const PAGES: [(&str, &str); 4] = [
    ("mechanisms", "docs/study/reference/mechanisms.md"),
    ("experiments", "docs/study/reference/experiments.md"),
    ("kernel facts", "docs/study/reference/kernel-facts.md"),
    ("style", "docs/work/style.md"),
];

/// The parts of a page that can be cited: its sections, and of each the names of its rows and
/// points.
type Sections = BTreeMap<String, BTreeSet<String>>;

/// Where citations of sections stand that are not there, to test this.
const HERE: &str = "xtask/src/tidy/citations.rs";

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    let mut pages = BTreeMap::new();
    for (word, path) in PAGES {
        match text_of(sources, path) {
            Some(text) => {
                pages.insert(word, sections(text));
            }
            None => findings.wrong(path, "is cited and not there"),
        }
    }
    for source in sources.iter().filter(|source| source.path != HERE) {
        for (line, citation) in citations(source) {
            let Some(sections) = pages.get(citation.page) else {
                continue;
            };
            if let Some(problem) = problem(sections, &citation) {
                findings.wrong(&format!("{}:{line}", source.path), problem);
            }
        }
    }
}

/// A page, one section of it, and rows of that.
#[derive(Debug, PartialEq, Eq)]
struct Citation {
    page: &'static str,
    section: String,
    rows: Vec<String>,
}

fn problem(sections: &Sections, citation: &Citation) -> Option<String> {
    let Citation {
        page,
        section,
        rows,
    } = citation;
    let Some(known) = sections.get(section) else {
        return Some(format!("cites {page} {section}: there is no such section"));
    };
    let lost = rows.iter().find(|row| !known.contains(*row))?;
    Some(format!(
        "cites {page} {section} row {lost}: there is no such row"
    ))
}

/// The sections of a page, by the names that its headings begin with.
fn sections(text: &str) -> Sections {
    let mut sections = Sections::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim();
            section = match heading.split(' ').next() {
                Some(name) if is_name(name.trim_end_matches('.')) => name.trim_end_matches('.'),
                _ => heading,
            }
            .to_owned();
            sections.entry(section.clone()).or_default();
        } else if let Some(cell) = line.strip_prefix("| ") {
            let name = cell.split([' ', '|']).next().unwrap_or_default();
            if name.starts_with(|c: char| c.is_ascii_digit()) {
                let rows = sections.entry(section.clone()).or_default();
                rows.insert(name.to_owned());
                // Row 6 is where 6a is.
                rows.insert(name.trim_end_matches(char::is_alphabetic).to_owned());
            }
        } else if let Some((number, _)) = line.split_once(". ")
            && number.bytes().all(|digit| digit.is_ascii_digit())
        {
            sections.entry(format!("{section}.{number}")).or_default();
        } else if let Some(rule) = line.strip_prefix("**")
            && let Some((name, _)) = rule.split_once("**")
            && is_name(name)
        {
            sections.entry(name.to_owned()).or_default();
        }
    }
    sections
}

/// `4`, `4.7`, `1.7.1`, `A`, `A7`.
fn is_name(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    word.len() - digits.len() <= 1
        && !word.is_empty()
        && digits
            .split('.')
            .all(|part| part.bytes().all(|digit| digit.is_ascii_digit()))
        && !digits.ends_with('.')
        && !digits.starts_with('.')
}

/// The citations of a file, with their lines.
fn citations(source: &Source) -> Vec<(usize, Citation)> {
    let (text, lines) = joined(source);
    // A sentence may begin with one.
    let small = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for (page, _) in PAGES {
        for (at, _) in small.match_indices(page) {
            let before = text[..at].chars().next_back();
            let after = &text[at + page.len()..];
            if before.is_some_and(is_part_of_word) || !after.starts_with(' ') {
                continue;
            }
            let line = lines.partition_point(|start| *start <= at);
            let cited = sections_cited(page, &after[1..]);
            found.extend(cited.into_iter().map(|citation| (line, citation)));
        }
    }
    found
}

fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '/')
}

/// A file as one line: without what begins a line of a comment, and where each line begins in it.
fn joined(source: &Source) -> (String, Vec<usize>) {
    let mut text = String::new();
    let mut lines = Vec::new();
    for line in source.text.lines() {
        lines.push(text.len());
        let line = line.trim_start();
        let bare = match source.extension() {
            "rs" => line.trim_start_matches('/').trim_start_matches('!'),
            "toml" => line.trim_start_matches('#'),
            _ => line,
        };
        text.push_str(bare.trim());
        text.push(' ');
    }
    (text, lines)
}

/// The sections at the beginning of `text`, each with the rows that follow it.
fn sections_cited(page: &'static str, text: &str) -> Vec<Citation> {
    let mut cited: Vec<Citation> = Vec::new();
    let mut rest = text;
    while let Some((section, more)) = name(page, rest) {
        let (rows, more) = rows(more);
        cited.push(Citation {
            page,
            section: section.to_owned(),
            rows,
        });
        match joint(more) {
            Some(more) => rest = more,
            None => break,
        }
    }
    cited
}

/// The name of a section that `text` begins with, and what follows it.
fn name<'a>(page: &str, text: &'a str) -> Option<(&'a str, &'a str)> {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .unwrap_or(text.len());
    let word = text[..end].trim_end_matches('.');
    // Mechanisms are numbered; the sections of the others have a letter, or are points of
    // section 0.
    let fits = match page {
        "mechanisms" => word.starts_with(|c: char| c.is_ascii_digit()),
        "experiments" => {
            word.starts_with("0.") || word.starts_with(|c: char| c.is_ascii_uppercase())
        }
        "style" => word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase()),
        _ => true,
    };
    (fits && is_name(word)).then(|| (word, &text[word.len()..]))
}

/// `row 3`, `rows 13, 15 and 16`, with or without a comma or a colon before it; a span names its
/// ends.
fn rows(text: &str) -> (Vec<String>, &str) {
    let begun = text.trim_start_matches(',').trim_start();
    let Some(list) = begun.strip_prefix("rows ").or(begun.strip_prefix("row ")) else {
        return (Vec::new(), text);
    };
    let mut found = Vec::new();
    let mut rest = list;
    loop {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let word = &rest[..end];
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        found.push(word.to_owned());
        rest = &rest[end..];
        match joint(rest) {
            Some(more) => rest = more,
            None => break,
        }
    }
    (found, rest)
}

/// The text behind a word that joins two sections or rows.
fn joint(text: &str) -> Option<&str> {
    [", and ", ", ", " and ", " to ", " or ", "-"]
        .iter()
        .find_map(|word| text.strip_prefix(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MECHANISMS: &str = "# Title\n## 2. Lists\n### 2.5 Table\n| # | what |\n|---|---|\n\
        | 1 | busy |\n| 6a | kswapd |\n#### 2.5.1 Deep\n### 2.6 Second chance\n";
    const EXPERIMENTS: &str = "## 0. Wrong in papers\n1. **one.** x\n7. **seven.** x\n# A. All\n\
        ## A7. Rows\n| 15 | p1 |\n| 16 | p1 |\n# E. Devices\n## Open points\n";
    const STYLE: &str = "## 2. Architecture\n**A9** Same seed, same hash.\n";

    fn tree(path: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| Source {
            path: path.into(),
            text: text.into(),
        };
        let sources = [
            file(PAGES[0].1, MECHANISMS),
            file(PAGES[1].1, EXPERIMENTS),
            file(PAGES[2].1, "# A. One\n## A4. Pages\n## 13. Queues\n"),
            file(PAGES[3].1, STYLE),
            file(path, text),
        ];
        let mut findings = Findings::default();
        judge(&sources, &mut findings);
        findings.wrong
    }

    fn wrong(text: &str) -> usize {
        tree("cache/mm/src/a.rs", text).len()
    }

    #[test]
    fn what_is_there_may_be_cited() {
        for text in [
            "//! Source: mechanisms 2.5; Linux v6.12 mm/vmscan.c, f(), 7 times.",
            "// mechanisms 2, 2.5 and 2.6, in our words; mechanisms 2.5.1.",
            "// mechanisms 2.5 to 2.6 (2.5 rows)",
            "// (mechanisms 2.5, rows 1 to 6, and 6a)",
            "let a = \"experiments A7 row 15, paper 0.109\"; // experiments A7 rows 15 and 16",
            "//! Source: experiments E, SATA disk 2010; experiments 0.7 (250 before, 1000 after).",
            "// style A9; the bands of experiments measure their mechanisms: 9 of them",
            "// as in all experiments A",
            "// kernel facts A4 and 13; the kernel facts are many",
            "//! Source: mechanisms\n//! 2.5.",
        ] {
            assert_eq!(wrong(text), 0, "{text}");
        }
    }

    #[test]
    fn what_is_not_there_may_not() {
        for text in [
            "// mechanisms 2.9",
            "// mechanisms 2.5, 9",
            "// mechanisms 2.5 row 2",
            "// mechanisms 2.5.2",
            "// experiments A8",
            "// experiments A7 row 14",
            "// experiments A7, rows 15 and 17",
            "// experiments 0.2",
            "// style A8",
            "// Mechanisms 2.9 says it.",
            "// kernel facts 14",
            "//! Source: mechanisms\n//! 2.9.",
        ] {
            assert_eq!(wrong(text), 1, "{text}");
        }
    }

    #[test]
    fn a_finding_names_the_line_and_what_is_lost() {
        let text = "//! Header.\n//!\n//! Source: mechanisms 2.5,\n//! 2.7.\nfn f() {}\n";
        let found = tree("crates/a/src/b.rs", text);
        assert_eq!(
            found,
            ["crates/a/src/b.rs:3: cites mechanisms 2.7: there is no such section"]
        );
    }

    #[test]
    fn a_page_that_is_gone_is_wrong() {
        let mut findings = Findings::default();
        judge(&[], &mut findings);
        assert_eq!(findings.wrong.len(), PAGES.len());
    }

    #[test]
    fn scenarios_and_documents_are_read_too() {
        let source = "[[expect]]\nsource = \"experiments A7 row 3\"\n# experiments A9\n";
        assert_eq!(tree("experiments/a.toml", source).len(), 2);
        assert_eq!(tree("docs/a.md", "see mechanisms 3\n").len(), 1);
    }
}

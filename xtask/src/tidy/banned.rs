//! Words that nobody but their writer understands: names of pages that are not in the repository,
//! numbers of lists that are not, and turns of speech that a reader has to translate first.
//!
//! To ban another one, add a line to `BANNED`. This file alone is not searched.

use super::Findings;
use crate::workspace::Source;

/// Banned words, with `#` for a number, and their better.
const BANNED: &[(&str, &str)] = &[
    (
        "issue #",
        "issues are not in the repository: say what is wanted",
    ),
    (
        "issues #",
        "issues are not in the repository: say what is wanted",
    ),
    ("promise #", "say what is promised"),
    ("promises #", "say what is promised"),
    ("decision #", "cite the record, docs/adr/NNNN"),
    ("(design,", "say what is wanted"),
    ("design p#", "is not in the repository: say what is wanted"),
    (
        "oracle",
        "\"field recordings\" (docs/study/reference/field-recordings.md)",
    ),
    (
        "design.md",
        "is not in the repository: cite ARCHITECTURE.md or an ADR, or say it in words",
    ),
    ("overview.md", "is not in the repository"),
    (
        "dependencies.md",
        "is not in the repository: cite docs/adr/0005-dependencies.md",
    ),
    ("house.md", "is not in the repository"),
    ("../shared", "is not in the repository"),
    ("mechanisms.md", "cite as `mechanisms 4.7`"),
    ("experiments.md", "cite as `experiments A7 row 15`"),
    ("style guide", "cite as `style A9`"),
    ("to be had", "available"),
    ("is no matter", "does not matter"),
    ("was no matter", "did not matter"),
    ("of no account", "does not matter"),
    ("end of the world", "shutdown"),
    ("catches its breath", "pauses briefly"),
    ("he", "tasks and programs are `it`, people are `they`"),
    ("him", "tasks and programs are `it`, people are `them`"),
    ("his", "tasks and programs have `its`, people `their`"),
];

/// Words banned beside those in pages that a user meets. In comments there are some three hundred
/// of them.
const BANNED_IN_PAGES: &[(&str, &str)] = &[("whoever", "say who: a task, a program, a reader")];

/// Pages for those that work on it.
const INNER_PAGES: &[&str] = &[
    "docs/adr/",
    "docs/work/bench.md",
    "docs/work/campaign.md",
    "docs/study/reference/",
    "docs/study/notebooks/",
];

/// The file in which banned words may stand.
const HERE: &str = "xtask/src/tidy/banned.rs";

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for source in sources.iter().filter(|source| source.path != HERE) {
        let is_inner = || INNER_PAGES.iter().any(|path| source.path.starts_with(path));
        let in_pages = if source.extension() == "md" && !is_inner() {
            BANNED_IN_PAGES
        } else {
            &[]
        };
        for (at, line) in source.text.lines().enumerate() {
            let line = line.to_lowercase();
            for &(word, instead) in BANNED.iter().chain(in_pages) {
                if has(&line, word) {
                    let place = format!("{}:{}", source.path, at + 1);
                    findings.wrong(&place, format!("'{word}': {instead}"));
                }
            }
        }
    }
}

/// True if a line in small letters has a word that stands alone: no part of a longer one, of a path
/// or of a link.
fn has(line: &str, word: &str) -> bool {
    let (word, number) = match word.strip_suffix('#') {
        Some(word) => (word, true),
        None => (word, false),
    };
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let digit = after.is_some_and(|c| c.is_ascii_digit());
        let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        // The name of a page may be part of a path to where it is.
        let page = word.ends_with(".md");
        let linked = page
            && (line[..at].ends_with("](")
                || line[at + word.len()..].starts_with("](")
                || before == Some('/'));
        !before.is_some_and(goes_on)
            && !linked
            && if number {
                digit
            } else {
                !after.is_some_and(goes_on)
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_lead_nowhere_are_found() {
        for line in [
            "//! source: issue 3, \"must reach\"",
            "// (issues 3 and 4)",
            "// design.md, promise 2",
            "// oracle/readme.md says so",
            "// `../shared/oracle`",
            "// experiments.md a6",
            "// [experiments.md] (x)",
            "the brief of ../shared says",
            "// a lock of his.",
            "/// no frame is to be had",
        ] {
            assert!(BANNED.iter().any(|(word, _)| has(line, word)), "{line}");
        }
    }

    #[test]
    fn links_paths_and_other_words_are_not() {
        for line in [
            "https://github.com/a/b/issues/3",
            "an issue, 3 of them; promises kept; tissue 3",
            "docs/adr/0005-dependencies.md and [rows](reference/experiments.md)",
            "[page](mechanisms.md#4-throttling), docs/study/reference/mechanisms.md",
            "[mechanisms.md](mechanisms.md), [experiments.md](experiments.md)",
            "let oracles = 3;",
            "the history of this one, which the lab has; t.he_is",
        ] {
            assert!(!BANNED.iter().any(|(word, _)| has(line, word)), "{line}");
        }
    }

    #[test]
    fn a_finding_names_the_line() {
        let source = Source {
            path: "docs/a.md".into(),
            text: "# A\n\nAs Issue 3 wants.\n".into(),
        };
        let mut findings = Findings::default();
        judge(&[source], &mut findings);
        assert_eq!(findings.wrong.len(), 1);
        assert!(findings.wrong[0].starts_with("docs/a.md:3: 'issue #'"));
    }

    #[test]
    fn a_page_for_users_is_read_more_strictly() {
        let source = |path: &str| Source {
            path: path.into(),
            text: "Whoever reads it, reads it.\n".into(),
        };
        for (path, wrong) in [
            ("docs/a.md", 1),
            ("docs/adr/0001-a.md", 0),
            ("cache/a.rs", 0),
        ] {
            let mut findings = Findings::default();
            judge(&[source(path)], &mut findings);
            assert_eq!(findings.wrong.len(), wrong, "{path}");
        }
    }
}

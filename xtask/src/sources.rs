//! `cargo xtask sources`: kernel functions that the code cites, beside the tests that name them.
//!
//! A citation reads `Linux v6.12 mm/page-writeback.c, balance_dirty_pages(),
//! wb_update_dirty_ratelimit()` in a comment, with or without the `v`; lines may break anywhere. A
//! test names a function when the word stands in test code; the number of tests beside the citing
//! module is printed too. A function with neither is counted: advice, not a failure.
//!
//! Source: style C5.

use std::collections::{BTreeMap, BTreeSet};

use crate::Result;
use crate::workspace::{Source, sources};

/// Version, file, function.
type Citation = (String, String, String);

#[derive(Default)]
struct Where {
    cited: BTreeSet<String>,
    tests: BTreeSet<String>,
    /// Tests of the citing modules.
    beside: usize,
}

pub(crate) fn run() -> Result<()> {
    let sources = sources(&["rs"])?;
    let table = collect(&sources);
    println!(
        "{:<8} {:<28} {:<36} cited in -> named by tests in",
        "version", "file", "function"
    );
    let mut untested = 0;
    for ((version, file, function), places) in &table {
        let cited: Vec<&str> = places.cited.iter().map(String::as_str).collect();
        let tests: Vec<&str> = places.tests.iter().map(String::as_str).collect();
        untested += usize::from(tests.is_empty() && places.beside == 0);
        let tests = match tests.is_empty() {
            true => format!("({} tests beside it)", places.beside),
            false => tests.join(", "),
        };
        let cited = cited.join(", ");
        println!("{version:<8} {file:<24} {function:<37} {cited} -> {tests}");
    }
    println!(
        "sources: {} functions cited, {untested} of them in modules without any test",
        table.len()
    );
    if table.is_empty() {
        Err("no citation found: has their form changed?".into())
    } else {
        Ok(())
    }
}

fn collect(sources: &[Source]) -> BTreeMap<Citation, Where> {
    let mut table: BTreeMap<Citation, Where> = BTreeMap::new();
    let tools = ["xtask/", "instruments/host/"];
    let ours = |source: &&Source| !tools.iter().any(|tool| source.path.starts_with(tool));
    for source in sources.iter().filter(ours) {
        for citation in citations(&comments(&source.text)) {
            let places = table.entry(citation).or_default();
            if places.cited.insert(short(&source.path)) {
                places.beside += tests_beside(sources, source);
            }
        }
    }
    for source in sources.iter().filter(ours) {
        let code = test_code(source);
        let words: BTreeSet<&str> = code
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .collect();
        for ((_, _, function), places) in &mut table {
            if words.contains(function.as_str()) {
                places.tests.insert(short(&source.path));
            }
        }
    }
    table
}

/// Tests at the foot of a module, in its `tests.rs`, or in a folder `tests` beside it.
fn tests_beside(sources: &[Source], module: &Source) -> usize {
    let stem = module.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let folder = module
        .path
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let places = [format!("{stem}/tests"), format!("{folder}/tests")];
    let of = |source: &Source| source.text.matches("#[test]").count();
    let near = |source: &&Source| places.iter().any(|place| source.path.starts_with(place));
    of(module) + sources.iter().filter(near).map(of).sum::<usize>()
}

fn short(path: &str) -> String {
    path.replace("/src/", "/")
}

/// All comments of a file as one line.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let at = line.find("//")?;
        Some(line[at..].trim_start_matches(['/', '!']).trim().to_owned())
    };
    text.lines()
        .filter_map(comment)
        .collect::<Vec<_>>()
        .join(" ")
}

fn test_code(source: &Source) -> &str {
    if source.is_test() {
        return &source.text;
    }
    source
        .text
        .split_once("\n#[cfg(test)]\nmod tests {")
        .map_or("", |(_, tests)| tests)
}

/// The citations of a text: after `Linux`, versions, files and functions, until any other word.
fn citations(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    for mut rest in text.split("Linux ").skip(1) {
        let mut versions: Vec<&str> = Vec::new();
        let mut file = "";
        while let Some((word, more)) = next_word(rest) {
            rest = more;
            let bare = word.trim_matches(['`', ',', ';', '.', '(', ')', ':']);
            if is_version(bare) {
                if !file.is_empty() {
                    (versions, file) = (Vec::new(), "");
                }
                versions.push(bare.trim_start_matches('v'));
            } else if bare.contains('/') && (bare.ends_with(".c") || bare.ends_with(".h")) {
                file = bare;
            } else if word.contains("()") && !file.is_empty() {
                let cite =
                    |version: &&str| (format!("v{version}"), file.to_owned(), bare.to_owned());
                found.extend(versions.iter().map(cite));
            } else if bare != "and" {
                break;
            }
            if word.ends_with(['.', ':']) {
                break;
            }
        }
    }
    found
}

/// `6.12`, `v2.6.36`.
fn is_version(word: &str) -> bool {
    let word = word.strip_prefix('v').unwrap_or(word);
    word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    Some(text.split_once(' ').unwrap_or((text, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_citation_may_break_over_lines() {
        let text = "//! Source: Linux v6.12 mm/page-writeback.c,\n//! balance_dirty_pages() and\n\
                    //! `wb_position_ratio()`; fs/fs-writeback.c, wb_writeback(). Then work().\n";
        let found = citations(&comments(text));
        let names: Vec<&str> = found.iter().map(|(_, _, name)| name.as_str()).collect();
        assert_eq!(
            names,
            ["balance_dirty_pages", "wb_position_ratio", "wb_writeback"]
        );
        assert_eq!(found[2].1, "fs/fs-writeback.c");
        assert_eq!(found[0].0, "v6.12");
    }

    #[test]
    fn two_versions_may_share_a_file() {
        let found = citations("as Linux 2.6.36 and 6.12 mm/x.c, f(), g(); 3.2 lib/y.c, h() did");
        let versions: Vec<&str> = found
            .iter()
            .map(|(version, _, _)| version.as_str())
            .collect();
        assert_eq!(versions, ["v2.6.36", "v6.12", "v2.6.36", "v6.12", "v3.2"]);
        assert!(citations("the Linux kernel, f()").is_empty());
    }

    #[test]
    fn tests_are_found_by_the_function_they_name() {
        let text =
            "// Linux v6.6 mm/a.c, f()\n\n#[cfg(test)]\nmod tests {\n    // as f() does\n}\n";
        let source = Source {
            path: "cache/policy/src/a.rs".into(),
            text: text.into(),
        };
        let table = collect(&[source]);
        let key = ("v6.6".to_owned(), "mm/a.c".to_owned(), "f".to_owned());
        assert_eq!(table[&key].tests.len(), 1);
    }
}

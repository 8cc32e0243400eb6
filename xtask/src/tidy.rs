//! The rules of docs/work/style.md that a machine can judge: `cargo xtask tidy`, and a test of this
//! crate.
//!
//! | rule | checked here |
//! |---|---|
//! | dependencies run one way, and each is an ADR | `graph` |
//! | `unsafe` only where it has to be | `unsafe_code` |
//! | no dead files, none of thousands of lines | `files` |
//! | no notes to oneself | `notes` |
//! | every acceptance band says whose it is | `bands` |
//! | links of the documents lead somewhere | `links` |
//! | diffs of how-to pages apply | `howto` |
//! | what is cited of the reference pages is in them | `citations` |
//! | nothing is cited that a reader cannot look up | `banned` |
//! | comments are narrow; their sentences, and those of pages, have nouns as subjects | `comments` |
//! | modules of `mm` and `policy` import downwards; no files do in new circles | `floors` |
//! | commands compile one set of units | `units` |
//! | subjects of commits are short, and name a crate | `commits` |
//! | threads of the library take no signals of the program | `threads` |
//!
//! A finding fails the command. Sizes and module headers are advice: printed, no more.
//!
//! Source: style L3, L4.

mod bands;
mod banned;
mod citations;
mod comments;
mod commits;
mod files;
mod floors;
mod graph;
mod howto;
mod links;
mod threads;
mod units;

use crate::workspace::{Source, Workspace, sources};
use crate::{Result, instruments, python};

/// The findings.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Broken rules.
    wrong: Vec<String>,
    /// Advice.
    advice: Vec<String>,
}

impl Findings {
    fn wrong(&mut self, place: &str, what: impl AsRef<str>) {
        self.wrong.push(format!("{place}: {}", what.as_ref()));
    }

    fn advice(&mut self, place: &str, what: impl AsRef<str>) {
        self.advice.push(format!("{place}: {}", what.as_ref()));
    }
}

/// Checks the tree and prints what was found.
///
/// # Errors
/// A rule is broken, or the tree cannot be read.
pub(crate) fn run() -> Result<()> {
    let findings = judge()?;
    for line in &findings.advice {
        println!("advice: {line}");
    }
    for line in &findings.wrong {
        println!("wrong:  {line}");
    }
    let (wrong, advice) = (findings.wrong.len(), findings.advice.len());
    println!("tidy: {wrong} wrong, {advice} pieces of advice");
    if wrong > 0 {
        Err(format!("the tree is not tidy: {wrong} findings"))
    } else {
        Ok(())
    }
}

fn judge() -> Result<Findings> {
    let sources = sources(&["rs", "md", "toml"])?;
    let mut findings = Findings::default();
    for manifest in ["Cargo.toml", instruments::MANIFEST, python::MANIFEST] {
        graph::judge(&Workspace::load_at(manifest)?, &sources, &mut findings);
    }
    for source in &sources {
        if source.is_rust() {
            files::judge(source, &mut findings);
        }
        files::notes(source, &mut findings);
    }
    comments::judge(&sources, &mut findings);
    files::dead(&sources, &mut findings);
    bands::judge(&sources, &mut findings);
    links::judge(&sources, &mut findings);
    howto::judge(&sources, &mut findings);
    citations::judge(&sources, &mut findings);
    banned::judge(&sources, &mut findings);
    floors::judge(&sources, &mut findings);
    units::judge(&mut findings)?;
    commits::judge(&mut findings);
    threads::judge(&sources, &mut findings);
    Ok(findings)
}

/// The text of a file, if it is there.
fn text_of<'a>(sources: &'a [Source], path: &str) -> Option<&'a str> {
    sources
        .iter()
        .find(|source| source.path == path)
        .map(|source| source.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let findings = judge().unwrap();
        assert!(findings.wrong.is_empty(), "{}", findings.wrong.join("\n"));
    }
}

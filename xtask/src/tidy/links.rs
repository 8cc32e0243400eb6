//! Links between the documents: every relative one leads to a file, every anchor to a heading. The
//! paths of the index, ARCHITECTURE.md, lead to files as well.

use super::{Findings, text_of};
use crate::workspace::{Source, root};

const INDEX: &str = "ARCHITECTURE.md";
const WINGS: [&str; 3] = ["cache/", "doors/", "lab/"];

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for source in sources.iter().filter(|source| source.extension() == "md") {
        for (line, target) in links(&source.text) {
            if let Some(problem) = problem(sources, &source.path, &target) {
                findings.wrong(&format!("{}:{line}", source.path), problem);
            }
        }
    }
    for (line, path) in paths(text_of(sources, INDEX).unwrap_or_default()) {
        if !root().join(path).exists() {
            findings.wrong(&format!("{INDEX}:{line}"), format!("there is no {path}"));
        }
    }
}

/// (line, path) of each path below a wing, in code.
fn paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .flat_map(|(at, line)| {
            let code = line.split('`').skip(1).step_by(2);
            code.map(move |path| (at + 1, path))
        })
        .filter(|(_, path)| WINGS.iter().any(|wing| path.starts_with(wing)))
        .filter(|(_, path)| !path.contains(['{', '*', ' ']))
}

fn problem(sources: &[Source], from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        from.to_owned()
    } else {
        joined(from, path)?
    };
    if !root().join(&path).exists() {
        return Some(format!("link to {target}: there is no {path}"));
    }
    if anchor.is_empty() || !path.ends_with(".md") {
        return None;
    }
    let text = text_of(sources, &path)?;
    let has = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| slug(line) == anchor);
    (!has).then(|| format!("link to {target}: {path} has no such heading"))
}

/// `path`, written in the file `from`, as seen from the root.
fn joined(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// (line, target) of each `[text](target)` outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second part stands between backquotes.
        for part in line.split('`').step_by(2) {
            for rest in part.split("](").skip(1) {
                if let Some((target, _)) = rest.split_once(')') {
                    found.push((at + 1, target.to_owned()));
                }
            }
        }
        // `[`name`](target)`: the bracket closes after the code.
        for rest in line.split("`](").skip(1) {
            if let Some((target, _)) = rest.split_once(')') {
                let target = target.to_owned();
                if !found.contains(&(at + 1, target.clone())) {
                    found.push((at + 1, target));
                }
            }
        }
    }
    found
}

/// A heading's anchor, as the usual renderers make it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|c| match c {
            ' ' | '-' => Some('-'),
            c if c.is_alphanumeric() || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "a [b](c.md) `[x](y)` [`f`](g.md#h)\n```\n[no](no.md)\n```\n![p](i.svg)\n";
        let found: Vec<String> = links(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(found, ["c.md", "g.md#h", "i.svg"]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_wrong() {
        let sources = [Source {
            path: "Cargo.md".into(),
            text: "# A `b` c\n".into(),
        }];
        let from = "docs/adr/x.md";
        assert!(problem(&sources, from, "../../Cargo.toml").is_none());
        assert!(problem(&sources, from, "Cargo.toml").is_some());
        assert!(problem(&sources, from, "https://example.org/x").is_none());
    }

    #[test]
    fn paths_of_the_index_are_those_in_code_below_a_wing() {
        let text = "a `cache/x.rs`, lab/no\n`mm::Cache` `cache/{a,b}.rs` `lab/y/`\n";
        let found: Vec<(usize, &str)> = paths(text).collect();
        assert_eq!(found, [(1, "cache/x.rs"), (2, "lab/y/")]);
    }

    #[test]
    fn paths_and_anchors() {
        assert_eq!(
            joined("docs/adr/x.md", "../y.md").as_deref(),
            Some("docs/y.md")
        );
        assert_eq!(
            slug("## Life of a `write`, in short"),
            "life-of-a-write-in-short"
        );
    }
}

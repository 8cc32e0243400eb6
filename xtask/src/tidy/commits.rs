//! Subjects of commits: `crate: verb object`, the rest is the body.

use std::process::Command;

use super::Findings;
use crate::workspace::root;

/// The commit behind which subjects are judged: those before it are longer.
const SINCE: &str = "810e49d04791";
/// Letters that the tools of git show of a subject.
const MOST: usize = 72;

pub(super) fn judge(findings: &mut Findings) {
    match subjects() {
        Ok(subjects) => {
            for (commit, subject) in subjects.lines().filter_map(|line| line.split_once(' ')) {
                if let Some(wrong) = fault(subject) {
                    findings.wrong(&format!("commit {commit}"), format!("'{subject}' {wrong}"));
                }
            }
        }
        Err(why) => println!("SKIPPED: subjects of commits: {why}"),
    }
}

/// A line each: the commit, its subject.
fn subjects() -> Result<String, String> {
    let mut log = Command::new("git");
    log.args([
        "log",
        "--no-merges",
        "--format=%h %s",
        &format!("{SINCE}..HEAD"),
    ]);
    let output = log.current_dir(root()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("{SINCE} is not in the history of this checkout"));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

/// The fault of a subject, if it has one.
fn fault(subject: &str) -> Option<String> {
    let letters = subject.chars().count();
    if letters > MOST {
        return Some(format!("has {letters} letters, at most {MOST} are allowed"));
    }
    let is_name = |name: &str| {
        let name = name.strip_prefix(' ').unwrap_or(name);
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        !name.is_empty() && name.chars().all(is_letter)
    };
    let well = subject.split_once(": ").is_some_and(|(names, said)| {
        names.split(',').all(is_name)
            && said
                .chars()
                .next()
                .is_some_and(|first| !first.is_uppercase())
    });
    (!well).then(|| "is not `crate: verb object`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_a_crate_and_what_was_done() {
        for right in [
            "mm: evict clean pages first",
            "python, include: name the limit",
        ] {
            assert_eq!(fault(right), None);
        }
        for wrong in [
            "Evict clean pages first",
            "mm evicts: pages",
            "mm: Evict pages",
            "mm:",
            ": x",
        ] {
            assert!(
                fault(wrong).is_some_and(|said| said.contains("verb object")),
                "{wrong}"
            );
        }
        let long = format!("mm: evict {}", "pages ".repeat(11));
        assert!(fault(&long).is_some_and(|said| said.contains("76 letters")));
    }
}

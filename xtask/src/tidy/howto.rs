//! Pages that show how something is added apply to the tree as it is: each `diff` in them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Findings;
use crate::workspace::{Source, root};

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for source in sources {
        if source.path.starts_with("docs/work/add-a") && source.extension() == "md" {
            for diff in diffs(&source.text) {
                if let Err(problem) = applies(&diff, &root()) {
                    findings.wrong(&source.path, format!("its diff does not apply: {problem}"));
                }
            }
        }
    }
}

/// The text between a line "```diff" and the next "```".
fn diffs(text: &str) -> Vec<String> {
    let blocks = text.split("\n```diff\n").skip(1);
    let bodies = blocks.filter_map(|block| block.split_once("\n```"));
    bodies.map(|(body, _)| format!("{body}\n")).collect()
}

/// Checks that `git` could apply the diff in a folder; it changes nothing.
fn applies(diff: &str, folder: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    git.args(["apply", "--check", "-"]).current_dir(folder);
    git.stdin(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| format!("git apply: {error}");
    let mut child = git.spawn().map_err(failed)?;
    // A child that reads none of it says why itself.
    let _ = child
        .stdin
        .take()
        .map(|mut input| input.write_all(diff.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_of_a_line_that_is_not_there_does_not_apply() {
        let folder = std::env::temp_dir().join(format!("tidegate-howto-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.txt"), "one\ntwo\n").unwrap();
        let page = |old: &str| {
            format!(
                "# Add\n\n```diff\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-{old}\n+new\n two\n```\n"
            )
        };
        let check = |old| applies(&diffs(&page(old))[0], &folder);
        assert_eq!(check("one"), Ok(()));
        assert!(check("another").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Tells the program which commit it is built from, so that its results can name it: TIDEGATE_VERSION.
//!
//! Built outside a checkout of its own, or where there is no `git`, it is the version alone. What was changed and not
//! committed is not told: that would build the program again with every test that is edited.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let commit = commit().map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=TIDEGATE_VERSION={version}{commit}");
}

/// The commit that is checked out, if this is a checkout of Tidegate and no part of another's.
fn commit() -> Option<String> {
    if git(&["rev-parse", "--show-prefix"])? != "crates/cli/" {
        return None;
    }
    // Written by whatever moves HEAD. One that is missing would run this each time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

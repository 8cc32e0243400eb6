//! Tells the program which commit it is built from, so that its results can name it:
//! TIDEGATE_VERSION. Changes of files that decide a trace are told as a number of their own: `0.1.0
//! (901513c7e1aa, changed 5f0c12d9)`. Two programs with the same words come to the same results.
//!
//! Built outside a checkout of its own, or where there is no `git`, it is the version alone.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::Command;

/// The crates whose sources decide what a run comes to, from here. Each is built again when it is
/// changed, and this program with it.
const SOURCES: [&str; 9] = [
    "../../cache/device/src",
    "../../cache/env/src",
    "../../cache/frames/src",
    "../../cache/mm/src",
    "../../cache/policy/src",
    "../../lab/experiment/src",
    "../../lab/history/src",
    "../../lab/workload/src",
    "../../lab/world/src",
];
/// The folders of what is built with this: the program, and the Python packages.
const HERE: [&str; 3] = ["lab/cli/", "doors/python/", "doors/python-lab/"];
/// Where the experiments are, from here.
const EXPERIMENTS: &str = "../../experiments";

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let commit = commit().map_or_else(String::new, |commit| format!(" ({commit}{})", changed()));
    println!("cargo::rustc-env=TIDEGATE_VERSION={version}{commit}");
}

/// The commit that is checked out, if this is a checkout of Tidegate and no part of another's.
fn commit() -> Option<String> {
    let folder = git(&["rev-parse", "--show-prefix"])?;
    if !HERE.contains(&folder.as_str()) {
        return None;
    }
    // Written by whatever moves HEAD. A missing file would run this each time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// The changes in the sources that decide a trace, as a number; empty if there are none.
fn changed() -> String {
    for source in SOURCES.iter().chain([&EXPERIMENTS]) {
        // Cargo takes a path that is missing as changed, and builds the program each time.
        assert!(Path::new(source).exists(), "{source} is missing");
        println!("cargo::rerun-if-changed={source}");
    }
    let mut hasher = DefaultHasher::new();
    let mut is_changed = false;
    for what in [
        &["diff", "HEAD", "--"][..],
        &["status", "--porcelain", "--"],
    ] {
        let mut arguments = what.to_vec();
        arguments.extend(SOURCES);
        arguments.push(EXPERIMENTS);
        let said = git(&arguments).unwrap_or_default();
        is_changed |= !said.is_empty();
        said.hash(&mut hasher);
    }
    if is_changed {
        format!(", changed {:08x}", hasher.finish() & 0xffff_ffff)
    } else {
        String::new()
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

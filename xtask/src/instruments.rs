//! The step `instruments` of `cargo xtask test --all`: the second workspace, when something it
//! stands on has changed.
//!
//! `instruments/` has a lock file and a target folder of its own, so no other step builds any of
//! it. Its format, lints and tests are checked here, and a short guest of each kind is recorded. A
//! step that has passed leaves a stamp: a number made of all that it was built from.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Command;

use crate::steps::{self, End, SKIPPED};
use crate::workspace::{BUILD_MAX, Workspace, cargo, root, sources};
use crate::{Result, at};

/// Where it is, from the root.
pub(crate) const MANIFEST: &str = "instruments/Cargo.toml";
/// Paths that it stands on beside the crates that it is built from.
const STANDS_ON: [&str; 3] = ["instruments/", "Cargo.toml", "clippy.toml"];

/// Checks the second workspace, unless it has passed just as it stands.
pub(crate) fn judge() -> End {
    try_judge().unwrap_or_else(End::Failed)
}

fn try_judge() -> Result<End> {
    let folder = Workspace::load()?.target.join("xtask");
    let stamp = folder.join("instruments");
    let now = fingerprint()?;
    if fs::read_to_string(&stamp).is_ok_and(|before| before == now) {
        println!("    nothing that they stand on has changed since they passed");
        return Ok(End::Passed);
    }
    let steps: [&[&str]; 3] = [
        &["fmt", "--all", "--check", "--", "-l"],
        &["clippy", "--all-targets", "--quiet", "--", "-D", "warnings"],
        &["test", "--workspace", "--quiet"],
    ];
    for step in steps {
        steps::run(&mut of_instruments(step), BUILD_MAX)?;
    }
    let mut smoke = of_instruments(&["run", "--quiet"]);
    smoke.args(["--", "guest", "--smoke"]);
    let ended = steps::status(&mut smoke, BUILD_MAX)?;
    match ended.code() {
        Some(0) => {
            fs::create_dir_all(&folder)
                .and_then(|()| fs::write(&stamp, now))
                .map_err(at(&stamp))?;
            Ok(End::Passed)
        }
        Some(code) if code == i32::from(SKIPPED) => {
            Ok(End::Skipped("only the guests were; see above".into()))
        }
        _ => Err(format!("guest --smoke: {ended}")),
    }
}

/// `cargo`, in the second workspace.
fn of_instruments(arguments: &[&str]) -> Command {
    let (verb, rest) = arguments.split_at(1);
    let mut command = cargo(verb);
    command.args(["--manifest-path", MANIFEST]).args(rest);
    command
}

/// A number made of every source that it stands on, and of the compiler.
fn fingerprint() -> Result<String> {
    let mut hasher = DefaultHasher::new();
    steps::output(&mut cargo(&["--version"]))?.hash(&mut hasher);
    let tree = ["tree", "--workspace", "--prefix", "none", "--format", "{p}"];
    let tree = steps::output(&mut of_instruments(&tree))?;
    let ours = format!(" ({}/", root().display());
    let crates = tree
        .lines()
        .filter_map(|line| line.split_once(&ours)?.1.split_once(')'))
        .map(|(folder, _)| format!("{folder}/"));
    let stands_on: Vec<String> = STANDS_ON
        .map(str::to_owned)
        .into_iter()
        .chain(crates)
        .collect();
    for source in sources(&["rs", "toml", "lock"])? {
        if stands_on.iter().any(|path| source.path.starts_with(path)) {
            (source.path, source.text).hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}

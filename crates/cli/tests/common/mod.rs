//! What the tests over the recordings that are checked in have in common.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::path::{Path, PathBuf};

use cli::compare::Recording;
use cli::outcome::Outcome;
use cli::run::{Order, RunError, Watcher};

/// Says nothing of runs.
pub(crate) struct Quiet;

impl Watcher for Quiet {
    fn began(&self, _order: &Order) {}
    fn ended(&self, _order: &Order, _result: &Result<Outcome, RunError>) {}
}

/// All recordings, by name.
pub(crate) fn recordings() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let entries = std::fs::read_dir(&folder).expect("the recordings are checked in");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.join("scenario.json").is_file())
        .collect();
    folders.sort();
    folders
        .iter()
        .map(|path| Recording::load(path).expect("a recording that is checked in loads"))
        .collect()
}

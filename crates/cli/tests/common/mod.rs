//! What the tests over the recordings that are checked in have in common.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};

use cli::compare::{Recording, pressure};
use cli::outcome::Outcome;
use cli::run::{Order, RunError, Watcher};

/// Says nothing of runs.
pub(crate) struct Quiet;

impl Watcher for Quiet {
    fn began(&self, _order: &Order) {}
    fn ended(&self, _order: &Order, _result: &Result<Outcome, RunError>) {}
}

/// The folders of all recordings, by name.
pub(crate) fn folders() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let entries = std::fs::read_dir(&folder).expect("the recordings are checked in");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.join("scenario.json").is_file())
        .collect();
    folders.sort();
    folders
}

/// All recordings of dirty throttling, by name.
pub(crate) fn recordings() -> Vec<Recording> {
    let of_throttling = |path: &&PathBuf| !pressure::Recording::is_one(path);
    folders()
        .iter()
        .filter(of_throttling)
        .map(|path| Recording::load(path).expect("a recording that is checked in loads"))
        .collect()
}

//! Helpers of the tests over the recordings that are checked in.

use std::path::{Path, PathBuf};

use experiment::Stop;
use experiment::expect::Verdict;
use recordings::kind::Kind;
use recordings::several::Beside;
use recordings::{Recording, Setting, figures, lab, measure};

/// The column that is judged.
const COLUMN: &str = "linux-6.12";

/// The folders of all recordings of a kind, by name.
pub(crate) fn folders(kind: &'static Kind) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/held");
    let entries = std::fs::read_dir(&folder).expect("the recordings are checked in");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| core::ptr::eq(Kind::of(path), kind))
        .collect();
    folders.sort();
    folders
}

/// A recording beside the lab's run of its setting.
pub(crate) struct Compared {
    pub(crate) recording: Recording,
    pub(crate) recorded: Vec<Option<f64>>,
    pub(crate) lab: Vec<Option<f64>>,
}

impl Compared {
    pub(crate) fn setting(&self) -> &Setting {
        &self.recording.setting
    }

    pub(crate) fn name(&self) -> &str {
        self.setting().name()
    }

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        figures::judge(self.setting(), COLUMN, &self.recorded, &self.lab)
    }

    pub(crate) fn beside(&self) -> Beside<'_> {
        Beside {
            setting: self.setting(),
            recorded: &self.recorded,
            lab: &self.lab,
        }
    }

    /// A figure by its name: recorded, and the lab's.
    pub(crate) fn figure(&self, name: &str) -> Option<(f64, f64)> {
        let at = figures::by_name(self.setting().kind, name).expect("it is a figure");
        Some((self.recorded[at]?, self.lab[at]?))
    }
}

/// The error of a verdict, as a part of what was recorded.
pub(crate) fn error(verdict: &Verdict) -> f64 {
    verdict.value.map_or(f64::INFINITY, |ratio| ratio - 1.0)
}

/// Runs the settings of all recordings of a kind that are wanted, with their cells changed.
pub(crate) fn compared(
    kind: &'static Kind,
    wanted: impl Fn(&Setting) -> bool,
    change: impl Fn(&mut experiment::run::Cell),
) -> Vec<Compared> {
    let folders = folders(kind);
    let load =
        |path: &PathBuf| Recording::load(path).expect("a recording that is checked in loads");
    let recordings = folders.iter().map(load);
    let recordings: Vec<Recording> = recordings
        .filter(|recording| wanted(&recording.setting))
        .collect();
    let plan = |recording: &Recording| {
        let mut plan = lab::plan(&recording.setting, &[COLUMN], 1).expect("a setting can be run");
        plan.cells.iter_mut().for_each(&change);
        plan
    };
    let planned: Vec<_> = recordings.iter().map(plan).collect();
    let outcomes = lab::run(&planned, &Stop::default(), &()).expect("the runs end");
    let beside = recordings.into_iter().zip(outcomes);
    beside
        .map(|(recording, outcomes)| Compared {
            recorded: measure(&recording.setting, &recording.outcome),
            lab: measure(&recording.setting, &outcomes[0]),
            recording,
        })
        .collect()
}

/// Says all that was found, and fails where something was missed, or where there were too few
/// recordings to show much.
pub(crate) fn conclude(recordings: usize, least: usize, text: &str, misses: &[String]) {
    println!("{text}");
    assert!(recordings >= least, "only {recordings} recordings");
    assert!(misses.is_empty(), "{text}\n{}", misses.join("\n"));
}

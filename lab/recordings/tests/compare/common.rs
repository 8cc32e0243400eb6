//! Helpers of the tests over the recordings that are checked in.

use std::path::{Path, PathBuf};

use experiment::Stop;
use recordings::bands::Verdict;
use recordings::kind::{Beside, Loaded};
use recordings::pressure::Pressure;
use recordings::{Kind, Recording, lab};

/// The column that is judged.
const COLUMN: &str = "linux-6.12";

/// The folders of all recordings, by name.
pub(crate) fn folders() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/held");
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
    let of_throttling = |path: &&PathBuf| !Pressure::is_one(path);
    folders()
        .iter()
        .filter(of_throttling)
        .map(|path| Recording::load(path).expect("a recording that is checked in loads"))
        .collect()
}

/// A recording beside the lab's run of its setting.
pub(crate) struct Compared<K: Kind> {
    pub(crate) setting: K::Setting,
    pub(crate) recorded: K::Measures,
    pub(crate) lab: K::Measures,
}

impl<K: Kind> Compared<K> {
    pub(crate) fn name(&self) -> &str {
        K::name(&self.setting)
    }

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        K::judge(&self.setting, &self.recorded, &self.lab)
    }

    pub(crate) fn beside(&self) -> Beside<'_, K> {
        Beside {
            setting: &self.setting,
            recorded: &self.recorded,
            lab: &self.lab,
        }
    }
}

/// Runs the settings of all recordings of a kind that are wanted.
pub(crate) fn compared<K: Kind>(
    folders: &[PathBuf],
    wanted: impl Fn(&K::Setting) -> bool,
) -> Vec<Compared<K>> {
    let load =
        |path: &PathBuf| K::load(path, &[], &[]).expect("a recording that is checked in loads");
    let recordings: Vec<Loaded<K::Setting>> = folders
        .iter()
        .map(load)
        .filter(|recording| wanted(&recording.setting))
        .collect();
    let plan = |recording: &Loaded<K::Setting>| {
        K::plan(&recording.setting, &[COLUMN], 1).expect("a setting can be run")
    };
    let planned: Vec<_> = recordings.iter().map(plan).collect();
    let outcomes = lab::run(&planned, &Stop::default(), &()).expect("the runs end");
    let beside = recordings.into_iter().zip(outcomes);
    beside
        .map(|(recording, outcomes)| Compared {
            recorded: K::measure(&recording.setting, &recording.outcome),
            lab: K::measure(&recording.setting, &outcomes[0]),
            setting: recording.setting,
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

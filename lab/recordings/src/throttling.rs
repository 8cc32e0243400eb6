//! Recordings of dirty throttling: writers that overrun a disk.

use std::path::Path;

use super::bands::{self, Verdict};
use super::fault::Fault;
use super::guess::JUDGED;
use super::kind::{Beside, Kind, Loaded};
use super::lab::{self, LabError, Planned};
use super::label::Label;
use super::measure::{self, Measures, QUANTITIES};
use super::overview;
use super::recording::Recording;
use super::setting::{Origin, Setting};
use super::show::{self, Row};
use super::what_if::{self, Change, Keys};
use experiment::outcome::Outcome;

/// Said beside every field recording.
const CHAIN: &str = "a field recording of a whole chain (loop device on FUSE on NBD, ext4): its journal \
                     holds writers up for seconds that no pause explains, completions come in lumps of \
                     several MiB, its sustained rate is 13 to 15 MiB/s where 16 were set, single runs \
                     differ by 20 % and more; compare counts, medians and differences between settings, \
                     not sums (docs/study/reference/field-recordings.md)";

/// The kind.
#[derive(Clone, Copy, Debug)]
pub struct Throttling;

impl Kind for Throttling {
    const OF: &'static str = "dirty throttling";
    const KEYS: Keys<Setting> = what_if::THROTTLING;
    type Setting = Setting;
    type Measures = Measures;

    /// True of a folder that is of no other kind: the parts it lacks are then told by name.
    fn is_one(_: &Path) -> bool {
        true
    }

    fn load(path: &Path, given: &[Change], fill: &[Change]) -> Result<Loaded<Setting>, Fault> {
        let Recording {
            setting,
            outcome,
            mut notes,
            filled,
        } = Recording::load_with(path, given, fill)?;
        if setting.origin == Origin::Chain {
            notes.push(CHAIN.into());
        }
        Ok(Loaded {
            setting,
            outcome,
            notes,
            filled,
        })
    }

    fn name(setting: &Setting) -> &str {
        &setting.name
    }

    fn rename(setting: &mut Setting, name: &str) {
        name.clone_into(&mut setting.name);
    }

    fn summary(setting: &Setting) -> String {
        setting.summary()
    }

    fn differences(one: &Setting, other: &Setting) -> Vec<String> {
        one.differences(other)
    }

    fn put(change: &Change, setting: &mut Setting) -> Result<(), String> {
        change.put(setting)
    }

    fn settle(setting: &mut Setting, before: &Setting) {
        // As Linux 6.12 does: mm/page-writeback.c, domain_dirty_limits().
        if setting.background_mib >= setting.dirty_mib {
            setting.background_mib = setting.dirty_mib / 2.0;
        }
        // Writers who were held when the recording began would have been held at another level:
        // what is asked for is not the way from one to the other.
        if before.begins_mib >= lab::HELD * before.freerun_mib() {
            setting.begins_mib *= setting.freerun_mib() / before.freerun_mib();
        }
    }

    fn check(setting: &Setting) -> Result<(), String> {
        let words =
            |problem: super::setting::Problem| format!("{}; {}", problem.title, problem.allowed);
        setting.check().map_err(words)
    }

    fn plan(setting: &Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError> {
        lab::plan(setting, columns, seed)
    }

    fn measure(setting: &Setting, outcome: &Outcome) -> Measures {
        measure::measure(setting, outcome)
    }

    fn labels() -> Vec<Label> {
        QUANTITIES.iter().map(|quantity| quantity.label).collect()
    }

    fn values(measures: &Measures) -> Vec<Option<f64>> {
        let values = QUANTITIES.iter().map(|quantity| (quantity.of)(measures));
        values.collect()
    }

    fn others(measures: &Measures) -> Vec<(String, &'static str, f64)> {
        let writers = measures.writers.iter().enumerate();
        let writers = writers.map(|(index, rate)| (format!("writer {index}"), "MiB/s", *rate));
        writers.collect()
    }

    fn judged() -> Vec<&'static str> {
        JUDGED.to_vec()
    }

    fn rows(setting: &Setting, columns: &[&Measures]) -> Vec<Row> {
        show::rows(setting, columns)
    }

    fn judge(setting: &Setting, recorded: &Measures, lab: &Measures) -> Vec<Verdict> {
        bands::judge(setting, recorded, lab)
    }

    fn judged_by(setting: &Setting) -> &'static str {
        match setting.origin {
            Origin::Guest => "",
            Origin::Chain | Origin::Trace => ", by the bands of a guest",
        }
    }

    fn overview(sides: &[Beside<'_, Self>], column: &str) -> String {
        overview::overview(sides, column)
    }
}

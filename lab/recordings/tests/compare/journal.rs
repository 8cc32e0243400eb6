//! ext4 and its journal in the lab beside real guests on ext4: the bands of a bare device hold, and
//! the longest write, which is the file system's doing, comes within a factor of two.
//!
//! Nothing is fitted to these recordings; docs/study/journal.md has the figures, and says what of
//! them is the commit's and what the extents'.
//!
//! ```text
//! cargo test -p tidegate-recordings --test compare journal:: -- --nocapture
//! ```

use experiment::Stop;
use recordings::bands;
use recordings::{Measures, Recording, lab, measure};

/// The column that is judged.
const COLUMN: &str = "linux-6.12";
/// The distance of the longest write from the recorded one, at most.
const FACTOR: f64 = 2.0;
/// Fewer recordings would show little.
const RECORDINGS_MIN: usize = 3;

fn recordings() -> Vec<Recording> {
    super::common::recordings()
        .into_iter()
        .filter(|recording| recording.setting.fs.as_deref() == Some("ext4"))
        .collect()
}

/// Each recording's figures and the lab's, with its journal or without.
fn compared(recordings: &[Recording], with_journal: bool) -> Vec<(Measures, Measures)> {
    let planned: Vec<_> = recordings
        .iter()
        .map(|recording| {
            let mut plan = lab::plan(&recording.setting, &[COLUMN], 1).expect("it can be run");
            for device in plan.cells.iter_mut().flat_map(|cell| &mut cell.devices) {
                assert!(device.journal.is_some(), "ext4 has a journal");
                if !with_journal {
                    device.journal = None;
                }
            }
            plan
        })
        .collect();
    let outcomes = lab::run(&planned, &Stop::default(), &()).expect("the runs end");
    recordings
        .iter()
        .zip(outcomes)
        .map(|(recording, outcomes)| {
            let recorded = measure(&recording.setting, &recording.outcome);
            (recorded, measure(&recording.setting, &outcomes[0]))
        })
        .collect()
}

/// The longest writes of all writers, and of the light ones: recorded, and the lab's, in ms.
fn longest((recorded, lab): &(Measures, Measures)) -> Vec<(f64, f64)> {
    let all = (&recorded.writes, &lab.writes);
    [all, (&recorded.light, &lab.light)]
        .into_iter()
        .filter_map(|(recorded, lab)| Some((recorded.as_ref()?.max, lab.as_ref()?.max)))
        .collect()
}

fn within(factor: f64, (recorded, lab): (f64, f64)) -> bool {
    (recorded / factor..=recorded * factor).contains(&lab)
}

#[test]
fn the_longest_write_on_ext4_comes_within_a_factor_of_two() {
    let recordings = recordings();
    assert!(recordings.len() >= RECORDINGS_MIN);
    let with = compared(&recordings, true);
    let without = compared(&recordings, false);
    let mut missed_without = 0;
    for (at, recording) in recordings.iter().enumerate() {
        let name = &recording.setting.name;
        for (with, without) in longest(&with[at]).into_iter().zip(longest(&without[at])) {
            let (recorded, lab) = with;
            println!(
                "{name}: longest write {recorded:.0} ms, lab {lab:.0} ms, without a journal {:.0} ms",
                without.1
            );
            assert!(within(FACTOR, with), "{name}: {recorded} ms, lab {lab} ms");
            missed_without += usize::from(!within(FACTOR, without));
        }
        let (recorded, lab) = &with[at];
        for verdict in bands::judge(&recording.setting, recorded, lab) {
            assert!(verdict.holds, "{name}: {}", verdict.line());
        }
    }
    // The journal is what makes the difference.
    assert!(missed_without >= 2, "{missed_without} missed without it");
}

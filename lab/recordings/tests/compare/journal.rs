//! ext4 and its journal in the lab beside real guests on ext4: the bands of a bare device hold, and
//! the longest write, which is the file system's doing, comes within a factor of two.
//!
//! Nothing is fitted to these recordings; docs/study/journal.md has the figures, and says what of
//! them is the commit's and what the extents'.
//!
//! ```text
//! cargo test -p tidegate-recordings --test compare journal:: -- --nocapture
//! ```

use super::common::{self, Compared};
use recordings::kind::THROTTLING;

/// The distance of the longest write from the recorded one, at most.
const FACTOR: f64 = 2.0;
/// Fewer recordings would show little.
const RECORDINGS_MIN: usize = 3;

/// The recordings on ext4 beside the lab, with its journal or without.
fn compared(with_journal: bool) -> Vec<Compared> {
    let is_ext4 = |setting: &recordings::Setting| {
        let mut devices = setting.scenario.devices.iter();
        devices.any(|device| device.fs.as_ref().is_some_and(|fs| fs.get_ref() == "ext4"))
    };
    common::compared(&THROTTLING, is_ext4, |cell| {
        for device in &mut cell.devices {
            assert!(device.journal.is_some(), "ext4 has a journal");
            if !with_journal {
                device.journal = None;
            }
        }
    })
}

/// The longest writes of all writers, and of the light ones: recorded, and the lab's, in ms.
fn longest(side: &Compared) -> Vec<(f64, f64)> {
    let names = ["write: max", "light write: max"];
    names
        .into_iter()
        .filter_map(|name| side.figure(name))
        .collect()
}

fn within(factor: f64, (recorded, lab): (f64, f64)) -> bool {
    (recorded / factor..=recorded * factor).contains(&lab)
}

#[test]
fn the_longest_write_on_ext4_comes_within_a_factor_of_two() {
    let with = compared(true);
    assert!(with.len() >= RECORDINGS_MIN);
    let without = compared(false);
    let mut missed_without = 0;
    for (with, without) in with.iter().zip(&without) {
        let name = with.name();
        for (with, without) in longest(with).into_iter().zip(longest(without)) {
            let (recorded, lab) = with;
            println!(
                "{name}: longest write {recorded:.0} ms, lab {lab:.0} ms, without a journal {:.0} ms",
                without.1
            );
            assert!(within(FACTOR, with), "{name}: {recorded} ms, lab {lab} ms");
            missed_without += usize::from(!within(FACTOR, without));
        }
        for verdict in with.verdicts() {
            assert!(verdict.holds(), "{name}: {}", verdict.line());
        }
    }
    // The journal is what makes the difference.
    assert!(missed_without >= 2, "{missed_without} missed without it");
}

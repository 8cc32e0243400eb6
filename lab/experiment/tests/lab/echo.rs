//! p0's histogram mark: among the sleeps for want of progress those stand out that end when
//! somebody comes back from a timeout of WRITEBACK, and they go where that timeout goes.

use experiment::metrics;
use experiment::outcome::Outcome;
use experiment::run::Cell;
use experiment::trial::{Trial, with_model};
use policy::units::Nanos;

const COLUMN: &str = "linux-5.16-rc1";
const BANDS: [&str; 2] = ["A1-echo-rise", "A1-echo-share"];
/// Delays are in ticks of 250 Hz.
const TICK_MS: f64 = 4.0;

/// The machine's parts, whatever the experiment is fitted to.
const MACHINE: [&str; 6] = [
    "run.replicas=1",
    "run.scale=0.015625",
    "machine.memory_mib=16384",
    "machine.swap.mib=512",
    "machine.reserved_percent=7.5",
    "machine.nodes=1",
];

/// `stutterp-oom` on a disk that seeks, where waits for WRITEBACK time out often enough. All of its
/// rows: the band is of them together.
fn trial() -> Trial {
    Trial::load("stutterp-oom", &[COLUMN], &MACHINE).unwrap()
}

fn seeks(cell: &mut Cell) {
    with_model(cell, "p0_disk");
}

/// The rows together, and which of the bands hold there.
fn judged(trial: &Trial, change: impl Fn(&mut Cell)) -> (Outcome, [bool; 2]) {
    let outcomes = trial.run(change).unwrap();
    let verdicts = trial.judge(&outcomes);
    let holds = BANDS.map(|id| {
        let band = verdicts.iter().find(|verdict| verdict.id == id).unwrap();
        println!("{}", band.line());
        band.holds()
    });
    let runs: Vec<&Outcome> = outcomes.iter().collect();
    (experiment::pool::together(&runs), holds)
}

fn metric(outcome: &Outcome, name: &str) -> Option<f64> {
    metrics::by_name(name).unwrap().value(outcome)
}

/// The peak that stands out most is where that timeout makes one: at its end, or within two ticks.
#[track_caller]
fn peaks_after(outcome: &Outcome, timeout_ms: f64) {
    let place = metric(outcome, "noprogress_echo_ms").unwrap();
    let after = timeout_ms..=timeout_ms + 2.0 * TICK_MS;
    assert!(after.contains(&place), "{place} ms for {timeout_ms}");
}

#[test]
fn the_echo_of_the_timeout_is_there_and_moves_with_it() {
    let trial = trial();
    let (published, holds) = judged(&trial, seeks);
    assert_eq!(holds, [true; 2]);
    peaks_after(&published, 100.0);

    let (later, holds) = judged(&trial, |cell| {
        seeks(cell);
        cell.laws.reclaim.writeback_timeout = Some(Nanos::millis(200));
    });
    assert_eq!(holds, [true; 2]);
    peaks_after(&later, 200.0);
}

#[test]
fn without_wake_ups_nothing_echoes_and_both_bands_fail() {
    let (outcome, holds) = judged(&trial(), |cell| {
        seeks(cell);
        cell.laws.reclaim.wakes = false;
    });
    assert_eq!(holds, [false; 2]);
    assert_eq!(metric(&outcome, "noprogress_echo"), None);
}

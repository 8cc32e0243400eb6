//! The bands of Tidegate's own law: each experiment holds as shipped, but for the misses that are
//! named here, and its bands fail under presets that lack what they ask for.

use std::collections::BTreeSet;

use experiment::expect::Verdict;
use experiment::trial::Trial;

/// Bands that do not hold in a row, as measured: (experiment, band, row). Empty: keep it
/// so; a band that comes to hold must be struck out.
const MISSES: [(&str, &str, &str); 0] = [];

/// (band, row) of what fails in the column `tidegate` of these rows; no rows: all.
fn failing(experiment: &str, rows: &[&str], sets: &[&str]) -> BTreeSet<(String, String)> {
    let sets = [&["run.replicas=1"], sets].concat();
    let mut trial = Trial::load(experiment, &["tidegate"], &sets).unwrap();
    if !rows.is_empty() {
        trial = trial.rows(rows);
    }
    let verdicts = trial.judge(&trial.run(|_| {}).unwrap());
    assert!(!verdicts.is_empty(), "{experiment} judges nothing");
    let failed = verdicts.iter().filter(|verdict| !verdict.holds());
    failed
        .inspect(|verdict| println!("{experiment}: {}", verdict.line()))
        .map(|Verdict { id, case, .. }| (id.clone(), case.clone()))
        .collect()
}

/// As shipped, every band holds in every row, but for the misses.
#[track_caller]
fn holds(experiment: &str, sets: &[&str]) {
    let misses = MISSES.iter().filter(|miss| miss.0 == experiment);
    let misses = misses.map(|(_, band, row)| ((*band).to_owned(), (*row).to_owned()));
    assert_eq!(
        failing(experiment, &[], sets),
        misses.collect(),
        "{experiment}"
    );
}

/// Each of the bands fails in one of these rows when the column is another preset.
#[track_caller]
fn fails_as(preset: &str, experiment: &str, rows: &[&str], bands: &[&str]) {
    let set = format!("policy.tidegate.preset={preset}");
    let failed = failing(experiment, rows, &[&set]);
    for band in bands {
        let fails = failed.iter().any(|(id, _)| id == band);
        assert!(fails, "{experiment}: `{band}` holds for {preset}");
    }
}

const FOREGROUND: &str = "linux-2.6.36";
const SOFT_REGION: &str = "p1-measured";
const RATE_BASED: &str = "linux-6.12";

#[test]
fn many_writers() {
    holds("many-writers", &[]);
    let bands = [
        "even-pauses",
        "no-long-pause",
        "fair-early",
        "bounded-writes",
    ];
    fails_as(FOREGROUND, "many-writers", &["2"], &bands);
    fails_as(
        RATE_BASED,
        "many-writers",
        &["4-on-4"],
        &["fair-early", "no-stall"],
    );
}

#[test]
fn a_light_writer_beside_a_heavy_one() {
    holds("light-writer", &[]);
    let bands = ["light-p99", "even-pauses", "bounded-writes"];
    fails_as(FOREGROUND, "light-writer", &["beside"], &bands);
}

#[test]
fn two_devices() {
    holds("two-devices", &[]);
    let bands = [
        "busy",
        "slow-writes",
        "even-pauses",
        "bounded-writes",
        "within-the-limit",
    ];
    fails_as(RATE_BASED, "two-devices", &["both"], &bands);
    let bands = ["no-short-pause", "no-long-pause"];
    fails_as(FOREGROUND, "two-devices", &["both"], &bands);
}

#[test]
fn a_drop_of_the_rate() {
    holds("rate-drop", &[]);
    let bands = [
        "within-the-limit",
        "even-pauses",
        "no-long-pause",
        "bounded-writes",
    ];
    fails_as(FOREGROUND, "rate-drop", &["4"], &bands);
}

#[test]
fn a_hung_device() {
    holds("hung-device", &[]);
    let bands = [
        "others-keep-their-rate",
        "others-do-not-stall",
        "the-wait-has-a-name",
    ];
    fails_as(RATE_BASED, "hung-device", &["hung"], &bands);
    let bands = ["others-writes-are-bounded", "light-p99", "within-the-limit"];
    fails_as(SOFT_REGION, "hung-device", &["hung"], &bands);
}

#[test]
fn a_burst_that_fits() {
    holds("burst", &[]);
    fails_as(
        SOFT_REGION,
        "burst",
        &["40-of-64-beside-a-light-one"],
        &["not-paced"],
    );
}

#[test]
fn two_writers() {
    // Half a minute of two writers after one alone: the rest is of the paper.
    holds("two-writers", &["task.old.run_s=90", "task.new.run_s=30"]);
}

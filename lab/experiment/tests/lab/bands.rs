//! The bands of experiments A7 measure their mechanisms: each enforced row holds as shipped, fails
//! when its columns are swapped, and fails when its mechanism is knocked out.
//!
//! Row 13 is a band around no change and so is the same swapped. Row 17 is missed since the cost of
//! writers that meet, which was chosen by it, is gone.

use experiment::expect::Verdict;
use experiment::outcome::Outcome;
use experiment::run::Cell;
use experiment::trial::{Trial, swap, with_law, with_rate};
use policy::writeback::Flight;

const BEFORE: &str = "linux-2.6.36";
const P1: &str = "p1";
const MEASURED: &str = "p1-measured";

/// The bands of one row of A7 in outcomes.
fn row(trial: &Trial, outcomes: &[Outcome], prefix: &str) -> Vec<Verdict> {
    let mut verdicts = trial.judge(outcomes);
    verdicts.retain(|verdict| verdict.id.starts_with(prefix));
    assert!(!verdicts.is_empty(), "no band {prefix}");
    verdicts
}

#[track_caller]
fn holds(trial: &Trial, outcomes: &[Outcome], prefix: &str) {
    for verdict in row(trial, outcomes, prefix) {
        assert!(verdict.holds(), "{}", verdict.line());
    }
}

/// Every band of the row fails, not just one.
#[track_caller]
fn fails(trial: &Trial, outcomes: &[Outcome], prefix: &str) {
    for verdict in row(trial, outcomes, prefix) {
        assert!(verdict.value.is_some(), "{}", verdict.line());
        assert!(!verdict.holds(), "{}", verdict.line());
    }
}

fn swapped(outcomes: &[Outcome], after: &str) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    swap(&mut outcomes, BEFORE, after);
    outcomes
}

/// Changes one column alone.
fn only(column: &'static str, change: impl Fn(&mut Cell)) -> impl Fn(&mut Cell) {
    move |cell| {
        if cell.policy == column {
            change(cell);
        }
    }
}

fn shipped(_cell: &mut Cell) {}

fn dd(sets: &[&str]) -> Trial {
    let sets = [&["run.scale=0.0625", "run.replicas=1"], sets].concat();
    let trial = Trial::load("dd", &[BEFORE, P1, MEASURED], &sets).unwrap();
    trial.rows(&["ext2", "ext4", "btrfs"])
}

fn cp() -> Trial {
    let sets = ["run.replicas=1"];
    Trial::load("cp-pauses", &[BEFORE, MEASURED], &sets).unwrap()
}

#[test]
fn row_13_holds_and_fails_when_the_columns_have_different_devices() {
    let trial = dd(&[]);
    holds(&trial, &trial.run(shipped).unwrap(), "A7-13");
    let halved = only(BEFORE, |cell| with_rate(cell, 0.5));
    fails(&trial, &trial.run(halved).unwrap(), "A7-13");
}

#[test]
fn row_13_fails_where_the_flusher_alone_does_not_keep_the_disk_busy() {
    // A disk that loses a turn when nothing is queued behind what it writes.
    let trial = dd(&[
        "device.disk.params.write_buffer_us=0",
        "device.disk.params.stream_gap_us=0",
    ]);
    holds(&trial, &trial.run(shipped).unwrap(), "A7-13");
    // Under p1 nobody else writes: the rest of the queue was the flusher's too.
    let starved = |cell: &mut Cell| {
        if cell.policy != BEFORE {
            cell.laws.flush.flight = Flight::Requests(1);
        }
    };
    fails(&trial, &trial.run(starved).unwrap(), "A7-13");
}

#[test]
fn rows_15_and_16_hold_and_fail_swapped() {
    let trial = cp();
    let outcomes = trial.run(shipped).unwrap();
    holds(&trial, &outcomes, "A7-15");
    holds(&trial, &outcomes, "A7-16");
    let outcomes = swapped(&outcomes, MEASURED);
    fails(&trial, &outcomes, "A7-15");
    fails(&trial, &outcomes, "A7-16");
}

#[test]
fn row_15_fails_with_the_law_of_p1_and_row_16_with_the_law_of_2_6_36() {
    let trial = cp();
    let exchanged = |cell: &mut Cell| {
        let law = if cell.laws.dirty.law == history::dirty::FOREGROUND {
            history::dirty::SOFT_REGION_MEASURED
        } else {
            history::dirty::FOREGROUND
        };
        // The clock and the flusher of each column stay: it is the law alone that the rows are
        // about.
        with_law(cell, law);
    };
    let outcomes = trial.run(exchanged).unwrap();
    fails(&trial, &outcomes, "A7-15");
    fails(&trial, &outcomes, "A7-16");
}

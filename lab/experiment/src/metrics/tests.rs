//! The value of each metric of an outcome made by hand.

use super::*;
use crate::outcome::Level;

fn with_pauses(pauses: &[(f64, f64)]) -> Outcome {
    let pauses = pauses
        .iter()
        .map(|(at_s, slept_ms)| Pause {
            at_s: *at_s,
            slept_ms: *slept_ms,
            ..Pause::default()
        })
        .collect();
    Outcome {
        pauses,
        scale: 1.0,
        ..Outcome::default()
    }
}

fn value(name: &str, outcome: &Outcome) -> Option<f64> {
    (by_name(name).unwrap().of)(outcome)
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), METRICS.len());
}

#[test]
fn the_trace_of_the_paper_has_its_published_figures() {
    // Paper p1, "before": 15 calls, jiffies of 4 ms.
    let jiffies = [56, 0, 0, 0, 0, 31, 15, 31, 15, 5, 81, 56, 15, 31, 0];
    let trace: Vec<_> = jiffies
        .iter()
        .enumerate()
        .map(|(i, j)| (i as f64, f64::from(*j) * 4.0))
        .collect();
    let outcome = with_pauses(&trace);
    assert_eq!(value("pause_max_ms", &outcome), Some(324.0));
    assert_eq!(value("pauses", &outcome), Some(10.0));
}

#[test]
fn steady_state_is_the_second_half_of_the_time_with_pauses() {
    let outcome = with_pauses(&[
        (0.0, 0.0),
        (10.0, 100.0),
        (15.0, 50.0),
        (18.0, 0.0),
        (20.0, 10.0),
        (30.0, 0.0),
    ]);
    let times: Vec<_> = steady(&outcome).map(|pause| pause.at_s).collect();
    assert_eq!(times, [15.0, 18.0, 20.0]);
    assert_eq!(value("pause_zero_share", &outcome), Some(1.0 / 3.0));
    assert_eq!(value("pause_mean_ms", &outcome), Some(30.0));
    assert_eq!(value("pause_zero_share", &with_pauses(&[])), None);
}

#[test]
fn fairness_looks_at_the_common_time_only() {
    let job = |began_s, per_second: &[f64]| Job {
        is_heavy: true,
        began_s,
        moved_s: began_s + 4.0,
        per_second: per_second.to_vec(),
        ..Job::default()
    };
    let outcome = Outcome {
        jobs: vec![
            job(0.0, &[9.0, 9.0, 5.0, 5.0]),
            job(2.0, &[0.0, 0.0, 5.0, 5.0, 9.0, 9.0]),
        ],
        scale: 1.0,
        ..Outcome::default()
    };
    assert_eq!(value("jain", &outcome), Some(1.0));
    assert!((jain(&[1.0, 0.0]) - 0.5).abs() < 1e-12);
}

#[test]
fn the_end_of_a_run_is_the_last_third_of_the_common_time() {
    let job = |began_s, moved_s| Job {
        is_heavy: true,
        began_s,
        moved_s,
        ..Job::default()
    };
    let level = |at_s, dirty| Level {
        at_s,
        dirty,
        writeback: 10.0,
        limit: 100.0,
        ..Level::default()
    };
    let outcome = Outcome {
        jobs: vec![job(0.0, 100.0), job(10.0, 40.0)],
        levels: vec![
            level(29.0, 90.0),
            level(31.0, 70.0),
            level(39.0, 80.0),
            level(41.0, 0.0),
        ],
        ..Outcome::default()
    };
    assert!((value("level_end", &outcome).unwrap() - 0.85).abs() < 1e-9);
    assert_eq!(value("level_end", &with_pauses(&[])), None);
}

#[test]
fn a_newcomer_is_free_until_its_own_first_pause() {
    let job = |began_s, per_second: f64| Job {
        is_heavy: true,
        began_s,
        moved_s: 20.0,
        per_second: (0..20)
            .map(|at| {
                if f64::from(at) < began_s {
                    0.0
                } else {
                    per_second
                }
            })
            .collect(),
        ..Job::default()
    };
    let line = |at_s, writer, slept_ms| Pause {
        at_s,
        writer,
        slept_ms,
        ..Pause::default()
    };
    let mut outcome = Outcome {
        jobs: vec![job(0.0, 1.0), job(10.0, 3.0)],
        pauses: vec![
            line(1.0, 0, 8.0),
            line(10.5, 0, 8.0),
            line(11.0, 1, 0.0),
            line(12.0, 1, 500.0),
        ],
        ..Outcome::default()
    };
    assert_eq!(value("newcomer_free_s", &outcome), Some(2.0));
    assert_eq!(value("newcomer_share", &outcome), Some(0.75));
    outcome.pauses[3].printed_after = true;
    assert_eq!(value("newcomer_free_s", &outcome), Some(1.5));
    outcome.jobs[1].began_s = 0.0;
    assert_eq!(value("newcomer_free_s", &outcome), None);
}

#[test]
fn rates_and_cpu_are_brought_back_to_full_scale() {
    let job = Job {
        bytes: 10e6,
        ended_s: 10.0,
        is_heavy: true,
        ..Job::default()
    };
    let outcome = Outcome {
        jobs: vec![job],
        scale: 0.125,
        ..Outcome::default()
    };
    assert_eq!(value("mbps", &outcome), Some(8.0));
    assert_eq!(value("real", &outcome), Some(10.0));
}

#[test]
fn scenarios_know_all_metrics() {
    let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(
        names,
        *scenario::METRICS,
        "lab/scenario/src/document/metrics.rs"
    );
}

//! `r4`: much memory touched at once with huge pages, beside a writer to a slow stick and a reader
//! (paper p4).

use super::super::figures::{COUNT, CPU, Figure, LONG, SCANNED, TIME, counter, cpu, own};
use super::super::worker::{Argument, Call, Work, Worker};
use super::{NOTHING, Shape};
use experiment::outcome::{Iteration, Job, Outcome};

pub(super) const SHAPE: Shape = Shape {
    works: &[ALLOC],
    has: |setting| setting.thp.0 != "never",
    figures: FIGURES,
    read: NOTHING,
};

/// Touches memory when little is free, and gives it back, again and again.
const ALLOC: Work = Work {
    name: "alloc",
    task: "alloc",
    called: "allocator",
    arguments: &[
        Argument::Number("memory"),
        Argument::Number("below"),
        Argument::Number("rounds"),
    ],
    refuse: Work::ALL,
    reads: Work::NEVER,
    keys: |worker| {
        let [memory, below, rounds] = ["memory", "below", "rounds"].map(|name| worker.number(name));
        format!("region_mib = {memory}\nbelow_mib = {below}\nloops = {rounds}\n")
    },
    job: |worker, calls, work, job| {
        job.touched = work;
        job.iterations = rounds(worker, calls);
        let took = job.iterations.iter();
        job.samples = took
            .map(|round| (round.alloc_began_s + round.took_s, round.took_s * 1e3))
            .collect();
    },
};

/// A round is three lines: how long it took; user and system time; huge pages got and not got.
fn rounds(worker: &Worker, calls: &[Call]) -> Vec<Iteration> {
    let round = |lines: &[Call]| Iteration {
        alloc: worker.name.clone(),
        began_s: lines[0].ended_s - lines[0].ms / 1e3,
        alloc_began_s: lines[0].ended_s - lines[0].ms / 1e3,
        took_s: lines[0].ms / 1e3,
        huge: lines[2].n,
        ..Iteration::default()
    };
    calls.chunks_exact(3).map(round).collect()
}

fn iterations(outcome: &Outcome) -> impl Iterator<Item = &Iteration> {
    outcome.jobs.iter().flat_map(|job: &Job| &job.iterations)
}

fn took(outcome: &Outcome, number: usize) -> Option<f64> {
    iterations(outcome).nth(number).map(|round| round.took_s)
}

/// Huge pages of the round of that number.
fn huge(outcome: &Outcome, number: usize) -> Option<f64> {
    iterations(outcome).nth(number).map(|round| round.huge)
}

const FIGURES: &[Figure] = &[
    own("round 1", "s", 1, TIME, |_, outcome| took(outcome, 0)),
    own("round 2", "s", 1, TIME, |_, outcome| took(outcome, 1)),
    own("round 3", "s", 1, TIME, |_, outcome| took(outcome, 2)),
    own("round 1: huge pages", "", 0, COUNT, |_, outcome| {
        huge(outcome, 0)
    }),
    own("round 2: huge pages", "", 0, COUNT, |_, outcome| {
        huge(outcome, 1)
    }),
    own("round 3: huge pages", "", 0, COUNT, |_, outcome| {
        huge(outcome, 2)
    }),
    counter!("thp_fault_alloc", Some(COUNT)),
    counter!("thp_fault_fallback", Some(SCANNED)),
    counter!("compact_stall", Some(LONG)),
    counter!("compact_fail", Some(LONG)),
    counter!("compact_success", Some(COUNT)),
    counter!("pgmigrate_success", Some(LONG)),
    counter!("pgmigrate_fail", Some(COUNT)),
    counter!("compact_migrate_scanned", Some(COUNT)),
    counter!("compact_free_scanned", Some(COUNT)),
    counter!("compact_daemon_wake", Some(COUNT)),
    cpu("cpu: allocator", ALLOC.task, CPU),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_round_is_three_lines() {
        let fields = [
            json!("a0"),
            json!("alloc"),
            json!(1000),
            json!(480),
            json!(85),
            json!(3),
        ];
        let worker = Worker::read(&fields, 0).unwrap();
        let line = |ms: f64, n: f64, extra: f64| Call {
            ended_s: 6.0 + ms / 1e3,
            ms,
            n,
            extra,
        };
        let calls = [
            line(2000.0, 122_880.0, 0.0),
            line(24.0, 1.0, 1e9),
            line(0.0, 35.0, 205.0),
        ];
        let rounds = rounds(&worker, &calls);
        assert_eq!(rounds.len(), 1);
        let round = &rounds[0];
        assert_eq!(
            (round.alloc_began_s, round.took_s, round.huge),
            (6.0, 2.0, 35.0)
        );
    }
}

//! Several runs as one: all rows of a repetition (the row `all`), or all repetitions of a cell.
//!
//! Jobs, tasks and throttlings are put side by side, counters and times are added, so a metric of
//! the whole is that of one long run. Levels over time are left out: they have no common time.
//!
//! Source: experiments B6 (data of an operation are the samples of all iterations), B7 (counters
//! are of the whole test).

use crate::outcome::Outcome;
pub use scenario::ALL;
use scenario::Scenario;

/// True if a scenario speaks of that row: in a band or with a published value.
#[must_use]
pub fn is_asked(scenario: &Scenario) -> bool {
    let expects = scenario.expects.iter().flat_map(|expect| &expect.rows);
    let published = scenario.published.iter().map(|entry| &entry.row);
    let mut cases = expects.chain(published);
    cases.any(|case| case.get_ref() == ALL) || !scenario.delays.is_empty()
}

/// The outcomes, and behind them the row of all rows where the scenario asks for it. `rows`: those
/// that were to be run and do not stand apart; without one of them a sum would be of something
/// else.
#[must_use]
pub fn with_all(scenario: &Scenario, mut outcomes: Vec<Outcome>, rows: &[String]) -> Vec<Outcome> {
    if is_asked(scenario) {
        let all = rows_together(&outcomes, rows);
        outcomes.extend(all);
    }
    outcomes
}

/// The row `all` of each column and repetition that has all of `rows`; runs that stand apart are
/// left out.
#[must_use]
pub fn rows_together(outcomes: &[Outcome], rows: &[String]) -> Vec<Outcome> {
    let summed = || outcomes.iter().filter(|outcome| !outcome.apart);
    let mut keys: Vec<(&str, u32)> = Vec::new();
    for outcome in summed() {
        let key = (outcome.policy.as_str(), outcome.replica);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let whole = keys.into_iter().filter_map(|(policy, replica)| {
        let own: Vec<&Outcome> = summed()
            .filter(|outcome| outcome.policy == policy && outcome.replica == replica)
            .collect();
        (own.len() == rows.len()).then(|| {
            let mut all = together(&own);
            all.case = ALL.to_owned();
            all
        })
    });
    whole.collect()
}

/// Several runs as one; with no runs, an empty one.
#[must_use]
pub fn together(runs: &[&Outcome]) -> Outcome {
    let Some(first) = runs.first() else {
        return Outcome::default();
    };
    let mut all = Outcome {
        case: first.case.clone(),
        policy: first.policy.clone(),
        replica: first.replica,
        seed: first.seed,
        scale: first.scale,
        cpu_scale: first.cpu_scale,
        tick_ms: first.tick_ms,
        memory_limit: first.memory_limit,
        ..Outcome::default()
    };
    for run in runs {
        all.jobs.extend(run.jobs.iter().cloned());
        all.tasks.extend(run.tasks.iter().cloned());
        all.throttles.extend(run.throttles.iter().copied());
        all.virtual_s += run.virtual_s;
        all.wall_s += run.wall_s;
        for (name, value) in &run.counters {
            match all.counters.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += value,
                None => all.counters.push((name, *value)),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: &str, replica: u32, scanned: f64) -> Outcome {
        Outcome {
            case: case.into(),
            policy: "p".into(),
            replica,
            virtual_s: 10.0,
            counters: vec![("pgscan_direct", scanned)],
            ..Outcome::default()
        }
    }

    #[test]
    fn rows_of_a_repetition_are_added_and_those_apart_are_not() {
        let mut apart = run("x", 0, 100.0);
        apart.apart = true;
        // The second repetition lacks a row: its sum would be of something else.
        let runs = [run("4", 0, 1.0), run("7", 0, 2.0), run("4", 1, 4.0), apart];
        let rows = ["4", "7"].map(str::to_owned);
        let all = rows_together(&runs, &rows);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].case.as_str(), all[0].replica), (ALL, 0));
        assert_eq!(all[0].counters, [("pgscan_direct", 3.0)]);
        assert!((all[0].virtual_s - 20.0).abs() < 1e-9);
        // A row that no column has come to is missed too.
        let rows = ["4", "7", "12"].map(str::to_owned);
        assert!(rows_together(&runs, &rows).is_empty());
    }
}

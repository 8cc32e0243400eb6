//! Judges the `[[expect]]` bands of a scenario.

use serde::Serialize;
use toml::Spanned;

use crate::metrics;
use crate::outcome::Outcome;
use crate::pool;
use crate::stats::{Better, Samples};
use scenario::{CompareKind, ExpectEntry, Scenario};

/// The standing of a band after a run, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A column or the row of it was left out by the caller.
    NotRun,
    /// The value lies within the band.
    Holds,
    /// It does not, but another experiment holds the band, or the miss is known.
    Misses,
    /// It does not, or there is no value: a check fails.
    Fails,
}

impl Standing {
    /// It, as `bands.json` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::Holds => "holds",
            Self::Misses => "misses",
            Self::Fails => "fails",
        }
    }
}

/// A verdict with its standing, as `bands.json` has it.
#[derive(Serialize)]
pub struct Judged<'a> {
    standing: Standing,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

impl<'a> Judged<'a> {
    /// The verdict, its standing beside it.
    #[must_use]
    pub fn of(verdict: &'a Verdict) -> Self {
        Self {
            standing: verdict.standing(),
            verdict,
        }
    }
}

/// The verdict on one band in one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the band.
    pub id: String,
    /// Row.
    pub case: String,
    /// The comparison, in words.
    pub what: String,
    /// The value; `None`: a column was not run, or the metric does not apply.
    pub value: Option<f64>,
    /// Not below.
    pub min: Option<f64>,
    /// Not above.
    pub max: Option<f64>,
    /// The source of the band.
    pub source: String,
    /// A column or the row of it was left out by the caller.
    pub skipped: bool,
    /// The experiment that holds the band where this one does not.
    pub held_in: Option<String>,
    /// Why it is known not to hold.
    pub missed: Option<String>,
}

impl Verdict {
    /// True if the band holds. A band without a value does not hold; a skipped one does.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.skipped
            || self.value.is_some_and(|value| {
                self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
            })
    }

    /// True if a check fails for it: it does not hold, no other experiment holds it, and it is no
    /// known miss; or it could not be judged.
    #[must_use]
    pub fn fails(&self) -> bool {
        let excused = self.held_in.is_some() || self.missed.is_some();
        !self.holds() && (!excused || self.value.is_none())
    }

    /// Its standing, in one word.
    #[must_use]
    pub fn standing(&self) -> Standing {
        if self.skipped {
            Standing::NotRun
        } else if self.holds() {
            Standing::Holds
        } else if self.fails() {
            Standing::Fails
        } else {
            Standing::Misses
        }
    }

    /// One line: name, row, value, band.
    #[must_use]
    pub fn line(&self) -> String {
        let standing = self.standing();
        let word = match standing {
            Standing::NotRun => "not run",
            Standing::Holds => "holds",
            Standing::Misses => "misses",
            Standing::Fails => "FAILS",
        };
        let where_held = match (standing, &self.held_in, &self.missed) {
            (Standing::Holds, Some(name), _) => format!(" (held in `run {name}` too)"),
            (Standing::Misses, Some(name), _) => format!(" (held in `run {name}`)"),
            (Standing::Misses, None, Some(why)) => format!(" ({why})"),
            _ => String::new(),
        };
        let value = self
            .value
            .map_or_else(|| "no value".into(), |value| format!("{value:.4}"));
        let band = match (self.min, self.max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!(">= {min}"),
            (None, Some(max)) => format!("<= {max}"),
            (None, None) => "anything".into(),
        };
        format!(
            "{word:<8} {} [{}] {} = {value}, expected {band}{where_held}",
            self.id, self.case, self.what
        )
    }
}

/// True if any band that is held here is of rows and columns that will be run.
#[must_use]
pub fn any_applies(scenario: &Scenario, rows: &[String], columns: &[String]) -> bool {
    let held_here = |expect: &&ExpectEntry| expect.held_in.is_none();
    scenario.expects.iter().filter(held_here).any(|expect| {
        let ran = |name: &String| columns.contains(name);
        let row =
            expect.rows.is_empty() || expect.rows.iter().any(|case| rows.contains(case.get_ref()));
        let is_there = |case: &Spanned<String>| rows.contains(case.get_ref());
        row && ran(expect.column.get_ref())
            && expect.vs.as_ref().is_none_or(|vs| ran(vs.get_ref()))
            && expect.vs_row.as_ref().is_none_or(is_there)
    })
}

/// All bands in all of their rows. `columns`: those that were to be run. `whole`: nobody
/// interrupted the runs; else a band of a cell that was not come to is not judged.
#[must_use]
pub fn judge(
    scenario: &Scenario,
    outcomes: &[Outcome],
    columns: &[String],
    whole: bool,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for expect in &scenario.expects {
        for mut verdict in judge_of(scenario, expect, outcomes, columns) {
            verdict.skipped |= !whole && !is_met(expect, &verdict.case, outcomes);
            verdicts.push(verdict);
        }
    }
    verdicts
}

/// One band in all of its rows.
#[must_use]
pub fn judge_of(
    scenario: &Scenario,
    expect: &ExpectEntry,
    outcomes: &[Outcome],
    columns: &[String],
) -> Vec<Verdict> {
    let judged = rows(scenario, expect).into_iter();
    judged
        .map(|row| judge_one(expect, &row, outcomes, columns))
        .collect()
}

/// The rows that a band is judged in.
#[must_use]
pub fn rows(scenario: &Scenario, expect: &ExpectEntry) -> Vec<String> {
    let named = expect.rows.iter().map(|row| row.get_ref().clone());
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        return named;
    }
    let all = scenario.rows();
    all.iter().map(|row| row.name.get_ref().clone()).collect()
}

/// The cells that a band compares, in words: `p1 / linux-2.6.36 in 100`.
#[must_use]
pub fn named(expect: &ExpectEntry) -> String {
    let name = |name: &Spanned<String>| name.get_ref().clone();
    let mut text = name(&expect.column);
    if let Some(vs) = &expect.vs {
        text.push_str(&format!(" / {}", name(vs)));
    }
    if let [row] = &expect.rows[..] {
        text.push_str(&format!(" in {}", name(row)));
    }
    if let Some(row) = &expect.vs_row {
        text.push_str(&format!(" / {}", name(row)));
    }
    text
}

/// Row and column of the cells that a band compares in one of its rows; the same twice where it is
/// of one cell alone.
pub fn cells<'a>(expect: &'a ExpectEntry, case: &'a str) -> [(&'a str, &'a str); 2] {
    let policy = expect.column.get_ref().as_str();
    let other = expect.vs.as_ref().map_or(policy, |vs| vs.get_ref());
    let other_case = expect.vs_row.as_ref();
    let other_case = other_case.map_or(case, |case| case.get_ref().as_str());
    [(case, policy), (other_case, other)]
}

/// True if every cell that the band compares has a run.
fn is_met(expect: &ExpectEntry, case: &str, outcomes: &[Outcome]) -> bool {
    cells(expect, case).into_iter().all(|(case, policy)| {
        outcomes
            .iter()
            .any(|outcome| outcome.case == case && outcome.policy == policy)
    })
}

fn judge_one(
    expect: &ExpectEntry,
    case: &str,
    outcomes: &[Outcome],
    columns: &[String],
) -> Verdict {
    let metric = expect.metric.get_ref();
    let policy = expect.column.get_ref();
    let vs = expect.vs.as_ref().map(|vs| vs.get_ref());
    let vs_row = expect.vs_row.as_ref().map(|case| case.get_ref().as_str());
    let of = expect.of.as_ref().map(|of| of.get_ref().as_str());
    let ran = |name: &String| columns.contains(name);
    let own = mean(outcomes, case, policy, (metric, of));
    let other = (
        vs_row.unwrap_or(case),
        vs.map_or(policy.as_str(), String::as_str),
    );
    let base = mean(outcomes, other.0, other.1, (metric, of));
    let part = of.map_or(String::new(), |of| format!(" ({of})"));
    let name = match (vs, vs_row) {
        (Some(vs), Some(case)) => Some(format!("{vs} in {case}")),
        (Some(vs), None) => Some(vs.clone()),
        (None, Some(case)) => Some(format!("in {case}")),
        (None, None) => None,
    };
    let (value, what) = match (*expect.op.get_ref(), name) {
        (CompareKind::Ratio, Some(name)) => (
            own.zip(base).map(|(own, base)| own / base),
            format!("{metric}{part} of {policy} / {name}"),
        ),
        (CompareKind::ChangePercent, Some(name)) => (
            own.zip(base).map(|(own, base)| 100.0 * (own / base - 1.0)),
            format!("{metric}{part} of {policy} against {name}, change in %"),
        ),
        (CompareKind::Chance, Some(name)) => (
            chance(outcomes, metric, (case, policy), other),
            format!("chance that {metric} of {policy} and {name} differ so"),
        ),
        _ => (own, format!("{metric}{part} of {policy}")),
    };
    let missing = |case: &str| outcomes.iter().all(|outcome| outcome.case != case);
    Verdict {
        id: expect.id.get_ref().clone(),
        case: case.to_owned(),
        what,
        value: value.filter(|value| value.is_finite()),
        min: expect.min.as_ref().map(|min| *min.get_ref()),
        max: expect.max.as_ref().map(|max| *max.get_ref()),
        source: expect.source.clone(),
        missed: expect.missed.as_ref().map(|why| why.get_ref().clone()),
        held_in: expect.held_in.as_ref().map(|name| name.get_ref().clone()),
        skipped: !ran(policy)
            || vs.is_some_and(|vs| !ran(vs))
            || (!outcomes.is_empty() && (missing(case) || vs_row.is_some_and(missing))),
    }
}

/// The probability that two cells' means of a metric's samples, of all repetitions, differ so by
/// chance.
fn chance(
    outcomes: &[Outcome],
    metric: &str,
    own: (&str, &str),
    other: (&str, &str),
) -> Option<f64> {
    let samples_of = metrics::samples_of(metric)?;
    let of = |(case, policy)| {
        let runs = outcomes.iter();
        let runs = runs.filter(|run| (run.case.as_str(), run.policy.as_str()) == (case, policy));
        Samples::new(runs.filter_map(samples_of).flatten(), Better::Lower)
    };
    of(own).p_value(&of(other))
}

/// Mean of a metric over the repetitions of a cell, of one task or device or of all.
pub fn mean(
    outcomes: &[Outcome],
    case: &str,
    policy: &str,
    (metric, of): (&str, Option<&str>),
) -> Option<f64> {
    let metric = metrics::by_name(metric)?;
    let of_cell = |outcome: &&Outcome| outcome.case == case && outcome.policy == policy;
    let all = outcomes.iter().filter(of_cell);
    let parts: Vec<Outcome> = of.map_or_else(Vec::new, |of| {
        all.clone().map(|outcome| outcome.only(of)).collect()
    });
    let own: Vec<&Outcome> = if of.is_some() {
        parts.iter().collect()
    } else {
        all.collect()
    };
    if metric.pooled && own.len() > 1 {
        return (metric.of)(&pool::together(&own));
    }
    let values = own.iter().filter_map(|outcome| metric.value(outcome));
    let samples = Samples::new(values, metric.better);
    (!samples.is_empty()).then(|| samples.amean())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Job;
    use scenario::experiments;

    fn outcome(case: &str, policy: &str, real: f64) -> Outcome {
        let job = Job {
            ended_s: real,
            bytes: 1e6,
            is_heavy: true,
            ..Job::default()
        };
        let (case, policy) = (case.into(), policy.into());
        Outcome {
            case,
            policy,
            scale: 1.0,
            jobs: vec![job],
            ..Outcome::default()
        }
    }

    fn judge_dd(before: f64, after: f64) -> Vec<Verdict> {
        let (scenario, _) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let cases = ["ext2", "ext3", "ext4", "xfs", "btrfs"];
        let outcomes: Vec<Outcome> = cases
            .iter()
            .flat_map(|case| {
                [
                    outcome(case, "linux-2.6.36", before),
                    outcome(case, "p1", after),
                ]
            })
            .collect();
        let columns = ["linux-2.6.36".into(), "p1".into()];
        let mut verdicts = judge(&scenario, &outcomes, &columns, true);
        // The runs have no CPU times.
        verdicts.retain(|verdict| verdict.id.starts_with("A7-13"));
        verdicts
    }

    #[test]
    fn a_band_holds_inside_and_fails_outside() {
        let inside = judge_dd(100.0, 102.9);
        assert_eq!(inside.len(), 10);
        assert!(inside.iter().all(Verdict::holds));
        assert_eq!(inside.iter().filter(|verdict| verdict.skipped).count(), 5);
        let outside = judge_dd(100.0, 103.1);
        assert_eq!(outside.iter().filter(|verdict| !verdict.holds()).count(), 5);
        assert!(
            outside[0]
                .line()
                .starts_with("FAILS    A7-13-p1 [ext2] real of p1")
        );
        let mirrored = judge_dd(103.2, 100.0);
        assert_eq!(
            mirrored.iter().filter(|verdict| !verdict.holds()).count(),
            5
        );
    }

    #[test]
    fn a_band_applies_where_its_row_and_both_of_its_columns_are_run() {
        let (dd, _) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let both = names(&["linux-2.6.36", "p1"]);
        assert!(any_applies(&dd, &names(&["ext4"]), &both));
        assert!(!any_applies(&dd, &names(&["nfs"]), &both));
        assert!(!any_applies(&dd, &names(&["ext4"]), &names(&["p1"])));
    }

    #[test]
    fn a_band_that_is_held_elsewhere_is_missed_without_failing() {
        let mut verdicts = judge_dd(100.0, 103.1);
        verdicts.retain(|verdict| !verdict.holds());
        assert!(verdicts.iter().all(Verdict::fails));
        for verdict in &mut verdicts {
            verdict.held_in = Some("there".into());
            assert!(!verdict.holds() && !verdict.fails());
            let line = verdict.line();
            assert!(line.starts_with("misses   A7-13-p1 ["), "{line}");
            assert!(line.ends_with(" (held in `run there`)"), "{line}");
            verdict.value = None;
            assert!(verdict.fails() && verdict.line().starts_with("FAILS"));
        }
    }

    #[test]
    fn a_known_miss_is_printed_with_its_cause_and_fails_nothing() {
        let mut verdicts = judge_dd(100.0, 103.1);
        for verdict in &mut verdicts {
            verdict.missed = Some("the disk is idle".into());
        }
        let missed = |verdict: &&Verdict| !verdict.holds() && !verdict.fails();
        assert_eq!(verdicts.iter().filter(missed).count(), 5);
        let line = verdicts.iter().find(missed).unwrap().line();
        assert!(line.starts_with("misses   A7-13-p1 ["), "{line}");
        assert!(line.ends_with(" (the disk is idle)"), "{line}");
        verdicts[0].value = None;
        assert!(verdicts[0].fails() && verdicts[0].line().starts_with("FAILS"));
    }

    #[test]
    fn a_value_that_could_not_be_had_does_not_hold() {
        let (scenario, _) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let columns = ["linux-2.6.36".to_owned(), "p1".to_owned()];
        let verdicts = judge(&scenario, &[], &columns, true);
        assert!(
            verdicts
                .iter()
                .any(|verdict| !verdict.holds() && !verdict.skipped)
        );
    }

    #[test]
    fn a_chance_is_of_the_samples_of_all_repetitions() {
        let run = |policy: &str, samples: [f64; 3]| {
            let mut run = outcome("4", policy, 1.0);
            run.jobs[0].is_mapper = true;
            run.jobs[0].samples = samples.map(|length| (0.0, length)).to_vec();
            run
        };
        let likely = |other: [f64; 3]| {
            let own = [1.0, 2.0, 3.0];
            let runs = [run("a", own), run("a", own), run("b", other)];
            chance(&runs, "lat_amean_ms", ("4", "a"), ("4", "b")).unwrap()
        };
        assert!(likely([2.0, 3.0, 1.0]) > 0.99);
        assert!(likely([8.0, 9.0, 9.0]) < 0.01);
        assert_eq!(chance(&[], "elapsed", ("4", "a"), ("4", "b")), None);
    }

    #[test]
    fn what_an_interrupted_run_did_not_come_to_is_not_judged() {
        let (scenario, _) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let columns = ["linux-2.6.36".to_owned(), "p1".to_owned()];
        // Of the second row only the first column has run.
        let outcomes = [
            outcome("ext2", "linux-2.6.36", 100.0),
            outcome("ext2", "p1", 200.0),
            outcome("ext3", "linux-2.6.36", 100.0),
        ];
        let verdicts = judge(&scenario, &outcomes, &columns, false);
        let of_real = |v: &&Verdict| !v.skipped && v.id.starts_with("A7-13");
        let judged: Vec<&Verdict> = verdicts.iter().filter(of_real).collect();
        assert_eq!(judged.len(), 1);
        assert!(judged[0].case == "ext2" && !judged[0].holds());
        // The same runs without an interrupt: a column that failed in a row does not hold there.
        let verdicts = judge(&scenario, &outcomes, &columns, true);
        assert!(verdicts.iter().any(|v| !v.skipped && v.case == "ext3"));
    }
}

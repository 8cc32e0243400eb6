//! The scoreboard: what each published claim came to here, as plain data that is printed, kept in a
//! file and drawn.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::calibrated;
use super::grade::{self, Figures, Grade};
use super::wanted::{OURS, TODAY, Wanted, sides};
use experiment::expect;
use experiment::metrics::{self, Metric};
use experiment::outcome::Outcome;
use experiment::pool;
use experiment::scenario::{CompareKind, ExpectEntry, Scenario};
use experiment::stats::{Better, mean};

/// Ours is behind today's Linux by more than this part.
const BEHIND: f64 = 0.03;
/// Two values of a trade-off are alike within this part.
const ALIKE: f64 = 0.02;

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is within its band.
    Holds,
    /// It is not.
    Missed,
    /// No experiment has it.
    NotBuilt,
    /// Its experiment was left out or cut short.
    NotRun,
    /// Fewer repetitions were made than the band is of.
    NotJudged,
}

impl Verdict {
    /// As reports say it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Missed => "missed",
            Self::NotBuilt => "not built",
            Self::NotRun => "not run",
            Self::NotJudged => "not judged",
        }
    }
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The paper, as `p0`.
    pub paper: String,
    /// Which experiment has it; none: not built.
    pub experiment: Option<String>,
    /// Its name, as `A7-8`.
    pub id: String,
    /// The claim in words.
    pub claim: String,
    /// The published value.
    pub published: Option<String>,
    /// The value here.
    pub ours: Option<String>,
    /// Ours over the published figure; one within a published range. None where the two have no
    /// ratio.
    pub ratio: Option<f64>,
    /// The band in which it holds.
    pub band: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// The grade of one that holds.
    pub grade: Option<Grade>,
    /// The run in which it must not hold.
    pub knock_out: Option<KnockOut>,
    /// The constant that was chosen by this very figure.
    pub calibrated: Option<String>,
    /// It is one of the bands that are our own and not the paper's.
    pub own: bool,
    /// The miss is known: the scenario names its cause.
    pub known: bool,
    /// Why it is missed, not judged or not built.
    pub why: Option<String>,
    /// In how many of the repetitions it holds by itself, where there are several.
    pub seeds: Option<Seeds>,
    /// The numbers behind the words, to be drawn.
    pub(super) marks: Marks,
}

/// A claim in the run in which it must not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnockOut {
    /// The cells of that run.
    pub what: String,
    /// The value there.
    pub value: Option<String>,
    /// It holds there, too: the claim does not depend on its mechanism.
    pub holds: bool,
}

/// Causes that were said already, and of which claim: each is said once.
#[derive(Default)]
pub(super) struct Causes<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Causes<'a> {
    /// The lines below a claim: its seeds, the reason of a grade D, its cause.
    pub(super) fn below(&mut self, claim: &'a Claim) -> impl Iterator<Item = Cow<'a, str>> {
        let seeds = claim.seeds.map(|seeds| seeds.said().into());
        let hollow = claim.hollow().map(Into::into);
        seeds.into_iter().chain(hollow).chain(self.of(claim))
    }

    /// Words about a claim's cause. They name the claim that has it in full, which may
    /// stand anywhere: a reader can sort the rows of a page.
    fn of(&mut self, claim: &'a Claim) -> Option<Cow<'a, str>> {
        let why = claim.why.as_deref()?;
        let first = *self.0.entry(why).or_insert(&claim.id);
        Some(if first == claim.id {
            why.into()
        } else {
            format!("cause: see {first}").into()
        })
    }
}

/// Repetitions, each with a seed of its own, and in how many of them a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds {
    /// Repetitions in which it holds.
    pub hold: u32,
    /// Repetitions.
    pub of: u32,
}

impl Seeds {
    /// In some of them, and in no more than half: by chance, whatever the mean is.
    pub(super) const fn by_chance(self) -> bool {
        self.hold > 0 && self.hold * 2 <= self.of
    }

    pub(super) fn said(self) -> String {
        let Self { hold, of } = self;
        let chance = if self.by_chance() { ", by chance" } else { "" };
        format!("in {hold} of {of} seeds{chance}")
    }
}

impl Claim {
    /// Its grade, or its verdict where it has none.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.grade.map_or(self.verdict.word(), Grade::name)
    }

    /// The figure without the mechanism, as tables have it.
    #[must_use]
    pub fn knocked(&self) -> Cow<'_, str> {
        match (&self.calibrated, &self.knock_out) {
            (Some(_), _) => "chosen by it".into(),
            (None, None) => "none".into(),
            (None, Some(out)) => out.value.as_deref().unwrap_or("no value").into(),
        }
    }

    /// The ratio, as tables have it.
    #[must_use]
    pub fn ratio_said(&self) -> String {
        self.ratio.map_or_else(|| "-".into(), figure)
    }

    /// The reason of a grade D.
    #[must_use]
    pub fn hollow(&self) -> Option<String> {
        if self.grade != Some(Grade::D) {
            return None;
        }
        Some(match (&self.calibrated, &self.knock_out) {
            (Some(constant), _) => format!("chosen by this figure: {constant}"),
            (None, None) => "no run is named in which it does not hold".to_owned(),
            (None, Some(out)) if out.holds => format!("holds in {} as well", out.what),
            (None, Some(out)) => format!("{} has no figure of it", out.what),
        })
    }

    /// It should hold, and does not.
    pub(super) fn fails(&self) -> bool {
        self.verdict == Verdict::Missed && !self.known
    }
}

/// The numbers of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Marks {
    pub(super) published: Vec<f64>,
    pub(super) ours: Vec<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

/// Our own column beside both sides of a paper, in one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TradeOff {
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) about: String,
    pub(super) before: f64,
    pub(super) after: f64,
    pub(super) ours: f64,
    pub(super) outcome: Side,
}

/// A metric in which our own column is behind that of today's Linux.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Behind {
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) ours: f64,
    pub(super) today: f64,
}

/// On which side of the two it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    BetterThanBoth,
    Between,
    WorseThanBoth,
}

impl Side {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::BetterThanBoth => "better than both",
            Self::Between => "between",
            Self::WorseThanBoth => "worse than both",
        }
    }
}

/// The result of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Everything it was run with; another run with the same key would come to the same.
    pub(super) key: String,
    pub(super) experiment: String,
    pub(super) title: String,
    pub(super) paper: String,
    pub(super) scale: f64,
    pub(super) replicas: u32,
    /// Repetitions that the experiment asks for.
    pub(super) replicas_asked: u32,
    pub(super) runs: usize,
    pub(super) failed_runs: usize,
    /// Values that are not the experiment's own.
    pub(super) set: Vec<String>,
    /// Rows and columns that the experiment has and that were left out here.
    pub(super) left_out: Vec<String>,
    /// CPU time of its runs, s.
    pub(super) cpu_s: f64,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    pub(super) claims: Vec<Claim>,
    pub(super) trade_offs: Vec<TradeOff>,
    /// Metrics in which it is behind; none if that column was not run.
    #[serde(default)]
    pub(super) behind: Option<Vec<Behind>>,
    /// Title and SVG of the picture.
    pub(super) figure: Option<(String, String)>,
}

impl Part {
    /// The published claims.
    pub(super) fn published(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| !claim.own)
    }

    /// Our own bands.
    pub(super) fn own(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.own)
    }
}

/// The runs that were made of an experiment.
pub(super) struct Ran<'a> {
    pub(super) scenario: &'a Scenario,
    /// With the row `all`, if the experiment has it.
    pub(super) outcomes: &'a [Outcome],
    pub(super) columns: &'a [String],
    /// Rows that are summed in the row `all`.
    pub(super) summed: &'a [String],
    pub(super) wanted: &'a Wanted,
    /// Run smaller than at the experiment's own scale, where a miss that is declared stays one: a
    /// band that holds in the smaller run alone is judged at the larger one.
    pub(super) smaller: bool,
    pub(super) replicas: u32,
    /// Repetitions that the experiment asks for.
    pub(super) replicas_asked: u32,
}

impl Ran<'_> {
    /// All bands that are held here, published or our own.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let held_here = |expect: &&ExpectEntry| expect.held_in.is_none();
        let expects = self.scenario.expects.iter().filter(held_here);
        let seeds: Vec<Vec<Outcome>> = if self.replicas > 1 {
            (0..self.replicas).map(|seed| self.of(seed)).collect()
        } else {
            Vec::new()
        };
        let claim = |expect| {
            let claim = self.claim(expect)?;
            let seeds = (!seeds.is_empty()).then(|| self.seeds(expect, &seeds));
            Some(Claim { seeds, ..claim })
        };
        expects.filter_map(claim).collect()
    }

    /// The runs of one repetition.
    fn of(&self, seed: u32) -> Vec<Outcome> {
        let all = self.outcomes.iter();
        all.filter(|run| run.replica == seed).cloned().collect()
    }

    fn seeds(&self, expect: &ExpectEntry, seeds: &[Vec<Outcome>]) -> Seeds {
        let holds = |outcomes: &&Vec<Outcome>| {
            let of_one = Ran { outcomes, ..*self };
            all_hold(&of_one.verdicts(expect))
        };
        Seeds {
            hold: seeds.iter().filter(holds).fold(0, |count, _| count + 1),
            of: self.replicas,
        }
    }

    /// The band in each of its rows; skipped where what it compares was not to be run.
    pub(super) fn verdicts(&self, expect: &ExpectEntry) -> Vec<expect::Verdict> {
        let mut all = expect::judge_of(self.scenario, expect, self.outcomes, self.columns);
        let is_run = |(case, policy): (&str, &str)| {
            let rows = if case == pool::ALL {
                self.summed
            } else {
                &[case.to_owned()]
            };
            rows.iter().all(|row| self.wanted.has(row, policy))
        };
        for verdict in &mut all {
            verdict.skipped |= !expect::cells(expect, &verdict.case).into_iter().all(is_run);
        }
        all
    }

    fn claim(&self, expect: &ExpectEntry) -> Option<Claim> {
        let verdicts = self.verdicts(expect);
        let own = !expect.is_published();
        let is_judged = judged(&verdicts).next().is_some();
        if own && !is_judged {
            return None;
        }
        let least = expect.replicas_least.as_ref().map_or(1, |n| *n.get_ref());
        let missed = expect.missed.as_ref().map(|why| why.get_ref().clone());
        let no_value = judged(&verdicts).any(|one| one.value.is_none());
        let (verdict, why) = if !is_judged {
            let why = "the rows or columns that it is about were left out; `--whole` runs them";
            (Verdict::NotRun, Some(why.to_owned()))
        } else if self.replicas < least {
            let why = format!(
                "a mean of {least} repetitions; reproduce {} --replicas {least}",
                self.scenario.name.get_ref()
            );
            (Verdict::NotJudged, Some(why))
        } else if all_hold(&verdicts) && !(self.smaller && missed.is_some()) {
            (Verdict::Holds, None)
        } else if no_value {
            let why = "there is no value: a run failed, or the metric does not apply";
            (Verdict::Missed, Some(why.to_owned()))
        } else {
            (Verdict::Missed, missed.clone())
        };
        let unit = unit(expect);
        let values = values(&verdicts);
        let (said, published) = published(self.scenario, expect);
        let figures = Figures {
            published: &published,
            ours: &values,
            deviation: expect.deviation.as_ref().map(|by| *by.get_ref()),
        };
        let name = self.scenario.name.get_ref();
        let calibrated = calibrated::of(name, expect.id.get_ref());
        let knock_out = self.knock_out(expect, unit);
        // A band of our own has nothing published that it could be near to.
        let grade = (verdict == Verdict::Holds && !own).then(|| {
            let is_knocked = knock_out
                .as_ref()
                .is_some_and(|out| !out.holds && out.value.is_some());
            if calibrated.is_none() && is_knocked {
                grade::of(&figures)
            } else {
                Grade::D
            }
        });
        let first = verdicts.first();
        Some(Claim {
            paper: self.scenario.paper_id().unwrap_or_default().to_owned(),
            experiment: Some(self.scenario.name.get_ref().clone()),
            id: expect.id.get_ref().clone(),
            claim: sentence(expect, first.map_or("", |one| &one.what)),
            published: said,
            ours: range(&values, unit),
            ratio: figures.ratio(),
            band: band(
                first.and_then(|one| one.min),
                first.and_then(|one| one.max),
                unit,
            ),
            verdict,
            grade,
            knock_out,
            calibrated: calibrated.map(str::to_owned),
            own,
            known: missed.is_some() && !no_value,
            why,
            seeds: None,
            marks: Marks {
                published,
                ours: values,
                min: first.and_then(|one| one.min),
                max: first.and_then(|one| one.max),
            },
        })
    }

    /// The claim in the run in which it must not hold. None: it names no such run.
    fn knock_out(&self, expect: &ExpectEntry, unit: &str) -> Option<KnockOut> {
        let out = expect.knocked_out()?;
        let verdicts = self.verdicts(&out);
        Some(KnockOut {
            what: expect::named(&out),
            value: range(&values(&verdicts), unit),
            holds: all_hold(&verdicts),
        })
    }

    /// Our own column beside both sides. None without one, or where nothing is compared.
    pub(super) fn trade_offs(&self) -> Vec<TradeOff> {
        let Some((before, after)) = sides(self.scenario) else {
            return Vec::new();
        };
        let asked = &self.scenario.reproduce.trade_offs;
        let names = if asked.is_empty() {
            &self.scenario.metrics
        } else {
            asked
        };
        let known = names
            .iter()
            .filter_map(|name| metrics::by_name(name.get_ref()));
        known
            .filter_map(|metric| {
                let all = [before, after, OURS];
                let value = |column| self.value(metric, column, &all);
                let (before, after, ours) = (value(before)?, value(after)?, value(OURS)?);
                Some(TradeOff {
                    metric: metric.name.to_owned(),
                    unit: metric.unit.to_owned(),
                    about: metric.about.to_owned(),
                    before,
                    after,
                    ours,
                    outcome: side(metric.better, [before, after], ours),
                })
            })
            .collect()
    }

    /// Metrics in which our own column is behind that of today's Linux. None: one of them was not
    /// run.
    pub(super) fn behind(&self) -> Option<Vec<Behind>> {
        let both = [OURS, TODAY];
        let mut has_any = false;
        let mut all = Vec::new();
        for metric in metrics::judged() {
            let values = both.map(|column| self.value(metric, column, &both));
            let [Some(ours), Some(today)] = values else {
                continue;
            };
            has_any = true;
            let is_behind = match metric.better {
                Better::Lower => ours > today * (1.0 + BEHIND),
                Better::Higher => ours < today * (1.0 - BEHIND),
            };
            if is_behind {
                all.push(Behind {
                    metric: metric.name.to_owned(),
                    unit: metric.unit.to_owned(),
                    ours,
                    today,
                });
            }
        }
        has_any.then_some(all)
    }

    /// The metric of all rows together where they are summed; else the mean of the rows that have
    /// it under all those columns.
    fn value(&self, metric: &Metric, column: &str, columns: &[&str]) -> Option<f64> {
        let all = expect::mean(self.outcomes, pool::ALL, column, (metric.name, None));
        if all.is_some() {
            return all;
        }
        let rows = self.scenario.rows();
        let summed = rows.iter().filter(|row| !row.apart);
        let mut values = Vec::new();
        for row in summed {
            let of = |column: &str| {
                let case = row.name.get_ref();
                expect::mean(self.outcomes, case, column, (metric.name, None))
            };
            if columns.iter().all(|column| of(column).is_some()) {
                values.extend(of(column));
            }
        }
        mean(values)
    }
}

/// The verdicts on what was run.
fn judged(verdicts: &[expect::Verdict]) -> impl Iterator<Item = &expect::Verdict> {
    verdicts.iter().filter(|one| !one.skipped)
}

/// There is one of these, and all hold.
fn all_hold(verdicts: &[expect::Verdict]) -> bool {
    judged(verdicts).next().is_some() && judged(verdicts).all(expect::Verdict::holds)
}

fn values(verdicts: &[expect::Verdict]) -> Vec<f64> {
    judged(verdicts).filter_map(|one| one.value).collect()
}

fn side(better: Better, sides: [f64; 2], ours: f64) -> Side {
    let beats = |one: f64, other: f64| {
        let room = ALIKE * one.abs().max(other.abs());
        match better {
            Better::Lower => one < other - room,
            Better::Higher => one > other + room,
        }
    };
    if sides.iter().all(|other| beats(ours, *other)) {
        Side::BetterThanBoth
    } else if sides.iter().all(|other| beats(*other, ours)) {
        Side::WorseThanBoth
    } else {
        Side::Between
    }
}

/// The published figure as text, and its numbers: as the claim says it, or by the published values,
/// one a row. Of a text without a range the first number is the figure.
pub(super) fn published(scenario: &Scenario, expect: &ExpectEntry) -> (Option<String>, Vec<f64>) {
    if let Some(text) = &expect.published {
        let text = text.get_ref();
        let is_chance = *expect.op.get_ref() == CompareKind::Chance;
        let mut figures = if is_chance { Vec::new() } else { numbers(text) };
        figures.truncate(if text.contains(" to ") { 2 } else { 1 });
        return (Some(text.clone()), figures);
    }
    let metric = expect.metric.get_ref();
    let of = |row: &str| {
        let [own, base] = expect::cells(expect, row)
            .map(|(row, column)| scenario.published_value(metric, row, column));
        Some(match expect.op.get_ref() {
            CompareKind::Value => own?,
            CompareKind::Ratio => own? / base?,
            CompareKind::ChangePercent => 100.0 * (own? / base? - 1.0),
            CompareKind::Chance => return None,
        })
    };
    let rows = expect::rows(scenario, expect);
    let figures: Vec<f64> = rows.iter().filter_map(|row| of(row)).collect();
    (range(&figures, unit(expect)), figures)
}

/// The claim's words; without any, what is compared.
fn sentence(expect: &ExpectEntry, what: &str) -> String {
    if let Some(claim) = &expect.claim {
        return claim.get_ref().clone();
    }
    let own = expect.source.strip_prefix("ours: ");
    if let Some(own) = own {
        return own.to_owned();
    }
    let about = metrics::by_name(expect.metric.get_ref()).map_or("", |metric| metric.about);
    format!("{what} ({about})")
}

fn unit(expect: &ExpectEntry) -> &'static str {
    match expect.op.get_ref() {
        CompareKind::Value => metrics::by_name(expect.metric.get_ref()).map_or("", |m| m.unit),
        CompareKind::Ratio | CompareKind::Chance => "",
        CompareKind::ChangePercent => "%",
    }
}

/// The numbers in a text, each a word of its own: `-2.0 to +0.3 %` has two, `v4` none.
fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';' | '%'));
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Three digits, or the whole number.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size == 0.0 || size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.0995 => 2,
        _ if size >= 0.000_995 => 4,
        _ => 6,
    };
    if size >= 1e6 {
        return format!("{:.2}M", value / 1e6);
    }
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches(['-', '0', '.']).is_empty() {
        return "0".to_owned();
    }
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// The values as one figure, or as the least and the greatest.
fn range(values: &[f64], unit: &str) -> Option<String> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    let (low, high) = (figure(low), figure(high));
    let text = if low == high {
        low
    } else {
        format!("{low} to {high}")
    };
    Some(with_unit(text, unit))
}

fn band(min: Option<f64>, max: Option<f64>, unit: &str) -> String {
    let text = match (min, max) {
        (Some(min), Some(max)) if min == max => figure(min),
        (Some(min), Some(max)) => format!("{} to {}", figure(min), figure(max)),
        (Some(min), None) => format!(">= {}", figure(min)),
        (None, Some(max)) => format!("<= {}", figure(max)),
        (None, None) => return "anything".into(),
    };
    with_unit(text, unit)
}

pub(super) fn with_unit(text: String, unit: &str) -> String {
    if unit.is_empty() {
        text
    } else {
        format!("{text} {unit}")
    }
}

#[cfg(test)]
impl Claim {
    /// A claim for tests.
    pub(super) fn example(verdict: Verdict, ours: &[f64], published: &[f64]) -> Self {
        Self {
            paper: "p1".into(),
            experiment: None,
            id: "x".into(),
            claim: "A claim.".into(),
            published: None,
            ours: None,
            ratio: Figures {
                published,
                ours,
                deviation: None,
            }
            .ratio(),
            band: String::new(),
            verdict,
            grade: (verdict == Verdict::Holds).then_some(Grade::A),
            knock_out: None,
            calibrated: None,
            own: false,
            known: true,
            why: None,
            seeds: None,
            marks: Marks {
                published: published.to_vec(),
                ours: ours.to_vec(),
                ..Marks::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use experiment::outcome::Job;

    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.109, "0.11"),
            (0.0074, "0.0074"),
            (1.5, "1.5"),
            (12.34, "12.3"),
            (324.4, "324"),
            (1_056_608_451.0, "1056.61M"),
            (-2.0, "-2"),
            (100.0, "100"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn numbers_are_found_in_words() {
        assert_eq!(numbers("-2.0 to +0.3 %"), [-2.0, 0.3]);
        assert_eq!(numbers("0.477 (v4 0.073)"), [0.477, 0.073]);
        assert!(numbers("the majority").is_empty());
    }

    #[test]
    fn a_claim_says_in_how_many_seeds_it_holds_and_when_that_is_chance() {
        let said = |hold| Seeds { hold, of: 4 }.said();
        assert_eq!(said(4), "in 4 of 4 seeds");
        assert_eq!(said(2), "in 2 of 4 seeds, by chance");
        assert_eq!(said(0), "in 0 of 4 seeds");
        let after = [100.0, 105.0, 106.0];
        let real = row_13(&dd(), &after, false);
        assert_eq!(real.verdict, Verdict::Missed);
        assert_eq!(real.seeds, Some(Seeds { hold: 1, of: 3 }));
    }

    #[test]
    fn a_declared_miss_that_holds_in_a_smaller_run_is_a_miss() {
        let mut scenario = dd();
        assert_eq!(row_13(&scenario, &[100.0], true).verdict, Verdict::Holds);
        let mut expects = scenario.expects.iter_mut();
        let own = expects.find(|expect| expect.id.get_ref() == "A7-13-p1");
        own.unwrap().missed = Some(toml::Spanned::new(0..0, "it is slower".to_owned()));
        assert_eq!(row_13(&scenario, &[100.0], false).verdict, Verdict::Holds);
        let smaller = row_13(&scenario, &[100.0], true);
        assert_eq!((smaller.verdict, smaller.grade), (Verdict::Missed, None));
        assert_eq!(smaller.why.as_deref(), Some("it is slower"));
        assert!(!smaller.fails());
    }

    fn dd() -> Scenario {
        let source = experiment::experiments::by_name("dd").unwrap();
        Scenario::load(source, &[]).unwrap().0
    }

    /// The claim of row 13, by runs of 100 s before the change and these after it.
    fn row_13(scenario: &Scenario, after: &[f64], smaller: bool) -> Claim {
        let columns = ["linux-2.6.36".to_owned(), "p1".to_owned()];
        let run = |replica, case: &str, policy: usize, ended_s| Outcome {
            case: case.to_owned(),
            policy: columns[policy].clone(),
            replica,
            scale: 1.0,
            jobs: vec![Job {
                ended_s,
                bytes: 1e6,
                is_heavy: true,
                ..Job::default()
            }],
            ..Outcome::default()
        };
        let cases = ["ext2", "ext3", "ext4", "xfs", "btrfs"];
        let runs = (0..).zip(after).flat_map(|(seed, after)| {
            let both = move |case| [run(seed, case, 0, 100.0), run(seed, case, 1, *after)];
            cases.into_iter().flat_map(both)
        });
        let outcomes: Vec<Outcome> = runs.collect();
        let replicas = u32::try_from(after.len()).unwrap();
        let ran = Ran {
            scenario,
            outcomes: &outcomes,
            columns: &columns,
            summed: &[],
            wanted: &Wanted::of(scenario, false),
            smaller,
            replicas,
            replicas_asked: replicas,
        };
        let mut claims = ran.claims().into_iter();
        claims.find(|claim| claim.id == "A7-13-p1").unwrap()
    }

    #[test]
    fn a_side_is_better_than_both_only_beyond_what_is_alike() {
        let of = |ours| side(Better::Lower, [10.0, 20.0], ours);
        assert_eq!(of(9.0), Side::BetterThanBoth);
        assert_eq!(of(9.9), Side::Between);
        assert_eq!(of(15.0), Side::Between);
        assert_eq!(of(21.0), Side::WorseThanBoth);
        assert_eq!(
            side(Better::Higher, [10.0, 20.0], 21.0),
            Side::BetterThanBoth
        );
    }
}

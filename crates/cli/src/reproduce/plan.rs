//! What is to be run: of each experiment with published claims the rows and columns that they name, and our own column.

use sha2::{Digest as _, Sha256};

use super::board::OURS;
use super::papers::Papers;
use crate::experiments::{self, EXPERIMENTS};
use crate::pool;
use crate::run::{self, Cell, Column, Order};
use crate::scenario::{LoadError, Override, Scenario, Source, choices};

/// Estimate for an experiment that was never measured, s of one core.
const SECONDS_GUESSED: f64 = 15.0;

/// One experiment to be run.
pub(super) struct Planned {
    pub(super) scenario: Scenario,
    pub(super) source: Source,
    pub(super) columns: Vec<String>,
    /// Rows that are summed in the row `all`.
    pub(super) summed: Vec<String>,
    pub(super) orders: Vec<Order>,
    pub(super) left_out: Vec<String>,
    /// Values that are not the experiment's own.
    pub(super) set: Vec<String>,
    pub(super) replicas_asked: u32,
    /// Estimate, s of one core.
    pub(super) seconds: f64,
    /// Fingerprint of all that its result depends on.
    pub(super) key: String,
}

impl Planned {
    pub(super) fn name(&self) -> &str {
        self.scenario.name.get_ref()
    }

    pub(super) fn paper(&self) -> &str {
        self.scenario.paper_id().unwrap_or_default()
    }

    fn of(
        name: &str,
        scale: Option<f64>,
        replicas: u32,
        program: &str,
    ) -> Result<Option<Self>, LoadError> {
        let Some(source) = experiments::by_name(name) else {
            return Ok(None);
        };
        let (own, _) = Scenario::load(source.clone(), &[])?;
        if own.paper_id().is_none() || own.claims().all(|expect| expect.held_in.is_some()) {
            return Ok(None);
        }
        let section_scale = own.reproduce.scale.as_ref().map(|scale| *scale.get_ref());
        let mut overrides = vec![Override::by_option(
            "--replicas",
            &["run", "replicas"],
            replicas,
        )];
        for set in &own.reproduce.set {
            overrides.push(Override::parse(set)?);
        }
        if let Some(scale) = scale.or(section_scale) {
            // As a float: TOML tells 1 from 1.0.
            let scale = format!("{scale:?}");
            overrides.push(Override::by_option("--scale", &["run", "scale"], scale));
        }
        let (scenario, source) = Scenario::load(source, &overrides)?;
        let all = scenario.policies.iter().map(Column::of);
        let (columns, other_columns): (Vec<_>, Vec<_>) =
            all.partition(|column| wants_column(&scenario, &column.name));
        let rows = scenario.rows();
        let (rows, other_rows): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| wants_row(&scenario, row.name.get_ref(), row.apart));
        let pairs = rows
            .iter()
            .flat_map(|row| columns.iter().map(move |column| (row, column)));
        let cells: Vec<Cell> = pairs
            .map(|(row, column)| Cell::resolve(&scenario, row, column))
            .collect();
        let orders = run::orders(&cells, replicas, scenario.run.seed);
        let left_out = other_columns.into_iter().map(|column| column.name);
        let left_out = left_out.chain(other_rows.iter().map(|row| row.name.get_ref().clone()));
        let summed = rows.iter().filter(|row| !row.apart);
        let summed: Vec<String> = summed.map(|row| row.name.get_ref().clone()).collect();
        let columns: Vec<String> = columns.into_iter().map(|column| column.name).collect();
        let seconds = scenario.reproduce.seconds.as_ref();
        let seconds = seconds.map_or(SECONDS_GUESSED, |seconds| *seconds.get_ref());
        let full = section_scale.unwrap_or(*own.run.scale.get_ref());
        let factor = *scenario.run.scale.get_ref() / full * f64::from(replicas);
        let left_out: Vec<String> = left_out.collect();
        let key = key(&[program, &source.text, &format!("{columns:?} {summed:?}")]);
        Ok(Some(Self {
            replicas_asked: *own.run.replicas.get_ref(),
            scenario,
            source,
            columns,
            summed,
            orders,
            left_out,
            set: own.reproduce.set,
            seconds: seconds * factor,
            key,
        }))
    }
}

/// A column that a claim names, or ours; or those that the experiment says.
fn wants_column(scenario: &Scenario, name: &str) -> bool {
    let chosen = &scenario.reproduce.policies;
    if !chosen.is_empty() {
        return chosen.iter().any(|policy| policy.get_ref() == name);
    }
    let is_first = scenario.policies[0].name.get_ref() == name;
    let is_named = scenario.claims().any(|expect| {
        let vs = expect.vs.as_ref();
        expect.policy.get_ref() == name || vs.is_some_and(|vs| vs.get_ref() == name)
    });
    is_first || is_named || name == OURS
}

/// A row that a claim names; or those that the experiment says.
fn wants_row(scenario: &Scenario, name: &str, apart: bool) -> bool {
    let chosen = &scenario.reproduce.cases;
    if !chosen.is_empty() {
        return chosen.iter().any(|case| case.get_ref() == name);
    }
    scenario.claims().any(|expect| {
        let vs_case = expect.vs_case.as_ref();
        let cases = expect.cases.iter();
        (!apart && expect.cases.is_empty())
            || vs_case.is_some_and(|case| case.get_ref() == name)
            || cases
                .map(|case| case.get_ref())
                .any(|case| case == name || (!apart && case == pool::ALL))
    })
}

fn key(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The experiments of the papers, or experiments, that were asked for; all of them if none was. In the order of the papers.
pub(super) fn plan(
    papers: &Papers,
    asked: &[String],
    scale: Option<f64>,
    replicas: u32,
) -> Result<Vec<Planned>, Unplanned> {
    let program = program();
    let mut all = Vec::new();
    // At the scale that was asked for only what was asked for: another experiment may not come so small.
    for (name, _) in EXPERIMENTS {
        match Planned::of(name, None, replicas, &program) {
            Ok(planned) => all.extend(planned),
            Err(problem) => return Err(Unplanned::Load(problem)),
        }
    }
    all.sort_by(|one, other| one.paper().cmp(other.paper()));
    for word in asked {
        let known = all.iter().map(Planned::name);
        let known: Vec<&str> = papers.ids().chain(known).collect();
        if !known.contains(&word.as_str()) {
            let is_other = EXPERIMENTS.iter().any(|(name, _)| name == word);
            let problem = if is_other {
                format!("`{word}` has no published claims; `tidegate run {word}` runs it")
            } else {
                format!(
                    "there is no paper or experiment `{word}`; {}",
                    choices(word, known)
                )
            };
            return Err(Unplanned::Usage(problem));
        }
    }
    if !asked.is_empty() {
        all.retain(|planned| {
            asked
                .iter()
                .any(|word| word == planned.name() || word == planned.paper())
        });
    }
    if scale.is_none() {
        return Ok(all);
    }
    let mut scaled = Vec::new();
    for planned in &all {
        match Planned::of(planned.name(), scale, replicas, &program) {
            Ok(planned) => scaled.extend(planned),
            Err(problem) => return Err(Unplanned::Load(problem)),
        }
    }
    Ok(scaled)
}

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unplanned {
    #[error(transparent)]
    Load(LoadError),
    #[error("{0}")]
    Usage(String),
}

/// This program by its file: what another one came to is not what this one would. Without a file, one that never comes twice.
fn program() -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata);
    let changed = file.and_then(|file| Ok((file.len(), file.modified()?)));
    let version = env!("TIDEGATE_VERSION");
    match changed {
        Ok((bytes, at)) => format!("{version} {bytes} {at:?}"),
        Err(_) => format!("{version} {:?}", std::time::SystemTime::now()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(asked: &[&str]) -> Result<Vec<Planned>, Unplanned> {
        let asked: Vec<String> = asked.iter().map(|&word| word.to_owned()).collect();
        plan(&Papers::read(), &asked, None, 1)
    }

    #[test]
    fn a_paper_is_its_experiments_and_an_experiment_itself() {
        let names = |asked: &[&str]| {
            let all = planned(asked).unwrap();
            let names = all.iter().map(|one| one.name().to_owned());
            names.collect::<Vec<_>>()
        };
        assert!(names(&["p1"]).contains(&"dd".to_owned()));
        assert_eq!(names(&["cp-pauses"]), ["cp-pauses"]);
        assert!(names(&[]).len() > names(&["p0", "p1"]).len());
    }

    #[test]
    fn what_no_claim_is_about_is_left_out_and_said() {
        let dd = &planned(&["dd"]).unwrap()[0];
        assert!(dd.columns.contains(&"tidegate".to_owned()));
        assert!(
            dd.left_out.contains(&"linux-6.12".to_owned()),
            "{:?}",
            dd.left_out
        );
        assert!(dd.left_out.contains(&"nfs".to_owned()), "{:?}", dd.left_out);
        assert_eq!(dd.orders.len(), dd.columns.len() * dd.summed.len());
    }

    #[test]
    fn an_unknown_word_gets_its_nearest_and_one_without_claims_its_command() {
        for (word, says) in [
            ("p9", "did you mean `p"),
            ("cp-pause", "did you mean `cp-pauses`?"),
            ("burst", "`tidegate run burst` runs it"),
        ] {
            let Err(error) = planned(&[word]) else {
                panic!("{word} is planned");
            };
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}

//! The runs that are to be made: of each experiment with published claims the columns that they
//! compare, and our own beside them.

use super::asked::Asked;
use super::papers::Papers;
use super::wanted::Wanted;
use experiment::experiments::{self, EXPERIMENTS};
use experiment::run::{self, Cell, Column, Order};
use experiment::scenario::{LoadError, Override, Scenario, Source, choices};

/// Estimate for an experiment that was never measured, s of one core.
const SECONDS_GUESSED: f64 = 15.0;

/// One experiment to be run.
pub(super) struct Planned {
    pub(super) scenario: Scenario,
    pub(super) source: Source,
    pub(super) columns: Vec<String>,
    pub(super) wanted: Wanted,
    /// Rows that are summed in the row `all`.
    pub(super) summed: Vec<String>,
    pub(super) orders: Vec<Order>,
    pub(super) left_out: Vec<String>,
    /// Values that are not the experiment's own.
    pub(super) set: Vec<String>,
    /// It is run smaller than at the experiment's own scale.
    pub(super) smaller: bool,
    /// Repetitions here, and those that the experiment asks for.
    pub(super) replicas: u32,
    pub(super) replicas_asked: u32,
    /// Estimate, s of one core.
    pub(super) seconds: f64,
    /// Fingerprint of all that its result depends on.
    pub(super) key: String,
    /// Of the program.
    pub(super) version: &'static str,
}

impl Planned {
    pub(super) fn name(&self) -> &str {
        self.scenario.name.get_ref()
    }

    pub(super) fn paper(&self) -> &str {
        self.scenario.paper_id().unwrap_or_default()
    }

    /// Time of one run, by the estimate.
    pub(super) fn a_run(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
        let runs = self.orders.len() as f64;
        self.seconds / runs
    }

    /// Name of a run, as it is said while it is made.
    pub(super) fn run_name(&self, order: &Order) -> String {
        let cell = &order.cell;
        format!(
            "{} {} {} #{}",
            self.name(),
            cell.case,
            cell.policy,
            order.replica
        )
    }

    fn of(known: &Known, asked: &Asked, program: &str) -> Result<Self, LoadError> {
        let own = &known.scenario;
        let section_replicas = own.reproduce.replicas.as_ref().map(|n| *n.get_ref());
        let replicas = asked.replicas.or(section_replicas).unwrap_or(1);
        let short = (!asked.whole).then_some(&own.reproduce);
        let section_scale = short.and_then(|section| section.scale.as_ref());
        let section_scale = section_scale.map(|scale| *scale.get_ref());
        let mut overrides = vec![Override::by_option(
            "--replicas",
            &["run", "replicas"],
            replicas,
        )];
        for set in short.iter().flat_map(|section| &section.set) {
            overrides.push(Override::parse(set)?);
        }
        if let Some(scale) = asked.scale.or(section_scale) {
            // As a float: TOML tells 1 from 1.0.
            let scale = format!("{scale:?}");
            overrides.push(Override::by_option("--scale", &["run", "scale"], scale));
        }
        let (scenario, source) = Scenario::load(known.source.clone(), &overrides)?;
        let wanted = Wanted::of(&scenario, asked.whole);
        let rows = scenario.rows();
        let is_run = |case: &str, policy: &str| wanted.has(case, policy);
        let all = scenario.columns.iter().map(Column::of);
        let (columns, other_columns): (Vec<_>, Vec<_>) = all.partition(|column| {
            rows.iter()
                .any(|row| is_run(row.name.get_ref(), &column.name))
        });
        let (rows, other_rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| {
            let case = row.name.get_ref();
            columns.iter().any(|column| is_run(case, &column.name))
        });
        let pairs = rows
            .iter()
            .flat_map(|row| columns.iter().map(move |column| (row, column)));
        let pairs = pairs.filter(|(row, column)| is_run(row.name.get_ref(), &column.name));
        let cells: Vec<Cell> = pairs
            .map(|(row, column)| Cell::resolve(&scenario, row, column))
            .collect();
        let orders = run::orders(&cells, replicas, scenario.run.seed);
        let others = rows.len() * columns.len() - cells.len();
        let left_out = other_columns.into_iter().map(|column| column.name);
        let left_out = left_out.chain(other_rows.iter().map(|row| row.name.get_ref().clone()));
        let mut left_out: Vec<String> = left_out.collect();
        if others > 0 {
            left_out.push(format!(
                "{others} pairs of a row and a column that no claim compares"
            ));
        }
        let summed = rows.iter().filter(|row| !row.apart);
        let summed: Vec<String> = summed.map(|row| row.name.get_ref().clone()).collect();
        let columns: Vec<String> = columns.into_iter().map(|column| column.name).collect();
        let seconds = scenario.reproduce.seconds.as_ref();
        let seconds = seconds.map_or(SECONDS_GUESSED, |seconds| *seconds.get_ref());
        let full = section_scale.unwrap_or(*own.run.scale.get_ref());
        let factor = *scenario.run.scale.get_ref() / full * f64::from(replicas);
        let key = key(&[program, &source.text, &format!("{columns:?} {wanted:?}")]);
        Ok(Self {
            replicas,
            replicas_asked: *own.run.replicas.get_ref(),
            set: short.map_or_else(Vec::new, |section| section.set.clone()),
            smaller: scenario.run.scale.get_ref() < own.run.scale.get_ref(),
            scenario,
            source,
            columns,
            wanted,
            summed,
            orders,
            left_out,
            seconds: seconds * factor,
            key,
            version: asked.version,
        })
    }
}

/// An experiment with published claims of its own, as its file has it.
struct Known {
    scenario: Scenario,
    source: Source,
}

impl Known {
    fn all() -> Result<Vec<Self>, LoadError> {
        let sources = EXPERIMENTS
            .iter()
            .filter_map(|(name, _)| experiments::by_name(name));
        let mut all = Vec::new();
        for source in sources {
            let (scenario, _) = Scenario::load(source.clone(), &[])?;
            if scenario.paper_id().is_some()
                && scenario.claims().any(|expect| expect.held_in.is_none())
            {
                all.push(Self { scenario, source });
            }
        }
        all.sort_by(|one, other| one.paper().cmp(other.paper()));
        Ok(all)
    }

    fn name(&self) -> &str {
        self.scenario.name.get_ref()
    }

    fn paper(&self) -> &str {
        self.scenario.paper_id().unwrap_or_default()
    }
}

fn key(parts: &[&str]) -> String {
    let mut digest = hmac_sha256::Hash::new();
    for part in parts {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The experiments of the papers, or experiments, that were asked for; all of them if none was. In
/// the order of the papers.
pub(super) fn plan(papers: &Papers, asked: &Asked) -> Result<Vec<Planned>, Unplanned> {
    let program = program(asked.version);
    let mut all = Known::all()?;
    for word in &asked.papers {
        let known = all.iter().map(Known::name);
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
    if !asked.papers.is_empty() {
        all.retain(|one| {
            asked
                .papers
                .iter()
                .any(|word| word == one.name() || word == one.paper())
        });
    }
    let planned = all.iter().map(|one| Planned::of(one, asked, &program));
    Ok(planned.collect::<Result<_, _>>()?)
}

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unplanned {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}")]
    Usage(String),
}

/// This program by its file: what another one came to is not what this one would. Without a file, a
/// name that never comes twice.
fn program(version: &str) -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata);
    let changed = file.and_then(|file| Ok((file.len(), file.modified()?)));
    match changed {
        Ok((bytes, at)) => format!("{version} {bytes} {at:?}"),
        Err(_) => format!("{version} {:?}", std::time::SystemTime::now()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(asked: &[&str]) -> Result<Vec<Planned>, Unplanned> {
        let papers = asked.iter().map(|&word| word.to_owned()).collect();
        let asked = Asked {
            papers,
            ..Asked::default()
        };
        plan(&Papers::read(), &asked)
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
        assert!(dd.columns.contains(&"linux-6.12".to_owned()), "today's");
        assert!(dd.left_out.contains(&"nfs".to_owned()), "{:?}", dd.left_out);
        assert_eq!(
            dd.orders.len(),
            dd.columns.len() * dd.summed.len() * dd.replicas as usize
        );
        // Four claims of Devicevfat's columns are no reason to run its other rows with them.
        let many = &planned(&["dd-many"]).unwrap()[0];
        let runs = many.orders.iter();
        let runs: Vec<(&str, &str)> = runs
            .map(|order| (order.cell.case.as_str(), order.cell.policy.as_str()))
            .collect();
        let all = [
            ("1", "linux-2.6.36"),
            ("1", "p1-measured"),
            ("100", "linux-2.6.36"),
            ("100", "p1"),
            ("100", "linux-6.12"),
            ("100", "tidegate"),
        ];
        assert_eq!(runs, all);
        assert!(
            many.left_out
                .contains(&"4 pairs of a row and a column that no claim compares".to_owned())
        );
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

//! A scenario run in the lab without terminal or files: for tests.
//!
//! A trial may change cells before they run, which a scenario cannot: one column's device alone, or
//! a column's law under its own name. So a band can be shown to measure what it is about.

use policy::dirty::Law;
use workload::Stop;

use crate::expect::{self, Verdict};
use crate::outcome::Outcome;
use crate::pool;
use crate::run::{self, Cell, Column, RunError, World};
use scenario::experiments;
use scenario::{LoadError, Override, OverrideError, Scenario};

/// An experiment, loaded.
#[derive(Clone, Debug)]
pub struct Trial {
    scenario: Scenario,
    columns: Vec<Column>,
}

/// Why a trial was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// No built-in experiment of that name.
    #[error("there is no experiment `{0}`")]
    Unknown(String),
    /// An override that fits nowhere.
    #[error(transparent)]
    Override(#[from] OverrideError),
    /// The scenario with its overrides is wrong.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Trial {
    /// A built-in experiment with overrides as of `--set`, and those of its columns that are named.
    ///
    /// # Errors
    /// The name is not known or an override does not fit.
    pub fn load(experiment: &str, columns: &[&str], sets: &[&str]) -> Result<Self, TrialError> {
        let source = experiments::by_name(experiment)
            .ok_or_else(|| TrialError::Unknown(experiment.to_owned()))?;
        let overrides: Result<Vec<_>, _> = sets.iter().map(|set| Override::parse(set)).collect();
        let (scenario, _) = Scenario::load(source, &overrides?)?;
        let columns = scenario
            .columns
            .iter()
            .map(Column::of)
            .filter(|column| columns.contains(&column.name.as_str()))
            .collect();
        Ok(Self { scenario, columns })
    }

    /// Keeps the rows of these names only.
    #[must_use]
    pub fn rows(mut self, names: &[&str]) -> Self {
        let kept = |row: &scenario::RowEntry| names.contains(&row.name.get_ref().as_str());
        self.scenario.rows.retain(kept);
        for expect in &mut self.scenario.expects {
            expect
                .rows
                .retain(|case| names.contains(&case.get_ref().as_str()));
        }
        self
    }

    /// Runs all rows, columns and repetitions in the lab, each cell changed by `change` first.
    ///
    /// # Errors
    /// The first run that failed.
    pub fn run(&self, change: impl Fn(&mut Cell)) -> Result<Vec<Outcome>, TrialError> {
        let rows = self.scenario.rows();
        let pairs = rows
            .iter()
            .flat_map(|row| self.columns.iter().map(move |column| (row, column)));
        let cells: Vec<Cell> = pairs
            .map(|(row, column)| {
                let mut cell = Cell::resolve(&self.scenario, row, column);
                change(&mut cell);
                cell
            })
            .collect();
        let run = &self.scenario.run;
        let orders = run::orders(&cells, *run.replicas.get_ref(), run.seed);
        let results = run::run_all(&orders, &World::Lab, &Stop::default(), &());
        let outcomes: Result<Vec<_>, _> = results.into_iter().flatten().collect();
        Ok(outcomes?)
    }

    /// The bands whose row and columns are in this trial.
    #[must_use]
    pub fn judge(&self, outcomes: &[Outcome]) -> Vec<Verdict> {
        let columns: Vec<String> = self.columns.iter().map(|c| c.name.clone()).collect();
        let rows = self.scenario.rows().into_iter().filter(|row| !row.apart);
        let rows: Vec<String> = rows.map(|row| row.name.get_ref().clone()).collect();
        let outcomes = pool::with_all(&self.scenario, outcomes.to_vec(), &rows);
        let mut verdicts = expect::judge(&self.scenario, &outcomes, &columns, true);
        verdicts.retain(|verdict| !verdict.skipped);
        verdicts
    }
}

/// Gives a cell the law of another variant; its clock and its flusher stay.
pub fn with_law(cell: &mut Cell, law: Law) {
    cell.laws.dirty.law = law;
}

/// Makes the devices of a cell faster or slower.
pub fn with_rate(cell: &mut Cell, factor: f64) {
    for device in &mut cell.devices {
        device.rate_factor *= factor;
    }
}

/// Makes the devices of a cell of another model, with its own parameters.
pub fn with_model(cell: &mut Cell, model: &str) {
    for device in &mut cell.devices {
        model.clone_into(&mut device.model);
        device.params.clear();
    }
}

/// Exchanges the names of two columns, so that each is judged as the other.
pub fn swap(outcomes: &mut [Outcome], one: &str, other: &str) {
    for outcome in outcomes {
        if outcome.policy == one {
            outcome.policy = other.to_owned();
        } else if outcome.policy == other {
            outcome.policy = one.to_owned();
        }
    }
}

//! The names there are to choose from, as tables.

use experiment::catalogue;
use experiment::experiments::{EXPERIMENTS, by_name};
use experiment::kinds::ALL as KINDS;
use experiment::metrics::METRICS;
use experiment::presets::PRESETS;
use experiment::scenario::Scenario;
use experiment::stats::Better;
use pyo3::prelude::*;

use crate::table::{self, Table};

/// The built-in experiments: name, title, paper.
#[pyfunction]
pub(crate) fn experiments() -> Table {
    let all: Vec<Scenario> = EXPERIMENTS
        .iter()
        .filter_map(|(name, _)| Scenario::load(by_name(name)?, &[]).ok())
        .map(|(scenario, _)| scenario)
        .collect();
    let name = |scenario: &Scenario| scenario.name.get_ref().clone();
    let paper = |scenario: &Scenario| scenario.paper.clone().unwrap_or_default();
    Table::new(
        "experiments",
        vec![
            table::words("name", all.iter().map(name)),
            table::words("title", all.iter().map(|scenario| scenario.title.clone())),
            table::words("paper", all.iter().map(paper)),
        ],
    )
}

/// The policies: presets that a column may name.
#[pyfunction]
pub(crate) fn policies() -> Table {
    let all = || PRESETS.iter();
    Table::new(
        "policies",
        vec![
            table::words("name", all().map(|preset| preset.name)),
            table::whole("hz", all().map(|preset| u64::from(preset.laws.dirty.hz))),
            table::words("about", all().map(|preset| preset.about)),
        ],
    )
}

/// The metrics: name, unit, which direction is better, what it is.
#[pyfunction]
pub(crate) fn metrics() -> Table {
    let all = || METRICS.iter();
    let better = |better| match better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    };
    Table::new(
        "metrics",
        vec![
            table::words("name", all().map(|metric| metric.name)),
            table::words("unit", all().map(|metric| metric.unit)),
            table::words("better", all().map(|metric| better(metric.better))),
            table::words("about", all().map(|metric| metric.about)),
        ],
    )
}

/// The kinds of task: one row for each key of each kind.
#[pyfunction]
pub(crate) fn kinds() -> Table {
    let all: Vec<_> = KINDS
        .iter()
        .flat_map(|kind| kind.keys.iter().map(move |key| (kind, key)))
        .collect();
    let needed = |needed: bool| if needed { "yes" } else { "no" };
    Table::new(
        "kinds",
        vec![
            table::words("kind", all.iter().map(|(kind, _)| kind.name)),
            table::words("about", all.iter().map(|(kind, _)| kind.about.trim())),
            table::words("key", all.iter().map(|(_, key)| key.name)),
            table::words("needed", all.iter().map(|(_, key)| needed(key.needed))),
            table::words("about_key", all.iter().map(|(_, key)| key.about.trim())),
        ],
    )
}

/// The device models of the lab.
#[pyfunction]
pub(crate) fn devices() -> Table {
    let all = || catalogue::model::MODELS.iter();
    Table::new(
        "devices",
        vec![
            table::words("name", all().map(|model| model.name)),
            table::words("about", all().map(|model| model.summary)),
        ],
    )
}

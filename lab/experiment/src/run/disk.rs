//! A device of a cell, resolved: its model, its file system, its rates.

use policy::units::Nanos;
use scenario::units::whole;
use world::fs::journal;

/// A share of the dirty limit without a bound, in 1/10000.
pub(super) const WHOLE_RATIO: u32 = 10_000;

/// A device of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Its name in the scenario.
    pub id: String,
    /// Model.
    pub model: String,
    /// File system.
    pub fs: Option<String>,
    /// Its file system's journal.
    pub journal: Option<journal::Options>,
    /// Wrappers.
    pub wrap: Option<String>,
    /// Rates times this.
    pub rate_factor: f64,
    /// Its rate in bytes a second, before scaling; none: its model's.
    pub rate: Option<u64>,
    /// Changes of that rate, each so long after the run began.
    pub changes: Vec<(Nanos, u64)>,
    /// Files that are there before the run lie somewhere on it.
    pub placed_files: bool,
    /// Blocks of its file system in a page.
    pub blocks_a_page: u8,
    /// Parameters that differ from the model's, before scaling.
    pub params: Vec<(String, u64)>,
    /// Its own limits hold even when the global ones are far.
    pub strict: bool,
    /// Upper bound of its share of the dirty limit, in 1/10000.
    pub max_ratio: u32,
}

impl DeviceSpec {
    /// A bare device of a model.
    #[must_use]
    pub fn plain(id: &str, model: &str) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            fs: None,
            journal: None,
            wrap: None,
            rate_factor: 1.0,
            rate: None,
            changes: Vec::new(),
            placed_files: false,
            blocks_a_page: 1,
            params: Vec::new(),
            strict: false,
            max_ratio: WHOLE_RATIO,
        }
    }

    /// The rate from the run's beginning on and its changes: (when, bytes a second), on a machine
    /// smaller by `shrink`. Nothing where the rate is the model's own.
    #[must_use]
    pub fn rates(&self, shrink: u64) -> Vec<(Nanos, u64)> {
        let scaled = |rate: u64| times(rate, self.rate_factor) / shrink;
        let Some(rate) = self.rate else {
            return Vec::new();
        };
        let changes = self.changes.iter().map(|(at, rate)| (*at, scaled(*rate)));
        core::iter::once((Nanos::ZERO, scaled(rate)))
            .chain(changes)
            .collect()
    }
}

/// A rate times a factor, to the nearest byte.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates are below 2^41 and the factor is 0.01 to 100 by scenario::check"
)]
pub(super) fn times(rate: u64, factor: f64) -> u64 {
    whole(rate as f64 * factor)
}

//! Names of what the lab has: device models, file systems, wrappers; and how to check their values.

use device::{Layer, Stack};
use world::CostTable;
pub use world::{CPUS_MAX, fs, model};

/// Names of all device models.
#[must_use]
pub fn models() -> Vec<&'static str> {
    model::MODELS.iter().map(|entry| entry.name).collect()
}

/// Names of all file systems.
#[must_use]
pub fn file_systems() -> Vec<&'static str> {
    fs::NAMES.to_vec()
}

/// Machines whose costs are known, by name.
const MACHINES: [(&str, CostTable); 6] = [
    ("p0", fs::costs::P0),
    ("p2", fs::costs::P2),
    ("p3", fs::costs::P3),
    ("p4", fs::costs::P4),
    ("guest", fs::costs::guest::GUEST),
    ("guest-files", fs::costs::guest::FILES),
];

/// Names of the machines whose costs are known.
#[must_use]
pub fn machines() -> Vec<&'static str> {
    MACHINES.iter().map(|(name, _)| *name).collect()
}

/// The cost of work on a machine.
#[must_use]
pub fn costs(machine: &str) -> Option<CostTable> {
    let found = MACHINES.iter().find(|(name, _)| *name == machine);
    found.map(|(_, costs)| costs.clone())
}

/// Checks that a parameter fits a model; the answer names the problem. An unknown model fits: that
/// is another mistake.
///
/// # Errors
/// The problem, in words.
pub fn check_param(model: &str, name: &str, value: u64) -> Result<(), String> {
    match model::by_name(model) {
        Ok(mut params) => params.set(name, value).map_err(|error| error.to_string()),
        Err(_) => Ok(()),
    }
}

/// Checks that a device of that model can be given a rate in MiB/s, and changes of it. An unknown
/// model can: that is another mistake.
///
/// # Errors
/// The reason, in words.
pub fn check_rate(model: &str) -> Result<(), String> {
    match model::by_name(model) {
        Ok(params) if model != WRAPPED && !has_rate(&params) => {
            Err("it has no single rate that could be set".into())
        }
        _ => Ok(()),
    }
}

/// The model whose rate is that of a slow wrapper around it.
pub const WRAPPED: &str = "null";

/// True if a model has a single rate, which can be set and changed.
fn has_rate(params: &model::Params) -> bool {
    let mut params = params.clone();
    params.set_rate(RATE_OF_ANY).is_ok()
}

/// A rate that every device has that has one: 1 MiB/s.
const RATE_OF_ANY: u64 = 1 << 20;

/// Checks that a wrapper's text can be read; the answer names the problem.
///
/// # Errors
/// The problem, in words.
pub fn check_wrap(text: &str) -> Result<(), String> {
    wrapper(text).map(|_| ())
}

/// Reads a wrapper's text.
///
/// # Errors
/// The mistake, and what would be right.
pub fn wrapper(text: &str) -> Result<Vec<Layer>, String> {
    let layers = Layer::parse_stack(text).map_err(|error| error.to_string())?;
    if Stack::frames_needed(&layers) > 0 {
        return Err(
            "`volatile` keeps copies for tests of crashes and cannot be used here; \
             use slow, faulty or trace"
                .into(),
        );
    }
    Ok(layers)
}

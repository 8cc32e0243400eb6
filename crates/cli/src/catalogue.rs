//! Names of what the lab has: device models, file systems, wrappers; and how to check their values.

use lab::{fs, model};

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

/// Whether a parameter fits a model; the answer names the problem. An unknown model fits: that is
/// another mistake.
///
/// # Errors
/// The problem, in words.
pub fn check_param(model: &str, name: &str, value: u64) -> Result<(), String> {
    match model::by_name(model) {
        Ok(mut params) => params.set(name, value).map_err(|error| error.to_string()),
        Err(_) => Ok(()),
    }
}

/// Whether a device of that model can be given a rate in MiB/s, and changes of it. An unknown model
/// can: that is another mistake.
///
/// # Errors
/// Why not, in words.
pub fn check_rate(model: &str, changes: bool) -> Result<(), String> {
    let Ok(params) = model::by_name(model) else {
        return Ok(());
    };
    match (rate_field(&params), model, changes) {
        (_, WRAPPED, _) | (Some(_), _, false) => Ok(()),
        (Some(_), _, true) => Err("its rate cannot change in mid run".into()),
        (None, ..) => Err("it has no single rate that could be set".into()),
    }
}

/// The model whose rate is that of a slow wrapper around it.
pub const WRAPPED: &str = "null";

/// The one parameter of a model that is its rate; `None`: it has none, or several.
#[must_use]
pub fn rate_field(params: &model::Params) -> Option<&'static str> {
    let mut rates = params
        .fields()
        .iter()
        .filter(|field| field.unit == model::params::Unit::BytesPerSec);
    let only = rates.next()?;
    rates.next().is_none().then_some(only.name)
}

/// Whether a wrapper's text can be read; the answer names the problem.
///
/// # Errors
/// The problem, in words.
pub fn check_wrap(text: &str) -> Result<(), String> {
    crate::run::parse_wrap(text).map(|_| ())
}

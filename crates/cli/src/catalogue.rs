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

/// Whether a wrapper's text can be read; the answer names the problem.
///
/// # Errors
/// The problem, in words.
pub fn check_wrap(text: &str) -> Result<(), String> {
    crate::run::parse_wrap(text).map(|_| ())
}

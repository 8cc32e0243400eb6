//! TOML into a `Scenario`, and serde's complaints into mistakes with a way out.

use super::diagnose::{Mistake, Mistakes, Source, choices};
use super::{LoadError, Scenario};

/// Ends of keys that are units, and what they mean.
const UNITS: [(&str, &str); 20] = [
    ("_mib", "mebibytes"),
    ("_kib", "kibibytes"),
    ("_gib", "gibibytes"),
    ("_mb", "megabytes"),
    ("_kb", "kilobytes"),
    ("_gb", "gigabytes"),
    ("_bytes", "bytes"),
    ("_pages", "pages"),
    ("_ms", "milliseconds"),
    ("_us", "microseconds"),
    ("_ns", "nanoseconds"),
    ("_sec", "seconds"),
    ("_secs", "seconds"),
    ("_seconds", "seconds"),
    ("_min", "minutes"),
    ("_s", "seconds"),
    ("_pct", "per cent"),
    ("_percent", "per cent"),
    ("_ratio", "a ratio"),
    ("_factor", "a factor"),
];

/// Reads the text.
pub(super) fn parse(source: &Source) -> Result<Scenario, LoadError> {
    toml::from_str(&source.text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let list = vec![explain(error.message(), span, &source.text)];
        LoadError::Mistakes(Mistakes {
            source: source.clone(),
            list,
        })
    })
}

fn explain(message: &str, span: core::ops::Range<usize>, text: &str) -> Mistake {
    let word = text
        .get(span.clone())
        .unwrap_or("")
        .trim_matches(['"', '\''])
        .to_owned();
    if message.starts_with("unknown field") {
        return unknown_key(&word, &quoted(message), span);
    }
    if message.starts_with("unknown variant") {
        let allowed = quoted(message);
        return Mistake::new(
            format!("unknown value `{word}`"),
            span,
            "not one of the known values",
        )
        .help(choices(&word, allowed[1..].iter().map(String::as_str)));
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        let name = field.trim_matches('`');
        return Mistake::new(
            format!("the key `{name}` is missing"),
            span,
            "in this table",
        )
        .help(format!("add `{name} = ...`"));
    }
    if message.starts_with("invalid type") || message.starts_with("invalid value") {
        return wrong_type(message, &word, span, text);
    }
    Mistake::new("this is not valid TOML", span, message)
}

/// The words in backquotes of a message of serde: the culprit, then the allowed ones.
fn quoted(message: &str) -> Vec<String> {
    message
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn unknown_key(word: &str, quoted: &[String], span: core::ops::Range<usize>) -> Mistake {
    let allowed = quoted.get(1..).unwrap_or_default();
    let mistake = Mistake::new(
        format!("unknown key `{word}`"),
        span,
        "not a key of this table",
    );
    let other_unit = allowed
        .iter()
        .find(|key| *key != word && stem(key) == stem(word));
    match other_unit {
        Some(key) => mistake.help(format!(
            "the unit here is {}: write `{key}`. Allowed: {}",
            unit(key).unwrap_or("part of the name"),
            allowed.join(", ")
        )),
        None => mistake.help(choices(word, allowed.iter().map(String::as_str))),
    }
}

fn wrong_type(message: &str, word: &str, span: core::ops::Range<usize>, text: &str) -> Mistake {
    let key = key_before(text, span.start);
    let mistake = Mistake::new(format!("wrong type of value for `{key}`"), span, message);
    let has_number = word.starts_with(|c: char| c.is_ascii_digit());
    match unit(&key) {
        Some(unit) if has_number && message.contains("string") => mistake.help(format!(
            "write a bare number of {unit}: the unit is in the key's name, `{key}`"
        )),
        Some(unit) => mistake.help(format!("`{key}` takes a number of {unit}")),
        None => mistake,
    }
}

/// The key of the line on which the value at `at` stands.
fn key_before(text: &str, at: usize) -> String {
    let line = text[..at.min(text.len())].rsplit('\n').next().unwrap_or("");
    line.split('=').next().unwrap_or("").trim().to_owned()
}

fn unit(key: &str) -> Option<&'static str> {
    UNITS
        .iter()
        .find(|(suffix, _)| key.ends_with(suffix))
        .map(|(_, unit)| *unit)
}

fn stem(key: &str) -> &str {
    UNITS
        .iter()
        .find_map(|(suffix, _)| key.strip_suffix(suffix))
        .unwrap_or(key)
}

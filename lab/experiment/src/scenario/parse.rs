//! TOML into a `Scenario`, and serde's complaints into mistakes with a way out.

use serde::Deserialize as _;
use toml::de::{DeTable, Deserializer, Error};

use super::{LoadError, Scenario, tasks};
use crate::mistake::{Mistake, Mistakes, Source, choices};

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

/// Tables that a scenario needs, as they are written.
const TABLES: [(&str, &str); 4] = [
    ("machine", "[machine]"),
    ("device", "[[device]]"),
    ("task", "[[task]]"),
    ("policy", "[[policy]]"),
];

/// Reads the text.
pub(super) fn parse(source: &Source) -> Result<Scenario, LoadError> {
    read(&source.text).map_err(|mut list| {
        list.sort_by_key(|mistake| mistake.span.start);
        let source = source.clone();
        LoadError::Mistakes(Mistakes { source, list })
    })
}

fn read(text: &str) -> Result<Scenario, Vec<Mistake>> {
    let said = |error: Error| {
        let span = error.span().unwrap_or(0..0);
        vec![explain(error.message(), span, text)]
    };
    let mut root = DeTable::parse(text).map_err(said)?;
    let found = tasks::sort_keys(root.get_mut());
    if !found.is_empty() {
        return Err(found);
    }
    Scenario::deserialize(Deserializer::from(root)).map_err(said)
}

fn explain(message: &str, span: core::ops::Range<usize>, text: &str) -> Mistake {
    let word = text
        .get(span.clone())
        .unwrap_or("")
        .trim_matches(['"', '\''])
        .to_owned();
    if message.starts_with("unknown field") {
        let allowed = quoted(message);
        let allowed: Vec<&str> = allowed.iter().skip(1).map(String::as_str).collect();
        return unknown_key(&word, &allowed, span);
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
        if let Some((_, table)) = TABLES.iter().find(|(table, _)| *table == name)
            && is_whole(&span, text)
        {
            return Mistake::new(
                format!("the table `{table}` is missing"),
                0..0,
                "in this file",
            )
            .help(format!("add a table that begins with `{table}`"));
        }
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

/// True if a complaint is about the text as a whole, and not about a table or a key in it.
fn is_whole(span: &core::ops::Range<usize>, text: &str) -> bool {
    span.start == 0 && (span.end == 0 || span.end >= text.trim_end().len())
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

/// A key that a table does not have.
pub(super) fn unknown_key(word: &str, allowed: &[&str], span: core::ops::Range<usize>) -> Mistake {
    let mistake = Mistake::new(
        format!("unknown key `{word}`"),
        span,
        "not a key of this table",
    );
    match other_unit(word, allowed) {
        Some(key) => mistake.help(format!(
            "the unit here is {}: write `{key}`. Allowed: {}",
            unit(key).unwrap_or("part of the name"),
            allowed.join(", ")
        )),
        None => mistake.help(choices(word, allowed.iter().copied())),
    }
}

/// The key that differs from `word` in nothing but its unit.
pub(super) fn other_unit<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let mut allowed = allowed.iter().copied();
    allowed.find(|key| *key != word && stem(key) == stem(word))
}

fn wrong_type(message: &str, word: &str, span: core::ops::Range<usize>, text: &str) -> Mistake {
    let key = key_before(text, span.start);
    if key.is_empty() {
        return wrong_header(word, span);
    }
    if let Some(range) = out_of_range(message) {
        return Mistake::new(
            format!("`{key}` is out of range: {word}"),
            span,
            format!("must be a whole number {range}"),
        );
    }
    let mistake = Mistake::new(
        format!("wrong type of value for `{key}`"),
        span,
        plain(message),
    );
    let has_number = word.starts_with(|c: char| c.is_ascii_digit());
    match unit(&key) {
        Some(unit) if has_number && message.contains("string") => mistake.help(format!(
            "write a bare number of {unit}: the unit is in the key's name, `{key}`"
        )),
        Some(unit) => mistake.help(format!("`{key}` takes a number of {unit}")),
        None => mistake,
    }
}

/// A table in double brackets that there is one of, or one in single brackets that may be many.
fn wrong_header(word: &str, span: core::ops::Range<usize>) -> Mistake {
    let name = word.lines().next().unwrap_or("");
    let name = name
        .split(']')
        .next()
        .unwrap_or("")
        .trim_matches(['[', ' ']);
    let (what, header) = if word.starts_with("[[") {
        ("one table", format!("[{name}]"))
    } else {
        ("a list of tables", format!("[[{name}]]"))
    };
    Mistake::new(format!("`{name}` is {what}"), span, "the wrong brackets")
        .help(format!("write `{header}`"))
}

/// The whole numbers that belong where another one stands.
fn out_of_range(message: &str) -> Option<&'static str> {
    let (found, expected) = message.split_once(", expected ")?;
    let bare = expected.trim_matches('`');
    let ranges = WHOLE.iter().find(|(name, _)| *name == bare);
    found.contains("integer").then_some(ranges?.1)
}

/// A complaint about a type in the words of TOML, not of Rust: "this is a string, a number belongs
/// here".
fn plain(message: &str) -> String {
    let message = message.trim_start_matches("invalid type: ");
    let message = message.trim_start_matches("invalid value: ");
    let Some((found, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let found = KINDS.iter().find(|(name, _)| found.starts_with(name));
    let bare = expected.trim_matches('`');
    let types = TYPES.iter().find(|(name, _)| bare.starts_with(name));
    let found = found.map_or("something else", |(_, words)| words);
    let expected = types.map_or(expected, |(_, words)| words);
    format!("this is {found}; {expected} belongs here")
}

/// Kinds of values by serde's names for them.
const KINDS: [(&str, &str); 8] = [
    ("string", "a string"),
    ("integer", "a whole number"),
    ("floating point", "a number with a fraction"),
    ("boolean", "true or false"),
    ("sequence", "a list"),
    ("map", "a table"),
    ("unit", "nothing"),
    ("datetime", "a date"),
];

/// Whole numbers by their names in Rust.
const WHOLE: [(&str, &str); 3] = [
    ("u8", "from 0 to 255"),
    ("u32", "from 0 to 4294967295"),
    ("u64", "from 0 to 9223372036854775807"),
];

/// Types by their names in Rust, or serde's words for them.
const TYPES: [(&str, &str); 11] = [
    ("f64", "a number"),
    ("u8", "a whole number up to 255"),
    ("u32", "a whole number"),
    ("u64", "a whole number"),
    ("i64", "a whole number"),
    ("a string", "a string"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("struct", "a table"),
    ("a spanned", "a value"),
];

/// The key of the value at `at`: the word before the `=` that is nearest before it in its line.
fn key_before(text: &str, at: usize) -> String {
    let line = text[..at.min(text.len())].rsplit('\n').next().unwrap_or("");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let before = line.rsplit_once('=').map_or(line, |(before, _)| before);
    let key = before.trim_end().rsplit(|c| !is_word(c)).next();
    key.unwrap_or("").to_owned()
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

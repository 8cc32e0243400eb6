//! `--set a.b=c`: changes to a scenario's text before it is read, so that they are checked like it.
//!
//! A path goes through tables by key and through lists of tables by `id`, `name` or number:
//! `machine.memory_mib=512`, `machine.swap.mib=64`, `device.disk.wrap="slow:rate=16MB"`,
//! `column.p1.hz=100`.

use core::fmt;

use toml_edit::{DocumentMut, Item, Table, Value};

use super::{LoadError, parse};
use crate::keys::OLD_NAMES;
use crate::mistake::{Mistake, Mistakes, Source, choices};

/// Limits of dirty memory, each in two units.
const LIMITS: [(&str, &str); 2] = [
    ("dirty_mib", "dirty_percent"),
    ("background_mib", "background_percent"),
];

/// One override from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    path: Vec<String>,
    value: String,
    /// As it was written: `--set a.b=c`, or the option that stands for it.
    said: String,
}

/// An override that fits nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{said}: {problem}")]
pub struct OverrideError {
    said: String,
    problem: String,
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl Override {
    /// An override of one value by an option of its own.
    #[must_use]
    pub fn by_option(option: &str, path: &[&str], value: impl fmt::Display) -> Self {
        Self {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            value: value.to_string(),
            said: format!("{option} {value}"),
        }
    }

    /// From the command line.
    ///
    /// # Errors
    /// When it is not of the form `path=value`.
    pub fn parse(set: &str) -> Result<Self, OverrideError> {
        let wrong = |problem: &str| OverrideError {
            said: format!("--set {set}"),
            problem: problem.into(),
        };
        let (path, value) = set
            .split_once('=')
            .ok_or_else(|| wrong("no `=`; write it as path=value, for example run.scale=0.25"))?;
        let path: Vec<String> = split(path.trim());
        if path.iter().any(String::is_empty) {
            return Err(wrong(
                "the path has an empty part; write it as machine.memory_mib=512",
            ));
        }
        Ok(Self {
            path,
            value: value.trim().to_owned(),
            said: format!("--set {set}"),
        })
    }

    /// As TOML; what is not TOML is a string, so that words need no quotes.
    fn value(&self) -> Value {
        self.value
            .parse()
            .unwrap_or_else(|_| Value::from(self.value.as_str()))
    }
}

/// Splits at dots, except within quotes: `column."linux-2.6.36".hz`.
fn split(path: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for letter in path.chars() {
        match letter {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other => parts
                .last_mut()
                .expect("there is always a part")
                .push(other),
        }
    }
    parts
}

/// Applies all of them to the text.
pub(super) fn apply(source: Source, overrides: &[Override]) -> Result<Source, LoadError> {
    if overrides.is_empty() {
        return Ok(source);
    }
    let mut document = match source.text.parse::<DocumentMut>() {
        Ok(document) => document,
        Err(error) => {
            // The text itself is wrong: its own mistake comes first.
            parse::parse(&source)?;
            let span = error.span().unwrap_or(0..0);
            let list = vec![Mistake::new(
                "this is not valid TOML",
                span,
                error.message(),
            )];
            return Err(LoadError::Mistakes(Mistakes { source, list }));
        }
    };
    let mut origin = source.origin;
    for set in overrides {
        put(document.as_table_mut(), &set.path, set).map_err(|problem| OverrideError {
            said: set.said.clone(),
            problem,
        })?;
        origin = format!("{origin} {set}");
    }
    let sets = |name: &str| {
        let of = |set: &Override| set.path[0] == "machine" && set.path[1].starts_with(name);
        overrides.iter().any(|set| set.path.len() == 2 && of(set))
    };
    if sets("dirty_") && !sets("background_") {
        settle_limits(&mut document);
    }
    Ok(Source {
        origin,
        text: document.to_string(),
    })
}

/// Makes a background limit that is not below the dirty limit half of it, as the kernel does.
///
/// # Source
/// Linux 6.12 mm/page-writeback.c, domain_dirty_limits().
pub fn settle_limits(document: &mut DocumentMut) {
    let Some(machine) = document.get_mut("machine").and_then(Item::as_table_mut) else {
        return;
    };
    let number = |key: &str| {
        let value = machine.get(key)?.as_value()?;
        let number = value
            .as_float()
            .or(value.as_integer().map(|own| own as f64));
        number.filter(|number| number.is_finite())
    };
    let memory = number("memory_mib").unwrap_or(0.0);
    let usable = memory * (1.0 - number("reserved_percent").unwrap_or(0.0) / 100.0);
    let limit = |name: &str, or: f64| {
        let percent = number(&format!("{name}_percent")).unwrap_or(or);
        number(&format!("{name}_mib")).unwrap_or(usable * percent / 100.0)
    };
    let dirty = limit("dirty", 20.0);
    if limit("background", 10.0) >= dirty {
        machine.remove("background_percent");
        machine.insert("background_mib", toml_edit::value(dirty / 2.0));
    }
}

fn put(table: &mut Table, path: &[String], set: &Override) -> Result<(), String> {
    let [key, rest @ ..] = path else {
        return Err("the path is empty".into());
    };
    let key = named(table, key);
    if rest.is_empty() {
        drop_twin(table, key);
        if let Some(Item::Value(old)) = table.get_mut(key) {
            let decor = old.decor().clone();
            *old = set.value();
            *old.decor_mut() = decor;
        } else {
            table.insert(key, Item::Value(set.value()));
        }
        return Ok(());
    }
    match table.entry(key).or_insert_with(toml_edit::table) {
        Item::Table(inner) => put(inner, rest, set),
        Item::ArrayOfTables(list) => {
            // A name may hold dots itself (linux-2.6.36): the longest prefix that is one wins.
            for taken in (1..rest.len()).rev() {
                let name = rest[..taken].join(".");
                let at = list.iter().position(|entry| is_called(entry, &name));
                let at = at.or_else(|| name.parse().ok().filter(|at| *at < list.len()));
                if let Some(entry) = at.and_then(|at| list.get_mut(at)) {
                    return put(entry, &rest[taken..], set);
                }
            }
            let names: Vec<String> = list.iter().filter_map(called).collect();
            let choices = choices(&rest[0], names.iter().map(String::as_str));
            Err(format!("there is no {key} called `{}`; {choices}", rest[0]))
        }
        Item::Value(Value::InlineTable(inner)) => match rest {
            [key] => {
                inner.insert(key, set.value());
                Ok(())
            }
            _ => Err(format!("`{key}` has no tables in it")),
        },
        Item::Value(_) => Err(format!("`{key}` is a single value, not a table")),
        Item::None => Err(format!("there is no `{key}`")),
    }
}

/// Takes out what a key replaces: a limit in one unit is the same in the other.
pub fn drop_twin(table: &mut Table, key: &str) {
    other_of(&LIMITS, key).and_then(|twin| table.remove(twin));
}

/// The other name of the pair that a key is in.
fn other_of(pairs: &[(&'static str, &'static str)], key: &str) -> Option<&'static str> {
    pairs.iter().find_map(|&(one, other)| match key {
        _ if key == one => Some(other),
        _ if key == other => Some(one),
        _ => None,
    })
}

/// The name that a key has in this table: it and the path may each have the old or the new one.
fn named<'a>(table: &Table, key: &'a str) -> &'a str {
    match other_of(&OLD_NAMES, key) {
        Some(other) if !table.contains_key(key) && table.contains_key(other) => other,
        _ => key,
    }
}

fn called(entry: &Table) -> Option<String> {
    ["id", "name"]
        .iter()
        .find_map(|key| entry.get(key)?.as_str().map(str::to_owned))
}

fn is_called(entry: &Table, name: &str) -> bool {
    called(entry).is_some_and(|called| called == name)
}

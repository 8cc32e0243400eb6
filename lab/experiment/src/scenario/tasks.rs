//! The tables of tasks, before serde reads them: what belongs to a task's kind goes into it.
//!
//! `kind = "dd"` beside `file_mib = 512` becomes `kind = { dd = { file_mib = 512 } }`, with all
//! places as they are in the text: the keys of a kind are then those of its type. Here all keys of
//! a table are at hand, so a key that is of another kind, unknown or missing is told with the kinds
//! that take it, and all of them at once.

use core::ops::Range;
use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::TaskEntry;
use super::parse::{other_unit, unknown_key};
use crate::kinds::{ALL, Registered, by_name};
use crate::mistake::{Mistake, choices, nearest};

/// Sorts the keys of all tasks of a scenario; the answer has what is wrong with them. A table that
/// is no task is left to serde.
pub(super) fn sort_keys(root: &mut DeTable<'_>) -> Vec<Mistake> {
    let mut found = Vec::new();
    if let Some(DeValue::Array(tasks)) = root.get_mut("task").map(Spanned::get_mut) {
        for task in tasks.iter_mut() {
            let at = task.span();
            if let DeValue::Table(table) = task.get_mut() {
                sort(table, at, &mut found);
            }
        }
    }
    found
}

fn sort(table: &mut DeTable<'_>, task: Range<usize>, found: &mut Vec<Mistake>) {
    let Some((kind_key, name)) = table.remove_entry("kind") else {
        let mistake = Mistake::new("the key `kind` is missing", task, "in this table");
        let kinds: Vec<&str> = names().collect();
        found.push(mistake.help(format!("add `kind = ...`, one of {}", kinds.join(", "))));
        return;
    };
    let at = name.span();
    let DeValue::String(word) = name.get_ref() else {
        let label = "the name of a kind belongs here";
        let mistake = Mistake::new("wrong type of value for `kind`", at, label);
        let kinds: Vec<&str> = names().collect();
        found.push(mistake.help(format!("write one of {}", kinds.join(", "))));
        return;
    };
    let Some(kind) = by_name(word) else {
        let title = format!("unknown kind of task `{word}`");
        let mistake = Mistake::new(title, at, "not one of the known kinds");
        found.push(mistake.help(choices(word, names())));
        return;
    };
    let (mut common, mut own) = (DeTable::new(), DeTable::new());
    for (key, value) in core::mem::take(table) {
        let word = key.get_ref().as_ref();
        if TaskEntry::KEYS.iter().any(|common| common.name == word) {
            common.insert(key, value);
        } else if kind.has(word) {
            own.insert(key, value);
        } else {
            found.push(misfit(word, key.span(), kind, at.clone()));
        }
    }
    let needed = kind.keys.iter().filter(|key| key.needed);
    for key in needed.filter(|key| !own.contains_key(key.name)) {
        found.push(missing(kind.name, key.name, at.clone()));
    }
    let tag = Spanned::new(at.clone(), Cow::Borrowed(kind.name));
    let own = Spanned::new(at.clone(), DeValue::Table(own));
    let tagged = DeValue::Table(DeTable::from_iter([(tag, own)]));
    common.insert(kind_key, Spanned::new(at, tagged));
    *table = common;
}

fn names() -> impl Iterator<Item = &'static str> + Clone {
    ALL.iter().map(|kind| kind.name)
}

/// A key that a kind of task needs and that is not there.
pub(super) fn missing(kind: &str, key: &str, at: Range<usize>) -> Mistake {
    Mistake::new(
        format!("a {kind} needs `{key}`"),
        at,
        format!("`{key}` is missing"),
    )
    .help(format!("add `{key} = ...` to this task"))
}

/// A key that a kind of task does not have.
pub(super) fn misfit(
    word: &str,
    span: Range<usize>,
    kind: &Registered,
    at: Range<usize>,
) -> Mistake {
    let own: Vec<&str> = TaskEntry::KEYS
        .iter()
        .chain(kind.keys)
        .map(|key| key.name)
        .collect();
    let takers = |key: &str| {
        let takers = ALL.iter().filter(|kind| kind.has(key));
        takers.map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    };
    let of_others = takers(word);
    if of_others.is_empty() && !own.contains(&word) {
        let others = ALL.iter().flat_map(|kind| kind.keys).map(|key| key.name);
        let near = nearest(word, others).filter(|_| {
            nearest(word, own.iter().copied()).is_none() && other_unit(word, &own).is_none()
        });
        let mistake = unknown_key(word, &own, span);
        return match near {
            Some(near) => mistake.help(format!(
                "did you mean `{near}`? It is a key of {}. Keys of a {}: {}",
                takers(near),
                kind.name,
                own.join(", ")
            )),
            None => mistake,
        };
    }
    let title = format!("`{word}` means nothing to a {}", kind.name);
    let help = match other_unit(word, &own) {
        Some(key) => format!("did you mean `{key}`? `{word}` is a key of {of_others}"),
        None if of_others.is_empty() => format!("leave `{word}` out"),
        None => format!("leave `{word}` out: it is a key of {of_others}"),
    };
    Mistake::new(title, span, "not used")
        .also(at, "the kind")
        .help(help)
}

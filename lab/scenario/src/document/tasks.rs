//! A task: its keys, those of its kind among them.
//!
//! `kind = "dd"` beside `file_mib = 512` becomes `kind = { dd = { file_mib = 512 } }`, with all
//! places as they are in the text: the keys of a kind are then those of its type. Here all keys of
//! a table are at hand, so a key that is of another kind, unknown or missing is told with the kinds
//! that take it.

use core::ops::{Deref, Range};
use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::TaskKeys;
use crate::keys::{Key, Open, Raw, Reader, Takes, Value, other_unit, unknown_key};
use crate::kinds::{ALL, Registered, by_name};
use crate::mistake::{Mistake, choices, nearest};

/// A task, and its values by the names of their keys, be they of all kinds or of its own.
#[derive(Clone, Debug)]
pub struct TaskEntry {
    keys: TaskKeys,
    numbers: Vec<(&'static str, Spanned<f64>)>,
    texts: Vec<(&'static str, Spanned<String>)>,
}

impl Deref for TaskEntry {
    type Target = TaskKeys;

    fn deref(&self) -> &TaskKeys {
        &self.keys
    }
}

impl TaskEntry {
    /// The number of a key; none: no such key, or it is not given.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<Spanned<f64>> {
        let found = self.numbers.iter().find(|(key, _)| *key == name);
        found.map(|(_, number)| number.clone())
    }

    /// The same without its place, and zero where it is not given.
    #[must_use]
    pub fn amount(&self, name: &str) -> f64 {
        self.key(name).map_or(0.0, Spanned::into_inner)
    }

    /// The text of a key.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&Spanned<String>> {
        let found = self.texts.iter().find(|(key, _)| *key == name);
        found.map(|(_, text)| text)
    }

    /// The device of its other file: of what it copies, or of its log.
    #[must_use]
    pub fn other_device(&self) -> Option<&Spanned<String>> {
        self.text("from").or_else(|| self.text("log"))
    }
}

impl Value for TaskEntry {
    const TAKES: Takes = Takes::Table(TaskKeys::KEYS);

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        let span = raw.span();
        let table = reader.table(raw, key)?;
        let sorted = sort(table, span.clone(), &mut reader.found.form)?;
        reader.numbers.clear();
        reader.texts.clear();
        let keys = TaskKeys::of(Open::new(sorted, span, TaskKeys::KEYS), reader)?;
        Some(Self {
            keys,
            numbers: core::mem::take(&mut reader.numbers),
            texts: core::mem::take(&mut reader.texts),
        })
    }
}

fn sort<'t>(
    mut table: DeTable<'t>,
    task: Range<usize>,
    found: &mut Vec<Mistake>,
) -> Option<DeTable<'t>> {
    let kinds = || names().collect::<Vec<_>>().join(", ");
    let Some((kind_key, name)) = table.remove_entry("kind") else {
        let mistake = Mistake::new("the key `kind` is missing", task, "in this table");
        found.push(mistake.help(format!("add `kind = ...`, one of {}", kinds())));
        return None;
    };
    let at = name.span();
    let DeValue::String(word) = name.get_ref() else {
        let label = "the name of a kind belongs here";
        let mistake = Mistake::new("wrong type of value for `kind`", at, label);
        found.push(mistake.help(format!("write one of {}", kinds())));
        return None;
    };
    let Some(kind) = by_name(word) else {
        let title = format!("unknown kind of task `{word}`");
        let mistake = Mistake::new(title, at, "not one of the known kinds");
        found.push(mistake.help(choices(word, names())));
        return None;
    };
    let before = found.len();
    let (mut common, mut own) = (DeTable::new(), DeTable::new());
    for (key, value) in table {
        let word = key.get_ref().as_ref();
        if TaskKeys::KEYS.iter().any(|common| common.name == word) {
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
    (found.len() == before).then_some(common)
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
    let own: Vec<&str> = TaskKeys::KEYS
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

//! The workers of a recording: what they are in `scenario.json`, which task of the lab stands for
//! them, and what of theirs is measured.
//!
//! Invariant: a `Worker` has all arguments of its kind, and a disk that is there if it needs one.

use core::fmt::{self, Write as _};

use serde_json::Value;

use super::shapes;
use experiment::outcome::Job;

/// The work of a worker.
pub struct Work {
    /// Its name in `scenario.json`.
    pub name: &'static str,
    /// The lab's kind of task.
    pub task: &'static str,
    /// The name of one.
    pub called: &'static str,
    /// Its arguments when it starts, in this order.
    pub arguments: &'static [Argument],
    /// The part of it that the lab cannot do.
    pub refuse: fn(&Worker) -> Option<String>,
    /// It finds its file with its content.
    pub reads: fn(&Worker) -> bool,
    /// The keys of the lab's task.
    pub keys: fn(&Worker) -> String,
    /// Adds what the lab's job of the kind has, of the calls that ended and all that was done.
    pub job: fn(&Worker, &[Call], f64, &mut Job),
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number of that name.
    Number(&'static str),
    /// A word.
    Word(&'static str),
    /// A file or a disk: which disk that is.
    Path,
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// When it ended, seconds.
    pub ended_s: f64,
    /// The time it took.
    pub ms: f64,
    /// Pages, bytes or files.
    pub n: f64,
    /// Another number, by kind.
    pub extra: f64,
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// When it starts.
    pub start_s: f64,
    /// Its work.
    pub work: &'static Work,
    /// Index of its disk.
    pub disk: Option<usize>,
    numbers: Vec<(&'static str, f64)>,
    words: Vec<(&'static str, String)>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Work {
    /// Nothing is refused.
    pub(super) const ALL: fn(&Worker) -> Option<String> = |_| None;
    /// It does not read.
    pub(super) const NEVER: fn(&Worker) -> bool = |_| false;

    fn help() -> String {
        let mut text = "the lab has".to_owned();
        for (at, work) in shapes::works().enumerate() {
            let names = work.arguments.iter().map(|argument| match argument {
                Argument::Number(name) | Argument::Word(name) => *name,
                Argument::Path => "path",
            });
            let names: Vec<&str> = names.collect();
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, "{comma} {} ({})", work.name, names.join(", "));
        }
        text
    }
}

impl Worker {
    /// As it stands in the file: its name, its kind, when it starts, and what the kind takes.
    ///
    /// # Errors
    /// The mistake, and what there is.
    pub(super) fn read(fields: &[Value], disks: usize) -> Result<Self, (String, String)> {
        let [Value::String(name), Value::String(kind), start, rest @ ..] = fields else {
            let title = "a worker is not [name, kind, start_ms, ...]";
            return Err((title.into(), Work::help()));
        };
        Self::of(name, kind, start, rest, disks).map_err(|title| (title, Work::help()))
    }

    fn of(
        name: &str,
        kind: &str,
        start: &Value,
        rest: &[Value],
        disks: usize,
    ) -> Result<Self, String> {
        let work = shapes::works().find(|work| work.name == kind);
        let work =
            work.ok_or_else(|| format!("worker `{name}`: no task of the lab is `{kind}`"))?;
        let number = |value: Option<&Value>, what: &str| {
            let number = value
                .and_then(Value::as_f64)
                .filter(|value| value.is_finite() && *value >= 0.0);
            number.ok_or_else(|| format!("worker `{name}`, `{kind}`: its {what} is not a number"))
        };
        let mut worker = Self {
            name: name.to_owned(),
            start_s: number(Some(start), "start")? / 1e3,
            work,
            disk: None,
            numbers: Vec::new(),
            words: Vec::new(),
        };
        for (at, argument) in work.arguments.iter().enumerate() {
            let value = rest.get(at);
            let word = || {
                let word = value.and_then(Value::as_str);
                word.ok_or_else(|| {
                    format!(
                        "worker `{name}`, `{kind}`: argument {} is not a word",
                        at + 4
                    )
                })
            };
            match argument {
                Argument::Number(what) => worker.numbers.push((what, number(value, what)?)),
                Argument::Word(what) => worker.words.push((what, word()?.to_owned())),
                Argument::Path => {
                    let path = word()?;
                    let disk = disk_of(path).filter(|disk| *disk < disks);
                    worker.disk = Some(disk.ok_or_else(|| {
                        format!(
                            "worker `{name}`, `{kind}`: `{path}` is on none of the disks (/dev/nullb0 or /mnt/0 ...)"
                        )
                    })?);
                }
            }
        }
        match (work.refuse)(&worker) {
            None => Ok(worker),
            Some(problem) => Err(format!("worker `{name}`, `{kind}`: {problem}")),
        }
    }

    /// A number of its kind's.
    ///
    /// # Panics
    /// The kind has none of that name.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        let found = self.numbers.iter().find(|(known, _)| *known == name);
        found.expect("a kind asks for its own arguments").1
    }

    /// A word of its kind's.
    ///
    /// # Panics
    /// The kind has none of that name.
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        let found = self.words.iter().find(|(known, _)| *known == name);
        &found.expect("a kind asks for its own arguments").1
    }

    /// Changes a number.
    pub(super) fn set(&mut self, name: &str, value: f64) {
        for (known, number) in &mut self.numbers {
            if *known == name {
                *number = value;
            }
        }
    }

    /// True if it does the same as another, whatever its name and wherever its random numbers
    /// begin.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let numbers = |worker: &Self| {
            let numbers = worker.numbers.clone().into_iter();
            let numbers = numbers.filter(|(name, _)| !matches!(*name, "seed" | "offset"));
            numbers.collect::<Vec<_>>()
        };
        self.work == other.work
            && self.start_s.total_cmp(&other.start_s).is_eq()
            && self.disk == other.disk
            && self.words == other.words
            && numbers(self) == numbers(other)
    }
}

/// Which disk a path is on.
fn disk_of(path: &str) -> Option<usize> {
    let bare = path.strip_prefix("/dev/nullb");
    let mounted = path
        .strip_prefix("/mnt/")
        .map(|rest| rest.split('/').next().unwrap_or(""));
    bare.or(mounted)?.parse().ok()
}

//! `--set KEY=VALUE`: a change of a setting, by the names that an administrator knows; or several,
//! one after the other: `KEY=A,B,C` and `KEY=FROM..TO:STEP`.

use core::fmt;

use experiment::catalogue::CPUS_MAX;

use super::setting::Setting;
use experiment::scenario::choices;

const MIB: f64 = 1_048_576.0;
/// Values of one key, at most: each is a run of every column.
const VALUES_MOST: usize = 32;

/// A value of a setting that can be changed, and the way to change it. A key that ends in `bytes`
/// takes a size, a key that ends in `fs` a word, all others a number.
pub struct Key<S: 'static> {
    /// As it is written, with `N` for a number.
    pub name: &'static str,
    /// The unit of its value.
    pub takes: &'static str,
    put: Put<S>,
}

type Put<S> = fn(&Change, &mut S) -> Result<(), String>;

/// A line of a table of keys.
pub(super) const fn key<S>(name: &'static str, takes: &'static str, put: Put<S>) -> Key<S> {
    Key { name, takes, put }
}

/// All keys of a kind of recording.
pub type Keys<S> = &'static [Key<S>];

/// Of recordings of dirty throttling.
pub const THROTTLING: Keys<Setting> = &[
    key("vm.dirty_ratio", "% of the memory", |change, setting| {
        setting.dirty_mib = setting.part(&change.key, change.value)?;
        Ok(())
    }),
    key(
        "vm.dirty_background_ratio",
        "% of the memory",
        |change, setting| {
            setting.background_mib = setting.part(&change.key, change.value)?;
            Ok(())
        },
    ),
    key(
        "vm.dirty_bytes",
        "a size, as in 64MiB",
        |change, setting| {
            setting.dirty_mib = change.value / MIB;
            Ok(())
        },
    ),
    key(
        "vm.dirty_background_bytes",
        "a size, as in 32MiB",
        |change, setting| {
            setting.background_mib = change.value / MIB;
            Ok(())
        },
    ),
    key("device.N.rate", "MiB/s", |change, setting| {
        change.there(setting.devices.len(), "device")?;
        setting.devices[change.index] = change.value;
        Ok(())
    }),
    key(
        "device.N.max_ratio",
        "% of the dirty limit, strict",
        |change, setting| {
            change.there(setting.devices.len(), "device")?;
            setting.max_ratio = Some(change.value);
            Ok(())
        },
    ),
    key(
        "writers",
        "a count of writers like the first",
        |change, setting| {
            let first = *setting.writers.first().ok_or("there is no first writer")?;
            setting.writers = vec![first; change.count(1, 4096)? as usize];
            Ok(())
        },
    ),
    key(
        "writer.N.bytes",
        "the size of a call, as in 4KiB",
        |change, setting| {
            change.there(setting.writers.len(), "writer")?;
            setting.writers[change.index].bytes = change.value;
            Ok(())
        },
    ),
    key("writer.N.sleep_ms", "ms", |change, setting| {
        change.there(setting.writers.len(), "writer")?;
        setting.writers[change.index].sleep_s = change.value / 1e3;
        Ok(())
    }),
    key("writer.N.start_s", "s", |change, setting| {
        change.there(setting.writers.len(), "writer")?;
        setting.writers[change.index].start_s = change.value;
        Ok(())
    }),
    key("hz", "ticks per second", |change, setting| {
        setting.hz = change.count(1, 10_000)?;
        Ok(())
    }),
    key("cpus", "a count", |change, setting| {
        setting.cpus = change.count(1, CPUS_MAX)?;
        Ok(())
    }),
    key("memory_mib", "MiB", |change, setting| {
        setting.memory_mib = change.value;
        setting.kept_mib.get_or_insert(0.0);
        Ok(())
    }),
    key(
        "page_size",
        "bytes, with --given only",
        |change, setting| {
            setting.page_size = change.count(1, 65_536)?;
            Ok(())
        },
    ),
];

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its key, as it was written.
    pub key: String,
    /// The key with `N` for its number.
    pub(super) form: &'static str,
    /// The number in the key, 0 without one.
    pub(super) index: usize,
    /// Its value, 0 of a word.
    pub(super) value: f64,
    /// The same as it was written.
    pub(super) text: String,
}

/// A change that fits nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} {set}: {problem}")]
pub struct ChangeError {
    /// `--set`, or `--given`, which takes one value.
    option: &'static str,
    set: String,
    problem: String,
}

impl ChangeError {
    pub(super) fn of(set: &str, problem: String) -> Self {
        Self {
            option: "--set",
            set: set.to_owned(),
            problem,
        }
    }

    /// The same, with more said of it.
    pub(super) fn and(mut self, more: &str) -> Self {
        self.problem.push_str(more);
        self
    }
}

/// The form of the key of `KEY=VALUE`.
pub(super) fn form_of(set: &str) -> String {
    form(set.split_once('=').map_or(set, |(key, _)| key).trim()).0
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.text)
    }
}

impl Change {
    /// From the command line; `keys`: those of the kind.
    ///
    /// # Errors
    /// The key is not known, with those that are; or the value is none of its unit.
    pub fn parse<S>(keys: Keys<S>, set: &str) -> Result<Self, ChangeError> {
        let given = |error| ChangeError {
            option: "--given",
            ..error
        };
        let mut all = Self::parse_all(keys, set).map_err(given)?;
        if all.len() > 1 {
            let problem = "one value is wanted here, not several".to_owned();
            return Err(given(ChangeError::of(set, problem)));
        }
        Ok(all.remove(0))
    }

    /// The same of one value or several, which are not none.
    ///
    /// # Errors
    /// As of `parse`, of the first value that is wrong.
    pub fn parse_all<S>(keys: Keys<S>, set: &str) -> Result<Vec<Self>, ChangeError> {
        let wrong = |problem: String| ChangeError::of(set, problem);
        let (key, value) = set.split_once('=').ok_or_else(|| {
            let Key { name, takes, .. } = &keys[0];
            wrong(format!(
                "no `=`; write it as KEY=VALUE: {name} takes {takes}"
            ))
        })?;
        let (key, value) = (key.trim(), value.trim());
        let (form, index) = form(key);
        let known = keys.iter().find(|known| known.name == form);
        let known = known.ok_or_else(|| {
            let choices = choices(&form, keys.iter().map(|known| known.name));
            wrong(format!("unknown key `{key}`; {choices}"))
        })?;
        let one = |text: &str| {
            let value = number(known.name, key, known.takes, text).map_err(wrong)?;
            Ok(Self {
                key: key.to_owned(),
                form: known.name,
                index,
                value,
                text: text.to_owned(),
            })
        };
        let texts = match value.split_once("..") {
            Some((from, rest)) => {
                let (to, step) = rest.split_once(':').ok_or_else(|| {
                    wrong("a range needs its step: write FROM..TO:STEP, as in 5..20:5".into())
                })?;
                range(
                    known.name,
                    [one(from)?, one(to)?, one(step)?].map(|one| one.value),
                )
                .map_err(wrong)?
            }
            None => value.split(',').map(str::to_owned).collect(),
        };
        if texts.len() > VALUES_MOST {
            let count = texts.len();
            return Err(wrong(format!(
                "{count} values; allowed: {VALUES_MOST} at most"
            )));
        }
        texts.iter().map(|text| one(text.trim())).collect()
    }

    /// Its value as a plot shows it: sizes in MiB.
    pub(super) fn shown(&self) -> f64 {
        if is_size(self.form) {
            self.value / MIB
        } else {
            self.value
        }
    }

    /// The name of a plot's axis.
    pub(super) fn axis(&self) -> String {
        if is_size(self.form) {
            format!("{} (MiB)", self.key)
        } else {
            self.key.clone()
        }
    }

    /// Changes the setting.
    ///
    /// # Errors
    /// The setting would be impossible, and what is allowed.
    pub fn apply(&self, setting: &mut Setting) -> Result<(), String> {
        self.put(setting)?;
        setting
            .check()
            .map_err(|problem| format!("{}; {}", problem.title, problem.allowed))
    }

    /// Changes the setting without a look at the whole.
    pub(super) fn put(&self, setting: &mut Setting) -> Result<(), String> {
        self.put_by(THROTTLING, setting)
    }

    /// The same by the table of a kind.
    pub(super) fn put_by<S>(&self, keys: Keys<S>, setting: &mut S) -> Result<(), String> {
        let own = keys.iter().find(|key| key.name == self.form);
        (own.expect("it was parsed by this table").put)(self, setting)
    }
}

/// The key with `N` for its number, and that number; 0 without one.
fn form(key: &str) -> (String, usize) {
    let mut parts: Vec<&str> = key.split('.').collect();
    let mut index = 0;
    if let Some(number) = parts.get(1).and_then(|part| part.parse().ok()) {
        index = number;
        parts[1] = "N";
    }
    (parts.join("."), index)
}

fn is_size(form: &str) -> bool {
    form.ends_with("bytes") && !form.ends_with("kbytes")
}

fn number(form: &str, key: &str, takes: &str, text: &str) -> Result<f64, String> {
    let number = if is_size(form) {
        let bytes = figures::size_above_zero(text);
        Some(bytes.map_err(|error| format!("{key}: {error}"))? as f64)
    } else if form.ends_with("fs") {
        Some(0.0)
    } else {
        text.parse().ok()
    };
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| {
            let bare = text.trim_end_matches([' ', '%']);
            let plain = match bare != text && bare.parse::<f64>().is_ok() {
                true => format!("; write {bare}"),
                false => String::new(),
            };
            format!("`{text}` is not a value of {key}: it takes {takes}{plain}")
        })
}

/// The values of a range, as they would be written.
fn range(form: &str, [from, to, step]: [f64; 3]) -> Result<Vec<String>, String> {
    if form.ends_with("fs") || step <= 0.0 || to < from {
        return Err("a range goes up, by a step above zero: FROM..TO:STEP, as in 5..20:5".into());
    }
    let mut texts = Vec::new();
    let mut value = from;
    // A sum of tenths lacks a little of a whole: no reason to leave the last one out.
    while value <= to + step * 1e-9 && texts.len() <= VALUES_MOST {
        texts.push(if is_size(form) {
            format!("{value:.0}B")
        } else {
            // Sums of decimals are shown as they were meant.
            ((value * 1e6).round() / 1e6).to_string()
        });
        value += step;
    }
    Ok(texts)
}

impl Change {
    /// Checks that there is the one whose number is in the key.
    ///
    /// # Errors
    /// There is not, and those there are.
    pub(super) fn there(&self, count: usize, what: &str) -> Result<(), String> {
        if self.index < count {
            return Ok(());
        }
        let last = count.saturating_sub(1);
        Err(format!(
            "there is no {what} {}; allowed: 0 to {last}",
            self.index
        ))
    }

    /// Its value as a whole number.
    ///
    /// # Errors
    /// It is none of these.
    pub(super) fn count(&self, least: u32, most: u32) -> Result<u32, String> {
        let allowed = f64::from(least)..=f64::from(most);
        whole(self.value)
            .filter(|_| allowed.contains(&self.value))
            .ok_or_else(|| format!("`{}` is not a whole number of {least} to {most}", self.text))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and in range"
)]
fn whole(value: f64) -> Option<u32> {
    let fits = value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
    fits.then_some(value as u32)
}

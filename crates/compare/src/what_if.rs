//! `--set KEY=VALUE`: one change of a setting, by the names that an administrator knows.

use core::fmt;

use experiment::catalogue::CPUS_MAX;

use super::setting::Setting;
use experiment::scenario::choices;

const MIB: f64 = 1_048_576.0;

/// What can be changed of a kind's settings, and in which unit it is written. A key that ends in
/// `bytes` takes a size, a key that ends in `fs` a word, all others a number.
pub type Keys = &'static [(&'static str, &'static str)];

/// Of recordings of dirty throttling.
pub const THROTTLING: Keys = &[
    ("vm.dirty_bytes", "a size, as in 64MiB"),
    ("vm.dirty_background_bytes", "a size, as in 32MiB"),
    ("device.N.rate", "MiB/s"),
    ("device.N.max_ratio", "% of the dirty limit, strict"),
    ("writers", "a count of writers like the first"),
    ("writer.N.bytes", "the size of a call, as in 4KiB"),
    ("writer.N.sleep_ms", "ms"),
    ("writer.N.start_s", "s"),
    ("hz", "ticks per second"),
    ("cpus", "a count"),
    ("memory_mib", "MiB"),
    ("page_size", "bytes, with --given only"),
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
#[error("--set {set}: {problem}")]
pub struct ChangeError {
    set: String,
    problem: String,
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
    pub fn parse(keys: Keys, set: &str) -> Result<Self, ChangeError> {
        let wrong = |problem: String| ChangeError {
            set: set.to_owned(),
            problem,
        };
        let (key, value) = set.split_once('=').ok_or_else(|| {
            let (key, unit) = keys[0];
            wrong(format!("no `=`; write it as KEY=VALUE: {key} takes {unit}"))
        })?;
        let (key, value) = (key.trim(), value.trim());
        let mut parts: Vec<&str> = key.split('.').collect();
        let mut index = 0;
        if let Some(number) = parts.get(1).and_then(|part| part.parse().ok()) {
            index = number;
            parts[1] = "N";
        }
        let form = parts.join(".");
        let known = keys.iter().find(|(known, _)| *known == form);
        let (form, unit) = *known.ok_or_else(|| {
            let choices = choices(&form, keys.iter().map(|(known, _)| *known));
            wrong(format!("unknown key `{key}`; {choices}"))
        })?;
        let number = if form.ends_with("bytes") && !form.ends_with("kbytes") {
            let bytes = figures::size_above_zero(value);
            Some(bytes.map_err(|error| wrong(format!("{key}: {error}")))? as f64)
        } else if form.ends_with("fs") {
            Some(0.0)
        } else {
            value.parse().ok()
        };
        let number = number
            .filter(|number: &f64| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| {
                wrong(format!(
                    "`{value}` is not a value of {key}: it takes {unit}"
                ))
            })?;
        Ok(Self {
            key: key.to_owned(),
            form,
            index,
            value: number,
            text: value.to_owned(),
        })
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
        let (devices, writers) = (setting.devices.len(), setting.writers.len());
        let there = |count: usize, what: &str| self.there(count, what);
        let count = |most: u32| self.count(1, most);
        match self.form {
            "vm.dirty_bytes" => setting.dirty_mib = self.value / MIB,
            "vm.dirty_background_bytes" => setting.background_mib = self.value / MIB,
            "device.N.rate" => {
                there(devices, "device")?;
                setting.devices[self.index] = self.value;
            }
            "device.N.max_ratio" => {
                there(devices, "device")?;
                setting.max_ratio = Some(self.value);
            }
            "writers" => {
                let first = *setting.writers.first().ok_or("there is no first writer")?;
                setting.writers = vec![first; count(4096)? as usize];
            }
            "writer.N.bytes" => {
                there(writers, "writer")?;
                setting.writers[self.index].bytes = self.value;
            }
            "writer.N.sleep_ms" => {
                there(writers, "writer")?;
                setting.writers[self.index].sleep_s = self.value / 1e3;
            }
            "writer.N.start_s" => {
                there(writers, "writer")?;
                setting.writers[self.index].start_s = self.value;
            }
            "hz" => setting.hz = count(10_000)?,
            "cpus" => setting.cpus = count(CPUS_MAX)?,
            "page_size" => setting.page_size = count(65_536)?,
            _ => setting.memory_mib = self.value,
        }
        Ok(())
    }
}

impl Change {
    /// Whether there is the one whose number is in the key.
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

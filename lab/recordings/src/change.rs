//! `--set KEY=VALUE`: a change of a setting, by the names that an administrator knows; or several,
//! one after the other: `KEY=A,B,C` and `KEY=FROM..TO:STEP`.
//!
//! A key is a line of `KEYS`: the kernel's name and its place in the scenario.

use core::fmt;

use experiment::keys::value;
use experiment::scenario::choices;
use toml_edit::Table;

use super::kind::{KINDS, Kind, PRESSURE, THROTTLING};
use super::setting::{COLUMN_LIST, Setting, number_at, number_of, tables, text};

const MIB: f64 = 1_048_576.0;
/// Values of one key, at most: each is a run of every column.
const VALUES_MOST: usize = 32;
/// Tasks of a kind, at most.
const CROWD_MOST: u32 = 4096;
/// The lab's smallest write; all are multiples of it.
pub(super) const SECTOR: f64 = 512.0;
/// A shorter rest between two calls is none that a scenario has.
pub(super) const REST_LEAST_MS: f64 = 0.001;

/// A value of a setting that can be changed. A key that ends in `bytes` takes a size, a key that
/// ends in `fs` a word, all others a number.
struct Key {
    /// As it is written, with `N` for a number.
    name: &'static str,
    /// The unit of its value.
    takes: &'static str,
    /// The kind that has it alone.
    of: Option<&'static Kind>,
    to: To,
}

/// The way to change it.
enum To {
    /// Its place in the scenario.
    Place(&'static str),
    /// Several places, or a value that follows from others.
    Own(fn(&Change, &mut Setting) -> Result<(), String>),
}
use To::{Own, Place};

const fn key(name: &'static str, takes: &'static str, of: Option<&'static Kind>, to: To) -> Key {
    Key {
        name,
        takes,
        of,
        to,
    }
}

const BOTH: Option<&Kind> = None;
const T: Option<&Kind> = Some(&THROTTLING);
const P: Option<&Kind> = Some(&PRESSURE);

/// All keys; of one name, that of the kind.
#[rustfmt::skip]
static KEYS: &[Key] = &[
    key("vm.dirty_ratio", "% of the memory", T, Own(|change, setting| change.part(setting, "machine.dirty_mib"))),
    key("vm.dirty_ratio", "% of the memory", P, Place("machine.dirty_percent")),
    key("vm.dirty_background_ratio", "% of the memory", T, Own(|change, setting| change.part(setting, "machine.background_mib"))),
    key("vm.dirty_background_ratio", "% of the memory", P, Place("machine.background_percent")),
    key("vm.dirty_bytes", "a size, as in 64MiB", BOTH, Place("machine.dirty_mib")),
    key("vm.dirty_background_bytes", "a size, as in 32MiB", BOTH, Place("machine.background_mib")),
    key("device.N.rate", "MiB/s", BOTH, Place("device.N.rate_mib")),
    key("device.N.max_ratio", "% of the dirty limit, strict", T, Own(strict)),
    key("device.N.fs", "a file system: bare, ext4 or vfat", P, Own(|change, setting| setting.set_fs(change.index, &change.text))),
    key("vm.swappiness", "a number of 0 to 200", P, Place("machine.swappiness")),
    key("vm.min_free_kbytes", "KiB", P, Own(|change, setting| {
        let kept = setting.small_zones_kib();
        setting.put("machine.min_free_kib", 0, change.value - kept)
    })),
    key("vm.watermark_scale_factor", "1/10000 of the memory", P, Place("machine.watermark_scale_factor")),
    key("vm.watermark_boost_factor", "1/10000 of HIGH", P, Own(|change, setting| change.column(setting, |column, value| {
        column.insert("keeps_apart", toml_edit::value(true));
        column.insert("boost_factor", toml_edit::Item::Value(number_of(value)));
    }))),
    key("vm.percpu_pagelist_high_fraction", "a CPU's lists keep this part of a zone; 0: as much as LOW and more", P, Own(|change, setting| change.column(setting, |column, value| {
        column.insert("cpu_lists_part", toml_edit::Item::Value(number_of(value)));
    }))),
    key("vm.zone_reclaim_mode", "0 or 1", P, Own(zone_reclaim)),
    key("swap_rate", "MiB/s of the disk that is swapped to", P, Own(swap_rate)),
    key("writers", "a count of writers like the first", T, Own(|change, setting| crowd(change, setting, "dd", 1))),
    key("writers", "a count of writers like the first", P, Own(|change, setting| crowd(change, setting, "rand_write", 0))),
    key("readers", "a count of readers like the first", P, Own(|change, setting| crowd(change, setting, "rand_read", 0))),
    key("hogs", "a count of hogs, that together touch as much", P, Own(|change, setting| crowd(change, setting, "hog", 0))),
    key("writer.N.bytes", "the size of a call in whole sectors, as in 4KiB", T, Own(|change, setting| {
        if change.value % SECTOR != 0.0 {
            return Err(format!("the lab writes whole sectors; allowed: multiples of {SECTOR} bytes"));
        }
        setting.entry("task", change.index)?.insert("block_kib", toml_edit::Item::Value(number_of(change.value / 1024.0)));
        Ok(())
    })),
    key("writer.N.sleep_ms", "ms", T, Own(|change, setting| {
        let task = setting.entry("task", change.index)?;
        task.remove("every_ms");
        if change.value > 0.0 {
            task.insert("every_ms", toml_edit::Item::Value(number_of(change.value.max(REST_LEAST_MS))));
        }
        Ok(())
    })),
    key("writer.N.start_s", "s", T, Own(|change, setting| {
        let task = setting.entry("task", change.index)?;
        let end = number_at(task, "start_s") + number_at(task, "run_s");
        for (key, value) in [("start_s", change.value), ("run_s", end - change.value)] {
            task.insert(key, toml_edit::Item::Value(number_of(value)));
        }
        Ok(())
    })),
    key("memory_mib", "MiB", BOTH, Own(|change, setting| setting.set_memory(change.value))),
    key("seconds", "s", P, Own(seconds)),
    key("hz", "ticks per second", BOTH, Own(hz)),
    key("cpus", "a count", BOTH, Own(|change, setting| setting.set_cpus(change.value))),
];

/// The keys of a kind.
fn keys_of(kind: &'static Kind) -> impl Iterator<Item = &'static Key> + Clone {
    KEYS.iter()
        .filter(move |key| key.of.is_none_or(|of| core::ptr::eq(of, kind)))
}

/// The keys of `--set` and `--given`, kind by kind, as a table.
#[must_use]
pub fn keys() -> String {
    let mut text = String::new();
    for kind in KINDS.iter().rev() {
        text.push_str(&format!("Keys of --set and --given, {}:\n", kind.of));
        for Key { name, takes, .. } in keys_of(kind) {
            text.push_str(&format!("  {name:<28}{takes}\n"));
        }
    }
    text.push_str("A size has a unit (docs/sizes.md), all else is a plain number.\n");
    text
}

fn strict(change: &Change, setting: &mut Setting) -> Result<(), String> {
    let device = setting.entry("device", change.index)?;
    device.insert("strict", toml_edit::value(true));
    device.insert(
        "max_percent",
        toml_edit::Item::Value(number_of(change.value)),
    );
    Ok(())
}

fn zone_reclaim(change: &Change, setting: &mut Setting) -> Result<(), String> {
    if setting.scenario.machine.node.len() < 2 {
        return Err("it says nothing to a machine of one node".into());
    }
    if change.count(0, 1)? == 0 {
        return change.column(setting, |column, _| {
            column.remove("place");
        });
    }
    change.column(setting, |column, _| {
        column.insert("place", toml_edit::value("linux-6.12-mode1"));
    })
}

fn swap_rate(change: &Change, setting: &mut Setting) -> Result<(), String> {
    let swap = setting.scenario.machine.swap.as_ref();
    let device = swap.ok_or("there is no swap")?.device.get_ref().clone();
    let devices = tables(&mut setting.document, "device").iter_mut();
    for device in devices.filter(|own| text(own, "id") == device) {
        device.insert("rate_mib", toml_edit::Item::Value(number_of(change.value)));
    }
    Ok(())
}

/// The recording, and with it all of its tasks, ends at another time.
fn seconds(change: &Change, setting: &mut Setting) -> Result<(), String> {
    for task in tables(&mut setting.document, "task").iter_mut() {
        let start = number_at(task, "start_s");
        if start >= change.value {
            return Err(format!(
                "a worker begins at {start} s; allowed: more than that"
            ));
        }
        task.insert(
            "run_s",
            toml_edit::Item::Value(number_of(change.value - start)),
        );
    }
    setting.put("run.max_s", 0, change.value * 10.0 + 600.0)
}

/// The kernel's law counts in the kernel's ticks, and so does the scheduler, where that is said.
fn hz(change: &Change, setting: &mut Setting) -> Result<(), String> {
    if setting.scenario.machine.preempt_hz.is_some() {
        setting.put("machine.preempt_hz", 0, change.value)?;
    }
    change.column(setting, |column, value| {
        column.insert("hz", toml_edit::Item::Value(number_of(value)));
    })
}

/// As many tasks of a kind, where the first of them stands. Hogs share what they touched before, in
/// whole MiB.
fn crowd(change: &Change, setting: &mut Setting, kind: &str, least: u32) -> Result<(), String> {
    let count = change.count(least, CROWD_MOST)?;
    let list = tables(&mut setting.document, "task");
    let all: Vec<Table> = list.iter().cloned().collect();
    let is_of = |table: &Table| text(table, "kind") == kind;
    let first = all.iter().position(is_of);
    let first = first.ok_or_else(|| {
        let one = change.key.trim_end_matches('s');
        format!("there is no first {one} to be like")
    })?;
    let own = all.iter().filter(|table| is_of(table));
    let touched: f64 = own.map(|table| number_at(table, "region_mib")).sum();
    list.clear();
    for (at, table) in all.into_iter().enumerate() {
        for number in (0..count).filter(|_| at == first) {
            let mut table = table.clone();
            let id = text(&table, "id").trim_end_matches(|c: char| c.is_ascii_digit());
            let id = format!("{id}{number}");
            table.insert("id", toml_edit::value(id));
            if table.contains_key("region_mib") {
                let share = (touched / f64::from(count)).floor();
                table.insert("region_mib", toml_edit::Item::Value(number_of(share)));
            }
            list.push(table);
        }
        if !is_of(&table) {
            list.push(table);
        }
    }
    Ok(())
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its key, as it was written.
    pub key: String,
    /// The key with `N` for its number.
    form: &'static str,
    /// The number in the key, 0 without one.
    index: usize,
    /// Its value, 0 of a word.
    value: f64,
    /// The same as it was written.
    pub(super) text: String,
}

/// Makes all changes to a setting; `option` is the one that they were asked for with.
///
/// # Errors
/// One fits nowhere, or the setting would be impossible, and what is allowed.
pub fn turn(setting: &mut Setting, option: &str, changes: &[&Change]) -> Result<(), String> {
    let put = |setting: &mut Setting| changes.iter().try_for_each(|change| change.put(setting));
    setting.change(put).map_err(|problem| {
        let sets = changes.iter().map(|change| format!("{option} {change}"));
        format!("{}: {problem}", sets.collect::<Vec<_>>().join(" "))
    })
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

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.text)
    }
}

impl Change {
    /// From the command line.
    ///
    /// # Errors
    /// The key is not known, with those that are; or the value is none of its unit.
    pub fn parse(kind: &'static Kind, set: &str) -> Result<Self, ChangeError> {
        let wrong = |problem: String| ChangeError {
            option: "--given",
            set: set.to_owned(),
            problem,
        };
        let mut all =
            Self::parse_all(kind, set).map_err(|ChangeError { problem, .. }| wrong(problem))?;
        if all.len() > 1 {
            return Err(wrong("one value is wanted here, not several".to_owned()));
        }
        Ok(all.remove(0))
    }

    /// The same of one value or several, which are not none.
    ///
    /// # Errors
    /// As of `parse`, of the first value that is wrong.
    pub fn parse_all(kind: &'static Kind, set: &str) -> Result<Vec<Self>, ChangeError> {
        let wrong = |problem: String| ChangeError {
            option: "--set",
            set: set.to_owned(),
            problem,
        };
        let (key, value) = set.split_once('=').ok_or_else(|| {
            let Key { name, takes, .. } = &KEYS[0];
            wrong(format!(
                "no `=`; write it as KEY=VALUE: {name} takes {takes}"
            ))
        })?;
        let (key, value) = (key.trim(), value.trim());
        let (form, index) = form(key);
        let known = keys_of(kind).find(|known| known.name == form);
        let known = known.ok_or_else(|| {
            let choices = choices(&form, keys_of(kind).map(|known| known.name));
            let other = KEYS.iter().find(|known| known.name == form);
            let other = other
                .and_then(|known| known.of)
                .map_or(String::new(), |of| {
                    format!(" (`{form}` is a key of recordings of {})", of.of)
                });
            wrong(format!("unknown key `{key}`; {choices}{other}"))
        })?;
        let one = |text: &str| {
            Ok(Self {
                key: key.to_owned(),
                form: known.name,
                index,
                value: number_in(known, key, text).map_err(wrong)?,
                text: text.to_owned(),
            })
        };
        let texts = match value.split_once("..") {
            Some((from, rest)) => {
                let (to, step) = rest.split_once(':').ok_or_else(|| {
                    wrong("a range needs its step: write FROM..TO:STEP, as in 5..20:5".into())
                })?;
                let ends = [one(from)?, one(to)?, one(step)?].map(|one| one.value);
                range(known.name, ends).map_err(wrong)?
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

    /// Its value, bytes of a size; 0 of a word.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
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

    /// Changes the text of a setting, without a look at the whole.
    ///
    /// # Errors
    /// It fits nowhere.
    pub(super) fn put(&self, setting: &mut Setting) -> Result<(), String> {
        let own = keys_of(setting.kind).find(|key| key.name == self.form);
        match own.expect("it was parsed as one of the kind's").to {
            Place(path) => setting.put(path, self.index, self.shown()),
            Own(put) => put(self, setting),
        }
    }

    /// Puts a percentage of the memory that files can have, in MiB.
    fn part(&self, setting: &mut Setting, path: &str) -> Result<(), String> {
        let mib = setting.part(&self.key, self.value)?;
        setting.put(path, 0, mib)
    }

    /// Changes every column that has the recorded kernel's ticks.
    #[expect(clippy::unnecessary_wraps, reason = "the form of every way to change")]
    fn column(&self, setting: &mut Setting, put: fn(&mut Table, f64)) -> Result<(), String> {
        let names: Vec<String> = setting
            .scenario
            .columns
            .iter()
            .filter(|column| value(&column.hz).is_some())
            .map(|column| column.name.get_ref().clone())
            .collect();
        let columns = tables(&mut setting.document, COLUMN_LIST).iter_mut();
        for column in columns.filter(|own| names.iter().any(|name| name == text(own, "name"))) {
            put(column, self.value);
        }
        Ok(())
    }

    /// Its value as a whole number.
    ///
    /// # Errors
    /// It is none of these.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and in range"
    )]
    fn count(&self, least: u32, most: u32) -> Result<u32, String> {
        let allowed = f64::from(least)..=f64::from(most);
        if self.value.fract() == 0.0 && allowed.contains(&self.value) {
            return Ok(self.value as u32);
        }
        Err(format!(
            "`{}` is not a whole number of {least} to {most}",
            self.text
        ))
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

fn number_in(known: &Key, key: &str, text: &str) -> Result<f64, String> {
    let number = if is_size(known.name) {
        let bytes = figures::size_above_zero(text);
        Some(bytes.map_err(|error| format!("{key}: {error}"))? as f64)
    } else if known.name.ends_with("fs") {
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
            let takes = known.takes;
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

//! The setting of a recording: machine, devices, limits, writers. Read from `scenario.json`, or put
//! together from a trace; changed by `--set`; written as a scenario that `tidegate run` accepts.
//!
//! Invariant: a `Setting` that was checked can be run: limits do not contradict each other, devices
//! have a rate, writers a device.
//!
//! Source: docs/study/reference/field-recordings.md (keys and units; what it calls MB is MiB);
//! mechanisms 5.7.

use std::path::Path;

use experiment::catalogue::CPUS_MAX;
use serde::Deserialize;

use super::fault::{Fault, Place};
use experiment::scenario::{HZ, RATE_LEAST_MIB, RATE_MOST_MIB};

/// Longest recording: a day.
const SECONDS_MOST: f64 = 86_400.0;
/// Longest rest between two calls.
const SLEEP_MOST: f64 = 10_000.0;
/// Largest `write()`.
const WRITE_MOST: f64 = 64.0 * 1_048_576.0;
/// Most writers: each is a task of the lab.
const WRITERS_MOST: usize = 4096;
/// Memory where the recording does not tell it: with limits in bytes it only has to be enough.
const MEMORY_MIB: f64 = 1024.0;

/// The origin of a recording; it decides what the lab puts under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A real kernel in deterministic virtual time, on a throttled null_blk (`cargo instruments
    /// guest`).
    Guest,
    /// A real machine with a slow device in user space below ext4
    /// (docs/study/reference/field-recordings.md).
    Chain,
    /// A trace without its circumstances.
    Trace,
}

/// One writer: `write()` in a loop, with a sleep between two calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriterSpec {
    /// Index of its device.
    pub device: usize,
    /// Bytes of one call.
    pub bytes: f64,
    /// Sleep after each call, seconds.
    pub sleep_s: f64,
    /// When it starts, seconds.
    pub start_s: f64,
}

impl WriterSpec {
    /// Writes as fast as it may.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        self.sleep_s == 0.0
    }
}

/// A device gets another rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// Index of the device.
    pub device: usize,
    /// When, seconds.
    pub at_s: f64,
    /// MiB/s from then on.
    pub rate: f64,
}

/// The circumstances of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Which kernel.
    pub kernel: String,
    /// Its origin.
    pub origin: Origin,
    /// CPUs.
    pub cpus: u32,
    /// Ticks per second of the kernel.
    pub hz: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// Memory, MiB.
    pub memory_mib: f64,
    /// Of the memory, what no file can have, MiB; `None`: the recording tells nothing of its
    /// memory.
    pub kept_mib: Option<f64>,
    /// Dirty and under writeback when the recording begins, MiB.
    pub begins_mib: f64,
    /// The time of writing.
    pub seconds: f64,
    /// `vm.dirty_bytes`, MiB.
    pub dirty_mib: f64,
    /// `vm.dirty_background_bytes`, MiB.
    pub background_mib: f64,
    /// Rates of the devices, MiB/s.
    pub devices: Vec<f64>,
    /// The writers.
    pub writers: Vec<WriterSpec>,
    /// Changes of rates.
    pub changes: Vec<RateChange>,
    /// A strict limit of the devices, per cent of the dirty limit.
    pub max_ratio: Option<f64>,
    /// The file system; `None`: the bare device.
    pub fs: Option<String>,
    /// Largest request of a null_blk, or of a device whose queue is known, sectors.
    pub max_sectors: Option<u64>,
    /// Requests in a device's queue, as far as a trace tells it; `None`: those of its model.
    pub queue: Option<u32>,
}

/// The form of the file. Optional keys are those that the field recordings do not have.
#[derive(Deserialize)]
struct File {
    devices: Vec<f64>,
    dirty: f64,
    bg: f64,
    writers: Vec<(f64, f64, f64, f64)>,
    seconds: f64,
    name: String,
    kernel: Option<String>,
    cpus: Option<u32>,
    change: Option<Vec<(f64, f64, f64)>>,
    max_ratio: Option<f64>,
    hz: Option<u32>,
    page_size: Option<u32>,
    source: Option<String>,
    device_model: Option<String>,
    max_sectors: Option<u64>,
    fs: Option<String>,
    memory_mib: Option<f64>,
}

/// Keys that are read.
const KEYS: [&str; 18] = [
    // Which number of a bdi stands for which device.
    "bdis",
    "devices",
    "dirty",
    "bg",
    "writers",
    "seconds",
    "name",
    "kernel",
    "cpus",
    "change",
    "max_ratio",
    "hz",
    "page_size",
    "source",
    "device_model",
    "max_sectors",
    "fs",
    "memory_mib",
];

const FORM: &str = "keys: devices [MiB/s, ...], dirty and bg (MiB), writers [[device, bytes, sleep_s, \
                    start_s], ...], seconds, name; and, if known, kernel, cpus, hz, page_size, \
                    memory_mib, change [[device, at_s, MiB/s], ...], max_ratio (%), source, \
                    device_model, max_sectors, fs";

/// The values read of a `scenario.json`.
pub(super) struct Read {
    pub(super) setting: Setting,
    /// The words that were not understood.
    pub(super) notes: Vec<String>,
    /// Keys that it does not have, and what was assumed.
    pub(super) assumed: Vec<(&'static str, String)>,
}

fn parse(path: &Path, text: &str) -> Result<File, Fault> {
    serde_json::from_str(text).map_err(|error| {
        let line = error.line().max(1);
        let shown = text.lines().nth(line - 1).unwrap_or("");
        let message = error.to_string();
        let message = message.split(" at line").next().unwrap_or("");
        Fault::of(
            path,
            format!("is not a recording's scenario: {message}"),
            FORM,
        )
        .at(Place::whole(line, shown))
    })
}

/// Reads `scenario.json`.
///
/// # Errors
/// The mistake, and where it is.
pub(super) fn read(path: &Path, text: &str) -> Result<Read, Fault> {
    let file = parse(path, text)?;
    let mut notes = Vec::new();
    unknown_keys(text, &mut notes);
    let origin = match (file.source.as_deref(), file.device_model.as_deref()) {
        (Some("guest"), None | Some("null_blk")) => Origin::Guest,
        (Some("guest"), Some(model)) => {
            notes.push(format!(
                "device_model `{model}` is not known (null_blk is): the lab has a token bucket of that rate"
            ));
            Origin::Trace
        }
        _ => Origin::Chain,
    };
    let mut assumed = Vec::new();
    let mut assume = |key: &'static str, value: String| assumed.push((key, value));
    let hz = file.hz.unwrap_or_else(|| {
        assume("hz", "250".into());
        250
    });
    let page_size = file.page_size.unwrap_or_else(|| {
        assume("page_size", "4096".into());
        4096
    });
    let memory_mib = file.memory_mib.unwrap_or_else(|| {
        let memory = MEMORY_MIB.max(file.dirty * 8.0);
        assume("memory_mib", memory.to_string());
        memory
    });
    let cpus = file.cpus.unwrap_or_else(|| {
        assume("cpus", "1".into());
        1
    });
    let fs = match (file.fs.as_deref(), origin) {
        (Some("none"), _) | (None, Origin::Guest) => None,
        (Some(fs), _) => Some(fs.to_owned()),
        // The field recordings are of ext4.
        (None, _) => {
            assume("fs", "ext4".into());
            Some("ext4".to_owned())
        }
    };
    let index = |device: f64| index(device).unwrap_or(usize::MAX);
    let writer = |(device, bytes, sleep_s, start_s)| WriterSpec {
        device: index(device),
        bytes,
        sleep_s,
        start_s,
    };
    let change = |(device, at_s, rate)| RateChange {
        device: index(device),
        at_s,
        rate,
    };
    let changes = file.change.unwrap_or_default();
    let setting = Setting {
        name: file.name,
        kernel: file.kernel.unwrap_or_else(|| "unknown".into()),
        origin,
        cpus,
        hz,
        page_size,
        memory_mib,
        kept_mib: file.memory_mib.map(|_| 0.0),
        begins_mib: 0.0,
        seconds: file.seconds,
        dirty_mib: file.dirty,
        background_mib: file.bg,
        devices: file.devices,
        writers: file.writers.into_iter().map(writer).collect(),
        changes: changes.into_iter().map(change).collect(),
        max_ratio: file.max_ratio,
        fs,
        max_sectors: file.max_sectors,
        queue: None,
    };
    if let Err(problem) = setting.check() {
        let fault = Fault::of(path, problem.title, problem.allowed);
        return Err(fault.at(key_place(text, problem.key)));
    }
    Ok(Read {
        setting,
        notes,
        assumed,
    })
}

/// The line on which a key stands, and the key; without it, the first line.
pub(super) fn key_place(text: &str, key: &str) -> Place {
    let quoted = format!("\"{key}\"");
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(start) = line.find(&quoted) {
            return Place::new(number, line, start..start + quoted.len());
        }
    }
    Place::whole(1, text.lines().next().unwrap_or(""))
}

fn unknown_keys(text: &str, notes: &mut Vec<String>) {
    let Ok(serde_json::Value::Object(map)) = serde_json::from_str(text) else {
        return;
    };
    let unknown: Vec<&str> = map
        .keys()
        .map(String::as_str)
        .filter(|key| !KEYS.contains(key))
        .collect();
    if !unknown.is_empty() {
        notes.push(format!(
            "scenario.json: not understood and left out: {}",
            unknown.join(", ")
        ));
    }
}

/// The fault of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which key of `scenario.json`.
    pub key: &'static str,
    /// The complaint, with the value.
    pub title: String,
    /// The allowed values.
    pub allowed: String,
}

fn problem<T>(key: &'static str, title: String, allowed: &str) -> Result<T, Problem> {
    Err(Problem {
        key,
        title,
        allowed: allowed.to_owned(),
    })
}

/// As people read it: no more than a tenth.
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl Setting {
    /// The first thing that makes it impossible.
    ///
    /// # Errors
    /// That thing, and the allowed values.
    pub fn check(&self) -> Result<(), Problem> {
        self.check_machine()?;
        self.check_limits()?;
        self.check_devices()?;
        self.check_writers()
    }

    fn check_machine(&self) -> Result<(), Problem> {
        let within = |key, value: f64, low: f64, high: f64, unit: &str| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let allowed = format!("allowed: {low} to {high}{unit}");
            problem(key, format!("`{key}` is out of range: {value}"), &allowed)
        };
        within("seconds", self.seconds, 1.0, SECONDS_MOST, " s")?;
        within("cpus", f64::from(self.cpus), 1.0, f64::from(CPUS_MAX), "")?;
        let (low, high) = (f64::from(*HZ.start()), f64::from(*HZ.end()));
        within(
            "hz",
            f64::from(self.hz),
            low,
            high,
            " (usual are 100, 250, 300, 1000)",
        )?;
        if !self.page_size.is_power_of_two() || !(4096..=65536).contains(&self.page_size) {
            let title = format!("`page_size` cannot be {}", self.page_size);
            return problem(
                "page_size",
                title,
                "allowed: 4096, 8192, 16384, 32768, 65536",
            );
        }
        within(
            "memory_mib",
            self.memory_mib,
            16.0,
            16.0 * 1_048_576.0,
            " MiB",
        )
    }

    fn check_limits(&self) -> Result<(), Problem> {
        let (dirty, background) = (self.dirty_mib, self.background_mib);
        for (key, value) in [("dirty", dirty), ("bg", background)] {
            if !(value.is_finite() && value >= 0.0625) {
                let title = format!("`{key}` is not a limit: {value}");
                return problem(key, title, "allowed: MiB, at least 0.0625 (16 pages)");
            }
        }
        if background >= dirty {
            return problem(
                "bg",
                format!(
                    "the limits contradict each other: background {background} MiB is not below dirty {dirty} MiB"
                ),
                &format!("allowed: bg below dirty, so 0.0625 to less than {dirty} (MiB)"),
            );
        }
        if dirty > self.memory_mib {
            return problem(
                "dirty",
                format!(
                    "the dirty limit exceeds the memory: {dirty} > {} MiB",
                    self.memory_mib
                ),
                "allowed: a dirty limit below memory_mib",
            );
        }
        match self.max_ratio {
            // Finer than a scenario, or the kernel, has it.
            Some(ratio) if !(0.01..=100.0).contains(&ratio) => problem(
                "max_ratio",
                format!("`max_ratio` is out of range: {ratio}"),
                "allowed: 0.01 to 100 % of the dirty limit",
            ),
            _ => Ok(()),
        }
    }

    fn check_devices(&self) -> Result<(), Problem> {
        if self.devices.is_empty() || self.devices.len() > 64 {
            let title = format!("{} devices", self.devices.len());
            return problem("devices", title, "allowed: 1 to 64 rates in MiB/s");
        }
        let allowed = format!("allowed: {RATE_LEAST_MIB} to {RATE_MOST_MIB} MiB/s");
        let is_rate = |rate: f64| (RATE_LEAST_MIB..=RATE_MOST_MIB).contains(&rate);
        for (index, rate) in self.devices.iter().enumerate() {
            if !is_rate(*rate) {
                let title = format!("device {index} has no usable rate: {rate} MiB/s");
                return problem("devices", title, &allowed);
            }
        }
        for change in &self.changes {
            let RateChange { device, at_s, rate } = change;
            if *device >= self.devices.len() {
                let title = "a change of a device that is not there".to_owned();
                let allowed = format!("allowed: device 0 to {}", self.devices.len() - 1);
                return problem("change", title, &allowed);
            }
            // Zero: it stands still.
            let is_change = is_rate(*rate) || *rate == 0.0;
            if !is_change || !at_s.is_finite() || *at_s < 0.0 {
                let title = format!("a change to {rate} MiB/s at {at_s} s cannot be");
                return problem("change", title, &allowed);
            }
        }
        Ok(())
    }

    fn check_writers(&self) -> Result<(), Problem> {
        if self.writers.is_empty() || self.writers.len() > WRITERS_MOST {
            let title = format!("{} writers", self.writers.len());
            return problem("writers", title, "allowed: 1 to 4096 writers");
        }
        for (index, writer) in self.writers.iter().enumerate() {
            let wrong = |what: String, allowed: String| {
                problem("writers", format!("writer {index}: {what}"), &allowed)
            };
            if writer.device >= self.devices.len() {
                return wrong(
                    "its device is not there".into(),
                    format!("allowed: device 0 to {}", self.devices.len() - 1),
                );
            }
            if !(writer.bytes >= 1.0 && writer.bytes <= WRITE_MOST) {
                let what = format!("writes of {} bytes", writer.bytes);
                return wrong(what, format!("allowed: 1 to {WRITE_MOST} bytes"));
            }
            if !(0.0..=SLEEP_MOST).contains(&writer.sleep_s) {
                let what = format!("sleeps {} s", writer.sleep_s);
                return wrong(what, format!("allowed: 0 to {SLEEP_MOST} s"));
            }
            if !(0.0..self.seconds).contains(&writer.start_s) {
                let what = format!("starts at {} s", writer.start_s);
                let allowed = format!("allowed: 0 to less than {} s", self.seconds);
                return wrong(what, allowed);
            }
        }
        Ok(())
    }

    /// In what it differs from another setting, in words, one per kind of setting.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let mut differ = |is: bool, words: String| {
            if is {
                all.push(words);
            }
        };
        let rates = |setting: &Self| {
            let rates: Vec<String> = setting.devices.iter().map(f64::to_string).collect();
            rates.join(" + ")
        };
        differ(
            self.devices != other.devices,
            format!("{} -> {} MiB/s", rates(self), rates(other)),
        );
        let limits = |setting: &Self| (setting.dirty_mib, setting.background_mib);
        differ(
            limits(self) != limits(other),
            format!(
                "limits {}/{} -> {}/{} MiB",
                tenths(self.dirty_mib),
                tenths(self.background_mib),
                tenths(other.dirty_mib),
                tenths(other.background_mib)
            ),
        );
        differ(
            self.writers != other.writers,
            format!("writers {} -> {}", self.crowd(), other.crowd()),
        );
        differ(self.changes != other.changes, "changes of rates".into());
        let strict = |setting: &Self| {
            setting
                .max_ratio
                .map_or("none".into(), |r| format!("{r} %"))
        };
        differ(
            self.max_ratio != other.max_ratio,
            format!("strict limit {} -> {}", strict(self), strict(other)),
        );
        let fs = |setting: &Self| setting.fs.clone().unwrap_or("none".into());
        differ(
            self.fs != other.fs,
            format!("file system {} -> {}", fs(self), fs(other)),
        );
        let machine = |setting: &Self| (setting.hz, setting.cpus, setting.page_size);
        differ(
            machine(self) != machine(other) || self.origin != other.origin,
            "another machine".into(),
        );
        differ(
            (self.seconds - other.seconds).abs() > 1.0,
            format!("{} -> {} s", self.seconds, other.seconds),
        );
        all
    }

    /// A percentage of the memory that files can have, MiB.
    ///
    /// # Errors
    /// The recording tells nothing of its memory.
    pub(super) fn part(&self, key: &str, percent: f64) -> Result<f64, String> {
        let kept = self.kept_mib.ok_or_else(|| {
            format!(
                "{key} is a part of the memory, and the recording does not tell that; state it with \
                 --given memory_mib=..., or ask in bytes: vm.dirty_bytes, vm.dirty_background_bytes"
            )
        })?;
        if !(1.0..=100.0).contains(&percent) {
            return Err(format!("`{percent}` is out of range; allowed: 1 to 100 %"));
        }
        // Whole pages, as the kernel counts them.
        Ok(((self.memory_mib - kept) * percent / 100.0 * 256.0).floor() / 256.0)
    }

    /// Dirty memory up to which writers are not held, MiB.
    pub(super) fn freerun_mib(&self) -> f64 {
        f64::midpoint(self.dirty_mib, self.background_mib)
    }

    fn light(&self) -> usize {
        self.writers
            .iter()
            .filter(|writer| !writer.is_heavy())
            .count()
    }

    /// "2 heavy", "1 heavy and 1 light"; from when they write, if not all at once.
    fn crowd(&self) -> String {
        let (heavy, light) = (self.writers.len() - self.light(), self.light());
        let mut text = format!("{heavy} heavy");
        if light > 0 {
            text.push_str(&format!(" and {light} light"));
        }
        let last = self
            .writers
            .iter()
            .map(|writer| writer.start_s)
            .fold(0.0, f64::max);
        if last > 0.0 {
            text.push_str(&format!(" (the last from {last} s)"));
        }
        text
    }

    /// One line about it.
    #[must_use]
    pub fn summary(&self) -> String {
        let rates: Vec<String> = self.devices.iter().map(|rate| format!("{rate}")).collect();
        let mut text = format!(
            "Linux {}, HZ {}, {} CPU, {} MiB/s, limits {}/{} MiB, ",
            self.kernel,
            self.hz,
            self.cpus,
            rates.join(" + "),
            tenths(self.dirty_mib),
            tenths(self.background_mib)
        );
        text.push_str(&format!("writers: {}", self.crowd()));
        for change in &self.changes {
            text.push_str(&format!(
                ", device {} {} MiB/s from {} s",
                change.device, change.rate, change.at_s
            ));
        }
        if let Some(ratio) = self.max_ratio {
            text.push_str(&format!(", strict limit {ratio} %"));
        }
        text.push_str(&format!(", {} s", self.seconds));
        match &self.fs {
            Some(fs) => text.push_str(&format!(", {fs}")),
            None => text.push_str(", bare device"),
        }
        text
    }
}

/// A whole number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole, not negative and small"
)]
fn index(value: f64) -> Option<usize> {
    ((0.0..=1e6).contains(&value) && value.fract() == 0.0).then_some(value as usize)
}

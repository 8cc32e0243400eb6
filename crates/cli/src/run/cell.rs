//! One cell of the table, resolved: a row and a column of a scenario as numbers that a run needs.
//!
//! Scaling (experiments.md A6) happens here and nowhere else: memory, files and device rates by the
//! scale; times, blocks and HZ not.

use lab::fs::journal;
use policy::dirty::{InitialBandwidth, Threshold, Tunables};
use policy::units::{Bytes, Nanos, Pages};
use policy::writeback::{Flight, FlushTunables};
use workload::{Cp, Dd, LightWriter, Pattern, Reader, SyncAfter};

use crate::presets::{self, Preset};
use crate::scenario::{
    CaseEntry, JournalData, JournalTable, OrderKind, PolicyEntry, Scenario, SyncKind, TaskEntry,
    TaskKind,
};

/// A share of the dirty limit without a bound, in 1/10000.
const WHOLE_RATIO: u32 = 10_000;
/// Size of a journal that a scenario does not give (mke2fs, on devices of 1 to 2 GiB).
const JOURNAL_MIB: f64 = 16.0;
/// Pages of one mebibyte.
const PAGES_PER_MIB: f64 = 256.0;
/// Requests do not shrink below 128 KiB (experiments.md A6).
const REQUEST_LEAST: Pages = Pages(32);
/// Requests in flight, however small the machine: the device is not to run dry.
const FLIGHT_LEAST: u64 = 4;
/// Block of a light writer.
const LIGHT_BLOCK_KIB: f64 = 4.0;
/// Block of all others.
const BLOCK_KIB: f64 = 1024.0;
/// Block of `cp`: coreutils of 2010.
const CP_BLOCK_KIB: f64 = 32.0;

/// A device of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Its name in the scenario.
    pub id: String,
    /// Model.
    pub model: String,
    /// File system.
    pub fs: Option<String>,
    /// Its file system's journal.
    pub journal: Option<journal::Options>,
    /// Wrappers.
    pub wrap: Option<String>,
    /// Rates times this.
    pub rate_factor: f64,
    /// Its rate in bytes a second, before scaling; none: its model's.
    pub rate: Option<u64>,
    /// Changes of that rate, each so long after the run began.
    pub changes: Vec<(Nanos, u64)>,
    /// Parameters that differ from the model's, before scaling.
    pub params: Vec<(String, u64)>,
    /// Its own limits hold even when the global ones are far.
    pub strict: bool,
    /// Upper bound of its share of the dirty limit, in 1/10000.
    pub max_ratio: u32,
}

impl DeviceSpec {
    /// A bare device of a model.
    #[must_use]
    pub fn plain(id: &str, model: &str) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            fs: None,
            journal: None,
            wrap: None,
            rate_factor: 1.0,
            rate: None,
            changes: Vec::new(),
            params: Vec::new(),
            strict: false,
            max_ratio: WHOLE_RATIO,
        }
    }

    /// The rate from the run's beginning on and its changes: (when, bytes a second), on a machine
    /// smaller by `shrink`. Nothing where the rate is the model's own.
    #[must_use]
    pub fn rates(&self, shrink: u64) -> Vec<(Nanos, u64)> {
        let scaled = |rate: u64| times(rate, self.rate_factor) / shrink;
        let Some(rate) = self.rate else {
            return Vec::new();
        };
        let changes = self.changes.iter().map(|(at, rate)| (*at, scaled(*rate)));
        core::iter::once((Nanos::ZERO, scaled(rate)))
            .chain(changes)
            .collect()
    }
}

/// What a job does.
#[derive(Clone, Copy, Debug)]
pub enum JobKind {
    /// Writes a file.
    Dd(Dd),
    /// Copies a file.
    Cp(Cp),
    /// Writes a little on a schedule.
    Light(LightWriter),
    /// Reads a file.
    Read(Reader),
}

impl JobKind {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dd(_) => "dd",
            Self::Cp(_) => "cp",
            Self::Light(_) => "light_writer",
            Self::Read(_) => "reader",
        }
    }
}

/// A job of a cell: one task and its file.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// Name of the scenario's task that it is one of.
    pub entry: String,
    /// What it does.
    pub kind: JobKind,
    /// Index of the device its file is on.
    pub device: usize,
    /// Index of the device that `cp` reads from.
    pub from: Option<usize>,
    /// How long after the beginning it starts.
    pub start_after: Nanos,
    /// Bytes its file will have at most.
    pub file_bytes: Bytes,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Row.
    pub case: String,
    /// Column.
    pub policy: String,
    /// Part of the full size.
    pub scale: f64,
    /// One over it.
    pub shrink: u64,
    /// CPUs.
    pub cpus: u32,
    /// Memory for pages.
    pub memory: Pages,
    /// The law and its limits.
    pub dirty: Tunables,
    /// The flusher.
    pub flush: FlushTunables,
    /// What a device is taken for before anything is known of it.
    pub initial: InitialBandwidth,
    /// Ticks per second.
    pub hz: u32,
    /// Devices.
    pub devices: Vec<DeviceSpec>,
    /// Jobs.
    pub jobs: Vec<JobSpec>,
    /// Time between samples of the levels.
    pub sample: Nanos,
    /// Longest run.
    pub longest: Nanos,
}

/// A column, resolved.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it is made from.
    pub preset: Preset,
    /// `strict` of all devices, if it says so.
    pub strict: Option<bool>,
    /// `max_ratio` of all devices, if it says so, in 1/10000.
    pub max_ratio: Option<u32>,
}

impl Column {
    /// The column of a checked scenario.
    #[must_use]
    pub fn of(entry: &PolicyEntry) -> Self {
        let name = entry.name.get_ref();
        let preset = entry
            .preset
            .as_ref()
            .map_or(name, |preset| preset.get_ref());
        let mut preset = *presets::by_name(preset).expect("a loaded scenario names known presets");
        if let Some(hz) = &entry.hz {
            preset.hz = *hz.get_ref();
        }
        Self {
            name: name.clone(),
            preset,
            strict: entry.strict.as_ref().map(|strict| *strict.get_ref()),
            max_ratio: ratio(entry.max_percent.as_ref()),
        }
    }

    /// A column that is a preset and nothing else.
    #[must_use]
    pub fn plain(preset: &Preset) -> Self {
        Self {
            name: preset.name.to_owned(),
            preset: *preset,
            strict: None,
            max_ratio: None,
        }
    }
}

impl Cell {
    /// Resolves a row and a column of a scenario that was checked.
    #[must_use]
    pub fn resolve(scenario: &Scenario, row: &CaseEntry, column: &Column) -> Self {
        let scale = *scenario.run.scale.get_ref();
        let machine = &scenario.machine;
        let memory = Pages(whole(*machine.memory_mib.get_ref() * PAGES_PER_MIB * scale));
        let limit =
            |mib: Option<&toml::Spanned<f64>>, percent: &Option<toml::Spanned<u8>>, or| match (
                mib, percent,
            ) {
                (Some(mib), _) => Threshold::Pages(
                    Pages(whole(*mib.get_ref() * PAGES_PER_MIB * scale)).at_least(Pages(1)),
                ),
                (None, Some(percent)) => Threshold::Percent(*percent.get_ref()),
                (None, None) => Threshold::Percent(or),
            };
        let cpus = *machine.cpus.get_ref();
        let preset = column.preset;
        let dirty = Tunables {
            law: preset.law,
            hz: preset.hz,
            cpus,
            memory,
            dirty: limit(
                row.dirty_mib.as_ref().or(machine.dirty_mib.as_ref()),
                &machine.dirty_percent,
                20,
            ),
            background: limit(
                row.background_mib
                    .as_ref()
                    .or(machine.background_mib.as_ref()),
                &machine.background_percent,
                10,
            ),
        };
        let mut devices = devices(scenario, row, column);
        let mut jobs = jobs(scenario, row, scale);
        keep_used(&mut devices, &mut jobs);
        Self {
            case: row.name.get_ref().clone(),
            policy: column.name.clone(),
            scale,
            shrink: whole(1.0 / scale),
            cpus,
            memory,
            dirty,
            flush: shrunk(preset.flush, whole(1.0 / scale)),
            initial: preset.initial,
            hz: preset.hz,
            devices,
            jobs,
            sample: millis(*scenario.run.sample_ms.get_ref()),
            longest: seconds(*scenario.run.max_s.get_ref()),
        }
    }

    /// Bytes that all files together need on a device, those that are read included.
    #[must_use]
    pub fn bytes_on_disk(&self) -> Bytes {
        let sources = self.jobs.iter().filter(|job| job.from.is_some());
        let own: Bytes = self.jobs.iter().map(|job| job.file_bytes).sum();
        own + sources.map(|job| job.file_bytes).sum::<Bytes>()
    }
}

/// The flusher of a machine smaller by `shrink`: requests shrink down to 128 KiB, and where they have
/// reached that, their number shrinks instead, so that what is in flight stays the same part of the
/// dirty limit. Slices stay: CPU time is brought back to full size by pages, and so must have as
/// many pages a visit.
fn shrunk(mut flush: FlushTunables, shrink: u64) -> FlushTunables {
    let full = flush.request_max;
    flush.request_max = Pages(full.0 / shrink).at_least(REQUEST_LEAST.at_most(full));
    let fewer = |requests: u32| {
        let pages = u64::from(requests) * full.0 / shrink;
        let requests = (pages / flush.request_max.0).max(FLIGHT_LEAST);
        u32::try_from(requests).unwrap_or(u32::MAX)
    };
    flush.flight = match flush.flight {
        Flight::Requests(requests) => Flight::Requests(fewer(requests)),
        Flight::Throttled(requests) => Flight::Throttled(fewer(requests)),
        Flight::DeviceTime(bound) => Flight::DeviceTime(bound),
    };
    flush
}

/// Leaves out the devices on which no job has a file: a row without their tasks is a machine without
/// them.
fn keep_used(devices: &mut Vec<DeviceSpec>, jobs: &mut [JobSpec]) {
    let used = |at: usize| {
        jobs.iter()
            .any(|job| job.device == at || job.from == Some(at))
    };
    let kept: Vec<bool> = (0..devices.len()).map(used).collect();
    let place = |at: usize| kept[..at].iter().filter(|kept| **kept).count();
    for job in jobs.iter_mut() {
        job.device = place(job.device);
        job.from = job.from.map(place);
    }
    let mut at = 0;
    devices.retain(|_| {
        at += 1;
        kept[at - 1]
    });
}

/// A journal on a machine of this size; a file's times are those of the tick.
fn journal(table: &JournalTable, hz: u32, scale: f64) -> journal::Options {
    let mut options = journal::Options::default();
    let size = table.size_mib.as_ref().map(|size| *size.get_ref());
    let size = whole(size.unwrap_or(JOURNAL_MIB) * PAGES_PER_MIB * scale);
    options.size = Pages(size).at_least(journal::Options::SIZE_MIN);
    if hz > 0 {
        options.tick = Nanos(1_000_000_000 / u64::from(hz));
    }
    if let Some(commit) = &table.commit_ms {
        options.commit = millis(*commit.get_ref());
    }
    if let Some(bio) = &table.bio_mib {
        options.bio = Pages(whole(*bio.get_ref() * PAGES_PER_MIB)).at_least(Pages(1));
    }
    if let Some(data) = &table.data {
        options.data = match data.get_ref() {
            JournalData::Unwritten => journal::Data::Unwritten,
            JournalData::Ordered => journal::Data::Ordered,
            JournalData::Writeback => journal::Data::Writeback,
        };
    }
    options
}

/// 1/10000 of a bound in per cent.
fn ratio(percent: Option<&toml::Spanned<f64>>) -> Option<u32> {
    let ratio = whole(percent?.get_ref() * 100.0);
    Some(u32::try_from(ratio).expect("a per cent is at most 100 by scenario::check"))
}

fn devices(scenario: &Scenario, row: &CaseEntry, column: &Column) -> Vec<DeviceSpec> {
    let text = |value: &Option<toml::Spanned<String>>| value.as_ref().map(|v| v.get_ref().clone());
    let spec = |(index, entry): (usize, &crate::scenario::DeviceEntry)| {
        let first = index == 0;
        let model = text(&row.model).filter(|_| first);
        let fs = text(&row.fs).filter(|_| first);
        let rate = row.rate_mib.as_ref().filter(|_| first);
        let rate = rate.or(entry.rate_mib.as_ref());
        let own_ratio = ratio(entry.max_percent.as_ref());
        let own_strict = entry.strict.as_ref().map(|strict| *strict.get_ref());
        DeviceSpec {
            id: entry.id.get_ref().clone(),
            model: model.unwrap_or_else(|| entry.model.get_ref().clone()),
            fs: fs.or_else(|| text(&entry.fs)),
            journal: entry.journal.as_ref().and_then(|entry| {
                let table = entry.get_ref().table()?;
                Some(journal(
                    &table,
                    column.preset.hz,
                    *scenario.run.scale.get_ref(),
                ))
            }),
            wrap: text(&entry.wrap),
            rate_factor: entry
                .rate_factor
                .as_ref()
                .map_or(1.0, |factor| *factor.get_ref()),
            rate: rate.map(|rate| mib(*rate.get_ref())),
            changes: entry
                .change
                .iter()
                .map(|change| {
                    let at = seconds(*change.at_s.get_ref());
                    (at, mib(*change.rate_mib.get_ref()))
                })
                .collect(),
            strict: column.strict.or(own_strict).unwrap_or(false),
            max_ratio: column.max_ratio.or(own_ratio).unwrap_or(WHOLE_RATIO),
            params: entry
                .params
                .iter()
                .map(|(name, value)| (name.get_ref().clone(), *value.get_ref()))
                .collect(),
        }
    };
    scenario.devices.iter().enumerate().map(spec).collect()
}

fn jobs(scenario: &Scenario, row: &CaseEntry, scale: f64) -> Vec<JobSpec> {
    let mut jobs = Vec::new();
    for (index, task) in scenario.tasks.iter().enumerate() {
        let first = index == 0;
        let chosen = |name: &toml::Spanned<String>| name.get_ref() == task.id.get_ref();
        if !row.tasks.is_empty() && !row.tasks.iter().any(chosen) {
            continue;
        }
        let count = row.count.as_ref().filter(|_| first).or(task.count.as_ref());
        let count = count.map_or(1, |count| *count.get_ref());
        let file = row
            .file_mib
            .as_ref()
            .filter(|_| first)
            .or(task.file_mib.as_ref());
        let file = file.map_or(0.0, |file| *file.get_ref());
        for number in 0..count {
            let mut job = job(scenario, task, file, scale);
            if count > 1 {
                job.name = format!("{}-{number}", job.name);
            }
            jobs.push(job);
        }
    }
    jobs
}

fn job(scenario: &Scenario, task: &TaskEntry, file_mib: f64, scale: f64) -> JobSpec {
    let number = |value: &Option<toml::Spanned<f64>>| value.as_ref().map(|v| *v.get_ref());
    let kind = *task.kind.get_ref();
    let block = number(&task.block_kib).unwrap_or(match kind {
        TaskKind::LightWriter => LIGHT_BLOCK_KIB,
        TaskKind::Cp => CP_BLOCK_KIB,
        TaskKind::Dd | TaskKind::Reader => BLOCK_KIB,
    });
    let block = Bytes(whole(block * 1024.0));
    // Whole sectors, and at least one block, however small the scale.
    let bytes = Bytes(whole(file_mib * scale * 2048.0) * 512).at_least(block);
    let for_at_most = number(&task.run_s).map(seconds);
    let every = number(&task.every_ms).map(millis);
    let kind = match kind {
        TaskKind::Dd => JobKind::Dd(Dd {
            block,
            offset: Bytes::ZERO,
            bytes,
            for_at_most,
            rest: every.unwrap_or(Nanos::ZERO),
            sync: match task.sync.as_ref().map(|sync| *sync.get_ref()) {
                Some(SyncKind::None) | None => SyncAfter::Nothing,
                Some(SyncKind::File) => SyncAfter::File,
                Some(SyncKind::Everything) => SyncAfter::Everything,
            },
        }),
        TaskKind::Cp => JobKind::Cp(Cp {
            block,
            bytes,
            for_at_most,
        }),
        TaskKind::LightWriter => JobKind::Light(LightWriter {
            block,
            every: every.expect("a loaded light writer has its period"),
            lasting: for_at_most.expect("a loaded light writer has its length"),
        }),
        TaskKind::Reader => JobKind::Read(Reader {
            block,
            bytes,
            pattern: match task.order.as_ref().map(|order| *order.get_ref()) {
                Some(OrderKind::Random) => Pattern::Random,
                Some(OrderKind::Sequential) | None => Pattern::Sequential,
            },
            think: every.unwrap_or(Nanos::ZERO),
            for_at_most,
        }),
    };
    let file_bytes = match kind {
        JobKind::Light(light) => {
            Bytes(light.block.0 * (light.lasting.0 / light.every.0.max(1) + 1))
        }
        JobKind::Dd(_) | JobKind::Cp(_) | JobKind::Read(_) => bytes,
    };
    let device = |id: &str| {
        let at = scenario
            .devices
            .iter()
            .position(|device| device.id.get_ref() == id);
        at.expect("a loaded scenario names its own devices")
    };
    JobSpec {
        name: task.id.get_ref().clone(),
        entry: task.id.get_ref().clone(),
        kind,
        device: device(task.device.get_ref()),
        from: task.from.as_ref().map(|from| device(from.get_ref())),
        start_after: number(&task.start_s).map_or(Nanos::ZERO, seconds),
        file_bytes,
    }
}

fn mib(value: f64) -> u64 {
    whole(value * 1_048_576.0)
}

/// A rate times a factor, to the nearest byte.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates are below 2^41 and the factor is 0.01 to 100 by scenario::check"
)]
pub(super) fn times(rate: u64, factor: f64) -> u64 {
    whole(rate as f64 * factor)
}

fn seconds(value: f64) -> Nanos {
    Nanos(whole(value * 1e9))
}

fn millis(value: f64) -> Nanos {
    Nanos(whole(value * 1e6))
}

/// The nearest whole number of a quantity that a check has bounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative and below 2^53 by the ranges of scenario::check"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

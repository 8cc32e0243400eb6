//! What a recording of memory pressure was made of: memory, marks, swap, disks, workers. Read from `scenario.json`,
//! `facts.json` and the first sample of `vmstat.csv`.
//!
//! Invariant: a `Setting` can be run: every worker is of a kind that the lab has, on a device that is there.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::super::fault::Fault;
use super::super::setting::key_place;

/// The kernel of the guests, where the recording does not say it (Debian's).
const HZ: u32 = 250;
/// Workers in a scenario, at most: each is a task of the lab.
const WORKERS_MOST: usize = 256;

/// A disk of the guest.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// MiB/s; zero: without a limit.
    pub rate_mib: f64,
    /// Largest request, KiB.
    pub request_kib: f64,
    /// Requests in its queue at once.
    pub requests: u64,
    /// The largest read-ahead window, KiB.
    pub readahead_kib: f64,
}

/// What a worker does.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Overwrites blocks of a file at random, each once before one comes again.
    Write(Blocks),
    /// Reads blocks of a file at random.
    Read(Blocks),
    /// Writes to each page of its memory, over and over.
    Hog {
        /// How much memory that is.
        region_mib: f64,
    },
    /// Rests, maps memory, writes to each page of it, unmaps it: the latency worker.
    Map {
        /// How much memory that is.
        region_mib: f64,
        /// How long it rests.
        rest_ms: f64,
    },
}

/// Blocks of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// Index of the disk.
    pub disk: usize,
    /// Size of the file.
    pub file_mib: f64,
    /// Size of a block.
    pub block_kib: f64,
}

impl Work {
    /// How the lab calls tasks of the kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Write(_) => "rand_write",
            Self::Read(_) => "rand_read",
            Self::Hog { .. } => "hog",
            Self::Map { .. } => "mapper",
        }
    }
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// When it starts.
    pub start_s: f64,
    /// What it does.
    pub work: Work,
}

/// The circumstances of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Which kernel.
    pub kernel: String,
    /// CPUs.
    pub cpus: u32,
    /// Ticks per second of the kernel.
    pub hz: u32,
    /// Memory of the machine.
    pub memory_mib: f64,
    /// Of that: what programs and files can have. Of what was free when the workers started, all but what small zones keep back.
    pub usable_mib: f64,
    /// What zones keep for emergencies (MIN), but for small ones.
    pub min_free_kib: f64,
    /// `vm.swappiness`.
    pub swappiness: f64,
    /// How long the workers ran.
    pub seconds: f64,
    /// The disks.
    pub disks: Vec<Disk>,
    /// The one that is swapped to, and how large the swap file is, MiB.
    pub swap: Option<(usize, f64)>,
    /// The workers.
    pub workers: Vec<Worker>,
}

#[derive(Deserialize)]
struct File {
    name: String,
    kernel: String,
    cpus: u32,
    hz: Option<u32>,
    page_size: u32,
    memory_mib: f64,
    nodes: u32,
    seconds: f64,
    devices: Vec<FileDisk>,
    swap_device: Option<usize>,
    swap_mib: f64,
    lru_gen: String,
    workers: Vec<Vec<Value>>,
}

#[derive(Deserialize)]
struct FileDisk {
    rate: f64,
    kib: f64,
}

const FORM: &str = "keys: name, kernel, cpus, page_size, memory_mib, nodes, seconds, devices [{rate, kib}, ...], swap_device, \
                    swap_mib, lru_gen, workers [[name, kind, start_ms, ...], ...], as `cargo xtask guest` writes them";
const KINDS: &str = "the lab has randwrite, randread (path, offset_mib, file_mib, block_kib, sleep_ms, seed), hog (mib) and mapper (mib, rest_ms)";

/// What `scenario.json` is read with.
pub(super) struct Sources<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) facts_path: &'a Path,
    pub(super) facts: &'a str,
    /// Pages free, and pages of files, in the first sample.
    pub(super) free_pages: f64,
}

/// A zone, in pages.
#[derive(Deserialize)]
struct Zone {
    managed: f64,
    min: f64,
}

/// What zones below the largest never give to programs and files: their part of MIN, and what they keep back from a task that could have
/// memory elsewhere (`lowmem_reserve_ratio`).
///
/// # Source
/// Linux 6.12 mm/page_alloc.c, setup_per_zone_lowmem_reserve(), __zone_watermark_ok().
struct Small {
    kept_pages: f64,
    min_pages: f64,
}

impl Small {
    fn of(facts: &BTreeMap<String, Value>, path: &Path) -> Result<Self, Fault> {
        let wrong = |what: &str| {
            let title = format!("has no `{what}` that can be read");
            Fault::of(path, title, "`cargo xtask guest` writes it")
        };
        let zones = facts.get("zones_pages").cloned().unwrap_or_default();
        let zones: BTreeMap<String, Zone> =
            serde_json::from_value(zones).map_err(|_| wrong("zones_pages"))?;
        let managed = |zone: &&Zone| zone.managed > 0.0;
        let zones: Vec<&Zone> = zones.values().filter(managed).collect();
        let largest = zones.iter().map(|zone| zone.managed).fold(0.0, f64::max);
        let ratio = facts.get("vm.lowmem_reserve_ratio").and_then(Value::as_str);
        let ratio = ratio.and_then(|ratios| ratios.split_whitespace().next());
        let ratio: Option<f64> = ratio.and_then(|ratio| ratio.parse().ok());
        let ratio = ratio.ok_or_else(|| wrong("vm.lowmem_reserve_ratio"))?;
        let mut small = Self {
            kept_pages: 0.0,
            min_pages: 0.0,
        };
        for zone in zones.iter().filter(|zone| zone.managed < largest) {
            let reserve = if ratio > 0.0 { largest / ratio } else { 0.0 };
            small.kept_pages += (reserve.floor() + zone.min).min(zone.managed);
            small.min_pages += zone.min;
        }
        Ok(small)
    }
}

/// Reads a setting.
///
/// # Errors
/// What is wrong or cannot be run, and where.
pub(super) fn read(sources: &Sources<'_>, notes: &mut Vec<String>) -> Result<Setting, Fault> {
    let Sources { path, text, .. } = *sources;
    let wrong = |key: &str, title: String, help: &str| {
        Fault::of(path, title, help).at(key_place(text, key))
    };
    let file: File = serde_json::from_str(text).map_err(|error| {
        Fault::of(
            path,
            format!("is not the scenario of a recording of memory pressure: {error}"),
            FORM,
        )
    })?;
    let facts: BTreeMap<String, Value> = serde_json::from_str(sources.facts).map_err(|error| {
        let title = format!("is not a table of facts: {error}");
        let help = "`cargo xtask guest` writes it: one object, names to values";
        Fault::of(sources.facts_path, title, help)
    })?;
    let fact = |name: &str| number_of(&facts, name, sources.facts_path);
    if file.nodes != 1 {
        let title = format!("{} nodes: only recordings of one are compared", file.nodes);
        return Err(wrong("nodes", title, "name a recording of one node"));
    }
    if !matches!(file.lru_gen.as_str(), "n" | "0") {
        let title = format!(
            "`lru_gen` is `{}`: the lab has no multi-generational lists",
            file.lru_gen
        );
        return Err(wrong("lru_gen", title, "record with lru_gen off (\"n\")"));
    }
    if file.page_size != 4096 {
        let title = format!("pages of {} bytes", file.page_size);
        return Err(wrong("page_size", title, "the lab has pages of 4096 bytes"));
    }
    if !(1.0..=86_400.0).contains(&file.seconds) {
        let title = format!("`seconds` is out of range: {}", file.seconds);
        return Err(wrong("seconds", title, "allowed: 1 to 86400 s"));
    }
    if file.workers.is_empty() || file.workers.len() > WORKERS_MOST {
        let title = format!("{} workers", file.workers.len());
        return Err(wrong("workers", title, "allowed: 1 to 256 workers"));
    }
    let small = Small::of(&facts, sources.facts_path)?;
    let hz = file.hz.unwrap_or_else(|| {
        notes.push(format!("not in scenario.json, so assumed: hz = {HZ}"));
        HZ
    });
    let mut disks = Vec::new();
    for (index, disk) in file.devices.iter().enumerate() {
        let of = |name: &str| fact(&format!("nullb{index}.queue.{name}"));
        disks.push(Disk {
            rate_mib: disk.rate,
            request_kib: disk.kib,
            requests: whole(of("nr_requests")?),
            readahead_kib: of("read_ahead_kb")?,
        });
    }
    if let Some(swap) = file.swap_device
        && swap >= disks.len()
    {
        let title = format!("swap is on device {swap}, and there are {}", disks.len());
        return Err(wrong("swap_device", title, "counted from 0"));
    }
    let mut workers = Vec::new();
    for worker in &file.workers {
        let read = worker_of(worker, disks.len());
        workers.push(read.map_err(|title| {
            let name = worker.first().and_then(Value::as_str).unwrap_or("workers");
            wrong(name, title, KINDS)
        })?);
    }
    Ok(Setting {
        name: file.name,
        kernel: file.kernel,
        cpus: file.cpus,
        hz,
        memory_mib: file.memory_mib,
        usable_mib: (sources.free_pages - small.kept_pages) / 256.0,
        min_free_kib: fact("vm.min_free_kbytes")? - small.min_pages * 4.0,
        swappiness: fact("vm.swappiness")?,
        seconds: file.seconds,
        disks,
        swap: file.swap_device.map(|swap| (swap, file.swap_mib)),
        workers,
    })
}

/// One worker, as it stands in the file: its name, its kind, when it starts, and what the kind takes.
fn worker_of(fields: &[Value], disks: usize) -> Result<Worker, String> {
    let [Value::String(name), Value::String(kind), start, rest @ ..] = fields else {
        return Err("a worker is not [name, kind, start_ms, ...]".into());
    };
    let number = |value: Option<&Value>, what: &str| {
        let number = value
            .and_then(Value::as_f64)
            .filter(|value| value.is_finite() && *value >= 0.0);
        number.ok_or_else(|| format!("worker `{name}`, `{kind}`: its {what} is not a number"))
    };
    let blocks = || {
        let path = rest.first().and_then(Value::as_str).unwrap_or("");
        let disk = path
            .strip_prefix("/dev/nullb")
            .and_then(|disk| disk.parse().ok());
        let disk = disk.filter(|disk| *disk < disks).ok_or_else(|| {
            format!("worker `{name}`, `{kind}`: `{path}` is none of the bare disks /dev/nullb0 ...")
        })?;
        if number(rest.get(4), "sleep")? > 0.0 {
            return Err(format!(
                "worker `{name}`, `{kind}`: it sleeps, and the lab's do not"
            ));
        }
        Ok(Blocks {
            disk,
            file_mib: number(rest.get(2), "file")?,
            block_kib: number(rest.get(3), "block")?,
        })
    };
    let work = match kind.as_str() {
        "randwrite" => Work::Write(blocks()?),
        "randread" => Work::Read(blocks()?),
        "hog" => Work::Hog {
            region_mib: number(rest.first(), "memory")?,
        },
        "mapper" => Work::Map {
            region_mib: number(rest.first(), "memory")?,
            rest_ms: number(rest.get(1), "rest")?,
        },
        other => return Err(format!("worker `{name}`: no task of the lab is `{other}`")),
    };
    Ok(Worker {
        name: name.clone(),
        start_s: number(Some(start), "start")? / 1e3,
        work,
    })
}

/// A fact that is a number, or the text of one.
fn number_of(facts: &BTreeMap<String, Value>, name: &str, path: &Path) -> Result<f64, Fault> {
    let value = match facts.get(name) {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    value
        .filter(|value: &f64| value.is_finite())
        .ok_or_else(|| {
            Fault::of(
                path,
                format!("has no number `{name}`"),
                "the setting is made from it; record it with `cargo xtask guest`",
            )
        })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped"
)]
fn whole(value: f64) -> u64 {
    value.clamp(0.0, 1e9) as u64
}

impl Setting {
    /// When the last worker starts: from then on there is pressure.
    #[must_use]
    pub fn pressed_from(&self) -> f64 {
        let starts = self.workers.iter().map(|worker| worker.start_s);
        starts.fold(0.0, f64::max)
    }

    /// One line about it.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |kind: &str, name: &str| {
            let of = self.workers.iter().filter(|w| w.work.kind() == kind);
            let count = of.count();
            (count > 0).then(|| format!("{count} {name}{}", if count == 1 { "" } else { "s" }))
        };
        let workers = [
            count("rand_write", "writer"),
            count("rand_read", "reader"),
            count("hog", "hog"),
            count("mapper", "latency worker"),
        ];
        let workers: Vec<String> = workers.into_iter().flatten().collect();
        let rates: Vec<String> = self.disks.iter().map(|d| d.rate_mib.to_string()).collect();
        format!(
            "Linux {}, {} CPU, {:.0} MiB of {} free, disks {} MiB/s, {}, {} s",
            self.kernel,
            self.cpus,
            self.usable_mib,
            self.memory_mib,
            rates.join(" and "),
            workers.join(", "),
            self.seconds
        )
    }
}

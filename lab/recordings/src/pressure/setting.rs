//! The setting of a recording of memory pressure: memory, marks, swap, disks, workers. Read from
//! `scenario.json`, `facts.json` and the first sample of `vmstat.csv`.
//!
//! Invariant: a `Setting` can be run: every worker is of a kind that the lab has, on a device that
//! is there.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use policy::place::NODES_MAX;

use super::super::fault::Fault;
use super::super::setting::key_place;
use super::shapes;
use super::worker::Worker;

const PAGES_PER_MIB: f64 = 256.0;
const KIB_PER_PAGE: f64 = 4.0;
/// Ticks a second of a null_blk's budget.
const TICKS: f64 = 50.0;
/// The kernel of the guests, where the recording does not say it (Debian's).
const HZ: u32 = 250;
/// `vm.watermark_scale_factor` where nobody set another.
pub(super) const SCALE_FACTOR: u32 = 10;
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
    /// Its file system; `None`: the disk itself.
    pub fs: Option<String>,
    /// Its size, if that is told.
    pub mib: Option<f64>,
}

impl Disk {
    /// Blocks in a page of its file system, which was made with nothing said of them: a sector each
    /// under vfat; of ext4 1 KiB below 512 MiB (mke2fs.conf, `small`), and a page above. Those of a
    /// disk are pages (Linux 6.12 block/bdev.c, set_init_blocksize()).
    #[must_use]
    pub fn blocks_a_page(&self) -> u32 {
        match self.fs.as_deref() {
            Some("vfat") => 8,
            Some("ext4") if self.mib.is_some_and(|mib| mib < 512.0) => 4,
            _ => 1,
        }
    }
}

/// A cache of objects of which each small file has one.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectCache {
    /// The role of an object beside its file, as scenarios call it.
    pub role: &'static str,
    /// Its size.
    pub bytes: f64,
    /// Pages of a slab, as a power of two.
    pub order: f64,
    /// Its slabs can be freed.
    pub reclaimable: bool,
}

/// A limit of dirty memory, as it is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// `vm.dirty_ratio`, `vm.dirty_background_ratio`.
    Percent(u32),
    /// `vm.dirty_bytes`, `vm.dirty_background_bytes`.
    Mib(f64),
}

impl Limit {
    /// Its size in a memory of that size, MiB.
    fn mib(self, memory_mib: f64) -> f64 {
        match self {
            Self::Percent(percent) => memory_mib * f64::from(percent) / 100.0,
            Self::Mib(mib) => mib,
        }
    }
}

impl core::fmt::Display for Limit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent} %"),
            Self::Mib(mib) => write!(f, "{mib} MiB"),
        }
    }
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
    /// Memory of the machine, but for what disks keep in it.
    pub memory_mib: f64,
    /// Of that: what programs and files can have. Of what was free when the workers started, all
    /// but what small zones keep back.
    pub usable_mib: f64,
    /// The memory that zones keep for emergencies (MIN), but for small ones.
    pub min_free_kib: f64,
    /// The part of `vm.min_free_kbytes` that small zones keep.
    pub small_zones_kib: f64,
    /// Of the usable memory, that of each node, MiB; empty: there is one.
    pub nodes: Vec<f64>,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim_mode: f64,
    /// The limit that writers are held at.
    pub dirty: Limit,
    /// The limit above which the flusher works.
    pub background: Limit,
    /// `vm.watermark_scale_factor`.
    pub scale_factor: u32,
    /// `vm.watermark_boost_factor`; `None`: it is not told.
    pub boost_factor: Option<f64>,
    /// When a fault tries for a huge page (`transparent_hugepage/enabled`), and how hard
    /// (`defrag`).
    pub thp: (String, String),
    /// The caches of objects of a small file; empty: they are not told.
    pub object_caches: Vec<ObjectCache>,
    /// `vm.swappiness`.
    pub swappiness: f64,
    /// The time that the workers ran.
    pub seconds: f64,
    /// The disks.
    pub disks: Vec<Disk>,
    /// The disk that is swapped to, and how large the swap file is, MiB.
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
    nodes: usize,
    seconds: f64,
    devices: Vec<FileDisk>,
    swap_device: Option<usize>,
    swap_mib: f64,
    lru_gen: String,
    thp: Option<String>,
    thp_defrag: Option<String>,
    workers: Vec<Vec<Value>>,
}

#[derive(Deserialize)]
struct FileDisk {
    rate: f64,
    kib: f64,
    mib: Option<f64>,
    keeps: Option<bool>,
    fs: Option<String>,
}

const FORM: &str = "keys: name, kernel, cpus, page_size, memory_mib, nodes, seconds, devices [{rate, kib}, ...], swap_device, \
                    swap_mib, lru_gen, workers [[name, kind, start_ms, ...], ...], as `cargo instruments guest` writes them";
/// The texts that `scenario.json` is read with.
pub(super) struct Sources<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) facts_path: &'a Path,
    pub(super) facts: &'a str,
    /// Pages free, and pages of files, in the first sample.
    pub(super) free_pages: f64,
    /// The same of each node; empty: there is one.
    pub(super) node_pages: Vec<f64>,
    pub(super) object_caches: Vec<ObjectCache>,
}

/// A zone, in pages.
#[derive(Deserialize)]
struct Zone {
    managed: f64,
    min: f64,
}

/// The memory that zones below the largest never give to programs and files: their part of MIN, and
/// the part they keep back from a task that could have memory elsewhere (`lowmem_reserve_ratio`).
///
/// # Source
/// Linux 6.12 mm/page_alloc.c, setup_per_zone_lowmem_reserve(), __zone_watermark_ok().
struct Small {
    /// Of each node.
    kept_pages: BTreeMap<String, f64>,
    min_pages: f64,
}

impl Small {
    fn of(facts: &BTreeMap<String, Value>, path: &Path) -> Result<Self, Fault> {
        let wrong = |what: &str| {
            let title = format!("has no `{what}` that can be read");
            Fault::of(path, title, "`cargo instruments guest` writes it")
        };
        let zones = facts.get("zones_pages").cloned().unwrap_or_default();
        let zones: BTreeMap<String, Zone> =
            serde_json::from_value(zones).map_err(|_| wrong("zones_pages"))?;
        let ratio = facts.get("vm.lowmem_reserve_ratio").and_then(Value::as_str);
        let ratio = ratio.and_then(|ratios| ratios.split_whitespace().next());
        let ratio: Option<f64> = ratio.and_then(|ratio| ratio.parse().ok());
        let ratio = ratio.ok_or_else(|| wrong("vm.lowmem_reserve_ratio"))?;
        let mut small = Self {
            kept_pages: BTreeMap::new(),
            min_pages: 0.0,
        };
        let node = |name: &str| name.split('.').next().unwrap_or("").to_owned();
        for (name, zone) in zones.iter().filter(|(_, zone)| zone.managed > 0.0) {
            let own = zones.iter().filter(|(other, _)| node(other) == node(name));
            let largest = own.map(|(_, zone)| zone.managed).fold(0.0, f64::max);
            let kept = small.kept_pages.entry(node(name)).or_default();
            if zone.managed >= largest {
                continue;
            }
            let reserve = if ratio > 0.0 { largest / ratio } else { 0.0 };
            *kept += (reserve.floor() + zone.min).min(zone.managed);
            small.min_pages += zone.min;
        }
        Ok(small)
    }

    fn kept(&self) -> f64 {
        self.kept_pages.values().sum()
    }
}

/// Number of nodes of the scenario of that text, if there are several; a text that is none has
/// none.
pub(super) fn nodes(text: &str) -> usize {
    let file: Option<Value> = serde_json::from_str(text).ok();
    let nodes = file.as_ref().and_then(|file| file.get("nodes")?.as_u64());
    let nodes = nodes.and_then(|nodes| usize::try_from(nodes).ok());
    nodes
        .filter(|nodes| (2..=NODES_MAX).contains(nodes))
        .unwrap_or(0)
}

/// Reads a setting.
///
/// # Errors
/// The setting that is wrong or cannot be run, and where.
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
        let help = "`cargo instruments guest` writes it: one object, names to values";
        Fault::of(sources.facts_path, title, help)
    })?;
    let fact = |name: &str| number_of(&facts, name, sources.facts_path);
    if !(1..=NODES_MAX).contains(&file.nodes) {
        let title = format!("{} nodes", file.nodes);
        let help = format!("allowed: 1 to {NODES_MAX} nodes");
        return Err(wrong("nodes", title, &help));
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
            fs: disk.fs.clone(),
            mib: disk.mib,
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
        let read = Worker::read(worker, disks.len());
        workers.push(read.map_err(|(title, help)| {
            let name = worker.first().and_then(Value::as_str).unwrap_or("workers");
            wrong(name, title, &help)
        })?);
    }
    // A disk's kept content is there before the run and never moves.
    let kept = file.devices.iter().filter(|disk| disk.keeps == Some(true));
    let kept: f64 = kept.filter_map(|disk| disk.mib).sum();
    let nodes = sources
        .node_pages
        .iter()
        .enumerate()
        .map(|(number, pages)| {
            let kept = small.kept_pages.get(&format!("node{number}"));
            (pages - kept.unwrap_or(&0.0)) / PAGES_PER_MIB
        });
    let is_there = |name: &str| fact(name).ok();
    // Of ratio and bytes, the one that is not zero is in force.
    let limit = |name: &str, or: u32| {
        let bytes = is_there(&format!("vm.{name}_bytes")).filter(|bytes| *bytes > 0.0);
        let percent = is_there(&format!("vm.{name}_ratio")).filter(|percent| *percent > 0.0);
        match (bytes, percent) {
            (Some(bytes), _) => Limit::Mib(bytes / 1_048_576.0),
            (None, Some(percent)) => Limit::Percent(tunable(percent)),
            (None, None) => Limit::Percent(or),
        }
    };
    Ok(Setting {
        name: file.name,
        kernel: file.kernel,
        cpus: file.cpus,
        hz,
        memory_mib: file.memory_mib - kept,
        usable_mib: (sources.free_pages - small.kept()) / PAGES_PER_MIB,
        min_free_kib: fact("vm.min_free_kbytes")? - small.min_pages * KIB_PER_PAGE,
        small_zones_kib: small.min_pages * KIB_PER_PAGE,
        nodes: nodes.collect(),
        zone_reclaim_mode: is_there("vm.zone_reclaim_mode").unwrap_or(0.0),
        dirty: limit("dirty", 20),
        background: limit("dirty_background", 10),
        scale_factor: is_there("vm.watermark_scale_factor").map_or(SCALE_FACTOR, tunable),
        boost_factor: is_there("vm.watermark_boost_factor"),
        thp: (
            file.thp.unwrap_or_else(|| "never".into()),
            file.thp_defrag.unwrap_or_else(|| "madvise".into()),
        ),
        object_caches: sources.object_caches.clone(),
        swappiness: fact("vm.swappiness")?,
        seconds: file.seconds,
        disks,
        swap: file.swap_device.map(|swap| (swap, file.swap_mib)),
        workers,
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
                "the setting is made from it; record it with `cargo instruments guest`",
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

/// A tunable that is a small whole number.
fn tunable(value: f64) -> u32 {
    u32::try_from(whole(value)).unwrap_or(u32::MAX)
}

impl Setting {
    /// As the kernel does with a background limit that is not below the other.
    ///
    /// # Source
    /// Linux 6.12 mm/page-writeback.c, domain_dirty_limits().
    pub(super) fn settle_limits(&mut self) {
        let dirty = self.dirty.mib(self.usable_mib);
        if self.background.mib(self.usable_mib) >= dirty {
            self.background = Limit::Mib(dirty / 2.0);
        }
    }

    /// When the last worker starts: from then on there is pressure.
    #[must_use]
    pub fn pressed_from(&self) -> f64 {
        let starts = self.workers.iter().map(|worker| worker.start_s);
        starts.fold(0.0, f64::max)
    }

    /// Another size of the memory: what programs and files can have grows or shrinks by the
    /// difference, in each node alike.
    pub(super) fn set_memory(&mut self, mib: f64) {
        let more = mib - self.memory_mib;
        self.memory_mib = mib;
        self.usable_mib += more;
        let each = more / f64::from(u32::try_from(self.nodes.len().max(1)).unwrap_or(u32::MAX));
        for node in &mut self.nodes {
            *node += each;
        }
    }

    /// Checks that it can be run.
    ///
    /// # Errors
    /// The value that is wrong, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: f64, low: f64, high: f64, unit: &str| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!(
                "{what} is out of range: {value}; allowed: {low} to {high}{unit}"
            ))
        };
        within("seconds", self.seconds, 1.0, 86_400.0, " s")?;
        let reserved = self.memory_mib - self.usable_mib;
        // The kernel's own memory is at most half of it.
        within(
            "memory_mib",
            self.memory_mib,
            2.0 * reserved,
            1_048_576.0,
            " MiB",
        )?;
        within(
            "vm.min_free_kbytes",
            self.min_free_kib,
            64.0,
            self.usable_mib * 256.0,
            " KiB",
        )?;
        for (number, disk) in self
            .disks
            .iter()
            .enumerate()
            .filter(|(_, disk)| disk.rate_mib > 0.0)
        {
            // A request that the budget of a tick does not hold never goes out.
            let least = disk.request_kib * TICKS / 1024.0;
            within(
                &format!("device.{number}.rate"),
                disk.rate_mib,
                least,
                100_000.0,
                " MiB/s",
            )?;
        }
        if self.workers.is_empty() {
            return Err("nobody is left to work; allowed: 1 worker and more".into());
        }
        let last = self.pressed_from();
        if last >= self.seconds {
            return Err(format!(
                "a worker begins at {last} s; allowed: seconds above that, not {}",
                self.seconds
            ));
        }
        Ok(())
    }

    /// In what it differs from another setting, in words, one per kind of setting.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let mut differ = |what: &str, one: String, other: String| {
            if one != other {
                all.push(format!("{what} {one} -> {other}"));
            }
        };
        let number = |value: f64| format!("{value:.0}");
        differ("memory", number(self.memory_mib), number(other.memory_mib));
        let kept = |setting: &Self| number(setting.min_free_kib + setting.small_zones_kib);
        differ("vm.min_free_kbytes", kept(self), kept(other));
        differ(
            "vm.swappiness",
            number(self.swappiness),
            number(other.swappiness),
        );
        let limits = |setting: &Self| format!("{}, {}", setting.dirty, setting.background);
        differ("dirty limits", limits(self), limits(other));
        let scale = |setting: &Self| setting.scale_factor.to_string();
        differ("vm.watermark_scale_factor", scale(self), scale(other));
        let mode = |setting: &Self| number(setting.zone_reclaim_mode);
        differ("vm.zone_reclaim_mode", mode(self), mode(other));
        let boost = |setting: &Self| number(setting.boost_factor.unwrap_or_default());
        if self.boost_factor.is_some() && other.boost_factor.is_some() {
            differ("vm.watermark_boost_factor", boost(self), boost(other));
        }
        differ("huge pages", self.thp.0.clone(), other.thp.0.clone());
        if self.thp.0 != "never" {
            differ("defrag", self.thp.1.clone(), other.thp.1.clone());
        }
        let rates = |setting: &Self| {
            let used = setting.disks.iter().enumerate();
            let used = used.filter(|(number, _)| setting.is_used(*number));
            let rates: Vec<String> = used.map(|(_, disk)| disk.rate_mib.to_string()).collect();
            format!("{} MiB/s", rates.join(" + "))
        };
        let disks = |setting: &Self| {
            let used = (0..setting.disks.len()).filter(|number| setting.is_used(*number));
            used.collect::<Vec<_>>()
        };
        if disks(self) == disks(other) {
            differ("disks", rates(self), rates(other));
        }
        let fs = |setting: &Self| {
            let fs = setting.disks.iter().filter_map(|disk| disk.fs.clone());
            fs.collect::<Vec<_>>().join(" + ")
        };
        differ("file system", fs(self), fs(other));
        for work in shapes::works() {
            let of = |setting: &Self| {
                let own = setting.workers.iter().filter(|worker| worker.work == work);
                own.cloned().collect::<Vec<_>>()
            };
            let (one, two) = (of(self), of(other));
            let counts = [&one, &two].map(|workers| workers.len().to_string());
            // Many hogs each touch less.
            let alike =
                one.iter().zip(&two).all(|(one, two)| one.is_like(two)) || work.name == "hog";
            let [before, after] = counts;
            differ(&format!("{}s", work.called), before, after);
            if !alike {
                differ(
                    &format!("{}s", work.called),
                    "as they are".into(),
                    "others".into(),
                );
            }
        }
        let touched = |setting: &Self| {
            let hogs = setting
                .workers
                .iter()
                .filter(|worker| worker.work.name == "hog");
            hogs.map(|worker| worker.number("memory")).sum::<f64>()
        };
        let (before, after) = (touched(self), touched(other));
        // Where several share it, some MiB are left over.
        if before > 0.0 && after > 0.0 && (before / after - 1.0).abs() > 0.02 {
            differ("MiB that hogs touch", number(before), number(after));
        }
        let machine = |setting: &Self| {
            format!(
                "{} CPU, {} Hz, {} nodes",
                setting.cpus,
                setting.hz,
                setting.nodes.len().max(1)
            )
        };
        differ("machine", machine(self), machine(other));
        differ("seconds", number(self.seconds), number(other.seconds));
        all
    }

    /// The first disk that somebody reads from what was written before.
    pub(super) fn read_later(&self) -> Option<usize> {
        let mut reads = self
            .workers
            .iter()
            .filter(|worker| worker.work.task == "passes");
        reads
            .find(|worker| worker.word("passes").contains('r'))?
            .disk
    }

    /// True if somebody uses a disk.
    #[must_use]
    pub fn is_used(&self, disk: usize) -> bool {
        let swapped = self.swap.is_some_and(|(swap, _)| swap == disk);
        swapped || self.workers.iter().any(|worker| worker.disk == Some(disk))
    }

    /// One line about it.
    #[must_use]
    pub fn summary(&self) -> String {
        let workers = shapes::works().filter_map(|work| {
            let of = self.workers.iter().filter(|worker| worker.work == work);
            let count = of.count();
            let s = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {}{s}", work.called))
        });
        let workers: Vec<String> = workers.collect();
        let nodes = match self.nodes.len() {
            0 => String::new(),
            count => format!(" on {count} nodes"),
        };
        let rates: Vec<String> = self.disks.iter().map(|d| d.rate_mib.to_string()).collect();
        format!(
            "Linux {}, {} CPU, {:.0} MiB of {} free{nodes}, disks {} MiB/s, {}, {} s",
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

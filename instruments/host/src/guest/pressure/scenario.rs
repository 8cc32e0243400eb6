//! `scenario.toml` of a recording: the run of the lab beside it. The memory that programs and files
//! can have, marks and disks are worked out here, once, from the guest's own words.
//!
//! Invariant: `tidegate run` takes the text, and nothing of the outcome is in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::scenarios::{Disk, Fs, Scenario, Worker};
use crate::Result;
use crate::guest::record::head;

const PAGES_PER_MIB: f64 = 256.0;
const KIB_PER_PAGE: f64 = 4.0;
/// `vm.watermark_scale_factor` where nobody set another.
const SCALE_FACTOR: f64 = 10.0;

/// Objects that a file of ext4 has in memory, by their names in `slabinfo`, with the part of each.
///
/// An entry and an inode each. Beside them a buffer head, which here goes with the inode and in the
/// kernel with the page.
const OF_EXT4: [(&str, &str); 3] = [
    ("dentry", "entry"),
    ("ext4_inode_cache", "inode"),
    ("buffer_head", "beside"),
];
/// The other objects of a file, in caches that `slabinfo` does not list by name or that others
/// share: sizes measured in `r3-calm`, where each file leaves 155 bytes of slabs that cannot be
/// freed, and 97 that can beside those above. Their kinds are not known (the extent's status has
/// 40).
const BESIDE: [(f64, bool); 2] = [(155.0, false), (97.0, true)];

/// The kinds of workers: of the guest, of the lab, and the name of one.
const KINDS: [(&str, &str, &str); 8] = [
    ("randwrite", "rand_write", "writer"),
    ("randread", "rand_read", "reader"),
    ("hog", "hog", "hog"),
    ("mapper", "mapper", "latency worker"),
    ("seq", "passes", "sequential worker"),
    ("mapwrite", "mapped_writer", "mapped writer"),
    ("fsmark", "make_small", "file maker"),
    ("alloc", "alloc", "allocator"),
];

/// The words of a guest about itself, and its first samples.
pub(super) struct Told<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) hz: u32,
    pub(super) facts: &'a Value,
    /// Tables by the names of their files.
    pub(super) tables: &'a BTreeMap<String, String>,
}

impl Told<'_> {
    /// A fact that is a number, or the text of one.
    fn fact(&self, name: &str) -> Result<f64> {
        let fact = &self.facts[name];
        let text = fact
            .as_str()
            .and_then(|text| text.split_whitespace().next());
        let number = fact.as_f64().or_else(|| text?.parse().ok());
        number.ok_or_else(|| format!("the guest says no number for '{name}'"))
    }

    /// A column of the first row of a table in which another column has this value.
    fn first(&self, table: &str, of: Option<(&str, &str)>, column: &str) -> Result<f64> {
        let missing = || format!("{table} has no {column} to begin with");
        let mut lines = self.tables.get(table).ok_or_else(missing)?.lines();
        let names: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
        let at = |name: &str| names.iter().position(|own| *own == name);
        let mut rows = lines.map(|line| line.split(',').collect::<Vec<_>>());
        let row = rows.find(|row| match of {
            None => true,
            Some((name, value)) => at(name).is_some_and(|at| row[at] == value),
        });
        let value = row.and_then(|row| row.get(at(column)?)?.parse().ok());
        value.ok_or_else(missing)
    }

    /// Pages that are free or of files, which can go, in the first sample.
    fn free(&self, table: &str) -> Result<f64> {
        let names = ["nr_free_pages", "nr_inactive_file", "nr_active_file"];
        names.iter().map(|name| self.first(table, None, name)).sum()
    }

    /// The text.
    ///
    /// # Errors
    /// The guest left out what the text is made from.
    pub(super) fn text(&self) -> Result<String> {
        let Self { scenario, hz, .. } = *self;
        let small = Small::of(self)?;
        let usable = (self.free("vmstat.csv")? - small.kept()) / PAGES_PER_MIB;
        let memory = f64::from(scenario.memory_mib() - scenario.kept_mib());
        let seconds = scenario.seconds;
        let kernel = self.facts["kernel"].as_str().unwrap_or_default();
        let crew = crew(scenario);
        let title = format!("Linux {kernel}, 1 CPU, {usable:.0} MiB of {memory} free{crew}");
        let mut text = head(&scenario.name, &title, seconds);
        let _ = writeln!(
            text,
            "memory_mib = {memory}\nreserved_percent = {}\nmin_free_kib = {}\nswappiness = {}\npreempt_hz = {hz}",
            100.0 * (1.0 - usable / memory),
            self.fact("vm.min_free_kbytes")? - small.min_pages * KIB_PER_PAGE,
            self.fact("vm.swappiness")?,
        );
        self.machine(&mut text, &small, memory)?;
        for (number, disk) in scenario.disks.iter().enumerate() {
            self.device(&mut text, number, disk)?;
        }
        for worker in scenario.workers() {
            task(&mut text, &worker, seconds);
        }
        let column = match scenario.lru_gen.as_str() {
            "n" => "linux-6.12",
            "1" => "linux-6.12-mglru",
            _ => "linux-6.12-mglru-walks",
        };
        let _ = write!(text, "\n[[column]]\nname = \"{column}\"\nhz = {hz}\n");
        if self
            .fact("vm.zone_reclaim_mode")
            .is_ok_and(|mode| mode > 0.0)
        {
            text.push_str("place = \"linux-6.12-mode1\"\n");
        }
        if let Ok(boost) = self.fact("vm.watermark_boost_factor") {
            // Pages lie apart from objects, and from what is kept of them.
            let _ = writeln!(text, "keeps_apart = true\nboost_factor = {boost}");
        }
        let part = self.fact("vm.percpu_pagelist_high_fraction");
        if let Ok(part @ 1.0..) = part {
            let _ = writeln!(text, "cpu_lists_part = {part}");
        }
        if scenario.thp == "always" {
            let _ = writeln!(text, "defrag = \"{}\"", scenario.thp_defrag);
        }
        text.push_str("\n[[column]]\nname = \"tidegate\"\n");
        Ok(text)
    }

    fn machine(&self, text: &mut String, small: &Small, memory: f64) -> Result<()> {
        let scenario = self.scenario;
        for (name, key, or) in [
            ("dirty", "dirty", 20.0),
            ("background", "dirty_background", 10.0),
        ] {
            // Ratio or bytes: the other of the two is zero.
            let is = |unit: &str| {
                let value = self.fact(&format!("vm.{key}_{unit}"));
                value.ok().filter(|value| *value > 0.0)
            };
            let _ = match is("bytes") {
                Some(bytes) => writeln!(text, "{name}_mib = {}", bytes / 1_048_576.0),
                None => writeln!(text, "{name}_percent = {}", is("ratio").unwrap_or(or)),
            };
        }
        let factor = self.fact("vm.watermark_scale_factor");
        if let Some(factor) = factor.ok().filter(|factor| *factor != SCALE_FACTOR) {
            let _ = writeln!(text, "watermark_scale_factor = {factor}");
        }
        let workers = scenario.workers();
        let found = workers.iter().find(|worker| finds_its_file(worker));
        let later = || workers.iter().find(|worker| passes(worker).contains('r'));
        if let Some(disk) = found.or_else(later).and_then(disk_of) {
            // The kernel's: the lab's own is deeper.
            let kib = self.fact(&format!("nullb{disk}.queue.read_ahead_kb"))?;
            let _ = writeln!(text, "readahead_kib = {kib}");
        }
        if let Some(disk) = scenario.swap {
            let mib = scenario.disks[disk].mib;
            let _ = writeln!(text, "swap = {{ device = \"disk-{disk}\", mib = {mib} }}");
        }
        let caches = self.caches()?;
        if scenario.disks.iter().any(|disk| disk.fs != Fs::Bare) {
            let files = if caches.is_empty() { "" } else { "-files" };
            let _ = writeln!(text, "costs = \"guest{files}\"");
        }
        if scenario.thp == "always" {
            text.push_str("thp = true\n");
        }
        if scenario.nodes > 1 {
            // Shares of what the programs can have; the CPU is on the first.
            let free = |number: u32| {
                let pages = self.free(&format!("node{number}.csv"))?;
                let kept = small.kept_pages.get(&format!("node{number}"));
                Ok((pages - kept.unwrap_or(&0.0)) / PAGES_PER_MIB)
            };
            let nodes: Vec<f64> = (0..scenario.nodes).map(free).collect::<Result<_>>()?;
            let whole: f64 = nodes.iter().sum();
            let node = |mib: &f64| format!("{{ mib = {:?}, cpus = 1 }}", mib / whole * memory);
            let nodes: Vec<String> = nodes.iter().map(node).collect();
            let _ = writeln!(text, "node = [{}]", nodes.join(", "));
        }
        if self.fact("vm.watermark_boost_factor").is_ok() && caches.is_empty() {
            // Else heads are among the caches of objects.
            text.push_str("overhead = true\n");
        }
        if !caches.is_empty() {
            let _ = writeln!(text, "object_cache = [{}]", caches.join(", "));
        }
        Ok(())
    }

    /// The caches of objects of a small file, where they were sampled.
    fn caches(&self) -> Result<Vec<String>> {
        if !self.scenario.slabs {
            return Ok(Vec::new());
        }
        let cache = |role: &str, bytes: f64, order: f64, reclaimable: bool| {
            format!(
                "{{ role = \"{role}\", bytes = {bytes}, order = {order}, reclaimable = {reclaimable} }}"
            )
        };
        let of = |(name, role): (&str, &str)| {
            let first = |column| self.first("slabinfo.csv", Some(("cache", name)), column);
            Ok(cache(
                role,
                first("objsize")?,
                first("pagesperslab")?.log2(),
                true,
            ))
        };
        let mut all: Vec<String> = OF_EXT4.into_iter().map(of).collect::<Result<_>>()?;
        all.extend(BESIDE.map(|(bytes, reclaimable)| cache("beside", bytes, 0.0, reclaimable)));
        Ok(all)
    }

    /// A disk that somebody uses.
    fn device(&self, text: &mut String, number: usize, disk: &Disk) -> Result<()> {
        let workers = self.scenario.workers();
        let own = || {
            workers
                .iter()
                .filter(|worker| disk_of(worker) == Some(number))
        };
        if self.scenario.swap != Some(number) && own().next().is_none() {
            return Ok(());
        }
        // Blocks in a page of a file system that was made with nothing said of them: a sector each
        // under vfat; of ext4 1 KiB below 512 MiB (mke2fs.conf, `small`), and a page above.
        let (fs, blocks) = match disk.fs {
            Fs::Bare => ("bare", 1),
            Fs::Vfat => ("vfat", 8),
            Fs::Ext4 if disk.mib < 512 => ("ext4", 4),
            Fs::Ext4 => ("ext4", 1),
        };
        let requests = self.fact(&format!("nullb{number}.queue.nr_requests"))?;
        let _ = write!(
            text,
            "\n[[device]]\nid = \"disk-{number}\"\nmodel = \"null_blk\"\nfs = \"{fs}\"\nrate_mib = {}\n\
             params = {{ request_max_bytes = {}, queue_depth = {requests} }}\n",
            disk.rate.unwrap_or(0),
            disk.kib * 1024,
        );
        if blocks > 1 {
            let _ = writeln!(text, "blocks_a_page = {blocks}");
        }
        if own().any(finds_its_file) {
            // A file that is read was there before and lies somewhere: it takes the disk's time.
            text.push_str("placed_files = true\n");
        }
        Ok(())
    }
}

/// Nodes, disks, workers and time, in words.
fn crew(scenario: &Scenario) -> String {
    let nodes = match scenario.nodes {
        1 => String::new(),
        count => format!(" on {count} nodes"),
    };
    let disks = scenario.disks.iter();
    let disks: Vec<String> = disks
        .map(|disk| disk.rate.unwrap_or(0).to_string())
        .collect();
    let workers = scenario.workers();
    let kinds = KINDS.iter().filter_map(|(kind, _, called)| {
        let count = workers.iter().filter(|worker| worker.kind == *kind).count();
        let s = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {called}{s}"))
    });
    let kinds: Vec<String> = kinds.collect();
    format!(
        "{nodes}, disks {} MiB/s, {}, {} s",
        disks.join(" and "),
        kinds.join(", "),
        scenario.seconds
    )
}

/// The passes of a sequential worker.
fn passes(worker: &Worker) -> &str {
    let passes = worker.arguments.get(4).filter(|_| worker.kind == "seq");
    passes.and_then(Value::as_str).unwrap_or("")
}

/// True of a worker that finds its file with its content.
fn finds_its_file(worker: &Worker) -> bool {
    matches!(worker.kind, "randread" | "mapwrite") || passes(worker).starts_with('r')
}

/// The disk that a worker's first argument is on.
fn disk_of(worker: &Worker) -> Option<usize> {
    let path = worker.arguments.first()?.as_str()?;
    let mounted = path
        .strip_prefix("/mnt/")
        .map(|rest| rest.split('/').next().unwrap_or(""));
    path.strip_prefix("/dev/nullb").or(mounted)?.parse().ok()
}

/// A worker as a task of the lab.
fn task(text: &mut String, worker: &Worker, seconds: u32) {
    let kind = KINDS.iter().find(|(kind, ..)| *kind == worker.kind);
    let (_, kind, _) = kind.expect("every kind of worker is in the list");
    let start = f64::from(worker.start_ms) / 1e3;
    let _ = write!(
        text,
        "\n[[task]]\nid = \"{}\"\nkind = \"{kind}\"\nstart_s = {start:?}\nrun_s = {:?}\n",
        worker.name,
        f64::from(seconds) - start,
    );
    if let Some(disk) = disk_of(worker) {
        let _ = writeln!(text, "device = \"disk-{disk}\"");
    }
    let number = |at: usize| worker.arguments[at].as_f64().unwrap_or(0.0);
    let _ = match worker.kind {
        "randwrite" | "randread" => {
            writeln!(
                text,
                "files = 1\nfile_mib = {}\nblock_kib = {}",
                number(2),
                number(3)
            )
        }
        "hog" => writeln!(text, "region_mib = {}", number(0)),
        "mapper" => writeln!(text, "region_mib = {}\nevery_ms = {}", number(0), number(1)),
        "mapwrite" => {
            writeln!(
                text,
                "file_mib = {}\nblock_kib = 1024\nfound = true",
                number(1)
            )
        }
        "fsmark" => {
            let (kib, batch, most) = (number(1) / 1024.0, number(3), number(4));
            let loops = (most / batch).ceil();
            writeln!(
                text,
                "file_kib = {kib}\nfiles_per_loop = {batch}\nloops = {loops}"
            )
        }
        "alloc" => {
            let [memory, below, rounds] = [0, 1, 2].map(number);
            writeln!(
                text,
                "region_mib = {memory}\nbelow_mib = {below}\nloops = {rounds}"
            )
        }
        _ => {
            let (file, block, passes) = (number(2), number(3), passes(worker));
            let _ = writeln!(
                text,
                "file_mib = {file}\nblock_kib = {block}\npasses = \"{passes}\""
            );
            let loops = Some(number(5)).filter(|loops| *loops > 0.0);
            loops.map_or(Ok(()), |loops| writeln!(text, "loops = {loops}"))
        }
    };
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
    fn of(told: &Told<'_>) -> Result<Self> {
        let ratio = told.fact("vm.lowmem_reserve_ratio")?;
        let zones = told.facts["zones_pages"].as_object();
        let zones = zones.ok_or("the guest says nothing of its zones")?;
        let pages = |zone: &Value, name: &str| zone[name].as_f64().unwrap_or(0.0);
        let node = |name: &str| name.split('.').next().unwrap_or("").to_owned();
        let mut small = Self {
            kept_pages: BTreeMap::new(),
            min_pages: 0.0,
        };
        for (name, zone) in zones {
            let (managed, min) = (pages(zone, "managed"), pages(zone, "min"));
            let own = zones.iter().filter(|(other, _)| node(other) == node(name));
            let largest = own
                .map(|(_, zone)| pages(zone, "managed"))
                .fold(0.0, f64::max);
            let kept = small.kept_pages.entry(node(name)).or_default();
            if managed == 0.0 || managed >= largest {
                continue;
            }
            let reserve = if ratio > 0.0 { largest / ratio } else { 0.0 };
            *kept += (reserve.floor() + min).min(managed);
            small.min_pages += min;
        }
        Ok(small)
    }

    fn kept(&self) -> f64 {
        self.kept_pages.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenarios::all;
    use super::*;
    use crate::guest::record::recorded;

    /// Of each recording that is checked in, the text that it has.
    #[test]
    fn a_recording_gets_the_scenario_that_it_has() {
        let mut seen = 0;
        for (name, file) in recorded(|name| name.starts_with('r') && !name.starts_with("rate")) {
            let mut words = name.split('+');
            let first = words.next().unwrap_or_default();
            let scenario = all().into_iter().find(|one| one.name == first);
            let mut scenario = scenario.unwrap_or_else(|| panic!("there is no {first}"));
            for setting in words {
                scenario.set(setting).unwrap();
            }
            let facts: Value = serde_json::from_str(&file("facts.json").unwrap()).unwrap();
            let tables = ["vmstat.csv", "node0.csv", "node1.csv", "slabinfo.csv"];
            let tables = tables
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), file(name)?)));
            let told = Told {
                scenario: &scenario,
                hz: 250,
                facts: &facts,
                tables: &tables.collect(),
            };
            assert_eq!(
                told.text().unwrap(),
                file("scenario.toml").unwrap(),
                "{name}"
            );
            seen += 1;
        }
        assert_eq!(seen, 26);
    }
}

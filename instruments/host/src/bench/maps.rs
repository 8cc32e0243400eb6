//! `cargo instruments bench maps`: a file that is larger than the memory for it, through a map of
//! ours, our calls, the kernel's map in a memory cgroup of the same size, and umap, by turns.
//!
//! | part | figures |
//! |---|---|
//! | `load`, `store` | a word of random pages: p50, p99, CPU time of the process |
//! | `scan`, `fill` | loads of pages, and a store to each, in order |
//! | `hot` | hits of a hot set, half of the memory, beside a scan of the rest |
//! | `beside`, `beside-in-order` | stalls beside a storer that does not rest, on a device that writes 16 MB/s |
//!
//! The device is a loop device on a file in memory, so that its own time is small; its writes are
//! made slow by the block layer's throttle. Both need root; elsewhere the file is one of `--dir`,
//! and the parts that need the device are left out. The CPU time of the kernel's writeback is not
//! its process's, ours is. Figures are printed, not judged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::chain::{self, is_root};
use super::fio::median;
use super::undo::{Deed, Undo};
use super::{circumstances, worker};
use crate::steps;
use crate::workspace::Workspace;
use crate::{Arguments, Result, at};

/// Rounds of all ways by turns, whose medians are shown.
const ROUNDS: usize = 5;
/// Bytes a second that the slow device writes.
const SLOW: u64 = 16_000_000;
const PAGE: usize = 4096;
const SIGKILL: i32 = 9;
/// Cgroups that bound memory and slow devices down, of version 1 and of version 2.
const MEMORY_V1: &str = "/sys/fs/cgroup/memory";
const BLKIO_V1: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
const V2: &str = "/sys/fs/cgroup";

/// The ways of the worker, and their titles.
const WAYS: [(&str, &str); 6] = [
    ("map", "map"),
    ("reuse", "map, rule `reuse`"),
    ("calls", "calls"),
    ("kernel", "kernel"),
    ("random", "kernel, MADV_RANDOM"),
    ("umap", "umap"),
];

/// A part of the bench: its ways, and figures with what is wanted of a map of ours.
struct Part {
    name: &'static str,
    ways: &'static [&'static str],
    figures: &'static [(&'static str, &'static str, &'static str)],
    is_slow: bool,
}

const ALL: &[&str] = &["map", "calls", "kernel", "random", "umap"];
const STALLS: &[(&str, &str, &str)] = &[
    ("longest_ms", "longest stall of anybody, ms", "<= 100"),
    ("heavy_max_ms", "of the heavy storer", ""),
    ("hot_max_ms", "of a reader of 8 MiB", ""),
    ("light_max_ms", "of a light storer", ""),
    ("cold_max_ms", "of a reader of all", ""),
    ("light_p99_us", "light storer p99, us", "<= 5000"),
    ("heavy_mb_s", "heavy storer, MB/s", ""),
    ("resident_mib", "resident at most, MiB", "<= limit"),
];

const PARTS: &[Part] = &[
    Part {
        name: "load",
        ways: ALL,
        figures: &[
            ("p50_us", "random load p50, us", "<= 15"),
            ("p99_us", "p99, us", ""),
            ("cpu_us", "CPU time, us", "<= 14"),
            ("resident_mib", "resident at most, MiB", "<= limit"),
            ("peak_mib", "peak of the process's group, MiB", ""),
        ],
        is_slow: false,
    },
    Part {
        name: "store",
        ways: ALL,
        figures: &[
            ("p50_us", "random store p50, us", ""),
            ("p99_us", "p99, us", ""),
            ("cpu_us", "CPU time, us", ""),
            ("resident_mib", "resident at most, MiB", "<= limit"),
            ("peak_mib", "peak of the process's group, MiB", ""),
        ],
        is_slow: false,
    },
    Part {
        name: "scan",
        ways: &["map", "calls", "kernel", "random"],
        figures: &[("gb_s", "loads in order, GB/s", ">= 0.4")],
        is_slow: false,
    },
    Part {
        name: "fill",
        ways: &["map", "calls", "kernel", "random"],
        figures: &[
            ("gb_s", "stores in order, GB/s", ">= 0.3"),
            ("p50_us", "first store p50, us", ""),
            ("p99_us", "p99, us", ""),
            ("max_ms", "longest, ms", ""),
        ],
        is_slow: false,
    },
    Part {
        name: "hot",
        ways: &["map", "reuse", "kernel", "random"],
        figures: &[("hits", "hits of a hot set beside a scan, %", "")],
        is_slow: false,
    },
    Part {
        name: "beside",
        ways: &["map", "kernel", "random"],
        figures: STALLS,
        is_slow: true,
    },
    Part {
        name: "beside-in-order",
        ways: &["map", "kernel", "random"],
        figures: STALLS,
        is_slow: true,
    },
];

/// The size of it all.
struct Scale {
    mib: u64,
    limit_mib: u64,
    /// Of the fast parts; of the slow ones.
    seconds: (f64, u64),
    rounds: usize,
}

const FULL: Scale = Scale {
    mib: 1024,
    limit_mib: 128,
    seconds: (2.0, 9),
    rounds: ROUNDS,
};
const QUICK: Scale = Scale {
    mib: 128,
    limit_mib: 16,
    seconds: (0.3, 2),
    rounds: 1,
};

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let (mut scale, mut folder, mut parts) = (FULL, None, Vec::new());
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--quick" => scale = QUICK,
            "--dir" => folder = Some(PathBuf::from(arguments.value_of("--dir")?)),
            "--only" => {
                let name = arguments.value_of("--only")?;
                let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
                let part = PARTS.iter().find(|part| part.name == name);
                parts.push(part.ok_or_else(|| format!("--only: one of {}", names.join(", ")))?);
            }
            _ => return Err(format!("bench maps: unexpected '{word}'")),
        }
    }
    if parts.is_empty() {
        parts = PARTS.iter().collect();
    }
    let folder = match folder {
        Some(folder) => folder,
        None => Workspace::load()?.target,
    };
    let worker = worker("maps")?;
    let undo = is_root().then(Undo::begin).transpose()?;
    let bench = Bench::begin(undo.as_ref(), &folder, worker, scale)?;
    println!(
        "{}; a file of {} MiB, {} MiB for it; medians of {}.\n",
        circumstances(),
        bench.scale.mib,
        bench.scale.limit_mib,
        bench.scale.rounds,
    );
    let mut text = "| part | figure | wanted |".to_owned();
    for (_, title) in WAYS {
        text += &format!(" {title} |");
    }
    text += &format!("\n|---|---|---|{}", "---:|".repeat(WAYS.len()));
    println!("{text}");
    parts.iter().try_for_each(|part| bench.part(part))
}

struct Bench<'a> {
    undo: Option<&'a Undo>,
    worker: PathBuf,
    scale: Scale,
    file: PathBuf,
    /// `7:N`, of the loop device; none: there is none.
    number: Option<String>,
    _file: Remove,
}

/// A file that goes with the bench.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl<'a> Bench<'a> {
    fn begin(undo: Option<&'a Undo>, folder: &Path, worker: PathBuf, scale: Scale) -> Result<Self> {
        let can_loop = undo.is_some() && Path::new("/dev/loop-control").exists();
        let folder = if can_loop {
            Path::new("/dev/shm")
        } else {
            folder
        };
        let file = folder.join(format!("tidegate-maps-{}", std::process::id()));
        if let Some(undo) = undo {
            undo.note(Deed::MadeFile(file.clone()))?;
        }
        let remove = Remove(file.clone());
        fill(&file, scale.mib << 20).map_err(at(&file))?;
        let mut bench = Self {
            undo,
            worker,
            scale,
            file,
            number: None,
            _file: remove,
        };
        match undo.filter(|_| can_loop) {
            Some(undo) => {
                let number = chain::free_loop();
                let node = PathBuf::from(format!("/dev/loop{number}"));
                undo.note(Deed::MadeLoop(number))?;
                undo.note(Deed::AttachedLoop(node.clone()))?;
                chain::run("losetup", [node.as_os_str(), bench.file.as_os_str()])?;
                bench.file = node;
                bench.number = Some(format!("7:{number}"));
            }
            None => println!("SKIPPED: a device of its own: it needs root and /dev/loop-control"),
        }
        Ok(bench)
    }

    /// Measures a part and prints its rows.
    fn part(&self, part: &Part) -> Result<()> {
        let mut found: BTreeMap<(&str, String), Vec<f64>> = BTreeMap::new();
        let mut skipped = Vec::new();
        if let Err(why) = self.can_slow_down(part) {
            println!("SKIPPED: {}: {why}", part.name);
            return Ok(());
        }
        for _ in 0..self.scale.rounds {
            for way in part.ways {
                if skipped.contains(way) {
                    continue;
                }
                match self.once(part, way)? {
                    Ok(figures) => {
                        for (name, value) in figures {
                            found.entry((way, name)).or_default().push(value);
                        }
                    }
                    Err(why) => {
                        println!("SKIPPED: {} of {}: {why}", way, part.name);
                        skipped.push(way);
                    }
                }
            }
        }
        for (name, title, wanted) in part.figures {
            let mut row = format!("| {} | {title} | {wanted} |", part.name);
            for (way, _) in WAYS {
                let values = found.get(&(way, (*name).to_owned()));
                row += &match values.map(|values| median(values.clone())) {
                    Some(value) => format!(" {} |", super::pacing::shown(value)),
                    None => " - |".into(),
                };
            }
            println!("{row}");
        }
        Ok(())
    }

    /// True if the device can be made as slow as a part wants it.
    fn can_slow_down(&self, part: &Part) -> std::result::Result<(), String> {
        if !part.is_slow {
            return Ok(());
        }
        if self.number.is_none() {
            return Err("there is no device of its own".into());
        }
        match Groups::here() {
            Some(Groups::V1) if !Path::new(BLKIO_V1).exists() => {
                Err(format!("there is no {BLKIO_V1}"))
            }
            Some(_) => Ok(()),
            None => Err("there are no cgroups with memory and io".into()),
        }
    }

    /// One run of one way: its figures, or why there are none.
    fn once(
        &self,
        part: &Part,
        way: &str,
    ) -> Result<std::result::Result<Vec<(String, f64)>, String>> {
        let is_kernel = way == "kernel" || way == "random";
        let groups = self.undo.and_then(|_| Groups::here());
        if is_kernel && groups.is_none() {
            return Ok(Err("it needs root and a memory cgroup".into()));
        }
        let scope = self.undo.map(Undo::scope);
        let group = match (self.undo, groups) {
            (Some(undo), Some(groups)) => {
                let limit = is_kernel.then_some(self.scale.limit_mib << 20);
                Some((groups, groups.make(undo, limit)?))
            }
            _ => None,
        };
        let (fast, slow) = self.scale.seconds;
        let seconds = if part.is_slow { slow as f64 } else { fast };
        let mut command = Command::new(&self.worker);
        command
            .args([way, part.name])
            .arg(&self.file)
            .args([self.scale.mib, self.scale.limit_mib].map(|mib| mib.to_string()))
            .arg(seconds.to_string())
            .args(group.as_ref().map(|(_, group)| group))
            // Of umap: pages of its buffer.
            .env("UMAP_BUFSIZE", (self.scale.limit_mib << 8).to_string())
            .stdout(Stdio::piped());
        let throttle = match (&group, &self.number, part.is_slow) {
            (Some((groups, group)), Some(number), true) => {
                let throttle = groups.throttle(group, number);
                if let Some(undo) = self.undo {
                    undo.note(Deed::Wrote(throttle.file.clone(), throttle.off.clone()))?;
                }
                throttle.set(&throttle.on)?;
                Some(throttle)
            }
            _ => None,
        };
        let mut child = command.spawn().map_err(at(&self.worker))?;
        let mut line = String::new();
        let output = child.stdout.take().map(BufReader::new);
        if let Some(mut output) = output {
            output
                .read_line(&mut line)
                .map_err(|error| error.to_string())?;
        }
        // Its taking down is in no figure.
        if let Some(throttle) = throttle {
            throttle.set(&throttle.off)?;
        }
        let peak = group
            .as_ref()
            .and_then(|(groups, group)| groups.peak(group));
        let ended = child.wait().map_err(|error| error.to_string())?;
        drop(scope);
        if is_kernel && ended.signal() == Some(SIGKILL) {
            return Ok(Err(
                "its group ran out of memory, and the kernel ended it".into()
            ));
        }
        if let Some(why) = line.strip_prefix("SKIPPED: ") {
            return Ok(Err(why.trim().into()));
        }
        // umap's own threads may end it badly, once all was said.
        let value: Value = serde_json::from_str(&line)
            .map_err(|_| format!("{}: {ended}, '{line}'", steps::typed(&command)))?;
        let figures = value.as_object().into_iter().flatten();
        let figures = figures.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        let peak = peak.map(|bytes| ("peak_mib".to_owned(), bytes as f64 / 1_048_576.0));
        Ok(Ok(figures.chain(peak).collect()))
    }
}

/// Cgroups that there are.
#[derive(Clone, Copy)]
enum Groups {
    V1,
    V2,
}

/// A file of the kernel that slows a device down.
struct Throttle {
    file: PathBuf,
    on: String,
    off: String,
}

impl Throttle {
    fn set(&self, value: &str) -> Result<()> {
        fs::write(&self.file, value).map_err(at(&self.file))
    }
}

impl Groups {
    fn here() -> Option<Self> {
        let enabled = fs::read_to_string(Path::new(V2).join("cgroup.subtree_control"));
        let enabled = enabled.unwrap_or_default();
        let has = |name| enabled.split_whitespace().any(|word| word == name);
        if Path::new(MEMORY_V1).join("memory.limit_in_bytes").exists() {
            Some(Self::V1)
        } else {
            (has("memory") && has("io")).then_some(Self::V2)
        }
    }

    /// A group of memory.
    fn make(self, undo: &Undo, limit: Option<u64>) -> Result<PathBuf> {
        let (root, file) = match self {
            Self::V1 => (MEMORY_V1, "memory.limit_in_bytes"),
            Self::V2 => (V2, "memory.max"),
        };
        let group = Path::new(root).join(format!("tidegate-maps-{}", std::process::id()));
        undo.note(Deed::MadeFolder(group.clone()))?;
        fs::create_dir(&group).map_err(at(&group))?;
        if let Some(limit) = limit {
            let file = group.join(file);
            fs::write(&file, limit.to_string()).map_err(at(&file))?;
        }
        Ok(group)
    }

    /// Version 1 writes back on behalf of nobody, so the limit is the root's.
    fn throttle(self, group: &Path, number: &str) -> Throttle {
        let (file, on, off) = match self {
            Self::V1 => (BLKIO_V1.into(), SLOW.to_string(), "0".into()),
            Self::V2 => (
                group.join("io.max"),
                format!("wbps={SLOW}"),
                "wbps=max".to_owned(),
            ),
        };
        Throttle {
            file,
            on: format!("{number} {on}"),
            off: format!("{number} {off}"),
        }
    }

    fn peak(self, group: &Path) -> Option<u64> {
        let file = match self {
            Self::V1 => "memory.max_usage_in_bytes",
            Self::V2 => "memory.peak",
        };
        fs::read_to_string(group.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

/// A file whose every page has its number in its second word.
fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = fs::File::create(path)?;
    let mut to = BufWriter::with_capacity(1 << 20, &file);
    let mut page = [0; PAGE];
    for number in 0..bytes / PAGE as u64 {
        page[8..16].copy_from_slice(&number.to_le_bytes());
        to.write_all(&page)?;
    }
    to.flush()?;
    drop(to);
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_a_part_has_a_column() {
        for part in PARTS {
            for way in part.ways {
                assert!(WAYS.iter().any(|(known, _)| known == way), "{way}");
            }
        }
    }

    #[test]
    fn a_throttle_is_taken_back() {
        let group = Path::new("/group");
        let (old, new) = (Groups::V1, Groups::V2);
        assert_eq!(old.throttle(group, "7:9").on, "7:9 16000000");
        assert_eq!(old.throttle(group, "7:9").off, "7:9 0");
        let throttle = new.throttle(group, "7:9");
        assert_eq!(throttle.file, Path::new("/group/io.max"));
        assert_eq!(throttle.off, "7:9 wbps=max");
    }

    #[test]
    fn a_page_says_which_it_is() {
        let path = std::env::temp_dir().join(format!("tidegate-fill-{}", std::process::id()));
        fill(&path, 3 * 4096).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(bytes.len(), 3 * 4096);
        assert_eq!(bytes[8192 + 8..8192 + 16], 2_u64.to_le_bytes());
    }
}

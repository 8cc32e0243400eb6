//! The scenarios of memory pressure: `guests/pressure.toml`, and how one is changed on the command
//! line.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Result;

/// The guests that have a name.
const GUESTS: &str = include_str!("../../../guests/pressure.toml");
/// Memory that a guest needs for itself: the kernel, what boots it, what is kept of the run.
const OWN_MIB: u32 = 128;
/// The multi-generational LRU off, on, and without walks over page tables.
const LRU_GEN: [&str; 3] = ["n", "y", "1"];
/// Size of a disk that keeps nothing.
const ENDLESS_MIB: u32 = 250 * 1024;
/// Size of the swap disk.
const SWAP_MIB: u32 = 1024;
/// Parts of a disk that writers and readers have to themselves; where those of the readers begin.
const PART_MIB: u32 = 1024;
const READERS_FROM_MIB: u32 = 100 * 1024;
const CROWD_MAX: u32 = 60;
/// Of memory: what each writer writes to, and what all hogs touch together.
const WRITER_PER_CENT: u32 = 24;
const HOGS_PER_CENT: u32 = 96;
/// The start of hogs.
const HOGS_FROM_S: u32 = 5;
/// A writer's block, a reader's, a reader's region, and what is mapped each time.
const WRITE_KIB: u32 = 1024;
const READ_KIB: u32 = 256;
const READ_MIB: u32 = 128;
const MAPPED_MIB: u32 = 8;
const MAPPER_SLEEP_MS: u32 = 5;
/// Ticks a second of a null_blk with a rate: a request that its budget of one tick does not hold
/// never goes out.
const TICKS: u32 = 50;
/// The room of samples: the calls of a worker of this kind in this many seconds.
const ROOM_FOR_S: u32 = 45;

/// Tracepoints, by what they are about.
const EVENTS: [(&str, &[&str]); 7] = [
    ("throttle", &["vmscan/mm_vmscan_throttled"]),
    (
        "reclaim",
        &[
            "vmscan/mm_vmscan_direct_reclaim_begin",
            "vmscan/mm_vmscan_direct_reclaim_end",
            "vmscan/mm_vmscan_kswapd_wake",
            "vmscan/mm_vmscan_kswapd_sleep",
            "vmscan/mm_vmscan_wakeup_kswapd",
        ],
    ),
    (
        "node",
        &[
            "vmscan/mm_vmscan_node_reclaim_begin",
            "vmscan/mm_vmscan_node_reclaim_end",
        ],
    ),
    (
        "compact",
        &[
            "compaction/mm_compaction_begin",
            "compaction/mm_compaction_end",
            "compaction/mm_compaction_try_to_compact_pages",
            "compaction/mm_compaction_deferred",
            "compaction/mm_compaction_defer_compaction",
            "compaction/mm_compaction_defer_reset",
            "compaction/mm_compaction_kcompactd_wake",
            "compaction/mm_compaction_kcompactd_sleep",
            "compaction/mm_compaction_migratepages",
        ],
    ),
    ("frag", &["kmem/mm_page_alloc_extfrag"]),
    ("oom", &["oom/mark_victim"]),
    (
        "waits",
        &[
            "sched/sched_switch",
            "sched/sched_waking",
            "vmscan/mm_vmscan_lru_shrink_inactive",
            "block/block_rq_issue",
            "block/block_rq_complete",
        ],
    ),
];
/// The stack of each task that goes to sleep.
const STACKS: (&str, &str) = ("sched/sched_switch", "stacktrace if prev_state & 255");

/// Events that are too many for a line each: sums by key, which the kernel keeps.
pub(super) type Sum = (&'static str, &'static str);
const SCANS: Sum = (
    "vmscan/mm_vmscan_lru_shrink_inactive",
    "hist:keys=priority,reclaim_flags:vals=nr_scanned,nr_reclaimed:size=1024",
);
const WRITES: Sum = (
    "vmscan/mm_vmscan_write_folio",
    "hist:keys=common_pid.execname,reclaim_flags:size=128",
);
const SLABS: Sum = (
    "vmscan/mm_shrink_slab_end",
    "hist:keys=common_pid.execname,shrink.sym:vals=total_scan,retval:size=1024",
);

/// The file system of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fs {
    Bare,
    Ext4,
    Vfat,
}

/// A null_blk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Disk {
    /// MiB/s; none: as fast as the processor.
    pub(super) rate: Option<u32>,
    /// Largest request.
    pub(super) kib: u32,
    pub(super) mib: u32,
    /// With memory of its own, all of it there before the run; a file system needs that.
    pub(super) fs: Fs,
    /// Words for what makes the file system.
    pub(super) options: String,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            rate: None,
            kib: 64,
            mib: ENDLESS_MIB,
            fs: Fs::Bare,
            options: String::new(),
        }
    }
}

impl Disk {
    pub(super) fn keeps(&self) -> bool {
        self.fs != Fs::Bare
    }
}

/// The use of memory by a worker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    /// `r1`: a crowd whose numbers can be turned.
    Crowd(Crowd),
    /// One hog that has room.
    Alone { mib: u32 },
    /// `r2`: a file of twice a node, written once and read twice.
    File,
    /// `r2`: a shared mapping of four times a node, stored to from its begin to its end.
    Mapped,
    /// `r3`.
    SmallFiles,
    /// `r4`.
    HugePages,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Crowd {
    writers: u32,
    readers: u32,
    hogs: u32,
    /// Other places written to, all else the same.
    seed: u32,
    /// When the task that maps begins.
    mapper_from_s: u32,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            writers: 0,
            readers: 0,
            hogs: 0,
            seed: 0,
            mapper_from_s: HOGS_FROM_S,
        }
    }
}

/// A process of the guest: arguments as `guest-load` takes them for its kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) start_ms: u32,
    /// Room for this many calls.
    pub(super) calls_max: u32,
    pub(super) arguments: Vec<Value>,
}

/// The scenario of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scenario {
    pub(super) name: String,
    /// Memory beside disks that keep.
    memory: u32,
    pub(super) nodes: u32,
    pub(super) seconds: u32,
    pub(super) trace_kib: u32,
    /// Room in MiB for the trace of each switch of the processor, which the machine has on top.
    pub(super) waits_mib: u32,
    /// Transparent huge pages: when a fault tries for one, and how hard.
    pub(super) thp: String,
    pub(super) thp_defrag: String,
    /// The multi-generational LRU: off (`n`), on (`y`), or the bits of its parts.
    pub(super) lru_gen: String,
    pub(super) disks: Vec<Disk>,
    /// The disk that is swapped to.
    pub(super) swap: Option<usize>,
    pub(super) sysctl: BTreeMap<String, u64>,
    events: Vec<String>,
    /// Free blocks by order are sampled, and object caches.
    pub(super) buddies: bool,
    pub(super) slabs: bool,
    work: Work,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            memory: 0,
            nodes: 1,
            seconds: 45,
            trace_kib: 8192,
            waits_mib: 0,
            thp: "never".to_owned(),
            thp_defrag: "madvise".to_owned(),
            lru_gen: "n".to_owned(),
            disks: Vec::new(),
            swap: None,
            sysctl: BTreeMap::new(),
            events: ["throttle", "reclaim", "oom"].map(str::to_owned).into(),
            buddies: false,
            slabs: false,
            work: Work::File,
        }
    }
}

/// Every scenario there is.
pub(crate) fn all() -> Vec<Scenario> {
    #[derive(Deserialize)]
    struct Guests {
        guest: Vec<toml::Table>,
    }
    let Guests { guest: mut all } = toml::from_str(GUESTS).expect("the file of guests");
    for at in 0..all.len() {
        let Some(like) = all[at].remove("like") else {
            continue;
        };
        let mut whole = all
            .iter()
            .find(|one| one.get("name") == Some(&like))
            .cloned();
        let whole = whole.as_mut().expect("a guest is like an earlier one");
        whole.extend(all[at].clone());
        all[at].clone_from(whole);
    }
    let guest = |table: toml::Table| table.try_into().expect("a guest of the file");
    all.into_iter().map(guest).collect()
}

impl Scenario {
    /// All memory of the machine.
    pub(super) fn memory_mib(&self) -> u32 {
        self.memory + self.waits_mib + self.kept_mib()
    }

    /// Of that, the content of disks, which is there before the run and never moves.
    pub(super) fn kept_mib(&self) -> u32 {
        let kept = self.disks.iter().filter(|disk| disk.keeps());
        kept.map(|disk| disk.mib).sum()
    }

    /// The tracepoints that get a line each.
    pub(super) fn tracepoints(&self) -> impl Iterator<Item = &'static str> {
        let of = |group: &String| EVENTS.iter().find(|(name, _)| name == group);
        self.events
            .iter()
            .filter_map(of)
            .flat_map(|(_, points)| *points)
            .copied()
    }

    /// Work that the kernel does at a tracepoint.
    pub(super) fn triggers(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let stacks = (self.waits_mib > 0).then_some(STACKS);
        self.sums().chain(stacks)
    }

    /// Events that are summed up in the kernel.
    pub(super) fn sums(&self) -> impl Iterator<Item = Sum> {
        let slabs = self.slabs.then_some(SLABS);
        [SCANS, WRITES].into_iter().chain(slabs)
    }

    /// The workers that run.
    pub(super) fn workers(&self) -> Vec<Worker> {
        let memory = self.memory;
        let worker = |name: &str, kind: &'static str, start_s: u32, arguments: Value| {
            let Value::Array(arguments) = arguments else {
                unreachable!("arguments are a list");
            };
            let room = match kind {
                "hog" if memory > 4 * first_number(&arguments) => 64 * 1024,
                "hog" => 4096,
                "mapper" => 16 * 1024,
                "seq" => 32 * 1024,
                "fsmark" => 2048,
                "alloc" => 64,
                _ => 8192,
            };
            Worker {
                name: name.to_owned(),
                kind,
                start_ms: start_s * 1000,
                calls_max: room * self.seconds.div_ceil(ROOM_FOR_S),
                arguments,
            }
        };
        let disk = "/dev/nullb0";
        match &self.work {
            Work::Crowd(crowd) => {
                let mut all = Vec::new();
                for number in 0..crowd.writers {
                    let region = memory * WRITER_PER_CENT / 100;
                    let seed = 10 + number + 100 * crowd.seed;
                    let arguments = json!([disk, number * PART_MIB, region, WRITE_KIB, 0, seed]);
                    all.push(worker(&format!("w{number}"), "randwrite", 0, arguments));
                }
                for number in 0..crowd.readers {
                    let from = READERS_FROM_MIB + number * PART_MIB;
                    let arguments = json!([disk, from, READ_MIB, READ_KIB, 0, 50 + number]);
                    all.push(worker(&format!("r{number}"), "randread", 0, arguments));
                }
                for number in 0..crowd.hogs {
                    let part = memory * HOGS_PER_CENT / 100 / crowd.hogs;
                    let arguments = json!([part]);
                    all.push(worker(&format!("h{number}"), "hog", HOGS_FROM_S, arguments));
                }
                let arguments = json!([MAPPED_MIB, MAPPER_SLEEP_MS]);
                all.push(worker("m0", "mapper", crowd.mapper_from_s, arguments));
                all
            }
            Work::Alone { mib } => vec![worker("h0", "hog", 0, json!([mib]))],
            Work::File => {
                let arguments = json!([disk, 0, memory, 1024, "wrr", 1]);
                vec![worker("f0", "seq", 0, arguments)]
            }
            Work::Mapped => vec![worker("f0", "mapwrite", 0, json!([disk, 2 * memory]))],
            Work::SmallFiles => {
                let arguments = json!(["/mnt/0", 4096, 10_000, 500, 110_000]);
                vec![worker("c0", "fsmark", 0, arguments)]
            }
            Work::HugePages => {
                let stick = json!(["/mnt/0/file", 0, 100, 128, "w", 0]);
                let raw = json!(["/dev/nullb1", 0, 200_000, 128, "r", 1]);
                let asked = memory * 15 / 16;
                vec![
                    worker("u0", "seq", 0, stick),
                    worker("r0", "seq", 0, raw),
                    worker("a0", "alloc", 1, json!([asked, memory / 6, 3])),
                ]
            }
        }
    }

    /// Turns one setting: `memory=384`, `hogs=3`, `vm.swappiness=100`. The name tells.
    ///
    /// # Errors
    /// The setting is not known, this scenario does not have it, or its value is none.
    pub(super) fn set(&mut self, setting: &str) -> Result<()> {
        let known = "memory, rate, swap_rate, writers, readers, hogs, seconds, waits, lru_gen, and sysctls (vm.swappiness=100)";
        let (key, value) = super::super::parts(setting)?;
        let number = |least: u32| super::super::number_from(least, setting);
        match key {
            "memory" => self.memory = number(1)?,
            "seconds" => self.seconds = number(1)?,
            "waits" => {
                self.waits_mib = number(1)?;
                self.trace_kib += self.waits_mib * 1024;
                self.events.push("waits".to_owned());
            }
            "lru_gen" if LRU_GEN.contains(&value) => self.lru_gen = value.to_owned(),
            "lru_gen" => {
                let known = LRU_GEN.join(", ");
                return Err(format!("--set {setting}: '{value}' is none of {known}"));
            }
            "rate" => self.disks[0].rate = Some(number(1)?),
            "swap_rate" => match self.swap {
                Some(disk) => self.disks[disk].rate = Some(number(1)?),
                None => return Err(format!("--set {setting}: {} has no swap", self.name)),
            },
            "writers" | "readers" | "hogs" => {
                let Work::Crowd(crowd) = &mut self.work else {
                    let name = &self.name;
                    return Err(format!(
                        "--set {setting}: {name} has no crowd to change; r1-4 and its kin have"
                    ));
                };
                let count = match key {
                    "writers" => &mut crowd.writers,
                    "readers" => &mut crowd.readers,
                    _ => &mut crowd.hogs,
                };
                *count = number(0)?;
            }
            _ if is_sysctl(key) => {
                let value = value
                    .parse()
                    .map_err(|_| format!("--set {setting}: '{value}' is not a number"))?;
                self.sysctl.insert(key.to_owned(), value);
            }
            _ => {
                return Err(format!(
                    "--set {setting}: {} has no setting '{key}'; there are {known}",
                    self.name
                ));
            }
        }
        self.name = format!("{}+{key}={value}", self.name);
        Ok(())
    }

    /// Checks that the kernel and the disks can do this.
    ///
    /// # Errors
    /// Two settings contradict each other; the message names both.
    pub(super) fn judge(&self) -> Result<()> {
        let all = [
            self.judge_memory(),
            self.judge_disks(),
            self.judge_crowd(),
            self.judge_sysctls(),
        ];
        let found = all.into_iter().find_map(Result::err);
        found.map_or(Ok(()), |problem| Err(format!("{}: {problem}", self.name)))
    }

    fn judge_memory(&self) -> Result<()> {
        let (memory, nodes) = (self.memory, self.nodes);
        if memory < OWN_MIB * nodes {
            return Err(format!(
                "memory={memory} is too little for {nodes} node(s): each needs {OWN_MIB} MiB for the kernel and the recorder"
            ));
        }
        if memory % (2 * nodes) != 0 {
            return Err(format!(
                "memory={memory} does not divide by twice the nodes ({nodes})"
            ));
        }
        if self.swap.is_some() && memory > SWAP_MIB {
            return Err(format!(
                "memory={memory} is more than the swap disk holds ({SWAP_MIB} MiB)"
            ));
        }
        if let Some(kib) = self.sysctl.get("vm.min_free_kbytes")
            && *kib > u64::from(memory) * 1024 / 4
        {
            return Err(format!(
                "vm.min_free_kbytes={kib} is more than a quarter of memory={memory} (MiB)"
            ));
        }
        Ok(())
    }

    fn judge_disks(&self) -> Result<()> {
        for (number, disk) in self.disks.iter().enumerate() {
            let (Some(rate), kib) = (disk.rate, disk.kib) else {
                continue;
            };
            let key = if self.swap == Some(number) {
                "swap_rate"
            } else {
                "rate"
            };
            if rate * 1024 / TICKS < kib {
                let least = (kib * TICKS).div_ceil(1024);
                return Err(format!(
                    "{key}={rate}: a request of {kib} KiB is more than this disk's budget of a tick (20 ms), and would never go out; {least} is the least"
                ));
            }
        }
        Ok(())
    }

    fn judge_crowd(&self) -> Result<()> {
        let seconds = self.seconds;
        if let Some(late) = self
            .workers()
            .iter()
            .find(|worker| worker.start_ms >= seconds * 1000)
        {
            let (name, at) = (&late.name, late.start_ms / 1000);
            return Err(format!(
                "worker {name} begins at second {at}, but seconds={seconds}"
            ));
        }
        let Work::Crowd(crowd) = &self.work else {
            return Ok(());
        };
        let Crowd {
            writers,
            readers,
            hogs,
            ..
        } = *crowd;
        if writers + readers + hogs > CROWD_MAX {
            return Err(format!(
                "writers={writers}, readers={readers} and hogs={hogs} are more than {CROWD_MAX} together"
            ));
        }
        if hogs > 0 && self.memory * HOGS_PER_CENT / 100 / hogs < MAPPED_MIB {
            let memory = self.memory;
            return Err(format!(
                "hogs={hogs} share memory={memory}: less than {MAPPED_MIB} MiB for each"
            ));
        }
        if writers + readers + hogs == 0 && crowd.mapper_from_s > 0 {
            return Err(format!(
                "writers={writers}, readers={readers} and hogs={hogs} leave nobody who needs memory; r1-calm is such a guest"
            ));
        }
        Ok(())
    }

    fn judge_sysctls(&self) -> Result<()> {
        let given = |key: &str| self.sysctl.get(key);
        for (one, other) in [
            ("vm.dirty_bytes", "vm.dirty_ratio"),
            ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
        ] {
            if let (Some(a), Some(b)) = (given(one), given(other))
                && *a > 0
                && *b > 0
            {
                return Err(format!(
                    "{one}={a} and {other}={b}: the kernel takes whichever is set last"
                ));
            }
        }
        for unit in ["bytes", "ratio"] {
            let (limit, background) = (
                format!("vm.dirty_{unit}"),
                format!("vm.dirty_background_{unit}"),
            );
            if let (Some(a), Some(b)) = (given(&limit), given(&background))
                && b >= a
            {
                return Err(format!(
                    "{background}={b} is not below {limit}={a}; the kernel would take half of it"
                ));
            }
        }
        if self.nodes == 1
            && let Some(mode) = given("vm.zone_reclaim_mode").filter(|mode| **mode > 0)
        {
            return Err(format!(
                "vm.zone_reclaim_mode={mode} says nothing to a guest of one node; r2-mode0 has two"
            ));
        }
        Ok(())
    }
}

fn first_number(arguments: &[Value]) -> u32 {
    let number = arguments.first().and_then(Value::as_u64);
    number.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// True if a key is one of `/proc/sys`, and nothing that a shell would take for more.
fn is_sysctl(key: &str) -> bool {
    let plain = |one: char| one.is_ascii_alphanumeric() || "._-".contains(one);
    let folder = ["vm.", "kernel.", "fs."];
    folder.iter().any(|folder| key.starts_with(folder))
        && key.chars().all(plain)
        && !key.contains("..")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn find(name: &str) -> Scenario {
        all().into_iter().find(|one| one.name == name).unwrap()
    }

    /// The scenario after turning these, one after the other.
    fn turned(name: &str, settings: &[&str]) -> Result<Scenario> {
        let mut one = find(name);
        for setting in settings {
            one.set(setting)?;
        }
        one.judge().map(|()| one)
    }

    #[test]
    fn every_scenario_can_be_run_and_has_its_own_name() {
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|one| one.name.clone()).collect();
        assert_eq!(names.len(), all.len());
        for one in &all {
            one.judge().unwrap();
            let known = |group: &String| EVENTS.iter().any(|(name, _)| name == group);
            assert!(one.events.iter().all(known), "{}", one.name);
            let names: BTreeSet<_> = one.workers().iter().map(|one| one.name.clone()).collect();
            assert_eq!(names.len(), one.workers().len());
        }
    }

    #[test]
    fn seeds_and_dice_are_in_the_settings() {
        assert_eq!(find("r3-boost0").memory_mib(), 840);
        assert_eq!(find("r4-ext4").memory_mib(), 640);
        assert_eq!(find("r1-4-seed2").workers()[0].arguments[5], json!(210));
        let drawn = find("r1-384-12-4-2w3h0r");
        assert_eq!((drawn.memory_mib(), drawn.seconds), (384, 30));
        assert_eq!(
            (drawn.disks[0].rate, drawn.disks[1].rate),
            (Some(12), Some(4))
        );
    }

    #[test]
    fn a_setting_is_turned_and_shows_in_the_name() {
        let settings = [
            "memory=384",
            "hogs=3",
            "writers=2",
            "readers=1",
            "rate=8",
            "swap_rate=32",
            "vm.swappiness=100",
            "seconds=30",
        ];
        let one = turned("r1-4", &settings).unwrap();
        assert!(one.name.ends_with("+vm.swappiness=100+seconds=30"));
        let kinds: Vec<_> = one.workers().iter().map(|one| one.kind).collect();
        let wanted = "randwrite randwrite randread hog hog hog mapper";
        assert_eq!(kinds.join(" "), wanted);
        assert_eq!(one.workers()[3].arguments, [json!(122)]);
        assert_eq!((one.disks[0].rate, one.disks[1].rate), (Some(8), Some(32)));
        assert_eq!(one.sysctl["vm.swappiness"], 100);
        assert_eq!((one.memory_mib(), one.seconds), (384, 30));
    }

    #[test]
    fn the_room_for_a_trace_of_waits_comes_on_top() {
        let plain = find("r1-4");
        let one = turned("r1-4", &["waits=32"]).unwrap();
        assert_eq!(one.memory_mib(), plain.memory_mib() + 32);
        assert_eq!(one.workers(), plain.workers());
        assert!(one.tracepoints().any(|point| point == "sched/sched_switch"));
        assert!(
            one.triggers()
                .any(|(point, _)| point == "sched/sched_switch")
        );
        assert!(
            !plain
                .triggers()
                .any(|(point, _)| point == "sched/sched_switch")
        );
    }

    #[test]
    fn what_cannot_be_turned_is_refused_with_the_way_out() {
        let refused = |name, settings: &[&str]| turned(name, settings).unwrap_err();
        assert!(refused("r1-4", &["hugs=1"]).contains("'hugs'; there are memory"));
        assert!(refused("r1-4", &["hogs=x"]).contains("'x'"));
        assert!(refused("r1-4", &["hogs"]).contains("KEY=VALUE"));
        assert!(refused("r1-4", &["rate=0"]).contains("from 1 on"));
        assert!(refused("r1-4", &["vm.swappiness=much"]).contains("'much'"));
        assert!(refused("r1-4", &["vm.x;reboot=1"]).contains("no setting"));
        assert!(refused("r1-4", &["vm.../../x=1"]).contains("no setting"));
        assert!(refused("r2-mode0", &["hogs=1"]).contains("no crowd"));
        assert!(refused("r2-mode0", &["swap_rate=16"]).contains("no swap"));
    }

    #[test]
    fn contradictions_are_refused_with_both_named() {
        let both = |name, settings: &[&str], one: &str, other: &str| {
            let problem = turned(name, settings).unwrap_err();
            assert!(
                problem.contains(one) && problem.contains(other),
                "{problem}"
            );
        };
        both("r1-4", &["seconds=4"], "second 5", "seconds=4");
        both("r1-4", &["memory=2048"], "memory=2048", "1024 MiB");
        both("r1-4", &["memory=64"], "memory=64", "128 MiB");
        both("r2-mode0", &["memory=254"], "memory=254", "2 node");
        both("r2-mode0", &["memory=770"], "memory=770", "nodes (2)");
        both("r1-4", &["swap_rate=3"], "swap_rate=3", "64 KiB");
        both("r1-4", &["rate=2"], "rate=2", "64 KiB");
        both("r1-4", &["hogs=60"], "hogs=60", "60 together");
        both("r1-4", &["memory=128", "hogs=20"], "hogs=20", "memory=128");
        both("r1-4", &["hogs=0", "writers=0"], "hogs=0", "writers=0");
        let sets = ["vm.dirty_bytes=1", "vm.dirty_ratio=1"];
        both("r1-4", &sets, "vm.dirty_bytes=1", "vm.dirty_ratio=1");
        let sets = ["vm.dirty_ratio=9", "vm.dirty_background_ratio=9"];
        both("r1-4", &sets, "vm.dirty_ratio=9", "background_ratio=9");
        let sets = ["vm.zone_reclaim_mode=1"];
        both("r1-4", &sets, "zone_reclaim_mode=1", "one node");
        let sets = ["vm.min_free_kbytes=200000"];
        both("r1-4", &sets, "vm.min_free_kbytes=200000", "memory=512");
        assert!(turned("r4-vfat", &["rate=1"]).is_ok());
        assert!(turned("r1-4", &["rate=4", "swap_rate=4"]).is_ok());
    }
}

//! The guest's file system, for guests whose memory is short: what the shell does before
//! `guest-load` takes its place.
//!
//! Keeping memory honest
//!   1. Swap and bare disks are null_blk *without* memory: what is written is gone. So nothing that
//!      matters may be swapped (`guest-load` locks it), no shell is left when the run begins, and
//!      the root is ramfs. The header of the swap disk lives in the page cache until `swapon` has
//!      read it, because the shell holds the disk open.
//!   2. A file system needs a disk that keeps: null_blk with memory, every block written once
//!      (`prefill`), so that all its pages are there from the start and never move. The machine has
//!      that much more memory.

use std::fmt::Write as _;

use super::scenarios::{Fs, Scenario};
use crate::Result;
use crate::guest::image::{self, Archive, Programs};
use crate::guest::kernel::Kernel;
use crate::guest::record::SAMPLE_MS;

/// The needs of vfat beside the drivers of every guest.
const VFAT: [&str; 5] = [
    "fs/fat/fat.ko",
    "fs/fat/vfat.ko",
    "fs/nls/nls_cp437.ko",
    "fs/nls/nls_ascii.ko",
    "fs/nls/nls_utf8.ko",
];
/// Space that is kept of a file that is sampled, in KiB: of `/proc/vmstat` for each second, of a
/// node's, of all others.
const VMSTAT_KIB: u32 = 16;
const NODE_KIB: u32 = 10;
const SPARE_KIB: u32 = 64;
const BUDDIES_KIB: u32 = 256;
const SLABS_KIB: u32 = 1024;
/// Samples from one look at free blocks and object caches to the next.
const RARELY: u32 = 10;

/// Makes the archive.
///
/// # Errors
/// Something that goes into it is not there.
pub(super) fn make(scenario: &Scenario, kernel: &Kernel, programs: &Programs) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    image::busybox(&mut archive, programs)?;
    archive.file("bin/guest-load", 0o755, &image::read(&programs.load)?);
    let mut modules = image::drivers(&mut archive, kernel, &image::DRIVERS)?;
    if has(scenario, Fs::Vfat) {
        modules.extend(image::drivers(&mut archive, kernel, &VFAT)?);
    }
    if has(scenario, Fs::Ext4) {
        for (name, content) in image::mke2fs()? {
            archive.file(name.trim_start_matches('/'), 0o755, &content);
        }
    }
    for folder in ["dev", "mnt", "proc", "sys"] {
        archive.folder(folder);
    }
    archive.file("init", 0o755, init(scenario, &modules).as_bytes());
    Ok(archive.finish())
}

fn has(scenario: &Scenario, fs: Fs) -> bool {
    scenario.disks.iter().any(|disk| disk.fs == fs)
}

/// The shell script that the kernel starts.
fn init(scenario: &Scenario, modules: &[&str]) -> String {
    let mut text = image::begin(modules);
    let generations = &scenario.lru_gen;
    let _ = writeln!(text, "echo {generations} > /sys/kernel/mm/lru_gen/enabled");
    let (thp, defrag) = (&scenario.thp, &scenario.thp_defrag);
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let _ = writeln!(text, "echo {thp} > {folder}/enabled");
    let _ = writeln!(text, "echo {defrag} > {folder}/defrag");
    for number in 0..scenario.disks.len() {
        disk(scenario, number, &mut text);
    }
    if let Some(number) = scenario.swap {
        let device = format!("/dev/nullb{number}");
        let _ = writeln!(
            text,
            "exec 9<> {device}\nmkswap {device} > /dev/null\nswapon {device}\nexec 9>&-"
        );
    }
    let room = format!("echo {} > $T/buffer_size_kb\n", scenario.trace_kib);
    if scenario.waits_mib > 0 {
        // Marks that the sysctls raise may leave none.
        text.push_str(&room);
    }
    // Where memory is sized, sysctls count: after the disks have taken theirs.
    for (key, value) in &scenario.sysctl {
        let path = key.replace('.', "/");
        let _ = writeln!(text, "echo {value} > /proc/sys/{path}");
    }
    text.push_str("echo 0 > $T/tracing_on\necho mono > $T/trace_clock\n");
    if scenario.waits_mib == 0 {
        text.push_str(&room);
    }
    for point in scenario.tracepoints() {
        let _ = writeln!(text, "echo 1 > $T/events/{point}/enable");
    }
    for (point, trigger) in scenario.triggers() {
        let _ = writeln!(text, "echo '{trigger}' > $T/events/{point}/trigger");
    }
    text.push_str("sync\necho 3 > /proc/sys/vm/drop_caches\n");
    text.push_str(FACTS);
    text.push_str("cat > /plan <<END\n");
    text.push_str(&plan(scenario));
    text.push_str("END\n");
    // Process 1 becomes the program: no shell is left that could be swapped out.
    text.push_str("trap - EXIT\nexec guest-load run /plan\n");
    text
}

/// Sets a disk up: filled and formatted while it has no rate, and then a new one on the same
/// memory.
fn disk(scenario: &Scenario, number: usize, text: &mut String) {
    let disk = &scenario.disks[number];
    let (sectors, mib, options) = (disk.kib * 2, disk.mib, &disk.options);
    let device = format!("/dev/nullb{number}");
    let _ = writeln!(
        text,
        "C=/sys/kernel/config/nullb/nullb{number}\nmkdir $C\necho {sectors} > $C/max_sectors\necho {mib} > $C/size"
    );
    if disk.keeps() {
        text.push_str("echo 1 > $C/memory_backed\necho 1 > $C/power\n");
        let _ = writeln!(text, "guest-load prefill {device} {mib}");
    }
    let fs = match disk.fs {
        Fs::Bare => None,
        Fs::Ext4 => {
            let _ = writeln!(text, "/sbin/mke2fs -q -F -t ext4 {options} {device}");
            Some("ext4")
        }
        Fs::Vfat => {
            let _ = writeln!(text, "mkdosfs {options} {device} > /dev/null");
            Some("vfat")
        }
    };
    if disk.keeps() {
        text.push_str("echo 0 > $C/power\n");
    }
    if let Some(rate) = disk.rate {
        let _ = writeln!(text, "echo {rate} > $C/mbps");
    }
    text.push_str("echo 1 > $C/power\n");
    if let Some(fs) = fs {
        let _ = writeln!(
            text,
            "mkdir -p /mnt/{number}\nmount -t {fs} {device} /mnt/{number}"
        );
    }
}

/// The plan of `guest-load`.
fn plan(scenario: &Scenario) -> String {
    let (seconds, sample_ms) = (scenario.seconds, SAMPLE_MS);
    let mut text = format!(
        "seconds {seconds}\nsample_ms {sample_ms}\nout /dev/vport0p1\ntracing /sys/kernel/tracing\n"
    );
    let kib = seconds * VMSTAT_KIB + SPARE_KIB;
    let _ = writeln!(text, "values vmstat /proc/vmstat 1 {kib}");
    if scenario.nodes > 1 {
        for node in 0..scenario.nodes {
            let kib = seconds * NODE_KIB + SPARE_KIB;
            let path = format!("/sys/devices/system/node/node{node}/vmstat");
            let _ = writeln!(text, "values node{node} {path} 1 {kib}");
        }
    }
    let rare = [
        (scenario.buddies, "buddyinfo", BUDDIES_KIB),
        (scenario.slabs, "slabinfo", SLABS_KIB),
    ];
    for (_, name, kib) in rare.iter().filter(|(wanted, ..)| *wanted) {
        let kib = kib * seconds.div_ceil(60);
        let _ = writeln!(text, "text {name} /proc/{name} {RARELY} {kib}");
    }
    for name in ["facts", "zoneinfo", "meminfo"] {
        let _ = writeln!(text, "attach {name} /{name}");
    }
    text.push_str("attach zoneinfo.end /proc/zoneinfo\n");
    text.push_str("attach lost /sys/kernel/tracing/per_cpu/cpu0/stats\n");
    for (point, _) in scenario.sums() {
        let name = point.rsplit('/').next().unwrap_or(point);
        let _ = writeln!(
            text,
            "attach hist.{name} /sys/kernel/tracing/events/{point}/hist"
        );
    }
    for worker in scenario.workers() {
        let (name, kind, room, start) =
            (worker.name, worker.kind, worker.calls_max, worker.start_ms);
        let _ = write!(text, "worker {name} {kind} {room} {start}");
        for argument in &worker.arguments {
            match argument.as_str() {
                Some(word) => text.extend([" ", word]),
                None => {
                    let _ = write!(text, " {argument}");
                }
            }
        }
        text.push('\n');
    }
    text
}

/// The facts that a model of this guest has to know, as `key=value`.
const FACTS: &str = r#"{
    echo "kernel=$(uname -r)"
    echo "version=$(uname -v)"
    echo "cmdline=$(cat /proc/cmdline)"
    echo "clocksource=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
    echo "lru_gen=$(cat /sys/kernel/mm/lru_gen/enabled)"
    for F in enabled defrag use_zero_page khugepaged/defrag; do
        echo "thp.$F=$(cat /sys/kernel/mm/transparent_hugepage/$F)"
    done
    for F in /proc/sys/vm/*; do
        if [ -r $F ] && [ "${F##*/}" != stat_refresh ]; then
            echo "vm.${F##*/}=$(cat $F 2> /dev/null | tr '\n\t' '  ')"
        fi
    done
    for B in /sys/block/nullb*; do
        D=${B##*/}
        echo "$D.dev=$(cat $B/dev)"
        for F in scheduler nr_requests wbt_lat_usec max_sectors_kb rotational read_ahead_kb write_cache; do
            echo "$D.queue.$F=$(cat $B/queue/$F)"
        done
        C=/sys/kernel/config/nullb/$D
        for F in size blocksize queue_mode irqmode submit_queues hw_queue_depth max_sectors memory_backed mbps completion_nsec; do
            echo "$D.null_blk.$F=$(cat $C/$F)"
        done
    done
    cat /proc/swaps | tr -s ' \t' ' ' | while read A; do echo "swaps=$A"; done
    grep -E ' /mnt' /proc/mounts | while read D M F O REST; do echo "mount.$M=$D $F $O"; done
} > /facts
cat /proc/zoneinfo > /zoneinfo
cat /proc/meminfo > /meminfo
"#;

#[cfg(test)]
mod tests {
    use super::super::scenarios::all;
    use super::*;

    fn script(name: &str) -> String {
        let one = all().into_iter().find(|one| one.name == name).unwrap();
        init(&one, &["null_blk.ko"])
    }

    #[test]
    fn the_script_sets_what_the_scenario_says() {
        let r1 = script("r1-4");
        assert!(r1.contains("swapon /dev/nullb1") && !r1.contains("prefill"));
        assert!(r1.contains("worker h1 hog 4096 5000 245\n"), "{r1}");
        assert!(r1.contains("values vmstat /proc/vmstat 1 784\n"));
        assert!(!r1.contains("values node0") && !r1.contains("slabinfo"));
        let r2 = script("r2-mode1");
        assert!(r2.contains("echo 1 > /proc/sys/vm/zone_reclaim_mode"));
        assert!(r2.contains("values node1 /sys/devices/system/node/node1/vmstat 1 464\n"));
        assert!(r2.contains("mm_vmscan_node_reclaim_end/enable"));
        let r3 = script("r3-boost15000");
        assert!(r3.contains("guest-load prefill /dev/nullb0 520\n/sbin/mke2fs"));
        assert!(r3.contains("text slabinfo /proc/slabinfo 10 1024\n"));
        assert!(r3.contains("attach hist.mm_shrink_slab_end "));
        let r4 = script("r4-vfat");
        assert!(r4.contains("mkdosfs -F 32 /dev/nullb0") && r4.contains("mount -t vfat"));
        assert!(r4.contains("worker a0 alloc 64 1000 480 85 3\n"), "{r4}");
        assert!(r4.trim_end().ends_with("exec guest-load run /plan"));
    }

    #[test]
    fn a_disk_gets_its_rate_after_it_is_filled() {
        let r3 = script("r3-boost0");
        let at = |what: &str| r3.find(what).unwrap();
        assert!(at("prefill") < at("mke2fs") && at("mke2fs") < at("mbps"));
        assert!(at("mbps") < at("mount -t ext4"));
        assert!(!script("r1-calm").contains("echo 0 > $C/mbps"));
    }
}

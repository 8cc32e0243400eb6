//! The guest's first and only file system: busybox, the writers, two modules, and what to do.
//!
//! Everything that the guest does stands in two texts made here: `/init`, which a shell runs, and
//! the plan, which the writers' program runs. The archive is written by us and holds no time, owner
//! or number of the host: two images of one scenario are the same bytes.
//!
//! Changing a rate. null_blk takes a new `mbps` only while the device is off. Its timer, though,
//! reads the value afresh every 20 ms, so the value is changed where it lies. The kernel lets
//! nobody write its memory; so the machine gets a second door to it, a PCI device (ivshmem) whose
//! memory *is* the guest's, and `devmem` writes one word there at the time asked for. Before the
//! run the address is found through `/proc/kcore`; after it the kernel is asked for the value.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::Kernel;
use super::scenarios::{Fs, Scenario, Writer};
use crate::{Result, at, steps};

/// Largest request of the devices, in sectors of 512 bytes.
pub(super) const MAX_SECTORS: u32 = 128;

/// The trace's buffer, in KiB: ten times what sixteen writers leave in 60 s. Lines that do not fit
/// are counted, and make the run fail.
const TRACE_KIB: u32 = 128 * 1024;
/// Size of a device without memory of its own, in MiB: the default of null_blk.
const ENDLESS_MIB: u32 = 250 * 1024;
/// Parts of an endless device that writers have to themselves, in MiB.
const PART_MIB: u64 = 8 * 1024;
/// Space of an ext4 beside the files, in MiB.
const EXT4_SPARE_MIB: u32 = 512;
/// Where memory goes on when there is more than fits below the PCI devices (QEMU, machine `pc`).
const HOLE_FROM_MIB: u32 = 3584;
const LOW_MIB: u32 = 3072;

/// The drivers that the kernel has to have, in the order in which modules are loaded: the way out
/// to the host, and the slow disk.
pub(super) const DRIVERS: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/char/virtio_console.ko",
    "fs/configfs/configfs.ko",
    "drivers/block/null_blk/null_blk.ko",
];

/// The programs that run in the guest.
pub(super) struct Programs {
    pub(super) busybox: PathBuf,
    pub(super) writer: PathBuf,
    pub(super) load: PathBuf,
}

/// Makes the archive.
///
/// # Errors
/// Something that goes into it is not there.
pub(super) fn make(scenario: &Scenario, kernel: &Kernel, programs: &Programs) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    busybox(&mut archive, programs)?;
    archive.file("bin/guest-writer", 0o755, &read(&programs.writer)?);
    let modules = drivers(&mut archive, kernel, &DRIVERS)?;
    if scenario.fs == Fs::Ext4 {
        for (name, content) in mke2fs()? {
            archive.file(name.trim_start_matches('/'), 0o755, &content);
        }
    }
    for folder in ["dev", "mnt", "proc", "sys"] {
        archive.folder(folder);
    }
    archive.file("init", 0o755, init(scenario, &modules).as_bytes());
    Ok(archive.finish())
}

/// Puts the shell in.
///
/// # Errors
/// It is not there.
pub(super) fn busybox(archive: &mut Archive, programs: &Programs) -> Result<()> {
    archive.file("bin/busybox", 0o755, &read(&programs.busybox)?);
    Ok(())
}

/// Puts drivers in, and names those that have to be loaded.
///
/// # Errors
/// The kernel does not have one.
pub(super) fn drivers(
    archive: &mut Archive,
    kernel: &Kernel,
    paths: &[&'static str],
) -> Result<Vec<&'static str>> {
    let mut modules = Vec::new();
    for path in paths {
        if let Some(module) = kernel.module(path)? {
            let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
            archive.file(&format!("lib/{name}"), 0o644, &module);
            modules.push(name);
        }
    }
    Ok(modules)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(at(path))
}

/// `mke2fs` and its libraries, by their paths.
///
/// # Errors
/// They are not there; the message says what to install.
pub(super) fn mke2fs() -> Result<BTreeMap<String, Vec<u8>>> {
    let program = "/sbin/mke2fs";
    let listed = steps::output(Command::new("ldd").arg(program))
        .map_err(|problem| format!("{problem}\next4 needs mke2fs: apt-get install e2fsprogs"))?;
    let libraries = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    std::iter::once(program)
        .chain(libraries)
        .map(|path| Ok((path.to_owned(), read(Path::new(path))?)))
        .collect()
}

/// The beginning of every script: devices, drivers, the folders of the kernel.
pub(super) fn begin(modules: &[&str]) -> String {
    let mut text = BEGIN.to_owned();
    for module in modules {
        // Without parameter null_blk would make a device of its own.
        let parameters = if module.starts_with("null_blk") {
            " nr_devices=0"
        } else {
            ""
        };
        let _ = writeln!(text, "insmod /lib/{module}{parameters}");
    }
    text.push_str("mount -t configfs config /sys/kernel/config\n");
    text
}

/// The shell script that the kernel starts.
fn init(scenario: &Scenario, modules: &[&str]) -> String {
    let mut text = begin(modules);
    let (dirty, bg) = (
        u64::from(scenario.dirty) << 20,
        u64::from(scenario.bg) << 20,
    );
    let _ = writeln!(text, "echo {dirty} > /proc/sys/vm/dirty_bytes");
    let _ = writeln!(text, "echo {bg} > /proc/sys/vm/dirty_background_bytes");
    for (device, rate) in scenario.devices.iter().enumerate() {
        let _ = writeln!(text, "C=/sys/kernel/config/nullb/nullb{device}");
        text.push_str("mkdir $C\n");
        let _ = writeln!(text, "echo {MAX_SECTORS} > $C/max_sectors");
        if scenario.fs == Fs::Ext4 {
            format_device(scenario, device, &mut text);
        } else {
            let _ = writeln!(text, "echo {ENDLESS_MIB} > $C/size");
        }
        let _ = writeln!(text, "echo {rate} > $C/mbps\necho 1 > $C/power");
        if scenario.fs == Fs::Ext4 {
            let _ = writeln!(text, "mkdir /mnt/{device}");
            let _ = writeln!(text, "mount -t ext4 /dev/nullb{device} /mnt/{device}");
        }
        if let Some(ratio) = scenario.max_ratio {
            let bdi = format!("/sys/block/nullb{device}/bdi");
            let _ = writeln!(text, "echo {ratio} > {bdi}/max_ratio");
            let _ = writeln!(text, "echo 1 > {bdi}/strict_limit");
        }
    }
    if !scenario.change.is_empty() {
        text.push_str(DOOR);
    }
    text.push_str(FACTS);
    let _ = writeln!(text, "echo {TRACE_KIB} > $T/buffer_size_kb");
    text.push_str("cat > /plan <<END\n");
    text.push_str(&plan(scenario));
    text.push_str("END\n");
    text.push_str(FINISH);
    text
}

/// Makes a file system while the device has no rate and its bandwidth is not yet estimated: the
/// device that is measured is a new one on the same memory.
fn format_device(scenario: &Scenario, device: usize, text: &mut String) {
    let size = scenario.volume_mib() + scenario.dirty + EXT4_SPARE_MIB;
    let _ = writeln!(text, "echo {size} > $C/size\necho 1 > $C/memory_backed");
    text.push_str("echo 1 > $C/power\n");
    let _ = writeln!(
        text,
        "/sbin/mke2fs -q -F -t ext4 -N 1024 -J size=16 -E nodiscard,lazy_itable_init=0 /dev/nullb{device}"
    );
    text.push_str("echo 0 > $C/power\n");
}

/// The plan, in which the shell still fills in what only the guest knows.
fn plan(scenario: &Scenario) -> String {
    let mut text = format!(
        "seconds {}\nout /dev/vport0p1\ntracing $T\nattach facts /facts\n",
        scenario.seconds
    );
    for device in 0..scenario.devices.len() {
        let _ = writeln!(text, "device $(cat /sys/block/nullb{device}/dev)");
        let _ = writeln!(
            text,
            "attach mbps{device} /sys/kernel/config/nullb/nullb{device}/mbps"
        );
    }
    for (number, writer) in scenario.writers.iter().enumerate() {
        let Writer {
            device,
            bytes,
            sleep_ms,
            start_s,
        } = writer;
        let (path, offset) = match scenario.fs {
            Fs::None => (
                format!("/dev/nullb{device}"),
                (number as u64 * PART_MIB) << 20,
            ),
            Fs::Ext4 => (format!("/mnt/{device}/w{number}"), 0),
        };
        let (sleep_us, start_ms) = (sleep_ms * 1000, start_s * 1000);
        let _ = writeln!(text, "writer {path} {offset} {bytes} {sleep_us} {start_ms}");
    }
    let low = if scenario.memory_mib() < HOLE_FROM_MIB {
        scenario.memory_mib()
    } else {
        LOW_MIB
    };
    for change in &scenario.change {
        let (device, at_ms, mib) = (change.device, change.at_s * 1000, change.mib);
        let rate = scenario.devices[device];
        let _ = writeln!(
            text,
            "change {at_ms} /bin/busybox devmem $(door {device} {rate} {low}) 32 {mib}"
        );
    }
    text
}

/// Any failure ends the guest before its last line, and the host shows the console.
const BEGIN: &str = r"#!/bin/busybox sh
set -e
trap 'poweroff -f' EXIT
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t debugfs debug /sys/kernel/debug
T=/sys/kernel/tracing
mount -t tracefs trace $T
";

/// The second door to memory: `door DEVICE RATE LOW` prints the address of the rate.
const DOOR: &str = r#"for P in /sys/bus/pci/devices/*; do
    if [ "$(cat $P/vendor)$(cat $P/device)" = 0x1af40x1110 ]; then
        echo 1 > $P/enable
        DOOR=$(sed -n 3p $P/resource | cut -d' ' -f1)
    fi
done
door() {
    printf '0x%x' $((DOOR + $(guest-writer rate-address $1 $2 $3)))
}
"#;

/// The facts that a model of this guest has to know, as `key=value`.
const FACTS: &str = r#"{
    echo "kernel=$(uname -r)"
    echo "version=$(uname -v)"
    echo "cmdline=$(cat /proc/cmdline)"
    echo "clocksource=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
    grep ext4 /proc/mounts | while read D M F O REST; do echo "mount.$M=$D $F $O"; done
    grep -E '^(MemTotal|MemAvailable)' /proc/meminfo | tr -s ' ' | sed 's/: /=/'
    for F in /proc/sys/vm/dirty*; do echo "vm.${F##*/}=$(cat $F)"; done
    for B in /sys/block/nullb*; do
        D=${B##*/}
        echo "$D.dev=$(cat $B/dev)"
        for F in scheduler nr_requests wbt_lat_usec max_sectors_kb max_segments rotational write_cache nomerges io_timeout; do
            echo "$D.queue.$F=$(cat $B/queue/$F)"
        done
        for F in min_ratio max_ratio strict_limit; do echo "$D.bdi.$F=$(cat $B/bdi/$F 2> /dev/null)"; done
        for F in wb_background wb_normal; do
            echo "$D.wbt.$F=$(cat /sys/kernel/debug/block/$D/rqos/wbt/$F)"
        done
        C=/sys/kernel/config/nullb/$D
        for F in size blocksize queue_mode irqmode submit_queues hw_queue_depth max_sectors memory_backed mbps; do
            echo "$D.null_blk.$F=$(cat $C/$F)"
        done
    done
} > /facts
echo 0 > $T/tracing_on
echo mono > $T/trace_clock
for E in balance_dirty_pages bdi_dirty_ratelimit; do
    echo 1 > $T/events/writeback/$E/enable
done
"#;

const FINISH: &str = r"guest-writer run /plan
echo virtual end
";

/// A cpio archive of the form `newc`, which the kernel unpacks at its start.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    /// Folders that are in it.
    folders: Vec<String>,
    number: u32,
}

impl Archive {
    pub(super) fn folder(&mut self, path: &str) {
        if self.folders.iter().any(|folder| folder == path) {
            return;
        }
        self.folders.push(path.to_owned());
        self.entry(path, 0o040_755, &[]);
    }

    /// Adds a file, and the folders that it lies in.
    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        for (at, _) in path.match_indices('/') {
            self.folder(&path[..at]);
        }
        self.entry(path, 0o100_000 | mode, content);
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.number += 1;
        let fields = [
            self.number as usize,
            mode as usize,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            path.len() + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::scenarios::all;

    #[test]
    fn an_archive_is_what_cpio_says() {
        let mut archive = Archive::default();
        archive.file("a/b/c", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<_> = text
            .split("070701")
            .skip(1)
            .map(|entry| entry[104..].split('\0').next().unwrap())
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "TRAILER!!!"]);
        assert!(text.contains("c\0") && text.contains("hello"));
    }

    #[test]
    fn writers_have_their_own_parts_and_all_fit() {
        for scenario in all().iter().filter(|one| one.fs == Fs::None) {
            let parts = scenario.writers.len() as u64;
            assert!(
                parts * PART_MIB <= u64::from(ENDLESS_MIB),
                "{}",
                scenario.name
            );
            assert!(
                u64::from(scenario.volume_mib()) < PART_MIB,
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn the_script_sets_what_the_scenario_says() {
        let find = |name: &str| all().into_iter().find(|one| one.name == name).unwrap();
        let drop = init(&find("rate-drop"), &["null_blk.ko"]);
        assert!(drop.contains("echo 67108864 > /proc/sys/vm/dirty_bytes"));
        let change = "change 40000 /bin/busybox devmem $(door 0 32 3072) 32 8\n";
        assert!(drop.contains(change), "{drop}");
        let strict = init(&find("one-dd-strict"), &[]);
        assert!(strict.contains("bdi/strict_limit") && !strict.contains("devmem"));
        assert!(init(&find("ext4-one-dd"), &[]).contains("mke2fs"));
    }
}

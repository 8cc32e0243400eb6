//! `cargo instruments numa`: whether a cache's memory comes from the nodes that it asks, on a
//! machine of two.
//!
//! QEMU has two nodes of one CPU and 320 MiB each. The program is the worker `nodes`, run from
//! either CPU; it compares what the cache says with `/proc/self/numa_maps`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::image::Archive;
use super::kernel::{self, Kernel};
use crate::steps;
use crate::workspace::Workspace;
use crate::{Result, at};

/// Longest time, by the clock on the wall: without hardware help it is some 40 s.
const LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(200);
/// The last line of either run.
const AS_SAID: &str = "nodes: as said";

const INIT: &str = r"#!/bin/busybox sh
trap 'poweroff -f' EXIT
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir /tmp
mount -t tmpfs tmp /tmp
for CPU in 0 1; do
    echo from CPU $CPU
    taskset -c $CPU nodes
done
";

/// Runs the guest and prints what it said.
///
/// # Errors
/// Something is missing, the guest does not end, or memory is not where it was asked from.
pub(crate) fn run() -> Result<()> {
    let base = Workspace::load()?.target.join("guest");
    kernel::provide()?;
    let cache = base.join("kernels");
    let made = |folder: &Path| fs::create_dir_all(folder).map_err(at(folder));
    made(&cache)?;
    let kernel = Kernel::fetch(&cache, None)?;
    let read = |path: &Path| fs::read(path).map_err(at(path));
    let mut archive = Archive::default();
    archive.file("bin/busybox", 0o755, &read(&kernel::busybox(&cache)?)?);
    archive.file("bin/nodes", 0o755, &read(&build(&base)?)?);
    for folder in ["dev", "proc", "sys"] {
        archive.folder(folder);
    }
    archive.file("init", 0o755, INIT.as_bytes());
    let folder = base.join(format!("numa-{}", std::process::id()));
    made(&folder)?;
    let said = boot(&kernel, &folder, &archive.finish());
    let _ = fs::remove_dir_all(&folder);
    let said = said?;
    println!("{}", said.trim());
    match said.matches(AS_SAID).count() {
        2 => Ok(()),
        count => Err(format!(
            "{count} of 2 runs found their memory where it was asked from"
        )),
    }
}

/// The worker, static.
fn build(base: &Path) -> Result<std::path::PathBuf> {
    super::build(base, &["tidegate-workers", "--bin", "nodes"]).map(|built| built.join("nodes"))
}

/// The console of the guest.
fn boot(kernel: &Kernel, folder: &Path, initrd: &[u8]) -> Result<String> {
    let image = folder.join("initrd");
    fs::write(&image, initrd).map_err(at(&image))?;
    let console = folder.join("console");
    // Were we killed, nobody would end QEMU: the kernel does.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
    command.args(["-accel", "tcg", "-smp", "2", "-m", "640M"]);
    for node in ["0", "1"] {
        command.args([
            "-object",
            &format!("memory-backend-ram,id=m{node},size=320M"),
        ]);
        command.args([
            "-numa",
            &format!("node,nodeid={node},cpus={node},memdev=m{node}"),
        ]);
    }
    command.args(["-numa", "dist,src=0,dst=1,val=21"]);
    command.args(["-nographic", "-no-reboot", "-nodefaults"]);
    command.args(["-serial", &format!("file:{}", console.display())]);
    command
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(&image);
    command.args(["-append", "console=ttyS0 quiet panic=-1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    eprintln!("    {}", steps::typed(&command));
    let mut child = command
        .spawn()
        .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
    let began = Instant::now();
    let heard =
        || String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).replace('\r', "");
    loop {
        let status = child
            .try_wait()
            .map_err(|error| format!("waiting for QEMU: {error}"))?;
        match status {
            Some(status) if status.success() => return Ok(heard()),
            Some(status) => return Err(format!("QEMU ended with {status}:\n{}", heard())),
            None if began.elapsed() >= LIMIT => {
                let _ = child.kill();
                let _ = child.wait();
                let limit = LIMIT.as_secs();
                return Err(format!(
                    "the guest was not done after {limit} s:\n{}",
                    heard()
                ));
            }
            None => std::thread::sleep(POLL),
        }
    }
}

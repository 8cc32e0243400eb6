//! A slow disk for both sides, and memory with a limit for the kernel's.
//!
//! The disk is a loop device over a file of ours, whose writes a control group of the system holds
//! to a rate. With control groups of version 1 the rule is the whole system's, for this device
//! alone; with version 2 the process is in a group of its own while a side runs. All of it takes
//! root, and is taken back at the end.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::DemoError;
use super::{LEN, RATE};

const V1: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
const V1_MEMORY: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// It. Dropped, it is gone.
pub(super) struct Disk {
    pub(super) device: PathBuf,
    pub(super) file: PathBuf,
    /// As the rules name it: `7:0`.
    number: String,
    /// The group that bounds memory.
    group: PathBuf,
    /// The group that the process came from: none while it is there.
    home: Option<PathBuf>,
    is_v1: bool,
}

/// Writes a line to a file of the system's.
fn tell(path: &Path, line: &str) -> Result<(), DemoError> {
    fs::write(path, line).map_err(DemoError::io(format!(
        "{} (a slow disk for both sides takes root; run it as root)",
        path.display()
    )))
}

fn losetup(words: &[&str], file: &Path) -> Result<String, DemoError> {
    let mut command = Command::new("losetup");
    let ran = command.args(words).arg(file).stdin(Stdio::null()).output();
    let failed = DemoError::io("losetup (a slow disk for both sides takes root; run it as root)");
    match ran {
        Ok(ran) if ran.status.success() => {
            Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
        }
        Ok(ran) => Err(failed(io::Error::other(
            String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
        ))),
        Err(error) => Err(failed(error)),
    }
}

/// The group of this process under a controller; that of version 2 without one.
fn group_of(controller: &str) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let controllers = words.next()?;
        let is_it = controllers.split(',').any(|other| other == controller);
        is_it.then(|| words.next().map(str::to_owned))?
    })
}

impl Disk {
    /// Makes it in a folder.
    pub(super) fn new(folder: &Path) -> Result<Self, DemoError> {
        let file = folder.join("disk");
        let failed = || DemoError::io(file.display().to_string());
        let mut made = fs::File::create_new(&file).map_err(failed())?;
        for _ in 0..LEN >> 20 {
            made.write_all(&[0; 1 << 20]).map_err(failed())?;
        }
        made.sync_all().map_err(failed())?;
        let device = losetup(&["--find", "--show", "--direct-io=on"], &file)
            .or_else(|_| losetup(&["--find", "--show"], &file))?;
        let device = PathBuf::from(device);
        let name = device.file_name().unwrap_or_default().to_owned();
        let number = fs::read_to_string(Path::new("/sys/block").join(name).join("dev"));
        let is_v1 = Path::new(V1).exists();
        let own = format!("tidegate-demo-{}", std::process::id());
        let (group, home) = if is_v1 {
            let root = Path::new(V1_MEMORY);
            let home = root.join(
                group_of("memory")
                    .unwrap_or_default()
                    .trim_start_matches('/'),
            );
            let home = if home.exists() { home } else { root.to_owned() };
            (home.join(own), home)
        } else {
            let home = Path::new(V2).join(group_of("").unwrap_or_default().trim_start_matches('/'));
            (Path::new(V2).join(own), home)
        };
        // Dropped, it takes back what there is.
        let disk = Self {
            device,
            number: number.unwrap_or_default().trim().to_owned(),
            file,
            group,
            home: Some(home),
            is_v1,
        };
        fs::create_dir_all(&disk.group).map_err(DemoError::io(disk.group.display().to_string()))?;
        disk.limit_rate(Some(RATE))?;
        Ok(disk)
    }

    fn limit_rate(&self, rate: Option<u64>) -> Result<(), DemoError> {
        let number = &self.number;
        if self.is_v1 {
            return tell(Path::new(V1), &format!("{number} {}", rate.unwrap_or(0)));
        }
        let rate = rate.map_or("max".into(), |rate| rate.to_string());
        tell(&self.group.join("io.max"), &format!("{number} wbps={rate}"))
    }

    /// From now on it is as fast as it can be: nobody waits for it any more.
    pub(super) fn hurry(&self) {
        let _ = self.limit_rate(None);
    }

    /// Puts the process where the disk is slow, and its memory bounded, if a limit is given.
    pub(super) fn enter(&mut self, memory: Option<u64>) -> Result<(), DemoError> {
        if self.is_v1 && memory.is_none() {
            return Ok(());
        }
        let (name, none) = if self.is_v1 {
            ("memory.limit_in_bytes", "-1")
        } else {
            ("memory.max", "max")
        };
        let limit = memory.map_or(none.to_owned(), |memory| memory.to_string());
        tell(&self.group.join(name), &limit)?;
        self.join(&self.group)
    }

    /// Puts it back.
    pub(super) fn leave(&self) -> Result<(), DemoError> {
        self.home.as_deref().map_or(Ok(()), |home| self.join(home))
    }

    fn join(&self, group: &Path) -> Result<(), DemoError> {
        let process = std::process::id().to_string();
        tell(&group.join("cgroup.procs"), &process)
    }

    /// The most memory that was in the group.
    pub(super) fn most(&self) -> u64 {
        let name = if self.is_v1 {
            "memory.max_usage_in_bytes"
        } else {
            "memory.peak"
        };
        let read = fs::read_to_string(self.group.join(name)).unwrap_or_default();
        read.trim().parse().unwrap_or(0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.hurry();
        let _ = self.leave();
        let _ = losetup(&["--detach"], &self.device);
        let _ = fs::remove_dir(&self.group);
        // Its folder goes with it.
    }
}

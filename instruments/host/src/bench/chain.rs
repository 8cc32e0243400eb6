//! A slow block device for the kernel and for us alike: the chain of the field recordings
//! (docs/study/reference/field-recordings.md).
//!
//! ```text
//!   ext4 (16 MiB journal)          or nothing: the writers then write /dev/loopN itself
//!   /dev/loopN                     fresh, so that its bandwidth estimate is nobody else's
//!   FUSE file (nbdfuse)
//!   NBD export in memory (nbdkit)  a token bucket of so many MiB/s and 50 ms
//! ```
//!
//! Every part is a deed of `Undo`. A device is released at full speed: its rate is the last thing
//! that is set, so the first that is undone.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::undo::{Deed, Undo};
use crate::{Result, at, steps};

/// Size of a device: sparse memory.
const SIZE: &str = "4G";
/// Bits a second of a device that is not slow; also of every device while it is taken down.
const AT_ONCE: u64 = 1 << 40;
/// Loop devices of the bench begin here: above what others take with `losetup -f`.
const LOOP_FIRST: u32 = 100;
/// Time that a part may take to appear.
const APPEARS_MAX: Duration = Duration::from_secs(10);

/// True if this process may change the machine.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// The part that the chain lacks; none: it can be built.
pub(crate) fn missing() -> Option<String> {
    if !is_root() {
        return Some("it needs root (loop devices, vm.dirty_bytes)".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Some(format!("there is no {device}"));
        }
    }
    let tools = [
        ("nbdkit", "nbdkit"),
        ("nbdfuse", "libnbd-bin"),
        ("losetup", "mount"),
        ("mkfs.ext4", "e2fsprogs"),
    ];
    let absent = tools
        .iter()
        .find(|(tool, _)| !steps::is_there(tool, &["--version"]));
    // mkfs.ext4 has another word for it.
    let absent = absent.filter(|(tool, _)| !steps::is_there(tool, &["-V"]));
    absent.map(|(tool, package)| format!("{tool} is not installed (apt-get install {package})"))
}

/// A device of the chain.
pub(crate) struct Disk {
    /// `/dev/loopN`.
    pub(crate) node: PathBuf,
    /// The mount of its file system; none without one.
    pub(crate) mount: Option<PathBuf>,
    /// `7:N`.
    pub(crate) number: String,
    rate: PathBuf,
}

impl Disk {
    /// Builds a device of `rate_mib` MiB a second (none: as fast as it can), with ext4 or without.
    ///
    /// # Errors
    /// The first part that could not be made.
    pub(crate) fn build(undo: &Undo, rate_mib: Option<u64>, ext4: bool) -> Result<Self> {
        let number = free_loop();
        let folder = PathBuf::from(format!("/run/tidegate-bench-loop{number}"));
        let (socket, rate) = (folder.join("socket"), folder.join("rate"));
        let (fuse, mount) = (folder.join("fuse"), folder.join("ext4"));
        for path in [&folder, &fuse, &mount] {
            undo.note(Deed::MadeFolder(path.clone()))?;
            fs::create_dir(path).map_err(at(path))?;
        }
        undo.note(Deed::MadeFile(socket.clone()))?;
        undo.note(Deed::MadeFile(rate.clone()))?;
        let disk = Self {
            node: format!("/dev/loop{number}").into(),
            mount: ext4.then(|| mount.clone()),
            number: format!("7:{number}"),
            rate,
        };
        disk.set_bits(AT_ONCE)?;
        disk.export(undo, &socket)?;
        disk.fuse(undo, &socket, &fuse)?;
        undo.note(Deed::MadeLoop(number))?;
        undo.note(Deed::AttachedLoop(disk.node.clone()))?;
        run(
            "losetup",
            [disk.node.as_os_str(), fuse.join("nbd").as_os_str()],
        )?;
        if ext4 {
            let plain = "lazy_itable_init=0,lazy_journal_init=0";
            let options = ["-q", "-F", "-J", "size=16", "-E", plain];
            let mut words: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
            words.push(disk.node.as_os_str());
            run("mkfs.ext4", words)?;
            undo.note(Deed::Mounted(mount.clone()))?;
            run("mount", [disk.node.as_os_str(), mount.as_os_str()])?;
        }
        if let Some(rate_mib) = rate_mib {
            undo.note(Deed::Wrote(disk.rate.clone(), AT_ONCE.to_string()))?;
            disk.set_rate(rate_mib)?;
        }
        Ok(disk)
    }

    fn export(&self, undo: &Undo, socket: &Path) -> Result<()> {
        let mut nbdkit = Command::new("nbdkit");
        nbdkit
            .args(["--foreground", "--filter=rate", "-U"])
            .arg(socket)
            .args(["memory", SIZE, "burstiness=0.05"])
            .arg(format!("rate-file={}", self.rate.display()))
            .arg(format!("rate={AT_ONCE}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let nbdkit = undo.start(&mut nbdkit)?;
        appears("nbdkit", &|| socket.exists(), &|| nbdkit.has_ended())
    }

    fn fuse(&self, undo: &Undo, socket: &Path, fuse: &Path) -> Result<()> {
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse
            .arg(fuse)
            .arg(format!("nbd+unix:///?socket={}", socket.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let nbdfuse = undo.start(&mut nbdfuse)?;
        undo.note(Deed::Mounted(fuse.into()))?;
        let file = fuse.join("nbd");
        appears("nbdfuse", &|| file.exists(), &|| nbdfuse.has_ended())
    }

    /// Changes the rate, MiB a second.
    ///
    /// # Errors
    /// The file of the rate cannot be written.
    pub(crate) fn set_rate(&self, rate_mib: u64) -> Result<()> {
        self.set_bits(rate_mib << 23)
    }

    /// nbdkit reads the file now and then, so it must always be whole.
    fn set_bits(&self, bits: u64) -> Result<()> {
        let fresh = self.rate.with_extension("new");
        fs::write(&fresh, bits.to_string())
            .and_then(|()| fs::rename(&fresh, &self.rate))
            .map_err(at(&self.rate))
    }

    /// Gives the device a strict limit of its own: `percent` per cent of the dirty limit.
    ///
    /// # Errors
    /// The kernel has no such limit.
    pub(crate) fn set_strict(&self, undo: &Undo, percent: u64) -> Result<()> {
        let folder = PathBuf::from(format!("/sys/class/bdi/{}", self.number));
        undo.set(&folder.join("max_ratio"), &percent.to_string())?;
        undo.set(&folder.join("strict_limit"), "1")
    }
}

/// Sets the dirty limits of the whole machine, in bytes, until the end of the scope.
///
/// # Errors
/// The kernel refuses them.
pub(crate) fn set_dirty_limits(undo: &Undo, dirty: u64, background: u64) -> Result<()> {
    for (kind, bytes) in [("dirty_background", background), ("dirty", dirty)] {
        let file = |unit: &str| PathBuf::from(format!("/proc/sys/vm/{kind}_{unit}"));
        let read = |unit: &str| {
            let file = file(unit);
            let text = fs::read_to_string(&file);
            let text = text.map_err(at(&file))?;
            Ok::<_, String>(text.trim().to_owned())
        };
        // Of bytes and ratio one is zero: the one written last counts, and a zero cannot be
        // written.
        let (old_bytes, old_ratio) = (read("bytes")?, read("ratio")?);
        undo.note(if old_bytes == "0" {
            Deed::Wrote(file("ratio"), old_ratio)
        } else {
            Deed::Wrote(file("bytes"), old_bytes)
        })?;
        let file = file("bytes");
        fs::write(&file, bytes.to_string()).map_err(at(&file))?;
    }
    Ok(())
}

/// The first number of ours that is not taken.
pub(super) fn free_loop() -> u32 {
    let is_free = |number: &u32| !Path::new(&format!("/sys/block/loop{number}")).exists();
    (LOOP_FIRST..).find(is_free).unwrap_or(LOOP_FIRST)
}

fn appears(what: &str, is_there: &dyn Fn() -> bool, has_ended: &dyn Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_there() {
        if has_ended() {
            return Err(format!("{what} ended at once"));
        }
        if began.elapsed() > APPEARS_MAX {
            return Err(format!("{what} does not come up"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a command that says nothing when it succeeds.
pub(super) fn run<'a>(program: &str, words: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
    let mut command = Command::new(program);
    let output = command
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!(
        "{}: {}: {said}",
        steps::typed(&command),
        output.status
    ))
}

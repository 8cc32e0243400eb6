//! The slow device of the pacing bar: 2 ms a request, one at a time, for the kernel and for servers
//! alike.
//!
//! ```text
//!   /dev/loopN            what Linux's page cache and qemu-nbd are on, with a strict limit of its own
//!   FUSE file (nbdfuse)   what servers with O_DIRECT are on
//!   NBD export in memory  nbdkit: noparallel, delay
//! ```
//!
//! Every part is a deed of `Undo`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::undo::{Deed, Process, Undo};
use crate::{Result, at, steps};

/// Size of the device: 512 MiB of the heavy writer, 8 of the light one, and some.
const SIZE: &str = "600M";
/// Time that a part may take to appear.
const APPEARS_MAX: Duration = Duration::from_secs(10);
/// Loop devices of this bench begin here.
const LOOP_FIRST: u32 = 140;

/// The device, taken down with its `Undo` scope.
pub(super) struct Device {
    /// The socket of the export itself.
    pub(super) socket: PathBuf,
    /// The file on it.
    pub(super) file: PathBuf,
    /// The loop device on that, where it was asked for.
    pub(super) node: Option<PathBuf>,
}

impl Device {
    /// Builds it; with a loop device whose dirty data are limited to `strict` bytes.
    ///
    /// # Errors
    /// The first part that could not be made.
    pub(super) fn build(undo: &Undo, strict: Option<u64>) -> Result<Self> {
        let number = free_loop();
        let folder = PathBuf::from(format!("/run/tidegate-serve-{number}"));
        let (socket, fuse) = (folder.join("socket"), folder.join("fuse"));
        for path in [&folder, &fuse] {
            undo.note(Deed::MadeFolder(path.clone()))?;
            fs::create_dir(path).map_err(at(path))?;
        }
        undo.note(Deed::MadeFile(socket.clone()))?;
        let mut nbdkit = Command::new("nbdkit");
        nbdkit
            .args([
                "--foreground",
                "--filter=noparallel",
                "--filter=delay",
                "-U",
            ])
            .arg(&socket)
            .args(["memory", SIZE, "rdelay=2ms", "wdelay=2ms"])
            // Of all connections together.
            .args(["serialize=all-requests"]);
        let nbdkit = start(undo, &mut nbdkit)?;
        appears("nbdkit", &nbdkit, &socket)?;
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse
            .arg(&fuse)
            .arg(format!("nbd+unix:///?socket={}", socket.display()));
        let nbdfuse = start(undo, &mut nbdfuse)?;
        undo.note(Deed::Mounted(fuse.clone()))?;
        let file = fuse.join("nbd");
        appears("nbdfuse", &nbdfuse, &file)?;
        let mut device = Self {
            socket,
            file,
            node: None,
        };
        if let Some(bytes) = strict {
            let node = PathBuf::from(format!("/dev/loop{number}"));
            undo.note(Deed::MadeLoop(number))?;
            undo.note(Deed::AttachedLoop(node.clone()))?;
            let mut losetup = Command::new("losetup");
            steps::output(losetup.arg(&node).arg(&device.file))?;
            let limits = PathBuf::from(format!("/sys/class/bdi/7:{number}"));
            undo.set(&limits.join("max_bytes"), &bytes.to_string())?;
            undo.set(&limits.join("strict_limit"), "1")?;
            device.node = Some(node);
        }
        Ok(device)
    }
}

fn start(undo: &Undo, command: &mut Command) -> Result<Process> {
    eprintln!("    {}", steps::typed(command));
    undo.start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn appears(what: &str, process: &Process, path: &Path) -> Result<()> {
    let began = Instant::now();
    while !path.exists() {
        if process.has_ended() {
            return Err(format!("{what} ended at once"));
        }
        if began.elapsed() > APPEARS_MAX {
            return Err(format!("{what} does not come up"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn free_loop() -> u32 {
    let is_free = |number: &u32| !Path::new(&format!("/sys/block/loop{number}")).exists();
    (LOOP_FIRST..).find(is_free).unwrap_or(LOOP_FIRST)
}

//! The trial of the package `tidegate`, in a root of its own: `cargo xtask dist` calls itself in
//! new namespaces, where this runs.
//!
//! ```text
//!   dpkg -i ──> started by the unit's words ──> a volume is written, flushed
//!   dpkg -i of a later version while it serves ──> ended, started again: the volume is as it was
//!   dpkg -r ──> the configuration stays ──> dpkg -P: it goes; the volume stays
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::c::{copy, make, read};
use crate::server::Server;
use crate::steps;
use crate::{Result, at};

const RUN_MAX: Duration = Duration::from_secs(2 * 60);
/// Bytes that are written to the volume.
const DATA: usize = 8 << 20;

/// A root of its own.
struct Root {
    path: PathBuf,
}

impl Root {
    /// An overlay on this machine's root: what is changed in it is gone with the namespace.
    fn new(work: &Path) -> Result<Self> {
        let mount = |words: &[&str], at: &Path| {
            steps::run(Command::new("mount").args(words).arg(at), RUN_MAX)
        };
        mount(&["-t", "tmpfs", "none"], work)?;
        let part = |name: &str| work.join(name);
        for name in ["upper", "work", "root"] {
            make(&part(name))?;
        }
        let layers = format!(
            "lowerdir=/,upperdir={},workdir={}",
            part("upper").display(),
            part("work").display()
        );
        let path = part("root");
        mount(&["-t", "overlay", "overlay", "-o", &layers], &path)?;
        mount(&["-t", "proc", "none"], &path.join("proc"))?;
        for folder in ["run", "tmp"] {
            mount(&["-t", "tmpfs", "none"], &path.join(folder))?;
        }
        mount(&["--rbind", "/dev"], &path.join("dev"))?;
        // A network of its own, so that no server of this machine has its port.
        steps::run(
            Command::new("ip").args(["link", "set", "lo", "up"]),
            RUN_MAX,
        )?;
        Ok(Self { path })
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.path).arg(program).args(words);
        command
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<()> {
        steps::run(&mut self.command(program, words), RUN_MAX)
    }

    fn has(&self, path: &str) -> bool {
        self.path.join(path).exists()
    }

    /// The path is there, or is not.
    fn expect(&self, path: &str, there: bool) -> Result<()> {
        if self.has(path) == there {
            return Ok(());
        }
        Err(format!(
            "/{path} is {}",
            if there { "not there" } else { "still there" }
        ))
    }
}

/// Starts the server as its unit does; answers when it serves.
fn start(root: &Root) -> Result<Server> {
    let unit = read(&root.path.join("lib/systemd/system/tidegate.service"))?;
    let value = |key: &str| {
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.ok_or_else(|| format!("the unit has no {key}"))
    };
    let (user, group) = (value("User")?, value("Group")?);
    // Systemd makes these before it.
    let folders = [
        ("/run", value("RuntimeDirectory")?),
        ("/var/lib", value("StateDirectory")?),
    ];
    for (place, name) in folders {
        let folder = format!("{place}/{name}");
        root.run("install", &["-d", "-o", user, "-g", group, &folder])?;
    }
    let mut command = Command::new("chroot");
    command
        .arg(format!("--userspec={user}:{group}"))
        .arg(&root.path)
        .args(value("ExecStart")?.split(' '));
    Server::start(&mut command, &root.path.join("run/tidegate/nbd.sock"))
}

const URI: &str = "nbd+unix:///default?socket=/run/tidegate/nbd.sock";

/// Runs it; both packages are of the same content, the second of a later version.
pub(crate) fn run(work: &Path, first: &Path, second: &Path) -> Result<()> {
    // In memory, so that nothing of them is hidden by what is mounted.
    let packages =
        [fs::read(first), fs::read(second)].map(|bytes| bytes.map_err(|error| error.to_string()));
    let root = Root::new(work)?;
    for (bytes, name) in packages.into_iter().zip(["first.deb", "second.deb"]) {
        fs::write(root.path.join("tmp").join(name), bytes?).map_err(|error| error.to_string())?;
    }
    let data: Vec<u8> = (0..DATA)
        .map(|at| (at / 512 + at % 253).to_le_bytes()[0])
        .collect();
    fs::write(root.path.join("tmp/data"), &data).map_err(|error| error.to_string())?;

    let began = Instant::now();
    root.run("dpkg", &["-i", "/tmp/first.deb"])?;
    let installed = began.elapsed();
    let server = start(&root)?;
    root.run("nbdinfo", &["--size", URI])?;
    println!(
        "    from dpkg -i to the first answer: {:.2} s, of which dpkg {:.2} s",
        began.elapsed().as_secs_f64(),
        installed.as_secs_f64()
    );
    root.run("getent", &["passwd", "tidegate"])?;
    for path in [
        "usr/share/man/man1/tidegate-serve.1.gz",
        "usr/share/bash-completion/completions/tidegate",
    ] {
        root.expect(path, true)?;
    }
    root.run("nbdcopy", &["--flush", "/tmp/data", URI])?;

    root.run("dpkg", &["-i", "/tmp/second.deb"])?;
    same(&root, &data)?;
    server.end_well()?;
    let server = start(&root)?;
    same(&root, &data)?;

    root.run("dpkg", &["-r", "tidegate"])?;
    // The server goes on until it is ended: here there is no systemd that would end it.
    same(&root, &data)?;
    server.end_well()?;
    root.expect("usr/bin/tidegate", false)?;
    root.expect("etc/tidegate/tidegate.toml", true)?;
    root.run("dpkg", &["-P", "tidegate"])?;
    root.expect("etc/tidegate", false)?;
    root.expect("var/lib/tidegate/default.img", true)
}

/// The volume begins with what was written.
fn same(root: &Root, data: &[u8]) -> Result<()> {
    let words = format!(
        "qemu-img dd -f raw -O raw bs=1M count={} if='{URI}' of=/tmp/back",
        DATA >> 20
    );
    root.run("sh", &["-c", &words])?;
    let back = root.path.join("tmp/back");
    let found = fs::read(&back).map_err(at(&back))?;
    if found == data {
        return Ok(());
    }
    copy(&back, Path::new("/tmp/tidegate-trial-back"))?;
    Err("the volume is not as it was written; it is in /tmp/tidegate-trial-back".into())
}

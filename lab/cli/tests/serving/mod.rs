//! The common part of the tests of `tidegate serve` from outside: the program, started and ended
//! like a user would, and the tools that are its clients.
//!
//! A client that is not installed skips its test with one line on the standard error, past the
//! capture of the tests: a skip must be seen. `TIDEGATE_TEST_SERVER=nbdkit` puts nbdkit in the
//! place of our server: a test that fails there is wrong itself. `nbdkit-forgets` keeps what is
//! flushed in memory: kills must be seen to lose it.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "each test uses a part of it; a test that cannot go on fails"
)]

mod client;
mod qemu_io;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use client::Client;
pub(crate) use qemu_io::QemuIo;

/// Bytes of a MiB.
pub(crate) const MIB: u64 = 1 << 20;
/// Time that the server may take to listen, and to end after it was asked to, on a machine that
/// does much else and has a slow disk.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes that are compared at a time.
const CHUNK: usize = 1 << 20;

/// A folder of a test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Short: the path of a socket has 108 bytes.
        let name = format!("tidegate-{}-{number}-{name}", std::process::id());
        // Not always the folder for temporary files: that may be memory, which has no O_DIRECT.
        let base = std::env::var_os("TIDEGATE_TEST_DIR").map(PathBuf::from);
        let path = base.unwrap_or_else(std::env::temp_dir).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tell(&format!("kept: {}", self.0.display()));
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// One line that is seen whether the test passes or not.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// True if all these programs are there; if not, says that the test is skipped.
pub(crate) fn have(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| {
        let mut folders = std::env::split_paths(&path);
        folders.any(|folder| folder.join(program).is_file())
            || Path::new("/usr/sbin").join(program).is_file()
    };
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !is_there(program))
        .collect();
    if missing.is_empty() {
        return true;
    }
    tell(&format!(
        "SKIPPED: {test}: {} not installed (.ci/run installs them)",
        missing.join(", ")
    ));
    false
}

/// A server and the volumes that it was given.
pub(crate) struct Server {
    child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts the server in a folder with a memory limit and volumes as the command line has them.
    pub(crate) fn start(folder: &Folder, memory: &str, volumes: &[&str]) -> Self {
        Self::start_with(folder, memory, &[], volumes)
    }

    /// The same with more options.
    pub(crate) fn start_with(
        folder: &Folder,
        memory: &str,
        options: &[&str],
        volumes: &[&str],
    ) -> Self {
        let (socket, log) = (folder.path("socket"), folder.path("server.log"));
        let other = std::env::var("TIDEGATE_TEST_SERVER").ok();
        let mut command = match other.as_deref() {
            Some("nbdkit") => nbdkit(&socket, volumes, &[]),
            Some("nbdkit-forgets") => nbdkit(&socket, volumes, &["cache=unsafe"]),
            _ => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
                command.args(["serve", "--memory", memory, "--listen"]);
                command.arg(format!("unix:{}", socket.display()));
                command.args(options).args(volumes);
                command
            }
        };
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        command
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out);
        let child = command.spawn().unwrap();
        let mut server = Self { child, socket, log };
        let began = Instant::now();
        // A server that was killed leaves its socket: there is a server when one answers.
        while UnixStream::connect(&server.socket).is_err() {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended with {status}:\n{}", server.said());
            }
            assert!(
                began.elapsed() < PATIENCE,
                "the server does not listen:\n{}",
                server.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// The address of a volume for clients.
    pub(crate) fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The text it has written so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let process = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &process]).status();
        assert!(asked.unwrap().success());
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "the server does not end:\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The same, and it must say that all went well.
    pub(crate) fn stop_well(&mut self) {
        let status = self.stop();
        assert!(status.success(), "{status}:\n{}", self.said());
    }

    /// Resident memory now and at most, bytes.
    pub(crate) fn resident(&self) -> (u64, u64) {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let field = |name: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            let kib = line.split_whitespace().nth(1).unwrap();
            kib.parse::<u64>().unwrap() << 10
        };
        (field("VmRSS:"), field("VmHWM:"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tell(&format!("the server said:\n{}", self.said()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nbdkit on the file of the only volume.
fn nbdkit(socket: &Path, volumes: &[&str], cache: &[&str]) -> Command {
    let file = volumes[0].split_once('=').unwrap().1;
    let _ = fs::remove_file(socket);
    let mut command = Command::new("nbdkit");
    command
        .args(["--foreground", "--newstyle", "-U"])
        .arg(socket);
    if !cache.is_empty() {
        command.arg("--filter=cache");
    }
    command.args(["file", &format!("file={file}")]).args(cache);
    command
}

/// Runs a client, which must succeed, and answers what it wrote to its standard output.
pub(crate) fn client(program: &str, arguments: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command(program, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}\n{}{}",
        text(&stdout),
        text(&stderr)
    );
    text(&stdout)
}

/// A command that finds what is in `sbin`, too, and speaks English.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Makes a sparse file of this size and answers the volume's argument for it.
pub(crate) fn sparse(folder: &Folder, name: &str, size: u64) -> String {
    let path = folder.path(name);
    File::create(&path).unwrap().set_len(size).unwrap();
    format!("{name}={}", path.display())
}

/// Numbers that look random and are the same again for the same seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn fill(&mut self, data: &mut [u8]) {
        for chunk in data.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Makes a file of which about a third is data that cannot be guessed, with holes between.
pub(crate) fn patchwork(path: &Path, size: u64, seed: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    let mut random = Random(seed);
    let mut data = vec![0; 256 << 10];
    let mut offset = 0;
    while offset < size {
        let len = (1 + random.below(64) * 4096)
            .min(size - offset)
            .min(256 << 10);
        let piece = &mut data[..usize::try_from(len).unwrap()];
        random.fill(piece);
        file.write_all_at(piece, offset).unwrap();
        offset += len + random.below(128) * 4096;
    }
}

/// The place at which two files differ first.
pub(crate) fn difference(a: &Path, b: &Path) -> Option<String> {
    let (mut a, mut b) = (File::open(a).unwrap(), File::open(b).unwrap());
    let (len_a, len_b) = (a.metadata().unwrap().len(), b.metadata().unwrap().len());
    if len_a != len_b {
        return Some(format!("{len_a} bytes and {len_b} bytes"));
    }
    let (mut one, mut other) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0;
    while offset < len_a {
        let len = usize::try_from((len_a - offset).min(CHUNK as u64)).unwrap();
        a.read_exact(&mut one[..len]).unwrap();
        b.read_exact(&mut other[..len]).unwrap();
        if one[..len] != other[..len] {
            let at = (0..len).find(|at| one[*at] != other[*at]).unwrap();
            return Some(format!("they differ at {}", offset + at as u64));
        }
        offset += len as u64;
    }
    None
}

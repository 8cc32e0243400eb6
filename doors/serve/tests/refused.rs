//! A server to which the system gives no thread, memory, descriptor or lock any more: what it has
//! acknowledged is on its backings when it has ended.
//!
//! Each seed is a process of its own, since what is refused is so for good: clients write, read and
//! flush, the refusal, they do so again, a reload by chance (which may take a volume out), the end;
//! a second server shows what is there. `TIDEGATE_SEEDS=N` says how many, `TIDEGATE_SEED=S` the
//! first.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nbd::client::{Client, Wishes};
use nbd::wire::Errno;
use serve::config::Asked;
use testkit::refuse::{Refused, refuse};

/// Seeds of `cargo test`.
const SEEDS: u64 = 8;
/// A server that does so little for so long does not go on.
const LONG: Duration = Duration::from_secs(60);
const PAGE: u64 = 4096;
/// Pages of a volume.
const PAGES: u64 = 4096;
const SIZE: u64 = PAGES * PAGE;

fn number(name: &str, otherwise: u64) -> u64 {
    let said = std::env::var(name).ok();
    said.map_or(otherwise, |said| said.parse().unwrap())
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}

struct Folder(PathBuf);

impl Folder {
    fn configure(&self, volumes: &[String]) {
        std::fs::write(self.0.join("serve.toml"), volumes.concat()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.0.join("log"));
            eprintln!(
                "{}: the server's log:\n{}",
                self.0.display(),
                log.unwrap_or_default()
            );
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server in a process of its own.
struct Server {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    socket: PathBuf,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "a_server"])
            .env("REFUSED_FOLDER", &folder.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(
                std::fs::File::create(folder.0.join("log")).unwrap(),
            ))
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let socket = folder.0.join("socket");
        Self {
            child,
            said,
            socket,
        }
    }

    fn client(&self, volume: &str) -> Client<UnixStream> {
        let began = Instant::now();
        loop {
            match Client::unix(&self.socket, &Wishes::export(volume)) {
                Err(_) if began.elapsed() < LONG => std::thread::sleep(Duration::from_millis(3)),
                client => return client.unwrap(),
            }
        }
    }

    /// From the answer on it is given none of these.
    fn refuse(&mut self, set: u64) {
        writeln!(self.child.stdin.as_ref().unwrap(), "{set}").unwrap();
        let mut line = String::new();
        while line.trim_end() != "refused" {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it has ended");
        }
    }

    fn signal(&self, name: &str) {
        let number = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &number]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it; false: it did not end well, or not at all.
    fn end(mut self) -> bool {
        self.signal("TERM");
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if began.elapsed() > LONG {
                self.child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.child.wait().unwrap().success()
    }
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn a_server() {
    let folder = std::env::var_os("REFUSED_FOLDER").unwrap();
    let folder = Path::new(&folder);
    let values = [("memory", "96MiB"), ("web", "off")];
    let asked = Asked {
        file: Some(folder.join("serve.toml")),
        listen: vec![format!("unix:{}", folder.join("socket").display())],
        values: values
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..Asked::default()
    };
    std::thread::spawn(|| {
        for line in std::io::stdin().lines() {
            let set: u64 = line.unwrap().parse().unwrap();
            let kinds = (0..5).filter(|at| set & 1 << at != 0);
            let kinds: Vec<Refused> = kinds.map(|at| Refused::ALL[at]).collect();
            refuse(&kinds);
            let mut out = std::io::stdout();
            writeln!(out, "\nrefused").unwrap();
            out.flush().unwrap();
        }
    });
    if let Err(error) = serve::run::run(asked.config().unwrap()) {
        panic!("{error}");
    }
}

/// A volume, and what was written to it.
struct Known {
    name: &'static str,
    client: Client<UnixStream>,
    /// By page: the last version that was acknowledged, and whether a later one may be there.
    pages: Vec<(u32, bool)>,
}

fn page(number: u64, version: u32) -> Vec<u8> {
    let word = match version {
        0 => 0,
        version => (number << 32) | u64::from(version),
    };
    word.to_le_bytes()
        .repeat(usize::try_from(PAGE).unwrap() / 8)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl Known {
    /// Writes all of it.
    fn fill(&mut self) {
        for first in (0..PAGES).step_by(64) {
            let data: Vec<u8> = (first..first + 64).flat_map(|at| page(at, 1)).collect();
            self.client.write(first * PAGE, &data).unwrap();
        }
        self.pages.fill((1, false));
    }

    fn go(&mut self, dice: &mut Dice, may_lack_memory: bool) {
        let first = dice.below(PAGES);
        let count = 1 + dice.below(64).min(PAGES - first - 1);
        let numbers = index(first)..index(first + count);
        let result = match dice.below(8) {
            0..5 => {
                let last = self.pages[numbers.clone()].iter().map(|page| page.0).max();
                let version = 1 + last.unwrap();
                let data = (first..first + count).flat_map(|number| page(number, version));
                let data: Vec<u8> = data.collect();
                let result = self.client.write(first * PAGE, &data);
                for page in &mut self.pages[numbers] {
                    match result {
                        Ok(()) => *page = (version, false),
                        Err(_) => page.1 = true,
                    }
                }
                result
            }
            5..7 => {
                let mut data = vec![0; index(count * PAGE)];
                let result = self.client.read(first * PAGE, &mut data);
                if result.is_ok() {
                    self.check(first, &data, "read");
                }
                result
            }
            _ => self.client.flush(),
        };
        match result {
            Err(error) if may_lack_memory && error.errno() == Some(Errno::NoMemory) => {}
            result => result.unwrap(),
        }
    }

    fn check(&self, first: u64, data: &[u8], what: &str) {
        for (number, found) in (first..).zip(data.chunks(index(PAGE))) {
            let (version, is_open) = self.pages[index(number)];
            assert!(
                found == page(number, version) || is_open,
                "{what}: page {number} of {} is not version {version}: {:?}",
                self.name,
                &found[..16]
            );
        }
    }
}

fn one_seed(seed: u64) {
    let mut dice = Dice(seed);
    let folder = format!("tidegate-serve-refused-{}-{seed}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(folder));
    std::fs::create_dir_all(&folder.0).unwrap();
    let slow = ["", "device = \"slow:rate=40MB\"\n"][index(dice.below(2))];
    let kind = ["new", "dir"][index(dice.below(2))];
    let place = folder.0.display();
    let volumes = [("a", "new", slow), ("b", kind, "")].map(|(name, kind, more)| {
        format!("[volume.{name}]\nbackend = \"{kind}:{place}/{name}\"\nsize = \"{SIZE}B\"\n{more}")
    });
    folder.configure(&volumes);
    let mut server = Server::start(&folder);
    let mut all = ["a", "b"].map(|name| Known {
        name,
        client: server.client(name),
        pages: vec![(0, false); index(PAGES)],
    });
    let (before, after, set) = (dice.below(60), dice.below(60), 1 + dice.below(31));
    // Else fewer pages than the smallest cache may have come so far.
    let is_warm = dice.below(4) > 0;
    if is_warm {
        all.iter_mut().for_each(Known::fill);
    }
    for _ in 0..before {
        all[index(dice.below(2))].go(&mut dice, false);
    }
    let may_lack_memory = !is_warm && set & 2 != 0;
    server.refuse(set);
    for _ in 0..after {
        all[index(dice.below(2))].go(&mut dice, may_lack_memory);
    }
    let reload = dice.below(4);
    if reload == 0 {
        folder.configure(&volumes[..1]);
    }
    if reload < 2 {
        server.signal("HUP");
        std::thread::sleep(Duration::from_millis(dice.below(300)));
    }
    let is_well = server.end();
    assert!(
        is_well,
        "TIDEGATE_SEED={seed}, refused {set}, reload {reload}"
    );
    folder.configure(&volumes);
    let server = Server::start(&folder);
    let mut data = vec![0; index(SIZE / 16)];
    for known in &mut all {
        known.client = server.client(known.name);
        for part in 0..16 {
            let first = part * PAGES / 16;
            known.client.read(first * PAGE, &mut data).unwrap();
            known.check(
                first,
                &data,
                &format!("TIDEGATE_SEED={seed}, refused {set}, at the end"),
            );
        }
    }
    assert!(server.end());
}

#[test]
fn nothing_that_was_acknowledged_depends_on_what_is_asked_for_late() {
    let first = number("TIDEGATE_SEED", 1);
    (first..first + number("TIDEGATE_SEEDS", SEEDS)).for_each(one_seed);
}

/// As of a file system without locks.
#[test]
fn a_file_that_cannot_be_locked_is_served_where_that_is_said() {
    let folder = format!("tidegate-serve-unlocked-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(folder));
    std::fs::create_dir_all(&folder.0).unwrap();
    let volumes = [("a", ""), ("b", ""), ("c", "unlocked = true\n")].map(|(name, more)| {
        let path = folder.0.join(name);
        std::fs::write(&path, [7; 4096]).unwrap();
        let path = path.display();
        format!("[volume.{name}]\nbackend = \"{path}\"\n{more}")
    });
    folder.configure(&volumes[..1]);
    let mut server = Server::start(&folder);
    drop(server.client("a"));
    let lock = Refused::ALL.iter().position(|kind| *kind == Refused::Lock);
    server.refuse(1 << lock.unwrap());
    folder.configure(&volumes);
    server.signal("HUP");
    server.client("c").read(0, &mut [0; 4096]).unwrap();
    let log = || std::fs::read_to_string(folder.0.join("log")).unwrap();
    let began = Instant::now();
    while !log().contains("b: cannot be locked") {
        assert!(began.elapsed() < LONG, "{}", log());
        std::thread::sleep(Duration::from_millis(3));
    }
    Client::unix(&server.socket, &Wishes::export("b")).unwrap_err();
    assert!(server.end());
}

/// Where no descriptor is left, a client would wait for its greeting as long as others stay.
#[test]
fn a_client_for_which_there_is_no_descriptor_is_turned_away() {
    let folder = format!("tidegate-serve-away-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(folder));
    std::fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("a");
    std::fs::write(&path, [7; 4096]).unwrap();
    folder.configure(&[format!("[volume.a]\nbackend = \"{}\"\n", path.display())]);
    let mut server = Server::start(&folder);
    let mut client = server.client("a");
    let descriptor = Refused::ALL
        .iter()
        .position(|kind| *kind == Refused::Descriptor);
    server.refuse(1 << descriptor.unwrap());
    let mut refused = UnixStream::connect(&server.socket).unwrap();
    refused.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(refused.read(&mut [0; 8]).unwrap(), 0, "it is let in");
    client.read(0, &mut [0; 4096]).unwrap();
    assert!(server.end());
}

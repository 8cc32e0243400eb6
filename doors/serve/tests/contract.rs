//! The error contract as clients see it (ADR 9): backends x faults x policies.
//!
//! | fault | `report` | `stop` | `retry` |
//! |---|---|---|---|
//! | writes fail, are torn, find no space | the flush fails, the next write too, once; then writes are taken | the flush fails, and every write from then on | writes are taken, the flush waits |
//! | the same, healed | a flush succeeds, all that was taken is there | the same; writes are refused until the volume is reopened | the flush succeeds |
//! | flushes fail | the flush fails, and every flush and write from then on, healed or not | the same | the same |
//! | reads fail | the read fails, and a write of part of a page; healed, none does | the same | the same |
//! | discards fail | trims and zeroes that give space back fail; healed, none does; the data stay | the same | the same |
//! | it hangs | the flush waits, without an error | the same | the same |
//! | it is lost | the flush fails, for ever | the same | it is no write that may heal: the same |
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use crate::common::{Folder, PAGE, Server, Setup, bytes, until};
use device::{FaultPlan, Faulty, Odds};
use nbd::client::Client;
use nbd::wire::{CommandFlags, Errno};
use serve::config::BackendConfig;
use serve::export::ExportOptions;
use tidegate::ErrorPolicy;

const SIZE: u64 = 16 << 20;
/// Long enough for what does not wait to be over.
const A_WHILE: Duration = Duration::from_millis(150);
const POLICIES: [ErrorPolicy; 3] = [ErrorPolicy::Report, ErrorPolicy::Stop, ErrorPolicy::Retry];

type Nbd = Client<UnixStream>;

fn start(backend: &BackendConfig, policy: ErrorPolicy) -> Server {
    Server::start(Setup {
        layers: "faulty:seed=1",
        backend: Some(backend.clone()),
        on_error: policy,
        options: ExportOptions {
            patient: policy == ErrorPolicy::Retry,
            ..ExportOptions::default()
        },
        ..Setup::default()
    })
}

fn faulty(server: &Server) -> &Faulty {
    &server.layers.stack().unwrap().faulty[0]
}

fn errno<T: std::fmt::Debug>(result: Result<T, nbd::client::ClientError>) -> Option<Errno> {
    result.err().map(|error| error.errno().expect("an answer"))
}

/// A flush that waits until `heal`.
fn waits(mut client: Nbd, heal: impl FnOnce()) -> Nbd {
    let flush = std::thread::spawn(move || client.flush().map(|()| client));
    std::thread::sleep(A_WHILE);
    assert!(!flush.is_finished(), "it does not wait");
    heal();
    flush.join().unwrap().unwrap()
}

/// The written data are there, though not in this server's memory.
fn is_kept(backend: &BackendConfig, server: Server, at: u64, data: &[u8]) {
    let is_memory = matches!(backend, BackendConfig::Objects { url, .. } if url == "mem:");
    let server = if is_memory {
        server
    } else {
        drop(server);
        start(backend, ErrorPolicy::Report)
    };
    let mut back = vec![0; data.len()];
    server.client().read(at, &mut back).unwrap();
    assert!(back == data, "what was flushed is not there");
}

/// Writes fail in one way or another.
fn writes_fail(backend: &BackendConfig, policy: ErrorPolicy, plan: &FaultPlan, error: Errno) {
    let server = start(backend, policy);
    let mut client = server.client();
    let data = bytes(1, 2 * PAGE);
    faulty(&server).set_plan(plan.clone());
    client.write(0, &data).unwrap();
    let heal = || faulty(&server).set_plan(FaultPlan::default());
    if policy == ErrorPolicy::Retry {
        client.write(1 << 20, &data).unwrap();
        drop(waits(client, heal));
        return is_kept(backend, server, 0, &data);
    }
    assert_eq!(errno(client.flush()), Some(error), "the flush");
    assert_eq!(
        errno(client.flush()),
        Some(error),
        "and the next: it is not durable"
    );
    assert_eq!(
        errno(client.write(1 << 20, &data)),
        Some(error),
        "the next write"
    );
    let again = errno(client.write(1 << 20, &data));
    match policy {
        ErrorPolicy::Report => assert_eq!(again, None, "it was told once"),
        _ => assert_eq!(again, Some(error), "it takes no writes"),
    }
    heal();
    until("it is durable", || client.flush().is_ok());
    let healed = errno(client.write(2 << 20, &data));
    match policy {
        ErrorPolicy::Report => assert_eq!(healed, None),
        _ => assert_eq!(healed, Some(error), "until it is reopened"),
    }
    drop(client);
    is_kept(backend, server, 0, &data);
}

fn flushes_fail(backend: &BackendConfig, policy: ErrorPolicy) {
    let server = start(backend, policy);
    let mut client = server.client();
    let data = bytes(2, PAGE);
    client.write(0, &data).unwrap();
    faulty(&server).set_plan(FaultPlan {
        flush_fails: Odds::ALWAYS,
        ..FaultPlan::default()
    });
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    faulty(&server).set_plan(FaultPlan::default());
    assert_eq!(
        errno(client.flush()),
        Some(Errno::Io),
        "what it had is not known"
    );
    assert_eq!(errno(client.write_durably(0, &data)), Some(Errno::Io));
    assert_eq!(errno(server.client().write(0, &data)), Some(Errno::Io));
    let mut back = vec![0; PAGE];
    client.read(0, &mut back).unwrap();
    assert!(back == data);
}

fn reads_fail(backend: &BackendConfig, policy: ErrorPolicy) {
    let server = start(backend, policy);
    let mut client = server.client();
    faulty(&server).set_plan(FaultPlan {
        eio_reads: Odds::ALWAYS,
        ..FaultPlan::default()
    });
    let mut back = vec![0; PAGE];
    assert_eq!(errno(client.read(4 << 20, &mut back)), Some(Errno::Io));
    assert_eq!(
        errno(client.write((5 << 20) + 5, &[1; 100])),
        Some(Errno::Io)
    );
    client.write(6 << 20, &bytes(3, PAGE)).unwrap();
    client.flush().unwrap();
    faulty(&server).set_plan(FaultPlan::default());
    client.read(4 << 20, &mut back).unwrap();
    client.write((5 << 20) + 5, &[1; 100]).unwrap();
    client.flush().unwrap();
}

fn discards_fail(backend: &BackendConfig, policy: ErrorPolicy) {
    let server = start(backend, policy);
    if !server.export.opened.can_punch {
        return;
    }
    let mut client = server.client();
    let data = bytes(4, 4 * PAGE);
    client.write(0, &data).unwrap();
    client.flush().unwrap();
    faulty(&server).set_plan(FaultPlan {
        discard_fails: Odds::ALWAYS,
        ..FaultPlan::default()
    });
    let len = data.len() as u32;
    assert_eq!(errno(client.trim(0, len)), Some(Errno::Io), "a trim");
    assert_eq!(
        errno(client.zero(0, len, CommandFlags::NONE)),
        Some(Errno::Io),
        "zeroes that give space back"
    );
    client.zero(1 << 20, len, CommandFlags::NO_HOLE).unwrap();
    client.flush().unwrap();
    faulty(&server).set_plan(FaultPlan::default());
    client.zero(0, len, CommandFlags::NONE).unwrap();
    client.flush().unwrap();
    drop(client);
    is_kept(backend, server, 0, &vec![0; data.len()]);
}

fn hangs(backend: &BackendConfig, policy: ErrorPolicy) {
    let server = start(backend, policy);
    let mut client = server.client();
    let data = bytes(5, PAGE);
    faulty(&server).hold();
    client.write(0, &data).unwrap();
    let mut client = waits(client, || faulty(&server).release());
    client.write(PAGE as u64, &data).unwrap();
    client.flush().unwrap();
    drop(client);
    is_kept(backend, server, 0, &data);
}

fn is_lost(backend: &BackendConfig, policy: ErrorPolicy) {
    // A server that is patient with a lost device waits until its volume is taken out.
    if policy == ErrorPolicy::Retry {
        return;
    }
    let server = start(backend, policy);
    let mut client = server.client();
    client.write(0, &bytes(6, PAGE)).unwrap();
    faulty(&server).lose();
    for _ in 0..3 {
        assert_eq!(errno(client.flush()), Some(Errno::Io));
    }
    assert_eq!(errno(client.read(8 << 20, &mut [0; PAGE])), Some(Errno::Io));
}

/// The table.
fn keeps_the_contract(backend: &BackendConfig) {
    let always = Odds::ALWAYS;
    let plan = FaultPlan::default;
    let writes = [
        (
            FaultPlan {
                eio_writes: always,
                ..plan()
            },
            Errno::Io,
        ),
        (
            FaultPlan {
                torn_writes: always,
                ..plan()
            },
            Errno::Io,
        ),
        (
            FaultPlan {
                no_space: always,
                ..plan()
            },
            Errno::NoSpace,
        ),
    ];
    for policy in POLICIES {
        for (plan, error) in &writes {
            writes_fail(backend, policy, plan, *error);
        }
        flushes_fail(backend, policy);
        reads_fail(backend, policy);
        discards_fail(backend, policy);
        hangs(backend, policy);
        is_lost(backend, policy);
    }
}

fn objects(url: String) -> BackendConfig {
    BackendConfig::Objects {
        url,
        size: Some(SIZE),
        object_size: Some(256 << 10),
        parallel: None,
        force: false,
    }
}

#[test]
fn a_file() {
    let folder = Folder::new();
    let path = folder.0.join("disk");
    keeps_the_contract(&BackendConfig::New { path, size: SIZE });
}

#[test]
fn a_directory_of_objects() {
    let folder = Folder::new();
    keeps_the_contract(&objects(format!(
        "dir:{}",
        folder.0.join("objects").display()
    )));
}

#[test]
fn objects_in_memory() {
    keeps_the_contract(&objects("mem:".to_owned()));
}

/// One line that is seen whether the test passes or not.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

/// The output of a program; `None`: it failed, or is not there.
fn program(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Program::new(name).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// A block device over a file.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path) -> Option<Self> {
        std::fs::File::create(file).unwrap().set_len(SIZE).unwrap();
        let name = program("losetup", &["--find", "--show", file.to_str()?])?;
        Some(Self(PathBuf::from(name)))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        program("losetup", &["--detach", &self.0.to_string_lossy()]);
    }
}

#[test]
fn a_block_device() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder.0.join("image")) else {
        return skipped("a_block_device", "no loop device available (root has them)");
    };
    let path = device.0.clone();
    keeps_the_contract(&BackendConfig::File { path, size: None });
}

/// A file system in memory, of a given size.
struct Small(PathBuf);

impl Small {
    fn new(path: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let (size, path) = (format!("size={bytes}"), path.to_path_buf());
        program(
            "mount",
            &["-t", "tmpfs", "-o", &size, "tmpfs", path.to_str()?],
        )?;
        Some(Self(path))
    }

    fn grow(&self, bytes: u64) {
        let size = format!("remount,size={bytes}");
        program("mount", &["-o", &size, self.0.to_str().unwrap()]).expect("it grows");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        program("umount", &["--lazy", &self.0.to_string_lossy()]);
    }
}

#[test]
fn a_file_system_that_is_full() {
    let test = "a_file_system_that_is_full";
    for (policy, is_file) in POLICIES
        .into_iter()
        .flat_map(|it| [(it, true), (it, false)])
    {
        let folder = Folder::new();
        let Some(small) = Small::new(&folder.0.join("small"), 2 << 20) else {
            return skipped(test, "tmpfs cannot be mounted (root can)");
        };
        let path = small.0.join("disk");
        let backend = match is_file {
            true => BackendConfig::New { path, size: SIZE },
            false => objects(format!("dir:{}", path.display())),
        };
        let server = start(&backend, policy);
        let mut client = server.client();
        let data = bytes(7, 6 << 20);
        // Fits into memory: nobody has tried to write it yet, or the client that has is told.
        let written = data
            .chunks(1 << 20)
            .enumerate()
            .try_for_each(|(at, part)| client.write((at as u64) << 20, part));
        if policy == ErrorPolicy::Retry {
            written.unwrap();
            drop(waits(client, || small.grow(2 * SIZE)));
            is_kept(&backend, server, 0, &data);
            continue;
        }
        let refused = errno(written);
        assert!(
            matches!(refused, None | Some(Errno::NoSpace)),
            "{refused:?}"
        );
        assert_eq!(errno(client.flush()), Some(Errno::NoSpace), "{backend:?}");
        small.grow(2 * SIZE);
        until("it is durable", || client.flush().is_ok());
        if refused.is_none() {
            drop(client);
            is_kept(&backend, server, 0, &data);
        }
    }
}

#[test]
fn an_object_that_somebody_else_wrote_is_not_overwritten() {
    for policy in [ErrorPolicy::Report, ErrorPolicy::Stop] {
        let folder = Folder::new();
        let path = folder.0.join("objects");
        let server = start(&objects(format!("dir:{}", path.display())), policy);
        let mut client = server.client();
        client.write(0, &bytes(9, 256 << 10)).unwrap();
        client.flush().unwrap();
        let object = path.join(format!("{:016x}", 0));
        let foreign = vec![9; 256 << 10];
        assert!(object.is_file(), "an object of the volume");
        std::fs::write(&object, &foreign).unwrap();
        client.write(0, &bytes(10, PAGE)).unwrap();
        for _ in 0..2 {
            assert_eq!(errno(client.flush()), Some(Errno::Io));
        }
        assert_eq!(errno(client.write(1 << 20, &[1; PAGE])), Some(Errno::Io));
        assert!(std::fs::read(&object).unwrap() == foreign, "overwritten");
    }
}

#[test]
fn a_file_that_was_cut_behind_the_servers_back() {
    let folder = Folder::new();
    let path = folder.0.join("disk");
    let backend = BackendConfig::New {
        path: path.clone(),
        size: SIZE,
    };
    let server = start(&backend, ErrorPolicy::Report);
    let mut client = server.client();
    let data = bytes(8, PAGE);
    client.write(8 << 20, &data).unwrap();
    client.flush().unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    // The part that is gone is refused: no write makes it longer again, with zeroes where it was
    // cut.
    let mut back = vec![1; PAGE];
    let refused = errno(client.read(12 << 20, &mut back));
    assert_eq!(refused, Some(Errno::Io));
    client.write(2 << 20, &data).unwrap();
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    // A person who gives it its length back answers for its content; data written meanwhile are
    // kept.
    file.set_len(SIZE).unwrap();
    until("it is durable", || client.flush().is_ok());
    client.read(2 << 20, &mut back).unwrap();
    assert!(back == data);
    drop(client);
    drop(server);
    assert!(std::fs::read(&path).unwrap()[2 << 20..][..PAGE] == data);
}

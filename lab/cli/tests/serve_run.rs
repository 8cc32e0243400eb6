//! The life of `tidegate serve` as a process: what a start says and refuses, signals, reloads, its
//! supervisor.

mod check;
mod come;
mod end;
mod leave;
mod operate;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::serving::{Client, Folder, MIB, Random, sparse};
use rustix::process::{Pid, Signal, kill_process};

/// Time that anything may take before the test fails, on a machine that does much else and has a
/// slow disk.
const PATIENCE: Duration = Duration::from_secs(120);
const MEMORY: &str = "64MiB";

/// A server that a test sends signals to. Killed when dropped.
struct Process {
    child: Child,
    folder: PathBuf,
}

impl Process {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("serve").args(arguments);
        Self::spawn(folder, command)
    }

    fn spawn(folder: &Folder, mut command: Command) -> Self {
        let file = |name: &str| File::create(folder.path(name)).unwrap();
        // None of the machine's own settings.
        command
            .env("HOME", folder.path("home"))
            .env("XDG_RUNTIME_DIR", folder.path(""))
            .env_remove("XDG_STATE_HOME")
            .env("NO_COLOR", "1")
            .stdout(file("out"))
            .stderr(file("err"));
        Self {
            child: command.spawn().unwrap(),
            folder: folder.path(""),
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// The text it has said to people.
    fn said(&self) -> String {
        self.read("err")
    }

    /// Waits until it has printed where its volumes are.
    fn wait_ready(&mut self) -> Vec<String> {
        self.wait("its addresses", |this| this.read("out").ends_with('\n'));
        self.read("out").lines().map(str::to_owned).collect()
    }

    fn wait_said(&mut self, text: &str) {
        self.wait(text, |this| this.said().contains(text));
    }

    fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(is_so(self), "{status} before {what}:\n{}", self.said());
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no {what}:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it goes on:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it well.
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.ended();
        assert!(status.success(), "{status}:\n{}", self.said());
        self.said()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server at the folder's socket, with these words more, that is ready.
fn serve(folder: &Folder, more: &[&str]) -> Process {
    let at = listen(folder);
    let arguments = ["--memory", MEMORY, "--listen", &at, "--no-web"];
    let mut process = Process::start(folder, &[&arguments[..], more].concat());
    process.wait_ready();
    process
}

/// A start that has to fail: its status and what it said.
fn refused(folder: &Folder, arguments: &[&str]) -> (i32, String) {
    let mut process = Process::start(folder, arguments);
    let status = process.ended();
    assert_eq!(
        process.read("out"),
        "",
        "no address of a server that is not there"
    );
    (status.code().unwrap(), process.said())
}

fn listen(folder: &Folder) -> String {
    format!("unix:{}", folder.path("socket").display())
}

/// The file of a server, written again before each reload.
struct Written {
    path: PathBuf,
    head: String,
}

impl Written {
    /// With these lines before the volumes.
    fn new(folder: &Folder, memory: &str, web: &str) -> Self {
        let path = folder.path("config.toml");
        let at = listen(folder);
        let head = format!("memory = \"{memory}\"\nlisten = [\"{at}\"]\nweb = \"{web}\"\n");
        Self { path, head }
    }

    /// With these volumes from now on.
    fn write(&self, volumes: &[&str]) {
        fs::write(&self.path, self.head.clone() + &volumes.concat()).unwrap();
    }

    /// A server that has it.
    fn serve(&self, folder: &Folder) -> Process {
        Process::start(folder, &["--config", &self.path.display().to_string()])
    }
}

/// A volume in a file of its own in the folder, and what else is said of it.
fn new_volume(folder: &Folder, name: &str, more: &str) -> String {
    let path = folder.path(&format!("{name}.img"));
    let path = path.display();
    format!("[volume.{name}]\nbackend = \"new:{path}\"\nsize = \"8MiB\"\n{more}\n")
}

fn random(len: u64, seed: u64) -> Vec<u8> {
    let mut data = vec![0; usize::try_from(len).unwrap()];
    Random(seed).fill(&mut data);
    data
}

fn write_all(client: &mut Client, data: &[u8]) {
    for (place, piece) in data.chunks(256 << 10).enumerate() {
        client.write((place as u64) << 18, piece, false).unwrap();
    }
}

fn holds(path: &Path, data: &[u8]) -> bool {
    let mut there = vec![0; data.len()];
    File::open(path)
        .unwrap()
        .read_exact_at(&mut there, 0)
        .unwrap();
    there == data
}

#[test]
fn nothing_said_serves_an_embedded_volume_and_says_how_to_connect() {
    let folder = Folder::new("embedded");
    let mut process = Process::start(&folder, &["--memory", MEMORY]);
    let uris = process.wait_ready();
    let socket = folder.path("tidegate.sock");
    let uri = format!("nbd+unix:///default?socket={}", socket.display());
    assert_eq!(uris, core::slice::from_ref(&uri));
    let said = process.said();
    for tool in ["nbdinfo", "qemu-img", "nbdcopy", "nbdfuse", "--help"] {
        let line = said.lines().find(|line| line.contains(tool));
        let line = line.unwrap_or_else(|| panic!("nothing about {tool}:\n{said}"));
        assert!(tool == "--help" || line.contains(&uri), "{line}");
    }
    assert!(said.contains("watch it at http://127.0.0.1:"), "{said}");
    let file = folder.path("home/.local/state/tidegate/default.img");
    assert_eq!(fs::metadata(&file).unwrap().len(), 10 << 30);
    for (path, mode) in [(&file, 0o600), (&socket, 0o600)] {
        let permissions = fs::metadata(path).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, mode, "{}", path.display());
    }
    let data = random(MIB, 1);
    let mut client = Client::connect(&socket, "default");
    write_all(&mut client, &data);
    // The only export is the default one too.
    let mut other = Client::connect(&socket, "");
    let mut back = vec![0; data.len()];
    other.read(0, &mut back).unwrap();
    assert!(back == data);
    process.stop();
    assert!(holds(&file, &data), "written back at the end");
    assert!(!socket.exists(), "the socket went with the server");
    // It is there now: the next start serves it again.
    let mut again = Process::start(&folder, &["--memory", MEMORY, "--no-web"]);
    again.wait_ready();
    Client::connect(&socket, "").read(0, &mut back).unwrap();
    assert!(back == data);
    assert!(!again.said().contains("http://"), "{}", again.said());
    again.stop();
}

#[test]
fn term_finishes_what_was_asked_and_makes_all_of_it_durable() {
    let folder = Folder::new("term");
    let (one, two) = (
        sparse(&folder, "one", 32 * MIB),
        sparse(&folder, "two", 32 * MIB),
    );
    let two = format!("{two},device=slow:rate=4MiB");
    let at = listen(&folder);
    let mut process = Process::start(
        &folder,
        &[
            "--memory",
            "128MiB",
            "--dirty",
            "50%",
            "--background",
            "40%",
            "--listen",
            &at,
            "--no-web",
            &one,
            &two,
        ],
    );
    assert_eq!(process.wait_ready().len(), 2);
    let data = random(8 * MIB, 2);
    let socket = folder.path("socket");
    let mut clients = [
        Client::connect(&socket, "one"),
        Client::connect(&socket, "two"),
    ];
    for client in &mut clients {
        write_all(client, &data);
    }
    process.signal(Signal::TERM);
    // Two seconds of the slow device: progress is told, of it alone.
    process.wait_said("syncing:");
    assert!(
        process.said().contains("volume=two left="),
        "{}",
        process.said()
    );
    assert!(
        UnixStream::connect(&socket).is_err(),
        "nobody is let in any more"
    );
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("ended: everything is durable"), "{said}");
    for name in ["one", "two"] {
        assert!(holds(&folder.path(name), &data), "{name}");
    }
}

/// Accesses and hits of a replay of the record in a memory for all of it.
fn replayed(record: &Path) -> [Option<u64>; 2] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("replay").arg(record);
    let done = command.args(["--rule", "lru", "--pages", "64", "--json"]);
    let done = done.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let tables: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let row = &tables[0]["rows"][0];
    [row["accesses"].as_u64(), row["hits"].as_u64()]
}

#[test]
fn a_record_of_requests_is_replayed_and_goes_on_with_the_next_server() {
    let folder = Folder::new("record");
    let volume = sparse(&folder, "data", 8 * MIB);
    let record = folder.path("requests.csv");
    let record_to = record.display().to_string();
    for round in 1..=2 {
        let process = serve(&folder, &[&volume, "--record", &record_to]);
        let mut client = Client::connect(&folder.path("socket"), "data");
        let mut page = vec![1; 4096];
        for at in 0..32 {
            client.write(at << 12, &page, false).unwrap();
        }
        client.read(0, &mut page).unwrap();
        client.zero(0, 8192, false, false).unwrap();
        client.flush().unwrap();
        client.trim(0, 8192).unwrap();
        drop(client);
        process.stop();
        let lines = fs::read_to_string(&record).unwrap();
        assert_eq!(lines.lines().count(), 1 + 34 * round, "{lines}");
        // Each round is of 35 pages; 32 of the first are there for the first time.
        let accesses = 35 * round as u64;
        assert_eq!(replayed(&record), [Some(accesses), Some(accesses - 32)]);
    }
    // No record: it stays as it is.
    let image = folder.path("data").display().to_string();
    let at = listen(&folder);
    let wrong = ["--listen", &at, "--no-web", &volume, "--record", &image];
    let (status, said) = refused(&folder, &wrong);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("name another file"), "{said}");
}

#[test]
fn a_kill_leaves_a_socket_that_the_next_server_takes_over_and_all_that_was_flushed() {
    let folder = Folder::new("takeover");
    let volume = sparse(&folder, "data", 8 * MIB);
    let process = serve(&folder, &[&volume]);
    let socket = folder.path("socket");
    let data = random(MIB, 5);
    let mut client = Client::connect(&socket, "data");
    write_all(&mut client, &data);
    client.flush().unwrap();
    drop(process);
    assert!(socket.exists());
    let next = serve(&folder, &[&volume]);
    let mut back = vec![0; data.len()];
    Client::connect(&socket, "data").read(0, &mut back).unwrap();
    assert!(back == data);
    next.stop();
}

#[test]
fn a_second_server_is_refused_with_the_holder_of_what_it_wants() {
    let folder = Folder::new("two");
    let volume = sparse(&folder, "data", 8 * MIB);
    let (at, file) = (listen(&folder), folder.path("data"));
    let file = file.display();
    let process = serve(&folder, &[&volume]);
    let other = Folder::new("two-b");
    let elsewhere = listen(&other);
    for (ro, end) in [
        ("", "end that first, or serve a copy"),
        (",ro", "end that first"),
    ] {
        let volume = format!("{volume}{ro}");
        let (status, said) = refused(&other, &["--listen", &elsewhere, "--no-web", &volume]);
        let holder = process.child.id();
        assert_eq!(
            (status, said.trim_end()),
            (
                2,
                format!(
                    "tidegate: volume `data`: {file}: in use by process {holder} (tidegate); {end}"
                )
                .as_str()
            )
        );
    }
    let free = sparse(&other, "free", MIB);
    let (status, said) = refused(&other, &["--listen", &at, "--no-web", &free]);
    assert_eq!(status, 2);
    assert!(said.contains("another server listens on"), "{said}");
    // A refused server leaves nothing behind that it made, and takes nothing away that was there.
    let made = format!("made=new:{},size=1MiB", other.path("made").display());
    for listen in [&at, &elsewhere] {
        let all = ["--listen", listen, "--no-web", &made, &free, &volume];
        assert_eq!(refused(&other, &all).0, 2);
        assert!(!other.path("made").exists() && other.path("free").exists());
    }
    let taken = format!("made=new:{},size=1MiB", other.path("free").display());
    assert_eq!(refused(&other, &["--listen", &at, "--no-web", &taken]).0, 2);
    assert!(other.path("free").exists() && folder.path("data").exists());
    // The live server goes on, and its socket is its own.
    Client::connect(&folder.path("socket"), "data")
        .flush()
        .unwrap();
    process.stop();
    // Two that only read share.
    let shared = format!("{volume},ro");
    let one = serve(&folder, &[&shared]);
    let two = serve(&other, &[&shared]);
    let mut client = Client::connect(&other.path("socket"), "data");
    client.read(0, &mut [0; 512]).unwrap();
    client.write(0, &[0; 512], false).unwrap_err();
    one.stop();
    two.stop();
}

#[test]
fn one_file_twice_in_a_server() {
    let folder = Folder::new("twice");
    let volume = sparse(&folder, "a", MIB);
    let again = volume.replacen("a=", "b=", 1);
    let at = listen(&folder);
    let (status, said) = refused(&folder, &["--listen", &at, "--no-web", &volume, &again]);
    assert_eq!(status, 2);
    assert!(said.contains("this process has it already"), "{said}");
}

#[test]
fn mistakes_end_with_status_2_and_a_way_out() {
    let folder = Folder::new("mistakes");
    let at = listen(&folder);
    let (missing, path) = (folder.path("missing"), folder.path(""));
    let odd = sparse(&folder, "odd", MIB + 1);
    let missing = format!("a={}", missing.display());
    let volume = format!("a={}", path.display());
    let new = format!("a=new:{},size=1MiB", folder.path("new.img").display());
    for (arguments, expected) in [
        (
            vec![missing.as_str()],
            "there is no such file; to have it made, write new:",
        ),
        (
            vec![volume.as_str()],
            "this is a folder; name a file in it, or write dir:",
        ),
        (
            vec!["a=/dev/null"],
            "neither a regular file nor a block device",
        ),
        (
            vec![odd.as_str()],
            "1 MiB (1048577 bytes) are no multiple of the 512 B",
        ),
        (vec!["data"], "the volume `data` has no backend"),
        (
            vec!["--memory", "1", "a=/x"],
            "`1` has no unit: write 1B, 1MiB or 1GiB",
        ),
        (
            vec!["--memory", "8MiB", &missing],
            "or raise it less and allow fewer connections",
        ),
        (
            vec!["--memory", "64MiB", "a=mem:,size=1GiB"],
            "or raise it less and let the backend of volume a keep less",
        ),
        (
            vec!["--memory", "64MiB", "--dirty", "10GiB", &new],
            "`dirty` is 10 GiB, and the cache has",
        ),
        (
            vec![
                "--memory",
                "64MiB",
                "--dirty",
                "18446744073709551615B",
                &new,
            ],
            "`dirty` is 1",
        ),
        (
            vec!["--memory", "64MiB", "--dirty", "60MiB", &new],
            "or a share of the cache, as in --dirty 20%; or raise --memory",
        ),
        (
            vec!["--memory", "64MiB", "--background", "60MiB", &new],
            "`background` is 60 MiB",
        ),
        (
            vec!["--config", "/nonexistent.toml"],
            "cannot read the configuration /nonexistent.toml",
        ),
    ] {
        let mut all = vec!["--listen", &at, "--no-web"];
        all.extend(&arguments);
        let (status, said) = refused(&folder, &all);
        assert_eq!(status, 2, "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!folder.path("socket").exists(), "{arguments:?}");
    }
    // Errors of the system have words and a way out, and nothing is left behind.
    let file = folder.path("odd").display().to_string();
    let huge = folder.path("huge").display().to_string();
    for (volume, expected) in [
        (
            format!("a=new:{file}/below,size=1MiB"),
            "Not a directory; a part of the path is a file",
        ),
        (
            format!("a=new:{huge}/below,size=1MiB"),
            "No such file or directory; check the path",
        ),
        (
            format!("a=new:{huge},size=1000000TiB"),
            "a volume has at most 17592186040320B (16 TiB less 4 KiB)",
        ),
    ] {
        let (status, said) = refused(&folder, &["--listen", &at, "--no-web", &volume]);
        assert_eq!(status, 2, "{said}");
        assert!(
            said.contains(expected) && !said.contains("os error"),
            "{volume}: {said}"
        );
        assert!(!folder.path("huge").exists());
    }
    let limited = format!(
        "ulimit -f 1024; exec '{}' serve --listen {at} --no-web a=new:{huge},size=64MiB",
        env!("CARGO_BIN_EXE_tidegate")
    );
    let output = Command::new("bash")
        .args(["-c", &limited])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("of 64 MiB: File too large; choose a smaller size"),
        "{said}"
    );
    // The size that it asks for does: with the connections that go with that much memory, too.
    let all = ["--listen", &at, "--no-web", &new, "--memory", "8MiB"];
    let (_, said) = refused(&folder, &all);
    let wanted = said
        .split_once("give --memory ")
        .and_then(|(_, rest)| rest.split_once(';'));
    let (wanted, _) = wanted.unwrap_or_else(|| panic!("{said}"));
    let mut process = Process::start(&folder, &[&all[..5], &[wanted]].concat());
    process.wait_ready();
    process.stop();
    // Programs that read JSON get nothing else: neither of a start nor of a start that fails.
    let json = |memory| [&all[..5], &[memory, "--log-format", "json"]].concat();
    let mut process = Process::start(&folder, &json(wanted));
    process.wait_ready();
    let served = process.stop();
    let (_, failed) = refused(&folder, &json("8MiB"));
    assert!(failed.contains("too small"), "{failed}");
    for line in served.lines().chain(failed.lines()) {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
}

#[test]
fn a_file_that_has_become_larger_than_its_volume_is_told_once() {
    let folder = Folder::new("larger");
    let written = Written::new(&folder, MEMORY, "off");
    written.write(&[&new_volume(&folder, "a", "")]);
    let mut process = written.serve(&folder);
    process.wait_ready();
    let hang_up = |process: &mut Process, length: u64| {
        let file = File::options().write(true).open(folder.path("a.img"));
        file.unwrap().set_len(length).unwrap();
        let reloads = |process: &Process| process.said().matches("reloaded:").count();
        let before = reloads(process);
        process.signal(Signal::HUP);
        process.wait("a reload", |this| reloads(this) > before);
    };
    for length in [16 * MIB, 16 * MIB, 24 * MIB] {
        hang_up(&mut process, length);
        let told = format!("volume=a file=\"{} MiB\"", length / MIB);
        process.wait_said(&told);
    }
    assert_eq!(process.stop().matches("it did not grow").count(), 2);
}

#[test]
fn a_hang_up_reads_the_file_again() {
    let folder = Folder::new("reload");
    let (config, at) = (folder.path("config.toml"), listen(&folder));
    let head = |memory: &str| {
        format!("memory = \"{memory}\"\nlisten = [\"{at}\"]\nweb = \"off\"\nlog = \"debug\"\n")
    };
    let volume = |name: &str| {
        let path = folder.path(&format!("{name}.img"));
        format!(
            "[volume.{name}]\nbackend = \"new:{}\"\nsize = \"16MiB\"\n",
            path.display()
        )
    };
    let write = |text: String| fs::write(&config, text).unwrap();
    write(head("128MiB") + &volume("a"));
    let config_path = config.display().to_string();
    let mut process = Process::start(&folder, &["--config", &config_path]);
    process.wait_ready();
    let socket = folder.path("socket");
    let data = random(MIB, 6);
    let mut client = Client::connect(&socket, "a");
    write_all(&mut client, &data);

    // One comes, and the memory limit goes down.
    write(head("96MiB") + &volume("a") + &volume("b"));
    process.signal(Signal::HUP);
    process.wait_said("reloaded: serving 2 volumes");
    assert!(
        process.said().contains("the memory limit changes"),
        "{}",
        process.said()
    );
    assert!(process.said().contains("volume=b"), "{}", process.said());
    write_all(&mut Client::connect(&socket, "b"), &data);
    let mut back = vec![0; data.len()];
    client.read(0, &mut back).unwrap();
    assert!(back == data, "who was connected stays connected");

    // The reaction of a volume to errors changes while its clients stay.
    let changed = "on_error = \"retry\"\ndirty_max = \"50%\"\ndescription = \"a disk\"\n";
    write(head("96MiB") + &volume("a") + changed + &volume("b"));
    process.signal(Signal::HUP);
    process.wait("the second reload", |this| {
        this.said().matches("reloaded: serving 2 volumes").count() == 2
    });
    for text in [
        "changed: on_error, dirty_min, dirty_max",
        "changed, for new connections: description",
    ] {
        assert!(process.said().contains(text), "{}", process.said());
    }
    client.read(0, &mut back[..512]).unwrap();

    // Less is told, and more: both are told, though one of them shows only what needs somebody.
    for (level, change) in [
        ("error", "from=debug to=error"),
        ("debug", "from=error to=debug"),
    ] {
        let level = format!("log = \"{level}\"");
        write(
            head("96MiB").replace("log = \"debug\"", &level)
                + &volume("a")
                + changed
                + &volume("b"),
        );
        process.signal(Signal::HUP);
        process.wait_said(change);
    }
    process.wait("the reload after it", |this| {
        this.said().matches("reloaded: serving 2 volumes").count() == 3
    });

    // A mistake changes nothing.
    write(head("96MiB") + "memry = \"1GiB\"\n");
    process.signal(Signal::HUP);
    process.wait_said("nothing was reloaded");
    // One event, one line: with its place, the word, and the way out.
    let said = process.said();
    let mistake = said.lines().find(|line| line.contains("memry"));
    let mistake = mistake.unwrap_or_else(|| panic!("{said}"));
    let place = format!("{}:5", config.display());
    for text in ["time=", "level=error", &place, "did you mean `memory`?"] {
        assert!(mistake.contains(text), "{text}: {mistake}");
    }
    let (_, since) = said.rsplit_once("reloaded: serving 2 volumes").unwrap();
    let mut lines = since.lines().skip(1);
    assert!(lines.all(|line| line.starts_with("time=")), "{said}");
    client.read(0, &mut back[..512]).unwrap();

    // Settings that cannot change are said; one volume goes: its file is free for others.
    write(
        head("1GiB").replace("web = \"off\"", "web = \"127.0.0.1:1\"")
            + &volume("b").replace("16MiB", "8MiB")
            + &volume("a")
            + "take_out = true\n",
    );
    process.signal(Signal::HUP);
    process.wait_said("taken out: synced and closed\" volume=a");
    process.wait_said("reloaded: serving 1 volume");
    let said = process.said();
    for text in [
        "cannot change while the server runs: web",
        "cannot change while it is served: size; give it 16 MiB again:",
        "the memory limit stays at 96 MiB",
        "1 GiB is more than the server was started with; restart",
        "taken out: synced and closed\" volume=a",
    ] {
        assert!(said.contains(text), "{text}:\n{said}");
    }
    for text in ["max_connections above", "bounds on clients"] {
        assert!(!said.contains(text), "nobody changed it: {text}:\n{said}");
    }
    assert!(holds(&folder.path("a.img"), &data));
    client.read(0, &mut back[..512]).unwrap_err();
    let lock = File::open(folder.path("a.img")).unwrap();
    lock.try_lock().unwrap();
    drop(lock);

    // And it comes again.
    write(head("96MiB") + &volume("a") + &volume("b"));
    process.signal(Signal::HUP);
    process.wait("both", |this| {
        this.said().matches("reloaded: serving 2 volumes").count() == 4
    });
    let mut client = Client::connect(&socket, "a");
    client.read(0, &mut back).unwrap();
    assert!(back == data);
    write_all(&mut client, &random(MIB, 7));

    // One grows: for those that come then.
    write(head("96MiB") + &volume("a") + &volume("b").replace("16MiB", "32MiB"));
    process.signal(Signal::HUP);
    process.wait_said("it has grown, for new connections\" volume=b from=\"16 MiB\" to=\"32 MiB\"");
    let mut grown = Client::connect(&socket, "b");
    grown.write(20 << 20, &random(4096, 8), false).unwrap();
    process.stop();
    assert!(holds(&folder.path("a.img"), &random(MIB, 7)));
    assert!(holds(&folder.path("b.img"), &data));
}

#[test]
fn a_hang_up_without_a_file_measures_the_backings_again() {
    let folder = Folder::new("hang-up-words");
    let (volume, at) = (sparse(&folder, "a", 8 * MIB), listen(&folder));
    // Its size was given, and stays; that is said.
    let fixed = format!("b=new:{},size=8MiB", folder.path("b").display());
    // Of one a part is served, as was asked for.
    let part = sparse(&folder, "c", 16 * MIB) + ",size=8MiB";
    let words = [
        "--memory", "64MiB", "--no-web", "--listen", &at, &volume, &fixed, &part,
    ];
    let mut process = Process::start(&folder, &words);
    process.wait_ready();
    let socket = folder.path("socket");
    let mut before = Client::connect(&socket, "a");
    let file = File::options().write(true).open(folder.path("a")).unwrap();
    file.set_len(16 * MIB).unwrap();
    let other = File::options().write(true).open(folder.path("b")).unwrap();
    other.set_len(16 * MIB).unwrap();
    process.signal(Signal::HUP);
    process.wait_said("it has grown, for new connections\" volume=a from=\"8 MiB\" to=\"16 MiB\"");
    process.wait_said("the next start refuses it\" volume=b");
    assert_eq!(Client::connect(&socket, "b").size, 8 * MIB);
    let mut grown = Client::connect(&socket, "a");
    let data = random(4096, 9);
    grown.write(12 * MIB, &data, true).unwrap();
    // A client that was there keeps the size that it was told.
    before.write(12 * MIB, &data, false).unwrap_err();
    let mut back = vec![0; 4096];
    before.read(0, &mut back).unwrap();
    let said = process.stop();
    assert!(!said.contains("start refuses it\" volume=c"), "{said}");
    file.sync_all().unwrap();
    let mut there = vec![0; 4096];
    let file = File::open(folder.path("a")).unwrap();
    file.read_exact_at(&mut there, 12 * MIB).unwrap();
    assert!(there == data);
}

#[test]
fn sockets_that_a_supervisor_passes_and_news_for_it() {
    let folder = Folder::new("systemd");
    let volume = sparse(&folder, "data", MIB);
    let socket = folder.path("activated");
    let listener = UnixListener::bind(&socket).unwrap();
    // A client that connects before the server is there waits.
    let early = UnixStream::connect(&socket).unwrap();
    let news = UnixDatagram::bind(folder.path("notify")).unwrap();
    news.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$; exec \"$@\"";
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tidegate"), "serve"])
        .args(["--memory", MEMORY, "--no-web", &volume])
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", "nbd")
        .env("NOTIFY_SOCKET", folder.path("notify"))
        // A sign of life a second: more than a few would fill the socket while this test does not
        // run, and news be lost.
        .env("WATCHDOG_USEC", "2000000")
        .stdin(Stdio::from(OwnedFd::from(listener)));
    let mut process = Process::spawn(&folder, command);
    let mut buffer = [0; 512];
    let mut next = || {
        let len = news.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let starting = next();
    for text in [
        "EXTEND_TIMEOUT_USEC=",
        "STATUS=opening volumes: 0 of 1 are open",
    ] {
        assert!(starting.contains(text), "{starting}");
    }
    assert_eq!(next(), "READY=1\nSTATUS=serving 1 volume");
    assert_eq!(process.read("out"), "", "it is not its own");
    assert_eq!(next(), "WATCHDOG=1");
    drop(early);
    Client::connect(&socket, "data").flush().unwrap();
    process.signal(Signal::HUP);
    let mut until = |start: &str| loop {
        let news = next();
        if news.starts_with(start) {
            return news;
        }
        assert_eq!(news, "WATCHDOG=1");
    };
    assert!(until("RELOADING=1").contains("MONOTONIC_USEC="));
    until("READY=1");
    process.signal(Signal::TERM);
    assert!(until("STOPPING=1").contains("STATUS=finishing requests"));
    let status = process.ended();
    assert!(status.success(), "{}", process.said());
    assert!(socket.exists(), "it is the supervisor's");
}

#[test]
fn help_and_top_without_a_server() {
    let run = |arguments: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).output().unwrap()
    };
    let help = run(&["serve", "--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for text in [
        "new:PATH,size=10GiB",
        "on_error=retry|report|stop",
        "Exit status:",
        "--tls-certificate",
    ] {
        assert!(help.contains(text), "{text}");
    }
    // Nobody listens on the port of tcpmux.
    let top = run(&["top", "127.0.0.1:1", "--once"]);
    assert_eq!(top.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&top.stderr).contains("127.0.0.1:1"));
    let top = run(&["top", "127.0.0.1:99999"]);
    assert_eq!(top.status.code(), Some(2));
    let said = String::from_utf8_lossy(&top.stderr).into_owned();
    assert!(said.contains("`127.0.0.1:99999` is no address"), "{said}");
}

//! An operator with a server that runs: its file is changed, a volume copied, its log rotated; it
//! ends by itself, and says what it knows of clients and of the end before.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::{
    MEMORY, Process, Written, holds, listen, new_volume, random, refused, serve, write_all,
};
use crate::serving::{Client, Folder, MIB, sparse, tell};

/// Lines of a reload that did not do what the file says.
const REFUSED: [&str; 4] = [
    "level=error",
    "cannot change",
    "not added yet",
    "nothing was reloaded",
];

/// A change of a file: its name, the volumes before it, an act on the backings, and the volumes
/// after it. `@` stands for the folder.
type Change = (&'static str, &'static str, fn(&Folder), &'static str);

fn longer(folder: &Folder) {
    let file = File::options().write(true).open(folder.path("file"));
    file.unwrap().set_len(32 * MIB).unwrap();
}

const NEW: &str = "[volume.a]\nbackend = \"new:@/a.img\"\nsize = \"8MiB\"\n";
const FILE: &str = "[volume.a]\nbackend = \"@/file\"\n";
const PART: &str = "[volume.a]\nbackend = \"@/file\"\nsize = \"8MiB\"\n";
const MEM: &str = "[volume.a]\nbackend = \"mem:\"\nsize = \"8MiB\"\n";
const DIR: &str = "[volume.a]\nbackend = \"dir:@/dir\"\nsize = \"8MiB\"\n";

/// The changes of docs/serve/run-a-service.md and of serve-reference.md.
const CHANGES: [Change; 12] = [
    (
        "new: longer",
        NEW,
        |_| (),
        "[volume.a]\nbackend = \"new:@/a.img\"\nsize = \"16MiB\"\n",
    ),
    (
        "new: shorter",
        NEW,
        |_| (),
        "[volume.a]\nbackend = \"new:@/a.img\"\nsize = \"4MiB\"\n",
    ),
    ("a file longer", FILE, longer, FILE),
    (
        "more of a file",
        PART,
        |_| (),
        "[volume.a]\nbackend = \"@/file\"\nsize = \"12MiB\"\n",
    ),
    (
        "more than a file",
        PART,
        |_| (),
        "[volume.a]\nbackend = \"@/file\"\nsize = \"20MiB\"\n",
    ),
    (
        "mem: longer",
        MEM,
        |_| (),
        "[volume.a]\nbackend = \"mem:\"\nsize = \"12MiB\"\n",
    ),
    (
        "mem: too long",
        MEM,
        |_| (),
        "[volume.a]\nbackend = \"mem:\"\nsize = \"1GiB\"\n",
    ),
    (
        "objects longer",
        DIR,
        |_| (),
        "[volume.a]\nbackend = \"dir:@/dir\"\nsize = \"16MiB\"\n",
    ),
    (
        "for reading",
        FILE,
        |_| (),
        "[volume.a]\nbackend = \"@/file\"\nread_only = true\n",
    ),
    (
        "treated otherwise",
        NEW,
        |_| (),
        "[volume.a]\nbackend = \"new:@/a.img\"\nsize = \"8MiB\"\non_error = \"retry\"\ndirty_max = \"50%\"\ndescription = \"d\"\ndurable = true\n",
    ),
    (
        "one more",
        NEW,
        |_| (),
        "[volume.a]\nbackend = \"new:@/a.img\"\nsize = \"8MiB\"\n[volume.b]\nbackend = \"@/file\"\n",
    ),
    (
        "another in its place",
        NEW,
        |_| (),
        "take_out_all = true\n[volume.b]\nbackend = \"@/file\"\n",
    ),
];

#[test]
fn what_a_reload_takes_a_check_takes() {
    let mut taken = Vec::new();
    for (what, before, done, after) in CHANGES {
        let folder = Folder::new("change");
        sparse(&folder, "file", 16 * MIB);
        // A store of objects takes 20 MiB of it.
        let written = Written::new(&folder, "96MiB", "off");
        let here = |text: &str| text.replace('@', &folder.path("").display().to_string());
        written.write(&[&here(before)]);
        let mut process = written.serve(&folder);
        process.wait_ready();
        done(&folder);
        written.write(&[&here(after)]);
        let beside = Folder::new("change-check");
        let config = written.path.display().to_string();
        let mut check = Process::start(&beside, &["--check", "--config", &config]);
        let is_right = check.ended().success();
        process.signal(Signal::HUP);
        process.wait_said("reloaded: ");
        // A volume grows beside the reload.
        std::thread::sleep(Duration::from_millis(300));
        let said = process.said();
        let is_taken = !REFUSED.iter().any(|word| said.contains(word));
        assert!(is_right || !is_taken, "{what}: {}\n{said}", check.said());
        if ["new: longer", "mem: longer", "mem: too long"].contains(&what) {
            assert_eq!(is_taken, what != "mem: too long", "{what}: {said}");
            assert_eq!(is_right, is_taken, "{what}: {}", check.said());
        }
        taken.extend(is_taken.then_some(what));
        process.stop();
    }
    assert!(taken.len() >= 6, "{taken:?}");
}

#[test]
fn a_volume_that_is_held_is_of_one_moment_and_goes_on() {
    let folder = Folder::new("hold");
    let volume = sparse(&folder, "data", 8 * MIB);
    let control = folder.path("control").display().to_string();
    let asks = format!("unix:{control}");
    let mut process = serve(&folder, &["--control", &asks, &volume]);
    let hold = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["hold", "--control", &control]).args(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let socket = folder.path("socket");
    let data = random(2 * MIB, 9);
    let mut client = Client::connect(&socket, "data");
    write_all(&mut client, &data);
    let path = |name: &str| folder.path(name).display().to_string();
    let script = format!(
        "cp {data} {first}; touch {held}; while [ ! -e {go} ]; do sleep 0.01; done; cp {data} {second}; exit 7",
        data = path("data"),
        first = path("first"),
        held = path("held"),
        go = path("go"),
        second = path("second")
    );
    let holding = hold(&["data", "--time", "60s", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    process.wait("a hold", |_| folder.path("held").exists());
    let (told, wrote) = std::sync::mpsc::channel();
    let changed = random(MIB, 10);
    let writing = std::thread::spawn(move || {
        client.write(0, &changed[..4096], false).unwrap();
        let _ = told.send(());
        client.trim(4096, 4096).unwrap();
        client.flush().unwrap();
    });
    let mut reader = Client::connect(&socket, "data");
    let mut back = vec![0; data.len()];
    reader.read(0, &mut back).unwrap();
    assert!(back == data, "reads go on, and nothing has changed");
    assert!(
        wrote.recv_timeout(Duration::from_millis(500)).is_err(),
        "a write goes on"
    );
    let second = hold(&["data"]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && said.contains("is held already"),
        "{said}"
    );
    fs::write(folder.path("go"), "").unwrap();
    let ended = holding.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(7), "that of the command");
    writing.join().unwrap();
    for copy in ["first", "second"] {
        assert!(
            holds(&folder.path(copy), &data),
            "{copy} is of another moment"
        );
    }

    for (words, told) in [
        (
            &["data", "--time", "200ms", "--", "sleep", "3"][..],
            "the copy is not of one moment",
        ),
        (
            &["nothing"],
            "there is no volume `nothing`; there are: data",
        ),
        (
            &["data", "--", "/nonexistent/program"],
            "cannot start `/nonexistent/program`",
        ),
    ] {
        let ended = hold(words).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
    // Killed, it lets go.
    let mut holding = hold(&["data", "--time", "60s"]).spawn().unwrap();
    let mut held = [0; 5];
    holding
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut held)
        .unwrap();
    assert_eq!(&held, b"held\n");
    holding.kill().unwrap();
    holding.wait().unwrap();
    Client::connect(&socket, "data")
        .write(0, &data[..512], true)
        .unwrap();
    let said = process.stop();
    for text in [
        "held: it is synced",
        "released: its time is over",
        "released: it was released",
    ] {
        assert!(said.contains(text), "{text}:\n{said}");
    }
    let nobody = hold(&["data"]).output().unwrap();
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(said.contains("does `tidegate serve` run"), "{said}");
}

#[test]
fn a_log_that_is_cut_goes_on_at_its_new_end() {
    let folder = Folder::new("rotate");
    let volume = sparse(&folder, "data", MIB);
    // Its standard error is a file that was not opened to be appended to.
    let mut process = serve(&folder, &[&volume]);
    for _ in 0..2 {
        process.signal(Signal::HUP);
        process.wait_said("were read again");
        fs::copy(folder.path("err"), folder.path("err.1")).unwrap();
        File::options()
            .write(true)
            .open(folder.path("err"))
            .unwrap()
            .set_len(0)
            .unwrap();
    }
    let said = process.stop();
    assert!(
        said.starts_with("time=") && !said.contains('\0'),
        "{said:?}"
    );
}

#[test]
fn the_start_after_a_kill_says_so_and_the_one_after_an_end_does_not() {
    let folder = Folder::new("unclean");
    let volume = sparse(&folder, "data", MIB);
    let probe = rustix::fs::setxattr(
        folder.path("data"),
        "user.probe",
        b"x",
        rustix::fs::XattrFlags::empty(),
    );
    if probe.is_err() {
        tell("SKIPPED: the folder for tests has no attributes of files");
        return;
    }
    let killed = "was killed, and this machine went on";
    for (ends_well, was_killed) in [
        (true, false),
        (false, false),
        (false, true),
        (true, true),
        (true, false),
    ] {
        let process = serve(&folder, &[&volume]);
        let said = process.said();
        assert_eq!(said.contains(killed), was_killed, "{said}");
        assert!(
            !was_killed || said.contains("restart guests") && said.contains("volume=data"),
            "{said}"
        );
        if ends_well {
            process.stop();
        }
    }
    // A start that is refused leaves no mark.
    let other = format!("other={}", folder.path("missing").display());
    let at = listen(&folder);
    let (status, _) = refused(&folder, &["--no-web", "--listen", &at, &volume, &other]);
    assert_eq!(status, 2);
    let process = serve(&folder, &[&volume]);
    assert!(!process.stop().contains("was killed"));
}

#[test]
fn a_server_that_was_started_by_a_socket_ends_with_its_last_client_if_told_to() {
    for client_comes in [true, false] {
        let folder = Folder::new("idle");
        let volume = sparse(&folder, "data", MIB);
        let listener = UnixListener::bind(folder.path("activated")).unwrap();
        let mut command = Command::new("sh");
        let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$; exec \"$@\"";
        command
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tidegate"), "serve"])
            .args([
                "--memory",
                MEMORY,
                "--no-web",
                "--end-idle",
                "500ms",
                &volume,
            ])
            .env("LISTEN_FDS", "1")
            .stdin(Stdio::from(OwnedFd::from(listener)));
        let mut process = Process::spawn(&folder, command);
        if client_comes {
            let mut client = Client::connect(&folder.path("activated"), "data");
            std::thread::sleep(Duration::from_millis(1500));
            client.write(0, &[7; 512], false).unwrap();
        }
        assert!(process.ended().success(), "{}", process.said());
        assert_eq!(process.read("out"), "", "it is not its own");
        assert!(!client_comes || holds(&folder.path("data"), &[7; 512]));
    }
}

#[test]
fn each_client_that_is_refused_is_named_by_its_address() {
    let folder = Folder::new("refused");
    let written = Written::new(&folder, MEMORY, "off");
    let more =
        "max_connections = 3\nmax_connections_per_address = 1\nhandshake_timeout = \"500ms\"\n";
    let head = written
        .head
        .replace("listen = [", "listen = [\"tcp:127.0.0.1:0\", ");
    fs::write(&written.path, head + more + &new_volume(&folder, "a", "")).unwrap();
    let mut process = written.serve(&folder);
    let uris = process.wait_ready();
    let address = uris
        .iter()
        .find_map(|uri| uri.strip_prefix("nbd://"))
        .unwrap();
    let address = address.split_once('/').unwrap().0;
    let mut named = |what: &str, send: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        let own = stream.local_addr().unwrap();
        let _ = stream.write_all(send);
        process.wait(what, |this| {
            let of_it = |line: &str| line.contains(&format!("client={own}")) && line.contains(what);
            this.said().lines().any(of_it)
        });
        stream
    };
    drop(named(
        "the client set flags that were not offered",
        b"GET / HTTP/1.0\r\n\r\n",
    ));
    drop(named("the handshake took longer than 0.5 s", b""));
    // The one before may not have gone yet.
    let first = loop {
        let mut stream = TcpStream::connect(address).unwrap();
        if stream.read_exact(&mut [0; 18]).is_ok() {
            break stream;
        }
    };
    drop(named(
        "its address has as many connections as one may have",
        b"",
    ));
    drop(first);
    let socket = folder.path("socket");
    let _all: Vec<Client> = (0..3).map(|_| Client::connect(&socket, "a")).collect();
    drop(named("there are too many connections", b""));
    process.stop();
}

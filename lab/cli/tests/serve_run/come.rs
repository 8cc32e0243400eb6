//! Volumes that come with a reload while their backing hangs: what else the file says does not wait
//! for them.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::{PATIENCE, Process, Written, listen, new_volume};
use crate::serving::{Client, Folder};

/// A server of `volumes` small volumes under these limits on descriptors.
fn limited(folder: &Folder, limits: &str, volumes: usize, more: &[&str]) -> Process {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit {limits} && exec \"$0\" \"$@\"")])
        .args([
            env!("CARGO_BIN_EXE_tidegate"),
            "serve",
            "--memory",
            "256MiB",
        ])
        .args(["--listen", &listen(folder)])
        .args(more);
    for number in 0..volumes {
        let path = folder.path(&format!("{number}.img"));
        command.arg(format!("v{number}=new:{},size=1MiB", path.display()));
    }
    Process::spawn(folder, command)
}

#[test]
fn clients_of_many_volumes_get_in_though_the_soft_limit_of_descriptors_is_low() {
    let folder = Folder::new("many");
    let mut process = limited(
        &folder,
        "-Sn 256",
        50,
        &["--no-web", "--max-connections", "100"],
    );
    process.wait_ready();
    let clients: Vec<Client> = (0..100)
        .map(|client| Client::connect(&folder.path("socket"), &format!("v{}", client % 50)))
        .collect();
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.child.id())).unwrap();
    assert!(limits.contains("Max open files            496"), "{limits}");
    drop(clients);
    assert!(!process.stop().contains("Too many open files"));
}

#[test]
fn one_client_more_than_there_are_descriptors_for_is_turned_away_at_once() {
    let folder = Folder::new("few");
    // 96 for the server, 6 for the volume: 16 are left.
    let more = ["--web", "127.0.0.1:0", "--max-connections", "100"];
    let mut process = limited(&folder, "-n 118", 1, &more);
    process.wait_ready();
    let said = process.said();
    assert!(
        said.contains("there is room for 16 clients at a time"),
        "{said}"
    );
    let socket = folder.path("socket");
    let clients: Vec<Client> = (0..16).map(|_| Client::connect(&socket, "v0")).collect();
    let mut refused = UnixStream::connect(&socket).unwrap();
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(refused.read(&mut [0; 8]).unwrap(), 0, "it is let in");
    let page = said.split_once("http://").unwrap().1;
    let page = page.split_once('/').unwrap().0;
    let mut health = TcpStream::connect(page).unwrap();
    write!(health, "GET /healthz HTTP/1.0\r\nHost: {page}\r\n\r\n").unwrap();
    let mut text = String::new();
    health.read_to_string(&mut text).unwrap();
    for told in [
        "\nok\n",
        "all 16 connections are taken",
        "there are descriptors for 16 connections, 100 are allowed",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    drop(clients);
    process.stop();
}

#[test]
fn a_volume_that_hangs_while_it_is_opened_holds_up_nothing_else() {
    let folder = Folder::new("comes");
    let config = Written::new(&folder, "160MiB", "off");
    // A program that opens a pipe waits for a program that writes to it.
    let pipe = |name: &str| {
        fs::create_dir(folder.path(name)).unwrap();
        let path = folder.path(name).join("volume.json");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        path
    };
    let (first_pipe, _second_pipe) = (pipe("first"), pipe("second"));
    let hangs = |name: &str| {
        let path = folder.path(name);
        format!("[volume.{name}]\nbackend = \"dir:{}\"\n", path.display())
    };
    let volume = |name| new_volume(&folder, name, "");
    config.write(&[&volume("stays")]);
    let mut process = config.serve(&folder);
    process.wait_ready();
    let socket = folder.path("socket");

    // In the order of their names.
    config.write(&[
        &volume("stays"),
        &hangs("first"),
        &hangs("second"),
        &volume("third"),
    ]);
    process.signal(Signal::HUP);
    process.wait_said("msg=added volume=third");
    Client::connect(&socket, "third").flush().unwrap();
    for name in ["first", "second"] {
        let named = format!(
            "still being opened: backing dir:{}",
            folder.path(name).display()
        );
        process.wait_said(&named);
    }
    process.wait_said("serving 2 volumes, opening 2");
    assert!(
        !process.said().contains("not added"),
        "nobody waited for what hangs:\n{}",
        process.said()
    );

    // One is not wanted any more, the other elsewhere: it is opened there as soon as it is known
    // not to be here.
    config.write(&[&volume("stays"), &volume("first")]);
    process.signal(Signal::HUP);
    process.wait_said("taken out: synced and closed\" volume=third");
    drop(OpenOptions::new().write(true).open(first_pipe).unwrap());
    process.wait_said("msg=added volume=first");
    Client::connect(&socket, "first").flush().unwrap();
    process.stop();
}

#[test]
fn what_the_backing_of_a_volume_that_comes_takes_is_the_caches() {
    let folder = Folder::new("comes-memory");
    let config = Written::new(&folder, "128MiB", "127.0.0.1:0");
    let kept = |name: &str, size: &str| {
        format!("[volume.{name}]\nbackend = \"mem:\"\nsize = \"{size}\"\n")
    };
    config.write(&[]);
    let mut process = config.serve(&folder);
    process.wait_said("watch it at http://");
    let said = process.said();
    let (_, page) = said.split_once("watch it at http://").unwrap();
    let page: SocketAddr = page[..page.find('/').unwrap()].parse().unwrap();
    let metrics = || {
        let mut stream = TcpStream::connect(page).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metric = |name: &str| -> u64 {
        let answer = metrics();
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
    };
    // Nothing is written here: all of the cache is free.
    let free = || metric("tidegate_memory_bytes{mode=\"free\"}");
    let before = free();
    config.write(&[&kept("small", "16MiB"), &kept("large", "1GiB")]);
    process.signal(Signal::HUP);
    process.wait_said("reloaded: serving 1 volume");
    let said = process.said();
    let refused = said
        .lines()
        .find(|line| line.contains("not added: it takes 1"));
    assert!(
        refused.is_some_and(|line| line.contains("volume=large")),
        "{said}"
    );
    assert_eq!(metric("tidegate_memory_limit_bytes"), 128 << 20);
    // The limit moves in steps of 4 MiB.
    process.wait("room", |_| free() <= before - (12 << 20));
    // It goes, and leaves its room to another.
    config.write(&["take_out_all = true\n", &kept("other", "32MiB")]);
    process.signal(Signal::HUP);
    process.wait_said("msg=added volume=other");
    process.wait_said("synced and closed\" volume=small");
    config.write(&["take_out_all = true\n"]);
    process.signal(Signal::HUP);
    process.wait_said("synced and closed\" volume=other");
    process.wait_said("reloaded: serving 0 volumes");
    process.wait("all of it", |_| free() == before);
    process.stop();
}

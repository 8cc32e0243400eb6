//! Volumes that come with a reload while their backing hangs: what else the file says does not wait
//! for them.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::serving::{Client, Folder};
use super::{Written, new_volume};

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
    config.write(&[&kept("other", "32MiB")]);
    process.signal(Signal::HUP);
    process.wait_said("msg=added volume=other");
    process.wait_said("synced and closed\" volume=small");
    config.write(&[]);
    process.signal(Signal::HUP);
    process.wait_said("synced and closed\" volume=other");
    process.wait_said("reloaded: serving 0 volumes");
    process.wait("all of it", |_| free() == before);
    process.stop();
}

//! Volumes that come with a reload while their backing hangs: what else the file says does not wait for them.

use std::fs::{self, OpenOptions};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::serving::{Client, Folder};
use super::{MEMORY, Process, listen};

#[test]
fn a_volume_that_hangs_while_it_is_opened_holds_up_nothing_else() {
    let folder = Folder::new("comes");
    let config = folder.path("config.toml");
    let head = format!(
        "memory = \"{MEMORY}\"\nlisten = [\"{}\"]\nweb = \"off\"\n",
        listen(&folder)
    );
    // Who opens a pipe waits for somebody who writes to it.
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
    let volume = |name: &str| {
        let path = folder.path(&format!("{name}.img"));
        let path = path.display();
        format!("[volume.{name}]\nbackend = \"new:{path}\"\nsize = \"8MiB\"\n")
    };
    let write = |volumes: &[String]| fs::write(&config, head.clone() + &volumes.concat()).unwrap();
    write(&[volume("stays")]);
    let mut process = Process::start(&folder, &["--config", &config.display().to_string()]);
    process.wait_ready();
    let socket = folder.path("socket");

    // In the order of their names.
    write(&[
        volume("stays"),
        hangs("first"),
        hangs("second"),
        volume("third"),
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

    // One is not wanted any more, the other elsewhere: it is opened there as soon as it is known not to be here.
    write(&[volume("stays"), volume("first")]);
    process.signal(Signal::HUP);
    process.wait_said("taken out: synced and closed\" volume=third");
    drop(OpenOptions::new().write(true).open(first_pipe).unwrap());
    process.wait_said("msg=added volume=first");
    Client::connect(&socket, "first").flush().unwrap();
    process.stop();
}

//! `tidegate top` in a terminal: it draws in place, a signal leaves the terminal as it was, it ends
//! with its terminal, and one that cannot draw is not drawn on.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The beginning of a reading, and its end: from the first line, and nothing below the last one.
const HOME: &str = "\x1b[H";
const CLEAR_BELOW: &str = "\x1b[J";

/// `top` in a terminal of a kind, of which this is the other side.
fn start(term: Option<&str>) -> (File, Child) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    // Nobody answers at that port; it goes on asking.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    match term {
        Some(term) => command.env("TERM", term),
        None => command.env_remove("TERM"),
    };
    let child = command
        .args(["top", "127.0.0.1:1"])
        .stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::from(theirs.try_clone().unwrap()))
        .stderr(Stdio::from(theirs))
        .spawn()
        .unwrap();
    (File::from(ours), child)
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let (mut ours, mut child) = start(Some("xterm"));
    let (mut said, mut is_told) = (Vec::new(), false);
    let mut part = [0; 4096];
    // Ends with an error when the last of their side is closed: with the child.
    while let Ok(length @ 1..) = ours.read(&mut part) {
        said.extend_from_slice(&part[..length]);
        if !is_told && String::from_utf8_lossy(&said).matches(CLEAR_BELOW).count() == 2 {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            is_told = true;
        }
    }
    let status = child.wait().unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(said.matches(HOME).count(), 2, "{status}: {said:?}");
    assert!(said.contains("no answer from 127.0.0.1:1: "), "{said:?}");
    // Below what was said, and in no mode that would have to end.
    assert!(said.ends_with(&format!("\r\n{CLEAR_BELOW}")), "{said:?}");
    assert!(!said.contains("\x1b[?"), "{said:?}");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
}

/// As when a connection over ssh is dropped, or a session of a multiplexer is ended.
#[test]
fn it_ends_with_its_terminal() {
    let (mut ours, mut child) = start(Some("xterm"));
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&said).contains(CLEAR_BELOW) {
        let length = ours.read(&mut part).unwrap();
        said.extend_from_slice(&part[..length]);
    }
    drop(ours);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it is still there");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_terminal_that_cannot_draw_is_told_once() {
    for term in [Some("dumb"), Some(""), None] {
        let (mut ours, mut child) = start(term);
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = ours.read(&mut part) {
            said.extend_from_slice(&part[..length]);
            assert!(!said.contains(&0x1b), "{term:?} {said:?}");
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("no answer from 127.0.0.1:1: "), "{said:?}");
        assert_eq!(child.wait().unwrap().code(), Some(1), "{term:?}");
    }
}

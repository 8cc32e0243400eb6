//! The program `campaign` from outside: how it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_campaign_that_is_interrupted_says_how_to_go_on_and_is_status_130() {
    let out = std::env::temp_dir().join(format!("tidegate-campaign-{}", std::process::id()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_campaign"))
        .args(["--seeds", "100000000", "--jobs", "1", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The folder is made after the handler.
    while !out.is_dir() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let last = lines.map(Result::unwrap).last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{last}");
    assert!(
        last.starts_with("to go on: cargo xtask campaign --from"),
        "{last}"
    );
    assert!(out.join("figures.txt").is_file());
    std::fs::remove_dir_all(&out).unwrap();
}

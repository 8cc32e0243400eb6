//! `tidegate demo` from outside: what it prints and leaves, and that an interrupt leaves nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![cfg(feature = "serve")]

mod serving;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serving::Folder;

/// The program, whose temporary files go to a folder of this test.
fn demo(folder: &Folder, words: &[&str]) -> Command {
    let temp = folder.path("temp");
    fs::create_dir_all(&temp).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .arg("demo")
        .args(words)
        .arg("--out")
        .arg(folder.path("out"))
        .env("TMPDIR", temp)
        .stdin(Stdio::null());
    command
}

fn left_behind(folder: &Folder) -> usize {
    fs::read_dir(folder.path("temp")).unwrap().count()
}

#[test]
fn both_halves_are_run_and_verified() {
    let folder = Folder::new("demo");
    let output = demo(&folder, &["--seconds", "6"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{}: {said}{complaint}",
        output.status
    );
    let line = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("no '{name}' in {said}"))
    };
    let figures = line("writes a second");
    let rates: Vec<f64> = figures
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [heavy_before, light_before, heavy_after, light_after] = rates[..] else {
        panic!("{figures}");
    };
    assert!(light_before > 10.0 && light_after > 10.0, "{figures}");
    // The disk does 500 requests a second: paced, the heavy client comes down towards that.
    assert!(heavy_after < heavy_before, "{figures}");
    line("The light client's longest write");
    // Not paced, the cache was full of it (12 MiB, of which about three are for the cache itself); paced, it stayed below its
    // dirty limit of 4 MiB.
    let waited = line("at the end not on the disk");
    let mib: Vec<f64> = waited
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(mib.len() == 2 && mib[0] > 7.0 && mib[1] <= 4.2, "{waited}");
    line("a flush then took");
    let plot = fs::read_to_string(folder.path("out").join("tidegate-demo.svg")).unwrap();
    assert!(plot.ends_with("</svg>\n") && plot.matches("<circle").count() > 200);
    assert_eq!(left_behind(&folder), 0);
}

#[test]
fn an_interrupt_ends_it_and_leaves_nothing() {
    let folder = Folder::new("demo-int");
    let mut child = demo(&folder, &["--seconds", "60"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while left_behind(&folder) == 0 {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it does not begin"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let interrupted = Instant::now();
    let process = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &process])
            .status()
            .unwrap()
            .success()
    );
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(interrupted.elapsed() < Duration::from_secs(10));
    assert_eq!(left_behind(&folder), 0);
    assert!(!folder.path("out").join("tidegate-demo.svg").exists());
}

#[test]
fn halves_that_show_nothing_are_refused() {
    let folder = Folder::new("demo-short");
    for (seconds, why) in [
        ("4", "--seconds 4: too short"),
        ("601", "--seconds 601: too long;"),
    ] {
        let output = demo(&folder, &["--seconds", seconds]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains(why) && said.contains("choose 6 to 600"),
            "{said}"
        );
    }
    let help = demo(&folder, &["--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("Seconds of each half, 6 to 600"), "{help}");
}

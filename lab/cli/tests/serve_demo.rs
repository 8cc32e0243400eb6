//! `tidegate demo` from outside: what it prints and leaves, and that an interrupt leaves nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod serving;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serving::Folder;

/// Time that anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

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

/// The figures of a line.
fn figures(said: &str, name: &str) -> Vec<f64> {
    let line = said.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no '{name}' in {said}"));
    line.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[test]
fn all_parts_are_run_and_ours_verified() {
    let folder = Folder::new("demo");
    // A machine that does much else needs longer for the heavy client to fill the cache, and the
    // light one may not have its times: what is wrong with the server is wrong however long it
    // takes.
    let shown = ["12", "24", "60"].map(|seconds| {
        move |folder: &Folder| {
            let output = demo(folder, &["--seconds", seconds]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let status = output.status;
            assert!(status.success(), "{status}: {said}{complaint}");
            said
        }
    });
    let mut missed = Vec::new();
    for run in shown {
        let said = run(&folder);
        let rates = figures(&said, "writes a second");
        // Where nbdkit is installed, its column is first.
        let [.., _, light_before, _, light_after] = rates[..] else {
            panic!("{said}");
        };
        figures(&said, "The light client's longest write");
        figures(&said, "a commit took");
        let done = figures(&said, "  commits that were done");
        let columns = 2 + usize::from(said.contains("nbdkit, writeback"));
        assert_eq!((done.len(), rates.len()), (columns, 2 * columns), "{said}");
        let done = &done[columns - 2..];
        let mib = figures(&said, "at the end not on the disk");
        assert_eq!(mib.len(), 2, "{said}");
        let plot = fs::read_to_string(folder.path("out").join("tidegate-demo.svg")).unwrap();
        assert!(plot.ends_with("</svg>\n") && plot.matches("<circle").count() > 200);
        assert_eq!(left_behind(&folder), 0);
        // Not paced, the cache is full of what the disk has not taken, and a commit waits for that.
        // Paced, it stays below its dirty limit of 1 MiB, and commits are done.
        if light_before > 10.0 && light_after > 10.0 && mib[0] > 10.0 && done[1] > done[0] {
            return;
        }
        missed.push(said);
    }
    panic!("{}", missed.join("\n"));
}

#[test]
fn an_interrupt_ends_it_and_leaves_nothing() {
    let folder = Folder::new("demo-int");
    let mut child = demo(&folder, &["--seconds", "600"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while left_behind(&folder) == 0 {
        assert!(began.elapsed() < PATIENCE, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
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
    assert!(began.elapsed() < PATIENCE, "its parts took their time");
    assert_eq!(left_behind(&folder), 0);
    assert!(!folder.path("out").join("tidegate-demo.svg").exists());
}

#[test]
fn a_plot_that_cannot_be_written_is_said_before_anything_runs() {
    let folder = Folder::new("demo-plot");
    fs::create_dir_all(folder.path("out").join("tidegate-demo.svg")).unwrap();
    let output = demo(&folder, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("out/tidegate-demo.svg: "), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(left_behind(&folder), 0);
}

#[test]
fn parts_that_show_nothing_are_refused() {
    let folder = Folder::new("demo-short");
    for (seconds, why) in [
        ("11", "--seconds 11: too short"),
        ("601", "--seconds 601: too long;"),
    ] {
        let output = demo(&folder, &["--seconds", seconds]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains(why) && said.contains("choose 12 to 600"),
            "{said}"
        );
    }
    let help = demo(&folder, &["--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("Seconds of each part, 12 to 600"), "{help}");
}

/// `demo map`, whose temporary files go to a folder of this test.
fn demo_map(folder: &Folder, words: &[&str]) -> Command {
    let temp = folder.path("temp");
    fs::create_dir_all(&temp).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo", "map"]).args(words);
    command.env("TMPDIR", temp).stdin(Stdio::null());
    command
}

/// Loop devices over files of this test.
fn loops(folder: &Folder) -> usize {
    let list = Command::new("losetup").arg("--list").output().unwrap();
    let temp = folder.path("temp").display().to_string();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    list.lines().filter(|line| line.contains(&temp)).count()
}

#[test]
fn both_maps_are_run_and_nothing_is_left() {
    let folder = Folder::new("demo-map");
    let output = demo_map(&folder, &["--seconds", "3"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(left_behind(&folder), 0);
    if !output.status.success() {
        let wants = ["run it as root", "answer no page faults"];
        assert!(
            wants.iter().any(|want| complaint.contains(want)),
            "{complaint}"
        );
        println!("SKIPPED: {complaint}");
        return;
    }
    assert_eq!(loops(&folder), 0);
    let [most, of] = ["memory at most", "  of a limit of"].map(|line| figures(&said, line)[1]);
    assert!(most > of / 2.0 && most <= of, "{said}");
    assert!(figures(&said, "heavy stores a second")[1] > 100.0, "{said}");

    let mut child = demo_map(&folder, &[])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while loops(&folder) == 0 {
        assert!(began.elapsed() < PATIENCE, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let process = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &process]).status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!((loops(&folder), left_behind(&folder)), (0, 0));
}

#[test]
fn a_map_without_rights_names_the_way_out() {
    let folder = Folder::new("demo-map-rights");
    let mut command = demo_map(&folder, &[]);
    // As nobody, where this is root: else as it is.
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(folder.path("temp"), fs::Permissions::from_mode(0o777)).unwrap();
        command.uid(65534);
    }
    let output = command.args(["--seconds", "2"]).output();
    let said = match output {
        Ok(output) => {
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8_lossy(&output.stderr).into_owned()
        }
        // The program lies where nobody may go.
        Err(error) => return println!("SKIPPED: {error}"),
    };
    assert!(said.contains("root"), "{said}");
    let output = demo_map(&folder, &["--seconds", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

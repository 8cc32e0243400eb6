//! The program from outside: exit status, messages, files, interrupts.

mod compare;
mod diff;
mod small;
mod trace;
mod zones;

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use small::SMALL;

/// Time that anything may take before the test fails, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `what` is so of a program that goes on meanwhile.
fn until(child: &mut Child, what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            if let Some(err) = &mut child.stderr {
                err.read_to_string(&mut said).unwrap();
            }
            panic!("{status} before {what}: {said}");
        }
        assert!(Instant::now() < patience, "never came to be: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True if a process has a handler for the interrupt, the second of the mask that the kernel shows
/// of it.
fn catches_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(mask.unwrap_or("0").trim(), 16).unwrap();
    mask & 0b10 != 0
}

/// True if a process has a file open below `folder`, with a name or without.
fn has_open(pid: u32, folder: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut paths = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    paths.any(|path| path.starts_with(folder))
}

/// A fresh folder.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tidegate-cli-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .current_dir(folder)
        .args(arguments)
        .env("NO_COLOR", "1");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(folder, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn small(folder: &Path, text: &str) {
    std::fs::write(folder.join("small.toml"), text).unwrap();
}

/// The lines of a table that depend on nothing but the seed.
fn hashes(folder: &Path) -> Vec<String> {
    let mut reader = csv::Reader::from_path(folder.join("runs.csv")).unwrap();
    let names = reader.headers().unwrap().clone();
    let at = names.iter().position(|name| name == "trace_hash").unwrap();
    reader
        .records()
        .map(|row| row.unwrap()[at].to_owned())
        .collect()
}

/// The page about tables has each of a folder, with its columns in their order.
fn columns_are_as_the_page_has_them(results: &Path) {
    const PAGE: &str = include_str!("../../../docs/study/read-the-tables.md");
    for file in std::fs::read_dir(results).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "csv") {
            continue;
        }
        let name = file.file_name().unwrap().to_str().unwrap();
        let row = PAGE
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
        let row = row.unwrap_or_else(|| panic!("the page has no {name}"));
        let (_, told) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        // Values stand in brackets.
        let outside = |part: &str| {
            part.split_once(')')
                .map_or(part, |(_, rest)| rest)
                .to_owned()
        };
        let told: String = told.split('(').map(outside).collect();
        let told: Vec<&str> = told
            .split(',')
            .map(|one| one.trim_matches([' ', '`']))
            .collect();
        let mut reader = csv::Reader::from_path(&file).unwrap();
        let columns: Vec<&str> = reader.headers().unwrap().iter().collect();
        assert_eq!(told, columns, "{name}");
    }
}

#[test]
fn a_scenario_runs_and_leaves_its_results() {
    let folder = folder("results");
    small(&folder, SMALL);
    let (status, out, err) = run(&folder, &["run", "small.toml", "--check"]);
    assert_eq!(status, 0, "{out}{err}");
    // The result alone: the tables are in the folder, and printed for those that ask.
    assert!(out.lines().count() <= 40, "{out}");
    assert!(out.contains("mbps-small (MB/s)"), "{out}");
    assert!(out.contains("1 of 1 bands hold"), "{out}");
    assert!(
        out.contains("Results: results/small-seed7 (begin with report.html"),
        "{out}"
    );
    assert!(
        err.contains("[4/4]"),
        "progress is lines where there is no terminal: {err}"
    );
    let results = folder.join("results/small-seed7");
    for name in ["runs", "samples", "series", "counters", "events", "compare"] {
        assert!(
            results
                .join(format!("{name}.csv"))
                .metadata()
                .unwrap()
                .len()
                > 50,
            "{name}"
        );
    }
    columns_are_as_the_page_has_them(&results);
    let table = std::fs::read_to_string(results.join("table.txt")).unwrap();
    for line in ["Hmean     mbps-small", "holds    all-written"] {
        assert!(table.contains(line), "{table}");
    }
    // As narrow as a terminal is in half a screen; the path of the results is not broken.
    let mut narrow = command(&folder, &["run", "small.toml", "--out", "n"]);
    let narrow = narrow.env("COLUMNS", "60").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    let wide = |line: &&str| line.chars().count() > 60 && !line.starts_with("Results: ");
    assert_eq!(narrow.lines().find(wide), None, "{narrow}");
    let (_, out, _) = run(&folder, &["run", "small.toml", "--tables", "--out", "t"]);
    let tables = out.split("\nRuns: ").next().unwrap();
    assert!(table.starts_with(tables), "{out}");
    // Nothing comes from the network; the one script sorts tables that are there without it.
    let html = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(html.contains("<svg") && !html.contains("src=") && !html.contains("//cdn"));
    assert!(html.contains("all-written") && html.contains("prefers-color-scheme: dark"));
    assert!(html.len() < 2_000_000);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn results_do_not_depend_on_how_many_run_side_by_side_nor_on_the_columns_chosen() {
    let folder = folder("same");
    small(&folder, SMALL);
    assert_eq!(run(&folder, &["run", "small.toml", "--out", "a"]).0, 0);
    assert_eq!(
        run(
            &folder,
            &["run", "small.toml", "--out", "b", "--column", "tidegate"]
        )
        .0,
        0
    );
    let (all, one) = (hashes(&folder.join("a")), hashes(&folder.join("b")));
    // Repetitions are outermost: columns 2.6.36, tidegate, 2.6.36, tidegate.
    assert_eq!((&all[1], &all[3]), (&one[0], &one[1]));
    assert_ne!(all[0], all[1]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_scenario_may_have_a_name_that_is_no_text() {
    let folder = folder("bytes");
    let name = OsStr::from_bytes(b"a\xff.toml");
    std::fs::write(folder.join(name), SMALL).unwrap();
    let output = command(&folder, &["run"]).arg(name).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = command(&folder, &["run"])
        .arg(OsStr::from_bytes(b"b\xff.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("cannot read the scenario b\u{fffd}.toml"),
        "{said}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_check_that_would_judge_nothing_is_refused_before_the_work() {
    let folder = folder("no-band");
    small(&folder, SMALL.split("[[expect]]").next().unwrap());
    let (status, _, err) = run(&folder, &["run", "small.toml", "--check"]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("`small` has no [[expect]] bands"), "{err}");
    small(&folder, SMALL);
    let arguments = ["run", "small.toml", "--check", "--column", "linux-2.6.36"];
    let (status, _, err) = run(&folder, &arguments);
    assert_eq!(status, 2, "{err}");
    assert!(
        err.contains("no band of `small` is about the rows and columns small, linux-2.6.36"),
        "{err}"
    );
    assert!(!folder.join("results").exists(), "nothing was run");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_band_that_does_not_hold_is_named_and_is_status_1() {
    let folder = folder("band");
    small(&folder, SMALL);
    let arguments = [
        "run",
        "small.toml",
        "--check",
        "--set",
        "expect.all-written.max=67.0",
        "--set",
    ];
    let more = [
        "expect.all-written.min=66",
        "--replicas",
        "1",
        "--column",
        "tidegate",
    ];
    let (status, _, err) = run(&folder, &[&arguments[..], &more[..]].concat());
    assert_eq!(status, 1, "{err}");
    assert!(
        err.contains("FAILS    all-written [small] written_mb of tidegate"),
        "{err}"
    );
    assert!(err.contains("band of: 64 MiB and a little"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn mistakes_are_status_2_and_say_what_to_do() {
    let folder = folder("mistakes");
    small(&folder, &SMALL.replace("cpus = 2", "cpus = 0"));
    let cases: [(&[&str], &str); 14] = [
        (&["run", "small.toml"], "--> small.toml:9:8"),
        (&["run", "p4"], "tidegate reproduce p4"),
        (&["list", "metric"], "a similar value exists: 'metrics'"),
        (&["run", "dd", "--scale", "1/0"], "for example 1/8 or 0.125"),
        (&["run", "cp-pause"], "did you mean `cp-pauses`?"),
        (
            &["run", "not-there.toml"],
            "cannot read the scenario not-there.toml",
        ),
        (&["run", "dd", "--column", "p2"], "did you mean `p1`?"),
        (
            &["run", "dd", "--set", "machine.memory_gib=1"],
            "write `memory_mib`",
        ),
        (
            &["run", "dd", "--scale", "0.3"],
            "not one over a whole number",
        ),
        (
            &["run", "dd", "--scale", "0.3"],
            "--> dd (built in) --scale 0.3:10:9",
        ),
        (
            &["run", "dd", "--live", "not-there"],
            "make the folder first",
        ),
        // Nobody can make a file there, root neither.
        (
            &["run", "dd", "--live", "/proc"],
            "--live /proc: files cannot be made there: ",
        ),
        (
            &["run", "dd", "--live", ".", "--memory", "1M"],
            "memory limit of 1 MiB is too small",
        ),
        (
            &["run", "stutterp", "--live", ".", "--memory", "256M"],
            "to a 64th of its 32768 MiB at the most; use at least --memory 512M",
        ),
    ];
    for (arguments, message) in cases {
        let (status, _, err) = run(&folder, arguments);
        assert_eq!(status, 2, "{arguments:?}: {err}");
        assert!(err.contains(message), "{arguments:?}: {err}");
        // As it happens and at the end, and not once a repetition.
        let times = err.matches(message).count();
        assert!(times <= 2, "{arguments:?}: said {times} times: {err}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn too_little_space_is_said_before_anything_is_written() {
    let folder = folder("space");
    let (status, _, err) = run(
        &folder,
        &[
            "run",
            "dd",
            "--live",
            ".",
            "--column",
            "tidegate",
            "--replicas",
            "1",
            "--scale",
            "1",
            "--set",
            "task.dd.file_mib=16000000",
        ],
    );
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("MiB are free; free some"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_same_scenario_runs_on_files_within_its_memory_and_leaves_none() {
    let folder = folder("live");
    small(
        &folder,
        &SMALL.replace("memory_mib = 32", "memory_mib = 64"),
    );
    std::fs::create_dir(folder.join("files")).unwrap();
    let (status, out, err) = run(
        &folder,
        &[
            "run",
            "small.toml",
            "--live",
            "files",
            "--check",
            "--replicas",
            "1",
            "--out",
            "o",
        ],
    );
    assert_eq!(status, 0, "{out}{err}");
    assert_eq!(std::fs::read_dir(folder.join("files")).unwrap().count(), 0);
    let mut reader = csv::Reader::from_path(folder.join("o/series.csv")).unwrap();
    let resident: Vec<f64> = reader
        .records()
        .map(|row| row.unwrap())
        .filter(|row| &row[3] == "resident")
        .map(|row| row[4].parse().unwrap())
        .collect();
    assert!(!resident.is_empty());
    let most = resident.iter().copied().fold(0.0, f64::max);
    assert!(
        most <= 64.0 * 1_048_576.0 * 1.05,
        "{} MiB",
        most / 1_048_576.0
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_interrupt_stops_cleanly_removes_the_files_and_is_status_130() {
    let folder = folder("interrupt");
    // The light writer lasts: for files that do, this disk may have no space.
    small(&folder, &SMALL.replace("run_s = 1", "run_s = 60"));
    std::fs::create_dir(folder.join("files")).unwrap();
    let arguments = [
        "run",
        "small.toml",
        "--live",
        "files",
        "--memory",
        "64M",
        "--out",
        "o",
    ];
    let mut child = command(&folder, &arguments)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // They have no name once they are open.
    let (pid, at) = (child.id(), folder.join("files").canonicalize().unwrap());
    until(&mut child, "it has files open", || has_open(pid, &at));
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    // `timeout` sends it twice: to its child, and to the group that both are in.
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(
        err.contains("#0: interrupted after ") && err.contains(" s; its figures are dropped"),
        "{err}"
    );
    assert!(
        err.contains("interrupted before a run had come to its end; no results are written"),
        "{err}"
    );
    assert_eq!(std::fs::read_dir(at).unwrap().count(), 0);
    assert!(!folder.join("o").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_had_ended_before_an_interrupt_is_in_the_results() {
    let folder = folder("interrupt-later");
    small(&folder, SMALL);
    std::fs::create_dir(folder.join("files")).unwrap();
    let arguments = [
        "run",
        "small.toml",
        "--live",
        "files",
        "--memory",
        "64M",
        "--replicas",
        "100",
        "--out",
        "o",
    ];
    let said = folder.join("said");
    let mut child = command(&folder, &arguments)
        .stderr(std::fs::File::create(&said).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let err = || std::fs::read_to_string(&said).unwrap();
    until(&mut child, "a run has ended", || err().contains("[1/200]"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", err());
    assert!(
        err().contains("interrupted; the runs that had ended are in the results"),
        "{}",
        err()
    );
    assert!(folder.join("o/runs.csv").exists());
    let table = std::fs::read_to_string(folder.join("o/table.txt")).unwrap();
    assert!(
        table.contains("INTERRUPTED after ") && table.contains(" of 200 runs"),
        "{table}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_interrupted_live_run_does_not_wait_for_jobs_that_are_yet_to_begin() {
    let folder = folder("interrupt-early");
    small(
        &folder,
        &SMALL.replace("run_s = 1", "start_s = 600\nrun_s = 1"),
    );
    std::fs::create_dir(folder.join("files")).unwrap();
    let arguments = ["run", "small.toml", "--live", "files", "--memory", "64M"];
    let mut child = command(&folder, &arguments)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    until(&mut child, "it catches interrupts", || {
        catches_interrupts(pid)
    });
    std::thread::sleep(Duration::from_secs(1));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let patience = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = child.try_wait().unwrap();
    if ended.is_none() {
        child.kill().unwrap();
    }
    assert_eq!(ended.and_then(|status| status.code()), Some(130));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_run_that_takes_too_long_is_told_what_to_set() {
    let folder = folder("too-long");
    let limited = SMALL.replace("seed = 7", "seed = 7\nmax_s = 0.5");
    small(&folder, &limited.replace("run_s = 1", "run_s = 0.5"));
    let (status, _, err) = run(&folder, &["run", "small.toml"]);
    assert_eq!(status, 1, "{err}");
    assert!(
        err.contains("not over after 0.5 s of its time (run.max_s); at work: dd;")
            && err.contains("--set run.max_s=2"),
        "{err}"
    );
    assert!(!err.contains(" ns;"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// It is stopped as an interrupted one is, and those after it are made.
#[test]
fn a_live_run_that_takes_too_long_is_stopped_and_has_failed() {
    let folder = folder("too-long-live");
    std::fs::create_dir(folder.join("files")).unwrap();
    // 400 calls and a rest of 50 ms after each; and a single one.
    let rows = "[[row]]\nname = \"long\"\nfile_mib = 1.5625\n[[row]]\nname = \"short\"\nfile_mib = 0.004\n";
    let light = SMALL.find("[[task]]\nid = \"light\"").unwrap()..SMALL.find("[[column]]").unwrap();
    let mut text = SMALL.replace("seed = 7", "seed = 7\nmax_s = 5");
    text.replace_range(light.start + 9..light.end + 9, "");
    let text = text.replace(
        "file_mib = 64",
        "file_mib = 64\nblock_kib = 4\nevery_ms = 50",
    );
    small(&folder, &format!("{text}\n{rows}"));
    let arguments = [
        "run",
        "small.toml",
        "--live",
        "files",
        "--memory",
        "64M",
        "--column",
        "tidegate",
        "--replicas",
        "1",
        "--out",
        "out",
    ];
    let (status, out, err) = run(&folder, &arguments);
    assert_eq!(status, 1, "{out}{err}");
    assert!(
        err.contains("not over after 5 s of its time (run.max_s); at work: dd;")
            && err.contains("1 of 2 runs failed"),
        "{err}"
    );
    let runs = std::fs::read_to_string(folder.join("out/runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 2, "{runs}");
    assert!(runs.contains("short"), "{runs}");
    let left = std::fs::read_dir(folder.join("files")).unwrap();
    assert_eq!(left.count(), 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn whoever_closes_the_pipe_has_seen_enough() {
    let folder = folder("pipe");
    small(&folder, SMALL);
    let mut child = command(
        &folder,
        &["run", "small.toml", "--replicas", "1", "--out", "o"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_printed_is_said_once_and_is_status_1() {
    let folder = folder("full");
    small(&folder, SMALL);
    let mut command = command(&folder, &["run", "small.toml", "--out", "o"]);
    command.stdout(std::fs::File::create("/dev/full").unwrap());
    let output = command.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    let said = err.matches("cannot write to standard output: No space left on device");
    assert_eq!(said.count(), 1, "{err}");
    let table = std::fs::read_to_string(folder.join("o/table.txt")).unwrap();
    assert!(
        table.contains("mbps-small"),
        "the results are whole: {table}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

/// With a hog that fits memory and swap, but for the reserve: its run fails.
fn with_a_hog() -> String {
    SMALL.replace("memory_mib = 32", "memory_mib = 32\nswap = { device = \"disk\", mib = 1 }").replace(
        "[[task]]\nid = \"light\"",
        "[[task]]\nid = \"hog\"\nkind = \"hog\"\nregion_mib = 33\nrun_s = 100\n\n[[task]]\nid = \"light\"",
    )
}

#[test]
fn a_run_that_fails_says_why_at_once() {
    let folder = folder("failing");
    small(&folder, &with_a_hog());
    let arguments = [
        "run",
        "small.toml",
        "--column",
        "tidegate",
        "--replicas",
        "1",
    ];
    let (status, out, err) = run(&folder, &arguments);
    assert_eq!(status, 1, "{err}");
    let progress = err.lines().find(|line| line.starts_with("[1/1]"));
    let progress = progress.unwrap_or_default();
    assert!(
        progress.contains("failed: the job `") && progress.contains("can be freed"),
        "{err}"
    );
    assert_eq!(err.matches("can be freed").count(), 1, "{err}");
    assert!(
        err.ends_with("tidegate: 1 of 1 runs failed; no results are written\n"),
        "{err}"
    );
    // Nothing came of it, so there is nothing to begin with.
    assert_eq!(out, "");
    assert!(!folder.join("results").exists());
    // A folder that was there before stays.
    std::fs::create_dir(folder.join("results")).unwrap();
    assert_eq!(run(&folder, &arguments).0, 1);
    assert_eq!(folder.join("results").read_dir().unwrap().count(), 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn results_are_not_written_over_by_a_run_beside() {
    let folder = folder("two");
    small(&folder, SMALL);
    std::fs::create_dir(folder.join("o")).unwrap();
    // As a run beside this one has it, from its beginning to its end.
    let beside = std::fs::File::open(folder.join("o")).unwrap();
    beside.lock().unwrap();
    let arguments = ["run", "small.toml", "--out", "o"];
    let (status, _, err) = run(&folder, &arguments);
    assert_eq!(status, 2, "{err}");
    let told =
        "cannot write the results to o: another tidegate is about to write its results there";
    assert!(err.contains(told) && err.contains("--out"), "{err}");
    assert!(!err.contains("[1/"), "before the work: {err}");
    drop(beside);
    let (status, _, err) = run(&folder, &arguments);
    assert_eq!(status, 0, "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn folders_that_were_made_for_nothing_go_again() {
    let folder = folder("for-nothing");
    small(&folder, &with_a_hog());
    std::fs::create_dir(folder.join("a")).unwrap();
    let arguments = [
        "run",
        "small.toml",
        "--column",
        "tidegate",
        "--out",
        "a/b/c",
    ];
    assert_eq!(run(&folder, &arguments).0, 1);
    assert_eq!(folder.join("a").read_dir().unwrap().count(), 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_failed_is_told_above_the_tables_of_the_rest() {
    let folder = folder("some-fail");
    let cases =
        "\n[[row]]\nname = \"fits\"\ntasks = [\"dd\", \"light\"]\n\n[[row]]\nname = \"does-not\"\n";
    let text = with_a_hog().replace("\n[[column]]\nname = \"linux-2.6.36\"", cases);
    small(&folder, text.split("[[expect]]").next().unwrap());
    let (status, out, err) = run(&folder, &["run", "small.toml", "--replicas", "1"]);
    assert_eq!(status, 1, "{err}");
    assert!(
        out.starts_with("FAILED: 1 of 2 runs; what follows is of the others alone\n"),
        "{out}"
    );
    assert!(
        out.contains("Results (partial): results/small-seed7"),
        "{out}"
    );
    assert!(err.ends_with("tidegate: 1 of 2 runs failed\n"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_the_work() {
    let folder = folder("not-ours");
    small(&folder, SMALL);
    // So deep that no file within has a path: root is refused, too.
    let mut deep = folder.join("deep").into_os_string();
    while deep.len() < 4090 {
        let rest = 4090 - deep.len();
        deep.push(format!(
            "/{}",
            "d".repeat(rest.saturating_sub(1).clamp(1, 200))
        ));
    }
    let mut command = command(&folder, &["run", "small.toml", "--out"]);
    let output = command.arg(&deep).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("File name too long") && err.contains("--out"),
        "{err}"
    );
    assert!(!err.contains("[1/"), "before the work: {err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn results_name_the_program_that_made_them() {
    let folder = folder("version");
    small(&folder, SMALL);
    let (_, version, _) = run(&folder, &["--version"]);
    let begins = concat!("tidegate ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(begins), "{version}");
    let (status, _, said) = run(&folder, &["run", "small.toml", "--out", "o"]);
    assert_eq!(status, 0, "{said}");
    let runs = std::fs::read_to_string(folder.join("o/runs.csv")).unwrap();
    let field = format!(",{},", version.trim());
    let mut rows = runs.lines().skip(1).peekable();
    assert!(
        rows.peek().is_some() && rows.all(|run| run.contains(&field)),
        "{version}{runs}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

/// `cargo xtask test --all` names the program as the README's first command builds it.
#[test]
fn a_program_without_the_server_says_how_to_get_it() {
    let Some(program) = std::env::var_os("TIDEGATE_NO_SERVER") else {
        println!("SKIPPED: TIDEGATE_NO_SERVER names no program without the server");
        return;
    };
    let folder = folder("no-server");
    let run = |folder: &Path, words: &[&str]| {
        let mut command = Command::new(&program);
        let output = command.current_dir(folder).args(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let status = output.status.code().unwrap();
        (status, text(output.stdout), text(output.stderr))
    };
    for words in [
        &["serve", "--config", "there.toml"][..],
        &["top", "--once"],
        &["demo", "--help"],
    ] {
        let (status, out, err) = run(&folder, words);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        let line = format!(
            "cargo run --release --features serve -- {}\n",
            words.join(" ")
        );
        assert!(err.contains(&line), "{err}");
        assert!(err.contains("built without the server"), "{err}");
    }
    let (status, out, _) = run(&folder, &["--help"]);
    assert_eq!(status, 0);
    for word in ["serve", "top", "hold", "demo"] {
        let mut lines = out.lines();
        let line = lines.find(|line| line.trim_start().starts_with(word));
        assert!(line.unwrap().contains("not in this tidegate"), "{out}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

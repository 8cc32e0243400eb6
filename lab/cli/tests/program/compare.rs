//! `compare` from outside: what is printed and written, and what is refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::{changed, copy, fixture, folder, unpacked};

#[path = "../../../recordings/tests/compare/fixture.rs"]
mod fixture;

fn tidegate(at: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(at)
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The output of a comparison that ends well, with its results in `out`.
fn compared(at: &Path, recording: &Path, options: &[&str]) -> String {
    let recording = recording.to_str().unwrap();
    let own = ["compare", recording, "--out", "out"];
    let (status, out, err) = tidegate(at, &[&own[..], options].concat());
    assert_eq!(status, 0, "{out}{err}");
    out
}

#[test]
fn a_recording_without_pauses_is_compared_and_said() {
    let path = changed("none", "pauses.csv", |text| {
        format!("{}\n", text.lines().next().unwrap())
    });
    let (status, out, err) = tidegate(&path, &["compare", ".", "--out", "results"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("note: no pauses"), "{out}");
    assert!(
        out.contains("pauses: median [25%] (ms)                   -        32.0"),
        "{out}"
    );
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn what_the_lab_cannot_run_is_said_of_the_change() {
    let here = folder("ranges");
    let guest = fixture("guest");
    let compare = |set: &str| {
        let arguments = [
            "compare",
            guest.to_str().unwrap(),
            "--set",
            set,
            "--out",
            "o",
        ];
        tidegate(&here, &arguments)
    };
    for (set, said) in [
        (
            "device.0.rate=0.001",
            "`rate_mib` is out of range: 0.001; write a number from 0.00390625 to 65536",
        ),
        (
            "device.0.max_ratio=0.001",
            "`max_percent` is out of range: 0.001; write a number from 0.01 to 100",
        ),
        (
            "hz=1024",
            "`hz` is out of range: 1024; write a number from 100 to 1000",
        ),
        (
            "writer.0.sleep_ms=1e12",
            "`every_ms` is out of range: 1000000000000",
        ),
        (
            "writer.0.bytes=1000B",
            "the lab writes whole sectors; allowed: multiples of 512 bytes",
        ),
    ] {
        let (status, _, err) = compare(set);
        assert_eq!(status, 2, "{err}");
        assert!(
            err.starts_with(&format!("tidegate: --set {set}: ")),
            "{err}"
        );
        assert!(err.contains(said), "{err}");
    }
    // A rest of nearly nothing is the shortest that there is.
    let (status, _, err) = compare("writer.0.sleep_ms=1e-9");
    assert_eq!(status, 0, "{err}");
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn a_trace_of_a_machine_with_more_cpus_than_the_lab_has_is_run_on_those() {
    let here = folder("cpus");
    let ftrace = unpacked(&fixture("ftrace.txt.gz"));
    for cpu in ["200", "4294967295"] {
        let text = ftrace.replace("[000]", &format!("[{cpu}]"));
        std::fs::write(here.join("trace.txt"), text).unwrap();
        let (status, out, err) = tidegate(&here, &["compare", "trace.txt", "--out", "o"]);
        assert_eq!(status, 0, "{out}{err}");
        assert!(out.contains("the lab has no more than 128 CPUs"), "{out}");
    }
    let (status, _, err) = tidegate(&here, &["compare", "trace.txt", "--set", "cpus=129"]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("`cpus` is out of range: 129"), "{err}");
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn a_change_that_fits_nowhere_is_refused_and_leaves_nothing() {
    let guest = fixture("guest");
    let guest = guest.to_str().unwrap();
    let here = folder("keys");
    for (set, said) in [
        ("device.1.rate=8", "there is no device 1; allowed: 0"),
        ("device.0.rate=0", "`rate_mib` is out of range: 0"),
        (
            "vm.swappiness=10",
            "`vm.swappiness` is a key of recordings of memory pressure",
        ),
        ("vm.dirty_ratio=5..20", "a range needs its step"),
        ("writers=0", "not a whole number of 1 to 4096"),
    ] {
        let (status, _, err) = tidegate(&here, &["compare", guest, "--set", set]);
        assert_eq!(status, 2, "{err}");
        assert!(err.contains(said), "{said} in {err}");
        let is_elsewhere = err.contains("is a key of recordings of");
        assert_eq!(is_elsewhere, set.starts_with("vm.swappiness"), "{err}");
    }
    let (status, _, err) = tidegate(&here, &["compare", guest, "--column", "linux-6.13"]);
    assert_eq!(status, 2);
    assert!(err.contains("did you mean `linux-6.12`?"), "{err}");
    let (status, _, err) = tidegate(&here, &["compare", guest, "--against", guest]);
    assert_eq!(status, 2, "--against needs --set: {err}");
    assert!(
        here.read_dir().unwrap().next().is_none(),
        "a mistake leaves nothing behind"
    );
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn one_recording_is_printed_drawn_and_can_be_run_again() {
    let here = folder("one");
    let out = compared(&here, &fixture("guest"), &["--check"]);
    assert!(
        out.starts_with("guest: Linux 6.12.117+deb12-cloud-amd64, HZ 250, 1 CPU, 16 MiB/s"),
        "{out}"
    );
    for part in [
        "recording            linux-6.12              tidegate",
        "throughput [10%] (MiB/s)",
        "all 4 bands hold",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    let html = std::fs::read_to_string(here.join("out/report.html")).unwrap();
    for figure in [
        "pauses-guest",
        "pause-lengths-guest",
        "levels-guest",
        "ratelimit-guest",
    ] {
        assert!(
            html.contains(&format!("<figure class=\"plot\" id=\"{figure}\">")),
            "{figure}"
        );
        assert!(here.join(format!("out/{figure}.svg")).exists());
    }
    assert!(!html.contains("src=\"http") && html.contains("recording"));
    let figures = std::fs::read_to_string(here.join("out/figures.csv")).unwrap();
    assert!(
        figures
            .starts_with("recording,column,figure,unit,value\nguest,recording,throughput,MiB/s,")
    );
    let again = [
        "run",
        "out/scenario.toml",
        "--column",
        "tidegate",
        "--out",
        "again",
    ];
    let (status, out, err) = tidegate(&here, &again);
    assert_eq!(status, 0, "{out}{err}");
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn what_if_is_answered_and_the_error_of_the_answer_shown() {
    let here = folder("what-if");
    let guest = fixture("guest");
    let set = ["--set", "vm.dirty_background_bytes=8M"];
    let against = ["--against", guest.to_str().unwrap()];
    let policy = ["--column", "linux-6.12"];
    let out = compared(&here, &guest, &[set, against, policy].concat());
    assert!(
        out.contains("What if vm.dirty_background_bytes=8M? (background_mib 32 -> 8)"),
        "{out}"
    );
    // The same recording is no recording of the change, and it is said.
    assert!(
        out.contains(
            "note: guest is no recording of that change; it also differs by: background_mib 8 -> 32"
        ),
        "{out}"
    );
    for head in [
        "recording",
        "linux-6.12",
        "changed",
        "effect",
        "answer",
        "error",
        "of difference",
    ] {
        assert!(out.contains(head), "{head}");
    }
    assert!(here.join("out/scenario-guest-changed.toml").exists());
    assert!(here.join("out/levels-guest-changed.svg").exists());
    std::fs::remove_dir_all(here).unwrap();
}

/// The names of the kernel, in the setting's own memory; several values in one table and one plot;
/// what the lab is bad at is marked.
#[test]
fn several_values_of_a_kernels_name_are_one_table_and_one_plot() {
    let here = folder("sweep");
    let options = ["--set", "vm.dirty_ratio=2,10", "--column", "linux-6.12"];
    let out = compared(&here, &recording("one-dd"), &options);
    let said = "What if vm.dirty_ratio were 2, 10? Answers of linux-6.12";
    assert!(out.contains(said), "{out}");
    let mut level = out.lines().rev();
    let level: Vec<f64> = level
        .find(|line| line.starts_with("level (MiB)"))
        .unwrap()
        .split_whitespace()
        .skip(2)
        .map(|value| value.parse().unwrap())
        .collect();
    // 2 and 10 % of what files can have of 1536 MiB; half of it is the background limit where that
    // would be above.
    assert!(level[1] < 27.4 && level[1] > 13.0, "{level:?}");
    assert!(level[2] > 64.0 && level[2] < 136.8, "{level:?}");
    // The same as a table for programs.
    let answers = std::fs::read_to_string(here.join("out/answers.csv")).unwrap();
    let rows = answers.lines().skip(1).map(|line| line.split(','));
    let rows: Vec<Vec<&str>> = rows.map(Iterator::collect).collect();
    let levels = rows.iter().filter(|row| row[4] == "level");
    let answered = |row: &Vec<&str>| {
        let answer: f64 = row[9].parse().unwrap();
        (row[1].to_owned(), format!("{answer:.1}"))
    };
    let printed = |at: usize| format!("{:.1}", level[at]);
    assert_eq!(
        levels.map(answered).collect::<Vec<_>>(),
        [
            ("vm.dirty_ratio=2".to_owned(), printed(1)),
            ("vm.dirty_ratio=10".to_owned(), printed(2))
        ]
    );
    let plot = std::fs::read_to_string(here.join("out/what-if-one-dd.svg")).unwrap();
    assert!(plot.contains("vm.dirty_ratio") && plot.contains("level (MiB)"));
    let html = std::fs::read_to_string(here.join("out/report.html")).unwrap();
    for part in [
        "bands hold",
        "id=\"recording-one-dd\"",
        "what-if-one-dd",
        "id=\"answers-one-dd\"",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(
        !html.contains("3 recordings"),
        "one was given, and two values of a key"
    );
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn names_of_recordings_are_those_of_their_files() {
    let here = folder("names");
    let named = |folder: &str, name: &str| {
        let own = format!("name = \"{name}\"");
        changed(folder, "scenario.toml", |text| {
            text.replace("name = \"guest\"", &own)
        })
    };
    let recordings = [
        named("names-1", "a_b"),
        named("names-2", "a_b-2"),
        named("names-3", "a_b-changed"),
        named("names-4", "a"),
    ];
    let mut arguments = vec!["compare"];
    arguments.extend(recordings.iter().map(|path| path.to_str().unwrap()));
    let change = ["--set", "vm.dirty_background_bytes=8M"];
    arguments.extend(change);
    arguments.extend(["--column", "tidegate", "--out", "out"]);
    let (status, out, err) = tidegate(&here, &arguments);
    assert_eq!(status, 0, "{out}{err}");
    let names = ["a_b", "a_b-2", "a_b-changed", "a"];
    let changed = [
        "a_b-changed-2",
        "a_b-2-changed",
        "a_b-changed-changed",
        "a-changed",
    ];
    for name in names.into_iter().chain(changed) {
        // That of the first is scenario.toml.
        let scenario = here.join(format!("out/scenario-{name}.toml"));
        assert!(name == "a_b" || scenario.exists(), "{name}");
        assert!(
            here.join(format!("out/levels-{name}.svg")).exists(),
            "{name}"
        );
    }
    for path in recordings.into_iter().chain([here]) {
        std::fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn several_recordings_get_errors_guesses_and_pairs() {
    let here = folder("several");
    let other = copy("several-other");
    let text = std::fs::read_to_string(other.join("scenario.toml")).unwrap();
    let text = text.replace("background_mib = 32", "background_mib = 8");
    std::fs::write(other.join("scenario.toml"), text).unwrap();
    let guest = fixture("guest");
    let arguments = [
        "compare",
        guest.to_str().unwrap(),
        other.to_str().unwrap(),
        "--column",
        "linux-6.12",
        "--out",
        "out",
    ];
    let (status, out, err) = tidegate(&here, &arguments);
    assert_eq!(status, 0, "{out}{err}");
    for part in [
        "All 2 recordings: mean and largest error of linux-6.12",
        "guest-2",
        "of the best constant; skill = 1 - error",
        "of the heavy writers' time",
        "Pairs that differ in one setting",
        "level                    1 pairs, 0 judged",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    let pairs = std::fs::read_to_string(here.join("out/pairs.csv")).unwrap();
    assert!(
        pairs.contains("guest,guest-2,background_mib 32 -> 8,level,MiB,0,"),
        "{pairs}"
    );
    assert!(here.join("out/scenario-guest-2.toml").exists());
    let html = std::fs::read_to_string(here.join("out/report.html")).unwrap();
    assert!(html.contains("<h1>2 recordings: beside the lab</h1>"));

    // Into the same folder: nothing of it stays that is not written over, and what is not ours
    // does.
    let is_there = |name: &str| here.join("out").join(name).exists();
    std::fs::write(here.join("out/scenario-mine.toml"), "").unwrap();
    let one = [&arguments[..2], &arguments[3..]].concat();
    assert_eq!(tidegate(&here, &one).0, 0);
    assert!(!is_there("scenario-guest-2.toml") && !is_there("pairs.csv"));
    assert!(is_there("figures.csv") && is_there("scenario-mine.toml"));
    let run = [
        "run",
        "out/scenario.toml",
        "--column",
        "tidegate",
        "--out",
        "out",
    ];
    let (status, _, err) = tidegate(&here, &run);
    assert_eq!(status, 0, "{err}");
    assert!(!is_there("figures.csv") && is_there("scenario-mine.toml"));
    // A run's rows leave no scenarios: what has such a name is somebody's own.
    std::fs::write(here.join("out/scenario-guest.toml"), "").unwrap();
    assert_eq!(tidegate(&here, &run).0, 0);
    assert!(is_there("scenario-guest.toml"));
    std::fs::remove_dir_all(here).unwrap();
    std::fs::remove_dir_all(other).unwrap();
}

fn recording(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/held");
    all.join(name)
}

fn said(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let out = command.arg("compare").args(arguments).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn two_kinds_do_not_go_into_one_folder_and_have_keys_of_their_own() {
    let (calm, throttled) = (recording("r1-calm"), recording("one-dd"));
    let (calm, throttled) = (calm.to_str().unwrap(), throttled.to_str().unwrap());
    let both = said(&[calm, throttled, "--out", "/nonexistent"]);
    assert!(both.contains("recordings of two kinds"), "{both}");
    assert!(both.contains("is of memory pressure, "), "{both}");
    let unknown = said(&[calm, "--set", "writers.sleep=64M"]);
    assert!(unknown.contains("unknown key `writers.sleep`"), "{unknown}");
    assert!(unknown.contains("vm.swappiness"), "{unknown}");
    let none = said(&[calm, "--set", "hogs=2"]);
    assert!(
        none.contains("--set hogs=2: there is no first hog"),
        "{none}"
    );
    let small = said(&[calm, "--set", "memory_mib=100"]);
    assert!(
        small.contains("`reserved_percent` is out of range: "),
        "{small}"
    );
    let given = said(&[calm, "--given", "vm.zone_reclaim_mode=1"]);
    assert!(
        given.contains("--given vm.zone_reclaim_mode=1: it says nothing to a machine of one node"),
        "{given}"
    );
}

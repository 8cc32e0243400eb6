//! `tidegate compare` over recordings of memory pressure: what it takes, and what it refuses with what to do about it.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use cli::compare::pressure::{FIGURES, Recording, figures, measure};

static COPIES: AtomicU32 = AtomicU32::new(0);

fn recording(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    all.join(name)
}

/// A copy of a recording, with one file changed.
fn changed(file: &str, change: impl Fn(&str) -> String) -> PathBuf {
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let name = format!("tidegate-pressure-{}-{number}", std::process::id());
    let copy = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(recording("r1-calm")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let path = copy.join(file);
    let text = fs::read_to_string(&path).unwrap();
    let new = change(&text);
    assert_ne!(text, new, "the change found nothing to change");
    fs::write(&path, new).unwrap();
    copy
}

fn refusal(file: &str, change: impl Fn(&str) -> String) -> String {
    said_of(&changed(file, change))
}

fn said_of(copy: &Path) -> String {
    let said = Recording::load(copy).unwrap_err().to_string();
    fs::remove_dir_all(copy).unwrap();
    said
}

#[test]
fn what_the_lab_does_not_have_is_refused_by_name() {
    let of = |file, from: &'static str, to: &'static str| {
        refusal(file, move |text: &str| text.replacen(from, to, 1))
    };
    let said = of("scenario.json", "\"mapper\"", "\"fsmark\"");
    assert!(
        said.contains("worker `m0`: no task of the lab is `fsmark`"),
        "{said}"
    );
    assert!(said.contains("the lab has randwrite, randread"), "{said}");
    let said = of("scenario.json", "\"nodes\": 1", "\"nodes\": 2");
    assert!(said.contains("2 nodes: only recordings of one"), "{said}");
    let said = of("scenario.json", "\"lru_gen\": \"n\"", "\"lru_gen\": \"y\"");
    assert!(said.contains("`lru_gen` is `y`"), "{said}");
    let said = of("scenario.json", "\"seconds\": 16", "\"seconds\": 0");
    assert!(said.contains("`seconds` is out of range: 0"), "{said}");
    let said = of("facts.json", "vm.swappiness", "vm.swapiness");
    assert!(said.contains("has no number `vm.swappiness`"), "{said}");
    let said = of("summary.json", "kthread_cpu_s", "cpu_s");
    assert!(said.contains("is not a recording's summary"), "{said}");
}

#[test]
fn a_table_that_is_missing_is_named() {
    let copy = changed("scenario.json", |text| format!("{text}\n"));
    fs::remove_file(copy.join("samples.csv")).unwrap();
    let said = said_of(&copy);
    assert!(said.contains("has no `samples.csv`"), "{said}");
}

#[test]
fn what_is_measured_of_a_recording_is_what_its_tables_say() {
    let recording = Recording::load(&recording("r1-4")).unwrap();
    let values = measure(&recording.setting, &recording.outcome);
    let value = |name: &str| values[figures::by_name(name).unwrap()].unwrap();
    assert_eq!(FIGURES.len(), values.len());
    assert_eq!(value("pgscan_direct"), 527_433.0);
    assert_eq!(value("allocstall_normal"), 1_537.0 + 827.0);
    assert_eq!(value("throttled: ISOLATED"), 44.0);
    assert_eq!(value("cpu: kswapd"), 2.14);
    assert_eq!(value("rounds"), 690.0);
    // A call took 26.6 ms; that it was late after its rest counts too.
    let p50 = value("latency: p50");
    assert!((26.5..29.0).contains(&p50), "{p50}");
}

#[test]
fn two_kinds_do_not_go_into_one_folder_and_a_setting_is_not_changed() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let out = command.arg("compare").args(arguments).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let (calm, throttled) = (recording("r1-calm"), recording("one-dd"));
    let (calm, throttled) = (calm.to_str().unwrap(), throttled.to_str().unwrap());
    let said = run(&[calm, throttled, "--out", "/nonexistent"]);
    assert!(said.contains("recordings of two kinds"), "{said}");
    let said = run(&[calm, "--set", "rate=4"]);
    assert!(
        said.contains("--set is for recordings of dirty throttling"),
        "{said}"
    );
}

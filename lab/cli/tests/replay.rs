//! `tidegate replay`, as a user types it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn replay(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let mut command = Command::new(program);
    command.arg("replay").args(words).output().unwrap()
}

fn trace(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../replay/traces");
    folder.join(name).display().to_string()
}

#[test]
fn a_device_makes_presets_take_time_and_rules_alone_take_none() {
    let file = trace("cs.u64.xz");
    let words = [&file, "--pages", "563", "--device", "slow:latency=1ms"];
    let json = ["--rule", "lru,tidegate", "--json"];
    let done = replay(&[&words[..], &json].concat());
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let tables: Value = serde_json::from_slice(&done.stdout).unwrap();
    let rows = tables[0]["rows"].as_array().unwrap();
    assert_eq!(rows[0].get("seconds"), None);
    let misses = rows[1]["misses"].as_f64().unwrap();
    let seconds = rows[1]["seconds"].as_f64().unwrap();
    assert!(seconds >= misses / 1000.0 && seconds < misses / 500.0);
    assert_eq!(rows[1]["stalls"], 0);
    let done = replay(&[&words[..], &["--rule", "lru,tidegate"]].concat());
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(
        text.contains("seconds of") && text.contains("stalls of"),
        "{text}"
    );
    for (rule, device, said) in [
        ("lru", "slow:latency=1ms", "name one with --rule"),
        ("tidegate", "slow:latency=soon", "`soon`"),
        (
            "tidegate",
            "volatile:size=1MiB",
            "use slow, faulty or trace",
        ),
    ] {
        let done = replay(&[&file, "--rule", rule, "--device", device]);
        assert_eq!(done.status.code(), Some(2));
        let error = String::from_utf8(done.stderr).unwrap();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_trace_under_rules_and_a_preset_at_two_sizes() {
    let file = trace("cs.u64.xz");
    let done = replay(&[
        &file,
        "--rule",
        "lru,reuse,tidegate,belady",
        "--pages",
        "40%,563,211",
        "--json",
    ]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let tables: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(tables[0]["accesses"], 6781);
    assert_eq!(tables[0]["pages"], 1409);
    // 40 % are 563 pages: once.
    let rows = tables[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    let ratio = |rule: &str, pages: u64| {
        let row = rows
            .iter()
            .find(|row| row["rule"] == rule && row["pages"] == pages);
        row.unwrap()["hit_ratio"].as_f64()
    };
    // Of a loop that is larger than memory LRU hits nothing but what is not of the loop.
    assert_eq!(ratio("lru", 563).map(|ratio| ratio < 0.02), Some(true));
    assert!(ratio("reuse", 563) > Some(0.33));
    assert!(ratio("belady", 563) > ratio("reuse", 563));
    assert!(ratio("tidegate", 563).is_some());
    // Too small for a cache: the others are shown all the same.
    assert_eq!(ratio("tidegate", 211), None);
    let again = replay(&[&file, "--rule", "tidegate", "--pages", "563", "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        again[0]["rows"][0]["hit_ratio"].as_f64(),
        ratio("tidegate", 563)
    );
}

#[test]
fn mistakes_name_file_line_and_ways_out() {
    let folder = std::env::temp_dir().join(format!("tidegate-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("pages.txt").display().to_string();
    std::fs::write(&file, "1\n2 w\nthree\n").unwrap();
    for (words, part) in [
        (vec![file.as_str()], format!("{file}:3: `three`")),
        (vec!["/nowhere"], "/nowhere".to_owned()),
        (
            vec![file.as_str(), "--rule", "lur"],
            "did you mean `lru`".to_owned(),
        ),
        (
            vec![file.as_str(), "--pages", "0"],
            "`0` is no number".to_owned(),
        ),
        (vec![file.as_str(), "--memory", "12"], "12".to_owned()),
        (
            vec![file.as_str(), "--format", "mrs"],
            "formats are u64".to_owned(),
        ),
        (
            vec![file.as_str(), "--sample", "0"],
            "`0` is no part".to_owned(),
        ),
        (
            vec![file.as_str(), "--sample", "1.5"],
            "above 0, up to 1".to_owned(),
        ),
        (vec![], "TRACE".to_owned()),
    ] {
        let done = replay(&words);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{words:?} {said}");
        assert!(said.contains(&part), "{words:?} {said}");
        assert!(done.stdout.is_empty(), "{words:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_pipe_is_replayed_by_a_sample_and_says_so() {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let words = "replay - --format u64 --rule lru,belady,tidegate --pages 10% --sample 0.25";
    let mut child = Command::new(program)
        .args(words.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let packed = std::fs::read(trace("multi2.u64.xz")).unwrap();
    child.stdin.take().unwrap().write_all(&packed).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(
        text.starts_with("-: 26,311 accesses (0 % writes) of about "),
        "{text}"
    );
    for part in ["sampled: one page in 4.0, ", "+- of", "standard error"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_trace_that_its_memory_does_not_hold_is_sampled_and_one_that_fits_is_whole() {
    let file = trace("cloudphysics.u64.xz");
    let of = |memory: &str| {
        let words = [&file, "--rule", "lru", "--pages", "20%", "--json"];
        let done = replay(&[&words[..], &["--trace-memory", memory]].concat());
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let tables: Value = serde_json::from_slice(&done.stdout).unwrap();
        tables[0].clone()
    };
    let [whole, part] = [of("64MiB"), of("2MiB")];
    assert_eq!(
        (&whole["rate"], &part["rate"]),
        (&1.0.into(), &0.125.into())
    );
    assert_eq!(whole["accesses"], part["accesses"]);
    assert_eq!(whole["sampled_pages"], 48_974);
    assert!(whole["rows"][0].get("error").is_none());
    let ratio = |table: &Value| table["rows"][0]["hit_ratio"].as_f64().unwrap();
    let error = part["rows"][0]["error"].as_f64().unwrap();
    assert!((ratio(&part) - ratio(&whole)).abs() < 4.0 * error, "{part}");
}

#[test]
fn a_pipe_that_says_nothing_is_left_at_an_interrupt() {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let mut child = Command::new(program)
        .args(["replay", "-", "--format", "u64"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // More than a pipe holds: it is read, so the program has begun.
    pipe.write_all(&vec![7; 1 << 20]).unwrap();
    let kill = ["-INT", &child.id().to_string()].map(str::to_owned);
    assert!(Command::new("kill").args(kill).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    drop(pipe);
}

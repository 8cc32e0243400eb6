//! Live runs: files that tasks make, in the lab, too, and the account of each thread.
//!
//! They take real time: this program runs when no other test does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Mutex, PoisonError};

use experiment::Stop;
use experiment::metrics;
use experiment::outcome::Outcome;
use experiment::run::{self, Cell, Column, Live, LiveFiles, World};
use experiment::scenario::{Scenario, Source};
use policy::units::Bytes;

#[path = "../common/small.rs"]
mod small;

/// A source of 2 MiB with copies, beside 18 files a task of `fs_mark` and a file that is mapped, at
/// half size.
const MAKERS: &str = r#"
    schema = "tidegate-exp/1"
    name = "makers"
    [run]
    scale = 0.5
    [machine]
    cpus = 2
    memory_mib = 64
    readahead_kib = 128
    [[device]]
    id = "disk"
    model = "p0_ssd"
    fs = "ext4"
    [[task]]
    id = "large"
    kind = "large_dd"
    device = "disk"
    file_mib = 4
    rate_mib = 32
    total_mib = 15
    [[task]]
    id = "map"
    kind = "mapped_writer"
    device = "disk"
    file_mib = 6
    [[task]]
    id = "mark"
    kind = "fs_mark"
    device = "disk"
    count = 3
    files_per_loop = 12
    loops = 3
    file_kib = 40
    [[column]]
    name = "tidegate"
"#;

fn cell(text: &str) -> Cell {
    let source = Source {
        origin: "test".into(),
        text: text.into(),
    };
    let (scenario, _) = Scenario::load(source, &[]).unwrap();
    let column = Column::of(&scenario.columns[0]);
    Cell::resolve(&scenario, &scenario.rows()[0], &column)
}

fn check(run: &Outcome) {
    let [large, map, marks @ ..] = &run.jobs[..] else {
        panic!("there are jobs")
    };
    assert!((large.bytes - f64::from(8 << 20)).abs() < 0.5, "{large:?}");
    let parts = large.parts.iter().map(|(name, _)| *name);
    assert_eq!(parts.collect::<Vec<_>>(), ["download", "copy", "delete"]);
    let download = large.parts[0].1;
    assert!((0.125..1.0).contains(&download), "{large:?}");
    assert!((map.bytes - f64::from(3 << 20)).abs() < 0.5, "{map:?}");
    assert!((map.touched - 768.0).abs() < 0.5 && map.faults >= 768.0);
    assert_eq!(marks.len(), 3);
    for mark in marks {
        assert!((mark.bytes - f64::from(18 * (40 << 10))).abs() < 0.5);
        assert!((mark.files_a_round - 18.0).abs() < 0.5, "{mark:?}");
    }
    let rounds: usize = marks.iter().map(|mark| mark.samples.len()).sum();
    assert_eq!(rounds, 3);
}

fn run(cell: Cell, world: &World) -> Outcome {
    let orders = run::orders(&[cell], 1, 1);
    run::run_one(&orders[0], world, &Stop::default()).unwrap()
}

#[test]
fn tasks_make_their_files_in_the_lab() {
    let made = run(cell(MAKERS), &World::Lab);
    check(&made);
    assert_eq!(made.trace_hash, run(cell(MAKERS), &World::Lab).trace_hash);
}

/// A run on threads and files, in 64 MiB, that leaves no file. One at a time: a limit is about the
/// process.
fn run_live(name: &str, cell: Cell) -> Outcome {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let made = run(
        cell,
        &World::Live(Live {
            dir: dir.clone(),
            wrap: None,
            memory: Some(Bytes(os::resident_bytes() + (64 << 20))),
            files: LiveFiles::default(),
        }),
    );
    let left = std::fs::read_dir(&dir).unwrap().count();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(left, 0);
    made
}

#[test]
fn tasks_make_their_files_live_and_leave_none() {
    check(&run_live("makers", cell(MAKERS)));
}

#[test]
fn small_files_come_and_go_live() {
    small::check(&run_live("small", small::cell(2)));
}

/// A hog and a mapper that do not fit.
const CROWD: &str = r#"
    schema = "tidegate-exp/1"
    name = "small"
    title = "a hog and a mapper that do not fit"
    [run]
    seed = 1
    [machine]
    cpus = 2
    memory_mib = 64
    swap = { device = "disk", mib = 256 }
    [[device]]
    id = "disk"
    model = "p0_ssd"
    [[task]]
    id = "writer"
    kind = "dd"
    device = "disk"
    file_mib = 64
    run_s = 1
    [[task]]
    id = "hog"
    kind = "hog"
    region_mib = 256
    run_s = 1
    [[task]]
    id = "mmap"
    kind = "mapper"
    region_mib = 8
    run_s = 1
    [[column]]
    name = "tidegate"
"#;

/// A hog that does not fit waits for memory, and the threads that write for it do not.
#[test]
fn a_run_has_an_account_of_each_of_its_threads() {
    let run = run_live("accounts", cell(CROWD));
    let account = |name: &str| {
        let found = run.tasks.iter().find(|task| task.name == name);
        found.unwrap_or_else(|| panic!("{name}: {:?}", run.tasks))
    };
    for job in ["writer", "hog", "mmap"] {
        assert!(account(job).is_job, "{:?}", run.tasks);
    }
    assert!(account("hog").user_s + account("hog").system_s > 0.0);
    for ours in ["flush-0", "reclaimer", "others"] {
        assert!(!account(ours).is_job, "{:?}", run.tasks);
    }
    let waited = |cause: &str| run.waits.iter().any(|wait| wait.cause == cause);
    assert!(waited("Memory"), "{:?}", run.waits);
    let throttled = metrics::by_name("flusher_throttled_s").unwrap();
    assert_eq!((throttled.of)(&run), Some(0.0), "{:?}", run.tasks);
}

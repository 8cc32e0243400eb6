//! The fault campaign in small: every failure of the past passes, some seeds do, and a planted bug
//! is found and shrunk. `cargo xtask campaign` runs seeds by the million.
//!
//! `TIDEGATE_SEED=S` runs one seed.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::path::Path;

use campaign::{Plan, Setup, run};

/// Seeds of each test run, spread over all that a campaign begins with.
const SEEDS: u64 = 60;
/// One in this many seeds is run twice and must leave the same trace.
const TWICE: u64 = 16;

fn passes(seed: u64) {
    let plan = Plan::draw(seed);
    let again = "cargo xtask campaign --seeds 1 --from";
    let outcome = run(&plan, &Setup::default())
        .unwrap_or_else(|failure| panic!("seed {seed}: {failure}\nshrink it: {again} {seed}"));
    if seed.is_multiple_of(TWICE) {
        let second = run(&plan, &Setup::default()).unwrap();
        assert_eq!(outcome, second, "seed {seed} ran differently");
    }
}

#[test]
fn seeds_pass() {
    if let Ok(seed) = std::env::var("TIDEGATE_SEED") {
        return passes(seed.parse().expect("TIDEGATE_SEED is a number"));
    }
    (1..=SEEDS).map(|seed| seed * 1000).for_each(passes);
}

#[test]
fn failures_of_the_past_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the regressions are there");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let plan =
            Plan::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(
            !plan.note.is_empty(),
            "{} says what it shows",
            file.display()
        );
        let outcome = run(&plan, &Setup::default())
            .unwrap_or_else(|failure| panic!("{}: {failure}", file.display()));
        let again = run(&plan, &Setup::default()).unwrap();
        assert_eq!(outcome, again, "{} ran differently", file.display());
    }
}

#[test]
fn a_plan_is_read_back_as_it_was_written() {
    for seed in 1..=300 {
        let plan = Plan::draw(seed);
        let text = plan.to_toml();
        assert_eq!(
            Plan::from_toml(&text).unwrap(),
            plan,
            "seed {seed}:\n{text}"
        );
    }
}

#[test]
fn mistakes_in_a_file_are_named() {
    let good = Plan::draw(1).to_toml();
    for (wrong, right, expected) in [
        ("version = 2", "version = 1", "reads version 1"),
        (
            "law = \"none\"",
            "law = ",
            "there is no law `none`; there are foreground",
        ),
        ("model = \"floppy\"", "model = ", "no device model `floppy`"),
        ("ops = [\"wriet 0 1+1\"]", "ops = ", "steps are write"),
        ("frames = -1", "frames = ", "frames"),
        ("fraems = 1", "frames = ", "fraems"),
    ] {
        let line = good.lines().find(|line| line.starts_with(right)).unwrap();
        let error = Plan::from_toml(&good.replacen(line, wrong, 1)).unwrap_err();
        assert!(error.contains(expected), "{wrong}: {error}");
    }
}

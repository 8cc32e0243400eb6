//! The engine of the example is killed a few times: nothing that was committed is lost, and without
//! the order that the cache keeps for it that is noticed.

use std::path::Path;
use std::process::Command;

use crate::dir::Dir;

#[path = "../examples/engine.rs"]
#[allow(dead_code, reason = "an example has a `main`, and words for it")]
mod example;

/// The transfers that were acknowledged by a child that was killed so often; else what was found.
fn killed(times: u64, mode: &str) -> Result<i64, String> {
    let folder = Dir::new(mode);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", "engine::works", "--ignored", "--nocapture"])
        .env("FOLDER", &folder.0)
        .env("MODE", mode);
    example::kill(&folder.0, times, &mut program).map_err(|error| error.to_string())
}

#[test]
fn an_engine_that_is_killed_loses_nothing_that_it_committed() {
    let transfers = killed(8, "careful").unwrap();
    assert!(transfers > 1000, "{transfers}");
}

#[test]
fn an_engine_whose_pages_go_before_its_log_is_found_out() {
    let found = killed(60, "careless").unwrap_err();
    assert!(found.contains("a page is ahead of the log"), "{found}");
}

#[test]
#[ignore = "run by the tests before it, which kill it"]
fn works() {
    let folder = std::env::var_os("FOLDER").unwrap();
    let careless = std::env::var("MODE").unwrap() == "careless";
    example::work(Path::new(&folder), careless).unwrap();
}

//! The developers' toolbox: `cargo xtask COMMAND`.
//!
//! One place for what is run on this repository, in Rust, so that a developer and the continuous
//! integration run the same thing. Each command prints what it runs; whatever it leaves out because
//! a tool is not there, it says so in a line that begins with `SKIPPED`.
#![forbid(unsafe_code)]

mod ahead;
mod c;
mod campaign;
mod dist;
mod experiments;
mod instruments;
mod lab;
mod mutants;
mod part;
mod programs;
mod python;
mod server;
mod suites;
mod test;
mod tidy;
mod trial;

use std::process::ExitCode;
use std::time::Duration;

use xtask::{Arguments, Result, at, csv, steps, workspace};

const USAGE: &str = "\
The developers' toolbox of Tidegate.

usage: cargo xtask COMMAND

  test [--all] [--only STEP]... [--list]
                                   what must pass before a commit; --all: everything that CI proves
  test --changed [REV]             what a change since REV can affect; before that, what and why
  test cache|doors|lab             the tests of a wing
  test PROGRAM [FILTER]            one test program: test mm cache writeback; test --help
  check                            the quick part of it: format, lints, tidy
  tidy                             what a machine can judge of docs/work/style.md: dependencies, unsafe, links, citations
  lab [NAME]...                    runs each experiment and compares its trace hashes with experiments/hashes.txt
  lab --twice [NAME]... [--scale S]
                                   the same, each experiment in two processes
  lab --bless [NAME]...            writes the hashes of these experiments, or of all, into that file
  ahead [--bless] [NAME]...        runs our own column beside those of Linux 6.12, two seeds: experiments/ahead.txt has where it is behind,
                                   behind.txt why (all of them: an hour); --column tidegate: runs ours alone and keeps the others'
                                   values, after a change of our own law (20 minutes)
  bands [NAME]...                  checks each experiment's bands over all its repetitions (five where bands are statistical)
  campaign [--seeds N] [--from S] [--for 8h] [--jobs J] [--out DIR] [--replay FILE]
                                   the fault campaign (default 10000 seeds); campaign --help
  campaign --kills N               kills the server N times in the middle of writes
  mutants CRATE [--shard K/N]      changes of a crate that its tests do not see, by cargo-mutants
  c [--out DIR] [--debug]          the C library, its headers and its pkg-config file, laid out in a folder (docs/embed/c.md)
  dist [--out DIR] [--built DIR] [--twice]
                                   the static program, the Debian packages and the wheels, and a trial of them; --crates, --wheels: only what crates.io gets, only these
  pages [FOLDER] [NAME=VALUE]...   fills the figures of README.md and docs/ from what is stored; first stores the claims of a
                                   folder of `tidegate reproduce`, or a value of docs/figures.toml measured on this commit
  bench rules [--live] [FOLDER]... every trace in the folders under every page rule; ours against the best
  bench sample [FOLDER]...         every trace in the folders whole and by samples of its pages: how far off, how far said
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = Arguments::new(arguments);
    let result = match arguments.next_word().as_deref() {
        Some("test") => test::test(arguments),
        Some("check") => test::check(arguments),
        Some("tidy") => arguments.finish().and_then(|()| tidy::run()),
        Some("lab") => lab::run(arguments),
        Some("ahead") => ahead::run(arguments),
        Some("bands") => test::bands_hold(arguments),
        Some("c") => c::command(arguments),
        Some("dist") => dist::command(arguments),
        Some("campaign") => campaign::run(arguments),
        Some("mutants") => mutants::run(arguments),
        Some("pages") => pages(arguments),
        Some("bench") => bench(arguments),
        Some(moved @ ("guest" | "numa" | "picture")) => Err(format!(
            "'{moved}' is an instrument, in a workspace of its own: cargo instruments {moved} ..."
        )),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => Err(format!("there is no command '{other}'\n\n{USAGE}")),
        None => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Building the test that fills them, and reading all pages.
const PAGES_MAX: Duration = Duration::from_secs(900);

fn pages(mut arguments: Arguments) -> Result<()> {
    let mut words = Vec::new();
    while let Some(word) = arguments.next_word() {
        words.push(word);
    }
    let mut command = workspace::cargo(&[
        "test",
        "-q",
        "-p",
        "tidegate-reproduce",
        "--lib",
        "pages_are_filled",
    ]);
    command.env("TIDEGATE_PAGES", words.join("\n"));
    steps::run(&mut command, PAGES_MAX)
}

/// Building, and some hundred replays.
const RULES_MAX: Duration = Duration::from_secs(3600);

/// The benches of the first workspace alone; the others are instruments.
fn bench(mut arguments: Arguments) -> Result<()> {
    match arguments.next_word().as_deref() {
        Some(example @ ("rules" | "sample")) => {
            let words = "run --release -q -p tidegate-replay --example";
            let words: Vec<&str> = words.split(' ').chain([example, "--"]).collect();
            let mut command = workspace::cargo(&words);
            while let Some(word) = arguments.next_word() {
                command.arg(word);
            }
            steps::run(&mut command, RULES_MAX)
        }
        _ => Err(
            "bench: `rules` and `sample` are here; all others are instruments, in a workspace of their own: \
             cargo instruments bench ..."
                .to_owned(),
        ),
    }
}

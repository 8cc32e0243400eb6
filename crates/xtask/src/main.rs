//! The developers' toolbox: `cargo xtask COMMAND`.
//!
//! One place for what is run on this repository, in Rust, so that a developer and the continuous
//! integration run the same thing. Each command prints what it runs; whatever it leaves out because
//! a tool is not there, it says so in a line that begins with `SKIPPED`.
#![forbid(unsafe_code)]

mod bench;
mod campaign;
mod csv;
mod fio;
mod guest;
mod lab;
mod picture;
mod programs;
mod sources;
mod steps;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

/// What went wrong, in words for the person who ran the command.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "\
The developers' toolbox of Tidegate.

usage: cargo xtask COMMAND

  test [--all] [--only STEP]... [--list]
                                   what must pass before a commit; --all: everything that CI proves
  check                            the quick part of it: format, lints, tidy
  tidy                             what a machine can judge of docs/style.md: dependencies, unsafe, links, citations
  tidy --floors [--tree DIR]       modules that import each other in circles, and imports that go upwards
  lab [NAME]...                    runs each experiment and compares its trace hashes with experiments/hashes.txt
  lab --twice [NAME]... [--scale S]
                                   the same, each experiment in two processes
  lab --bless [NAME]...            writes the hashes of these experiments, or of all, into that file
  bands [NAME]...                  checks each experiment's bands over all its repetitions (five where bands are statistical)
  guest SCENARIO... [--set KEY=VALUE]... [--twice] | --all | --list
                                   records what a real kernel does, in virtual time
  numa                             whether a cache's memory is on the nodes that it asks: in a machine of two, by QEMU
  campaign [--seeds N] [--from S] [--for 8h] [--jobs J] [--out DIR] [--replay FILE]
                                   the fault campaign (default 10000 seeds); campaign --help
  campaign --kills N               kills the server N times in the middle of writes
  bench [STEP]... [--dir DIR] [--pairs N]
                                   the figures of README.md; steps: hit, lab, scan, swap, fio, slow
  bench pacing [--row R]... [--column C]... [--seconds S] [--strict PERCENT] [--out DIR]
                                   writers on a slow device: Linux, strict Linux, Tidegate (root)
  bench agree [--experiment E]... [--out DIR]
                                   the lab's figures beside those of live runs
  bench stutterp [--dir DIR]       memory under pressure: the kernel in a cgroup, Tidegate under the same limit (root)
  bench live [--memory SIZE] [--dir DIR] [--experiment E]...
                                   the experiments of memory reclaim on threads and files
  bench governor [--whole] [--limit MIB] [--seconds S] [--all] [--no-resident]
                                   one limit for an engine's caches, beside splits by hand (default 128 MiB, phases of 5 s)
  bench serve [--step S]... [--column C]... [--pairs N] [--seconds S] [--background MIB] [--dir DIR]
              [--programs DIR]
                                   the server: fio beside nbdkit, the pacing bar, limits (root for the bar)
  bench shrink [--rounds N] [--dir DIR] [--program FILE]
                                   a limit lowered under a cache in use: seconds, hits, resident memory
  bench aged [--minutes N] [--rounds N] [--again SECONDS] [--dir DIR] [--program FILE]
                                   reads in sequence by a fresh cache, and after minutes of random misses (default 10)
  picture                          redraws the plots that README.md and docs/ show
  sources                          kernel functions cited in the code, and the tests that name them
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = Arguments::new(arguments);
    let result = match arguments.next_word().as_deref() {
        Some("test") => test::test(arguments),
        Some("check") => test::check(arguments),
        Some("tidy") => tidy::command(arguments),
        Some("lab") => lab::run(arguments),
        Some("bands") => test::bands_hold(arguments),
        Some("guest") => guest::run(arguments),
        Some("numa") => arguments.finish().and_then(|()| guest::nodes::run()),
        Some("campaign") => campaign::run(arguments),
        Some("bench") => bench::run(arguments),
        Some("picture") => arguments.finish().and_then(|()| picture::run()),
        Some("sources") => arguments.finish().and_then(|()| sources::run()),
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

/// The words of a command line, taken one by one.
struct Arguments {
    words: std::collections::VecDeque<String>,
}

impl Arguments {
    fn new(words: Vec<String>) -> Self {
        Self {
            words: words.into(),
        }
    }

    fn next_word(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// The value that must follow an option.
    fn value_of(&mut self, option: &str) -> Result<String> {
        self.next_word()
            .ok_or_else(|| format!("{option} needs a value"))
    }

    /// The number that must follow an option.
    fn number_of<T: std::str::FromStr>(&mut self, option: &str) -> Result<T> {
        let word = self.value_of(option)?;
        word.parse()
            .map_err(|_| format!("{option}: '{word}' is not a number that fits"))
    }

    /// Nothing may be left.
    fn finish(mut self) -> Result<()> {
        match self.next_word() {
            Some(word) => Err(format!("unexpected '{word}'")),
            None => Ok(()),
        }
    }
}

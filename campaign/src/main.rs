//! The program `campaign`: the fault campaign at length, a replay of a file, a look at a plan.
//!
//! `cargo xtask campaign` builds and starts it.
#![forbid(unsafe_code)]

mod runner;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use campaign::{Plan, Setup, shrink};

const USAGE: &str = "\
The fault campaign: random machines, workloads and faults in virtual time.

usage: campaign [--seeds N] [--from S] [--for TIME] [--jobs J] [--out DIR]
       campaign --replay FILE [--shrink] [--say]
       campaign --plan SEED

  --seeds N      so many seeds; without it and without --for: 10000
  --from S       the first one (default 1)
  --for TIME     for so long, as 90s, 20min, 8h; a seed that has begun is finished
  --jobs J       so many at a time (default: one for each CPU)
  --out DIR      figures.txt, and a scenario file for each kind of failure (default: campaign-out)
  --replay FILE  runs a scenario file; --shrink makes it smaller if it fails, --say has its tasks
                 print what they do
  --plan SEED    prints the plan that a seed stands for, as a scenario file

Ctrl-C ends it after the seeds under way, with the figures so far, the command that goes on, and status 130.
";

/// Time that making a failure small may take.
pub(crate) const SHRINK_MAX: Duration = Duration::from_secs(60);

/// The task of the program.
enum Task {
    Run(runner::Options),
    Replay {
        file: PathBuf,
        shrink: bool,
        say: bool,
    },
    Print {
        seed: u64,
    },
    Help,
}

fn main() -> ExitCode {
    let words = std::env::args().skip(1);
    let done = parse(words).and_then(|task| match task {
        Task::Run(options) => runner::run(&options),
        Task::Replay { file, shrink, say } => {
            replay(&file, shrink, say).map(|()| ExitCode::SUCCESS)
        }
        Task::Print { seed } => {
            print!("{}", Plan::draw(seed).to_toml());
            Ok(ExitCode::SUCCESS)
        }
        Task::Help => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
    });
    match done {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("campaign: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Task, String> {
    let mut options = runner::Options::default();
    let (mut file, mut seed, mut shrinks, mut say) = (None, None, false, false);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| format!("{word} needs a value; see --help"))
        };
        match word.as_str() {
            "--seeds" => options.seeds = Some(number(&word, &value()?, 1)?),
            "--from" => options.from = number(&word, &value()?, 0)?,
            "--for" => {
                let time = figures::time_above_zero(&value()?);
                options.time = Some(time.map_err(|error| format!("--for: {error}"))?);
            }
            "--jobs" => {
                let jobs = number(&word, &value()?, 1)?;
                options.jobs = usize::try_from(jobs.min(1024)).unwrap_or(1024);
            }
            "--out" => options.out = value()?.into(),
            "--replay" => file = Some(PathBuf::from(value()?)),
            "--shrink" => shrinks = true,
            "--say" => say = true,
            "--plan" => seed = Some(number(&word, &value()?, 0)?),
            "--help" | "-h" => return Ok(Task::Help),
            _ => return Err(format!("unexpected '{word}'; see --help")),
        }
    }
    options
        .from
        .checked_add(options.seeds.unwrap_or(0))
        .ok_or("--from and --seeds together are beyond the last seed")?;
    Ok(match (file, seed) {
        (Some(file), _) => Task::Replay {
            file,
            shrink: shrinks,
            say,
        },
        (None, Some(seed)) => Task::Print { seed },
        (None, None) => Task::Run(options),
    })
}

fn number(option: &str, word: &str, least: u64) -> Result<u64, String> {
    word.parse()
        .ok()
        .filter(|number| *number >= least)
        .ok_or_else(|| format!("{option}: '{word}' is no number from {least}"))
}

fn replay(file: &Path, shrinks: bool, say: bool) -> Result<(), String> {
    let named = |problem: String| format!("{}: {problem}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let plan = Plan::from_toml(&text).map_err(named)?;
    let setup = Setup {
        say,
        ..Setup::default()
    };
    match campaign::run(&plan, &setup) {
        Ok(outcome) => {
            print!("{}", outcome.tally.table());
            println!("{} passes; trace {:016x}", file.display(), outcome.hash);
            Ok(())
        }
        Err(failure) => {
            if shrinks {
                let shrunk = shrink(&plan, &Setup::default(), SHRINK_MAX)?;
                print!("{}", shrunk.plan.to_toml());
            }
            Err(named(failure.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Task, String> {
        parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn a_command_line_says_what_to_do() {
        let Ok(Task::Run(options)) = parsed("--seeds 5 --from 7 --for 8h --jobs 3 --out x") else {
            panic!("a campaign");
        };
        assert_eq!((options.seeds, options.from, options.jobs), (Some(5), 7, 3));
        assert_eq!(options.time, Some(Duration::from_secs(8 * 3600)));
        assert!(matches!(parsed("--replay f"), Ok(Task::Replay { .. })));
        assert!(matches!(parsed("--plan 3"), Ok(Task::Print { seed: 3 })));
    }

    #[test]
    fn mistakes_name_the_word() {
        for (text, expected) in [
            ("--seeds", "--seeds needs a value"),
            ("--seeds 0", "--seeds: '0' is no number from 1"),
            ("--for 8", "--for: `8` has no unit: write 8s"),
            ("--for 0s", "--for: `0s` is zero"),
            ("--sedes 3", "unexpected '--sedes'"),
            (
                "--from 18446744073709551615 --seeds 9",
                "beyond the last seed",
            ),
        ] {
            let error = parsed(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

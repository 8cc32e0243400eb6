//! Test programs, several at a time.
//!
//! `cargo test` runs the test programs of a workspace one after the other, and most of them wait
//! more than they compute. Here cargo builds them and says where they are; they are run side by
//! side, the longest first, and those that measure time alone after all others. Each has a folder's
//! place, an environment and an end as cargo would give it, a file for what it prints, and a limit
//! on its time. The output of a program is shown where it fails.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::steps::{self, Job, POLL, seconds};
use crate::workspace::{Workspace, cargo};
use crate::{Result, at};

/// Longest time for a program; the slowest takes a tenth of it on two cores that nobody else uses.
const PROGRAM_MAX: Duration = Duration::from_secs(12 * 60);
/// Programs at a time, for each core.
const AT_A_TIME: usize = 2;
/// Programs that the summary names: the slowest.
const SHOWN: usize = 10;

/// A test program that cargo has built.
pub(crate) struct Program {
    /// Its crate and its own name: `mm cache`, `mm lib`.
    pub(crate) name: String,
    path: PathBuf,
    /// The folder in which cargo would run it.
    folder: PathBuf,
}

/// The differences of a run's programs from the others, by their names.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    /// They measure time, and run when all others have ended.
    pub(crate) alone: &'a [&'a str],
    /// They take longest, and begin first.
    pub(crate) first: &'a [&'a str],
    /// Variables that one of them is given.
    pub(crate) environment: &'a [(&'a str, &'a str, String)],
    /// They need a tool that this machine has not: the tool.
    pub(crate) without: Vec<(&'a str, String)>,
}

/// The end of a program.
struct Ended {
    name: String,
    took: Duration,
    cpu: Duration,
    tests: Tests,
    problem: Option<String>,
}

/// Tests that a program counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tests {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Builds the programs of `cargo test` with these arguments.
///
/// # Errors
/// They do not build, or cargo answers in a form that is not known.
pub(crate) fn build(arguments: &[&str], limit: Duration) -> Result<Vec<Program>> {
    let messages = Workspace::load()?.target.join("xtask/programs.json");
    let mut command = cargo(arguments);
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    command.stdout(create(&messages)?);
    steps::run(&mut command, limit)?;
    let text = fs::read_to_string(&messages).map_err(at(&messages))?;
    let mut programs = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message = serde_json::from_str(line).map_err(|error| format!("cargo test: {error}"))?;
        programs.extend(program(&message));
    }
    if programs.is_empty() {
        return Err("cargo test built no test program".into());
    }
    Ok(programs)
}

/// The test program that a message of cargo is about, if it is about one.
fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let target = message["target"]["name"].as_str()?;
    let own = match message["target"]["kind"][0].as_str()? {
        "test" => target,
        kind => kind,
    };
    let of = folder.file_name()?.to_str()?;
    Some(Program {
        name: format!("{of} {own}"),
        path,
        folder: folder.to_owned(),
    })
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Runs it here, with these words for the harness of its tests: what it prints is seen.
    ///
    /// # Errors
    /// A test failed, or the time is up.
    pub(crate) fn run(&self, words: &[String]) -> Result<()> {
        steps::run(self.command().args(words), PROGRAM_MAX)
    }
}

/// Every name that is asked for is that of a program.
///
/// # Errors
/// One is not.
pub(crate) fn all_known(programs: &[Program], asked: &Asked<'_>) -> Result<()> {
    let known: BTreeSet<&str> = programs.iter().map(|one| one.name.as_str()).collect();
    let named = asked.alone.iter().chain(asked.first).copied();
    let named = named.chain(asked.environment.iter().map(|(name, ..)| *name));
    let named = named.chain(asked.without.iter().map(|(name, _)| *name));
    match named.into_iter().find(|name| !known.contains(name)) {
        Some(gone) => Err(format!("there is no test program '{gone}'")),
        None => Ok(()),
    }
}

/// Runs all of them and says how each ended.
///
/// # Errors
/// Those that failed, by name.
pub(crate) fn run(programs: Vec<Program>, asked: &Asked<'_>) -> Result<()> {
    let out = Workspace::load()?.target.join("xtask/tests");
    let began = Instant::now();
    let mut ended = Vec::new();
    let (skipped, programs): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|one| asked.without.iter().any(|(name, _)| *name == one.name));
    for program in &skipped {
        let tool = asked.without.iter().find(|(name, _)| *name == program.name);
        println!(
            "    SKIPPED: {}: {}",
            program.name,
            tool.map_or("", |(_, why)| why)
        );
    }
    let (alone, mut side_by_side): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|one| asked.alone.contains(&one.name.as_str()));
    let rank = |one: &Program| asked.first.iter().position(|name| *name == one.name);
    side_by_side.sort_by_key(|one| (rank(one).unwrap_or(usize::MAX), one.name.clone()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let at_a_time = AT_A_TIME * cores;
    println!(
        "    {} programs, {at_a_time} at a time, then {} alone",
        side_by_side.len(),
        alone.len()
    );
    run_some(side_by_side.into(), at_a_time, asked, &out, &mut ended)?;
    run_some(alone.into(), 1, asked, &out, &mut ended)?;
    summary(ended, began.elapsed())
}

/// Runs programs, `at_a_time` side by side.
fn run_some(
    mut waiting: VecDeque<Program>,
    at_a_time: usize,
    asked: &Asked<'_>,
    out: &Path,
    ended: &mut Vec<Ended>,
) -> Result<()> {
    let mut running: Vec<Running> = Vec::new();
    while !(waiting.is_empty() && running.is_empty()) {
        if steps::is_interrupted() {
            waiting.clear();
        }
        while running.len() < at_a_time
            && let Some(program) = waiting.pop_front()
        {
            running.push(Running::begin(program, asked, out)?);
        }
        let mut index = 0;
        while index < running.len() {
            match running[index].look() {
                Some(end) => {
                    end.say();
                    ended.push(end);
                    running.swap_remove(index);
                }
                None => index += 1,
            }
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// A program under way.
struct Running {
    name: String,
    job: Job,
    /// The file of its output.
    printed: PathBuf,
}

impl Running {
    fn begin(program: Program, asked: &Asked<'_>, out: &Path) -> Result<Self> {
        let printed = out.join(format!("{}.txt", program.name.replace(' ', "-")));
        let file = create(&printed)?;
        let both = file.try_clone();
        let mut command = program.command();
        command.stdout(file).stderr(both.map_err(at(&printed))?);
        for (name, key, value) in asked.environment {
            if *name == program.name {
                command.env(key, value);
            }
        }
        Ok(Self {
            job: Job::begin(&mut command, PROGRAM_MAX)?,
            name: program.name,
            printed,
        })
    }

    /// Its end, once it has ended.
    fn look(&mut self) -> Option<Ended> {
        let problem = match self.job.look()? {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(problem) => Some(problem),
        };
        let printed = fs::read(&self.printed).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let tests = Tests::of(&printed);
        if let Some(problem) = &problem {
            println!("---- {}: {problem}\n{printed}----", self.name);
        }
        Some(Ended {
            name: self.name.clone(),
            took: self.job.took(),
            cpu: self.job.cpu(),
            tests,
            problem,
        })
    }
}

impl Ended {
    fn say(&self) {
        let word = if self.problem.is_some() {
            "FAILED"
        } else {
            "passed"
        };
        let Tests {
            passed,
            failed,
            ignored,
        } = self.tests;
        let (took, cpu) = (seconds(self.took), seconds(self.cpu));
        let mut counted = format!("{passed} tests");
        if failed > 0 {
            counted.push_str(&format!(", {failed} failed"));
        }
        if ignored > 0 {
            counted.push_str(&format!(", {ignored} ignored"));
        }
        println!(
            "    {word} {took:>8} {cpu:>8} CPU  {} ({counted})",
            self.name
        );
    }
}

impl Tests {
    /// Counted in the lines that libtest ends with.
    fn of(printed: &str) -> Self {
        let mut sum = Self::default();
        for line in printed
            .lines()
            .filter_map(|line| line.strip_prefix("test result: "))
        {
            let words: Vec<&str> = line.split([' ', ';']).collect();
            let before = |word: &str| {
                let at = words.iter().position(|one| *one == word)?;
                words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
            };
            sum.passed += before("passed").unwrap_or(0);
            sum.failed += before("failed").unwrap_or(0);
            sum.ignored += before("ignored").unwrap_or(0);
        }
        sum
    }
}

/// Says which took longest, what all took, and how many tests passed.
fn summary(mut ended: Vec<Ended>, took: Duration) -> Result<()> {
    ended.sort_by_key(|one| std::cmp::Reverse(one.took));
    println!("    the slowest:");
    for one in ended.iter().take(SHOWN) {
        println!(
            "    {:>8} {:>8} CPU  {}",
            seconds(one.took),
            seconds(one.cpu),
            one.name
        );
    }
    let cpu: Duration = ended.iter().map(|one| one.cpu).sum();
    let sum = |of: fn(&Tests) -> u64| ended.iter().map(|one| of(&one.tests)).sum::<u64>();
    println!(
        "    {} programs in {}, {} of CPU",
        ended.len(),
        seconds(took),
        seconds(cpu)
    );
    let failed: Vec<&str> = ended
        .iter()
        .filter(|one| one.problem.is_some())
        .map(|one| one.name.as_str())
        .collect();
    println!(
        "tests: {} passed, {} failed, {} skipped",
        sum(|tests| tests.passed),
        // A program that was ended or did not begin has counted nothing.
        sum(|tests| tests.failed).max(failed.len() as u64),
        sum(|tests| tests.ignored)
    );
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

fn create(path: &Path) -> Result<File> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    File::create(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_over_all_lines_of_results() {
        let printed = "running 2 tests\ntest a ... ok\n\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s\n\
            test result: FAILED. 5 passed; 7 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let expected = Tests {
            passed: 7,
            failed: 7,
            ignored: 1,
        };
        assert_eq!(Tests::of(printed), expected);
    }

    #[test]
    fn a_message_names_a_test_program_by_its_crate() {
        let message = |kind: &str, test: bool| {
            serde_json::json!({
                "executable": "/t/debug/deps/cache-1f",
                "manifest_path": "/home/u/tidegate/cache/mm/Cargo.toml",
                "profile": { "test": test },
                "target": { "name": "cache", "kind": [kind] },
            })
        };
        let name = |message: &Value| program(message).map(|program| program.name);
        assert_eq!(name(&message("test", true)).as_deref(), Some("mm cache"));
        assert_eq!(name(&message("lib", true)).as_deref(), Some("mm lib"));
        assert_eq!(name(&message("bin", false)), None);
    }

    fn sh(name: &str, text: &str) -> Program {
        let folder = std::env::temp_dir().join(format!("tidegate-programs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mut mode = fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&path, mode).unwrap();
        Program {
            name: name.into(),
            path,
            folder,
        }
    }

    #[test]
    fn the_one_that_fails_is_named_and_the_others_run() {
        let out =
            std::env::temp_dir().join(format!("tidegate-programs-out-{}", std::process::id()));
        let programs = [sh("bad", "exit 3"), sh("good", "echo \"$WHAT\"; sleep 0.1")];
        let environment = [(
            "good",
            "WHAT",
            "test result: ok. 4 passed; 0 failed;".to_owned(),
        )];
        let asked = Asked {
            environment: &environment,
            ..Asked::default()
        };
        let mut ended = Vec::new();
        run_some(programs.into(), 2, &asked, &out, &mut ended).unwrap();
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(ended[0].problem.is_some() && ended[1].problem.is_none());
        assert_eq!(ended[1].tests.passed, 4);
        assert_eq!(summary(ended, Duration::ZERO), Err("failed: bad".into()));
    }
}

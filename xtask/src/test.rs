//! `cargo xtask test`: what must pass before a commit; with `--all` everything that CI proves.
//!
//! Steps run one after the other, each with a limit on its time, and all of them run whatever comes
//! of the others. Test programs run side by side (`programs`). There are three builds: the tests'
//! own, which random runs with faults use, too; and with `--all` the models of loom and the program
//! as a user builds it. A tool that a machine lacks (Miri, moto, Python) is skipped with a line
//! that says so; nothing of our own is: a test that is not there is a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::experiments::{self, Bands};
use crate::lab::Which;
use crate::part::{self, Part};
use crate::programs::{self, Asked, Program};
use crate::steps::{self, End, Steps};
use crate::workspace::{ALL_FEATURES, BUILD_MAX, TESTS, Workspace, build_program, cargo, root};
use crate::{Arguments, Result, at, c, campaign, dist, instruments, lab, python, suites, tidy};

/// Longest time for a step that only runs.
const RUN_MAX: Duration = Duration::from_secs(10 * 60);
/// Longest time for an experiment; some take two minutes of two cores, and a machine may be busy.
const EXPERIMENT_MAX: Duration = Duration::from_secs(15 * 60);
/// Seeds of the random runs with faults; `campaign` runs more.
const FAULT_SEEDS: u64 = 60;
const FAULT_SEEDS_ALL: u64 = 300;
/// Times that the server is killed while clients write; `campaign --kills` does it more often.
const KILLS: u64 = 50;
/// An exerciser of file systems that is no part of a build of ours.
const FSX: &str = "fsx@0.3.2";
/// Seconds for which random input is tried of each parser: a minute for all of them.
const FUZZ_SECONDS: u64 = 4;
/// Plans of a governor's members with values of different sizes.
const MIXED_SEEDS: u64 = 30;
/// Switches of threads that a loom model explores: enough for every bug planted so far.
const LOOM_PREEMPTIONS: &str = "3";

/// Test programs that measure time: with `--all` alone, where each runs when nothing else does.
const TIMED: [&str; 4] = [
    "cli serve_demo",
    "cli serve_limits",
    "experiment live",
    "tidegate timed",
];
/// Test programs that measure memory, or keep all cores busy: each runs when nothing else does.
const ALONE: [&str; 2] = ["tidegate limit", "tidegate stamps"];
/// Test programs that take longest: they begin first, so that none of them is left to run by
/// itself.
const FIRST: &[&str] = &[
    "cli serve_kill",
    "cli tests",
    "mm cache",
    "experiment lab",
    "recordings compare",
    "serve fuzz",
    "serve tests",
    "tidegate tests",
    "serve lib",
    "experiment lib",
];

const USAGE: &str = "\
What must pass before a commit, or a part of it.

usage: cargo xtask test [--all] [--only STEP]...
       cargo xtask test --changed [REV]
       cargo xtask test cache|doors|lab
       cargo xtask test PROGRAM [FILTER] [-- WORD...]

  (nothing)        format, tidy, every test program but those that measure time, seeds of faults,
                   trace hashes of the experiments that take seconds
  --all            everything that CI proves; with PROGRAM, a wing or --changed: with the features
                   that only --all builds (S3, adapters)
  --only STEP      that step alone, of those that --list prints
  --changed        the programs that the change since REV can affect; prints them, with the files and
                   crates that are the cause, and what is left out. Without REV: since the branch left
                   main; on main the last commit, or the one before where nothing has changed since
  cache|doors|lab  the programs of a wing; campaign, testkit and xtask go with lab
  PROGRAM          one test program, named as the summary names it, or all of a crate; FILTER: tests with
                   this in their names; after --: words for the test harness

All of these share what they compile.

examples:
  cargo xtask test --changed                     the everyday command
  cargo xtask test --changed HEAD~3
  cargo xtask test mm cache writeback            tests of tests/cache with `writeback` in their names
  cargo xtask test serve lib -- --nocapture
  cargo xtask test policy                        all programs of a crate
  cargo xtask test --only hashes

exit status: 0 all passed, 1 something failed or was interrupted
";

/// The way that a step is run.
struct Run {
    /// Everything that is proved, and not what the README's command runs alone.
    all: bool,
    /// Not the whole workspace.
    part: Option<Part>,
}

/// A step: its name, whether only `--all` runs it, and what it does.
struct Step {
    name: &'static str,
    only_all: bool,
    run: fn(&Run) -> End,
}

const fn always(name: &'static str, run: fn(&Run) -> End) -> Step {
    Step {
        name,
        only_all: false,
        run,
    }
}

const fn all(name: &'static str, run: fn(&Run) -> End) -> Step {
    Step {
        name,
        only_all: true,
        run,
    }
}

const STEPS: [Step; 18] = [
    always("format", |_| {
        cargo_step(&["fmt", "--all", "--check", "--", "-l"])
    }),
    always("tidy", |_| tidy::run().into()),
    all("clippy", |_| clippy()),
    always("build", |run| build_tests(run).map(drop).into()),
    always("tests", |run| tests(run).into()),
    all("documentation", |_| documentation()),
    all("instruments", |_| instruments::judge()),
    all("c", |_| c::judge()),
    all("dist", |run| with_program(run, dist::judge)),
    all("suites", |run| with_program(run, suites::judge)),
    all("python", |run| with_program(run, python::judge)),
    all("shared-writes", |_| {
        let counted = ["--features", "count", "--test", "shared_writes"];
        cargo_step(&[&["test", "-p", "tidegate"], &counted[..]].concat())
    }),
    all("loom", |_| loom()),
    all("miri", |_| miri()),
    always("faults", |run| faults(run).into()),
    all("reproduce", |_| reproduce().into()),
    all("experiments", |_| experiments(&[], Replicas::One).into()),
    always("hashes", |run| hashes(run).into()),
];

/// The steps of `check`.
const QUICK: [&str; 3] = ["format", "tidy", "clippy"];

/// Runs the steps of the README's command, all of them with `--all`, those named with `--only`, or a
/// part of the tests.
pub(crate) fn test(mut arguments: Arguments) -> Result<()> {
    let mut only = Vec::new();
    let (mut all, mut changed) = (false, false);
    let (mut words, mut harness) = (Vec::new(), Vec::new());
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--all" => all = true,
            "--changed" => changed = true,
            "--only" => only.push(arguments.value_of("--only")?),
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(());
            }
            "--list" => {
                for step in &STEPS {
                    let note = if step.only_all { "  (--all)" } else { "" };
                    println!("{}{note}", step.name);
                }
                return Ok(());
            }
            "--" => {
                while let Some(word) = arguments.next_word() {
                    harness.push(word);
                }
            }
            option if option.starts_with('-') => {
                return Err(format!(
                    "test: unexpected '{word}'; see cargo xtask test --help"
                ));
            }
            _ => words.push(word),
        }
    }
    if let Some(name) = only
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        return Err(format!(
            "there is no step '{name}'; see cargo xtask test --list"
        ));
    }
    let is_part = changed || !words.is_empty();
    if is_part && !only.is_empty() {
        return Err(
            "test: --only is for steps of the whole; leave it or the other words out".into(),
        );
    }
    if !is_part && !harness.is_empty() {
        return Err("test: -- is for one test program: cargo xtask test PROGRAM -- WORD".into());
    }
    if is_part {
        return part_of(all, changed, words, &harness);
    }
    run("xtask test", Run { all, part: None }, |step| {
        if only.is_empty() {
            all || !step.only_all
        } else {
            only.iter().any(|wanted| wanted == step.name)
        }
    })
}

/// Runs the tests that words name, or that a change can affect.
fn part_of(all: bool, changed: bool, mut words: Vec<String>, harness: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let part = if changed {
        if words.len() > 1 {
            let more = words[1..].join(" ");
            return Err(format!(
                "test: --changed takes one revision, not '{more}' too"
            ));
        }
        part::changed(&workspace, words.pop())?
    } else if words.len() == 1
        && let Some(wing) = Part::of_wing(&workspace, &words[0])
    {
        wing
    } else {
        let (programs, took) = part::named(&workspace, &words)?;
        let part = Part {
            programs,
            ..Part::default()
        };
        words.drain(..took);
        words.extend_from_slice(harness);
        if part.programs.len() == 1 {
            steps::stop_at_interrupt()?;
            let built = part.build(&workspace, all)?;
            return built.iter().try_for_each(|program| program.run(&words));
        }
        if !words.is_empty() {
            let names: Vec<&str> = part.programs.iter().map(String::as_str).collect();
            return Err(format!(
                "test: '{}' needs one program: {}",
                words.join(" "),
                names.join(", ")
            ));
        }
        return run(
            "xtask test",
            Run {
                all,
                part: Some(part),
            },
            |step| step.name == "tests",
        );
    };
    if !harness.is_empty() {
        return Err("test: -- is for one test program: cargo xtask test PROGRAM -- WORD".into());
    }
    let (faults, hashes) = (part.faults, part.hashes.is_some());
    let tests = !part.programs.is_empty();
    run(
        "xtask test",
        Run {
            all,
            part: Some(part),
        },
        |step| match step.name {
            "format" | "tidy" => true,
            "tests" => tests,
            "faults" => faults,
            "hashes" => hashes,
            _ => false,
        },
    )
}

/// Runs the quick steps.
pub(crate) fn check(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    let run_all = Run {
        all: true,
        part: None,
    };
    run("xtask check", run_all, |step| QUICK.contains(&step.name))
}

fn run(title: &'static str, run: Run, wanted: impl Fn(&Step) -> bool) -> Result<()> {
    steps::stop_at_interrupt()?;
    let mut steps = Steps::new(title);
    for step in STEPS.iter().filter(|step| wanted(step)) {
        steps.run(step.name, || (step.run)(&run));
    }
    steps.finish()
}

fn cargo_step(arguments: &[&str]) -> End {
    steps::run(&mut cargo(arguments), BUILD_MAX).into()
}

fn build_tests(run: &Run) -> Result<Vec<Program>> {
    if let Some(part) = &run.part {
        return part.build(&Workspace::load()?, run.all);
    }
    let features = if run.all { &ALL_FEATURES[..] } else { &[] };
    programs::build(&[&TESTS[..], features].concat(), BUILD_MAX)
}

/// All tests of the workspace, or of the part.
fn tests(run: &Run) -> Result<()> {
    let programs = build_tests(run)?;
    let mut alone = ALONE.to_vec();
    let mut asked = Asked {
        first: FIRST,
        ..Asked::default()
    };
    if run.all {
        alone.extend(TIMED);
    } else {
        let why = "measures time; cargo xtask test --all runs it";
        asked
            .without
            .extend(TIMED.map(|name| (name, why.to_owned())));
    }
    asked.alone = &alone;
    let mut environment = vec![
        ("cli serve_kill", "TIDEGATE_KILLS", KILLS.to_string()),
        (
            "cli tests",
            "TIDEGATE_FUZZ_SECONDS",
            FUZZ_SECONDS.to_string(),
        ),
        ("governor tests", "TIDEGATE_SEEDS", MIXED_SEEDS.to_string()),
    ];
    if run.all {
        let program = build_program()?.display().to_string();
        environment.push(("cli tests", "TIDEGATE_NO_SERVER", program));
        match fsx() {
            Ok(path) => environment.push(("cli tests", "TIDEGATE_FSX", path)),
            Err(why) => println!("    SKIPPED: fsx over nbdfuse: {why}"),
        }
        asked.environment = &environment;
        // Volumes in a bucket, against a server on this machine.
        if !steps::is_there("moto_server", &["--help"]) {
            let why = "moto_server is not installed (pip install 'moto[server]')";
            asked.without.push(("objects s3", why.into()));
        }
    }
    if run.part.is_none() {
        programs::all_known(&programs, &asked)?;
    }
    programs::run(programs, &asked)
}

/// Installs fsx, once; answers where it is.
fn fsx() -> Result<String> {
    let folder = Workspace::load()?.target.join("xtask/fsx");
    let program = folder.join("bin/fsx");
    if !program.exists() {
        let mut install = cargo(&["install", "--quiet", "--locked", FSX, "--root"]);
        steps::run(install.arg(&folder), BUILD_MAX)?;
    }
    Ok(program.display().to_string())
}

/// Random runs with faults, in the program that the tests have built.
fn faults(run: &Run) -> Result<()> {
    let seeds = if run.all {
        FAULT_SEEDS_ALL
    } else {
        FAULT_SEEDS
    };
    campaign::faults(&tested(run, "campaign")?, seeds, RUN_MAX)
}

/// A program as the tests' build has it, built again if anything has changed since.
fn tested(run: &Run, program: &str) -> Result<PathBuf> {
    if run.part.is_none() {
        build_tests(run)?;
    } else {
        // Cargo builds a package's programs for its integration tests alone: with the smallest.
        let smallest = match program {
            "campaign" => "campaign program",
            _ => "cli serve_kill",
        };
        let part = Part {
            programs: [smallest.to_owned()].into(),
            ..Part::default()
        };
        part.build(&Workspace::load()?, run.all)?;
    }
    Ok(Workspace::load()?.tested(program))
}

/// A step that uses the program as the tests' build has it.
fn with_program(run: &Run, judge: fn(&Path) -> End) -> End {
    tested(run, "tidegate").map_or_else(End::Failed, |program| judge(&program))
}

/// Trace hashes of the program that the tests have built; with `--all` of the release program, which
/// has run the experiments.
fn hashes(run: &Run) -> Result<()> {
    if run.all && run.part.is_none() {
        lab::hashes_hold(&build_program()?, Which::All)
    } else {
        let which = run.part.as_ref().and_then(|part| part.hashes.clone());
        lab::hashes_hold(&tested(run, "tidegate")?, which.unwrap_or(Which::Short))
    }
}

/// Lints of everything that is built in any way.
fn clippy() -> End {
    let words = ["clippy", "--workspace", "--all-targets", "--keep-going"];
    let then = ["--quiet", "--", "-D", "warnings"];
    cargo_step(&[&words[..], &ALL_FEATURES, &then].concat())
}

/// The documentation builds, its links between items resolve, and its examples run.
fn documentation() -> End {
    let mut pages = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    pages.args(ALL_FEATURES).env("RUSTDOCFLAGS", "-D warnings");
    let mut examples = cargo(&["test", "--workspace", "--doc", "--quiet"]);
    examples.args(ALL_FEATURES);
    steps::run(&mut pages, BUILD_MAX)
        .and_then(|()| steps::run(&mut examples, BUILD_MAX))
        .into()
}

/// The models of the protocols without locks, under every interleaving within the bound.
fn loom() -> End {
    loom_command()
        .and_then(|mut command| steps::run(&mut command, BUILD_MAX))
        .into()
}

fn loom_command() -> Result<Command> {
    let mut command = cargo(&["test", "--release", "--test", "loom"]);
    command
        .args(["-p", "tidegate-frames", "-p", "tidegate-env"])
        .arg("--target-dir")
        .arg(Workspace::load()?.target.join("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        .env("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS);
    Ok(command)
}

/// Undefined behaviour, in what has no system calls: the frames, and tasks under the baton.
fn miri() -> End {
    if !steps::is_there("cargo", &["+nightly", "miri", "--version"]) {
        return End::Skipped("Miri is not installed (rustup +nightly component add miri)".into());
    }
    let frames = ["-p", "tidegate-frames", "--lib"];
    let baton = ["-p", "tidegate-env", "-p", "tidegate-testkit"];
    miri_test(&frames).and_then(|()| miri_test(&baton)).into()
}

fn miri_test(what: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "miri", "test", "--target-dir"])
        .arg(Workspace::load()?.target.join("miri"))
        .args(what)
        .current_dir(root())
        // Failures of random tests are kept in files.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", "2");
    steps::run(&mut command, BUILD_MAX)
}

/// Every published claim, one repetition each, as a new user sees them.
fn reproduce() -> Result<()> {
    let program = build_program()?;
    let out = experiments::of_reproduce(&Workspace::load()?);
    // Results that an earlier program left would be taken for this one's where it is the same; here
    // it is to be run.
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(at(&out))?;
    }
    let mut command = Command::new(&program);
    command
        .args(["reproduce", "--out"])
        .arg(&out)
        .current_dir(root());
    steps::run(&mut command, EXPERIMENT_MAX)
}

/// The repetitions of each of an experiment's runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replicas {
    /// Once: what a commit has to pass.
    One,
    /// As often as its scenario says: bands are about medians of these.
    Own,
}

/// Checks the bands of the experiments that are named, or of all, over the repetitions that their
/// scenarios ask for.
pub(crate) fn bands_hold(mut arguments: Arguments) -> Result<()> {
    let mut names = Vec::new();
    while let Some(word) = arguments.next_word() {
        if word.starts_with('-') {
            return Err(format!("bands: unexpected '{word}'"));
        }
        names.push(word);
    }
    experiments::named("bands", &names)?;
    experiments(&names, Replicas::Own)
}

/// Every experiment shows what was published: its bands hold. Of one repetition, what `reproduce`
/// has judged whole is not run again, and those that take minutes are left to `bands`.
fn experiments(names: &[String], replicas: Replicas) -> Result<()> {
    let workspace = Workspace::load()?;
    let program = build_program()?;
    let out = experiments::out(&workspace);
    let mut failed = Vec::new();
    let chosen = if names.is_empty() {
        experiments::names()?
    } else {
        names.to_vec()
    };
    for name in chosen {
        let whole = match replicas {
            Replicas::One => experiments::reproduced(&workspace, &program, &name),
            Replicas::Own => None,
        };
        let out = if let Some(whole) = whole {
            println!("    {name}: as in `reproduce`");
            whole
        } else if replicas == Replicas::One && lab::BY_NAME.contains(&name.as_str()) {
            println!("    SKIPPED: {name}: takes minutes; cargo xtask bands {name}");
            continue;
        } else {
            let out = out.join(&name);
            let mut command = Command::new(&program);
            command
                .args(["run", &name, "--check", "--out"])
                .arg(&out)
                .current_dir(root())
                // The tables are long; they stand in the folder.
                .stdout(Stdio::null());
            if replicas == Replicas::One {
                command.args(["--replicas", "1"]);
            }
            if let Err(problem) = steps::run(&mut command, EXPERIMENT_MAX) {
                failed.push(format!("{name}: {problem}"));
            }
            out
        };
        let Some(bands) = Bands::read(&out) else {
            failed.push(format!("{name}: no bands were judged"));
            continue;
        };
        bands.print();
        for id in bands.needless() {
            failed.push(format!(
                "{name}: {id} holds in all its rows: take its `held_in` out"
            ));
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("; "))
    }
}

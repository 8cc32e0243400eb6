//! `cargo xtask test`: everything that must pass before a commit.
//!
//! Steps run one after the other, each with a limit on its time, and all of them run whatever comes
//! of the others. What later ones build for themselves is built meanwhile (`ahead`). Tools that a machine may lack (Miri) are skipped with a line that says so; nothing
//! of our own is: a test that is not there is a failure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::ahead::Ahead;
use crate::steps::{self, End, Steps};
use crate::workspace::{FEATURES, Workspace, cargo, root};
use crate::{Arguments, Result, campaign, guest, lab, tidy};

/// Longest time for a step that builds; the whole stays below half an hour on two cores that nobody else uses.
const BUILD_MAX: Duration = Duration::from_secs(20 * 60);
/// Longest time for a step that only runs.
const RUN_MAX: Duration = Duration::from_secs(5 * 60);
/// Longest time for an experiment; some take two minutes of two cores, and a machine may be busy.
const EXPERIMENT_MAX: Duration = Duration::from_secs(15 * 60);
/// Seeds of the fault test here; `campaign` runs more.
const FAULT_SEEDS: u64 = 300;
/// Times that the server is killed while clients write; `campaign --kills` does it more often.
const KILLS: u64 = 50;
/// Switches of threads that a loom model explores: enough for every bug planted so far.
const LOOM_PREEMPTIONS: &str = "3";

type Step = (&'static str, fn() -> End);

const STEPS: [Step; 18] = [
    ("format", || {
        cargo_step(&["fmt", "--all", "--check", "--", "-l"])
    }),
    ("tidy", || tidy::run().into()),
    ("clippy", || {
        cargo_step(&[
            "clippy",
            "--workspace",
            "--features",
            FEATURES,
            "--all-targets",
            "--keep-going",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ])
    }),
    ("build", || {
        cargo_step(&[&TESTS[..], &["--no-run"]].concat())
    }),
    (WAITS, || {
        cargo_step(&[&TESTS[..], &["--no-fail-fast"]].concat())
    }),
    ("kills", || campaign::kills(KILLS, false, RUN_MAX).into()),
    ("s3", s3),
    ("baton", || {
        cargo_step(&["test", "-p", "tidegate-env", "--features", "baton"])
    }),
    ("governor", || governor().into()),
    ("governor-c", governor_c),
    ("documentation", documentation),
    ("loom", loom),
    ("miri", miri),
    ("faults", || campaign::faults(FAULT_SEEDS, BUILD_MAX).into()),
    ("reproduce", || reproduce().into()),
    ("experiments", || experiments(&[], Replicas::One).into()),
    ("guest", guest::smoke),
    ("hashes", || lab::hashes_hold().into()),
];

/// All tests of the workspace.
const TESTS: [&str; 4] = ["test", "--workspace", "--features", FEATURES];
/// The step in which a machine is idle for half of the time: what later ones build is built meanwhile.
const WAITS: &str = "tests";

/// The steps of `check`.
const QUICK: [&str; 3] = ["format", "tidy", "clippy"];

/// Runs all steps, or those named with `--only`.
pub(crate) fn test(mut arguments: Arguments) -> Result<()> {
    let mut only = Vec::new();
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--only" => only.push(arguments.value_of("--only")?),
            "--list" => {
                STEPS.iter().for_each(|(name, _)| println!("{name}"));
                return Ok(());
            }
            _ => return Err(format!("test: unexpected '{word}'")),
        }
    }
    if let Some(name) = only
        .iter()
        .find(|name| STEPS.iter().all(|(step, _)| step != name))
    {
        return Err(format!(
            "there is no step '{name}'; see cargo xtask test --list"
        ));
    }
    run("xtask test", |name| {
        only.is_empty() || only.iter().any(|wanted| wanted == name)
    })
}

/// Runs the quick steps.
pub(crate) fn check(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    run("xtask check", |name| QUICK.contains(&name))
}

fn run(title: &'static str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let mut steps = Steps::new(title);
    let mut ahead = None;
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        if *name == WAITS {
            let builds = STEPS.iter().filter(|(later, _)| wanted(later));
            let builds = builds.filter_map(|(later, _)| build_of(later)?.ok());
            ahead = Some(Ahead::begin(builds.collect()));
        }
        steps.run(name, step);
    }
    drop(ahead);
    steps.finish()
}

/// What a step builds in a folder of its own, if it does: the step before it needs none of it.
fn build_of(step: &str) -> Option<Result<Command>> {
    match step {
        "loom" => Some(loom_command().map(|mut command| {
            command.arg("--no-run");
            command
        })),
        "faults" => Some(Ok(campaign::build_command())),
        "reproduce" => Some(lab_command()),
        _ => None,
    }
}

fn cargo_step(arguments: &[&str]) -> End {
    steps::run(&mut cargo(arguments), BUILD_MAX).into()
}

/// Volumes in a bucket, against a server on this machine. All that is not about S3 has been tested without it; the whole
/// workspace is named so that what it needs is there from those tests.
fn s3() -> End {
    if !steps::is_there("moto_server", &["--help"]) {
        return End::Skipped("moto_server is not installed (pip install 'moto[server]')".into());
    }
    cargo_step(&[
        "test",
        "--workspace",
        "--features",
        FEATURES,
        "--features",
        "tidegate-objects/s3",
        "--test",
        "s3",
    ])
}

/// The adapters of the governor for caches of others, which nothing else builds; and the page cache as its member.
fn governor() -> Result<()> {
    let of_it = ["-p", "tidegate-governor", "--all-features", "--all-targets"];
    let mut lints = cargo(&["clippy", "--quiet"]);
    lints.args(of_it).args(["--", "-D", "warnings"]);
    steps::run(&mut lints, BUILD_MAX)?;
    let mut tests = cargo(&["test", "-p", "tidegate-governor", "--all-features"]);
    steps::run(&mut tests, BUILD_MAX)?;
    let of_it = ["-p", "tidegate", "--features", "governor", "--all-targets"];
    let mut lints = cargo(&["clippy", "--quiet"]);
    lints.args(of_it).args(["--", "-D", "warnings"]);
    steps::run(&mut lints, BUILD_MAX)?;
    let of_it = ["-p", "tidegate", "--features", "governor"];
    let mut tests = cargo(&["test", "--test", "governed"]);
    steps::run(tests.args(of_it), BUILD_MAX)
}

/// The C interface of the governor: its example, built with the header and run.
fn governor_c() -> End {
    if !steps::is_there("cc", &["--version"]) {
        return End::Skipped("there is no C compiler (cc)".into());
    }
    c_example().into()
}

fn c_example() -> Result<()> {
    let mut library = cargo(&["rustc", "-p", "tidegate-governor", "--features", "c"]);
    library.args(["--lib", "--crate-type", "staticlib"]);
    steps::run(&mut library, BUILD_MAX)?;
    let built = Workspace::load()?.target.join("debug");
    let (library, program) = (built.join("libgovernor.a"), built.join("own_cache"));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg("crates/governor/examples/c/own_cache.c")
        .arg("-Icrates/governor/include")
        .arg(&library)
        .args(["-ldl", "-lm", "-o"])
        .arg(&program)
        .current_dir(root());
    steps::run(&mut compiler, BUILD_MAX)?;
    steps::run(&mut Command::new(&program), RUN_MAX)
}

/// The documentation builds and its links between items resolve.
fn documentation() -> End {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    steps::run(&mut command, BUILD_MAX).into()
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
        .env("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS)
        // Optimised, but not linked for a minute.
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    Ok(command)
}

/// Undefined behaviour, in what has no system calls: the frames, and tasks under the baton.
fn miri() -> End {
    if !steps::is_there("cargo", &["+nightly", "miri", "--version"]) {
        return End::Skipped("Miri is not installed (rustup +nightly component add miri)".into());
    }
    let frames = ["-p", "tidegate-frames", "--lib"];
    let baton = ["-p", "tidegate-env", "--features", "baton"];
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
    let program = build_lab()?;
    let out = reproduce_out(&Workspace::load()?);
    // What an earlier program left would be taken for this one's where it is the same; here it is to be run.
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let mut command = Command::new(&program);
    command
        .args(["reproduce", "--out"])
        .arg(&out)
        .current_dir(root());
    steps::run(&mut command, EXPERIMENT_MAX)
}

fn reproduce_out(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask/reproduce")
}

/// Where `reproduce` has run an experiment with this very program just as it stands, and judged all of its bands, its folder.
pub(crate) fn reproduced(workspace: &Workspace, program: &Path, name: &str) -> Option<PathBuf> {
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let out = reproduce_out(workspace).join(name);
    let scenario = out.join("scenario.toml");
    let ran = std::fs::read_to_string(&scenario).ok()?;
    let own = std::fs::read_to_string(root().join(format!("experiments/{name}.toml"))).ok()?;
    let bands = bands(&out)?;
    let all = !bands
        .lines()
        .any(|line| line.trim_start().starts_with("not run"));
    (ran == own && all && changed(&scenario) > changed(program)).then_some(out)
}

/// How often an experiment repeats each of its runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replicas {
    /// Once: what a commit has to pass.
    One,
    /// As often as its scenario says: bands are about medians of these.
    Own,
}

/// Checks the bands of the experiments that are named, or of all, over the repetitions that their scenarios ask for.
pub(crate) fn bands_hold(mut arguments: Arguments) -> Result<()> {
    let mut names = Vec::new();
    while let Some(word) = arguments.next_word() {
        if word.starts_with('-') {
            return Err(format!("bands: unexpected '{word}'"));
        }
        names.push(word);
    }
    let known = experiment_names()?;
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!("bands: there is no experiments/{name}.toml"));
    }
    experiments(&names, Replicas::Own)
}

/// Every experiment shows what was published: its bands hold. Of one repetition, what `reproduce` has judged whole is not
/// run again, and what takes minutes is left to `bands`.
fn experiments(names: &[String], replicas: Replicas) -> Result<()> {
    let workspace = Workspace::load()?;
    let program = build_lab()?;
    let out = experiments_out(&workspace);
    let mut failed = Vec::new();
    let chosen = if names.is_empty() {
        experiment_names()?
    } else {
        names.to_vec()
    };
    for name in chosen {
        let whole = match replicas {
            Replicas::One => reproduced(&workspace, &program, &name),
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
        print_bands(&out);
        for id in needless(&out) {
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

/// Where their results are, each in a folder of its name.
pub(crate) fn experiments_out(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask/experiments")
}

/// Prints how each band came out.
fn print_bands(out: &Path) {
    let bands = bands(out);
    print!(
        "{}",
        bands.as_deref().unwrap_or("    no bands were judged\n")
    );
}

fn bands(out: &Path) -> Option<String> {
    let printed = std::fs::read_to_string(out.join("table.txt")).ok()?;
    let (_, bands) = printed.split_once("\nExpectations\n")?;
    Some(bands.to_owned())
}

/// Bands that another experiment holds and that hold here, too, in all their rows.
fn needless(out: &Path) -> Vec<String> {
    let bands = bands(out).unwrap_or_default();
    let ids = |word: &str, ending: &str| -> BTreeSet<String> {
        let lines = bands.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let is_it = line.ends_with(ending) && words.next() == Some(word);
            is_it.then(|| words.next().map(str::to_owned)).flatten()
        });
        lines.collect()
    };
    let too = ids("holds", " too)");
    too.difference(&ids("misses", ")")).cloned().collect()
}

/// Builds the program, as a user would run it.
pub(crate) fn build_program() -> Result<()> {
    steps::run(
        &mut cargo(&["build", "--release", "-p", "tidegate-cli"]),
        BUILD_MAX,
    )
}

/// Builds the program for experiments in virtual time and answers where it is: as a user would run it, but without the
/// server and the formats of results, whose dependencies take five minutes to optimise on two cores. In a folder of its
/// own, so that it does not take the place of the whole program.
pub(crate) fn build_lab() -> Result<PathBuf> {
    steps::run(&mut lab_command()?, BUILD_MAX)?;
    Ok(lab_folder()?.join("release/tidegate"))
}

fn lab_command() -> Result<Command> {
    let mut command = cargo(&[
        "build",
        "--release",
        "-p",
        "tidegate-cli",
        "--no-default-features",
    ]);
    command.arg("--target-dir").arg(lab_folder()?);
    Ok(command)
}

fn lab_folder() -> Result<PathBuf> {
    Ok(Workspace::load()?.target.join("lab"))
}

/// Names of the experiments: those of the files in `experiments/`.
pub(crate) fn experiment_names() -> Result<Vec<String>> {
    let folder = root().join("experiments");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let stem = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .filter_map(|path| stem(&path))
        .collect();
    names.sort();
    if names.is_empty() {
        Err(format!("no experiments in {}", folder.display()))
    } else {
        Ok(names)
    }
}

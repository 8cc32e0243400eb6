//! The step `python` of `cargo xtask test --all`: the Python packages, in a virtual environment of
//! their own.
//!
//! `doors/python` has a lock file and a target folder of its own, so no other step builds any of
//! it. The extensions are built as the tests are, unoptimised; the environment stays, so that a
//! second run downloads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::steps::{self, End};
use crate::workspace::{BUILD_MAX, Workspace, cargo, root};

/// Where it is, from the root.
pub(crate) const MANIFEST: &str = "doors/python/Cargo.toml";

/// Python of a version whose stable interface has buffers (ADR 27), as an expression that fails.
const IS_OLD: &str = "import sys, venv; sys.exit(sys.version_info < (3, 11))";

/// The tests' needs beside the package.
const NEEDED: [&str; 13] = [
    "maturin>=1.7,<2",
    "pytest",
    "hypothesis",
    "mypy",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "fsspec",
    "distributed",
    "matplotlib",
    "nbclient",
    "ipykernel",
];

/// Lints, builds and tests the packages, beside the program: the cache before the laboratory is
/// there, too.
pub(crate) fn judge(tidegate: &Path) -> End {
    if !steps::is_there("python3", &["-c", IS_OLD]) {
        return End::Skipped("there is no Python from 3.11 on (python3)".into());
    }
    try_judge(tidegate).unwrap_or_else(End::Failed)
}

/// The environment, with packages in it; it stays.
fn environment(packages: &[&str]) -> Result<PathBuf> {
    let environment = Workspace::load()?.target.join("xtask/python");
    let pip = environment.join("bin/pip");
    if !pip.exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&environment);
        steps::run(&mut make, BUILD_MAX)?;
    }
    let mut install = Command::new(pip);
    install.args(["install", "--quiet"]).args(packages);
    steps::run(&mut install, BUILD_MAX)
        .map_err(|problem| format!("its packages cannot be had: {problem}"))?;
    Ok(environment)
}

/// A program of the environment, in a folder of `python/`.
fn within(environment: &Path, folder: &str, name: &str) -> Command {
    let mut command = Command::new(environment.join("bin").join(name));
    command
        .current_dir(root().join("python").join(folder))
        .env("VIRTUAL_ENV", environment);
    command
}

/// A program for a fresh environment with both wheels.
const TRIAL: &str = "import sys, tidegate
with tidegate.Cache('16MiB') as cache, cache.open(sys.argv[1], 'w+') as file:
    file.write(b'tried')
    file.sync()
    assert bytes(file.pin(0)) == b'tried'
assert tidegate.run('dd', scale=1/64, repetitions=1, progress=False).is_whole";

/// Builds the wheels of both packages into a folder, and tries them: installed from there alone.
/// maturin names the oldest glibc that they run with.
pub(crate) fn wheels(out: &Path) -> End {
    if !steps::is_there("python3", &["-c", IS_OLD]) {
        return End::Skipped("there is no Python from 3.11 on (python3)".into());
    }
    let environment = match environment(&NEEDED[..1]) {
        Ok(environment) => environment,
        Err(problem) => return End::Skipped(problem),
    };
    try_wheels(&environment, out).into()
}

fn try_wheels(environment: &Path, out: &Path) -> Result<()> {
    for folder in ["", "lab"] {
        let mut build = within(environment, folder, "maturin");
        build.args(["build", "--quiet", "--release", "--locked", "--out"]);
        steps::run(build.arg(out), BUILD_MAX)?;
    }
    let fresh = out.join("fresh");
    let mut make = Command::new("python3");
    steps::run(make.args(["-m", "venv"]).arg(&fresh), BUILD_MAX)?;
    let mut install = Command::new(fresh.join("bin/pip"));
    install.args(["install", "--quiet", "--no-index", "--find-links"]);
    steps::run(install.arg(out).arg("tidegate[lab]"), BUILD_MAX)?;
    let mut tried = Command::new(fresh.join("bin/python"));
    tried.args(["-c", TRIAL]).arg(fresh.join("data"));
    steps::run(&mut tried, BUILD_MAX)?;
    std::fs::remove_dir_all(&fresh).map_err(|error| error.to_string())
}

fn try_judge(tidegate: &Path) -> Result<End> {
    let environment = match environment(&NEEDED) {
        Ok(environment) => environment,
        Err(problem) => return Ok(End::Skipped(problem)),
    };
    let lints: [&[&str]; 2] = [
        &["fmt", "--all", "--check", "--manifest-path", MANIFEST],
        &[
            "clippy",
            "--quiet",
            "--workspace",
            "--manifest-path",
            MANIFEST,
            "--",
            "-D",
            "warnings",
        ],
    ];
    for lint in lints {
        steps::run(
            cargo(lint).env("PYO3_PYTHON", environment.join("bin/python")),
            BUILD_MAX,
        )?;
    }
    for (folder, name, words) in [
        ("", "maturin", &["develop", "--quiet"][..]),
        ("", "pytest", &["-q", "tests"]),
        ("lab", "maturin", &["develop", "--quiet"]),
        ("", "mypy", &["-p", "tidegate", "-p", "tidegate_lab"]),
        ("", "pytest", &["-q", "lab/tests"]),
    ] {
        let mut command = within(&environment, folder, name);
        command.env("TIDEGATE", tidegate);
        steps::run(command.args(words), BUILD_MAX)?;
    }
    Ok(End::Passed)
}

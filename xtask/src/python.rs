//! The step `python` of `cargo xtask test --all`: the Python packages, in a virtual environment of
//! their own.
//!
//! `doors/python` has a lock file and a target folder of its own, so no other step builds any of
//! it. The extensions are built as the tests are, unoptimised; the environment stays, so that a
//! second run downloads nothing.

use std::path::Path;
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

fn try_judge(tidegate: &Path) -> Result<End> {
    let environment = Workspace::load()?.target.join("xtask/python");
    let program = |name: &str| environment.join("bin").join(name);
    let pip = program("pip");
    if !pip.exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&environment);
        steps::run(&mut make, BUILD_MAX)?;
    }
    let mut install = Command::new(pip);
    install.args(["install", "--quiet"]).args(NEEDED);
    if let Err(problem) = steps::run(&mut install, BUILD_MAX) {
        return Ok(End::Skipped(format!(
            "its packages cannot be had: {problem}"
        )));
    }
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
        steps::run(cargo(lint).env("PYO3_PYTHON", program("python")), BUILD_MAX)?;
    }
    for (folder, name, words) in [
        ("", "maturin", &["develop", "--quiet"][..]),
        ("", "pytest", &["-q", "tests"]),
        ("lab", "maturin", &["develop", "--quiet"]),
        ("", "mypy", &["-p", "tidegate", "-p", "tidegate_lab"]),
        ("", "pytest", &["-q", "lab/tests"]),
    ] {
        let mut command = Command::new(program(name));
        let folder = root().join("python").join(folder);
        command
            .current_dir(folder)
            .env("VIRTUAL_ENV", &environment)
            .env("TIDEGATE", tidegate);
        steps::run(command.args(words), BUILD_MAX)?;
    }
    Ok(End::Passed)
}

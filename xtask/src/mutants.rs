//! `cargo xtask mutants CRATE`: changes of a crate that its tests do not see.
//!
//! `cargo-mutants` changes one function at a time (an operator, an arm, an answer) and runs the
//! crate's tests. A survivor is killed by a test that says what is right, or is equal to what it
//! was. Its options go behind the crate's name: `--shard 1/20` is a sample.

use std::path::Path;
use std::time::Duration;

use crate::workspace::{Workspace, cargo, package};
use crate::{Arguments, Result, steps};

/// A whole crate, a night.
const MUTANTS_MAX: Duration = Duration::from_secs(12 * 3600);
/// Mutants, of a hundred that build, that are killed at least.
const KILLED_LEAST: usize = 95;

pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let name = arguments
        .next_word()
        .ok_or("name a crate: cargo xtask mutants policy --shard 1/20")?;
    let workspace = Workspace::load()?;
    if !workspace.crates.iter().any(|one| one.name == name) {
        return Err(format!("there is no crate `{name}`"));
    }
    let package = &package(&name);
    if !steps::is_there("cargo", &["mutants", "--version"]) {
        eprintln!(
            "SKIPPED   mutants of {package}: there is no cargo-mutants; `cargo install --locked cargo-mutants`"
        );
        return Ok(());
    }
    let out = workspace.target.join("xtask/mutants").join(package);
    let mut command = cargo(&["mutants", "--no-shuffle", "--package", package, "--output"]);
    command.arg(&out);
    while let Some(word) = arguments.next_word() {
        command.arg(word);
    }
    // It fails where one survives: their number counts.
    steps::status(&mut command, MUTANTS_MAX)?;
    judged(package, &out.join("mutants.out"))
}

/// Holds what `cargo-mutants` left in a folder against the least.
fn judged(package: &str, folder: &Path) -> Result<()> {
    let lines = |name: &str| -> Result<Vec<String>> {
        let file = folder.join(name);
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let killed = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
    let missed = lines("missed.txt")?;
    let all = killed + missed.len();
    let unbuilt = lines("unviable.txt")?.len();
    println!("{package}: {killed} of {all} mutants killed; {unbuilt} do not build");
    for one in &missed {
        println!("  survives: {one}");
    }
    if killed * 100 < all * KILLED_LEAST {
        return Err(format!(
            "{package}: fewer than {KILLED_LEAST} of a hundred mutants are killed"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_whose_tests_see_too_little_fails_and_the_folder_of_no_run_too() {
        let folder = std::env::temp_dir().join(format!("tidegate-mutants-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(judged("policy", &folder).is_err(), "nothing was run");
        let write = |name: &str, lines: usize| {
            std::fs::write(folder.join(name), "a\n".repeat(lines)).unwrap();
        };
        for (caught, timeout, missed, is_enough) in [
            (19, 0, 1, true),
            (18, 1, 1, true),
            (18, 0, 1, false),
            (0, 0, 0, true),
        ] {
            write("caught.txt", caught);
            write("timeout.txt", timeout);
            write("missed.txt", missed);
            write("unviable.txt", 7);
            assert_eq!(
                judged("policy", &folder).is_ok(),
                is_enough,
                "{caught} {missed}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

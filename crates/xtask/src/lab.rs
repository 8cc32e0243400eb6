//! `cargo xtask lab --twice`: the same experiment with the same seed has the same trace, twice.
//!
//! Each experiment is run by two processes, so that addresses, hashers and thread numbers differ
//! where they could leak in. The traces are compared by the hashes in the `runs` table, run by run.
//!
//! Source: style guide A9.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::csv::{self, Table};
use crate::test::{build_lab, experiment_names, experiments_out};
use crate::workspace::{Workspace, root};
use crate::{Arguments, Result, steps};

/// Longest time for one experiment.
const RUN_MAX: Duration = Duration::from_secs(10 * 60);

/// Trace hash of each run of an experiment, by its name.
type Hashes = BTreeMap<String, String>;

pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut names = Vec::new();
    let mut scale = None;
    let mut asked = false;
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--twice" => asked = true,
            "--scale" => scale = Some(arguments.value_of("--scale")?),
            option if option.starts_with('-') => return Err(format!("lab: unexpected '{option}'")),
            _ => names.push(word),
        }
    }
    if !asked {
        return Err("lab: nothing to do without --twice".into());
    }
    twice(&names, scale.as_deref())
}

/// Experiments run at their own scale: with so little memory that there is nothing left of it at a smaller one; at 1/64
/// already; or so near the end of their memory that it is another run at another scale.
const UNSCALED: [&str; 4] = [
    "small-limit",
    "stutterp",
    "stutterp-oom",
    "stutterp-readers",
];

/// Runs the experiments twice each; without names, all of them.
///
/// # Errors
/// Two runs differ, or one failed.
pub(crate) fn twice(names: &[String], scale: Option<&str>) -> Result<()> {
    let workspace = Workspace::load()?;
    let program = build_lab()?;
    let names = if names.is_empty() {
        experiment_names()?
    } else {
        names.to_vec()
    };
    let mut differ = Vec::new();
    for name in &names {
        let scale = scale.filter(|_| !UNSCALED.contains(&name.as_str()));
        let second = hashes(&workspace, &program, name, scale, "second")?;
        let checked = match scale {
            Some(_) => None,
            None => of_the_check(&workspace, &program, name),
        };
        // One that was cut short has not all of them.
        let checked = checked.filter(|first| first.keys().eq(second.keys()));
        let how = if checked.is_some() {
            "as in `experiments`"
        } else {
            "run twice"
        };
        let first = match checked {
            Some(first) => first,
            None => hashes(&workspace, &program, name, scale, "first")?,
        };
        let found = differences(&first, &second);
        println!(
            "    {name}: {} runs, {how}, {} differ",
            second.len(),
            found.len()
        );
        differ.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    if differ.is_empty() {
        Ok(())
    } else {
        Err(format!("not the same twice: {}", differ.join("; ")))
    }
}

fn hashes(
    workspace: &Workspace,
    program: &Path,
    name: &str,
    scale: Option<&str>,
    which: &str,
) -> Result<Hashes> {
    let out = workspace.target.join("xtask/twice").join(name).join(which);
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let mut command = Command::new(program);
    command
        .args(["run", name, "--replicas", "1", "--out"])
        .arg(&out)
        .current_dir(root());
    if let Some(scale) = scale {
        command.args(["--scale", scale]);
    }
    command.stdout(Stdio::null());
    steps::run(&mut command, RUN_MAX)?;
    read_hashes(&out)
}

/// The first repetition of what `experiments` has run with this very program; nothing if it has not, or cannot be read.
fn of_the_check(workspace: &Workspace, program: &Path, name: &str) -> Option<Hashes> {
    let out = experiments_out(workspace).join(name);
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let table = csv::find(&out, "runs.csv").pop();
    let ran = table.as_deref().and_then(changed);
    if ran.is_none() || ran <= changed(program) {
        return None;
    }
    let mut hashes = read_hashes(&out).ok()?;
    hashes.retain(|run, _| run.ends_with("/0"));
    Some(hashes)
}

fn read_hashes(out: &Path) -> Result<Hashes> {
    let mut hashes = Hashes::new();
    for path in csv::find(out, "runs.csv") {
        for row in Table::read(&path)?.select(&["run_id", "trace_hash"])? {
            hashes.insert(row[0].to_owned(), row[1].to_owned());
        }
    }
    if hashes.is_empty() {
        return Err(format!("no runs in {}", out.display()));
    }
    Ok(hashes)
}

/// What is not the same; a hash of nothing is not a hash.
fn differences(first: &Hashes, second: &Hashes) -> Vec<String> {
    let mut found = Vec::new();
    let mut runs: Vec<&String> = first.keys().chain(second.keys()).collect();
    runs.sort();
    runs.dedup();
    for run in runs {
        match (first.get(run), second.get(run)) {
            (Some(a), Some(b)) if a == b && a.bytes().any(|digit| digit != b'0') => {}
            (a, b) => found.push(format!("{run}: {a:?} and {b:?}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(list: &[(&str, &str)]) -> Hashes {
        list.iter()
            .map(|(run, hash)| ((*run).to_owned(), (*hash).to_owned()))
            .collect()
    }

    #[test]
    fn equal_traces_are_equal() {
        let first = hashes(&[("a", "1f"), ("b", "20")]);
        assert!(differences(&first, &first.clone()).is_empty());
    }

    #[test]
    fn other_missing_and_empty_traces_differ() {
        let first = hashes(&[("a", "1f"), ("b", "20"), ("c", "0000")]);
        let second = hashes(&[("a", "1e"), ("c", "0000"), ("d", "1")]);
        assert_eq!(differences(&first, &second).len(), 4);
    }
}

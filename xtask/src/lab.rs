//! `cargo xtask lab`: every experiment of the lab still has the trace that is stored for it.
//!
//! `experiments/hashes.txt` has a line for each row and column of each experiment: the trace hash
//! of its first repetition, at a fixed scale and the scenario's own seed. `--twice` also runs each
//! experiment in a second process, so that addresses, hashers and thread numbers differ where they
//! could leak in. `--bless` writes the list anew, or the lines of the experiments that are named.
//!
//! The list holds for every machine. A trace depends on integers alone; the numbers of a scenario
//! are floating point, but are only multiplied, divided and rounded, which IEEE 754 defines to the
//! bit. No function of the C library's mathematics takes part, and nothing asks how many CPUs,
//! which byte order or which page size the machine has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::csv::{self, Table};
use crate::experiments;
use crate::workspace::{Workspace, build_program, root};
use crate::{Arguments, Result, at, steps};

/// Longest time for one experiment.
const RUN_MAX: Duration = Duration::from_secs(10 * 60);

/// Part of its size at which an experiment is run here; determinism does not depend on it.
const SCALE: &str = "0.03125";

/// The list of trace hashes, from the root.
const STORED: &str = "experiments/hashes.txt";

const STORED_HEAD: &str = "\
# Trace hashes of the experiments: experiment, row/column, hash of the first repetition.
# Each at `--scale 1/32`, where `tidegate run NAME --scale 1/32` compares; a default run of those below compares as it is.
# At their own scale: file-search get-scan map-beside small-limit stutterp stutterp-oom stutterp-readers thpavail write-ahead ycsb
# Written by `cargo xtask lab --bless [EXPERIMENT]...`. A commit that changes a line says why.
";

/// Trace hash of each run of an experiment, by its name.
type Hashes = BTreeMap<String, String>;

/// The command's use of the runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Check,
    Twice,
    Bless,
}

/// Checks the experiments against the list, runs them twice, or writes the list.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let mut names = Vec::new();
    let mut scale = SCALE.to_owned();
    let mut what = What::Check;
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--twice" if what == What::Check => what = What::Twice,
            "--bless" if what == What::Check => what = What::Bless,
            "--scale" => scale = arguments.value_of("--scale")?,
            option if option.starts_with('-') => return Err(format!("lab: unexpected '{option}'")),
            _ => names.push(word),
        }
    }
    if scale != SCALE && what != What::Twice {
        return Err(format!(
            "lab: {STORED} has the traces at scale {SCALE}; another one goes with --twice only"
        ));
    }
    experiments::named("lab", &names)?;
    match what {
        What::Check => judge(&build_program()?, &names, &scale, false),
        What::Twice => judge(&build_program()?, &names, &scale, true),
        What::Bless => bless(&names),
    }
}

/// Every experiment, run by this program, compared with the list, which another process wrote, most
/// often on another machine: that is what running it twice would show.
///
/// # Errors
/// One is not as the list has it, or failed.
pub(crate) fn hashes_hold(program: &Path, which: Which) -> Result<()> {
    let names = match which {
        Which::All => Vec::new(),
        Which::Short => {
            println!(
                "    SKIPPED: {}: up to minutes each in the tests' build; cargo xtask test --all has them",
                LONG.join(", ")
            );
            let mut names = experiments::names()?;
            names
                .retain(|name| !LONG.contains(&name.as_str()) && !BY_NAME.contains(&name.as_str()));
            names
        }
        Which::Named(names) => {
            let is_short =
                |name: &String| !LONG.contains(&name.as_str()) && !BY_NAME.contains(&name.as_str());
            let (short, long): (Vec<_>, Vec<_>) = names.into_iter().partition(is_short);
            if !long.is_empty() {
                let long = long.join(" ");
                println!(
                    "    SKIPPED: {long}: minutes in the tests' build; cargo xtask lab {long}"
                );
            }
            if short.is_empty() {
                return Ok(());
            }
            short
        }
    };
    judge(program, &names, SCALE, false)
}

/// Which experiments are compared with the list.
#[derive(Clone)]
pub(crate) enum Which {
    /// All but those that run by name alone.
    All,
    /// Those of them that take seconds.
    Short,
    /// Those that are named, but for the ones that take minutes.
    Named(Vec<String>),
}

/// Experiments run at their own scale: with so little memory that there is nothing left of it at a
/// smaller one; at 1/64 already; or so near the end of their memory that it is another run at
/// another scale.
const UNSCALED: [&str; 10] = [
    "file-search",
    "get-scan",
    "map-beside",
    "small-limit",
    "stutterp",
    "stutterp-oom",
    "stutterp-readers",
    "thpavail",
    "write-ahead",
    "ycsb",
];

/// Nineteen twentieths of the time that all of them take.
const LONG: [&str; 7] = [
    "data-reread",
    "fsmark-small",
    "metadata-reread",
    "stutterp",
    "stutterp-readers",
    "zone-fsmark",
    "zone-mapped",
];

/// Minutes each, at the smallest size that shows anything: run when they are named. Papers' claims
/// about them are judged by `reproduce` all the same.
pub(crate) const BY_NAME: [&str; 2] = ["stutterp-oom", "thpavail"];

/// Runs the experiments, without names all of them, and compares.
fn judge(program: &Path, names: &[String], scale: &str, twice: bool) -> Result<()> {
    let workspace = Workspace::load()?;
    let known = experiments::names()?;
    let stored = Stored::read()?;
    let mut differ = Vec::new();
    if names.is_empty() {
        let gone = stored
            .experiments
            .keys()
            .filter(|name| !known.contains(name));
        differ.extend(gone.map(|name| format!("{STORED} has {name}, which is no experiment")));
    }
    let mut changed = BTreeSet::new();
    let chosen = chosen(names, &known);
    for name in &chosen {
        let own = Some(scale).filter(|_| !UNSCALED.contains(&name.as_str()));
        // At its own size it may have been run a moment ago, for its bands.
        let checked = match own {
            Some(_) => None,
            None => of_the_check(&workspace, program, name),
        };
        let is_checked = checked.is_some();
        let first = match checked {
            Some(first) => first,
            None => hashes(&workspace, program, name, own, "first")?,
        };
        let mut said = format!("{} runs", first.len());
        if is_checked {
            said += ", those of its bands";
        }
        if twice {
            let second = hashes(&workspace, program, name, own, "second")?;
            let found = differences(&first, &second);
            let _ = write!(said, ", run twice, {} differ", found.len());
            differ.extend(found.into_iter().map(|what| format!("{name}: {what}")));
        }
        if own.is_none_or(|scale| scale == SCALE) {
            let found = differences(stored.of(name), &first);
            let _ = write!(said, ", {} not as stored", found.len());
            for what in found {
                differ.push(format!("{name}: stored and run: {what}"));
                changed.insert(name.as_str());
            }
        } else {
            said += ", stored at another scale";
        }
        println!("    {name}: {said}");
    }
    if differ.is_empty() {
        return Ok(());
    }
    let mut problem = format!("traces differ:\n  {}", differ.join("\n  "));
    if !changed.is_empty() {
        let changed: Vec<&str> = changed.into_iter().collect();
        let _ = write!(
            problem,
            "\nIf the change is on purpose: cargo xtask lab --bless {}, and say in the commit why",
            changed.join(" ")
        );
    }
    Err(problem)
}

/// The experiments that are named; without names all but those that run by name alone.
fn chosen(names: &[String], known: &[String]) -> Vec<String> {
    if !names.is_empty() {
        return names.to_vec();
    }
    let (by_name, all): (Vec<_>, Vec<_>) =
        (known.iter().cloned()).partition(|name| BY_NAME.contains(&name.as_str()));
    println!(
        "    SKIPPED: {}: by name alone, as they come no smaller",
        by_name.join(", ")
    );
    all
}

/// Writes the list, or the lines of the named experiments in it.
fn bless(names: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let program = build_program()?;
    let known = experiments::names()?;
    let mut stored = Stored::read()?;
    let before = stored.experiments.clone();
    stored.experiments.retain(|name, _| known.contains(name));
    for name in &chosen(names, &known) {
        let scale = Some(SCALE).filter(|_| !UNSCALED.contains(&name.as_str()));
        let found = hashes(&workspace, &program, name, scale, "second")?;
        if let Some(run) = found
            .iter()
            .find_map(|(run, hash)| is_empty(hash).then_some(run))
        {
            return Err(format!("{name}: {run} has an empty trace"));
        }
        let empty = Hashes::new();
        let changed = differences(before.get(name).unwrap_or(&empty), &found).len();
        println!("    {name}: {} runs, {changed} changed", found.len());
        stored.experiments.insert(name.clone(), found);
    }
    stored.write()
}

/// The list of trace hashes, as it is in the tree.
#[derive(Default)]
struct Stored {
    experiments: BTreeMap<String, Hashes>,
}

impl Stored {
    fn path() -> PathBuf {
        root().join(STORED)
    }

    /// Reads the list; empty if there is none yet.
    fn read() -> Result<Self> {
        match fs::read_to_string(Self::path()) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{STORED}: {error}")),
        }
    }

    /// Every line that is no comment names a run that no line before it named.
    fn parse(text: &str) -> Result<Self> {
        let mut stored = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let [name, run, hash] = words[..] else {
                return Err(format!("{STORED}:{}: not three words", at + 1));
            };
            let runs = stored.experiments.entry(name.to_owned()).or_default();
            if runs.insert(run.to_owned(), hash.to_owned()).is_some() {
                return Err(format!("{STORED}:{}: {name} {run} again", at + 1));
            }
        }
        Ok(stored)
    }

    fn text(&self) -> String {
        let mut text = STORED_HEAD.to_owned();
        for (name, runs) in &self.experiments {
            for (run, hash) in runs {
                let _ = writeln!(text, "{name} {run} {hash}");
            }
        }
        text
    }

    fn write(&self) -> Result<()> {
        fs::write(Self::path(), self.text()).map_err(|error| format!("{STORED}: {error}"))
    }

    fn of(&self, name: &str) -> &Hashes {
        static NONE: Hashes = Hashes::new();
        self.experiments.get(name).unwrap_or(&NONE)
    }
}

/// Runs an experiment once and answers its hashes.
fn hashes(
    workspace: &Workspace,
    program: &Path,
    name: &str,
    scale: Option<&str>,
    which: &str,
) -> Result<Hashes> {
    let out = workspace.target.join("xtask/twice").join(name).join(which);
    run_once(program, name, scale, &[], &out, RUN_MAX)?;
    read_hashes(&out)
}

/// Runs one repetition of an experiment; its results are all that the folder then has.
pub(crate) fn run_once(
    program: &Path,
    name: &str,
    scale: Option<&str>,
    options: &[&str],
    out: &Path,
    limit: Duration,
) -> Result<()> {
    if out.exists() {
        fs::remove_dir_all(out).map_err(at(out))?;
    }
    let mut command = Command::new(program);
    command
        .args(["run", name, "--replicas", "1"])
        .args(scale.iter().flat_map(|scale| ["--scale", scale]))
        .args(options)
        .arg("--out")
        .arg(out)
        .current_dir(root())
        .stdout(Stdio::null());
    steps::run(&mut command, limit)
}

/// The first repetition of what `reproduce` or `experiments` has run whole with this very program;
/// nothing if neither has, or it cannot be read.
fn of_the_check(workspace: &Workspace, program: &Path, name: &str) -> Option<Hashes> {
    let out = experiments::reproduced(workspace, program, name)
        .unwrap_or_else(|| experiments::out(workspace).join(name));
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let table = csv::find(&out, "runs.csv").pop();
    let ran = table.as_deref().and_then(changed);
    if ran.is_none() || ran <= changed(program) || !is_own_size(&out) {
        return None;
    }
    read_hashes(&out).ok()
}

/// True if all runs of a folder were as large as the scenario beside them says; `reproduce` runs
/// some smaller.
fn is_own_size(out: &Path) -> bool {
    let text = fs::read_to_string(out.join("scenario.toml")).unwrap_or_default();
    let scenario = text.parse::<toml::Table>().unwrap_or_default();
    let own = scenario.get("run").and_then(|run| run.get("scale"));
    let own = own.and_then(toml::Value::as_float).unwrap_or(1.0);
    csv::find(out, "runs.csv").iter().all(|path| {
        let Ok(table) = Table::read(path) else {
            return false;
        };
        let rows = table.select(&["scale"]).unwrap_or_default();
        !rows.is_empty() && rows.iter().all(|row| row[0].parse() == Ok(own))
    })
}

/// The hashes of the first repetitions, by row and column.
fn read_hashes(out: &Path) -> Result<Hashes> {
    let mut hashes = Hashes::new();
    for path in csv::find(out, "runs.csv") {
        for row in Table::read(&path)?.select(&["run_id", "trace_hash"])? {
            if let Some(run) = row[0].strip_suffix("/0") {
                hashes.insert(run.to_owned(), row[1].to_owned());
            }
        }
    }
    if hashes.is_empty() {
        return Err(format!("no runs in {}", out.display()));
    }
    Ok(hashes)
}

/// The differences; a hash of nothing is not a hash.
fn differences(first: &Hashes, second: &Hashes) -> Vec<String> {
    let mut found = Vec::new();
    let mut runs: Vec<&String> = first.keys().chain(second.keys()).collect();
    runs.sort();
    runs.dedup();
    for run in runs {
        match (first.get(run), second.get(run)) {
            (Some(a), Some(b)) if a == b && !is_empty(a) => {}
            (a, b) => {
                let word = |hash: Option<&String>| hash.map_or("none", String::as_str).to_owned();
                found.push(format!("{run}: {} and {}", word(a), word(b)));
            }
        }
    }
    found
}

/// The hash of a trace with nothing in it.
fn is_empty(hash: &str) -> bool {
    hash.bytes().all(|digit| digit == b'0')
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

    #[test]
    fn runs_of_another_size_are_not_those_of_the_list() {
        let out = std::env::temp_dir().join(format!("tidegate-own-size-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let write = |scale: &str, runs: &str| {
            fs::write(out.join("scenario.toml"), format!("[run]\n{scale}")).unwrap();
            fs::write(out.join("runs.csv"), format!("run_id,scale\n{runs}")).unwrap();
        };
        write("scale = 0.125", "a/0,0.125\nb/0,0.125\n");
        assert!(is_own_size(&out));
        write("scale = 0.125", "a/0,0.125\nb/0,0.0625\n");
        assert!(!is_own_size(&out));
        write("", "a/0,1\n");
        assert!(is_own_size(&out), "whole where nothing is said");
        write("", "");
        assert!(!is_own_size(&out));
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn the_list_is_read_as_it_was_written() {
        let text = format!("{STORED_HEAD}dd 1/linux 1f\ndd 2/linux 20\nsmall all/ours 3\n");
        let stored = Stored::parse(&text).unwrap();
        assert_eq!(
            *stored.of("dd"),
            hashes(&[("1/linux", "1f"), ("2/linux", "20")])
        );
        assert!(stored.of("none").is_empty());
        assert_eq!(stored.text(), text);
        assert!(STORED_HEAD.contains(&format!("own scale: {}\n", UNSCALED.join(" "))));
    }

    #[test]
    fn a_line_that_is_there_twice_or_cut_is_refused() {
        for text in [
            "dd 1/linux 1f\ndd 1/linux 1f\n",
            "dd 1/linux\n",
            "<<<<<<< HEAD\n",
        ] {
            assert!(Stored::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_has_every_experiment_and_no_other() {
        let stored = Stored::parse(&fs::read_to_string(Stored::path()).unwrap()).unwrap();
        let listed: Vec<String> = stored.experiments.keys().cloned().collect();
        let known = experiments::names().unwrap();
        assert_eq!(listed, known);
        assert!(
            BY_NAME
                .iter()
                .all(|name| known.contains(&(*name).to_owned()))
        );
    }
}

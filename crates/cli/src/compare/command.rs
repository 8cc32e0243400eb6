//! The command: load, run, measure, print, write.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use workload::Stop;

use super::fault::Fault;
use super::lab::{self, COLUMNS, LabError, Planned};
use super::measure::{Measures, measure};
use super::recording::{COLUMN, Recording};
use super::setting::{Origin, Setting};
use super::what_if::{Change, ChangeError};
use super::{several, show};
use crate::args::CompareArguments;
use crate::outcome::Outcome;
use crate::output::{self, About, OutputError};
use crate::program::{INTERRUPTED, OK, stop_at_interrupt};
use crate::run::LiveFiles;
use crate::terminal::{self, Progress};

/// Said beside every field recording.
const CHAIN: &str = "a field recording of a whole chain (loop device on FUSE on NBD, ext4): its journal \
                     holds writers up for seconds that no pause explains, completions come in lumps of \
                     several MiB, single runs differ by 20 % and more; compare counts, medians and \
                     differences, not sums (oracle/README.md)";

/// The comparison cannot be made: always with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A recording that cannot be used.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A `--set` or `--given` that fits nowhere.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The lab could not run it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The results could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The command line asks for what does not fit together.
    #[error("{0}")]
    Usage(String),
}

/// A recording with its runs.
pub(super) struct Side {
    pub(super) recording: Recording,
    pub(super) recorded: Measures,
    /// In the order of the columns.
    pub(super) lab: Vec<Measures>,
}

/// Does what the command line says; answers the exit status.
pub(crate) fn main(arguments: &CompareArguments) -> Result<u8, CompareError> {
    let stop = Stop::default();
    stop_at_interrupt(&stop, &LiveFiles::default());
    match run(arguments, &stop) {
        Err(CompareError::Lab(LabError::Interrupted)) => {
            terminal::complain("tidegate: interrupted; nothing was written");
            Ok(INTERRUPTED)
        }
        other => other,
    }
}

fn run(arguments: &CompareArguments, stop: &Stop) -> Result<u8, CompareError> {
    let changes = parse(&arguments.set)?;
    let given = parse(&arguments.given)?;
    let mut recordings = Vec::new();
    for path in &arguments.recordings {
        if arguments.recordings.len() > 1 && is_readme(path) {
            continue;
        }
        recordings.push(Recording::load_with(path, &given, &changes)?);
    }
    if recordings.is_empty() {
        return Err(CompareError::Usage(
            "no recording among the names given".into(),
        ));
    }
    tell_apart(&mut recordings);
    let columns: Vec<&str> = if arguments.policy.is_empty() {
        COLUMNS.to_vec()
    } else {
        arguments.policy.iter().map(String::as_str).collect()
    };
    let folder = output::folder(
        arguments.out.as_deref(),
        &format!("compare-{}", lab::plain(&recordings[0].setting.name)),
        arguments.seed,
    )?;
    let plans = recordings
        .iter()
        .map(|recording| lab::plan(&recording.setting, &columns, arguments.seed))
        .collect::<Result<Vec<_>, _>>()?;
    let runs = run_plans(&plans.iter().collect::<Vec<_>>(), stop)?;
    let mut outcomes = Vec::new();
    let mut sides = Vec::new();
    for ((recording, plan), runs) in recordings.into_iter().zip(&plans).zip(runs) {
        let mut recording = recording;
        recording.notes.extend(plan.notes.iter().cloned());
        sides.push(side(recording, runs, &mut outcomes));
    }
    let heads: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let mut text = String::new();
    for side in &sides {
        text.push_str(&one(side, &heads));
    }
    if sides.len() > 1 {
        text.push_str(&several::render(&sides, &heads));
    }
    terminal::print(&text);
    write(&folder, &plans, &outcomes, &text, arguments.seed)?;
    Ok(OK)
}

/// What `recordings/*` names beside recordings.
fn is_readme(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.to_ascii_uppercase().starts_with("README"))
}

fn parse(sets: &[String]) -> Result<Vec<Change>, ChangeError> {
    sets.iter().map(|set| Change::parse(set)).collect()
}

/// Two recordings of one name get a number behind it.
fn tell_apart(recordings: &mut [Recording]) {
    for index in 1..recordings.len() {
        let (before, rest) = recordings.split_at_mut(index);
        let own = rest[0].setting.name.clone();
        let is_taken = |name: &str| before.iter().any(|other| other.setting.name == name);
        let mut name = own.clone();
        let mut number = 2;
        while is_taken(&name) {
            name = format!("{own}-{number}");
            number += 1;
        }
        rest[0].setting.name.clone_from(&name);
        rest[0].outcome.case = name;
    }
}

fn run_plans(plans: &[&Planned], stop: &Stop) -> Result<Vec<Vec<Outcome>>, LabError> {
    let progress = Progress::new(lab::orders(plans).len());
    let runs = lab::run(plans, stop, &progress);
    progress.finish();
    runs
}

/// Measures a recording and its runs; their outcomes go to the results.
fn side(recording: Recording, runs: Vec<Outcome>, outcomes: &mut Vec<Outcome>) -> Side {
    let setting = &recording.setting;
    let recorded = measure(setting, &recording.outcome);
    let lab = runs.iter().map(|run| measure(setting, run)).collect();
    outcomes.push(recording.outcome.clone());
    outcomes.extend(runs.into_iter().map(|mut run| {
        run.case.clone_from(&setting.name);
        run
    }));
    Side {
        recorded,
        lab,
        recording,
    }
}

/// The table of one recording.
fn one(side: &Side, columns: &[String]) -> String {
    let setting: &Setting = &side.recording.setting;
    let mut notes = side.recording.notes.clone();
    if setting.origin == Origin::Chain {
        notes.push(CHAIN.into());
    }
    let heads: Vec<String> = [COLUMN.to_owned()].iter().chain(columns).cloned().collect();
    let measures: Vec<&Measures> = [&side.recorded].into_iter().chain(&side.lab).collect();
    format!(
        "{}: {}\n{}\n{}\n",
        setting.name,
        setting.summary(),
        show::table(&heads, &show::rows(setting, &measures)),
        show::notes(&notes)
    )
}

fn write(
    folder: &Path,
    plans: &[Planned],
    outcomes: &[Outcome],
    printed: &str,
    seed: u64,
) -> Result<(), CompareError> {
    let first = &plans[0];
    let text = &first.source.text;
    let digest = Sha256::digest(text.as_bytes());
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let about = About {
        experiment: first.scenario.name.get_ref().clone(),
        title: "a recording beside the lab".into(),
        scenario_id: first.source.origin.clone(),
        scenario_text: text.clone(),
        scenario_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        master_seed: seed,
        started: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        host: host.trim().to_owned(),
        live: false,
    };
    let tables = output::tables(&about, outcomes, &[]);
    output::write(folder, &about, &tables, outcomes, printed)?;
    for plan in plans.iter().skip(1) {
        let path: PathBuf = folder.join(format!("scenario-{}.toml", plan.scenario.name.get_ref()));
        std::fs::write(&path, &plan.source.text).map_err(|error| {
            CompareError::Usage(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    terminal::print(&format!(
        "Results: {} (begin with report.html)\n",
        folder.display()
    ));
    Ok(())
}

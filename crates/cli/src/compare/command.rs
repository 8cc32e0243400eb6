//! The command: load, run, measure, print, write, judge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use workload::Stop;

use super::answer::{self, Answered};
use super::bands::Verdict;
use super::fault::Fault;
use super::lab::{self, COLUMNS, LabError, Planned};
use super::measure::{Measures, measure};
use super::recording::{COLUMN, Recording};
use super::setting::{Origin, Setting};
use super::several::{self, Beside};
use super::what_if::{Change, ChangeError};
use super::{bands, pressure, show};
use crate::args::CompareArguments;
use crate::outcome::Outcome;
use crate::output::{self, About, Folder, OutputError, Shown, TidyTable};
use crate::program::{FAILED, INTERRUPTED, OK, stop_at_interrupt};
use crate::run::LiveFiles;
use crate::terminal::{self, Progress};

/// Said beside every field recording.
const CHAIN: &str = "a field recording of a whole chain (loop device on FUSE on NBD, ext4): its journal \
                     holds writers up for seconds that no pause explains, completions come in lumps of \
                     several MiB, its sustained rate is 13 to 15 MiB/s where 16 were set, single runs \
                     differ by 20 % and more; compare counts, medians and differences between settings, \
                     not sums (docs/reference/field-recordings.md)";

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
struct Side {
    recording: Recording,
    recorded: Measures,
    /// In the order of the columns.
    lab: Vec<Measures>,
    /// With the changes of `--set`.
    changed: Option<Changed>,
}

/// The changed setting, and its runs.
struct Changed {
    setting: Setting,
    lab: Vec<Measures>,
}

/// Does what the command line says; answers the exit status.
pub(crate) fn main(arguments: &CompareArguments) -> Result<u8, CompareError> {
    let stop = Stop::default();
    stop_at_interrupt(&stop, &LiveFiles::default());
    match run(arguments, &stop) {
        Err(CompareError::Lab(LabError::Interrupted)) => {
            terminal::complain("tidegate: interrupted before the comparison was complete");
            Ok(INTERRUPTED)
        }
        Err(CompareError::Lab(error @ LabError::Run(_))) => {
            terminal::complain(&format!("tidegate: {error}"));
            Ok(FAILED)
        }
        other => other,
    }
}

/// Recordings of each kind are compared among themselves.
fn run(arguments: &CompareArguments, stop: &Stop) -> Result<u8, CompareError> {
    let all = arguments.recordings.iter();
    let named = all.filter(|path| arguments.recordings.len() == 1 || !is_readme(path));
    let (pressure, throttling): (Vec<PathBuf>, Vec<PathBuf>) = named
        .cloned()
        .partition(|path| pressure::Recording::is_one(path));
    if let (Some(one), Some(other), Some(_)) =
        (pressure.first(), throttling.first(), &arguments.out)
    {
        return Err(CompareError::Usage(format!(
            "--out is one folder, and these are recordings of two kinds: {} is of memory pressure, {} of dirty throttling; \
             name one kind at a time, or leave --out out",
            one.display(),
            other.display()
        )));
    }
    let mut code = OK;
    if !pressure.is_empty() {
        code = code.max(pressure::run(arguments, &pressure, stop)?);
    }
    if !throttling.is_empty() || pressure.is_empty() {
        code = code.max(throttling_of(arguments, &throttling, stop)?);
    }
    Ok(code)
}

/// What `recordings/*` names beside recordings.
fn is_readme(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.to_ascii_uppercase().starts_with("README"))
}

fn throttling_of(
    arguments: &CompareArguments,
    paths: &[PathBuf],
    stop: &Stop,
) -> Result<u8, CompareError> {
    let changes = parse(&arguments.set)?;
    let given = parse(&arguments.given)?;
    let mut recordings = load(paths, &given, &changes)?;
    let mut names = Names::default();
    names.take_all(&mut recordings);
    let against = match &arguments.against {
        None => None,
        Some(_) if recordings.len() > 1 => {
            return Err(CompareError::Usage(
                "--against is the answer to a change of one recording: name one, not several"
                    .into(),
            ));
        }
        Some(path) => Some(Recording::load_with(path, &given, &changes)?),
    };
    let columns: Vec<&str> = if arguments.policy.is_empty() {
        COLUMNS.to_vec()
    } else {
        arguments.policy.iter().map(String::as_str).collect()
    };
    let mut plans = Vec::new();
    let mut changed = Vec::new();
    for recording in &recordings {
        plans.push(lab::plan(&recording.setting, &columns, arguments.seed)?);
        let mut setting = changed_setting(recording, &changes)?;
        if let Some(setting) = &mut setting {
            setting.name = names.take(&format!("{}-changed", setting.name));
        }
        changed.push(setting);
    }
    for setting in changed.iter().flatten() {
        plans.push(lab::plan(setting, &columns, arguments.seed)?);
    }
    let settings = recordings.iter().map(|recording| &recording.setting);
    let settings = settings.chain(changed.iter().flatten());
    let rows: Vec<String> = settings.map(|setting| setting.name.clone()).collect();
    // Made before the work, so that a folder that cannot be made does not cost the results.
    let name = format!("compare-{}", lab::plain(&recordings[0].setting.name));
    let folder = Folder::make(arguments.out.as_deref(), &name, arguments.seed)?;
    let runs = match run_plans(&plans, stop) {
        Ok(runs) => runs,
        Err(error) => {
            folder.remove_made();
            return Err(error.into());
        }
    };
    let mut runs = runs.into_iter();
    let mut outcomes = Vec::new();
    let mut sides = Vec::new();
    let mut planned = plans.iter();
    for (recording, plan) in recordings.into_iter().zip(planned.by_ref()) {
        let runs = runs.next().unwrap_or_default();
        sides.push(side(recording, plan, runs, &mut outcomes));
    }
    for (side, setting) in sides.iter_mut().zip(changed) {
        let Some(setting) = setting else { continue };
        if let Some(against) = &against {
            outcomes.push(relabelled(&against.outcome, &setting.name));
        }
        let runs = runs.next().unwrap_or_default();
        let notes = planned.next().map(|plan| plan.notes.iter().cloned());
        side.recording.notes.extend(notes.into_iter().flatten());
        let lab = runs.iter().map(|run| measure(&setting, run)).collect();
        outcomes.extend(runs.iter().map(|run| relabelled(run, &setting.name)));
        side.changed = Some(Changed { setting, lab });
    }
    let text = render(&sides, &columns, &changes, against.as_ref());
    terminal::print(&text);
    let mut tables = vec![show::tidy(&figures(&sides, &columns))];
    if sides.len() > 1 {
        tables.push(several::table(&beside(&sides)));
    }
    let made = Made {
        rows: &rows,
        plans: &plans,
        outcomes: &outcomes,
        printed: &text,
        seed: arguments.seed,
    };
    write(folder.path(), &made, tables)?;
    let verdicts = sides.iter().map(|side| {
        let setting = &side.recording.setting;
        let verdicts = bands::judge(setting, &side.recorded, &side.lab[0]);
        (setting.name.as_str(), verdicts)
    });
    Ok(judged(arguments.check, verdicts, columns[0]))
}

fn load(
    paths: &[PathBuf],
    given: &[Change],
    changes: &[Change],
) -> Result<Vec<Recording>, CompareError> {
    let mut recordings = Vec::new();
    for path in paths {
        recordings.push(Recording::load_with(path, given, changes)?);
    }
    if recordings.is_empty() {
        let problem = "no recording among the names given; name a folder of tables or a trace";
        return Err(CompareError::Usage(problem.into()));
    }
    Ok(recordings)
}

fn parse(sets: &[String]) -> Result<Vec<Change>, ChangeError> {
    sets.iter().map(|set| Change::parse(set)).collect()
}

/// The setting under the changes that its recording did not need for itself; `None`: there are none.
fn changed_setting(
    recording: &Recording,
    changes: &[Change],
) -> Result<Option<Setting>, CompareError> {
    let mut setting = recording.setting.clone();
    let mut any = false;
    for change in changes {
        if recording.filled.contains(&change.key) {
            continue;
        }
        change
            .put(&mut setting)
            .map_err(|problem| CompareError::Usage(format!("--set {change}: {problem}")))?;
        any = true;
    }
    if !any {
        return Ok(None);
    }
    setting.check().map_err(|problem| {
        let sets: Vec<String> = changes
            .iter()
            .map(|change| format!("--set {change}"))
            .collect();
        CompareError::Usage(format!(
            "{}: {}; {}",
            sets.join(" "),
            problem.title,
            problem.allowed
        ))
    })?;
    Ok(Some(setting))
}

/// Names that tables and files of the results have already.
#[derive(Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// The name as files can have it, with a number behind it if another has that.
    pub(super) fn take(&mut self, own: &str) -> String {
        let own = output::plain(own);
        let numbered = (2..).map(|number| format!("{own}-{number}"));
        let mut names = core::iter::once(own.clone()).chain(numbered);
        let free = names.find(|name| self.0.insert(name.clone()));
        free.expect("there are more numbers than names")
    }

    /// Tells recordings apart.
    fn take_all(&mut self, recordings: &mut [Recording]) {
        for recording in recordings {
            let name = self.take(&recording.setting.name);
            recording.setting.name.clone_from(&name);
            recording.outcome.case = name;
        }
    }
}

pub(super) fn run_plans(plans: &[Planned], stop: &Stop) -> Result<Vec<Vec<Outcome>>, LabError> {
    let progress = Progress::new(lab::orders(plans).len());
    let runs = lab::run(plans, stop, &progress);
    progress.finish();
    runs
}

pub(super) fn relabelled(outcome: &Outcome, case: &str) -> Outcome {
    Outcome {
        case: case.to_owned(),
        ..outcome.clone()
    }
}

/// Measures a recording and its runs; their outcomes go to the results.
fn side(
    mut recording: Recording,
    plan: &Planned,
    runs: Vec<Outcome>,
    outcomes: &mut Vec<Outcome>,
) -> Side {
    recording.notes.extend(plan.notes.iter().cloned());
    if recording.setting.origin == Origin::Chain {
        recording.notes.push(CHAIN.into());
    }
    let setting = &recording.setting;
    let recorded = measure(setting, &recording.outcome);
    let lab = runs.iter().map(|run| measure(setting, run)).collect();
    outcomes.push(recording.outcome.clone());
    outcomes.extend(runs.iter().map(|run| relabelled(run, &setting.name)));
    Side {
        recording,
        recorded,
        lab,
        changed: None,
    }
}

fn render(
    sides: &[Side],
    columns: &[&str],
    changes: &[Change],
    against: Option<&Recording>,
) -> String {
    let mut text = String::new();
    for side in sides {
        text.push_str(&one(side, columns));
        text.push('\n');
        if let Some(changed) = &side.changed {
            let against = against
                .map(|recording| (recording, measure(&recording.setting, &recording.outcome)));
            text.push_str(&answer::render(&Answered {
                before: &side.recording.setting,
                after: &changed.setting,
                changes,
                columns,
                recorded: &side.recorded,
                lab: &side.lab,
                changed: &changed.lab,
                against: against
                    .as_ref()
                    .map(|(recording, measures)| (*recording, measures)),
            }));
        }
    }
    if sides.len() > 1 {
        text.push_str(&several::render(&beside(sides), columns[0]));
    }
    let of: Vec<(&str, &[String])> = sides
        .iter()
        .map(|side| {
            let name = side.recording.setting.name.as_str();
            (name, side.recording.notes.as_slice())
        })
        .collect();
    text.push_str(&notes(&of));
    text
}

/// All notes of (recording, its notes); what is said of several recordings is said once.
pub(super) fn notes(sides: &[(&str, &[String])]) -> String {
    let mut seen: Vec<&String> = Vec::new();
    for note in sides.iter().flat_map(|(_, notes)| *notes) {
        if !seen.contains(&note) {
            seen.push(note);
        }
    }
    let line = |note: &String| {
        let of: Vec<&str> = sides
            .iter()
            .filter(|(_, notes)| notes.contains(note))
            .map(|(name, _)| *name)
            .collect();
        if of.len() == sides.len() {
            format!("note: {note}\n")
        } else {
            format!("note ({}): {note}\n", of.join(", "))
        }
    };
    seen.into_iter().map(line).collect()
}

fn beside(sides: &[Side]) -> Vec<Beside<'_>> {
    sides
        .iter()
        .filter_map(|side| {
            Some(Beside {
                setting: &side.recording.setting,
                recorded: &side.recorded,
                lab: side.lab.first()?,
            })
        })
        .collect()
}

/// The table of one recording.
fn one(side: &Side, columns: &[&str]) -> String {
    let setting: &Setting = &side.recording.setting;
    let heads: Vec<&str> = [COLUMN]
        .into_iter()
        .chain(columns.iter().copied())
        .collect();
    let measures: Vec<&Measures> = [&side.recorded].into_iter().chain(&side.lab).collect();
    let mut text = format!(
        "{}: {}\n{}",
        setting.name,
        setting.summary(),
        show::table(&heads, &show::rows(setting, &measures)),
    );
    text.push_str(&bands::render(
        setting,
        &side.recorded,
        &side.lab[0],
        columns[0],
    ));
    text
}

/// Names every band that does not hold, if that is asked for; answers the exit status.
pub(super) fn judged<'a>(
    check: bool,
    sides: impl Iterator<Item = (&'a str, Vec<Verdict>)>,
    column: &str,
) -> u8 {
    let mut code = OK;
    for (name, verdicts) in sides.filter(|_| check) {
        for verdict in verdicts.iter().filter(|verdict| !verdict.holds) {
            code = FAILED;
            terminal::complain(&format!("tidegate: {name}, {column}: {}", verdict.line()));
        }
    }
    code
}

/// What is written.
pub(super) struct Made<'a> {
    /// What the plans are called in the tables, in their order.
    pub(super) rows: &'a [String],
    pub(super) plans: &'a [Planned],
    pub(super) outcomes: &'a [Outcome],
    pub(super) printed: &'a str,
    pub(super) seed: u64,
}

pub(super) fn write(
    folder: &Path,
    made: &Made<'_>,
    own: Vec<TidyTable>,
) -> Result<(), CompareError> {
    let plans = made.plans;
    let first = &plans[0];
    let mut about = About {
        title: "a recording beside the lab".into(),
        master_seed: made.seed,
        ..About::of(&first.scenario, &first.source, false)
    };
    if plans.len() > 1 {
        about.experiment = format!("{} recordings", plans.len());
        about.title = "beside the lab".into();
        about.scenario_id = format!("{}, the others in scenario-NAME.toml", about.scenario_id);
    }
    let mut tables = output::tables(&about, made.outcomes, &[]);
    tables.extend(own);
    let shown = Shown::default();
    output::write(folder, &about, &tables, made.outcomes, made.printed, &shown)?;
    for (row, plan) in made.rows.iter().zip(plans).skip(1) {
        let path = folder.join(output::scenario_of(row));
        std::fs::write(&path, &plan.source.text).map_err(|error| {
            let path = path.display();
            CompareError::Usage(format!(
                "cannot write {path}: {error}; name another folder with --out"
            ))
        })?;
    }
    terminal::print(&format!(
        "Results: {} (begin with report.html)\n",
        folder.display()
    ));
    Ok(())
}

/// (recording, column, its figures) of everything that was measured.
fn figures<'a>(sides: &'a [Side], columns: &[&'a str]) -> Vec<(&'a str, &'a str, &'a Measures)> {
    let mut all = Vec::new();
    let lab = |all: &mut Vec<_>, setting: &'a Setting, lab: &'a [Measures]| {
        let columns = columns.iter().zip(lab);
        all.extend(columns.map(|(column, measures)| (setting.name.as_str(), *column, measures)));
    };
    for side in sides {
        let setting = &side.recording.setting;
        all.push((setting.name.as_str(), COLUMN, &side.recorded));
        lab(&mut all, setting, &side.lab);
        if let Some(changed) = &side.changed {
            lab(&mut all, &changed.setting, &changed.lab);
        }
    }
    all
}

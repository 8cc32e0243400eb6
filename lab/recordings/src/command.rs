//! The command: load, run, measure, print, write, judge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use experiment::Stop;

use super::answer::{self, Answered, Doubt};
use super::fault::Fault;
use super::kind::{Beside, Kind, Loaded};
use super::lab::{self, COLUMNS, LabError, Planned};
use super::label::Label;
use super::pressure::Pressure;
use super::recording::COLUMN;
use super::several;
use super::show::Value;
use super::sweep::{self, Sweep};
use super::throttling::Throttling;
use super::what_if::{self, Change, ChangeError};
use super::{bands, show};
use experiment::expect;
use experiment::outcome::Outcome;
use experiment::run::Watcher;
use report::output::web::{self, Section};
use report::output::{self, About, Folder, OutputError, Shown, TidyTable};
use report::status::{FAILED, INTERRUPTED, OK};
use report::terminal::{self, Progress};

/// A comparison that is asked for.
#[derive(Debug)]
pub struct Asked {
    /// Folders of tables, or files with the text of a trace.
    pub recordings: Vec<PathBuf>,
    /// Changes of the setting, `KEY=VALUE`: what if?
    pub set: Vec<String>,
    /// Values that a recording does not tell or tells wrongly, with the same keys.
    pub given: Vec<String>,
    /// A recording of the changed setting.
    pub against: Option<PathBuf>,
    /// Columns of the lab, the first is judged; without any, `COLUMNS`.
    pub column: Vec<String>,
    /// Seed of the lab.
    pub seed: u64,
    /// Folder for the results, instead of a new one.
    pub out: Option<PathBuf>,
    /// A band that does not hold fails.
    pub check: bool,
    /// Of the program, for the table of runs.
    pub version: &'static str,
}

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

/// A comparison of recordings of one kind.
#[derive(Debug)]
pub struct Comparison {
    /// Every figure of everything that was measured: `figures.csv`.
    pub figures: TidyTable,
    /// Effects of the changes, if there are any: `answers.csv`.
    pub answers: Option<TidyTable>,
    /// Pairs that differ in one setting, of several recordings: `pairs.csv`.
    pub pairs: Option<TidyTable>,
    /// The printed text.
    pub text: String,
    /// Bands that do not hold, a line each.
    pub missed: Vec<String>,
    shown: Shown,
    outcomes: Vec<Outcome>,
    /// Names of the plans in the tables, in their order.
    rows: Vec<String>,
    plans: Vec<Planned>,
}

/// A comparison before its runs.
struct Ready {
    rows: Vec<String>,
    plans: Vec<Planned>,
    /// Makes the rest of it of the plans and the runs of each.
    finish: Box<Finish>,
}

type Finish = dyn FnOnce(Vec<String>, Vec<Planned>, Vec<Vec<Outcome>>) -> Comparison;

impl Ready {
    fn run(self, stop: &Stop, watcher: &impl Watcher) -> Result<Comparison, LabError> {
        let runs = lab::run(&self.plans, stop, watcher)?;
        Ok((self.finish)(self.rows, self.plans, runs))
    }
}

/// A kind, as the command meets it.
struct Entry {
    of: &'static str,
    keys: fn() -> Vec<(&'static str, &'static str)>,
    is_one: fn(&Path) -> bool,
    plan: fn(&Asked, &[PathBuf]) -> Result<Ready, CompareError>,
}

const fn entry<K: Kind>() -> Entry {
    Entry {
        of: K::OF,
        keys: || K::KEYS.iter().map(|key| (key.name, key.takes)).collect(),
        is_one: K::is_one,
        plan: plan::<K>,
    }
}

/// All kinds. A path is of the first that says so; the last takes what is left.
static KINDS: [Entry; 2] = [entry::<Pressure>(), entry::<Throttling>()];

/// The keys of `--set` and `--given`, kind by kind, as a table.
#[must_use]
pub fn keys() -> String {
    let mut text = String::new();
    for kind in KINDS.iter().rev() {
        text.push_str(&format!("Keys of --set and --given, {}:\n", kind.of));
        for (name, takes) in (kind.keys)() {
            text.push_str(&format!("  {name:<28}{takes}\n"));
        }
    }
    text.push_str("A size has a unit (docs/sizes.md), all else is a plain number.\n");
    text
}

/// A recording with its runs.
struct Side<K: Kind> {
    recording: Loaded<K::Setting>,
    recorded: K::Measures,
    /// In the order of the columns.
    lab: Vec<K::Measures>,
    /// With the changes of `--set`, one for each value of a list.
    changed: Vec<Changed<K>>,
}

/// The changed setting, and its runs.
struct Changed<K: Kind> {
    setting: K::Setting,
    lab: Vec<K::Measures>,
}

impl<K: Kind> Side<K> {
    fn name(&self) -> &str {
        K::name(&self.recording.setting)
    }

    fn beside(&self) -> Beside<'_, K> {
        Beside {
            setting: &self.recording.setting,
            recorded: &self.recorded,
            lab: &self.lab[0],
        }
    }
}

/// Does what was asked, until `stop`; answers the exit status.
///
/// # Errors
/// A recording or a change that cannot be used, or results that cannot be written.
pub fn main(asked: &Asked, stop: &Stop) -> Result<u8, CompareError> {
    match run(asked, stop) {
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

/// Compares without printing or writing anything: a comparison for each kind of recording.
///
/// # Errors
/// A recording or a change that cannot be used, a run that failed, or `stop`.
pub fn compare(asked: &Asked, stop: &Stop) -> Result<Vec<Comparison>, CompareError> {
    let of_kind = |(kind, paths): (&Entry, Vec<PathBuf>)| {
        let ready = (kind.plan)(asked, &paths)?;
        Ok(ready.run(stop, &())?)
    };
    of_kinds(asked)?.into_iter().map(of_kind).collect()
}

/// The same, printed and written.
fn run(asked: &Asked, stop: &Stop) -> Result<u8, CompareError> {
    let mut code = OK;
    for (kind, paths) in of_kinds(asked)? {
        let ready = (kind.plan)(asked, &paths)?;
        // Made before the work, so that a folder that cannot be made does not cost the results.
        let name = format!("compare-{}", lab::plain(&ready.rows[0]));
        let folder = Folder::make(asked.out.as_deref(), &name, asked.seed)?;
        let progress = Progress::new(lab::orders(&ready.plans).len());
        let made = ready.run(stop, &progress);
        progress.finish();
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                folder.remove_made();
                return Err(error.into());
            }
        };
        terminal::print(&made.text);
        write(folder.path(), &made, asked)?;
        for missed in made.missed.iter().filter(|_| asked.check) {
            code = FAILED;
            terminal::complain(&format!("tidegate: {missed}"));
        }
    }
    Ok(code)
}

/// Recordings of each kind are compared among themselves.
fn of_kinds(asked: &Asked) -> Result<Vec<(&'static Entry, Vec<PathBuf>)>, CompareError> {
    let all = asked.recordings.iter();
    let named = all.filter(|path| asked.recordings.len() == 1 || !is_readme(path));
    let mut of_kinds: Vec<(&Entry, Vec<PathBuf>)> =
        KINDS.iter().map(|kind| (kind, Vec::new())).collect();
    for path in named {
        let of = KINDS.iter().position(|kind| (kind.is_one)(path));
        of_kinds[of.unwrap_or(KINDS.len() - 1)].1.push(path.clone());
    }
    of_kinds.retain(|(_, paths)| !paths.is_empty());
    match (&of_kinds[..], &asked.out) {
        ([], _) => {
            let problem = "no recording among the names given; name a folder of tables or a trace";
            Err(CompareError::Usage(problem.into()))
        }
        ([(one, ones), (other, others), ..], Some(_)) => Err(CompareError::Usage(format!(
            "--out is one folder, and these are recordings of two kinds: {} is of {}, {} of {}; \
             name one kind at a time, or leave --out out",
            ones[0].display(),
            one.of,
            others[0].display(),
            other.of,
        ))),
        _ => Ok(of_kinds),
    }
}

/// True of the README that `recordings/turned/*` names beside recordings.
fn is_readme(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.to_ascii_uppercase().starts_with("README"))
}

/// Loads recordings of one kind and plans their runs.
fn plan<K: Kind>(asked: &Asked, paths: &[PathBuf]) -> Result<Ready, CompareError> {
    let parse =
        |set: &String| Change::parse_all(K::KEYS, set).map_err(|error| elsewhere::<K>(set, error));
    let given = asked.given.iter().map(|set| Change::parse(K::KEYS, set));
    let given: Vec<Change> = given.collect::<Result<_, _>>()?;
    let sets: Vec<Vec<Change>> = asked.set.iter().map(parse).collect::<Result<_, _>>()?;
    let variants = variants(&sets)?;
    // A recording lacks single values for itself, no lists.
    let single = sets.iter().filter(|values| values.len() == 1);
    let changes: Vec<Change> = single.flatten().cloned().collect();
    let mut names = Names::default();
    let mut recordings = Vec::new();
    for path in paths {
        let mut recording = K::load(path, &given, &changes)?;
        let name = names.take(K::name(&recording.setting));
        K::rename(&mut recording.setting, &name);
        recording.outcome.case = name;
        recordings.push(recording);
    }
    let against = match &asked.against {
        None => None,
        Some(_) if recordings.len() > 1 => {
            return Err(CompareError::Usage(
                "--against is the answer to a change of one recording: name one, not several"
                    .into(),
            ));
        }
        Some(_) if variants.len() > 1 => {
            return Err(CompareError::Usage(
                "--against is the answer to one change: give --set one value, not a list".into(),
            ));
        }
        Some(path) => Some(K::load(path, &given, &changes)?),
    };
    let own: Vec<String> = if asked.column.is_empty() {
        COLUMNS.map(str::to_owned).to_vec()
    } else {
        asked.column.clone()
    };
    let columns: Vec<&str> = own.iter().map(String::as_str).collect();
    let mut plans = Vec::new();
    let mut changed = Vec::new();
    for recording in &recordings {
        plans.push(K::plan(&recording.setting, &columns, asked.seed)?);
        let mut own = Vec::new();
        for changes in &variants {
            let Some(mut setting) = changed_setting::<K>(recording, changes)? else {
                continue;
            };
            let name = names.take(&format!("{}-changed", K::name(&setting)));
            K::rename(&mut setting, &name);
            own.push(setting);
        }
        changed.push(own);
    }
    for setting in changed.iter().flatten() {
        plans.push(K::plan(setting, &columns, asked.seed)?);
    }
    let settings = recordings.iter().map(|recording| &recording.setting);
    let settings = settings.chain(changed.iter().flatten());
    let rows: Vec<String> = settings
        .map(|setting| K::name(setting).to_owned())
        .collect();
    let asked = Questions::<K> {
        columns: own,
        variants,
        against,
    };
    Ok(Ready {
        rows,
        plans,
        finish: Box::new(move |rows, plans, runs| {
            compared(recordings, changed, &asked, (rows, plans), runs)
        }),
    })
}

/// The questions to all recordings.
struct Questions<K: Kind> {
    columns: Vec<String>,
    /// Of each value of the list, all changes.
    variants: Vec<Vec<Change>>,
    against: Option<Loaded<K::Setting>>,
}

/// Measures recordings, each with its changed settings, and all runs; says what they come to.
fn compared<K: Kind>(
    recordings: Vec<Loaded<K::Setting>>,
    changed: Vec<Vec<K::Setting>>,
    asked: &Questions<K>,
    (rows, plans): (Vec<String>, Vec<Planned>),
    runs: Vec<Vec<Outcome>>,
) -> Comparison {
    let columns: Vec<&str> = asked.columns.iter().map(String::as_str).collect();
    let mut made = plans.iter().zip(runs);
    let mut outcomes = Vec::new();
    let mut sides = Vec::new();
    for (recording, (plan, runs)) in recordings.into_iter().zip(made.by_ref()) {
        sides.push(side::<K>(recording, plan, runs, &mut outcomes));
    }
    for (side, own) in sides.iter_mut().zip(changed) {
        for (setting, (plan, runs)) in own.into_iter().zip(made.by_ref()) {
            let case = K::name(&setting).to_owned();
            if let Some(against) = &asked.against {
                outcomes.push(relabelled(&against.outcome, &case));
            }
            let notes = &mut side.recording.notes;
            for note in &plan.notes {
                let changed = format!("with the change: {note}");
                if !notes.contains(note) && !notes.contains(&changed) {
                    notes.push(changed);
                }
            }
            let lab = runs.iter().map(|run| K::measure(&setting, run)).collect();
            outcomes.extend(runs.iter().map(|run| relabelled(run, &case)));
            side.changed.push(Changed { setting, lab });
        }
    }
    let doubts: Vec<Vec<Doubt>> = sides.iter().map(doubts).collect();
    let swept: Vec<Option<Sweep<'_>>> = sides
        .iter()
        .zip(&doubts)
        .map(|(side, doubts)| swept(side, &columns, asked, doubts))
        .collect();
    let shown = Shown {
        bands: verdicts(&sides, columns[0]),
        sections: sections(&sides, &columns, &swept, asked),
        lines: swept.iter().flatten().filter_map(Sweep::plot).collect(),
        ..Shown::default()
    };
    Comparison {
        figures: show::tidy(figures(&sides, &columns)),
        answers: (!asked.variants.is_empty()).then(|| sweep::answers(swept.iter().flatten())),
        pairs: (sides.len() > 1).then(|| several::table(&beside(&sides))),
        text: render(&sides, &columns, &swept, asked),
        missed: missed(&sides, columns[0]),
        shown,
        outcomes,
        rows,
        plans,
    }
}

/// A key of recordings of another kind alone is told where it belongs.
fn elsewhere<K: Kind>(set: &str, error: ChangeError) -> ChangeError {
    let form = what_if::form_of(set);
    if K::KEYS.iter().any(|key| key.name == form) {
        return error;
    }
    match KINDS
        .iter()
        .find(|kind| (kind.keys)().iter().any(|(name, _)| *name == form))
    {
        Some(kind) => error.and(&format!(
            " (`{form}` is a key of recordings of {})",
            kind.of
        )),
        None => error,
    }
}

/// All that is to be changed at once, for each value of the one list that there may be.
fn variants(sets: &[Vec<Change>]) -> Result<Vec<Vec<Change>>, CompareError> {
    let mut lists = sets.iter().filter(|values| values.len() > 1);
    let (list, another) = (lists.next(), lists.next());
    if let (Some(one), Some(other)) = (list, another) {
        return Err(CompareError::Usage(format!(
            "--set {} and --set {} are both lists; vary one key at a time",
            one[0].key, other[0].key
        )));
    }
    let count = match (sets.is_empty(), list) {
        (true, _) => 0,
        (false, list) => list.map_or(1, Vec::len),
    };
    let at = |number: usize| {
        let of = sets.iter();
        of.map(|values| values[number.min(values.len() - 1)].clone())
            .collect()
    };
    Ok((0..count).map(at).collect())
}

/// The setting under the changes that its recording did not need for itself; `None`: there are
/// none.
fn changed_setting<K: Kind>(
    recording: &Loaded<K::Setting>,
    changes: &[Change],
) -> Result<Option<K::Setting>, CompareError> {
    let mut setting = recording.setting.clone();
    let mut any = false;
    for change in changes {
        if recording.filled.contains(&change.key) {
            continue;
        }
        K::put(change, &mut setting)
            .map_err(|problem| CompareError::Usage(format!("--set {change}: {problem}")))?;
        any = true;
    }
    if !any {
        return Ok(None);
    }
    K::settle(&mut setting, &recording.setting);
    K::check(&setting).map_err(|problem| {
        let sets: Vec<String> = changes
            .iter()
            .map(|change| format!("--set {change}"))
            .collect();
        CompareError::Usage(format!("{}: {problem}", sets.join(" ")))
    })?;
    Ok(Some(setting))
}

/// Names that tables and files of the results have already.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// The name as files can have it, with a number behind it if another has that.
    fn take(&mut self, own: &str) -> String {
        let own = output::plain(own);
        let numbered = (2..).map(|number| format!("{own}-{number}"));
        let mut names = core::iter::once(own.clone()).chain(numbered);
        let free = names.find(|name| self.0.insert(name.clone()));
        free.expect("there are more numbers than names")
    }
}

fn relabelled(outcome: &Outcome, case: &str) -> Outcome {
    Outcome {
        case: case.to_owned(),
        ..outcome.clone()
    }
}

/// Measures a recording and its runs; their outcomes go to the results.
fn side<K: Kind>(
    mut recording: Loaded<K::Setting>,
    plan: &Planned,
    runs: Vec<Outcome>,
    outcomes: &mut Vec<Outcome>,
) -> Side<K> {
    recording.notes.extend(plan.notes.iter().cloned());
    let setting = &recording.setting;
    let recorded = K::measure(setting, &recording.outcome);
    let lab = runs.iter().map(|run| K::measure(setting, run)).collect();
    outcomes.push(recording.outcome.clone());
    outcomes.extend(runs.iter().map(|run| relabelled(run, K::name(setting))));
    Side {
        recording,
        recorded,
        lab,
        changed: Vec::new(),
    }
}

fn render<K: Kind>(
    sides: &[Side<K>],
    columns: &[&str],
    swept: &[Option<Sweep<'_>>],
    asked: &Questions<K>,
) -> String {
    let mut text = String::new();
    for (side, swept) in sides.iter().zip(swept) {
        text.push_str(&one(side, columns));
        text.push('\n');
        if let Some(swept) = swept {
            text.push_str(&what_if(side, columns, swept, asked));
        }
    }
    if sides.len() > 1 {
        text.push_str(&several::render(&beside(sides), columns[0]));
    }
    text.push_str(&notes(sides));
    text
}

/// Effects of the changes.
fn what_if<K: Kind>(
    side: &Side<K>,
    columns: &[&str],
    swept: &Sweep<'_>,
    asked: &Questions<K>,
) -> String {
    if swept.is_list() {
        swept.table()
    } else {
        answered(side, columns, asked, swept.doubts)
    }
}

fn values<K: Kind>(lab: &[K::Measures]) -> Vec<Vec<Option<f64>>> {
    lab.iter().map(K::values).collect()
}

/// The doubts about each figure of the first column.
fn doubts<K: Kind>(side: &Side<K>) -> Vec<Doubt> {
    let verdicts = K::judge(&side.recording.setting, &side.recorded, &side.lab[0]);
    let pairs = K::values(&side.recorded)
        .into_iter()
        .zip(K::values(&side.lab[0]));
    let labels = K::labels().into_iter().zip(pairs);
    let doubt = |(label, (recorded, lab)): (Label, (Option<f64>, Option<f64>))| {
        let verdict = verdicts.iter().find(|verdict| verdict.name == label.name);
        Doubt::of(recorded, lab, verdict.map(|verdict| verdict.holds))
    };
    labels.map(doubt).collect()
}

/// A recording under each of its changes; `None`: there are none.
fn swept<'a, K: Kind>(
    side: &'a Side<K>,
    columns: &'a [&'a str],
    asked: &'a Questions<K>,
    doubts: &'a [Doubt],
) -> Option<Sweep<'a>> {
    let variants = &asked.variants;
    if side.changed.is_empty() {
        return None;
    }
    let varies = |at: &usize| variants.iter().any(|other| other[*at] != variants[0][*at]);
    let at = (0..variants[0].len()).find(varies).unwrap_or(0);
    let against = asked.against.as_ref();
    Some(Sweep {
        recording: side.name(),
        columns,
        changes: variants,
        values: variants.iter().map(|changes| &changes[at]).collect(),
        labels: K::labels(),
        recorded: K::values(&side.recorded),
        lab: values::<K>(&side.lab),
        changed: side
            .changed
            .iter()
            .map(|changed| values::<K>(&changed.lab))
            .collect(),
        most: side
            .changed
            .iter()
            .map(|changed| K::most(&changed.setting))
            .collect(),
        doubts,
        against: against.map(|other| K::values(&K::measure(&other.setting, &other.outcome))),
    })
}

/// The bands of all recordings, as a run's report shows its own.
fn verdicts<K: Kind>(sides: &[Side<K>], column: &str) -> Vec<expect::Verdict> {
    let of = |side: &Side<K>| {
        let own = K::judge(&side.recording.setting, &side.recorded, &side.lab[0]);
        let verdict = |verdict: bands::Verdict| expect::Verdict {
            id: verdict.name.to_owned(),
            case: side.name().to_owned(),
            what: format!("{column} / recording"),
            value: Some(verdict.error + 1.0),
            min: Some(verdict.ratios.0),
            max: Some(verdict.ratios.1),
            source: format!("within {} of what was recorded", verdict.band),
            skipped: false,
            held_in: None,
            missed: None,
        };
        own.into_iter().map(verdict).collect::<Vec<_>>()
    };
    sides.iter().flat_map(of).collect()
}

/// Effects of the changes on each recording, and its figures, as a page shows them.
fn sections<K: Kind>(
    sides: &[Side<K>],
    columns: &[&str],
    swept: &[Option<Sweep<'_>>],
    asked: &Questions<K>,
) -> Vec<Section> {
    let answer = |(side, swept): (&Side<K>, &Option<Sweep<'_>>)| {
        let text = what_if(side, columns, swept.as_ref()?, asked);
        Some(Section {
            at: format!("answers-{}", output::plain(side.name())),
            words: format!("{}: what if?", side.name()),
            html: format!("<pre>{}</pre>\n", web::escape(&text)),
        })
    };
    let of = |side: &Side<K>| {
        let measures: Vec<&K::Measures> = [&side.recorded].into_iter().chain(&side.lab).collect();
        let rows = K::rows(&side.recording.setting, &measures);
        let summary = web::escape(&K::summary(&side.recording.setting));
        let notes = side
            .recording
            .notes
            .iter()
            .map(|note| format!("<p>{}</p>\n", web::escape(note)));
        Section {
            at: format!("recording-{}", output::plain(side.name())),
            words: side.name().to_owned(),
            html: format!(
                "<p class=\"faint\">{summary}</p>\n{}{}",
                show::page_table(columns, &rows),
                notes.collect::<String>()
            ),
        }
    };
    let answers = sides.iter().zip(swept).filter_map(answer);
    answers.chain(sides.iter().map(of)).collect()
}

/// The tables of the one change of a recording.
fn answered<K: Kind>(
    side: &Side<K>,
    columns: &[&str],
    asked: &Questions<K>,
    doubts: &[Doubt],
) -> String {
    let values = values::<K>;
    let changed = &side.changed[0];
    let against = asked.against.as_ref().map(|other| {
        let measures = K::measure(&other.setting, &other.outcome);
        answer::Against {
            name: K::name(&other.setting),
            differs: K::differences(&changed.setting, &other.setting),
            values: K::values(&measures),
        }
    });
    answer::render(&Answered {
        differs: K::differences(&side.recording.setting, &changed.setting),
        changes: &asked.variants[0],
        columns,
        labels: K::labels(),
        recorded: K::values(&side.recorded),
        lab: values(&side.lab),
        changed: values(&changed.lab),
        most: K::most(&changed.setting),
        doubts,
        against,
    })
}

/// All notes; what is said of several recordings is said once.
fn notes<K: Kind>(sides: &[Side<K>]) -> String {
    let mut seen: Vec<&String> = Vec::new();
    for note in sides.iter().flat_map(|side| &side.recording.notes) {
        if !seen.contains(&note) {
            seen.push(note);
        }
    }
    let line = |note: &String| {
        let of: Vec<&str> = sides
            .iter()
            .filter(|side| side.recording.notes.contains(note))
            .map(Side::name)
            .collect();
        if of.len() == sides.len() {
            format!("note: {note}\n")
        } else {
            format!("note ({}): {note}\n", of.join(", "))
        }
    };
    seen.into_iter().map(line).collect()
}

fn beside<K: Kind>(sides: &[Side<K>]) -> Vec<Beside<'_, K>> {
    sides.iter().map(Side::beside).collect()
}

/// The table of one recording.
fn one<K: Kind>(side: &Side<K>, columns: &[&str]) -> String {
    let setting = &side.recording.setting;
    let heads: Vec<&str> = [COLUMN]
        .into_iter()
        .chain(columns.iter().copied())
        .collect();
    let measures: Vec<&K::Measures> = [&side.recorded].into_iter().chain(&side.lab).collect();
    let verdicts = K::judge(setting, &side.recorded, &side.lab[0]);
    let by = format!("{}{}", columns[0], K::judged_by(setting));
    format!(
        "{}: {}\n{}{}",
        K::name(setting),
        K::summary(setting),
        show::table(&heads, &K::rows(setting, &measures)),
        bands::summary(&verdicts, &by),
    )
}

/// Every band that does not hold, a line each.
fn missed<K: Kind>(sides: &[Side<K>], column: &str) -> Vec<String> {
    let of = |side: &Side<K>| {
        let verdicts = K::judge(&side.recording.setting, &side.recorded, &side.lab[0]);
        let missed = verdicts.into_iter().filter(|verdict| !verdict.holds);
        let line =
            |verdict: bands::Verdict| format!("{}, {column}: {}", side.name(), verdict.line());
        missed.map(line).collect::<Vec<_>>()
    };
    sides.iter().flat_map(of).collect()
}

fn write(folder: &Path, made: &Comparison, asked: &Asked) -> Result<(), CompareError> {
    let plans = &made.plans;
    let first = &plans[0];
    let mut about = About {
        title: "a recording beside the lab".into(),
        master_seed: asked.seed,
        ..About::of(&first.scenario, &first.source, false, asked.version)
    };
    let recorded = |outcome: &&Outcome| outcome.policy == COLUMN;
    let recordings = made.outcomes.iter().filter(recorded).count();
    if recordings > 1 {
        about.experiment = format!("{recordings} recordings");
        about.title = "beside the lab".into();
    }
    if plans.len() > 1 {
        about.scenario_id = format!("{}, the others in scenario-NAME.toml", about.scenario_id);
    }
    let mut tables = output::tables(&about, &made.outcomes, &[]);
    tables.push(made.figures.clone());
    tables.extend(made.answers.iter().chain(&made.pairs).cloned());
    output::write(
        folder,
        &about,
        &tables,
        &made.outcomes,
        &made.text,
        &made.shown,
    )?;
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

/// Every figure of everything that was measured.
fn figures<'a, K: Kind>(sides: &'a [Side<K>], columns: &[&'a str]) -> Vec<Value<'a>> {
    let labels = K::labels();
    let mut all = Vec::new();
    let mut take = |recording: &'a str, column: &'a str, measures: &'a K::Measures| {
        let of = labels.iter().zip(K::values(measures));
        let of = of.map(|(label, value)| (label.name.to_owned(), label.unit, value));
        let others = K::others(measures).into_iter();
        let others = others.map(|(name, unit, value)| (name, unit, Some(value)));
        all.extend(of.chain(others).map(|(figure, unit, value)| Value {
            recording,
            column,
            figure,
            unit,
            value,
        }));
    };
    for side in sides {
        take(side.name(), COLUMN, &side.recorded);
        for (column, lab) in columns.iter().zip(&side.lab) {
            take(side.name(), column, lab);
        }
        for changed in &side.changed {
            for (column, lab) in columns.iter().zip(&changed.lab) {
                take(K::name(&changed.setting), column, lab);
            }
        }
    }
    all
}

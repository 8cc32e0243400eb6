//! The command: load, run, measure, print, write, judge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use experiment::Stop;

use super::answer::{self, Answered, Doubt};
use super::change::{self, Change, ChangeError};
use super::differ::differences;
use super::fault::Fault;
use super::figures::{self, measure};
use super::kind::{KINDS, Kind};
use super::lab::{self, COLUMNS, LabError, Planned};
use super::recording::{COLUMN, Recording};
use super::setting::Setting;
use super::several::{self, Beside};
use super::show::{self, Value};
use super::sweep::{self, Sweep};
use experiment::expect::Verdict;
use experiment::outcome::Outcome;
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
    plans: Vec<Planned>,
}

/// A comparison before its runs.
struct Ready {
    recordings: Vec<Recording>,
    /// Of each, its changed settings.
    changed: Vec<Vec<Setting>>,
    asked: Questions,
    plans: Vec<Planned>,
}

/// The questions to all recordings.
struct Questions {
    columns: Vec<String>,
    /// Of each value of the list, all changes.
    variants: Vec<Vec<Change>>,
    against: Option<Recording>,
}

/// A recording with its runs.
struct Side {
    recording: Recording,
    recorded: Vec<Option<f64>>,
    /// In the order of the columns.
    lab: Vec<Ran>,
    /// With the changes of `--set`, one for each value of a list.
    changed: Vec<Changed>,
}

/// A run, and its figures.
struct Ran {
    outcome: Outcome,
    values: Vec<Option<f64>>,
}

/// The changed setting, and its runs.
struct Changed {
    setting: Setting,
    lab: Vec<Ran>,
}

impl Side {
    fn setting(&self) -> &Setting {
        &self.recording.setting
    }

    fn name(&self) -> &str {
        self.setting().name()
    }

    fn beside(&self) -> Beside<'_> {
        Beside {
            setting: self.setting(),
            recorded: &self.recorded,
            lab: &self.lab[0].values,
        }
    }

    fn verdicts(&self, column: &str) -> Vec<Verdict> {
        figures::judge(self.setting(), column, &self.recorded, &self.lab[0].values)
    }

    fn rows(&self) -> Vec<show::Row> {
        let own = (&*self.recorded, &self.recording.outcome);
        let lab = self.lab.iter().map(|ran| (&*ran.values, &ran.outcome));
        let columns: Vec<_> = [own].into_iter().chain(lab).collect();
        show::rows(self.setting(), &columns)
    }

    /// The doubts about each figure of the first column.
    fn doubts(&self) -> Vec<Doubt> {
        let verdicts = self.verdicts("");
        let is_assumed = !self.recording.assumed.is_empty();
        let figures = figures::of_kind(self.setting().kind).iter();
        let values = self.recorded.iter().zip(&self.lab[0].values);
        let doubt =
            |(figure, (recorded, lab)): (&figures::Figure, (&Option<f64>, &Option<f64>))| {
                let verdict = verdicts.iter().find(|verdict| verdict.id == figure.name);
                let doubt = Doubt::of(*recorded, *lab, verdict.map(Verdict::holds));
                doubt.under(is_assumed)
            };
        figures.zip(values).map(doubt).collect()
    }
}

fn values(lab: &[Ran]) -> Vec<Vec<Option<f64>>> {
    lab.iter().map(|ran| ran.values.clone()).collect()
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
    let of_kind = |(kind, paths): (&'static Kind, Vec<PathBuf>)| {
        let ready = plan(kind, asked, &paths)?;
        let runs = lab::run(&ready.plans, stop, &())?;
        Ok(compared(ready, runs))
    };
    of_kinds(asked)?.into_iter().map(of_kind).collect()
}

/// The same, printed and written.
fn run(asked: &Asked, stop: &Stop) -> Result<u8, CompareError> {
    let mut code = OK;
    for (kind, paths) in of_kinds(asked)? {
        let ready = plan(kind, asked, &paths)?;
        // Made before the work, so that a folder that cannot be made does not cost the results.
        let name = format!("compare-{}", ready.plans[0].scenario.name.get_ref());
        let folder = Folder::make(asked.out.as_deref(), &name, asked.seed)?;
        let progress = Progress::new(lab::orders(&ready.plans).len());
        let runs = lab::run(&ready.plans, stop, &progress);
        progress.finish();
        let made = match runs {
            Ok(runs) => compared(ready, runs),
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
fn of_kinds(asked: &Asked) -> Result<Vec<(&'static Kind, Vec<PathBuf>)>, CompareError> {
    let all = asked.recordings.iter();
    let named = all.filter(|path| asked.recordings.len() == 1 || !is_readme(path));
    let mut of_kinds: Vec<_> = KINDS.map(|kind| (kind, Vec::new())).into();
    for path in named {
        let of = Kind::of(path);
        let own = of_kinds
            .iter_mut()
            .find(|(kind, _)| core::ptr::eq(*kind, of));
        own.expect("all kinds are in the list").1.push(path.clone());
    }
    of_kinds.retain(|(_, paths): &(_, Vec<PathBuf>)| !paths.is_empty());
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
fn plan(kind: &'static Kind, asked: &Asked, paths: &[PathBuf]) -> Result<Ready, CompareError> {
    let given = asked.given.iter().map(|set| Change::parse(kind, set));
    let given: Vec<Change> = given.collect::<Result<_, _>>()?;
    let sets = asked.set.iter().map(|set| Change::parse_all(kind, set));
    let sets: Vec<Vec<Change>> = sets.collect::<Result<_, _>>()?;
    let variants = variants(&sets)?;
    // A recording lacks single values for itself, no lists.
    let single = sets.iter().filter(|values| values.len() == 1);
    let changes: Vec<Change> = single.flatten().cloned().collect();
    let load = |path: &PathBuf| Recording::load_with(path, &given, &changes);
    let mut names = Names::default();
    let mut recordings = Vec::new();
    for path in paths {
        let mut recording = load(path)?;
        let name = names.take(recording.setting.name());
        recording.setting.rename(&name);
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
        Some(path) => Some(load(path)?),
    };
    let own: Vec<String> = if asked.column.is_empty() {
        COLUMNS.map(str::to_owned).to_vec()
    } else {
        asked.column.clone()
    };
    let columns: Vec<&str> = own.iter().map(String::as_str).collect();
    let mut changed = Vec::new();
    for recording in &recordings {
        let mut own = Vec::new();
        for changes in &variants {
            let Some(mut setting) = changed_setting(recording, changes)? else {
                continue;
            };
            let name = names.take(&format!("{}-changed", setting.name()));
            setting.rename(&name);
            own.push(setting);
        }
        changed.push(own);
    }
    let settings = recordings.iter().map(|recording| &recording.setting);
    let settings = settings.chain(changed.iter().flatten());
    let plans = settings.map(|setting| lab::plan(setting, &columns, asked.seed));
    Ok(Ready {
        plans: plans.collect::<Result<_, _>>()?,
        recordings,
        changed,
        asked: Questions {
            columns: own,
            variants,
            against,
        },
    })
}

/// Measures recordings, each with its changed settings, and all runs; says what they come to.
fn compared(ready: Ready, runs: Vec<Vec<Outcome>>) -> Comparison {
    let Ready {
        recordings,
        changed,
        asked,
        plans,
    } = ready;
    let columns: Vec<&str> = asked.columns.iter().map(String::as_str).collect();
    let mut made = plans.iter().zip(runs);
    let mut outcomes = Vec::new();
    let mut sides = Vec::new();
    for (mut recording, (plan, runs)) in recordings.into_iter().zip(made.by_ref()) {
        recording.notes.extend(plan.notes.iter().cloned());
        let another = recording.setting.another_kernel(&columns);
        recording.notes.extend(another);
        outcomes.push(recording.outcome.clone());
        sides.push(Side {
            recorded: measure(&recording.setting, &recording.outcome),
            lab: ran(&recording.setting, runs, &mut outcomes),
            recording,
            changed: Vec::new(),
        });
    }
    for (side, own) in sides.iter_mut().zip(changed) {
        for (setting, (plan, runs)) in own.into_iter().zip(made.by_ref()) {
            if let Some(against) = &asked.against {
                outcomes.push(relabelled(&against.outcome, setting.name()));
            }
            let notes = &mut side.recording.notes;
            for note in &plan.notes {
                let changed = format!("with the change: {note}");
                if !notes.contains(note) && !notes.contains(&changed) {
                    notes.push(changed);
                }
            }
            let lab = ran(&setting, runs, &mut outcomes);
            side.changed.push(Changed { setting, lab });
        }
    }
    let doubts: Vec<Vec<Doubt>> = sides.iter().map(Side::doubts).collect();
    let both = sides.iter().zip(&doubts);
    let swept: Vec<Option<Sweep<'_>>> = both
        .map(|(side, doubts)| swept(side, &columns, &asked, doubts))
        .collect();
    let verdicts: Vec<Verdict> = sides
        .iter()
        .flat_map(|side| side.verdicts(columns[0]))
        .collect();
    let missed = verdicts.iter().filter(|verdict| !verdict.holds());
    let missed = missed.map(Verdict::line).collect();
    let shown = Shown {
        sections: sections(&sides, &columns, &swept, &asked),
        lines: swept.iter().flatten().filter_map(Sweep::plot).collect(),
        bands: verdicts,
        ..Shown::default()
    };
    Comparison {
        figures: show::tidy(&all_figures(&sides, &columns)),
        answers: (!asked.variants.is_empty()).then(|| sweep::answers(swept.iter().flatten())),
        pairs: (sides.len() > 1).then(|| several::table(&beside(&sides))),
        text: render(&sides, &columns, &swept, &asked),
        missed,
        shown,
        outcomes,
        plans,
    }
}

/// Runs of a setting with their figures; their outcomes go to the results under its name.
fn ran(setting: &Setting, runs: Vec<Outcome>, outcomes: &mut Vec<Outcome>) -> Vec<Ran> {
    outcomes.extend(runs.iter().map(|run| relabelled(run, setting.name())));
    let measured = |outcome| Ran {
        values: measure(setting, &outcome),
        outcome,
    };
    runs.into_iter().map(measured).collect()
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
fn changed_setting(
    recording: &Recording,
    changes: &[Change],
) -> Result<Option<Setting>, CompareError> {
    let own = changes.iter();
    let own = own.filter(|change| !recording.filled.contains(&change.key));
    let own: Vec<&Change> = own.collect();
    if own.is_empty() {
        return Ok(None);
    }
    let mut setting = recording.setting.clone();
    change::turn(&mut setting, "--set", &own).map_err(CompareError::Usage)?;
    setting.hold(&recording.setting);
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

fn render(
    sides: &[Side],
    columns: &[&str],
    swept: &[Option<Sweep<'_>>],
    asked: &Questions,
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
fn what_if(side: &Side, columns: &[&str], swept: &Sweep<'_>, asked: &Questions) -> String {
    if swept.is_list() {
        swept.table()
    } else {
        answered(side, columns, asked, swept)
    }
}

/// A recording under each of its changes; `None`: there are none.
fn swept<'a>(
    side: &'a Side,
    columns: &'a [&'a str],
    asked: &'a Questions,
    doubts: &'a [Doubt],
) -> Option<Sweep<'a>> {
    let variants = &asked.variants;
    if side.changed.is_empty() {
        return None;
    }
    let varies = |at: &usize| variants.iter().any(|other| other[*at] != variants[0][*at]);
    let at = (0..variants[0].len()).find(varies).unwrap_or(0);
    let against = asked.against.as_ref();
    let changed = side.changed.iter();
    let figures = figures::of_kind(side.setting().kind);
    let most = |changed: &Changed| {
        let most = figures.iter().map(|figure| figure.most(&changed.setting));
        most.collect()
    };
    Some(Sweep {
        recording: side.name(),
        columns,
        changes: variants,
        values: variants.iter().map(|changes| &changes[at]).collect(),
        figures,
        recorded: side.recorded.clone(),
        lab: values(&side.lab),
        changed: changed
            .clone()
            .map(|changed| values(&changed.lab))
            .collect(),
        most: changed.map(most).collect(),
        doubts,
        against: against.map(|other| measure(&other.setting, &other.outcome)),
    })
}

/// Effects of the changes on each recording, and its figures, as a page shows them.
fn sections(
    sides: &[Side],
    columns: &[&str],
    swept: &[Option<Sweep<'_>>],
    asked: &Questions,
) -> Vec<Section> {
    let answer = |(side, swept): (&Side, &Option<Sweep<'_>>)| {
        let text = what_if(side, columns, swept.as_ref()?, asked);
        Some(Section {
            at: format!("answers-{}", output::plain(side.name())),
            words: format!("{}: what if?", side.name()),
            html: format!("<pre>{}</pre>\n", web::escape(&text)),
        })
    };
    let of = |side: &Side| {
        let summary = web::escape(side.setting().summary());
        let notes = side.recording.notes.iter();
        let notes = notes.map(|note| format!("<p>{}</p>\n", web::escape(note)));
        Section {
            at: format!("recording-{}", output::plain(side.name())),
            words: side.name().to_owned(),
            html: format!(
                "<p class=\"faint\">{summary}</p>\n{}{}",
                show::page_table(columns, &side.rows()),
                notes.collect::<String>()
            ),
        }
    };
    let answers = sides.iter().zip(swept).filter_map(answer);
    answers.chain(sides.iter().map(of)).collect()
}

/// The tables of the one change of a recording.
fn answered(side: &Side, columns: &[&str], asked: &Questions, swept: &Sweep<'_>) -> String {
    let changed = &side.changed[0];
    let against = asked.against.as_ref().zip(swept.against.as_deref());
    let against = against.map(|(other, values)| answer::Against {
        name: other.setting.name(),
        differs: differences(&changed.setting, &other.setting),
        values,
    });
    answer::render(&Answered {
        differs: differences(side.setting(), &changed.setting),
        changes: &asked.variants[0],
        columns,
        figures: swept.figures,
        recorded: &swept.recorded,
        lab: &swept.lab,
        changed: &swept.changed[0],
        most: &swept.most[0],
        doubts: swept.doubts,
        against,
    })
}

/// All notes; what is said of several recordings is said once.
fn notes(sides: &[Side]) -> String {
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

fn beside(sides: &[Side]) -> Vec<Beside<'_>> {
    sides.iter().map(Side::beside).collect()
}

/// The table of one recording.
fn one(side: &Side, columns: &[&str]) -> String {
    let heads: Vec<&str> = [COLUMN]
        .into_iter()
        .chain(columns.iter().copied())
        .collect();
    format!(
        "{}: {}\n{}{}",
        side.name(),
        side.setting().summary(),
        show::table(&heads, &side.rows()),
        figures::summary(&side.verdicts(columns[0]), columns[0]),
    )
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
    for plan in plans.iter().skip(1) {
        let path = folder.join(output::scenario_of(plan.scenario.name.get_ref()));
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
fn all_figures<'a>(sides: &'a [Side], columns: &[&'a str]) -> Vec<Value<'a>> {
    let mut all = Vec::new();
    let mut take = |setting: &'a Setting, column: &'a str, values: &[Option<f64>], outcome| {
        let of = figures::of_kind(setting.kind).iter().zip(values);
        let of = of.map(|(figure, value)| (figure.name.to_owned(), figure.unit, *value));
        let writers = figures::of_writers(setting, outcome).into_iter();
        let writers = writers.map(|(name, unit, _, value)| (name, unit, value));
        all.extend(of.chain(writers).map(|(figure, unit, value)| Value {
            recording: setting.name(),
            column,
            figure,
            unit,
            value,
        }));
    };
    for side in sides {
        let (setting, outcome) = (side.setting(), &side.recording.outcome);
        take(setting, COLUMN, &side.recorded, outcome);
        let changed = side.changed.iter();
        let changed = changed.map(|changed| (&changed.setting, &changed.lab));
        for (setting, lab) in [(setting, &side.lab)].into_iter().chain(changed) {
            for (column, ran) in columns.iter().zip(lab) {
                take(setting, column, &ran.values, &ran.outcome);
            }
        }
    }
    all
}

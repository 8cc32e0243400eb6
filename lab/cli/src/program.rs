//! The work of the program: load, run, compare, write, judge, and say how it ended.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use experiment::Stop;
use experiment::catalogue;
use experiment::expect::{self, Verdict};
use experiment::experiments::{self, EXPERIMENTS};
use experiment::outcome::Outcome;
use experiment::pool;
use experiment::run::{self, Cell, Column, Live, LiveFiles, RunError, World};
use experiment::scenario::{
    LoadError, Override, OverrideError, RowEntry, Scenario, Source, choices,
};
use experiment::watch;
use policy::units::Bytes;
use recordings::CompareError;
use report::Report;
use report::comparison::summary::Around;
use report::diff;
use report::output::{self, About, Folder, OutputError, Shown};
use report::status::{FAILED, INTERRUPTED, MISTAKE, OK};
use report::terminal::{self, Progress};
use reproduce::{Papers, ReproduceError};

use crate::args::{Arguments, Command, RunArguments, VERSION};
#[cfg(feature = "serve")]
use crate::server;
#[cfg(not(feature = "serve"))]
use crate::without_server::is_missing;
use crate::{chosen, hashes, list};

/// The program cannot begin or end its work: always with what to do about it.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Override(#[from] OverrideError),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error(transparent)]
    Reproduce(#[from] ReproduceError),
    #[error(transparent)]
    Replay(#[from] ::replay::ReplayError),
    #[error(transparent)]
    Diff(#[from] diff::DiffError),
}

/// Does what the command line says.
#[must_use]
pub fn main(arguments: Arguments) -> ExitCode {
    let ended = match arguments.command {
        Command::List { what, table } => list::of(what, table.as_deref())
            .map(|text| {
                terminal::print(&text);
                OK
            })
            .map_err(Trouble::Usage),
        Command::Reproduce(arguments) => {
            reproduce::main(&arguments.asked(), &interrupted()).map_err(Trouble::from)
        }
        Command::Run(arguments) => run(&arguments),
        Command::Cite => {
            terminal::print(&cite());
            Ok(OK)
        }
        Command::Compare(arguments) => {
            recordings::main(&arguments.asked(), &interrupted()).map_err(Trouble::from)
        }
        Command::Diff(arguments) => diff::diff(&arguments.asked())
            .map(|text| {
                terminal::print(&text);
                OK
            })
            .map_err(Trouble::from),
        Command::Replay(arguments) => {
            ::replay::main(&arguments.asked(), &interrupted()).map_err(Trouble::from)
        }
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => Ok(server::serve(&arguments)),
        #[cfg(feature = "serve")]
        Command::Top(arguments) => Ok(server::top(&arguments)),
        #[cfg(feature = "serve")]
        Command::Hold(arguments) => Ok(server::hold(&arguments)),
        #[cfg(feature = "serve")]
        Command::Demo(arguments) => Ok(server::demo(&arguments)),
        #[cfg(not(feature = "serve"))]
        Command::Serve(words) => Ok(is_missing("serve", &words)),
        #[cfg(not(feature = "serve"))]
        Command::Top(words) => Ok(is_missing("top", &words)),
        #[cfg(not(feature = "serve"))]
        Command::Hold(words) => Ok(is_missing("hold", &words)),
        #[cfg(not(feature = "serve"))]
        Command::Demo(words) => Ok(is_missing("demo", &words)),
    };
    let code = ended.unwrap_or_else(|trouble| {
        match &trouble {
            Trouble::Load(LoadError::Mistakes(mistakes))
            | Trouble::Reproduce(ReproduceError::Load(LoadError::Mistakes(mistakes))) => {
                terminal::complain(&mistakes.render(terminal::colour()));
            }
            Trouble::Compare(CompareError::Fault(fault)) => {
                terminal::complain(&fault.render(terminal::colour()));
            }
            other => terminal::complain(&format!("tidegate: {other}")),
        }
        MISTAKE
    });
    ExitCode::from(match code {
        OK if terminal::output_is_lost() => FAILED,
        code => code,
    })
}

fn run(arguments: &RunArguments) -> Result<u8, Trouble> {
    let (scenario, source) = load(arguments)?;
    let columns = Column::named(&scenario, &arguments.column).map_err(Trouble::Usage)?;
    let stop = Stop::default();
    let files = LiveFiles::default();
    let world = world(arguments, &files)?;
    stop_at_interrupt(&stop, &files);
    let rows = rows(&scenario, &arguments.row, &world).map_err(Trouble::Usage)?;
    let cells = cells(&scenario, &rows, &columns);
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    if arguments.check {
        refuse_empty_check(&scenario, &cells, &names)?;
    }
    let replicas = *scenario.run.replicas.get_ref();
    let mut orders = run::orders(&cells, replicas, scenario.run.seed);
    if let Some(chosen) = &arguments.trace {
        chosen::choose(&mut orders, chosen).map_err(Trouble::Usage)?;
    }
    // Made before the work, so that a folder that cannot be made does not cost the results.
    let name = scenario.name.get_ref();
    let folder = Folder::make(arguments.out.as_deref(), name, scenario.run.seed)?;
    let progress = Progress::new(orders.len());
    let began = Instant::now();
    let results = run::run_all(&orders, &world, &stop, &progress);
    let is_partial = results.iter().any(Option::is_none);
    progress.finish();
    let (mut code, mut failed) = (OK, 0);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for result in results.into_iter().flatten() {
        match result {
            Ok(outcome) if !outcome.interrupted => outcomes.push(outcome),
            Err(RunError::Interrupted) | Ok(_) => {}
            // Said as it happened (`Progress`).
            Err(error) => {
                code = code.max(status(&error));
                failed += 1;
            }
        }
    }
    let (ended, all) = (outcomes.len(), orders.len());
    let after = |why| format!("{why} after {ended} of {all} runs: what follows is of these alone");
    let cut_short = match (stop.is_raised(), is_partial) {
        (true, _) => Some(after("INTERRUPTED")),
        (false, true) => Some(after("REFUSED")),
        (false, false) => None,
    };
    let none = outcomes.is_empty();
    if failed > 0 {
        let written = if none && !stop.is_raised() {
            "; no results are written"
        } else {
            ""
        };
        terminal::complain(&format!("tidegate: {failed} of {all} runs failed{written}"));
    }
    if none && (failed > 0 || stop.is_raised()) {
        folder.remove_made();
        if stop.is_raised() {
            terminal::complain(
                "tidegate: interrupted before a run had come to its end; no results are written",
            );
            return Ok(INTERRUPTED);
        }
        return Ok(code);
    }
    let scale = orders.first().map_or(1.0, |order| order.cell.scale);
    let mut footer = footer(outcomes.len(), scale, began);
    if arguments.is_as_stored() {
        footer.extend(hashes::compared(name, scale, &outcomes));
    }
    let about = About::of(&scenario, &source, matches!(world, World::Live(_)), VERSION);
    let summed = cells.iter().filter(|cell| !cell.apart);
    let mut summed: Vec<String> = summed.map(|cell| cell.case.clone()).collect();
    if !arguments.row.is_empty() {
        // A sum of some rows is not what was published of all.
        let all = scenario.rows().into_iter();
        summed.extend(all.map(|row| row.name.into_inner()));
    }
    let ended = Ended {
        outcomes,
        footer,
        columns: &names,
        rows: rows_once(&summed),
        is_whole: cut_short.is_none(),
        headline: cut_short.or_else(|| {
            (failed > 0).then(|| {
                format!("FAILED: {failed} of {all} runs; what follows is of the others alone")
            })
        }),
        checked: arguments.check,
        tables: arguments.tables,
    };
    let verdicts = finish(&scenario, &about, ended, folder.path())?;
    if stop.is_raised() {
        terminal::complain("tidegate: interrupted; the runs that had ended are in the results");
        return Ok(INTERRUPTED);
    }
    if arguments.check {
        code = code.max(check(&verdicts));
    }
    Ok(code)
}

const CITATION: &str = include_str!("../../../CITATION.cff");

/// The citation of this very program: that of CITATION.cff, and its commit.
fn cite() -> String {
    let value = |key: &str| {
        let mut values = CITATION
            .lines()
            .filter_map(|line| line.trim().strip_prefix(key));
        values.next().unwrap_or_default().trim_matches('"')
    };
    let (title, author) = (value("title: "), value("- name: "));
    let year = value("date-released: ")
        .split('-')
        .next()
        .unwrap_or_default();
    format!(
        "{author}: {title}. Version {VERSION}, {year}.\n\n@software{{tidegate,\n  author = {{{{{author}}}}},\n  \
         title = {{{title}}},\n  version = {{{VERSION}}},\n  year = {{{year}}}\n}}\n\n\
         Cite the papers that an experiment repeats, too: `tidegate list papers` names them.\n"
    )
}

/// The time and memory of our own that the runs took; `ended` of them came to their end.
fn footer(ended: usize, scale: f64, began: Instant) -> String {
    let (user, system) = os::cpu_times();
    format!(
        "\nRuns: {ended} at scale 1/{:.0} in {:.1} s of our time, {:.1} s of CPU time; at most {} MiB resident\n",
        1.0 / scale,
        began.elapsed().as_secs_f64(),
        watch::seconds(user + system),
        os::peak_resident_bytes() >> 20
    )
}

/// The outcome of all runs.
struct Ended<'a> {
    outcomes: Vec<Outcome>,
    /// Their cost.
    footer: String,
    columns: &'a [String],
    /// The rows that were to be run, but for those that stand apart.
    rows: Vec<String>,
    /// All runs that were to be made have been, failed or not.
    is_whole: bool,
    /// The line above the tables when not all planned runs were made.
    headline: Option<String>,
    /// Bands are wanted, those of what was not run too.
    checked: bool,
    /// All tables are printed.
    tables: bool,
}

/// Prints the comparison and writes the results; some run has ended.
fn finish(
    scenario: &Scenario,
    about: &About,
    ended: Ended<'_>,
    folder: &Path,
) -> Result<Vec<Verdict>, Trouble> {
    let made = ended.outcomes.len();
    let compared = pool::with_all(scenario, ended.outcomes, &ended.rows);
    let outcomes = &compared[..made];
    let report = Report::new(scenario, &compared, ended.columns.to_vec());
    let verdicts = expect::judge(scenario, &compared, ended.columns, ended.is_whole);
    let mut text = match &ended.headline {
        Some(headline) => format!("{headline}\n\n"),
        None => String::new(),
    };
    text.push_str(&report.render());
    let shown: Vec<&Verdict> = verdicts
        .iter()
        .filter(|verdict| ended.checked || !verdict.skipped)
        .collect();
    if !shown.is_empty() {
        text.push_str("\nExpectations\n");
        for verdict in &shown {
            text.push_str(&format!("  {}\n", verdict.line()));
        }
    }
    text.push_str(&ended.footer);
    if ended.tables {
        terminal::print(&text);
    } else {
        terminal::print(&report.summary(&Around {
            runs: &ended.footer,
            headline: ended.headline.as_deref(),
            verdicts: &shown,
            width: terminal::width(),
        }));
    }
    let tables = output::tables(about, outcomes, &report.comparisons());
    let whole = Shown {
        bands: shown.into_iter().cloned().collect(),
        figures: report.figures(),
        ..Shown::default()
    };
    output::write(folder, about, &tables, outcomes, &text, &whole)?;
    let what = if ended.headline.is_some() {
        "Results (partial)"
    } else {
        "Results"
    };
    terminal::print(&format!(
        "\n{what}: {} (begin with report.html; all tables: table.txt)\n",
        folder.display()
    ));
    for traced in outcomes.iter().filter(|outcome| outcome.timeline.is_some()) {
        let path = folder.join(output::trace_name(traced));
        terminal::print(&format!(
            "Trace: {} (open it at https://ui.perfetto.dev)\n",
            path.display()
        ));
    }
    Ok(verdicts)
}

/// A check that can judge nothing is a mistake, told before the work.
fn refuse_empty_check(
    scenario: &Scenario,
    cells: &[Cell],
    columns: &[String],
) -> Result<(), Trouble> {
    let mut rows: Vec<String> = cells.iter().map(|cell| cell.case.clone()).collect();
    if pool::is_asked(scenario) {
        rows.push(pool::ALL.to_owned());
    }
    if expect::any_applies(scenario, &rows, columns) {
        return Ok(());
    }
    let name = scenario.name.get_ref();
    Err(Trouble::Usage(if scenario.expects.is_empty() {
        format!("--check: `{name}` has no [[expect]] bands to judge; add some or leave --check out")
    } else {
        format!(
            "--check: no band of `{name}` is about the rows and columns {}; choose others with \
             --column or leave --check out",
            [rows_once(&rows), columns.to_vec()].concat().join(", ")
        )
    }))
}

fn rows_once(rows: &[String]) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for row in rows {
        if !once.contains(row) {
            once.push(row.clone());
        }
    }
    once
}

/// Names every band that fails the check.
fn check(verdicts: &[Verdict]) -> u8 {
    let failed: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.fails()).collect();
    for verdict in &failed {
        terminal::complain(&format!(
            "tidegate: {}\n  band of: {}",
            verdict.line(),
            verdict.source
        ));
    }
    if failed.is_empty() { OK } else { FAILED }
}

fn load(arguments: &RunArguments) -> Result<(Scenario, Source), Trouble> {
    let name = &arguments.experiment;
    let source = match name.to_str().and_then(experiments::by_name) {
        Some(source) => source,
        None => file(name)?,
    };
    let mut overrides = Vec::new();
    for set in &arguments.set {
        overrides.push(Override::parse(set)?);
    }
    if let Some(scale) = arguments
        .scale
        .or(live_scale(arguments, &source, &overrides)?)
    {
        // As a float: TOML tells 1 from 1.0, and so does the schema's message.
        let scale = format!("{scale:?}");
        overrides.push(Override::by_option("--scale", &["run", "scale"], scale));
    }
    if let Some(replicas) = arguments.replicas {
        overrides.push(Override::by_option(
            "--replicas",
            &["run", "replicas"],
            replicas,
        ));
    }
    if let Some(seed) = arguments.seed {
        overrides.push(Override::by_option("--seed", &["run", "seed"], seed));
    }
    Ok(Scenario::load(source, &overrides)?)
}

/// The smallest part of its size that a scenario is run at.
const PARTS_MOST: f64 = 64.0;

/// Live, a scenario of anonymous memory shrinks with the limit that is given: to the nearest part
/// of its own memory that is one over a whole number.
fn live_scale(
    arguments: &RunArguments,
    source: &Source,
    overrides: &[Override],
) -> Result<Option<f64>, Trouble> {
    let (Some(limit), true) = (arguments.memory, arguments.live.is_some()) else {
        return Ok(None);
    };
    let (scenario, _) = Scenario::load(source.clone(), overrides)?;
    if scenario.machine.swap.is_none() {
        return Ok(None);
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a limit of memory is below 2^53 bytes"
    )]
    let limit_mib = limit as f64 / 1_048_576.0;
    let memory_mib = scenario.machine.memory_mib.get_ref();
    let parts = (memory_mib / limit_mib).round();
    if parts > PARTS_MOST {
        return Err(Trouble::Usage(format!(
            "--memory {limit_mib:.0}M: live, `{}` shrinks with its limit, to a {PARTS_MOST}th of its {memory_mib} MiB at the \
             most; use at least --memory {:.0}M",
            scenario.name.get_ref(),
            (memory_mib / PARTS_MOST).ceil()
        )));
    }
    Ok(Some(1.0 / parts.max(1.0)))
}

fn file(path: &Path) -> Result<Source, Trouble> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Source { origin: name, text }),
        Err(error) if path.extension().is_some() || name.contains('/') => Err(Trouble::Usage(
            format!("cannot read the scenario {name}: {error}"),
        )),
        Err(_) if Papers::read().ids().any(|id| id == name) => Err(Trouble::Usage(format!(
            "`{name}` is a paper; `tidegate reproduce {name}` runs its experiments, `tidegate list papers` names them"
        ))),
        Err(_) => {
            let known = EXPERIMENTS.iter().map(|(known, _)| *known);
            Err(Trouble::Usage(format!(
                "there is no experiment `{name}`; {}; or name a scenario file",
                choices(&name, known)
            )))
        }
    }
}

fn world(arguments: &RunArguments, files: &LiveFiles) -> Result<World, Trouble> {
    let Some(dir) = &arguments.live else {
        return Ok(World::Lab);
    };
    if let Some(wrap) = &arguments.device
        && let Err(problem) = catalogue::check_wrap(wrap)
    {
        return Err(Trouble::Usage(format!("--device {wrap}: {problem}")));
    }
    let live = Live {
        dir: dir.clone(),
        wrap: arguments.device.clone(),
        memory: arguments.memory.map(Bytes),
        files: files.clone(),
    };
    live.check_dir()
        .map_err(|error| Trouble::Usage(error.to_string()))?;
    Ok(World::Live(live))
}

/// The rows that are run: those of that name, or all. On files there are no models: rows that
/// differ in nothing else are one, which is then called `live`, with its count if it has one.
///
/// # Errors
/// There is no such row, with those there are.
fn rows(scenario: &Scenario, named: &[String], world: &World) -> Result<Vec<RowEntry>, String> {
    let mut rows = scenario.rows();
    if matches!(world, World::Live(_)) {
        rows = without_models(rows);
    }
    let names: Vec<String> = rows.iter().map(|row| row.name.get_ref().clone()).collect();
    for name in named {
        if !names.contains(name) {
            let choices = choices(name, names.iter().map(String::as_str));
            return Err(format!("--row: there is no row `{name}`; {choices}"));
        }
    }
    rows.retain(|row| named.is_empty() || named.contains(row.name.get_ref()));
    Ok(rows)
}

/// Every row with every column.
fn cells(scenario: &Scenario, rows: &[RowEntry], columns: &[Column]) -> Vec<Cell> {
    let pairs = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| (row, column)));
    pairs
        .map(|(row, column)| Cell::resolve(scenario, row, column))
        .collect()
}

fn without_models(rows: Vec<RowEntry>) -> Vec<RowEntry> {
    let mut kept: Vec<(RowEntry, bool)> = Vec::new();
    for row in rows {
        match kept.iter_mut().find(|(other, _)| other.is_same_live(&row)) {
            Some((_, merged)) => *merged = true,
            None => kept.push((row, false)),
        }
    }
    let name = |(mut row, merged): (RowEntry, bool)| {
        if merged {
            let name = match &row.count {
                Some(count) => format!("live-{}", count.get_ref()),
                None => "live".to_owned(),
            };
            row.name = toml::Spanned::new(row.name.span(), name);
        }
        row
    };
    kept.into_iter().map(name).collect()
}

/// A second interrupt within 500 ms counts as the first: `timeout`, and a terminal with a wrapper,
/// send it twice.
const INTERRUPT_DEBOUNCE: Duration = Duration::from_millis(500);

/// Raised by the first interrupt, for runs without files.
fn interrupted() -> Stop {
    let stop = Stop::default();
    stop_at_interrupt(&stop, &LiveFiles::default());
    stop
}

/// The first interrupt ends the runs that are under way; a second one ends the program.
fn stop_at_interrupt(stop: &Stop, files: &LiveFiles) {
    let (stop, files) = (stop.clone(), files.clone());
    let mut first = None;
    let handler = ctrlc::set_handler(move || {
        if let Some(first) = first.filter(|_| stop.is_raised()) {
            if Instant::elapsed(&first) < INTERRUPT_DEBOUNCE {
                return;
            }
            files.remove_all();
            std::process::exit(i32::from(INTERRUPTED));
        }
        first = Some(Instant::now());
        stop.raise();
        terminal::complain("tidegate: stopping; once more to stop at once");
    });
    if let Err(error) = handler {
        terminal::complain(&format!("tidegate: interrupts will not be clean: {error}"));
    }
}

fn status(error: &RunError) -> u8 {
    match error {
        RunError::Impossible(_) | RunError::Os(_) => MISTAKE,
        _ => FAILED,
    }
}

//! `tidegate reproduce`: every published claim that there is an experiment for, and a scoreboard at
//! the end.
//!
//! ```text
//!   experiments/*.toml  --plan-->  runs  --workers-->  outcomes of one experiment
//!   papers.toml (claims without one)           |  judged, drawn, written to OUT/EXPERIMENT as `run` would
//!                                            v
//!                    OUT/EXPERIMENT/part.json  (kept: a second run with the same --out goes on from there)
//!                                            |
//!                    scoreboard (terminal, .txt, .json, .svg), index.html
//! ```
//!
//! Invariants
//!   1. A claim stands in one place: the `[[expect]]` of an experiment, or `papers.toml` until
//!      there is one. A new experiment with `paper = "pN"` takes part without a line here.
//!   2. Kept results are only used by the same program, for the same scenario, rows, columns and
//!      repetitions (`Planned::key`).
//!   3. Nothing is left out without being said: rows and columns, repetitions, experiments that an
//!      interrupt cut short.
//!
//! Concurrency: one queue of all runs, experiment after experiment, so that no core waits for an
//! experiment's last run.

mod asked;
mod board;
mod calibrated;
mod grade;
mod markdown;
mod page;
#[cfg(test)]
mod pages;
mod papers;
mod picture;
mod plan;
mod progress;
mod scoreboard;
mod text;
mod wanted;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use experiment::Stop;

pub use asked::{Asked, Format};
pub use board::{Claim, KnockOut, Seeds, Verdict};
use board::{Part, Ran};
use experiment::expect;
use experiment::outcome::Outcome;
use experiment::pool;
use experiment::run::{self, RunError, World};
use experiment::scenario::LoadError;
pub use grade::Grade;
use papers::Paper;
pub use papers::Papers;
use plan::{Planned, Unplanned};
use progress::Progress;
use report::comparison::Report;
use report::output::{self, About, Folder, OutputError, Shown};
use report::status::{FAILED, INTERRUPTED, OK};
use report::terminal;
pub use scoreboard::Board;
use scoreboard::PaperBoard;
use wanted::Wanted;

/// The result of an experiment, in its folder.
const PART: &str = "part.json";
/// All of it; a folder that has it is one of ours.
const BOARD: &str = "scoreboard.json";
const BOARD_TEXT: &str = "scoreboard.txt";
const INDEX: &str = "index.html";
/// The same as one picture.
const PICTURE: &str = "scoreboard.svg";

/// The command cannot begin or end its work.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A scenario is wrong.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Something on the command line.
    #[error("{0}")]
    Usage(String),
    /// The folder.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<Unplanned> for ReproduceError {
    fn from(unplanned: Unplanned) -> Self {
        match unplanned {
            Unplanned::Load(error) => Self::Load(error),
            Unplanned::Usage(problem) => Self::Usage(problem),
        }
    }
}

/// Does it, until `stop`, and prints the scoreboard; answers the exit status.
///
/// # Errors
/// A mistake in the command line or a scenario, or a folder that cannot be used.
pub fn main(asked: &Asked, stop: &Stop) -> Result<u8, ReproduceError> {
    let (board, path) = reproduce(asked, stop)?;
    match asked.format {
        Format::Json => terminal::print(&format!("{}\n", board.json())),
        Format::Markdown => terminal::print(&markdown::render(&board)),
        Format::Text => {
            terminal::print(&text::render(&board, terminal::width()));
            terminal::print(&format!("\nReport: {}\n", path.join(INDEX).display()));
        }
    }
    Ok(ended(&board, stop))
}

/// Does it, until `stop`: the scoreboard, and the folder with all results.
///
/// # Errors
/// A name or a scenario with a mistake, or a folder that cannot be used.
pub fn reproduce(asked: &Asked, stop: &Stop) -> Result<(Board, PathBuf), ReproduceError> {
    let papers = Papers::read();
    let planned = plan::plan(&papers, asked)?;
    let folder = Folder::make_marked(asked.out.as_deref(), "reproduce", BOARD)?;
    let path = folder.path();
    // The folder is known as ours from now on, however this ends.
    let marker = path.join(BOARD);
    if !marker.exists() {
        write(&marker, "{}\n")?;
    }
    let kept: Vec<Option<Part>> = planned.iter().map(|one| kept(path, one)).collect();
    let parts = run_all(&planned, kept, path, stop)?;
    let board = board(&papers, asked, &planned, parts, path);
    write(&path.join(BOARD_TEXT), &text::render(&board, text::WIDTH))?;
    write(&marker, &format!("{}\n", board.json()))?;
    let picture = picture::draw(&board);
    write(&path.join(INDEX), &page::page(&board, &picture))?;
    write(&path.join(PICTURE), &picture)?;
    Ok((board, path.to_owned()))
}

/// Says what is missing or failed, and answers the exit status.
fn ended(board: &Board, stop: &Stop) -> u8 {
    if stop.is_raised() {
        let go_on = board.go_on.as_deref().unwrap_or_default();
        terminal::complain(&format!(
            "tidegate: interrupted; not run: {}. Go on with: {go_on}",
            board.missing.join(", ")
        ));
        return INTERRUPTED;
    }
    for claim in board.failing() {
        let experiment = claim.experiment.as_deref().unwrap_or_default();
        terminal::complain(&format!(
            "tidegate: {experiment}: {} is {}, expected {}",
            claim.id,
            claim.ours.as_deref().unwrap_or("without a value"),
            claim.band
        ));
    }
    let failed_runs = board.failed_runs();
    if failed_runs > 0 {
        terminal::complain(&format!("tidegate: {failed_runs} runs failed"));
    }
    let all_well = board.failing().next().is_none() && failed_runs == 0;
    if all_well { OK } else { FAILED }
}

/// The result that an earlier run left of an experiment, if this one would come to the same.
fn kept(folder: &Path, planned: &Planned) -> Option<Part> {
    let text = std::fs::read_to_string(folder.join(planned.name()).join(PART)).ok()?;
    let part: Part = serde_json::from_str(&text).ok()?;
    (part.key == planned.key && part.failed_runs == 0).then_some(part)
}

fn write(path: &Path, text: &str) -> Result<(), OutputError> {
    std::fs::write(path, text).map_err(|error| OutputError::at(path)(&error))
}

/// One run of the queue: of which experiment, and which of its runs.
struct Next {
    planned: usize,
    order: usize,
}

/// The runs of one experiment so far.
struct Slot {
    results: Vec<Option<Result<Outcome, RunError>>>,
    left: usize,
    /// CPU time of the runs, s.
    cpu_s: f64,
}

/// Runs all that is not kept; the part of each experiment whose runs have all ended.
fn run_all(
    planned: &[Planned],
    mut parts: Vec<Option<Part>>,
    folder: &Path,
    stop: &Stop,
) -> Result<Vec<Option<Part>>, OutputError> {
    let mut to_run: Vec<usize> = (0..planned.len())
        .filter(|at| parts[*at].is_none())
        .collect();
    // Long runs first: at the end all cores have something short.
    to_run.sort_by(|one, other| planned[*other].a_run().total_cmp(&planned[*one].a_run()));
    let queue: VecDeque<Next> = to_run
        .iter()
        .flat_map(|&at| {
            let orders = 0..planned[at].orders.len();
            orders.map(move |order| Next { planned: at, order })
        })
        .collect();
    let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
    let workers = cores.min(queue.len());
    let progress = Progress::new(planned, &to_run, workers);
    let queue = Mutex::new(queue);
    let slots: Vec<Mutex<Slot>> = planned
        .iter()
        .map(|planned| {
            Mutex::new(Slot {
                results: planned.orders.iter().map(|_| None).collect(),
                left: planned.orders.len(),
                cpu_s: 0.0,
            })
        })
        .collect();
    let made: Mutex<Vec<(usize, Result<Part, OutputError>)>> = Mutex::default();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !stop.is_raised() {
                    let next = lock(&queue).pop_front();
                    let Some(Next { planned: at, order }) = next else {
                        return;
                    };
                    let one = &planned[at];
                    progress.began(one, &one.orders[order]);
                    let began = thread_cpu_s();
                    let result = run::run_one(&one.orders[order], &World::Lab, stop);
                    let cpu_s = thread_cpu_s() - began;
                    progress.ended(one, &one.orders[order], &result);
                    let mut slot = lock(&slots[at]);
                    slot.results[order] = Some(result);
                    slot.left -= 1;
                    slot.cpu_s += cpu_s;
                    if slot.left > 0 || stop.is_raised() {
                        continue;
                    }
                    let ended = (core::mem::take(&mut slot.results), slot.cpu_s);
                    drop(slot);
                    let part = finish(one, ended, folder);
                    let number = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if let Ok(part) = &part {
                        progress.part(number, part);
                    }
                    lock(&made).push((at, part));
                }
            });
        }
    });
    progress.finish();
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (at, part) in made {
        parts[at] = Some(part?);
    }
    Ok(parts)
}

/// CPU time of this thread so far, s.
fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let whole = u64::try_from(time.tv_sec).unwrap_or_default();
    let part = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(whole, part).as_secs_f64()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Judges an experiment whose runs have ended, and writes its results.
fn finish(
    planned: &Planned,
    (results, cpu_s): (Vec<Option<Result<Outcome, RunError>>>, f64),
    folder: &Path,
) -> Result<Part, OutputError> {
    let scenario = &planned.scenario;
    let ended = results.into_iter().flatten();
    let outcomes: Vec<Outcome> = ended.filter_map(Result::ok).collect();
    let made = outcomes.len();
    let compared = pool::with_all(scenario, outcomes, &planned.summed);
    let outcomes = &compared[..made];
    let ran = Ran {
        scenario,
        outcomes: &compared,
        columns: &planned.columns,
        summed: &planned.summed,
        wanted: &planned.wanted,
        smaller: planned.smaller,
        replicas: planned.replicas,
        replicas_asked: planned.replicas_asked,
    };
    let sides = wanted::sides(scenario);
    let figure = scenario.reproduce.figure.as_ref();
    let figure = figure.map(|name| name.get_ref().as_str());
    let part = Part {
        key: planned.key.clone(),
        experiment: planned.name().to_owned(),
        title: scenario.title.clone(),
        paper: planned.paper().to_owned(),
        scale: *scenario.run.scale.get_ref(),
        replicas: ran.replicas,
        replicas_asked: ran.replicas_asked,
        runs: made,
        failed_runs: planned.orders.len() - made,
        set: planned.set.clone(),
        left_out: planned.left_out.clone(),
        cpu_s,
        before: sides.map(|(before, _)| before.to_owned()),
        after: sides.map(|(_, after)| after.to_owned()),
        claims: ran.claims(),
        trade_offs: ran.trade_offs(),
        behind: ran.behind(),
        figure: output::one_figure(scenario, outcomes, figure),
    };
    let folder = folder.join(planned.name());
    std::fs::create_dir_all(&folder).map_err(|error| OutputError::at(&folder)(&error))?;
    write_results(planned, &ran, made, &folder)?;
    // Last: what has it has all the rest.
    let json = serde_json::to_string(&part).expect("plain data is JSON");
    write(&folder.join(PART), &json)?;
    Ok(part)
}

/// The tables, plots and report that `run` would have written.
fn write_results(
    planned: &Planned,
    ran: &Ran<'_>,
    made: usize,
    folder: &Path,
) -> Result<(), OutputError> {
    let scenario = &planned.scenario;
    let compared = ran.outcomes;
    let outcomes = &compared[..made];
    let about = About::of(scenario, &planned.source, false, planned.version);
    let report = Report::new(scenario, compared, planned.columns.clone());
    let mut text = report.render();
    text.push_str("\nExpectations\n");
    let bands = scenario
        .expects
        .iter()
        .flat_map(|expect| ran.verdicts(expect));
    let bands: Vec<expect::Verdict> = bands.collect();
    for verdict in &bands {
        text.push_str(&format!("  {}\n", verdict.line()));
    }
    let tables = output::tables(&about, outcomes, &report.comparisons());
    let shown = Shown {
        bands,
        figures: report.figures(),
        ..Shown::default()
    };
    output::write(folder, &about, &tables, outcomes, &text, &shown)
}

fn board(
    papers: &Papers,
    asked: &Asked,
    planned: &[Planned],
    parts: Vec<Option<Part>>,
    folder: &Path,
) -> Board {
    let missing: Vec<&Planned> = planned
        .iter()
        .zip(&parts)
        .filter_map(|(planned, part)| part.is_none().then_some(planned))
        .collect();
    let mut parts: Vec<Part> = parts.into_iter().flatten().collect();
    let named = &asked.papers;
    let of_paper = |paper: &Paper| {
        let is_asked = named.is_empty()
            || named.contains(&paper.id)
            || planned.iter().any(|one| one.paper() == paper.id);
        is_asked.then(|| {
            let own: Vec<Part>;
            (own, parts) = core::mem::take(&mut parts)
                .into_iter()
                .partition(|part| part.paper == paper.id);
            let whole = named.is_empty() || named.contains(&paper.id);
            let not_run = missing.iter().filter(|one| one.paper() == paper.id);
            PaperBoard {
                id: paper.id.clone(),
                subject: paper.subject.clone(),
                name: paper.name.clone(),
                who: paper.who.clone(),
                idea: paper.idea.clone(),
                parts: own,
                not_built: if whole {
                    papers.not_built(&paper.id)
                } else {
                    Vec::new()
                },
                not_run: not_run.flat_map(|one| claims_not_run(one)).collect(),
            }
        })
    };
    let boards = papers.papers.iter().map(of_paper);
    let boards: Vec<PaperBoard> = boards.collect::<Vec<_>>().into_iter().flatten().collect();
    Board {
        version: asked.version.into(),
        go_on: (!missing.is_empty()).then(|| command(asked, folder)),
        missing: missing.iter().map(|one| one.name().to_owned()).collect(),
        papers: boards,
    }
}

/// The claims of an experiment that was not run.
fn claims_not_run(planned: &Planned) -> Vec<Claim> {
    let ran = Ran {
        scenario: &planned.scenario,
        outcomes: &[],
        columns: &[],
        summed: &[],
        wanted: &Wanted::default(),
        smaller: planned.smaller,
        replicas: 1,
        replicas_asked: planned.replicas_asked,
    };
    let mut claims: Vec<Claim> = ran.claims();
    claims.retain(|claim| !claim.own);
    for claim in &mut claims {
        claim.verdict = Verdict::NotRun;
        claim.why = None;
    }
    claims
}

/// The command that goes on.
fn command(asked: &Asked, folder: &Path) -> String {
    let mut words = vec!["tidegate reproduce".to_owned()];
    words.extend(asked.papers.iter().cloned());
    if let Some(replicas) = asked.replicas {
        words.push(format!("--replicas {replicas}"));
    }
    if asked.whole {
        words.push("--whole".to_owned());
    }
    if let Some(scale) = asked.scale {
        words.push(format!("--scale {scale}"));
    }
    words.push(format!("--out {}", PathBuf::from(folder).display()));
    words.join(" ")
}

//! The command: every trace under every rule at every size.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use device::Layer;
use experiment::Stop;
use experiment::catalogue;
use experiment::presets::{self, PRESETS, Preset};
use experiment::scenario::choices;
use report::status::{INTERRUPTED, OK};
use report::terminal;

use policy::rule::RuleMaker;
use policy::units::Bytes;

use crate::live::{self, GoesOn, LiveError, Setting};
use crate::output::{self, Row, Table};
use crate::rules::{self, Build};
use crate::run::{self, Counts};
use crate::trace::{Format, Reading, Trace, TraceError};

/// Sizes that are replayed where none is asked for, in hundredths of the pages of a trace.
const SIZES: [u32; 8] = [1, 2, 5, 10, 20, 40, 60, 80];
/// Pages of a memory at most: they are numbers of 32 bits.
const PAGES_MOST: u64 = 1 << 31;
/// The part of the memory that is left which traces and their replays may take.
const MEMORY_PART: u64 = 2;
/// Interval of the reports of progress.
const SAID: Duration = Duration::from_millis(500);

/// A size of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A number of pages.
    Pages(u32),
    /// Hundredths of the pages of a trace.
    Percent(u32),
}

impl Size {
    /// A number of pages, or hundredths of a trace's: `4096`, `5%`.
    ///
    /// # Errors
    /// It is neither.
    pub fn of_pages(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no number of pages (4096), nor of per cent (5%)");
        let (number, is_part) = match text.strip_suffix('%') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let number: u32 = number.trim().parse().map_err(|_| wrong())?;
        match (number, is_part) {
            (1.., false) => Ok(Self::Pages(number)),
            (1..=100, true) => Ok(Self::Percent(number)),
            _ => Err(wrong()),
        }
    }

    /// A size in bytes, of whole pages: `64MiB`.
    ///
    /// # Errors
    /// It is none, or less than a page, or too large.
    pub fn of_bytes(text: &str) -> Result<Self, String> {
        let bytes = figures::size_above_zero(text).map_err(|error| error.to_string())?;
        let pages = bytes / policy::units::PAGE_SIZE;
        match u32::try_from(pages) {
            Ok(1..) if pages < PAGES_MOST => Ok(Self::Pages(u32::try_from(pages).unwrap_or(1))),
            _ => Err(format!("`{text}` is not between 4KiB, a page, and 8TiB")),
        }
    }

    fn pages(self, trace: &Trace) -> u32 {
        match self {
            Self::Pages(pages) => pages,
            Self::Percent(part) => {
                let pages = trace.pages() * u64::from(part) / 100;
                u32::try_from(pages.max(1)).unwrap_or(u32::MAX)
            }
        }
    }
}

/// A part of the pages of a trace, as `--sample` takes it: above 0, up to 1.
///
/// # Errors
/// It is neither a number nor in between.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| format!("`{text}` is no part of the pages: above 0, up to 1, as in 0.01"))
}

/// A replay as it was asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The files; `-` is standard input.
    pub traces: Vec<PathBuf>,
    /// Their format, if their names and contents are not to be asked.
    pub format: Option<Format>,
    /// Names of rules and presets.
    pub rules: Vec<String>,
    /// Rules that are none of ours, by name: of those above they come before ours.
    pub own: Vec<(String, Build)>,
    /// Sizes of memory; those of `SIZES` without any.
    pub sizes: Vec<Size>,
    /// The part of a trace's pages that is kept, above 0, up to 1. `None`: all, or as many as there
    /// is memory for.
    pub sample: Option<f64>,
    /// The draw of a sample: with another number it is of other pages.
    pub draw: u64,
    /// Bytes of memory for traces and their replays. `None`: half of what is left.
    pub memory: Option<u64>,
    /// Presets read ahead.
    pub readahead: bool,
    /// Layers that make the device of presets take time, as in `slow:latency=1ms`.
    pub device: Option<String>,
    /// For a program.
    pub json: bool,
    /// A file for the rows.
    pub csv: Option<PathBuf>,
    /// A file for the plot.
    pub plot: Option<PathBuf>,
}

/// It cannot be done as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A name that is none of a rule.
    #[error("--rule: there is no rule `{name}`; {choices}")]
    Rule {
        /// The name.
        name: String,
        /// The choices there are.
        choices: String,
    },
    /// A preset that cannot be replayed.
    #[error("{rule} with {pages} pages: {error}")]
    Live {
        /// The preset's name.
        rule: String,
        /// The size.
        pages: u32,
        /// Why.
        error: LiveError,
    },
    /// A device that cannot be made.
    #[error("--device {text}: {problem}")]
    Device {
        /// Its words.
        text: String,
        /// The mistake in them.
        problem: String,
    },
    /// A device, and nothing that takes time on it.
    #[error(
        "--device: presets alone take time; name one with --rule, as in --rule tidegate,linux-6.12"
    )]
    NoPreset,
    /// A sample, and what asks for all pages.
    #[error(
        "{file}: {option} needs every page, of which a sample of {rate} is here; leave it out, or cut the trace"
    )]
    Sampled {
        /// The trace's file.
        file: String,
        /// The option.
        option: &'static str,
        /// The part of the pages that is here.
        rate: f64,
    },
    /// A file of results.
    #[error("cannot write {file}: {error}")]
    Write {
        /// The file.
        file: String,
        /// Why.
        error: String,
    },
}

/// A rule of its own, or a preset.
#[derive(Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "a handful of them, one for each column"
)]
enum Player {
    Rule(Build),
    /// With a page rule instead of its own lists, maybe: `tidegate+reuse`.
    Preset(Preset, Option<RuleMaker>),
}

/// The names of all rules and presets.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    let presets = PRESETS.iter().map(|preset| preset.name);
    rules::ALL.iter().map(|(name, _)| *name).chain(presets)
}

fn player(name: &str, own: &[(String, Build)]) -> Result<Player, ReplayError> {
    let own = own.iter().map(|(known, build)| (known.as_str(), *build));
    let mut rules = own.chain(rules::ALL.iter().copied());
    if let Some((_, build)) = rules.find(|(known, _)| *known == name) {
        return Ok(Player::Rule(build));
    }
    let unknown = |name: &str, choices: String| ReplayError::Rule {
        name: name.to_owned(),
        choices,
    };
    let (preset, rule) = name.split_once('+').unzip();
    let preset = preset.unwrap_or(name);
    let preset = presets::by_name(preset).ok_or_else(|| match RuleMaker::by_name(preset) {
        Some(_) => unknown(
            preset,
            format!("a preset takes it, as in `tidegate+{preset}`"),
        ),
        None => unknown(preset, choices(preset, names())),
    });
    let of_presets = policy::rule::ALL.iter().map(|(name, _)| *name);
    let rule = rule.map(|rule| {
        let found = RuleMaker::by_name(rule);
        found.ok_or_else(|| unknown(rule, choices(rule, of_presets)))
    });
    Ok(Player::Preset(preset?, rule.transpose()?))
}

/// The device that presets are replayed on.
struct World {
    readahead: bool,
    device: Vec<Layer>,
}

fn world(asked: &Asked, players: &[Player]) -> Result<World, ReplayError> {
    let takes_time = |player: &Player| matches!(player, Player::Preset(..));
    let device = match &asked.device {
        None => Vec::new(),
        Some(_) if !players.iter().any(takes_time) => return Err(ReplayError::NoPreset),
        Some(text) => catalogue::wrapper(text).map_err(|problem| ReplayError::Device {
            text: text.clone(),
            problem,
        })?,
    };
    Ok(World {
        readahead: asked.readahead,
        device,
    })
}

/// A trace that was read.
struct Traced<'a> {
    file: &'a Path,
    trace: Arc<Trace>,
    /// Those of a sample, by which its error is judged.
    parts: Vec<Arc<Trace>>,
}

impl<'a> Traced<'a> {
    fn new(file: &'a Path, trace: Trace) -> Self {
        let parts = if trace.rate() < 1.0 {
            trace.parts()
        } else {
            Vec::new()
        };
        Self {
            file,
            trace: Arc::new(trace),
            parts: parts.into_iter().map(Arc::new).collect(),
        }
    }

    /// Accesses of a replay.
    fn len(&self) -> usize {
        self.trace.len() * if self.parts.is_empty() { 1 } else { 2 }
    }
}

/// One replay that is to be made.
struct Job<'a> {
    traced: &'a Traced<'a>,
    rule: &'a str,
    player: Player,
    pages: u32,
}

/// The end of a replay: its counts, and the standard error of their hit ratio where it is one of a
/// sample.
type Replayed = Result<Option<(Counts, Option<f64>)>, LiveError>;

impl Job<'_> {
    fn run(&self, world: &World, goes_on: &GoesOn) -> Replayed {
        let Traced { trace, parts, .. } = self.traced;
        let Some(counts) = self.of(trace, world, goes_on)? else {
            return Ok(None);
        };
        let mut ratios = Vec::new();
        for part in parts {
            match self.of(part, world, goes_on) {
                Ok(Some(counts)) => ratios.push(counts.hit_ratio()),
                Ok(None) => return Ok(None),
                Err(LiveError::Small { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        let is_whole = ratios.len() == parts.len() && !parts.is_empty();
        let error = is_whole.then(|| standard_error(&ratios, trace.rate()));
        Ok(Some((counts, error)))
    }

    /// The counts of the whole trace, by a sample of it.
    fn of(
        &self,
        trace: &Arc<Trace>,
        world: &World,
        goes_on: &GoesOn,
    ) -> Result<Option<Counts>, LiveError> {
        let pages = trace.scaled(self.pages);
        if pages == 0 {
            return Err(LiveError::Small {
                least: trace.whole(1),
            });
        }
        let counts = match &self.player {
            Player::Rule(build) => {
                let mut rule = build(trace, pages);
                run::replay(trace, &mut *rule, pages, &**goes_on)
            }
            Player::Preset(preset, rule) => {
                let setting = Setting {
                    preset: *preset,
                    rule: rule.clone(),
                    pages,
                    readahead: world.readahead,
                    device: world.device.clone(),
                };
                live::replay(trace, &setting, Arc::clone(goes_on))?
            }
        };
        Ok(counts.map(|counts| counts.of_whole(trace)))
    }
}

/// The standard error of a sample, by the ratios of its parts. A sample of all pages has none.
fn standard_error(ratios: &[f64], rate: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let parts = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / parts;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    (squares / (parts - 1.0) / parts * (1.0 - rate)).sqrt()
}

/// Reads the traces that are asked for, until `stop` ends it.
fn traces<'a>(
    asked: &'a Asked,
    memory: u64,
    watched: bool,
    stop: &Stop,
) -> Result<Vec<Traced<'a>>, ReplayError> {
    let mut traces = Vec::new();
    for file in &asked.traces {
        let reading = Reading {
            format: asked.format,
            rate: asked.sample.unwrap_or(1.0),
            draw: asked.draw,
            memory: memory / asked.traces.len() as u64,
        };
        let (mut said, name) = (Instant::now(), file.display().to_string());
        let ended = stop.clone();
        let goes_on = move |bytes| {
            if watched && said.elapsed() >= SAID {
                said = Instant::now();
                terminal::complain(&format!("  reading {name}: {}", Bytes(bytes).shown()));
            }
            !ended.is_raised()
        };
        let trace = match Trace::read(file, &reading, goes_on) {
            Err(_) if stop.is_raised() => return Ok(traces),
            trace => trace?,
        };
        let rate = trace.rate();
        let option = match asked {
            _ if rate >= 1.0 => None,
            Asked {
                readahead: true, ..
            } => Some("--readahead"),
            asked => asked.device.as_ref().map(|_| "--device"),
        };
        if let Some(option) = option {
            return Err(ReplayError::Sampled {
                file: file.display().to_string(),
                option,
                rate,
            });
        }
        traces.push(Traced::new(file, trace));
    }
    Ok(traces)
}

/// Memory for traces where nothing is said.
fn memory_left() -> u64 {
    let (available, group) = (os::Available::now(), os::Groups::of_process().limit());
    available
        .bytes
        .min(group.map_or(u64::MAX, |group| group.bytes))
        / MEMORY_PART
}

/// Replays what was asked for and prints it. Answers the exit status.
///
/// # Errors
/// A trace, a name or a size that cannot be replayed; a file that cannot be written.
pub fn main(asked: &Asked, stop: &Stop) -> Result<u8, ReplayError> {
    show(asked, &tables(asked, terminal::is_watched(), stop)?)?;
    if stop.is_raised() {
        terminal::complain("tidegate: interrupted; what is shown is of the replays that ended");
        return Ok(INTERRUPTED);
    }
    Ok(OK)
}

/// Replays what was asked for: a table for each trace. Replays that `stop` ends are in none.
/// `watched`: the terminal shows how far it is.
///
/// # Errors
/// A trace, a name or a size that cannot be replayed.
pub fn tables(asked: &Asked, watched: bool, stop: &Stop) -> Result<Vec<Table>, ReplayError> {
    let of = |name: &String| player(name, &asked.own);
    let players: Result<Vec<_>, _> = asked.rules.iter().map(of).collect();
    let players = players?;
    let world = world(asked, &players)?;
    let memory = asked.memory.unwrap_or_else(memory_left);
    let traces = traces(asked, memory, watched, stop)?;
    let mut jobs = Vec::new();
    for traced in &traces {
        for pages in sizes(asked, &traced.trace) {
            for (rule, player) in asked.rules.iter().zip(&players) {
                jobs.push(Job {
                    traced,
                    rule,
                    player: player.clone(),
                    pages,
                });
            }
        }
    }
    let held = traces.iter().map(|traced| traced.trace.held().0).sum();
    let each = traces.iter().map(|traced| traced.trace.held().1).max();
    let side_by_side = memory.saturating_sub(held) / each.unwrap_or(1).max(1);
    let results = run_all(&jobs, &world, side_by_side, watched, stop);
    let mut tables: Vec<Table> = traces
        .iter()
        .map(|traced| Table::new(traced.file.display().to_string(), &traced.trace))
        .collect();
    for (job, result) in jobs.iter().zip(results) {
        let counts = match result {
            None | Some(Ok(None)) => continue,
            Some(Ok(counts)) => counts,
            // Of several sizes the others are of use.
            Some(Err(LiveError::Small { .. })) if jobs.len() > 1 => None,
            Some(Err(error)) => {
                return Err(ReplayError::Live {
                    rule: job.rule.to_owned(),
                    pages: job.pages,
                    error,
                });
            }
        };
        let at = traces
            .iter()
            .position(|traced| core::ptr::eq(traced, job.traced));
        let table = at.and_then(|at| tables.get_mut(at));
        table.expect("a job is of a trace").rows.push(Row {
            rule: job.rule.to_owned(),
            pages: job.pages,
            counts: counts.map(|(counts, _)| counts),
            error: counts.and_then(|(_, error)| error),
        });
    }
    Ok(tables)
}

fn show(asked: &Asked, tables: &[Table]) -> Result<(), ReplayError> {
    let write = |file: &Option<PathBuf>, text: &dyn Fn() -> String| match file {
        None => Ok(()),
        Some(file) => std::fs::write(file, text()).map_err(|error| ReplayError::Write {
            file: file.display().to_string(),
            error: error.to_string(),
        }),
    };
    if asked.json {
        terminal::print(&output::json(tables));
    } else {
        terminal::print(&output::text(tables));
    }
    write(&asked.csv, &|| output::csv(tables))?;
    write(&asked.plot, &|| output::plot(tables))
}

/// Sizes of memory in pages, each once, in order.
fn sizes(asked: &Asked, trace: &Trace) -> Vec<u32> {
    let default = SIZES.map(Size::Percent);
    let sizes = if asked.sizes.is_empty() {
        &default
    } else {
        asked.sizes.as_slice()
    };
    let mut pages: Vec<u32> = sizes.iter().map(|size| size.pages(trace)).collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// Runs the jobs on all CPUs, at most `side_by_side` at once; `None`: it was not begun.
fn run_all(
    jobs: &[Job<'_>],
    world: &World,
    side_by_side: u64,
    watched: bool,
    stop: &Stop,
) -> Vec<Option<Replayed>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers
        .min(usize::try_from(side_by_side).unwrap_or(usize::MAX))
        .max(1);
    let next = AtomicUsize::new(0);
    let done = Arc::new(AtomicUsize::new(0));
    let all: usize = jobs.iter().map(|job| job.traced.len()).sum();
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<Replayed>> = jobs.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            let (sender, next, done) = (sender.clone(), &next, &done);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at).filter(|_| !stop.is_raised()) else {
                        return;
                    };
                    let (done, stop) = (Arc::clone(done), stop.clone());
                    let goes_on: GoesOn = Arc::new(move |accesses| {
                        done.fetch_add(accesses, Ordering::Relaxed);
                        !stop.is_raised()
                    });
                    let began = Instant::now();
                    let result = job.run(world, &goes_on);
                    // It waits for results as long as there is a worker.
                    let _ = sender.send((at, result, began.elapsed()));
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(SAID) {
                Ok((at, result, took)) => {
                    if watched {
                        terminal::complain(&said(&jobs[at], took));
                    }
                    results[at] = Some(result);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if watched => {
                    let done = done.load(Ordering::Relaxed);
                    terminal::complain(&format!("  {} %", done * 100 / all.max(1)));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    results
}

/// The line that says that a replay has ended, and its speed.
fn said(job: &Job<'_>, took: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 accesses")]
    let rate = job.traced.len() as f64 / took.as_secs_f64().max(1e-9) / 1e6;
    let file = job
        .traced
        .file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    format!(
        "{file}, {}, {} pages: {rate:.1} million accesses a second",
        job.rule, job.pages
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_pages_parts_or_bytes() {
        assert_eq!(Size::of_pages("4096"), Ok(Size::Pages(4096)));
        assert_eq!(Size::of_pages("5%"), Ok(Size::Percent(5)));
        assert_eq!(Size::of_bytes("1MiB"), Ok(Size::Pages(256)));
        for wrong in ["0", "0%", "101%", "many", "-1"] {
            let error = Size::of_pages(wrong).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
        for wrong in ["4095B", "64", "9TiB"] {
            let error = Size::of_bytes(wrong).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_rule_that_is_not_there_is_named_with_what_is() {
        let error = player("arcc", &[]).err().unwrap().to_string();
        assert!(error.contains("`arcc`") && error.contains("arc"), "{error}");
        assert!(player("linux-6.12", &[]).is_ok() && player("tidegate+s3-fifo", &[]).is_ok());
        let error = player("tidegate+arc", &[]).err().unwrap().to_string();
        assert!(
            error.contains("`arc`") && error.contains("reuse"),
            "{error}"
        );
        // A page rule that replay has no own program for goes with a preset.
        for (rule, _) in policy::rule::ALL {
            match player(rule, &[]) {
                Ok(_) => {}
                Err(error) => assert!(error.to_string().contains(&format!("`tidegate+{rule}`"))),
            }
        }
        let mut all: Vec<&str> = names().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), names().count());
    }
}

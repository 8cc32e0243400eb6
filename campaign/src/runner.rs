//! Many seeds on all CPUs: workers, progress, the end.
//!
//! Each worker takes the next seed, runs its plan, and every sixteenth twice. The first failure of
//! a kind is made small and written as a scenario file by the worker that found it; others of its
//! kind are counted. Seeds are handed out in order and a seed that has begun is finished, so
//! whatever ends a campaign, all seeds below the one named at the end are done.
//!
//! On a terminal one line is kept up to date; elsewhere there is a line a minute. A run that never
//! waits cannot be ended from outside: the process ends, and the seed is named.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use campaign::{Failure, Plan, Setup, Tally, shrink};

use crate::SHRINK_MAX;

/// Seeds where neither a number nor a time is given.
const SEEDS: u64 = 10_000;
/// One in this many seeds is run twice and must leave the same trace.
const TWICE: u64 = 16;
/// Exit status of a campaign that a signal ended and that had not failed.
const INTERRUPTED: u8 = 130;
/// Kinds of failures that are made small and written.
const KINDS_MAX: usize = 20;
/// Time of a CPU that a seed may take, thirty times what the slowest does. The clock says nothing:
/// at the lowest priority on a busy machine a seed of 27 s took more than 900 s of it.
const SEED_MAX: Duration = Duration::from_secs(900);
/// Interval at which the line on a terminal changes, and at which one is written elsewhere.
const TERMINAL_EVERY: Duration = Duration::from_millis(500);
const LINE_EVERY: Duration = Duration::from_secs(60);

/// The options of a campaign.
pub(crate) struct Options {
    pub(crate) seeds: Option<u64>,
    pub(crate) from: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) jobs: usize,
    pub(crate) out: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seeds: None,
            from: 1,
            time: None,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            out: "campaign-out".into(),
        }
    }
}

/// The state that the workers share.
struct Shared {
    next: AtomicU64,
    /// One past the last seed.
    end: u64,
    stop: AtomicBool,
    /// By a signal, not because its time was up.
    interrupted: AtomicBool,
    out: PathBuf,
    /// Kinds of failures met so far.
    kinds: Mutex<Vec<String>>,
    /// By worker: the seed it runs, and what CPU time this process had taken when it began.
    running: Vec<Mutex<Option<(u64, Duration)>>>,
}

enum News {
    Done(Tally),
    Failed {
        seed: u64,
        failure: Failure,
        /// The file, if it was the first of its kind.
        file: Option<String>,
    },
}

/// The failures of one kind.
struct Kind {
    times: u64,
    first: u64,
    message: String,
    file: Option<String>,
}

/// The campaign so far.
struct State {
    began: Instant,
    tally: Tally,
    done: u64,
    failures: BTreeMap<String, Kind>,
}

/// Runs a campaign and prints its tally.
///
/// # Errors
/// A seed failed, or a file could not be written.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    let out = options.out.clone();
    let count = match (options.seeds, options.time) {
        (Some(seeds), _) => seeds,
        (None, Some(_)) => u64::MAX - options.from,
        (None, None) => SEEDS,
    };
    let shared = Arc::new(Shared {
        next: AtomicU64::new(options.from),
        end: options.from.saturating_add(count),
        stop: AtomicBool::new(false),
        interrupted: AtomicBool::new(false),
        out,
        kinds: Mutex::new(Vec::new()),
        running: (0..options.jobs).map(|_| Mutex::new(None)).collect(),
    });
    stop_on_signals(&shared)?;
    // A task that sees the folder may end it.
    let folder = &shared.out;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (sender, news) = mpsc::channel();
    let workers: Vec<_> = (0..options.jobs)
        .map(|worker| {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::spawn(move || work(&shared, worker, &sender))
        })
        .collect();
    drop(sender);
    let mut state = State {
        began: Instant::now(),
        tally: Tally::default(),
        done: 0,
        failures: BTreeMap::new(),
    };
    let terminal = std::io::stderr().is_terminal();
    let every = if terminal { TERMINAL_EVERY } else { LINE_EVERY };
    let mut shown = Instant::now();
    loop {
        match news.recv_timeout(TERMINAL_EVERY) {
            Ok(news) => state.take(news, terminal),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if options
            .time
            .is_some_and(|time| state.began.elapsed() >= time)
        {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if shown.elapsed() >= every {
            shown = Instant::now();
            state.show(options, &shared, terminal);
            end_if_stuck(&shared);
        }
    }
    for worker in workers {
        worker.join().map_err(|_| "a worker has panicked")?;
    }
    clear_line(terminal);
    finish(options, &shared, &state)
}

/// The first signal ends the campaign after the seeds under way, the second at once.
fn stop_on_signals(shared: &Arc<Shared>) -> Result<(), String> {
    let shared = Arc::clone(shared);
    ctrlc::set_handler(move || {
        if shared.interrupted.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        shared.stop.store(true, Ordering::Relaxed);
    })
    .map_err(|error| format!("no handler for signals: {error}"))
}

fn work(shared: &Shared, worker: usize, news: &Sender<News>) {
    let running = |now: Option<(u64, Duration)>| {
        *shared.running[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = now;
    };
    while !shared.stop.load(Ordering::Relaxed) {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        if seed >= shared.end {
            shared.next.fetch_min(shared.end, Ordering::Relaxed);
            break;
        }
        running(Some((seed, cpu_time())));
        let plan = Plan::draw(seed);
        let result = run_seed(&plan, seed);
        running(None);
        let told = match result {
            Ok(tally) => News::Done(tally),
            Err(failure) => {
                let file = shared.is_first(&failure.kind).then(|| {
                    write_small(&shared.out, seed, &plan, &failure)
                        .unwrap_or_else(|problem| format!("(not written: {problem})"))
                });
                News::Failed {
                    seed,
                    failure,
                    file,
                }
            }
        };
        if news.send(told).is_err() {
            return;
        }
    }
}

fn run_seed(plan: &Plan, seed: u64) -> Result<Tally, Failure> {
    let setup = Setup::default();
    let outcome = campaign::run(plan, &setup)?;
    if seed.is_multiple_of(TWICE) {
        let again = campaign::run(plan, &setup)?;
        if again != outcome {
            return Err(Failure {
                kind: "not-deterministic".into(),
                message: format!("traces {:016x} and {:016x}", outcome.hash, again.hash),
            });
        }
    }
    Ok(outcome.tally)
}

impl Shared {
    fn is_first(&self, kind: &str) -> bool {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let first = kinds.len() < KINDS_MAX && !kinds.iter().any(|other| other == kind);
        if first {
            kinds.push(kind.into());
        }
        first
    }
}

/// Makes the failure small and writes its scenario file; answers its path.
fn write_small(out: &Path, seed: u64, plan: &Plan, failure: &Failure) -> Result<String, String> {
    let small = match shrink(plan, &Setup::default(), SHRINK_MAX) {
        Ok(shrunk) => shrunk.plan,
        // It does not come again: the plan as it is may still say something.
        Err(_) => plan.clone(),
    };
    let name: String = failure
        .kind
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    let path = out.join(format!("{name}-seed-{seed}.toml"));
    let mut small = small;
    small.note = format!("found by seed {seed}");
    std::fs::write(&path, small.to_toml())
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

impl State {
    fn take(&mut self, news: News, terminal: bool) {
        self.done += 1;
        match news {
            News::Done(tally) => self.tally.merge(&tally),
            News::Failed {
                seed,
                failure,
                file,
            } => {
                let kind = self
                    .failures
                    .entry(failure.kind.clone())
                    .or_insert_with(|| Kind {
                        times: 0,
                        first: seed,
                        message: failure.message.clone(),
                        file: None,
                    });
                kind.times += 1;
                if let Some(file) = file {
                    clear_line(terminal);
                    println!("seed {seed} FAILED: {failure}\n    {file}");
                    kind.file = Some(file);
                }
            }
        }
    }

    fn failed(&self) -> u64 {
        self.failures.values().map(|kind| kind.times).sum()
    }

    fn show(&self, options: &Options, shared: &Shared, terminal: bool) {
        let took = self.began.elapsed();
        let rate = per_second(self.done, took);
        let by_count = options.seeds.or(options.time.is_none().then_some(SEEDS));
        let left_by_count = by_count.map(|seeds| seeds.saturating_sub(self.done) / rate.max(1));
        let left_by_time = options.time.map(|time| time.saturating_sub(took).as_secs());
        let left = [left_by_count, left_by_time].into_iter().flatten().min();
        let line = format!(
            "seed {}, {} done, {rate}/s, {} faults, {} losses of power, {} failures, {} s to go",
            shared.next.load(Ordering::Relaxed),
            self.done,
            self.tally.sum_of("faults"),
            self.tally.sum("runs", "losses of power within"),
            self.failed(),
            left.unwrap_or(0),
        );
        if terminal {
            eprint!("\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
        } else {
            println!("campaign: {line}");
        }
    }
}

fn per_second(count: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1000) / millis
}

fn clear_line(terminal: bool) {
    if terminal {
        eprint!("\r\x1b[2K");
    }
}

/// User and system time of this process so far, which Linux counts in hundredths of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let times = after_name.split(' ').skip(11).take(2);
    Duration::from_millis(10 * times.flat_map(str::parse::<u64>).sum::<u64>())
}

/// A seed that takes so much longer than others will not end.
fn end_if_stuck(shared: &Shared) {
    let now = cpu_time();
    for cell in &shared.running {
        let running = *cell.lock().unwrap_or_else(PoisonError::into_inner);
        // A seed may have begun since `now` was read.
        if let Some((seed, began)) = running
            && is_stuck(now.saturating_sub(began), shared.running.len())
        {
            eprintln!(
                "campaign: seed {seed} does not end: something runs and never waits; its plan: \
                 campaign --plan {seed}"
            );
            std::process::exit(2);
        }
    }
}

/// `taken` is CPU time of the whole process, of which each of `jobs` seeds has its share.
fn is_stuck(taken: Duration, jobs: usize) -> bool {
    taken > SEED_MAX * u32::try_from(jobs).unwrap_or(u32::MAX)
}

fn finish(options: &Options, shared: &Shared, state: &State) -> Result<ExitCode, String> {
    let next = shared.next.load(Ordering::Relaxed);
    let took = state.began.elapsed();
    let mut text = format!(
        "seeds {} to {}, {} in all, {} jobs, {}.{} s, {}/s\n",
        options.from,
        next - 1,
        state.done,
        options.jobs,
        took.as_secs(),
        took.subsec_millis() / 100,
        per_second(state.done, took),
    );
    text += &state.tally.table();
    for (name, kind) in &state.failures {
        text += &format!(
            "FAILED {} times, first by seed {}: {name}: {}\n",
            kind.times,
            kind.first,
            kind.message.lines().next().unwrap_or_default()
        );
        if let Some(file) = &kind.file {
            text += &format!("    again: cargo xtask campaign --replay {file}\n");
        }
    }
    text += &format!("{} seeds, {} failures\n", state.done, state.failed());
    print!("{text}");
    let path = options.out.join("figures.txt");
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    if shared.stop.load(Ordering::Relaxed) {
        println!("to go on: cargo xtask campaign --from {next}");
    }
    match state.failed() {
        0 if shared.interrupted.load(Ordering::Relaxed) => Ok(INTERRUPTED.into()),
        0 => Ok(ExitCode::SUCCESS),
        failed => Err(format!("{failed} of {} seeds failed", state.done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_no_seed_that_does_not_end() {
        assert!(!is_stuck(SEED_MAX, 1), "all that a seed may take");
        assert!(is_stuck(SEED_MAX + Duration::from_millis(1), 1));
        // Eight seeds side by side take eight times as much of the process.
        assert!(!is_stuck(SEED_MAX * 8, 8) && is_stuck(SEED_MAX * 9, 8));
        let before = cpu_time();
        assert!(cpu_time() >= before);
    }
}

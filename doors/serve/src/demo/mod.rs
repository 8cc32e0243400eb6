//! `tidegate demo`: what pacing is, in a minute and with nothing to set up.
//!
//! ```text
//!   heavy:    2000 writes/s ──┐ NBD over a                          ┌ 2 ms a request,
//!   light:      20 writes/s ──┼─ Unix socket ──> server ──> cache ──┤ one at a time
//!   commits:     1 a second ──┘                (this process,       └ a temporary file
//!                                       or nbdkit's)
//! ```
//!
//! The same load runs two or three times, each time on a fresh server with a fresh volume. Where
//! nbdkit is installed, first on its write-back cache: what many have today. Then on ours as a
//! write-back cache that knows nothing of its disk, and lets writers go on until its memory is full
//! of data that the disk has not taken. Then replies are held for as long as the law of the cache
//! says. A *commit* is a write and a flush, as a database or a journal does them: it waits for all
//! that the cache holds by then. Every latency is measured by the clients, over the socket, once
//! the cache is full. Afterwards what is in the files is compared with what was written.

pub mod load;
pub mod map;
mod plot;
mod side;
mod table;

use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use side::{Client, Nbdkit, Ours, Side};

/// Requests a second that the heavy client would send.
const HEAVY_RATE: u64 = 2000;
/// Of the light one.
const LIGHT_RATE: u64 = 20;
/// Commits a second.
const COMMIT_RATE: u64 = 1;
/// Time that the disk takes for a request.
const DISK_LATENCY: Duration = Duration::from_millis(DISK_LATENCY_MS);
const DISK_LATENCY_MS: u64 = 2;
/// Memory of the cache, and how much of it may be dirty where writers are paced: half a second of
/// the disk.
const MEMORY: u64 = 32 << 20;
const DIRTY: u64 = 1 << 20;
/// Blocks that the heavy client writes to, more than there is memory, and behind them those of the
/// light one and of the commits. No more, for all of them are made before and read back at the end.
const HEAVY_BLOCKS: u64 = (64 << 20) / load::BLOCK as u64;
const LIGHT_BLOCKS: u64 = (1 << 20) / load::BLOCK as u64;
const COMMIT_BLOCKS: u64 = (1 << 20) / load::BLOCK as u64;
/// Seconds in which the heavy client has filled the cache, for sure: what it writes, less what the
/// disk takes meanwhile. (Not all of the memory is for pages, and a block that is written again
/// needs no new one: these two about cancel out.)
const FILL: u64 = MEMORY.div_ceil((HEAVY_RATE - DISK_RATE) * load::BLOCK as u64);
/// Requests a second that the disk does, one at a time.
const DISK_RATE: u64 = 1000 / DISK_LATENCY_MS;
/// Length of each part, seconds; figures are of its second half.
pub const SECONDS: std::ops::RangeInclusive<u64> = 2 * FILL..=600;

/// The columns.
const NBDKIT: &str = "nbdkit, writeback";
const NOT_PACED: &str = "ours, not paced";
const PACED: &str = "ours, paced";

/// The options of the demonstration.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The folder of the plot; the current directory without it.
    pub out: Option<PathBuf>,
    /// Seconds of each part.
    pub seconds: u64,
}

/// The complaint about parts of `seconds` seconds.
fn why_not(seconds: u64) -> &'static str {
    if seconds < *SECONDS.start() {
        "too short, the cache would not be full in its part"
    } else {
        "too long"
    }
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            out: None,
            seconds: 24,
        }
    }
}

/// Why the demonstration did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The parts are too short to show something, or too long.
    #[error("--seconds {seconds}: {}; choose {} to {}", why_not(*seconds), SECONDS.start(), SECONDS.end())]
    Seconds {
        /// The length asked for.
        seconds: u64,
    },
    /// The same of `demo map`.
    #[error("--seconds {seconds}: choose {least} to {most}")]
    MapSeconds {
        /// The length asked for.
        seconds: u64,
        /// The shortest.
        least: u64,
        /// The longest.
        most: u64,
    },
    /// A file, a folder or a socket.
    #[error("{what}: {}", crate::refusal::Refused(error))]
    Io {
        /// The subject.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// The cache could not be built.
    #[error("the cache: {0}")]
    Cache(#[from] tidegate::Error),
    /// A volume could not be opened.
    #[error(transparent)]
    Backend(#[from] crate::backend::BackendError),
    /// A client met an error.
    #[error("the {client} client: {error}")]
    Client {
        /// Which one.
        client: &'static str,
        /// The error it met.
        error: io::Error,
    },
    /// A block on the disk is not the block that was written: a bug of ours.
    #[error(
        "{wrong} blocks on the disk are not what the {client} client wrote; please report this"
    )]
    Wrong {
        /// The client.
        client: &'static str,
        /// Their number.
        wrong: usize,
    },
}

impl DemoError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Seconds { .. } | Self::MapSeconds { .. } => 2,
            Self::Io { .. }
            | Self::Cache(_)
            | Self::Backend(_)
            | Self::Client { .. }
            | Self::Wrong { .. } => 1,
        }
    }

    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |error| Self::Io { what, error }
    }
}

/// The measurements of the clients in one part.
pub(crate) struct Part {
    pub(crate) title: &'static str,
    pub(crate) heavy: load::Met,
    pub(crate) light: load::Met,
    pub(crate) commits: load::Met,
    /// From when on figures are taken: the cache is as full as it gets.
    pub(crate) from: Duration,
    pub(crate) lasting: Duration,
    /// Bytes that were written and not on the disk when the load ended, if the server says so.
    pub(crate) waiting: Option<u64>,
    /// Bytes that the disk took while it lasted.
    pub(crate) taken: Option<u64>,
    /// The worst delay of a thread that only sleeps: the machine's doing, not a disk's.
    pub(crate) late: Duration,
}

/// Runs it and prints what it shows.
///
/// # Errors
/// See `DemoError`.
pub fn run(options: &DemoOptions) -> Result<(), DemoError> {
    if !SECONDS.contains(&options.seconds) {
        return Err(DemoError::Seconds {
            seconds: options.seconds,
        });
    }
    let out = match &options.out {
        Some(out) => out.clone(),
        None => std::env::current_dir().map_err(DemoError::io("the current directory"))?,
    };
    std::fs::create_dir_all(&out).map_err(DemoError::io(out.display().to_string()))?;
    let plot = out.join("tidegate-demo.svg");
    can_be_written(&plot).map_err(DemoError::io(plot.display().to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = runtime()?;
    listen_for_interrupt(&runtime, &stop);
    let folder = Folder::new()?;
    let lasting = Duration::from_secs(options.seconds);
    say(&table::introduction(&folder.0));

    let mut parts = Vec::new();
    match Nbdkit::start(&folder.0)? {
        Some(mut side) => parts.push(part(NBDKIT, &mut side, lasting, &stop)?),
        None => say("nbdkit is not installed here, so its column is left out.\n"),
    }
    for (title, file, paced) in [(NOT_PACED, "before", false), (PACED, "after", true)] {
        let mut side = Ours::start(&runtime, &folder.0, file, paced)?;
        parts.push(part(title, &mut side, lasting, &stop)?);
    }
    say(&table::tables(&parts));
    std::fs::write(&plot, plot::draw(&parts)).map_err(DemoError::io(plot.display().to_string()))?;
    say(&table::conclusion(&parts, &plot));
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime, DemoError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("demo")
        .enable_all()
        .build()
        .map_err(DemoError::io("threads of the server"))
}

/// Checks that a file can be put there: said before the work, not after it. Leaves things as they
/// were.
fn can_be_written(path: &Path) -> io::Result<()> {
    let was_there = path.exists();
    std::fs::File::options()
        .append(true)
        .create(true)
        .open(path)?;
    if was_there {
        return Ok(());
    }
    std::fs::remove_file(path)
}

/// All clients at once, and the end of their server.
fn part(
    title: &'static str,
    side: &mut dyn Side,
    lasting: Duration,
    stop: &AtomicBool,
) -> Result<Part, DemoError> {
    let part = load_on(title, side, lasting, stop);
    side.end(part.as_ref().ok())?;
    part
}

/// All clients at once.
fn load_on(
    title: &'static str,
    side: &mut dyn Side,
    lasting: Duration,
    stop: &AtomicBool,
) -> Result<Part, DemoError> {
    let heavy_end = HEAVY_BLOCKS * load::BLOCK as u64;
    let light_end = heavy_end + LIGHT_BLOCKS * load::BLOCK as u64;
    let plan = |rate: u64, offset: u64, blocks: u64| load::Plan {
        every: Duration::from_secs(1) / u32::try_from(rate).unwrap_or(1),
        keeps_times: false,
        offset,
        blocks,
        flush_every: 0,
        seed: offset + 1,
    };
    let light = load::Plan {
        keeps_times: true,
        ..plan(LIGHT_RATE, heavy_end, LIGHT_BLOCKS)
    };
    // A writer that waits for a commit does not make up for those that were due meanwhile.
    let commits = load::Plan {
        flush_every: 1,
        ..plan(COMMIT_RATE, light_end, COMMIT_BLOCKS)
    };
    let clients = [
        ("heavy", plan(HEAVY_RATE, 0, HEAVY_BLOCKS)),
        ("light", light),
        ("committing", commits),
    ];
    let counts = [const { AtomicU64::new(0) }; 3];
    let mut targets = Vec::new();
    for (client, _) in &clients {
        let target = Client::connect(&*side);
        targets.push(target.map_err(|error| DemoError::Client { client, error })?);
    }
    let begin = Instant::now();
    let (seen, met, late) = std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .iter()
            .zip(targets)
            .zip(&counts)
            .map(|(((client, plan), mut target), done)| {
                scope.spawn(move || {
                    let met = load::run(&mut target, plan, begin, lasting, stop, done);
                    met.map_err(|error| DemoError::Client { client, error })
                })
            })
            .collect();
        let late = follow(title, begin, lasting, &counts, || {
            begin.elapsed() >= lasting || stop.load(Ordering::Relaxed)
        });
        let seen = side.seen();
        if stop.load(Ordering::Relaxed) {
            // A commit waits for the disk, and nobody for it.
            side.hurry();
        }
        let joined: Result<Vec<load::Met>, DemoError> = running
            .into_iter()
            .map(|client| {
                let ended = client.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        (seen, joined, late)
    });
    // A client whose server was ended by an interrupt has met an error.
    if stop.load(Ordering::Relaxed) {
        return Err(DemoError::Interrupted);
    }
    let mut met = met?.into_iter();
    let mut next = || met.next().unwrap_or_default();
    Ok(Part {
        title,
        heavy: next(),
        light: next(),
        commits: next(),
        from: lasting / 2,
        lasting,
        waiting: seen.waiting,
        taken: seen.taken,
        late,
    })
}

/// A nap whose length is known: what it takes beyond that is time without a CPU.
const NAP: Duration = Duration::from_millis(5);

/// A line that tells how far it is, where somebody watches. Answers how late its own naps ended at
/// worst.
fn follow(
    title: &str,
    begin: Instant,
    lasting: Duration,
    counts: &[AtomicU64; 3],
    is_over: impl Fn() -> bool,
) -> Duration {
    use std::io::IsTerminal as _;
    let watched = io::stderr().is_terminal();
    if !watched {
        say(&format!("{title}: {} s ...", lasting.as_secs()));
    }
    let mut before = [0; 3];
    let mut looked = begin;
    let mut late = Duration::ZERO;
    while !is_over() {
        // Often, and for short: of a machine that is busy it does not miss much.
        let asleep = Instant::now();
        std::thread::sleep(NAP);
        let now = Instant::now();
        late = late.max((now - asleep).saturating_sub(NAP));
        if !watched || now - looked < Duration::from_millis(500) {
            continue;
        }
        let counts = [0, 1, 2].map(|at: usize| counts[at].load(Ordering::Relaxed));
        let rate = |at: usize| (counts[at] - before[at]) as f64 / (now - looked).as_secs_f64();
        let _ = write!(
            io::stderr(),
            "\r{title:>23}: {:>2} of {} s   heavy {:>5.0} writes/s   light {:>3.0} writes/s   commits {}  ",
            (now - begin).min(lasting).as_secs(),
            lasting.as_secs(),
            rate(0),
            rate(1),
            counts[2],
        );
        (before, looked) = (counts, now);
    }
    if watched {
        let _ = writeln!(io::stderr());
    }
    late
}

/// A reader that has gone is no reason to fail.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Ctrl-C and TERM end it.
fn listen_for_interrupt(runtime: &tokio::runtime::Runtime, stop: &Arc<AtomicBool>) {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let stop = Arc::clone(stop);
        runtime.spawn(async move {
            if let Ok(mut signals) = signal(kind) {
                signals.recv().await;
                stop.store(true, Ordering::Relaxed);
            }
        });
    }
}

/// A folder of our own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, DemoError> {
        let path = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(DemoError::io(path.display().to_string()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The path of a volume's file.
fn file_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.img"))
}

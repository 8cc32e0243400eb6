//! `tidegate demo`: what pacing is, in half a minute and with nothing to set up.
//!
//! ```text
//!   heavy: 2000 writes/s ──┐ NBD over a                          ┌ 2 ms a request,
//!                          ├─ Unix socket ──> server ──> cache ──┤ one at a time
//!   light:   20 writes/s ──┘                (this process)       └ a temporary file
//! ```
//!
//! The same load runs twice, each time on a fresh server with a fresh volume: first nobody is held up until the cache's
//! memory is full of data that the disk has not taken; then replies are held for as long as the law of the cache says. Every latency
//! is measured by the clients, over the socket, once the cache is full. Then a third client asks for a flush, and waits as
//! long as the disk needs for what the cache holds. Afterwards what is in the files is compared with what was written.

pub mod load;
mod plot;
mod side;
mod table;

use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use side::{Client, Side};

/// Requests a second that the heavy client would send.
const HEAVY_RATE: u64 = 2000;
/// Of the light one.
const LIGHT_RATE: u64 = 20;
/// What the disk takes for a request.
const DISK_LATENCY: Duration = Duration::from_millis(DISK_LATENCY_MS);
const DISK_LATENCY_MS: u64 = 2;
/// Memory of the cache, and how much of it may be dirty where writers are paced. So little that it is full early: what
/// a cache that is not paced does only shows then.
const MEMORY: u64 = 12 << 20;
const DIRTY: u64 = 4 << 20;
/// Blocks that the heavy client writes to, eight times as many as may be dirty, and the light one behind them. No more,
/// for all of them are made before and read back at the end.
const HEAVY_BLOCKS: u64 = (32 << 20) / load::BLOCK as u64;
const LIGHT_BLOCKS: u64 = (2 << 20) / load::BLOCK as u64;
/// Seconds in which the heavy client has filled the cache, for sure: what it writes, less what the disk takes meanwhile.
/// (Not all of the memory is for pages, and a block that is written again needs no new one: these two about cancel out.)
const FILL: u64 = MEMORY.div_ceil((HEAVY_RATE - DISK_RATE) * load::BLOCK as u64);
/// Requests a second that the disk does, one at a time.
const DISK_RATE: u64 = 1000 / DISK_LATENCY_MS;
/// How long each half may last, seconds; figures are of its second part.
pub const SECONDS: std::ops::RangeInclusive<u64> = 2 * FILL..=600;

/// How the demonstration is run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Where the plot goes; the current directory without it.
    pub out: Option<PathBuf>,
    /// Seconds of each half.
    pub seconds: u64,
}

/// What is wrong with halves of so many seconds.
fn why_not(seconds: u64) -> &'static str {
    if seconds < *SECONDS.start() {
        "too short, the cache would not be full in its half"
    } else {
        "too long"
    }
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            out: None,
            seconds: 8,
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
    /// The halves are too short to show something, or too long.
    #[error("--seconds {seconds}: {}; choose {} to {}", why_not(*seconds), SECONDS.start(), SECONDS.end())]
    Seconds {
        /// What was asked for.
        seconds: u64,
    },
    /// A file, a folder or a socket.
    #[error("{what}: {}", crate::refusal::Refused(error))]
    Io {
        /// What it was about.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// The cache could not be had.
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
        /// What it met.
        error: io::Error,
    },
    /// What is on the disk is not what was written: a bug of ours.
    #[error(
        "{wrong} blocks on the disk are not what the {client} client wrote; please report this"
    )]
    Wrong {
        /// Whose.
        client: &'static str,
        /// How many.
        wrong: usize,
    },
}

impl DemoError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Seconds { .. } => 2,
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

/// What both clients met in one half.
pub(crate) struct Half {
    pub(crate) title: &'static str,
    pub(crate) heavy: load::Met,
    pub(crate) light: load::Met,
    /// From when on figures are taken: the cache is as full as it gets.
    pub(crate) from: Duration,
    pub(crate) lasting: Duration,
    /// Bytes that were written and not on the disk when the clients were done.
    pub(crate) waiting: u64,
    /// How long a client that wanted all of it on the disk then waited.
    pub(crate) flush: Duration,
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("demo")
        .enable_all()
        .build()
        .map_err(DemoError::io("threads of the server"))?;
    listen_for_interrupt(&runtime, &stop);
    let folder = Folder::new()?;
    let lasting = Duration::from_secs(options.seconds);
    say(&table::introduction(&folder.0));

    let mut halves = Vec::new();
    for (title, file, paced) in [("not paced", "before", false), ("paced", "after", true)] {
        let side = Side::start(&runtime, &folder.0, file, paced)?;
        let half = half(title, &side, lasting, &stop);
        // Nobody waits for a slow disk to take what is left: neither whoever looks on, nor whoever has interrupted.
        side.settle()?;
        let half = half?;
        side.verify(&half)?;
        halves.push(half);
    }
    say(&table::tables(&halves));
    std::fs::write(&plot, plot::draw(&halves))
        .map_err(DemoError::io(plot.display().to_string()))?;
    say(&table::conclusion(&halves, &plot));
    Ok(())
}

/// Whether a file can be put there: said before the half minute, not after it. Leaves things as they were.
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

/// Both clients at once.
fn half(
    title: &'static str,
    side: &Side,
    lasting: Duration,
    stop: &AtomicBool,
) -> Result<Half, DemoError> {
    let plan = |rate: u64, offset: u64, blocks: u64, is_light: bool| load::Plan {
        every: Duration::from_secs(1) / u32::try_from(rate).unwrap_or(1),
        keeps_times: is_light,
        offset,
        blocks,
        flush_every: 0,
        seed: offset + 1,
    };
    let heavy = plan(HEAVY_RATE, 0, HEAVY_BLOCKS, false);
    let heavy_end = HEAVY_BLOCKS * load::BLOCK as u64;
    let light = plan(LIGHT_RATE, heavy_end, LIGHT_BLOCKS, true);
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let connect = |client: &'static str| {
        Client::connect(side).map_err(move |error| DemoError::Client { client, error })
    };
    let (heavy_target, light_target) = (connect("heavy")?, connect("light")?);
    let begin = Instant::now();
    let drive = |client: &'static str, mut target: Client, plan: load::Plan, done| {
        let met = load::run(&mut target, &plan, begin, lasting, stop, done);
        met.map_err(|error| DemoError::Client { client, error })
    };
    let (heavy, light) = std::thread::scope(|scope| {
        let heavy = scope.spawn(|| drive("heavy", heavy_target, heavy, &counts[0]));
        let light = scope.spawn(|| drive("light", light_target, light, &counts[1]));
        follow(title, begin, lasting, &counts, || {
            heavy.is_finished() && light.is_finished()
        });
        let joined = |thread: std::thread::ScopedJoinHandle<'_, Result<load::Met, DemoError>>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok::<_, DemoError>((joined(heavy)?, joined(light)?))
    })?;
    if stop.load(Ordering::Relaxed) {
        return Err(DemoError::Interrupted);
    }
    let waiting = side.waiting();
    let mut third = connect("flushing")?;
    let began = Instant::now();
    let flushed = load::Target::flush(&mut third);
    flushed.map_err(|error| DemoError::Client {
        client: "flushing",
        error,
    })?;
    Ok(Half {
        title,
        heavy,
        light,
        from: lasting / 2,
        lasting,
        waiting,
        flush: began.elapsed(),
    })
}

/// A line that tells how far it is, where somebody watches.
fn follow(
    title: &str,
    begin: Instant,
    lasting: Duration,
    counts: &[AtomicU64; 2],
    is_over: impl Fn() -> bool,
) {
    use std::io::IsTerminal as _;
    let watched = io::stderr().is_terminal();
    if !watched {
        say(&format!("{title}: {} s ...", lasting.as_secs()));
    }
    let mut before = [0, 0];
    let mut looked = begin;
    while !is_over() {
        std::thread::sleep(Duration::from_millis(250));
        let now = Instant::now();
        if !watched || now - looked < Duration::from_millis(500) {
            continue;
        }
        let counts = [0, 1].map(|at: usize| counts[at].load(Ordering::Relaxed));
        let rate = |at: usize| (counts[at] - before[at]) as f64 / (now - looked).as_secs_f64();
        let _ = write!(
            io::stderr(),
            "\r{title:>9}: {:>2} of {} s   heavy {:>5.0} writes/s   light {:>3.0} writes/s  ",
            (now - begin).min(lasting).as_secs(),
            lasting.as_secs(),
            rate(0),
            rate(1),
        );
        (before, looked) = (counts, now);
    }
    if watched {
        let _ = writeln!(io::stderr());
    }
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

//! Writers whose every call is timed, through `write(2)` or through the cache: one program for
//! both, so that `cargo instruments bench pacing` compares the paths and not two programs.
//!
//! ```text
//! writers kernel                        SECONDS PATH,BYTES,EVERY_MS,START_S,OFFSET...
//! writers cache=MEMORY,DIRTY,BACKGROUND SECONDS PATH,BYTES,EVERY_MS,START_S,OFFSET...
//! ```
//!
//! Sizes in MiB but for BYTES and OFFSET. A writer writes BYTES at a time, one call after the other
//! from OFFSET on: with an EVERY_MS of 0 as fast as it is let, otherwise on a schedule whose times
//! a late call does not move (as `workload::light_writer`). Nobody syncs. It begins START_S after
//! the beginning, and all stop SECONDS after it. A path of a block device is written as it is, any
//! other is a fresh file.
//!
//! Says `begin` when the time begins, and at the end, in seconds since then and bytes:
//! `call,WRITER,STARTED,LATE,TOOK,BYTES` of every call (LATE: from when it was due to its start),
//! `level,AT,DIRTY,LIMIT` of the cache every 20 ms, `wait,CAUSE,COUNT,MAX` of what it waited for.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use policy::units::Bytes;
use tidegate::{Cache, Threshold};

type Problem = Box<dyn Error + Send + Sync>;

/// Time between two looks at the levels.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Room for calls, taken before the time begins.
const CALLS_ROOM: usize = 1 << 16;

const USAGE: &str = "usage: writers kernel|cache=MEMORY,DIRTY,BACKGROUND SECONDS \
                     PATH,BYTES,EVERY_MS,START_S,OFFSET...";

/// Which way the bytes go.
#[derive(Clone, Copy)]
enum Through {
    Kernel,
    Cache {
        memory: u64,
        dirty: u64,
        background: u64,
    },
}

struct Writer {
    path: PathBuf,
    bytes: usize,
    every: Duration,
    start: Duration,
    offset: u64,
}

enum Target {
    Kernel(File),
    Cache(Box<tidegate::File>),
}

struct Call {
    started: Duration,
    late: Duration,
    took: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((through, seconds, writers)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    if let Err(problem) = run(through, Duration::from_secs(seconds), &writers) {
        eprintln!("writers: {problem}");
        std::process::exit(1);
    }
}

fn parse(arguments: &[String]) -> Option<(Through, u64, Vec<Writer>)> {
    let [through, seconds, writers @ ..] = arguments else {
        return None;
    };
    let through = match through.strip_prefix("cache=") {
        None if through == "kernel" => Through::Kernel,
        None => return None,
        Some(sizes) => {
            let sizes = sizes.split(',').map(|size| size.parse::<u64>().ok());
            let [memory, dirty, background] = sizes.collect::<Option<Vec<_>>>()?.try_into().ok()?;
            Through::Cache {
                memory,
                dirty,
                background,
            }
        }
    };
    let writers = writers.iter().map(|text| writer(text));
    let writers = writers.collect::<Option<Vec<_>>>()?;
    (!writers.is_empty()).then_some((through, seconds.parse().ok()?, writers))
}

fn writer(text: &str) -> Option<Writer> {
    let fields: Vec<&str> = text.split(',').collect();
    let [path, bytes, every, start, offset] = fields[..] else {
        return None;
    };
    Some(Writer {
        path: path.into(),
        bytes: bytes.parse().ok().filter(|bytes| *bytes > 0)?,
        every: Duration::from_millis(every.parse().ok()?),
        start: Duration::from_secs(start.parse().ok()?),
        offset: offset.parse().ok()?,
    })
}

fn run(through: Through, seconds: Duration, writers: &[Writer]) -> Result<(), Problem> {
    let cache = match through {
        Through::Kernel => None,
        Through::Cache {
            memory,
            dirty,
            background,
        } => {
            let pages = |mib: u64| Threshold::Pages(Bytes(mib << 20).pages_floor());
            Some(
                Cache::builder()
                    .memory(memory << 20)
                    .dirty_limit(pages(dirty))
                    .background_limit(pages(background))
                    .build()?,
            )
        }
    };
    let targets = writers
        .iter()
        .map(|writer| open(&writer.path, cache.as_ref()));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    println!("begin");
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let (calls, levels) = thread::scope(|scope| {
        let levels = scope.spawn(|| levels(cache.as_ref(), began, &over));
        let started = writers.iter().zip(&targets);
        let started = started
            .map(|(writer, target)| scope.spawn(move || write(writer, target, began, seconds)));
        let started: Vec<_> = started.collect();
        let calls: Vec<_> = started
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        over.store(true, Ordering::Relaxed);
        (calls, levels.join())
    });
    let mut text = String::new();
    for (number, (writer, calls)) in writers.iter().zip(calls).enumerate() {
        for call in calls.map_err(|_| "a writer panicked")?? {
            let (started, late, took) = (call.started, call.late, call.took);
            let [started, late, took] = [started, late, took].map(|time| time.as_secs_f64());
            let bytes = writer.bytes;
            text += &format!("call,{number},{started:.6},{late:.6},{took:.6},{bytes}\n");
        }
    }
    text += &levels.map_err(|_| "the watcher of the levels panicked")?;
    if let Some(cache) = &cache {
        for wait in cache.stats().waits {
            let max = wait.max.as_secs_f64();
            text += &format!("wait,{},{},{max:.6}\n", wait.cause, wait.count);
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    // Nobody wants the bytes: what is not on the device yet need not go there.
    for target in targets {
        if let Target::Cache(file) = target {
            file.discard()?;
        }
    }
    Ok(cache.map_or(Ok(()), |cache| cache.close())?)
}

fn open(path: &Path, cache: Option<&Cache>) -> Result<Target, Problem> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let is_block = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    Ok(match cache {
        None => {
            let mut options = OpenOptions::new();
            options.write(true).create(!is_block).truncate(!is_block);
            Target::Kernel(options.open(path).map_err(named)?)
        }
        Some(cache) => {
            let options = tidegate::OpenOptions::new().direct(true);
            let options = options.create(!is_block).truncate(!is_block);
            Target::Cache(Box::new(cache.open(path, options)?))
        }
    })
}

fn write(
    writer: &Writer,
    target: &Target,
    began: Instant,
    lasting: Duration,
) -> Result<Vec<Call>, Problem> {
    let block = vec![0x5a_u8; writer.bytes];
    let mut calls = Vec::with_capacity(CALLS_ROOM);
    let (mut at, mut due) = (writer.offset, writer.start);
    loop {
        let is_scheduled = !writer.every.is_zero() || calls.is_empty();
        let early = due.saturating_sub(began.elapsed());
        if is_scheduled && !early.is_zero() {
            thread::sleep(early);
        }
        let started = began.elapsed();
        if started >= lasting || due >= lasting {
            return Ok(calls);
        }
        match target {
            Target::Kernel(file) => file.write_all_at(&block, at)?,
            Target::Cache(file) => {
                file.write_at(&block, at)?;
            }
        }
        calls.push(Call {
            started,
            late: if is_scheduled {
                started.saturating_sub(due)
            } else {
                Duration::ZERO
            },
            took: began.elapsed() - started,
        });
        at += writer.bytes as u64;
        due += writer.every;
    }
}

fn levels(cache: Option<&Cache>, began: Instant, over: &AtomicBool) -> String {
    let mut text = String::new();
    let Some(cache) = cache else {
        return text;
    };
    while !over.load(Ordering::Relaxed) {
        let stats = cache.stats();
        let (at, dirty) = (began.elapsed().as_secs_f64(), stats.dirty + stats.writeback);
        text += &format!("level,{at:.3},{dirty},{}\n", stats.dirty_limit);
        thread::sleep(LOOK_EVERY);
    }
    text
}

//! A heavy and a light writer on whatever serves blocks, every call timed: one program for all
//! columns of `cargo instruments bench serve`, so that it compares servers and not clients.
//!
//! ```text
//! load [KEY=VALUE..] TARGET
//!
//! TARGET         nbd:SOCKET[,EXPORT]  or  file:PATH (a file or a block device, through the kernel's page cache)
//! mode=both      heavy and light; `light`: the light one alone; `raw`: one write after the other as fast as it goes
//! warm=60 for=60 seconds before, and of what is measured
//! rate=2000      heavy writes a second; light_rate=20
//! span=512       MiB that the heavy one writes to; the light one has 8 MiB behind them
//! flush=0        the heavy one flushes after so many writes
//! calls=FILE     the heavy one's calls, a line each: when it began and how long it took (ms), `flush` if it was one
//! ```
//! Answers one line of JSON; times in ms.

use std::error::Error;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nbd::client::{Client, Wishes};
use serde_json::{Value, json};
use serve::demo::load::{BLOCK, Call, Lengths, Met, Plan, Target, run};

type Problem = Box<dyn Error + Send + Sync>;

/// Time between two reports on the standard error.
const REPORT_EVERY: Duration = Duration::from_secs(5);

struct Options {
    target: String,
    mode: String,
    warm: u64,
    lasting: u64,
    rate: u64,
    light_rate: u64,
    span: u64,
    flush: u64,
    calls: Option<String>,
}

fn main() {
    let result = parse(std::env::args().skip(1)).and_then(|options| measure(&options));
    match result {
        Ok(answer) => println!("{answer}"),
        Err(problem) => {
            eprintln!("load: {problem}");
            std::process::exit(1);
        }
    }
}

fn parse(words: impl Iterator<Item = String>) -> Result<Options, Problem> {
    let mut options = Options {
        target: String::new(),
        mode: "both".into(),
        warm: 60,
        lasting: 60,
        rate: 2000,
        light_rate: 20,
        span: 512,
        flush: 0,
        calls: None,
    };
    for word in words {
        let Some((key, value)) = word.split_once('=').filter(|_| !word.contains(':')) else {
            options.target = word;
            continue;
        };
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{key}: no number: {value}"))
        };
        match key {
            "mode" => options.mode = value.into(),
            "warm" => options.warm = number()?,
            "for" => options.lasting = number()?,
            "rate" => options.rate = number()?.max(1),
            "light_rate" => options.light_rate = number()?.max(1),
            "span" => options.span = number()?.max(1),
            "flush" => options.flush = number()?,
            "calls" => options.calls = Some(value.into()),
            _ => return Err(format!("no option '{key}'").into()),
        }
    }
    if options.target.is_empty() {
        return Err("no target: nbd:SOCKET[,EXPORT] or file:PATH".into());
    }
    Ok(options)
}

/// Over a Unix socket.
struct Nbd(Client<UnixStream>);

impl Target for Nbd {
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}

fn open(target: &str) -> Result<Box<dyn Target>, Problem> {
    if let Some(path) = target.strip_prefix("file:") {
        let file = std::fs::File::options().read(true).write(true).open(path);
        return Ok(Box::new(file.map_err(|error| format!("{path}: {error}"))?));
    }
    let socket = target
        .strip_prefix("nbd:")
        .ok_or("the target is nbd: or file:")?;
    let (socket, export) = socket.split_once(',').unwrap_or((socket, ""));
    let wishes = Wishes::export(export).simple();
    Ok(Box::new(Nbd(Client::unix(Path::new(socket), &wishes)?)))
}

fn measure(options: &Options) -> Result<Value, Problem> {
    let heavy_blocks = (options.span << 20) / BLOCK as u64;
    let every = |rate: u64| Duration::from_nanos(1_000_000_000 / rate);
    let heavy = Plan {
        every: if options.mode == "raw" {
            Duration::ZERO
        } else {
            every(options.rate)
        },
        keeps_times: false,
        offset: 0,
        blocks: heavy_blocks,
        flush_every: options.flush,
        seed: 1,
    };
    let light = Plan {
        every: every(options.light_rate),
        keeps_times: true,
        offset: heavy_blocks * BLOCK as u64,
        blocks: (8 << 20) / BLOCK as u64,
        flush_every: 0,
        seed: 2,
    };
    let warm = Duration::from_secs(options.warm);
    let lasting = warm + Duration::from_secs(options.lasting);
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let begin = Instant::now();
    let (heavy, light) = std::thread::scope(|scope| {
        let client = |plan: Plan, wanted: bool, done| {
            let stop = &stop;
            let target = &options.target;
            wanted.then(|| {
                scope.spawn(move || -> Result<Met, Problem> {
                    let mut target = open(target)?;
                    let met = run(&mut *target, &plan, begin, lasting, stop, done);
                    // A connection that fails ends the other, too.
                    if met.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    Ok(met?)
                })
            })
        };
        let heavy = client(heavy, options.mode != "light", &counts[0]);
        let light = client(light, options.mode != "raw", &counts[1]);
        let reports = scope.spawn(|| report(begin, &counts, &over));
        let join = |thread: Option<std::thread::ScopedJoinHandle<'_, Result<Met, Problem>>>| {
            thread.map_or(Ok(Met::default()), |thread| {
                thread.join().map_err(|_| "a client panicked")?
            })
        };
        let both = (join(heavy), join(light));
        over.store(true, Ordering::Relaxed);
        let _ = reports.join();
        (both.0, both.1)
    });
    let (heavy, light) = (heavy?, light?);
    if let Some(path) = &options.calls {
        list(&heavy, path).map_err(|error| format!("{path}: {error}"))?;
    }
    let (during, apart) = light.beside_flushes_of(&heavy, warm);
    Ok(json!({
        "heavy_per_s": rate(&heavy, warm, lasting),
        "light_per_s": rate(&light, warm, lasting),
        "heavy": of(&heavy.writes(warm)),
        "pauses": of(&heavy.pauses(warm)),
        "flushes": of(&heavy.flushes(warm)),
        "light": of(&light.writes(warm)),
        "light_during_flush": of(&during),
        "light_apart": of(&apart),
    }))
}

/// One line for each call.
fn list(met: &Met, path: &str) -> io::Result<()> {
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    for call in &met.calls {
        let what = if call.is_flush { " flush" } else { "" };
        writeln!(file, "{:.3} {:.3}{what}", ms(call.from), ms(call.took))?;
    }
    file.flush()
}

/// Writes a second that were answered in the time that is measured; of a client that flushes, from
/// the end of a flush to that of the last one, so that the writes of each flush count with the time
/// that it takes.
fn rate(met: &Met, warm: Duration, lasting: Duration) -> f64 {
    let end = |call: &Call| call.from + call.took;
    let mut flushed = (met.calls.iter())
        .filter(|call| call.is_flush)
        .map(end)
        .filter(|end| *end >= warm);
    let (from, to) = match (flushed.next(), flushed.next_back()) {
        (Some(first), Some(last)) => (first, last),
        _ => (warm, lasting),
    };
    let answered = met.calls.iter().filter(|call| {
        let end = end(call);
        !call.is_flush && end > from && end <= to
    });
    answered.count() as f64 / (to - from).as_secs_f64()
}

fn of(lengths: &Lengths) -> Value {
    let ms = |length: Option<Duration>| length.map(|length| length.as_secs_f64() * 1e3);
    json!({
        "count": lengths.count(),
        "p50": ms(lengths.percentile(500)),
        "p90": ms(lengths.percentile(900)),
        "p99": ms(lengths.percentile(990)),
        "max": ms(lengths.max()),
    })
}

fn report(begin: Instant, counts: &[AtomicU64; 2], over: &AtomicBool) {
    let (mut before, mut looked) = ([0, 0], begin);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if looked.elapsed() < REPORT_EVERY {
            continue;
        }
        let now = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let seconds = looked.elapsed().as_secs_f64();
        eprintln!(
            "  {:>4} s: heavy {:>6.0}/s, light {:>4.0}/s",
            begin.elapsed().as_secs(),
            (now[0] - before[0]) as f64 / seconds,
            (now[1] - before[1]) as f64 / seconds
        );
        (before, looked) = (now, Instant::now());
    }
}

//! Loads from and stores to a file that is larger than the memory for it, through a map of
//! Tidegate's, its calls, the kernel's map, or umap: one program for all, so that `cargo
//! instruments bench maps` compares the paths and not programs.
//!
//! ```text
//! maps WAY PART PATH MIB LIMIT_MIB SECONDS [GROUP]
//! ```
//!
//! | way | |
//! |---|---|
//! | `map`, `reuse` | a map of Tidegate's with its own rule of pages, and with the rule `reuse` |
//! | `calls` | `read_at` and `write_at` of Tidegate |
//! | `kernel`, `random` | the kernel's map, and with the advice that accesses are random |
//! | `umap` | a map of umap's, if there is a libumap.so |
//!
//! | part | |
//! |---|---|
//! | `load`, `store` | a word of random pages, each timed, once the memory is full, or SECONDS have passed |
//! | `scan` | a word of each line of pages in order, as far as it comes in SECONDS |
//! | `fill` | a store to each of them, each timed |
//! | `beside`, `beside-in-order` | a storer that does not rest, beside one that rests 2 ms, a reader of 8 MiB and one of all |
//! | `hot` | a random page of half the memory and the next of all others, in turn: hits of the former |
//!
//! The file is one of `MIB` MiB whose every page has its number in its second word. The process
//! joins the memory cgroup GROUP first. Answers one line of JSON, before it takes all down; one of
//! `SKIPPED:` where there is no such way here.

mod memory;

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map as Figures, Value, json};
use tidegate::{Cache, File, MapOptions, RuleMaker};

use memory::Memory;

type Problem = Box<dyn Error + Send + Sync>;

const BYTES: usize = 4096;
const PAGE: u64 = BYTES as u64;
const PAGES_A_MIB: u64 = 256;
/// Of `beside`, in pages: those of the reader of little, and behind them those of the light storer;
/// the heavy one and the reader of all have the rest.
const HOT: u64 = 8 * PAGES_A_MIB;
const LIGHT: u64 = 16 * PAGES_A_MIB;
const HEAVY_FROM: u64 = 32 * PAGES_A_MIB;
/// Between two accesses of the reader of little, the light storer, the reader of all.
const RESTS: [Duration; 3] = [
    Duration::from_micros(500),
    Duration::from_millis(2),
    Duration::from_millis(20),
];
/// Between two looks at what is resident.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Ticks of a second, as the system tells CPU time.
const TICKS: f64 = 100.0;

const USAGE: &str = "usage: maps WAY PART PATH MIB LIMIT_MIB SECONDS [GROUP]";

/// Pages, one way or the other.
enum Target {
    Memory(Memory),
    Calls(Box<File>),
}

struct Run {
    target: Target,
    pages: u64,
    /// Pages that there is memory for.
    limit: u64,
    lasting: Duration,
}

/// A generator of numbers: xorshift.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Err(problem) = run(&words) {
        eprintln!("maps: {problem}");
        std::process::exit(1);
    }
}

fn run(words: &[&str]) -> Result<(), Problem> {
    let [way, part, path, mib, limit, seconds, group @ ..] = words else {
        return Err(USAGE.into());
    };
    if let [group] = group {
        std::fs::write(
            Path::new(group).join("cgroup.procs"),
            std::process::id().to_string(),
        )?;
    }
    let (path, pages) = (Path::new(path), mib.parse::<u64>()? * PAGES_A_MIB);
    let limit: u64 = limit.parse::<u64>()? * PAGES_A_MIB;
    let (mut cache, mut file) = (None, None);
    let target = match *way {
        "map" | "reuse" | "calls" => {
            let builder = Cache::builder().memory(limit * PAGE).maps(*way != "calls");
            let made = match *way {
                "reuse" => builder.page_rule(RuleMaker::by_name(way).ok_or("no rule reuse")?),
                _ => builder,
            };
            let made = cache.insert(made.build()?);
            let options = tidegate::OpenOptions::new().direct(true);
            let opened = made.open(path, options)?;
            if *way == "calls" {
                Target::Calls(Box::new(opened))
            } else {
                let opened = file.insert(opened);
                let map = opened.map(0..pages * PAGE, MapOptions::new().write(true));
                match map {
                    Err(tidegate::Error::System(
                        error @ tidegate::SystemError::NoFaults { .. },
                    )) => {
                        return skip(&error.to_string());
                    }
                    map => Target::Memory(Memory::of_tidegate(map?)?),
                }
            }
        }
        "kernel" | "random" | "umap" => {
            let opened = OpenOptions::new().read(true).write(true).open(path)?;
            if *way == "umap" {
                match Memory::of_umap(opened, pages)? {
                    Some(memory) => Target::Memory(memory),
                    None => return skip("there is no libumap.so (github.com/LLNL/umap)"),
                }
            } else {
                Target::Memory(Memory::of_kernel(&opened, pages, *way == "random")?)
            }
        }
        _ => return Err(format!("no way '{way}'\n{USAGE}").into()),
    };
    let run = Run {
        target,
        pages,
        limit,
        lasting: Duration::from_secs_f64(seconds.parse()?),
    };
    let (over, mut resident) = (AtomicBool::new(false), 0);
    let figures = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                resident = run.resident().max(resident);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let figures = run.measure(part);
        over.store(true, Ordering::Relaxed);
        figures
    });
    let mut figures = figures?;
    if resident > 0 {
        figures.insert("resident_mib".into(), json!(mib_of(resident)));
    }
    println!("{}", Value::Object(figures));
    // Nobody wants the bytes: the dirty ones need not go to the device.
    match run.target {
        Target::Memory(memory) => drop(memory),
        Target::Calls(file) => file.discard()?,
    }
    if let Some(file) = file {
        file.discard()?;
    }
    Ok(cache.map_or(Ok(()), |cache| cache.close())?)
}

fn skip(why: &str) -> Result<(), Problem> {
    println!("SKIPPED: {why}");
    Ok(())
}

impl Run {
    fn measure(&self, part: &str) -> Result<Figures<String, Value>, Problem> {
        match part {
            "load" => self.random(|run, page| run.load(page)),
            "store" => self.random(|run, page| run.store(page)),
            "scan" => self.scan(),
            "fill" => self.fill(),
            "beside" => self.beside(false),
            "beside-in-order" => self.beside(true),
            "hot" => self.hot(),
            _ => Err(format!("no part '{part}'\n{USAGE}").into()),
        }
    }

    fn load(&self, page: u64) -> Result<(), Problem> {
        let number = match &self.target {
            Target::Memory(memory) => memory.load(page),
            Target::Calls(file) => {
                let mut word = [0; 8];
                file.read_at(&mut word, page * PAGE + 8)?;
                u64::from_le_bytes(word)
            }
        };
        if number == page {
            Ok(())
        } else {
            Err(format!("page {page} says that it is {number}").into())
        }
    }

    fn store(&self, page: u64) -> Result<(), Problem> {
        match &self.target {
            Target::Memory(memory) => memory.store(page),
            Target::Calls(file) => {
                file.write_at(&page.to_le_bytes(), page * PAGE + 24)?;
            }
        }
        Ok(())
    }

    /// Bytes that a map of Tidegate has in memory.
    fn resident(&self) -> u64 {
        match &self.target {
            Target::Memory(memory) => memory.map().map_or(0, tidegate::Map::resident),
            Target::Calls(_) => 0,
        }
    }

    /// Accesses to random pages, once those that went before have filled the memory.
    fn random(
        &self,
        access: impl Fn(&Self, u64) -> Result<(), Problem>,
    ) -> Result<Figures<String, Value>, Problem> {
        let mut numbers = Numbers(88_172_645_463_325_252);
        let begin = Instant::now() + self.lasting;
        for _ in 0..self.limit * 3 / 2 {
            access(self, numbers.below(self.pages))?;
            if Instant::now() >= begin {
                break;
            }
        }
        let mut times = Times::default();
        let (began, cpu) = (Instant::now(), cpu_seconds()?);
        let mut now = began;
        while now < began + self.lasting {
            access(self, numbers.below(self.pages))?;
            now = times.note(now);
        }
        let cpu = cpu_seconds()? - cpu;
        let mut figures = times.told("");
        let count = times.0.len() as f64;
        figures.insert("cpu_us".into(), json!(cpu * 1e6 / count));
        figures.insert("per_s".into(), json!(count / (now - began).as_secs_f64()));
        Ok(figures)
    }

    fn scan(&self) -> Result<Figures<String, Value>, Problem> {
        let began = Instant::now();
        let mut sum = 0_u64;
        let mut bytes = [0; BYTES];
        let pages = (0..self.pages).take_while(|_| began.elapsed() < self.lasting);
        let mut count = 0;
        for page in pages {
            count += 1;
            sum = sum.wrapping_add(match &self.target {
                Target::Memory(memory) => memory.sum(page),
                Target::Calls(file) => {
                    file.read_at(&mut bytes, page * PAGE)?;
                    let words = bytes.chunks_exact(64).filter_map(|line| line.first_chunk());
                    words.fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
                }
            });
        }
        // So that nobody leaves the loads out.
        std::hint::black_box(sum);
        let mut figures = Figures::new();
        figures.insert("gb_s".into(), json!(rate(count, began)));
        Ok(figures)
    }

    fn fill(&self) -> Result<Figures<String, Value>, Problem> {
        let mut times = Times::default();
        let began = Instant::now();
        let mut now = began;
        for page in 0..self.pages {
            if now >= began + self.lasting {
                break;
            }
            self.store(page)?;
            now = times.note(now);
        }
        let mut figures = times.told("");
        let count = times.0.len() as u64;
        figures.insert("gb_s".into(), json!(rate(count, began)));
        Ok(figures)
    }

    fn beside(&self, in_order: bool) -> Result<Figures<String, Value>, Problem> {
        let rest = HEAVY_FROM..self.pages;
        // Name, pages, stores, rest between two.
        let all = [
            ("heavy", rest.clone(), true, Duration::ZERO),
            ("hot", 0..HOT, false, RESTS[0]),
            ("light", HOT..HOT + LIGHT, true, RESTS[1]),
            ("cold", rest, false, RESTS[2]),
        ];
        if self.pages <= HEAVY_FROM {
            return Err(format!("{HEAVY_FROM} pages are too few").into());
        }
        let end = Instant::now() + self.lasting;
        let told = std::thread::scope(|scope| {
            let started = all
                .iter()
                .zip(1..)
                .map(|((name, pages, stores, rest), seed)| {
                    let task = move || -> Result<Times, Problem> {
                        let mut times = Times::default();
                        let mut numbers = Numbers(88_172_645_463_325_252 + seed * 7919);
                        let in_order = in_order && *name == "heavy";
                        for count in 0.. {
                            let at = match in_order {
                                true => count % (pages.end - pages.start),
                                false => numbers.below(pages.end - pages.start),
                            };
                            let began = Instant::now();
                            if began >= end {
                                break;
                            }
                            match stores {
                                true => self.store(pages.start + at)?,
                                false => self.load(pages.start + at)?,
                            }
                            times.note(began);
                            if !rest.is_zero() {
                                std::thread::sleep(*rest);
                            }
                        }
                        Ok(times)
                    };
                    (*name, scope.spawn(task))
                });
            let started: Vec<_> = started.collect();
            let ended = started.into_iter().map(|(name, task)| (name, task.join()));
            ended.collect::<Vec<_>>()
        });
        let mut figures = Figures::new();
        let mut longest = 0.0_f64;
        for (name, times) in told {
            let mut times = times.map_err(|_| "a task panicked")??;
            longest = longest.max(times.longest());
            if name == "heavy" {
                let bytes = times.0.len() as f64 * PAGE as f64;
                let rate = bytes / 1e6 / self.lasting.as_secs_f64();
                figures.insert("heavy_mb_s".into(), json!(rate));
            }
            figures.append(&mut times.told(&format!("{name}_")));
        }
        figures.insert("longest_ms".into(), json!(longest * 1e3));
        Ok(figures)
    }

    /// Random pages of a hot set, half of what there is memory for, and the next of all others in
    /// turn; how many of the former need no read.
    fn hot(&self) -> Result<Figures<String, Value>, Problem> {
        let hot = self.limit / 2;
        let mut numbers = Numbers(88_172_645_463_325_252);
        let (mut hits, mut count) = (0_u64, 0_u64);
        // The scan goes through the rest once; the first quarter is the warm-up.
        let scan = self.pages - hot;
        for at in 0..scan {
            self.load(hot + at)?;
            let page = numbers.below(hot);
            if at < scan / 4 {
                self.load(page)?;
                continue;
            }
            let before = self.reads()?;
            self.load(page)?;
            count += 1;
            hits += u64::from(self.reads()? == before);
        }
        let mut figures = Figures::new();
        figures.insert("hits".into(), json!(100.0 * hits as f64 / count as f64));
        Ok(figures)
    }

    /// Accesses of this thread that had to be read, by whoever keeps the memory.
    fn reads(&self) -> Result<u64, Problem> {
        match &self.target {
            Target::Memory(memory) => match memory.map() {
                Some(map) => Ok(map.stats().reads_total),
                None => Ok(stat_of("thread-self")?[MAJOR_FAULTS]),
            },
            Target::Calls(file) => Ok(file.stats()?.misses_total),
        }
    }
}

/// The lengths of accesses, in nanoseconds.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    /// An access that began then has ended now, which is the answer.
    fn note(&mut self, began: Instant) -> Instant {
        let now = Instant::now();
        let took = (now - began).as_nanos();
        self.0.push(u64::try_from(took).unwrap_or(u64::MAX));
        now
    }

    /// In seconds.
    fn longest(&self) -> f64 {
        self.0.iter().copied().max().unwrap_or(0) as f64 / 1e9
    }

    fn told(&mut self, prefix: &str) -> Figures<String, Value> {
        self.0.sort_unstable();
        let mut figures = Figures::new();
        let mut tell = |name: &str, value: f64| {
            figures.insert(format!("{prefix}{name}"), json!(value));
        };
        for (name, thousandths) in [("p50_us", 500), ("p99_us", 990), ("p999_us", 999)] {
            let time = figures::quantile(&self.0, thousandths).unwrap_or(0);
            tell(name, time as f64 / 1e3);
        }
        tell("max_ms", self.longest() * 1e3);
        figures
    }
}

/// Places in `/proc/*/stat`, from the state on.
const MAJOR_FAULTS: usize = 9;
const USER: usize = 11;
const SYSTEM: usize = 12;

fn stat_of(whom: &str) -> Result<Vec<u64>, Problem> {
    let text = std::fs::read_to_string(format!("/proc/{whom}/stat"))?;
    let (_, rest) = text.rsplit_once(')').ok_or("a process without a name")?;
    let numbers = rest.split_whitespace();
    Ok(numbers.map(|word| word.parse().unwrap_or(0)).collect())
}

/// CPU time of this process.
fn cpu_seconds() -> Result<f64, Problem> {
    let stat = stat_of("self")?;
    Ok((stat[USER] + stat[SYSTEM]) as f64 / TICKS)
}

/// Thousand million bytes a second, of this many pages since then.
fn rate(pages: u64, began: Instant) -> f64 {
    (pages * PAGE) as f64 / 1e9 / began.elapsed().as_secs_f64()
}

fn mib_of(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

//! Commits a second and their latency: each of some threads writes 512 bytes and has them made
//! durable, one commit after the other. Beside it the same with the kernel's `pwrite` and
//! `fdatasync`, in turn.
//!
//! `cargo bench -p tidegate --bench commit -- FOLDER [THREADS [COMMITS]] [one|own] [grow]`: all
//! threads in one file, or each in its own; over bytes that are there, or behind the file's end,
//! where space is allocated. The median of five rounds, and of them the range.

use std::fs::File as RawFile;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tidegate::{Cache, OpenOptions};

const BYTES: usize = 512;
const RECORD: u64 = BYTES as u64;
const ROOM: usize = 16 << 20;
const SPACE: u64 = ROOM as u64;
const ROUNDS: usize = 5;

#[derive(Clone)]
struct Plan {
    folder: PathBuf,
    threads: usize,
    commits: usize,
    own: bool,
    grow: bool,
}

/// A log that records can be committed to.
trait Log: Send + Sync {
    fn commit(&self, at: u64);
}

impl Log for tidegate::File {
    fn commit(&self, at: u64) {
        self.write_at(&[1; BYTES], at).expect("a write");
        self.sync_range(at, RECORD).expect("a sync");
    }
}

impl Log for RawFile {
    fn commit(&self, at: u64) {
        self.write_all_at(&[1; BYTES], at).expect("a write");
        self.sync_data().expect("a sync");
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|w| w != "--bench")
        .collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let has = |word: &str| words.iter().any(|other| other == word);
    let Some(folder) = words.first().filter(|word| Path::new(word).is_dir()) else {
        println!("commit: name a folder on the disk to be measured");
        return;
    };
    let plan = Plan {
        folder: folder.into(),
        threads: numbers.first().copied().unwrap_or(1),
        commits: numbers.get(1).copied().unwrap_or(1000),
        own: has("own"),
        grow: has("grow"),
    };
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        if !has("raw") {
            all[0].push(cached(&plan));
        }
        if !has("cache") {
            all[1].push(raw(&plan));
        }
    }
    for (name, rounds) in ["tidegate", "raw"].iter().zip(all) {
        if !rounds.is_empty() {
            println!("{name:8} {}", in_words(rounds));
        }
    }
}

fn file_of(plan: &Plan, thread: usize) -> PathBuf {
    let thread = if plan.own { thread } else { 0 };
    plan.folder.join(format!("commit-{thread}"))
}

/// Bytes that are there when commits begin.
fn begin(plan: &Plan) -> Vec<u8> {
    vec![0; if plan.grow { 0 } else { ROOM }]
}

fn cached(plan: &Plan) -> Round {
    let cache = Cache::builder().memory(64 << 20).build().expect("64 MiB");
    let logs = (0..plan.threads).map(|thread| {
        let options = OpenOptions::new().create(true).preallocate(SPACE);
        let log = cache.open(file_of(plan, thread), options).expect("a file");
        if thread == 0 || plan.own {
            log.set_len(0).expect("a length");
            log.write_at(&begin(plan), 0).expect("a write");
            log.sync().expect("a sync");
        }
        log
    });
    let round = run(plan, logs.collect());
    cache.close().expect("the end");
    round
}

fn raw(plan: &Plan) -> Round {
    let logs = (0..plan.threads).map(|thread| {
        let log = RawFile::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(file_of(plan, thread));
        let log = log.expect("a file");
        if thread == 0 || plan.own {
            log.set_len(0).expect("a length");
            rustix::fs::fallocate(&log, rustix::fs::FallocateFlags::KEEP_SIZE, 0, SPACE)
                .expect("space");
            log.write_all_at(&begin(plan), 0).expect("a write");
            log.sync_all().expect("a sync");
        }
        log
    });
    run(plan, logs.collect())
}

struct Round {
    rate: f64,
    median: Duration,
    p99: Duration,
}

fn run<L: Log + 'static>(plan: &Plan, logs: Vec<L>) -> Round {
    let end = Arc::new(AtomicU64::new(0));
    let start = Arc::new(Barrier::new(logs.len() + 1));
    let threads: Vec<_> = logs
        .into_iter()
        .map(|log| {
            let (plan, end, start) = (plan.clone(), Arc::clone(&end), Arc::clone(&start));
            std::thread::spawn(move || {
                let mut times = Vec::with_capacity(plan.commits);
                let mut own = 0;
                start.wait();
                for _ in 0..plan.commits {
                    let next = if plan.own {
                        own += RECORD;
                        own - RECORD
                    } else {
                        end.fetch_add(RECORD, Ordering::Relaxed)
                    };
                    let began = Instant::now();
                    log.commit(next % SPACE);
                    times.push(began.elapsed());
                }
                times
            })
        })
        .collect();
    start.wait();
    let began = Instant::now();
    let mut times = Vec::new();
    for thread in threads {
        times.extend(thread.join().expect("a committer"));
    }
    let took = began.elapsed().as_secs_f64();
    times.sort_unstable();
    Round {
        rate: times.len() as f64 / took,
        median: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

fn in_words(mut rounds: Vec<Round>) -> String {
    let by = |rounds: &mut Vec<Round>, of: fn(&Round) -> f64| {
        rounds.sort_by(|a, b| of(a).total_cmp(&of(b)));
        let (least, most) = (of(&rounds[0]), of(&rounds[rounds.len() - 1]));
        (of(&rounds[rounds.len() / 2]), least, most)
    };
    let (rate, least, most) = by(&mut rounds, |round| round.rate);
    let (median, fast, slow) = by(&mut rounds, |round| round.median.as_secs_f64() * 1e6);
    let (p99, best, worst) = by(&mut rounds, |round| round.p99.as_secs_f64() * 1e6);
    format!(
        "{rate:.0} commits/s ({least:.0} to {most:.0}); p50 {median:.0} us ({fast:.0} to {slow:.0}); p99 {p99:.0} us ({best:.0} to {worst:.0})"
    )
}

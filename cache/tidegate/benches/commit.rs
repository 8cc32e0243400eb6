//! Commits: 512 bytes are written and made durable, over and over, by 1, 4, 16 and 64 threads on
//! one file or on a file each. Tidegate (`write_at`, `sync_range`) by turns with the kernel
//! (`pwrite`, `fdatasync`), medians of five turns.
//!
//! A page written in place by one `pwritev2` with RWF_DSYNC takes as long as by both calls (medians
//! of five turns 148 and 138 us, ext4, O_DIRECT, a busy machine): Tidegate makes both.
//!
//! A log *grows* by each commit, or was written before and is written *again* from its start, as
//! engines use theirs. *Beyond*: random pages of a file of eight times Tidegate's memory are
//! written over, and synced once at the end, which is in the rate; for the kernel to have as
//! little, run it in a memory group. `cargo bench -p tidegate --bench commit [-- --dir DIR]
//! [grow|again|beyond]...`

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::{Cache, OpenOptions};

const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(300);
const RECORD: usize = 512;
/// Bytes of a log that is written again.
const LOG: u64 = 1 << 20;
/// Memory of Tidegate.
const MEMORY: u64 = 256 << 20;
/// Of `beyond`: its file, the memory, the pages written in a turn.
const FILE: u64 = 512 << 20;
const LITTLE: u64 = FILE / 8;
const PAGES: u64 = 32 << 10;
const PAGE: usize = 4096;

/// A log of either side.
trait Log: Send + Sync {
    fn write(&self, record: &[u8], at: u64);
    fn sync(&self, at: u64, len: u64);
}

impl Log for std::fs::File {
    fn write(&self, record: &[u8], at: u64) {
        self.write_all_at(record, at).expect("a good disk");
    }

    fn sync(&self, _: u64, _: u64) {
        self.sync_data().expect("a good disk");
    }
}

impl Log for tidegate::File {
    fn write(&self, record: &[u8], at: u64) {
        self.write_at(record, at).expect("a good disk");
    }

    fn sync(&self, at: u64, len: u64) {
        self.sync_range(at, len).expect("a good disk");
    }
}

/// Commits a second, and the median and the 99th of a hundred of their times.
#[derive(Clone, Copy)]
struct Took {
    rate: f64,
    p50: Duration,
    p99: Duration,
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (mut parent, mut shapes) = (std::env::temp_dir(), Vec::new());
    while let Some(arg) = args.next() {
        match &*arg {
            "--dir" => parent = PathBuf::from(args.next().expect("--dir DIR")),
            _ => shapes.push(arg),
        }
    }
    let dir = parent.join(format!("tidegate-commit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a writable directory");
    println!(
        "| log | threads | files | kernel: /s | p50, us | p99, us | Tidegate: /s | p50, us | p99, us | rate / kernel's |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let wanted = |shape: &str| shapes.is_empty() || shapes.iter().any(|wanted| wanted == shape);
    for shape in ["again", "grow"] {
        if !wanted(shape) {
            continue;
        }
        for threads in [1, 4, 16, 64] {
            for files in if threads == 1 {
                vec![1]
            } else {
                vec![1, threads]
            } {
                let len = if shape == "grow" { 0 } else { LOG };
                let turn = |logs: &[_]| turn(threads, len, logs);
                row(&dir, (shape, threads, files), (MEMORY, len), turn);
            }
        }
    }
    for threads in [1, 4].into_iter().filter(|_| wanted("beyond")) {
        let turn = |logs: &[Arc<dyn Log>]| turn_beyond(threads, &*logs[0]);
        row(&dir, ("beyond", threads, 1), (LITTLE, FILE), turn);
    }
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

type Logs = Vec<Arc<dyn Log>>;

fn row(
    dir: &Path,
    (shape, threads, files): (&str, usize, usize),
    (memory, len): (u64, u64),
    turn: impl Fn(&[Arc<dyn Log>]) -> Took,
) {
    let (mut kernel, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        kernel.push(turn(&kernels(dir, files, len)));
        let cache = Cache::builder().memory(memory).build().expect("memory");
        let logs = tidegates(&cache, dir, files, len);
        ours.push(turn(&logs));
        drop(logs);
        cache.close().expect("a good disk");
    }
    let (kernel, ours) = (median(kernel), median(ours));
    let us = |time: Duration| time.as_micros();
    println!(
        "| {shape} | {threads} | {files} | {:.0} | {} | {} | {:.0} | {} | {} | {:.2} |",
        kernel.rate,
        us(kernel.p50),
        us(kernel.p99),
        ours.rate,
        us(ours.p50),
        us(ours.p99),
        ours.rate / kernel.rate,
    );
}

fn kernels(dir: &Path, files: usize, len: u64) -> Logs {
    let open = |number| {
        let path = dir.join(format!("kernel-{number}"));
        let mut options = std::fs::File::options();
        let file = options.create(true).truncate(true).write(true).open(path);
        filled(file.expect("a fresh file"), len)
    };
    (0..files).map(open).collect()
}

fn tidegates(cache: &Cache, dir: &Path, files: usize, len: u64) -> Logs {
    let open = |number| {
        let path = dir.join(format!("tidegate-{number}"));
        let options = OpenOptions::new().create(true).truncate(true);
        filled(cache.open(path, options).expect("a fresh file"), len)
    };
    (0..files).map(open).collect()
}

/// With `len` bytes written, and synced.
fn filled(log: impl Log + 'static, len: u64) -> Arc<dyn Log> {
    const PART: usize = 1 << 20;
    for at in (0..len).step_by(PART) {
        log.write(&[0; PART], at);
    }
    log.sync(0, len);
    Arc::new(log)
}

/// Has `threads` write over random pages, and one sync of them all.
fn turn_beyond(threads: usize, file: &dyn Log) -> Took {
    let began = Instant::now();
    let writer = |number: usize| {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ number as u64;
        let mut times = Vec::new();
        for _ in 0..PAGES / threads as u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random % (FILE / PAGE as u64) * PAGE as u64;
            let write = Instant::now();
            file.write(&[1; PAGE], at);
            times.push(write.elapsed());
        }
        times
    };
    let times = in_threads(threads, writer);
    file.sync(0, FILE);
    took(times, began)
}

/// The times that threads took for what each did.
fn in_threads(threads: usize, each: impl Fn(usize) -> Vec<Duration> + Sync) -> Vec<Duration> {
    let each = &each;
    std::thread::scope(|scope| {
        let spawn = |number| scope.spawn(move || each(number));
        let all: Vec<_> = (0..threads).map(spawn).collect();
        let joined = all.into_iter();
        let joined = joined.flat_map(|thread| thread.join().expect("no panic"));
        joined.collect()
    })
}

fn took(mut times: Vec<Duration>, began: Instant) -> Took {
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    Took {
        rate,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

/// Has `threads` commit for as long as a turn.
fn turn(threads: usize, len: u64, logs: &[Arc<dyn Log>]) -> Took {
    let ends: Vec<_> = logs.iter().map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let committer = |number: usize| {
        let (log, end) = (&logs[number % logs.len()], &ends[number % logs.len()]);
        let mut times = Vec::new();
        while began.elapsed() < TURN {
            let at = end.fetch_add(RECORD as u64, Ordering::Relaxed);
            // One that is empty grows.
            let at = if len == 0 { at } else { at % len };
            let commit = Instant::now();
            log.write(&[1; RECORD], at);
            log.sync(at, RECORD as u64);
            times.push(commit.elapsed());
        }
        times
    };
    took(in_threads(threads, committer), began)
}

fn median(mut turns: Vec<Took>) -> Took {
    turns.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    turns[turns.len() / 2]
}

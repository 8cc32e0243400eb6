//! Commits: 512 bytes are written and made durable, over and over, by 1, 4, 16 and 64 threads on
//! one file or on a file each. Tidegate (`write_at`, `sync_range`) by turns with the kernel
//! (`pwrite`, `fdatasync`), medians of five turns.
//!
//! A log *grows* by each commit, or was written before and is written *again* from its start, as
//! engines use theirs. `cargo bench -p tidegate --bench commit [-- --dir DIR] [grow|again]...`

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
const LOG: usize = 1 << 20;

/// A log of either side.
trait Log: Send + Sync {
    fn commit(&self, record: &[u8], at: u64);
}

impl Log for std::fs::File {
    fn commit(&self, record: &[u8], at: u64) {
        self.write_all_at(record, at).expect("a good disk");
        self.sync_data().expect("a good disk");
    }
}

impl Log for tidegate::File {
    fn commit(&self, record: &[u8], at: u64) {
        self.write_at(record, at).expect("a good disk");
        self.sync_range(at, record.len() as u64)
            .expect("a good disk");
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
    for shape in ["again", "grow"] {
        if !shapes.is_empty() && !shapes.iter().any(|wanted| wanted == shape) {
            continue;
        }
        for threads in [1, 4, 16, 64] {
            for files in if threads == 1 {
                vec![1]
            } else {
                vec![1, threads]
            } {
                row(&dir, shape, threads, files);
            }
        }
    }
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

fn row(dir: &Path, shape: &str, threads: usize, files: usize) {
    let grows = shape == "grow";
    let (mut kernel, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        kernel.push(turn(threads, grows, &kernels(dir, files, grows)));
        let cache = Cache::builder().memory(256 << 20).build().expect("256 MiB");
        let logs = tidegates(&cache, dir, files, grows);
        ours.push(turn(threads, grows, &logs));
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

fn kernels(dir: &Path, files: usize, grows: bool) -> Vec<Arc<dyn Log>> {
    let open = |number| {
        let path = dir.join(format!("kernel-{number}"));
        let mut options = std::fs::File::options();
        let file = options.create(true).truncate(true).write(true).open(path);
        let file = file.expect("a fresh file");
        if !grows {
            file.write_all_at(&vec![0; LOG], 0).expect("a good disk");
        }
        file.sync_all().expect("a good disk");
        Arc::new(file) as Arc<dyn Log>
    };
    (0..files).map(open).collect()
}

fn tidegates(cache: &Cache, dir: &Path, files: usize, grows: bool) -> Vec<Arc<dyn Log>> {
    let open = |number| {
        let path = dir.join(format!("tidegate-{number}"));
        let options = OpenOptions::new().create(true).truncate(true);
        let file = cache.open(path, options).expect("a fresh file");
        if !grows {
            file.write_at(&vec![0; LOG], 0).expect("a good disk");
        }
        file.sync().expect("a good disk");
        Arc::new(file) as Arc<dyn Log>
    };
    (0..files).map(open).collect()
}

/// Has `threads` commit for as long as a turn.
fn turn(threads: usize, grows: bool, logs: &[Arc<dyn Log>]) -> Took {
    let ends: Vec<_> = logs.iter().map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let committer = |number: usize| {
        let (log, end) = (&logs[number % logs.len()], &ends[number % logs.len()]);
        let mut times = Vec::new();
        while began.elapsed() < TURN {
            let at = end.fetch_add(RECORD as u64, Ordering::Relaxed);
            let at = if grows { at } else { at % LOG as u64 };
            let commit = Instant::now();
            log.commit(&[1; RECORD], at);
            times.push(commit.elapsed());
        }
        times
    };
    let mut times: Vec<_> = std::thread::scope(|scope| {
        let spawn = |number| scope.spawn(move || committer(number));
        let all: Vec<_> = (0..threads).map(spawn).collect();
        let joined = all
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"));
        joined.collect()
    });
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    Took {
        rate,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

fn median(mut turns: Vec<Took>) -> Took {
    turns.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    turns[turns.len() / 2]
}

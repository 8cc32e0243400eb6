//! Sequential reads of 1 MiB by a fresh cache and by a cache that has had random misses for long;
//! `cargo instruments bench aged` runs it.
//!
//! `aged FOLDER SECONDS AGAIN_SECONDS ROUNDS [THREADS]`: in a cache of 512 MiB, on a file of 3 GiB.
//! Each round makes a fresh cache that reads the file's first GiB twice (the second time it has to
//! reclaim what it takes); THREADS threads then read random pages of 4 KiB of the rest for SECONDS
//! (AGAIN_SECONDS from the second round on), so that none of them is a part of what is read in
//! sequence; and the first GiB is read again. Prints a line of JSON a round: MiB a second of all of
//! that, and of its first 512 MiB, and the runs of frames that a request to the device is made of,
//! each of which is an element of its vector.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use env::{Device, DeviceInfo, IoOp, IoRequest};
use os::FileDevice;
use tidegate::{Backing, Cache, Cursor, Error, Mode, Volume, VolumeOptions};

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 512 * MIB;
/// What is read in sequence, and behind it what is read at random.
const SEQUENCE: u64 = 1024 * MIB;
const RANDOM: u64 = 2048 * MIB;
const FILE: u64 = SEQUENCE + RANDOM;
const BLOCK: usize = 1 << 20;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(folder), Some(seconds), Some(again), Some(rounds)) =
        (args.get(1), number(2), number(3), number(4))
    else {
        eprintln!("usage: aged FOLDER SECONDS AGAIN_SECONDS ROUNDS [THREADS]");
        std::process::exit(2);
    };
    let threads = number(5).unwrap_or(4);
    let path = Path::new(folder).join("volume");
    let written = write_file(&path);
    let ran = written.and_then(|()| {
        (0..rounds).try_for_each(|round| {
            let seconds = if round == 0 { seconds } else { again };
            let line =
                run(&path, Duration::from_secs(seconds), threads).map_err(std::io::Error::other)?;
            println!("{line}");
            Ok(())
        })
    });
    let _ = std::fs::remove_file(&path);
    if let Err(error) = ran {
        eprintln!("aged: {error}");
        std::process::exit(1);
    }
}

/// Bytes on the disk: a hole would be read without it.
fn write_file(path: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path)?;
    let block = vec![0x5a; BLOCK];
    for _ in 0..FILE / MIB {
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn run(path: &Path, age: Duration, threads: u64) -> Result<String, Error> {
    let cache = Cache::builder().memory(MEMORY).prefault(true).build()?;
    let (volume, counts) = attach(&cache, path)?;
    sequential(&volume, SEQUENCE)?;
    let fresh = pass(&volume, &counts)?;
    let misses = read_at_random(&cache, &volume, age, threads)?;
    let aged = pass(&volume, &counts)?;
    cache.close()?;
    Ok(format!(
        "{{\"fresh_mibs\":{:.1},\"fresh_first_mibs\":{:.1},\"fresh_segments\":{:.2},\"aged_mibs\":{:.1},\"aged_first_mibs\":{:.1},\
         \"aged_segments\":{:.2},\"aged_first_segments\":{:.2},\"request_kib\":{:.1},\"aged_request_kib\":{:.1},\"turnovers\":{:.1}}}",
        fresh.mibs,
        fresh.first_mibs,
        fresh.segments,
        aged.mibs,
        aged.first_mibs,
        aged.segments,
        aged.first_segments,
        fresh.request_kib,
        aged.request_kib,
        (misses * 4096) as f64 / MEMORY as f64,
    ))
}

/// How a pass over the file went.
struct Pass {
    mibs: f64,
    first_mibs: f64,
    segments: f64,
    first_segments: f64,
    request_kib: f64,
}

fn pass(volume: &Volume, counts: &Counts) -> Result<Pass, Error> {
    counts.take();
    let began = Instant::now();
    sequential(volume, MEMORY)?;
    let first = began.elapsed();
    let [requests, runs, pages] = counts.take();
    let mut cursor = Cursor::default();
    let mut block = vec![0; BLOCK];
    for at in (MEMORY..SEQUENCE).step_by(BLOCK) {
        volume.read(&mut cursor, &mut block, at, Mode::Blocking)?;
    }
    let all = began.elapsed();
    let rest = counts.take();
    let part = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let mibs = |bytes: u64, time: Duration| (bytes / MIB) as f64 / time.as_secs_f64();
    Ok(Pass {
        mibs: mibs(SEQUENCE, all),
        first_mibs: mibs(MEMORY, first),
        segments: part(runs + rest[1], requests + rest[0]),
        first_segments: part(runs, requests),
        request_kib: 4.0 * part(pages + rest[2], requests + rest[0]),
    })
}

fn sequential(volume: &Volume, bytes: u64) -> Result<(), Error> {
    let mut cursor = Cursor::default();
    let mut block = vec![0; BLOCK];
    for at in (0..bytes).step_by(BLOCK) {
        volume.read(&mut cursor, &mut block, at, Mode::Blocking)?;
    }
    Ok(())
}

/// Random pages by each thread; answers how many were read from the device.
fn read_at_random(
    cache: &Cache,
    volume: &Volume,
    age: Duration,
    threads: u64,
) -> Result<u64, Error> {
    let before = cache.stats().read_total;
    let until = Instant::now() + age;
    std::thread::scope(|scope| {
        let threads = (0..threads).map(|seed| {
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut page = [0; 4096];
                while Instant::now() < until {
                    let at = SEQUENCE + (random.below(RANDOM >> 12) << 12);
                    volume.read(&mut Cursor::default(), &mut page, at, Mode::Blocking)?;
                }
                Ok::<(), Error>(())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok((cache.stats().read_total - before) >> 12)
}

fn attach(cache: &Cache, path: &Path) -> Result<(Volume, Arc<Counts>), Error> {
    let mut counts = None;
    let volume = cache.attach(VolumeOptions::default(), |env| {
        let files = FileDevice::new(env)?;
        let (object, len) = files.open(path, os::OpenOptions::default())?;
        let device = Arc::new(Counts {
            inner: files,
            of: Default::default(),
        });
        counts = Some(Arc::clone(&device));
        Ok::<_, Error>(Backing {
            device: device as Arc<dyn Device>,
            object,
            size: len.0,
        })
    })?;
    Ok((volume, counts.expect("it was made")))
}

/// Counts what reads are made of.
struct Counts {
    inner: Arc<FileDevice>,
    /// Requests, runs of frames, pages.
    of: [AtomicU64; 3],
}

impl Counts {
    /// Those since the last time.
    fn take(&self) -> [u64; 3] {
        [0, 1, 2].map(|at: usize| self.of[at].swap(0, Relaxed))
    }
}

impl Device for Counts {
    fn submit(&self, request: Box<IoRequest>) {
        if request.op == IoOp::Read {
            let runs = request.frames.chunk_by(|a, b| b.0 == a.0 + 1).count();
            let counts = [1, runs as u64, request.pages().0];
            for (counter, count) in self.of.iter().zip(counts) {
                counter.fetch_add(count, Relaxed);
            }
        }
        self.inner.submit(request);
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

/// A generator of random numbers that is the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

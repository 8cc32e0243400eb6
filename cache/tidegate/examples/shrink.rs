//! A cache of 1 GiB whose limit is lowered to 512 MiB while it is used; `cargo instruments bench
//! shrink` runs it.
//!
//! `shrink FOLDER HOT_MIB RATE_MIB SECONDS`: HOT_MIB of the volume are read at random all the time,
//! 96 MiB are dirty, on a device of RATE_MIB a second (0: it hangs from the moment on in which the
//! limit is lowered), and the rest of the cache was read once. All of it lies mixed in memory.
//! Prints one line of JSON: seconds until the limit holds, by the cache and by `smaps_rollup` of
//! the process (what it has beside the limit before it is lowered comes off; the limit is rounded
//! up to whole chunks), and the part of the reads that hit, by second.
//!
//! Nobody waits for a miss: it is sent for, and the next page is read. *Room* is the part of the
//! hot pages that fits into what the lowered limit leaves beside what is dirty, to the frame: more
//! nobody could keep.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use device::{BytesPerSec, Slow, SlowOptions};
use env::Device;
use os::FileDevice;
use policy::dirty::Threshold;
use tidegate::{Backing, Cache, Cursor, Error, Mode, Volume, VolumeOptions, Writer};

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 1024 * MIB;
const LOWERED: u64 = 512 * MIB;
const DIRTY: u64 = 96 * MIB;
/// What is read at a time to fill the cache, in an order by chance: pages of all kinds are then in
/// every chunk.
const STEP: u64 = 16 << 10;
/// Reads of each hot page before the limit is lowered.
const WARM: u64 = 6;
/// How often it is looked whether the limit holds.
const LOOK: Duration = Duration::from_millis(2);
/// Resident memory is at the limit when no more than this part of it is beyond: requests under way,
/// threads, the allocator.
const BEYOND: u64 = 50;
/// A cache that has not reached it by then does not.
const LONGEST: Duration = Duration::from_secs(30);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(folder), Some(hot), Some(rate), Some(seconds)) =
        (args.get(1), number(2), number(3), number(4))
    else {
        eprintln!("usage: shrink FOLDER HOT_MIB RATE_MIB SECONDS");
        std::process::exit(2);
    };
    let asked = Asked {
        hot: hot * MIB,
        rate: rate * MIB,
        seconds,
    };
    if let Err(error) = run(Path::new(folder), &asked) {
        eprintln!("shrink: {error}");
        std::process::exit(1);
    }
}

struct Asked {
    hot: u64,
    rate: u64,
    seconds: u64,
}

/// Reads by whether they hit.
#[derive(Default)]
struct Reads {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Reads {
    /// Those since it was asked the last time.
    fn take(&self) -> (u64, u64) {
        (self.hits.swap(0, Relaxed), self.misses.swap(0, Relaxed))
    }
}

fn run(folder: &Path, asked: &Asked) -> Result<(), Error> {
    let path = folder.join("volume");
    let file = std::fs::File::create(&path).expect("a folder that can be written to");
    file.set_len(2 * MEMORY).expect("a sparse file");
    let before = resident();
    let cache = Cache::builder()
        .memory(MEMORY)
        .dirty_limit(Threshold::Percent(20))
        .build()?;
    let (volume, slow) = attach(&cache, &path)?;
    fill(&volume, asked.hot)?;
    let hot = Hot(asked.hot);
    let mut random = Random(7);
    for _ in 0..WARM * (asked.hot >> 12) {
        hot.read(&volume, &mut random)?;
    }
    slow.set_rate(Some(BytesPerSec(asked.rate.max(16 * MIB))));
    let mut writer = cache.writer();
    dirty(&volume, &mut writer, asked.hot)?;
    let (reads, is_over) = (Reads::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(11);
            while !is_over.load(Relaxed) {
                let hit = hot.read(&volume, &mut random).expect("within the volume");
                let counter = if hit { &reads.hits } else { &reads.misses };
                counter.fetch_add(1, Relaxed);
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        if asked.rate == 0 {
            slow.set_rate(Some(BytesPerSec(0)));
        }
        match measure(&cache, &reads, asked, before) {
            // At once: a device that hangs would hold the end of the cache up for ever.
            Ok(line) => {
                println!("{line}");
                std::process::exit(0);
            }
            Err(error) => {
                is_over.store(true, Relaxed);
                Err(error)
            }
        }
    })
}

fn measure(cache: &Cache, reads: &Reads, asked: &Asked, before: u64) -> Result<String, Error> {
    let stats = cache.stats();
    let dirty = stats.dirty + stats.writeback;
    let (hits, misses) = reads.take();
    let mut line = format!("{{\"hit_before\":{:.5}", part(hits, misses));
    // Memory that the process has beside the cache now: threads, a ring, what the kernel rounds up.
    let before = before.max(resident().saturating_sub(stats.limit));
    write!(line, ",\"dirty_mib\":{}", dirty / MIB).expect("a string takes it");
    let began = Instant::now();
    cache.set_limit(LOWERED)?;
    let limit = cache.stats().limit;
    let most = before + limit + limit / BEYOND;
    let (mut over, mut within) = (None, None);
    while began.elapsed() < LONGEST && (over.is_none() || within.is_none()) {
        if over.is_none() && cache.stats().over_limit == 0 {
            over = Some(began.elapsed());
        }
        // Not before: to count its pages takes the kernel as long as some hundred of them take to
        // move.
        if over.is_some() && within.is_none() && resident() <= most {
            within = Some(began.elapsed());
        }
        std::thread::sleep(LOOK);
    }
    let stats = cache.stats();
    let (hits, misses) = reads.take();
    let room = stats.limit - stats.metadata - stats.dirty - stats.writeback;
    let figures = [
        ("over_s", seconds(over)),
        ("resident_s", seconds(within)),
        ("hit_until", part(hits, misses)),
        ("room", (room as f64 / asked.hot as f64).min(1.0)),
    ];
    for (name, value) in figures {
        write!(line, ",\"{name}\":{value:.5}").expect("a string takes it");
    }
    for second in 1..=asked.seconds {
        std::thread::sleep(Duration::from_secs(1));
        let (hits, misses) = reads.take();
        write!(line, ",\"hit_{second}\":{:.5}", part(hits, misses)).expect("a string takes it");
    }
    let count = |name: &str| {
        let found = stats.vmstat.iter().find(|(other, _)| *other == name);
        found.map_or(0, |(_, value)| *value)
    };
    let (moved, stayed) = (count("pgmigrate_success"), count("pgmigrate_fail"));
    let over_limit = stats.over_limit / MIB;
    let beyond = resident() as f64 - (before + limit) as f64;
    let beyond = beyond / MIB as f64;
    write!(
        line,
        ",\"moved\":{moved},\"stayed\":{stayed},\"left_over_mib\":{over_limit},\"resident_beyond_mib\":{beyond:.2}}}"
    )
    .expect("a string takes it");
    Ok(line)
}

fn seconds(time: Option<Duration>) -> f64 {
    time.unwrap_or(LONGEST).as_secs_f64()
}

fn part(hits: u64, misses: u64) -> f64 {
    hits as f64 / (hits + misses).max(1) as f64
}

/// The volume, on a file behind a device that is as fast as the file at first.
fn attach(cache: &Cache, path: &Path) -> Result<(Volume, Arc<Slow>), Error> {
    let mut slow = None;
    let volume = cache.attach(VolumeOptions::default(), |env| {
        let files = FileDevice::new(env)?;
        let (object, len) = files.open(path, os::OpenOptions::default())?;
        let options = SlowOptions {
            depth: 8,
            ..SlowOptions::default()
        };
        let device = Slow::new(files, env.host(), &options);
        slow = Some(Arc::clone(&device));
        Ok::<_, Error>(Backing {
            device: device as Arc<dyn Device>,
            object,
            size: len.0,
        })
    })?;
    Ok((volume, slow.expect("it was made")))
}

/// Reads all that fits but what will be dirty, in an order by chance.
fn fill(volume: &Volume, hot: u64) -> Result<(), Error> {
    let mut steps: Vec<u64> = (0..MEMORY)
        .step_by(usize::try_from(STEP).expect("small"))
        .filter(|at| !(hot..hot + DIRTY).contains(at))
        .collect();
    let mut random = Random(3);
    for at in (1..steps.len()).rev() {
        let other = random.below(at as u64 + 1);
        steps.swap(at, usize::try_from(other).expect("one of them"));
    }
    let mut data = vec![0; usize::try_from(STEP).expect("small")];
    for at in steps {
        volume.read(&mut Cursor::default(), &mut data, at, Mode::Blocking)?;
    }
    Ok(())
}

/// The bytes behind the hot ones are dirty, in an order by chance; the writer is not paused.
fn dirty(volume: &Volume, writer: &mut Writer, hot: u64) -> Result<(), Error> {
    let data = vec![9; usize::try_from(STEP).expect("small")];
    for at in (hot..hot + DIRTY).step_by(data.len()) {
        volume.write(writer, &data, at, Mode::Blocking)?;
    }
    Ok(())
}

/// So many bytes from the first on.
struct Hot(u64);

impl Hot {
    /// Reads one of the pages; answers whether it was there.
    fn read(&self, volume: &Volume, random: &mut Random) -> Result<bool, Error> {
        let mut page = [0; 4096];
        let at = random.below(self.0 >> 12) << 12;
        let read = volume.read(&mut Cursor::default(), &mut page, at, Mode::Nonblocking)?;
        Ok(!read.would_block)
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

/// Bytes of this process that are in memory, by the kernel's count of its pages.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux 4.14");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .expect("a number of kB")
        << 10
}

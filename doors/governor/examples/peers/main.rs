//! Caches of pages beside one another: Tidegate, quick_cache, moka, foyer. `cargo instruments bench
//! peers` runs it, a process for each figure.
//!
//! `peers FOLDER CACHE hits|same|mix THREADS` or `peers FOLDER CACHE resident 1`; prints one line
//! of JSON.
//!
//! | word | what | figure |
//! |---|---|---|
//! | `hits` | each thread looks up pages of its own by chance, all of them cached | ns of a hit and of letting it go |
//! | `same` | all threads look up the same pages | the same |
//! | `mix` | popularity 1/rank over four times what is cached; who misses reads 4 KiB of a file, past the kernel's cache | ns an access, hits, CPU ns an access |
//! | `resident` | the cache is filled three times over | most resident memory, over what was asked for |
//!
//! `tidegate+reuse` is Tidegate under a page rule. A page is 4 KiB in all of them: of a file in
//! Tidegate, an `Arc<[u8]>` in the others, which are limited by the bytes of their pages and keys.

mod caches;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

pub(crate) const PAGE: usize = 4096;
/// Pages that a thread has to itself.
const OWN: u32 = 8192;
/// Hits of a thread in one go, and how often; the median counts.
const HITS: u32 = 1_000_000;
const TIMES: usize = 7;
/// The limit of the mix and of `resident`.
const MIX_LIMIT: u64 = 64 << 20;
const RESIDENT_LIMIT: u64 = 256 << 20;
/// Pages of the file, over what fits into the limit.
const BEYOND: u64 = 4;
/// Accesses of a thread: until the cache is as it stays, and those that count.
const WARM: u32 = 60_000;
const MIXED: u32 = 60_000;
/// Past the kernel's cache.
const O_DIRECT: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) {
    0x10000
} else {
    0x4000
};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [folder, cache, what, threads] = words.as_slice() else {
        return Err("usage: peers FOLDER CACHE hits|same|mix|resident THREADS".into());
    };
    let (folder, threads) = (Path::new(folder), threads.parse::<u32>()?);
    match *what {
        "hits" => hits(folder, cache, threads, true),
        "same" => hits(folder, cache, threads, false),
        "mix" => mix(folder, cache, threads),
        "resident" => resident(folder, cache),
        _ => Err(format!("'{what}' is not measured here").into()),
    }
}

/// A file of `pages` pages, each with its number in its first bytes.
fn file_of(folder: &Path, pages: u64) -> Result<std::path::PathBuf, Failure> {
    let path = folder.join(format!("pages-{pages}"));
    let is_there = std::fs::metadata(&path).is_ok_and(|found| found.len() == pages * PAGE as u64);
    if !is_there {
        let file = File::create(&path)?;
        let mut page = [1_u8; PAGE];
        for number in 0..pages {
            page[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all_at(&page, number * PAGE as u64)?;
        }
        file.sync_all()?;
    }
    Ok(path)
}

fn hits(folder: &Path, name: &str, threads: u32, own: bool) -> Result<(), Failure> {
    let all = if own { OWN * threads } else { OWN };
    let path = file_of(folder, all.into())?;
    // Twice as much memory: all of it stays.
    let cache = caches::make(name, &path, u64::from(all) * PAGE as u64 * 2)?;
    // As often as it takes to be known as used.
    for page in (0..all).cycle().take(3 * all as usize) {
        cache.load(page)?;
    }
    let barrier = Barrier::new(threads as usize);
    let mut took: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let (cache, barrier) = (&cache, &barrier);
                let first = if own { number * OWN } else { 0 };
                scope.spawn(move || {
                    let one = || {
                        barrier.wait();
                        cache.hits(&mut order(first, number), HITS)
                    };
                    (0..TIMES).map(|_| one()).collect::<Vec<_>>()
                })
            })
            .collect();
        let threads = threads.into_iter().map(|thread| thread.join());
        threads.flat_map(|took| took.expect("it counts")).collect()
    });
    took.sort_by(f64::total_cmp);
    println!("{{\"ns\": {:.3}}}", took[took.len() / 2]);
    Ok(())
}

/// Pages from `first` on in an order that no prefetcher guesses.
fn order(first: u32, seed: u32) -> impl FnMut() -> u32 {
    let mut at = seed.wrapping_mul(7919);
    move || {
        at = at.wrapping_add(1);
        first + (at.wrapping_mul(2_654_435_761) >> 7) % OWN
    }
}

fn mix(folder: &Path, name: &str, threads: u32) -> Result<(), Failure> {
    let pages = MIX_LIMIT / PAGE as u64 * BEYOND;
    let path = file_of(folder, pages)?;
    let cache = caches::make(name, &path, MIX_LIMIT)?;
    let barrier = Barrier::new(threads as usize + 1);
    let (misses, cpu, seconds) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let (cache, barrier, path) = (&cache, &barrier, &path);
                scope.spawn(move || -> Result<u32, String> {
                    let mut zipf = Zipf::new(pages, number);
                    let mut source = Source::open(path).map_err(|error| error.to_string())?;
                    let mut misses = 0;
                    for at in 0..WARM + MIXED {
                        if at == WARM {
                            misses = 0;
                            barrier.wait();
                        }
                        let hit = cache.get_or_read(zipf.next(), &mut source);
                        misses += u32::from(!hit.map_err(|error| error.to_string())?);
                    }
                    Ok(misses)
                })
            })
            .collect();
        barrier.wait();
        let (began, cpu) = (Instant::now(), cpu_ns());
        let mut misses = 0;
        for thread in threads {
            misses += thread.join().expect("it counts")?;
        }
        Ok::<_, String>((misses, cpu_ns() - cpu, began.elapsed().as_secs_f64()))
    })?;
    let all = f64::from(threads) * f64::from(MIXED);
    println!(
        "{{\"ns\": {:.1}, \"hits\": {:.5}, \"cpu_ns\": {:.1}}}",
        seconds * 1e9 / f64::from(MIXED),
        1.0 - f64::from(misses) / all,
        cpu / all
    );
    Ok(())
}

fn resident(folder: &Path, name: &str) -> Result<(), Failure> {
    let pages = RESIDENT_LIMIT / PAGE as u64 * 3;
    let path = file_of(folder, pages)?;
    let before = status("VmRSS:")?;
    let cache = caches::make(name, &path, RESIDENT_LIMIT)?;
    for page in 0..u32::try_from(pages)? {
        cache.load(page)?;
    }
    let most = status("VmHWM:")?;
    let over = most.saturating_sub(before) as f64 / RESIDENT_LIMIT as f64;
    println!("{{\"resident\": {over:.4}}}");
    Ok(())
}

/// Ranks with popularity 1/rank, spread over all pages.
struct Zipf {
    pages: u64,
    random: u64,
}

impl Zipf {
    /// `pages`: a power of two.
    fn new(pages: u64, seed: u32) -> Self {
        Self {
            pages,
            random: 0x1234_5678_9abc_def1 ^ (u64::from(seed) << 32),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is below the number of pages"
    )]
    fn next(&mut self) -> u32 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let random = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((self.pages as f64).powf(part) as u64).min(self.pages) - 1;
        (rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (self.pages - 1)) as u32
    }
}

/// The file from which a page comes that a cache of others has not.
pub(crate) struct Source {
    file: File,
    page: Box<Aligned>,
}

#[repr(align(4096))]
struct Aligned([u8; PAGE]);

impl Source {
    fn open(path: &Path) -> std::io::Result<Self> {
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(O_DIRECT)
            .open(path);
        Ok(Self {
            // The file system may have no such thing.
            file: direct.or_else(|_| File::open(path))?,
            page: Box::new(Aligned([0; PAGE])),
        })
    }

    pub(crate) fn read(&mut self, page: u32) -> std::io::Result<&[u8]> {
        let offset = u64::from(page) * PAGE as u64;
        self.file.read_exact_at(&mut self.page.0, offset)?;
        Ok(&self.page.0)
    }
}

/// CPU time of the process.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2);
    // In hundredths of a second, whatever the kernel's own tick is.
    ticks
        .filter_map(|word| word.parse::<f64>().ok())
        .sum::<f64>()
        * 1e7
}

/// Bytes that `/proc/self/status` says.
fn status(name: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no such line")?.parse::<u64>()? << 10)
}

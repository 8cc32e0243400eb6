//! The system refuses threads, memory, descriptors or locks from a moment on: written data
//! are kept, and are made durable where that is possible.
//!
//! Each seed is a process of its own, since a refusal is for good: some writes, reads,
//! syncs and limits, the refusal, some more, the end; then the files are compared with what was
//! written. `TIDEGATE_SEEDS=N` says how many, `TIDEGATE_SEED=S` the first.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::refuse::{Refused, refuse};
use tidegate::{Cache, CacheError, Error, OpenOptions, PAGE_SIZE};

/// Seeds of `cargo test`.
const SEEDS: u64 = 16;
/// A cache that has not ended by then hangs.
const LONG: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const PAGE: u64 = PAGE_SIZE as u64;

fn number(name: &str, otherwise: u64) -> u64 {
    let said = std::env::var(name).ok();
    said.map_or(otherwise, |said| said.parse().unwrap())
}

#[test]
fn nothing_that_was_written_depends_on_what_is_asked_for_late() {
    let first = number("TIDEGATE_SEED", 1);
    for seed in first..first + number("TIDEGATE_SEEDS", SEEDS) {
        let folder = format!("tidegate-refused-{}-{seed}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "refused::one_seed"])
            .env("REFUSED_SEED", seed.to_string())
            .env("REFUSED_FOLDER", &folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        let mut hangs = false;
        while child.try_wait().unwrap().is_none() {
            hangs = began.elapsed() > LONG;
            if hangs {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output().unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        let told = String::from_utf8_lossy(&output.stdout);
        let is_well = output.status.success() && told.contains("1 passed");
        assert!(
            is_well,
            "TIDEGATE_SEED={seed}{}: {told}\n{}",
            if hangs { ", which hangs" } else { "" },
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}

/// A file, and what was written to it.
struct Known {
    file: tidegate::File,
    /// The same by another way, opened before anything is refused.
    disk: File,
    /// By page: the last version that was taken in, and whether a later one may be there.
    pages: Vec<(u32, bool)>,
}

/// A page as it is written.
fn page(number: u64, version: u32) -> Vec<u8> {
    let word = match version {
        0 => 0,
        version => (number << 32) | u64::from(version),
    };
    word.to_le_bytes().repeat(PAGE_SIZE / 8)
}

impl Known {
    fn new(cache: &Cache, path: &Path, pages: u64) -> Self {
        File::create(path).unwrap().set_len(pages * PAGE).unwrap();
        Self {
            file: cache.open(path, OpenOptions::new()).unwrap(),
            disk: File::open(path).unwrap(),
            pages: vec![(0, false); usize::try_from(pages).unwrap()],
        }
    }

    fn part(&self, dice: &mut Dice) -> (u64, u64) {
        let all = self.pages.len() as u64;
        let first = dice.below(all);
        (first, 1 + dice.below(256).min(all - first - 1))
    }

    /// Writes all of it.
    fn fill(&mut self) {
        let all = self.pages.len() as u64;
        let data: Vec<u8> = (0..all).flat_map(|number| page(number, 1)).collect();
        self.file.write_at(&data, 0).unwrap();
        self.pages.fill((1, false));
    }

    fn write(&mut self, dice: &mut Dice) -> Result<(), Error> {
        let (first, count) = self.part(dice);
        let all = first..first + count;
        let numbers = usize::try_from(first).unwrap()..usize::try_from(first + count).unwrap();
        let version = 1 + self.pages[numbers.clone()]
            .iter()
            .map(|page| page.0)
            .max()
            .unwrap();
        let data: Vec<u8> = all.flat_map(|number| page(number, version)).collect();
        let (taken, result) = match self.file.write_at(&data, first * PAGE) {
            Ok(_) => (count, Ok(())),
            Err(error) => match error {
                Error::File { taken, .. } => (taken / PAGE, Err(error)),
                error => (0, Err(error)),
            },
        };
        for (page, at) in self.pages[numbers].iter_mut().zip(0..) {
            if at < taken {
                *page = (version, false);
            } else {
                page.1 = true;
            }
        }
        result
    }

    fn check(&self, number: u64, found: &[u8], what: &str) {
        let (version, is_open) = self.pages[usize::try_from(number).unwrap()];
        let is_right = found == page(number, version) || is_open;
        assert!(
            is_right,
            "{what}: page {number} is not version {version}: {:?}",
            &found[..16]
        );
    }

    fn read(&self, dice: &mut Dice) -> Result<(), Error> {
        let (first, count) = self.part(dice);
        let mut data = vec![0; usize::try_from(count * PAGE).unwrap()];
        self.file.read_at(&mut data, first * PAGE)?;
        for (number, found) in (first..).zip(data.chunks(PAGE_SIZE)) {
            self.check(number, found, "read");
        }
        Ok(())
    }

    fn check_disk(&self) {
        let mut found = vec![0; PAGE_SIZE];
        for number in 0..self.pages.len() as u64 {
            self.disk.read_exact_at(&mut found, number * PAGE).unwrap();
            self.check(number, &found, "on the disk");
        }
    }
}

/// The cache goes on with what it has: nothing fails but for memory where there is next to none,
/// and calls that take a thread or a descriptor by themselves.
fn went(result: Result<(), Error>, is_early: bool, refused: &[Refused], what: &str) {
    match result {
        Ok(()) => {}
        Err(Error::File {
            error: CacheError::NoMemory { .. } | CacheError::OutOfMemory { .. },
            ..
        }) if is_early && refused.contains(&Refused::Memory) => {}
        Err(error) => panic!("{what}: {error} ({refused:?})"),
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn one_seed() {
    let mut dice = Dice(number("REFUSED_SEED", 1));
    let folder = std::env::var_os("REFUSED_FOLDER").unwrap();
    let folder = Path::new(&folder);
    let memory = (16 + dice.below(48)) * MIB;
    let cache = Cache::builder()
        .memory(memory)
        .io_uring(dice.below(2) == 0)
        .build()
        .unwrap();
    let count = 1 + dice.below(3);
    let pages = memory / PAGE * (1 + dice.below(4)) / (2 * count);
    let mut all: Vec<Known> = (0..count)
        .map(|number| Known::new(&cache, &folder.join(number.to_string()), pages))
        .collect();
    let (before, after) = (dice.below(60), 20 + dice.below(60));
    let set = 1 + dice.below(31);
    let refused: Vec<Refused> = (0..5)
        .filter(|at| set & 1 << at != 0)
        .map(|at| Refused::ALL[at])
        .collect();
    // Else fewer pages than the smallest cache may have come so far.
    let is_early = dice.below(4) == 0;
    if !is_early {
        all.iter_mut().for_each(Known::fill);
    }
    for at in 0..before + after {
        if at == before {
            refuse(&refused);
        }
        let known = usize::try_from(dice.below(count)).unwrap();
        let known = &mut all[known];
        match dice.below(12) {
            0..6 => went(known.write(&mut dice), is_early, &refused, "write"),
            6..9 => went(known.read(&mut dice), is_early, &refused, "read"),
            9 => went(known.file.sync(), false, &refused, "sync"),
            10 => {
                let limit = memory / 2 + dice.below(memory / 2);
                match cache.set_limit(limit) {
                    Ok(()) | Err(Error::LimitTooSmall { .. }) => {}
                    Err(Error::System(_)) if refused.contains(&Refused::Thread) => {}
                    Err(Error::System(_)) if refused.contains(&Refused::Memory) => {}
                    Err(error) => panic!("set_limit: {error} ({refused:?})"),
                }
            }
            _ => {
                let path = folder.join(format!("late-{at}"));
                match cache.open(path, OpenOptions::new().create(true)) {
                    Ok(file) => drop(file.close()),
                    Err(Error::System(_)) if at >= before => {}
                    Err(error) => panic!("open: {error} ({refused:?})"),
                }
            }
        }
    }
    let _ = writeln!(
        std::io::stdout(),
        "refused {refused:?} after {before} of {}: {} of {memory} bytes of memory",
        before + after,
        cache.stats().refused
    );
    cache.close().unwrap();
    for known in all {
        known.check_disk();
    }
}

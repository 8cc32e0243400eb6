//! The checker of the lab on real files: threads write, read, pin, truncate and sync, every sector
//! carries its place and version, and no read may show a wrong one.
//!
//! `TIDEGATE_SEED=S` sets the seed (the schedule is the machine's, so a seed does not repeat a
//! run), `TIDEGATE_SECONDS=N` the length of each part (2 if not given).

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "support code of tests: a failure here is a failed test; the numbers are small"
)]

mod dir;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use env::ObjectId;
use policy::units::{Bytes, Pages};
use tidegate::{Cache, Error, File, OpenOptions};

use crate::dir::Dir;
use world::check::Checker;

const SECTOR: u64 = 512;
const SECTORS: u64 = 8;
const PAGE: u64 = 4096;
/// Pages of a file: three of them are twice the memory.
const PAGES_MAX: u64 = 3000;
const FILES: u32 = 3;
const THREADS: u64 = 6;
const MEMORY: u64 = 16 << 20;

impl Dir {
    fn file(&self, object: u32) -> PathBuf {
        self.0.join(format!("data-{object}"))
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    /// A run of sectors: small, pages, or large; often where others are at work, too.
    fn range(&mut self) -> (u64, u64) {
        let len = match self.below(10) {
            0..=5 => 1 + self.below(3 * SECTORS),
            6..=8 => SECTORS * (1 + self.below(32)),
            _ => SECTORS * (1 + self.below(400)),
        };
        let bound = if self.below(2) == 0 {
            64 * SECTORS
        } else {
            PAGES_MAX * SECTORS
        };
        let mut first = self.below(bound);
        if self.below(2) == 0 {
            first -= first % SECTORS;
        }
        (first.min(PAGES_MAX * SECTORS - len), len)
    }
}

struct Run {
    files: Vec<File>,
    checker: Mutex<Checker>,
    over: AtomicBool,
    calls: AtomicU64,
}

impl Run {
    fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, mut dice: Dice) {
        while !self.over.load(Ordering::Relaxed) {
            let number = dice.below(u64::from(FILES)) as u32;
            let (object, file) = (ObjectId(number), &self.files[number as usize]);
            match dice.below(100) {
                0..=39 => self.write(&mut dice, object, file),
                40..=79 => self.read(&mut dice, object, file),
                80..=91 => self.pin(&mut dice, object, file),
                92..=95 => self.sync(object, file),
                96..=97 => self.sync_range(&mut dice, object, file),
                _ => self.truncate(&mut dice, object, file),
            }
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, dice: &mut Dice, object: ObjectId, file: &File) {
        let (first, len) = dice.range();
        let (offset, bytes) = (first * SECTOR, len * SECTOR);
        let write = self
            .checker()
            .on_write_begin(object, Bytes(offset), Bytes(bytes));
        let mut data = vec![0; bytes as usize];
        write.fill_bytes(&mut data);
        assert_eq!(file.write_at(&data, offset).unwrap(), data.len());
        self.checker().on_write_end(write);
    }

    fn read(&self, dice: &mut Dice, object: ObjectId, file: &File) {
        let (first, len) = dice.range();
        let (offset, bytes) = (first * SECTOR, len * SECTOR);
        let mut data = vec![0xaa; bytes as usize];
        let read = self
            .checker()
            .on_read_begin(object, Bytes(offset), Bytes(bytes));
        let count = file.read_at(&mut data, offset).unwrap();
        self.judge(read, &data[..count]);
    }

    fn judge(&self, read: world::check::Read, data: &[u8]) {
        let verdict = self.checker().on_read_bytes(read, data);
        if let Err(violation) = verdict {
            panic!("{violation}");
        }
    }

    /// A pinned page is what was there, and stays so.
    fn pin(&self, dice: &mut Dice, object: ObjectId, file: &File) {
        let page = dice.below(PAGES_MAX) as u32;
        let read = self
            .checker()
            .on_read_begin(object, Bytes(u64::from(page) * PAGE), Bytes(PAGE));
        let pinned = match file.try_pin(page) {
            Some(pinned) => Ok(pinned),
            None => file.pin(page),
        };
        let pinned = match pinned {
            Ok(pinned) => pinned,
            Err(Error::File {
                error: mm::Error::OutOfRange { .. } | mm::Error::TooMany { .. },
                ..
            }) => return self.checker().on_read_failed(read),
            Err(error) => panic!("pin: {error}"),
        };
        let seen = pinned.to_vec();
        self.judge(read, &seen);
        for _ in 0..dice.below(4) {
            let number = dice.below(u64::from(FILES)) as u32;
            self.write(dice, ObjectId(number), &self.files[number as usize]);
        }
        assert!(*pinned == *seen, "a pinned page has changed");
    }

    fn sync(&self, object: ObjectId, file: &File) {
        let sync = self.checker().on_sync_begin(object);
        file.sync().unwrap();
        self.checker().on_sync_ok(sync);
    }

    fn sync_range(&self, dice: &mut Dice, object: ObjectId, file: &File) {
        let (first, len) = dice.range();
        let (offset, bytes) = (first * SECTOR, len * SECTOR);
        let sync = self
            .checker()
            .on_sync_range_begin(object, Bytes(offset), Bytes(bytes));
        file.sync_range(offset, bytes).unwrap();
        self.checker().on_sync_ok(sync);
    }

    fn truncate(&self, dice: &mut Dice, object: ObjectId, file: &File) {
        let mut len = dice.below(PAGES_MAX * SECTORS) * SECTOR;
        if dice.below(2) == 0 {
            len -= len % PAGE;
        }
        let truncate = self.checker().on_truncate_begin(object, Bytes(len));
        file.set_len(len).unwrap();
        self.checker().on_truncate_end(truncate);
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

fn run(uring: bool) {
    let dir = Dir::new(if uring { "uring" } else { "pool" });
    let seed = number("TIDEGATE_SEED", 1);
    println!("seed {seed}");
    let builder = Cache::builder().memory(MEMORY).io_uring(uring);
    let cache = builder.build().unwrap();
    let mut checker = Checker::new();
    let mut files = Vec::new();
    for object in 0..FILES {
        let options = OpenOptions::new().create(true).truncate(true);
        files.push(cache.open(dir.file(object), options).unwrap());
        // A truncate covers whatever is written beside it, up to the bound of the file.
        let all = checker.on_write_begin(ObjectId(object), Bytes::ZERO, Pages(PAGES_MAX).bytes());
        checker.on_write_failed(all);
    }
    let run = Run {
        files,
        checker: Mutex::new(checker),
        over: AtomicBool::new(false),
        calls: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let run = &run;
                scope.spawn(move || run.work(Dice(seed << 8 | thread)))
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(number("TIDEGATE_SECONDS", 2));
        while Instant::now() < end && !workers.iter().any(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            let stats = cache.stats();
            assert!(stats.cached + stats.metadata <= stats.limit, "{stats:?}");
        }
        run.over.store(true, Ordering::Relaxed);
    });
    println!("{} calls", run.calls.load(Ordering::Relaxed));
    for (object, file) in (0..FILES).zip(&run.files) {
        run.sync(ObjectId(object), file);
    }
    let stats = cache.stats();
    assert_eq!(
        (stats.dirty, stats.writeback, stats.pinned),
        (0, 0, 0),
        "{stats:?}"
    );
    let lens: Vec<u64> = run.files.iter().map(File::len).collect();
    // Others see of the files what the checker knows.
    let Run { files, checker, .. } = run;
    for file in files {
        file.close().unwrap();
    }
    cache.close().unwrap();
    let mut checker = checker.into_inner().unwrap();
    for (object, len) in (0..FILES).zip(lens) {
        let data = std::fs::read(dir.file(object)).unwrap();
        assert_eq!(data.len() as u64, len, "file {object}");
        let read = checker.on_read_begin(ObjectId(object), Bytes::ZERO, Bytes(len));
        if let Err(violation) = checker.on_read_bytes(read, &data) {
            panic!("on disk: {violation}");
        }
    }
}

#[test]
fn threads_see_no_wrong_version_through_the_ring() {
    run(true);
}

#[test]
fn threads_see_no_wrong_version_through_the_pool() {
    run(false);
}

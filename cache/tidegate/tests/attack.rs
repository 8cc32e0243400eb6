//! The attacks of a hostile reader of the code, on live threads: one test for each way in that once
//! worked, and a stress of everything at once.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a failure here is a failed test; the numbers are small"
)]

use std::cell::RefCell;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tidegate::{Cache, File, OpenOptions};

use crate::dir::Dir;

/// Memory that another thread is just taking from the system is on its way, not missing.
#[test]
fn the_first_reads_of_a_small_cache_find_memory() {
    let dir = Dir::new("first");
    let path = dir.0.join("data");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    for round in 0..20 {
        let cache = Cache::builder()
            .memory((7 << 20) + (600 << 10))
            .io_uring(false)
            .readahead(0)
            .build()
            .unwrap();
        let file = cache.open(&path, OpenOptions::new()).unwrap();
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (file, start) = (&file, &start);
                scope.spawn(move || {
                    let mut page = [0; 4096];
                    start.wait();
                    let read = file.read_at(&mut page, thread * 4096);
                    assert!(matches!(read, Ok(4096)), "round {round}: {read:?}");
                });
            }
        });
    }
}

/// A file that was dropped with dirty pages and is opened again is the same file.
#[test]
fn a_dropped_file_comes_back_as_it_was_left() {
    let dir = Dir::new("again");
    let path = dir.0.join("data");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    drop(file);
    let file = cache.open(&path, OpenOptions::new()).unwrap();
    assert_eq!(file.len(), 10_000);
    let mut back = vec![0; 10_000];
    assert_eq!(file.read_at(&mut back, 0).unwrap(), 10_000);
    assert!(back == [1; 10_000]);
    file.write_at(&[2; 4096], 0).unwrap();
    file.close().unwrap();
    cache.close().unwrap();
    let disk = std::fs::read(&path).unwrap();
    assert_eq!(disk.len(), 10_000);
    assert!(disk[..4096] == [2; 4096] && disk[4096..] == [1; 5904]);
}

/// Files that were dropped give their places back.
#[test]
fn files_opened_and_dropped_without_end_find_places() {
    let dir = Dir::new("many");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    for number in 0..5000 {
        let path = dir.0.join(format!("{}", number % 50));
        let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
    }
    cache.close().unwrap();
}

/// Handles of one file see the same bytes, and closing one leaves the others theirs.
#[test]
fn two_handles_are_one_file() {
    let dir = Dir::new("two");
    let path = dir.0.join("data");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let one = cache.open(&path, OpenOptions::new().create(true)).unwrap();
    std::fs::hard_link(&path, dir.0.join("link")).unwrap();
    let two = cache.open(dir.0.join("link"), OpenOptions::new()).unwrap();
    one.write_at(&[3; 5000], 0).unwrap();
    let mut back = [0; 5000];
    assert_eq!(two.read_at(&mut back, 0).unwrap(), 5000);
    assert!(back == [3; 5000]);
    one.close().unwrap();
    two.write_at(&[4; 100], 5000).unwrap();
    two.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 5100);
    let again = cache
        .open(&path, OpenOptions::new().truncate(true))
        .unwrap();
    assert_eq!(again.len(), 0);
    let reader = cache
        .open(&path, OpenOptions::new().read_only(true))
        .unwrap();
    drop((again, reader));
    cache.close().unwrap();
}

/// A file that was dropped and is removed gives way when places run out.
#[test]
fn dropped_files_of_other_names_give_way() {
    let dir = Dir::new("ways");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    for number in 0..4200 {
        let path = dir.0.join(format!("{number}"));
        let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        if number % 100 == 0 {
            file.write_at(&[1; 100], 0).unwrap();
        }
    }
    cache.close().unwrap();
    assert_eq!(std::fs::metadata(dir.0.join("100")).unwrap().len(), 100);
}

/// Pages that each writer of the stress owns, and pages beyond them that come and go.
const OWNED: u64 = 1024;
const WRITERS: u64 = 3;
const LOOSE: u64 = OWNED * WRITERS;
const PAGES: u64 = LOOSE + 1024;

fn sector(number: u64, version: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    for (at, word) in bytes.chunks_exact_mut(16).enumerate() {
        let salt = at as u64;
        word[..8].copy_from_slice(&(number ^ salt << 48).to_le_bytes());
        word[8..].copy_from_slice(&version.to_le_bytes());
    }
    bytes
}

/// The version of a sector, with nothing of another one in it. None: zeroes.
fn version(number: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(
        bytes == sector(number, version),
        "sector {number} holds something else: {:?}",
        &bytes[..32]
    );
    Some(version)
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Writers that know what they wrote, a truncater, readers, pins and syncs on one file, many times
/// the size of the cache.
#[test]
fn everything_at_once() {
    for uring in [true, false] {
        let dir = Dir::new(if uring { "all-uring" } else { "all-pool" });
        let path = dir.0.join("data");
        let cache = Cache::builder()
            .memory(9 << 20)
            .io_uring(uring)
            .build()
            .unwrap();
        let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        file.write_at(&[0; 4096], (LOOSE - 1) * 4096).unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        let mut last = Vec::new();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let file = &file;
                    scope.spawn(move || own_sectors(file, number, end))
                })
                .collect();
            for seed in 1..3 {
                let file = &file;
                scope.spawn(move || look(file, Dice(seed * 7919), end));
            }
            let (all, file) = (&cache, &file);
            scope.spawn(move || cut_and_grow(file, end));
            scope.spawn(move || {
                while Instant::now() < end {
                    file.sync().unwrap();
                    file.sync_range(4096, 1 << 20).unwrap();
                    all.sync().unwrap();
                    all.trim();
                }
            });
            last.extend(writers.into_iter().map(|writer| writer.join().unwrap()));
        });
        file.sync().unwrap();
        let disk = std::fs::read(&path).unwrap();
        assert_eq!(disk.len() as u64, file.len());
        for (at, bytes) in disk.chunks(512).enumerate() {
            let seen = version(at as u64, bytes);
            let owner = at / (OWNED as usize * 8);
            if let Some(versions) = last.get(owner) {
                let wrote = versions[at % (OWNED as usize * 8)];
                assert_eq!(seen.unwrap_or(0), wrote, "sector {at} on disk");
            }
        }
        let stats = cache.stats();
        assert_eq!((stats.dirty, stats.writeback, stats.pinned), (0, 0, 0));
        file.close().unwrap();
        cache.close().unwrap();
    }
}

/// Writes and reads sectors that nobody else writes; answers the version of each.
fn own_sectors(file: &File, number: u64, end: Instant) -> Vec<u64> {
    let sectors = OWNED * 8;
    let first = number * sectors;
    let mut versions = vec![0; sectors as usize];
    let mut dice = Dice(number * 31 + 5);
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        let len = 1 + dice.below(100);
        let at = dice.below(sectors - len);
        let range = at as usize..(at + len) as usize;
        if dice.below(3) > 0 {
            let data: Vec<u8> = (at..at + len)
                .flat_map(|at| sector(first + at, round))
                .collect();
            file.write_at(&data, (first + at) * 512).unwrap();
            versions[range].fill(round);
        } else {
            let mut data = vec![0; len as usize * 512];
            let read = file.read_at(&mut data, (first + at) * 512).unwrap();
            assert_eq!(read, data.len());
            for (place, bytes) in range.zip(data.chunks(512)) {
                let seen = version(first + place as u64, bytes).unwrap_or(0);
                assert_eq!(seen, versions[place], "sector {place} of writer {number}");
            }
        }
    }
    versions
}

/// Reads and pins anything.
fn look(file: &File, mut dice: Dice, end: Instant) {
    while Instant::now() < end {
        let page = dice.below(PAGES);
        if dice.below(2) == 0 {
            let Ok(pin) = file.pin(page as u32) else {
                continue;
            };
            let before: Vec<u8> = pin.to_vec();
            for (at, bytes) in before.chunks(512).enumerate() {
                version(page * 8 + at as u64, bytes);
            }
            std::thread::sleep(Duration::from_micros(dice.below(500)));
            assert!(*pin == before[..], "a pinned page has changed");
        } else {
            let mut data = vec![0; 16 * 4096];
            let read = file.read_at(&mut data, page * 4096).unwrap();
            for (at, bytes) in data[..read].chunks_exact(512).enumerate() {
                version(page * 8 + at as u64, bytes);
            }
        }
    }
}

/// Writes beyond the owned pages, cuts the file there, and sees that nothing cut comes back.
fn cut_and_grow(file: &File, end: Instant) {
    let mut dice = Dice(77);
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        let first = LOOSE * 8 + dice.below(4000);
        let data: Vec<u8> = (first..first + 1000)
            .flat_map(|at| sector(at, round))
            .collect();
        file.write_at(&data, first * 512).unwrap();
        if dice.below(2) == 0 {
            file.sync().unwrap();
        }
        let cut = LOOSE * 8 + dice.below(5000);
        file.set_len(cut * 512).unwrap();
        file.set_len(PAGES * 4096).unwrap();
        let mut back = vec![1; ((PAGES * 8 - cut) * 512) as usize];
        assert_eq!(file.read_at(&mut back, cut * 512).unwrap(), back.len());
        let stale = back.chunks(512).position(|bytes| bytes != [0; 512]);
        assert_eq!(stale, None, "round {round}: behind sector {cut}");
    }
}

/// Writes as its thread ends, after what the library kept for that thread is gone.
struct LastWords(Arc<File>);

impl Drop for LastWords {
    fn drop(&mut self) {
        self.0.write_at(b"last", 0).unwrap();
    }
}

thread_local! {
    static LAST: RefCell<Option<LastWords>> = const { RefCell::new(None) };
}

#[test]
fn a_destructor_of_a_thread_that_ends_may_write() {
    let dir = Dir::new("last-words");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let options = OpenOptions::new().create(true);
    let file = Arc::new(cache.open(dir.0.join("data"), options).unwrap());
    let own = Arc::clone(&file);
    let ended = std::thread::spawn(move || {
        LAST.set(Some(LastWords(Arc::clone(&own))));
        // Its first write: what is kept for the thread is made after `LAST`, and goes before it.
        own.write_at(b"first", 0).unwrap();
    });
    ended.join().unwrap();
    let mut words = [0; 5];
    assert_eq!(file.read_at(&mut words, 0).unwrap(), 5);
    assert_eq!(&words, b"lastt");
}

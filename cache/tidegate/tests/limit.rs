//! Resident memory against the limit, in a process of its own.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

mod dir;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::{Cache, OpenOptions};

use crate::dir::Dir;

const PAGE: u64 = 4096;
const REST: Duration = Duration::from_millis(3);

/// One test for all: they share a process, and so its resident memory.
#[test]
fn resident_memory_stays_under_the_limit() {
    anonymous_memory_alone();
    anonymous_file_and_pinned_memory_in_turn();
}

fn anonymous_memory_alone() {
    let dir = Dir::new("rss");
    let limit = 32_u64 << 20;
    let before = resident();
    let cache = Cache::builder()
        .memory(limit)
        .swap_file(dir.0.join("swap"), 256 << 20)
        .build()
        .unwrap();
    let region = cache.spill(192 << 20).unwrap();
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(resident());
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        for _ in 0..2 {
            region.touch(0, region.len()).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    let grown = most.saturating_sub(before);
    assert!(grown <= limit + limit / 20, "{} MiB", grown >> 20);
    assert!(grown > limit / 2, "it was used: {} MiB", grown >> 20);
    assert!(cache.stats().anonymous <= limit);
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE
}

/// Anonymous, file and pinned memory compete, and what is asked for changes all the time.
fn anonymous_file_and_pinned_memory_in_turn() {
    const PHASES: usize = 9;
    let dir = Dir::new("turn");
    let limit = 64_u64 << 20;
    let before = resident();
    let cache = Cache::builder()
        .memory(limit)
        .swap_file(dir.0.join("swap"), 256 << 20)
        .build()
        .unwrap();
    let open = |name: &str| {
        let path = dir.0.join(name);
        cache.open(path, OpenOptions::new().create(true)).unwrap()
    };
    let (file, pinned) = (open("data"), open("pinned"));
    pinned.write_at(&vec![3; 12 << 20], 0).unwrap();
    let region = cache.spill(128 << 20).unwrap();
    let phase = AtomicUsize::new(0);
    let now = || phase.load(Ordering::Relaxed);
    let most = std::thread::scope(|scope| {
        // Phase n: anonymous memory and pins, anonymous memory and files, files and pins.
        scope.spawn(|| {
            while now() < PHASES {
                if now() % 3 == 2 {
                    region.discard(0, region.len()).unwrap();
                    std::thread::sleep(REST);
                } else {
                    for at in (0..region.len()).step_by(1 << 20) {
                        region.touch(at, 1 << 20).unwrap();
                    }
                }
            }
        });
        scope.spawn(|| {
            let block = vec![9; 1 << 20];
            while now() < PHASES {
                if now() % 3 == 0 {
                    std::thread::sleep(REST);
                } else {
                    for at in 0..96_u64 {
                        file.write_at(&block, at << 20).unwrap();
                    }
                }
            }
        });
        scope.spawn(|| {
            while now() < PHASES {
                if now() % 3 == 1 {
                    std::thread::sleep(REST);
                } else {
                    let pins: Vec<_> = (0..2500).map(|page| pinned.pin(page).unwrap()).collect();
                    std::thread::sleep(10 * REST);
                    assert!(pins.iter().all(|page| page.iter().all(|byte| *byte == 3)));
                }
            }
        });
        let mut most = 0;
        for next in 1..=PHASES {
            for _ in 0..100 {
                most = most.max(resident());
                std::thread::sleep(REST);
            }
            phase.store(next, Ordering::Relaxed);
        }
        most
    });
    let grown = most.saturating_sub(before);
    assert!(grown <= limit + limit / 20, "{} MiB", grown >> 20);
    let stats = cache.stats();
    let swapped = |name| {
        stats
            .vmstat
            .iter()
            .find(|(other, _)| *other == name)
            .unwrap()
            .1
    };
    assert!(swapped("pswpout") > 0, "they did compete");
    for wait in &stats.waits {
        assert_eq!(wait.histogram.iter().sum::<u64>(), wait.count);
    }
    drop((file, pinned, region));
    cache.close().unwrap();
}

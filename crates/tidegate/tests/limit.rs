//! Resident memory against the limit, in a process of its own.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate::Cache;

const PAGE: u64 = 4096;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-limit-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn resident_memory_stays_under_the_limit() {
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
                std::thread::sleep(std::time::Duration::from_millis(2));
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

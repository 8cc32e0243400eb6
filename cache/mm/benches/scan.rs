//! Real time of a page that reclaim looks at and frees, on one core: 60 ns at most are wanted.
//!
//! A file is read front to back, once through a cache that it fits and once through one of a
//! sixteenth of it: the second has to scan and free a page for every page that it reads. Reported
//! is the extra time of the second, over the pages it scanned. In the lab, where devices and time
//! cost next to nothing and the procedures are those that run live.

#[path = "../tests/cache/common.rs"]
mod common;

use std::time::Instant;

use common::world;
use mm::{Reader, Stats};
use policy::units::Bytes;
use world::Sector;

const MIB: u64 = 1 << 20;
const FILE_MIB: u64 = 1024;
const FRAMES_FIT: u32 = 300_000;
const FRAMES_FEW: u32 = 16_384;
const ROUNDS: usize = 5;

fn main() {
    for _ in 0..ROUNDS {
        let (fits, _) = read(FRAMES_FIT);
        let (scans, stats) = read(FRAMES_FEW);
        let nanos = (scans - fits) * 1e9 / stats.scanned.0 as f64;
        println!(
            "page scanned and freed {nanos:.1} ns ({} scanned, {} freed)",
            stats.scanned.0, stats.reclaimed.0
        );
    }
}

/// Seconds that reading the file takes.
fn read(frames: u32) -> (f64, Stats) {
    let mut world = world(frames, 4096 * MIB);
    world.disk.keep(false);
    world.run(FILE_MIB * MIB, move |task, cache, file| {
        let mut reader = Reader::default();
        let mut chunk = vec![Sector(0); 2048];
        let began = Instant::now();
        for at in 0..FILE_MIB {
            let read = file.read(task, &mut reader, Bytes(at * MIB), &mut chunk);
            read.expect("a good disk");
        }
        (began.elapsed().as_secs_f64(), cache.stats())
    })
}

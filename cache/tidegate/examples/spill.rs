//! What anonymous memory costs: a fresh page, a page that is there, a trip to the swap file and
//! back.
//!
//! `cargo run --release --example spill -p tidegate [DIR]`: the swap file is made in DIR (the
//! temporary directory if not given). Each figure is one pass; hold them against `dd` with
//! `oflag=direct`, `iflag=direct` and blocks of 128 and 32 KiB on the same disk.

use std::time::{Duration, Instant};

use tidegate::{Cache, Error, Spill};

const LIMIT: u64 = 256 << 20;
const PAGE: u64 = 4096;

fn main() -> Result<(), Error> {
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let path = dir.join(format!("tidegate-swap-{}", std::process::id()));
    let cache = Cache::builder()
        .memory(LIMIT)
        .prefault(true)
        .swap_file(path, 4 * LIMIT)
        .build()?;

    let small = cache.spill(LIMIT / 2)?;
    let (fresh, _) = pass(&small)?;
    let (there, _) = pass(&small)?;
    let pages = small.len() / PAGE;
    println!("fresh page    {:7.1} ns", per_page(fresh, pages));
    println!("page at hand  {:7.2} ns", per_page(there, pages));
    let began = Instant::now();
    small.discard(0, small.len())?;
    println!("discarded     {:7.1} ns", per_page(began.elapsed(), pages));
    for together in [1, 4, 16] {
        let began = Instant::now();
        for first in (0..pages).step_by(together) {
            small.touch(first * PAGE, together as u64 * PAGE)?;
        }
        let each = per_page(began.elapsed(), pages);
        println!("fresh page, {together:2} a call {each:7.1} ns");
        small.discard(0, small.len())?;
    }
    drop(small);

    let large = cache.spill(2 * LIMIT)?;
    for trip in 0..4 {
        let before = swapped(&cache);
        let (took, major) = pass(&large)?;
        let after = swapped(&cache);
        let rate = |pages: u64| pages as f64 / 256.0 / took.as_secs_f64();
        println!(
            "trip {trip}: {:6.1} MiB/s out, {:6.1} MiB/s in, {} major faults in {:.2} s",
            rate(after.0 - before.0),
            rate(after.1 - before.1),
            major,
            took.as_secs_f64()
        );
    }
    for wait in cache.stats().waits {
        println!(
            "{:24} {:7} waits, {:9.3} s, 99 % below {:?}, longest {:?}",
            wait.cause,
            wait.count,
            wait.total.as_secs_f64(),
            wait.quantile(990),
            wait.max
        );
    }
    drop(large);
    cache.close()
}

fn pass(region: &Spill) -> Result<(Duration, u64), Error> {
    let began = Instant::now();
    let touched = region.touch(0, region.len())?;
    Ok((began.elapsed(), touched.major))
}

fn per_page(took: Duration, pages: u64) -> f64 {
    took.as_secs_f64() * 1e9 / pages as f64
}

fn swapped(cache: &Cache) -> (u64, u64) {
    let vmstat = cache.stats().vmstat;
    let count = |name: &str| {
        let found = vmstat.iter().find(|(other, _)| *other == name);
        found.map_or(0, |(_, value)| *value)
    };
    (count("pswpout"), count("pswpin"))
}

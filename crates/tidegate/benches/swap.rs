//! A trip to the swap file and back, beside the same bytes moved by `dd` with `O_DIRECT`. Issue 4: within 10 % of the
//! raw device.
//!
//! A region twice the limit is touched front to back, so that every page goes out and comes back in. `dd` writes and
//! reads as many bytes with requests of the same size (32 pages out, 8 in), before and after, on the same disk. The
//! files are made in `TIDEGATE_BENCH_DIR`, or in the folder for temporary files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use tidegate::Cache;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 512 * MIB;
const TRIPS: usize = 3;

fn main() {
    let dir = std::env::var_os("TIDEGATE_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let dir = dir.join(format!("tidegate-swap-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a writable directory for temporary files");
    for _ in 0..TRIPS {
        let before = raw(&dir);
        let trip = trip(&dir);
        let after = raw(&dir);
        let raw = (before + after) / 2.0;
        println!(
            "swap out and in {trip:.2} s, raw device {raw:.2} s, ratio {:.3}",
            trip / raw
        );
    }
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

/// Seconds of one pass over a region that does not fit, once it is all in the swap file.
fn trip(dir: &Path) -> f64 {
    let cache = Cache::builder()
        .memory(LIMIT)
        .prefault(true)
        .swap_file(dir.join("swap"), 4 * LIMIT)
        .build()
        .expect("512 MiB and a swap file");
    let region = cache.spill(2 * LIMIT).expect("a region");
    region
        .touch(0, region.len())
        .expect("room in the swap file");
    let began = Instant::now();
    region.touch(0, region.len()).expect("a good disk");
    let took = began.elapsed().as_secs_f64();
    drop(region);
    cache.close().expect("a good disk");
    took
}

/// Seconds that `dd` takes for as many bytes out and in.
fn raw(dir: &Path) -> f64 {
    let file = dir.join("raw");
    let (out, bytes) = (file.display(), 2 * LIMIT);
    let dd = |words: [String; 5]| {
        let status = Command::new("dd")
            .args(words)
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("dd of coreutils").success(), "dd failed");
    };
    let word = |text: &str| text.to_owned();
    let began = Instant::now();
    let blocks = |size: u64| format!("count={}", bytes / size);
    dd([
        word("if=/dev/zero"),
        format!("of={out}"),
        word("bs=128k"),
        blocks(128 << 10),
        word("oflag=direct"),
    ]);
    dd([
        format!("if={out}"),
        word("of=/dev/null"),
        word("bs=32k"),
        blocks(32 << 10),
        word("iflag=direct"),
    ]);
    let took = began.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(&file);
    took
}

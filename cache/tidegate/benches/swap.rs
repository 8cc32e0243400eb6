//! A trip to the swap file and back, beside the same bytes moved by `dd` with `O_DIRECT`. It is to
//! be within 10 % of the raw device.
//!
//! A region twice the limit is touched front to back, so that every page goes out and comes back
//! in. `dd` writes and then reads as many bytes, before and after, on the same disk, with requests
//! as long as ours: 32 pages. Beside it the same with 8 pages at a time on the way back, the
//! longest that the kernel reads of a swap file. The files are made in `TIDEGATE_BENCH_DIR`, or in
//! the folder for temporary files.

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
        let [long, short] = [0, 1].map(|at| f64::midpoint(before[at], after[at]));
        println!(
            "swap out and in {trip:.2} s, raw device {long:.2} s, ratio {:.3}; {short:.2} s by 32 KiB in, {:.3}",
            trip / long,
            trip / short,
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

/// Seconds that `dd` takes for as many bytes out and in: by 128 KiB, and by 32 KiB on the way back.
fn raw(dir: &Path) -> [f64; 2] {
    let file = dir.join("raw");
    let path = file.display();
    let dd = |from: String, to: String, kib: u64, flag: &str| {
        let began = Instant::now();
        let status = Command::new("dd")
            .args([format!("if={from}"), format!("of={to}")])
            .args([format!("bs={kib}k"), flag.to_owned()])
            .arg(format!("count={}", 2 * LIMIT / (kib << 10)))
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("dd of coreutils").success(), "dd failed");
        began.elapsed().as_secs_f64()
    };
    let null = || "/dev/null".to_owned();
    let out = dd(
        "/dev/zero".to_owned(),
        path.to_string(),
        128,
        "oflag=direct",
    );
    let back = dd(path.to_string(), null(), 128, "iflag=direct");
    let short = dd(path.to_string(), null(), 32, "iflag=direct");
    let _ = std::fs::remove_file(&file);
    [out + back, out + short]
}

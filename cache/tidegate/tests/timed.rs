//! Time that a disk takes: with `cargo xtask test --all`, as no other program runs beside it there.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate::{Cache, OpenOptions};

const MIB: usize = 1 << 20;

/// A file of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-timed-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn cache(layers: &str) -> Cache {
    let builder = Cache::builder().memory(32 << 20);
    builder.layers(layers).unwrap().build().unwrap()
}

#[test]
fn a_disk_is_as_slow_as_asked_until_it_is_released() {
    let scratch = Scratch::new("slow");
    let cache = cache("slow:rate=4MB");
    let create = OpenOptions::new().create(true);
    let file = cache.open(&scratch.0, create).unwrap();
    let begin = Instant::now();
    file.write_at(&[1; MIB], 0).unwrap();
    file.sync().unwrap();
    assert!(
        begin.elapsed() >= Duration::from_millis(240),
        "1 MiB at 4 MB/s"
    );
    file.write_at(&[2; 2 * MIB], 0).unwrap();
    cache.release_layers();
    let begin = Instant::now();
    file.sync().unwrap();
    assert!(begin.elapsed() < Duration::from_millis(400));
    file.close().unwrap();
    cache.close().unwrap();
}

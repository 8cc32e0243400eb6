//! The checks of the fuzzing target for a whole connection, over its corpus and over random input.
//!
//! A failure of the random part prints its seed; `NBD_SEED` takes one back, `NBD_ROUNDS` sets how
//! many there are.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../fuzz/checks.rs"]
mod checks;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

fn check(what: &str, data: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| checks::connection(data))) {
        eprintln!("failed for {what}: {data:02x?}");
        resume_unwind(panic);
    }
}

#[test]
fn the_corpus_of_connections() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/connection");
    let mut files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        check(&path.display().to_string(), &std::fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 10, "{files} files in {}", folder.display());
}

#[test]
fn random_connections() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let seeds = match number("NBD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("NBD_ROUNDS").unwrap_or(300) + 1,
    };
    for seed in seeds {
        check(&format!("NBD_SEED={seed}"), &random(seed));
    }
}

/// Settings, and up to forty requests; now and then bytes of any kind.
fn random(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    for _ in 0..4 {
        byte();
    }
    let mut mode = byte();
    // Most handshakes succeed, and most of what follows is requests.
    if byte() % 8 > 0 {
        mode &= !1;
    }
    if byte() % 8 > 0 {
        mode &= !64;
    }
    let requests = usize::from(byte() % 40);
    let mut data = vec![mode, byte(), byte(), byte()];
    for _ in 0..requests {
        let mut request = [0; 6].map(|_: u8| byte());
        // Most of them inside the volume, and not the longest.
        if byte() % 4 > 0 {
            request[2] &= 0x7f;
            request[4] %= 11;
        }
        data.extend(request);
    }
    data
}

/// Writes a small corpus: `cargo test -p tidegate-serve --test fuzz -- --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn write_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/connection");
    std::fs::create_dir_all(&folder).unwrap();
    for seed in 1000..1040 {
        std::fs::write(folder.join(format!("made-{seed}")), random(seed)).unwrap();
    }
}

//! A page hit, pin and unpin, on one thread, beside a `pread` of the same page from the kernel's
//! page cache. It is to take 60 ns at most. Its twin in C: `doors/capi/benches/hit.c`.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use tidegate::{Cache, OpenOptions};

const PAGES: u32 = 4096;
const ROUNDS: u32 = 2_000_000;

fn main() {
    let dir = std::env::temp_dir().join(format!("tidegate-hit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a writable directory for temporary files");
    let path = dir.join("data");
    let cache = Cache::builder().memory(64 << 20).build().expect("64 MiB");
    let file = cache
        .open(&path, OpenOptions::new().create(true))
        .expect("a fresh file");
    file.write_at(&vec![1_u8; PAGES as usize * 4096], 0)
        .expect("a good disk");
    file.sync().expect("a good disk");
    let plain = std::fs::File::open(&path).expect("the same file");
    let mut page = vec![0_u8; 4096];
    for _ in 0..5 {
        let hit = per_round(|at| {
            let pin = file.try_pin(scatter(at)).expect("everything is cached");
            black_box(pin[0]);
        });
        let read = per_round(|at| {
            file.read_at(&mut page, u64::from(scatter(at)) * 4096)
                .expect("cached");
        });
        let pread = per_round(|at| {
            plain
                .read_exact_at(&mut page, u64::from(scatter(at)) * 4096)
                .expect("cached");
        });
        let write = per_round(|at| {
            file.write_at(&page, u64::from(scatter(at)) % 512 * 4096)
                .expect("cached");
        });
        println!(
            "hit (pin + unpin) {hit:.1} ns; read_at 4 KiB {read:.1} ns; write_at 4 KiB {write:.1} ns; kernel pread \
             4 KiB {pread:.1} ns; ratio pread / hit {:.1}",
            pread / hit
        );
    }
    drop(file);
    cache.close().expect("a good disk");
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

/// Pages in an order that no prefetcher guesses.
fn scatter(at: u32) -> u32 {
    at.wrapping_mul(2_654_435_761) % PAGES
}

fn per_round(mut round: impl FnMut(u32)) -> f64 {
    let began = Instant::now();
    for at in 0..ROUNDS {
        round(at);
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

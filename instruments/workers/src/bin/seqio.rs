//! One sequential pass over a file through the cache, in 1 MiB calls; `cargo instruments bench
//! fio` runs it beside fio.
//!
//! `seqio PATH SIZE LIMIT write|read|show [pool]`: sizes in bytes; `show` reads without a copy.
//! Prints one line of JSON: seconds from the first byte to the flush (write) or to the last byte
//! (read), CPU seconds of the pass, and the largest resident size seen. The arena is prefaulted
//! before the clock starts; a written file is fresh and preallocated, as fio's is.

use std::time::Instant;

use tidegate::{Cache, OpenOptions};

const BLOCK: usize = 1 << 20;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let usage = "usage: seqio PATH SIZE LIMIT write|read|show [pool]";
    let (Some(path), Some(size), Some(limit), Some(mode)) =
        (args.get(1), number(&args, 2), number(&args, 3), args.get(4))
    else {
        eprintln!("{usage}");
        std::process::exit(2);
    };
    let uring = args.get(5).is_none_or(|word| word != "pool");
    if let Err(error) = run(path, size, limit, mode, uring) {
        eprintln!("seqio: {error}");
        std::process::exit(1);
    }
}

fn number(args: &[String], at: usize) -> Option<u64> {
    args.get(at)?.parse().ok()
}

fn run(path: &str, size: u64, limit: u64, mode: &str, uring: bool) -> Result<(), tidegate::Error> {
    let write = mode == "write";
    let cache = Cache::builder()
        .memory(limit)
        .whole_process(true)
        .prefault(true)
        .io_uring(uring)
        .build()?;
    let options = OpenOptions::new().create(write).truncate(write);
    let options = if write {
        options.preallocate(size)
    } else {
        options
    };
    let file = cache.open(path, options)?;
    let mut block = vec![0x5a_u8; BLOCK];
    let (user, system) = os_times();
    let began = Instant::now();
    let (mut resident, mut sum) = (0, 0);
    for at in (0..size).step_by(BLOCK) {
        if write {
            file.write_at(&block, at)?;
        } else if mode == "show" {
            // As much of it as a program that only passes it on needs.
            file.show_at(at, BLOCK as u64, |bytes| sum ^= u64::from(bytes[0]))?;
        } else {
            file.read_at(&mut block, at)?;
        }
        if at % (64 << 20) == 0 {
            resident = resident.max(os::resident_bytes());
        }
    }
    if write {
        file.sync()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let (user_after, system_after) = os_times();
    let cpu = (user_after - user) + (system_after - system);
    std::hint::black_box(sum);
    let stats = cache.stats();
    println!(
        "{{\"seconds\":{seconds:.4},\"cpu_seconds\":{cpu:.4},\"bytes\":{size},\"resident\":{resident},\
         \"limit\":{limit},\"direct\":{}}}",
        file.is_direct()
    );
    for wait in &stats.waits {
        eprintln!("{wait:?}");
    }
    Ok(())
}

fn os_times() -> (f64, f64) {
    let (user, system) = os::cpu_times();
    (user.0 as f64 / 1e9, system.0 as f64 / 1e9)
}

//! The program inside the guest of `cargo instruments guest` when memory is short: process 1, its
//! workers and its clerk.
//!
//! The shell that has set the devices up becomes this program. It reads a *plan*, starts a process
//! per worker, samples the kernel's counters on a fixed grid of guest time, and hands out what was
//! seen once the workers are gone.
//!
//! ```text
//!  base           zero = base + 1 s                     zero + seconds
//!   |--- samples ---|--- workers, samples, trace ---------|--- the stream goes out ---| power off
//! ```
//!
//! Vocabulary: a *worker* is a process that uses memory in one way (`work::KINDS`); its *log* is
//! what it has done so far and each of its calls; a *series* is a file of the kernel's that is read
//! again and again.
//!
//! Invariants
//!   1. Swapped-out pages are gone: the guest's swap is a disk without memory. So only regions
//!      whose content nobody reads may be swapped. Process 1 locks all its memory, now and later; a
//!      worker locks all it has before it begins, and then allocates nothing but those regions.
//!   2. A page that is touched gets something other than zero: the kernel keeps pages of zeros out
//!      of the swap file.
//!   3. The records of a run lie in memory that was there, touched and locked, before it began.
//!   4. All times are nanoseconds of `CLOCK_MONOTONIC`, as are the trace's (`mono`).
//!   5. Any failure ends the guest with a message; the host takes a stream without its last line
//!      for no stream.
//!
//! Concurrency: one thread per process. Processes share the logs alone, which are atomics; each has
//! one writer.
//!
//! Unsafe code is in `system` and nowhere else.
#![deny(unsafe_code)]

mod plan;
mod run;
mod series;
mod system;
mod work;

use std::process::ExitCode;

/// Size of a page, in bytes.
const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["run", plan] => run::run(plan),
        ["prefill", device, mib] => run::prefill(device, mib),
        _ => Err("usage: guest-load run PLAN | prefill DEVICE MIB".to_owned()),
    };
    let Err(problem) = result else {
        return ExitCode::SUCCESS;
    };
    println!("guest-load: {problem}");
    if std::process::id() == 1 {
        system::power_off();
    }
    ExitCode::FAILURE
}

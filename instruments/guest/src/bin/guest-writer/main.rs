//! The program inside the guest of `cargo instruments guest`: the writers of a scenario and their
//! clerk.
//!
//! A static program that a busybox initramfs starts once the devices are there. It reads a *plan*,
//! runs it, and only then, when nothing is measured any more, hands out what was seen: every
//! `write()` with its start and its length, the samples of the kernel's counters, and the trace.
//!
//! ```text
//!  base           zero = base + 1 s                         zero + seconds
//!   |--- samples ---|--- writers, samples, changes, trace ---|--- the stream goes out ---|
//! ```
//!
//! Invariants
//!   1. While writers run, nothing is written anywhere else but by the kernel: writes and samples
//!      are kept in memory that was touched before.
//!   2. All times are nanoseconds of `CLOCK_MONOTONIC` since `base`. The trace has the clock
//!      `mono`, and one mark in it, whose time on both scales is known, ties the two.
//!   3. Any failure ends the program with a message; the host takes a stream without its last line
//!      for no stream.
//!
//! Concurrency: a thread per writer, named `w0`, `w1` and so on, so that the trace tells them
//! apart; a thread that samples, a thread that changes the devices' rates. They share nothing but
//! the plan.
#![forbid(unsafe_code)]

mod address;
mod plan;
mod run;
mod sample;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["run", plan] => run::run(plan),
        ["rate-address", index, mib, low] => address::print(index, mib, low),
        _ => Err("usage: guest-writer run PLAN | rate-address INDEX MIB LOW".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("guest-writer: {problem}");
            ExitCode::FAILURE
        }
    }
}

//! A signal of the program is for the program: no thread of the library or the governor takes one.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::fs;

use governor::adapters::tidegate::Governed;
use governor::{Governor, Share};
use tidegate::{Cache, OpenOptions};

/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: faults of the thread itself.
const FAULTS: [u32; 7] = [4, 5, 6, 7, 8, 11, 31];
/// SIGKILL and SIGSTOP cannot be blocked, and the C library keeps 32 and 33 for itself.
const OTHERS: [u32; 4] = [9, 19, 32, 33];

fn threads() -> Vec<(String, String, u64)> {
    let mut threads = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        // It may have ended since.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let blocked = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
        threads.push((
            task.file_name().into_string().unwrap(),
            field("Name:"),
            blocked,
        ));
    }
    threads
}

#[test]
fn no_thread_of_the_library_takes_a_signal_of_the_program() {
    let own: Vec<_> = threads().into_iter().map(|(id, _, _)| id).collect();
    let folder = std::env::temp_dir().join(format!("tidegate-{}-signals", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for io_uring in [true, false] {
        let governor = Governor::new(128 << 20).unwrap();
        let cache = Cache::builder()
            .memory(64 << 20)
            .swap_file(folder.join("swap"), 64 << 20)
            .io_uring(io_uring)
            .build()
            .unwrap();
        let member = Governed::new(&governor, "pages", Share::default(), &cache);
        let file = cache.open(folder.join("data"), OpenOptions::new().create(true));
        let file = file.unwrap();
        for at in 0..64 {
            file.write_at(&vec![1; 1 << 20], at << 20).unwrap();
        }
        file.sync().unwrap();
        let mut names = Vec::new();
        for (id, name, blocked) in threads() {
            if own.contains(&id) {
                continue;
            }
            let takes = |signal: &u32| blocked >> (signal - 1) & 1 == 0;
            let taken: Vec<_> = (1..=64)
                .filter(|signal| !FAULTS.contains(signal) && !OTHERS.contains(signal))
                .filter(takes)
                .collect();
            assert!(taken.is_empty(), "{name} takes the signals {taken:?}");
            names.push(name);
        }
        for wanted in ["tg-timer", "reclaimer", "governor", "flush-0"] {
            assert!(
                names.iter().any(|name| name.starts_with(wanted)),
                "{wanted}: {names:?}"
            );
        }
        drop((file, member));
        cache.close().unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

//! The writes of one operation to memory that several threads share: they keep a program from going
//! faster on more cores, and are counted on any machine (`frames::counted`).
//!
//! Two threads do the same at the same time, on files of their own, on pages of their own in one
//! file, or on the same pages. The table says what is; the bounds say what must stay. The places of
//! the writes are printed below it (`--nocapture`).

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod dir;

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use frames::counted::{Writes, measure};
use tidegate::{Cache, File, OpenOptions};

use crate::dir::Dir;

const THREADS: u32 = 2;
/// Operations of each thread.
const ROUNDS: u32 = 2048;
/// Pages that a thread goes over where they are to be in memory.
const PAGES: u32 = 64;
/// Pages before and behind these.
const APART: u32 = 8;
const WARM: u32 = 1100;
const PAGE: u64 = 4096;

/// The work that a thread does `n` times, from a page on that its own begin at.
type Round = fn(&File, first: u32, n: u32);

/// The owner of the pages that the threads use.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    OwnFile,
    OwnPages,
    SamePages,
}

/// The work of a round, the pages it uses, and thousandths of a shared write that it may make.
struct Case {
    name: &'static str,
    whose: Whose,
    /// Pages of each thread that are written, and in memory, before the threads begin.
    ready: u32,
    round: Round,
    most: u64,
}

const fn case(name: &'static str, whose: Whose, round: Round, most: u64) -> Case {
    Case {
        name,
        whose,
        ready: PAGES + 2 * APART,
        round,
        most,
    }
}

/// An exchange that another thread got ahead of is tried again, and counted again: in a tenth of
/// the operations at most.
const AGAIN: u64 = 100;
/// Of a page that is dirty already: at most one in 64 calls.
const RARE: u64 = 1000 / 64;

const CASES: &[Case] = &[
    case("hit, own file", Whose::OwnFile, hit, 0),
    case("hit, own pages of one file", Whose::OwnPages, hit, 0),
    case("hit, the same pages", Whose::SamePages, hit, 2000 + AGAIN),
    case("read_at 4 KiB, own file", Whose::OwnFile, read, 0),
    case(
        "read_at 4 KiB, own pages of one file",
        Whose::OwnPages,
        read,
        0,
    ),
    case(
        "read_at 4 KiB, the same pages",
        Whose::SamePages,
        read,
        2000 + AGAIN,
    ),
    case("overwrite 4 KiB, own file", Whose::OwnFile, write, RARE),
    case(
        "overwrite 4 KiB, own pages of one file",
        Whose::OwnPages,
        write,
        2000 + RARE + AGAIN,
    ),
    Case {
        ready: 0,
        ..case(
            "first write 4 KiB, own file",
            Whose::OwnFile,
            write_on,
            24_000,
        )
    },
    Case {
        ready: 0,
        ..case("miss, own file", Whose::OwnFile, miss, 24_000)
    },
];

fn hit(file: &File, first: u32, n: u32) {
    black_box(file.try_pin(first + n % PAGES).unwrap()[0]);
}

fn read(file: &File, first: u32, n: u32) {
    read_one(file, first + n % PAGES);
}

fn read_one(file: &File, page: u32) {
    let mut data = [0; PAGE as usize];
    file.read_at(&mut data, u64::from(page) * PAGE).unwrap();
    black_box(data[0]);
}

fn write(file: &File, first: u32, n: u32) {
    write_on(file, first, n % PAGES);
}

/// Each time a page that was not written before.
fn write_on(file: &File, first: u32, n: u32) {
    file.write_at(&[7; PAGE as usize], u64::from(first + n) * PAGE)
        .unwrap();
}

/// Each time a page that is not in memory, in an order that is not read ahead.
fn miss(file: &File, first: u32, n: u32) {
    read_one(file, first + n.wrapping_mul(1_003) % (2 * ROUNDS));
}

/// A folder that goes with the test.
/// The first page of a thread's own.
fn first_of(case: &Case, number: u32) -> u32 {
    if case.whose == Whose::OwnPages {
        APART + number * ROUNDS
    } else {
        APART
    }
}

fn run(case: &Case, dir: &Dir) -> Writes {
    let cache = Cache::builder().memory(128 << 20).build().unwrap();
    let files = if case.whose == Whose::OwnFile {
        THREADS
    } else {
        1
    };
    let files: Vec<File> = (0..files)
        .map(|number| {
            let path = dir.0.join(format!("data-{number}"));
            let len = u64::from(ROUNDS + PAGES) * PAGE * 2;
            std::fs::File::create(&path).unwrap().set_len(len).unwrap();
            cache.open(&path, OpenOptions::new()).unwrap()
        })
        .collect();
    for number in 0..THREADS {
        let file = &files[number as usize % files.len()];
        // More than a thread uses: in the table of frames neighbours share a line.
        for page in 0..case.ready {
            write_on(file, first_of(case, number) - APART, page);
        }
    }
    let (ready, begin, end) = (Barrier::new(3), Barrier::new(3), Barrier::new(3));
    let writes = thread::scope(|scope| {
        for number in 0..THREADS {
            let file = &files[number as usize % files.len()];
            let first = first_of(case, number);
            let (ready, begin, end) = (&ready, &begin, &end);
            scope.spawn(move || {
                // Work of the first times only.
                for n in 0..WARM {
                    (case.round)(file, first, n);
                }
                ready.wait();
                begin.wait();
                for n in WARM..WARM + ROUNDS {
                    (case.round)(file, first, n);
                }
                end.wait();
            });
        }
        ready.wait();
        measure(u64::from(THREADS * ROUNDS), || {
            begin.wait();
            end.wait();
        })
    });
    for file in files {
        file.discard().unwrap();
    }
    cache.close().unwrap();
    writes
}

#[test]
fn an_operation_makes_few_shared_writes() {
    let dir = Dir::new("shared-writes");
    let mut table = String::from("shared writes an operation\n");
    let mut over = Vec::new();
    for case in CASES {
        let writes = run(case, &dir);
        let permille = writes.permille();
        let (whole, part) = (permille / 1000, permille % 1000);
        writeln!(table, "  {:<42} {whole:>3}.{part:03}", case.name).unwrap();
        for (place, count) in writes
            .places
            .iter()
            .filter(|(_, count)| *count >= writes.operations / 64)
        {
            writeln!(
                table,
                "      {:>8} {place}",
                count * 1000 / writes.operations
            )
            .unwrap();
        }
        if permille > case.most {
            over.push((case.name, permille, case.most));
        }
    }
    println!("{table}");
    assert!(
        over.is_empty(),
        "more than there may be (name, thousandths, most): {over:?}\n{table}"
    );
}

//! `cargo instruments bench scale [THREADS]...`: what more cores bring, beside what a program could
//! use instead: the kernel's cache, quick_cache, nbdkit.
//!
//! Each cell is the median of the rounds, with its ratio to the first of its row. A round is a
//! process for each cell (the examples `scale` of `cache/tidegate` and `peers` of
//! `doors/governor`), and for the server fio's `nbd` engine with a connection for each thread;
//! ours and the other in turn, so that other load of the machine falls on both.
//!
//! More threads than the machine has cores say nothing: without `THREADS`, 1, 2, 4 and so on up to
//! the cores.

use std::path::{Path, PathBuf};

use super::memory::{Figures, heading, in_folder, median_of, run as run_example};
use super::serve::of_connections;
use crate::workspace::{Workspace, build_program};
use crate::{Arguments, Result, steps};

const ROUNDS: usize = 3;

/// A row: what is measured, of whom, and by which words.
struct Row {
    name: &'static str,
    others: &'static str,
    /// The words behind the subject's, before the number of threads.
    words: &'static [&'static str],
    figure: &'static str,
    /// What the figure is divided by.
    unit: f64,
}

const fn calls(name: &'static str, words: &'static [&'static str]) -> Row {
    Row {
        name,
        others: "kernel",
        words,
        figure: "per_second",
        unit: 1e9,
    }
}

const fn accesses(name: &'static str, words: &'static [&'static str], unit: f64) -> Row {
    Row {
        name,
        others: "quick_cache",
        words,
        figure: "ns",
        unit,
    }
}

const ACCESSES: [Row; 3] = [
    accesses("hit, pages of its own, ns", &["hits"], 1.0),
    accesses("hit, the same pages, ns", &["same"], 1.0),
    accesses("mix with misses, us an access", &["mix"], 1e3),
];
const CALLS: [Row; 8] = [
    calls("4 KiB read, own files, GB/s", &["read", "own", "4096"]),
    calls("4 KiB read, one file, GB/s", &["read", "one", "4096"]),
    calls(
        "4 KiB overwrite, own files, GB/s",
        &["write", "own", "4096"],
    ),
    calls("4 KiB overwrite, one file, GB/s", &["write", "one", "4096"]),
    calls("1 MiB read, own files, GB/s", &["read", "own", "1048576"]),
    calls("1 MiB read, one file, GB/s", &["read", "one", "1048576"]),
    calls(
        "1 MiB overwrite, own files, GB/s",
        &["write", "own", "1048576"],
    ),
    calls(
        "1 MiB overwrite, one file, GB/s",
        &["write", "one", "1048576"],
    ),
];
type Served = (
    &'static str,
    (&'static str, &'static str, &'static str),
    bool,
    f64,
);

/// Of the server: a name, what fio does, which volume, and what the figure is divided by.
const SERVED: [Served; 5] = [
    (
        "NBD 4 KiB read, thousand/s",
        ("randread", "4k", "16"),
        false,
        1e3,
    ),
    (
        "NBD 4 KiB write, file, thousand/s",
        ("randwrite", "4k", "16"),
        false,
        1e3,
    ),
    (
        "NBD 4 KiB write, mem:, thousand/s",
        ("randwrite", "4k", "16"),
        true,
        1e3,
    ),
    (
        "NBD 1 MiB write, file, /s",
        ("write", "1M", "4"),
        false,
        1.0,
    ),
    ("NBD 1 MiB write, mem:, /s", ("write", "1M", "4"), true, 1.0),
];

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let (mut rounds, mut folder, mut programs) = (ROUNDS, None, None);
    let mut threads: Vec<u32> = Vec::new();
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--rounds" => rounds = arguments.number_of("--rounds")?,
            "--dir" => folder = Some(PathBuf::from(arguments.value_of("--dir")?)),
            "--programs" => programs = Some(PathBuf::from(arguments.value_of("--programs")?)),
            word => match word.parse() {
                Ok(number) if number > 0 => threads.push(number),
                _ => return Err(format!("bench scale: unexpected '{word}'")),
            },
        }
    }
    if rounds == 0 {
        return Err("bench scale: at least one round".into());
    }
    if threads.is_empty() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        threads.extend(
            (0..)
                .map(|power| 1 << power)
                .take_while(|number| *number as usize <= cores),
        );
    }
    let programs = match programs {
        Some(folder) => ["scale", "peers", "tidegate"].map(|name| folder.join(name)),
        None => {
            let adapters = ["-p", "tidegate-governor", "--features", "adapters"];
            let (scale, peers) = (
                super::example(&["-p", "tidegate"], "scale")?,
                super::example(&adapters, "peers")?,
            );
            build_program()?;
            [scale, peers, Workspace::load()?.program()]
        }
    };
    println!("{}", heading(rounds));
    in_folder(folder, "scale", |folder| {
        table(&programs, folder, &threads, rounds)
    })
}

fn table(
    [scale, peers, ours]: &[PathBuf; 3],
    folder: &Path,
    threads: &[u32],
    rounds: usize,
) -> Result<()> {
    let numbers: Vec<String> = threads
        .iter()
        .map(|number| format!("{number} | "))
        .collect();
    println!(
        "| threads | of | {}\n|---|---|{}",
        numbers.concat().trim_end(),
        "---:|".repeat(threads.len())
    );
    let of_examples = ACCESSES.iter().map(|row| (peers, row));
    for (program, row) in of_examples.chain(CALLS.iter().map(|row| (scale, row))) {
        let mut found = vec![[const { Vec::<Figures>::new() }; 2]; threads.len()];
        for _ in 0..rounds {
            for (threads, found) in threads.iter().zip(&mut found) {
                for (subject, found) in ["tidegate", row.others].iter().zip(found) {
                    let words = [&[*subject], row.words].concat();
                    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
                    words.push(threads.to_string());
                    found.extend(run_example(program, folder, &words)?);
                }
            }
        }
        for (at, subject) in ["Tidegate", row.others].iter().enumerate() {
            let cells = found.iter().map(|found| median_of(&found[at], row.figure));
            let cells: Vec<f64> = cells.collect::<Result<_>>()?;
            print_row(row.name, subject, &cells, row.unit);
        }
    }
    if let Some(tool) = ["fio", "nbdkit"]
        .iter()
        .find(|tool| !steps::is_there(tool, &["--version"]))
    {
        println!("\nSKIPPED: the rows of NBD: {tool} is not installed (apt-get install {tool})");
        return Ok(());
    }
    for (name, load, in_memory, unit) in SERVED {
        let cells = of_connections(ours, folder, load, in_memory, threads, rounds)?;
        for (subject, cells) in ["Tidegate", "nbdkit memory"].iter().zip(cells) {
            print_row(name, subject, &cells, unit);
        }
    }
    Ok(())
}

fn print_row(name: &str, subject: &str, cells: &[f64], unit: f64) {
    println!("| {name} | {subject} | {} |", shown(cells, unit));
}

/// Cells of a row, each with its ratio to the first.
fn shown(cells: &[f64], unit: f64) -> String {
    let cells = cells
        .iter()
        .map(|cell| format!("{:.1} ({:.2})", cell / unit, cell / cells[0]));
    cells.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_its_ratio_to_the_first() {
        assert_eq!(shown(&[2e9, 5e9], 1e9), "2.0 (1.00) | 5.0 (2.50)");
    }
}

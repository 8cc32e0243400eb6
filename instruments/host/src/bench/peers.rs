//! `cargo instruments bench peers`: a page cache beside caches of objects that a program could use
//! instead: quick_cache, moka, foyer.
//!
//! Each figure is the median of the rounds. A round is a process for each row and cache (the
//! example `peers` of `doors/governor`), the caches one after the other, so that what else the
//! machine does falls on all alike.
//!
//! | row | what | wanted |
//! |---|---|---|
//! | hit | a look-up of a cached page of 4 KiB and letting it go, by one thread and by two on pages of their own | 20 ns; two threads 1.15 of one; the best of all |
//! | mix | popularity 1/rank over four times what is cached; a miss reads the file past the kernel's cache | - |
//! | resident | most memory of the process above what it had before, over the limit asked for | 1.05 |
//!
//! The results are in docs/work/bench.md.

use std::path::PathBuf;

use super::memory::{Figures, heading, in_folder, median_of, run as run_example};
use crate::{Arguments, Result};

const CACHES: [&str; 4] = ["tidegate", "quick_cache", "moka", "foyer"];
const ROUNDS: usize = 5;

/// A row: its words for people, those for the example, and what is shown of it.
struct Row {
    name: &'static str,
    words: [&'static str; 2],
    figure: &'static str,
    digits: usize,
}

const fn row(
    name: &'static str,
    words: [&'static str; 2],
    figure: &'static str,
    digits: usize,
) -> Row {
    Row {
        name,
        words,
        figure,
        digits,
    }
}

const HIT: [&str; 2] = ["hits", "1"];
const HITS: [&str; 2] = ["hits", "2"];
const MIX: [&str; 2] = ["mix", "1"];
const MIXES: [&str; 2] = ["mix", "2"];
const ROWS: [Row; 10] = [
    row("hit, one thread, ns", HIT, "ns", 1),
    row("hit, two threads on pages of their own, ns", HITS, "ns", 1),
    row(
        "hit, two threads on the same pages, ns",
        ["same", "2"],
        "ns",
        1,
    ),
    row("mix, one thread, us an access", MIX, "ns", 2),
    row("mix, one thread, hits", MIX, "hits", 4),
    row("mix, one thread, us of CPU an access", MIX, "cpu_ns", 2),
    row("mix, two threads, us an access", MIXES, "ns", 2),
    row("mix, two threads, hits", MIXES, "hits", 4),
    row("mix, two threads, us of CPU an access", MIXES, "cpu_ns", 2),
    row("resident memory / limit", ["resident", "1"], "resident", 3),
];

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let (mut rounds, mut folder, mut only_hits) = (ROUNDS, None, false);
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--rounds" => rounds = arguments.number_of("--rounds")?,
            "--dir" => folder = Some(PathBuf::from(arguments.value_of("--dir")?)),
            "--hits" => only_hits = true,
            _ => return Err(format!("bench peers: unexpected '{word}'")),
        }
    }
    if rounds == 0 {
        return Err("bench peers: at least one round".into());
    }
    let adapters = ["-p", "tidegate-governor", "--features", "adapters"];
    let program = super::example(&adapters, "peers")?;
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| !only_hits || matches!(row.words[0], "hits" | "same"))
        .collect();
    println!("{}", heading(rounds));
    in_folder(folder, "peers", |folder| {
        let mut runs: Vec<([&str; 2], [Vec<Figures>; CACHES.len()])> = Vec::new();
        for row in &rows {
            if !runs.iter().any(|(words, _)| *words == row.words) {
                runs.push((row.words, [const { Vec::new() }; CACHES.len()]));
            }
        }
        for _ in 0..rounds {
            for (words, found) in &mut runs {
                for (cache, found) in CACHES.iter().zip(found) {
                    let words = [cache, words[0], words[1]].map(str::to_owned);
                    found.extend(run_example(&program, folder, &words)?);
                }
            }
        }
        println!(
            "| 4 KiB pages | {} | best of the others / Tidegate |\n|---|{}",
            CACHES.join(" | "),
            "---:|".repeat(CACHES.len() + 1)
        );
        for row in rows {
            let (_, found) = runs
                .iter()
                .find(|(words, _)| *words == row.words)
                .ok_or("a row that was not run")?;
            print_row(row, found)?;
        }
        println!(
            "\nwanted: a hit <= 20 ns, two threads <= 1.15 of one, the fastest; resident <= 1.05"
        );
        Ok(())
    })
}

fn print_row(row: &Row, found: &[Vec<Figures>; CACHES.len()]) -> Result<()> {
    let mut values = [0.0; CACHES.len()];
    for (value, found) in values.iter_mut().zip(found) {
        *value = median_of(found, row.figure)?;
    }
    let unit = if row.name.contains(" us ") { 1e3 } else { 1.0 };
    let shown = values.map(|value| format!("{:.*}", row.digits, value / unit));
    let others = values[1..].iter().copied();
    let best = if row.figure == "hits" {
        others.fold(f64::MIN, f64::max)
    } else {
        others.fold(f64::MAX, f64::min)
    };
    println!(
        "| {} | {} | {:.2} |",
        row.name,
        shown.join(" | "),
        best / values[0]
    );
    Ok(())
}

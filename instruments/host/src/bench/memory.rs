//! `cargo instruments bench shrink` and `cargo instruments bench aged`: what a cache's memory does
//! when less of it is wanted, and when it is old.
//!
//! | step | what | wanted |
//! |---|---|---|
//! | `shrink` | the limit of a cache in use goes from 1 GiB to 512 MiB, 96 MiB of it dirty on a device of 16 MiB/s, or on one that hangs | 0.5 s until it holds, 0.98 hits of the hot pages (of those that fit) |
//! | `aged` | 1 MiB reads in sequence by a fresh cache, and after minutes of random misses | 0.95 of the fresh one |
//!
//! Both are examples of the crate `tidegate`, run in a process of their own for each round; the
//! figures are medians of the rounds. `--program FILE` runs a program that was built elsewhere: of
//! another commit, or with another setting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fio::median;
use crate::steps;
use crate::workspace::Workspace;
use crate::{Arguments, Result};

/// Rounds of `shrink`, and seconds that it looks at afterwards.
const ROUNDS: usize = 5;
const SECONDS: u64 = 5;
/// Minutes of random misses of `aged`, the rounds, and seconds of misses from the second round on:
/// the memory is taken and given back several times in it.
const MINUTES: u64 = 10;
const AGED_ROUNDS: u64 = 3;
const AGAIN_SECONDS: u64 = 60;

/// What `shrink` compares: hot MiB (half of the cache, which does not fit beside what is dirty; and
/// what does) and the device's rate.
const ROWS: [(&str, u64, u64); 4] = [
    ("384 MiB hot, 16 MiB/s", 384, 16),
    ("384 MiB hot, hung", 384, 0),
    ("512 MiB hot, 16 MiB/s", 512, 16),
    ("512 MiB hot, hung", 512, 0),
];

/// Figures of a round by their names.
pub(super) type Figures = BTreeMap<String, f64>;

pub(super) fn shrink(mut arguments: Arguments) -> Result<()> {
    let (mut rounds, mut folder, mut program) = (ROUNDS, None, None);
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--rounds" => rounds = arguments.number_of("--rounds")?,
            "--dir" => folder = Some(PathBuf::from(arguments.value_of("--dir")?)),
            "--program" => program = Some(PathBuf::from(arguments.value_of("--program")?)),
            _ => return Err(format!("bench shrink: unexpected '{word}'")),
        }
    }
    if rounds == 0 {
        return Err("bench shrink: at least one round".into());
    }
    let program = built("shrink", program)?;
    println!("{}", heading(rounds));
    println!(
        "| cache of 1 GiB, set_limit(512 MiB) | s until the limit holds | s until resident memory is at it | hit before | until then | \
         in the 1st s after | in the {SECONDS}th | room | hit of what fits | moved |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    in_folder(folder, "shrink", |folder| {
        for (name, hot, rate) in ROWS {
            let words = [hot, rate, SECONDS].map(|number| number.to_string());
            let mut all: Vec<Figures> = Vec::new();
            for _ in 0..rounds {
                all.extend(run(&program, folder, &words)?);
            }
            let of = |figure: &str| median_of(&all, figure);
            let (first, last) = (of("hit_1")?, of(&format!("hit_{SECONDS}"))?);
            let room = of("room")?;
            println!(
                "| {name} | {:.3} | {:.3} | {:.4} | {:.4} | {first:.4} | {last:.4} | {room:.3} | {:.4} | {} |",
                of("over_s")?,
                of("resident_s")?,
                of("hit_before")?,
                of("hit_until")?,
                first / room,
                of("moved")?,
            );
        }
        Ok(())
    })?;
    println!("wanted: <= 0.5 s, hit of what fits >= 0.98; the same where the device hangs");
    Ok(())
}

pub(super) fn aged(mut arguments: Arguments) -> Result<()> {
    let (mut minutes, mut rounds, mut again) = (MINUTES, AGED_ROUNDS, AGAIN_SECONDS);
    let (mut folder, mut program) = (None, None);
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--minutes" => minutes = arguments.number_of("--minutes")?,
            "--rounds" => rounds = arguments.number_of("--rounds")?,
            "--again" => again = arguments.number_of("--again")?,
            "--dir" => folder = Some(PathBuf::from(arguments.value_of("--dir")?)),
            "--program" => program = Some(PathBuf::from(arguments.value_of("--program")?)),
            _ => return Err(format!("bench aged: unexpected '{word}'")),
        }
    }
    if rounds == 0 || minutes == 0 {
        return Err("bench aged: at least one round, and one minute".into());
    }
    let program = built("aged", program)?;
    let rounds_shown = usize::try_from(rounds).unwrap_or(usize::MAX);
    println!("{}", heading(rounds_shown));
    in_folder(folder, "aged", |folder| {
        let words = [60 * minutes, again, rounds].map(|number| number.to_string());
        let all = run(&program, folder, &words)?;
        println!(
            "| 512 MiB of memory, reads of 1 MiB, 1 GiB in sequence | fresh | aged | aged / fresh |\n|---|---:|---:|---:|"
        );
        let rows = [
            ("MiB/s", "fresh_mibs", "aged_mibs"),
            (
                "MiB/s of the first 512 MiB",
                "fresh_first_mibs",
                "aged_first_mibs",
            ),
            ("segments of a vector", "fresh_segments", "aged_segments"),
            ("KiB of a request", "request_kib", "aged_request_kib"),
        ];
        for (name, fresh, aged) in rows {
            let (fresh, aged) = (median_of(&all, fresh)?, median_of(&all, aged)?);
            println!("| {name} | {fresh:.1} | {aged:.1} | {:.3} |", aged / fresh);
        }
        let first = all.first().map_or(f64::NAN, |figures| figures["turnovers"]);
        println!(
            "misses of the first round: {first:.1} times the memory; wanted: >= 0.95 of the MiB/s"
        );
        for figures in &all {
            println!("    {figures:?}");
        }
        Ok(())
    })
}

/// The example, built here if it is not given.
fn built(name: &str, program: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(program) = program {
        return Ok(program);
    }
    super::example(&["-p", "tidegate"], name)
}

pub(super) fn heading(rounds: usize) -> String {
    format!(
        "{}; medians of {rounds} rounds. Durability of every figure: reads, and \
         what is dirty is written to cache, not durable.\n",
        super::circumstances()
    )
}

/// In a folder that is there meanwhile; where none is given, not among temporary files: those may
/// be memory.
pub(super) fn in_folder(
    folder: Option<PathBuf>,
    name: &str,
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let folder = match folder {
        Some(folder) => folder,
        None => Workspace::load()?.target,
    };
    let folder = folder.join(format!("tidegate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let result = work(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

pub(super) fn run(program: &Path, folder: &Path, words: &[String]) -> Result<Vec<Figures>> {
    let mut command = Command::new(program);
    command.arg(folder).args(words);
    steps::output(&mut command)?.lines().map(parse).collect()
}

fn parse(line: &str) -> Result<Figures> {
    serde_json::from_str(line).map_err(|error| format!("'{line}': {error}"))
}

pub(super) fn median_of(all: &[Figures], name: &str) -> Result<f64> {
    let values = all.iter().map(|figures| figures.get(name).copied());
    let values: Option<Vec<f64>> = values.collect();
    let values = values.ok_or_else(|| format!("no '{name}' in what the example printed"))?;
    Ok(median(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_of_all_rounds_and_one_that_is_missing_is_named() {
        let all =
            ["{\"a\":1,\"b\":2.5}", "{\"a\":3}", "{\"a\":2}"].map(|line| parse(line).unwrap());
        assert_eq!(median_of(&all, "a").unwrap(), 2.0);
        assert!(median_of(&all, "b").unwrap_err().contains("'b'"));
        assert!(parse("shrink: no").unwrap_err().contains("shrink: no"));
    }
}

//! A sequential pass through the cache beside one of fio: the same file size, block size and depth,
//! in interleaved pairs, so that a disk whose speed drifts does so for both.
//!
//! Ours is the worker `seqio` with a quarter of the file as its memory limit; fio uses io_uring and
//! O_DIRECT, with its buffers and the file registered. Both write into a fresh
//! preallocated file and flush it within the time that is measured. CPU time is that of the
//! process: for fio what it says of itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Result, at, steps};

/// Bytes of a file.
const SIZE: u64 = 2 << 30;
/// Memory limit of the cache: a quarter of the file.
const LIMIT: u64 = SIZE / 4;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Write,
    /// Into a buffer of the caller's: fio has the disk put it there, ours copies it.
    Read,
    /// Without a copy on either side.
    Show,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Show => "show",
        }
    }

    /// The work of fio beside it; also the name of the file.
    fn of_fio(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read | Self::Show => "read",
        }
    }
}

/// One pass.
#[derive(Clone, Copy)]
struct Pass {
    seconds: f64,
    cpu_seconds: f64,
}

/// Compares both ways over `pairs` pairs in a folder that is made and removed again.
///
/// # Errors
/// A pass failed, or answered in a form that is not known.
pub(crate) fn compare(folder: &Path, pairs: usize) -> Result<()> {
    let seqio = super::worker("seqio")?;
    let folder = folder.join(format!("tidegate-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    let result = [Way::Write, Way::Read, Way::Show]
        .into_iter()
        .try_for_each(|way| compare_way(&seqio, &folder, way, pairs));
    let _ = fs::remove_dir_all(&folder);
    result
}

fn compare_way(seqio: &Path, folder: &Path, way: Way, pairs: usize) -> Result<()> {
    let name = way.name();
    let file = folder.join(way.of_fio());
    if way != Way::Write && !file.exists() {
        // The file that both will read.
        fio(&file, Way::Write)?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut run_ours = || -> Result<()> {
            ours.push(cache(seqio, &fresh(folder, way)?, way)?);
            Ok(())
        };
        let mut run_theirs = || -> Result<()> {
            theirs.push(fio(&fresh(folder, way)?, way)?);
            Ok(())
        };
        // Neither is always the second.
        if pair % 2 == 0 {
            run_ours()?;
            run_theirs()?;
        } else {
            run_theirs()?;
            run_ours()?;
        }
        let (a, b) = (mb_per_second(ours[pair]), mb_per_second(theirs[pair]));
        println!(
            "{name} pair {}: cache {a:.0} MB/s, fio {b:.0} MB/s, ratio {:.3}",
            pair + 1,
            a / b
        );
    }
    let ratios = ours
        .iter()
        .zip(&theirs)
        .map(|(a, b)| b.seconds / a.seconds)
        .collect();
    let speed = |passes: &[Pass]| median(passes.iter().copied().map(mb_per_second).collect());
    let cpu = |passes: &[Pass]| {
        median(
            passes
                .iter()
                .map(|pass| pass.cpu_seconds / (SIZE >> 30) as f64)
                .collect(),
        )
    };
    println!(
        "sequential {name}: cache {:.0} MB/s, fio {:.0} MB/s, median ratio {:.3} of {pairs} pairs \
         (>= 0.90 wanted); CPU {:.2} s/GiB, fio {:.2} s/GiB",
        speed(&ours),
        speed(&theirs),
        median(ratios),
        cpu(&ours),
        cpu(&theirs),
    );
    Ok(())
}

/// The file of the next pass: for a write a file that is not there yet.
fn fresh(folder: &Path, way: Way) -> Result<PathBuf> {
    let path = folder.join(way.of_fio());
    if way == Way::Write && path.exists() {
        fs::remove_file(&path).map_err(at(&path))?;
    }
    Ok(path)
}

fn cache(seqio: &Path, path: &Path, way: Way) -> Result<Pass> {
    let mut command = Command::new(seqio);
    command
        .arg(path)
        .args([SIZE.to_string(), LIMIT.to_string(), way.name().to_owned()]);
    let json = parse(&steps::output(&mut command)?)?;
    if json["direct"].as_bool() != Some(true) {
        println!(
            "SKIPPED: O_DIRECT: the folder's file system does not have it; the ratio says little"
        );
    }
    let pass = Pass {
        seconds: number(&json, &["seconds"])?,
        cpu_seconds: number(&json, &["cpu_seconds"])?,
    };
    plausible(pass, number(&json, &["bytes"])?)
}

fn fio(path: &Path, way: Way) -> Result<Pass> {
    let mut command = Command::new("fio");
    command
        .args([
            "--name=seq",
            "--ioengine=io_uring",
            "--direct=1",
            "--bs=1M",
            "--iodepth=8",
        ])
        .args([
            "--fixedbufs=1",
            "--registerfiles=1",
            "--fallocate=native",
            "--end_fsync=1",
        ])
        .args([
            "--output-format=json",
            &format!("--size={SIZE}"),
            &format!("--rw={}", way.of_fio()),
        ])
        .arg(format!("--filename={}", path.display()));
    let json = parse(&steps::output(&mut command)?)?;
    let job = &json["jobs"][0];
    let seconds = number(job, &[way.of_fio(), "runtime"])? / 1e3;
    let percent = number(job, &["usr_cpu"])? + number(job, &["sys_cpu"])?;
    let pass = Pass {
        seconds,
        cpu_seconds: percent / 100.0 * seconds,
    };
    plausible(pass, number(job, &[way.of_fio(), "io_bytes"])?)
}

/// A pass that moved another number of bytes, or took no time, is no measurement.
fn plausible(pass: Pass, bytes: f64) -> Result<Pass> {
    if bytes != SIZE as f64 || pass.seconds <= 0.0 {
        return Err(format!(
            "not a pass over {SIZE} bytes: {bytes} in {} s",
            pass.seconds
        ));
    }
    Ok(pass)
}

fn parse(text: &str) -> Result<Value> {
    // fio may write notes before the object.
    let start = text.find('{').ok_or("no JSON in the answer")?;
    serde_json::from_str(&text[start..]).map_err(|error| format!("the answer is not JSON: {error}"))
}

fn number(json: &Value, path: &[&str]) -> Result<f64> {
    let value = path.iter().fold(json, |json, key| &json[*key]);
    value
        .as_f64()
        .ok_or_else(|| format!("the answer has no number '{}'", path.join(".")))
}

fn mb_per_second(pass: Pass) -> f64 {
    SIZE as f64 / 1e6 / pass.seconds
}

/// The middle one; the mean of the two middle ones of an even number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    figures::median(&mut values).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_short_pass_is_refused() {
        let pass = Pass {
            seconds: 1.0,
            cpu_seconds: 0.5,
        };
        assert!(plausible(pass, SIZE as f64).is_ok());
        assert!(plausible(pass, 1024.0).is_err());
    }

    #[test]
    fn answers_are_read_by_their_path() {
        let json = parse("fio: a note\n{\"jobs\":[{\"write\":{\"runtime\":1500}}]}").unwrap();
        assert_eq!(
            number(&json["jobs"][0], &["write", "runtime"]).unwrap(),
            1500.0
        );
        assert!(number(&json, &["seconds"]).is_err());
    }
}

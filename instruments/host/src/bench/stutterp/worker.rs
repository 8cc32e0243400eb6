//! The kernel's side of `stutterp`: one process a worker, started by the bench in its cgroup.
//!
//! Words: `KIND GROUP START END ...`, with START and END in seconds from now. The answer goes to
//! standard output when all is done, one line a figure, so that nothing is written while others are
//! measured.
//!
//! Source: mmtests, shellpack_src/src/stutterp (experiments B1), in our own words.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut, MmapOptions};

use crate::{Arguments, Result, at};

/// One write of a writer.
const BLOCK: usize = 1 << 20;
const PAGE: usize = 4096;
/// Between two mappings of the latency worker.
const REST: Duration = Duration::from_millis(5);

/// A worker's whole life.
///
/// # Errors
/// Words that are none, and whatever the system refuses.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let began = Instant::now();
    let kind = arguments.value_of("KIND")?;
    let group = PathBuf::from(arguments.value_of("GROUP")?);
    let start = Duration::from_secs(arguments.number_of("START")?);
    let end = began + Duration::from_secs(arguments.number_of("END")?);
    join(&group)?;
    std::thread::sleep(start);
    match kind.as_str() {
        "writer" => {
            let folder = PathBuf::from(arguments.value_of("FOLDER")?);
            let (files, bytes) = (arguments.number_of("FILES")?, arguments.number_of("BYTES")?);
            writer(&folder, files, bytes, end)
        }
        "hog" => hog(arguments.number_of("BYTES")?, end),
        "mapper" => mapper(arguments.number_of("PAGES")?, end),
        _ => Err(format!("worker: '{kind}' is none of writer, hog, mapper")),
    }
}

fn join(group: &Path) -> Result<()> {
    let procs = group.join("cgroup.procs");
    std::fs::write(&procs, std::process::id().to_string()).map_err(at(&procs))
}

/// Random writes of a block into files, for as long as it may.
fn writer(folder: &Path, files: u64, bytes: u64, end: Instant) -> Result<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let open = |number: u64| {
        let file = File::create(folder.join(number.to_string()))?;
        file.set_len(bytes)?;
        Ok(file)
    };
    let open = (0..files).map(open);
    let files: Vec<File> = open.collect::<std::io::Result<_>>().map_err(failed)?;
    let blocks = (bytes / BLOCK as u64).max(1);
    let block = vec![0x5a_u8; BLOCK];
    let (mut written, mut chance) = (0_u64, u64::from(std::process::id()));
    while Instant::now() < end {
        chance = next(chance);
        let file = &files[usize::try_from(chance % files.len() as u64).expect("few files")];
        let at = (chance >> 20) % blocks * BLOCK as u64;
        file.write_all_at(&block, at).map_err(failed)?;
        written += BLOCK as u64;
    }
    println!("written {written}");
    Ok(())
}

/// A step of a linear congruence with Knuth's multiplier, its high bits folded down: no more is
/// needed to choose blocks.
fn next(chance: u64) -> u64 {
    let step = chance
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    step ^ (step >> 29)
}

fn map(bytes: usize) -> Result<MmapMut> {
    let map = MmapOptions::new().len(bytes).map_anon();
    let map = map.map_err(|error| format!("a mapping of {bytes} bytes: {error}"))?;
    // As in mmtests today: one page at a time.
    map.advise(Advice::NoHugePage)
        .map_err(|error| format!("madvise: {error}"))?;
    Ok(map)
}

/// Writes a word into each of its pages, again and again.
fn hog(bytes: u64, end: Instant) -> Result<()> {
    let mut map = map(usize::try_from(bytes).map_err(|error| error.to_string())?)?;
    let (mut touched, mut word) = (0_u64, 0_u8);
    'all: loop {
        word = word.wrapping_add(1);
        for (number, page) in map.chunks_mut(PAGE).enumerate() {
            page[0] = word;
            touched += 1;
            if number % 64 == 0 && Instant::now() >= end {
                break 'all;
            }
        }
    }
    println!("touched {touched}");
    Ok(())
}

/// Maps, touches and unmaps, and measures each round as stutterp of October 2021 does: from the end
/// of the last one, less the rest.
fn mapper(pages: u64, end: Instant) -> Result<()> {
    let bytes = usize::try_from(pages).map_err(|error| error.to_string())? * PAGE;
    let mut samples = Vec::with_capacity(100_000);
    let mut last = Instant::now();
    while Instant::now() < end {
        std::thread::sleep(REST);
        let mut map = map(bytes)?;
        for page in map.chunks_mut(PAGE) {
            page[0] = 1;
        }
        drop(map);
        let now = Instant::now();
        samples.push((now - last).saturating_sub(REST));
        last = now;
    }
    for sample in samples {
        println!("sample {}", sample.as_nanos());
    }
    Ok(())
}

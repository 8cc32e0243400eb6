//! `cargo instruments bench governor`: one limit for a block cache, a row cache and a memtable,
//! beside splits by hand.
//!
//! The engine is the example `engine` of `doors/governor`; a process of it runs one column through
//! all phases, in the time of its model, so what it reads and writes does not depend on how busy
//! this machine is. Splits are those of the brief (half, thirds), and all by eighths that give the
//! memtable 1, 2, 4 or 6 of them (`--all`: each). *Best split* is the best of them over all phases,
//! *best per phase* what nobody could know beforehand.
//!
//! Weights are what is limited there, as for the splits by hand. The memory that a process really
//! takes is measured from outside, in `/proc/PID/status`, with the limit for the process
//! (`resident`), on threads and in real time.
//!
//! Demands are printed with what came out, and never fail the command.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Arguments, Result};

/// The quick run, and the whole.
const QUICK: (u64, u64) = (128, 5);
const WHOLE: (u64, u64) = (1024, 30);
/// Eighths of the memtable that are tried.
const MEMTABLES: [u64; 4] = [1, 2, 4, 6];
/// Columns at a time.
const AT_ONCE: usize = 2;
/// How often memory is looked at from outside.
const LOOK: Duration = Duration::from_millis(10);
const HALF: &str = "half";
const GOVERNOR: &str = "governor";

/// A phase of a column.
#[derive(Clone, Debug)]
struct Phase {
    name: String,
    /// Operations a second of the model: in the whole phase, and without its first sixth.
    rate: f64,
    rest: f64,
    reads: u64,
    writes: u64,
    /// The same in real time.
    real: f64,
}

/// A column of results.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    phases: Vec<Phase>,
    /// Most resident memory, in bytes.
    resident: u64,
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let ((mut limit, mut seconds), mut all, mut resident_too) = (QUICK, false, true);
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--whole" => (limit, seconds) = WHOLE,
            "--limit" => limit = arguments.number_of("--limit")?,
            "--seconds" => seconds = arguments.number_of("--seconds")?,
            "--all" => all = true,
            "--no-resident" => resident_too = false,
            _ => return Err(format!("bench governor: unexpected '{word}'")),
        }
    }
    if !limit.is_power_of_two() || limit < 16 || seconds == 0 {
        return Err("bench governor: a limit of 16, 32, 64, ... MiB and a second at least".into());
    }
    let adapters = ["-p", "tidegate-governor", "--features", "adapters"];
    let engine = super::example(&adapters, "engine")?;
    let mut names: Vec<String> = [GOVERNOR, HALF, "thirds"].map(str::to_owned).into();
    for memtable in 1..8 {
        if all || MEMTABLES.contains(&memtable) {
            let rest = 8 - memtable;
            names.extend((0..=rest).map(|blocks| format!("{blocks}-{}-{memtable}", rest - blocks)));
        }
    }
    let columns = run_all(&engine, (limit, seconds), &names)?;
    print_rates(&columns, limit, seconds)?;
    if resident_too {
        print_resident(&engine, (limit, seconds), &columns)?;
    }
    Ok(())
}

fn run_all(engine: &Path, size: (u64, u64), names: &[String]) -> Result<Vec<Column>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![None; names.len()]));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((at, name)) = {
                    let at = next.fetch_add(1, Relaxed);
                    names.get(at).map(|name| (at, name))
                } {
                    let column = run_column(engine, size, name, &[]);
                    eprintln!("    {name}");
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results[at] = Some(column);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

fn run_column(
    engine: &Path,
    (limit, seconds): (u64, u64),
    name: &str,
    options: &[&str],
) -> Result<Column> {
    let mut child = Command::new(engine)
        .args([&limit.to_string(), &seconds.to_string(), name])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", engine.display()))?;
    let watch = Watch::begin(child.id());
    let phases = read(&mut child);
    let resident = watch.end();
    // Its input ends: it was only waiting to be looked at.
    drop(child.stdin.take());
    let ended = child.wait().map_err(|error| error.to_string())?;
    if !ended.success() {
        return Err(format!("{name}: {ended}"));
    }
    Ok(Column {
        name: name.to_owned(),
        phases: phases?,
        resident,
    })
}

fn read(child: &mut Child) -> Result<Vec<Phase>> {
    let output = child.stdout.take().ok_or("no output")?;
    let mut phases = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| error.to_string())?;
        if line == "done" {
            break;
        }
        phases.push(parse(&line).ok_or_else(|| format!("not a phase: {line}"))?);
    }
    Ok(phases)
}

fn parse(line: &str) -> Option<Phase> {
    let (name, numbers) = line.split_once(',')?;
    let numbers: Option<Vec<u64>> = numbers.split(',').map(|word| word.parse().ok()).collect();
    let &[ops, reads, writes, time, rest_ops, _, _, rest_time, real] = numbers?.as_slice() else {
        return None;
    };
    let rate = |ops: u64, ns: u64| ops as f64 / (ns as f64 / 1e9);
    Some(Phase {
        name: name.to_owned(),
        rate: rate(ops, time),
        rest: rate(rest_ops, rest_time),
        reads,
        writes,
        real: rate(ops, real),
    })
}

/// Looks at the resident memory of a process, from outside.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Watch {
    fn begin(process: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut most = 0;
            while !theirs.load(Relaxed) {
                most = most.max(resident_of(process).unwrap_or(0));
                std::thread::sleep(LOOK);
            }
            most.max(resident_of(process).unwrap_or(0))
        });
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

fn resident_of(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The mean of how many times better one column is than another, over the phases.
fn times(column: &Column, than: &Column) -> f64 {
    let ratios = column.phases.iter().zip(&than.phases);
    let logs: f64 = ratios
        .map(|(one, other)| (one.rate / other.rate).ln())
        .sum();
    (logs / column.phases.len() as f64).exp()
}

fn print_rates(columns: &[Column], limit: u64, seconds: u64) -> Result<()> {
    let named = |name: &str| {
        let found = columns.iter().find(|column| column.name == name);
        found.ok_or_else(|| format!("no column {name}"))
    };
    let (governor, half, thirds) = (named(GOVERNOR)?, named(HALF)?, named("thirds")?);
    let fixed = || columns.iter().filter(|column| column.name != GOVERNOR);
    let best = fixed()
        .max_by(|a, b| times(a, half).total_cmp(&times(b, half)))
        .ok_or("no split")?;
    println!(
        "\n{limit} MiB, phases of {seconds} s; operations a second of the model (blocks-rows-memtable in eighths)\n"
    );
    println!(
        "{:<12} {:>10} {:>10} {:>18} {:>18} {:>10} {:>7} {:>7} {:>10}",
        "phase",
        HALF,
        "thirds",
        format!("best split {}", best.name),
        "best per phase",
        GOVERNOR,
        "/ half",
        "/ best",
        "rest/half"
    );
    let (mut worst_rest, mut worst_best) = (f64::MAX, f64::MAX);
    for (at, phase) in governor.phases.iter().enumerate() {
        let of = |column: &Column| column.phases[at].rate;
        let top = fixed()
            .max_by(|a, b| of(a).total_cmp(&of(b)))
            .ok_or("no split")?;
        let (to_half, to_best) = (phase.rate / of(half), phase.rate / of(top));
        let rest = phase.rest / half.phases[at].rest;
        (worst_rest, worst_best) = (worst_rest.min(rest), worst_best.min(to_best));
        println!(
            "{:<12} {:>10.0} {:>10.0} {:>18.0} {:>18} {:>10.0} {to_half:>7.2} {to_best:>7.2} {rest:>10.2}",
            phase.name,
            of(half),
            of(thirds),
            of(best),
            format!("{:.0} {}", of(top), top.name),
            phase.rate
        );
    }
    println!("\nblocks read and written");
    for (at, phase) in governor.phases.iter().enumerate() {
        let of = |column: &Column| {
            let phase = &column.phases[at];
            format!("{}+{}", phase.reads, phase.writes)
        };
        println!(
            "{:<12} half {:<16} governor {}",
            phase.name,
            of(half),
            of(governor)
        );
    }
    println!();
    verdict(
        "over all phases (geometric mean) / half split",
        times(governor, half),
        1.25,
        true,
    );
    verdict(
        "the best split's, for comparison",
        times(best, half),
        0.0,
        true,
    );
    verdict(
        "worst phase / best split of that phase",
        worst_best,
        0.9,
        true,
    );
    verdict(
        "worst phase / half split, without its first sixth",
        worst_rest,
        0.97,
        true,
    );
    Ok(())
}

fn verdict(what: &str, is: f64, wanted: f64, at_least: bool) {
    let holds = if at_least { is >= wanted } else { is <= wanted };
    let word = if holds { "holds " } else { "MISSES" };
    let sign = if at_least { ">=" } else { "<=" };
    println!("{word} {what}: {is:.3} (wanted {sign} {wanted})");
}

fn print_resident(engine: &Path, size: (u64, u64), columns: &[Column]) -> Result<()> {
    let limit = size.0 as f64 * 1024.0 * 1024.0;
    println!(
        "\nresident memory of the process at its highest / {} MiB, from outside",
        size.0
    );
    for name in ["alone-quick_cache", "alone-foyer", "alone-moka"] {
        let column = run_column(engine, size, name, &[])?;
        println!("{name:<28} {:.3}", column.resident as f64 / limit);
    }
    let half = columns.iter().find(|column| column.name == HALF);
    if let Some(half) = half {
        println!("{HALF:<28} {:.3}", half.resident as f64 / limit);
    }
    let live = run_column(engine, size, GOVERNOR, &["live", "resident"])?;
    let is = live.resident as f64 / limit;
    println!("{:<28} {is:.3}", "governor, threads, real time");
    for (at, phase) in live.phases.iter().enumerate() {
        let beside = half.map_or(f64::NAN, |half| phase.rate / half.phases[at].rate);
        println!(
            "    {:<12} {:>8.0}/s of the model, {:>8.0}/s real; / half split, which took more memory: {beside:.2}",
            phase.name, phase.rate, phase.real
        );
    }
    println!();
    verdict("resident memory / limit", is, 1.05, false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_engine_becomes_rates() {
        let phase = parse("reads,100,7,3,2000000000,80,5,2,1000000000,4000000000").unwrap();
        assert_eq!((phase.rate, phase.rest, phase.real), (50.0, 80.0, 25.0));
        assert_eq!((phase.reads, phase.writes), (7, 3));
        assert!(parse("reads,1,2").is_none());
        assert!(parse("").is_none());
    }

    #[test]
    fn our_own_memory_is_seen() {
        assert!(resident_of(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
    }
}

//! fio's `nbd` engine on our server and on nbdkit's memory plugin, in interleaved runs on servers
//! that are started anew for each pair.
//!
//! Everything is cached in both: the volume has been written once and fits, and in ours writeback
//! begins far above what there is. The client takes most of the time, so the ratio is of what is
//! left, and CPU time of the server stands beside it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::server::Server;
use crate::bench::fio::median;
use crate::steps::{self, End};
use crate::{Result, at};

/// Size of the volume.
const SIZE_MIB: u64 = 256;
/// Seconds of one run.
const RUNTIME: u64 = 4;

/// The loads of fio: a name, `rw`, `bs`, `iodepth`.
const LOADS: [(&str, &str, &str, &str); 4] = [
    ("4 KiB random read", "randread", "4k", "16"),
    ("4 KiB random write", "randwrite", "4k", "16"),
    ("1 MiB sequential read", "read", "1M", "4"),
    ("1 MiB sequential write", "write", "1M", "4"),
];

/// One run.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    cpu_micros: f64,
}

/// The step.
pub(super) fn compare(program: &Path, folder: &Path, pairs: usize) -> End {
    for (tool, package) in [("fio", "fio"), ("nbdkit", "nbdkit")] {
        if !steps::is_there(tool, &["--version"]) {
            return End::Skipped(format!(
                "{tool} is not installed (apt-get install {package})"
            ));
        }
    }
    compare_all(program, folder, pairs).into()
}

fn compare_all(program: &Path, folder: &Path, pairs: usize) -> Result<()> {
    let mut runs = LOADS.map(|_| [Vec::new(), Vec::new()]);
    for pair in 0..pairs {
        pair_of_servers(program, folder, pair, &mut runs)?;
    }
    println!();
    println!(
        "| cached | wanted | ratio | Tidegate, /s | nbdkit, /s | CPU a request: Tidegate, us | nbdkit, us |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (load, [ours, theirs]) in LOADS.iter().zip(&runs) {
        println!("{}", line(load.0, ours, theirs));
    }
    Ok(())
}

/// One run of every load on a new start of both: figures differ more from start to start than
/// within one.
fn pair_of_servers(
    program: &Path,
    folder: &Path,
    pair: usize,
    runs: &mut [[Vec<Run>; 2]; LOADS.len()],
) -> Result<()> {
    let (ours, theirs) = both(program, folder, false)?;
    let servers = [(&ours, "disk"), (&theirs, "")];
    for (load, of_load) in LOADS.into_iter().zip(runs) {
        // Neither is always the second.
        for turn in 0..2 {
            let at = (pair + turn) % 2;
            let (server, export) = servers[at];
            of_load[at].push(run(server, export, load, 1, true)?);
        }
    }
    Ok(())
}

/// Ours, with a volume in a file or in memory, and nbdkit's memory plugin; every page is there.
fn both(program: &Path, folder: &Path, in_memory: bool) -> Result<(Server, Server)> {
    let file = folder.join("volume");
    let made = std::fs::File::create(&file).and_then(|made| made.set_len(SIZE_MIB << 20));
    made.map_err(at(&file))?;
    let volume = if in_memory {
        format!("disk=mem:,size={SIZE_MIB}MiB")
    } else {
        format!("disk={}", file.display())
    };
    let words = ["--dirty", "90%", "--background", "80%", &volume];
    let ours = Server::ours(program, &folder.join("ours"), "1GiB", &words)?;
    let mut nbdkit = Command::new("nbdkit");
    let socket = folder.join("nbdkit");
    nbdkit.args(["--foreground", "-U"]).arg(&socket);
    nbdkit.args(["memory", &format!("{SIZE_MIB}M")]);
    let theirs = Server::start(nbdkit, &socket)?;
    for (server, export) in [(&ours, "disk"), (&theirs, "")] {
        run(server, export, ("fill", "write", "1M", "4"), 1, false)?;
    }
    Ok((ours, theirs))
}

fn line(name: &str, ours: &[Run], theirs: &[Run]) -> String {
    let ratios = ours.iter().zip(theirs);
    let ratio = median(ratios.map(|(a, b)| a.per_second / b.per_second).collect());
    let of = |runs: &[Run], figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
    format!(
        "| {name} | >= 0.97 | {ratio:.3} | {:.0} | {:.0} | {:.2} | {:.2} |",
        of(ours, |run| run.per_second),
        of(theirs, |run| run.per_second),
        of(ours, |run| run.cpu_micros),
        of(theirs, |run| run.cpu_micros),
    )
}

fn run(
    server: &Server,
    export: &str,
    (name, rw, block, depth): (&str, &str, &str, &str),
    connections: u32,
    is_timed: bool,
) -> Result<Run> {
    let mut fio = Command::new("fio");
    fio.arg(format!("--name={}", rw))
        .args(["--ioengine=nbd", "--output-format=json"])
        .arg(format!("--uri={}", server.uri(export)))
        .arg(format!("--rw={rw}"))
        .arg(format!("--bs={block}"))
        .arg(format!("--iodepth={depth}"))
        .args(["--thread", "--group_reporting"])
        .arg(format!("--numjobs={connections}"))
        .arg(format!("--size={SIZE_MIB}m"));
    if is_timed {
        fio.args(["--time_based", &format!("--runtime={RUNTIME}")]);
    }
    let before = server.cpu_seconds()?;
    let output = fio.output().map_err(|error| format!("fio: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!(
            "{}: {}\n{text}{said}",
            steps::typed(&fio),
            output.status
        ));
    }
    let cpu = server.cpu_seconds()? - before;
    let run = read(&text, rw, cpu)?;
    println!(
        "    {name}: {export:>4} {:.0}/s, {:.2} us",
        run.per_second, run.cpu_micros
    );
    Ok(run)
}

fn read(text: &str, rw: &str, cpu_seconds: f64) -> Result<Run> {
    let start = text.find('{').ok_or("fio: no JSON in the answer")?;
    let json: Value = serde_json::from_str(&text[start..])
        .map_err(|error| format!("fio: the answer is not JSON: {error}"))?;
    let way = if rw.ends_with("read") {
        "read"
    } else {
        "write"
    };
    let of = |key: &str| json["jobs"][0][way][key].as_f64().unwrap_or(0.0);
    let (requests, per_second) = (of("total_ios"), of("iops"));
    if requests < 1.0 || per_second <= 0.0 {
        return Err(format!("fio did nothing: {text}"));
    }
    Ok(Run {
        per_second,
        cpu_micros: cpu_seconds * 1e6 / requests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let text = r#"{"jobs":[{"read":{"total_ios":0,"iops":0},"write":{"total_ios":2000,"iops":500.5}}]}"#;
        let run = read(text, "randwrite", 0.01).unwrap();
        assert_eq!((run.per_second, run.cpu_micros), (500.5, 5.0));
        assert!(read(text, "randread", 0.01).is_err());
    }

    #[test]
    fn the_ratio_is_of_pairs() {
        let of = |per_second| Run {
            per_second,
            cpu_micros: 1.0,
        };
        let line = line(
            "x",
            &[of(10.0), of(30.0), of(20.0)],
            &[of(10.0), of(20.0), of(40.0)],
        );
        assert!(
            line.starts_with("| x | >= 0.97 | 1.000 | 20 | 20 |"),
            "{line}"
        );
    }
}

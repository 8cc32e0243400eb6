//! The pacing bar: a heavy and a light writer share a device of 2 ms a request, through ours and
//! through what people use, in one run and one table.
//!
//! | column | what |
//! |---|---|
//! | `ours` | `tidegate serve` on the device (a FUSE file, O_DIRECT) |
//! | `inner` | `tidegate serve` on a file behind its own `slow:latency=2ms`; only if it is named |
//! | `unpaced` | the same as `ours` with `--unpaced`: nothing but the memory limit holds a writer back; only if it is named |
//! | `nbdkit` | nbdkit's cache filter, 64 MiB, on the device |
//! | `qemu` | `qemu-nbd --cache=writeback` on a loop device on the device, with a strict device limit |
//! | `linux` | Linux's page cache on that loop device: `pwrite`, no server |
//!
//! Heavy: 2000 writes/s of 4 KiB by chance over 512 MiB, if it is let; light: 20 a second. R is
//! what the device does for one writer without any cache, in the same run. A *pause* is a write
//! that took 5 ms or more (`load::PAUSE_MIN`), in every column; flushes are counted apart. The
//! number of replies that a server of ours held back, by its own count and warm-up included, stands
//! beside them: where that is none, a write counted as a pause was waiting for a CPU. With flushes,
//! the heavy client's rate is that of whole rounds, from the end of a flush to the end of another.
//! A light write that was due while the one before it was held counts from when it was due.
//!
//! Our bars (`bars`) are judged, and a bar that is missed fails the step: it is for a machine that
//! does nothing else.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Options;
use super::bars::judge;
use super::device::Device;
use super::server::Server;
use crate::bench::chain;
use crate::bench::undo::Undo;
use crate::steps::{self, End};
use crate::{Result, at};

/// The dirty limit of every column.
const DIRTY: u64 = 64 << 20;
/// Where writeback of ours begins unless told otherwise, MiB: at a sixteenth of that, as the server
/// has it.
pub(super) const BACKGROUND_MIB: u64 = DIRTY >> 24;
/// Memory of the servers that have a limit.
const MEMORY: &str = "256MiB";
/// Writes of the heavy client from flush to flush, where it flushes.
const FLUSH_EVERY: u64 = 5000;
/// Seconds for R, and for the light client on a volume that is not slow.
const SHORT: u64 = 10;

/// A way to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Ours,
    Inner,
    Unpaced,
    Nbdkit,
    Qemu,
    Linux,
}

const COLUMNS: [(Column, &str, &str); 6] = [
    (Column::Ours, "ours", "Tidegate"),
    (Column::Inner, "inner", "Tidegate, slow"),
    (Column::Unpaced, "unpaced", "Tidegate, not paced"),
    (Column::Nbdkit, "nbdkit", "nbdkit cache"),
    (Column::Qemu, "qemu", "qemu-nbd"),
    (Column::Linux, "linux", "Linux, strict"),
];

/// Run only if they are named: they compare ours with ours.
const EXTRA: [Column; 2] = [Column::Inner, Column::Unpaced];

/// The names of the columns.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|(_, word, _)| *word)
}

struct Bench<'a> {
    undo: &'a Undo,
    program: std::path::PathBuf,
    load: std::path::PathBuf,
    folder: &'a Path,
    seconds: u64,
    background: u64,
}

/// The step.
pub(super) fn run(programs: &Path, folder: &Path, options: &Options) -> End {
    if let Some(missing) = chain::missing() {
        return End::Skipped(missing);
    }
    measure(programs, folder, options).into()
}

fn measure(programs: &Path, folder: &Path, options: &Options) -> Result<()> {
    let wanted = &options.columns;
    let undo = Undo::begin()?;
    let bench = Bench {
        undo: &undo,
        program: programs.join("tidegate"),
        load: programs.join("load"),
        folder,
        seconds: options.seconds,
        background: options.background,
    };
    let raw = bench.raw()?;
    println!("  > R: {raw:.0} requests a second of the uncached device");
    let null = bench.null()?;
    let is_wanted = |column: Column, word: &str| {
        let is_named = wanted.iter().any(|other| other == word);
        is_named || wanted.is_empty() && !EXTRA.contains(&column)
    };
    let (mut table, mut judged, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    for (column, word, title) in COLUMNS {
        if !is_wanted(column, word) {
            continue;
        }
        if column == Column::Qemu && !steps::is_there("qemu-nbd", &["--version"]) {
            println!(
                "SKIPPED: column '{title}': qemu-nbd is not installed (apt-get install qemu-utils)"
            );
            continue;
        }
        for flush in [0, FLUSH_EVERY] {
            let with = if flush > 0 { ", flushes" } else { "" };
            println!("  > {title}{with} (load {})", load_now());
            let mut met = match bench.column(column, flush) {
                Ok(met) => met,
                Err(problem) => {
                    println!("    FAILED: {problem}");
                    missed.push(format!("{title}{with}: {problem}"));
                    continue;
                }
            };
            met["light_max_not_slow"] = null["light"]["max"].clone();
            println!("    {met}");
            if column == Column::Ours {
                judged.extend(judge(&met, flush > 0, raw));
            }
            table.push((format!("{title}{with}"), met));
        }
    }
    println!("\n{}", heading(&bench, raw, &null));
    print!("{}", markdown(&table, raw));
    println!();
    for bar in judged {
        println!("{}", bar.line);
        if !bar.is_met {
            missed.push(bar.line);
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(missed.join("; "))
    }
}

impl Bench<'_> {
    /// The rate of the device for one writer without a cache.
    fn raw(&self) -> Result<f64> {
        let _scope = self.undo.scope();
        let device = Device::build(self.undo, None)?;
        let met = self.load(
            &format!("nbd:{}", device.socket.display()),
            &["mode=raw", "warm=1", &format!("for={SHORT}")],
        )?;
        number(&met, &["heavy_per_s"])
    }

    /// The light client of ours on a volume that is not slow.
    fn null(&self) -> Result<Value> {
        let file = self.file("null")?;
        let server = self.ours(&format!("disk={file}"), true)?;
        self.load(
            &format!("nbd:{},disk", server.socket.display()),
            &["mode=light", "warm=1", &format!("for={SHORT}")],
        )
    }

    fn column(&self, column: Column, flush: u64) -> Result<Value> {
        let _scope = self.undo.scope();
        let needs_node = matches!(column, Column::Qemu | Column::Linux);
        let device = Device::build(self.undo, needs_node.then_some(DIRTY))?;
        let node = || {
            let node = device.node.as_deref().ok_or("no loop device")?;
            Ok::<_, String>(node.display().to_string())
        };
        let socket = self.folder.join("other.sock");
        let at =
            |server: &Server, export: &str| format!("nbd:{},{export}", server.socket.display());
        let on_device = format!("disk={}", device.file.display());
        let server = match column {
            Column::Ours => Some(self.ours(&on_device, true)?),
            Column::Unpaced => Some(self.ours(&on_device, false)?),
            Column::Inner => {
                let file = self.file("inner")?;
                Some(self.ours(&format!("disk={file},device=slow:latency=2ms"), true)?)
            }
            Column::Nbdkit => {
                let mut nbdkit = Command::new("nbdkit");
                nbdkit.args(["--foreground", "--filter=cache", "-U"]);
                nbdkit.arg(&socket);
                nbdkit
                    .arg("nbd")
                    .arg(format!("socket={}", device.socket.display()));
                nbdkit.args(["cache=writeback", "cache-min-block-size=4K"]);
                nbdkit.arg(format!("cache-max-size={DIRTY}"));
                Some(Server::start(nbdkit, &socket)?)
            }
            Column::Qemu => {
                let mut qemu = Command::new("qemu-nbd");
                qemu.args(["--persistent", "--shared=8", "--cache=writeback"]);
                qemu.args(["--format=raw", "--export-name=disk"]);
                qemu.arg(format!("--socket={}", socket.display()))
                    .arg(node()?);
                Some(Server::start(qemu, &socket)?)
            }
            Column::Linux => None,
        };
        let target = match (&server, column) {
            (Some(server), Column::Nbdkit) => at(server, ""),
            (Some(server), _) => at(server, "disk"),
            (None, _) => format!("file:{}", node()?),
        };
        let mut met = self.load(
            &target,
            &[
                &format!("warm={}", self.seconds),
                &format!("for={}", self.seconds),
                &format!("flush={flush}"),
            ],
        )?;
        if let Some(held) = server.as_ref().and_then(Server::held) {
            met["held"] = held.into();
        }
        Ok(met)
    }

    fn ours(&self, volume: &str, is_paced: bool) -> Result<Server> {
        let dirty = format!("{}MiB", DIRTY >> 20);
        let background = format!("{}MiB", self.background);
        let mut words = vec!["--dirty", &dirty, "--background", &background];
        if !is_paced {
            words.push("--unpaced");
        }
        words.push(volume);
        Server::ours(
            &self.program,
            &self.folder.join("ours.sock"),
            MEMORY,
            &words,
        )
    }

    /// A fresh sparse file that is as large as the device.
    fn file(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name);
        let made = std::fs::File::create(&path).and_then(|made| made.set_len(600 << 20));
        made.map_err(at(&path))?;
        Ok(path.display().to_string())
    }

    fn load(&self, target: &str, words: &[&str]) -> Result<Value> {
        let mut load = Command::new(&self.load);
        load.args(words).arg(target);
        let text = steps::output(load.stderr(std::process::Stdio::inherit()))?;
        serde_json::from_str(&text).map_err(|error| format!("load: {error}: {text}"))
    }
}

fn heading(bench: &Bench<'_>, raw: f64, null: &Value) -> String {
    let of = |key| number(null, &["light", key]).unwrap_or(f64::NAN);
    format!(
        "R = {raw:.0}/s; {} s after {} s of warm-up; dirty limit {} MiB. The light client on a volume that is not slow: \
         p99 {:.2} ms, longest {:.2} ms.\n",
        bench.seconds,
        bench.seconds,
        DIRTY >> 20,
        of("p99"),
        of("max"),
    )
}

/// A figure: its name, what is wanted without and with flushes, and how it is had.
type Figure = (&'static str, &'static str, fn(&Value, f64) -> Option<f64>);

const FIGURES: [Figure; 15] = [
    ("heavy, of R", ">= 1.35; 1.0 with flushes", |met, raw| {
        Some(met["heavy_per_s"].as_f64()? / raw)
    }),
    ("heavy, writes/s", "", |met, _| met["heavy_per_s"].as_f64()),
    ("longest pause, ms", "<= 50", |met, _| {
        met["pauses"]["max"].as_f64()
    }),
    ("pauses, % of writes", "", |met, _| {
        let [pauses, writes] = ["pauses", "heavy"].map(|of| met[of]["count"].as_f64());
        Some(pauses? / writes?.max(1.0) * 100.0)
    }),
    ("replies held by the server", "", |met, _| {
        met["held"].as_f64()
    }),
    ("pauses p50, ms", "", |met, _| met["pauses"]["p50"].as_f64()),
    ("pauses p99 / p50", "<= 3", |met, _| {
        Some(met["pauses"]["p99"].as_f64()? / met["pauses"]["p50"].as_f64()?)
    }),
    ("light, writes/s", "20", |met, _| {
        met["light_per_s"].as_f64()
    }),
    ("light p50, ms", "", |met, _| met["light"]["p50"].as_f64()),
    ("light p99, no flush under way, ms", "<= 5", |met, _| {
        met["light_apart"]["p99"].as_f64()
    }),
    ("light p99, flush under way, ms", "<= 20", |met, _| {
        met["light_during_flush"]["p99"].as_f64()
    }),
    ("light max, ms", "", |met, _| met["light"]["max"].as_f64()),
    ("the same on a volume that is not slow, ms", "", |met, _| {
        met["light_max_not_slow"].as_f64()
    }),
    ("flushes", "", |met, _| met["flushes"]["count"].as_f64()),
    ("longest flush, s", "", |met, _| {
        Some(met["flushes"]["max"].as_f64()? / 1e3)
    }),
];

fn markdown(table: &[(String, Value)], raw: f64) -> String {
    let mut text = "| figure | wanted |".to_owned();
    for (title, _) in table {
        let _ = write!(text, " {title} |");
    }
    text += "\n|---|---|";
    text += &"---:|".repeat(table.len());
    for (name, wanted, figure) in FIGURES {
        let _ = write!(text, "\n| {name} | {wanted} |");
        for (_, met) in table {
            let _ = write!(text, " {} |", shown(figure(met, raw)));
        }
    }
    text + "\n"
}

fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Programs that want a CPU at this moment, the mean of a minute.
fn load_now() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn number(json: &Value, path: &[&str]) -> Result<f64> {
    let value = path.iter().fold(json, |json, key| &json[*key]);
    value
        .as_f64()
        .ok_or_else(|| format!("the load has no number '{}': {json}", path.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_all_figures_of_a_run() {
        let met = serde_json::json!({
            "heavy_per_s": 675.0,
            "light_per_s": 20.0,
            "heavy": {"count": 2000},
            "held": 99,
            "pauses": {"count": 100, "p50": 10.0, "p99": 25.0, "max": 31.0},
            "flushes": {"count": 0, "max": null},
            "light": {"p50": 0.1, "p99": 0.4, "max": 2.0},
            "light_apart": {"p99": 0.4},
            "light_during_flush": {"p99": null},
        });
        let text = markdown(&[("Tidegate".into(), met)], 500.0);
        assert!(
            text.contains("| heavy, of R | >= 1.35; 1.0 with flushes | 1.35 |"),
            "{text}"
        );
        assert!(
            text.contains("| pauses p99 / p50 | <= 3 | 2.50 |"),
            "{text}"
        );
        assert!(text.contains("| longest flush, s |  | - |"), "{text}");
        assert!(text.contains("| pauses, % of writes |  | 5.00 |"), "{text}");
        assert_eq!(text.lines().count(), FIGURES.len() + 2);
    }

    #[test]
    fn every_column_has_a_word_of_its_own() {
        let mut all: Vec<&str> = words().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), COLUMNS.len());
    }
}

//! From what the guest handed out to the folder of a recording.
//!
//! ```text
//! scenario.toml   what was run              pauses.csv      balance_dirty_pages, each line
//! facts.json      what the guest was        ratelimit.csv   bdi_dirty_ratelimit, each line
//! writes.csv      every write()             device.csv, vmstat.csv   ten times a second
//! ```
//!
//! Invariants
//!   1. `t` is in seconds from the start of the first write, in every table.
//!   2. Nothing is left out silently: a trace that lost entries, a line that is torn or of an
//!      unknown form, a rate that was not changed is an error.
//!   3. The folder is there whole or not at all; another's folder is not replaced.
//!
//! Source: Linux 6.12 include/trace/events/writeback.h (the events' text); columns and units as in
//! the field recordings, where Linux 6.18 says `wb_` for what 6.12 calls `bdi_`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::scenarios::{Fs, Scenario};
use crate::{Result, at};

/// Tables longer than this are packed.
const PLAIN_MAX: usize = 64 * 1024;

const PAUSES: Event = Event {
    name: "balance_dirty_pages",
    columns: &[
        "limit",
        "setpoint",
        "dirty",
        "wb_setpoint",
        "wb_dirty",
        "dirty_ratelimit",
        "task_ratelimit",
        "dirtied",
        "dirtied_pause",
        "paused",
        "pause",
        "period",
        "think",
        "cgroup_ino",
    ],
};
const RATELIMIT: Event = Event {
    name: "bdi_dirty_ratelimit",
    columns: &[
        "write_bw",
        "awrite_bw",
        "dirty_rate",
        "dirty_ratelimit",
        "task_ratelimit",
        "balanced_dirty_ratelimit",
        "cgroup_ino",
    ],
};

/// Levels are averaged from this second on.
const STEADY_FROM: f64 = 10.0;

/// The trace's only line that is ours.
const MARK: &str = "tidegate zero";

/// An event of the trace, and what is kept of it.
struct Event {
    name: &'static str,
    columns: &'static [&'static str],
}

/// The stream that the guest handed out: contents by name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stream(BTreeMap<String, String>);

impl Stream {
    /// Takes the stream apart.
    ///
    /// # Errors
    /// It is not whole.
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self> {
        let torn = || "the guest's stream is torn".to_owned();
        let mut files = BTreeMap::new();
        loop {
            let end = bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .ok_or_else(torn)?;
            let line = std::str::from_utf8(&bytes[..end]).map_err(|_| torn())?;
            bytes = &bytes[end + 1..];
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("END"), None, None) if bytes.is_empty() => return Ok(Self(files)),
                (Some("FILE"), Some(name), Some(length)) => {
                    let length: usize = length.parse().map_err(|_| torn())?;
                    let (content, rest) = bytes.split_at_checked(length).ok_or_else(torn)?;
                    let content = String::from_utf8(content.to_vec()).map_err(|_| torn())?;
                    files.insert(name.to_owned(), content);
                    bytes = rest;
                }
                _ => return Err(torn()),
            }
        }
    }

    /// The names of all that was handed out, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// # Errors
    /// It was not handed out.
    pub(super) fn file(&self, name: &str) -> Result<&str> {
        let file = self.0.get(name).map(String::as_str);
        file.ok_or_else(|| format!("the guest handed out no '{name}'"))
    }

    fn fact(&self, key: &str) -> Result<&str> {
        let facts = self.file("facts")?;
        let fact = facts
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        fact.ok_or_else(|| format!("the guest says nothing about '{key}'"))
    }
}

/// A recording: the names of its files and what is in them.
#[derive(Debug)]
pub(super) struct Recording {
    files: BTreeMap<String, String>,
    /// One line that says what was seen.
    pub(super) summary: String,
}

/// Makes the tables of a recording of dirty throttling.
///
/// # Errors
/// Something is missing, torn, or not as the scenario says.
pub(super) fn make(scenario: &Scenario, hz: u32, stream: &Stream) -> Result<(Recording, Measures)> {
    all_kept(stream.file("lost")?)?;
    rates(scenario, stream)?;
    let writes = Writes::parse(stream.file("writes")?)?;
    let trace = stream.file("trace")?;
    let shift = Shift::new(trace, stream.file("mark")?, writes.zero)?;
    let pauses = PAUSES.table(trace, &shift)?;
    let ratelimit = RATELIMIT.table(trace, &shift)?;
    let vmstat = samples(stream.file("vmstat")?, writes.zero)?;
    let device = samples(stream.file("device")?, writes.zero)?;
    let measures = measure(scenario, &writes, &pauses, &vmstat)?;
    let json = |value: &Value| format!("{value:#}\n");
    let files = [
        (
            "scenario.toml",
            described(scenario, hz, stream.fact("kernel")?),
        ),
        ("facts.json", json(&facts(stream, &writes)?)),
        ("writes.csv", writes.table()),
        ("pauses.csv", pauses),
        ("ratelimit.csv", ratelimit),
        ("vmstat.csv", vmstat),
        ("device.csv", device),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text)).into();
    Ok((Recording::of(files, measures.line.clone()), measures))
}

impl Recording {
    /// Of files by their names, and a line that says what was seen.
    pub(super) fn of(files: BTreeMap<String, String>, summary: String) -> Self {
        Self { files, summary }
    }

    /// A file's text; nothing if there is none of this name.
    #[cfg(test)]
    pub(super) fn file(&self, name: &str) -> &str {
        self.files.get(name).map_or("", String::as_str)
    }

    /// The first file in which two recordings differ.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        self.files.iter().find_map(|(name, text)| {
            let there = other.files.get(name).map_or("", String::as_str);
            let mut lines = text.lines().zip(there.lines()).enumerate();
            let first = lines.find(|(_, (one, another))| one != another);
            match first {
                Some((at, (one, another))) => {
                    Some(format!("{name}:{}:\n  {one}\n  {another}", at + 1))
                }
                None if text != there => Some(format!("{name}: one is longer")),
                None => None,
            }
        })
    }

    /// Puts the recording into `folder`, in place of an older one.
    ///
    /// # Errors
    /// The folder holds something else, or cannot be written.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let said = |error| format!("{}: {error}", folder.display());
        replaceable(folder)?;
        let parent = folder.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(said)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let half = parent.join(format!(".{name}.half-{}", std::process::id()));
        let whole = self.write(&half).and_then(|()| {
            if folder.exists() {
                fs::remove_dir_all(folder).map_err(said)?;
            }
            fs::rename(&half, folder).map_err(said)
        });
        if whole.is_err() {
            let _ = fs::remove_dir_all(&half);
        }
        whole
    }

    fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        for (name, text) in &self.files {
            let path = folder.join(name);
            if name.ends_with(".csv") && text.len() > PLAIN_MAX {
                pack(text, &path.with_extension("csv.gz"))?;
            } else {
                fs::write(&path, text).map_err(at(&path))?;
            }
        }
        Ok(())
    }
}

/// Checks that a recording may stand in this place.
///
/// # Errors
/// Something else does.
pub(super) fn replaceable(folder: &Path) -> Result<()> {
    let scenario = fs::read_to_string(folder.join("scenario.toml")).unwrap_or_default();
    let ours = scenario.starts_with(RECORDED);
    let empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    if ours || empty && !folder.is_file() {
        return Ok(());
    }
    Err(format!(
        "{}: holds something that is no recording of a guest; choose another --out",
        folder.display()
    ))
}

/// Packs a text, the same bytes each time.
fn pack(text: &str, path: &Path) -> Result<()> {
    let said = |error| format!("gzip > {}: {error}", path.display());
    let file = fs::File::create(path).map_err(said)?;
    let mut gzip = Command::new("gzip")
        .args(["-9", "-n", "-c"])
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .map_err(said)?;
    let fed = match gzip.stdin.take() {
        Some(mut input) => input.write_all(text.as_bytes()),
        None => Ok(()),
    };
    let status = gzip.wait().map_err(said)?;
    fed.map_err(said)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("gzip > {}: {status}", path.display()))
    }
}

/// The trace's buffer was large enough.
///
/// # Errors
/// Something was lost; the message says what.
pub(super) fn all_kept(stats: &str) -> Result<()> {
    for name in ["overrun", "commit overrun", "dropped events"] {
        let lost = stats
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .ok_or_else(|| format!("the trace's statistics have no '{name}':\n{stats}"))?;
        if lost.trim() != "0" {
            return Err(format!(
                "the trace lost entries ({name}: {lost}): its buffer is too small"
            ));
        }
    }
    Ok(())
}

/// The devices had the rates of the scenario at the end.
fn rates(scenario: &Scenario, stream: &Stream) -> Result<()> {
    for (device, first) in scenario.devices.iter().enumerate() {
        let of_device = |change: &&super::scenarios::Change| change.device == device;
        let last = scenario.change.iter().rfind(of_device);
        let wanted = last.map_or(*first, |change| change.mib).to_string();
        let seen = stream.file(&format!("mbps{device}"))?.trim();
        if seen != wanted {
            return Err(format!(
                "device {device} ended with {seen} MiB/s instead of {wanted}"
            ));
        }
    }
    Ok(())
}

/// Every `write()`, in the order of their starts.
struct Writes {
    /// Writer, start, time taken (ns), bytes.
    rows: Vec<[u64; 4]>,
    /// Start of the first.
    zero: u64,
}

impl Writes {
    fn parse(text: &str) -> Result<Self> {
        let row = |line: &str| -> Option<[u64; 4]> {
            let fields: Vec<u64> = line
                .split(',')
                .map_while(|field| field.parse().ok())
                .collect();
            fields.try_into().ok()
        };
        let mut rows = text
            .lines()
            .skip(1)
            .map(|line| row(line).ok_or_else(|| format!("a write that is none: '{line}'")))
            .collect::<Result<Vec<_>>>()?;
        rows.sort_by_key(|[writer, began, ..]| (*began, *writer));
        let zero = rows.first().ok_or("nobody wrote")?[1];
        Ok(Self { rows, zero })
    }

    fn table(&self) -> String {
        let mut table = "writer,t,seconds,bytes\n".to_owned();
        for [writer, began, took, bytes] in &self.rows {
            let (t, seconds) = (seconds(*began, self.zero, 6), seconds(*took, 0, 6));
            let _ = writeln!(table, "{writer},{t},{seconds},{bytes}");
        }
        table
    }
}

/// `nanos` from `zero` in seconds, with `digits` digits.
pub(super) fn seconds(nanos: u64, zero: u64, digits: usize) -> String {
    let difference = i128::from(nanos) - i128::from(zero);
    let unit = 10_i128.pow(9 - u32::try_from(digits).unwrap_or(9));
    // To the nearest, ties away from zero.
    let rounded = (difference.abs() + unit / 2) / unit;
    let sign = if difference < 0 && rounded > 0 {
        "-"
    } else {
        ""
    };
    let whole = 10_i128.pow(u32::try_from(digits).unwrap_or(9));
    format!("{sign}{}.{:0digits$}", rounded / whole, rounded % whole)
}

/// From the trace's clock to `t`.
struct Shift {
    /// The trace's time of the mark, in ns.
    mark_trace: u64,
    /// Ours.
    mark: u64,
    zero: u64,
}

impl Shift {
    fn new(trace: &str, mark: &str, zero: u64) -> Result<Self> {
        let line = trace
            .lines()
            .find(|line| line.ends_with(MARK))
            .ok_or("the trace has no mark")?;
        let mark_trace = Line::parse(line)?.time_ns;
        let mark = mark.parse().map_err(|_| format!("a mark of '{mark}'"))?;
        Ok(Self {
            mark_trace,
            mark,
            zero,
        })
    }

    fn t(&self, time_ns: u64) -> String {
        // Both sides moved by the mark, so that none is below zero.
        seconds(time_ns + self.mark, self.mark_trace + self.zero, 6)
    }
}

/// A line of the trace: `comm-pid [cpu] flags time: event: text`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) command: &'a str,
    pub(super) pid: &'a str,
    pub(super) time_ns: u64,
    pub(super) event: &'a str,
    pub(super) text: &'a str,
}

impl<'a> Line<'a> {
    /// # Errors
    /// It is of another form.
    pub(super) fn parse(line: &'a str) -> Result<Self> {
        let torn = || format!("a line of the trace that is none: '{line}'");
        let (head, rest) = line.split_once(": ").ok_or_else(torn)?;
        let (event, text) = rest.split_once(": ").ok_or_else(torn)?;
        // A command may hold anything, so the head is read from its end.
        let mut words = head
            .rsplitn(4, char::is_whitespace)
            .filter(|word| !word.is_empty());
        let time = words.next().ok_or_else(torn)?;
        let (whole, micros) = time.split_once('.').ok_or_else(torn)?;
        let number = |word: &str| word.parse::<u64>().map_err(|_| torn());
        if micros.len() != 6 {
            return Err(torn());
        }
        let time_ns = (number(whole)? * 1_000_000 + number(micros)?) * 1000;
        let (task, _) = head.split_once(" [").ok_or_else(torn)?;
        let (command, pid) = task.trim().rsplit_once('-').ok_or_else(torn)?;
        Ok(Self {
            command,
            pid,
            time_ns,
            event,
            text,
        })
    }

    /// The value of `KEY=VALUE` in the event's text.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn field(&self, key: &str) -> Result<&'a str> {
        let value = |field: &'a str| field.strip_prefix(key)?.strip_prefix('=');
        let found = self.text.split(' ').find_map(value);
        found.ok_or_else(|| format!("an event of another form: '{}: {}'", self.event, self.text))
    }

    /// The number of the writer, for a thread that is one.
    fn writer(&self) -> Option<u32> {
        self.command.strip_prefix('w')?.parse().ok()
    }
}

impl Event {
    /// The lines of this event that belong to writers.
    fn table(&self, trace: &str, shift: &Shift) -> Result<String> {
        let mut table = format!("t,writer,bdi,{}\n", self.columns.join(","));
        for line in trace.lines().filter(|line| !line.starts_with('#')) {
            let line = Line::parse(line)?;
            if line.event != self.name {
                continue;
            }
            let Some(writer) = line.writer() else {
                continue;
            };
            let torn = || format!("an event of another form: '{}: {}'", line.event, line.text);
            let text = line.text.strip_prefix("bdi ").ok_or_else(torn)?;
            let (bdi, fields) = text.split_once(": ").ok_or_else(torn)?;
            let _ = write!(table, "{},{writer},{bdi}", shift.t(line.time_ns));
            let mut given = fields.split_whitespace();
            for column in self.columns {
                let (key, value) = given
                    .next()
                    .and_then(|field| field.split_once('='))
                    .ok_or_else(torn)?;
                // 6.12 says bdi_ where 6.18 says wb_.
                let other = column.strip_prefix("wb_");
                let same = key == *column || other.is_some() && key.strip_prefix("bdi_") == other;
                if !same || value.parse::<i64>().is_err() {
                    return Err(torn());
                }
                table.push(',');
                table.push_str(value);
            }
            if given.next().is_some() {
                return Err(torn());
            }
            table.push('\n');
        }
        Ok(table)
    }
}

/// A table of samples with `t` in place of nanoseconds.
fn samples(text: &str, zero: u64) -> Result<String> {
    let mut table = String::new();
    for (at, line) in text.lines().enumerate() {
        let torn = || format!("a sample that is none: '{line}'");
        let (nanos, rest) = line.split_once(',').ok_or_else(torn)?;
        let t = if at == 0 {
            "t".to_owned()
        } else {
            seconds(nanos.parse().map_err(|_| torn())?, zero, 4)
        };
        let _ = writeln!(table, "{t},{rest}");
    }
    Ok(table)
}

/// From one sample of the counters to the next.
pub(super) const SAMPLE_MS: u32 = 100;

/// The first words of the scenario of every recording.
const RECORDED: &str = "# A guest that `cargo instruments guest` recorded";

/// The begin of the scenario of a recording, up to its machine.
pub(super) fn head(name: &str, title: &str, seconds: u32) -> String {
    format!(
        "{RECORDED}: what `tidegate compare` runs beside it.\n\
         schema = \"tidegate-exp/1\"\nname = \"{}\"\ntitle = \"{title}\"\n\n\
         [run]\nreplicas = 1\nseed = 1\nmax_s = {}\nsample_ms = {SAMPLE_MS}\n\n\
         [machine]\ncpus = 1\n",
        plain(name),
        seconds * 10 + 600,
    )
}

/// A name as a scenario has it.
fn plain(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain = |c: char| match c {
        '=' => '_',
        c if keep(c) => c,
        _ => '-',
    };
    name.chars().map(plain).collect()
}

/// `scenario.toml`: the run of the lab beside the recording, and the kernel of that.
fn described(scenario: &Scenario, hz: u32, kernel: &str) -> String {
    let Scenario {
        dirty, bg, seconds, ..
    } = scenario;
    let title = format!("Linux {kernel}, HZ {hz}, 1 CPU, {}", scenario.words());
    let mut text = head(&scenario.name, &title, *seconds);
    let memory = scenario.memory_mib();
    let _ = writeln!(
        text,
        "memory_mib = {memory}\ndirty_mib = {dirty}\nbackground_mib = {bg}"
    );
    for (device, rate) in scenario.devices.iter().enumerate() {
        let fs = match scenario.fs {
            Fs::Ext4 => "\"ext4\"\njournal = true",
            Fs::None => "\"bare\"",
        };
        let _ = write!(
            text,
            "\n[[device]]\nid = \"device-{device}\"\nmodel = \"null_blk\"\nrate_mib = {rate}\nfs = {fs}\n\
             params = {{ request_max_bytes = {} }}\n",
            super::image::MAX_SECTORS * 512,
        );
        if let Some(percent) = scenario.max_ratio {
            let _ = writeln!(text, "strict = true\nmax_percent = {percent}");
        }
        let changes = scenario.change.iter();
        let changes = changes.filter(|change| change.device == device);
        let changes: Vec<String> = changes
            .map(|change| format!("{{ at_s = {}, rate_mib = {} }}", change.at_s, change.mib))
            .collect();
        if !changes.is_empty() {
            let _ = writeln!(text, "change = [{}]", changes.join(", "));
        }
    }
    for (number, writer) in scenario.writers.iter().enumerate() {
        let _ = write!(
            text,
            "\n[[task]]\nid = \"writer-{number}\"\ndevice = \"device-{}\"\nblock_kib = {}\nrun_s = {}\n",
            writer.device,
            writer.bytes / 1024,
            seconds - writer.start_s,
        );
        if writer.start_s > 0 {
            let _ = writeln!(text, "start_s = {}", writer.start_s);
        }
        // Files have room for more than any writer comes near.
        text.push_str("kind = \"dd\"\nfile_mib = 1048576\n");
        if writer.sleep_ms > 0 {
            let _ = writeln!(text, "every_ms = {}", writer.sleep_ms);
        }
    }
    let _ = write!(
        text,
        "\n[[column]]\nname = \"linux-6.12\"\nhz = {hz}\n\n[[column]]\nname = \"tidegate\"\n"
    );
    text
}

/// `facts.json`: what the guest said of itself, and how long a write takes that nothing holds up.
fn facts(stream: &Stream, writes: &Writes) -> Result<Value> {
    let mut facts = BTreeMap::new();
    for line in stream.file("facts")?.lines() {
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| format!("a fact that is none: '{line}'"))?;
        facts.insert(key.to_owned(), json!(value));
    }
    // The first eight of the first writer: 8 MiB are below every background limit.
    let writer = writes.rows[0][0];
    let mut first: Vec<u64> = writes
        .rows
        .iter()
        .filter(|row| row[0] == writer)
        .take(8)
        .map(|row| row[2])
        .collect();
    first.sort_unstable();
    let nanos = first[first.len() / 2];
    facts.insert("first_writes.bytes".into(), json!(writes.rows[0][3]));
    facts.insert("first_writes.median_us".into(), json!(nanos / 1000));
    Ok(json!(facts))
}

/// The measurements, in numbers.
pub(super) struct Measures {
    line: String,
    /// Pauses above 0.
    pub(super) pauses: usize,
    /// Most that was dirty or under writeback at once.
    pub(super) level_mib_max: f64,
}

/// Throughput, level and pauses, as comparisons measure them.
fn measure(scenario: &Scenario, writes: &Writes, pauses: &str, vmstat: &str) -> Result<Measures> {
    let bytes: u64 = writes.rows.iter().map(|row| row[3]).sum();
    let longest = writes.rows.iter().map(|row| row[2]).max().unwrap_or(0);
    let number = |field: Option<&str>| -> Result<f64> {
        let parsed = field.and_then(|field| field.parse().ok());
        parsed.ok_or_else(|| "a table that is not one of numbers".to_owned())
    };
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let (mut sum, mut samples, mut level_mib_max) = (0.0, 0.0, 0.0);
    for line in vmstat.lines().skip(1) {
        let mut fields = line.split(',');
        let t = number(fields.next())?;
        let level = mib(4096.0 * (number(fields.next())? + number(fields.next())?));
        level_mib_max = f64::max(level_mib_max, level);
        if t >= STEADY_FROM {
            sum += level;
            samples += 1.0;
        }
    }
    let before = PAUSES.columns.iter().take_while(|name| **name != "pause");
    // The columns of an event follow t, writer and bdi.
    let at = 3 + before.count();
    let mut lengths = Vec::new();
    for line in pauses.lines().skip(1) {
        lengths.push(number(line.split(',').nth(at))?);
    }
    lengths.retain(|pause| *pause > 0.0);
    lengths.sort_by(f64::total_cmp);
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0.0);
    #[expect(clippy::cast_precision_loss, reason = "bytes of a minute fit")]
    let rate = mib(bytes as f64) / f64::from(scenario.seconds);
    let level = if samples > 0.0 {
        format!("{:.1} MiB", sum / samples)
    } else {
        "not steady".to_owned()
    };
    let line = format!(
        "{rate:.2} MiB/s, dirty + writeback {level}, {} pauses of {median} ms (median), longest write {} ms",
        lengths.len(),
        longest / 1_000_000,
    );
    Ok(Measures {
        line,
        pauses: lengths.len(),
        level_mib_max,
    })
}

/// The recordings that are checked in and wanted: the name of each, and its files by theirs.
#[cfg(test)]
pub(super) fn recorded(
    wanted: impl Fn(&str) -> bool,
) -> Vec<(String, impl Fn(&str) -> Option<String>)> {
    let all = ["held", "turned", "drawn"].map(|kind| {
        let folder = crate::workspace::root().join("recordings").join(kind);
        fs::read_dir(folder).into_iter().flatten()
    });
    let folders = all
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut named: Vec<_> = folders
        .filter(|path| path.is_dir())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            wanted(&name).then_some((name, path))
        })
        .collect();
    named.sort();
    let file = |folder: std::path::PathBuf| {
        move |name: &str| {
            let packed = folder.join(format!("{name}.gz"));
            if !packed.exists() {
                return fs::read_to_string(folder.join(name)).ok();
            }
            let text = Command::new("gzip").arg("-dc").arg(packed).output().ok()?;
            String::from_utf8(text.stdout).ok()
        }
    };
    named
        .into_iter()
        .map(|(name, path)| (name, file(path)))
        .collect()
}

#[cfg(test)]
mod tests;

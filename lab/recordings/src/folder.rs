//! A recording as a folder of tables, in the form of the field recordings and of `cargo instruments
//! guest`.
//!
//! | file | needed | holds |
//! |---|---|---|
//! | `scenario.json` | yes | the setting |
//! | `pauses.csv` | yes | `balance_dirty_pages` lines of the writers: pages, KiB/s, ms |
//! | `writes.csv` | yes | every `write()`: start, seconds, bytes |
//! | `vmstat.csv` | yes | levels and limits, pages |
//! | `ratelimit.csv`, `device.csv` | no | checked if there |
//!
//! A table may be gzipped. Times are seconds from the first write.

use std::path::Path;

use super::fault::Fault;
use super::recording::{Recording, jobs};
use super::rows::{self, Rows, Wanted, column};
use super::setting::{self, Read, Setting};
use super::ticks;
use super::what_if::Change;
use experiment::outcome::{Level, Outcome, Pause};

const SECONDS: &str = "seconds";
const PAGES: &str = "pages";

const PAUSES: [Wanted; 11] = [
    column("t", SECONDS),
    column("writer", "a writer, counted from 0"),
    column("limit", PAGES),
    column("setpoint", PAGES),
    column("dirty", PAGES),
    Wanted {
        name: "wb_dirty",
        or: "bdi_dirty",
        unit: PAGES,
    },
    column("dirty_ratelimit", "KiB/s"),
    column("task_ratelimit", "KiB/s"),
    column("dirtied", PAGES),
    column("paused", "ms"),
    column("pause", "ms"),
];
const WRITES: [Wanted; 4] = [
    column("t", SECONDS),
    column("writer", "a writer, counted from 0"),
    column("seconds", SECONDS),
    column("bytes", "bytes"),
];
const VMSTAT: [Wanted; 5] = [
    column("t", SECONDS),
    column("nr_dirty", PAGES),
    column("nr_writeback", PAGES),
    column("nr_dirty_threshold", PAGES),
    column("nr_dirty_background_threshold", PAGES),
];
const RATELIMIT: [Wanted; 4] = [
    column("t", SECONDS),
    column("awrite_bw", "KiB/s"),
    column("dirty_ratelimit", "KiB/s"),
    column("balanced_dirty_ratelimit", "KiB/s"),
];
const DEVICE: [Wanted; 5] = [
    column("t", SECONDS),
    column("device", "a device, counted from 0"),
    column("BdiWriteback", "KiB"),
    column("BdiReclaimable", "KiB"),
    column("BdiWriteBandwidth", "KiB/s"),
];

/// Lines that must be on a coarser grid before that is said.
const COARSE_LEAST: usize = 50;
/// KiB/s in a page a second.
const KIB_PER_PAGE: f64 = 4.0;

/// Reads a folder; `given` states parameters against its `scenario.json`.
///
/// # Errors
/// The mistake or the missing part, with file and line.
pub(super) fn load(folder: &Path, given: &[Change]) -> Result<Recording, Fault> {
    let need = |name: &str| {
        rows::find(folder, name).ok_or_else(|| {
            Fault::of(
                folder,
                format!("has no `{name}`"),
                "a recording is a folder with scenario.json, pauses.csv, writes.csv and vmstat.csv \
                 (and, if known, ratelimit.csv and device.csv; a table may end in .gz), or a file \
                 with the text of ftrace, perf script or trace-cmd report",
            )
        })
    };
    let path = need("scenario.json")?;
    let told = rows::text(&path)?;
    let Read {
        mut setting,
        mut notes,
        mut assumed,
    } = setting::read(&path, &told)?;
    for change in given {
        change.apply(&mut setting).map_err(|problem| {
            let title = format!("--given {change}: {problem}");
            Fault::of(&path, title, "state something that can be")
        })?;
        assumed.retain(|(key, _)| *key != change.key);
        notes.push(format!("given on the command line: {change}"));
    }
    let pauses_path = need("pauses.csv")?;
    let pauses = rows::read(&pauses_path, &PAUSES, Some(1))?;
    let writes = rows::read(&need("writes.csv")?, &WRITES, Some(1))?;
    let vmstat_path = need("vmstat.csv")?;
    let vmstat = rows::read(&vmstat_path, &VMSTAT, None)?;
    let clock = Clock {
        scenario: (&path, &told),
        pauses: (&pauses_path, &pauses),
    };
    clock.settle(&mut setting, &mut assumed, &mut notes);
    if !assumed.is_empty() {
        let assumed: Vec<String> = assumed
            .iter()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        notes.push(format!(
            "not in scenario.json, so assumed: {}",
            assumed.join(", ")
        ));
    }
    notes.extend(other_limit(
        &setting,
        (&vmstat_path, &vmstat),
        (&path, &told),
    ));
    for (name, wanted) in [
        ("ratelimit.csv", &RATELIMIT[..]),
        ("device.csv", &DEVICE[..]),
    ] {
        match rows::find(folder, name) {
            Some(path) => {
                let key = (name == "device.csv").then_some(1);
                notes.extend(rows::read(&path, wanted, key)?.notes);
            }
            None => notes.push(format!("{name} is not there; nothing needs it")),
        }
    }
    for table in [&pauses, &writes, &vmstat] {
        notes.extend(table.notes.iter().cloned());
    }
    let before = vmstat.rows.iter().rev().find(|row| row[0] <= 0.0);
    setting.begins_mib = before.map_or(0.0, |row| {
        (row[1] + row[2]) * f64::from(setting.page_size) / 1_048_576.0
    });
    if let (Some(kept), Some(files)) = (&mut setting.kept_mib, available_mib(folder)) {
        *kept = (setting.memory_mib - files).max(0.0);
    }
    let outcome = outcome(&setting, &pauses, &writes, &vmstat);
    Ok(Recording::new(setting, outcome, notes))
}

/// The memory that files could have when the recording was made, by its `facts.json`, if there is
/// one.
fn available_mib(folder: &Path) -> Option<f64> {
    let text = rows::text(&rows::find(folder, "facts.json")?).ok()?;
    let facts: serde_json::Value = serde_json::from_str(&text).ok()?;
    let kib = facts.get("MemAvailable")?.as_str()?;
    let kib: f64 = kib.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Where the clock is told, and what shows it.
struct Clock<'a> {
    scenario: (&'a Path, &'a str),
    pauses: (&'a Path, &'a Rows),
}

impl Clock<'_> {
    /// Takes HZ from the pauses where nobody says it, and says where they contradict what is said.
    fn settle(
        &self,
        setting: &mut Setting,
        assumed: &mut [(&'static str, String)],
        notes: &mut Vec<String>,
    ) {
        let (path, rows) = self.pauses;
        let lengths = || rows.rows.iter().map(|row| row[10]);
        if let Some((_, value)) = assumed.iter_mut().find(|(key, _)| *key == "hz") {
            if let Some(hz) = ticks::guess(lengths()) {
                setting.hz = hz;
                *value = format!("{hz} (the pauses are whole ticks of it)");
            }
            return;
        }
        let odd = |ms: &f64| *ms > 0.0 && !ticks::fits(setting.hz, *ms);
        let told = format!(
            "{}:{}",
            self.scenario.0.display(),
            setting::key_place(self.scenario.1, "hz").line
        );
        let Some(at) = lengths().position(|ms| odd(&ms)) else {
            // Many pauses, all on a coarser grid: hardly by chance.
            let coarser = ticks::guess(lengths()).filter(|hz| *hz < setting.hz);
            if let Some(hz) = coarser.filter(|_| rows.rows.len() >= COARSE_LEAST) {
                notes.push(format!(
                    "{}: all pauses are whole ticks at HZ {hz}, but {told} says {}; if that is wrong, \
                     state --given hz={hz}",
                    path.display(),
                    setting.hz
                ));
            }
            return;
        };
        let shown =
            ticks::guess(lengths()).map_or(String::new(), |hz| format!(" (hz={hz} would fit)"));
        notes.push(format!(
            "{}:{}: a pause of {} ms is no whole number of ticks at HZ {}, which {told} says; if HZ is \
             another, state it with --given hz=...{shown}; usual are 100, 250, 300 and 1000",
            path.display(),
            rows.lines[at],
            rows.rows[at][10],
            setting.hz,
        ));
    }
}

/// A dirty limit in the tables that is not the scenario's: a sign of another page size, or limit.
fn other_limit(
    setting: &Setting,
    vmstat: (&Path, &Rows),
    scenario: (&Path, &str),
) -> Option<String> {
    let (path, rows) = vmstat;
    let (row, line) = rows.rows.last().zip(rows.lines.last())?;
    let shown = row[3] * f64::from(setting.page_size) / 1_048_576.0;
    let ratio = shown / setting.dirty_mib;
    // Free memory bounds the limit too: a little below is not another limit.
    if shown <= 0.0 || (0.9..=1.02).contains(&ratio) {
        return None;
    }
    let sizes = [4096.0, 8192.0, 16384.0, 32768.0, 65536.0];
    let fitting = sizes.into_iter().find(|size| {
        let limit = row[3] * size / 1_048_576.0;
        (limit / setting.dirty_mib - 1.0).abs() <= 0.02
    });
    let hint = fitting.map_or(String::new(), |size| {
        format!("; page_size={size} would fit")
    });
    Some(format!(
        "{}:{line}: a dirty limit of {shown:.1} MiB (nr_dirty_threshold {} pages of {}), but {}:{} says {} \
         MiB: another page size or another limit? State it with --given page_size=... (4096 to 65536) or \
         --given vm.dirty_bytes=...{hint}",
        path.display(),
        row[3],
        setting.page_size,
        scenario.0.display(),
        setting::key_place(scenario.1, "dirty").line,
        setting.dirty_mib,
    ))
}

fn outcome(setting: &Setting, pauses: &Rows, writes: &Rows, vmstat: &Rows) -> Outcome {
    // Counts are brought to pages of 4 KiB, which is what everything else here counts in.
    let unit = f64::from(setting.page_size) / 4096.0;
    let pause = |row: &Vec<f64>| Pause {
        at_s: row[0],
        task: number(row[1]),
        writer: number(row[1]),
        slept_ms: row[10].max(0.0),
        longest_ms: row[10].max(0.0),
        dirtied: row[8] * unit,
        device_dirty: row[5] * unit,
        device_limit: row[2] * unit,
        dirty_ratelimit: row[6] / KIB_PER_PAGE,
        task_ratelimit: row[7] / KIB_PER_PAGE,
        ..Pause::default()
    };
    let level = |row: &Vec<f64>| Level {
        at_s: row[0],
        dirty: row[1] * unit,
        writeback: row[2] * unit,
        limit: row[3] * unit,
        background: row[4] * unit,
        ..Level::default()
    };
    let calls: Vec<(usize, f64, f64, f64)> = writes
        .rows
        .iter()
        .map(|row| (number(row[1]) as usize, row[0], row[2], row[3]))
        .collect();
    Outcome {
        jobs: jobs(setting, &calls),
        pauses: pauses.rows.iter().map(pause).collect(),
        levels: vmstat
            .rows
            .iter()
            .filter(|row| row[0] >= 0.0)
            .map(level)
            .collect(),
        ..Outcome::default()
    }
}

/// Number of a writer; a strange one counts as none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a whole number of writers"
)]
fn number(value: f64) -> u32 {
    if (0.0..1e6).contains(&value) {
        value as u32
    } else {
        u32::MAX
    }
}

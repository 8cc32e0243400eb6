//! A recording as a folder of tables, in the form of the field recordings and of `cargo instruments
//! guest`.
//!
//! | file | needed | holds |
//! |---|---|---|
//! | `scenario.toml` | yes | the setting |
//! | `pauses.csv` | yes | `balance_dirty_pages` lines of the writers: pages, KiB/s, ms |
//! | `writes.csv` | yes | every `write()`: start, seconds, bytes |
//! | `vmstat.csv` | yes | levels and limits, pages |
//! | `ratelimit.csv`, `device.csv` | no | checked if there |
//!
//! A table may be gzipped. Times are seconds from the first write, pages have 4 KiB.

use std::path::Path;

use super::fault::Fault;
use super::recording::jobs;
use super::rows::{self, Rows, Wanted, column};
use super::setting::Setting;
use super::ticks;
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
const PAGES_PER_MIB: f64 = 256.0;

/// Reads the tables of a folder; answers what they show. The level at the begin goes into the
/// setting.
///
/// # Errors
/// The mistake or the missing part, with file and line.
pub(super) fn read(
    folder: &Path,
    setting: &mut Setting,
    notes: &mut Vec<String>,
) -> Result<Outcome, Fault> {
    let need = |name: &str| rows::need(folder, name, setting.kind.folder);
    let pauses_path = need("pauses.csv")?;
    let pauses = rows::read(&pauses_path, &PAUSES, Some(1))?;
    let writes = rows::read(&need("writes.csv")?, &WRITES, Some(1))?;
    let vmstat_path = need("vmstat.csv")?;
    let vmstat = rows::read(&vmstat_path, &VMSTAT, None)?;
    notes.extend(other_clock(setting, (&pauses_path, &pauses)));
    notes.extend(other_limit(setting, (&vmstat_path, &vmstat)));
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
    setting.begins_mib = before.map_or(0.0, |row| (row[1] + row[2]) / PAGES_PER_MIB);
    Ok(outcome(setting, &pauses, &writes, &vmstat))
}

/// A clock that the pauses contradict: a sign of another HZ.
fn other_clock(setting: &Setting, (path, rows): (&Path, &Rows)) -> Option<String> {
    let told = setting.hz()?;
    let lengths = || rows.rows.iter().map(|row| row[10]);
    let odd = |ms: &f64| *ms > 0.0 && !ticks::fits(told, *ms);
    let guess = ticks::guess(lengths());
    let hint = guess.map_or("...".to_owned(), |hz| hz.to_string());
    let Some(at) = lengths().position(|ms| odd(&ms)) else {
        // Many pauses, all on a coarser grid: hardly by chance.
        let coarser = guess.filter(|hz| *hz < told && rows.rows.len() >= COARSE_LEAST)?;
        return Some(format!(
            "{}: all pauses are whole ticks at HZ {coarser}, but scenario.toml says {told}; if that is wrong, state \
             --given hz={coarser}",
            path.display(),
        ));
    };
    Some(format!(
        "{}:{}: a pause of {} ms is no whole number of ticks at HZ {told}, which scenario.toml says; if HZ is another, state it \
         with --given hz={hint}; usual are 100, 250, 300 and 1000",
        path.display(),
        rows.lines[at],
        rows.rows[at][10],
    ))
}

/// A dirty limit in the tables that is not the scenario's: a sign of another one.
fn other_limit(setting: &Setting, (path, rows): (&Path, &Rows)) -> Option<String> {
    let (row, line) = rows.rows.last().zip(rows.lines.last())?;
    let shown = row[3] / PAGES_PER_MIB;
    let (told, _) = setting.limits_mib();
    // Free memory bounds the limit too: a little below is not another limit.
    if shown <= 0.0 || (0.9..=1.02).contains(&(shown / told)) {
        return None;
    }
    Some(format!(
        "{}:{line}: a dirty limit of {shown:.1} MiB, but scenario.toml says {told} MiB: state another with --given \
         vm.dirty_bytes=..., or bring tables of other pages than 4 KiB to these",
        path.display(),
    ))
}

fn outcome(setting: &Setting, pauses: &Rows, writes: &Rows, vmstat: &Rows) -> Outcome {
    let pause = |row: &Vec<f64>| Pause {
        at_s: row[0],
        task: number(row[1]),
        writer: number(row[1]),
        slept_ms: row[10].max(0.0),
        longest_ms: row[10].max(0.0),
        dirtied: row[8],
        device_dirty: row[5],
        device_limit: row[2],
        dirty_ratelimit: row[6] / KIB_PER_PAGE,
        task_ratelimit: row[7] / KIB_PER_PAGE,
        ..Pause::default()
    };
    let level = |row: &Vec<f64>| Level {
        at_s: row[0],
        dirty: row[1],
        writeback: row[2],
        limit: row[3],
        background: row[4],
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

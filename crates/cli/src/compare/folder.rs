//! A recording as a folder of tables, in the form of `../shared/oracle` and of `cargo xtask guest`.
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
use super::setting::{self, Setting};
use crate::outcome::{Level, Outcome, Pause};

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

/// KiB/s in a page a second.
const KIB_PER_PAGE: f64 = 4.0;

/// Reads a folder.
///
/// # Errors
/// What is missing or wrong, with file and line.
pub(super) fn load(folder: &Path) -> Result<Recording, Fault> {
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
    let (setting, mut notes) = setting::read(&path, &rows::text(&path)?)?;
    let pauses = rows::read(&need("pauses.csv")?, &PAUSES, Some(1))?;
    let writes = rows::read(&need("writes.csv")?, &WRITES, Some(1))?;
    let vmstat = rows::read(&need("vmstat.csv")?, &VMSTAT, None)?;
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
    let outcome = outcome(&setting, &pauses, &writes, &vmstat);
    Ok(Recording::new(setting, outcome, notes))
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

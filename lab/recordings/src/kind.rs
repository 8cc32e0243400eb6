//! The kinds of recordings.

use std::path::Path;

use super::rows;

/// A kind of recording.
#[derive(Debug)]
pub struct Kind {
    /// The subject of its recordings.
    pub of: &'static str,
    /// The files of a folder, in words.
    pub(super) folder: &'static str,
    /// The memory has marks, and disks requests that a tick has to hold.
    pub(super) has_marks: bool,
}

/// Writers that overrun a disk.
pub static THROTTLING: Kind = Kind {
    of: "dirty throttling",
    folder: "a recording is a folder with scenario.toml, pauses.csv, writes.csv and vmstat.csv \
             (and, if known, ratelimit.csv and device.csv; a table may end in .gz), or a file \
             with the text of ftrace, perf script or trace-cmd report",
    has_marks: false,
};

/// Memory that does not hold all.
pub static PRESSURE: Kind = Kind {
    of: "memory pressure",
    folder: "a recording of memory pressure is a folder with scenario.toml, vmstat.csv, samples.csv \
             and summary.json (a table may end in .gz)",
    has_marks: true,
};

/// All kinds.
pub static KINDS: [&Kind; 2] = [&PRESSURE, &THROTTLING];

impl Kind {
    /// That of what lies there; without a sign of another, dirty throttling, whose parts are then
    /// missed by name.
    #[must_use]
    pub fn of(path: &Path) -> &'static Self {
        let has = |name: &&str| rows::find(path, name).is_some();
        match ["samples.csv", "summary.json"].iter().any(has) {
            true => &PRESSURE,
            false => &THROTTLING,
        }
    }
}

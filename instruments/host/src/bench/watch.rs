//! The kernel's own account of its throttling while writers run: the levels of a device (debugfs),
//! those of the whole machine (`/proc/vmstat`), and the pauses (a trace instance of our own, so
//! that nobody else's trace is touched).
//!
//! Units: bytes and seconds. The kernel's per-device levels are per-CPU counters and right within
//! some pages; the dirty limit is the machine's, and what others have dirty counts for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::undo::{Deed, Undo};
use crate::{Result, at, steps};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Kilobytes of trace of each CPU: some ten thousand lines.
const TRACE_KB: &str = "8192";
/// The switch of the machine's events.
const EVENT: &str = "events/writeback/balance_dirty_pages/enable";

/// The kernel's files.
pub(crate) struct Watch {
    debug: PathBuf,
    trace: PathBuf,
}

/// The levels and pauses seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Highest dirty + writeback of the devices together, by the limit of the machine.
    pub(crate) level_max: f64,
    /// Mean of what others had dirty or under writeback, bytes.
    pub(crate) others_mean: f64,
    /// Longest pause that was printed, ms.
    pub(crate) pause_max_ms: f64,
    /// Number of pauses longer than zero.
    pub(crate) pauses: usize,
}

impl Watch {
    /// Mounts what tells, and switches the trace of pauses on.
    ///
    /// # Errors
    /// The kernel has no debugfs or no tracing.
    pub(crate) fn begin(undo: &Undo) -> Result<Self> {
        let folder = PathBuf::from("/run/tidegate-bench-watch");
        let (debug, tracing) = (folder.join("debug"), folder.join("tracing"));
        for path in [&folder, &debug, &tracing] {
            undo.note(Deed::MadeFolder(path.clone()))?;
            fs::create_dir(path).map_err(at(path))?;
        }
        for (kind, place) in [("debugfs", &debug), ("tracefs", &tracing)] {
            undo.note(Deed::Mounted(place.clone()))?;
            let mut mount = Command::new("mount");
            mount.args(["-t", kind, "none"]).arg(place);
            steps::run(&mut mount, Duration::from_secs(10))?;
        }
        let trace = tracing.join("instances/tidegate-bench");
        undo.note(Deed::MadeFolder(trace.clone()))?;
        fs::create_dir(&trace).map_err(at(&trace))?;
        write(&trace.join("buffer_size_kb"), TRACE_KB)?;
        write(&trace.join(EVENT), "1")?;
        Ok(Self { debug, trace })
    }

    /// Forgets the pauses so far.
    pub(crate) fn clear(&self) -> Result<()> {
        write(&self.trace.join("trace"), "")
    }

    /// Looks at the levels of devices (`7:N`) until `over` is set, then at the pauses.
    pub(crate) fn follow(&self, devices: &[&str], over: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        let mut others = (0.0, 0.0);
        while !over.load(Ordering::Relaxed) {
            let (mut level, mut limit) = (0.0, 0.0);
            for device in devices {
                let stats = self.debug.join("bdi").join(device).join("stats");
                let stats = fs::read_to_string(stats).unwrap_or_default();
                level += kilobytes(&stats, "BdiWriteback:") + kilobytes(&stats, "BdiReclaimable:");
                limit = kilobytes(&stats, "DirtyThresh:");
            }
            let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
            let all = pages(&vmstat, "nr_dirty ") + pages(&vmstat, "nr_writeback ");
            if limit > 0.0 {
                seen.level_max = seen.level_max.max(level / limit);
            }
            others = (others.0 + (all - level).max(0.0), others.1 + 1.0);
            std::thread::sleep(LOOK_EVERY);
        }
        if others.1 > 0.0 {
            seen.others_mean = others.0 / others.1;
        }
        let trace = fs::read_to_string(self.trace.join("trace")).unwrap_or_default();
        let pauses: Vec<f64> = pauses(&trace, devices).collect();
        seen.pauses = pauses.len();
        seen.pause_max_ms = pauses.into_iter().fold(0.0, f64::max);
        seen
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(at(file))
}

/// `BdiWriteback:   123 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0.0) * 1024.0
}

/// `nr_dirty 123`, in bytes.
fn pages(text: &str, name: &str) -> f64 {
    let number = text.lines().find_map(|line| line.strip_prefix(name));
    number
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0.0)
        * 4096.0
}

/// The pauses of the devices' writers longer than zero, ms.
fn pauses<'a>(trace: &'a str, devices: &'a [&'a str]) -> impl Iterator<Item = f64> + 'a {
    trace.lines().filter_map(move |line| {
        let (_, line) = line.split_once("balance_dirty_pages: bdi ")?;
        let (device, line) = line.split_once(':').and_then(|(major, rest)| {
            let (minor, rest) = rest.split_once(':')?;
            Some((format!("{major}:{minor}"), rest))
        })?;
        let (_, pause) = line.split_once(" pause=")?;
        let pause: f64 = pause.split_whitespace().next()?.parse().ok()?;
        (devices.contains(&device.as_str()) && pause > 0.0).then_some(pause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_other_devices_and_of_no_length_are_left_out() {
        let line = |device: &str, pause: i64| {
            format!(
                " writers-1 [000] ..... 1.5: balance_dirty_pages: bdi {device}: limit=16384 \
                 dirty=12 dirtied_pause=256 paused=0 pause={pause} period=16 think=0\n"
            )
        };
        let trace = [
            ("7:100", 12),
            ("7:10", 99),
            ("7:100", 0),
            ("7:100", -3),
            ("7:100", 200),
        ];
        let trace: String = trace
            .iter()
            .map(|(device, pause)| line(device, *pause))
            .collect();
        let found: Vec<f64> = pauses(&trace, &["7:100"]).collect();
        assert_eq!(found, [12.0, 200.0]);
    }

    #[test]
    fn levels_are_read_in_bytes() {
        let stats = "BdiWriteback:             1024 kB\nBdiReclaimable:              4 kB\n";
        assert_eq!(kilobytes(stats, "BdiWriteback:"), 1024.0 * 1024.0);
        assert_eq!(kilobytes(stats, "DirtyThresh:"), 0.0);
        let vmstat = "nr_dirty_threshold 9\nnr_dirty 3\nnr_writeback 1\n";
        assert_eq!(pages(vmstat, "nr_dirty "), 12288.0);
    }
}

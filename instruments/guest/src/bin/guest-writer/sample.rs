//! Samples of the kernel's counters, ten times a second: kept as read, taken apart at the end.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use guest::Result;

use crate::plan::Plan;

/// From one sample to the next.
const PERIOD: Duration = Duration::from_millis(100);
/// Lines of progress for a person who watches the console: one in this many samples.
const PROGRESS_EVERY: u32 = 50;
/// The counters of `/proc/vmstat` that are kept, in pages.
const VMSTAT: [&str; 6] = [
    "nr_dirty",
    "nr_writeback",
    "nr_dirty_threshold",
    "nr_dirty_background_threshold",
    "nr_dirtied",
    "nr_written",
];
/// Those of a device, in KiB and KiB/s.
const DEVICE: [&str; 8] = [
    "BdiWriteback",
    "BdiReclaimable",
    "BdiDirtyThresh",
    "DirtyThresh",
    "BackgroundThresh",
    "BdiDirtied",
    "BdiWritten",
    "BdiWriteBandwidth",
];
/// More than either file ever has.
const TEXT_MAX: usize = 16 * 1024;

/// A file that is read again and again.
struct Source {
    file: File,
    path: String,
}

impl Source {
    fn open(path: String) -> Result<Self> {
        let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self { file, path })
    }

    /// Reads it whole: `at` is moved on in `room`.
    fn read(&self, room: &mut Vec<u8>) -> Result<(usize, usize)> {
        let began = room.len();
        room.resize(began + TEXT_MAX, 0);
        let mut end = began;
        loop {
            let offset = (end - began) as u64;
            let read = self
                .file
                .read_at(&mut room[end..], offset)
                .map_err(|error| format!("{}: {error}", self.path))?;
            if read == 0 {
                break;
            }
            end += read;
        }
        room.truncate(end);
        Ok((began, end))
    }
}

/// A reading at one time: places in the text.
struct Sample {
    nanos: u128,
    /// `/proc/vmstat`, then each device.
    parts: Vec<(usize, usize)>,
}

/// All samples of a run.
pub(crate) struct Samples {
    text: Vec<u8>,
    samples: Vec<Sample>,
    devices: usize,
}

/// Reads the counters from `base` until `end`.
///
/// # Errors
/// A file is not there or cannot be read.
pub(crate) fn sample(plan: &Plan, base: Instant, end: Duration) -> Result<Samples> {
    let mut sources = vec![Source::open("/proc/vmstat".to_owned())?];
    for device in &plan.devices {
        sources.push(Source::open(format!(
            "/sys/kernel/debug/bdi/{device}/stats"
        ))?);
    }
    let count = usize::try_from(end.as_nanos() / PERIOD.as_nanos()).unwrap_or(0) + 2;
    // Touched here, so that no sample pays for a fault.
    let mut text = vec![1; count * sources.len() * TEXT_MAX / 2];
    text.clear();
    let mut samples = Vec::with_capacity(count);
    let mut ticks = 0_u32;
    while base.elapsed() < end {
        let nanos = base.elapsed().as_nanos();
        let parts = sources
            .iter()
            .map(|source| source.read(&mut text))
            .collect::<Result<Vec<_>>>()?;
        samples.push(Sample { nanos, parts });
        ticks += 1;
        if ticks.is_multiple_of(PROGRESS_EVERY) {
            println!("virtual {}", nanos / 1_000_000_000);
        }
        std::thread::sleep((PERIOD * ticks).saturating_sub(base.elapsed()));
    }
    Ok(Samples {
        text,
        samples,
        devices: plan.devices.len(),
    })
}

impl Samples {
    /// The table of `/proc/vmstat`.
    ///
    /// # Errors
    /// A counter is missing.
    pub(crate) fn vmstat(&self) -> Result<String> {
        let mut table = format!("nanos,{}\n", VMSTAT.join(","));
        for sample in &self.samples {
            let _ = write!(table, "{}", sample.nanos);
            self.row(sample.parts[0], &VMSTAT, &mut table)?;
        }
        Ok(table)
    }

    /// The table of the devices.
    ///
    /// # Errors
    /// A counter is missing.
    pub(crate) fn devices(&self) -> Result<String> {
        let mut table = format!("nanos,device,{}\n", DEVICE.join(","));
        for sample in &self.samples {
            for device in 0..self.devices {
                let _ = write!(table, "{},{device}", sample.nanos);
                self.row(sample.parts[device + 1], &DEVICE, &mut table)?;
            }
        }
        Ok(table)
    }

    fn row(&self, (from, to): (usize, usize), names: &[&str], table: &mut String) -> Result<()> {
        let text = String::from_utf8_lossy(&self.text[from..to]);
        for name in names {
            let value = counter(&text, name)
                .ok_or_else(|| format!("no counter '{name}' among these:\n{text}"))?;
            table.push(',');
            table.push_str(value);
        }
        table.push('\n');
        Ok(())
    }
}

/// The value of `name 5` or `name:   5 kB`.
fn counter<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        (first.strip_suffix(':').unwrap_or(first) == name).then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "nr_dirty_threshold 16384\nnr_dirty 3\nBdiWriteback:              64 kB\n";
        assert_eq!(counter(text, "nr_dirty"), Some("3"));
        assert_eq!(counter(text, "BdiWriteback"), Some("64"));
        assert_eq!(counter(text, "Bdi"), None);
    }
}

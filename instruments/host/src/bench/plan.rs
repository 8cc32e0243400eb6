//! The writers and devices of one run, and what was seen of it.
//!
//! A plan is the same for every column: for the kernel and the embedded cache it becomes the
//! arguments of `writers`, for the program `tidegate` a scenario.

use std::fmt::Write as _;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;
/// The dirty limits of every column, MiB.
pub(crate) const DIRTY_MIB: u64 = 64;
pub(crate) const BACKGROUND_MIB: u64 = 32;
/// Memory of the cache, MiB. The dirty limits are fixed, so it only has to be enough.
pub(crate) const MEMORY_MIB: u64 = 256;
/// A light writer's period, ms.
const LIGHT_MS: f64 = 10.0;
/// The beginning of the second writer's region on a device without a file system.
const REGION: u64 = 2 << 30;

/// A device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    /// MiB a second; none: a disk that is not slow.
    pub(crate) rate_mib: Option<u64>,
    /// From this second on another rate.
    pub(crate) then: Option<(u64, u64)>,
}

impl Device {
    pub(crate) const fn of(rate_mib: u64) -> Self {
        Self {
            rate_mib: Some(rate_mib),
            then: None,
        }
    }
}

/// A writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) name: &'static str,
    /// Index of its device.
    pub(crate) device: usize,
    pub(crate) start_s: u64,
    /// 4 KiB every 10 ms, or 1 MiB at a time as fast as it may.
    pub(crate) is_light: bool,
}

impl Writer {
    pub(crate) const fn heavy(name: &'static str, device: usize, start_s: u64) -> Self {
        let is_light = false;
        Self {
            name,
            device,
            start_s,
            is_light,
        }
    }

    pub(crate) const LIGHT: Self = Self {
        name: "light",
        device: 0,
        start_s: 0,
        is_light: true,
    };

    /// Bytes of a call and milliseconds from one to the next.
    pub(crate) fn pattern(&self) -> (u64, u64) {
        if self.is_light {
            (4096, 10)
        } else {
            (1 << 20, 0)
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) seconds: u64,
    pub(crate) devices: Vec<Device>,
    pub(crate) writers: Vec<Writer>,
}

impl Plan {
    /// The arguments of `writers` for its writers; `place` tells a writer's file or device from its
    /// number.
    pub(crate) fn arguments(
        &self,
        place: impl Fn(usize, &Writer) -> (String, bool),
    ) -> Vec<String> {
        let mut arguments = vec![self.seconds.to_string()];
        for (number, writer) in self.writers.iter().enumerate() {
            let (path, is_shared) = place(number, writer);
            let offset = if is_shared { number as u64 * REGION } else { 0 };
            let (bytes, every) = writer.pattern();
            arguments.push(format!(
                "{path},{bytes},{every},{},{offset}",
                writer.start_s
            ));
        }
        arguments
    }

    /// The same for the program `tidegate`: its default column, on devices made slow by a wrapper.
    pub(crate) fn scenario(&self) -> String {
        let mut text = format!(
            "schema = \"tidegate-exp/1\"\nname = \"pacing-{}\"\n\n\
             [run]\nscale = 1.0\nreplicas = 1\nseed = 1\nmax_s = 600\nsample_ms = 20\n\n\
             [machine]\ncpus = 2\nmemory_mib = {MEMORY_MIB}\ndirty_mib = {DIRTY_MIB}\n\
             background_mib = {BACKGROUND_MIB}\n",
            self.name
        );
        for (number, device) in self.devices.iter().enumerate() {
            let _ = write!(
                text,
                "\n[[device]]\nid = \"disk{number}\"\nmodel = \"null\"\n"
            );
            if let Some(rate) = device.rate_mib {
                let _ = writeln!(text, "rate_mib = {rate}");
            }
            if let Some((at, rate)) = device.then {
                let _ = writeln!(text, "change = [{{ at_s = {at}, rate_mib = {rate} }}]");
            }
        }
        for writer in &self.writers {
            let (bytes, every) = writer.pattern();
            let lasting = self.seconds - writer.start_s;
            let kind = if writer.is_light {
                format!("kind = \"light_writer\"\nevery_ms = {every}")
            } else {
                // As much as can be written in the time, the start at the speed of memory included.
                let rate = self.devices[writer.device].rate_mib.unwrap_or(1024);
                let mib = rate * lasting * 2 + 4 * DIRTY_MIB;
                format!("kind = \"dd\"\nsync = \"none\"\nfile_mib = {mib}")
            };
            let _ = write!(
                text,
                "\n[[task]]\nid = \"{}\"\ndevice = \"disk{}\"\n{kind}\nblock_kib = {}\n\
                 start_s = {}\nrun_s = {lasting}\n",
                writer.name,
                writer.device,
                bytes >> 10,
                writer.start_s
            );
        }
        text + "\n[[column]]\nname = \"tidegate\"\n"
    }
}

/// One call of a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// When it ended, seconds of the run.
    pub(crate) end_s: f64,
    /// From when it was due to its beginning.
    pub(crate) late_ms: f64,
    pub(crate) took_ms: f64,
    pub(crate) bytes: f64,
}

/// The calls and pauses that one writer met. Lengths of calls in ms; of a light writer from when a
/// call was due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Of the calls alone, without how late they began: a thread that is woken late is not held up
    /// by a cache.
    pub(crate) call_p99_ms: f64,
    pub(crate) call_max_ms: f64,
    /// Part of the calls that were longer than a light writer's period.
    pub(crate) late: f64,
    /// Bytes of the calls that ended in each second of the run.
    pub(crate) per_second: Vec<f64>,
}

impl Met {
    /// From calls.
    pub(crate) fn of(calls: &[Call]) -> Self {
        let lengths = calls.iter().map(|call| (call.late_ms + call.took_ms, 1.0));
        let took = calls.iter().map(|call| (call.took_ms, 1.0));
        let mut met = Self::of_lengths(lengths.collect(), took.collect());
        for call in calls {
            met.add(call.end_s, call.bytes);
        }
        met
    }

    /// From lengths in ms and how often they occurred: with how late the calls began, and without.
    pub(crate) fn of_lengths(mut lengths: Vec<(f64, f64)>, mut took: Vec<(f64, f64)>) -> Self {
        for list in [&mut lengths, &mut took] {
            list.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let weight = |lengths: &[(f64, f64)]| lengths.iter().map(|(_, weight)| weight).sum::<f64>();
        let longest =
            |lengths: &[(f64, f64)]| lengths.last().map_or(f64::NAN, |(length, _)| *length);
        let late = lengths.partition_point(|(length, _)| *length <= LIGHT_MS);
        Self {
            p50_ms: weighted(&lengths, 0.50),
            p99_ms: weighted(&lengths, 0.99),
            max_ms: longest(&lengths),
            call_p99_ms: weighted(&took, 0.99),
            call_max_ms: longest(&took),
            // Not `-0`, as a sum of nothing is.
            late: weight(&lengths[late..]).max(0.0) / weight(&lengths),
            per_second: Vec::new(),
        }
    }

    /// Counts bytes of a call that ended at this second.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds of a run of minutes, not negative"
    )]
    pub(crate) fn add(&mut self, end: f64, bytes: f64) {
        let second = end.max(0.0) as usize;
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0.0);
        }
        self.per_second[second] += bytes;
    }

    /// Bytes of some seconds.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> f64 {
        let index = |second: u64| usize::try_from(second).unwrap_or(usize::MAX);
        let taken = self.per_second.iter().take(index(to));
        taken.skip(index(from)).sum()
    }

    /// MiB a second over some seconds.
    pub(crate) fn mib_s(&self, from: u64, to: u64) -> f64 {
        self.bytes(from, to) / MIB / (to - from) as f64
    }
}

/// The measurements of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// In the plan's order.
    pub(crate) writers: Vec<Met>,
    /// Longest pause of any writer, ms; none where nobody tells.
    pub(crate) pause_max_ms: Option<f64>,
    /// Highest dirty + writeback by the limit.
    pub(crate) level_max: Option<f64>,
    /// Mean of what other programs had dirty under the same limit, MiB.
    pub(crate) others_mib: Option<f64>,
}

/// The smallest of the sorted lengths that so much of their weight does not exceed.
fn weighted(lengths: &[(f64, f64)], part: f64) -> f64 {
    let all: f64 = lengths.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for (length, weight) in lengths {
        below += weight;
        if below >= all * part {
            return *length;
        }
    }
    f64::NAN
}

/// Jain's index of fairness: 1 when all are equal.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return f64::NAN;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            name: "light",
            seconds: 24,
            devices: vec![Device {
                rate_mib: Some(32),
                then: Some((12, 8)),
            }],
            writers: vec![Writer::heavy("heavy", 0, 0), Writer::LIGHT],
        }
    }

    #[test]
    fn writers_on_a_bare_device_keep_apart() {
        let arguments = plan().arguments(|_, _| ("/dev/loop9".into(), true));
        let second = format!("/dev/loop9,4096,10,0,{REGION}");
        assert_eq!(arguments, ["24", "/dev/loop9,1048576,0,0,0", &second]);
    }

    #[test]
    fn a_plan_is_a_scenario() {
        let text = plan().scenario();
        assert!(text.contains("rate_mib = 32\nchange = [{ at_s = 12, rate_mib = 8 }]\n"));
        let table: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(table["task"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn seconds_hold_the_calls_that_ended_in_them() {
        let call = |end_s, late_ms, took_ms, bytes| Call {
            end_s,
            late_ms,
            took_ms,
            bytes,
        };
        let met = Met::of(&[
            call(0.5, 0.0, 2.0, MIB),
            call(1.0, 1.0, 3.0, MIB),
            call(2.9, 5.0, 1.0, 2.0 * MIB),
        ]);
        assert_eq!(
            (met.call_p99_ms, met.call_max_ms, met.late),
            (3.0, 3.0, 0.0)
        );
        assert_eq!(met.per_second, [MIB, MIB, 2.0 * MIB]);
        assert_eq!((met.p50_ms, met.p99_ms, met.max_ms), (4.0, 6.0, 6.0));
        assert_eq!(met.mib_s(1, 3), 1.5);
        assert_eq!(met.mib_s(3, 5), 0.0);
    }

    #[test]
    fn jain_is_one_when_equal() {
        assert_eq!(jain(&[2.0, 2.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0]), 0.5);
        assert!(jain(&[0.0, 0.0]).is_nan());
    }
}
